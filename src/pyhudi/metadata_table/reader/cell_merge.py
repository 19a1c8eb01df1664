"""Merge of the layers of cells of one key. Format: docs/formats/metadata-table.md, merge rules.

    layer      the base file, or one block of a log file; a later layer is newer
    cells      keys, values and the schema of the values
    deletes    keys that a DELETE block removes from all older layers, not from newer ones

Three rules:

    newest             the newest cell of a key wins: Bloom filters, record index, secondary indexes
    files              maps are merged per file (`metadata_table.codecs.files_codec`)
    column statistics  the newest wins if it is a deletion or tight, or follows a deletion; else bounds widen and counts
                       add up

Base cells are streamed. Only the newer layers, and base cells whose key occurs in a newer layer, stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.format.avro_wrappers import Wrapper
from pyhudi.metadata_table.codecs.column_stats_codec import COLUMN_STATS_SCHEMA, decode_column_stats
from pyhudi.metadata_table.codecs.files_codec import FILES_SCHEMA, decode_files_by_record, live_files
from pyhudi.metadata_table.codecs.value_wrappers import DECIMAL_V2, MOST_DIGITS, unwrap, wrap_values


@dataclass(frozen=True, slots=True)
class Cells:
    """Keys and values of one layer.

    Attributes:
        keys: Binary, no nulls.
        values: Binary, as long as `keys`, no nulls.
        schema: Avro schema text that the values were written with.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    schema: str


@dataclass(frozen=True, slots=True)
class Deletes:
    """Keys that one layer removes: binary, no nulls."""

    keys: pa.BinaryArray


@dataclass(frozen=True, slots=True)
class GroupCells:
    """The cells of one file group for the requested keys.

    Attributes:
        base: Cells of the base file; can be read once.
        newer: The log blocks, oldest first.
    """

    base: Iterable[Cells]
    newer: tuple[Cells | Deletes, ...] = ()


STATS_SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), *COLUMN_STATS_SCHEMA])
"""Merged column statistics: the record's key, and COLUMN_STATS_SCHEMA without deleted rows."""

_SMALL_ROWS = 4096
"""Rows of a base file that are decoded and merged together with the newer layers, even if only some have newer values."""

_TYPE_OF_KIND: dict[int, pa.DataType] = {
    Wrapper.BOOLEAN: pa.bool_(),
    Wrapper.INT: pa.int32(),
    Wrapper.LONG: pa.int64(),
    Wrapper.FLOAT: pa.float32(),
    Wrapper.DOUBLE: pa.float64(),
    Wrapper.BYTES: pa.binary(),
    Wrapper.STRING: pa.string(),
    Wrapper.DATE: pa.date32(),
    Wrapper.DECIMAL: pa.decimal128(30, 15),
    **{DECIMAL_V2 + scale: pa.decimal128(MOST_DIGITS, scale) for scale in range(MOST_DIGITS + 1)},
}


def newest_cells(group: GroupCells) -> Iterator[Cells]:
    """Yield the newest cell of each key that is not removed later, in no specific order."""
    if not group.newer:
        yield from group.base
        return
    keys = pa.concat_arrays([layer.keys for layer in group.newer])
    encoded = keys.dictionary_encode()
    last = np.zeros(len(encoded.dictionary), dtype=np.int64)
    # The last of several assignments to one index wins.
    last[encoded.indices.to_numpy()] = np.arange(len(keys))
    for cells in group.base:
        kept = pc.invert(pc.is_in(cells.keys, value_set=encoded.dictionary))
        yield Cells(cells.keys.filter(kept), cells.values.filter(kept), cells.schema)
    last.sort()
    start = 0
    for layer in group.newer:
        end = start + len(layer.keys)
        if isinstance(layer, Cells):
            first, stop = np.searchsorted(last, (start, end))
            rows = pa.array(last[first:stop] - start)
            yield Cells(layer.keys.take(rows), layer.values.take(rows), layer.schema)
        start = end


