"""Predicate pushdown: prune files and row groups by the conditions that an engine passes to a reader.

The engine, or the caller that serves it, evaluates its own condition on each row afterwards. So the filter derived from
an engine's expression may match more rows, and must match every row that the engine matches:

    a condition that filters do not support     may be true of any row
    a function of columns                       the same: engines differ in the results of functions
    negated, on floating point                  the same: engines evaluate NaN > 1 as false, and its negation as true
    whole numbers against floating point        the same: engines compare them after rounding
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters import from_arrow, from_polars
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.build import join_conditions
from pyhudi.records.filters.filter_ast import And, Compare, Constant, Expr, In, IsNull, Like, Not, Or


def pushed_down(expression: Any, schema: pa.Schema) -> Expr | None:
    """Convert an expression of pyarrow or Polars to a filter bound to the schema; None if nothing can be pruned by it."""
    convert = from_arrow.convert_known_arrow if isinstance(expression, pc.Expression) else from_polars.convert_known_polars
    tree = convert(expression)
    bound_parts: list[Expr] = []
    for part in tree.parts if isinstance(tree, And) else (tree,):
        try:
            relaxed = _relaxed(part, schema, negated=False)
            if relaxed != Constant(True):
                bound_parts.append(bind(relaxed, schema))
        except (InvalidRequest, Unsupported):
            # For a missing column, or one of another type, the engine raises its own error.
            continue
    return And(tuple(bound_parts)) if bound_parts else None


def _relaxed(expr: Expr, schema: pa.Schema, *, negated: bool) -> Expr:
    """Push NOT down to the leaves, and replace conditions that an engine might evaluate differently by true."""
    if isinstance(expr, Not):
        return _relaxed(expr.part, schema, negated=not negated)
    if isinstance(expr, (And, Or)):
        parts = tuple(_relaxed(part, schema, negated=negated) for part in expr.parts)
        if isinstance(expr, And) != negated:
            conditions = tuple(part for part in parts if part != Constant(True))
            return And(conditions) if conditions else Constant(True)
        return Constant(True) if Constant(True) in parts else Or(parts)
    if isinstance(expr, (Compare, In, Like, IsNull)) and not isinstance(expr.column, str):
        return Constant(True)
    if isinstance(expr, (Compare, In)):
        assert isinstance(expr.column, str), "function calls are handled above"
        values = (expr.value,) if isinstance(expr, Compare) else expr.values
        is_floating = pa.types.is_floating(field_at(schema, expr.column).type)
        is_mixed = any(isinstance(value, float) and (value != value or not is_floating) for value in values)
        if is_mixed or (is_floating and negated):
            return Constant(True)
    elif not isinstance(expr, (Constant, IsNull, Like)):
        return Constant(True)
    return Not(expr) if negated else expr


# Conditions that mean the same in every engine: comparisons of a column with literals of its own type.
#
# An engine that evaluates a condition by its own rules on each row can skip the pruned files: without a cast on either
# side, the result of a comparison is unambiguous. Casts depend on the engine, and on session settings.

COMPARED_DIFFERENTLY = re.compile(r"''|[\"\\]")
"""In Spark, double quotes delimit strings, a backslash is an escape, and adjacent string literals are concatenated."""

IsExact = Callable[[Any, pa.DataType], bool]
"""Return True if a literal and values of a type are compared without a cast, or with an unambiguous one."""


def exact_filter(expr: Expr, table: pa.Schema, *, alias: str | None = None, is_plain: IsExact | None = None) -> Expr | None:
    """Return a filter that matches every row the given filter matches in any engine; None if there is none.

    Args:
        expr: Filter.
        alias: Qualifier of the table's columns.
        is_plain: The engine's rule; None for `has_exact_type`.
    """
    return _exact_part(expr, alias, table, is_plain or has_exact_type)


def has_exact_type(value: Any, kind: pa.DataType) -> bool:
    """Return True if a literal has a type whose values every engine compares alike."""
    if not compares_identically(kind):
        return False
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_date32(kind):
        return isinstance(value, date) and not isinstance(value, datetime)
    return isinstance(value, bool) == pa.types.is_boolean(kind) and isinstance(value, int)


def compares_identically(kind: pa.DataType) -> bool:
    """Return True if PyHudi and every Spark session compare values of a type alike."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_integer(kind) or types.is_date32(kind) or types.is_boolean(kind))


def _exact_part(expr: Expr, alias: str | None, table: pa.Schema, is_plain: IsExact) -> Expr | None:
    if isinstance(expr, And):
        parts = [part for condition in expr.parts if (part := _exact_part(condition, alias, table, is_plain)) is not None]
        return join_conditions(And, parts) if parts else None
    if isinstance(expr, Or):
        known_parts = [part for condition in expr.parts if (part := _exact_part(condition, alias, table, is_plain)) is not None]
        return Or(tuple(known_parts)) if len(known_parts) == len(expr.parts) else None
    if isinstance(expr, Not):
        # Weakening a condition would strengthen its negation, so it must be exact.
        is_leaf = isinstance(expr.part, (Compare, In, IsNull))
        exact = _exact_part(expr.part, alias, table, is_plain) if is_leaf else None
        return None if exact is None else Not(exact)
    if not isinstance(expr, (Compare, In, IsNull)) or not isinstance(expr.column, str):
        return None
    unqualified = expr if alias is None else replace(expr, column=expr.column.removeprefix(f"{alias}."))
    position = table.get_field_index(str(unqualified.column))
    if position < 0:
        return None
    values = (
        (unqualified.value,) if isinstance(unqualified, Compare) else unqualified.values if isinstance(unqualified, In) else ()
    )
    if not all(is_plain(value, table.field(position).type) for value in values):
        return None
    try:
        bind(unqualified, table)
    except (InvalidRequest, Unsupported):
        return None
    return unqualified
