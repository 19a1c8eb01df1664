"""Statements carried out on a Spark session: tables are DataFrames of ours, expressions and queries are Spark's own.

    SELECT                   a DataFrame stands in the place of each table of ours, of the files that may hold rows that the query
                             asks for (conditions.py); the rest goes to Spark as it was written
    INSERT, CREATE ... AS    the query's rows, cast as Spark stores values in columns, go into the write
    UPDATE, DELETE, MERGE    Spark finds and computes the rows, with the conditions as they were written

A name stands for the path that the session's configuration has for it (`pyhudi.table.<name>`), else for the place of the table of
that name in the session's catalog, where a table of ours lies there.  Any other name is Spark's: a view, a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi.api.scan import Scan
from pyhudi.api.table import Table
from pyhudi.engines.spark.type_conversion import (
    DataFrame,
    SparkSession,
    located,
    quoted_name,
    small_frame,
    sql_refused,
    stored_frame,
    without_rows,
)
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.admin.table_settings import NAME
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_settings import OPERATION
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.pushdown import COMPARED_DIFFERENTLY
from pyhudi.sql_engine import spark_table_names, table_statements
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.ddl import RUN, called, check_options, result_row
from pyhudi.sql_engine.literals import parse_spark
from pyhudi.sql_engine.sql_pushdown import table_predicate
from pyhudi.sql_engine.table_functions import function_rows, table_argument
from pyhudi.sql_engine.table_references import splice_query

__all__ = ["SparkStatementSession", "SparkOperations", "run"]

_WAREHOUSE = "spark.sql.warehouse.dir"


@dataclass(frozen=True, slots=True)
class SparkOperations:
    """The verbs of `pyhudi.spark` that statements are carried out by."""

    write: Callable[..., WriteResult]
    call: Callable[..., DataFrame]
    update: Callable[..., WriteResult]
    delete: Callable[..., WriteResult]
    merge: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class SparkStatementSession:
    """What statements are carried out with.  options: those of writes."""

    spark: SparkSession
    verbs: SparkOperations
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    options: Mapping[str, object] | None = field(default=None, repr=False)

    def path(self, name: S.TableName) -> str | None:
        """Where the table of ours lies that a name stands for; None where it stands for none."""
        if name.path is not None:
            return name.path
        known = spark_table_names.registered_path(self.spark, str(name))
        if known is not None:
            return known
        found = located(self.spark, str(name))
        return found if found is not None and Table.exists(found, self.storage_options) else None

    def table(self, name: S.TableName) -> Table:
        """The table of ours that a name stands for.  Raises InvalidRequest where it stands for none."""
        path = self.path(name)
        if path is None:
            raise InvalidRequest(
                f"the session knows no Hudi table {name}: register its path with pyhudi.spark.register, or write hudi.`/path`"
            )
        return Table(path, self.storage_options, self.options)

    def is_registered(self, name: S.TableName) -> bool:
        return self.path(name) is not None

    def location_for(self, name: S.TableName) -> str:
        return f"{str(self.spark.conf.get(_WAREHOUSE)).rstrip('/')}/{'/'.join(name.parts)}"

    def register(self, name: S.TableName, path: str) -> None:
        spark_table_names.register_path(self.spark, str(name), path)

    def unregister(self, name: S.TableName) -> bool:
        return spark_table_names.unregister_path(self.spark, str(name))

    def names(self) -> list[str]:
        return spark_table_names.names(self.spark)

    def create_as(self, statement: S.CreateTable, query: S.SelectQuery, path: str) -> WriteResult:
        frame = self.frame(query)
        ordered = table_statements.new_table_columns(statement, frame.columns)
        options = {**table_statements.new_options(statement, ordered), **(self.options or {}), OPERATION.key: "bulk_insert"}
        if statement.table.path is None:
            options.setdefault(NAME.key, statement.table.parts[-1])
        rows = frame.select(*map(quoted_name, ordered))
        return self.verbs.write(rows, path, "errorifexists", options, self.storage_options)

    def frame(self, query: S.SelectQuery) -> DataFrame:
        """The rows of a query."""
        frames: dict[str, Any] = {}
        asked_of = _conditions(query)

        def stand_in(reference: S.Reference) -> str:
            found = self._rows_of(reference, asked_of)
            if found is None:
                assert reference.name is not None, "functions of ours have rows"
                return ".".join(map(quoted_name, reference.name.parts))
            name = f"pyhudi_{len(frames)}"
            frames[name] = found
            return f"{{{name}}}"

        text = splice_query(query, stand_in, lambda written: written.replace("{", "{{").replace("}", "}}"))
        # Braces are Spark's own way to name a frame in SQL, and where there is no frame they are no braces of its.
        return self.spark.sql(text, **frames) if frames else self.spark.sql(query.body.text)

    def _rows_of(
        self, reference: S.Reference, build_predicate: Callable[[S.Reference, pa.Schema], Expr | None]
    ) -> DataFrame | None:
        if reference.name is None:
            found = function_rows(reference, self.table(table_argument(reference)))
            return found.to_spark(self.spark) if isinstance(found, Scan) else small_frame(self.spark, found)
        path = self.path(reference.name)
        if path is None:
            if reference.as_of is not None:
                raise InvalidRequest(f"{reference.name} AS OF a time: the session knows no Hudi table of that name")
            return None
        table, asked = Table(path, self.storage_options), partial(build_predicate, reference)
        return table_statements.requested_rows(table, ["*"], reference.as_of, asked).to_spark(self.spark)


def _conditions(query: S.SelectQuery) -> Callable[[S.Reference, pa.Schema], Expr | None]:
    """What a query asks of the rows of a table: a filter for a reference of the query, and the columns of its table."""
    if COMPARED_DIFFERENTLY.search(query.body.text):
        return lambda reference, schema: None
    names = {reference.start: f"pyhudi_{number}" for number, reference in enumerate(query.references)}
    tree = parse_spark(splice_query(query, lambda reference: names[reference.start]))
    return lambda reference, schema: table_predicate(tree, names[reference.start], schema)


def run(session: SparkStatementSession, statement: S.Statement) -> DataFrame:
    """Carry a statement out.

    Returns the rows of a query or of what is shown; of a write, one row that says what it changed; else no rows and no columns.
    """
    check_options(statement, session.options)
    with sql_refused():
        found = (_RUN.get(type(statement)) or RUN[type(statement)])(session, statement)
    if isinstance(found, WriteResult):
        found = result_row(found)
    if found is None:
        return without_rows(session.spark)
    return small_frame(session.spark, found) if isinstance(found, pa.Table) else found


def _select(session: SparkStatementSession, statement: S.Select) -> DataFrame:
    return session.frame(statement.query)


def _insert(session: SparkStatementSession, statement: S.Insert) -> WriteResult:
    table = session.table(statement.table)
    operation = table_statements.insert_operation(table, statement)
    fixed = {one.column: one.value for one in table_statements.static_partition_values(table, statement.partition)}
    frame = session.frame(statement.query)
    names = table_statements.without_meta(frame.columns)
    given = table_statements.insert_columns(table, statement, names)
    if len(names) < len(frame.columns):
        frame = frame.select(*map(quoted_name, names))
    schema = table.schema()
    values = {name: table_statements.partition_scalar(value, schema.field(name)) for name, value in fixed.items()}
    rows = stored_frame(frame, given, schema, values)
    if statement.overwrite and statement.partition and rows.isEmpty():
        return table_statements.empty_partitions(table, statement.partition)
    write: Callable[..., WriteResult] = getattr(table, operation)
    return write(rows)


# ---------------------------------------------------------------------------------------------------------------------
# Changes


def _delete(session: SparkStatementSession, statement: S.Delete) -> WriteResult:
    return session.verbs.delete(
        session.spark,
        session.table(statement.table).uri,
        _condition(statement.where),
        alias=_alias(statement.table, statement.alias),
        options=session.options,
        storage_options=session.storage_options,
    )


def _update(session: SparkStatementSession, statement: S.Update) -> WriteResult:
    table = session.table(statement.table)
    return session.verbs.update(
        session.spark,
        table.uri,
        _values(table, statement.assignments),
        _condition(statement.where),
        alias=_alias(statement.table, statement.alias),
        options=session.options,
        storage_options=session.storage_options,
    )


def _merge(session: SparkStatementSession, statement: S.MergeInto) -> WriteResult:
    table = session.table(statement.table)
    target, source = _alias(statement.table, statement.alias) or "target", statement.source_alias or "source"
    frame = session.frame(statement.source)
    names = table_statements.without_meta(frame.columns)
    on = _condition(statement.on)
    assert on is not None, "a merge has a condition"
    merge = session.verbs.merge(
        session.spark,
        table.uri,
        frame if len(names) == len(frame.columns) else frame.select(*map(quoted_name, names)),
        # In parentheses it is no name of a column.
        f"({on})",
        target_alias=target,
        source_alias=source,
        options=session.options,
        storage_options=session.storage_options,
    )
    for clause in statement.clauses:
        merge = _with_clause(merge, table, clause)
    result: WriteResult = merge.execute()
    return result


def _with_clause(merge: Any, table: Table, clause: S.MergeClause) -> Any:
    where = _condition(clause.where)
    values = None if clause.assignments is None else _values(table, clause.assignments)
    if clause.rows is S.MergeRows.OF_SOURCE:
        if values is None:
            return merge.when_not_matched_insert_all(where)
        return merge.when_not_matched_insert(values, where)
    of_target = clause.rows is S.MergeRows.OF_TARGET
    if clause.action is S.MergeAction.DELETE:
        return merge.when_not_matched_by_source_delete(where) if of_target else merge.when_matched_delete(where)
    if values is None:
        return merge.when_matched_update_all(where)
    return merge.when_not_matched_by_source_update(values, where) if of_target else merge.when_matched_update(values, where)


def _values(table: Table, assignments: tuple[S.SetClause, ...]) -> dict[str, str]:
    """The assigned values as Spark SQL, by the table's columns."""
    found: dict[str, str] = {}
    for one in assignments:
        name = table_statements.resolve_table_column(table, one.column)
        if name in found:
            raise InvalidRequest(f"column {name} is assigned twice")
        found[name] = "NULL" if one.value is None else _text(one.value)
    return found


def _condition(where: S.SelectQuery | None) -> str | None:
    return None if where is None else _text(where)


def _text(expression: S.SelectQuery) -> str:
    if expression.references:
        raise Unsupported(
            f"a query within a condition or a value of UPDATE, DELETE or MERGE on Spark ({expression.body.text}); MERGE with the "
            "query behind USING says the same"
        )
    return expression.body.text


def _alias(name: S.TableName, alias: str | None) -> str | None:
    """What columns of the table are qualified with."""
    return alias or (None if name.path is not None else name.parts[-1])


def _call(session: SparkStatementSession, statement: S.CallProcedure) -> DataFrame:
    path, arguments = called(session, statement)
    if path is None:
        raise InvalidRequest(f"CALL {statement.procedure} needs table => name, or path => '/path'")
    return session.verbs.call(session.spark, statement.procedure, path=path, storage_options=session.storage_options, **arguments)


_RUN: Mapping[type, Callable[[SparkStatementSession, Any], DataFrame | WriteResult]] = {
    S.Select: _select,
    S.Insert: _insert,
    S.Delete: _delete,
    S.Update: _update,
    S.MergeInto: _merge,
    S.CallProcedure: _call,
}
