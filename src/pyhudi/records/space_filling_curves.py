"""Row orders over several columns: lexicographic, Z-order and Hilbert, from the ranks of the values.

Curves use ranks instead of values, so that skewed columns share the key's bits evenly. A curve key is one unsigned
integer per row. Sorting by it places rows that are near in all columns near each other.

    Z-order   the bits of the ranks, interleaved, highest bit first
    Hilbert   the distance along the Hilbert curve of the same bits: neighbours on the curve are neighbours in space

Source: docs/formats/writing.md, "Clustering".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest

Ranks = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_KEY_BITS = 63


def dense_ranks(column: pa.ChunkedArray) -> Ranks:
    """Return order-preserving ranks from 1: equal values have equal ranks; null, the smallest, has rank 0.

    Raises:
        InvalidRequest: A type without an order.
    """
    type_ = column.type
    if pa.types.is_nested(type_):
        raise InvalidRequest(f"rows cannot be ordered by a column of type {type_}")
    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], type_)
    encoded = values.dictionary_encode()
    ascending = np.asarray(pc.sort_indices(encoded.dictionary), dtype=np.int64)
    rank_of = np.zeros(len(ascending) + 1, dtype=np.int64)
    rank_of[ascending] = np.arange(1, len(ascending) + 1)
    # Nulls use the last slot, whose rank is 0.
    return rank_of[np.asarray(pc.fill_null(encoded.indices, len(ascending)), dtype=np.int64)]


def linear_order(ranks: Sequence[Ranks]) -> npt.NDArray[np.int64]:
    """Return the row order that is lexicographic in the ranks, stably sorted."""
    return np.lexsort(tuple(reversed([np.asarray(part) for part in ranks]))).astype(np.int64)


def z_order_keys(ranks: Sequence[Ranks]) -> Keys:
    """Return the Z-order key of each row.

    Args:
        ranks: One array per column, of equal length.
    """
    bits = _KEY_BITS // len(ranks)
    return _interleaved([_scaled(part, bits) for part in ranks], bits)


def hilbert_keys(ranks: Sequence[Ranks]) -> Keys:
    """Return the Hilbert index of each row; arguments as in `z_order_keys`."""
    bits = _KEY_BITS // len(ranks)
    axes = [_scaled(part, bits) for part in ranks]
    if len(axes) == 1:
        return axes[0]
    return _interleaved(_hilbert_planes(axes, bits), bits)


def _scaled(ranks: Ranks, bits: int) -> Keys:
    """Scale ranks to the range of `bits` bits, keeping their order."""
    top = int(ranks.max()) if len(ranks) else 0
    limit = (1 << bits) - 1
    if top <= limit:
        shift = max(0, bits - top.bit_length())
        return ranks.astype(np.uint64) << np.uint64(shift)
    return (ranks.astype(np.float64) * (limit / top)).astype(np.uint64)


def _interleaved(axes: Sequence[Keys], bits: int) -> Keys:
    keys = np.zeros(len(axes[0]), dtype=np.uint64)
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            keys = (keys << np.uint64(1)) | ((axis >> np.uint64(bit)) & np.uint64(1))
    return keys


def _hilbert_planes(axes: Sequence[Keys], bits: int) -> list[Keys]:
    """Transform coordinates into the bit planes of the Hilbert index."""
    # From the highest bit down, each axis whose bit is set inverts the lower bits of the first axis; one whose bit is clear swaps
    # them with it. This rotates the sub-cube so that the curve enters and leaves it next to its neighbours. A Gray code over the
    # axes then numbers the cells.
    planes = [axis.copy() for axis in axes]
    one_bit = np.uint64(1)
    for bit in range(bits - 1, 0, -1):
        high = one_bit << np.uint64(bit)
        low = high - one_bit
        for position, plane in enumerate(planes):
            is_set = (plane & high) != 0
            swapped = (planes[0] ^ plane) & low
            first = np.where(is_set, planes[0] ^ low, planes[0] ^ swapped)
            if position:
                planes[position] = np.where(is_set, plane, plane ^ swapped)
            planes[0] = first
    for position in range(1, len(planes)):
        planes[position] = planes[position] ^ planes[position - 1]
    flip = np.zeros(len(planes[0]), dtype=np.uint64)
    for bit in range(bits - 1, 0, -1):
        high = one_bit << np.uint64(bit)
        flip = np.where((planes[-1] & high) != 0, flip ^ (high - one_bit), flip)
    return [plane ^ flip for plane in planes]
