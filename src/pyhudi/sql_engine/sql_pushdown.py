"""Predicate pushdown: derive a filter on a table from a statement, so that files without matching rows are pruned.

The engine evaluates the original condition on every row. The filter only excludes rows for which the condition cannot
be true; parts for which that is uncertain are ignored:

    supported      comparisons of a column with literals, IN, BETWEEN, IS NULL, with AND, OR, and NOT before one of them
    sources        WHERE of the query that has the table in its FROM or in an inner JOIN, and ON of inner joins there;
                   not beyond an outer join, which returns rows without a match. ON of the table's own join, also of a
                   LEFT JOIN: rows for which it is false match nothing
    not supported  functions, other columns, subqueries in conditions, casts
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
_SQL_TYPES = exp.DataType.Type
_TIMES = (_SQL_TYPES.TIMESTAMP, _SQL_TYPES.TIMESTAMPTZ, _SQL_TYPES.TIMESTAMPLTZ, _SQL_TYPES.TIMESTAMPNTZ)
_TIME = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")
_EXACT = 2**53
"""Integers up to this value are exact in floating point."""


def table_predicate(tree: exp.Expr, name: str, schema: pa.Schema, is_plain: IsExact | None = None) -> Expr | None:
    """Predicate of a query on the rows of a table that it references once; None if nothing is known.

    Args:
        tree: The query.
        name: Name of the table in the query.
        schema: Schema of the table.
        is_plain: As in `exact_filter`.
    """
    table = next((candidate for candidate in tree.find_all(exp.Table) if candidate.name == name), None)
    if table is None or table.args.get("sample") or table.args.get("pivots"):
        return None
    alias = table.args.get("alias")
    join = table.parent if isinstance(table.parent, exp.Join) else None
    select = table.parent.parent if isinstance(table.parent, (exp.From, exp.Join)) else None
    if not isinstance(select, exp.Select) or select.args.get("sample") or (isinstance(alias, exp.TableAlias) and alias.columns):
        return None
    joins = select.args.get("joins") or []
    if any(candidate.method for candidate in joins):
        return None
    condition = _condition_of(select, joins, join)
    if condition is None:
        return None
    is_single = not joins and not select.args.get("laterals")
    return row_predicate(condition, table.alias_or_name, schema, has_single_table=is_single, is_plain=is_plain)


def row_predicate(
    condition: exp.Expr, alias: str, schema: pa.Schema, *, has_single_table: bool = True, is_plain: IsExact | None = None
) -> Expr | None:
    """Predicate of a condition on the rows of a table.

    Args:
        alias: Alias of the table.
        schema: Schema of the table.
        has_single_table: True if columns without an alias are columns of this table.
        is_plain: As in `exact_filter`.
    """
    parts = [_read(part, alias, schema, has_single_table=has_single_table) for part in conjuncts(condition)]
    return exact_filter(join_conditions(And, parts), schema, is_plain=is_plain)


def equality_columns(condition: exp.Expr, left: str, right: str) -> dict[str, str]:
    """Equality join columns of a conjunction, in lower case: column of the left alias to column of the right alias."""
    columns: dict[str, str] = {}
    for part in conjuncts(condition):
        if isinstance(part, exp.EQ) and isinstance(part.this, exp.Column) and isinstance(part.expression, exp.Column):
            sides = {side.table.casefold(): side.name.casefold() for side in (part.this, part.expression)}
            if sides.keys() == {left.casefold(), right.casefold()}:
                columns[sides[left.casefold()]] = sides[right.casefold()]
    return columns


def is_exact_in_duckdb(value: Any, type_: pa.DataType) -> bool:
    """Return True if DuckDB compares a literal with values of a type as filters do.

    In addition to what all engines compare identically, these are numbers and times that DuckDB's casts leave unchanged.
    """
    if has_exact_type(value, type_):
        return True
    if isinstance(value, datetime):
        return bool(pa.types.is_timestamp(type_))
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return False
    if pa.types.is_float64(type_):
        return abs(value) <= _EXACT if isinstance(value, int) else len(value.as_tuple().digits) <= 15
    return bool(pa.types.is_decimal(type_)) and len(Decimal(value).as_tuple().digits) <= 18


def _condition_of(select: exp.Select, joins: list[exp.Join], join: exp.Join | None) -> exp.Expr | None:
    """Condition that each row of a table must satisfy to contribute to a query; None if there is none."""
    conditions = []
    if _preserves_rows(joins, join):
        where = select.args.get("where")
        conditions += [] if where is None else [where.this]
        inner = (other for other in joins if other is not join and not other.side and other.kind in ("", "INNER", "SEMI"))
        conditions += [other.args["on"] for other in inner if other.args.get("on") is not None]
    if join is not None and join.side in ("", "LEFT") and join.args.get("on") is not None:
        conditions.append(join.args["on"])
    return exp.and_(*conditions) if conditions else None


def _preserves_rows(joins: list[exp.Join], join: exp.Join | None) -> bool:
    """Whether the joins preserve each row of a table on which WHERE is evaluated."""
    outer = [one for one in joins if one.side and not (one.side == "LEFT" and join is None)]
    return not outer and not (join is not None and join.kind in ("SEMI", "ANTI"))


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    todo = [condition]
    while todo:
        part = todo.pop().unnest()
        if isinstance(part, exp.And):
            todo += [part.expression, part.this]
        else:
            yield part


def _read(node: exp.Expr, alias: str, schema: pa.Schema, *, has_single_table: bool) -> Expr:
    """Convert a condition to a filter; `UnsupportedCondition` for parts without equivalent."""

    def column(node: exp.Expr | None) -> str | None:
        if not isinstance(node, exp.Column) or len(node.parts) > 2 or not isinstance(node.this, exp.Identifier):
            return None
        if node.table.casefold() != alias.casefold() and (node.table or not has_single_table):
            return None
        same = [name for name in schema.names if name.casefold() == node.name.casefold()]
        return same[0] if len(same) == 1 else None

    def read(one: exp.Expr) -> Expr:
        one = one.unnest()
        if isinstance(one, (exp.And, exp.Or)):
            connective: type[And] | type[Or] = And if isinstance(one, exp.And) else Or
            return connective((read(one.this), read(one.expression)))
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
    """Value of a literal; None for other expressions, and for NULL."""
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
    """Parse a number without exponent; one with an exponent is a floating-point literal."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    return Decimal(text) if re.fullmatch(r"\d*\.\d+|\d+\.", text) else None


def _time(text: str, sql_type: Any) -> date | datetime | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    try:
        if sql_type == _SQL_TYPES.DATE:
            return date.fromisoformat(text) if match[1] is None else None
        return datetime.fromisoformat(text).replace(tzinfo=UTC) if sql_type in _TIMES else None
    except ValueError:
        return None
