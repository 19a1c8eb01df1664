"""Filters, bound to a schema, then run on rows, statistics and partition values.

Steps:
1. `parse_filter` gives a tree of Expr: SQL text, a list of tuples (all must hold: `[("city", "=", "sf")]`) or a list of such
   lists (any may hold).
2. `bind` looks up columns and turns each literal into a value of its column's type, exactly: a comparison of a whole number
   with 1.5 is moved to the next whole number, one with a number out of range becomes known.  Everything below takes a bound
   tree, or a schema to bind it to.
3. `to_arrow` for rows, `to_spark_sql` for Spark, `prune_values` for a partition, `prune_ranges` for a file.

Logic is SQL's: a comparison with null is unknown, and a row is kept when the whole is true.  Floating point is compared as
Spark compares it: NaN equals NaN and is above every number, and -0.0 equals 0.0.  Text is compared by UTF-8 bytes.  A time
without a zone is UTC.  In LIKE, % is any text, _ one character, and a backslash takes the next character as it is.

Pruning works on sets of outcomes: a leaf says which of true, false, unknown some row may have, and AND, OR, NOT combine them.
What is not known may have any.  So a file is dropped only when no row can be true.

What is not done: functions, arithmetic, comparing two columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal, InvalidRequest
from pyhudi.records.filter_text import micros_of_text, parse_filter
from pyhudi.records.filter_tree import Always, And, Compare, Constant, Expr, In, IsNull, Like, Not, Or
from pyhudi.records.schema import field_at
from pyhudi.records.stats import ColumnRange, Value, decimal_of, stored_value
from pyhudi.records.text import is_binary_like, is_string_like

__all__ = (
    "Always",
    "And",
    "Compare",
    "Constant",
    "Expr",
    "In",
    "IsNull",
    "Like",
    "Not",
    "Or",
    "arrow_scalar",
    "bind",
    "columns",
    "key_literals",
    "parse_filter",
    "prune_ranges",
    "prune_values",
    "row_filter",
    "to_arrow",
    "to_spark_sql",
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS_A_DAY = 86_400_000_000
_FLOAT_TEXTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


# ---------------------------------------------------------------------------------------------------------------------
# Public functions


def columns(expr: Expr) -> tuple[str, ...]:
    """The dotted names of the columns that a filter reads, each once, in order of appearance."""
    found: dict[str, None] = {}
    for leaf in _leaves(expr):
        if not isinstance(leaf, Constant):
            found[leaf.column] = None  # type: ignore[attr-defined]
    return tuple(found)


def bind(expr: Expr, schema: pa.Schema) -> Expr:
    """The same filter with each literal as a value of its column's type; a bound one is bound anew.

    schema: canonical types.  Text is taken for dates (`2024-05-06`) and timestamps, a date for a timestamp at midnight UTC.
    Raises InvalidRequest for a column that is missing (with the nearest name) or cannot be compared with the literal.
    """
    if isinstance(expr, (And, Or)):
        return _listed(type(expr)(tuple(bind(part, schema) for part in expr.parts)))
    if isinstance(expr, Not):
        return Not(bind(expr.part, schema))
    if isinstance(expr, Constant):
        return expr
    if isinstance(expr, (IsNull, Always)):
        field_at(schema, expr.column)
        return expr
    if isinstance(expr, Compare):
        return expr if expr.type is not None else _bind_compare(expr, _column_type(schema, expr.column))
    if isinstance(expr, In):
        return expr if expr.type is not None else _bind_in(expr, _column_type(schema, expr.column))
    if isinstance(expr, Like):
        type_ = _column_type(schema, expr.column)
        if not is_string_like(type_):
            raise InvalidRequest(f"LIKE takes text, and column {expr.column!r} has type {type_}")
        _pieces(expr.pattern)
        return replace(expr, type=type_)
    raise Internal(f"unknown filter node {type(expr).__name__}")


def to_arrow(expr: Expr, schema: pa.Schema) -> pc.Expression:
    """An Arrow expression that is true for exactly the rows that the filter keeps; for the others false or null.

    Comparisons stay comparisons, so that Arrow's own readers prune row groups by it.  Errors as of `bind`.
    """
    return _arrow(_pushed(bind(expr, schema), False))


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter to be run on rows.  Arrow walks down the tree of an expression until the stack ends, so a very large one is run in
    parts: rows that all of them keep, or any.
    """

    expression: pc.Expression | None
    parts: tuple[RowFilter, ...] = ()
    is_any: bool = False

    def keep(self, rows: pa.Table) -> pa.Table:
        """The rows for which the filter is true, in their order.  Raises Arrow's errors for columns that are not there."""
        return rows.filter(self.expression) if self.expression is not None else rows.take(pa.array(self._places(rows)))

    def _places(self, rows: pa.Table) -> npt.NDArray[Any]:
        if self.expression is not None:
            numbered = rows.append_column(_ROW_NUMBER, pa.array(np.arange(rows.num_rows)))
            return np.asarray(numbered.filter(self.expression).column(_ROW_NUMBER).to_numpy())
        kept = np.full(rows.num_rows, not self.is_any)
        for part in self.parts:
            mine = np.zeros(rows.num_rows, dtype=np.bool_)
            mine[part._places(rows)] = True
            kept = kept | mine if self.is_any else kept & mine
        return np.flatnonzero(kept)


