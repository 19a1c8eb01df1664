"""Tasks that find out what secondary and expression indexes want to know of file groups and files.

    run_secondary      a file group before and after a commit -> which pairs of value and record key came, and which left: a side
                       file for each secondary index, routed by the index's file groups, as `tasks.file_stats` writes them
    run_expressions    data files -> for each expression index the range of its results in the file, or a Bloom filter of them

Both read what is there: a secondary index changes with what rows are, not with what was written, and functions can be computed
from nothing but values.  Only record keys and the indexes' columns are read.

Memory: the pairs of one file group before and after; one row group of one column.

Source: docs/formats/metadata-table.md.
"""

from __future__ import annotations

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
from pyhudi.format.names import parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.metadata_table.codecs.secondary_index_codec import format_secondary_keys, routing_prefixes
from pyhudi.records.column_statistics import ColumnRange, RangeCollector
from pyhudi.records.dotted_columns import column_at
from pyhudi.records.expression_functions import IndexExpression, filter_texts
from pyhudi.records.java_strings import value_text
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.schema_cast import conform, conform_table
from pyhudi.records.schema_on_read.column_ids import ColumnIds, by_ids, names_in_file
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


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    """One secondary index.

    partition: of the metadata table; column: dotted name; shards: how many file groups it has; layout: of its records.
    """

    partition: str
    column: str
    shards: int
    layout: int = 1


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """The Bloom filters of an expression index."""

    filter_type: BloomKind
    num_entries: int
    fpp: float
    max_entries: int


@dataclass(frozen=True, slots=True)
class ExpressionIndex:
    """One expression index.  partition: of the metadata table; column: dotted name; filters: None for one of ranges."""

    partition: str
    column: str
    expression: IndexExpression
    filters: FilterSettings | None = None


@dataclass(frozen=True, slots=True)
class SecondaryTask:
    """A file group before and after a commit; None where it has no rows.

    reader: gives record keys and the indexes' columns; validity: of the instants after the commit, the reader's are those before.
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
    """Data files.

    files: (partition path, path, bytes) of each.  schema: the table's, with meta columns.  bootstrap_sources: where rows of files
    lie outside of the table.
    """

    storage: StorageSpec
    files: tuple[tuple[str, str, int], ...]
    schema: pa.Schema
    indexes: tuple[ExpressionIndex, ...]
    validity: InstantValidity
    bootstrap_sources: BootstrapSources | None = None


@dataclass(frozen=True, slots=True)
class ExpressionStats:
    """What an expression index is to say of one data file.

    range: of the results, value_count with nulls; None for an index of filters, and for a file that holds no rows to tell of.
    bloom: type code and text of a filter.
    """

    index: str
    partition: str
    name: str
    range: ColumnRange | None
    bloom: tuple[str, str] | None


def secondary_reader(reader: ReadSpec, indexes: Sequence[SecondaryIndex]) -> ReadSpec:
    """The reader with the output that `run_secondary` needs."""
    heads = [RECORD_KEY]
    if not reader.populate_meta_fields:
        heads += [name.split(".")[0] for name in reader.keys.record_fields]
    heads += [index.column.split(".")[0] for index in indexes]
    output = pa.schema([reader.table_schema.field(name) for name in dict.fromkeys(heads)])
    return replace(reader, output=output, condition=None)


def run_secondary(task: SecondaryTask) -> tuple[tuple[str, str], ...]:
    """(partition of the index, path of a side file) for each index in which something changes."""
    storage = open_storage(task.reader.storage)
    before = _pairs(task.reader, task.before, task.indexes)
    after = _pairs(replace(task.reader, validity=task.validity), task.after, task.indexes)
    found = []
    for index in task.indexes:
        old, new = before[index.partition], after[index.partition]
        changes = KeyChanges(index.shards, routing_prefixes if index.layout > 1 else None)
        changes.add(new.filter(pc.invert(pc.is_in(new, value_set=old))))
        changes.add(old.filter(pc.invert(pc.is_in(old, value_set=new))), deleted=True)
        path = changes.store(storage, task.instant_time, f"{task.name}.{index.partition}")
        if path is not None:
            found.append((index.partition, path))
    return tuple(found)


def secondary_keys(reader: ReadSpec, slice_: FileSlice, indexes: Sequence[SecondaryIndex]) -> Mapping[str, pa.StringArray]:
    """The keys that a slice's rows have in each index, each once.  reader: as `secondary_reader` gives it."""
    return _pairs(reader, slice_, indexes)


