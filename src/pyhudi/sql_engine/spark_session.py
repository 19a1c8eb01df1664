"""Execute statements on a Spark session: Hudi tables become DataFrames, and Spark executes expressions and queries.

    SELECT                   each Hudi table is replaced by a DataFrame of the files that can hold matching rows
                             (sql_pushdown.py); the rest of the text goes to Spark as written
    INSERT, CREATE ... AS    the rows of the query, cast by Spark's store assignment, are written
    UPDATE, DELETE, MERGE    Spark finds and computes the rows, with the conditions as written

A name resolves to the path in the session's configuration (`pyhudi.table.<name>`), otherwise to a table of a stored
catalog (`features.catalogs.resolver`), otherwise to the location of a Hudi table of that name in the session's catalog.
Any other name is left to Spark: a view, or a table of another format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi import features
from pyhudi.api.scan import Scan
from pyhudi.api.table import Table
from pyhudi.engines.spark.blob_function import register_read_blob
from pyhudi.engines.spark.column_expressions import stored_frame
from pyhudi.engines.spark.type_conversion import (
    Column,
    DataFrame,
    SparkSession,
    located,
    small_frame,
    sql_refused,
    to_arrow_schema,
    typed_literal,
    without_rows,
)
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.changes.bound_clauses import explicit_values
from pyhudi.operations.changes.statement import Clause, ClauseAction, Computed
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.options.read_options import BLOB_ROOTS
from pyhudi.options.supported import parse_options
from pyhudi.options.table_options import NAME
from pyhudi.options.write_options import OPERATION
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.pushdown import COMPARED_DIFFERENTLY
from pyhudi.records.sql_quoting import quote_name
from pyhudi.sql_engine import create_statements, spark_table_names, table_statements
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.ddl import RUN, called, check_options, result_row
from pyhudi.sql_engine.literals import parse_spark
from pyhudi.sql_engine.session_state import StatementOptions, View, check_setting, qualified
from pyhudi.sql_engine.sql_catalog import is_same_location, names_in, stored_catalog, stored_namespace, stored_table
from pyhudi.sql_engine.sql_pushdown import table_predicate
from pyhudi.sql_engine.table_functions import function_rows, table_argument
from pyhudi.sql_engine.table_references import splice_query
from pyhudi.sql_engine.views import expand_views

__all__ = ["SparkStatementSession", "SparkOperations", "run"]

_READ_BLOB = re.compile(r"\bread_blob\s*\(", re.IGNORECASE)
_WAREHOUSE = "spark.sql.warehouse.dir"


@dataclass(frozen=True, slots=True)
class SparkOperations:
    """The functions of `pyhudi.spark` that execute statements."""

    write: Callable[..., WriteResult]
    update: Callable[..., WriteResult]
    delete: Callable[..., WriteResult]
    merge: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class SparkStatementSession:
    """Session that executes statements on Spark.

    Attributes:
        spark: The Spark session.
        operations: Functions of `pyhudi.spark`.
        storage_options: Credentials and settings of the object store.
        options: `hoodie.*` options of writes: those of the call, in `run` with those of SET.
        statement_options: These options, and those that only SQL knows.
    """

    spark: SparkSession
    operations: SparkOperations
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    options: Mapping[str, object] | None = field(default=None, repr=False)
    statement_options: StatementOptions = field(default_factory=lambda: StatementOptions(None))

    def with_settings(self) -> SparkStatementSession:
        """This session, with the options of SET as defaults."""
        merged = StatementOptions.of(spark_table_names.settings(self.spark), self.options)
        return replace(self, options=merged.options, statement_options=merged)

    def qualified(self, name: S.TableName) -> S.TableName:
        return name if name.path is not None else qualified(name, str(self.spark.catalog.currentDatabase()))

    def view(self, name: S.TableName) -> View | None:
        return None if name.path is not None else spark_table_names.stored_view(self.spark, str(self.qualified(name)))

    def set_view(self, name: S.TableName, view: View | None) -> None:
        spark_table_names.store_view(self.spark, str(self.qualified(name)), view)

    def set_option(self, key: str, value: str | None) -> None:
        if value is None:
            self.spark.conf.unset(key)
        else:
            self.spark.conf.set(key, value)

    def stored(self, name: S.TableName) -> Any:
        name = self.qualified(name)
        registered = name.path is None and spark_table_names.registered_path(self.spark, str(name)) is not None
        return None if registered else stored_table(name)

    def check_new(self, name: S.TableName) -> None:
        stored = self.stored(name)
        if stored is not None:
            stored.check_namespace()

    def path(self, name: S.TableName) -> str | None:
        """Path of the Hudi table of the session that a name resolves to; None if there is none."""
        if name.path is not None:
            return name.path
        registered = spark_table_names.registered_path(self.spark, str(self.qualified(name)))
        if registered is not None:
            return registered
        location = located(self.spark, str(name))
        return location if location is not None and Table.exists(location, self.storage_options) else None

    def find_table(self, name: S.TableName) -> Table | None:
        """Open the Hudi table that a name resolves to; None if there is none."""
        stored = self.stored(name)
        if stored is not None:
            table: Table = stored.open(self.storage_options, self.options)
            return table
        path = self.path(name)
        return None if path is None else Table(path, self.storage_options, self.options)

    def table(self, name: S.TableName) -> Table:
        """Open the Hudi table that a name resolves to. Raises InvalidRequest if there is none."""
        if self.view(name) is not None:
            raise InvalidRequest(f"{name} is a view, but the statement requires a table")
        table = self.find_table(name)
        if table is None:
            raise InvalidRequest(
                f"no Hudi table {name} in the session: register its path with pyhudi.spark.register, or write hudi.`/path`"
            )
        return table

    def is_registered(self, name: S.TableName) -> bool:
        stored = self.stored(name)
        return self.path(name) is not None if stored is None else bool(stored.exists())

    def location_for(self, name: S.TableName) -> str:
        stored = self.stored(name)
        if stored is not None:
            return str(stored.location())
        return f"{str(self.spark.conf.get(_WAREHOUSE)).rstrip('/')}/{'/'.join(self.qualified(name).parts)}"

    def register(self, name: S.TableName, path: str, *, read_optimized: bool = False, managed: bool = False) -> None:
        stored = self.stored(name)
        if stored is None:
            spark_table_names.register_path(
                self.spark, str(self.qualified(name)), path, read_optimized=read_optimized, managed=managed
            )
        else:
            stored.register(path)

    def is_read_optimized(self, name: S.TableName) -> bool:
        return name.path is None and spark_table_names.is_read_optimized(self.spark, str(self.qualified(name)))

    def is_managed(self, name: S.TableName) -> bool:
        return name.path is None and spark_table_names.is_managed(self.spark, str(self.qualified(name)))

    def names_of_location(self, name: S.TableName) -> list[S.TableName]:
        if name.path is not None:
            return []
        path = spark_table_names.registered_path(self.spark, str(self.qualified(name)))
        paths = spark_table_names.registered_paths(self.spark)
        same = [other for other, location in paths.items() if path is not None and is_same_location(location, path)]
        return [S.TableName(tuple(other.split("."))) for other in same] or [name]

    def unregister(self, name: S.TableName) -> bool:
        stored = self.stored(name)
        if stored is not None:
            return bool(stored.forget())
        return spark_table_names.unregister_path(self.spark, str(self.qualified(name)))

    def names(self, database: str | None) -> list[str]:
        stored = None if database is None else stored_namespace(database)
        return [
            *names_in(spark_table_names.registered_paths(self.spark), database),
            *(stored.tables() if stored is not None else ()),
        ]

    def create_as(
        self, statement: S.CreateTable, query: S.SelectQuery, path: str, storage_options: Mapping[str, str] | None
    ) -> WriteResult:
        frame = self.frame(query)
        ordered = create_statements.new_table_columns(statement, frame.columns)
        defaults = create_statements.creation_defaults(self.statement_options)
        named = create_statements.new_options(statement, ordered, defaults)
        options = {**named, **(self.options or {}), OPERATION.key: "bulk_insert"}
        if statement.table.path is None:
            options.setdefault(NAME.key, statement.table.parts[-1])
        rows = frame.select(*map(quote_name, ordered))
        return self.operations.write(rows, path, "errorifexists", options, storage_options)

    def frame(self, query: S.SelectQuery, lead: str = "") -> DataFrame:
        """DataFrame of a query. lead: text before it, such as EXPLAIN."""
        query = expand_views(query, self.view)
        frames: dict[str, Any] = {}
        build_predicate = _conditions(query)

        def placeholder(reference: S.Reference) -> str:
            rows = self._rows_of(reference, build_predicate)
            if rows is None:
                assert reference.name is not None, "table-valued functions have rows"
                return ".".join(map(quote_name, reference.name.parts))
            name = f"pyhudi_{len(frames)}"
            frames[name] = rows
            return f"{{{name}}}"

        if _READ_BLOB.search(query.body.text):
            roots = parse_options(self.options).text(BLOB_ROOTS)
            register_read_blob(self.spark, roots, self.storage_options)
        text = splice_query(query, placeholder, lambda written: written.replace("{", "{{").replace("}", "}}"))
        # Braces are Spark's syntax to reference a DataFrame in SQL; without DataFrames they are ordinary characters.
        return self.spark.sql(lead + text, **frames) if frames else self.spark.sql(lead + query.body.text)

    def _rows_of(
        self, reference: S.Reference, build_predicate: Callable[[S.Reference, pa.Schema], Expr | None]
    ) -> DataFrame | None:
        if reference.name is None:
            rows = function_rows(reference, self.table(table_argument(reference)))
            return rows.to_spark(self.spark) if isinstance(rows, Scan) else small_frame(self.spark, rows)
        table = self.find_table(reference.name)
        if table is None:
            if reference.as_of is not None:
                raise InvalidRequest(f"{reference.name} AS OF a time: the session has no Hudi table of that name")
            return None
        as_of = reference.as_of
        scan = partial(table_statements.scan_rows, table, read_optimized=self.is_read_optimized(reference.name))
        schema = table.schema(meta_columns=True) if as_of is None else scan(["*"], as_of=as_of).schema
        return scan(["*"], filter=build_predicate(reference, schema), as_of=as_of).to_spark(self.spark)


def _conditions(query: S.SelectQuery) -> Callable[[S.Reference, pa.Schema], Expr | None]:
    """Predicate that a query applies to the rows of a table: a filter by table reference and table schema."""
    if COMPARED_DIFFERENTLY.search(query.body.text):
        return lambda reference, schema: None
    names = {reference.start: f"pyhudi_{number}" for number, reference in enumerate(query.references)}
    tree = parse_spark(splice_query(query, lambda reference: names[reference.start]))
    return lambda reference, schema: table_predicate(tree, names[reference.start], schema)


def run(session: SparkStatementSession, statement: S.Statement) -> DataFrame:
    """Execute a statement.

    Returns:
        The rows of a query or a SHOW statement; for a write, one row with its statistics; otherwise no rows and no
        columns.
    """
    check_options(statement, session.options)
    session = session.with_settings()
    with sql_refused():
        result = (_RUN.get(type(statement)) or RUN[type(statement)])(session, statement)
    if isinstance(result, WriteResult):
        result = result_row(result)
    if result is None:
        return without_rows(session.spark)
    return small_frame(session.spark, result) if isinstance(result, pa.Table) else result


def _select(session: SparkStatementSession, statement: S.Select) -> DataFrame:
    return session.frame(statement.query)


def _insert(session: SparkStatementSession, statement: S.Insert) -> WriteResult:
    table = session.table(statement.table)
    operation, write_options = table_statements.insert_operation(table, statement, session.statement_options)
    frame = session.frame(statement.query)
    names = table_statements.without_meta(frame.columns)
    if len(names) < len(frame.columns):
        frame = frame.select(*map(quote_name, names))
    columns, by_name = table_statements.insert_columns(table, statement, to_arrow_schema(frame.schema))
    schema = table.schema()
    constants = table_statements.constant_values(table, statement)
    values = {name: value for name, value in constants.items() if name not in columns}
    rows = stored_frame(frame, columns, schema, values, fixed_columns(table.config), by_name=by_name)
    write: Callable[..., WriteResult] = getattr(table, operation)
    return write(rows, options=write_options)


# ---------------------------------------------------------------------------------------------------------------------
# Changes


def _delete(session: SparkStatementSession, statement: S.Delete) -> WriteResult:
    return session.operations.delete(
        session.spark,
        session.table(statement.table).uri,
        _condition(statement.change.where),
        alias=statement.change.alias,
        options=session.options,
        storage_options=session.storage_options,
    )


def _update(session: SparkStatementSession, statement: S.Update) -> WriteResult:
    table = session.table(statement.table)
    return session.operations.update(
        session.spark,
        table.uri,
        _assigned(table, Clause(ClauseAction.UPDATE, statement.change.values)),
        _condition(statement.change.where),
        alias=statement.change.alias,
        options=session.options,
        storage_options=session.storage_options,
    )


def _merge(session: SparkStatementSession, statement: S.MergeInto) -> WriteResult:
    table, change = session.table(statement.table), statement.change
    frame = session.frame(change.source)
    names = table_statements.without_meta(frame.columns)
    merge = session.operations.merge(
        session.spark,
        table.uri,
        frame if len(names) == len(frame.columns) else frame.select(*map(quote_name, names)),
        # In parentheses it is not taken for a column name.
        f"({_text(change.on)})",
        target_alias=change.target_alias,
        source_alias=change.source_alias,
        options=session.options,
        storage_options=session.storage_options,
    )
    for clause in change.clauses:
        deletes = clause.action is ClauseAction.DELETE
        values = None if deletes else _assigned(table, clause, names, change.source_alias)
        merge = merge.with_clause(replace(clause, values=values, where=_condition(clause.where)))
    result: WriteResult = merge.execute()
    return result


def _assigned(table: Table, clause: Clause, source: Sequence[str] = (), alias: str = "") -> dict[str, Any]:
    """The values of a clause by table column: Spark SQL of the statement, and literals for defaults."""
    values = explicit_values(
        table.config, table.schema(), clause, source, lambda name: Computed(f"{quote_name(alias)}.{quote_name(name)}")
    )
    return {name: _value(value) for name, value in values.items()}


def _value(value: S.SelectQuery | pa.Scalar | Computed) -> Computed | Column:
    if isinstance(value, pa.Scalar):
        return typed_literal(value)
    return Computed(_text(value)) if isinstance(value, S.SelectQuery) else value


def _condition(where: S.SelectQuery | None) -> str | None:
    return None if where is None else _text(where)


def _text(expression: S.SelectQuery) -> str:
    if expression.references:
        raise Unsupported(
            f"a query within a condition or a value of UPDATE, DELETE or MERGE on Spark ({expression.body.text}); use MERGE "
            "with the query in USING"
        )
    return expression.body.text


def _explain(session: SparkStatementSession, statement: S.Explain) -> DataFrame:
    return session.frame(statement.query, f"EXPLAIN {statement.mode} ")


def _set_option(session: SparkStatementSession, statement: S.SetOption) -> DataFrame:
    """SET: options of Hudi and PyHudi are checked; all are kept in the session's configuration."""
    key, value = statement.key, statement.value
    if key is not None and value is not None and key.startswith(("hoodie.", "pyhudi.")):
        check_setting(key, value, {})
        session.set_option(key, value)
        return small_frame(session.spark, pa.table({"key": [key], "value": [value]}))
    return session.spark.sql("SET" + ("" if key is None else f" {key}") + ("" if value is None else f"={value}"))


