"""Bounds of columns: a union of wrapper records, as Arrow arrays of (kind, bytes).  Source: docs/formats/metadata-table.md.

    column type                      kind        bytes
    boolean                          BOOLEAN     one byte
    int8, int16, int32               INT         zig-zag varint
    int64                            LONG        zig-zag varint
    float32, float64                 FLOAT, DOUBLE   little endian
    binary, fixed-size binary        BYTES       zig-zag length, bytes
    string                           STRING      zig-zag length, UTF-8
    date32                           DATE        days since 1970-01-01, zig-zag varint
    timestamp, time                  LONG        the stored number: microseconds
    decimal                          DECIMAL     zig-zag length, big-endian two's complement of the value at 15 decimals

TIME_MICROS, TIMESTAMP_MICROS and LOCAL_DATE are read and not written: Hudi's readers expect the kinds above.

The second layout of statistics names the column's type (ValueType) and has other bytes for some.  They are held as kinds beyond
those of wrappers (timestamps in milliseconds come from other writers alone):

    timestamps in milliseconds             MILLIS            zig-zag varint
    decimal                                DECIMAL_V2 + scale    zig-zag length, big-endian two's complement at its own scale
    nothing known, nanoseconds             UNKNOWN_WRAPPER      not asked

What it is read as depends on the column's type of today, which may be wider than the type that the statistics were made with.  A
bound that does not fit the type is not known; that is not the same as no bound, which says that every value is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.avro_columns import (
    PAD_BYTES,
    BinaryNode,
    BooleanNode,
    DecimalNode,
    FloatNode,
    Node,
    NumberNode,
    RowCursors,
    Source,
    binary_parts,
    join,
)
from pyhudi.format.avro_wrappers import DECIMAL, Wrapper
from pyhudi.metadata_table.codecs.payload_codec import UNKNOWN_WRAPPER, WRAPPED

_TYPE_OF_KIND = {
    Wrapper.BOOLEAN: pa.bool_(),
    Wrapper.INT: pa.int32(),
    Wrapper.LONG: pa.int64(),
    Wrapper.FLOAT: pa.float32(),
    Wrapper.DOUBLE: pa.float64(),
    Wrapper.BYTES: pa.binary(),
    Wrapper.STRING: pa.string(),
    Wrapper.DATE: pa.int32(),
    Wrapper.DECIMAL: DECIMAL,
    Wrapper.TIME_MICROS: pa.int64(),
    Wrapper.TIMESTAMP_MICROS: pa.int64(),
    Wrapper.LOCAL_DATE: pa.int32(),
}


class ValueType(IntEnum):
    """`typeOrdinal` of the second layout: the type of a column.  Times in milliseconds and UUIDs are not named."""

    NULL = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BYTES = 8
    FIXED = 9
    DECIMAL = 10
    DATE = 12
    TIME_MICROS = 14
    TIMESTAMP_MILLIS = 15
    TIMESTAMP_MICROS = 16
    TIMESTAMP_NANOS = 17
    LOCAL_TIMESTAMP_MILLIS = 18
    LOCAL_TIMESTAMP_MICROS = 19
    LOCAL_TIMESTAMP_NANOS = 20


MILLIS = 64
DECIMAL_V2 = 128
MOST_DIGITS = 38


def wrappers_for_types(kinds: pa.Array, ordinals: pa.Int32Array, infos: pa.StringArray) -> pa.Array:
    """The kinds of bounds as the types of their columns have them.

    ordinals: of ValueType; null and 0: the first layout; infos: for decimals "precision,scale".  Raises CorruptData for others.
    """
    result = kinds.to_numpy().copy()
    types = ordinals.fill_null(0).to_numpy()
    there = result != Wrapper.NULL
    longs = result == Wrapper.LONG
    result[types == ValueType.NULL] = UNKNOWN_WRAPPER
    for millis in (ValueType.TIMESTAMP_MILLIS, ValueType.LOCAL_TIMESTAMP_MILLIS):
        result[longs & (types == millis)] = MILLIS
    for nanos in (ValueType.TIMESTAMP_NANOS, ValueType.LOCAL_TIMESTAMP_NANOS):
        result[there & (types == nanos)] = UNKNOWN_WRAPPER
    decimals = (result == Wrapper.BYTES) & (types == ValueType.DECIMAL)
    if decimals.any():
        named = infos.filter(pa.array(decimals)).dictionary_encode()
        scales = np.array([_scale(text) for text in named.dictionary.to_pylist()], dtype=np.uint8)
        if named.null_count:
            raise CorruptData("decimal bounds of column statistics without precision and scale")
        result[decimals] = DECIMAL_V2 + scales[named.indices.to_numpy()]
    return pa.array(result, pa.uint8())


def wrappers_for_storage(kinds: pa.Array) -> pa.Array:
    """Kinds as the second layout stores them: the inverse of `wrappers_for_types`."""
    result = kinds.to_numpy().copy()
    result[result == UNKNOWN_WRAPPER] = Wrapper.NULL
    result[result >= DECIMAL_V2] = Wrapper.BYTES
    result[result == MILLIS] = Wrapper.LONG
    return pa.array(result, pa.uint8())


def value_type(column: pa.DataType) -> tuple[ValueType, str | None] | None:
    """What the second layout names of a column of this type; None when such columns have no statistics.

    Timestamps count in microseconds.
    """
    types = pa.types
    if types.is_decimal128(column):
        return ValueType.DECIMAL, f"{column.precision},{column.scale}"
    if types.is_timestamp(column):
        return (ValueType.LOCAL_TIMESTAMP_MICROS if column.tz is None else ValueType.TIMESTAMP_MICROS), None
    if types.is_time64(column):
        return ValueType.TIME_MICROS, None
    if types.is_fixed_size_binary(column):
        return ValueType.FIXED, None
    kind = wrapper_for_type(column)
    return None if kind is None else (ValueType[kind.name], None)


def has_statistics(column: pa.DataType, *, typed: bool) -> bool:
    """Whether columns of this type have statistics.  typed: of the second layout, which knows every decimal."""
    return wrapper_for_type(column) is not None or (typed and pa.types.is_decimal128(column))


def _scale(text: str) -> int:
    precision, _, scale = text.partition(",")
    if not (precision.isdecimal() and scale.isdecimal() and int(scale) <= int(precision) <= MOST_DIGITS):
        raise CorruptData("no precision and scale of decimal bounds", expected="as 10,2", found=text)
    return int(scale)


def wrapper_for_type(column: pa.DataType) -> Wrapper | None:
    """The wrapper that bounds of a column of this type are stored in; None when such columns have no statistics."""
    types = pa.types
    if types.is_boolean(column):
        return Wrapper.BOOLEAN
    if types.is_int8(column) or types.is_int16(column) or types.is_int32(column):
        return Wrapper.INT
    if types.is_int64(column) or types.is_time64(column) or types.is_timestamp(column):
        return Wrapper.LONG
    if types.is_float32(column):
        return Wrapper.FLOAT
    if types.is_float64(column):
        return Wrapper.DOUBLE
    if types.is_binary(column) or types.is_fixed_size_binary(column):
        return Wrapper.BYTES
    if types.is_string(column):
        return Wrapper.STRING
    if types.is_date32(column):
        return Wrapper.DATE
    if types.is_decimal128(column) and fits_wrapped_decimal(column.precision, column.scale):
        return Wrapper.DECIMAL
    return None


def wrappers_for_bounds(column: pa.DataType, *, typed: bool) -> tuple[int, ...]:
    """The kinds that bounds of a column of this type have.  typed: of the second layout."""
    kind = wrapper_for_type(column)
    if typed and pa.types.is_decimal128(column):
        return (DECIMAL_V2 + column.scale,)
    if typed and kind is Wrapper.DATE:
        return (int(Wrapper.INT),)
    return () if kind is None else (int(kind),)


def fits_wrapped_decimal(precision: int, scale: int) -> bool:
    """Whether every decimal of this type can be held at 30 digits, 15 of them decimals."""
    return bool(scale <= DECIMAL.scale and precision + (DECIMAL.scale - scale) <= DECIMAL.precision)


def wrap_values(bounds: pa.Array, *, typed: bool = False) -> pa.StructArray:
    """Bounds in the type of their column as WRAPPED; null becomes the kind NULL.  typed: as the second layout has them.

    Timestamps and times count in microseconds.  Raises InvalidRequest for a type that has no wrapper.
    """
    kind = wrapper_for_type(bounds.type)
    if typed and pa.types.is_decimal128(bounds.type):
        there = bounds.drop_null()
        values = join(_node(bounds.type).encode(there), len(there))
        return _wrapped(values, bounds.is_valid(), DECIMAL_V2 + bounds.type.scale)
    if typed and kind is Wrapper.DATE:
        bounds = bounds.view(pa.int32())
        kind = Wrapper.INT
    if kind is None or (pa.types.is_timestamp(bounds.type) and bounds.type.unit != "us"):
        raise InvalidRequest(f"columns of type {bounds.type} have no statistics in the metadata table")
    stored = _TYPE_OF_KIND[kind]
    there = bounds.drop_null()
    values = join(_node(stored).encode(there.view(stored) if _is_number(bounds.type) else there.cast(stored)), len(there))
    return _wrapped(values, bounds.is_valid(), kind)


def _wrapped(values: pa.BinaryArray, exists: pa.BooleanArray, kind: int) -> pa.StructArray:
    """WRAPPED of one kind, NULL where nothing is there.  values: those that are."""
    there = exists.to_numpy(zero_copy_only=False)
    kinds = np.where(there, np.uint8(kind), np.uint8(Wrapper.NULL))
    if not there.all():
        values = values.take(pa.array(np.cumsum(there) - 1, mask=~there)).fill_null(b"")
    return pa.StructArray.from_arrays([pa.array(kinds), values], fields=list(WRAPPED))


def wrap_stored(bounds: Sequence[Any], column: pa.DataType, *, typed: bool = False) -> pa.StructArray:
    """As `wrap_values`, of Python values in stored form: dates as days, timestamps and times as microseconds, decimals as
    Decimal.
    """
    if not has_statistics(column, typed=typed):
        raise InvalidRequest(f"columns of type {column} have no statistics in the metadata table")
    kind = wrapper_for_type(column)
    try:
        array = pa.array(bounds, column if kind is None or kind is Wrapper.DECIMAL else _TYPE_OF_KIND[kind])
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise InvalidRequest(f"a column bound is not a {column}: {error}") from error
    return wrap_values(array.view(column) if _is_number(column) else array, typed=typed)


def unwrap(bounds: pa.StructArray, column: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """WRAPPED bounds in the type of their column, and for each whether it is known.

    Where it is known, null means that the column has no value but null there.  Where it is not known, the array is null too: the
    bound has another kind than the column's type, or does not fit into it, as happens after a column has changed its type.
    Raises CorruptData when the bytes are not a value of their kind.
    """
    kinds: npt.NDArray[np.uint8] = bounds.field("kind").to_numpy()
    values = bounds.field("value")
    known = kinds == Wrapper.NULL
    places = np.full(len(bounds), -1, dtype=np.int64)
    parts: list[pa.Array] = []
    placed = 0
    for number in np.unique(kinds).tolist():
        rows = np.flatnonzero(kinds == number)
        if number == Wrapper.NULL:
            continue
        if number in _TYPE_OF_KIND:
            kind = Wrapper(number)
            converted = _convert(_decode(values.take(pa.array(rows)), _TYPE_OF_KIND[kind]), kind, column)
        else:
            converted = _convert_typed(values.take(pa.array(rows)), number, column)
        if converted is None:
            continue
        parts.append(converted)
        known[rows] = True
        places[rows] = np.arange(placed, placed + len(rows))
        placed += len(rows)
    if not parts:
        return pa.nulls(len(bounds), column), known
    return pa.concat_arrays(parts).take(pa.array(places, mask=places < 0)), known


def _convert(part: pa.Array, kind: Wrapper, column: pa.DataType) -> pa.Array | None:
    """Values of a kind in the column's type, exactly; None when that is not possible."""
    wanted = wrapper_for_type(column)
    if wanted is Wrapper.LONG and _is_number(column):
        is_fit = kind in (Wrapper.LONG, Wrapper.TIME_MICROS if pa.types.is_time64(column) else Wrapper.TIMESTAMP_MICROS)
        return part.view(column) if is_fit else None
    if wanted is Wrapper.DATE:
        return part.view(column) if kind in (Wrapper.DATE, Wrapper.LOCAL_DATE, Wrapper.INT) else None
    if kind is not wanted and (kind, wanted) not in _WIDENED:
        return None
    try:
        return part.cast(column)
    except pa.ArrowInvalid:
        return None


