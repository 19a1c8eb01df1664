"""Typed lookups in the partitions of the metadata table. Format: docs/formats/metadata-table.md, partitions.

Each function takes the opened `MetadataTable`, looks up and merges. Errors are those of its methods.

    files             partitions and files of the table
    column_stats      column ranges per file, also of an expression index
    partition_stats   column ranges per partition, also of an expression index
    bloom_filters     the key filter of a file
    record_index      record key -> partition and file group
    secondary index   value of a column -> record keys
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.metadata_table.codecs.bloom_filter_codec import BLOOM_FILTER_SCHEMA, decode_bloom_filters
from pyhudi.metadata_table.codecs.files_codec import ALL_PARTITIONS, FILES_SCHEMA, ROOT
from pyhudi.metadata_table.codecs.metadata_partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_INDEX_PREFIX,
)
from pyhudi.metadata_table.codecs.record_index_codec import LOCATION_SCHEMA, decode_locations
from pyhudi.metadata_table.codecs.secondary_index_codec import (
    decode_secondary_values,
    format_secondary_prefixes,
    parse_secondary_keys,
)
from pyhudi.metadata_table.codecs.value_wrappers import unwrap
from pyhudi.metadata_table.metadata_keys import (
    bloom_filter_keys,
    column_stats_prefix,
    expression_partition_prefix,
    file_hashes,
    partition_stats_key,
)
from pyhudi.metadata_table.reader.cell_merge import (
    STATS_SCHEMA,
    GroupCells,
    concat_cells,
    merge_column_stats_cells,
    merge_files,
    newest_cells,
)
from pyhudi.metadata_table.reader.file_group_reader import KeyedCells
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.records.column_statistics import ColumnRange, nan_safe_upper, stored_value
from pyhudi.records.hashing import name_hash

KEYED_LOCATION_SCHEMA = pa.schema([pa.field("key", pa.string(), nullable=False), *LOCATION_SCHEMA])
"""A record key and its location."""

KEYED_BLOOM_FILTER_SCHEMA = pa.schema([pa.field("key", pa.string(), nullable=False), *BLOOM_FILTER_SCHEMA])
"""The key of a Bloom filter's record (see `metadata_table.metadata_keys`) and the filter."""

_HASH_CHARACTERS = 12
# With more partitions than this, all statistics of a column are read and then filtered.
_MAX_PARTITION_PREFIXES = 512


def find_partitions(metadata: MetadataTable) -> tuple[str, ...]:
    """Return all partition paths of the table, sorted; `('',)` for a table without partitions that holds data."""
    return _partition_paths(_files_of(metadata.lookup(FILES, pa.array([ALL_PARTITIONS], pa.string()))))


def find_files(metadata: MetadataTable, partitions: Iterable[str]) -> pa.RecordBatch:
    """Return the files of some partitions: FILES_SCHEMA, sorted by partition and name; the root's partition is named ''.

    One lookup serves all partitions.
    """
    keys = pa.array([partition or ROOT for partition in dict.fromkeys(partitions)], pa.string())
    return _with_paths(_files_of(metadata.lookup(FILES, keys)) if len(keys) else _files_of([]))


def find_all_files(metadata: MetadataTable) -> tuple[tuple[str, ...], pa.RecordBatch]:
    """Return the results of `find_partitions`, and of `find_files` for all partitions, with one read."""
    rows = _files_of(metadata.read(FILES))
    is_list = pc.equal(rows.column("partition"), ALL_PARTITIONS)
    return _partition_paths(rows.filter(is_list)), _with_paths(rows.filter(pc.invert(is_list)))


def _partition_paths(rows: pa.RecordBatch) -> tuple[str, ...]:
    return tuple(sorted("" if name == ROOT else name for name in rows.column("name").to_pylist()))


def _with_paths(files: pa.RecordBatch) -> pa.RecordBatch:
    partition_paths = pc.if_else(pc.equal(files.column("partition"), ROOT), "", files.column("partition"))
    return files.set_column(0, FILES_SCHEMA.field(0), partition_paths)


