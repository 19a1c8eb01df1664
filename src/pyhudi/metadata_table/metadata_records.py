"""Records of the metadata table: what a commit, a clean or a first listing makes each of its partitions say.

    partition         a commit adds                                  a clean removes
    files             its files with their sizes; its partitions     the files' entries; the partitions that went
    column_stats      a range of each column in each new file        the records of the files
    partition_stats   the ranges of the partitions that it touched   nothing
    bloom_filters     the filters of new base files                  the records of the base files

The ranges of a partition are *tight* when they make all older ones void.  That may be said only where everything older is known:
records of one key are merged by request time, so an instant that was requested earlier and completes later comes before.

Everything here is a value: file names, sizes and ranges in, `MetadataRecords` out.  Keys of the record index do not come this
way, there are too many of them: see `metadata_table.file_tasks`.

Source: docs/formats/metadata-table.md.
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
from pyhudi.records.column_statistics import NO_VALUES, ColumnRange, stated
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.hashing import key_shards, name_hash


@dataclass(frozen=True, slots=True)
class MetadataRecords:
    """What one instant says in one partition of the metadata table.

    keys: string, ascending by UTF-8 bytes, each once; values: binary, as many; deletes: string, keys that are removed, ascending,
    each once and none of them among `keys`.  No nulls.  schema: that wrote the values.
    """

    keys: pa.StringArray
    values: pa.BinaryArray
    deletes: pa.StringArray
    schema: str = RECORD_SCHEMA

    @property
    def is_empty(self) -> bool:
        """True when nothing is said."""
        return not len(self.keys) and not len(self.deletes)


@dataclass(frozen=True, slots=True)
class FileRanges:
    """The ranges of one data file's columns.  name: bare, log files with their leading dot; ranges: column -> range."""

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
    """Records from keys in any order.  Where a key is both written and deleted, what is written counts.

    Raises Internal when a key is written twice.
    """
    no_keys, no_values = pa.array([], pa.string()), pa.array([], pa.binary())
    keys, values = (no_keys, no_values) if keys is None or values is None else (keys, values)
    order = pc.sort_indices(keys.cast(pa.binary()))
    keys, values = keys.take(order), values.take(order)
    if len(keys) > 1 and pc.any(pc.equal(keys[1:], keys[:-1])).as_py():
        raise Internal("a key of the metadata table is written twice by one instant")
    gone = no_keys if deletes is None else pc.unique(deletes)
    gone = gone.filter(pc.invert(pc.is_in(gone, value_set=keys)))
    return MetadataRecords(keys, values, gone.take(pc.sort_indices(gone.cast(pa.binary()))), schema)


def join_tables(first: MetadataRecords, second: MetadataRecords) -> MetadataRecords:
    """What two say together, of one partition; errors as of `build_records`."""
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
    """Records of the files partition.

    added: partition path -> bare file name -> size in bytes; a partition without files is listed all the same.  deleted:
    partition path -> bare names.  deleted_partitions: those that are no longer partitions.
    """
    partitions: list[str] = []
    names: list[str] = []
    sizes: list[int] = []
    flags: list[bool] = []

    def say(partition: str, name: str, size_bytes: int, *, is_deleted: bool) -> None:
        partitions.append(partition)
        names.append(name)
        sizes.append(size_bytes)
        flags.append(is_deleted)

    for partition, files in added.items():
        say(ALL_PARTITIONS, _listed(partition), 0, is_deleted=False)
        for name, size_bytes in files.items():
            say(_listed(partition), name, size_bytes, is_deleted=False)
    for partition, gone in (deleted or {}).items():
        for name in gone:
            say(_listed(partition), name, 0, is_deleted=True)
    for partition in deleted_partitions:
        say(ALL_PARTITIONS, _listed(partition), 0, is_deleted=True)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(partitions, pa.string()),
            pa.array(names, pa.string()),
            pa.array(sizes, pa.int64()),
            pa.array(flags, pa.bool_()),
        ],
        schema=FILES_SCHEMA,
    )
    # A clean that removed no partition says nothing of the list; every commit says something.
    listed = (ALL_PARTITIONS,) if deleted is None else ()
    keys, values = encode_files(rows, listed)
    return build_records(keys, values)


