"""Conditions that an engine hands down to a reader: what of them can pass over files and row groups.

The engine, or whoever answers it, tests each row by the engine's own rules afterwards.  So what is made of its expression here
may be true of more rows, and is never false where the engine's is true:

    a condition that filters do not have     may be true of any row
    a function of columns                    the same: engines differ in what functions give
    negated, on floating point               the same: of NaN, engines say that it is not above 1 and mean that it is not
    whole numbers against floating point     the same: engines compare them as rounded
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters import from_arrow, from_polars
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import And, Compare, Constant, Expr, In, IsNull, Like, Not, Or


def pushed_down(expression: Any, schema: pa.Schema) -> Expr | None:
    """What an expression of pyarrow or Polars says about the columns of the schema, bound to it; None where that is nothing."""
    read = from_arrow.read_what_is_known if isinstance(expression, pc.Expression) else from_polars.read_what_is_known
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
