"""Statements about tables as a whole, and what is shown of them: the same on every engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, TableExists, TableNotFound, Unsupported
from pyhudi.operations.admin.alter_properties import NAME_PROPERTY
from pyhudi.operations.admin.open_table import refusal_of_existing
from pyhudi.operations.commit.results import WriteResult
from pyhudi.options.scope import VERBS, check_call_options
from pyhudi.options.supported import parse_options
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine import table_statements

__all__ = ["RUN", "StatementSession", "called", "check_options", "result_row"]


class StatementSession(Protocol):
    """What an engine knows of names, and what it does itself."""

    @property
    def options(self) -> Mapping[str, object] | None:
        """Options of the session's writes."""

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """Credentials and settings of the store."""

    def table(self, name: S.TableName) -> Table:
        """The table that a name stands for.  Raises InvalidRequest where it stands for none."""

    def is_registered(self, name: S.TableName) -> bool:
        """Whether a name, which is no path, stands for something already."""

    def location_for(self, name: S.TableName) -> str:
        """Where a new table of a name lies, which is no path, when the statement does not say it."""

    def register(self, name: S.TableName, path: str) -> None:
        """Let a name stand for a table from now on."""

    def unregister(self, name: S.TableName) -> bool:
        """Let a name stand for nothing.  Whether it was one that `register` had."""

    def names(self) -> list[str]:
        """The names that stand for tables."""

    def create_as(self, statement: S.CreateTable, query: S.SelectQuery, path: str) -> WriteResult:
        """Create a table of the rows of a query; one that cannot be filled is no table afterwards."""


_CHANGES = (
    S.Insert,
    S.Delete,
    S.Update,
    S.MergeInto,
    S.AddColumns,
    S.DropColumns,
    S.RenameColumn,
    S.AlterColumn,
    S.SetProperties,
    S.RenameTable,
    S.DropPartition,
    S.Truncate,
)


def check_options(statement: S.Statement, options: Mapping[str, object] | None) -> None:
    """Raises InvalidRequest for options that have no effect on a statement: those of reads, and any on what writes nothing."""
    if not options:
        return
    check_call_options(VERBS["pyhudi.spark.sql"], parse_options(options))
    if not (isinstance(statement, _CHANGES) or (isinstance(statement, S.CreateTable) and statement.query is not None)):
        raise InvalidRequest(
            f"options= speak of writes ({', '.join(options)}), and the statement is none; CREATE TABLE has TBLPROPERTIES"
        )


def result_row(result: WriteResult) -> pa.Table:
    """What a write changed, as one row."""
    return pa.table(
        {
            "operation": [result.operation],
            "instant": pa.array([result.instant], pa.string()),
            "rows_inserted": [result.rows_inserted],
            "rows_updated": [result.rows_updated],
            "rows_deleted": pa.array([result.rows_deleted], pa.int64()),
        }
    )


def called(session: StatementSession, statement: S.CallProcedure) -> tuple[str | None, dict[str, S.Value]]:
    """The path of the table that a procedure is called for, None where none is named, and the other arguments."""
    arguments = table_statements.call_arguments(statement)
    named = table_statements.called_table(arguments)
    path = arguments.pop("path", None)
    if named is not None:
        if path is not None:
            raise InvalidRequest(f"CALL {statement.procedure} takes either table => or path =>")
        path = session.table(named).uri
    arguments.pop("table", None)
    return None if path is None else str(path), arguments


def _create(session: StatementSession, statement: S.CreateTable) -> WriteResult | None:
    name = statement.table
    named = name.path is None
    if named and session.is_registered(name):
        if statement.if_not_exists:
            return None
        raise TableExists(f"there is a table {name} already")
    if not named and statement.location is not None:
        raise InvalidRequest(f"CREATE TABLE {name} has a path for its name, and LOCATION another one")
    path = name.path or statement.location or session.location_for(name)
    if not named and statement.if_not_exists and Table.exists(path, session.storage_options):
        return None
    result = _made(session, statement, path)
    if named:
        session.register(name, path)
    return result


def _made(session: StatementSession, statement: S.CreateTable, path: str) -> WriteResult | None:
    """Create the table; where it has a name of its own, it may be there and gets that name."""
    if statement.query is not None:
        if Table.exists(path, session.storage_options):
            raise refusal_of_existing(path, session.storage_options, parse_options(session.options), "INSERT INTO adds to it")
        return session.create_as(statement, statement.query, path)
    try:
        table_statements.create(statement, path, session.storage_options, exist_ok=statement.table.path is None)
    except TableNotFound as error:
        raise InvalidRequest(f"CREATE TABLE {statement.table} names no columns, and there is no table at {path}") from error
    return None


def _alter(session: StatementSession, statement: table_statements.Alteration) -> None:
    table_statements.alter(session.table(statement.table), statement)


def _set_properties(session: StatementSession, statement: S.SetProperties) -> None:
    table_statements.set_properties(session.table(statement.table), statement)


def _rename(session: StatementSession, statement: S.RenameTable) -> None:
    """Give the table another name, in the catalog and in its properties, as the real Hudi does; its files stay where they are."""
    name, to = statement.table, statement.to
    if name.path is not None or to.path is not None:
        raise InvalidRequest(f"ALTER TABLE {name} RENAME TO {to}: a path is no name; files stay where they are")
    if session.is_registered(to):
        raise TableExists(f"there is a table {to} already")
    table = session.table(name)
    if not session.unregister(name):
        raise Unsupported(f"ALTER TABLE {name} RENAME TO, which the catalog of Spark knows: spark.sql renames it there")
    try:
        table.set_properties({NAME_PROPERTY: to.parts[-1]})
    except BaseException:
        session.register(name, table.uri)
        raise
    session.register(to, table.uri)


def _empty(session: StatementSession, statement: S.DropPartition | S.Truncate) -> WriteResult:
    return table_statements.empty_partitions(session.table(statement.table), statement.partition)


def _drop(session: StatementSession, statement: S.DropTable) -> None:
    name = statement.table
    if name.path is not None:
        raise Unsupported(f"DROP TABLE {name}: a path is no name that could be forgotten; delete the folder")
    if session.unregister(name):
        return
    if session.is_registered(name):
        raise Unsupported(f"DROP TABLE {name}, which the catalog of Spark knows: spark.sql drops it there")
    if not statement.if_exists:
        session.table(name)


def _show_partitions(session: StatementSession, statement: S.ShowPartitions) -> pa.Table:
    return table_statements.list_partitions(session.table(statement.table), statement)


def _show_tables(session: StatementSession, statement: S.ShowTables) -> pa.Table:
    return pa.table({"tableName": pa.array(session.names(), pa.string())})


def _show_properties(session: StatementSession, statement: S.ShowProperties) -> pa.Table:
    return table_statements.table_properties(session.table(statement.table), statement)


def _describe(session: StatementSession, statement: S.Describe) -> pa.Table:
    return table_statements.described(session.table(statement.table), statement)


RUN: Mapping[type, Callable[[Any, Any], pa.Table | WriteResult | None]] = {
    S.CreateTable: _create,
    S.AddColumns: _alter,
    S.DropColumns: _alter,
    S.RenameColumn: _alter,
    S.AlterColumn: _alter,
    S.SetProperties: _set_properties,
    S.RenameTable: _rename,
    S.DropPartition: _empty,
    S.Truncate: _empty,
    S.DropTable: _drop,
    S.ShowPartitions: _show_partitions,
    S.ShowTables: _show_tables,
    S.ShowProperties: _show_properties,
    S.Describe: _describe,
}
"""What carries each of these statements out."""
