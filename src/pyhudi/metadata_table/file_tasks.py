"""Tasks that write metadata table files: one log file or base file each, for one file group.
Format: docs/formats/metadata-table.md; docs/formats/hfile.md.

    run_metadata_log     the records of one instant for one file group: an HFile block, then a DELETE block
    run_key_log          the same for key indexes, with records from side files of tasks
    run_concurrent_keys  the keys of side files that concurrent instants changed too
    run_metadata_base    a file group's first base file, from records
    run_key_base         the same for key indexes
    run_metadata_merge   a file group's next base file: old base file and logs merged, the old base file streamed
    run_slice_keys       the keys of one file slice of the table, as a side file
    run_index_files      indexing data of existing files, from their footers and blocks

A key that is added to one file group and removed from another in the same instant is a moved record: the addition wins.
Memory: of a log file the keys of one file group. A base file is written in ranges of keys, each about RANGE_BYTES of
keys; the side files are read again for each range.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.hfile.hfile_writer import HFileEncoder, encode_hfile
from pyhudi.format.log.delete_blocks import deletes_batch, encode_deletes
from pyhudi.format.log.framing import Block, BlockType, HeaderKey, encode_blocks
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.format.names import BaseFileName, LogFileName, is_log_file
from pyhudi.format.paths import file_name, join_path
from pyhudi.metadata_table.codecs.record_index_codec import LOCATION_SCHEMA, encode_locations
from pyhudi.metadata_table.codecs.secondary_index_codec import encode_secondary_values
from pyhudi.metadata_table.file_group_merge import CellMergeRule, merged_group
from pyhudi.metadata_table.index_tasks import log_batches
from pyhudi.metadata_table.metadata_records import MetadataRecords, build_records
from pyhudi.metadata_table.reader.file_group_reader import MetadataPartition, PartitionReader
from pyhudi.records.column_statistics import ColumnRange, RangeCollector
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.schema_on_read.column_ids import ColumnIds
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.table.bootstrap_sources import BootstrapSources
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.base_file_reader import key_filter_entry, open_base_file
from pyhudi.tasks.bootstrap_join import bootstrap_source_rows
from pyhudi.tasks.file_stats import (
    FileIndexing,
    IndexedFile,
    KeyChanges,
    KeyShard,
    Ranges,
    base_file_ranges,
    compute_row_ranges,
    log_ranges,
)
from pyhudi.tasks.incoming_layout import as_batch
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import ReadSpec, run_read

LOG_VERSION = 1
BASE_EXTENSION = ".hfile"
_NAMED_KEYS = 5

RANGE_BYTES = 64 << 20
"""Bytes of keys of a base file that are sorted in memory at a time."""

# Every so many keys of a side file are sampled, to divide all of them into ranges.
_SAMPLE_STEP = 512


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """Location of one file of the metadata table.

    Attributes:
        storage: Storage of the metadata table.
        partition: Partition of the metadata table.
        file_id: File group.
        instant_time: Instant in the file name.
        token: Write token in the file name.
    """

    storage: StorageSpec
    partition: str
    file_id: str
    instant_time: str
    token: str


@dataclass(frozen=True, slots=True)
class LogTask:
    """Write the records of one instant to a log file."""

    file: MetadataFile
    records: MetadataRecords


@dataclass(frozen=True, slots=True)
class KeySource:
    """A side file of keys, and the file group that the keys were written to.

    Attributes:
        path: Relative to the table.
        partition: Partition path of the table.
        file_id: File group of the table.
        instant_ms: Time of the insert, milliseconds since the epoch.
    """

    path: str
    partition: str
    file_id: str
    instant_ms: int


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Write the records of one file group of a key index.

    Attributes:
        file: The file to write.
        table: The table's storage, with the side files.
        share: The file group's share of the keys.
        sources: The side files.
        make: Module function that converts keys to records.
    """

    file: MetadataFile
    table: StorageSpec
    share: KeyShard
    sources: tuple[KeySource, ...]
    make: KeyRecords


KeyRecords = Callable[[Sequence[KeySource], Iterable[pa.RecordBatch]], MetadataRecords]
"""Converts KEY_CHANGES of side files, one batch for each source, to the records of one file group."""


@dataclass(frozen=True, slots=True)
class ConcurrentKeys:
    """Look up concurrent changes of the keys of one file group. concurrent_groups: only that group, with the other
    instants' log files.
    """

    concurrent_groups: MetadataPartition
    table: StorageSpec
    share: KeyShard
    sources: tuple[KeySource, ...]


