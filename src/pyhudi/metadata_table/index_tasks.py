"""Tasks that compute secondary and expression index entries of file groups and files.
Format: docs/formats/metadata-table.md.

    run_secondary      a file group before and after a commit -> added and removed pairs of value and record key: a side
                       file for each secondary index, sharded by the index's file groups, as `tasks.file_stats` writes
                       them
    run_expressions    data files -> for each expression index the range of its results in the file, or a Bloom filter
                       of them

Both read stored rows: a secondary index depends on the merged rows, not on the written ones, and function results can
only be computed from values. Only record keys and the indexes' columns are read.

Memory: the pairs of one file group before and after. Of a file group that was not there before, at most
SIDE_FILE_BYTES of them: it has several side files. Otherwise one row group of one column.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.bloom_filter import BloomFilter, BloomKind
from pyhudi.format.log.data_blocks import decode_content
from pyhudi.format.log.framing import BlockType, HeaderKey
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.format.names import is_log_file, parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.metadata_table.codecs.secondary_index_codec import format_secondary_keys, routing_prefixes
from pyhudi.records.column_statistics import ColumnRange, RangeCollector
from pyhudi.records.dotted_columns import column_at
from pyhudi.records.java_strings import value_text
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.schema_on_read.column_ids import ColumnIds, names_in_file
from pyhudi.records.sql_functions import IndexExpression, filter_texts
from pyhudi.records.stored_rows import in_table_columns
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.table.bootstrap_sources import BootstrapSources
from pyhudi.table.file_slices import FileSlice, LogFile
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.bootstrap_join import bootstrap_source_rows
from pyhudi.tasks.file_stats import KeyChanges
from pyhudi.tasks.incoming_layout import as_batch
from pyhudi.tasks.log_scan import InstantValidity, find_blocks, hfile_entries
from pyhudi.tasks.read_slice import ReadSpec, run_read

_RESULT = "result"

SIDE_FILE_BYTES = 64 << 20
"""Bytes of keys in a side file of an index of a new file group."""


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    """One secondary index.

    Attributes:
        partition: Partition of the metadata table.
        column: Dotted name.
        shards: Number of its file groups.
        layout: Layout of its records.
    """

    partition: str
    column: str
    shards: int
    layout: int = 1


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Bloom filter settings of an expression index."""

    filter_type: BloomKind
    num_entries: int
    fpp: float
    max_entries: int


@dataclass(frozen=True, slots=True)
class ExpressionIndex:
    """One expression index.

    Attributes:
        partition: Partition of the metadata table.
        column: Dotted name.
        expression: The function.
        filters: None for an index of ranges.
    """

    partition: str
    column: str
    expression: IndexExpression
    filters: FilterSettings | None = None


@dataclass(frozen=True, slots=True)
class SecondaryTask:
    """A file group before and after a commit; None if it has no rows.

    Attributes:
        reader: Reads record keys and the indexes' columns, with the instants before the commit.
        validity: The instants after the commit.
        before: The slice before the commit.
        after: The slice after the commit.
        indexes: The indexes to update.
        instant_time: Instant of the commit.
        name: Prefix of the side file names.
    """

    reader: ReadSpec
    validity: InstantValidity
    before: FileSlice | None
    after: FileSlice | None
    indexes: tuple[SecondaryIndex, ...]
    instant_time: str
    name: str


@dataclass(frozen=True, slots=True)
class ExpressionTask:
    """Data files to evaluate.

    Attributes:
        storage: Storage of the table.
        files: (partition path, path, bytes) of each file.
        schema: The table's, with meta columns.
        indexes: The indexes to compute.
        validity: Valid log blocks.
        bootstrap_sources: Files outside of the table that hold rows of bootstrapped files.
    """

    storage: StorageSpec
    files: tuple[tuple[str, str, int], ...]
    schema: pa.Schema
    indexes: tuple[ExpressionIndex, ...]
    validity: InstantValidity
    bootstrap_sources: BootstrapSources | None = None


@dataclass(frozen=True, slots=True)
class ExpressionStats:
    """Entry of an expression index for one data file.

    Attributes:
        index: Name of the index.
        partition: Partition path of the file.
        name: Bare file name.
        range: Range of the results, value_count includes nulls; None for an index of filters, and for a file without
            rows.
        bloom: Type code and text of a filter.
    """

    index: str
    partition: str
    name: str
    range: ColumnRange | None
    bloom: tuple[str, str] | None


