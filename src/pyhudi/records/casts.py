"""Vectorized casts with the semantics of Spark's try_cast in UTC: null where a value cannot be cast."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.records.arithmetic import canonical_type
from pyhudi.records.sql_functions import IndexExpression

_LONG = np.iinfo(np.int64)


def try_cast(source: pa.DataType, target: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    """Return the cast function between two types, with the semantics of Spark's try_cast; None if it is not supported."""
    types = pa.types
    if source == target:
        return lambda values: values
    if types.is_signed_integer(source):
        if types.is_signed_integer(target):
            return lambda values: _narrow_integers(values.cast(pa.int64()), target)
        if types.is_floating(target) or types.is_string(target):
            return lambda values: values.cast(target, safe=False)
    if types.is_floating(source):
        if types.is_floating(target):
            return lambda values: values.cast(target, safe=False)
        if types.is_signed_integer(target):
            return lambda values: _truncate_floats(values, target)
    if types.is_string(canonical_type(source)):
        if types.is_string(target):
            return lambda values: values.cast(target)
        if types.is_signed_integer(target):
            return lambda values: _parse_integers(values, target)
    if types.is_boolean(source) and types.is_string(target):
        return lambda values: values.cast(target)
    if target == pa.int64() and types.is_timestamp(source) and source.tz is not None:
        return lambda values: pc.floor_temporal(values, unit="second").cast(pa.timestamp("s", "UTC")).view(pa.int64())
    function = _TIME_CASTS.get((_type_family(source), _type_family(target)))
    return (
        None
        if function is None
        else (lambda values: IndexExpression(function).evaluate(values.cast(canonical_type(values.type))))
    )


_TIME_CASTS = {
    ("text", "date"): "to_date",
    ("time", "date"): "to_date",
    ("date", "time"): "to_timestamp",
}


def _type_family(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_timestamp(kind):
        return "time" if kind.tz is not None else "local time"
    return "date" if types.is_date32(kind) else "text" if types.is_string(canonical_type(kind)) else "other"


def _narrow_integers(values: pa.Int64Array, target: pa.DataType) -> pa.Array:
    """Cast integers to a narrower type; null on overflow."""
    limit = 1 << target.bit_width - 1
    fits = pc.and_(pc.greater_equal(values, -limit), pc.less_equal(values, limit - 1))
    return pc.if_else(fits, values, pa.scalar(None, pa.int64())).cast(target)


def _truncate_floats(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Truncate floating point numbers to an integer type; null on overflow."""
    limit = float(1 << target.bit_width - 1)
    numbers = pc.trunc(values.cast(pa.float64(), safe=False))
    # The maximum long has no double: 2^63 becomes it, as in Java.
    top = pc.less_equal(numbers, limit) if target == pa.int64() else pc.less(numbers, limit)
    fits = pc.and_(pc.greater_equal(numbers, -limit), top)
    in_range = pc.if_else(fits, numbers, pa.scalar(None, pa.float64()))
    at_top = pc.equal(in_range, limit)
    small = pc.if_else(at_top, pa.scalar(0.0), in_range).cast(pa.int64())
    return pc.if_else(at_top, pa.scalar(_LONG.max, pa.int64()), small).cast(target)


def _parse_integers(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse strings as integers; null if invalid or on overflow."""
    groups = pc.extract_regex(
        values.cast(pa.string()), r"^[\x00-\x20\x7f-\x{9f}]*(?P<number>[+-]?[0-9]+)[\x00-\x20\x7f-\x{9f}]*$"
    )
    signed = pc.struct_field(groups, "number")
    negative = pc.starts_with(signed, "-")
    digits = pc.ascii_ltrim(pc.ascii_ltrim(signed, "+-"), "0")
    digits = pc.if_else(pc.equal(digits, ""), "0", digits)
    digits = pc.if_else(pc.less_equal(pc.utf8_length(digits), 19), digits, pa.scalar(None, pa.string()))
    numbers = digits.cast(pa.decimal128(38, 0))
    numbers = pc.if_else(negative, pc.negate(numbers), numbers)
    low, high = (pa.scalar(Decimal(bound), numbers.type) for bound in (_LONG.min, _LONG.max))
    fits = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return _narrow_integers(pc.if_else(fits, numbers, pa.scalar(None, numbers.type)).cast(pa.int64()), target)
