"""What a statement asks of the rows of a table, as filters: so that files which hold none of them are not read.

The engine that carries the statement out tests every row by the words as they were written; a filter here leaves out rows that
they cannot be true for, and nothing is taken from words of which that is not certain:

    taken      comparisons of a column with literals, IN, BETWEEN, IS NULL, with AND, OR, and NOT before one of them
    where      WHERE of the query that has the table in its FROM or in an inner JOIN, and ON of inner joins there; not beyond an
               outer join, which makes rows of what it does not find.  ON of the table's own join, also where that is a LEFT JOIN:
               rows that it does not hold for meet nothing
    not taken  functions, other columns, queries within conditions, casts
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from pyhudi.records.filters.build import OPERATORS, comparison, join_conditions
from pyhudi.records.filters.filter_ast import And, ColumnRef, Expr, In, IsNull, Not, Or, UnsupportedCondition
from pyhudi.records.filters.pushdown import IsExact, exact_filter, has_exact_type

__all__ = ["row_predicate", "table_predicate", "equality_columns", "is_exact_in_duckdb"]

_SIGNS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_KINDS = exp.DataType.Type
_TIMES = (_KINDS.TIMESTAMP, _KINDS.TIMESTAMPTZ, _KINDS.TIMESTAMPLTZ, _KINDS.TIMESTAMPNTZ)
_TIME = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")
_EXACT = 2**53
"""Whole numbers up to here are numbers of floating point."""


def table_predicate(tree: exp.Expr, name: str, schema: pa.Schema, is_plain: IsExact | None = None) -> Expr | None:
    """What a query asks of the rows of a table that it names once; None where nothing is known.

    name: that of the table in the query.  schema: its columns.  is_plain: as of `exact_filter`.
    """
    table = next((one for one in tree.find_all(exp.Table) if one.name == name), None)
    if table is None or table.args.get("sample") or table.args.get("pivots"):
        return None
    alias = table.args.get("alias")
    join = table.parent if isinstance(table.parent, exp.Join) else None
    select = table.parent.parent if isinstance(table.parent, (exp.From, exp.Join)) else None
    if not isinstance(select, exp.Select) or select.args.get("sample") or (isinstance(alias, exp.TableAlias) and alias.columns):
        return None
    joins = select.args.get("joins") or []
    if any(one.method for one in joins):
        return None
    condition = _condition_of(select, joins, join)
    if condition is None:
        return None
    alone = not joins and not select.args.get("laterals")
    return row_predicate(condition, table.alias_or_name, schema, has_single_table=alone, is_plain=is_plain)


def row_predicate(
    condition: exp.Expr, alias: str, schema: pa.Schema, *, has_single_table: bool = True, is_plain: IsExact | None = None
) -> Expr | None:
    """What a condition asks of the rows of a table.  has_single_table: whether columns without an alias are columns of it."""
    parts = [_read(part, alias, schema, has_single_table=has_single_table) for part in _all_of(condition)]
    return exact_filter(join_conditions(And, parts), schema, is_plain=is_plain)


def equality_columns(condition: exp.Expr, left: str, right: str) -> dict[str, str]:
    """The columns, in small letters, that a condition equates among others that all have to hold, by that of the left alias."""
    found: dict[str, str] = {}
    for part in _all_of(condition):
        if isinstance(part, exp.EQ) and isinstance(part.this, exp.Column) and isinstance(part.expression, exp.Column):
            sides = {one.table.casefold(): one.name.casefold() for one in (part.this, part.expression)}
            if sides.keys() == {left.casefold(), right.casefold()}:
                found[sides[left.casefold()]] = sides[right.casefold()]
    return found


def is_exact_in_duckdb(value: Any, kind: pa.DataType) -> bool:
    """Whether DuckDB compares a literal with values of a type as filters do: beside what all engines do, numbers and times that
    its casts leave as they are.
    """
    if has_exact_type(value, kind):
        return True
    if isinstance(value, datetime):
        return bool(pa.types.is_timestamp(kind))
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return False
    if pa.types.is_float64(kind):
        return abs(value) <= _EXACT if isinstance(value, int) else len(value.as_tuple().digits) <= 15
    return bool(pa.types.is_decimal(kind)) and len(Decimal(value).as_tuple().digits) <= 18


def _condition_of(select: exp.Select, joins: list[exp.Join], join: exp.Join | None) -> exp.Expr | None:
    """What has to hold for each row of a table that takes part in a query; None where nothing has to.  join: the table's own."""
    found = []
    if _keeps_all_of(joins, join):
        where = select.args.get("where")
        found += [] if where is None else [where.this]
        inner = (one for one in joins if one is not join and not one.side and one.kind in ("", "INNER", "SEMI"))
        found += [one.args["on"] for one in inner if one.args.get("on") is not None]
    if join is not None and join.side in ("", "LEFT") and join.args.get("on") is not None:
        found.append(join.args["on"])
    return exp.and_(*found) if found else None


