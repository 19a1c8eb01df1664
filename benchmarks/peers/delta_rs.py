"""delta-rs (`deltalake`). It writes no deletion vectors, so it has no table of kind `mor`."""

from __future__ import annotations

from collections.abc import Sequence

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks import queries
from benchmarks.peers.arrow import ArrowPeer, aggregate_step, load, read_step, stream, to_table
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.queries import Condition


class DeltaRs(ArrowPeer):
    """`merge` for upserts and deletes; reads through its query engine."""

    kinds = ("cow",)

    def __init__(self) -> None:
        self._kept: dict[str, DeltaTable] = {}

    def start(self, settings: Settings) -> dict[str, str]:
        return {"deltalake": deltalake.__version__, **super().start(settings)}

    def open(self, table: Table) -> DeltaTable:
        if not table.kept:
            return DeltaTable(table.path)
        opened = self._kept.setdefault(table.path, DeltaTable(table.path))
        opened.update_incremental()
        return opened

    def read(self, table: Table, columns: Sequence[str] | None = None, where: Condition = ()) -> pa.Table:
        rows = self.open(table).scan(columns=list(columns) if columns else None, predicate=queries.to_sql(where) or None)
        return pa.table(rows)

    def aggregated(self, table: Table) -> pa.Table:
        query = QueryBuilder().register("lineitem", DeltaTable(table.path))
        return pa.table(query.execute(queries.AGGREGATE_SQL.format(table="lineitem")))

    def changed_rows(self, table: Table) -> pa.Table:
        opened = DeltaTable(table.path)
        feed = to_table(opened.load_cdf(starting_version=opened.version()))
        return feed.filter(pc.is_in(feed["_change_type"], pa.array(["insert", "update_postimage"]))).select(queries.COLUMNS)

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: write_deltalake(table.path, stream(files), partition_by=[table.layout.partition]))

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        def operation() -> None:
            merge = self.open(table).merge(load(files), _match(table), source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

        return Measured(operation)

    def delete(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: self.open(table).merge(load(files), _match(table), "s", "t").when_matched_delete().execute())

    def track_changes(self, table: Table) -> Measured:
        return Measured(lambda: DeltaTable(table.path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"}))

    def cluster(self, table: Table) -> Measured:
        return Measured(lambda: DeltaTable(table.path).optimize.z_order([queries.CLUSTER_COLUMN]))

    def clean(self, table: Table) -> Measured:
        return Measured(lambda: DeltaTable(table.path).vacuum(0, dry_run=False, enforce_retention_duration=False))

    def batches_read(self, table: Table) -> Measured:
        return Measured(lambda: sum(batch.num_rows for batch in pa.RecordBatchReader.from_stream(self.open(table).scan())), int)

    # One query engine, whatever a question is compared with; Arrow text views become a data frame without a copy.
    def sql_aggregate(self, table: Table) -> Measured:
        return aggregate_step(lambda: self.aggregated(table))

    def sql_filter(self, table: Table) -> Measured:
        return read_step(lambda: self.read(table, None, queries.FILTER))

    def polars_read(self, table: Table) -> Measured:
        return read_step(lambda: self.read(table))

    polars_aggregate = sql_aggregate
    polars_filter = sql_filter
    # The change feed is the counterpart of both reads of changes.
    changes = ArrowPeer.incremental


def _match(table: Table) -> str:
    return " and ".join(f"t.{column} = s.{column}" for column in (*table.layout.keys, table.layout.partition))
