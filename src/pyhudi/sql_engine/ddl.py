"""Execute DDL, SHOW and DESCRIBE statements, identically on every engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from pyhudi import features
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, TableExists, TableNotFound, Unsupported
from pyhudi.operations.admin.alter_properties import NAME_PROPERTY
from pyhudi.operations.admin.open_table import existing_table_error
from pyhudi.operations.admin.stored_settings import COMMENT_PROPERTY
from pyhudi.operations.commit.results import WriteResult
from pyhudi.options.read_options import QUERY_TYPE
from pyhudi.options.scope import TABLE_OPERATIONS, check_call_options
from pyhudi.options.supported import parse_options
from pyhudi.options.sync_options import READ_OPTIMIZED_PROPERTY
from pyhudi.sql_engine import create_statements, index_statements, show_statements, table_statements
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.session_state import DEFAULT_DATABASE, StatementOptions, View, merged_options
from pyhudi.sql_engine.sql_catalog import is_same_location
from pyhudi.sql_engine.views import view_of

__all__ = ["RUN", "StatementSession", "called", "check_options", "result_row"]


class StatementSession(Protocol):
    """What a session provides: name resolution, and engine-specific execution."""

    @property
    def options(self) -> Mapping[str, object] | None:
        """Options of the session's writes."""

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """Credentials and settings of the object store."""

    def table(self, name: S.TableName) -> Table:
        """Open the table that a name resolves to. Raises InvalidRequest if there is none."""

    def is_registered(self, name: S.TableName) -> bool:
        """Return True if a name, which is not a path, is registered."""

    def location_for(self, name: S.TableName) -> str:
        """Default location of a new table, whose name is not a path."""

    def register(self, name: S.TableName, path: str, *, read_optimized: bool = False, managed: bool = False) -> None:
        """Register the path of a table under a name.

        Args:
            name: Table name.
            path: Location of the table.
            read_optimized: Queries by this name read base files only.
            managed: DROP TABLE deletes the files.
        """

    def is_read_optimized(self, name: S.TableName) -> bool:
        """Return True for a name that was registered as read optimized."""

    def is_managed(self, name: S.TableName) -> bool:
        """Return True for a name that was registered as managed."""

    def names_of_location(self, name: S.TableName) -> list[S.TableName]:
        """Return the registered names with the same location as this one, which is among them."""

    def unregister(self, name: S.TableName) -> bool:
        """Remove a name added by `register`, and return whether it existed."""

    def check_new(self, name: S.TableName) -> None:
        """Raise InvalidRequest if no table of this name can be created."""

    def stored(self, name: S.TableName) -> Any:
        """Return the table of a stored catalog that a name denotes, which may not exist; None for other names."""

    def names(self, database: str | None) -> list[str]:
        """Return the registered table names in a database, without it; None is the default one."""

    @property
    def statement_options(self) -> StatementOptions:
        """The options of SET, and those of the session's writes."""

    def set_option(self, key: str, value: str | None) -> None:
        """Set an option of the session, or remove it."""

    def qualified(self, name: S.TableName) -> S.TableName:
        """Resolve a name in the current database."""

    def view(self, name: S.TableName) -> View | None:
        """Return the view of a name; None if there is none."""

    def set_view(self, name: S.TableName, view: View | None) -> None:
        """Store a view, or remove it."""

    def create_as(
        self, statement: S.CreateTable, query: S.SelectQuery, path: str, storage_options: Mapping[str, str] | None
    ) -> WriteResult:
        """Create a table from the rows of a query; a failed write leaves no table."""


_CHANGES = (
    S.Insert,
    S.Delete,
    S.Update,
    S.MergeInto,
    S.AddColumns,
    S.DropColumns,
    S.RenameColumn,
    S.AlterColumn,
    S.AlterDefault,
    S.SetProperties,
    S.RenameTable,
    S.DropPartition,
    S.AddPartitions,
    S.Truncate,
    S.CreateIndex,
    S.DropIndex,
)