def column_stats_records(files: Sequence[FileRanges], schema: pa.Schema, *, typed: bool = False) -> MetadataRecords:
    """Records of column_stats.

    schema: the table's, with meta columns; every range has its bounds or is all null; typed: records of the second layout.
    """
    rows = _StatsRows(schema, typed=typed)
    hashes = file_hashes([file.name for file in files]).to_pylist()
    within = {partition: name_hash(partition) for partition in {file.partition for file in files}}
    by_column: dict[str, tuple[list[str], list[str], list[ColumnRange]]] = {}
    for file, hashed in zip(files, hashes, strict=True):
        tail = within[file.partition] + hashed
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
    """The removal of the statistics of files.  files: partition path -> bare names."""
    parts = [pa.array([], pa.string())]
    for partition, names in files.items():
        hashes = file_hashes(list(names))
        parts.extend(column_stats_keys(column, partition, hashes) for column in columns)
    return build_records(deletes=pa.concat_arrays(parts))


def partition_stats_records(
    partitions: Mapping[str, Mapping[str, ColumnRange] | None],
    columns: Sequence[str],
    schema: pa.Schema,
    *,
    is_tight: bool = True,
    typed: bool = False,
) -> MetadataRecords:
    """Records of partition_stats; typed: of the second layout.

    partitions: partition path -> column -> range over all its files; None for a partition in which nothing is left.  Readers
    pass a partition over that has no record of a column, so the ranges must be of all columns.  Where they are not tight nothing
    is removed either: a partition without anything has a record of no values.
    """
    rows = _StatsRows(schema, typed=typed)
    deletes: list[str] = []
    there: dict[str, Mapping[str, ColumnRange]] = {}
    for partition, ranges in partitions.items():
        if ranges is not None:
            there[partition] = ranges
        elif is_tight:
            deletes.extend(partition_stats_key(column, partition) for column in columns)
        else:
            there[partition] = dict.fromkeys(columns, NO_VALUES)
    for column in columns:
        keys = [partition_stats_key(column, partition) for partition in there]
        rows.add(column, keys, list(there), [ranges[column] for ranges in there.values()])
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
    """Records of an expression index of ranges; typed: of the second layout.

    column: of the table; kind: of the results.  files: partition path, bare name and range of each.  partitions: the range over
    all files of each; None for a partition in which nothing is left; is_tight: of these, as in `partition_stats_records`.
    value_count of the ranges is with nulls; the index stores it without.
    """
    of_files = _StatsRows(pa.schema([]), typed=typed)
    keys = np.empty(len(files), dtype=object)
    hashes = file_hashes([name for _, name, _ in files])
    for partition, places in _places([partition for partition, _, _ in files]).items():
        keys[places] = column_stats_keys(column, partition, hashes.take(pa.array(places))).to_pylist()
    of_files.add(column, keys.tolist(), [name for _, name, _ in files], [_without_nulls(found) for _, _, found in files], kind)
    of_partitions = _StatsRows(pa.schema([]), typed=typed)
    there = {p: NO_VALUES if found is None else found for p, found in partitions.items() if found is not None or not is_tight}
    of_partitions.add(
        column,
        [expression_partition_key(column, partition) for partition in there],
        list(there),
        [_without_nulls(found) for found in there.values()],
        kind,
    )
    gone = [expression_partition_key(column, partition) for partition in partitions if partition not in there]
    first = of_files.records(MetadataRecordType.COLUMN_STATS, is_tight=False)
    second = of_partitions.records(MetadataRecordType.PARTITION_STATS, is_tight=is_tight, deletes=pa.array(gone, pa.string()))
    return join_tables(first, second)


def bloom_records(filters: Sequence[FileFilter], instant_time: str) -> MetadataRecords:
    """Records of bloom_filters."""
    keys = _file_keys((one.partition, one.name) for one in filters)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([one.type_code for one in filters], pa.string()),
            pa.array([instant_time] * len(filters), pa.string()),
            pa.array([one.text.encode() for one in filters], pa.binary()),
            pa.array([False] * len(filters), pa.bool_()),
        ],
        schema=BLOOM_FILTER_SCHEMA,
    )
    return build_records(keys, encode_bloom_filters(rows))


def bloom_deletes(files: Mapping[str, Iterable[str]]) -> MetadataRecords:
    """The removal of the filters of base files.  files: partition path -> bare names."""
    return build_records(deletes=_file_keys((partition, name) for partition, names in files.items() for name in names))


