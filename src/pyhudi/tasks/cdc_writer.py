"""Change data capture: write the change log (`.cdc` file) of a new version of a base file.

    1. while incoming rows are merged, each row that is updated or deleted is recorded; new rows come last
    2. recorded changes go into CDC blocks of bounded size, so the memory of a change log is one block
    3. at the end the file is published, or omitted: readers derive the changes from the base files if all rows of the
       new file are inserts, or if a delete left no row

A change log is written whenever readers cannot derive the changes, even if it has no rows: Hudi's reader rejects a
rewritten base file without one. If a write both deletes the last old row and inserts others, Hudi's writer omits the
change log, and its readers miss the delete; PyHudi writes it.

Appends to log files need none: readers compare the previous slice with the records of the log.

Source: docs/formats/reading.md, "Change data"; docs/formats/log-file.md, "Change logs".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa

from pyhudi.errors import HudiError, Internal
from pyhudi.format.avro_columns import avro_records
from pyhudi.format.log.cdc_blocks import DELETE, INSERT, UPDATE, CdcMode, cdc_batch, cdc_schema
from pyhudi.format.log.data_blocks import encode_avro
from pyhudi.format.log.framing import BlockType, HeaderKey, LogFraming
from pyhudi.format.names import LogFileName, MarkerType
from pyhudi.records.schema_cast import relabel_array
from pyhudi.storage.base import Storage
from pyhudi.storage.markers import Markers
from pyhudi.tasks.incoming_layout import as_batch

_BLOCK_BYTES = 16 << 20
"""Arrow bytes of recorded changes after which a block is written."""


@dataclass(frozen=True, slots=True)
class ChangeLogSpec:
    """How the writing tasks of one commit write change logs.

    Attributes:
        mode: Which images are stored.
        table_schema: The Avro schema of the table without meta columns, as in the commit.
        only_deletes: The operation deletes by key; then a file without rows implies what was deleted.
        marker_lists: As in `FileSettings`.
    """

    mode: CdcMode
    table_schema: str
    only_deletes: bool
    marker_lists: bool = False


class ChangeLog:
    """Record the changes of one base file that is rewritten; use as a context manager around the writing of that file.

    No file is published without `finish`, or if the block ends with an error.

    Args:
        name: Name of the `.cdc` file.
        path: Its path.
    """

    def __init__(self, storage: Storage, spec: ChangeLogSpec, name: LogFileName, path: str) -> None:
        self._storage = storage
        self._spec = spec
        self._name = name
        self._path = path
        self._schema = cdc_schema(spec.mode, spec.table_schema)
        self._layout = avro_records(self._schema).schema
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._size_bytes = 0
        self._sink: pa.NativeFile | None = None
        self._framing = LogFraming()
        self._stack = ExitStack()

    def __enter__(self) -> ChangeLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, trace)
        else:
            self._abandon()

    def update(self, keys: pa.ChunkedArray | pa.Array, before: pa.Table, after: pa.Table) -> None:
        """Record replaced rows. keys: record keys; before, after: aligned tables with the table's data columns among others."""
        self._add(UPDATE, keys, before, after)

    def delete(self, keys: pa.ChunkedArray | pa.Array, before: pa.Table) -> None:
        """Record removed rows."""
        self._add(DELETE, keys, before, None)

    def insert(self, keys: pa.ChunkedArray | pa.Array, after: pa.Table) -> None:
        """Record added rows."""
        self._add(INSERT, keys, None, after)

    def finish(self, num_writes: int, num_inserts: int, num_deletes: int) -> Mapping[str, int] | None:
        """Publish the file, if one is needed.

        Args:
            num_writes: Rows of the new base file.
            num_inserts: Rows that this write added.
            num_deletes: Rows that this write deleted.

        Returns:
            `cdc_stats` of the base file's statistics: path to size in bytes; None without a file.
        """
        derived = (num_writes == num_inserts and not num_deletes) or (not num_writes and self._spec.only_deletes)
        if derived:
            self._abandon()
            return None
        if self._pending or self._sink is None:
            self._flush()
        self._write(self._framing.finish())
        self._stack.close()
        return {self._path: self._size_bytes}

    def _add(self, operation: str, keys: pa.ChunkedArray | pa.Array, before: pa.Table | None, after: pa.Table | None) -> None:
        count = len(keys)
        if not count:
            return
        mode = self._spec.mode
        self._pending.append(
            cdc_batch(
                mode,
                self._spec.table_schema,
                pa.repeat(pa.scalar(operation, pa.string()), count),
                keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys,
                self._name.instant_time,
                before=self._image("before", before, count),
                after=self._image("after", after, count),
            )
        )
        self._pending_bytes += self._pending[-1].nbytes
        if self._pending_bytes >= _BLOCK_BYTES:
            self._flush()

    def _image(self, column: str, rows: pa.Table | None, count: int) -> pa.Array:
        """Rows as structs in the layout of the block; nulls for a column that the mode leaves out, or without rows."""
        position = self._layout.get_field_index(column)
        if position < 0:
            return pa.nulls(count)
        image_type = self._layout.field(position).type
        if rows is None:
            return pa.nulls(count, image_type)
        batch = as_batch(rows.select([field.name for field in image_type]))
        return pa.StructArray.from_arrays(
            [relabel_array(values, field) for values, field in zip(batch.columns, image_type, strict=True)],
            fields=list(image_type),
        )

    def _flush(self) -> None:
        if self._sink is None:
            markers = Markers(self._storage, self._name.instant_time, in_lists=self._spec.marker_lists)
            markers.create(self._path, MarkerType.CREATE)
            self._sink = self._stack.enter_context(self._storage.open_output(self._path))
        content = encode_avro(self._schema, self._pending)
        headers = {HeaderKey.INSTANT_TIME: self._name.instant_time, HeaderKey.SCHEMA: self._schema}
        self._write(self._framing.add((BlockType.CDC, headers, content)))
        self._pending, self._pending_bytes = [], 0

    def _write(self, chunks: tuple[bytes | memoryview, ...]) -> None:
        assert self._sink is not None, "the first block opens the file"
        for piece in chunks:
            self._sink.write(piece)
            self._size_bytes += len(piece)

    def _abandon(self) -> None:
        """Close without a file; harmless after `finish`."""
        self._pending, self._pending_bytes = [], 0
        stack, self._stack = self._stack, ExitStack()
        error: HudiError = Internal("a change log that is not needed")
        stack.__exit__(type(error), error, None)
