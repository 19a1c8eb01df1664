"""Column bounds: a union of Avro wrapper records as Arrow arrays of (kind, bytes). Format:
docs/formats/metadata-table.md.

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

TIME_MICROS, TIMESTAMP_MICROS and LOCAL_DATE are read but not written: Hudi's readers expect the wrappers above.

Layout 2 of the statistics stores the column's type (ValueType) and other bytes for some types. Additional `kind` values
represent them (only other writers produce timestamps in milliseconds):

    timestamps in milliseconds             MILLIS            zig-zag varint
    decimal                                DECIMAL_V2 + scale    zig-zag length, big-endian two's complement at its own
                                           scale
    unknown value, nanoseconds             UNKNOWN_WRAPPER      ignored

Decoding converts to the column's current type, which may be wider than the type at write time. A bound that does not
fit the type is unknown. An unknown bound differs from a missing bound, which means that every value is null.
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
from pyhudi.format.stored_numbers import parse_digits
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
    """`typeOrdinal` of layout 2: the type of a column. Times in milliseconds and UUIDs have no member."""

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


def wrappers_for_types(wrappers: pa.Array, ordinals: pa.Int32Array, infos: pa.StringArray) -> pa.Array:
    """Return the wrappers of layout 2 bounds, given the stored wrappers and the value types of their columns.

    Args:
        wrappers: The stored wrappers, of WRAPPED's field `kind`.
        ordinals: Of ValueType; null and 0 mean layout 1.
        infos: "precision,scale" for decimals.

    Raises:
        CorruptData: A decimal without valid precision and scale.
    """
    result = wrappers.to_numpy().copy()
    types = ordinals.fill_null(0).to_numpy()
    non_null = result != Wrapper.NULL
    longs = result == Wrapper.LONG
    result[types == ValueType.NULL] = UNKNOWN_WRAPPER
    for millis in (ValueType.TIMESTAMP_MILLIS, ValueType.LOCAL_TIMESTAMP_MILLIS):
        result[longs & (types == millis)] = MILLIS
    for nanos in (ValueType.TIMESTAMP_NANOS, ValueType.LOCAL_TIMESTAMP_NANOS):
        result[non_null & (types == nanos)] = UNKNOWN_WRAPPER
    decimals = (result == Wrapper.BYTES) & (types == ValueType.DECIMAL)
    if decimals.any():
        decimal_infos = infos.filter(pa.array(decimals)).dictionary_encode()
        scales = np.array([_scale(text) for text in decimal_infos.dictionary.to_pylist()], dtype=np.uint8)
        if decimal_infos.null_count:
            raise CorruptData("decimal bounds of column statistics have no precision and scale")
        result[decimals] = DECIMAL_V2 + scales[decimal_infos.indices.to_numpy()]
    return pa.array(result, pa.uint8())


def wrappers_for_storage(wrappers: pa.Array) -> pa.Array:
    """Return wrappers in the stored form of layout 2: the inverse of `wrappers_for_types`."""
    result = wrappers.to_numpy().copy()
    result[result == UNKNOWN_WRAPPER] = Wrapper.NULL
    result[result >= DECIMAL_V2] = Wrapper.BYTES
    result[result == MILLIS] = Wrapper.LONG
    return pa.array(result, pa.uint8())


def value_type(column: pa.DataType) -> tuple[ValueType, str | None] | None:
    """Return the value type and type info that layout 2 stores for a column type; None if such columns have no statistics.

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
    """Return True if columns of this type have statistics. typed: in layout 2, which supports every decimal."""
    return wrapper_for_type(column) is not None or (typed and pa.types.is_decimal128(column))


def _scale(text: str) -> int:
    precision, scale = (parse_digits(part) for part in text.partition(",")[::2])
    if precision is None or scale is None or not scale <= precision <= MOST_DIGITS:
        raise CorruptData("invalid precision and scale of decimal bounds", expected="as 10,2", found=text[:100])
    return scale


def wrapper_for_type(column: pa.DataType) -> Wrapper | None:
    """Return the wrapper that stores bounds of a column of this type; None if such columns have no statistics."""
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
    """Return the possible wrappers of bounds of a column of this type. typed: in layout 2."""
    kind = wrapper_for_type(column)
    if typed and pa.types.is_decimal128(column):
        return (DECIMAL_V2 + column.scale,)
    if typed and kind is Wrapper.DATE:
        return (int(Wrapper.INT),)
    return () if kind is None else (int(kind),)


def fits_wrapped_decimal(precision: int, scale: int) -> bool:
    """Return True if every decimal of this type fits into 30 digits with 15 decimals."""
    return bool(scale <= DECIMAL.scale and precision + (DECIMAL.scale - scale) <= DECIMAL.precision)


