"""Ranges of values as indexes store them, read back: those of files, by partition of the table, and what filters make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS
from pyhudi.metadata_table.codecs.value_wrappers import unwrap
from pyhudi.metadata_table.indexes.index_pruning import Filter, PrunedFiles
from pyhudi.metadata_table.reader.index_lookups import find_column_stats, partition_hashes
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.planning.data_skipping import unit_ranges
from pyhudi.records.column_statistics import ColumnRange, nan_safe_upper
from pyhudi.records.hashing import name_hash

_FIGURES = ("value_count", "null_count", "total_size_bytes", "total_uncompressed_size_bytes")


def stored_ranges(
    reader: MetadataTable,
    partitions: Sequence[str],
    types: Mapping[str, pa.DataType],
    index: str = COLUMN_STATS,
    *,
    counts_nulls: bool = True,
) -> dict[tuple[str, str], dict[str, ColumnRange]]:
    """What an index of ranges has of the files of some partitions: (partition, name) -> column -> range.

    types: the columns, with the type of their values or, in an expression index, of the results; counts_nulls: whether the
    index counts nulls among its values, as the ranges that are given do.
    """
    if not partitions or index not in reader.partitions:
        return {}
    return ranges_in(
        find_column_stats(reader, list(types), partitions, index=index), partitions, types, counts_nulls=counts_nulls
    )


def ranges_in(
    rows: pa.Table, partitions: Sequence[str], types: Mapping[str, pa.DataType], *, counts_nulls: bool = True
) -> dict[tuple[str, str], dict[str, ColumnRange]]:
    """(partition, name) -> column -> range, of statistics of columns in files or in partitions, whose path is their name then.

    rows: STATS_SCHEMA; those of other partitions and columns are left out.  types, counts_nulls: as of `stored_ranges`.
    """
    found: dict[tuple[str, str], dict[str, ColumnRange]] = {}
    rows = rows.append_column("partition_hash", partition_hashes(rows))
    partition_of = {name_hash(partition): partition for partition in partitions}
    alike: dict[pa.DataType, list[str]] = {}
    for column, type_ in types.items():
        alike.setdefault(type_, []).append(column)
    for type_, columns in alike.items():
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
                # It is there and says nothing of use: the file will be read, and the record left alone.
                least = greatest = nulls = None
            range_ = ColumnRange(least, greatest, nulls, values, size or 0, unpacked or 0)
            found.setdefault((partition, name), {})[column] = range_
    return found


def files_pruned_by_ranges(row_filter: Filter, columns: Sequence[str], stats: pa.Table) -> PrunedFiles:
    """The files whose stored ranges of some columns show that no row of them matches.  stats: STATS_SCHEMA, with nulls counted
    among the values.
    """
    ranges = unit_ranges(row_filter.schema, columns, stats, statistics_units(stats))
    return PrunedFiles(tuple(columns), ranges.excluded(row_filter.condition))


def statistics_units(stats: pa.Table) -> pa.ChunkedArray:
    """The files of statistics, as `PrunedFiles` names them."""
    return pc.binary_join_element_wise(partition_hashes(stats), stats.column("file_name"), "/")


def with_nulls_counted(stats: pa.Table) -> pa.Table:
    """Statistics of an expression index, which counts values without nulls, as those of columns count them."""
    at = stats.schema.get_field_index("value_count")
    return stats.set_column(at, stats.schema.field(at), pc.add(stats["value_count"], stats["null_count"]))


def has_bounds(range_: ColumnRange) -> bool:
    """Whether a stored range says what the values are."""
    return range_.min is not None or range_.is_all_null


def have_all(ranges: Mapping[str, ColumnRange] | None, columns: Iterable[str]) -> bool:
    """Whether there is a range of each of some columns, and it says what the values are."""
    return ranges is not None and all(column in ranges and has_bounds(ranges[column]) for column in columns)


def _stored_values(bounds: pa.Array) -> list[object]:
    """Bounds in stored form, see `records.column_statistics`."""
    if pa.types.is_timestamp(bounds.type) or pa.types.is_time64(bounds.type):
        bounds = bounds.view(pa.int64())
    elif pa.types.is_date32(bounds.type):
        bounds = bounds.view(pa.int32())
    values: list[object] = bounds.to_pylist()
    return values
