"""Streams of files that tests write with the streaming sink, one file a micro-batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import pyhudi as hp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = {
    "hoodie.table.name": "events",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "bulk_insert",
    "hoodie.datasource.write.streaming.retry.interval.ms": "10",
    "hoodie.metadata.enable": "false",
}
ONCE = {"availableNow": True}


def put_file(folder: Path, number: int, ids: range) -> None:
    """Rows of one micro-batch; a bulk insert of them twice would show."""
    folder.mkdir(exist_ok=True)
    table = pa.table({"id": [str(i) for i in ids], "ts": pa.array([number] * len(ids), pa.int64())})
    path = folder / f"{number:04}.parquet"
    pq.write_table(table, path)
    # Spark reads files in the order of their times.
    os.utime(path, (1_700_000_000 + number,) * 2)


def source(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("id string, ts long").option("maxFilesPerTrigger", 1).parquet(str(folder))


def ids_of(path: Path) -> list[int]:
    return sorted(int(value) for value in hp.Table(path).scan(["id"]).to_arrow()["id"].to_pylist())
