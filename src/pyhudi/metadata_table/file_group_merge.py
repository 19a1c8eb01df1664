"""Compaction of one file group of the metadata table: computes the content of its next base file.
Format: docs/formats/metadata-table.md, "Which record counts".

    1. The log blocks are divided into ranges of keys by the first keys of their HFile blocks. For each range:
    2. The log blocks are read: layers of cells and removals, oldest first, with their distinct keys.
    3. The base file's cells of these keys are looked up. The rule of the index type merges them with the layers.
    4. The base file is streamed. Keys of the logs are omitted from it, and the merged records take their place.

Memory: about RANGE_BYTES of the logs' cells and their merged copies, all removed keys, and one batch of the base file.
Values with the layout of PyHudi's schema are copied. Values of later Hudi versions are decoded and encoded again.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.metadata_table.codecs.bloom_filter_codec import decode_bloom_filters, encode_bloom_filters
from pyhudi.metadata_table.codecs.column_stats_codec import COLUMN_STATS_SCHEMA, decode_column_stats, encode_column_stats
from pyhudi.metadata_table.codecs.files_codec import ALL_PARTITIONS, decode_files, encode_files
from pyhudi.metadata_table.codecs.metadata_schema import (
    RECORD_SCHEMA,
    TYPED_SCHEMA,
    MetadataRecordType,
    Payload,
    has_standard_layout,
)
from pyhudi.metadata_table.codecs.payload_codec import decode_payload
from pyhudi.metadata_table.codecs.record_index_codec import decode_locations, encode_locations
from pyhudi.metadata_table.codecs.secondary_index_codec import encode_secondary_values
from pyhudi.metadata_table.metadata_keys import FILE_STATS_KEY_LENGTH
from pyhudi.metadata_table.reader.cell_merge import (
    Cells,
    Deletes,
    GroupCells,
    merge_column_stats_cells,
    merge_files,
    newest_cells,
)
from pyhudi.metadata_table.reader.key_ranges import RangedFile, StoredLayer, open_group
from pyhudi.metadata_table.reader.metadata_file_cache import MetadataFiles
from pyhudi.storage.base import Storage
from pyhudi.table.file_slices import FileSlice

RANGE_BYTES = 16 << 20
"""Cells of log blocks that are merged at once."""

Entries = tuple[pa.BinaryArray, pa.BinaryArray]
"""Keys and values: binary, ascending by key, no nulls, values in PyHudi's own schema."""


@dataclass(frozen=True, slots=True)
class CellMergeRule:
    """Merge rule for the records of one index type. Picklable: its functions are module functions, or partials of them.

    Attributes:
        overlay: Merges layers of cells; yields distinct keys in any order.
        values: Converts the values of cells from any schema to PyHudi's own.
        filters: The rule of file groups with Bloom filters, if the type also has such indexes.
        schema: PyHudi's own schema.
    """

    overlay: Callable[[GroupCells], Iterable[Entries]]
    values: Callable[[Cells], pa.BinaryArray]
    filters: CellMergeRule | None = None
    schema: str = RECORD_SCHEMA


def merged_group(storage: Storage, rule: CellMergeRule, slice_: FileSlice) -> Iterator[Entries]:
    """Yield the live records of a file group, in ascending batches.

    Args:
        storage: Storage of the metadata table.
        rule: The rule of the index type.
        slice_: Contains only valid log files.

    Raises:
        CorruptData: A file is damaged; the error contains its path.
    """
    group = open_group(MetadataFiles(storage), slice_, lambda instant: True)
    base, schema, stored = group.base, group.base_schema, group.layers
    if rule.filters is not None and _holds_filters(base, schema, stored):
        rule = rule.filters
    for start, stop in itertools.pairwise([None, *_bounds(stored), None]):
        layers = [layer for layer in (source.read(start, stop) for source in stored) if layer is not None]
        log_keys = _distinct(layers)
        base_cells = []
        if base is not None and len(log_keys):
            base_cells = [Cells(batch.column("key"), batch.column("value"), schema) for batch in base.lookup(log_keys)]
        overlay = _sorted(rule.overlay(GroupCells(tuple(base_cells), tuple(layers))))
        del layers, base_cells
        base_rows = () if base is None else base.scan(start, stop)
        try:
            yield from _interleaved(rule, base_rows, schema, log_keys, overlay)
        except CorruptData as error:
            raise error if base is None else error.with_path(base.path) from error


