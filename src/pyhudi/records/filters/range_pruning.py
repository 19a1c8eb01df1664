"""Data skipping: evaluate filters on partition values and column statistics.

Pruning computes sets of outcomes: a leaf returns which of true, false, unknown some row may have, and AND, OR, NOT
combine them. Without statistics all outcomes are possible. So a file is pruned only if no row can be true.
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
    """Return True if a row with these column values may match; a column without a value may have any value.

    Args:
        expr: Bound filter.
        values: Arrow scalars or Python values in stored form by dotted column name, None for null.
    """
    known = {name: stored_value(value) if isinstance(value, pa.Scalar) else value for name, value in values.items()}
    return bool(outcomes(expr, lambda leaf: _value_outcomes(leaf, known), 0) & TRUE)


def prune_ranges(expr: Expr, ranges: Mapping[str, ColumnRange]) -> bool:
    """Return True if a file with these column statistics may contain a matching row; a column without statistics may
    have any value.

    Bounds may be wider than the values. String bounds may be ordered by bytes or by UTF-16 units. A range without
    bounds implies nothing about the values, even if all are counted as null: Hudi also writes that if a file has no
    statistics.

    Args:
        expr: Bound filter.
        ranges: Statistics by dotted column name.
    """
    return bool(outcomes(expr, lambda leaf: _range_outcomes(leaf, ranges), 0) & TRUE)


TRUE, FALSE, UNKNOWN = 1, 2, 4
"""Possible outcomes of a row; a set of outcomes is the sum of its bits."""
ANY = TRUE | FALSE | UNKNOWN

Outcomes = TypeVar("Outcomes", int, npt.NDArray[Any])


def outcomes(expr: Expr, leaf: Callable[[Expr], Outcomes], none: Outcomes) -> Outcomes:
    """Combine the outcomes of a filter's leaves: one set, or an array of sets if the leaves return arrays.

    Args:
        expr: Filter.
        leaf: Returns the outcomes of a leaf.
        none: Zero, as an integer or array like the leaves' results.
    """
    if isinstance(expr, Not):
        return _swapped(outcomes(expr.part, leaf, none))
    if isinstance(expr, And):
        result = none | TRUE
        for part in expr.parts:
            result = _both(result, outcomes(part, leaf, none))
        return result
    if isinstance(expr, Or):
        # a OR b is NOT (NOT a AND NOT b), also in three-valued logic.
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
    # False on either side makes the result false. It is unknown if one side is and the other can be true or unknown.
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
        matches = value in leaf.values or (value != value and any(literal != literal for literal in leaf.values))
        return _outcome(True if matches else None if leaf.has_null else False)
    if isinstance(leaf, Like):
        return _outcome(like_matches(leaf.pattern, value))
    raise Internal(f"unknown filter node {type(leaf).__name__}")


def _called_on(call: FunctionCall, values: Mapping[str, Any]) -> Value | None:
    """Evaluate a bound call on values in stored form."""

    def values_of(column: ColumnRef) -> pa.Array:
        value = values[column.name]
        return pa.nulls(1, column.type) if value is None else _one(value, column.type)

    return stored_value(evaluate(call, values_of, 1)[0])


def rank(value: Any) -> tuple[bool, Any]:
    """Return a sort key that orders values in stored form as filters do: NaN equals itself and is above all."""
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
    """Return the statistics of an operand; those of a call are derived from its column, if it is monotonic."""
    if isinstance(operand, str):
        return ranges.get(operand)
    column = derived_column(operand)
    source = None if column is None else ranges.get(column.name)
    if column is None or source is None or source.min is None or source.max is None:
        return None
    low, high = derived_bounds(operand, *(_one(bound, column.type) for bound in (source.min, source.max)))
    # If the function of a bound is null, so may be values between the bounds.
    if not low[0].is_valid or not high[0].is_valid:
        return None
    return replace(source, min=stored_value(low[0]), max=stored_value(high[0]))


def _one(value: Value, type_: pa.DataType | None) -> pa.Array:
    return pa.array([arrow_scalar(value, type_).as_py()], type_)


def _range_outcomes(leaf: Expr, ranges: Mapping[str, ColumnRange]) -> int:
    column_range = _range_of(leaf.column, ranges)  # type: ignore[attr-defined]
    if column_range is None:
        return ANY
    nulls = UNKNOWN if column_range.null_count is None or column_range.null_count > 0 else 0
    # All null without bounds may also mean that no statistics were collected.
    values_known = column_range.min is not None
    if isinstance(leaf, IsNull):
        no_value = values_known and column_range.is_all_null
        return (TRUE if nulls else 0) | (0 if no_value else FALSE)
    if isinstance(leaf, ConstantUnlessNull):
        return nulls | _outcome(leaf.outcome)
    _require_bound(leaf)
    if not values_known or column_range.min is None or column_range.max is None:
        return nulls | TRUE | FALSE | (UNKNOWN if isinstance(leaf, In) and leaf.has_null else 0)
    if isinstance(leaf, Compare):
        return nulls | _compare_outcomes(leaf.op, leaf.value, column_range)
    if isinstance(leaf, In) and len(leaf.values) > MAX_LISTED:
        return nulls | _listed_outcomes(leaf, column_range)
    if isinstance(leaf, In):
        outcomes_by_value = [_compare_outcomes("=", value, column_range) for value in leaf.values]
        may_match = any(outcome & TRUE for outcome in outcomes_by_value)
        may_miss = not any(outcome == TRUE for outcome in outcomes_by_value)
        miss = UNKNOWN if leaf.has_null else FALSE
        return nulls | (TRUE if may_match else 0) | (miss if may_miss else 0)
    if isinstance(leaf, Like):
        return nulls | FALSE | (TRUE if _may_start(like_prefix(leaf.pattern)[0], column_range) else 0)
    raise Internal(f"unknown filter node {type(leaf).__name__}")


def _listed_outcomes(leaf: In, found: ColumnRange) -> int:
    """Return the outcomes of a long IN list, treated as the range that it spans."""
    miss = UNKNOWN if leaf.has_null else FALSE
    if any(isinstance(value, str) and not orders_agree(value) for value in leaf.values):
        return TRUE | miss
    above = _compare_outcomes(">=", min(leaf.values, key=rank), found)
    below = _compare_outcomes("<=", max(leaf.values, key=rank), found)
    return (above & below & TRUE) | miss


def _compare_outcomes(op: str, literal: Any, found: ColumnRange) -> int:
    """Return the outcomes of comparing the values of a range with a literal."""
    low, high = found.min, found.max
    if isinstance(literal, str) and not orders_agree(literal):
        return TRUE | FALSE
    # Some writers store NaN as the minimum of columns that contain numbers too.
    low_open = isinstance(low, float) and math.isnan(low)
    below = low_open or _PYTHON_OPERATORS["<"](low, literal)
    above = _PYTHON_OPERATORS[">"](high, literal)
    can_equal = (low_open or _PYTHON_OPERATORS["<="](low, literal)) and _PYTHON_OPERATORS[">="](high, literal)
    true_when = {"=": can_equal, "<>": below or above, "<": below, "<=": below or can_equal, ">": above, ">=": above or can_equal}
    opposite = true_when[NEGATED[op]]
    return (TRUE if true_when[op] else 0) | (FALSE if opposite else 0)


def orders_agree(text: str) -> bool:
    """Return True if comparing any string with this one gives the same result by UTF-8 bytes and by UTF-16 units."""
    return all(char < "\ud800" for char in text)


def _may_start(prefix: str, found: ColumnRange) -> bool:
    low, high = found.min, found.max
    if not isinstance(low, str) or not isinstance(high, str) or not orders_agree(prefix):
        return True
    return low[: len(prefix)] <= prefix and high >= prefix
