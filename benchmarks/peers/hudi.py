"""Apache Hudi on Spark, set up as its quick start says, with Zstandard; and what PyHudi on Spark shares with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import queries
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.peers.hudi_timeline import incremental_start
from benchmarks.peers.spark import SparkPeer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HudiOnSpark(SparkPeer):
    """Equal options for both implementations; subclasses pass rows and options on."""

    def write(self, table: Table, rows: DataFrame, options: Mapping[str, str]) -> None:
        """Write in mode `append`."""
        raise NotImplementedError

    def read_with(self, table: Table, options: Mapping[str, str]) -> DataFrame:
        """All columns of a query with these options."""
        raise NotImplementedError

    def changed_rows(self, table: Table) -> DataFrame:
        start = incremental_start(table.path)
        options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": start}
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
            "hoodie.datasource.write.recordkey.field": ",".join(table.layout.keys),
            "hoodie.datasource.write.partitionpath.field": table.layout.partition,
            "hoodie.datasource.write.precombine.field": table.layout.ordering,
            "hoodie.parquet.compression.codec": "zstd",
        }
        return Measured(lambda: self.write(table, self.rows(files), options))


class Hudi(HudiOnSpark):
    """Through the data source; services through its SQL procedures."""

    def configuration(self) -> dict[str, str]:
        return {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }

    def start(self, settings: Settings) -> dict[str, str]:
        return {"hudi": Path(settings.jars[0]).stem.rsplit("-", 1)[1], **super().start(settings)}

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        rows = self.read_with(table, {})
        return (rows if where is None else rows.where(where)).select(*columns)

    def read_with(self, table: Table, options: Mapping[str, str]) -> DataFrame:
        return self.spark.read.format("hudi").options(**options).load(table.path)

    def write(self, table: Table, rows: DataFrame, options: Mapping[str, str]) -> None:
        rows.write.format("hudi").options(**options).mode("append").save(table.path)

    def compact(self, table: Table) -> Measured:
        # One delta commit suffices for a plan; the default requires five.
        options = "hoodie.compact.inline.max.delta.commits=1"
        return self._called(f"run_compaction(op => 'scheduleandexecute', path => '{table.path}', options => '{options}')")

    def cluster(self, table: Table) -> Measured:
        order = f"order => '{queries.CLUSTER_COLUMN}'"
        return self._called(f"run_clustering(op => 'scheduleandexecute', path => '{table.path}', {order})")

    def clean(self, table: Table) -> Measured:
        # This procedure finds tables by name only.
        name = f"{table.name}_{table.kind}"
        self.spark.sql(f"drop table if exists {name}")
        self.spark.sql(f"create table {name} using hudi location '{table.path}'")
        policy = "clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1"
        return self._called(f"run_clean(table => '{name}', {policy})")

    def _called(self, procedure: str) -> Measured:
        return Measured(lambda: self.spark.sql(f"call {procedure}").collect())
