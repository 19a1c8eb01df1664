"""Trips: a small partitioned table that the tests on Spark write and read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import pyhudi as hp
from pyhudi import Table
from pyhudi import spark as hs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}
SCHEMA = "id string, city string, ts long, fare double"


Row = tuple[Any, ...]


def rows_of(spark: SparkSession, path: Path | str, columns: str = "id, city, ts, fare") -> list[Row]:
    frame = hs.read(spark, str(path))
    return sorted(tuple(row) for row in frame.select(*[name.strip() for name in columns.split(",")]).collect())


def frame_of(spark: SparkSession, rows: Iterable[Row], schema: str = SCHEMA) -> DataFrame:
    # In three partitions that cost no shuffle.
    return spark.createDataFrame(spark.sparkContext.parallelize(list(rows), 3), schema)


def written(spark: SparkSession, path: Path, rows: Iterable[Row], operation: str = "upsert", **options: str) -> Any:
    given = {**OPTIONS, "hoodie.datasource.write.operation": operation, **options}
    return hs.write(frame_of(spark, rows), str(path), options=given)


def stored(path: Path, rows: Iterable[Row], operation: str = "upsert", **options: str) -> None:
    """A write of the embedded engine, for what a test begins with: it costs a tenth of one on Spark."""
    table = hp.Table(str(path)) if Table.exists(path) else hp.Table.create(str(path), options={**OPTIONS, **options})
    columns = zip(("id", "city", "ts", "fare"), zip(*rows, strict=True), strict=True)
    getattr(table, operation)(pa.table({name: list(values) for name, values in columns}), options=options)


FIRST = [(f"id{n}", "sf" if n % 2 else "ny", n, n / 2) for n in range(100)]