def check_options(statement: S.Statement, options: Mapping[str, object] | None) -> None:
    """Raise InvalidRequest for options without effect on a statement: options of reads, and any option of a statement
    without write.
    """
    if not options:
        return
    check_call_options(TABLE_OPERATIONS["pyhudi.spark.sql"], parse_options(merged_options({}, options)))
    if not (isinstance(statement, _CHANGES) or (isinstance(statement, S.CreateTable) and statement.query is not None)):
        raise InvalidRequest(
            f"options= apply to writes ({', '.join(options)}), and the statement is not a write; CREATE TABLE has TBLPROPERTIES"
        )


def result_row(result: WriteResult) -> pa.Table:
    """Statistics of a write, as one row."""
    return pa.table(
        {
            "operation": [result.operation],
            "instant": pa.array([result.instant], pa.string()),
            "rows_in": [result.rows_in],
            "rows_combined": [result.rows_combined],
            "rows_inserted": [result.rows_inserted],
            "rows_updated": [result.rows_updated],
            "rows_unchanged": pa.array([result.rows_unchanged], pa.int64()),
            "rows_deleted": pa.array([result.rows_deleted], pa.int64()),
        }
    )


@dataclass(frozen=True, slots=True)
class CalledProcedure:
    """Arguments of CALL.

    Attributes:
        path: Location of the table; None if it was not passed.
        storage_options: Storage options of the table.
        name: Name of the table; None if the call has its path.
        arguments: The other arguments.
    """

    path: str | None
    storage_options: Mapping[str, str] | None = field(repr=False)
    name: str | None
    arguments: dict[str, S.Value]


def called(session: StatementSession, statement: S.CallProcedure) -> CalledProcedure:
    """Resolve the table that a procedure is called on.

    Raises:
        InvalidRequest: `table` and `path` are different tables.
    """
    arguments = table_statements.call_arguments(statement)
    named = table_statements.called_table(arguments)
    path = arguments.pop("path", None)
    arguments.pop("table", None)
    if named is None:
        return CalledProcedure(None if path is None else str(path), session.storage_options, None, arguments)
    storage = session.table(named).context.storage
    if path is not None:
        second = features.load("procedures", "CALL").second_table(statement.procedure)
        if second is not None:
            arguments[second] = path
        elif not is_same_location(str(path), storage.uri):
            raise InvalidRequest(f"CALL {statement.procedure}: table => {named} is at {storage.uri}, not at path => {path}")
    name = None if named.path is not None else str(named)
    return CalledProcedure(storage.uri, dict(storage.spec().options), name, arguments)


def _create(session: StatementSession, statement: S.CreateTable) -> WriteResult | None:
    name = statement.table
    has_name = name.path is None
    if has_name and session.view(name) is not None:
        raise TableExists(f"CREATE TABLE {name}: there is a view of that name")
    if has_name and session.is_registered(name):
        if statement.if_not_exists:
            return None
        raise TableExists(f"table {name} exists already")
    if not has_name and statement.location is not None:
        raise InvalidRequest(f"CREATE TABLE {name} has a path as its name, and a different LOCATION: remove one of them")
    if has_name:
        session.check_new(name)
    read_optimized = create_statements.is_read_optimized(statement)
    if read_optimized and (not has_name or session.stored(name) is not None):
        raise Unsupported(
            f"CREATE TABLE {name} with {READ_OPTIMIZED_PROPERTY}=true: only a name of the session can be read optimized. "
            f"SET {QUERY_TYPE} = read_optimized, or pass it to Table"
        )
    path = name.path or statement.location or session.location_for(name)
    stored = session.stored(name)
    storage_options = session.storage_options if stored is None else stored.storage_options(session.storage_options)
    try:
        result = _create_table(session, statement, path, storage_options)
    except TableExists:
        if not statement.if_not_exists:
            raise
        create_statements.check_existing(statement, Table(path, storage_options))
        result = None
    if has_name:
        try:
            managed = statement.location is None and stored is None
            session.register(name, path, read_optimized=read_optimized, managed=managed)
        except TableExists:
            # Another session has created the table in the same catalog.
            if not statement.if_not_exists:
                raise
    return result