@dataclass(frozen=True, slots=True)
class BaseTask:
    """Write records to a file group's first base file."""

    file: MetadataFile
    records: MetadataRecords


@dataclass(frozen=True, slots=True)
class MergeGroupTask:
    """Write a file group's next base file.

    Attributes:
        file: The file to write.
        slice: With the valid log files, in merge order.
        rule: Of its index type.
    """

    file: MetadataFile
    slice: FileSlice
    rule: CellMergeRule


@dataclass(frozen=True, slots=True)
class SliceKeysTask:
    """Write the keys of a file slice of the table to a side file.

    Attributes:
        reader: Reads the key columns.
        slice: The slice.
        instant_time: Instant that the side file belongs to.
        shard_count: Number of shards.
        deleted: Write the keys as removed.
        name: Unique name of the side file; file groups of two partitions may share an id
            (`format.names.is_shared_file_id`).
    """

    reader: ReadSpec
    slice: FileSlice
    instant_time: str
    shard_count: int
    deleted: bool
    name: str


@dataclass(frozen=True, slots=True)
class IndexFilesTask:
    """Existing files of the table to index.

    Attributes:
        storage: Storage of the table.
        files: (partition path, path, bytes) of each file.
        schema: The table's, with meta columns.
        indexing: What to collect.
        validity: Valid log blocks.
        ids: Column ids, None if columns are resolved by name.
        bootstrap_sources: Files outside of the table that hold rows of bootstrapped files.
    """

    storage: StorageSpec
    files: tuple[tuple[str, str, int], ...]
    schema: pa.Schema
    indexing: FileIndexing
    validity: InstantValidity
    ids: ColumnIds | None = None
    bootstrap_sources: BootstrapSources | None = None


@dataclass(frozen=True, slots=True)
class ExistingFile:
    """Indexing data of an existing file. row_count: of a base file, 0 for a log file."""

    partition: str
    name: str
    indexed: IndexedFile
    row_count: int


def run_metadata_log(task: LogTask) -> WriteStat:
    """Write a log file of the metadata table, and return its write statistics."""
    return _write_log(task.file, task.records)


def run_key_log(task: KeyTask) -> WriteStat | None:
    """Write the log file of one file group; None if the side files contain no key of it."""
    records = task.make(task.sources, _changes(task))
    return None if records.is_empty else _write_log(task.file, records)


def run_concurrent_keys(task: ConcurrentKeys) -> tuple[str, ...]:
    """Return some of the keys that other instants changed too; empty if there are none."""
    table = open_storage(task.table)
    changes = (task.share.changes(table, source.path).column("key") for source in task.sources)
    own_keys = pc.unique(pa.concat_arrays([pa.array([], pa.string()), *changes]))
    other_keys = [
        layer.keys for group in PartitionReader(task.concurrent_groups).lookup_all_groups(own_keys) for layer in group.newer
    ]
    # A delete block is read whole.
    common = pc.unique(pa.concat_arrays([pa.array([], pa.binary()), *other_keys]).cast(pa.string()))
    sample: list[str] = common.filter(pc.is_in(common, value_set=own_keys)).slice(0, _NAMED_KEYS).to_pylist()
    return tuple(sample)


def run_metadata_base(task: BaseTask) -> WriteStat | None:
    """Write a first base file; None without records, when the first log file suffices."""
    if not len(task.records.keys):
        return None
    return _write_base(task.file, [(task.records.keys, task.records.values)], None, task.records.schema)


def run_key_base(task: KeyTask) -> WriteStat | None:
    """Write the first base file of one file group; None if the side files contain no key of it."""
    parts = (records for records in _record_ranges(task) if len(records.keys))
    first = next(parts, None)
    if first is None:
        return None
    return _write_base(task.file, ((part.keys, part.values) for part in itertools.chain([first], parts)), None, first.schema)


def run_metadata_merge(task: MergeGroupTask) -> WriteStat | None:
    """Write a file group's next base file. None if the group is empty and had no base file."""
    storage = open_storage(task.file.storage)
    merged = merged_group(storage, task.rule, task.slice)
    if task.slice.base is None:
        first = next(merged, None)
        if first is None:
            return None
        merged = itertools.chain([first], merged)
    return _write_base(task.file, merged, task.slice, task.rule.schema)


def run_slice_keys(task: SliceKeysTask) -> KeySource | None:
    """Write the side file of a slice's keys; None for a slice without records. instant_ms stays 0."""
    changes = KeyChanges(task.shard_count)
    for rows in run_read(task.reader, task.slice):
        if rows.num_rows:
            has_key_column = task.reader.populate_meta_fields
            changes.add(
                rows.column(RECORD_KEY) if has_key_column else record_keys(task.reader.keys, as_batch(rows)), deleted=task.deleted
            )
    path = changes.store(open_storage(task.reader.storage), task.instant_time, task.name)
    return None if path is None else KeySource(path, task.slice.partition, task.slice.file_id, 0)


