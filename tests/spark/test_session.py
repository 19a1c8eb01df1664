"""The shared Spark session works on driver and workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyhudi import EngineFailed, Table
from pyhudi.engines.spark.jobs import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_this_interpreter_and_see_pyhudi(spark: SparkSession) -> None:
    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyhudi

        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"python": [sys.executable], "package": [pyhudi.__file__], "rows": [rows]})

    found = spark.range(0, 100, 1, 2).mapInArrow(describe, "python string, package string, rows long").collect()
    assert {row["python"] for row in found} == {sys.executable}
    assert sum(row["rows"] for row in found) == 100


def test_times_are_utc(spark: SparkSession) -> None:
    assert spark.sql("SELECT cast(timestamp '1970-01-01 00:00:01' AS long) AS seconds").collect()[0]["seconds"] == 1


def test_crashed_worker_is_reported(spark: SparkSession) -> None:
    with pytest.raises(EngineFailed, match="Python worker exited unexpectedly") as caught:
        run_tasks(spark, os._exit, [7])
    assert "\tat " not in str(caught.value)
    assert run_tasks(spark, abs, [-7]) == [7]


def test_write_whose_worker_crashes_leaves_the_table_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    def dies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        os._exit(7)

    rows = spark.createDataFrame([("a", 1), ("b", 2)], "id string, n long")
    table = Table.create(tmp_path, record_key="id", options={"hoodie.metadata.enable": False})
    table.upsert(rows)
    with pytest.raises(EngineFailed, match="Python worker exited unexpectedly"):
        table.upsert(rows.mapInArrow(dies, rows.schema))
    assert table.scan().count() == 2
    assert table.upsert(rows).rows_updated == 2
