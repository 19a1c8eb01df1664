"""PyHudi on Spark: `pyhudi.spark` for reads and writes, `pyhudi.Table` with `spark=` for services and deletes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyhudi as hp
from benchmarks import queries
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.peers.hudi_on_spark import HudiOnSpark
from benchmarks.peers.pyhudi_embedded import CLEANING, measured, or_not_built, version
from pyhudi import spark as hs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PyHudiSpark(HudiOnSpark):
    """The options are those that the real Apache Hudi gets; all else is PyHudi's default."""

    def start(self, settings: Settings) -> dict[str, str]:
        return {"pyhudi": version(), **super().start(settings)}

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        return or_not_built(lambda: hs.read(self.spark, table.path, columns=list(columns), filter=where))

    def read_with(self, table: Table, options: Mapping[str, str]) -> DataFrame:
        return or_not_built(lambda: hs.read(self.spark, table.path, options=options))

    def write(self, table: Table, rows: DataFrame, options: Mapping[str, str]) -> None:
        or_not_built(lambda: hs.write(rows, table.path, mode="append", options=options))

    def compact(self, table: Table) -> Measured:
        return measured(lambda: hp.Table(table.path).compact(spark=self.spark))

    def cluster(self, table: Table) -> Measured:
        return measured(lambda: hp.Table(table.path).cluster(order_by=[queries.CLUSTER_COLUMN], spark=self.spark))

    def clean(self, table: Table) -> Measured:
        return measured(lambda: hp.Table(table.path).clean(dry_run=False, options=CLEANING))