def run_index_files(task: IndexFilesTask) -> tuple[ExistingFile, ...]:
    """Collect indexing data of existing files, in the order of the task."""
    storage = open_storage(task.storage)
    return tuple(_index_file(storage, task, *file) for file in task.files)


def location_records(sources: Sequence[KeySource], batches: Iterable[pa.RecordBatch]) -> MetadataRecords:
    """Convert side files to record locations; removed keys become deletes."""
    keys: list[pa.Array] = [pa.array([], pa.string())]
    removed: list[pa.Array] = [pa.array([], pa.string())]
    owners: list[np.ndarray] = [np.zeros(0, dtype=np.int64)]
    for number, changes in enumerate(batches):
        flags = changes.column("is_deleted")
        removed.append(changes.column("key").filter(flags))
        added = changes.column("key").filter(pc.invert(flags))
        keys.append(added)
        owners.append(np.full(len(added), number, dtype=np.int64))
    all_keys, owner = pa.concat_arrays(keys), np.concatenate(owners)
    encoded = all_keys.dictionary_encode()
    # A key added to two groups, as a duplicate, belongs to the last one: numpy keeps the last of several assigned
    # values.
    last = np.zeros(len(encoded.dictionary), dtype=np.int64)
    last[encoded.indices.to_numpy()] = np.arange(len(all_keys))
    source_indices = pa.array(owner[last])
    locations = pa.RecordBatch.from_arrays(
        [
            pa.array([s.partition for s in sources], pa.string()).take(source_indices),
            pa.array([s.file_id for s in sources], pa.string()).take(source_indices),
            pa.array([s.instant_ms for s in sources], pa.int64()).take(source_indices),
        ],
        schema=LOCATION_SCHEMA,
    )
    return build_records(encoded.dictionary, encode_locations(locations), pa.concat_arrays(removed))


def bare_records(_: Sequence[KeySource], batches: Iterable[pa.RecordBatch]) -> MetadataRecords:
    """Convert side files to records without payload, as in secondary indexes; removed keys become deletes."""
    added: list[pa.Array] = [pa.array([], pa.string())]
    removed: list[pa.Array] = [pa.array([], pa.string())]
    for changes in batches:
        flags = changes.column("is_deleted")
        removed.append(changes.column("key").filter(flags))
        added.append(changes.column("key").filter(pc.invert(flags)))
    keys = pc.unique(pa.concat_arrays(added))
    return build_records(keys, encode_secondary_values(len(keys)), pa.concat_arrays(removed))


def _changes(task: KeyTask) -> Iterator[pa.RecordBatch]:
    """The keys of each side file of a task."""
    table = open_storage(task.table)
    return (task.share.changes(table, source.path) for source in task.sources)