def _reset_options(session: SparkStatementSession, statement: S.ResetOptions) -> DataFrame:
    """RESET; the names of tables and views stay."""
    if statement.key is not None:
        return session.spark.sql(f"RESET {statement.key}")
    for key in spark_table_names.settings(session.spark):
        session.set_option(key, None)
    return without_rows(session.spark)


def _create_database(session: SparkStatementSession, statement: S.CreateDatabase) -> DataFrame:
    stored = stored_namespace(statement.name)
    if stored is not None:
        stored.create(if_not_exists=statement.if_not_exists)
        return without_rows(session.spark)
    exists = "IF NOT EXISTS " if statement.if_not_exists else ""
    return session.spark.sql(f"CREATE DATABASE {exists}{_quoted(statement.name)}")


def _drop_database(session: SparkStatementSession, statement: S.DropDatabase) -> DataFrame:
    """DROP DATABASE of Spark's catalog; with CASCADE also the names of its Hudi tables."""
    stored = stored_namespace(statement.name)
    if stored is not None:
        stored.drop(if_exists=statement.if_exists, cascade=statement.cascade)
        return without_rows(session.spark)
    mine = [f"{statement.name.lower()}.{name}" for name in session.names(statement.name)]
    if mine and not statement.cascade:
        raise InvalidRequest(f"DROP DATABASE {statement.name}: it has {', '.join(mine)}. Add CASCADE to remove them")
    exists = "IF EXISTS " if statement.if_exists else ""
    frame = session.spark.sql(f"DROP DATABASE {exists}{_quoted(statement.name)}{' CASCADE' if statement.cascade else ''}")
    for name in mine:
        spark_table_names.unregister_path(session.spark, name)
    return frame


