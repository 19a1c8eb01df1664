"""Entries (cells) of an HFile data block, as Arrow arrays.

    size  field
       4  key length K
       4  value length V
       K  key = row length u16 | row | family length 00 | timestamp 7f ff ff ff ff ff ff ff | type 04, so K = row length + 12
       V  value
       1  version number, always 00

Entries are contiguous without a directory; the lengths of each give the start of the next. Decoding is vectorized:

    1. Candidate offsets: bytes 0 and 1 are zero (a row has at most 32767 bytes) and byte 3 is byte 9 plus 12 (the low bytes
       of K and of the row length). Three byte comparisons over the block leave few false candidates.
    2. Candidates are validated: K and row length agree, the entry is inside the block, its constant bytes are right.
    3. The entries are the chain that begins at 0 and in which each entry ends at the start of the next. Usually every
       candidate belongs to it. Otherwise (a value contains bytes like an entry) pointer doubling finds the chain.
    4. Arrow copies rows and values out of the block: an array whose elements are row, gap, row, gap, ... over the block's
       own bytes, of which `take` selects every other element.

Snapshots of release 1.1.0 wrote keys without family, timestamp and type, so K = row length + 2. All entries of a file have
the same form.

Entries with a column family, of another type than "put", or with a version number are valid HBase and do not occur in
Hudi: they raise Unsupported.

Specification: docs/formats/hfile.md, data block payload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported

CELL_SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
MAX_ROW_BYTES = 32767
MAX_VALUE_BYTES = 1 << 29
KEY_TAIL = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"

_HEAD_BYTES = 10  # Key length, value length, row length.
_FIXED_BYTES = _HEAD_BYTES + len(KEY_TAIL) + 1
_PUT = KEY_TAIL[-1]
_TAIL_SCALAR = pa.scalar(KEY_TAIL, pa.binary())
_VERSION_SCALAR = pa.scalar(b"\x00", pa.binary())
_NO_SEPARATOR = pa.scalar(b"", pa.binary())
_EMPTY = pa.RecordBatch.from_arrays([pa.array([], pa.binary()), pa.array([], pa.binary())], schema=CELL_SCHEMA)

Int64s = npt.NDArray[np.int64]


def decode_cells(data: memoryview | bytes, *, offset: int | None = None) -> pa.RecordBatch:
    """Return the entries of a data block in file order: CELL_SCHEMA, key is the row only.

    Args:
        data: The block's uncompressed bytes. They are copied and may be released.
        offset: Offset of the block in its file, for error messages.

    Raises:
        CorruptData: The entries do not fill the block exactly.
        Unsupported: Entries that Hudi does not write.
    """
    starts, row_ends, value_starts, value_ends = _locate(data, offset)
    if len(starts) == 0:
        return _EMPTY
    rows = copy_ranges(data, starts + _HEAD_BYTES, row_ends)
    values = copy_ranges(data, value_starts, value_ends)
    return pa.RecordBatch.from_arrays([rows, values], schema=CELL_SCHEMA)


def decode_joined(files: Sequence[tuple[Sequence[memoryview], int]]) -> tuple[pa.RecordBatch, Int64s]:
    """Decode the data blocks of several files at once, which costs less than one call for each of many small files.

    Args:
        files: The uncompressed data blocks of each file, and its number of entries.

    Returns:
        The entries as `decode_cells` returns them, and the end of each file among them.

    Raises:
        CorruptData: The entries do not fill the blocks exactly, or a file has another number of them.
        Unsupported: Entries that Hudi does not write.
    """
    if len({_tail_bytes(blocks[0]) for blocks, _ in files if blocks}) > 1:
        parts = [decode_joined([file]) for file in files]
        return _combined([batch for batch, _ in parts]), np.cumsum([int(ends[-1]) for _, ends in parts], dtype=np.int64)
    data = b"".join(block for blocks, _ in files for block in blocks)
    starts, row_ends, value_starts, value_ends = _locate(data, None)
    ends = np.cumsum([0, *(count for _, count in files)], dtype=np.int64)
    byte_ends = np.cumsum([0, *(sum(map(len, blocks)) for blocks, _ in files)], dtype=np.int64)
    if ends[-1] != len(starts) or not np.array_equal(np.append(starts, len(data))[ends], byte_ends):
        raise CorruptData("data blocks of HFiles and their trailers disagree on the number of entries", found=len(starts))
    if not len(starts):
        return _EMPTY, ends[1:]
    columns = [copy_ranges(data, starts + _HEAD_BYTES, row_ends), copy_ranges(data, value_starts, value_ends)]
    return pa.RecordBatch.from_arrays(columns, schema=CELL_SCHEMA), ends[1:]


def _combined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    columns = [pa.concat_arrays([batch.column(index) for batch in batches]) for index in range(2)]
    return pa.RecordBatch.from_arrays(columns, schema=CELL_SCHEMA)


def _tail_bytes(data: memoryview | bytes) -> int:
    """Return how many bytes of each key follow its row, by the first entry."""
    key_bytes, row_bytes = int.from_bytes(data[:4], "big"), int.from_bytes(data[8:_HEAD_BYTES], "big")
    return 0 if len(data) >= _HEAD_BYTES and key_bytes == row_bytes + 2 else len(KEY_TAIL)


def encode_cells(rows: pa.BinaryArray, values: pa.BinaryArray) -> pa.BinaryArray:
    """Return one element per entry with its bytes in the block; the data buffer of the result is a sequence of entries.

    Args:
        rows: Binary, no nulls, sizes as `check_sizes` allows. The caller provides the order.
        values: As `rows`, of the same length; together below 2 GiB once encoded.
    """
    count = len(rows)
    row_bytes = np.diff(_offsets(rows)).astype(np.int64)
    heads = np.empty(count, dtype=[("key", ">u4"), ("value", ">u4"), ("row", ">u2")])
    heads["key"] = row_bytes + (2 + len(KEY_TAIL))
    heads["value"] = np.diff(_offsets(values))
    heads["row"] = row_bytes
    head_offsets = np.arange(0, _HEAD_BYTES * count + 1, _HEAD_BYTES, dtype=np.int32)
    head_array = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(head_offsets), pa.py_buffer(heads.tobytes())])
    cells: pa.BinaryArray = pc.binary_join_element_wise(head_array, rows, _TAIL_SCALAR, values, _VERSION_SCALAR, _NO_SEPARATOR)
    return cells


def check_sizes(rows: pa.BinaryArray, values: pa.BinaryArray) -> None:
    """Raise InvalidRequest if a row or a value is longer than an entry can hold."""
    longest = int(np.diff(_offsets(rows)).max(initial=0))
    if longest > MAX_ROW_BYTES:
        raise InvalidRequest(f"an HFile key of {longest} bytes exceeds the maximum of {MAX_ROW_BYTES} bytes")
    longest = int(np.diff(_offsets(values)).max(initial=0))
    if longest > MAX_VALUE_BYTES:
        raise InvalidRequest(f"an HFile value of {longest} bytes exceeds the maximum of {MAX_VALUE_BYTES} bytes")


def data_size_bytes(array: pa.BinaryArray) -> int:
    """Return the total bytes of all elements of a binary array."""
    offsets = _offsets(array)
    return int(offsets[-1]) - int(offsets[0])


def split_ranges(rows: pa.BinaryArray, values: pa.BinaryArray, limit_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of entries that each encode to at most `limit_bytes` or are a single entry."""
    row_offsets, value_offsets = _offsets(rows).astype(np.int64), _offsets(values)
    sizes = row_offsets + value_offsets + np.arange(len(rows) + 1, dtype=np.int64) * _FIXED_BYTES
    start = 0
    while start < len(rows):
        end = max(start + 1, int(np.searchsorted(sizes, sizes[start] + limit_bytes, side="right")) - 1)
        yield start, end
        start = end


