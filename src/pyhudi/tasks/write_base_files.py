"""Tasks that write base files: new file groups from incoming rows, and new versions of file groups by merging incoming
rows into the old one.

Incoming rows have the layout that `stored_rows` describes; `merge_rows` merges them with old rows.

A merge streams the old file in batches. In memory are one batch, the row group that is being written, and the incoming
rows of this one file group; spilled rows stay on disk, memory-mapped, and only their keys are in memory.

Source: docs/formats/writing.md, "Files of a write"; docs/formats/timeline.md, "Commit metadata".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC

import numpy as np
import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.instants import timestamp_from_instant
from pyhudi.format.meta_columns import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from pyhudi.format.names import BaseFileName, LogFileName, MarkerType, WriteToken, format_file_id, parse_base_file
from pyhudi.format.partition_metadata import PartitionMetadata, partition_depth
from pyhudi.format.paths import PARTITION_METADATA_FILE, file_name, join_path
from pyhudi.records.record_merge import RecordMergeRule, row_codes
from pyhudi.records.schema_on_read.column_ids import ColumnOrigin, names_in_file
from pyhudi.records.stored_rows import in_table_columns
from pyhudi.storage import open_storage
from pyhudi.storage.arrow_memory import release_unused_memory
from pyhudi.storage.base import Storage
from pyhudi.storage.markers import Markers
from pyhudi.table.listing import check_no_nested_table
from pyhudi.tasks.base_file_bloom_filter import inherited_filter
from pyhudi.tasks.base_file_reader import BATCH_ROWS, OpenFile, open_base_file_and_key_values, row_group_batches
from pyhudi.tasks.base_file_writer import BaseFileWriter, WrittenFile
from pyhudi.tasks.bootstrap_join import JoinedColumns, joined_rows
from pyhudi.tasks.cdc_writer import ChangeLog
from pyhudi.tasks.dictionary_columns import CODED, coded_schema
from pyhudi.tasks.file_stats import IndexedFile, KeyChanges
from pyhudi.tasks.merge_rows import MergeCounts, RowMerger
from pyhudi.tasks.row_layouts import live_rows, stored_rows
from pyhudi.tasks.write_tasks import CreateTask, MergeTask, WriterSpec, WriteStatus

CHANGE_LOG_VERSION = 1


def run_create(spec: WriterSpec, task: CreateTask, rows: Iterable[pa.Table]) -> tuple[WriteStatus, ...]:
    """Write incoming rows of one partition to new file groups, opening the next file when one is full.

    Soft deletes among the rows are dropped: there is nothing to delete.  Returns nothing when no row is left.
    """
    storage = open_storage(spec.storage)
    statuses: list[WriteStatus] = []
    pending = _only_live(rows, spec.rule)
    first = next(pending, None)
    constants = {COMMIT_TIME: spec.instant_time, PARTITION_PATH: task.partition}
    sequence = 0
    while first is not None:
        file = NewFile.begin(storage, spec, task.partition, format_file_id(task.file_id_prefix, len(statuses)), task.token)
        with file.writer as writer:
            while first is not None:
                writer.write(stored_rows(spec, first, task.token.partition, sequence), constants=constants)
                file.changes.add(first.column(RECORD_KEY))
                sequence += first.num_rows
                full = writer.estimated_size_bytes >= spec.files.max_file_size_bytes
                first = next(pending, None)
                if full:
                    break
        statuses.append(file.status(storage))
    return tuple(statuses)


@dataclass(frozen=True, slots=True)
class NewFile:
    """The base file of a new file group, from its marker to its statistics.

    writer: its file writer.  changes: collects the record keys that it receives, if the spec has `key_shards`.
    """

    spec: WriterSpec
    partition: str
    name: BaseFileName
    writer: BaseFileWriter
    changes: KeyChanges

    @classmethod
    def begin(cls, storage: Storage, spec: WriterSpec, partition: str, file_id: str, token: WriteToken) -> NewFile:
        """Create the marker.  Raises as `begin_new_file`."""
        name = begin_new_file(storage, spec, partition, file_id, token)
        writer = BaseFileWriter(
            storage,
            join_path(partition, name.text),
            spec.stored_schema,
            spec.avro_schema,
            spec.files,
            populate_meta_fields=spec.populate_meta_fields,
            indexing=spec.indexing,
            event_time=spec.event_time,
        )
        return cls(spec, partition, name, writer, KeyChanges(spec.key_shards))

    def status(self, storage: Storage) -> WriteStatus:
        """Return the write status, after the writer's block has ended."""
        return new_file_status(storage, self.spec, self.partition, self.name, _finished(self.writer), self.changes)