def row_filter(expr: Expr, schema: pa.Schema) -> RowFilter:
    """The same as `to_arrow`, for filters of any size.  Errors as of `bind`."""
    return _in_parts(_pushed(bind(expr, schema), False))


def to_spark_sql(expr: Expr, schema: pa.Schema) -> str:
    """A Spark SQL condition of the same meaning, for the same columns, whatever the session's time zone is."""
    return _spark(bind(expr, schema))


def prune_values(expr: Expr, values: Mapping[str, Any]) -> bool:
    """Whether a row with these column values may match; a column that is not named may have any value.

    expr: bound; values: by dotted name, Arrow scalars or Python values in stored form, None for null.
    """
    known = {name: stored_value(value) if isinstance(value, pa.Scalar) else value for name, value in values.items()}
    return bool(outcomes(expr, lambda leaf: _value_outcomes(leaf, known), 0) & TRUE)


def prune_ranges(expr: Expr, ranges: Mapping[str, ColumnRange]) -> bool:
    """Whether a file whose columns have these ranges may hold a matching row; a column without a range may hold anything.

    expr: bound; ranges: by dotted name.  Bounds may lie further out than the values; text bounds may be the least and
    greatest by bytes or by UTF-16 units.  A range without bounds says nothing of the values, even when all are counted as
    null: Hudi also counts so when a file has no statistics.
    """
    return bool(outcomes(expr, lambda leaf: _range_outcomes(leaf, ranges), 0) & TRUE)


def key_literals(expr: Expr, column: str) -> list[Any] | None:
    """The only values that the column can have where the filter is true, each once; None when it may have any.

    Values are in stored form for a bound filter, as given otherwise.  An empty list: no row can match.
    """
    if isinstance(expr, Compare) and expr.column == column and expr.op == "=":
        return list(_equal_values(expr.value))
    if isinstance(expr, In) and expr.column == column:
        return [value for equal in dict.fromkeys(expr.values) for value in _equal_values(equal)]
    if isinstance(expr, Constant) and not expr.value:
        return []
    if isinstance(expr, Always) and expr.column == column and not expr.outcome:
        return []
    if isinstance(expr, And):
        lists = [found for found in (key_literals(part, column) for part in expr.parts) if found is not None]
        if not lists:
            return None
        others = [frozenset(found) for found in lists[1:]]
        return [value for value in lists[0] if all(value in other for other in others)]
    if isinstance(expr, Or):
        found = [key_literals(part, column) for part in expr.parts]
        if any(part is None for part in found):
            return None
        distinct = dict.fromkeys(value for part in found if part is not None for value in part)
        return [value for equal in distinct for value in _equal_values(equal)]
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Binding