def copy_ranges(data: memoryview | bytes, starts: Int64s, ends: Int64s) -> pa.BinaryArray:
    """Return copies of data[start:end]. starts, ends: ascending, without overlap."""
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    bounds = np.empty((count, 2), dtype=np.int32)
    bounds[:, 0] = starts
    bounds[:, 1] = ends
    # Every other element of this array is a range, the others are the gaps between them.
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return both.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))


def full_key(row: bytes) -> bytes:
    """Return the key of an entry as stored in index blocks and the file info."""
    return len(row).to_bytes(2, "big") + row + KEY_TAIL


def row_from_key(key: memoryview, *, offset: int | None = None) -> bytes:
    """Return the row in a full key; its other fields are ignored. Raises CorruptData if the row does not fit."""
    if len(key) < 2:
        raise CorruptData("an HFile index key is truncated", offset=offset, expected=2, found=len(key))
    length = int.from_bytes(key[:2], "big")
    if length > len(key) - 2:
        raise CorruptData("invalid row length of an HFile index key", offset=offset, expected=len(key) - 2, found=length)
    return bytes(key[2 : 2 + length])


def _offsets(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return the offsets of a binary array's elements in its data buffer, one more than it has elements."""
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32, count=array.offset + len(array) + 1)[array.offset :]