def find_files_since(
    metadata: MetadataTable, earlier: MetadataTable, known: Mapping[str, pa.RecordBatch]
) -> pa.RecordBatch | None:
    """Return the same as `find_files` from its result for an earlier state and the log files added since.

    Args:
        metadata: The opened metadata table.
        earlier: The metadata table as opened for the earlier state.
        known: The result for the earlier state by partition.

    Returns:
        None if more than the log files has changed.
    """
    cells = metadata.newer_cells(FILES, pa.array([partition or ROOT for partition in known], pa.string()), earlier)
    return None if cells is None else merge_newer_files(known, cells)


def merge_newer_files(known: Mapping[str, pa.RecordBatch], cells: Sequence[GroupCells]) -> pa.RecordBatch:
    """Return the files of partitions from those of an earlier state and newer cells with the keys of these partitions
    alone.
    """
    before = pa.Table.from_batches(list(known.values()), FILES_SCHEMA).combine_chunks()
    if not cells:
        return before.to_batches()[0] if before.num_rows else _files_of([])
    paths = before.column("partition").combine_chunks()
    named = before.set_column(0, FILES_SCHEMA.field(0), pc.if_else(pc.equal(paths, ""), ROOT, paths)).combine_chunks()
    merged = merge_files(_joined(cells), named.to_batches()[0] if before.num_rows else None)
    paths = merged.column("partition")
    return merged.set_column(0, FILES_SCHEMA.field(0), pc.if_else(pc.equal(paths, ROOT), "", paths))


def _joined(groups: Sequence[GroupCells]) -> GroupCells:
    """Join the layers of groups, which have different keys."""
    if len(groups) == 1:
        return groups[0]
    return GroupCells(
        tuple(cells for group in groups for cells in group.base), tuple(layer for group in groups for layer in group.newer)
    )


def scan_files(metadata: MetadataTable) -> pa.RecordBatch:
    """Return the files of all partitions, as `find_files`, without the partition list."""
    files = _files_of(list(metadata.scan(FILES)))
    return _with_paths(files.filter(pc.not_equal(files.column("partition"), ALL_PARTITIONS)))


def find_column_stats(
    metadata: MetadataTable, columns: Sequence[str], partitions: Sequence[str] | None = None, *, index: str = COLUMN_STATS
) -> pa.Table:
    """Return file-level column statistics (STATS_SCHEMA) of all partitions, or at least of the given ones.

    Args:
        metadata: The opened metadata table.
        columns: Names of the columns.
        partitions: Partition paths of the table; None for all.
        index: `column_stats` or an expression index of that type. `partition_hashes` identifies the partition of a row.
    """
    if partitions is None or len(partitions) > _MAX_PARTITION_PREFIXES:
        prefixes = [column_stats_prefix(column) for column in columns]
    else:
        prefixes = [partition_stats_key(column, partition) for column in columns for partition in partitions]
    return metadata.cached((index, *prefixes), lambda: _stats(metadata.lookup_prefixes(index, prefixes)))


def find_stats(metadata: MetadataTable, index: str, keys: pa.StringArray) -> pa.Table:
    """Return the statistics (STATS_SCHEMA) with some keys (`metadata_table.metadata_keys`), of files or partitions.
    Keys without statistics are omitted.

    Args:
        metadata: The opened metadata table.
        index: The partition of the metadata table.
        keys: The keys to look up.
    """
    return _stats(metadata.lookup(index, keys) if len(keys) else [])


def scan_column_stats(metadata: MetadataTable, index: str = COLUMN_STATS) -> Iterator[pa.RecordBatch]:
    """Yield all statistics (STATS_SCHEMA) of a partition of the metadata table, in no specific order."""
    for group in metadata.scan(index):
        yield from merge_column_stats_cells(group)