def _record_ranges(task: KeyTask) -> Iterator[MetadataRecords]:
    """The records of a file group, in ascending ranges of keys."""
    held: list[pa.RecordBatch] = []
    samples = [pa.array([], pa.string())]
    total_bytes = 0
    for changes in _changes(task):
        total_bytes += changes.nbytes
        samples.append(changes.column("key").take(pa.array(np.arange(0, len(changes), _SAMPLE_STEP))))
        if total_bytes <= RANGE_BYTES:
            held.append(changes)
        else:
            held.clear()
    if total_bytes <= RANGE_BYTES:
        yield task.make(task.sources, held)
        return
    sample = pc.unique(pa.concat_arrays(samples))
    sample = sample.take(pc.array_sort_indices(sample))
    count = -(-total_bytes // RANGE_BYTES)
    bounds: list[pa.Scalar] = list(sample.take(pa.array(np.arange(1, count) * len(sample) // count)))
    for low, high in itertools.pairwise([None, *bounds, None]):
        yield task.make(task.sources, (_between(changes, low, high) for changes in _changes(task)))


def _between(changes: pa.RecordBatch, low: pa.Scalar | None, high: pa.Scalar | None) -> pa.RecordBatch:
    """The rows whose key is at least `low` and less than `high`."""
    keys = changes.column("key")
    is_inside = pa.repeat(pa.scalar(True), len(keys)) if low is None else pc.greater_equal(keys, low)
    return changes.filter(is_inside if high is None else pc.and_(is_inside, pc.less(keys, high)))


def _index_file(storage: Storage, task: IndexFilesTask, partition: str, path: str, size_bytes: int) -> ExistingFile:
    name = file_name(path)
    indexing = task.indexing
    if is_log_file(name):
        return ExistingFile(partition, name, IndexedFile(_ranges_of_log(storage, task, path, size_bytes)), 0)
    with open_base_file(storage, path) as file:
        metadata = file.metadata
    bloom = None
    if indexing.bloom_filters:
        entry = key_filter_entry(metadata.metadata or {})
        bloom = None if entry is None else (entry[0], entry[1].decode())
    ranges: Ranges = ()
    if indexing.columns:
        top_level = {column.split(".")[0] for column in indexing.columns}
        required_schema = pa.schema([field for field in task.schema if field.name in top_level])
        rows = bootstrap_source_rows(storage, task.storage, task.bootstrap_sources, partition, path, required_schema)
        if rows is None:
            ranges = base_file_ranges(storage, path, metadata, task.schema, indexing.columns, ids=task.ids)
        else:
            ranges = compute_row_ranges(rows, indexing.columns)
    return ExistingFile(partition, name, IndexedFile(ranges, bloom), metadata.num_rows)


def _ranges_of_log(storage: Storage, task: IndexFilesTask, path: str, size_bytes: int) -> tuple[tuple[str, ColumnRange], ...]:
    if not task.indexing.columns:
        return ()
    collector = RangeCollector(task.indexing.columns)
    top_level = {column.split(".")[0] for column in task.indexing.columns}
    schema = pa.schema([field.with_nullable(True) for field in task.schema if field.name in top_level])
    row_count = 0
    for batch in log_batches(storage, path, size_bytes, schema, task.validity, task.ids):
        collector.add(batch)
        row_count += batch.num_rows
    return log_ranges(collector, row_count)


def _write_log(file: MetadataFile, records: MetadataRecords) -> WriteStat:
    storage = open_storage(file.storage)
    header = {HeaderKey.INSTANT_TIME: file.instant_time}
    blocks: list[Block] = []
    if len(records.keys):
        content = encode_hfile([(records.keys, records.values)], file_info={"schema": records.schema.encode()})
        blocks.append((BlockType.HFILE, {**header, HeaderKey.SCHEMA: records.schema}, content))
    if len(records.deletes):
        content = encode_deletes([deletes_batch(records.deletes, file.partition)])
        blocks.append((BlockType.DELETE, header, content))
    name = LogFileName(file.file_id, file.instant_time, LOG_VERSION, file.token)
    path = join_path(file.partition, name.text)
    size_bytes = 0
    with storage.open_output(path) as sink:
        for piece in encode_blocks(blocks):
            sink.write(piece)
            size_bytes += len(piece)
    return WriteStat(
        file_id=file.file_id,
        path=path,
        partition_path=file.partition,
        prev_commit=file.instant_time,
        num_writes=len(records.keys),
        num_update_writes=len(records.keys),
        num_deletes=len(records.deletes),
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
        log_version=LOG_VERSION,
        log_offset=0,
        base_file="",
        log_files=(name.text,),
    )


def _write_base(
    file: MetadataFile, parts: Iterable[tuple[pa.Array, pa.Array]], before: FileSlice | None, schema: str
) -> WriteStat:
    """Write a base file of ascending keys and values that replaces the slice `before`, None for the first file."""
    storage = open_storage(file.storage)
    name = BaseFileName(file.file_id, file.token, file.instant_time, BASE_EXTENSION)
    path = join_path(file.partition, name.text)
    encoder = HFileEncoder()
    size_bytes = 0
    with storage.open_output(path) as sink:
        for keys, values in parts:
            piece = encoder.add(keys, values)
            sink.write(piece)
            size_bytes += len(piece)
        info = {"schema": schema.encode()}
        if encoder.first_key is not None and encoder.last_key is not None:
            info |= {"minRecordKey": encoder.first_key, "maxRecordKey": encoder.last_key}
        piece = encoder.finish(file_info=info)
        sink.write(piece)
        size_bytes += len(piece)
    stat = WriteStat(
        file_id=file.file_id,
        path=path,
        partition_path=file.partition,
        num_writes=encoder.entry_count,
        num_inserts=encoder.entry_count,
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
    )
    if before is None:
        return stat
    return replace(
        stat,
        prev_commit=before.base.name.instant_time if before.base else stat.prev_commit,
        prev_base_file=before.base.name.text if before.base else None,
        total_log_files_compacted=len(before.logs),
        total_log_size_compacted=sum(log.size_bytes for log in before.logs),
    )