def _locate(data: memoryview | bytes, offset: int | None) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the start, row end, value start and value end of each entry."""
    size = len(data)
    block = np.frombuffer(data, dtype=np.uint8)
    tail_bytes = _tail_bytes(data)
    fixed_bytes = _HEAD_BYTES + tail_bytes + 1
    if size < fixed_bytes:
        if size:
            raise _broken_entry(data, 0, offset)
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, nothing, nothing
    last = size - fixed_bytes + 1
    possible = block[3 : 3 + last] == block[9 : 9 + last] + np.uint8(2 + tail_bytes)
    possible &= block[:last] == 0
    possible &= block[1 : 1 + last] == 0
    starts: Int64s = np.flatnonzero(possible)
    row_bytes = (block[starts + 8].astype(np.int64) << 8) | block[starts + 9]
    key_bytes = (block[starts + 2].astype(np.int64) << 8) | block[starts + 3]
    value_bytes = block[starts + 4].astype(np.int64) << 24
    for position in (5, 6, 7):
        value_bytes |= block[starts + position].astype(np.int64) << (8 * (7 - position))
    row_ends = starts + _HEAD_BYTES + row_bytes
    value_starts = row_ends + tail_bytes
    value_ends = value_starts + value_bytes
    fits = (key_bytes == row_bytes + 2 + tail_bytes) & (row_bytes <= MAX_ROW_BYTES) & (value_ends < size)
    if not fits.all():
        starts, row_ends, value_starts, value_ends = (
            positions[fits] for positions in (starts, row_ends, value_starts, value_ends)
        )
    plain = block[value_ends] == 0
    if tail_bytes:
        plain &= (block[row_ends] == 0) & (block[value_starts - 1] == _PUT)
    if not plain.all():
        starts, row_ends, value_starts, value_ends = (
            positions[plain] for positions in (starts, row_ends, value_starts, value_ends)
        )
    nexts = value_ends + 1
    if len(starts) and starts[0] == 0 and nexts[-1] == size and np.array_equal(nexts[:-1], starts[1:]):
        return starts, row_ends, value_starts, value_ends
    chain = _chain(starts, nexts, size, data, offset)
    return starts[chain], row_ends[chain], value_starts[chain], value_ends[chain]


def _chain(starts: Int64s, nexts: Int64s, size: int, data: memoryview | bytes, offset: int | None) -> Int64s:
    """Return the indices of the starts that are reachable from 0 by following entries, in order."""
    count = len(starts)
    if count == 0 or starts[0] != 0:
        raise _broken_entry(data, 0, offset)
    # Index `count` is the end of the block; `count + 1` is a step to an offset where no entry can begin.
    following = np.searchsorted(starts, nexts)
    known = np.append(starts, -1)[following] == nexts
    step = np.where(known, following, np.where(nexts == size, count, count + 1))
    step = np.concatenate([step, [count, count + 1]])
    reached = np.zeros(1, dtype=np.int64)
    while reached[-1] < count:
        # `reached` holds the first 2**k links and `step` advances by 2**k links.
        reached = np.concatenate([reached, step[reached]])
        step = step[step]
    if reached[-1] != count:
        raise _broken_entry(data, int(nexts[reached[reached < count][-1]]), offset)
    return reached[reached < count]


def _broken_entry(data: memoryview | bytes, start: int, offset: int | None) -> CorruptData | Unsupported:
    """Return the error for an invalid entry at `start` of the block."""
    head = bytes(data[start : start + _HEAD_BYTES])
    key_bytes, value_bytes, row_bytes = (int.from_bytes(head[at:end], "big") for at, end in ((0, 4), (4, 8), (8, 10)))
    end = start + 8 + key_bytes + value_bytes
    where = f"at byte {start} of an HFile data block's entries"
    if len(head) < _HEAD_BYTES or end >= len(data):
        return CorruptData(f"an entry {where} is truncated", offset=offset, expected=end + 1, found=len(data))
    if key_bytes > row_bytes + 12 or (key_bytes == row_bytes + 12 and data[start + 7 + key_bytes] != _PUT):
        return Unsupported(f"the entry {where} has a column family or is not a plain value: Hudi writes no such entries")
    if key_bytes == row_bytes + 12 and data[end] != 0:
        return Unsupported(f"the entry {where} has a version number: Hudi writes no such entries")
    return CorruptData(f"inconsistent lengths of the entry {where}", offset=offset, expected=row_bytes + 12, found=key_bytes)
