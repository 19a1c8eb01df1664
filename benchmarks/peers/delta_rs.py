"""delta-rs (`deltalake`): Delta Lake in one process.  It writes no deletion vectors, so it has no table of kind `mor`."""

from __future__ import annotations

from collections.abc import Sequence

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks import queries
from benchmarks.peers.arrow import ArrowPeer, load, stream
from benchmarks.peers.base import Measured, Settings, Table

_MATCH = " and ".join(f"t.{column} = s.{column}" for column in (*queries.KEY_COLUMNS, queries.PARTITION_COLUMN))


class DeltaRs(ArrowPeer):
    """`merge` for upserts and deletes; reads through the query engine inside."""

    kinds = ("cow",)

    def start(self, settings: Settings) -> dict[str, str]:
        return {"deltalake": deltalake.__version__, **super().start(settings)}

    def read(self, table: Table, columns: Sequence[str] | None = None) -> pa.Table:
        return _plain(DeltaTable(table.path).scan(columns=list(columns) if columns else None))

    def read_filtered(self, table: Table) -> pa.Table:
        return _plain(DeltaTable(table.path).scan(predicate=queries.FILTER_SQL))

    def read_key(self, table: Table, key: Sequence[int]) -> pa.Table:
        return _plain(DeltaTable(table.path).scan(columns=list(queries.LOOKUP_COLUMNS), predicate=queries.lookup_sql(key)))

    def read_aggregate(self, table: Table) -> pa.Table:
        query = QueryBuilder().register("lineitem", DeltaTable(table.path))
        return _plain(query.execute(queries.AGGREGATE_SQL.format(table="lineitem")))

    def read_changes(self, table: Table) -> pa.Table:
        opened = DeltaTable(table.path)
        feed = _plain(opened.load_cdf(starting_version=opened.version()))
        # Texts come as string views, which Arrow can neither look up nor filter.
        schema = pa.schema([field.with_type(pa.string()) if field.type == pa.string_view() else field for field in feed.schema])
        feed = feed.cast(schema)
        return feed.filter(pc.is_in(feed["_change_type"], pa.array(["insert", "update_postimage"]))).select(queries.COLUMNS)

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: write_deltalake(table.path, stream(files), partition_by=[queries.PARTITION_COLUMN]))

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        def operation() -> None:
            merge = DeltaTable(table.path).merge(load(files), _MATCH, source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

        return Measured(operation)

    def delete(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: DeltaTable(table.path).merge(load(files), _MATCH, "s", "t").when_matched_delete().execute())

    def track_changes(self, table: Table) -> Measured:
        return Measured(lambda: DeltaTable(table.path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"}))

    def cluster(self, table: Table) -> Measured:
        return Measured(lambda: DeltaTable(table.path).optimize.z_order([queries.CLUSTER_COLUMN]))

    def clean(self, table: Table) -> Measured:
        return Measured(lambda: DeltaTable(table.path).vacuum(0, dry_run=False, enforce_retention_duration=False))


def _plain(batches: object) -> pa.Table:
    """Its readers speak the Arrow stream protocol, and may hand out string views."""
    return pa.table(batches)