def _column_type(schema: pa.Schema, name: str) -> pa.DataType:
    type_ = field_at(schema, name).type
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_nested(type_):
        raise InvalidRequest(f"column {name!r} of type {type_} can only be tested with IS NULL")
    return type_


def _bind_compare(expr: Compare, type_: pa.DataType) -> Expr:
    grid = _grid(type_)
    if grid is None:
        value = _same_family(expr.column, expr.value, type_)
        if value != value:
            return _bind_nan(expr, type_)
        return replace(expr, value=value, type=type_)
    wanted = _position(expr.column, expr.value, type_, grid)
    if isinstance(wanted, bool):
        # An infinite literal stands above (True) or below (False) every value.
        is_true = {"=": False, "<>": True, "<": wanted, "<=": wanted, ">": not wanted, ">=": not wanted}
        return Always(expr.column, is_true[expr.op])
    low, high = grid.low, grid.high
    below, above = math.floor(wanted), math.ceil(wanted)
    if expr.op in ("=", "<>"):
        if below != above or not low <= below <= high:
            return Always(expr.column, expr.op == "<>")
        bound = below
    elif expr.op in ("<", ">="):
        # x < 1.5 is x < 2, and x >= 1.5 is x >= 2.
        bound = above
        if bound > high or bound <= low:
            return Always(expr.column, (bound > high) == (expr.op == "<"))
    else:
        # x <= 1.5 is x <= 1, and x > 1.5 is x > 1.
        bound = below
        if bound >= high or bound < low:
            return Always(expr.column, (bound >= high) == (expr.op == "<="))
    return replace(expr, value=grid.value(bound), type=type_)


def _listed(expr: And | Or) -> Expr:
    """A bound filter in which very many equalities of one column under OR, or inequalities under AND, stand as one list."""
    op = "=" if isinstance(expr, Or) else "<>"
    values: dict[str, list[Any]] = {}
    for part in expr.parts:
        if isinstance(part, Compare) and part.op == op:
            values.setdefault(part.column, []).append(part.value)
    long = {column for column, found in values.items() if len(found) > MAX_LISTED}
    if not long:
        return expr
    parts: list[Expr] = []
    for part in expr.parts:
        if not (isinstance(part, Compare) and part.op == op and part.column in long):
            parts.append(part)
        elif part.column in values:
            list_ = In(part.column, tuple(dict.fromkeys(values.pop(part.column))), False, part.type)
            parts.append(list_ if op == "=" else Not(list_))
    return parts[0] if len(parts) == 1 else type(expr)(tuple(parts))


def _bind_nan(expr: Compare, type_: pa.DataType) -> Expr:
    """A comparison with NaN, which nothing is above: as one of = and <>, or known."""
    if expr.op in ("<=", ">"):
        return Always(expr.column, expr.op == "<=")
    return replace(expr, op="=" if expr.op in ("=", ">=") else "<>", value=math.nan, type=type_)


def _bind_in(expr: In, type_: pa.DataType) -> Expr:
    values: list[Any] = []
    for value in expr.values:
        bound = _bind_compare(Compare(expr.column, "=", value), type_)
        if isinstance(bound, Compare):
            values.append(bound.value)
    return replace(expr, values=tuple(dict.fromkeys(values)), type=type_)


@dataclass(frozen=True, slots=True)
class _Grid:
    """A type whose values are evenly spaced: each is a whole number from low to high, times 1 / 10**scale for decimals."""

    low: int
    high: int
    scale: int | None = None

    def value(self, position: int) -> Value:
        return position if self.scale is None else decimal_of(position, self.scale)


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


def _position(name: str, value: Any, type_: pa.DataType, grid: _Grid) -> Fraction | bool:
    """Where a literal stands on the grid, exactly; True above and False below everything (infinity)."""
    types = pa.types
    if types.is_date32(type_) or types.is_timestamp(type_):
        micros = _micros(name, value, type_)
        return Fraction(micros, _MICROS_A_DAY) if types.is_date32(type_) else Fraction(micros)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _bad_literal(name, value, type_)
    if value != value:
        # As a number that no column of the type holds, it is above everything, too.
        return True
    if isinstance(value, (float, Decimal)) and math.isinf(value):
        return bool(value > 0)
    exact = Fraction(value) if not isinstance(value, Decimal) or abs(value.adjusted()) < 1000 else _far_decimal(value)
    return Fraction(exact * 10 ** (grid.scale or 0))


