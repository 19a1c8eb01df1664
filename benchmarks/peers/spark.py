"""What the systems on Spark share: the session, and the reads as Spark SQL.

All of them get the same settings; what a system itself asks for (an extension, a serializer) comes on top. Reads of many rows
end in Spark's `noop` sink, which computes every column and keeps nothing. The answer to such a read is computed apart, from the
same data frame.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import fingerprint, queries
from benchmarks.fingerprint import Fingerprint
from benchmarks.peers.base import Measured, Peer, Settings, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkPeer(Peer):
    """A system that is read and written through a Spark session. Subclasses say what to read, and override the writes."""

    spark: SparkSession

    def configuration(self) -> dict[str, str]:
        """Spark settings that this system asks its users for."""
        return {}

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        """The snapshot, as a user would write it: these columns of the rows that `where`, a SQL condition, keeps."""
        raise NotImplementedError

    def changes(self, table: Table) -> DataFrame:
        """The rows that the newest commit inserted or updated, with at least the table's columns."""
        raise NotImplementedError

    def consume(self, rows: DataFrame) -> None:
        """Compute every row and column, and keep none."""
        rows.write.format("noop").mode("overwrite").save()

    def start(self, settings: Settings) -> dict[str, str]:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        same_for_all = {
            "spark.driver.memory": settings.driver_memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraClassPath": os.pathsep.join(settings.jars),
            "spark.local.dir": settings.scratch,
            "spark.sql.warehouse.dir": os.path.join(settings.scratch, "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            # Spark's defaults, 200 and 10,000, suit a cluster; with them the peers that shuffle or list much, above all Delta's
            # VACUUM, would lose most of their time on tiny tasks.
            "spark.sql.shuffle.partitions": str(4 * settings.core_count),
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(4 * settings.core_count),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master(f"local[{settings.core_count}]").appName("benchmarks")
        for key, value in {**same_for_all, **self.configuration()}.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        # The first job of a session pays for much that is not the system's.
        self.spark.range(1000).selectExpr("sum(id)").collect()
        java = self.spark._jvm.java.lang.System.getProperty("java.version")  # type: ignore[union-attr]
        return {"spark": self.spark.version, "java": str(java), "python": ".".join(map(str, sys.version_info[:3]))}

    def settle(self) -> None:
        self.spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]

    def stop(self) -> None:
        self.spark.stop()

    def rows(self, files: Sequence[str]) -> DataFrame:
        return self.spark.read.parquet(*files)

    def state(self, table: Table) -> Fingerprint:
        return _fingerprint(self.read(table, queries.COLUMNS))

    def aggregate(self, table: Table) -> Measured:
        def operation() -> list[Any]:
            self.read(table, queries.AGGREGATE_COLUMNS).createOrReplaceTempView("lineitem_snapshot")
            return self.spark.sql(queries.AGGREGATE_SQL.format(table="lineitem_snapshot")).collect()

        return Measured(operation, queries.aggregate_answer)

    def full_read(self, table: Table) -> Measured:
        return Measured(lambda: self._consumed(self.read(table, queries.COLUMNS)), _fingerprint)

    def filtered_read(self, table: Table) -> Measured:
        return Measured(lambda: self._consumed(self.read(table, queries.COLUMNS, queries.FILTER_SQL)), _fingerprint)

    def point_lookup(self, table: Table, keys: Sequence[Sequence[int]]) -> Measured:
        def operation() -> list[Any]:
            return [row for key in keys for row in self.read(table, queries.LOOKUP_COLUMNS, queries.lookup_sql(key)).collect()]

        return Measured(operation, queries.lookup_answer, share=len(keys))

    def incremental(self, table: Table) -> Measured:
        def operation() -> DataFrame:
            changed = self.changes(table)
            changed.select(*queries.COLUMNS).collect()
            return changed

        return Measured(operation, _fingerprint)

    def _consumed(self, rows: DataFrame) -> DataFrame:
        self.consume(rows)
        return rows


def _fingerprint(rows: DataFrame) -> Fingerprint:
    row = rows.selectExpr(*fingerprint.sql_expressions()).collect()[0]
    return {name: int(value) for name, value in row.asDict().items()}
