"""Scalar variant values as Arrow arrays: the values of one type together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import Unsupported
from pyhudi.format.avro_columns.buffers import Longs
from pyhudi.records.variants.variant_values import (
    PRIMITIVE,
    SHORT_STRING,
    VariantValues,
    read_bytes,
    read_fixed,
    read_numbers,
    read_texts,
)

NULL: Final = 0
TRUE: Final = 1
FALSE: Final = 2
BINARY: Final = 15
STRING: Final = 16
UUID: Final = 20

NUMBERS: Final[Mapping[int, pa.DataType]] = {
    3: pa.int8(),
    4: pa.int16(),
    5: pa.int32(),
    6: pa.int64(),
    7: pa.float64(),
    11: pa.date32(),
    12: pa.timestamp("us", "UTC"),
    13: pa.timestamp("us"),
    14: pa.float32(),
    17: pa.time64("us"),
    18: pa.timestamp("ns", "UTC"),
    19: pa.timestamp("ns"),
}
"""Primitive types whose bytes are those of an Arrow value."""

DECIMALS: Final[Mapping[int, int]] = {8: 4, 9: 8, 10: 16}
"""Decimal types and the bytes of their unscaled number."""

_MOST_SCALE: Final = 38


def scalar_values(values: VariantValues) -> Iterator[tuple[Longs, pa.Array]]:
    """Yield the values, none of which is an object or an array, by type: their positions and an array without nulls.

    The variant null has the type null. UUIDs are 16 bytes, other binary values of any length.

    Raises:
        CorruptData: A value is shorter than its type, or a decimal's scale is above 38.
        Unsupported: A primitive type that the encoding did not have when this was written.
    """
    headers = values.headers.astype(np.int64)
    short = values.basic_types == SHORT_STRING
    if bool(short.any()):
        positions = np.flatnonzero(short)
        chosen = values.take(positions)
        yield positions, read_texts(chosen, chosen.at + 1, headers[positions])
    primitive = np.flatnonzero(values.basic_types == PRIMITIVE)
    for kind in np.unique(headers[primitive]).tolist():
        positions = primitive[headers[primitive] == kind]
        chosen = values.take(positions)
        if kind in DECIMALS:
            for inner, array in _decimals(chosen, DECIMALS[kind]):
                yield positions[inner], array
        else:
            yield positions, _reader(kind)(chosen, kind)


def _reader(kind: int) -> Callable[[VariantValues, int], pa.Array]:
    if kind in NUMBERS:
        return _numbers
    try:
        return _READERS[kind]
    except KeyError:
        raise Unsupported(f"variant values of the primitive type {kind} are not supported") from None


def _numbers(values: VariantValues, kind: int) -> pa.Array:
    type_ = NUMBERS[kind]
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(_fixed(values, 1, type_.bit_width // 8))], 0)


def _fixed(values: VariantValues, skipped: int, width: int) -> npt.NDArray[np.uint8]:
    values.check(values.at + skipped + width <= values.ends)
    return np.ascontiguousarray(read_fixed(values.octets, values.at + skipped, width))


def _decimals(values: VariantValues, width: int) -> Iterator[tuple[Longs, pa.Array]]:
    unscaled = _fixed(values, 2, width)
    scales = values.octets[values.at + 1]
    values.check(scales <= _MOST_SCALE, f"the scale of a variant's decimal is above {_MOST_SCALE}")
    octets = np.repeat(np.where(unscaled[:, -1:] >= 0x80, np.uint8(0xFF), np.uint8(0)), 16, axis=1)
    octets[:, :width] = unscaled
    for scale in np.unique(scales).tolist():
        positions = np.flatnonzero(scales == scale)
        data = pa.py_buffer(np.ascontiguousarray(octets[positions]))
        yield positions, pa.Array.from_buffers(pa.decimal128(_MOST_SCALE, scale), len(positions), [None, data], 0)


def _long(values: VariantValues) -> tuple[Longs, Longs]:
    values.check(values.at + 5 <= values.ends)
    return values.at + 5, read_numbers(values.octets, values.at + 1, 4)


_READERS: Final[Mapping[int, Callable[[VariantValues, int], pa.Array]]] = {
    NULL: lambda values, kind: pa.nulls(len(values)),
    TRUE: lambda values, kind: pa.repeat(pa.scalar(value=True), len(values)),
    FALSE: lambda values, kind: pa.repeat(pa.scalar(value=False), len(values)),
    BINARY: lambda values, kind: read_bytes(values, *_long(values)),
    STRING: lambda values, kind: read_texts(values, *_long(values)),
    UUID: lambda values, kind: pa.Array.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(_fixed(values, 1, 16))], 0),
}
