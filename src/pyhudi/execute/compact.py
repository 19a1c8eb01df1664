"""Tasks that compact: one file group each.

    run_compact       base file and logs of a slice become the next base file; rows keep their meta columns but for the file name
    run_log_compact   the logs of a slice become one log file, whose blocks name the instants that they stand for

A compaction streams the base file by row group; the merged log records of the slice are in memory, as when it is read.  A log
compaction writes, in this order:

    delete block   keys whose base row does not count although a record or a delete with an ordering value follows
    data blocks    records, and rows that are deletes by `_hoodie_is_deleted`; of partial updates under which no whole record
                   stands, those of the same columns together, in blocks of these columns that are marked as partial
    delete block   other deleted keys, with their ordering values

so that readers find after it what they found before.  Where there were partial updates, one data block is marked so even when no
record is partial any more, as a reader settles deletes otherwise then: at the worst one without records.

Source: docs/formats/writing.md, "Compaction"; docs/formats/timeline.md, "Commit metadata"; docs/formats/log-file.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import TableState, Unsupported
from pyhudi.execute.append_log import LOG_FILE_VERSION, block_rows, encode_rows
from pyhudi.execute.base_file import BaseFileWriter, FileSettings
from pyhudi.execute.indexing import FileIndexing
from pyhudi.execute.key_filter import inherited_filter
from pyhudi.execute.layout import as_batch
from pyhudi.execute.log_files import RowsOfBlock, write_log_files
from pyhudi.execute.log_scan import InstantValidity, LogScan, find_blocks, read_log, scan_logs
from pyhudi.execute.open_base import open_base_file
from pyhudi.execute.read_slice import ReadSpec, SlicePart, merge_columns, merge_slice
from pyhudi.execute.write_base import WriteStatus
from pyhudi.format.actions.commit import NO_PREVIOUS_COMMIT, WriteStat
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.bloom import BloomFilter
from pyhudi.format.bootstrap import SourceFile
from pyhudi.format.log.deletes import deletes_batch, encode_deletes
from pyhudi.format.log.framing import BlockType, CorruptBlock, HeaderKey, LogBlock
from pyhudi.format.names import (
    PARQUET_EXTENSION,
    BaseFileName,
    LogFileName,
    MarkerType,
    WriteToken,
    parse_base_file,
    parse_log_file,
)
from pyhudi.format.ordering_values import Wrapper, mixed_values, wrap_ordering
from pyhudi.format.paths import join_path
from pyhudi.records.conform import relabel
from pyhudi.records.log_merge import LogRecords
from pyhudi.records.merge import IS_DELETED
from pyhudi.records.meta_fields import FILE_NAME, RECORD_KEY, constant
from pyhudi.records.ordering import BoolMask
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.storage.markers import Markers
from pyhudi.table.slices import BaseFile, FileSlice, LogFile
from pyhudi.table.written import check_size

_PIECE_ROWS = 65_536

_PARTIAL = {HeaderKey.IS_PARTIAL: "true"}


@dataclass(frozen=True, slots=True)
class CompactionSpec:
    """What all tasks of one compaction share.

    instant_time: of the compaction.  table_name: names the schemas of partial blocks.  reader: reads the stored layout (meta
    columns and data columns), all of it.  avro_schema: of the stored layout.  indexing: what to find out about each file for the
    metadata table; keys are none of it, as they stay where they are.  now_ms: tells the time that reading logs takes; None, and
    nobody asks.  extension: of the base files, by which they are of their format.
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
        """Milliseconds since some moment, 0 when nobody asks."""
        return 0 if self.now_ms is None else self.now_ms()


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """One operation of the plan.  base_name: None for a group without base file.  log_names: file names, in merge order.

    written: bytes of the logs by path, as their commits say.  source: the file outside of the table that has the rows of the base
    file, where that has meta columns alone.
    """

    partition: str
    file_id: str
    base_name: str | None
    log_names: tuple[str, ...]
    token: WriteToken
    written: Mapping[str, int] = field(default_factory=dict)
    source: SourceFile | None = None


@dataclass(frozen=True, slots=True)
class LogHeaders:
    """The blocks of one log file, without contents."""

    path: str
    blocks: tuple[LogBlock | CorruptBlock, ...]


def run_log_headers(storage: StorageSpec, validity: InstantValidity, log: LogFile) -> LogHeaders:
    """The block headers of one log file, to plan by.  Raises CorruptData for a file that is not whole."""
    return LogHeaders(log.path, read_log(open_storage(storage), log, validity))


