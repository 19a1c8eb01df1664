"""Systems on Spark: the session, and the reads as Spark SQL.

All get the same settings besides those that the system requires. Reads of many rows end in Spark's `noop` sink, which
computes every column and keeps nothing; the answer is computed separately from the same data frame.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import fingerprint, queries
from benchmarks.fingerprint import Fingerprint
from benchmarks.peers.base import Measured, Peer, Settings, Table
from benchmarks.queries import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkPeer(Peer):
    """Subclasses implement `read`, `changed_rows` and the writes."""

    spark: SparkSession

    def configuration(self) -> dict[str, str]:
        """Spark settings that the system requires."""
        return {}

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        """These columns of the rows of the snapshot that `where`, a SQL condition, keeps."""
        raise NotImplementedError

    def changed_rows(self, table: Table) -> DataFrame:
        """Rows that the newest commit inserted or updated."""
        raise NotImplementedError

    def consume(self, rows: DataFrame) -> None:
        """Compute every row and column, and keep none."""
        rows.write.format("noop").mode("overwrite").save()

    def start(self, settings: Settings) -> dict[str, str]:
        from pyspark.sql import SparkSession

        self.settings = settings
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # Spark's defaults of 200 and 10,000 tasks suit a cluster.
        tasks = str(4 * settings.core_count)
        same_for_all = {
            "spark.driver.memory": settings.driver_memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraClassPath": os.pathsep.join(settings.jars),
            "spark.local.dir": settings.scratch,
            "spark.sql.warehouse.dir": os.path.join(settings.scratch, "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": tasks,
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": tasks,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master(f"local[{settings.core_count}]").appName("benchmarks")
        for key, value in {**same_for_all, **self.configuration()}.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        # The first job of a session pays for more than the system.
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
        return _fingerprint(table, self.read(table, _columns(table)))

    def aggregate(self, table: Table) -> Measured:
        def operation() -> list[Any]:
            self.read(table, queries.AGGREGATE_COLUMNS).createOrReplaceTempView("lineitem_snapshot")
            return self.spark.sql(queries.AGGREGATE_SQL.format(table="lineitem_snapshot")).collect()

        return Measured(operation, queries.aggregate_answer)

    def full_read(self, table: Table) -> Measured:
        return self._consumed(table)

    def filtered_read(self, table: Table, condition: Condition = queries.FILTER) -> Measured:
        return self._consumed(table, queries.to_sql(condition))

    def point_lookup(self, table: Table, keys: Sequence[Sequence[int]]) -> Measured:
        conditions = [queries.to_sql(queries.key_condition(key)) for key in keys]

        def operation() -> list[Any]:
            return [row for where in conditions for row in self.read(table, queries.LOOKUP_COLUMNS, where).collect()]

        return Measured(operation, queries.lookup_answer, share=len(keys))

    def incremental(self, table: Table) -> Measured:
        def operation() -> DataFrame:
            changed = self.changed_rows(table)
            changed.select(*_columns(table)).collect()
            return changed

        return Measured(operation, lambda rows: _fingerprint(table, rows))

    def _consumed(self, table: Table, where: str | None = None) -> Measured:
        def operation() -> DataFrame:
            rows = self.read(table, _columns(table), where)
            self.consume(rows)
            return rows

        return Measured(operation, lambda rows: _fingerprint(table, rows))


def _columns(table: Table) -> Sequence[str]:
    return table.layout.columns or ("*",)


def _fingerprint(table: Table, rows: DataFrame) -> Fingerprint:
    expressions = fingerprint.sql_expressions() if table.layout_name == "lineitem" else fingerprint.ROWS_SQL
    return {name: int(value) for name, value in rows.selectExpr(*expressions).collect()[0].asDict().items()}