def begin_new_file(storage: Storage, spec: WriterSpec, partition: str, file_id: str, token: WriteToken) -> BaseFileName:
    """Create the marker of the base file of a new file group.  Raises as `ensure_partition` and as early conflict
    detection does.
    """
    name = BaseFileName(file_id, str(token), spec.instant_time, spec.extension)
    ensure_partition(storage, partition, spec.instant_time)
    markers = Markers(storage, spec.instant_time, in_lists=spec.files.marker_lists)
    markers.create(join_path(partition, name.text), MarkerType.CREATE)
    if spec.early is not None:
        spec.early.check_new(storage, partition, name.file_id)
    return name


def new_file_status(
    storage: Storage, spec: WriterSpec, partition: str, name: BaseFileName, written: WrittenFile, changes: KeyChanges
) -> WriteStatus:
    """Return the write status of a new file group's base file, and store its keys for the record index."""
    indexed = with_keys(written.indexed, changes.store(storage, spec.instant_time, name.text))
    return WriteStatus(create_stat(partition, name, written), indexed)


def run_merge(spec: WriterSpec, task: MergeTask, incoming: pa.Table, rule: RecordMergeRule) -> WriteStatus:
    """Write the next version of a file group: its rows, each merged with the incoming row of its key; then the incoming
    rows without a stored row.

    incoming: the incoming layout.  Of several rows of one key the last one is used, unless `match_keys` is False.
    """
    storage = open_storage(spec.storage)
    old_name = parse_base_file(file_name(task.base_path))
    if old_name is None:
        raise CorruptData(f"{task.base_path} is not a base file name")
    name = BaseFileName(task.file_id, str(task.token), spec.instant_time, spec.extension)
    path = join_path(task.partition, name.text)
    Markers(storage, spec.instant_time, in_lists=spec.files.marker_lists).create(path, MarkerType.MERGE)
    if spec.early is not None:
        spec.early.check(storage, [(task.partition, task.file_id)])
    counts = MergeCounts()
    if task.match_keys:
        incoming = _last_of_each_key(incoming)
    matched = np.zeros(incoming.num_rows, dtype=np.bool_)
    with _change_log(storage, spec, task) as log:
        to_code = _columns_to_code(spec, old_name.instant_time) if task.source is None else []
        with open_base_file_and_key_values(storage, task.base_path, to_code) as (old, key_values):
            schema = _read_schema(old, spec)
            keyed = spec.populate_meta_fields and spec.files.bloom_enabled
            inherited = inherited_filter(old.metadata.num_rows, key_values, spec.files) if keyed else None
            with BaseFileWriter(
                storage,
                path,
                spec.stored_schema,
                spec.avro_schema,
                spec.files,
                populate_meta_fields=spec.populate_meta_fields,
                inherited=inherited,
                indexing=spec.indexing,
                coded=[field.name for field in schema if field.type == CODED],
                event_time=spec.event_time,
            ) as writer:
                changes = KeyChanges(spec.key_shards)
                merger = RowMerger(spec, task, incoming, rule, counts=counts, matched=matched, changes=changes, log=log)
                # Each batch is matched with a hash table of all incoming keys.
                batch_rows = max(BATCH_ROWS, incoming.num_rows)
                old_rows = _old_rows(storage, spec, task, old, schema, old_name.instant_time, batch_rows=batch_rows)
                for merged in map(merger.merge, old_rows):
                    writer.write(merged, has_known_keys=inherited is not None)
                    del merged
                    release_unused_memory()
                fresh = incoming.filter(pa.array(~matched)) if matched.any() else incoming
                fresh = live_rows(fresh, spec.rule)
                if fresh.num_rows and spec.partial is None:
                    counts.inserts += fresh.num_rows
                    changes.add(fresh.column(RECORD_KEY))
                    if log is not None:
                        log.insert(fresh.column(RECORD_KEY), fresh)
                    writer.write(stored_rows(spec, fresh, task.token.partition, counts.updates))
        written = _finished(writer)
        logged = log.finish(written.row_count, counts.inserts, counts.deletes) if log is not None else None
    stat = WriteStat(
        file_id=task.file_id,
        path=path,
        partition_path=task.partition,
        prev_commit=old_name.instant_time,
        prev_base_file=old_name.text,
        num_writes=written.row_count,
        num_inserts=counts.inserts,
        num_update_writes=counts.updates,
        num_deletes=counts.deletes,
        total_write_bytes=written.size_bytes,
        file_size_in_bytes=written.size_bytes,
        min_event_time=written.event_times[0],
        max_event_time=written.event_times[1],
        cdc_stats=logged,
    )
    return WriteStatus(stat, with_keys(written.indexed, changes.store(storage, spec.instant_time, name.text)))


