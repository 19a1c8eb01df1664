"""What the systems without Spark share: one process, rows as Arrow, and the answers to the reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks import fingerprint, queries
from benchmarks.fingerprint import Fingerprint
from benchmarks.peers.base import Measured, Peer, Settings, Table


class ArrowPeer(Peer):
    """A system whose reads end in an Arrow table. Subclasses say how to read one, and override the writes."""

    def read(self, table: Table, columns: Sequence[str] | None = None) -> pa.Table:
        """These columns (None: all of the data) of all rows of the snapshot."""
        raise NotImplementedError

    def read_filtered(self, table: Table) -> pa.Table:
        """queries.FILTER_SQL, all columns."""
        raise NotImplementedError

    def read_key(self, table: Table, key: Sequence[int]) -> pa.Table:
        """The row of one key; at least queries.LOOKUP_COLUMNS."""
        raise NotImplementedError

    def read_changes(self, table: Table) -> pa.Table:
        """The rows that the newest commit inserted or updated."""
        raise NotImplementedError

    def read_aggregate(self, table: Table) -> pa.Table:
        """queries.AGGREGATE_SQL; a system with a query engine of its own overrides this."""
        return queries.arrow_aggregate(self.read(table, queries.AGGREGATE_COLUMNS))

    def start(self, settings: Settings) -> dict[str, str]:
        pa.set_cpu_count(settings.core_count)
        pa.set_io_thread_count(max(2, settings.core_count))
        return {"pyarrow": pa.__version__, "python": ".".join(map(str, sys.version_info[:3]))}

    def settle(self) -> None:
        pa.default_memory_pool().release_unused()

    def state(self, table: Table) -> Fingerprint:
        return _fingerprint(self.read(table))

    def aggregate(self, table: Table) -> Measured:
        return Measured(lambda: self.read_aggregate(table), lambda answer: queries.aggregate_answer(queries.rows_of(answer)))

    def full_read(self, table: Table) -> Measured:
        return Measured(lambda: self.read(table), _fingerprint)

    def filtered_read(self, table: Table) -> Measured:
        return Measured(lambda: self.read_filtered(table), _fingerprint)

    def point_lookup(self, table: Table, keys: Sequence[Sequence[int]]) -> Measured:
        def answer(found: list[pa.Table]) -> list[list[Any]]:
            return queries.lookup_answer(row for rows in found for row in queries.rows_of(rows.select(queries.LOOKUP_COLUMNS)))

        return Measured(lambda: [self.read_key(table, key) for key in keys], answer, share=len(keys))

    def incremental(self, table: Table) -> Measured:
        return Measured(lambda: self.read_changes(table), _fingerprint)


def stream(files: Sequence[str]) -> pa.RecordBatchReader:
    """The rows of Parquet files, batch by batch, as a writer with bounded memory wants them."""
    return ds.dataset(list(files), format="parquet").scanner().to_reader()


def load(files: Sequence[str]) -> pa.Table:
    """The rows of Parquet files at once: for batches that are merged into a table."""
    return ds.dataset(list(files), format="parquet").to_table()


def _fingerprint(rows: pa.Table) -> Fingerprint:
    return fingerprint.of_batches(rows.to_batches())
