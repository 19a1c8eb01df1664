"""Compares a metadata table with directories, footers, log blocks and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi import Table
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_fields
from pyhudi.metadata_table.codecs.column_stats_codec import COLUMN_STATS_SCHEMA, encode_column_stats
from pyhudi.metadata_table.codecs.metadata_partitions import BLOOM_FILTERS, COLUMN_STATS, PARTITION_STATS, RECORD_INDEX
from pyhudi.metadata_table.codecs.metadata_schema import MetadataRecordType
from pyhudi.metadata_table.codecs.record_index_codec import decode_locations
from pyhudi.metadata_table.file_tasks import IndexFilesTask, run_index_files
from pyhudi.metadata_table.index_tasks import ExpressionStats, ExpressionTask, run_expressions
from pyhudi.metadata_table.indexes import open_indexes
from pyhudi.metadata_table.indexes.expression_index import ExpressionStatsIndex
from pyhudi.metadata_table.indexes.index_validation import filter_covers
from pyhudi.metadata_table.indexes.secondary_index import SecondaryKeyIndex
from pyhudi.metadata_table.metadata_keys import bloom_filter_keys, file_hashes
from pyhudi.metadata_table.metadata_records import (
    FileFilter,
    FileRanges,
    MetadataRecords,
    bloom_records,
    column_stats_records,
    expression_records,
    partition_stats_records,
)
from pyhudi.metadata_table.reader.cell_merge import merge_column_stats_cells, newest_cells
from pyhudi.metadata_table.reader.index_lookups import (
    KEYED_LOCATION_SCHEMA,
    find_bloom_filters,
    find_expression_partition_stats,
    find_partition_stats,
    find_records,
    find_secondary_values,
    partition_ranges,
    scan_files,
)
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.records.column_statistics import ColumnRange, covers, merge_ranges
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.java_strings import value_text
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import directory_listing, load_snapshot
from pyhudi.tasks.file_stats import FileIndexing
from pyhudi.tasks.log_scan import InstantValidity


def scan_records(metadata: MetadataTable) -> Iterator[pa.RecordBatch]:
    """Yield the keys and locations of a record index, in no specific order."""
    for group in metadata.scan(RECORD_INDEX):
        for cells in newest_cells(group):
            locations = decode_locations(cells.values, cells.schema)
            yield pa.RecordBatch.from_arrays([cells.keys.cast(pa.string()), *locations.columns], schema=KEYED_LOCATION_SCHEMA)


def assert_metadata_is_true(table: Table) -> MetadataTable | None:
    """Fails if the metadata table differs from the table; None if the table has none."""
    context = table.context.reloaded()
    if not context.config.metadata_partitions:
        return None
    snapshot = load_snapshot(context, directory_listing)
    metadata = MetadataTable(context, snapshot.timeline)
    slices = [s for found in snapshot.slices().values() for s in found]
    _check_files(metadata, slices)
    if snapshot.schema is None:
        return metadata
    stored = with_meta_fields(snapshot.schema.arrow)
    columns: tuple[str, ...] = ()
    if COLUMN_STATS in metadata.partitions:
        columns = metadata.definitions[COLUMN_STATS].source_fields
    files = [(s.partition, f.path, f.size_bytes) for s in slices for f in (*((s.base,) if s.base else ()), *s.logs)]
    wanted = FileIndexing(columns, BLOOM_FILTERS in metadata.partitions)
    task = IndexFilesTask(context.storage.spec(), tuple(files), stored, wanted, InstantValidity.of(snapshot.timeline))
    found = run_index_files(task)
    ranges = [FileRanges(f.partition, f.name, f.indexed.ranges) for f in found if f.indexed.ranges]
    if columns:
        expected = column_stats_records(ranges, stored)
        _check_cells(expected.keys, expected.values, metadata, COLUMN_STATS, MetadataRecordType.COLUMN_STATS)
    if PARTITION_STATS in metadata.partitions:
        by_partition: dict[str, list[FileRanges]] = {}
        for one in ranges:
            by_partition.setdefault(one.partition, []).append(one)
        merged = {p: {c: merge_ranges(dict(f.ranges)[c] for f in fs) for c in columns} for p, fs in by_partition.items()}
        expected = partition_stats_records(merged, columns, stored)
        rows = find_partition_stats(metadata, columns)
        _check_partitions(expected, rows, metadata, PARTITION_STATS, merged, {c: field_at(stored, c).type for c in columns})
    if BLOOM_FILTERS in metadata.partitions:
        _check_filters(metadata, [FileFilter(f.partition, f.name, *f.indexed.bloom) for f in found if f.indexed.bloom])
    if RECORD_INDEX in metadata.partitions:
        _check_records(metadata, table, slices)
    validity = InstantValidity.of(snapshot.timeline)
    for index in open_indexes(context, metadata.partitions):
        if isinstance(index, SecondaryKeyIndex):
            _check_secondary(metadata, table, index)
        elif isinstance(index, ExpressionStatsIndex):
            of_files = ExpressionTask(context.storage.spec(), tuple(files), stored, (index.index,), validity)
            _check_expression(metadata, run_expressions(of_files), index, stored, bool(context.config.keys.partition_fields))
    return metadata


def _check_files(metadata: MetadataTable, slices: list[FileSlice]) -> None:
    there = {
        (s.partition, f.path.rsplit("/", 1)[-1], f.size_bytes) for s in slices for f in (*((s.base,) if s.base else ()), *s.logs)
    }
    files = scan_files(metadata)
    listed = set(zip(*(files.column(i).to_pylist() for i in range(3)), strict=True))
    assert there <= listed, there - listed


def _check_cells(keys: pa.Array, values: pa.Array, metadata: MetadataTable, partition: str, kind: MetadataRecordType) -> int:
    """The records that must be there are there; returns how many there are."""
    found: dict[str, bytes] = {}
    for group in metadata.scan(partition):
        for rows in merge_column_stats_cells(group):
            encoded = encode_column_stats(rows.select(COLUMN_STATS_SCHEMA.names), kind)
            found.update(zip(rows.column("key").cast(pa.string()).to_pylist(), encoded.to_pylist(), strict=True))
    for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
        assert key in found, f"{partition} has no record {key}"
        assert found[key] == value, f"{partition} says {found[key]!r} and not {value!r}"
    return len(found)


def _check_partitions(
    expected: MetadataRecords,
    rows: pa.Table,
    metadata: MetadataTable,
    index: str,
    ranges: Mapping[str, Mapping[str, ColumnRange]],
    kinds: Mapping[str, pa.DataType],
) -> None:
    """Ranges of partitions that are tight are exact, and there are no others; those that overlapping writers left cover the
    files.

    expected: the tight records; rows: the records of partitions in the index.
    """
    tight = set(rows.filter(rows["is_tight"])["key"].cast(pa.string()).to_pylist())
    is_tight = pc.is_in(expected.keys, value_set=pa.array(sorted(tight), pa.string()))
    _check_cells(
        expected.keys.filter(is_tight), expected.values.filter(is_tight), metadata, index, MetadataRecordType.PARTITION_STATS
    )
    assert tight <= set(expected.keys.to_pylist()), f"{index} has more partitions than the table"
    for column, kind in kinds.items():
        said = partition_ranges(rows, column, kind, counts_nulls=index == PARTITION_STATS)
        for partition, found in ranges.items():
            assert covers(said[partition], found[column]), f"{index} says {said[partition]} and the files {found[column]}"


def _check_secondary(metadata: MetadataTable, table: Table, index: SecondaryKeyIndex) -> None:
    rows = table.scan([RECORD_KEY, index.column]).to_arrow()
    texts = value_text(rows.column(index.column).combine_chunks())
    wanted = {(text, key) for text, key in zip(texts.to_pylist(), rows.column(0).to_pylist(), strict=True) if text is not None}
    found = [
        pair
        for values, keys in find_secondary_values(metadata, index.partition)
        for pair in zip(values.to_pylist(), keys.to_pylist(), strict=True)
    ]
    assert len(found) == len(set(found)), "a secondary index has a pair twice"
    assert set(found) == wanted, f"{index.partition}: too many {set(found) - wanted}, missing {wanted - set(found)}"


def _check_expression(
    metadata: MetadataTable,
    files: Sequence[ExpressionStats],
    index: ExpressionStatsIndex,
    stored: pa.Schema,
    is_partitioned: bool,
) -> None:
    if index.index.filters is not None:
        names: dict[str, list[str]] = {}
        for file in files:
            names.setdefault(file.partition, []).append(file.name)
        said = find_bloom_filters(metadata, names, index.partition)
        assert said.num_rows == sum(f.bloom is not None for f in files)
        filters = dict(zip(said["key"].to_pylist(), said["bloom_filter"].to_pylist(), strict=True))
        for file in files:
            key = bloom_filter_keys(file.partition, file_hashes([file.name]))[0].as_py()
            assert file.bloom is None or filter_covers(filters[key].decode(), file.bloom[1])
        return
    ranges = [(f.partition, f.name, f.range) for f in files if f.range is not None]
    merged = {p: merge_ranges(r for q, _, r in ranges if q == p) for p, _, _ in ranges} if is_partitioned else {}
    kind, column = index.result_type(stored), index.index.column
    of_files = expression_records(column, kind, ranges, {})
    _check_cells(of_files.keys, of_files.values, metadata, index.partition, MetadataRecordType.COLUMN_STATS)
    rows = find_expression_partition_stats(metadata, index.partition, column)
    by_column = {partition: {column: found} for partition, found in merged.items()}
    of_partitions = expression_records(column, kind, (), merged)
    _check_partitions(of_partitions, rows, metadata, index.partition, by_column, {column: kind})


def _check_filters(metadata: MetadataTable, filters: list[FileFilter]) -> None:
    expected = bloom_records(filters, "0")
    names: dict[str, list[str]] = {}
    for one in filters:
        names.setdefault(one.partition, []).append(one.name)
    said = find_bloom_filters(metadata, names)
    assert set(said.column("key").to_pylist()) == set(expected.keys.to_pylist())
    texts = set(said.column("bloom_filter").to_pylist())
    assert texts == {one.text.encode() for one in filters}


def _check_records(metadata: MetadataTable, table: Table, slices: list[FileSlice]) -> None:
    rows = table.scan([RECORD_KEY, PARTITION_PATH, "_hoodie_file_name"]).to_arrow()
    keys = rows.column(RECORD_KEY).combine_chunks()
    located = find_records(metadata, keys)
    where = {
        key: (partition, file_id)
        for key, partition, file_id in zip(
            *(located.column(name).to_pylist() for name in ("key", "partition", "file_id")), strict=True
        )
    }
    for key, partition, name in zip(*(rows.column(i).to_pylist() for i in range(3)), strict=True):
        assert key in where, f"the record index does not know {key}"
        assert where[key][0] == partition and name.lstrip(".").startswith(where[key][1]), (key, where[key], partition, name)
    every = sum(batch.num_rows for batch in scan_records(metadata))
    assert every == len(keys) == pc.count_distinct(keys).as_py(), f"the record index has {every} keys, the table {len(keys)}"