def by_shard(records: MetadataRecords, shard_count: int) -> dict[int, MetadataRecords]:
    """The records of each file group that is touched."""
    if shard_count == 1:
        return {} if records.is_empty else {0: records}
    written, gone = key_shards(records.keys, shard_count), key_shards(records.deletes, shard_count)
    touched = np.union1d(written, gone)
    return {
        int(shard): MetadataRecords(
            records.keys.filter(pa.array(written == shard)),
            records.values.filter(pa.array(written == shard)),
            records.deletes.filter(pa.array(gone == shard)),
            records.schema,
        )
        for shard in touched
    }


def _without_nulls(found: ColumnRange) -> ColumnRange:
    if found.value_count is None or found.null_count is None:
        raise Internal("the results of an expression are counted")
    return replace(found, value_count=found.value_count - found.null_count)


def _listed(partition: str) -> str:
    return partition or ROOT


def _file_keys(files: Iterable[tuple[str, str]]) -> pa.StringArray:
    parts = [pa.array([], pa.string())]
    parts.extend(bloom_filter_keys(partition, file_hashes([name])) for partition, name in files)
    return pa.concat_arrays(parts)


def _places(names: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name, []).append(place)
    return found


@dataclass(slots=True)
class _TypedStats:
    """Statistics of columns of one type: key, name, column and range of each."""

    keys: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    ranges: list[ColumnRange] = field(default_factory=list)


class _StatsRows:
    """Statistics in the making.  Columns of one type are made into arrays together: most commits have few rows of each."""

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
        """kind: of an expression's results, whose ranges count values without nulls; None for the column itself."""
        if not keys:
            # A column that the table no longer has is only removed.
            return
        for found, name in zip(ranges, names, strict=True):
            is_known = found.min is not None or (found.is_all_null if kind is None else found.value_count == 0)
            if not is_known:
                raise Internal(f"the range of column {column} in {name or 'the table'} is not known; readers would pass it over")
        kind = field_at(self._schema, column).type if kind is None else kind
        alike = self._of_type.setdefault(kind, _TypedStats())
        alike.keys.extend(keys)
        alike.names.extend(names)
        alike.columns.extend([column] * len(keys))
        alike.ranges.extend(ranges)

    def records(self, kind: MetadataRecordType, *, is_tight: bool, deletes: pa.StringArray | None = None) -> MetadataRecords:
        parts = [self._arrays(type_, alike) for type_, alike in self._of_type.items() if alike.keys]
        if not parts:
            return build_records(deletes=deletes)
        keys, *columns = (pa.concat_arrays(held) for held in zip(*parts, strict=True))
        count = len(keys)
        arrays = [*columns[:8], pa.array(np.zeros(count, dtype=np.bool_)), pa.array(np.full(count, is_tight)), *columns[8:]]
        stats = pa.RecordBatch.from_arrays(arrays, schema=COLUMN_STATS_SCHEMA)
        assert stats.schema.field("min").type == WRAPPED
        values = encode_column_stats(stats, kind, typed=self._typed)
        return build_records(keys, values, deletes, TYPED_SCHEMA if self._typed else RECORD_SCHEMA)

    def _arrays(self, kind: pa.DataType, alike: _TypedStats) -> list[pa.Array]:
        """Keys, then the columns of COLUMN_STATS_SCHEMA without the two flags."""
        ranges, count = alike.ranges, len(alike.keys)
        named = value_type(kind) if self._typed else None
        ordinal, info = (None, None) if named is None else (int(named[0]), named[1])
        return [
            pa.array(alike.keys, pa.string()),
            pa.array(alike.names, pa.string()),
            pa.array(alike.columns, pa.string()),
            wrap_stored([stated(found.min) for found in ranges], kind, typed=self._typed),
            wrap_stored([stated(found.max) for found in ranges], kind, typed=self._typed),
            pa.array([found.value_count for found in ranges], pa.int64()),
            pa.array([found.null_count for found in ranges], pa.int64()),
            pa.array([found.total_size_bytes for found in ranges], pa.int64()),
            pa.array([found.total_uncompressed_size_bytes for found in ranges], pa.int64()),
            pa.repeat(pa.scalar(ordinal, pa.int32()), count),
            pa.repeat(pa.scalar(info, pa.string()), count),
        ]