def secondary_reader(reader: ReadSpec, indexes: Sequence[SecondaryIndex]) -> ReadSpec:
    """Return the reader with the output that `run_secondary` needs."""
    columns = [RECORD_KEY]
    if not reader.populate_meta_fields:
        columns += [name.split(".")[0] for name in reader.keys.record_fields]
    columns += [index.column.split(".")[0] for index in indexes]
    output = pa.schema([reader.table_schema.field(name) for name in dict.fromkeys(columns)])
    return replace(reader, output=output, condition=None)


def run_secondary(task: SecondaryTask) -> tuple[tuple[str, str], ...]:
    """Return (partition of the index, path of a side file) for each side file."""
    storage = open_storage(task.reader.storage)
    if task.before is None:
        return tuple(_new_pairs(storage, task))
    before = _pairs(task.reader, task.before, task.indexes)
    after = _pairs(replace(task.reader, validity=task.validity), task.after, task.indexes)
    side_files = []
    for index in task.indexes:
        old, new = before[index.partition], after[index.partition]
        changes = _key_changes(index)
        changes.add(new.filter(pc.invert(pc.is_in(new, value_set=old))))
        changes.add(old.filter(pc.invert(pc.is_in(old, value_set=new))), deleted=True)
        path = changes.store(storage, task.instant_time, f"{task.name}.{index.partition}")
        if path is not None:
            side_files.append((index.partition, path))
    return tuple(side_files)


def secondary_keys(reader: ReadSpec, slice_: FileSlice, indexes: Sequence[SecondaryIndex]) -> Mapping[str, pa.StringArray]:
    """Return the distinct keys of a slice's rows in each index. `reader` is the result of `secondary_reader`."""
    return _pairs(reader, slice_, indexes)


def run_expressions(task: ExpressionTask) -> tuple[ExpressionStats, ...]:
    """Compute the entries of each index for each file, in the order of files, then of indexes."""
    storage = open_storage(task.storage)
    columns = list(dict.fromkeys(index.column.split(".")[0] for index in task.indexes))
    schema = pa.schema([task.schema.field(name).with_nullable(True) for name in columns])
    results: list[ExpressionStats] = []
    for partition, path, size_bytes in task.files:
        name = file_name(path)
        if is_log_file(name):
            batches = log_batches(storage, path, size_bytes, schema, task.validity)
        else:
            rows = bootstrap_source_rows(storage, task.storage, task.bootstrap_sources, partition, path, schema)
            batches = _base_batches(storage, path, schema) if rows is None else map(as_batch, rows)
        builders = [_StatsBuilder(index) for index in task.indexes]
        for batch in batches:
            for builder in builders:
                builder.add(batch)
        for builder in builders:
            results.append(builder.finish(partition, name, size_bytes))
    return tuple(results)