def run_expressions(task: ExpressionTask) -> tuple[ExpressionStats, ...]:
    """What each index is to say of each file, in the order of files, then of indexes."""
    storage = open_storage(task.storage)
    heads = list(dict.fromkeys(index.column.split(".")[0] for index in task.indexes))
    wanted = pa.schema([task.schema.field(name).with_nullable(True) for name in heads])
    found: list[ExpressionStats] = []
    for partition, path, size_bytes in task.files:
        name = file_name(path)
        if name.startswith("."):
            batches = log_batches(storage, path, size_bytes, wanted, task.validity)
        else:
            rows = bootstrap_source_rows(storage, task.storage, task.bootstrap_sources, partition, path, wanted)
            batches = _base_batches(storage, path, wanted) if rows is None else map(as_batch, rows)
        makers = [_StatsBuilder(index) for index in task.indexes]
        for batch in batches:
            for maker in makers:
                maker.add(batch)
        for maker in makers:
            found.append(maker.finish(partition, name, size_bytes))
    return tuple(found)


def log_batches(
    storage: Storage,
    path: str,
    size_bytes: int,
    schema: pa.Schema,
    validity: InstantValidity,
    ids: ColumnIds | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a log file's data blocks that count, in these columns; those of deletes are none.  ids: of the columns."""
    log_name = parse_log_file(file_name(path))
    assert log_name is not None, "only data files are asked about"
    blocks, _, _ = find_blocks(storage, [LogFile(path, log_name, size_bytes)], validity, skip_compacted=False)
    for found in blocks:
        if found.block.kind is BlockType.DELETE:
            continue
        text = found.block.required(HeaderKey.SCHEMA)
        content = found.block.read_content(lambda offset, size: storage.read_range(path, offset, size))
        time = found.block.required(HeaderKey.INSTANT_TIME)
        places = None if ids is None or not ids.relocated(time, schema.names) else ids.positions(time)
        wanted = set(names_in_file(places, schema.names))
        names = [name for name in avro_to_arrow(text).names if name in wanted]
        try:
            for batch in decode_content(found.block.kind, text, content, names, hfile_entries, RECORD_KEY):
                if places is not None and names:
                    batch = as_batch(by_ids(pa.Table.from_batches([batch]), places, schema))
                yield conform(batch, schema)
        except CorruptData as error:
            raise error.with_path(storage.absolute(path)) from error


def _pairs(reader: ReadSpec, slice_: FileSlice | None, indexes: Sequence[SecondaryIndex]) -> dict[str, pa.StringArray]:
    parts: dict[str, list[pa.Array]] = {index.partition: [pa.array([], pa.string())] for index in indexes}
    if slice_ is not None and (slice_.base is not None or slice_.logs):
        for rows in run_read(reader, slice_):
            if not rows.num_rows:
                continue
            batch = as_batch(rows)
            keys = batch.column(RECORD_KEY) if reader.populate_meta_fields else record_keys(reader.keys, batch)
            for index in indexes:
                # A null value has no text, so its row has no key here in the first layout.
                values = column_at(batch, index.column)
                if index.layout > 1 and pa.types.is_date32(values.type):
                    values = values.view(pa.int32())
                parts[index.partition].append(format_secondary_keys(value_text(values), keys, index.layout).drop_null())
    return {name: pc.unique(pa.concat_arrays(arrays)) for name, arrays in parts.items()}


def _base_batches(storage: Storage, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with open_base_file(storage, path) as file:
        present = set(file.schema_arrow.names)
        heads = [name for name in schema.names if name in present]
        for group in range(file.metadata.num_row_groups):
            if heads:
                rows = file.read_row_group(group, columns=heads, use_threads=False)
                yield as_batch(conform_table(rows, schema))
            else:
                count = file.metadata.row_group(group).num_rows
                yield pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in schema], schema=schema)


class _StatsBuilder:
    """What one index says of one file, in the making."""

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
        index, found, bloom = self._index, None, None
        if index.filters is not None:
            wanted = index.filters
            made = BloomFilter.create(wanted.filter_type, wanted.num_entries, wanted.fpp, wanted.max_entries)
            texts = pc.unique(pa.concat_arrays([pa.array([], pa.string()), *self._texts]))
            # A Bloom filter cannot hold the empty text; readers that look for it read every file.
            made.add(texts.filter(pc.not_equal(texts, "")))
            bloom = (wanted.filter_type.value, made.to_text())
        elif self._count:
            range_ = self._ranges.ranges()[_RESULT]
            # Real Hudi states the file's own size here, and twice that.
            found = ColumnRange(range_.min, range_.max, range_.null_count, range_.value_count, size_bytes, 2 * size_bytes)
        return ExpressionStats(index.partition, partition, name, found, bloom)
