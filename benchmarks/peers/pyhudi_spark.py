"""PyHudi on Spark: `pyhudi.spark` for reads and writes, `pyhudi.Table` with `spark=` for services and deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyhudi as hp
from benchmarks import queries
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.peers.hudi_timeline import completion_times
from benchmarks.peers.pyhudi_embedded import CLEANING, measured, or_not_built, version
from benchmarks.peers.spark import SparkPeer
from pyhudi import spark as hs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PyHudiSpark(SparkPeer):
    """The options are those that the real Apache Hudi gets; all else is PyHudi's default."""

    def start(self, settings: Settings) -> dict[str, str]:
        return {"pyhudi": version(), **super().start(settings)}

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        return or_not_built(lambda: hs.read(self.spark, table.path, columns=list(columns), filter=where))

    def changes(self, table: Table) -> DataFrame:
        options = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": completion_times(table.path)[-1],
        }
        return or_not_built(lambda: hs.read(self.spark, table.path, options=options))

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        return measured(lambda: self._write(table, files, "bulk_insert"))

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        return measured(lambda: self._write(table, files, "upsert"))

    def delete(self, table: Table, files: Sequence[str]) -> Measured:
        return measured(lambda: self._write(table, files, "delete"))

    def compact(self, table: Table) -> Measured:
        return measured(lambda: hp.Table(table.path).compact(spark=self.spark))

    def cluster(self, table: Table) -> Measured:
        return measured(lambda: hp.Table(table.path).cluster(order_by=[queries.CLUSTER_COLUMN], spark=self.spark))

    def clean(self, table: Table) -> Measured:
        return measured(lambda: hp.Table(table.path).clean(dry_run=False, options=CLEANING))

    def _write(self, table: Table, files: Sequence[str], operation: str) -> None:
        options = {
            "hoodie.table.name": table.name,
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE" if table.kind == "cow" else "MERGE_ON_READ",
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": ",".join(queries.KEY_COLUMNS),
            "hoodie.datasource.write.partitionpath.field": queries.PARTITION_COLUMN,
            "hoodie.datasource.write.precombine.field": queries.ORDERING_COLUMN,
        }
        hs.write(self.rows(files), table.path, mode="append", options=options)
