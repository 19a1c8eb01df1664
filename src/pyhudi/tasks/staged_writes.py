"""Staged rows: passed from tasks to a commit in another process.

    few rows     are part of the task's result
    more rows    are in a file of the task's attempt, below `.hoodie/.staged/<write>/`, as an Arrow stream

Rows staged by an attempt whose result was discarded are never read.  The commit removes the folder of its write, and
`sweep_staged` those of crashed writes.

One process reads the staged rows, so their size is limited: each task checks its own rows while it stages them, and the
commit checks the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from pyhudi.errors import Unsupported
from pyhudi.format.paths import STAGED_FOLDER, join_path
from pyhudi.options.write_options import STAGED_BYTES
from pyhudi.storage.base import Storage

INLINE_BYTES = 256 << 10
"""Rows of one task up to this size are part of its result."""

_DEAD_AFTER_MS = 24 * 3600 * 1000
"""Age of the newest file of a crashed write.  Its tasks refresh nothing, and each stores its file at its end."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows of one task.

    Attributes:
        inline: An Arrow stream, for few rows.
        path: Otherwise the file that holds it.
        size_bytes: Size of the rows in memory.
    """

    inline: bytes | None
    path: str | None
    size_bytes: int


def stage_rows(
    storage: Storage, write: str, attempt: str, schema: pa.Schema, rows: Iterable[pa.RecordBatch], limit_bytes: int
) -> StagedRows:
    """Stage the rows of a task.

    Args:
        storage: Storage of the table.
        write: Unique name of the write.
        attempt: Unique name of the task's attempt within the write.
        schema: Schema of the rows.
        limit_bytes: Maximum size of the rows of the write in memory; 0 for none.

    Raises:
        Unsupported: The rows of this task alone are larger than `limit_bytes`.
    """
    size = 0

    def measured() -> Iterator[pa.RecordBatch]:
        nonlocal size
        for batch in rows:
            size += batch.nbytes
            _check_size(size, limit_bytes)
            yield batch

    todo = measured()
    held: list[pa.RecordBatch] = []
    for batch in todo:
        held.append(batch)
        if size > INLINE_BYTES:
            break
    else:
        sink = pa.BufferOutputStream()
        _write(sink, schema, held)
        return StagedRows(sink.getvalue().to_pybytes(), None, size)
    path = join_path(STAGED_FOLDER, write, f"{attempt}.arrow")
    with storage.open_output(path) as out:
        _write(out, schema, chain(held, todo))
    return StagedRows(None, path, size)


def check_staged_size(parts: Iterable[StagedRows], limit_bytes: int) -> None:
    """Raise Unsupported if the rows of all tasks are larger than a limit in bytes; 0 is no limit."""
    _check_size(sum(part.size_bytes for part in parts), limit_bytes)


def _check_size(size_bytes: int, limit_bytes: int) -> None:
    if 0 < limit_bytes < size_bytes:
        raise Unsupported(
            f'this write of format("pyhudi") has more than {limit_bytes} bytes of rows, and one process would write them: '
            f"use pyhudi.spark.write or write_stream, whose tasks write the table, or raise {STAGED_BYTES}"
        )


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
    """Delete the staged rows of writes that crashed more than a day ago."""
    for folder in storage.list(STAGED_FOLDER).folders:
        times = [file.modified_ms for file in storage.list(folder).files]
        if times and max(times) < now_ms - _DEAD_AFTER_MS:
            storage.delete_folder(folder)


def _write(sink: pa.NativeFile, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in rows:
            writer.write_batch(batch)