def partition_hashes(stats: pa.Table) -> pa.ChunkedArray:
    """Return the hash (`records.hashing.name_hash`) of each row's partition, stored in the key after that of the column."""
    return pc.binary_slice(stats.column("key"), _HASH_CHARACTERS, 2 * _HASH_CHARACTERS).cast(pa.string())


def find_partition_stats(metadata: MetadataTable, columns: Sequence[str]) -> pa.Table:
    """Return partition-level column statistics (STATS_SCHEMA); `file_name` is the partition path (the root's is '' or `.`)."""
    prefixes = [column_stats_prefix(column) for column in columns]
    return metadata.cached((PARTITION_STATS, *prefixes), lambda: _stats(metadata.lookup_prefixes(PARTITION_STATS, prefixes)))


def find_partition_ranges(
    metadata: MetadataTable, column: str, kind: pa.DataType, index: str = PARTITION_STATS
) -> dict[str, ColumnRange]:
    """As `partition_ranges`, for one column, or for an expression index over it."""
    if index == PARTITION_STATS:
        return partition_ranges(find_partition_stats(metadata, [column]), column, kind)
    return partition_ranges(find_expression_partition_stats(metadata, index, column), column, kind, counts_nulls=False)


def partition_ranges(stats: pa.Table, column: str, kind: pa.DataType, *, counts_nulls: bool = True) -> dict[str, ColumnRange]:
    """Return the range of a column in each partition, by partition path. Partitions whose bounds have another type are omitted.

    Args:
        stats: STATS_SCHEMA, of partitions.
        column: Name of the column.
        kind: Type of the values.
        counts_nulls: False if the index excludes nulls from its value counts; the returned ranges include them.
    """
    rows = stats.filter(pc.equal(stats.column("column_name"), column)).combine_chunks()
    if not rows.num_rows:
        return {}
    (low, low_known), (high, high_known) = (unwrap(rows.column(bound).chunk(0), kind) for bound in ("min", "max"))
    result: dict[str, ColumnRange] = {}
    entries = zip(rows["file_name"].to_pylist(), low, nan_safe_upper(high), (low_known & high_known).tolist(), strict=True)
    for row, (name, least, greatest, is_known) in enumerate(entries):
        bounds = (stored_value(least), stored_value(greatest))
        if is_known and (bounds[0] is None) == (bounds[1] is None):
            nulls, values = rows["null_count"][row].as_py(), rows["value_count"][row].as_py()
            if not counts_nulls and nulls is not None and values is not None:
                values += nulls
            result["" if name == ROOT else name] = ColumnRange(*bounds, null_count=nulls, value_count=values)
    return result


def find_expression_partition_stats(metadata: MetadataTable, index: str, column: str) -> pa.Table:
    """As `find_partition_stats`, for an expression index over `column`."""
    return _stats(metadata.lookup_prefixes(index, [expression_partition_prefix(column)]))


def find_bloom_filters(metadata: KeyedCells, files: Mapping[str, Sequence[str]], index: str = BLOOM_FILTERS) -> pa.Table:
    """Return the filters (KEYED_BLOOM_FILTER_SCHEMA) of files that have one.

    A filter takes some hundred KiB: request a few files at a time.

    Args:
        metadata: The opened metadata table or partition.
        files: Bare file names by partition.
        index: The partition of the metadata table.
    """
    keys = [bloom_filter_keys(partition, file_hashes(names)) for partition, names in files.items() if names]
    batches: list[pa.RecordBatch] = []
    if keys:
        for cells in concat_cells(metadata.lookup(index, pa.concat_arrays(keys))):
            filters = decode_bloom_filters(cells.values, cells.schema)
            batch = pa.RecordBatch.from_arrays([_text(cells.keys), *filters.columns], schema=KEYED_BLOOM_FILTER_SCHEMA)
            batches.append(batch.filter(pc.invert(batch.column("is_deleted"))))
    return pa.Table.from_batches(batches, KEYED_BLOOM_FILTER_SCHEMA)


