"""The limit on Spark: plain Parquet.  Reads the very base files of another system's table, so that only the format differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks import queries
from benchmarks.peers.base import Measured, NotOffered, Table
from benchmarks.peers.hudi_timeline import newest_base_files
from benchmarks.peers.spark import SparkPeer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkParquet(SparkPeer):
    """`spark.read.parquet` and `DataFrameWriter.parquet`; on the Spark that PyHudi runs on."""

    kinds = ("cow",)

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        # Without the folders' names the partition column comes from the files, as it does for Hudi.
        rows = self.spark.read.option("recursiveFileLookup", "true").parquet(*newest_base_files(table.path))
        return (rows if where is None else rows.where(where)).select(*columns)

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        def operation() -> None:
            self.rows(files).write.partitionBy(queries.PARTITION_COLUMN).option("compression", "zstd").parquet(table.path)

        return Measured(operation)

    def incremental(self, table: Table) -> Measured:
        raise NotOffered
