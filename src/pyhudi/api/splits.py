"""Splits of a scan: `Scan.splits`, to read a table with several processes or machines.

A split names file slices and contains all that reading them requires. The snapshot was loaded once, when the scan was
created, so a reader of a split does not load the timeline. All splits of a scan together return each row once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyhudi.api.argument_types import checked_class
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.projection import narrowed
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.change_data import ChangeSource
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_parser import Filter, parse_filter
from pyhudi.storage.base import Storage
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.read_changes import ChangeSpec, run_changes
from pyhudi.tasks.read_slice import ReadSpec, run_read

__all__ = ["Split"]


@checked_class
@dataclass(frozen=True, slots=True)
class Split:
    """Some file slices of a scan, readable in any process. It can be pickled, and includes the storage options of the table.

    Attributes:
        number: Position of the split in its scan, from 0.
        instant: Latest write of the snapshot; None for a table without writes.
        schema: Schema of the rows.
        files: URIs of the files that contain the rows.
        size_bytes: Total size of the files.
    """

    number: int
    instant: str | None
    schema: pa.Schema = field(repr=False)
    files: tuple[str, ...]
    size_bytes: int
    _spec: ReadSpec | ChangeSpec = field(repr=False)
    _tasks: tuple[FileSlice | ChangeSource, ...] = field(repr=False)

    def to_batches(self, columns: Sequence[str] | None = None, filter: Filter | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows as record batches, in the order of `Scan.to_batches`.

        Memory holds one batch of rows, and the log records of one slice; with a filter, one row group.

        Args:
            columns: Some of the split's columns; None for all.
            filter: As in `Table.scan`, over the split's columns.
        """
        condition = None if filter is None else bind(parse_filter(filter), self._spec.output)
        spec = narrowed(self._spec, columns, condition)
        return read_batches(_reader(spec), self._tasks)

    def to_arrow(self, columns: Sequence[str] | None = None, filter: Filter | None = None) -> pa.Table:
        """Read the rows into one table.

        Args:
            columns: As in `to_batches`.
            filter: As in `to_batches`.
        """
        schema = narrowed(self._spec, columns, None).output
        return pa.Table.from_batches(self.to_batches(columns, filter), schema)


def build_splits(query: SnapshotQuery | ChangeQuery, size_bytes: int) -> list[Split]:
    """Group the query's tasks, in their order, up to `size_bytes` per split; 0 makes each task its own split."""
    groups: list[list[FileSlice | ChangeSource]] = []
    filled = 0
    for task in query.tasks:
        if not groups or filled + task.size_bytes > size_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(task)
        filled += task.size_bytes
    storage = query.snapshot.context.storage
    return [
        Split(
            number=number,
            instant=query.snapshot.timeline.last_visible,
            schema=query.schema,
            files=tuple(uri for task in tasks for uri in _files(storage, task)),
            size_bytes=sum(task.size_bytes for task in tasks),
            _spec=query.spec,
            _tasks=tuple(tasks),
        )
        for number, tasks in enumerate(groups)
    ]


def read_batches(read: Callable[[Any], Iterator[pa.Table]], tasks: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    """Read the rows of tasks one after another, including rows without columns."""
    for task in tasks:
        for table in read(task):
            if table.num_columns:
                yield from table.to_batches()
            elif table.num_rows:
                yield pa.RecordBatch.from_arrays([pa.nulls(table.num_rows)], names=[""]).select([])


def first_rows(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of batches, without reading further batches."""
    remaining = limit
    while remaining > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, remaining)
        remaining -= batch.num_rows


def _reader(spec: ReadSpec | ChangeSpec) -> Callable[[Any], Iterator[pa.Table]]:
    if isinstance(spec, ReadSpec):
        return lambda slice_: run_read(spec, slice_)
    return lambda source: run_changes(spec, source)


def _files(storage: Storage, task: FileSlice | ChangeSource) -> list[str]:
    """URIs of the files of a task, including files outside of the table."""
    if isinstance(task, FileSlice):
        paths = [*([task.base.path] if task.base is not None else []), *(log.path for log in task.logs)]
        return [storage.absolute(path) for path in paths] + ([task.source.uri] if task.source is not None else [])
    slices = [slice_ for slice_ in (task.before, task.after) if slice_ is not None]
    return [uri for slice_ in slices for uri in _files(storage, slice_)] + [storage.absolute(f.path) for f in task.change_logs]
