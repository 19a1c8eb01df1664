"""Arrow buffers as numpy arrays, without copies where possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest

Longs: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Octets: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]


def expand(array: pa.Array, valid: Bools) -> pa.Array:
    """Return the array's values, in order, at the valid rows, and null elsewhere. The array has no nulls."""
    kind = array.type
    count = len(valid)
    if len(array) == count:
        return array
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    nulls = count - len(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        if not array.null_count:
            before = np.zeros(count + 1, np.int64)
            np.cumsum(valid, out=before[1:])
            data = array.buffers()[2] or pa.py_buffer(b"")
            return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(value_offsets(array)[before]), data], nulls)
    elif pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) and not array.null_count:
        width = kind.bit_width // 8
        spread = np.zeros(count, f"V{width}" if width > 8 else f"i{width}")
        spread[valid] = np.frombuffer(array.buffers()[1], spread.dtype)[array.offset : array.offset + len(array)]
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(spread)], nulls)
    places = np.cumsum(valid) - 1
    return array.take(pa.array(places, pa.int64(), mask=~valid))


def valid_mask(array: pa.Array) -> Bools:
    """Return which values are not null."""
    mask: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def fixed_values(array: pa.Array, dtype: npt.DTypeLike, width: int = 0) -> npt.NDArray[Any]:
    """Return the values of an array of fixed-width type as numpy array; null ones are arbitrary.

    Args:
        dtype: The numpy type.
        width: Return a table of that many items a row instead of a flat array.
    """
    buffer = array.buffers()[1] if len(array) else None
    # An empty array may have a buffer of any size, including a fraction of an item.
    flat = np.frombuffer(buffer if buffer is not None else b"", dtype)
    if width:
        return flat[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)
    return flat[array.offset : array.offset + len(array)]


def value_offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    """Return the offsets, one more than values, of a string, binary, list or map array; they need not begin at 0."""
    # Arrow allows an array without values to have no offsets.
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def binary_parts(array: pa.Array) -> tuple[Longs, Octets]:
    """Return the offsets, beginning at 0, and the data of a binary or string array without nulls."""
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets_buffer, data_buffer = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int64 if large else np.int32)[array.offset : array.offset + len(array) + 1]
    offsets = offsets.astype(np.int64)
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)[offsets[0] : offsets[-1]]
    return offsets - offsets[0], data


def varints(numbers: Longs, value_branch: int | None = None, null: int = 0, valid: Bools | None = None) -> pa.Array:
    """Return a binary array with the zig-zag varint of each number.

    Args:
        value_branch: A byte to prepend to each.
        null: The byte that encodes a null.
        valid: Where it is False the value is only the byte `null`.
    """
    lead = 0 if value_branch is None else 1
    bits = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    if valid is not None:
        bits[~valid] = 0
    max_bits = int(bits.max()) if len(bits) else 0
    width = max(1, (max_bits.bit_length() + 6) // 7)
    table = np.empty((len(bits), lead + width), np.uint8)
    if value_branch is not None:
        table[:, 0] = value_branch if valid is None else np.where(valid, np.uint8(value_branch), np.uint8(null))
    if width == 1:
        table[:, lead] = bits
        if valid is None:
            return fixed_column(table)
        return _ragged(table, lead + valid.astype(np.int64))
    sizes = np.ones(len(bits), np.int64)
    for place in range(1, width):
        sizes += bits >= np.uint64(1 << (7 * place))
    for place in range(width):
        group = (bits >> np.uint64(7 * place)).astype(np.uint8)
        if place < width - 1:
            group |= np.uint8(0x80)
        table[:, lead + place] = group
    table[np.arange(len(bits)), lead + sizes - 1] &= 0x7F
    if valid is not None:
        sizes[~valid] = 0
    return _ragged(table, lead + sizes)


def join(parts: Sequence[pa.Array], count: int) -> pa.Array:
    """Concatenate the parts of each row as a binary array; a null part adds nothing."""
    if not parts:
        return binary_column(np.zeros(count + 1, np.int64), np.zeros(0, np.uint8))
    if len(parts) == 1 and not parts[0].null_count:
        return parts[0]
    try:
        return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise InvalidRequest(f"rows of more than 2 GiB in one array: {error}") from error


def part_sizes(parts: Sequence[pa.Array], count: int) -> Longs:
    """Return the number of bytes of each row in all parts."""
    total = np.zeros(count, np.int64)
    for part in parts:
        sizes = np.diff(value_offsets(part))
        if part.null_count:
            sizes = np.where(valid_mask(part), sizes, 0)
        total += sizes
    return total


def big_endian_ints(numbers: Longs) -> pa.Array:
    """Return a binary array with each number as a 4-byte int."""
    return fixed_column(numbers.astype(">i4").view(np.uint8).reshape(-1, 4))


def octet_column(octets: Octets) -> pa.Array:
    """Return a binary array with one byte in each value."""
    return fixed_column(octets.reshape(-1, 1))


def fixed_column(table: Octets) -> pa.Array:
    """Return a binary array with each row of the table."""
    count, width = table.shape
    return binary_column(np.arange(count + 1, dtype=np.int64) * width, np.ascontiguousarray(table))


def _ragged(table: Octets, sizes: Longs) -> pa.Array:
    """Return a binary array with the first `sizes` bytes of each row of the table."""
    count, width = table.shape
    starts = np.arange(count, dtype=np.int64) * width
    return gather_column(table, starts, starts + sizes)


def gather_column(octets: Octets, starts: Longs, ends: Longs) -> pa.Array:
    """Return a binary array with the bytes of each range; ranges ascend and do not overlap."""
    offsets = np.empty(2 * len(starts) + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = offsets[-2] if len(starts) else 0
    return every_other(offsets, pa.py_buffer(octets))


def gather_ranges(content: pa.Buffer, starts: Longs, lengths: Longs) -> pa.Array:
    """Return a binary array with the bytes of each range, in any order; ranges may overlap."""
    octets = pa.Array.from_buffers(pa.uint8(), content.size, [None, content])
    views = pa.LargeListViewArray.from_arrays(pa.array(starts), pa.array(lengths), octets)
    return binary_column(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), pc.list_flatten(views).to_numpy())


def every_other(offsets: npt.NDArray[np.int32], data: pa.Buffer) -> pa.Array:
    """Return the values at even positions of the binary array with these offsets; odd positions are gaps."""
    count = len(offsets) // 2
    values = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), data], 0)
    return values.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def binary_column(offsets: Longs, data: Octets) -> pa.Array:
    """Return a binary array with these offsets, which begin at 0 or later, over the data."""
    if int(offsets[-1]) > 2**31 - 1:
        raise InvalidRequest("rows of more than 2 GiB in one array")
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)], 0
    )


def text_lengths(array: pa.Array) -> Longs:
    """Return the byte length of each string; arbitrary for nulls."""
    return np.diff(value_offsets(array)).astype(np.int64)


def flat(sizes: Longs) -> tuple[Longs, Longs]:
    """For contiguous groups of these sizes, return the group of each member, and its number in the group."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    return owners, np.arange(len(owners)) - starts[owners]