def _create_table(
    session: StatementSession, statement: S.CreateTable, path: str, storage_options: Mapping[str, str] | None
) -> WriteResult | None:
    """Create the table. If the statement uses a name, an existing table at the location is registered under it."""
    takes_existing = statement.table.path is None and not statement.if_not_exists
    if statement.query is not None:
        if Table.exists(path, storage_options):
            raise existing_table_error(path, storage_options, parse_options(session.options), "INSERT INTO adds to it")
        return session.create_as(statement, statement.query, path, storage_options)
    if statement.like is not None:
        source = session.table(statement.like)
        create_statements.create_like(statement, source, path, storage_options, exist_ok=takes_existing)
        return None
    try:
        defaults = create_statements.creation_defaults(session.statement_options)
        create_statements.create(statement, path, storage_options, exist_ok=takes_existing, defaults=defaults)
    except TableNotFound as error:
        raise InvalidRequest(f"CREATE TABLE {statement.table} names no columns, and no table exists at {path}") from error
    return None


def _rename(session: StatementSession, statement: S.RenameTable) -> None:
    """Rename the table in the catalog and in its properties, as Hudi does; its files are not moved."""
    name, to = statement.table, statement.to
    if name.path is not None or to.path is not None:
        raise InvalidRequest(f"ALTER TABLE {name} RENAME TO {to}: a path cannot be renamed; register a name")
    if session.is_registered(to):
        raise TableExists(f"table {to} exists already")
    stored = session.stored(name)
    if stored is not None:
        return stored.rename(session.stored(to))  # type: ignore[no-any-return]
    table, read_optimized, managed = session.table(name), session.is_read_optimized(name), session.is_managed(name)
    if not session.unregister(name):
        raise Unsupported(
            f"ALTER TABLE {name} RENAME TO: the name is not in PyHudi's catalog; rename it where it is defined, in Spark's "
            "catalog with spark.sql"
        )
    try:
        table.set_properties({NAME_PROPERTY: to.parts[-1]})
    except BaseException:
        session.register(name, table.uri, read_optimized=read_optimized, managed=managed)
        raise
    session.register(to, table.uri, read_optimized=read_optimized, managed=managed)


def _drop(session: StatementSession, statement: S.DropTable) -> None:
    """Remove a name. PURGE, and the drop of a managed table, delete the files first, and remove all names of the location."""
    name = statement.table
    if name.path is not None and not statement.purge:
        raise Unsupported(f"DROP TABLE {name}: a path is not in the catalog; DROP TABLE ... PURGE deletes the files")
    deletes = statement.purge or session.is_managed(name)
    if deletes and (name.path is not None or session.is_registered(name)):
        try:
            session.table(name).drop()
        except TableNotFound:
            if name.path is not None and not statement.if_exists:
                raise
        for other in session.names_of_location(name):
            session.unregister(other)
        return
    if name.path is not None or session.unregister(name):
        return
    if session.is_registered(name):
        raise Unsupported(f"DROP TABLE {name}: the table is in Spark's catalog; drop it there with spark.sql")
    if not statement.if_exists:
        uri = session.table(name).uri
        raise InvalidRequest(f"DROP TABLE {name}: the name of {uri} is not in the catalog; delete the variable or argument")


def _show_tables(session: StatementSession, statement: S.ShowTables) -> pa.Table:
    """Names of the current database, or of another one."""
    named = ("",) if statement.database is None else (*statement.database.split("."), "")
    *parts, _ = session.qualified(S.TableName(named)).parts
    database = ".".join(parts) or DEFAULT_DATABASE
    names = session.names(None if database == DEFAULT_DATABASE else database)
    if statement.pattern is not None:
        pattern = re.escape(statement.pattern).replace(r"\*", ".*").replace(r"\|", "|")
        names = [name for name in names if re.fullmatch(pattern, name, re.IGNORECASE)]
    return pa.table(
        {
            "namespace": pa.array([database] * len(names), pa.string()),
            "tableName": pa.array(names, pa.string()),
            "isTemporary": pa.array([False] * len(names), pa.bool_()),
        }
    )