def _keeps_all_of(joins: list[exp.Join], join: exp.Join | None) -> bool:
    """Whether each row of a table that WHERE may keep comes out of the joins by itself alone."""
    outer = [one for one in joins if one.side and not (one.side == "LEFT" and join is None)]
    return not outer and not (join is not None and join.kind in ("SEMI", "ANTI"))


def _all_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    todo = [condition]
    while todo:
        part = todo.pop().unnest()
        if isinstance(part, exp.And):
            todo += [part.expression, part.this]
        else:
            yield part


def _read(node: exp.Expr, alias: str, schema: pa.Schema, *, has_single_table: bool) -> Expr:
    """A condition as a filter, `UnsupportedCondition` where filters do not have it."""

    def column(found: exp.Expr | None) -> str | None:
        if not isinstance(found, exp.Column) or len(found.parts) > 2 or not isinstance(found.this, exp.Identifier):
            return None
        if found.table.casefold() != alias.casefold() and (found.table or not has_single_table):
            return None
        same = [name for name in schema.names if name.casefold() == found.name.casefold()]
        return same[0] if len(same) == 1 else None

    def read(one: exp.Expr) -> Expr:
        one = one.unnest()
        if isinstance(one, (exp.And, exp.Or)):
            kind: type[And] | type[Or] = And if isinstance(one, exp.And) else Or
            return kind((read(one.this), read(one.expression)))
        if isinstance(one, exp.Not):
            return Not(read(one.this))
        if type(one) in _SIGNS:
            return compared(one.this, OPERATORS[_SIGNS[type(one)]], one.expression)
        if isinstance(one, exp.Between) and not one.args.get("symmetric"):
            return And((compared(one.this, ">=", one.args["low"]), compared(one.this, "<=", one.args["high"])))
        name = column(one.this)
        if name is None:
            return UnsupportedCondition()
        if isinstance(one, exp.Is) and isinstance(one.expression, exp.Null):
            return IsNull(name)
        if isinstance(one, exp.In) and not any(one.args.get(other) for other in ("query", "unnest", "field")):
            values = tuple(_literal(value) for value in one.expressions)
            return UnsupportedCondition() if not values or None in values else In(name, values)
        return UnsupportedCondition()

    def compared(left: exp.Expr, op: str, right: exp.Expr) -> Expr:
        for one, other in ((left, right), (right, left)):
            name, value = column(one.unnest()), _literal(other)
            if name is not None and value is not None:
                return comparison(*((ColumnRef(name), op, value) if one is left else (value, op, ColumnRef(name))))
        return UnsupportedCondition()

    return read(node)


def _literal(node: exp.Expr) -> Any:
    """The value of a literal; None for what is none, or null."""
    node = node.unnest()
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        value = _literal(node.this)
        return -value if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else None
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _number(str(node.this))
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        return _time(str(node.this.this), node.to.this)
    return None


def _number(text: str) -> int | Decimal | None:
    """One with an exponent is of floating point, which is another literal."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    return Decimal(text) if re.fullmatch(r"\d*\.\d+|\d+\.", text) else None


def _time(text: str, kind: Any) -> date | datetime | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    try:
        if kind == _KINDS.DATE:
            return date.fromisoformat(text) if found[1] is None else None
        return datetime.fromisoformat(text).replace(tzinfo=UTC) if kind in _TIMES else None
    except ValueError:
        return None