def _far_decimal(value: Decimal) -> Fraction:
    """Something on the same side of every value of a column; the number itself would have millions of digits."""
    if not value:
        return Fraction(0)
    size = Fraction(10) ** (1000 if value.adjusted() > 0 else -1000)
    return size if value > 0 else -size


def _micros(name: str, value: Any, type_: pa.DataType) -> int:
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days * _MICROS_A_DAY
    if isinstance(value, str):
        return micros_of_text(value)
    raise _bad_literal(name, value, type_)


def _same_family(name: str, value: Any, type_: pa.DataType) -> Value:
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
        # One zero stands for both.
        return number or 0.0
    raise _bad_literal(name, value, type_)


def _bad_literal(name: str, value: Any, type_: pa.DataType) -> InvalidRequest:
    return InvalidRequest(f"column {name!r} of type {type_} cannot be compared with {value!r} ({type(value).__name__})")


# ---------------------------------------------------------------------------------------------------------------------
# Walking


def _leaves(expr: Expr) -> Iterable[Expr]:
    if isinstance(expr, (And, Or)):
        for part in expr.parts:
            yield from _leaves(part)
    elif isinstance(expr, Not):
        yield from _leaves(expr.part)
    else:
        yield expr


def _pushed(expr: Expr, negated: bool) -> Expr:
    """The same filter with NOT on leaves alone, and only where no opposite leaf exists.

    Above such leaves there are only AND and OR, under which unknown may be taken for false without changing what is true.
    """
    if isinstance(expr, Not):
        return _pushed(expr.part, not negated)
    if isinstance(expr, (And, Or)):
        kind = (Or if isinstance(expr, And) else And) if negated else type(expr)
        return kind(tuple(_pushed(part, negated) for part in expr.parts))
    if not negated:
        return expr
    if isinstance(expr, Constant):
        return Constant(None if expr.value is None else not expr.value)
    if isinstance(expr, Always):
        return replace(expr, outcome=not expr.outcome)
    if isinstance(expr, Compare):
        return replace(expr, op=NEGATED[expr.op])
    return Not(expr)


# ---------------------------------------------------------------------------------------------------------------------
# Arrow


_LARGEST_EXPRESSION = 512
"""Conditions in an expression for Arrow; a stack of 8 MiB ends at some thousands."""

_ROW_NUMBER = "\x00place"
"""A column that no table has."""


def _in_parts(expr: Expr) -> RowFilter:
    if not isinstance(expr, (And, Or)) or sum(1 for _ in _leaves(expr)) <= _LARGEST_EXPRESSION:
        return RowFilter(_arrow(expr))
    parts: list[RowFilter] = []
    small: list[Expr] = []
    count = 0
    for part in expr.parts:
        size = sum(1 for _ in _leaves(part))
        if size > _LARGEST_EXPRESSION:
            parts.append(_in_parts(part))
            continue
        if count + size > _LARGEST_EXPRESSION:
            parts.append(RowFilter(_arrow(type(expr)(tuple(small)))))
            small, count = [], 0
        small.append(part)
        count += size
    if small:
        parts.append(RowFilter(_arrow(type(expr)(tuple(small)))))
    return RowFilter(None, tuple(parts), isinstance(expr, Or))


Part = TypeVar("Part")


def _in_pairs(parts: list[Part], join: Callable[[Part, Part], Part]) -> Part:
    """One of many, joined as a tree of the least depth: Arrow and Spark walk down a chain of thousands until the stack ends."""
    while len(parts) > 1:
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [join(left, right) for left, right in zip(parts[::2], parts[1::2], strict=False)] + odd
    return parts[0]