def _convert_typed(values: pa.BinaryArray, number: int, column: pa.DataType) -> pa.Array | None:
    """Bounds of a kind that the second layout alone has in the column's type; None when that is not possible."""
    try:
        if number == MILLIS and pa.types.is_timestamp(column):
            return _decode(values, pa.int64()).view(pa.timestamp("ms", column.tz)).cast(column)
        if DECIMAL_V2 <= number <= DECIMAL_V2 + MOST_DIGITS and pa.types.is_decimal(column):
            return _decode(values, pa.decimal128(MOST_DIGITS, number - DECIMAL_V2)).cast(column)
    except pa.ArrowInvalid:
        return None
    return None


# Numbers that a wider column holds exactly; a long is not always a double.
_WIDENED = (
    (Wrapper.INT, Wrapper.LONG),
    (Wrapper.INT, Wrapper.DOUBLE),
    (Wrapper.FLOAT, Wrapper.DOUBLE),
)


def _is_number(column: pa.DataType) -> bool:
    """Whether the type is a date, time or timestamp, which is stored as its number."""
    return bool(pa.types.is_timestamp(column) or pa.types.is_time64(column) or pa.types.is_date32(column))


def _decode(values: pa.BinaryArray, stored: pa.DataType) -> pa.Array:
    bounds, octets = binary_parts(values)
    rows = RowCursors(Source(octets.data, 0), bounds[:-1] + PAD_BYTES, bounds[1:] + PAD_BYTES)
    array = _node(stored).decode(rows)
    rows.expect_ends()
    return array


@lru_cache(maxsize=16)
def _node(stored: pa.DataType) -> Node:
    if pa.types.is_boolean(stored):
        return BooleanNode()
    if pa.types.is_integer(stored):
        return NumberNode(stored, stored.bit_width)
    if pa.types.is_floating(stored):
        return FloatNode(stored)
    if pa.types.is_decimal(stored):
        return DecimalNode(stored, None)
    return BinaryNode(stored)
