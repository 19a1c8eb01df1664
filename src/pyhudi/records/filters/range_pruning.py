"""Filters on partition values and on column statistics: what may be left out.

Pruning works on sets of outcomes: a leaf says which of true, false, unknown some row may have, and AND, OR, NOT combine them.
What is not known may have any.  So a file is dropped only when no row can be true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import Internal
from pyhudi.records.column_statistics import ColumnRange, Value, stored_value
from pyhudi.records.filters.arrow_expressions import arrow_scalar
from pyhudi.records.filters.binding import MAX_LISTED
from pyhudi.records.filters.filter_ast import (
    And,
    ColumnRef,
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
from pyhudi.records.filters.filter_functions import evaluate
from pyhudi.records.filters.filter_visitor import NEGATED
from pyhudi.records.filters.like_patterns import like_matches, like_prefix
from pyhudi.records.filters.monotonic_functions import derived_bounds, derived_column


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
    operand: Operand = leaf.column  # type: ignore[attr-defined]
    if isinstance(operand, FunctionCall):
        if any(column.name not in values for column in operand.columns()):
            return ANY
        value: Any = _called_on(operand, values)
    elif operand in values:
        value = values[operand]
    else:
        return ANY
    if isinstance(leaf, IsNull):
        return _outcome(value is None)
    if value is None:
        return UNKNOWN
    if isinstance(leaf, ConstantUnlessNull):
        return _outcome(leaf.outcome)
    _require_bound(leaf)
    if isinstance(leaf, Compare):
        return _outcome(_PYTHON_OPERATORS[leaf.op](value, leaf.value))
    if isinstance(leaf, In):
        found = value in leaf.values or (value != value and any(literal != literal for literal in leaf.values))
        return _outcome(True if found else None if leaf.has_null else False)
    if isinstance(leaf, Like):
        return _outcome(like_matches(leaf.pattern, value))
    raise Internal(f"unknown filter node {type(leaf).__name__}")


def _called_on(call: FunctionCall, values: Mapping[str, Any]) -> Value | None:
    """What a bound call makes of values in stored form."""

    def values_of(column: ColumnRef) -> pa.Array:
        value = values[column.name]
        return pa.nulls(1, column.type) if value is None else _one(value, column.type)

    return stored_value(evaluate(call, values_of, 1)[0])


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


def _range_of(operand: Operand, ranges: Mapping[str, ColumnRange]) -> ColumnRange | None:
    """What is known of an operand; of a call from the range of its column, where that says something of its results."""
    if isinstance(operand, str):
        return ranges.get(operand)
    column = derived_column(operand)
    source = None if column is None else ranges.get(column.name)
    if column is None or source is None or source.min is None or source.max is None:
        return None
    low, high = derived_bounds(operand, *(_one(bound, column.type) for bound in (source.min, source.max)))
    # Where a bound gives null, so may values between them.
    if not low[0].is_valid or not high[0].is_valid:
        return None
    return replace(source, min=stored_value(low[0]), max=stored_value(high[0]))


def _one(value: Value, type_: pa.DataType | None) -> pa.Array:
    return pa.array([arrow_scalar(value, type_).as_py()], type_)


def _range_outcomes(leaf: Expr, ranges: Mapping[str, ColumnRange]) -> int:
    found = _range_of(leaf.column, ranges)  # type: ignore[attr-defined]
    if found is None:
        return ANY
    nulls = UNKNOWN if found.null_count is None or found.null_count > 0 else 0
    # Counted as all null without bounds may also mean that nothing was counted.
    values_known = found.min is not None
    if isinstance(leaf, IsNull):
        no_value = values_known and found.is_all_null
        return (TRUE if nulls else 0) | (0 if no_value else FALSE)
    if isinstance(leaf, ConstantUnlessNull):
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