def _arrow(expr: Expr) -> pc.Expression:
    if isinstance(expr, And):
        return _in_pairs([_arrow(part) for part in expr.parts], lambda left, right: left & right)
    if isinstance(expr, Or):
        return _in_pairs([_arrow(part) for part in expr.parts], lambda left, right: left | right)
    if isinstance(expr, Not):
        inner = expr.part
        if isinstance(inner, In):
            return _arrow_not_in(inner)
        return ~_arrow(inner)
    if isinstance(expr, Constant):
        return pc.scalar(bool(expr.value))
    if isinstance(expr, IsNull):
        return _reference(expr.column).is_null()
    if isinstance(expr, Always):
        return _reference(expr.column).is_valid() if expr.outcome else pc.scalar(False)
    if isinstance(expr, Compare):
        return _arrow_comparison(expr)
    if isinstance(expr, In):
        if not expr.values:
            return pc.scalar(False)
        return _reference(expr.column).isin(_value_set(expr))
    if isinstance(expr, Like):
        prefix, exact = like_prefix(expr.pattern)
        if exact:
            return _reference(expr.column) == pa.scalar(prefix)
        if _is_prefix_pattern(expr.pattern):
            return pc.starts_with(_reference(expr.column), pattern=prefix)
        return pc.match_substring_regex(_reference(expr.column), pattern=_regex(expr.pattern))
    raise Internal(f"unknown filter node {type(expr).__name__}")


_ARROW_OPERATORS: Mapping[str, Callable[[pc.Expression, pa.Scalar], pc.Expression]] = {
    "=": lambda column, value: column == value,
    "<>": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}


def _arrow_comparison(expr: Compare) -> pc.Expression:
    column = _reference(expr.column)
    if expr.value != expr.value:
        return pc.is_nan(column) if expr.op == "=" else ~pc.is_nan(column)
    test = _ARROW_OPERATORS[expr.op](column, arrow_scalar(expr.value, expr.type))
    # To Arrow no comparison with NaN is true but <>.
    return test | pc.is_nan(column) if expr.op in (">", ">=") and pa.types.is_floating(expr.type) else test


def _arrow_not_in(expr: In) -> pc.Expression:
    if expr.has_null:
        # x NOT IN (1, NULL) is false or unknown.
        return pc.scalar(False)
    column = _reference(expr.column)
    return column.is_valid() & ~column.isin(_value_set(expr)) if expr.values else column.is_valid()


def _value_set(expr: In) -> pa.Array:
    scalars = [arrow_scalar(value, expr.type) for number in expr.values for value in _equal_values(number)]
    return pa.array(scalars, expr.type)


def _equal_values(value: Any) -> tuple[Any, ...]:
    """The values that compare equal but look different: hash lookups and record keys tell -0.0 from 0.0."""
    return (0.0, -0.0) if isinstance(value, float) and value == 0.0 else (value,)


def _reference(name: str) -> pc.Expression:
    return pc.field(*name.split("."))


def arrow_scalar(value: Value, type_: pa.DataType | None) -> pa.Scalar:
    """A value in stored form (see stats.py) as an Arrow scalar of its column's type."""
    if type_ is None:
        raise Internal("the filter is not bound to a schema")
    if pa.types.is_timestamp(type_):
        return pa.scalar(value, pa.int64()).cast(pa.timestamp("us", type_.tz)).cast(type_)
    if pa.types.is_date32(type_):
        return pa.scalar(value, pa.int32()).cast(type_)
    return pa.scalar(value, type_)


# ---------------------------------------------------------------------------------------------------------------------
# LIKE