def _show_create(session: StatementSession, statement: S.ShowCreateTable) -> pa.Table:
    text = create_statements.creation_text(session.table(statement.table), session.qualified(statement.table))
    return pa.table({"createtab_stmt": [text]})


def _describe(session: StatementSession, statement: S.Describe) -> pa.Table:
    name, table = statement.table, session.table(statement.table)
    if statement.column is not None:
        return show_statements.described_column(table, statement.column)
    managed = session.is_managed(name)
    return show_statements.described(table, session.qualified(name), extended=statement.extended, managed=managed)


def _comment_on_table(table: Table, statement: S.CommentOnTable) -> None:
    table.set_properties({COMMENT_PROPERTY: statement.comment})


def _comment_on_column(table: Table, statement: S.CommentOnColumn) -> None:
    table_statements.alter(table, S.AlterColumn(statement.table, statement.column, comment=statement.comment))


def _create_view(session: StatementSession, statement: S.CreateView) -> None:
    name = statement.name
    if name.path is not None:
        raise InvalidRequest(f"CREATE VIEW {name}: a view has a name, not a path")
    if not statement.replace and (session.view(name) is not None or session.is_registered(name)):
        if statement.if_not_exists:
            return
        raise TableExists(f"CREATE VIEW {name}: the name exists. Use CREATE OR REPLACE VIEW to replace a view")
    if session.is_registered(name):
        raise TableExists(f"CREATE OR REPLACE VIEW {name}: the name is a table")
    session.set_view(name, view_of(statement, session.qualified))


def _drop_view(session: StatementSession, statement: S.DropView) -> None:
    if session.view(statement.name) is not None:
        session.set_view(statement.name, None)
    elif not statement.if_exists:
        raise InvalidRequest(f"DROP VIEW {statement.name}: there is no such view")


_ON_TABLE: Mapping[type, Callable[[Table, Any], pa.Table | WriteResult | None]] = {
    S.AddColumns: table_statements.alter,
    S.DropColumns: table_statements.alter,
    S.RenameColumn: table_statements.alter,
    S.AlterColumn: table_statements.alter,
    S.AlterDefault: table_statements.set_default,
    S.SetProperties: table_statements.set_properties,
    S.DropPartition: lambda table, statement: table_statements.empty_partitions(table, statement.partition),
    S.Truncate: lambda table, statement: table_statements.empty_partitions(table, statement.partition),
    S.AddPartitions: table_statements.add_partitions,
    S.RepairTable: table_statements.repair,
    S.ShowPartitions: table_statements.list_partitions,
    S.ShowProperties: show_statements.table_properties,
    S.ShowColumns: lambda table, statement: show_statements.column_names(table),
    S.CommentOnTable: _comment_on_table,
    S.CommentOnColumn: _comment_on_column,
    S.CreateIndex: index_statements.create_index,
    S.DropIndex: index_statements.drop_index,
    S.RefreshIndex: index_statements.refresh_index,
    S.ShowIndexes: lambda table, statement: index_statements.shown_indexes(table),
}
"""Executor of each statement that concerns only the table that it names."""


def _refresh(session: StatementSession, statement: S.RefreshTable) -> None:
    """REFRESH TABLE, which has nothing to do: each statement reads the current state. An unknown name is an error."""
    if session.view(statement.table) is None:
        session.table(statement.table)


def _on_table(session: StatementSession, statement: Any) -> pa.Table | WriteResult | None:
    return _ON_TABLE[type(statement)](session.table(statement.table), statement)


RUN: Mapping[type, Callable[[Any, Any], pa.Table | WriteResult | None]] = {
    **dict.fromkeys(_ON_TABLE, _on_table),
    S.CreateTable: _create,
    S.RenameTable: _rename,
    S.DropTable: _drop,
    S.Describe: _describe,
    S.RefreshTable: _refresh,
    S.ShowTables: _show_tables,
    S.ShowCreateTable: _show_create,
    S.CreateView: _create_view,
    S.DropView: _drop_view,
}
"""Executor of each statement type."""
