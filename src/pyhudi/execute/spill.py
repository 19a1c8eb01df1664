"""Rows held within a memory budget: in memory while they fit, then in files on local disk that are mapped into memory.

Rows are spread over buckets by the hash of their key once they spill, so that work on keys (combining duplicates, lookups)
needs the keys of one bucket at a time.  What a reader of the buckets gets are ordinary Arrow tables; those of spilled buckets
are backed by the mapped file, not by memory of the process.

The budget bounds rows; of keys, at most one bucket in `SPILL_BUCKETS` is in memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pyhudi.records.hashing import java_string_hash

SPILL_BUCKETS = 64
"""Into how many files rows are spread once they exceed the budget."""


class RowBuffer:
    """Collects tables of one schema.  Call `finish` after the last row, `release` when the rows are not needed any more."""

    def __init__(self, schema: pa.Schema, key_column: str, budget_bytes: int) -> None:
        self._schema = schema
        self._key_column = key_column
        self._budget_bytes = budget_bytes
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._writers: list[pa.ipc.RecordBatchFileWriter] = []
        self._paths: list[str] = []

    @property
    def spilled(self) -> bool:
        """True when rows lie on disk."""
        return self._folder is not None

    def append(self, rows: pa.Table) -> None:
        """Take rows in."""
        if rows.num_rows == 0:
            return
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._budget_bytes:
            self._spill()

    def finish(self) -> list[pa.Table]:
        """The rows, one table for each bucket; a single one, in the order of arrival, when nothing was spilled."""
        if self._folder is None:
            tables = [pa.concat_tables(self._held)] if self._held else [self._schema.empty_table()]
            self._held = []
            return tables
        self._spill()
        for writer in self._writers:
            writer.close()
        self._writers = []
        return [map_rows(path) for path in self._paths]

    def release(self) -> None:
        """Drop the rows and remove the files.  Tables that were handed out must not be used afterwards."""
        for writer in self._writers:
            writer.close()
        self._writers = []
        self._held = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _spill(self) -> None:
        if not self._held:
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="pyhudi-spill-")
            for number in range(SPILL_BUCKETS):
                path = os.path.join(self._folder.name, f"{number}.arrow")
                self._paths.append(path)
                self._writers.append(pa.ipc.new_file(path, self._schema))
        rows = pa.concat_tables(self._held)
        self._held = []
        self._held_bytes = 0
        hashes = java_string_hash(rows.column(self._key_column))
        # The multiplier spreads keys that differ only in their last characters over all buckets.
        bucket = ((hashes.astype(np.uint32) * np.uint32(2654435769)) >> np.uint32(26)).astype(np.int64)
        order = np.argsort(bucket, kind="stable")
        bounds = np.searchsorted(bucket[order], np.arange(SPILL_BUCKETS + 1))
        for number, writer in enumerate(self._writers):
            part = order[bounds[number] : bounds[number + 1]]
            if len(part):
                writer.write_table(rows.take(pa.array(part)))


def map_rows(path: str) -> pa.Table:
    """The table in an Arrow IPC file, mapped into memory."""
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).read_all()


def store_rows(path: str, schema: pa.Schema, parts: Iterable[pa.Table]) -> pa.Table:
    """Write tables to an Arrow IPC file and give back the mapped rows."""
    with pa.ipc.new_file(path, schema) as writer:
        for part in parts:
            writer.write_table(part)
    return map_rows(path)
