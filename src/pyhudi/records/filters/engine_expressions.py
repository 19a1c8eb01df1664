"""Convert filters to the expressions of an engine that evaluates them on the files which it reads itself.

Only conditions that the engine evaluates as `arrow_expressions` does are converted: comparisons, IN, IS NULL and prefixes
of top-level columns. NaN equals NaN and is above every number, and -0.0 equals 0.0, which both Polars and DuckDB apply.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import pyarrow as pa

from pyhudi.errors import Unsupported
from pyhudi.records.filters.arrow_expressions import arrow_scalar
from pyhudi.records.filters.filter_ast import And, Compare, Constant, ConstantUnlessNull, Expr, In, IsNull, Like, Not, Or
from pyhudi.records.filters.filter_visitor import leaf_conditions, push_negations
from pyhudi.records.filters.like_patterns import is_prefix_pattern, like_prefix

MAX_CONDITIONS = 512
"""Conditions of one expression. Engines recurse over an expression and overflow the stack on very large ones."""


class ExpressionBuilder(Protocol):
    """Expressions of an engine."""

    def compare(self, column: str, sign: str, value: pa.Scalar) -> Any:
        """The comparison of a column with a value that is not null. sign: one of = <> < <= > >=."""
        ...

    def is_in(self, column: str, values: list[pa.Scalar]) -> Any:
        """Whether a column equals one of some values, none of them null."""
        ...

    def is_null(self, column: str) -> Any:
        """Whether a column is null."""
        ...

    def starts_with(self, column: str, prefix: str) -> Any:
        """Whether a text column starts with a prefix."""
        ...

    def constant(self, value: bool) -> Any:  # noqa: FBT001
        """True or false for every row."""
        ...

    def negated(self, part: Any) -> Any:
        """The negation of an expression that is not null."""
        ...

    def joined(self, parts: Iterable[Any], *, is_any: bool) -> Any:
        """The parts joined by OR if `is_any`, else by AND."""
        ...


def to_engine(expr: Expr, builder: ExpressionBuilder) -> Any:
    """Convert a bound filter to an expression that is true for exactly the matching rows; false or null for others.

    Raises:
        Unsupported: The filter has a condition that engines may evaluate differently, or too many of them.
    """
    positive = push_negations(expr)
    if sum(1 for _ in leaf_conditions(positive)) > MAX_CONDITIONS:
        raise Unsupported(f"a filter of more than {MAX_CONDITIONS} conditions in an engine's own scan")
    return _converted(positive, builder)


def _converted(expr: Expr, builder: ExpressionBuilder) -> Any:
    if isinstance(expr, (And, Or)):
        return builder.joined([_converted(part, builder) for part in expr.parts], is_any=isinstance(expr, Or))
    if isinstance(expr, Constant):
        return builder.constant(bool(expr.value))
    is_negated = isinstance(expr, Not)
    leaf = expr.part if isinstance(expr, Not) else expr
    column = getattr(leaf, "column", None)
    if not isinstance(column, str) or "." in column:
        raise Unsupported(f"the condition {leaf} in an engine's own scan")
    if isinstance(leaf, IsNull):
        test = builder.is_null(column)
        return builder.negated(test) if is_negated else test
    is_known = builder.negated(builder.is_null(column))
    if isinstance(leaf, ConstantUnlessNull):
        return is_known if leaf.outcome != is_negated else builder.constant(value=False)
    test = _test(leaf, column, builder)
    if not is_negated:
        return test
    if isinstance(leaf, In) and leaf.has_null:
        # x NOT IN (1, NULL) is false or unknown.
        return builder.constant(value=False)
    return builder.joined([is_known, builder.negated(test)], is_any=False)


def _test(leaf: Expr, column: str, builder: ExpressionBuilder) -> Any:
    if isinstance(leaf, Compare):
        return builder.compare(column, leaf.op, arrow_scalar(leaf.value, leaf.type))
    if isinstance(leaf, In) and (leaf.type is None or not pa.types.is_floating(leaf.type)):
        if not leaf.values:
            return builder.constant(value=False)
        return builder.is_in(column, [arrow_scalar(value, leaf.type) for value in leaf.values])
    if isinstance(leaf, Like):
        prefix, is_exact = like_prefix(leaf.pattern)
        if is_exact:
            return builder.compare(column, "=", pa.scalar(prefix))
        if is_prefix_pattern(leaf.pattern):
            return builder.starts_with(column, prefix)
    raise Unsupported(f"the condition {leaf} in an engine's own scan")
