"""Conditions that an engine hands down to a reader: what of them can pass over files and row groups.

The engine, or whoever answers it, tests each row by the engine's own rules afterwards.  So what is made of its expression here
may be true of more rows, and is never false where the engine's is true:

    a condition that filters do not have     may be true of any row
    a function of columns                    the same: engines differ in what functions give
    negated, on floating point               the same: of NaN, engines say that it is not above 1 and mean that it is not
    whole numbers against floating point     the same: engines compare them as rounded
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
    """What an expression of pyarrow or Polars says about the columns of the schema, bound to it; None where that is nothing."""
    read = from_arrow.convert_known_arrow if isinstance(expression, pc.Expression) else from_polars.convert_known_polars
    whole = read(expression)
    kept: list[Expr] = []
    for part in whole.parts if isinstance(whole, And) else (whole,):
        try:
            said = _loosened(part, schema, negated=False)
            if said != Constant(True):
                kept.append(bind(said, schema))
        except (InvalidRequest, Unsupported):
            # Of a column that is not there, or of another type, the engine says what is wrong.
            continue
    return And(tuple(kept)) if kept else None


def _loosened(expr: Expr, schema: pa.Schema, *, negated: bool) -> Expr:
    """The filter, or its opposite, with NOT on leaves alone, made true where an engine might find it so."""
    if isinstance(expr, Not):
        return _loosened(expr.part, schema, negated=not negated)
    if isinstance(expr, (And, Or)):
        parts = tuple(_loosened(part, schema, negated=negated) for part in expr.parts)
        if isinstance(expr, And) != negated:
            left = tuple(part for part in parts if part != Constant(True))
            return And(left) if left else Constant(True)
        return Constant(True) if Constant(True) in parts else Or(parts)
    if isinstance(expr, (Compare, In, Like, IsNull)) and not isinstance(expr.column, str):
        return Constant(True)
    if isinstance(expr, (Compare, In)):
        assert isinstance(expr.column, str), "functions were passed over"
        values = (expr.value,) if isinstance(expr, Compare) else expr.values
        floating = pa.types.is_floating(field_at(schema, expr.column).type)
        mixed = any(isinstance(value, float) and (value != value or not floating) for value in values)
        if mixed or (floating and negated):
            return Constant(True)
    elif not isinstance(expr, (Constant, IsNull, Like)):
        return Constant(True)
    return Not(expr) if negated else expr


# What of a filter means to every engine what it means here: comparisons of a column with literals of its own type.
#
# An engine that reads a condition its own way, and tests each row by it, can so be handed the rows of fewer files: where neither
# side of a comparison is cast there is one answer.  Casts depend on an engine, and on the settings of a session.

COMPARED_DIFFERENTLY = re.compile(r"''|[\"\\]")
"""Spark takes double quotes for text, a backslash for an escape, and two texts beside one another for one."""

IsExact = Callable[[Any, pa.DataType], bool]
"""Whether a literal and values of a type are compared without a cast, or with one that has one answer."""


def exact_filter(expr: Expr, table: pa.Schema, *, alias: str | None = None, is_plain: IsExact | None = None) -> Expr | None:
    """A filter that is true for every row for which the given one is, whoever evaluates it; None where nothing is known.

    alias: what columns of the table may be qualified with.  is_plain: that of the engine; None is `has_exact_type`.
    """
    return _known(expr, alias, table, is_plain or has_exact_type)


def has_exact_type(value: Any, kind: pa.DataType) -> bool:
    """Whether a literal is of a type whose values are compared alike everywhere."""
    if not compares_identically(kind):
        return False
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_date32(kind):
        return isinstance(value, date) and not isinstance(value, datetime)
    return isinstance(value, bool) == pa.types.is_boolean(kind) and isinstance(value, int)


def compares_identically(kind: pa.DataType) -> bool:
    """Whether values of a type are compared alike here and in every session of Spark's."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_integer(kind) or types.is_date32(kind) or types.is_boolean(kind))


def _known(expr: Expr, alias: str | None, table: pa.Schema, is_plain: IsExact) -> Expr | None:
    if isinstance(expr, And):
        parts = [part for one in expr.parts if (part := _known(one, alias, table, is_plain)) is not None]
        return join_conditions(And, parts) if parts else None
    if isinstance(expr, Or):
        found = [part for one in expr.parts if (part := _known(one, alias, table, is_plain)) is not None]
        return Or(tuple(found)) if len(found) == len(expr.parts) else None
    if isinstance(expr, Not):
        # Less than all of a condition would be more than all of its opposite, so it is taken whole.
        whole = isinstance(expr.part, (Compare, In, IsNull))
        exact = _known(expr.part, alias, table, is_plain) if whole else None
        return None if exact is None else Not(exact)
    if not isinstance(expr, (Compare, In, IsNull)) or not isinstance(expr.column, str):
        return None
    named = expr if alias is None else replace(expr, column=expr.column.removeprefix(f"{alias}."))
    position = table.get_field_index(str(named.column))
    if position < 0:
        return None
    values = (named.value,) if isinstance(named, Compare) else named.values if isinstance(named, In) else ()
    if not all(is_plain(value, table.field(position).type) for value in values):
        return None
    try:
        bind(named, table)
    except (InvalidRequest, Unsupported):
        return None
    return named
