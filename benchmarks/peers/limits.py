"""Limits: plain Parquet by Polars, DuckDB and Spark. They read the base files of another system's table."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks import queries
from benchmarks.peers.arrow import ArrowPeer, aggregate_step, read_step
from benchmarks.peers.base import Measured, NotOffered, Settings, Table
from benchmarks.peers.hudi_timeline import newest_base_files
from benchmarks.peers.spark import SparkPeer
from benchmarks.queries import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _Engine(ArrowPeer):
    kinds = ("cow",)
    module = ""

    def start(self, settings: Settings) -> dict[str, str]:
        self.engine: Any = import_module(self.module)
        return {self.module: self.engine.__version__, **super().start(settings)}


class Polars(_Engine):
    """`polars.scan_parquet`."""

    module = "polars"

    def _scan(self, table: Table) -> Any:
        return self.engine.scan_parquet(newest_base_files(table.path))

    def polars_read(self, table: Table) -> Measured:
        return read_step(lambda: self._scan(table).select(queries.COLUMNS).collect())

    full_read = polars_read

    def polars_aggregate(self, table: Table) -> Measured:
        return aggregate_step(lambda: polars_aggregate(self._scan(table)))

    def polars_filter(self, table: Table) -> Measured:
        return read_step(lambda: polars_filter(self._scan(table)))

    def filtered_read(self, table: Table, condition: Condition = queries.FILTER) -> Measured:
        return self.polars_filter(table)

    def aggregated(self, table: Table) -> Any:
        return polars_aggregate(self._scan(table))


class DuckDb(_Engine):
    """`read_parquet`."""

    module = "duckdb"

    def _run_statement(self, table: Table, statement: str) -> pa.Table:
        with self.engine.connect(config={"threads": self.settings.core_count}) as connection:
            paths = {"paths": newest_base_files(table.path)}
            files = "read_parquet($paths, hive_partitioning = false)"
            rows: pa.Table = connection.sql(statement.format(table=files), params=paths).to_arrow_table()
            return rows

    def sql_aggregate(self, table: Table) -> Measured:
        return aggregate_step(lambda: self._run_statement(table, queries.AGGREGATE_SQL))

    def sql_filter(self, table: Table) -> Measured:
        statement = f"select {', '.join(queries.COLUMNS)} from {{table}} where {queries.to_sql(queries.FILTER)}"
        return read_step(lambda: self._run_statement(table, statement))

    def filtered_read(self, table: Table, condition: Condition = queries.FILTER) -> Measured:
        return self.sql_filter(table)

    def read(self, table: Table, columns: Sequence[str] | None = None, where: Condition = ()) -> pa.Table:
        return self._run_statement(table, f"select {', '.join(columns or queries.COLUMNS)} from {{table}}")

    def aggregated(self, table: Table) -> pa.Table:
        return self._run_statement(table, queries.AGGREGATE_SQL)


def polars_aggregate(frame: Any) -> Any:
    """AGGREGATE_SQL of a lazy frame."""
    polars: Any = import_module("polars")
    sums = [polars.len(), polars.col("l_quantity").sum(), polars.col("l_extendedprice").sum(), polars.col("ts").max()]
    return frame.group_by("l_returnflag", "l_linestatus").agg(sums).collect()


def polars_filter(frame: Any) -> Any:
    """The filtered read of a lazy frame."""
    polars: Any = import_module("polars")
    (partition, _, year), (quantity, _, most) = queries.FILTER
    kept = frame.filter((polars.col(partition) == year) & (polars.col(quantity) <= most))
    return kept.select(queries.COLUMNS).collect()


class SparkParquet(SparkPeer):
    """`spark.read.parquet` and `DataFrameWriter.parquet` of the Spark that PyHudi runs on."""

    kinds = ("cow",)

    def read(self, table: Table, columns: Sequence[str], where: str | None = None) -> DataFrame:
        # With recursiveFileLookup the partition column comes from the files, as it does for Hudi.
        rows = self.spark.read.option("recursiveFileLookup", "true").parquet(*newest_base_files(table.path))
        return (rows if where is None else rows.where(where)).select(*columns)

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        def operation() -> None:
            self.rows(files).write.partitionBy(table.layout.partition).option("compression", "zstd").parquet(table.path)

        return Measured(operation)

    def incremental(self, table: Table) -> Measured:
        raise NotOffered