def run_compact(spec: CompactionSpec, task: CompactionTask) -> WriteStatus | None:
    """Write the next base file of a file group.  None when a group without base file has no live record: nothing is written.

    Raises TableState when a file that the plan names is gone, CorruptData when a log is not what its commit wrote.
    """
    storage = open_storage(spec.reader.storage)
    slice_ = _slice(storage, task)
    name = BaseFileName(task.file_id, str(task.token), spec.instant_time, spec.extension)
    path = join_path(task.partition, name.text)
    begun_ms = spec.clock_ms()
    scan, parts = merge_slice(storage, spec.reader, slice_, _kept_columns(spec.reader))
    read_ms = spec.clock_ms() - begun_ms
    parts = _nonempty(parts) if slice_.base is None else parts
    first = next(parts, None)
    if first is None:
        return None
    kind = MarkerType.CREATE if slice_.base is None else MarkerType.MERGE
    Markers(storage, spec.instant_time).create(path, kind)
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
                # Rows of the base file have their keys in its filter, whatever the logs made of them.
                rows = rows if meta else _without_keys(rows)
                writer.write(_stored(rows, schema), keys_known=part.from_base and inherited is not None)
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
    return WriteStatus(_with_log_figures(stat, scan, slice_, read_ms), written.indexed)


def run_log_compact(spec: CompactionSpec, task: CompactionTask) -> WriteStatus | None:
    """Merge the logs of a slice into one log file.  None when none of their blocks counts: nothing is written.

    Raises Unsupported where a payload class or merger decides, which is asked about the base row and not without it; TableState
    when a file that the plan names is gone.
    """
    storage = open_storage(spec.reader.storage)
    slice_ = _slice(storage, task)
    blocks, _, _ = find_blocks(storage, slice_.logs, spec.reader.validity)
    if not blocks:
        return None
    if not spec.reader.rule.picks:
        raise Unsupported(
            f"the logs of {task.file_id} in {task.partition or 'the table'} cannot be merged without the base file, as a payload "
            "class or a merger of its own decides in this table; compact it instead"
        )
    reader = spec.reader
    begun_ms = spec.clock_ms()
    scan = scan_logs(storage, slice_.logs, reader.of_logs(merge_columns(reader)))
    read_ms = spec.clock_ms() - begun_ms
    # A log compaction stands for what earlier ones merged, by standing for them.
    instants = ",".join(sorted({found.block.instant_time for found in blocks}, reverse=True))
    name = LogFileName(task.file_id, spec.instant_time, LOG_FILE_VERSION, str(task.token))
    merged = _merged_blocks(spec, task, scan.records, instants)
    # However large: what stands for the blocks of a slice is one file, so that a reader finds all of it or nothing.
    (status,) = write_log_files(storage, task.partition, name, merged, None, indexing=spec.indexing)
    deleted = int(np.count_nonzero(scan.records.deleted))
    live = len(scan.records.keys) - deleted
    stat = replace(status.stat, num_writes=live, num_update_writes=live, num_deletes=deleted)
    return replace(status, stat=_with_log_figures(stat, scan, slice_, read_ms))


def _merged_blocks(spec: CompactionSpec, task: CompactionTask, records: LogRecords, instants: str) -> Iterator[RowsOfBlock]:
    own = {HeaderKey.INSTANT_TIME: spec.instant_time, HeaderKey.COMPACTED_BLOCK_TIMES: instants}
    flagged = _flagged(records.rows)
    has_value = _has_ordering(records)
    competes = has_value.any() or records.present is not None
    barred = records.barrier & (~records.deleted | has_value) if competes else np.zeros_like(records.barrier)
    if barred.any():
        keys = records.keys.filter(pa.array(barred))
        yield RowsOfBlock((BlockType.DELETE, dict(own), encode_deletes([deletes_batch(keys, task.partition)])))
    count = 0
    marked = records.present is None
    for names, chosen in _by_columns(records, ~records.deleted | flagged):
        schema = pa.schema([field for field in spec.reader.table_schema if field.name in names])
        whole = records.present is None or len(schema) == len(spec.reader.table_schema)
        avro = spec.avro_schema if whole else arrow_to_avro(schema, spec.table_name, spec.avro_schema)
        headers = {**own, HeaderKey.SCHEMA: avro, **({} if whole else _PARTIAL)}
        rows = relabel(records.rows.select(schema.names).filter(pa.array(chosen)), schema)
        marked = marked or not whole
        for part in block_rows(rows, spec.files.log_block_size_bytes):
            stored = _as_log_rows(spec, task, part)
            kind, content = encode_rows(spec.files, avro, stored, part.column(RECORD_KEY).combine_chunks())
            yield RowsOfBlock((kind, headers, content), as_batch(stored))
        count += rows.num_rows
    if not marked:
        # An HFile without entries is none.
        files = spec.files if spec.files.log_format != "hfile" else replace(spec.files, log_format="avro")
        kind, content = encode_rows(files, spec.avro_schema, spec.reader.table_schema.empty_table(), pa.array([], pa.string()))
        yield RowsOfBlock((kind, {**own, HeaderKey.SCHEMA: spec.avro_schema, **_PARTIAL}, content))
    deletes = [batch for batch in _deletes(records, ~flagged & records.deleted, has_value, task.partition) if batch.num_rows]
    if deletes or not (count or barred.any()):
        yield RowsOfBlock((BlockType.DELETE, dict(own), encode_deletes(deletes)))


