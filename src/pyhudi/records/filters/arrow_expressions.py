"""Evaluate filters on rows, as Arrow compute expressions.

Floating point is compared as in Spark: NaN equals NaN and is above every number, and -0.0 equals 0.0. Strings are
compared by UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal, Unsupported
from pyhudi.records.column_statistics import Value
from pyhudi.records.dotted_columns import column_at
from pyhudi.records.filters.binding import bind
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
from pyhudi.records.filters.filter_visitor import calls, equal_values, join_in_pairs, leaf_conditions, push_negations
from pyhudi.records.filters.like_patterns import is_prefix_pattern, like_prefix, like_regex


def to_arrow(expr: Expr, schema: pa.Schema) -> pc.Expression:
    """Convert a filter to an Arrow expression that is true for exactly the matching rows; false or null for others.

    Comparisons remain comparisons, so that Arrow's readers can prune row groups by the expression.

    Raises:
        InvalidRequest: As `bind`.
        Unsupported: The filter calls functions, for which Arrow's expressions differ from Spark.
    """
    bound = bind(expr, schema)
    computed = calls(bound)
    if computed:
        raise Unsupported(f"{computed[0]} is not supported in an Arrow expression: apply the filter to rows")
    return _arrow(push_negations(bound))


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter to evaluate on rows.

    Arrow recurses over an expression tree and overflows the stack for very large ones, so these are evaluated in parts.

    Attributes:
        expression: Arrow expression; None for a filter in parts.
        parts: Filters that are combined.
        is_any: True to combine the parts by OR, False by AND.
        computed: Function calls whose results the expression references as columns.
    """

    expression: pc.Expression | None
    parts: tuple[RowFilter, ...] = ()
    is_any: bool = False
    computed: tuple[FunctionCall, ...] = ()

    def select(self, rows: pa.Table) -> pa.Table:
        """Return the matching rows, in order. Raises Arrow's errors for missing columns."""
        if self.expression is not None and not self.computed:
            return rows.filter(self.expression)
        return rows.take(pa.array(self._places(rows)))

    def _places(self, rows: pa.Table) -> npt.NDArray[Any]:
        if self.expression is not None:
            numbered = rows.append_column(_ROW_NUMBER, pa.array(np.arange(rows.num_rows)))
            for call in self.computed:
                numbered = numbered.append_column(_computed_name(call), computed_column(call, rows))
            return np.asarray(numbered.filter(self.expression).column(_ROW_NUMBER).to_numpy())
        matching = np.full(rows.num_rows, not self.is_any)
        for part in self.parts:
            part_matching = np.zeros(rows.num_rows, dtype=np.bool_)
            part_matching[part._places(rows)] = True
            matching = matching | part_matching if self.is_any else matching & part_matching
        return np.flatnonzero(matching)


def computed_column(call: FunctionCall, rows: pa.Table) -> pa.Array:
    """Evaluate a bound function call on rows."""

    def values_of(column: ColumnRef) -> pa.Array:
        values = column_at(rows, column.name)
        array = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
        return array if array.type == column.type else array.cast(column.type)

    return evaluate(call, values_of, rows.num_rows)


def _computed_name(call: FunctionCall) -> str:
    """Return the name of the column with the results of a call while rows are filtered; no table has such a name."""
    return f"\x00{call!r}"


def row_filter(expr: Expr, schema: pa.Schema) -> RowFilter:
    """Convert a filter of any size for evaluation on rows. Errors as in `bind`."""
    return _in_parts(push_negations(bind(expr, schema)))


_LARGEST_EXPRESSION = 512
"""Maximum number of conditions in one Arrow expression; a stack of 8 MiB overflows at some thousands."""

_ROW_NUMBER = "\x00place"
"""Column name that no table has."""


def _in_parts(expr: Expr) -> RowFilter:
    if not isinstance(expr, (And, Or)) or sum(1 for _ in leaf_conditions(expr)) <= _LARGEST_EXPRESSION:
        return _whole(expr)
    parts: list[RowFilter] = []
    small: list[Expr] = []
    count = 0
    for part in expr.parts:
        size = sum(1 for _ in leaf_conditions(part))
        if size > _LARGEST_EXPRESSION:
            parts.append(_in_parts(part))
            continue
        if count + size > _LARGEST_EXPRESSION:
            parts.append(_whole(type(expr)(tuple(small))))
            small, count = [], 0
        small.append(part)
        count += size
    if small:
        parts.append(_whole(type(expr)(tuple(small))))
    return RowFilter(None, tuple(parts), isinstance(expr, Or))


def _whole(expr: Expr) -> RowFilter:
    return RowFilter(_arrow(expr), computed=calls(expr))


def _arrow(expr: Expr) -> pc.Expression:
    if isinstance(expr, And):
        return join_in_pairs([_arrow(part) for part in expr.parts], lambda left, right: left & right)
    if isinstance(expr, Or):
        return join_in_pairs([_arrow(part) for part in expr.parts], lambda left, right: left | right)
    if isinstance(expr, Not):
        inner = expr.part
        if isinstance(inner, In):
            return _arrow_not_in(inner)
        return ~_arrow(inner)
    if isinstance(expr, Constant):
        return pc.scalar(bool(expr.value))
    if isinstance(expr, IsNull):
        return _reference(expr.column).is_null()
    if isinstance(expr, ConstantUnlessNull):
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
        if is_prefix_pattern(expr.pattern):
            return pc.starts_with(_reference(expr.column), pattern=prefix)
        return pc.match_substring_regex(_reference(expr.column), pattern=like_regex(expr.pattern))
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
    # In Arrow every comparison with NaN is false, except <>.
    floating = expr.type is not None and pa.types.is_floating(expr.type)
    return test | pc.is_nan(column) if expr.op in (">", ">=") and floating else test


def _arrow_not_in(expr: In) -> pc.Expression:
    if expr.has_null:
        # x NOT IN (1, NULL) is false or unknown.
        return pc.scalar(False)
    column = _reference(expr.column)
    return column.is_valid() & ~column.isin(_value_set(expr)) if expr.values else column.is_valid()


def _value_set(expr: In) -> pa.Array:
    scalars = [arrow_scalar(value, expr.type) for number in expr.values for value in equal_values(number)]
    return pa.array(scalars, expr.type)


def _reference(operand: Operand) -> pc.Expression:
    return pc.field(*operand.split(".")) if isinstance(operand, str) else pc.field(_computed_name(operand))


def arrow_scalar(value: Value, type_: pa.DataType | None) -> pa.Scalar:
    """Convert a value in stored form (see `records.column_statistics`) to an Arrow scalar of its column's type."""
    if type_ is None:
        raise Internal("the filter is not bound to a schema")
    if pa.types.is_timestamp(type_):
        return pa.scalar(value, pa.int64()).cast(pa.timestamp("us", type_.tz)).cast(type_)
    if pa.types.is_date32(type_):
        return pa.scalar(value, pa.int32()).cast(type_)
    return pa.scalar(value, type_)