def merge_files(group: GroupCells, known: pa.RecordBatch | None = None) -> pa.RecordBatch:
    """Return the files that exist: FILES_SCHEMA, sorted by partition and name. In the partition list the rows are partitions.

    known: The result for the layers before those of the group.
    """
    parts: list[pa.RecordBatch] = [] if known is None else [known]
    ranks: list[npt.NDArray[np.int64]] = [] if known is None else [np.full(known.num_rows, -1, dtype=np.int64)]
    removals: list[tuple[int, pa.StringArray]] = []
    layers = [(0, cells) for cells in group.base] + list(enumerate(group.newer, 1))
    cells_by_schema: dict[str, list[tuple[int, Cells]]] = {}
    for rank, layer in layers:
        if isinstance(layer, Cells):
            cells_by_schema.setdefault(layer.schema, []).append((rank, layer))
        elif len(layer.keys):
            removals.append((rank, layer.keys.cast(pa.string())))
    for schema, ranked in cells_by_schema.items():
        cells = _concatenate([cells for _, cells in ranked], schema)
        files, records = decode_files_by_record(cells.keys, cells.values, schema)
        parts.append(files)
        ranks.append(np.repeat([rank for rank, _ in ranked], [len(c.keys) for _, c in ranked])[records])
    if not parts:
        return pa.RecordBatch.from_pylist([], FILES_SCHEMA)
    table = pa.Table.from_batches(parts, FILES_SCHEMA).combine_chunks()
    order = np.concatenate(ranks)
    for rank, keys in removals:
        is_removed = pc.is_in(table.column("partition"), value_set=keys).to_numpy() & (order < rank)
        table, order = table.filter(pa.array(~is_removed)), order[~is_removed]
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], FILES_SCHEMA)
    return live_files(batches[0], pa.array(order))


def merge_column_stats_cells(group: GroupCells) -> Iterator[pa.RecordBatch]:
    """Yield STATS_SCHEMA, one row for each key that has statistics, in no specific order.

    Statistics of one key that are not comparable (bounds of two types, NaN among several) are omitted, which is safe: a
    file without statistics is never pruned.
    """
    if not group.newer:
        for cells in group.base:
            yield from _live(_decoded(cells))
        return
    newer_keys = pa.concat_arrays([layer.keys for layer in group.newer]).unique()
    parts: list[pa.RecordBatch] = []
    ranks: list[npt.NDArray[np.int64]] = []
    removed_keys: list[pa.BinaryArray] = []
    removed_ranks: list[npt.NDArray[np.int64]] = []
    cells_by_schema: dict[str, list[tuple[int, Cells]]] = {}
    for cells in group.base:
        if len(cells.keys) <= _SMALL_ROWS:
            cells_by_schema.setdefault(cells.schema, []).append((0, cells))
            continue
        rows = _decoded(cells)
        has_newer = pc.is_in(rows.column("key"), value_set=newer_keys)
        yield from _live(rows.filter(pc.invert(has_newer)))
        parts.append(rows.filter(has_newer))
        ranks.append(np.zeros(parts[-1].num_rows, dtype=np.int64))
    for rank, layer in enumerate(group.newer, 1):
        if isinstance(layer, Deletes):
            removed_keys.append(layer.keys)
            removed_ranks.append(np.full(len(layer.keys), rank, dtype=np.int64))
        else:
            cells_by_schema.setdefault(layer.schema, []).append((rank, layer))
    for schema, ranked in cells_by_schema.items():
        parts.append(_decoded(_concatenate([cells for _, cells in ranked], schema)))
        ranks.append(np.repeat([rank for rank, _ in ranked], [len(cells.keys) for _, cells in ranked]))
    if parts:
        removals = (pa.concat_arrays(removed_keys), np.concatenate(removed_ranks)) if removed_keys else None
        yield from _merge_rows(pa.Table.from_batches(parts, STATS_SCHEMA).combine_chunks(), np.concatenate(ranks), removals)


