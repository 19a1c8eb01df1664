"""Bind filters to a schema: convert each literal to its column's type, exactly.

A comparison of an integer column with 1.5 is adjusted to the next integer; a comparison with a number out of range
becomes constant. A time without a time zone is UTC. Function calls get the types of their columns and results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from pyhudi.errors import Internal, InvalidRequest
from pyhudi.records.column_statistics import Value, decimal_from_unscaled
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.filter_ast import (
    And,
    Compare,
    Constant,
    ConstantUnlessNull,
    Expr,
    FunctionCall,
    In,
    IsNull,
    Like,
    Not,
    Operand,
    Or,
)
from pyhudi.records.filters.filter_functions import bind_call
from pyhudi.records.filters.filter_parser import parse_timestamp_micros
from pyhudi.records.filters.like_patterns import split_like_pattern
from pyhudi.records.java_strings import is_binary_like, is_string_like

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS_A_DAY = 86_400_000_000
_FLOAT_TEXTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def bind(expr: Expr, schema: pa.Schema) -> Expr:
    """Convert each literal of a filter to its column's type; a bound filter is bound again.

    Args:
        expr: Filter. Strings are accepted for dates (`2024-05-06`) and timestamps, a date for a timestamp at midnight
            UTC.
        schema: Schema of canonical types.

    Raises:
        InvalidRequest: A column is missing (names the closest match) or cannot be compared with the literal.
    """
    if isinstance(expr, (And, Or)):
        return _merge_equalities(type(expr)(tuple(bind(part, schema) for part in expr.parts)))
    if isinstance(expr, Not):
        return Not(bind(expr.part, schema))
    if isinstance(expr, Constant) or (isinstance(expr, (Compare, In)) and expr.type is not None):
        return expr
    operand, type_ = _bound_operand(schema, expr.column)  # type: ignore[attr-defined]
    if isinstance(expr, (IsNull, ConstantUnlessNull)):
        return replace(expr, column=operand)
    if pa.types.is_nested(type_):
        raise InvalidRequest(f"{_describe_operand(operand)} of type {type_} can only be tested with IS NULL")
    if isinstance(expr, Compare):
        return _bind_compare(replace(expr, column=operand), type_)
    if isinstance(expr, In):
        return _bind_in(replace(expr, column=operand), type_)
    if isinstance(expr, Like):
        if not is_string_like(type_):
            raise InvalidRequest(f"LIKE requires strings, but {_describe_operand(operand)} has type {type_}")
        split_like_pattern(expr.pattern)
        return replace(expr, column=operand, type=type_)
    raise Internal(f"unknown filter node {type(expr).__name__}")


def _bound_operand(schema: pa.Schema, operand: Operand) -> tuple[Operand, pa.DataType]:
    """Bind an operand; returns it with the type of its values."""
    if isinstance(operand, FunctionCall):
        bound = bind_call(operand, schema)
        return bound, bound.result_type
    type_ = field_at(schema, operand).type
    return operand, type_.value_type if pa.types.is_dictionary(type_) else type_


def _describe_operand(operand: Operand) -> str:
    return f"column {operand!r}" if isinstance(operand, str) else str(operand)


def _bind_compare(expr: Compare, type_: pa.DataType) -> Expr:
    grid = _grid(type_)
    if grid is None:
        value = bind_to_family(expr.column, expr.value, type_)
        if value != value:
            return _bind_nan(expr, type_)
        if pa.types.is_floating(type_) and _is_out_of_range(expr.value, value):
            return _bind_between(expr, value, type_)
        return replace(expr, value=value, type=type_)
    position = _position(expr.column, expr.value, type_, grid)
    if isinstance(position, bool):
        # An infinite literal is above (True) or below (False) every value.
        is_true = {"=": False, "<>": True, "<": position, "<=": position, ">": not position, ">=": not position}
        return ConstantUnlessNull(expr.column, is_true[expr.op])
    low, high = grid.low, grid.high
    below, above = math.floor(position), math.ceil(position)
    if expr.op in ("=", "<>"):
        if below != above or not low <= below <= high:
            return ConstantUnlessNull(expr.column, expr.op == "<>")
        bound = below
    elif expr.op in ("<", ">="):
        # x < 1.5 is x < 2, and x >= 1.5 is x >= 2.
        bound = above
        if bound > high or bound <= low:
            return ConstantUnlessNull(expr.column, (bound > high) == (expr.op == "<"))
    else:
        # x <= 1.5 is x <= 1, and x > 1.5 is x > 1.
        bound = below
        if bound >= high or bound < low:
            return ConstantUnlessNull(expr.column, (bound >= high) == (expr.op == "<="))
    return replace(expr, value=grid.value(bound), type=type_)


def _merge_equalities(expr: And | Or) -> Expr:
    """Replace many equalities of one column under OR, or inequalities under AND, by one IN list."""
    op = "=" if isinstance(expr, Or) else "<>"
    values: dict[Operand, list[Any]] = {}
    for part in expr.parts:
        if isinstance(part, Compare) and part.op == op:
            values.setdefault(part.column, []).append(part.value)
    long_columns = {column for column, column_values in values.items() if len(column_values) > MAX_LISTED}
    if not long_columns:
        return expr
    parts: list[Expr] = []
    for part in expr.parts:
        if not (isinstance(part, Compare) and part.op == op and part.column in long_columns):
            parts.append(part)
        elif part.column in values:
            list_ = In(part.column, tuple(dict.fromkeys(values.pop(part.column))), False, part.type)
            parts.append(list_ if op == "=" else Not(list_))
    return parts[0] if len(parts) == 1 else type(expr)(tuple(parts))


def _bind_nan(expr: Compare, type_: pa.DataType) -> Expr:
    """Bind a comparison with NaN, the largest value, as = or <>, or as a constant."""
    if expr.op in ("<=", ">"):
        return ConstantUnlessNull(expr.column, expr.op == "<=")
    return replace(expr, op="=" if expr.op in ("=", ">=") else "<>", value=math.nan, type=type_)


def _is_out_of_range(literal: Any, value: Any) -> bool:
    """Whether a literal is out of the range of a floating point type, or underflows to 0. `value` is the rounded literal."""
    if isinstance(literal, str):
        return False
    return literal not in (math.inf, -math.inf) if math.isinf(value) else value == 0 and literal != 0


def _bind_between(expr: Compare, value: Any, type_: pa.DataType) -> Expr:
    """Bind a comparison with a number between two neighbours of a type, one of which is `value`: infinite, or 0."""
    if expr.op in ("=", "<>"):
        return ConstantUnlessNull(expr.column, expr.op == "<>")
    is_less, is_below = expr.op in ("<", "<="), expr.value < value
    # x < 1e999 is x < Infinity, and x > 1e999 is x >= Infinity.
    op = ("<" if is_below else "<=") if is_less else (">=" if is_below else ">")
    return replace(expr, op=op, value=value, type=type_)


def _bind_in(expr: In, type_: pa.DataType) -> Expr:
    values: list[Any] = []
    for value in expr.values:
        bound = _bind_compare(Compare(expr.column, "=", value), type_)
        if isinstance(bound, Compare):
            values.append(bound.value)
    return replace(expr, values=tuple(dict.fromkeys(values)), type=type_)


@dataclass(frozen=True, slots=True)
class _Grid:
    """A type with evenly spaced values: whole numbers from low to high, times 1 / 10**scale for decimals."""

    low: int
    high: int
    scale: int | None = None

    def value(self, position: int) -> Value:
        return position if self.scale is None else decimal_from_unscaled(position, self.scale)


def _grid(type_: pa.DataType) -> _Grid | None:
    types = pa.types
    if types.is_integer(type_):
        signed = types.is_signed_integer(type_)
        bits = type_.bit_width - (1 if signed else 0)
        return _Grid(-(1 << bits) if signed else 0, (1 << bits) - 1)
    if types.is_date32(type_):
        return _Grid(-(1 << 31), (1 << 31) - 1)
    if types.is_timestamp(type_):
        return _Grid(-(1 << 63), (1 << 63) - 1)
    if types.is_decimal(type_):
        return _Grid(-(10**type_.precision) + 1, 10**type_.precision - 1, type_.scale)
    return None


def _position(name: Operand, value: Any, type_: pa.DataType, grid: _Grid) -> Fraction | bool:
    """Return the exact position of a literal on the grid; True above and False below all values (infinity)."""
    types = pa.types
    if types.is_date32(type_) or types.is_timestamp(type_):
        micros = _micros(name, value, type_)
        return Fraction(micros, _MICROS_A_DAY) if types.is_date32(type_) else Fraction(micros)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _bad_literal(name, value, type_)
    if value != value:
        # NaN, which no column of the type contains, is above everything too.
        return True
    if isinstance(value, (float, Decimal)) and math.isinf(value):
        return bool(value > 0)
    fraction = Fraction(value) if not isinstance(value, Decimal) or abs(value.adjusted()) < 1000 else _clamped_fraction(value)
    return Fraction(fraction * 10 ** (grid.scale or 0))


def _clamped_fraction(value: Decimal) -> Fraction:
    """Return a number that compares like `value` with every value of a column; the exact one would have millions of digits."""
    if not value:
        return Fraction(0)
    size = Fraction(10) ** (1000 if value.adjusted() > 0 else -1000)
    return size if value > 0 else -size


def _micros(name: Operand, value: Any, type_: pa.DataType) -> int:
    if isinstance(value, datetime):
        utc_value = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (utc_value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days * _MICROS_A_DAY
    if isinstance(value, str):
        return parse_timestamp_micros(value)
    raise _bad_literal(name, value, type_)


def bind_to_family(name: Operand, value: Any, type_: pa.DataType) -> Value:
    """Convert a literal to a type whose values are not evenly spaced; numbers are rounded to floating point.

    Raises:
        InvalidRequest: The literal cannot be compared with the type.
    """
    types = pa.types
    if types.is_boolean(type_) and isinstance(value, bool):
        return value
    if is_string_like(type_) and isinstance(value, str):
        return value
    if is_binary_like(type_) and isinstance(value, bytes):
        return value
    if types.is_floating(type_) and isinstance(value, str) and value in _FLOAT_TEXTS:
        return _FLOAT_TEXTS[value]
    if types.is_floating(type_) and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if value != value:
            return math.nan
        try:
            number = float(value)
        except OverflowError:
            number = math.inf if value > 0 else -math.inf
        if types.is_float32(type_):
            with np.errstate(over="ignore"):
                number = float(np.float32(number))
        # -0.0 and 0.0 are bound as 0.0.
        return number or 0.0
    raise _bad_literal(name, value, type_)


def _bad_literal(name: Operand, value: Any, type_: pa.DataType) -> InvalidRequest:
    return InvalidRequest(f"{_describe_operand(name)} of type {type_} cannot be compared with {value!r} ({type(value).__name__})")


MAX_LISTED = 64
"""Maximum length of an IN list whose values are compared with a range one by one; for longer lists only the minimum and
maximum are.
"""
