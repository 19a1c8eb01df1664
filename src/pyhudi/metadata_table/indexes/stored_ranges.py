"""Value ranges loaded from the statistics indexes, and file pruning with them.

An open table retains the ranges of the newest files of partitions that its commits evaluated. Files never change, so
the ranges stay true next to other writers, services, rollbacks and restores. They hold for the same table properties,
which each drop and rebuild of an index replaces, and for the same columns and types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS
from pyhudi.metadata_table.codecs.value_wrappers import unwrap
from pyhudi.metadata_table.indexes.index_pruning import Filter, PrunedFiles
from pyhudi.metadata_table.reader.index_lookups import find_column_stats, partition_hashes
from pyhudi.metadata_table.reader.metadata_file_cache import LruCache
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.planning.data_skipping import unit_ranges
from pyhudi.records.column_statistics import ColumnRange, nan_safe_upper
from pyhudi.records.hashing import name_hash
from pyhudi.table.table_context import TableContext

FileKey = tuple[str, str]
"""Partition path and file name."""

_CACHE_KEY = "column ranges of files"
_MAX_CACHED_BYTES = 8 << 20
# Size of a range in memory, without its bounds.
_RANGE_BYTES = 512
_FIGURES = ("value_count", "null_count", "total_size_bytes", "total_uncompressed_size_bytes")


def stored_ranges(
    reader: MetadataTable,
    partitions: Sequence[str],
    types: Mapping[str, pa.DataType],
    index: str = COLUMN_STATS,
    *,
    counts_nulls: bool = True,
) -> dict[tuple[str, str], dict[str, ColumnRange]]:
    """Load the ranges of files of some partitions from an index: (partition, name) -> column -> range.

    Args:
        reader: The opened metadata table.
        partitions: Partition paths of the table.
        types: Type of each column's values or, in an expression index, of the results.
        index: The partition of the metadata table.
        counts_nulls: False if the index excludes nulls from its value counts; the returned ranges include them.
    """
    if not partitions or index not in reader.partitions:
        return {}
    return ranges_in(
        find_column_stats(reader, list(types), partitions, index=index), partitions, types, counts_nulls=counts_nulls
    )


def retained_ranges(
    context: TableContext, partitions: Iterable[str], types: Mapping[str, pa.DataType]
) -> dict[FileKey, Mapping[str, ColumnRange]]:
    """Return the retained ranges of files of some partitions, as `stored_ranges`."""
    cache = _retained(context, types)
    if cache is None:
        return {}
    return {(p, name): ranges for p in partitions for name, ranges in (cache.get(p) or {}).items()}


def retain_ranges(
    context: TableContext, types: Mapping[str, pa.DataType], files: Mapping[str, Mapping[str, Mapping[str, ColumnRange]]]
) -> None:
    """Retain the ranges of the newest files of some partitions; an LRU cache of 8 MiB holds recent partitions.

    Args:
        types: Types of the columns.
        files: Partition -> name -> ranges. The index contains those of files that existed before the commit.
    """
    cache = _retained(context, types)
    if cache is None:
        cache = LruCache(_MAX_CACHED_BYTES)
        context.operation_cache.put(_CACHE_KEY, (context.config, dict(types), cache))
    for partition, of_files in files.items():
        size_bytes = _RANGE_BYTES * (1 + len(of_files)) * len(types)
        if size_bytes <= _MAX_CACHED_BYTES:
            bounds = [bound for ranges in of_files.values() for range_ in ranges.values() for bound in (range_.min, range_.max)]
            size_bytes += sum(len(bound) for bound in bounds if isinstance(bound, str | bytes))
        # A cache holds its newest entry, however large.
        cache.put(partition, *((of_files, size_bytes) if size_bytes <= _MAX_CACHED_BYTES else ({}, 1)))


def retains_partitions(context: TableContext, partitions: Iterable[str]) -> bool:
    """Return True if ranges of files of each partition are retained."""
    cache = _retained(context)
    return cache is not None and all(cache.get(partition) for partition in partitions)


def _retained(
    context: TableContext, types: Mapping[str, pa.DataType] | None = None
) -> LruCache[str, Mapping[str, Mapping[str, ColumnRange]]] | None:
    """The retained ranges: partition -> name -> ranges; None if there are none for these properties and types (None: any)."""
    config, retained_types, cache = context.operation_cache.get(_CACHE_KEY) or (None, None, None)
    return cache if config is context.config and types in (None, retained_types) else None


def ranges_in(
    rows: pa.Table, partitions: Sequence[str], types: Mapping[str, pa.DataType], *, counts_nulls: bool = True
) -> dict[tuple[str, str], dict[str, ColumnRange]]:
    """Convert column statistics to (partition, name) -> column -> range. The name of partition statistics is the partition path.

    Args:
        rows: STATS_SCHEMA; rows of other partitions and columns are ignored.
        partitions: As in `stored_ranges`.
        types: As in `stored_ranges`.
        counts_nulls: As in `stored_ranges`.
    """
    result: dict[tuple[str, str], dict[str, ColumnRange]] = {}
    rows = rows.append_column("partition_hash", partition_hashes(rows))
    partition_of = {name_hash(partition): partition for partition in partitions}
    columns_by_type: dict[pa.DataType, list[str]] = {}
    for column, type_ in types.items():
        columns_by_type.setdefault(type_, []).append(column)
    for type_, columns in columns_by_type.items():
        part = rows.filter(pc.is_in(rows.column("column_name"), value_set=pa.array(columns, pa.string()))).combine_chunks()
        if not part.num_rows:
            continue
        if not counts_nulls:
            part = with_nulls_counted(part)
        low, low_known = unwrap(part.column("min").combine_chunks(), type_)
        high, high_known = unwrap(part.column("max").combine_chunks(), type_)
        usable = low_known & high_known
        figures = zip(
            part.column("partition_hash").to_pylist(),
            part.column("file_name").to_pylist(),
            part.column("column_name").to_pylist(),
            _stored_values(low),
            _stored_values(nan_safe_upper(high)),
            *(part.column(name).to_pylist() for name in _FIGURES),
            usable.tolist(),
            strict=True,
        )
        for hashed, name, column, least, greatest, values, nulls, size, unpacked, is_usable in figures:
            partition = partition_of.get(hashed)
            if partition is None:
                continue
            if not is_usable or (least is None) != (greatest is None):
                # The record is unusable: the file must be read, and the record stays unchanged.
                least = greatest = nulls = None
            range_ = ColumnRange(least, greatest, nulls, values, size or 0, unpacked or 0)
            result.setdefault((partition, name), {})[column] = range_
    return result


def files_pruned_by_ranges(row_filter: Filter, columns: Sequence[str], stats: pa.Table) -> PrunedFiles:
    """Return the files that stored ranges of some columns exclude.

    Args:
        columns: Columns of the filter with statistics.
        stats: STATS_SCHEMA, with nulls included in the value counts.
    """
    ranges = unit_ranges(row_filter.schema, columns, stats, statistics_units(stats))
    return PrunedFiles(tuple(columns), ranges.excluded(row_filter.condition))


def statistics_units(stats: pa.Table) -> pa.ChunkedArray:
    """Return the files of statistics in the form of `PrunedFiles.units`."""
    return pc.binary_join_element_wise(partition_hashes(stats), stats.column("file_name"), "/")


def with_nulls_counted(stats: pa.Table) -> pa.Table:
    """Add the nulls to the value counts of expression index statistics, as column statistics have them."""
    index = stats.schema.get_field_index("value_count")
    return stats.set_column(index, stats.schema.field(index), pc.add(stats["value_count"], stats["null_count"]))


def has_bounds(range_: ColumnRange) -> bool:
    """Return True if a stored range restricts the values."""
    return range_.min is not None or range_.is_all_null


def have_all(ranges: Mapping[str, ColumnRange] | None, columns: Iterable[str]) -> bool:
    """Return True if each of some columns has a range that restricts its values."""
    return ranges is not None and all(column in ranges and has_bounds(ranges[column]) for column in columns)


def _stored_values(bounds: pa.Array) -> list[object]:
    """Bounds in stored form, see `records.column_statistics`."""
    if pa.types.is_timestamp(bounds.type) or pa.types.is_time64(bounds.type):
        bounds = bounds.view(pa.int64())
    elif pa.types.is_date32(bounds.type):
        bounds = bounds.view(pa.int32())
    values: list[object] = bounds.to_pylist()
    return values
