"""Delta Lake 4.0 on Spark 4.0: MERGE for upserts and deletes. Its table of kind `mor` has deletion vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import queries
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.peers.spark import SparkPeer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DeltaSpark(SparkPeer):
    """Through SQL."""

    def configuration(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # VACUUM also removes files younger than a week.
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        }

    def start(self, settings: Settings) -> dict[str, str]:
        versions = super().start(settings)
        return {"delta": Path(settings.jars[0]).stem.rsplit("-", 1)[1], **versions}

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        rows = self.spark.read.format("delta").load(table.path)
        return (rows if where is None else rows.where(where)).select(*columns)

    def changed_rows(self, table: Table) -> DataFrame:
        newest = self.spark.sql(f"describe history delta.`{table.path}` limit 1").collect()[0]["version"]
        feed = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", newest).load(table.path)
        return feed.where("_change_type in ('insert', 'update_postimage')")

    def consume(self, rows: DataFrame) -> None:
        # Delta 4.0 cannot write a table with deletion vectors into the noop sink; this computes the same rows.
        rows._jdf.queryExecution().toRdd().count()

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        def operation() -> None:
            writer = self.rows(files).write.format("delta").partitionBy(table.layout.partition)
            if table.kind == "mor":
                writer = writer.option("delta.enableDeletionVectors", "true")
            writer.save(table.path)

        return Measured(operation)

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: self._merge(table, files, "when matched then update set * when not matched then insert *"))

    def delete(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: self._merge(table, files, "when matched then delete"))

    def track_changes(self, table: Table) -> Measured:
        sql = f"alter table delta.`{table.path}` set tblproperties (delta.enableChangeDataFeed = true)"
        return Measured(lambda: self.spark.sql(sql).collect())

    def compact(self, table: Table) -> Measured:
        return Measured(lambda: self.spark.sql(f"reorg table delta.`{table.path}` apply (purge)").collect())

    def cluster(self, table: Table) -> Measured:
        return Measured(lambda: self.spark.sql(f"optimize delta.`{table.path}` zorder by ({queries.CLUSTER_COLUMN})").collect())

    def clean(self, table: Table) -> Measured:
        return Measured(lambda: self.spark.sql(f"vacuum delta.`{table.path}` retain 0 hours").collect())

    def _merge(self, table: Table, files: Sequence[str], clauses: str) -> None:
        self.rows(files).createOrReplaceTempView("incoming")
        # With the partition column, as Hudi looks keys up within their partition.
        match = " and ".join(f"t.{column} = s.{column}" for column in (*table.layout.keys, table.layout.partition))
        self.spark.sql(f"merge into delta.`{table.path}` t using incoming s on {match} {clauses}").collect()
