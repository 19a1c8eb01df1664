"""Compaction of one file group of the metadata table: computes the content of its next base file.
Format: docs/formats/metadata-table.md, "Which record counts".

    1. The log blocks are read: layers of cells and removals, oldest first, with their distinct keys.
    2. The base file's cells of these keys are looked up. The rule of the index type merges them with the layers.
    3. The base file is streamed. Keys of the logs are omitted from it, and the merged records take their place.

Memory: the logs' cells and one batch of the base file. Values with the layout of PyHudi's schema are copied. Values of
later Hudi versions are decoded and encoded again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.hfile import HFile
from pyhudi.format.hfile.file_info import SCHEMA
from pyhudi.format.log.command_blocks import surviving_blocks, without_compacted
from pyhudi.format.log.delete_blocks import decode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock
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
from pyhudi.metadata_table.reader.metadata_file_cache import MetadataFiles
from pyhudi.storage.base import Storage
from pyhudi.table.file_slices import FileSlice, LogFile

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
    files = MetadataFiles(storage)
    files.fetch(slice_.logs)
    layers = _layers(files, slice_)
    base = None if slice_.base is None else files.base(slice_.base)
    schema = _schema_of(base)
    if rule.filters is not None and _holds_filters(base, schema, layers):
        rule = rule.filters
    log_keys = _distinct(layers)
    base_cells = []
    if base is not None and len(log_keys):
        base_cells = [Cells(batch.column("key"), batch.column("value"), schema) for batch in base.lookup(log_keys)]
    overlay = _sorted(rule.overlay(GroupCells(tuple(base_cells), tuple(layers))))
    try:
        yield from _interleaved(rule, base, schema, log_keys, overlay)
    except CorruptData as error:
        raise error.with_path(storage.absolute(slice_.base.path)) if slice_.base is not None else error from error


def newest_rule(recode: Callable[[Cells], pa.BinaryArray]) -> CellMergeRule:
    """Return the rule by which the newest cell of a key wins.

    Args:
        recode: Converts values of cells with another layout to PyHudi's own.
    """
    values = partial(_values, recode, RECORD_SCHEMA)
    return CellMergeRule(partial(_newest, values), values)


def _holds_filters(base: HFile | None, schema: str, layers: list[Cells | Deletes]) -> bool:
    """Whether a file group holds Bloom filters rather than statistics."""
    first = next(iter(base.scan()), None) if base is not None else None
    samples = [Cells(first.column("key"), first.column("value"), schema)] if first is not None else []
    for cells in (*samples, *(layer for layer in layers if isinstance(layer, Cells))):
        if len(cells.keys):
            try:
                _, payloads = decode_payload(cells.values.slice(0, 1), cells.schema, Payload.BLOOM_FILTER)
            except CorruptData:
                # It holds another type. Damage is detected when it is decoded as that type.
                return False
            return bool(payloads.null_count == 0)
    return False


def _layers(files: MetadataFiles, slice_: FileSlice) -> list[Cells | Deletes]:
    blocks = ((log, block) for log in slice_.logs for block in files.blocks(log, verified=True))
    valid = without_compacted(surviving_blocks(blocks, lambda instant: True), lambda entry: entry[1])
    layers = []
    for log, block in valid:
        try:
            layer = _layer(files, log, block)
        except CorruptData as error:
            raise error.with_path(files.absolute(log)) from error
        if layer is not None:
            layers.append(layer)
    return layers


def _layer(files: MetadataFiles, log: LogFile, block: LogBlock) -> Cells | Deletes | None:
    if block.kind is BlockType.DELETE:
        keys = [batch.column("record_key").view(pa.binary()) for batch in decode_deletes(files.content(log, block))]
        return Deletes(pa.concat_arrays(keys)) if keys else None
    if block.kind is not BlockType.HFILE:
        raise Unsupported(f"cannot read a log block of type {block.kind.name} in the metadata table")
    read_batches = list(files.inner(log, block).scan())
    if not read_batches:
        return None
    return Cells(
        pa.concat_arrays([batch.column("key") for batch in read_batches]),
        pa.concat_arrays([batch.column("value") for batch in read_batches]),
        files.schema(block.required(HeaderKey.SCHEMA)),
    )


def _schema_of(base: HFile | None) -> str:
    if base is None:
        return ""
    text = base.file_info.get(SCHEMA)
    if text is None:
        raise CorruptData("an HFile of the metadata table has no value schema in its file info")
    return text.decode("utf-8", "replace")


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
    rule: CellMergeRule, base: HFile | None, schema: str, affected_keys: pa.BinaryArray, overlay: Entries
) -> Iterator[Entries]:
    keys, values = overlay
    position = 0
    for batch in base.scan() if base is not None else ():
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
