"""Reading on Spark: paths with pattern characters, missing tables and damaged files."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi import spark as hs
from pyhudi.errors import TableNotFound, Unsupported
from tests.support.external_files import AT, COMMITS, LATEST, OFF, registered
from tests.support.other_folder import with_other_values
from tests.support.spark_trips import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_path_that_looks_like_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a", "[x]{y}*?", 1)], "id string, city string, ts long")
    hs.write(frame, str(tmp_path / "t"), options=OPTIONS)
    assert [row["city"] for row in hs.read(spark, str(tmp_path / "t")).collect()] == ["[x]{y}*?"]


def test_no_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        hs.read(spark, str(tmp_path / "nothing"))


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_damage_is_an_error(spark: SparkSession, tmp_path: Path, table_type: str) -> None:
    path = str(tmp_path / "t")
    options = {**OPTIONS, "hoodie.datasource.write.table.type": table_type, "hoodie.parquet.compression.codec": "uncompressed"}
    frame = spark.range(9).selectExpr("concat('id', id) AS id", "'sf' AS city", "id AS ts", "cast(id AS double) AS fare")
    hs.write(frame, path, options=options)
    hs.write(frame.selectExpr("id", "city", "ts + 100 AS ts", "-1D AS fare"), path, options=options)
    files = (tmp_path / "t" / "sf").glob(".*.log.*" if table_type == "MERGE_ON_READ" else "*.parquet")
    newest = max(files, key=lambda file: file.stat().st_mtime_ns)
    assert hs.read(spark, path).count() == 9
    whole = newest.read_bytes()
    at = whole.rindex(b"id7", 0, len(whole) // 2) if table_type == "COPY_ON_WRITE" else len(whole) // 2
    newest.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(Exception, match=r"(?s)CorruptData|CRC|checksum|encountered error while reading"):
        hs.read(spark, path).toArrow()


@pytest.mark.parametrize("style", [{}, {"hoodie.datasource.write.hive_style_partitioning": True}])
@pytest.mark.parametrize("partition_by", [["city"], ["city", "n"], ["n"], ["half"]])
def test_partition_columns_have_the_value_of_their_folder(
    spark: SparkSession, tmp_path: Path, partition_by: list[str], style: dict[str, bool]
) -> None:
    """Spark's own scan derives it from the stored path; what it cannot derive, tasks read."""
    cities = ["x", "y", "z", None, "w v"]
    data = pa.table({"id": [0, 1, 2, 3, 4], "city": cities, "n": [10, -2, 3, None, 5], "half": [0.5, 1.5, None, 2.0, -1.0]})
    other = {"city": "other", "n": 99, "half": 9.9}
    with ExitStack() as stack:
        for name in partition_by[:1]:
            stack.enter_context(with_other_values(name, other[name]))
        table = Table.create(
            tmp_path, record_key="id", partition_by=partition_by, options={"hoodie.metadata.enable": False, **style}
        )
        table.insert(data)
    path, name = str(tmp_path), partition_by[0]
    expected = dict(zip(data["id"].to_pylist(), data[name].to_pylist(), strict=True))
    if name == "city":
        # The folder of null holds this text as well.
        expected[3] = None
    assert {row["id"]: row[name] for row in hs.read(spark, path, columns=["id", name]).collect()} == expected
    whole = hs.read(spark, path).where(f"{name} IS NOT NULL")
    assert {row["id"]: row[name] for row in whole.collect()} == {key: v for key, v in expected.items() if v is not None}
    first = hs.read(spark, path, columns=[name, "id"], filter=[(name, "=", data[name][0].as_py())])
    assert [tuple(row) for row in first.collect()] == [(data[name][0].as_py(), 0)]


@pytest.mark.parametrize("version", [6, 8])
def test_files_of_other_table_formats(spark: SparkSession, tmp_path: Path, version: int) -> None:
    registered(tmp_path, version, COMMITS)
    frame = hs.read(spark, str(tmp_path), options=OFF)
    assert {row["id"]: row["day"].day for row in frame.collect()} == LATEST
    seconds = {row[0] for row in frame.selectExpr("unix_micros(at)").collect()}
    assert seconds == {int(AT.replace(tzinfo=UTC).timestamp() * 1e6)}
    assert [row["id"] for row in frame.where("day = DATE '2026-11-02'").select("id").collect()] == [4]
    assert frame.where("id > 3").count() == 2
    with pytest.raises(Unsupported):
        hs.write(frame.where("id = 1"), str(tmp_path), options=OFF)
