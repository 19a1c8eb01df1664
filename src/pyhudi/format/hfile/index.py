"""Index blocks of an HFile: the offset, size and first key of each block.

    root and meta index   contiguous entries, their number is in the trailer: offset i64 | size i32 | vlong length | key
                          the data index uses full keys, or rows with their length only; the meta index uses the block name
                          release 1.1 writes the length as a protobuf varint, which differs from 128 on
    leaf, intermediate    n i32 | (n + 1) x i32 start of each entry, the last one their total size
                          n x (offset i64 | size i32 | full key)

With one level the root points to data blocks. With two levels it points to leaf blocks, which point to data blocks.
With more levels, intermediate blocks are between them. After the entries of a root, Java may append 16 bytes about the
middle key, which are ignored.

A key is a lower bound of the rows in its block and greater than every row of the previous block. It need not exist as a
row, because Java shortens it. Encoding stores the first rows themselves.

Specification: docs/formats/hfile.md, index blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyhudi.errors import CorruptData
from pyhudi.format.byte_cursor import ByteCursor, encode_vlong
from pyhudi.format.hfile.blocks import HEADER_BYTES
from pyhudi.format.hfile.cells import copy_ranges, full_key, row_from_key

_POINTER_BYTES = 12
_SHORTEST_ENTRY_BYTES = _POINTER_BYTES + 2
# Bytes of a key in addition to its row: the row length only, or also the ten bytes after the row.
_AROUND_ROW = (2, 12)

Int64s = npt.NDArray[np.int64]
Objects = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Index entry of a block.

    Attributes:
        offset: Offset of the block in the file.
        size_bytes: Size of the block.
        row: First row; for a meta block its name.
    """

    offset: int
    size_bytes: int
    row: bytes


@dataclass(frozen=True, slots=True, eq=False)
class BlockIndex:
    """Entries of one index block: arrays of the same length, rows (bytes objects) ascending."""

    offsets: Int64s
    sizes: Int64s
    rows: Objects

    def __len__(self) -> int:
        return len(self.rows)

    def entry(self, position: int) -> IndexEntry:
        return IndexEntry(int(self.offsets[position]), int(self.sizes[position]), self.rows[position])


def decode_root_index(data: memoryview, count: int, *, limit: int, offset: int = 0) -> BlockIndex:
    """Decode the `count` entries of a data root index.

    Args:
        data: The block's data.
        count: Number of entries, from the trailer.
        limit: Upper bound of the offsets of all indexed blocks.
        offset: Offset of the index block, for error messages.

    Raises:
        CorruptData: Entries are truncated, point outside the blocks, or are not ascending.
    """
    entries = _decode_entries(data, count, offset)
    rows = object_array([row_from_key(key, offset=offset) for _, _, key in entries])
    offsets = np.array([at for at, _, _ in entries], dtype=np.int64)
    sizes = np.array([size for _, size, _ in entries], dtype=np.int64)
    return _checked(BlockIndex(offsets, sizes, rows), limit, offset)


def decode_meta_index(data: memoryview, count: int, *, limit: int, offset: int = 0) -> dict[str, IndexEntry]:
    """Decode the `count` entries of a meta index, by block name. Raises CorruptData as `decode_root_index`."""
    entries = [IndexEntry(at, size, bytes(name)) for at, size, name in _decode_entries(data, count, offset)]
    for entry in entries:
        if entry.offset < 0 or entry.size_bytes < HEADER_BYTES or entry.offset + entry.size_bytes > limit:
            raise _outside(entry, limit, offset)
    try:
        return {entry.row.decode(): entry for entry in entries}
    except UnicodeDecodeError as error:
        raise CorruptData("a name in an HFile's meta index is not UTF-8", offset=offset) from error


