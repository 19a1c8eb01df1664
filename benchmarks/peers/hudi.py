"""The real Apache Hudi 1.0.2 on Spark 3.5, set up as its quick start says; all else is its default, or base files in zstd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import queries
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.peers.hudi_on_spark import HudiOnSpark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Hudi(HudiOnSpark):
    """Through the data source; services through its SQL procedures."""

    # Beyond the defaults.
    extra_options: tuple[tuple[str, str], ...] = ()

    def configuration(self) -> dict[str, str]:
        return {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }

    def start(self, settings: Settings) -> dict[str, str]:
        versions = super().start(settings)
        return {"hudi": Path(settings.jars[0]).stem.rsplit("-", 1)[1], **versions}

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        rows = self.read_with(table, {})
        return (rows if where is None else rows.where(where)).select(*columns)

    def read_with(self, table: Table, options: Mapping[str, str]) -> DataFrame:
        return self.spark.read.format("hudi").options(**options).load(table.path)

    def write(self, table: Table, rows: DataFrame, options: Mapping[str, str]) -> None:
        rows.write.format("hudi").options(**options, **dict(self.extra_options)).mode("append").save(table.path)

    def compact(self, table: Table) -> Measured:
        # One delta commit is enough to plan a compaction; the default asks for five.
        options = "hoodie.compact.inline.max.delta.commits=1"
        call = f"call run_compaction(op => 'scheduleandexecute', path => '{table.path}', options => '{options}')"
        return Measured(lambda: self.spark.sql(call).collect())

    def cluster(self, table: Table) -> Measured:
        call = f"call run_clustering(op => 'scheduleandexecute', path => '{table.path}', order => '{queries.CLUSTER_COLUMN}')"
        return Measured(lambda: self.spark.sql(call).collect())

    def clean(self, table: Table) -> Measured:
        # This procedure finds tables by name alone.
        name = f"{table.name}_{table.kind}"
        self.spark.sql(f"drop table if exists {name}")
        self.spark.sql(f"create table {name} using hudi location '{table.path}'")
        policy = "clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1"
        return Measured(lambda: self.spark.sql(f"call run_clean(table => '{name}', {policy})").collect())


class HudiZstd(Hudi):
    """The same with the codec that PyHudi has by default, so that the codec explains no ratio."""

    extra_options = (("hoodie.parquet.compression.codec", "zstd"),)
