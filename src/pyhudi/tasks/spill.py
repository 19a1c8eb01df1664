"""Buffer rows within a memory budget: in memory while they fit, then spilled to memory-mapped files on local disk.

Spilled rows are partitioned into buckets by the hash of their key, so that work on keys (deduplication, lookups)
needs the keys of one bucket at a time.  Readers of buckets get ordinary Arrow tables; those of spilled buckets
are backed by the mapped file, not by memory of the process.

The budget bounds the buffered rows; in addition, the pieces being partitioned use memory temporarily.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.records.hashing import java_string_hash

SPILL_BUCKETS = 64
"""Number of files to which rows are partitioned once they exceed the budget."""

_PIECES = 8
"""Number of pieces in which buffered rows are partitioned to files, so that only one piece at a time is copied."""

_SAMPLE_ROWS = 100_000
"""Number of sampled keys that determine the key ranges into which rows are partitioned for sorting."""


class RowBuffer:
    """Collects tables of one schema. Call `finish` after the last row, `release` when the rows are not needed any more."""

    def __init__(self, schema: pa.Schema, key_column: str, budget_bytes: int) -> None:
        self._schema = schema
        self._key_column = key_column
        self._budget_bytes = budget_bytes
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._buckets: _Spread | None = None
        self._numbers = itertools.count()

    @property
    def spilled(self) -> bool:
        """True when rows are on disk."""
        return self._folder is not None

    def append(self, rows: pa.Table) -> None:
        """Add rows."""
        if rows.num_rows == 0:
            return
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._budget_bytes:
            self._spill()

    def finish(self) -> list[pa.Table]:
        """Return the rows, one table for each bucket; a single one, in the order of arrival, when nothing was spilled."""
        if self._folder is None:
            tables = [pa.concat_tables(self._held)] if self._held else [self._schema.empty_table()]
            self._held = []
            return tables
        self._spill()
        assert self._buckets is not None, "rows that lie on disk were spread there"
        tables, self._buckets = self._buckets.finish(), None
        return tables

    def store(self, rows: pa.Table) -> pa.Table:
        """Store rows: in the directory of the buckets if those are on disk, else unchanged."""
        if self._folder is None:
            return rows
        return store_rows(f"{self._next_path(self._folder.name)}.arrow", rows.schema, [rows])

    def sorted_by_key(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows in the order of their keys (by UTF-8), in pieces; memory is bounded by about the budget."""
        if self._folder is None or rows.nbytes <= self._budget_bytes:
            yield rows.take(pc.sort_indices(rows.column(self._key_column)))
            return
        count = min(SPILL_BUCKETS, -(-rows.nbytes * _PIECES // self._budget_bytes))
        bounds = self._key_bounds(rows, count)
        spread = _Spread(self._next_path(self._folder.name), rows.schema, len(bounds) + 1)
        for batch in rows.to_batches():
            keys = batch.column(self._key_column)
            number = np.zeros(batch.num_rows, dtype=np.int64)
            for bound in bounds:
                number += np.asarray(pc.greater_equal(keys, bound), dtype=np.bool_)
            spread.append(pa.Table.from_batches([batch]), number)
        for part in spread.finish():
            yield part.take(pc.sort_indices(part.column(self._key_column)))

    def release(self) -> None:
        """Drop the rows and delete the files.  Returned tables must not be used afterwards."""
        if self._buckets is not None:
            self._buckets.finish()
            self._buckets = None
        self._held = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _next_path(self, folder: str) -> str:
        return os.path.join(folder, f"stored-{next(self._numbers)}")

    def _spill(self) -> None:
        if not self._held:
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="pyhudi-spill-")
            self._buckets = _Spread(os.path.join(self._folder.name, "bucket"), self._schema, SPILL_BUCKETS)
        assert self._buckets is not None, "no row comes after `finish`"
        while self._held:
            rows = self._next_piece()
            hashes = np.concatenate([java_string_hash(chunk) for chunk in rows.column(self._key_column).chunks])
            # The multiplier spreads keys that differ only in their last characters over all buckets.
            bucket = ((hashes.astype(np.uint32) * np.uint32(2654435769)) >> np.uint32(26)).astype(np.int64)
            self._buckets.append(rows, bucket)
        self._held_bytes = 0

    def _next_piece(self) -> pa.Table:
        """Some of the rows held, the first ones, which are held no more."""
        count = size_bytes = 0
        while count < len(self._held) and size_bytes <= self._budget_bytes // _PIECES:
            size_bytes += self._held[count].nbytes
            count += 1
        piece = pa.concat_tables(self._held[:count])
        del self._held[:count]
        return piece

    def _key_bounds(self, rows: pa.Table, count: int) -> list[str]:
        """Keys that cut the rows into `count` ranges of about the same number of rows; fewer where keys repeat."""
        at = np.linspace(0, rows.num_rows - 1, min(_SAMPLE_ROWS, rows.num_rows)).astype(np.int64)
        sample = pc.array_sort_indices(rows.column(self._key_column).take(pa.array(at)).combine_chunks())
        keys = rows.column(self._key_column).take(pa.array(at[np.asarray(sample)]))
        cuts = keys.take(pa.array(np.arange(1, count) * len(at) // count))
        return list(dict.fromkeys(cuts.to_pylist()))


class _Spread:
    """Rows distributed over files by a number that each has.  stem: what the paths of the files begin with."""

    def __init__(self, stem: str, schema: pa.Schema, count: int) -> None:
        self._paths = [f"{stem}-{number}.arrow" for number in range(count)]
        self._writers = [pa.ipc.new_file(path, schema) for path in self._paths]

    def append(self, rows: pa.Table, numbers: npt.NDArray[np.int64]) -> None:
        order = np.argsort(numbers, kind="stable")
        ordered = rows.combine_chunks().take(pa.array(order))
        bounds = np.searchsorted(numbers[order], np.arange(len(self._writers) + 1)).tolist()
        for writer, start, end in zip(self._writers, bounds, bounds[1:], strict=False):
            if end > start:
                writer.write_table(ordered.slice(start, end - start))

    def finish(self) -> list[pa.Table]:
        """The tables of all numbers, mapped into memory."""
        for writer in self._writers:
            writer.close()
        self._writers = []
        return [map_rows(path) for path in self._paths]


def map_rows(path: str) -> pa.Table:
    """Return the table in an Arrow IPC file, memory-mapped."""
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).read_all()


def store_rows(path: str, schema: pa.Schema, parts: Iterable[pa.Table]) -> pa.Table:
    """Write tables to an Arrow IPC file and return the mapped rows."""
    with pa.ipc.new_file(path, schema) as writer:
        for part in parts:
            writer.write_table(part)
    return map_rows(path)


def store_parts(
    path: str, schema: pa.Schema, pieces: Iterable[tuple[pa.RecordBatch, npt.NDArray[np.integer]]]
) -> npt.NDArray[np.integer]:
    """Write rows to an Arrow IPC file, divided into numbered parts that `load_part` reads one at a time.

    Args:
        path: The file to create.
        schema: Of the rows.
        pieces: Rows that fit into memory, and the part of each row. Rows of a part stay in their order.

    Returns:
        The part of each batch in the file; parts without rows have none.
    """
    stored: list[npt.NDArray[np.integer]] = [np.zeros(0, dtype=np.int64)]
    with pa.ipc.new_file(path, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for rows, numbers in pieces:
            order = np.argsort(numbers, kind="stable")
            ordered = rows.take(pa.array(order))
            parts, starts = np.unique(numbers[order], return_index=True)
            for start, end in itertools.pairwise([*starts.tolist(), len(numbers)]):
                writer.write_batch(ordered.slice(start, end - start))
            stored.append(parts)
    return np.concatenate(stored)


def load_part(path: str, part_of_batch: npt.NDArray[np.integer], number: int) -> list[pa.RecordBatch]:
    """Return the rows of one part of a file. part_of_batch: as `store_parts` returned it."""
    with pa.OSFile(path) as source:
        reader = pa.ipc.open_file(source)
        return [reader.get_batch(index) for index in np.flatnonzero(part_of_batch == number).tolist()]