def decode_index(data: memoryview, *, limit: int, offset: int = 0) -> BlockIndex:
    """Decode the entries of a leaf or intermediate index block. Arguments and errors as for `decode_root_index`."""
    cursor = ByteCursor(data, base=offset)
    count = cursor.i32()
    if not 0 < count <= (cursor.remaining - 4) // (4 + _SHORTEST_ENTRY_BYTES):
        raise CorruptData("invalid number of entries in an HFile index block", offset=offset, found=count)
    bounds = np.frombuffer(cursor.read(4 * (count + 1)), dtype=">i4").astype(np.int64)
    body = cursor.read(cursor.remaining)
    starts, ends = bounds[:-1], bounds[1:]
    if starts[0] != 0 or ends[-1] > len(body) or (ends - starts < _SHORTEST_ENTRY_BYTES).any():
        raise CorruptData("invalid entry offsets of an HFile index block", offset=offset, expected=len(body), found=int(ends[-1]))
    heads = np.frombuffer(body, dtype=np.uint8)[starts[:, None] + np.arange(_SHORTEST_ENTRY_BYTES)]
    pointers = heads.view([("offset", ">i8"), ("size", ">i4"), ("row", ">u2")])[:, 0]
    row_starts = starts + _SHORTEST_ENTRY_BYTES
    row_ends = row_starts + pointers["row"]
    if (row_ends > ends).any():
        raise CorruptData("invalid row length of an HFile index key", offset=offset)
    rows: Objects = copy_ranges(body, row_starts, row_ends).to_numpy(zero_copy_only=False)
    return _checked(BlockIndex(pointers["offset"].astype(np.int64), pointers["size"].astype(np.int64), rows), limit, offset)


def encode_root_index(entries: Sequence[IndexEntry]) -> bytes:
    """Encode the data of a data root index block."""
    return b"".join(_pointer(entry) + _sized(full_key(entry.row)) for entry in entries)


def encode_meta_index(entries: Sequence[IndexEntry]) -> bytes:
    """Encode the data of a meta index block."""
    return b"".join(_pointer(entry) + _sized(entry.row) for entry in entries)


def encode_index(entries: Sequence[IndexEntry]) -> bytes:
    """Encode the data of a leaf or intermediate index block."""
    texts = [_pointer(entry) + full_key(entry.row) for entry in entries]
    starts = np.zeros(len(texts) + 1, dtype=">i4")
    np.cumsum([len(text) for text in texts], out=starts[1:])
    return len(texts).to_bytes(4, "big") + starts.tobytes() + b"".join(texts)


def object_array(rows: Sequence[bytes]) -> Objects:
    """Return the rows as an array of bytes objects, because NumPy's own byte strings drop trailing zeros."""
    objects: Objects = np.empty(len(rows), dtype=np.object_)
    objects[:] = rows
    return objects


def index_entry_bytes(row: bytes) -> int:
    """Return an upper bound of the size of a row's entry in an index block, used to cut blocks below their limit."""
    return 4 + _POINTER_BYTES + 5 + len(full_key(row))


def _decode_entries(data: memoryview, count: int, offset: int) -> list[tuple[int, int, memoryview]]:
    cursor = ByteCursor(data, base=offset)
    if not 0 <= count <= len(data) // (_POINTER_BYTES + 1):
        raise CorruptData("invalid number of entries in an HFile index", offset=offset, found=count)
    entries = []
    for _ in range(count):
        at, size = cursor.i64(), cursor.i32()
        entries.append((at, size, _sized_key(cursor)))
    return entries


def _sized_key(cursor: ByteCursor) -> memoryview:
    """Read a key or block name after its length; of the two encodings of the length, use the one that matches the key."""
    start = cursor.offset
    for read in (cursor.vlong, cursor.varint):
        cursor.offset = start
        try:
            size = read()
        except CorruptData:
            continue
        if 2 <= size <= cursor.remaining:
            key = cursor.read(size)
            if size - int.from_bytes(key[:2], "big") in _AROUND_ROW:
                return key
    # A block name has no row length, and is short.
    cursor.offset = start
    return cursor.read(cursor.vlong())


def _checked(index: BlockIndex, limit: int, offset: int) -> BlockIndex:
    # Offsets are compared before addition, so that no sum can overflow.
    inside = (index.offsets >= 0) & (index.offsets <= limit) & (index.sizes >= HEADER_BYTES)
    inside &= index.offsets + np.where(inside, index.sizes, 0) <= limit
    if not inside.all():
        raise _outside(index.entry(int(np.argmin(inside))), limit, offset)
    falls = index.rows[1:] < index.rows[:-1]
    if falls.any():
        at = int(np.argmax(falls))
        raise CorruptData("an HFile index is not sorted", offset=offset, expected=index.rows[at], found=index.rows[at + 1])
    return index


def _outside(entry: IndexEntry, limit: int, offset: int) -> CorruptData:
    place = (entry.offset, entry.size_bytes)
    return CorruptData("an HFile index points outside the file's blocks", offset=offset, expected=limit, found=place)


def _pointer(entry: IndexEntry) -> bytes:
    return entry.offset.to_bytes(8, "big") + entry.size_bytes.to_bytes(4, "big")


def _sized(key: bytes) -> bytes:
    return encode_vlong(len(key)) + key
