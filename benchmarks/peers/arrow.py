"""Systems in one process, whose reads return Arrow tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks import fingerprint, queries
from benchmarks.fingerprint import Fingerprint
from benchmarks.peers.base import Measured, NotOffered, Peer, Settings, Table
from benchmarks.queries import Condition


class ArrowPeer(Peer):
    """Subclasses implement `read`, and what else they offer."""

    def read(self, table: Table, columns: Sequence[str] | None = None, where: Condition = ()) -> pa.Table:
        """These columns (None: those of the layout) of the rows that `where` keeps."""
        raise NotOffered

    def changed_rows(self, table: Table) -> pa.Table:
        """Rows that the newest commit inserted or updated."""
        raise NotOffered

    def aggregated(self, table: Table) -> pa.Table:
        """AGGREGATE_SQL; overridden by systems with a query engine."""
        return queries.aggregate(self.read(table, queries.AGGREGATE_COLUMNS))

    def start(self, settings: Settings) -> dict[str, str]:
        self.settings = settings
        pa.set_cpu_count(settings.core_count)
        pa.set_io_thread_count(max(2, settings.core_count))
        return {"pyarrow": pa.__version__, "python": ".".join(map(str, sys.version_info[:3]))}

    def settle(self) -> None:
        pa.default_memory_pool().release_unused()

    def state(self, table: Table) -> Fingerprint:
        return answer_of(table)(self.read(table))

    def aggregate(self, table: Table) -> Measured:
        return aggregate_step(lambda: self.aggregated(table))

    def full_read(self, table: Table) -> Measured:
        return Measured(lambda: self.read(table), answer_of(table))

    def filtered_read(self, table: Table, condition: Condition = queries.FILTER) -> Measured:
        return Measured(lambda: self.read(table, None, condition), answer_of(table))

    def point_lookup(self, table: Table, keys: Sequence[Sequence[int]]) -> Measured:
        def read() -> list[pa.Table]:
            return [self.read(table, queries.LOOKUP_COLUMNS, queries.key_condition(key)) for key in keys]

        def answer(found: list[pa.Table]) -> list[list[Any]]:
            return queries.lookup_answer(row for rows in found for row in queries.to_rows(rows.select(queries.LOOKUP_COLUMNS)))

        return Measured(read, answer, share=len(keys))

    def incremental(self, table: Table) -> Measured:
        return Measured(lambda: self.changed_rows(table), answer_of(table))


def aggregate_step(operation: Callable[[], Any]) -> Measured:
    """A step that returns the rows of AGGREGATE_SQL as Arrow or Polars."""
    return Measured(operation, lambda found: queries.aggregate_answer(queries.to_rows(to_table(found))))


def read_step(operation: Callable[[], Any]) -> Measured:
    """A step that returns rows of lineitem as Arrow or Polars."""
    return Measured(operation, lambda found: fingerprint.of_batches(to_table(found).select(queries.COLUMNS).to_batches()))


def answer_of(table: Table) -> Callable[[pa.Table], Fingerprint]:
    """The function from rows of a table to the fingerprint of its layout."""
    made = fingerprint.of_batches if table.layout_name == "lineitem" else fingerprint.of_rows
    return lambda rows: made(rows.to_batches())


def to_table(found: Any) -> pa.Table:
    """Arrow, Polars and everything else with the Arrow stream protocol as a table; text as `string`."""
    rows = found if isinstance(found, pa.Table) else pa.table(found)
    views = (pa.string_view(), pa.large_string())
    return rows.cast(pa.schema([field.with_type(pa.string()) if field.type in views else field for field in rows.schema]))


def stream(files: Sequence[str]) -> pa.RecordBatchReader:
    """Rows of Parquet files batch by batch, for writers with bounded memory."""
    return ds.dataset(list(files), format="parquet").scanner().to_reader()


def load(files: Sequence[str]) -> pa.Table:
    """Rows of Parquet files as a table, for batches that are merged."""
    return ds.dataset(list(files), format="parquet").to_table()
