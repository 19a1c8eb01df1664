"""PyHudi on Spark: `pyhudi.spark` for reads and writes, `pyhudi.Table` with `spark=` for services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

import pyhudi as hp
from benchmarks import queries
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.peers.hudi import HudiOnSpark
from benchmarks.peers.pyhudi_embedded import CLEANING
from pyhudi import spark as hs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PyHudiSpark(HudiOnSpark):
    """The options of Apache Hudi's peer, otherwise defaults."""

    def start(self, settings: Settings) -> dict[str, str]:
        return {"pyhudi": metadata.version("pyhudi"), **super().start(settings)}

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        return hs.read(self.spark, table.path, columns=None if columns == ("*",) else list(columns), filter=where)

    def read_with(self, table: Table, options: Mapping[str, str]) -> DataFrame:
        return hs.read(self.spark, table.path, options=options)

    def write(self, table: Table, rows: DataFrame, options: Mapping[str, str]) -> None:
        hs.write(rows, table.path, mode="append", options=options)

    def compact(self, table: Table) -> Measured:
        return Measured(lambda: hp.Table(table.path).compact(spark=self.spark), lambda _: None)

    def cluster(self, table: Table) -> Measured:
        order = [queries.CLUSTER_COLUMN]
        return Measured(lambda: hp.Table(table.path).cluster(order_by=order, spark=self.spark), lambda _: None)

    def clean(self, table: Table) -> Measured:
        return Measured(lambda: hp.Table(table.path).clean(dry_run=False, options=CLEANING), lambda _: None)
