"""A custom delete marker column on Spark gives the rows of the embedded engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest
from tests.support.delete_markers import BASE, CHANGES, MARKED, made, rows, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def on_spark(spark: SparkSession, table: hp.Table, **options: Any) -> dict[str, int]:
    return {row["id"]: row["ts"] for row in hs.read(spark, str(table.uri), options=options).select("id", "ts").collect()}


@pytest.mark.parametrize("merging", ["EVENT", "FirstValue"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_marked_writes(spark: SparkSession, tmp_path: Path, table_type: str, merging: str) -> None:
    here, there = made(tmp_path / "here", table_type, merging), made(tmp_path / "there", table_type, merging)
    here.upsert(CHANGES, options=MARKED)
    there.upsert(spark.createDataFrame(CHANGES.to_pandas()), options=MARKED)
    assert seen(here) == seen(there) == on_spark(spark, there) == on_spark(spark, here)
    assert "a" not in seen(there) and "d" in seen(there)


def test_marked_reads_and_compactions(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "t", "MERGE_ON_READ", "COMMIT")
    with pytest.raises(InvalidRequest, match="ignores delete markers"):
        table.upsert(spark.createDataFrame(BASE.to_pandas()), options=MARKED)
    table.upsert(spark.createDataFrame(rows(("a", 7, "D"), ("e", 7, "I")).to_pandas()))
    assert on_spark(spark, table) == seen(table) == {"a": 7, "b": 5, "c": 5, "d": 5, "e": 7}
    marked = {"b": 5, "c": 5, "d": 5, "e": 7}
    assert on_spark(spark, table, **MARKED) == seen(table, **MARKED) == marked
    table.compact(spark=spark, options=MARKED)
    assert on_spark(spark, table) == seen(table) == marked
