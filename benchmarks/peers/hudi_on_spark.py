"""What the two implementations of Hudi on Spark share: the very same options, so that neither is asked for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks import queries
from benchmarks.peers.base import Measured, Table
from benchmarks.peers.hudi_timeline import completion_times
from benchmarks.peers.spark import SparkPeer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HudiOnSpark(SparkPeer):
    """Subclasses say how rows and options reach the implementation."""

    def write(self, table: Table, rows: DataFrame, options: Mapping[str, str]) -> None:
        """Carry out a write in mode `append`."""
        raise NotImplementedError

    def read_with(self, table: Table, options: Mapping[str, str]) -> DataFrame:
        """All columns of what a query with these options gives."""
        raise NotImplementedError

    def changes(self, table: Table) -> DataFrame:
        # The bounds are completion times, and both belong to the range.
        newest = completion_times(table.path)[-1]
        options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": newest}
        return self.read_with(table, options)

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        return self._written(table, files, "bulk_insert")

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        return self._written(table, files, "upsert")

    def delete(self, table: Table, files: Sequence[str]) -> Measured:
        return self._written(table, files, "delete")

    def _written(self, table: Table, files: Sequence[str], operation: str) -> Measured:
        options = {
            "hoodie.table.name": table.name,
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE" if table.kind == "cow" else "MERGE_ON_READ",
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": ",".join(queries.KEY_COLUMNS),
            "hoodie.datasource.write.partitionpath.field": queries.PARTITION_COLUMN,
            "hoodie.datasource.write.precombine.field": queries.ORDERING_COLUMN,
        }
        return Measured(lambda: self.write(table, self.rows(files), options))
