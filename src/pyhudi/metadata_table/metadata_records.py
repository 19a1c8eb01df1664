"""Metadata table records of a commit, a clean or an initial listing. Format: docs/formats/metadata-table.md.

    partition         a commit adds                                  a clean removes
    files             its files with their sizes; its partitions     the entries of deleted files and partitions
    column_stats      a range of each column in each new file        the records of the files
    partition_stats   the ranges of touched partitions               nothing
    bloom_filters     the filters of new base files                  the records of the base files

The ranges of a partition are *tight* if they replace all older ones. They may only be marked as tight if all older
records are known. Records of one key are merged by request time, so an instant that is requested earlier and completes
later precedes.

All functions are pure: file names, sizes and ranges in, `MetadataRecords` out. Records of the record index are too many
for memory: see `metadata_table.file_tasks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal
from pyhudi.metadata_table.codecs.bloom_filter_codec import BLOOM_FILTER_SCHEMA, encode_bloom_filters
from pyhudi.metadata_table.codecs.column_stats_codec import COLUMN_STATS_SCHEMA, encode_column_stats
from pyhudi.metadata_table.codecs.files_codec import ALL_PARTITIONS, FILES_SCHEMA, ROOT, encode_files
from pyhudi.metadata_table.codecs.metadata_schema import RECORD_SCHEMA, TYPED_SCHEMA, MetadataRecordType
from pyhudi.metadata_table.codecs.payload_codec import WRAPPED
from pyhudi.metadata_table.codecs.value_wrappers import value_type, wrap_stored
from pyhudi.metadata_table.metadata_keys import (
    bloom_filter_keys,
    column_stats_keys,
    column_stats_prefix,
    expression_partition_key,
    file_hashes,
    partition_stats_key,
)
from pyhudi.records.column_statistics import NO_VALUES, ColumnRange, stated, with_short_bounds
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.hashing import key_shards, name_hash


@dataclass(frozen=True, slots=True)
class MetadataRecords:
    """Changes of one instant in one partition of the metadata table. No nulls.

    Attributes:
        keys: String, ascending by UTF-8 bytes, distinct.
        values: Binary, one per key.
        deletes: String, removed keys, ascending, distinct, none of them among `keys`.
        schema: Avro schema text of the values.
    """

    keys: pa.StringArray
    values: pa.BinaryArray
    deletes: pa.StringArray
    schema: str = RECORD_SCHEMA

    @property
    def is_empty(self) -> bool:
        """True if there are no changes."""
        return not len(self.keys) and not len(self.deletes)


@dataclass(frozen=True, slots=True)
class FileRanges:
    """The ranges of one data file's columns.

    Attributes:
        partition: Partition path.
        name: Bare file name; log file names include their leading dot.
        ranges: (column, range) pairs.
    """

    partition: str
    name: str
    ranges: tuple[tuple[str, ColumnRange], ...]


@dataclass(frozen=True, slots=True)
class FileFilter:
    """The Bloom filter of one base file: its type code and its text."""

    partition: str
    name: str
    type_code: str
    text: str


def build_records(
    keys: pa.StringArray | None = None,
    values: pa.BinaryArray | None = None,
    deletes: pa.StringArray | None = None,
    schema: str = RECORD_SCHEMA,
) -> MetadataRecords:
    """Build records from keys in any order. If a key is both written and deleted, the write wins.

    Raises:
        Internal: A key is written twice.
    """
    no_keys, no_values = pa.array([], pa.string()), pa.array([], pa.binary())
    keys, values = (no_keys, no_values) if keys is None or values is None else (keys, values)
    if len(keys) > 1:
        # Arrow compares strings by their bytes.
        order = pc.sort_indices(keys)
        keys, values = keys.take(order), values.take(order)
        if pc.any(pc.equal(keys[1:], keys[:-1])).as_py():
            raise Internal("a key of the metadata table is written twice by one instant")
    if deletes is None or not len(deletes):
        return MetadataRecords(keys, values, no_keys, schema)
    removed = pc.unique(deletes)
    if len(keys):
        removed = removed.filter(pc.invert(pc.is_in(removed, value_set=keys)))
    return MetadataRecords(keys, values, removed.take(pc.sort_indices(removed)), schema)


def merge_records(first: MetadataRecords, second: MetadataRecords) -> MetadataRecords:
    """Merge the records of one partition. Errors as of `build_records`."""
    return build_records(
        pa.concat_arrays([first.keys, second.keys]),
        pa.concat_arrays([first.values, second.values]),
        pa.concat_arrays([first.deletes, second.deletes]),
        first.schema if len(first.keys) else second.schema,
    )


def files_records(
    added: Mapping[str, Mapping[str, int]],
    deleted: Mapping[str, Iterable[str]] | None = None,
    deleted_partitions: Iterable[str] = (),
) -> MetadataRecords:
    """Build records of the files partition.

    Args:
        added: Partition path -> bare file name -> size in bytes; partitions without files are listed too.
        deleted: Partition path -> bare names; None for a commit.
        deleted_partitions: Partitions that no longer exist.
    """
    partitions: list[str] = []
    names: list[str] = []
    sizes: list[int] = []
    flags: list[bool] = []

    def append(partition: str, name: str, size_bytes: int, *, is_deleted: bool) -> None:
        partitions.append(partition)
        names.append(name)
        sizes.append(size_bytes)
        flags.append(is_deleted)

    for partition, files in added.items():
        append(ALL_PARTITIONS, _listed_name(partition), 0, is_deleted=False)
        for name, size_bytes in files.items():
            append(_listed_name(partition), name, size_bytes, is_deleted=False)
    for partition, deleted_names in (deleted or {}).items():
        for name in deleted_names:
            append(_listed_name(partition), name, 0, is_deleted=True)
    for partition in deleted_partitions:
        append(ALL_PARTITIONS, _listed_name(partition), 0, is_deleted=True)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(partitions, pa.string()),
            pa.array(names, pa.string()),
            pa.array(sizes, pa.int64()),
            pa.array(flags, pa.bool_()),
        ],
        schema=FILES_SCHEMA,
    )
    # Every commit writes the partition list; a clean writes it only if it removed a partition.
    listed = (ALL_PARTITIONS,) if deleted is None else ()
    keys, values = encode_files(rows, listed)
    return build_records(keys, values)


def column_stats_records(files: Sequence[FileRanges], schema: pa.Schema, *, typed: bool = False) -> MetadataRecords:
    """Build records of column_stats.

    Args:
        files: Every range has bounds or is all null.
        schema: The table's, with meta columns.
        typed: Use layout 2.
    """
    rows = _StatsRows(schema, typed=typed)
    hashes = file_hashes([file.name for file in files]).to_pylist()
    partition_hashes = {partition: name_hash(partition) for partition in {file.partition for file in files}}
    by_column: dict[str, tuple[list[str], list[str], list[ColumnRange]]] = {}
    for file, hashed in zip(files, hashes, strict=True):
        tail = partition_hashes[file.partition] + hashed
        for column, range_ in file.ranges:
            keys, names, ranges = by_column.setdefault(column, ([], [], []))
            keys.append(tail)
            names.append(file.name)
            ranges.append(range_)
    for column, (tails, names, ranges) in by_column.items():
        head = column_stats_prefix(column)
        rows.add(column, [head + tail for tail in tails], names, ranges)
    return rows.records(MetadataRecordType.COLUMN_STATS, is_tight=False)


def column_stats_deletes(files: Mapping[str, Iterable[str]], columns: Iterable[str]) -> MetadataRecords:
    """Build deletes of the statistics of files.

    Args:
        files: Partition path -> bare names.
        columns: The columns with statistics.
    """
    prefixes = [column_stats_prefix(column) for column in columns]
    keys: list[str] = []
    for partition, names in files.items():
        of_partition = name_hash(partition)
        tails = [of_partition + hashed for hashed in file_hashes(list(names)).to_pylist()]
        keys.extend(prefix + tail for prefix in prefixes for tail in tails)
    return build_records(deletes=pa.array(keys, pa.string()))


def partition_stats_records(
    partitions: Mapping[str, Mapping[str, ColumnRange] | None],
    columns: Sequence[str],
    schema: pa.Schema,
    *,
    is_tight: bool = True,
    typed: bool = False,
) -> MetadataRecords:
    """Build records of partition_stats.

    If the ranges are not tight, nothing is deleted: a partition without files gets a record without values.

    Args:
        partitions: Partition path -> column -> range over all its files; None for a partition without files. Ranges of
            all columns are required: readers prune a partition that lacks a record of a column.
        columns: The columns with statistics.
        schema: The table's, with meta columns.
        is_tight: The records replace older ones.
        typed: Use layout 2.
    """
    rows = _StatsRows(schema, typed=typed)
    deletes: list[str] = []
    ranges_by_partition: dict[str, Mapping[str, ColumnRange]] = {}
    for partition, ranges in partitions.items():
        if ranges is not None:
            ranges_by_partition[partition] = ranges
        elif is_tight:
            deletes.extend(partition_stats_key(column, partition) for column in columns)
        else:
            ranges_by_partition[partition] = dict.fromkeys(columns, NO_VALUES)
    for column in columns:
        keys = [partition_stats_key(column, partition) for partition in ranges_by_partition]
        rows.add(column, keys, list(ranges_by_partition), [ranges[column] for ranges in ranges_by_partition.values()])
    return rows.records(MetadataRecordType.PARTITION_STATS, is_tight=is_tight, deletes=pa.array(deletes, pa.string()))


def expression_records(
    column: str,
    kind: pa.DataType,
    files: Sequence[tuple[str, str, ColumnRange]],
    partitions: Mapping[str, ColumnRange | None],
    *,
    is_tight: bool = True,
    typed: bool = False,
) -> MetadataRecords:
    """Build records of an expression index of ranges. The value_count of the ranges includes nulls; the index stores it without.

    Args:
        column: Column of the table.
        kind: Type of the results.
        files: Partition path, bare name and range of each file.
        partitions: The range over all files of each partition; None for a partition without files.
        is_tight: The partition ranges are tight, as in `partition_stats_records`.
        typed: Use layout 2.
    """
    of_files = _StatsRows(pa.schema([]), typed=typed)
    keys = np.empty(len(files), dtype=object)
    hashes = file_hashes([name for _, name, _ in files])
    for partition, indices in _indices_by_name([partition for partition, _, _ in files]).items():
        keys[indices] = column_stats_keys(column, partition, hashes.take(pa.array(indices))).to_pylist()
    of_files.add(column, keys.tolist(), [name for _, name, _ in files], [_without_nulls(range_) for _, _, range_ in files], kind)
    of_partitions = _StatsRows(pa.schema([]), typed=typed)
    ranges_by_partition = {
        p: NO_VALUES if range_ is None else range_ for p, range_ in partitions.items() if range_ is not None or not is_tight
    }
    of_partitions.add(
        column,
        [expression_partition_key(column, partition) for partition in ranges_by_partition],
        list(ranges_by_partition),
        [_without_nulls(range_) for range_ in ranges_by_partition.values()],
        kind,
    )
    deletes = [expression_partition_key(column, partition) for partition in partitions if partition not in ranges_by_partition]
    first = of_files.records(MetadataRecordType.COLUMN_STATS, is_tight=False)
    second = of_partitions.records(MetadataRecordType.PARTITION_STATS, is_tight=is_tight, deletes=pa.array(deletes, pa.string()))
    return merge_records(first, second)


def bloom_records(filters: Sequence[FileFilter], instant_time: str) -> MetadataRecords:
    """Build records of bloom_filters."""
    keys = _file_keys((file_filter.partition, file_filter.name) for file_filter in filters)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([file_filter.type_code for file_filter in filters], pa.string()),
            pa.array([instant_time] * len(filters), pa.string()),
            pa.array([file_filter.text.encode() for file_filter in filters], pa.binary()),
            pa.array([False] * len(filters), pa.bool_()),
        ],
        schema=BLOOM_FILTER_SCHEMA,
    )
    return build_records(keys, encode_bloom_filters(rows))


def bloom_deletes(files: Mapping[str, Iterable[str]]) -> MetadataRecords:
    """Build deletes of the filters of base files.

    Args:
        files: Partition path -> bare names.
    """
    return build_records(deletes=_file_keys((partition, name) for partition, names in files.items() for name in names))


def by_shard(records: MetadataRecords, shard_count: int) -> dict[int, MetadataRecords]:
    """Divide records by file group; groups without changes are omitted."""
    if shard_count == 1:
        return {} if records.is_empty else {0: records}
    written_shards, deleted_shards = key_shards(records.keys, shard_count), key_shards(records.deletes, shard_count)
    touched = np.union1d(written_shards, deleted_shards)
    return {
        int(shard): MetadataRecords(
            records.keys.filter(pa.array(written_shards == shard)),
            records.values.filter(pa.array(written_shards == shard)),
            records.deletes.filter(pa.array(deleted_shards == shard)),
            records.schema,
        )
        for shard in touched
    }


def _without_nulls(found: ColumnRange) -> ColumnRange:
    if found.value_count is None or found.null_count is None:
        raise Internal("the results of an expression have no counts")
    return replace(found, value_count=found.value_count - found.null_count)


def _listed_name(partition: str) -> str:
    return partition or ROOT


def _file_keys(files: Iterable[tuple[str, str]]) -> pa.StringArray:
    parts = [pa.array([], pa.string())]
    parts.extend(bloom_filter_keys(partition, file_hashes([name])) for partition, name in files)
    return pa.concat_arrays(parts)


def _indices_by_name(names: Sequence[str]) -> dict[str, list[int]]:
    indices_by_name: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        indices_by_name.setdefault(name, []).append(index)
    return indices_by_name


@dataclass(slots=True)
class _TypedStats:
    """Statistics of columns of one type: key, name, column and range of each."""

    keys: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    ranges: list[ColumnRange] = field(default_factory=list)


class _StatsRows:
    """Collects statistics. Columns of one type are converted together: most commits have few rows of each."""

    def __init__(self, schema: pa.Schema, *, typed: bool) -> None:
        self._schema = schema
        self._typed = typed
        self._of_type: dict[pa.DataType, _TypedStats] = {}

    def add(
        self,
        column: str,
        keys: Sequence[str],
        names: Sequence[str],
        ranges: Sequence[ColumnRange],
        kind: pa.DataType | None = None,
    ) -> None:
        """kind: type of an expression's results, whose ranges count values without nulls; None for the column itself."""
        if not keys:
            # A column that the table does not have can only be removed.
            return
        for range_, name in zip(ranges, names, strict=True):
            is_known = range_.min is not None or (range_.is_all_null if kind is None else range_.value_count == 0)
            if not is_known:
                raise Internal(f"the range of column {column} in {name or 'the table'} is unknown; readers would prune it")
        kind = field_at(self._schema, column).type if kind is None else kind
        rows_of_type = self._of_type.setdefault(kind, _TypedStats())
        rows_of_type.keys.extend(keys)
        rows_of_type.names.extend(names)
        rows_of_type.columns.extend([column] * len(keys))
        rows_of_type.ranges.extend(map(with_short_bounds, ranges))

    def records(self, kind: MetadataRecordType, *, is_tight: bool, deletes: pa.StringArray | None = None) -> MetadataRecords:
        parts = [self._arrays(type_, rows_of_type) for type_, rows_of_type in self._of_type.items() if rows_of_type.keys]
        if not parts:
            return build_records(deletes=deletes)
        keys, *columns = (pa.concat_arrays(columns_of_types) for columns_of_types in zip(*parts, strict=True))
        count = len(keys)
        arrays = [*columns[:8], pa.array(np.zeros(count, dtype=np.bool_)), pa.array(np.full(count, is_tight)), *columns[8:]]
        stats = pa.RecordBatch.from_arrays(arrays, schema=COLUMN_STATS_SCHEMA)
        assert stats.schema.field("min").type == WRAPPED
        values = encode_column_stats(stats, kind, typed=self._typed)
        return build_records(keys, values, deletes, TYPED_SCHEMA if self._typed else RECORD_SCHEMA)

    def _arrays(self, kind: pa.DataType, stats: _TypedStats) -> list[pa.Array]:
        """Keys, then the columns of COLUMN_STATS_SCHEMA without the two flags."""
        ranges, count = stats.ranges, len(stats.keys)
        type_and_info = value_type(kind) if self._typed else None
        ordinal, info = (None, None) if type_and_info is None else (int(type_and_info[0]), type_and_info[1])
        return [
            pa.array(stats.keys, pa.string()),
            pa.array(stats.names, pa.string()),
            pa.array(stats.columns, pa.string()),
            wrap_stored([stated(range_.min) for range_ in ranges], kind, typed=self._typed),
            wrap_stored([stated(range_.max) for range_ in ranges], kind, typed=self._typed),
            pa.array([range_.value_count for range_ in ranges], pa.int64()),
            pa.array([range_.null_count for range_ in ranges], pa.int64()),
            pa.array([range_.total_size_bytes for range_ in ranges], pa.int64()),
            pa.array([range_.total_uncompressed_size_bytes for range_ in ranges], pa.int64()),
            pa.repeat(pa.scalar(ordinal, pa.int32()), count),
            pa.repeat(pa.scalar(info, pa.string()), count),
        ]
