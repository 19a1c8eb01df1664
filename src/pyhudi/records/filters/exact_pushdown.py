"""What of a filter means to every engine what it means here: comparisons of a column with literals of its own type.

An engine that reads a condition its own way, and tests each row by it, can so be handed the rows of fewer files: where neither
side of a comparison is cast there is one answer.  Casts depend on an engine, and on the settings of a session.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.build import joined
from pyhudi.records.filters.filter_ast import And, Compare, Expr, In, IsNull, Not, Or

READ_OTHERWISE = re.compile(r"''|[\"\\]")
"""Spark takes double quotes for text, a backslash for an escape, and two texts beside one another for one."""

IsPlain = Callable[[Any, pa.DataType], bool]
"""Whether a literal and values of a type are compared without a cast, or with one that has one answer."""


def certain(expr: Expr, table: pa.Schema, *, alias: str | None = None, is_plain: IsPlain | None = None) -> Expr | None:
    """A filter that is true for every row for which the given one is, whoever evaluates it; None where nothing is known.

    alias: what columns of the table may be qualified with.  is_plain: that of the engine; None is `is_of_its_type`.
    """
    return _known(expr, alias, table, is_plain or is_of_its_type)


def is_of_its_type(value: Any, kind: pa.DataType) -> bool:
    """Whether a literal is of a type whose values are compared alike everywhere."""
    if not alike(kind):
        return False
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_date32(kind):
        return isinstance(value, date) and not isinstance(value, datetime)
    return isinstance(value, bool) == pa.types.is_boolean(kind) and isinstance(value, int)


def alike(kind: pa.DataType) -> bool:
    """Whether values of a type are compared alike here and in every session of Spark's."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_integer(kind) or types.is_date32(kind) or types.is_boolean(kind))


def _known(expr: Expr, alias: str | None, table: pa.Schema, is_plain: IsPlain) -> Expr | None:
    if isinstance(expr, And):
        parts = [part for one in expr.parts if (part := _known(one, alias, table, is_plain)) is not None]
        return joined(And, parts) if parts else None
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
