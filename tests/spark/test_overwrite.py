"""`hs.write` with mode overwrite replaces rows and columns in one atomic commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.errors import HudiError, InvalidRequest, Unsupported
from tests.support.golden_tables import open_golden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}
FIRST = [(f"id{n}", "sf" if n % 2 else "ny", n, n / 2) for n in range(6)]


def frame(
    spark: SparkSession, rows: list[tuple[Any, ...]], schema: str = "id string, city string, ts long, fare double"
) -> DataFrame:
    return spark.createDataFrame(rows, schema)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(path: Path | str) -> list[tuple[Any, ...]]:
    read = hp.Table(str(path)).scan().to_arrow()
    return sorted(tuple(row.values()) for row in read.to_pylist())


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    hs.write(frame(spark, FIRST), tmp_path / "t", options=OPTIONS)
    other = hp.Table.create(tmp_path / "t" / "archive" / "other", record_key="id")
    other.insert(pa.table({"id": [1]}))
    return str(tmp_path / "t")


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"])
def test_rows_read_from_the_table_itself(spark: SparkSession, path: str, operation: str) -> None:
    kept = hs.read(spark, path).where("fare >= 1")
    result = hs.write(kept, path, mode="overwrite", options={**OPTIONS, "hoodie.datasource.write.operation": operation})
    assert result.rows_in == 4
    assert rows(path) == [row for row in FIRST if row[3] >= 1]
    assert len(hp.Table(path).timeline().completed_writes()) == 2
    # Other files in the folder than the table's own remain.
    assert hp.Table(f"{path}/archive/other").scan().count() == 1
    assert hp.Table(path).validate().ok


def test_columns_are_those_of_the_new_rows(spark: SparkSession, path: str) -> None:
    new = frame(spark, [("a", "la", "1.5", 7)], "id string, city string, fare string, ts long")
    with pytest.raises(InvalidRequest, match="fare from double to string"):
        hs.write(new, path, mode="overwrite", options=OPTIONS)
    hs.write(new, path, mode="overwrite", options={**OPTIONS, "pyhudi.schema.mode": "evolve"})
    assert rows(path) == [("a", "la", "1.5", 7)]
    hs.write(new, path, options=OPTIONS)
    assert rows(path) == [("a", "la", "1.5", 7)] and hp.Table(path).validate().ok


@pytest.mark.parametrize("operation", ["insert_overwrite", "insert_overwrite_table", "overwrite", "delete_partition"])
def test_planned_compaction_runs_after_an_overwrite(spark: SparkSession, tmp_path: Path, operation: str) -> None:
    path = str(tmp_path / "t")
    quiet = {"hoodie.compact.inline": "false", "hoodie.parquet.small.file.limit": "0"}
    options = {**OPTIONS, **quiet, "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    hs.write(frame(spark, FIRST), path, options=options)
    hs.write(frame(spark, [(key, city, ts + 10, fare) for key, city, ts, fare in FIRST]), path, options=options)
    table = hp.Table(path, options=quiet)
    planned = table.schedule_compaction().planned
    assert planned is not None
    new = [("new", "ny", 1, 9.0)]
    if operation == "delete_partition":
        named = {
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.partitions.to.delete": "ny",
        }
        hs.write(frame(spark, new), path, options={**options, **named})
    elif operation == "overwrite":
        hs.write(frame(spark, new), path, mode="overwrite", options=options)
    else:
        hs.write(frame(spark, new), path, options={**options, "hoodie.datasource.write.operation": operation})
    stay = [(key, city, ts + 10, fare) for key, city, ts, fare in FIRST if city == "sf"]
    expected = sorted(
        {
            "insert_overwrite": [*new, *stay],
            "insert_overwrite_table": new,
            "overwrite": new,
            "delete_partition": stay,
        }[operation]
    )
    assert rows(path) == expected
    assert table.compact(planned, spark=spark).runs[0].file_groups == (1 if stay[0] in expected else 0)
    assert rows(path) == expected == sorted(tuple(row) for row in hs.read(spark, path, ["id", "city", "ts", "fare"]).collect())
    assert table.validate().ok


REFUSED: dict[str, tuple[dict[str, str], Callable[[SparkSession], DataFrame]]] = {
    "another key": ({"hoodie.datasource.write.recordkey.field": "city"}, lambda spark: frame(spark, FIRST)),
    "another type": ({"hoodie.datasource.write.table.type": "MERGE_ON_READ"}, lambda spark: frame(spark, FIRST)),
    "another partitioning": ({"hoodie.datasource.write.partitionpath.field": "id"}, lambda spark: frame(spark, FIRST)),
    "an option that is refused": ({"hoodie.index.type": "HBASE"}, lambda spark: frame(spark, FIRST)),
    "a value that is none": ({"hoodie.parquet.max.file.size": "large"}, lambda spark: frame(spark, FIRST)),
    "no key column": ({}, lambda spark: frame(spark, FIRST).drop("id")),
    "a null key": ({}, lambda spark: frame(spark, [*FIRST, (None, "sf", 1, 1.0)])),
    "rows that cannot be computed": (
        {},
        lambda spark: frame(spark, FIRST).selectExpr("id", "city", "ts", "assert_true(ts < 3) as fare"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rejected_overwrite_keeps_the_table(spark: SparkSession, path: str, name: str) -> None:
    options, make = REFUSED[name]
    before = rows(path)
    with pytest.raises(Exception) as caught:
        hs.write(make(spark), path, mode="overwrite", options={**OPTIONS, **options})
    if name.startswith("another"):
        assert isinstance(caught.value, InvalidRequest) and "delete the folder" in str(caught.value)
    elif name != "rows that cannot be computed":
        assert isinstance(caught.value, HudiError)
    table = hp.Table(path)
    assert rows(path) == before and not table.timeline().pending()
    assert len(table.timeline().completed_writes()) == 1


def test_a_table_that_is_not_written_is_not_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    path = open_golden("cow_v6", tmp_path).path
    before = content(path)
    with pytest.raises(Unsupported):
        hs.write(frame(spark, FIRST), path, mode="overwrite")
    assert content(path) == before
