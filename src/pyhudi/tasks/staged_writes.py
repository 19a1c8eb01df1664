"""Staged rows: passed from tasks to a commit in another process.

    few rows     are part of the task's result
    more rows    are in a file of the task's attempt, below `.hoodie/.staged/<write>/`, as an Arrow stream

Rows staged by an attempt whose result was discarded are never read.  The commit removes the folder of its write, and
`sweep_staged` those of failed writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from pyhudi.format.paths import STAGED_FOLDER, join_path
from pyhudi.storage.base import Storage

INLINE_BYTES = 256 << 10
"""Rows of one task up to this size are part of its result."""

_DEAD_AFTER_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows of one task.  inline: an Arrow stream, for few rows; path: otherwise the file that holds it."""

    inline: bytes | None
    path: str | None


def stage_rows(storage: Storage, write: str, attempt: str, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> StagedRows:
    """Stage the rows of a task.  write, attempt: unique names.  rows: in the schema."""
    todo = iter(rows)
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in todo:
        held.append(batch)
        size += batch.nbytes
        if size > INLINE_BYTES:
            break
    else:
        sink = pa.BufferOutputStream()
        _write(sink, schema, held)
        return StagedRows(sink.getvalue().to_pybytes(), None)
    path = join_path(STAGED_FOLDER, write, f"{attempt}.arrow")
    with storage.open_output(path) as out:
        _write(out, schema, chain(held, todo))
    return StagedRows(None, path)


def staged_rows(storage: Storage, parts: Sequence[StagedRows]) -> Iterator[pa.RecordBatch]:
    """Return the rows of all tasks, in their order."""
    for part in parts:
        if part.path is None:
            with pa.ipc.open_stream(part.inline) as reader:
                yield from reader
        else:
            with storage.open_input(part.path) as file, pa.ipc.open_stream(file) as reader:
                yield from reader


def drop_staged(storage: Storage, write: str) -> None:
    """Delete the staged rows of a write."""
    storage.delete_folder(join_path(STAGED_FOLDER, write))


def sweep_staged(storage: Storage, now_ms: int) -> None:
    """Delete staged rows of writes that failed more than a week ago."""
    for folder in storage.list(STAGED_FOLDER).folders:
        times = [file.modified_ms for file in storage.list(folder).files]
        if times and max(times) < now_ms - _DEAD_AFTER_MS:
            storage.delete_folder(folder)


def _write(sink: pa.NativeFile, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in rows:
            writer.write_batch(batch)