def _change_log(storage: Storage, spec: WriterSpec, task: MergeTask) -> AbstractContextManager[ChangeLog | None]:
    """Return the change log of a file group's next version; None for a table without change logs."""
    if spec.changes is None:
        return nullcontext()
    name = LogFileName(task.file_id, spec.instant_time, CHANGE_LOG_VERSION, str(task.token), is_cdc=True)
    return ChangeLog(storage, spec.changes, name, join_path(task.partition, name.text))


def _columns_to_code(spec: WriterSpec, instant_time: str) -> list[str]:
    """Columns of equal name and type in the old file that a merge may read as dictionaries; keys and file names are text."""
    if not spec.files.dictionary:
        return []
    moved = () if spec.ids is None else spec.ids.moved(instant_time)
    plain = {*moved, RECORD_KEY, FILE_NAME, *(name.split(".")[0] for name in spec.keys.record_fields)}
    return [name for name in spec.stored_schema.names if name not in plain]


def _read_schema(old: OpenFile, spec: WriterSpec) -> pa.Schema:
    """Return the current stored layout, with the columns that are read as dictionaries from the old file."""
    stored = old.schema_arrow
    coded = {field.name for field in stored if pa.types.is_dictionary(field.type)}
    return coded_schema(spec.stored_schema, {name for name in coded if pa.types.is_string(spec.stored_schema.field(name).type)})


def _old_rows(
    storage: Storage, spec: WriterSpec, task: MergeTask, old: OpenFile, schema: pa.Schema, instant_time: str, *, batch_rows: int
) -> Iterator[pa.Table]:
    """The rows of the old file in the layout of `_read_schema`, those of bootstrap source files with their meta columns."""
    if task.source is None:
        return _stored_batches(old, schema, spec.origins(instant_time), batch_rows)
    columns = JoinedColumns(spec.storage, spec.keys, task.partition)
    return joined_rows(storage, task.base_path, task.source, schema, columns)


def _stored_batches(
    old: OpenFile, schema: pa.Schema, origins: Mapping[str, ColumnOrigin] | None, batch_rows: int
) -> Iterator[pa.Table]:
    """The rows of an old file in batches, in the layout that `_read_schema` gives.  origins: positions of its columns."""
    present = set(old.schema_arrow.names)
    wanted = names_in_file(origins, [name for name in schema.names if name != FILE_NAME])
    columns = [name for name in wanted if name in present]
    for group in range(old.metadata.num_row_groups):
        for rows in row_group_batches(old, group, columns, batch_rows):
            yield in_table_columns(rows, origins, schema)


def _last_of_each_key(rows: pa.Table) -> pa.Table:
    codes = row_codes(rows, [RECORD_KEY])
    if not len(codes) or int(codes.max()) + 1 == len(codes):
        return rows
    last = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    # Of several values for one place numpy keeps the last.
    last[codes] = np.arange(len(codes))
    return rows.take(pa.array(np.sort(last)))


def _only_live(rows: Iterable[pa.Table], rule: RecordMergeRule) -> Iterator[pa.Table]:
    for table in rows:
        live = live_rows(table, rule)
        if live.num_rows:
            yield live


def create_stat(partition: str, name: BaseFileName, written: WrittenFile) -> WriteStat:
    """Return the statistics of a new file group's first file."""
    return WriteStat(
        file_id=name.file_id,
        path=written.path,
        partition_path=partition,
        num_writes=written.row_count,
        num_inserts=written.row_count,
        total_write_bytes=written.size_bytes,
        file_size_in_bytes=written.size_bytes,
        min_event_time=written.event_times[0],
        max_event_time=written.event_times[1],
    )


def with_keys(indexed: IndexedFile | None, path: str | None) -> IndexedFile | None:
    """Return the statistics of a file, with its side file of keys."""
    return None if indexed is None else replace(indexed, keys=path)


def _finished(writer: BaseFileWriter) -> WrittenFile:
    assert writer.result is not None, "the writer's block ended without an error, so there is a file"
    return writer.result


def ensure_partition(storage: Storage, partition: str, instant_time: str) -> None:
    """Write the partition's metadata file unless it exists: readers that list directories skip a partition without it.

    Raises InvalidRequest for a new partition in the folder of another table.
    """
    metadata = PartitionMetadata(instant_time, partition_depth(partition))
    mark_partition(storage, partition, metadata, timestamp_from_instant(instant_time, UTC))


def mark_partition(storage: Storage, partition: str, metadata: PartitionMetadata, epoch_ms: int) -> None:
    """Write a partition's metadata file unless it exists. epoch_ms: time of its comment. Raises as `ensure_partition`."""
    path = join_path(partition, PARTITION_METADATA_FILE)
    if storage.put_if_absent(path, metadata.encode(epoch_ms)):
        try:
            check_no_nested_table(storage, [partition])
        except InvalidRequest:
            # In the root of a table with partitions it would hide them from readers that go no further down.
            storage.delete([path])
            raise