def newest_rule(recode: Callable[[Cells], pa.BinaryArray]) -> CellMergeRule:
    """Return the rule by which the newest cell of a key wins.

    Args:
        recode: Converts values of cells with another layout to PyHudi's own.
    """
    values = partial(_values, recode, RECORD_SCHEMA)
    return CellMergeRule(partial(_newest, values), values)


def _holds_filters(base: RangedFile | None, schema: str, stored: Sequence[StoredLayer]) -> bool:
    """Whether a file group holds Bloom filters rather than statistics."""
    files = [(base, schema)] if base is not None else []
    files += [(layer.content, layer.schema) for layer in stored if isinstance(layer.content, RangedFile)]
    for file, file_schema in files:
        try:
            first = next(file.file.scan(), None)
            if first is not None:
                _, payloads = decode_payload(first.column("value").slice(0, 1), file_schema, Payload.BLOOM_FILTER)
                return bool(payloads.null_count == 0)
        except CorruptData:
            # It holds another type. Damage is detected when it is decoded as that type.
            return False
    return False


def _bounds(stored: Sequence[StoredLayer]) -> list[bytes]:
    """The keys that divide the cells of the log blocks into ranges of about RANGE_BYTES, ascending."""
    files = [layer.content.file for layer in stored if isinstance(layer.content, RangedFile)]
    total_bytes = sum(file.trailer.total_uncompressed_bytes for file in files)
    if total_bytes <= RANGE_BYTES:
        return []
    rows = sorted(row for file in files for row in file.block_rows())
    if not rows:
        return []
    step = max(1, len(rows) * RANGE_BYTES // total_bytes)
    # The range before the first row of all has no cells.
    return sorted(set(rows[step::step]) - {rows[0]})


def _distinct(layers: list[Cells | Deletes]) -> pa.BinaryArray:
    """The keys of all layers, ascending, each once."""
    keys = pc.unique(pa.concat_arrays([pa.array([], pa.binary()), *(layer.keys for layer in layers)]))
    return keys.take(pc.sort_indices(keys))


def _sorted(parts: Iterable[Entries]) -> Entries:
    entries = list(parts)
    keys, values = (pa.concat_arrays([pa.array([], pa.binary()), *(part[index] for part in entries)]) for index in (0, 1))
    order = pc.sort_indices(keys)
    return keys.take(order), values.take(order)


def _listed(group: GroupCells) -> tuple[str, ...]:
    """The partition list keeps its record even if it is empty."""
    layers = (*group.base, *group.newer)
    has_partition_list = any(
        isinstance(layer, Cells) and pc.is_in(pa.scalar(_ALL), value_set=layer.keys).as_py() for layer in layers
    )
    return (ALL_PARTITIONS,) if has_partition_list else ()


def _interleaved(
    rule: CellMergeRule, base_rows: Iterable[pa.RecordBatch], schema: str, affected_keys: pa.BinaryArray, overlay: Entries
) -> Iterator[Entries]:
    keys, values = overlay
    position = 0
    for batch in base_rows:
        last = batch.column("key")[-1].as_py()
        end = bisect_right(range(len(keys)), last, lo=position, key=lambda index: keys[index].as_py())
        unchanged = (
            batch.filter(pc.invert(pc.is_in(batch.column("key"), value_set=affected_keys))) if len(affected_keys) else batch
        )
        stored = Cells(unchanged.column("key"), unchanged.column("value"), schema)
        merged_keys = pa.concat_arrays([stored.keys, keys.slice(position, end - position)])
        merged_values = pa.concat_arrays([rule.values(stored), values.slice(position, end - position)])
        if end > position:
            order = pc.sort_indices(merged_keys)
            merged_keys, merged_values = merged_keys.take(order), merged_values.take(order)
        position = end
        if len(merged_keys):
            yield merged_keys, merged_values
    if position < len(keys):
        yield keys.slice(position), values.slice(position)


def _values(recode: Callable[[Cells], pa.BinaryArray], own: str, cells: Cells) -> pa.BinaryArray:
    return cells.values if not len(cells.keys) or has_standard_layout(cells.schema, own) else recode(cells)


def _newest(values: Callable[[Cells], pa.BinaryArray], group: GroupCells) -> Iterator[Entries]:
    for cells in newest_cells(group):
        yield cells.keys, values(cells)


def _merge_file_lists(group: GroupCells) -> Iterator[Entries]:
    keys, values = encode_files(merge_files(group), _listed(group))
    yield keys.view(pa.binary()), values


def _recode_file_lists(cells: Cells) -> pa.BinaryArray:
    keys, values = encode_files(decode_files(cells.keys, cells.values, cells.schema), cells.keys.cast(pa.string()).to_pylist())
    return values.take(pc.index_in(cells.keys, value_set=keys.view(pa.binary())))


def _recoded_filters(cells: Cells) -> pa.BinaryArray:
    return encode_bloom_filters(decode_bloom_filters(cells.values, cells.schema))


def _recoded_locations(cells: Cells) -> pa.BinaryArray:
    return encode_locations(decode_locations(cells.values, cells.schema))


def _recoded_bare_keys(cells: Cells) -> pa.BinaryArray:
    return encode_secondary_values(len(cells.keys))


EncodeStats = Callable[[pa.BinaryArray, pa.RecordBatch], pa.BinaryArray]
"""Keys and statistics -> values."""


def _statistics_rule(
    encode: Callable[..., pa.BinaryArray], filters: CellMergeRule | None = None, *, typed: bool = False
) -> CellMergeRule:
    schema = TYPED_SCHEMA if typed else RECORD_SCHEMA
    encode = partial(encode, typed=typed)
    values = partial(_values, partial(_recoded_statistics, encode), schema)
    return CellMergeRule(partial(_merged_statistics, encode), values, filters, schema)


def _merged_statistics(encode: EncodeStats, group: GroupCells) -> Iterator[Entries]:
    for rows in merge_column_stats_cells(group):
        yield rows.column("key"), encode(rows.column("key"), rows.select(COLUMN_STATS_SCHEMA.names))


def _recoded_statistics(encode: EncodeStats, cells: Cells) -> pa.BinaryArray:
    stats, _ = decode_column_stats(cells.values, cells.schema)
    return encode(cells.keys, stats)


def _of_files(keys: pa.BinaryArray, stats: pa.RecordBatch, *, typed: bool) -> pa.BinaryArray:
    return encode_column_stats(stats, MetadataRecordType.COLUMN_STATS, typed=typed)


def _of_partitions(keys: pa.BinaryArray, stats: pa.RecordBatch, *, typed: bool) -> pa.BinaryArray:
    return encode_column_stats(stats, MetadataRecordType.PARTITION_STATS, typed=typed)


def _of_both(keys: pa.BinaryArray, stats: pa.RecordBatch, *, typed: bool) -> pa.BinaryArray:
    """An expression index holds statistics of files and of partitions, whose keys differ in length."""
    of_files = pc.greater_equal(pc.binary_length(keys), FILE_STATS_KEY_LENGTH)
    return pc.if_else(of_files, _of_files(keys, stats, typed=typed), _of_partitions(keys, stats, typed=typed))


_ALL = ALL_PARTITIONS.encode()

FILE_LISTS = CellMergeRule(_merge_file_lists, partial(_values, _recode_file_lists, RECORD_SCHEMA))
"""File lists are merged per file."""

FILE_STATISTICS = _statistics_rule(_of_files)
PARTITION_STATISTICS = _statistics_rule(_of_partitions)
TYPED_FILE_STATISTICS = _statistics_rule(_of_files, typed=True)
TYPED_PARTITION_STATISTICS = _statistics_rule(_of_partitions, typed=True)
"""Statistics widen, unless the newer ones are tight or a removal; typed rules are those of layout 2."""

BLOOM_FILTERS_BY_FILE = newest_rule(_recoded_filters)
LOCATIONS = newest_rule(_recoded_locations)
BARE_KEYS = newest_rule(_recoded_bare_keys)

RESULTS = _statistics_rule(_of_both, BLOOM_FILTERS_BY_FILE)
TYPED_RESULTS = _statistics_rule(_of_both, BLOOM_FILTERS_BY_FILE, typed=True)
"""For an expression index: statistics of results, or Bloom filters of them."""
