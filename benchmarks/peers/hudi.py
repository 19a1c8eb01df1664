"""The real Apache Hudi 1.0.2 on Spark 3.5, set up as its quick start says; all else is its default, or base files in zstd."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import queries
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.peers.hudi_timeline import completion_times
from benchmarks.peers.spark import SparkPeer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Hudi(SparkPeer):
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
        rows = self.spark.read.format("hudi").load(table.path)
        return (rows if where is None else rows.where(where)).select(*columns)

    def changes(self, table: Table) -> DataFrame:
        # The bounds are completion times, and both belong to the range.
        options = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": completion_times(table.path)[-1],
        }
        return self.spark.read.format("hudi").options(**options).load(table.path)

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: self._write(table, files, "bulk_insert"))

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: self._write(table, files, "upsert"))

    def delete(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: self._write(table, files, "delete"))

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

    def _write(self, table: Table, files: Sequence[str], operation: str) -> None:
        options = {
            "hoodie.table.name": table.name,
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE" if table.kind == "cow" else "MERGE_ON_READ",
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": ",".join(queries.KEY_COLUMNS),
            "hoodie.datasource.write.partitionpath.field": queries.PARTITION_COLUMN,
            "hoodie.datasource.write.precombine.field": queries.ORDERING_COLUMN,
            **dict(self.extra_options),
        }
        self.rows(files).write.format("hudi").options(**options).mode("append").save(table.path)


class HudiZstd(Hudi):
    """The same with the codec that PyHudi has by default, so that the codec explains no ratio."""

    extra_options = (("hoodie.parquet.compression.codec", "zstd"),)