def find_records(metadata: KeyedCells, keys: pa.StringArray) -> pa.Table:
    """Return the locations of record keys (KEYED_LOCATION_SCHEMA), in no specific order. Unknown keys are omitted."""
    batches = [batch for group in metadata.lookup(RECORD_INDEX, keys) for batch in _locations(group)] if len(keys) else []
    return pa.Table.from_batches(batches, KEYED_LOCATION_SCHEMA)


def find_secondary_keys(metadata: MetadataTable, index: str, texts: pa.StringArray) -> pa.StringArray:
    """Return the record keys whose column has one of some values.

    Args:
        metadata: The opened metadata table.
        index: The partition of the secondary index.
        texts: Values in the form the index stores, no nulls.
    """
    layout = index_layout(metadata, index)
    prefixes = format_secondary_prefixes(texts, layout).to_pylist()
    key_batches = [keys for _, keys in _secondary(metadata.lookup_prefixes(index, prefixes, routed=layout > 1))]
    return pa.concat_arrays(key_batches) if key_batches else pa.array([], pa.string())


def find_secondary_values(metadata: MetadataTable, index: str) -> Iterator[tuple[pa.StringArray, pa.StringArray]]:
    """Yield all entries of a secondary index: values as text, and record keys."""
    for group in metadata.scan(index):
        yield from _secondary([group])


def index_layout(metadata: MetadataTable, index: str) -> int:
    """Return the record layout of an index; 1 if it has no definition."""
    definition = metadata.definitions.get(index)
    return 1 if definition is None else definition.layout


def secondary_indexes(metadata: MetadataTable) -> dict[str, str]:
    """Return the usable secondary indexes: column -> index partition, the first one if several cover one column."""
    partition_by_column: dict[str, str] = {}
    stale = stale_secondary_indexes(metadata)
    for name, definition in metadata.definitions.items():
        if _is_secondary(metadata, name) and name not in stale and len(definition.source_fields) == 1:
            partition_by_column.setdefault(definition.source_fields[0], name)
    return partition_by_column


def stale_secondary_indexes(metadata: MetadataTable) -> frozenset[str]:
    """Return the secondary indexes that may lack changes made by log files.

    In a merge-on-read table with several, Hudi 1.1 and 1.2 update only the index with the first definition for a log
    file. Definitions of these releases have a version, those of release 1.0 have none.
    """
    names = [name for name in metadata.definitions if _is_secondary(metadata, name)]
    if metadata.data_context.config.is_cow or not any(metadata.definitions[name].names_layout for name in names):
        return frozenset()
    return frozenset(names[1:])


def _is_secondary(metadata: MetadataTable, name: str) -> bool:
    return name.startswith(SECONDARY_INDEX_PREFIX) and name in metadata.partitions


def hashes_by_partition(partitions: Iterable[str]) -> dict[str, str]:
    """Return the hash of each partition path that keys contain."""
    return {partition: name_hash(partition) for partition in partitions}


def _files_of(groups: Sequence[GroupCells]) -> pa.RecordBatch:
    return merge_files(_joined(groups))


def _stats(groups: Sequence[GroupCells]) -> pa.Table:
    return pa.Table.from_batches(merge_column_stats_cells(_joined(groups)), STATS_SCHEMA)


def _locations(group: GroupCells) -> Iterator[pa.RecordBatch]:
    for cells in newest_cells(group):
        if len(cells.keys):
            locations = decode_locations(cells.values, cells.schema)
            yield pa.RecordBatch.from_arrays([_text(cells.keys), *locations.columns], schema=KEYED_LOCATION_SCHEMA)


def _secondary(groups: Sequence[GroupCells]) -> Iterator[tuple[pa.StringArray, pa.StringArray]]:
    for cells in concat_cells(groups):
        if len(cells.keys):
            deleted = np.asarray(decode_secondary_values(cells.values, cells.schema), dtype=np.bool_)
            yield parse_secondary_keys(_text(cells.keys).filter(pa.array(~deleted)))


def _text(keys: pa.BinaryArray) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptData("a key of the metadata table is not UTF-8") from error
