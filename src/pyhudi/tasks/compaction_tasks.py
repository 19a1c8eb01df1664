"""Compaction tasks: one file group each.

    run_compact    base file and logs of a slice become the next base file; rows keep their meta columns except the file
                   name

A compaction streams the base file in batches; the merged log records of the slice are in memory, as in reads. Code
shared with log compactions is here, too (see `tasks.log_compaction_tasks`).

Source: docs/formats/writing.md, "Compaction"; docs/formats/timeline.md, "Commit metadata".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pyhudi.errors import TableState
from pyhudi.format.actions.commit_metadata import NO_PREVIOUS_COMMIT, WriteStat
from pyhudi.format.bloom_filter import BloomFilter
from pyhudi.format.bootstrap_index import SourceFile
from pyhudi.format.meta_columns import FILE_NAME, RECORD_KEY
from pyhudi.format.names import PARQUET_EXTENSION, BaseFileName, MarkerType, WriteToken, parse_base_file, parse_log_file
from pyhudi.format.paths import join_path
from pyhudi.records.schema_cast import relabel
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.storage.markers import Markers
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile
from pyhudi.table.log_file_sizes import check_size
from pyhudi.tasks.base_file_bloom_filter import inherited_filter
from pyhudi.tasks.base_file_reader import open_base_file_and_key_values
from pyhudi.tasks.base_file_writer import BaseFileWriter, FileSettings
from pyhudi.tasks.file_stats import FileIndexing
from pyhudi.tasks.incoming_layout import with_column
from pyhudi.tasks.log_scan import LogScan
from pyhudi.tasks.read_slice import ReadSpec, SlicePart, merge_columns, merge_slice
from pyhudi.tasks.write_tasks import WriteStatus

_PIECE_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class CompactionSpec:
    """Settings shared by all tasks of one compaction.

    Attributes:
        instant_time: Of the compaction.
        table_name: Names the schemas of partial blocks.
        reader: Reads the whole stored layout (meta columns and data columns).
        avro_schema: Of the stored layout.
        indexing: Statistics to collect for the metadata table; without keys, which stay in their file groups.
        now_ms: Clock that measures log reads; None to skip it.
        extension: Of the base files, which decides their format.
    """

    instant_time: str
    table_name: str
    reader: ReadSpec
    avro_schema: str
    files: FileSettings
    indexing: FileIndexing | None = None
    now_ms: Callable[[], int] | None = None
    extension: str = PARQUET_EXTENSION

    def clock_ms(self) -> int:
        """Milliseconds of a monotonic clock, 0 if log reads are not measured."""
        return 0 if self.now_ms is None else self.now_ms()


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """One operation of the plan.  base_name: None for a group without base file.  log_names: file names, in merge
    order.

    written: bytes of the logs by path, as recorded in their commits. source: the bootstrap source file of a
    metadata-only base file.
    """

    partition: str
    file_id: str
    base_name: str | None
    log_names: tuple[str, ...]
    token: WriteToken
    written: Mapping[str, int] = field(default_factory=dict)
    source: SourceFile | None = None


def run_compact(spec: CompactionSpec, task: CompactionTask) -> WriteStatus | None:
    """Write the next base file of a file group.  None when a group without base file has no live record: nothing is
    written.

    Raises TableState when a file of the plan is missing, CorruptData when a log differs from what its commit wrote.
    """
    storage = open_storage(spec.reader.storage)
    slice_ = slice_from_task(storage, task)
    name = BaseFileName(task.file_id, str(task.token), spec.instant_time, spec.extension)
    path = join_path(task.partition, name.text)
    begun_ms = spec.clock_ms()
    scan, parts = merge_slice(storage, spec.reader, slice_, _kept_columns(spec.reader))
    read_ms = spec.clock_ms() - begun_ms
    parts = _nonempty(parts) if slice_.base is None else parts
    first = next(parts, None)
    if first is None:
        return None
    marker_type = MarkerType.CREATE if slice_.base is None else MarkerType.MERGE
    Markers(storage, spec.instant_time, in_lists=spec.files.marker_lists).create(path, marker_type)
    meta = spec.reader.populate_meta_fields
    keyed = meta and spec.files.bloom_enabled
    inherited = None if slice_.base is None or not keyed else _old_filter(storage, slice_.base, spec.files)
    matched = removed = 0
    schema = spec.reader.table_schema
    with BaseFileWriter(
        storage,
        path,
        schema,
        spec.avro_schema,
        spec.files,
        populate_meta_fields=meta,
        inherited=inherited,
        indexing=spec.indexing,
    ) as writer:
        part: SlicePart | None = first
        while part is not None:
            matched += part.matched
            removed += part.removed
            for rows in _pieces(part.rows):
                # The filter contains the keys of base file rows, regardless of the logs.
                rows = rows if meta else without_keys(rows)
                writer.write(_stored(rows, schema), has_known_keys=part.from_base and inherited is not None)
            part = next(parts, None)
    written = writer.result
    assert written is not None, "the writer's block ended without an error, so there is a file"
    updates = max(0, matched - removed)
    stat = WriteStat(
        file_id=task.file_id,
        path=path,
        partition_path=task.partition,
        prev_commit=slice_.base.name.instant_time if slice_.base else NO_PREVIOUS_COMMIT,
        prev_base_file=task.base_name,
        num_writes=written.row_count,
        num_inserts=written.row_count - updates,
        num_update_writes=updates,
        num_deletes=removed,
        total_write_bytes=written.size_bytes,
        file_size_in_bytes=written.size_bytes,
    )
    return WriteStatus(with_log_figures(stat, scan, slice_, read_ms), written.indexed)


def _kept_columns(reader: ReadSpec) -> pa.Schema:
    """The columns that a compaction reads: all but the file name, which the writer fills in.  A rule is shown that one too."""
    names = merge_columns(reader)
    position = names.get_field_index(FILE_NAME)
    return names if position < 0 or not reader.rule.selects_one_side else names.remove(position)


def _stored(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if rows.num_columns < len(schema):
        position = schema.get_field_index(FILE_NAME)
        rows = rows.add_column(position, schema.field(position), pa.nulls(rows.num_rows, pa.string()))
    return relabel(rows, schema)


def without_keys(rows: pa.Table) -> pa.Table:
    """Return rows as a table without meta columns stores them, without the keys that merging has filled in."""
    return with_column(rows, RECORD_KEY, pa.nulls(rows.num_rows, pa.string()))


def slice_from_task(storage: Storage, task: CompactionTask) -> FileSlice:
    """Return the slice of a task.  Raises TableState for a missing file, CorruptData for a truncated one."""
    logs = []
    for text in task.log_names:
        name = parse_log_file(text)
        if name is None:
            raise TableState(f"the compaction plan names {text!r}, which is not a log file")
        path = join_path(task.partition, text)
        logs.append(LogFile(path, name, check_size(storage, path, _size_bytes(storage, path), task.written)))
    base = None
    if task.base_name is not None:
        base_name = parse_base_file(task.base_name)
        if base_name is None:
            raise TableState(f"the compaction plan names {task.base_name!r}, which is not a base file")
        path = join_path(task.partition, task.base_name)
        base = BaseFile(path, base_name, _size_bytes(storage, path))
    instant = base.name.instant_time if base else logs[0].name.instant_time
    logs.sort(key=lambda log: log.name.sort_key)
    return FileSlice(task.partition, task.file_id, instant, base, tuple(logs), source=task.source)


def _size_bytes(storage: Storage, path: str) -> int:
    info = storage.stat(path)
    if info is None:
        raise TableState(f"{storage.absolute(path)} is part of the compaction plan, but is missing; unschedule the compaction")
    return info.size_bytes


def _old_filter(storage: Storage, base: BaseFile, files: FileSettings) -> BloomFilter | None:
    with open_base_file_and_key_values(storage, base.path) as (file, key_values):
        return inherited_filter(file.metadata.num_rows, key_values, files)


def with_log_figures(stat: WriteStat, scan: LogScan, slice_: FileSlice, read_ms: int) -> WriteStat:
    """Return the statistics with the figures of the log scan."""
    return replace(
        stat,
        total_log_read_time_ms=max(0, read_ms),
        total_log_records=scan.record_count,
        total_log_files_compacted=len(slice_.logs),
        total_log_size_compacted=sum(log.size_bytes for log in slice_.logs),
        total_log_blocks=scan.block_count,
        total_corrupt_log_block=scan.corrupt_count,
        total_rollback_blocks=scan.rollback_count,
        total_updated_records_compacted=len(scan.records.keys),
    )


def _nonempty(parts: Iterator[SlicePart]) -> Iterator[SlicePart]:
    return (part for part in parts if part.rows.num_rows)


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, _PIECE_ROWS):
        yield rows.slice(start, _PIECE_ROWS)