def _quoted(database: str) -> str:
    return ".".join(map(quote_name, database.split(".")))


def _use(session: SparkStatementSession, statement: S.UseDatabase) -> DataFrame:
    if stored_namespace(statement.name) is not None:
        raise Unsupported(
            f"USE {statement.name} on Spark: it is a namespace of PyHudi's catalog; write the whole name of each table"
        )
    return session.spark.sql(f"USE {_quoted(statement.name)}")


def _show_databases(session: SparkStatementSession, statement: S.ShowDatabases) -> DataFrame:
    if statement.catalog is None:
        return session.spark.sql("SHOW DATABASES")
    catalogs = features.find("catalogs")
    if catalogs is None or catalogs.configured_settings(statement.catalog) is None:
        return session.spark.sql(f"SHOW DATABASES IN {quote_name(statement.catalog)}")
    names = stored_catalog(statement.catalog).list_namespaces()
    return small_frame(session.spark, pa.table({"namespace": pa.array(names, pa.string())}))


def _call(session: SparkStatementSession, statement: S.CallProcedure) -> DataFrame:
    call = called(session, statement)
    if call.path is None and statement.procedure.lower() != "help":
        raise InvalidRequest(f"CALL {statement.procedure} needs table => name, or path => '/path'")
    rows = features.load("procedures", "CALL").call(
        statement.procedure,
        path=call.path,
        storage_options=call.storage_options,
        spark=session.spark,
        session_options=session.options,
        name=call.name,
        **call.arguments,
    )
    return session.spark.createDataFrame(rows)


_RUN: Mapping[type, Callable[[SparkStatementSession, Any], DataFrame | WriteResult]] = {
    S.Select: _select,
    S.Insert: _insert,
    S.Delete: _delete,
    S.Update: _update,
    S.MergeInto: _merge,
    S.CallProcedure: _call,
    S.Explain: _explain,
    S.SetOption: _set_option,
    S.ResetOptions: _reset_options,
    S.CreateDatabase: _create_database,
    S.DropDatabase: _drop_database,
    S.UseDatabase: _use,
    S.ShowDatabases: _show_databases,
}