def _pieces(pattern: str) -> list[tuple[str, bool]]:
    """The pattern as (text, False) for literal characters and (%, True), (_, True) for wildcards."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            if position + 1 == len(pattern):
                raise InvalidRequest(f"the pattern {pattern!r} ends in a backslash")
            pieces.append((pattern[position + 1], False))
            position += 2
            continue
        pieces.append((char, char in "%_"))
        position += 1
    return pieces


def like_prefix(pattern: str) -> tuple[str, bool]:
    """The text before the first wildcard, and whether there is none."""
    text = ""
    for char, wild in _pieces(pattern):
        if wild:
            return text, False
        text += char
    return text, True


def _is_prefix_pattern(pattern: str) -> bool:
    wilds = [char for char, wild in _pieces(pattern) if wild]
    pieces = _pieces(pattern)
    return wilds == ["%"] and pieces[-1] == ("%", True)


def _regex(pattern: str) -> str:
    body = "".join({"%": ".*", "_": "."}[char] if wild else _quoted(char) for char, wild in _pieces(pattern))
    return f"(?s)^{body}\\z"


def _quoted(char: str) -> str:
    # RE2 and Python agree on a backslash before ASCII punctuation; letters and other characters stand for themselves.
    return "\\" + char if char.isascii() and not char.isalnum() and char.isprintable() and char != " " else char


def _matches(pattern: str, text: str) -> bool:
    body = "".join({"%": ".*", "_": "."}[char] if wild else re.escape(char) for char, wild in _pieces(pattern))
    return re.fullmatch(body, text, re.DOTALL) is not None


# ---------------------------------------------------------------------------------------------------------------------
# Spark


_LONGEST_CHAIN = 16


def _spark(expr: Expr) -> str:
    if isinstance(expr, (And, Or)):
        word = " AND " if isinstance(expr, And) else " OR "
        groups = [
            word.join(map(_spark, expr.parts[at : at + _LONGEST_CHAIN])) for at in range(0, len(expr.parts), _LONGEST_CHAIN)
        ]
        return _in_pairs([f"({group})" for group in groups], lambda left, right: f"({left}{word}{right})")
    if isinstance(expr, Not):
        return f"(NOT {_spark(expr.part)})"
    if isinstance(expr, Constant):
        return {True: "TRUE", False: "FALSE", None: "CAST(NULL AS BOOLEAN)"}[expr.value]
    name = ".".join("`" + part.replace("`", "``") + "`" for part in expr.column.split("."))  # type: ignore[attr-defined]
    if isinstance(expr, IsNull):
        return f"({name} IS NULL)"
    if isinstance(expr, Always):
        return (
            f"(({name} IS NOT NULL) OR CAST(NULL AS BOOLEAN))"
            if expr.outcome
            else f"(({name} IS NULL) AND CAST(NULL AS BOOLEAN))"
        )
    if isinstance(expr, Compare):
        return _spark_comparison(name, expr)
    if isinstance(expr, In):
        zero = _is_zero(expr)
        values = [_spark_literal(value, expr.type) for value in expr.values if not (zero and value == 0.0)]
        values += ["NULL"] if expr.has_null else []
        listed = f"({name} IN ({', '.join(values)}))" if values else _spark(Always(expr.column, False))
        return f"({listed} OR {_spark_comparison(name, Compare(expr.column, '=', 0.0, expr.type))})" if zero else listed
    if isinstance(expr, Like):
        return f"({name} LIKE {_spark_text(expr.pattern)})"
    raise Internal(f"unknown filter node {type(expr).__name__}")


def _spark_comparison(name: str, expr: Compare) -> str:
    """Spark takes both zeros for one, but not where it asks the dictionary of a Parquet file, nor in a long IN list.

    So zeros are named as the ends of a range, each with the sign that is further out.
    """
    if pa.types.is_floating(expr.type) and expr.value == 0.0:
        low, high = (_spark_literal(zero, expr.type) for zero in (-0.0, 0.0))
        if expr.op in ("=", "<>"):
            first, word, second = (">=", "AND", "<=") if expr.op == "=" else ("<", "OR", ">")
            return f"(({name} {first} {low}) {word} ({name} {second} {high}))"
        return f"({name} {expr.op} {low if expr.op in ('<', '>=') else high})"
    return f"({name} {expr.op} {_spark_literal(expr.value, expr.type)})"


def _is_zero(expr: In) -> bool:
    return pa.types.is_floating(expr.type) and 0.0 in expr.values


def _spark_literal(value: Any, type_: pa.DataType | None) -> str:
    types = pa.types
    if type_ is None:
        raise Internal("the filter is not bound to a schema")
    if types.is_timestamp(type_):
        return f"timestamp_micros({_spark_long(value)})"
    if types.is_date32(type_):
        return f"date_from_unix_date({value})"
    if types.is_decimal(type_):
        return f"CAST('{value:f}' AS DECIMAL({type_.precision}, {type_.scale}))"
    if types.is_floating(type_):
        text = repr(value) if value == value else "NaN"
        return f"CAST('{text}' AS {'FLOAT' if types.is_float32(type_) else 'DOUBLE'})"
    if types.is_boolean(type_):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return _spark_text(value)
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return _spark_long(value) if types.is_int64(type_) else str(value)


def _spark_long(value: Any) -> str:
    # The smallest long cannot be written as a literal: its digits alone are out of range.
    return f"{value}L" if value != -(1 << 63) else "(-9223372036854775807L - 1L)"


def _spark_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# ---------------------------------------------------------------------------------------------------------------------
# Pruning: sets of outcomes as bits

MAX_LISTED = 64
"""Of longer IN lists the least and the greatest value are compared with a range, and no value between them."""

TRUE, FALSE, UNKNOWN = 1, 2, 4
"""What a row may come out as; a set of outcomes is the sum of its bits."""
ANY = TRUE | FALSE | UNKNOWN

Outcomes = TypeVar("Outcomes", int, npt.NDArray[Any])


def outcomes(expr: Expr, leaf: Callable[[Expr], Outcomes], none: Outcomes) -> Outcomes:
    """The outcomes of a filter, from those of its leaves: one set, or an array of sets when the leaves give arrays.

    none: zero, in the form that the leaves have.
    """
    if isinstance(expr, Not):
        return _swapped(outcomes(expr.part, leaf, none))
    if isinstance(expr, And):
        result = none | TRUE
        for part in expr.parts:
            result = _both(result, outcomes(part, leaf, none))
        return result
    if isinstance(expr, Or):
        # a OR b is NOT (NOT a AND NOT b), in three-valued logic, too.
        result = none | TRUE
        for part in expr.parts:
            result = _both(result, _swapped(outcomes(part, leaf, none)))
        return _swapped(result)
    if isinstance(expr, Constant):
        constant: Outcomes = none | _outcome(expr.value)
        return constant
    return leaf(expr)


def _swapped(found: Outcomes) -> Outcomes:
    return (found & UNKNOWN) | ((found & TRUE) << 1) | ((found & FALSE) >> 1)


def _both(left: Outcomes, right: Outcomes) -> Outcomes:
    # With false on either side the whole is false; it is unknown when a side is, and the other can be true or unknown.
    is_open = ((left | left >> 2) & 1) & ((right | right >> 2) & 1)
    result: Outcomes = ((left | right) & FALSE) | (left & right & TRUE) | ((is_open & ((left | right) >> 2)) << 2)
    return result


def _outcome(value: bool | None) -> int:
    return UNKNOWN if value is None else TRUE if value else FALSE


def _value_outcomes(leaf: Expr, values: Mapping[str, Any]) -> int:
    name: str = leaf.column  # type: ignore[attr-defined]
    if name not in values:
        return ANY
    value = values[name]
    if isinstance(leaf, IsNull):
        return _outcome(value is None)
    if value is None:
        return UNKNOWN
    if isinstance(leaf, Always):
        return _outcome(leaf.outcome)
    _require_bound(leaf)
    if isinstance(leaf, Compare):
        return _outcome(_PYTHON_OPERATORS[leaf.op](value, leaf.value))
    if isinstance(leaf, In):
        found = value in leaf.values or (value != value and any(literal != literal for literal in leaf.values))
        return _outcome(True if found else None if leaf.has_null else False)
    if isinstance(leaf, Like):
        return _outcome(_matches(leaf.pattern, value))
    raise Internal(f"unknown filter node {type(leaf).__name__}")


def rank(value: Any) -> tuple[bool, Any]:
    """A sort key by which values in stored form compare as in a filter: NaN equals itself and is above all."""
    is_nan = value != value
    return (is_nan, None if is_nan else value)


_PYTHON_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda value, literal: rank(value) == rank(literal),
    "<>": lambda value, literal: rank(value) != rank(literal),
    "<": lambda value, literal: rank(value) < rank(literal),
    "<=": lambda value, literal: rank(value) <= rank(literal),
    ">": lambda value, literal: rank(value) > rank(literal),
    ">=": lambda value, literal: rank(value) >= rank(literal),
}


def _require_bound(leaf: Expr) -> None:
    if leaf.type is None:  # type: ignore[attr-defined]
        raise Internal("the filter is not bound to a schema")


def _range_outcomes(leaf: Expr, ranges: Mapping[str, ColumnRange]) -> int:
    found = ranges.get(leaf.column)  # type: ignore[attr-defined]
    if found is None:
        return ANY
    nulls = UNKNOWN if found.null_count is None or found.null_count > 0 else 0
    # Counted as all null without bounds may also mean that nothing was counted.
    values_known = found.min is not None
    if isinstance(leaf, IsNull):
        no_value = values_known and found.is_all_null
        return (TRUE if nulls else 0) | (0 if no_value else FALSE)
    if isinstance(leaf, Always):
        return nulls | _outcome(leaf.outcome)
    _require_bound(leaf)
    if not values_known or found.min is None or found.max is None:
        return nulls | TRUE | FALSE | (UNKNOWN if isinstance(leaf, In) and leaf.has_null else 0)
    if isinstance(leaf, Compare):
        return nulls | _compare_outcomes(leaf.op, leaf.value, found)
    if isinstance(leaf, In) and len(leaf.values) > MAX_LISTED:
        return nulls | _listed_outcomes(leaf, found)
    if isinstance(leaf, In):
        each = [_compare_outcomes("=", value, found) for value in leaf.values]
        may_match = any(outcome & TRUE for outcome in each)
        may_miss = not any(outcome == TRUE for outcome in each)
        miss = UNKNOWN if leaf.has_null else FALSE
        return nulls | (TRUE if may_match else 0) | (miss if may_miss else 0)
    if isinstance(leaf, Like):
        return nulls | FALSE | (TRUE if _may_start(like_prefix(leaf.pattern)[0], found) else 0)
    raise Internal(f"unknown filter node {type(leaf).__name__}")


def _listed_outcomes(leaf: In, found: ColumnRange) -> int:
    """A long list is taken for the range that it spans."""
    miss = UNKNOWN if leaf.has_null else FALSE
    if any(isinstance(value, str) and not orders_agree(value) for value in leaf.values):
        return TRUE | miss
    above = _compare_outcomes(">=", min(leaf.values, key=rank), found)
    below = _compare_outcomes("<=", max(leaf.values, key=rank), found)
    return (above & below & TRUE) | miss


def _compare_outcomes(op: str, literal: Any, found: ColumnRange) -> int:
    """The outcomes of comparing some value of a range with a literal."""
    low, high = found.min, found.max
    if isinstance(literal, str) and not orders_agree(literal):
        return TRUE | FALSE
    # Some writers state NaN as the smallest value of columns that hold numbers, too.
    low_open = isinstance(low, float) and math.isnan(low)
    below = low_open or _PYTHON_OPERATORS["<"](low, literal)
    above = _PYTHON_OPERATORS[">"](high, literal)
    at = (low_open or _PYTHON_OPERATORS["<="](low, literal)) and _PYTHON_OPERATORS[">="](high, literal)
    true_when = {"=": at, "<>": below or above, "<": below, "<=": below or at, ">": above, ">=": above or at}
    opposite = true_when[NEGATED[op]]
    return (TRUE if true_when[op] else 0) | (FALSE if opposite else 0)


def orders_agree(text: str) -> bool:
    """Whether comparing with this text gives the same by UTF-8 bytes and by UTF-16 units, whatever the other text is."""
    return all(char < "\ud800" for char in text)


def _may_start(prefix: str, found: ColumnRange) -> bool:
    low, high = found.min, found.max
    if not isinstance(low, str) or not isinstance(high, str) or not orders_agree(prefix):
        return True
    return low[: len(prefix)] <= prefix and high >= prefix
