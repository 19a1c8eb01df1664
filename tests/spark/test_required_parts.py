"""Nullable structs with NOT NULL fields (`named_struct`), written, read and serviced on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.format.meta_columns import META_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_writes_reads_and_services(spark: SparkSession, tmp_path: Path, table_type: str) -> None:
    some = "named_struct('x', id, 'y', if(id % 3 = 0, null, string(id)))"
    part = f"if(id % 2 = 0, null, {some})"
    items = f"if(id % 3 = 0, null, array({part}, {some}))"

    def rows(first: int, last: int, ts: int) -> Any:
        return spark.range(first, last, 1, 2).selectExpr(
            "string(id) as key", "'p' as p", f"{ts}L as ts", f"{part} as struct", f"{items} as list", f"map('k', {part}) as map"
        )

    table = hp.Table.create(
        tmp_path / "t", name="t", record_key="key", partition_by="p", ordering="ts", table_type=table_type, options=OPTIONS
    )
    table.upsert(rows(0, 8, 1))
    table.upsert(rows(6, 10, 2))
    table.delete(spark.sql("select '3' as key, 'p' as p"))
    assert not table.schema().field("struct").type.field("x").nullable
    expected = collected(rows(0, 6, 1).where("key <> '3'").union(rows(6, 10, 2)))

    def check() -> None:
        assert collected(hs.read(spark, str(table.uri)).drop(*META_FIELDS)) == expected
        embedded = [{**row, "map": dict(row["map"])} for row in table.scan().to_arrow().to_pylist()]
        assert sorted(embedded, key=lambda row: str(row["key"])) == expected

    check()
    if table_type == "mor":
        table.compact(spark=spark)
        check()
    table.cluster(spark=spark)
    check()


OPTIONS = {"hoodie.index.bloom.num_entries": 100, "hoodie.compact.inline": False}


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows by key, as Spark hands them out: its own `toArrow` fails on such columns."""
    return [row.asDict(recursive=True) for row in frame.orderBy("key").collect()]