def _by_columns(records: LogRecords, chosen: BoolMask) -> Iterator[tuple[frozenset[str], BoolMask]]:
    """The chosen records, those that have the same columns together: the names of these, and which records they are."""
    every = frozenset(records.rows.column_names)
    if records.present is None:
        yield every, chosen
        return
    left = chosen.copy()
    while left.any():
        first = int(np.argmax(left))
        alike = left.copy()
        for mask in records.present.values():
            alike &= mask == mask[first]
        yield frozenset(name for name, mask in records.present.items() if mask[first]), alike
        left &= ~alike


def _deletes(records: LogRecords, gone: BoolMask, has_value: BoolMask, partition: str) -> Iterator[pa.RecordBatch]:
    yield deletes_batch(records.keys.filter(pa.array(gone & ~has_value)), partition)
    with_value = gone & has_value
    if with_value.any() and records.ordering is not None:
        keys = records.keys.filter(pa.array(with_value))
        values = pa.concat_arrays(records.ordering.filter(pa.array(with_value)).chunks)
        if pa.types.is_decimal(values.type):
            branch = np.full(len(values), Wrapper.DECIMAL, dtype=np.int8)
            yield deletes_batch(keys, partition, mixed_values(branch, values.to_pylist()))
        else:
            yield deletes_batch(keys, partition, wrap_ordering(values))


def _has_ordering(records: LogRecords) -> BoolMask:
    """Where a record or delete competes with the base row by an ordering value."""
    if records.ordering is None or not records.rule.ordering:
        return np.zeros(len(records.keys), dtype=np.bool_)
    return np.asarray(pc.is_valid(records.ordering), dtype=np.bool_)


def _flagged(rows: pa.Table) -> BoolMask:
    if IS_DELETED not in rows.column_names:
        return np.zeros(rows.num_rows, dtype=np.bool_)
    return np.asarray(pc.fill_null(rows.column(IS_DELETED), False).combine_chunks(), dtype=np.bool_)


def _kept_columns(reader: ReadSpec) -> pa.Schema:
    """The columns that a compaction reads: all but the file name, which the writer fills in.  A rule is shown that one too."""
    names = merge_columns(reader)
    position = names.get_field_index(FILE_NAME)
    return names if position < 0 or not reader.rule.picks else names.remove(position)


def _stored(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if rows.num_columns < len(schema):
        position = schema.get_field_index(FILE_NAME)
        rows = rows.add_column(position, schema.field(position), pa.nulls(rows.num_rows, pa.string()))
    return relabel(rows, schema)


def _as_log_rows(spec: CompactionSpec, task: CompactionTask, rows: pa.Table) -> pa.Table:
    """Rows with the meta columns as log files hold them: the file id for a file name, no key where keys are not stored."""
    if spec.reader.populate_meta_fields:
        return _with_column(rows, FILE_NAME, constant(task.file_id, rows.num_rows))
    return _with_column(_without_keys(rows), FILE_NAME, pa.nulls(rows.num_rows, pa.string()))


def _without_keys(rows: pa.Table) -> pa.Table:
    """Rows as a table without meta columns stores them: merging has filled their keys in."""
    return _with_column(rows, RECORD_KEY, pa.nulls(rows.num_rows, pa.string()))


def _with_column(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    position = rows.schema.get_field_index(name)
    return rows.set_column(position, rows.schema.field(position), column)


def _slice(storage: Storage, task: CompactionTask) -> FileSlice:
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
        raise TableState(
            f"{storage.absolute(path)} is part of the compaction's plan, and it is gone; drop the plan by unscheduling it"
        )
    return info.size_bytes


def _old_filter(storage: Storage, base: BaseFile, files: FileSettings) -> BloomFilter | None:
    with open_base_file(storage, base.path) as file:
        return inherited_filter(file.metadata, files)


def _with_log_figures(stat: WriteStat, scan: LogScan, slice_: FileSlice, read_ms: int) -> WriteStat:
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