def wrap_values(bounds: pa.Array, *, typed: bool = False) -> pa.StructArray:
    """Convert bounds in the type of their column to WRAPPED; null becomes the kind NULL.

    Args:
        bounds: Timestamps and times in microseconds.
        typed: Use layout 2.

    Raises:
        InvalidRequest: The type has no wrapper.
    """
    kind = wrapper_for_type(bounds.type)
    if typed and pa.types.is_decimal128(bounds.type):
        non_null = bounds.drop_null()
        values = join(_node(bounds.type).encode(non_null), len(non_null))
        return _wrapped(values, bounds.is_valid(), DECIMAL_V2 + bounds.type.scale)
    if typed and kind is Wrapper.DATE:
        bounds = bounds.view(pa.int32())
        kind = Wrapper.INT
    if kind is None or (pa.types.is_timestamp(bounds.type) and bounds.type.unit != "us"):
        raise InvalidRequest(f"columns of type {bounds.type} have no statistics in the metadata table")
    stored = _TYPE_OF_KIND[kind]
    non_null = bounds.drop_null()
    values = join(
        _node(stored).encode(non_null.view(stored) if _is_number(bounds.type) else non_null.cast(stored)), len(non_null)
    )
    return _wrapped(values, bounds.is_valid(), kind)


def _wrapped(values: pa.BinaryArray, exists: pa.BooleanArray, kind: int) -> pa.StructArray:
    """WRAPPED of one kind, and NULL for missing values. values: the non-null values only."""
    is_valid = exists.to_numpy(zero_copy_only=False)
    kinds = np.where(is_valid, np.uint8(kind), np.uint8(Wrapper.NULL))
    if not is_valid.all():
        values = values.take(pa.array(np.cumsum(is_valid) - 1, mask=~is_valid)).fill_null(b"")
    return pa.StructArray.from_arrays([pa.array(kinds), values], fields=list(WRAPPED))


def wrap_stored(bounds: Sequence[Any], column: pa.DataType, *, typed: bool = False) -> pa.StructArray:
    """As `wrap_values`, for Python values in stored form: dates as days, timestamps and times as microseconds, decimals
    as Decimal.
    """
    if not has_statistics(column, typed=typed):
        raise InvalidRequest(f"columns of type {column} have no statistics in the metadata table")
    kind = wrapper_for_type(column)
    try:
        array = pa.array(bounds, column if kind is None or kind is Wrapper.DECIMAL else _TYPE_OF_KIND[kind])
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise InvalidRequest(f"a column bound does not fit the type {column}: {error}") from error
    return wrap_values(array.view(column) if _is_number(column) else array, typed=typed)


def unwrap(bounds: pa.StructArray, column: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Convert WRAPPED bounds to the type of their column.

    Returns:
        The bounds, and for each whether it is known. A known null means that all values of the column are null. An
        unknown bound is null too: its kind differs from the column's type, or it does not fit, as after a type change
        of the column.

    Raises:
        CorruptData: The bytes are not a value of their kind.
    """
    kinds: npt.NDArray[np.uint8] = bounds.field("kind").to_numpy()
    values = bounds.field("value")
    known = kinds == Wrapper.NULL
    positions = np.full(len(bounds), -1, dtype=np.int64)
    parts: list[pa.Array] = []
    part_rows = 0
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
        positions[rows] = np.arange(part_rows, part_rows + len(rows))
        part_rows += len(rows)
    if not parts:
        return pa.nulls(len(bounds), column), known
    return pa.concat_arrays(parts).take(pa.array(positions, mask=positions < 0)), known


def _convert(part: pa.Array, kind: Wrapper, column: pa.DataType) -> pa.Array | None:
    """Convert values of a kind to the column's type exactly; None if that is impossible."""
    column_kind = wrapper_for_type(column)
    if column_kind is Wrapper.LONG and _is_number(column):
        is_fit = kind in (Wrapper.LONG, Wrapper.TIME_MICROS if pa.types.is_time64(column) else Wrapper.TIMESTAMP_MICROS)
        return part.view(column) if is_fit else None
    if column_kind is Wrapper.DATE:
        return part.view(column) if kind in (Wrapper.DATE, Wrapper.LOCAL_DATE, Wrapper.INT) else None
    if kind is not column_kind and (kind, column_kind) not in _WIDENED:
        return None
    try:
        return part.cast(column)
    except pa.ArrowInvalid:
        return None


def _convert_typed(values: pa.BinaryArray, number: int, column: pa.DataType) -> pa.Array | None:
    """Convert bounds of a layout 2 kind to the column's type; None if that is impossible."""
    try:
        if number == MILLIS and pa.types.is_timestamp(column):
            return _decode(values, pa.int64()).view(pa.timestamp("ms", column.tz)).cast(column)
        if DECIMAL_V2 <= number <= DECIMAL_V2 + MOST_DIGITS and pa.types.is_decimal(column):
            return _decode(values, pa.decimal128(MOST_DIGITS, number - DECIMAL_V2)).cast(column)
    except pa.ArrowInvalid:
        return None
    return None


# Conversions to a wider type without loss. A long is not always exact as a double.
_WIDENED = (
    (Wrapper.INT, Wrapper.LONG),
    (Wrapper.INT, Wrapper.DOUBLE),
    (Wrapper.FLOAT, Wrapper.DOUBLE),
)


def _is_number(column: pa.DataType) -> bool:
    """Return True for dates, times and timestamps, which are stored as numbers."""
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