def _concatenate(cells: Sequence[Cells], schema: str) -> Cells:
    """Concatenate cells of one schema: blocks are many and small, and decoding costs more per piece than per cell."""
    if len(cells) == 1:
        return cells[0]
    return Cells(pa.concat_arrays([part.keys for part in cells]), pa.concat_arrays([part.values for part in cells]), schema)


def _decoded(cells: Cells) -> pa.RecordBatch:
    stats, _ = decode_column_stats(cells.values, cells.schema)
    return pa.RecordBatch.from_arrays([cells.keys, *stats.columns], schema=STATS_SCHEMA)


def _live(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    live = rows.filter(pc.invert(rows.column("is_deleted")))
    if live.num_rows:
        yield live


def _merge_rows(
    rows: pa.Table, ranks: npt.NDArray[np.int64], removals: tuple[pa.BinaryArray, npt.NDArray[np.int64]] | None
) -> Iterator[pa.RecordBatch]:
    """Merge rows of several layers, and the keys each layer removes, into one row per key."""
    count = rows.num_rows
    if not count:
        return
    encoded = rows.column("key").combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    distinct = len(encoded.dictionary)
    # Rows up to the newest removal of their key are removed. A deletion or a tight row invalidates the rows before it.
    removed = np.full(distinct, -1, dtype=np.int64)
    if removals is not None:
        places = pc.index_in(removals[0], value_set=encoded.dictionary)
        np.maximum.at(removed, places.drop_null().to_numpy(), removals[1][places.is_valid().to_numpy(zero_copy_only=False)])
    deleted = rows.column("is_deleted").to_numpy()
    resets = deleted | rows.column("is_tight").to_numpy()
    floor = np.zeros(distinct, dtype=np.int64)
    np.maximum.at(floor, codes[resets], ranks[resets])
    alive = ~deleted & (ranks >= floor[codes]) & (ranks > removed[codes])
    live_count = np.bincount(codes[alive], minlength=distinct)
    single = alive & (live_count[codes] == 1)
    yield from rows.filter(pa.array(single)).combine_chunks().to_batches()
    several = alive & (live_count[codes] > 1)
    if several.any():
        yield from _merge_ranges(rows.filter(pa.array(several)), ranks[several])


def _merge_ranges(rows: pa.Table, ranks: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Merge rows without a deletion or tight row: one row per key with the widest bounds and the sums of the counts."""
    rows = rows.append_column("rank", pa.array(ranks)).sort_by([("key", "ascending"), ("rank", "ascending")]).combine_chunks()
    names = rows.group_by("key").aggregate([("column_name", "count_distinct")])
    clash = pc.greater(names.column("column_name_count_distinct"), 1)
    if pc.any(clash).as_py():
        raise CorruptData("two columns have one key in the statistics", found=names.filter(clash).column("key")[0].as_py())
    keys = rows.column("key").combine_chunks()
    kinds = rows.column("min").combine_chunks().field("kind")
    for kind, kind_type in _TYPE_OF_KIND.items():
        of_kind = pc.unique(keys.filter(pc.equal(kinds, kind)))
        part = rows.filter(pc.is_in(keys, value_set=of_kind))
        if part.num_rows:
            yield from _merge_ranges_of_type(part, kind_type, typed=kind >= DECIMAL_V2)
    typed = keys.filter(pc.not_equal(kinds, int(Wrapper.NULL)))
    all_null = rows.filter(pc.invert(pc.is_in(keys, value_set=typed)))
    if all_null.num_rows:
        yield from _merge_ranges_of_type(all_null, pa.null())


def _merge_ranges_of_type(part: pa.Table, kind_type: pa.DataType, *, typed: bool = False) -> Iterator[pa.RecordBatch]:
    bounds: dict[str, pa.Array] = {}
    usable = np.ones(part.num_rows, dtype=np.bool_)
    for name in ("min", "max"):
        wrapped = part.column(name).combine_chunks()
        if pa.types.is_null(kind_type):
            bounds[name] = pa.nulls(part.num_rows, pa.int64())
            continue
        values, known = unwrap(wrapped, kind_type)
        usable &= known
        if pa.types.is_floating(kind_type):
            usable &= ~np.asarray(pc.fill_null(pc.is_nan(values), False), dtype=np.bool_)
        bounds[name] = values
    zeros = _flag_signed_zeros(bounds) if pa.types.is_floating(kind_type) else {}
    sums = ("value_count", "null_count", "total_size_bytes", "total_uncompressed_size_bytes")
    prepared = pa.table(
        {
            "key": part.column("key"),
            "file_name": part.column("file_name"),
            "column_name": part.column("column_name"),
            "value_type": part.column("value_type"),
            "type_info": part.column("type_info"),
            "usable": pa.array(usable),
            **bounds,
            **zeros,
            **{name: part.column(name) for name in sums},
        }
    )
    grouped = prepared.group_by("key", use_threads=False).aggregate(
        [(name, "last") for name in ("file_name", "column_name", "value_type", "type_info")]
        + [("usable", "all"), ("min", "min"), ("max", "max"), *((name, "any") for name in zeros)]
        + [(name, "sum") for name in sums]
    )
    grouped = grouped.filter(grouped.column("usable_all")).combine_chunks()
    if not grouped.num_rows:
        return
    count = grouped.num_rows
    false = pa.array(np.zeros(count, dtype=np.bool_))
    if zeros:
        grouped = _restore_signed_zeros(grouped)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "key": grouped.column("key"),
        "file_name": grouped.column("file_name_last"),
        "column_name": grouped.column("column_name_last"),
        "min": wrap_values(_to_array(grouped.column("min_min")), typed=typed),
        "max": wrap_values(_to_array(grouped.column("max_max")), typed=typed),
        **{name: grouped.column(f"{name}_sum") for name in sums},
        "is_deleted": false,
        "is_tight": false,
        "value_type": grouped.column("value_type_last"),
        "type_info": grouped.column("type_info_last"),
    }
    yield pa.RecordBatch.from_arrays([_to_array(columns[name]) for name in STATS_SCHEMA.names], schema=STATS_SCHEMA)


def _flag_signed_zeros(bounds: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Flag bounds that are the outermost zero (-0.0 as min, 0.0 as max), which Arrow's min and max do not distinguish."""
    is_negative = {name: np.signbit(values.fill_null(1.0).to_numpy()) for name, values in bounds.items()}
    is_zero = {name: np.asarray(pc.fill_null(pc.equal(values, 0.0), False), dtype=np.bool_) for name, values in bounds.items()}
    return {
        "negative_zero": pa.array(is_zero["min"] & is_negative["min"]),
        "positive_zero": pa.array(is_zero["max"] & ~is_negative["max"]),
    }


def _restore_signed_zeros(grouped: pa.Table) -> pa.Table:
    """Order -0.0 below 0.0 in the groups, as Java does."""
    for name, flag, flagged, otherwise in (("min_min", "negative_zero", -0.0, 0.0), ("max_max", "positive_zero", 0.0, -0.0)):
        values = _to_array(grouped.column(name))
        zero = pc.if_else(grouped.column(f"{flag}_any"), pa.scalar(flagged, values.type), pa.scalar(otherwise, values.type))
        index = grouped.schema.get_field_index(name)
        grouped = grouped.set_column(index, name, pc.if_else(pc.equal(values, 0.0), zero, values))
    return grouped


def _to_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def concat_cells(groups: Sequence[GroupCells]) -> Iterator[Cells]:
    """Yield the newest cells of several groups."""
    for group in groups:
        yield from newest_cells(group)
