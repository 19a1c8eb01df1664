"""Schema nodes of arrays and maps, whose number of items differs from row to row.

The first item of all rows is decoded, then the second of those that have one, and so on. When few rows remain, their
items are located one by one and then decoded together. Items of a fixed size are located by arithmetic.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.avro_columns.buffers import Bools, Longs, binary_column, binary_parts, flat, join, value_offsets, varints
from pyhudi.format.avro_columns.column_nodes import Node, NullableNode, RecordNode
from pyhudi.format.avro_columns.rows import PAD_BYTES, RowCursors
from pyhudi.format.byte_cursor import ByteCursor


class SequenceNode(Node):
    """array and map: items in counted blocks, terminated by an empty block.

    The item of a map is the record of key and value.
    """

    __slots__ = ("item", "item_nullable")

    def __init__(self, arrow: pa.DataType, item: Node, *, item_nullable: bool) -> None:
        if not item.min_bytes:
            raise Unsupported("an Avro array whose items take no bytes is not supported")
        super().__init__(arrow, 1)
        self.item = item
        self.item_nullable = item_nullable

    def decode(self, rows: RowCursors) -> pa.Array:
        counts, items = _decode_items(rows, self.item)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        return self._filled(offsets.astype(np.int32), items)

    def _filled(self, offsets: npt.NDArray[np.int32], items: pa.Array) -> pa.Array:
        buffers = [None, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self.arrow, len(offsets) - 1, buffers, 0, children=[items])

    def walk(self, cursor: ByteCursor) -> None:
        while count := _block_count(cursor):
            for _ in range(count):
                self.item.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        offsets = value_offsets(array).astype(np.int64)
        total = int(offsets[-1] - offsets[0])
        item_counts = np.diff(offsets)
        items = join(self._encode_items(array, int(offsets[0]), total), total)
        ends, data = binary_parts(items)
        # The items of one row are contiguous, so their encoded bytes are one value over the same data.
        values = binary_column(ends[offsets - offsets[0]], data)
        non_empty = item_counts > 0
        closing = np.zeros(len(item_counts) + 1, np.int64)
        np.cumsum(non_empty, out=closing[1:])
        return [varints(item_counts), values, binary_column(closing, np.zeros(int(closing[-1]), np.uint8))]

    def _encode_items(self, array: pa.Array, first: int, count: int) -> list[pa.Array]:
        items = array.values.slice(first, count)
        if items.null_count and not self.item_nullable:
            raise InvalidRequest("an array contains nulls that its schema does not allow")
        return self.item.encode(items)


class MapNode(SequenceNode):
    """A map with string keys: a sequence of records of key and value."""

    __slots__ = ()

    def _filled(self, offsets: npt.NDArray[np.int32], items: pa.Array) -> pa.Array:
        # Built from its parts: Arrow 24 and 25 terminate the process if the null count of the keys is not computed yet.
        return pa.MapArray.from_arrays(pa.array(offsets), items.field(0), items.field(1), type=self.arrow)

    def _encode_items(self, array: pa.Array, first: int, count: int) -> list[pa.Array]:
        assert isinstance(self.item, RecordNode)
        return self.item.encode_columns([array.keys.slice(first, count), array.items.slice(first, count)], count)


# With fewer rows than this, a vectorized pass costs more than skipping over their items one by one.
_FEW_ROWS: Final = 24


def _decode_items(rows: RowCursors, item: Node) -> tuple[Longs, pa.Array]:
    """Return the number of items of each row, and the items of all rows, row after row."""
    counts = np.zeros(len(rows), np.int64)
    items = _DecodedItems()
    open_rows = np.arange(len(rows))
    is_first = True
    while len(open_rows):
        if not is_first and len(open_rows) < _FEW_ROWS:
            _decode_other_blocks(rows, item, open_rows, counts, items)
            break
        is_first = False
        blocks = rows.subset(open_rows)
        sizes = _block_counts(blocks, item.min_bytes)
        rows.advance(open_rows, blocks)
        has_items = sizes > 0
        open_rows, sizes = open_rows[has_items], sizes[has_items]
        if len(open_rows):
            _decode_block(rows, item, open_rows, sizes, counts, items)
            counts[open_rows] += sizes
    return counts, items.in_order(counts, item.arrow)


def _decode_other_blocks(rows: RowCursors, item: Node, index: Longs, counts: Longs, found: _DecodedItems) -> None:
    """Decode all further blocks of a few rows: items may be alone in their block."""
    starts: list[int] = []
    sizes = np.zeros(len(index), np.int64)
    for place, row in enumerate(index.tolist()):
        cursor = ByteCursor(rows.source.octets.data, int(rows.at[row]), int(rows.end[row]), base=rows.source.base - PAD_BYTES)
        while count := _block_count(cursor):
            for _ in range(count):
                starts.append(cursor.offset)
                item.walk(cursor)
            sizes[place] += count
        rows.at[row] = cursor.offset
    if starts:
        owners, numbers = flat(sizes)
        items = RowCursors(rows.source, np.array(starts, np.int64), rows.end[index][owners])
        found.add(item.decode(items), index[owners], counts[index][owners] + numbers)
        counts[index] += sizes


class _DecodedItems:
    """Decoded items in decoding order, each with its row and its number in the row."""

    __slots__ = ("arrays", "numbers", "rows")

    def __init__(self) -> None:
        self.arrays: list[pa.Array] = []
        self.rows: list[Longs] = []
        self.numbers: list[Longs] = []

    def add(self, array: pa.Array, rows: Longs, numbers: Longs) -> None:
        self.arrays.append(array)
        self.rows.append(rows)
        self.numbers.append(numbers)

    def in_order(self, counts: Longs, arrow: pa.DataType) -> pa.Array:
        if not self.arrays:
            return pa.array([], arrow)
        items = pa.concat_arrays(self.arrays) if len(self.arrays) > 1 else self.arrays[0]
        starts = np.cumsum(counts) - counts
        places = starts[np.concatenate(self.rows)] + np.concatenate(self.numbers)
        if len(places) == 1 or bool((places[1:] > places[:-1]).all()):
            return items
        order = np.empty(len(places), np.int64)
        order[places] = np.arange(len(places))
        return items.take(pa.array(order))


def _block_counts(rows: RowCursors, min_bytes: int) -> Longs:
    """Read the item count of the next block of each row; 0 terminates the sequence."""
    counts = rows.varint()
    # A negative count is followed by the block's size in bytes, for readers that skip.
    sized = np.nonzero(counts < 0)[0]
    if len(sized):
        sized_rows = rows.subset(sized)
        sizes = sized_rows.varint()
        sized_rows.fail((sizes < 0) | (sizes > sized_rows.end - sized_rows.at), "invalid size of a block of items")
        rows.advance(sized, sized_rows)
        counts = np.abs(counts)
    rows.fail((counts < 0) | (counts > (rows.end - rows.at) // min_bytes), "the number of items exceeds their record")
    return counts


def _block_count(cursor: ByteCursor) -> int:
    count = cursor.zigzag()
    if count < 0:
        count = -count
        cursor.zigzag()
    if count > cursor.remaining:
        raise cursor.corrupt("the number of items exceeds their record", found=count)
    return count


def _decode_block(rows: RowCursors, item: Node, index: Longs, sizes: Longs, before: Longs, found: _DecodedItems) -> None:
    """Decode one block of the rows `index`, with `sizes` items after `before` earlier ones."""
    if item.stride is not None:
        strided = _decode_strided(rows, item, index, sizes, before, found)
        index, sizes = index[~strided], sizes[~strided]
    part = rows.subset(index)
    number = 0
    while len(index) >= _FEW_ROWS:
        found.add(item.decode(part), index, before[index] + number)
        number += 1
        goes_on = sizes > number
        if not bool(goes_on.all()):
            rows.advance(index, part)
            index, sizes = index[goes_on], sizes[goes_on]
            part = rows.subset(index)
    if len(index):
        rows.advance(index, part)
        _decode_walked(rows, item, index, sizes - number, before[index] + number, found)


def _decode_strided(rows: RowCursors, item: Node, index: Longs, sizes: Longs, before: Longs, found: _DecodedItems) -> Bools:
    """Decode items of fixed size at once; return for which rows this worked."""
    # A null of a nullable item is smaller: rows whose branch bytes are not at the expected positions are not decoded.
    stride = item.stride
    assert stride is not None
    fits = sizes <= (rows.end[index] - rows.at[index]) // stride
    owners, numbers = flat(sizes)
    at = rows.at[index][owners] + numbers * stride
    if isinstance(item, NullableNode):
        at = np.minimum(at, rows.end[index][owners])
        wrong = rows.source.octets[at] != item.live
        fits &= np.bincount(owners, weights=wrong, minlength=len(index)) == 0
    else:
        rows.subset(index).fail(~fits, "a record is truncated inside an array")
    if not bool(fits.all()):
        is_decoded = fits[owners]
        owners, numbers, at = owners[is_decoded], numbers[is_decoded], at[is_decoded]
    if len(at):
        items = RowCursors(rows.source, at, rows.end[index][owners])
        found.add(item.decode(items), index[owners], before[index][owners] + numbers)
    rows.at[index[fits]] += sizes[fits] * stride
    return fits


def _decode_walked(rows: RowCursors, item: Node, index: Longs, sizes: Longs, before: Longs, found: _DecodedItems) -> None:
    """Decode the items of a few rows: locate each item by skipping the previous one, then decode all together."""
    starts: list[int] = []
    view = rows.source.octets.data
    for row, size in zip(index.tolist(), sizes.tolist(), strict=True):
        cursor = ByteCursor(view, int(rows.at[row]), int(rows.end[row]), base=rows.source.base - PAD_BYTES)
        for _ in range(size):
            starts.append(cursor.offset)
            item.walk(cursor)
        rows.at[row] = cursor.offset
    owners, numbers = flat(sizes)
    items = RowCursors(rows.source, np.array(starts, np.int64), rows.end[index][owners])
    found.add(item.decode(items), index[owners], before[owners] + numbers)