def log_batches(
    storage: Storage,
    path: str,
    size_bytes: int,
    schema: pa.Schema,
    validity: InstantValidity,
    ids: ColumnIds | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a log file's valid data blocks in the given columns; delete blocks have none. ids: the column ids."""
    log_name = parse_log_file(file_name(path))
    assert log_name is not None, "the path belongs to a log file"
    blocks, _, _ = find_blocks(storage, [LogFile(path, log_name, size_bytes)], validity, skip_compacted=False)
    for entry in blocks:
        if entry.block.kind is BlockType.DELETE:
            continue
        text = entry.block.required(HeaderKey.SCHEMA)
        content = entry.block.read_content(lambda offset, size: storage.read_range(path, offset, size))
        time = entry.block.required(HeaderKey.INSTANT_TIME)
        positions = None if ids is None or not ids.relocated(time, schema.names) else ids.positions(time)
        stored_names = set(names_in_file(positions, schema.names))
        names = [name for name in avro_to_arrow(text).names if name in stored_names]
        try:
            for batch in decode_content(entry.block.kind, text, content, names, hfile_entries, RECORD_KEY):
                yield as_batch(in_table_columns(pa.Table.from_batches([batch]), positions if names else None, schema))
        except CorruptData as error:
            raise error.with_path(storage.absolute(path)) from error


def _new_pairs(storage: Storage, task: SecondaryTask) -> Iterator[tuple[str, str]]:
    """Write the pairs of a file group that was not there before, some of them at a time, as in `run_secondary`."""
    pending = {index.partition: _PendingPairs(index) for index in task.indexes}
    numbers = itertools.count()
    for partition, keys in _pair_batches(replace(task.reader, validity=task.validity), task.after, task.indexes):
        pairs = pending[partition]
        pairs.add(keys)
        if pairs.size_bytes >= SIDE_FILE_BYTES:
            yield from pairs.store(storage, task, next(numbers))
    for pairs in pending.values():
        yield from pairs.store(storage, task, next(numbers))


class _PendingPairs:
    """Pairs of a new file group that are not stored yet."""

    def __init__(self, index: SecondaryIndex) -> None:
        self._index = index
        self._parts: list[pa.Array] = []
        self.size_bytes = 0

    def add(self, keys: pa.StringArray) -> None:
        self._parts.append(keys)
        self.size_bytes += keys.nbytes

    def store(self, storage: Storage, task: SecondaryTask, number: int) -> Iterator[tuple[str, str]]:
        """Write a side file unless there are no pairs; yield the partition of the index and its path."""
        changes = _key_changes(self._index)
        changes.add(pc.unique(pa.concat_arrays([pa.array([], pa.string()), *self._parts])))
        self._parts, self.size_bytes = [], 0
        path = changes.store(storage, task.instant_time, f"{task.name}.{number}.{self._index.partition}")
        if path is not None:
            yield self._index.partition, path


def _key_changes(index: SecondaryIndex) -> KeyChanges:
    return KeyChanges(index.shards, routing_prefixes if index.layout > 1 else None)


def _pairs(reader: ReadSpec, slice_: FileSlice | None, indexes: Sequence[SecondaryIndex]) -> dict[str, pa.StringArray]:
    parts: dict[str, list[pa.Array]] = {index.partition: [pa.array([], pa.string())] for index in indexes}
    for partition, keys in _pair_batches(reader, slice_, indexes):
        parts[partition].append(keys)
    return {name: pc.unique(pa.concat_arrays(arrays)) for name, arrays in parts.items()}


def _pair_batches(
    reader: ReadSpec, slice_: FileSlice | None, indexes: Sequence[SecondaryIndex]
) -> Iterator[tuple[str, pa.StringArray]]:
    """The pairs of each batch of rows in each index."""
    if slice_ is None or (slice_.base is None and not slice_.logs):
        return
    for rows in run_read(reader, slice_):
        if not rows.num_rows:
            continue
        batch = as_batch(rows)
        keys = batch.column(RECORD_KEY) if reader.populate_meta_fields else record_keys(reader.keys, batch)
        for index in indexes:
            # A null value has no text, so its row has no key in layout 1.
            values = column_at(batch, index.column)
            if index.layout > 1 and pa.types.is_date32(values.type):
                values = values.view(pa.int32())
            yield index.partition, format_secondary_keys(value_text(values), keys, index.layout).drop_null()


def _base_batches(storage: Storage, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with open_base_file(storage, path) as file:
        file_columns = set(file.schema_arrow.names)
        columns = [name for name in schema.names if name in file_columns]
        for group in range(file.metadata.num_row_groups):
            if columns:
                rows = file.read_row_group(group, columns=columns, use_threads=False)
                yield as_batch(in_table_columns(rows, None, schema))
            else:
                count = file.metadata.row_group(group).num_rows
                yield pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in schema], schema=schema)


class _StatsBuilder:
    """Collects the entry of one index for one file."""

    def __init__(self, index: ExpressionIndex) -> None:
        self._index = index
        self._ranges = RangeCollector([_RESULT])
        self._texts: list[pa.Array] = []
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        results = self._index.expression.evaluate(column_at(batch, self._index.column))
        self._count += len(results)
        if self._index.filters is None:
            self._ranges.add(pa.RecordBatch.from_arrays([results], names=[_RESULT]))
        else:
            self._texts.append(pc.unique(filter_texts(results)))

    def finish(self, partition: str, name: str, size_bytes: int) -> ExpressionStats:
        index, results_range, bloom = self._index, None, None
        if index.filters is not None:
            settings = index.filters
            bloom_filter = BloomFilter.create(settings.filter_type, settings.num_entries, settings.fpp, settings.max_entries)
            texts = pc.unique(pa.concat_arrays([pa.array([], pa.string()), *self._texts]))
            # Hudi's Bloom filter cannot hold the empty text; readers that look it up read every file.
            bloom_filter.add(texts.filter(pc.not_equal(texts, "")))
            bloom = (settings.filter_type.value, bloom_filter.to_text())
        elif self._count:
            range_ = self._ranges.ranges()[_RESULT]
            # Hudi stores the file's own size here, and twice that.
            results_range = ColumnRange(range_.min, range_.max, range_.null_count, range_.value_count, size_bytes, 2 * size_bytes)
        return ExpressionStats(index.partition, partition, name, results_range, bloom)
