"""PyHudi embedded: `pyhudi.Table`, and the readers for SQL and Polars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import pyhudi as hp
from benchmarks import metadata_only, queries
from benchmarks.peers.arrow import ArrowPeer, aggregate_step, answer_of, load, read_step, stream
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.peers.hudi_timeline import incremental_start
from benchmarks.queries import Condition

# One version of each file group remains, as in this step of the other systems.
CLEANING = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}


class PyHudiEmbedded(ArrowPeer):
    """Defaults, and the options of its system."""

    kinds = ("cow", "mor", "metadata")

    def __init__(self) -> None:
        self._kept: dict[str, hp.Table] = {}

    def start(self, settings: Settings) -> dict[str, str]:
        return {"pyhudi": metadata.version("pyhudi"), **super().start(settings)}

    def open(self, table: Table) -> hp.Table:
        if not table.kept:
            return hp.Table(table.path, options=self.settings.options)
        return self._kept.setdefault(table.path, hp.Table(table.path, options=self.settings.options))

    def read(self, table: Table, columns: Sequence[str] | None = None, where: Condition = ()) -> pa.Table:
        names = columns or table.layout.columns
        return self.open(table).scan(names and list(names), queries.to_sql(where) or None).to_arrow()

    def changed_rows(self, table: Table) -> pa.Table:
        return self.open(table).incremental(incremental_start(table.path)).to_arrow()

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        def operation() -> None:
            layout = table.layout
            created = hp.Table.create(
                table.path,
                name=table.name,
                record_key=list(layout.keys),
                partition_by=[layout.partition],
                ordering=[layout.ordering],
                table_type=table.kind,
                options=self.settings.options,
            )
            created.bulk_insert(stream(files))

        return Measured(operation, _nothing)

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: self.open(table).upsert(load(files)), _nothing)

    def delete(self, table: Table, files: Sequence[str]) -> Measured:
        return Measured(lambda: self.open(table).delete(keys=load(files)), _nothing)

    def compact(self, table: Table) -> Measured:
        return Measured(lambda: self.open(table).compact(), _nothing)

    def cluster(self, table: Table) -> Measured:
        return Measured(lambda: self.open(table).cluster(order_by=[queries.CLUSTER_COLUMN]), _nothing)

    def clean(self, table: Table) -> Measured:
        return Measured(lambda: self.open(table).clean(dry_run=False, options=CLEANING), _nothing)

    def batches_read(self, table: Table) -> Measured:
        """All rows batch by batch, none kept."""
        scan = self.open(table).scan(list(queries.COLUMNS))
        return Measured(lambda: sum(batch.num_rows for batch in scan.to_batches()), int)

    def sql_aggregate(self, table: Table) -> Measured:
        return aggregate_step(lambda: hp.sql(queries.AGGREGATE_SQL.format(table="t"), tables={"t": hp.Table(table.path)}))

    def sql_filter(self, table: Table) -> Measured:
        statement = f"select {', '.join(queries.COLUMNS)} from t where {queries.to_sql(queries.FILTER)}"
        return read_step(lambda: hp.sql(statement, tables={"t": hp.Table(table.path)}))

    def polars_read(self, table: Table) -> Measured:
        return read_step(lambda: hp.Table(table.path).scan(list(queries.COLUMNS)).to_polars())

    def polars_aggregate(self, table: Table) -> Measured:
        from benchmarks.peers.limits import polars_aggregate

        return aggregate_step(lambda: polars_aggregate(hp.scan_polars(table.path)))

    def polars_filter(self, table: Table) -> Measured:
        from benchmarks.peers.limits import polars_filter

        return read_step(lambda: polars_filter(hp.scan_polars(table.path)))

    def changes(self, table: Table) -> Measured:
        def answer(found: pa.Table) -> Any:
            kept = found.filter(pc.is_in(found["op"], pa.array(["i", "u"])))
            return answer_of(table)(pa.Table.from_struct_array(kept["after"].combine_chunks()))

        start = incremental_start(table.path)
        return Measured(lambda: self.open(table).changes(start, typed=True).to_arrow(), answer)

    def build_metadata(self, table: Table, axis: str, size: int) -> Measured:
        return Measured(lambda: metadata_only.build_axis(table.path, axis, size))

    def plan(self, table: Table, condition: Condition) -> Measured:
        return Measured(lambda: hp.Table(table.path).scan(filter=queries.to_sql(condition) or None).explain(), _nothing)

    def commit_files(self, table: Table, axis: str, size: int, number: int) -> Measured:
        return metadata_only.commit_files(table.path, axis, size, number)

    def lookup_record(self, table: Table, size: int) -> Measured:
        return metadata_only.lookup(table.path, size)


_nothing: Callable[[Any], None] = lambda _: None  # noqa: E731 the table is compared afterwards
