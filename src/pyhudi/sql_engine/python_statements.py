"""`Table.update` and `Table.merge` with SQL expressions, in this process.

Values and conditions that filters and literals express keep their meaning (docs/filters.md); other text is an expression of
Spark SQL, which DuckDB evaluates as in `hp.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyhudi.api.table_handle import TableHandle
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.clauses import Clause, ClauseAction, MergeStatement, UpdateStatement
from pyhudi.options.declaration import Options
from pyhudi.records.filters.filter_ast import ColumnRef
from pyhudi.records.filters.filter_parser import is_computed, is_filter, parse_value
from pyhudi.records.plain_values import plain_value
from pyhudi.records.sql_quoting import quote_name
from pyhudi.sql_engine.dml import merge_rows, update_rows
from pyhudi.sql_engine.duckdb_engine import Database, read_spark, to_duck
from pyhudi.sql_engine.sql_ast import Fragment, SelectQuery
from pyhudi.sql_engine.table_references import parse_expression_text


def update_by_sql(table: TableHandle, options: Options, statement: UpdateStatement) -> WriteResult:
    """Run an update. Raises InvalidRequest for expressions that do not fit the table, Unsupported for subqueries."""
    filters = statement.where is not None and is_filter(statement.where)
    where = None if filters or statement.where is None else _condition(statement.where)
    change = UpdateStatement(_values(statement.values), where, statement.alias or "target")
    return update_rows(table, options, change, _prepare, among=statement.where if filters else None)


def merge_by_sql(table: TableHandle, options: Options, statement: MergeStatement) -> WriteResult:
    """Run a merge. Errors as in `update_by_sql`."""
    target, source = statement.target_alias, statement.source_alias
    names = statement.on if isinstance(statement.on, tuple) else ()
    equated = [f"{_quoted(target, name)} = {_quoted(source, name)}" for name in names]
    on = _expression(" AND ".join(equated)) if names else _condition(statement.on)
    clauses = tuple(_clause(clause, names, source) for clause in statement.clauses)
    return merge_rows(table, options, replace(statement, on=on, clauses=clauses), _prepare)


def _clause(clause: Clause, on: Sequence[str], source: str) -> Clause:
    values = clause.values
    if values is not None and clause.outcome is ClauseAction.INSERT:
        # The columns by which no row matched belong to the inserted row.
        given = {name.lower() for name in values}
        values = {**{name: _quoted(source, name) for name in on if name.lower() not in given}, **values}
    where = None if clause.where is None else _condition(clause.where)
    return replace(clause, values=None if values is None else _values(values), where=where)


def _values(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping) or not values:
        raise InvalidRequest(f"assignments must be a mapping of column names to values, such as {{'fare': 1.5}}, not {values!r}")
    return {name: _value(value) for name, value in values.items()}


def _value(value: Any) -> Any:
    """A parsed expression, or the scalar of a literal."""
    is_text = isinstance(value, str)
    if not isinstance(value, pa.Scalar):
        value = plain_value(value, "a value")
    if is_text:
        if is_computed(value):
            return _expression(value)
        literal = parse_value(value)
        if isinstance(literal, ColumnRef):
            return _expression(_quoted(*literal.name.split(".")))
        value = literal
    if isinstance(value, pa.Scalar):
        return value
    try:
        return pa.scalar(value)
    except pa.ArrowException as error:
        raise InvalidRequest(f"a value of type {type(value).__name__} cannot be assigned: {error}") from error


def _condition(condition: Any) -> SelectQuery:
    if not isinstance(condition, str):
        raise Unsupported("a statement with computed values or aliases takes its conditions as SQL text, not as other objects")
    if "\\" in condition and is_filter(condition):
        raise Unsupported(f"condition {condition!r}: a backslash is an escape in SQL, and not in filters")
    return _expression(condition)


def _expression(text: str) -> SelectQuery:
    expression = parse_expression_text(text, Fragment(text))
    if expression.references:
        raise Unsupported(f"a query within {text!r}: Table.update and Table.merge evaluate expressions only. Use hp.sql")
    return expression


def _quoted(*parts: str) -> str:
    return ".".join(map(quote_name, parts))


def _prepare(database: Database, query: SelectQuery, *, expression: bool = False) -> str:
    return to_duck(read_spark(query.body.text, expression=expression))
