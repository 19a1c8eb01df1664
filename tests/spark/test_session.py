"""The session that the Spark tests share works, on the workers too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

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
