"""Statements carried out in this process: tables are read by `Table.scan`, expressions are DuckDB's, writes are those of `Table`.

SELECT                   each table is a stream of Arrow batches with the columns that the query names, of the files that may hold
                         rows that it asks for (conditions.py)
INSERT, CREATE ... AS    the rows of the query go into the write batch by batch
UPDATE, DELETE, MERGE    DuckDB computes the changed rows from one state of the table; they are written as one commit that is
                         based on that state, and computed anew where another writer came between
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from pyhudi import features
from pyhudi.api.table import Table
from pyhudi.api.table_handle import TableHandle
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import InvalidRequest
from pyhudi.format.meta_columns import META_COLUMNS
from pyhudi.operations.admin.create_table import discard_after_error
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.results import WriteResult
from pyhudi.options.supported import parse_options
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine import table_statements
from pyhudi.sql_engine.ddl import RUN, called, check_options, result_row
from pyhudi.sql_engine.dml import delete_rows, merge_rows, update_rows
from pyhudi.sql_engine.duckdb_engine import Database, RowSource, quote_identifier, read_spark, to_duck
from pyhudi.sql_engine.sql_catalog import Catalog
from pyhudi.sql_engine.sql_pushdown import is_exact_in_duckdb, table_predicate
from pyhudi.sql_engine.store_assignment import check_storable, stored
from pyhudi.sql_engine.table_functions import function_rows, table_argument
from pyhudi.sql_engine.table_references import splice_query

__all__ = ["EmbeddedStatementSession", "run"]


@dataclass(frozen=True, slots=True)
class EmbeddedStatementSession:
    """What statements are carried out with.  options: those of writes."""

    catalog: Catalog
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    options: Mapping[str, object] | None = field(default=None, repr=False)

    def table(self, name: S.TableName) -> Table:
        """The table that a name stands for.  Raises InvalidRequest for a name of rows, or of nothing."""
        found = self.catalog.lookup(name)
        if not isinstance(found, str):
            raise InvalidRequest(f"{name} stands for rows in memory, and the statement takes a table")
        return Table(found, self.storage_options, self.options)

    def opened(self, name: S.TableName) -> TableHandle:
        """The table that a name stands for, for changes of its rows."""
        return TableHandle(self.table(name).uri, self.storage_options, self.options, None)

    def is_registered(self, name: S.TableName) -> bool:
        return str(name) in self.catalog

    def location_for(self, name: S.TableName) -> str:
        return self.catalog.location_for(name)

    def register(self, name: S.TableName, path: str) -> None:
        self.catalog.register(str(name), path)

    def unregister(self, name: S.TableName) -> bool:
        return self.catalog.unregister(str(name))

    def names(self) -> list[str]:
        return list(self.catalog)

    def create_as(self, statement: S.CreateTable, query: S.SelectQuery, path: str) -> WriteResult:
        return _create_as(self, statement, query, path)


def run(session: EmbeddedStatementSession, statement: S.Statement) -> pa.Table:
    """Carry a statement out.

    Returns the rows of a query or of what is shown; of a write, one row that says what it changed; else no rows and no columns.
    """
    check_options(statement, session.options)
    found = (_RUN.get(type(statement)) or RUN[type(statement)])(session, statement)
    if isinstance(found, WriteResult):
        return result_row(found)
    return pa.table({}) if found is None else found


# ---------------------------------------------------------------------------------------------------------------------
# Queries


@contextmanager
def opened(session: EmbeddedStatementSession, *queries: S.SelectQuery) -> Iterator[tuple[Database, list[str]]]:
    """A database that holds what queries read, and their texts in DuckDB's dialect."""
    database = Database()
    try:
        yield database, [_prepared(session, database, query) for query in queries]
    finally:
        database.close()


def _prepared(session: EmbeddedStatementSession, database: Database, query: S.SelectQuery, *, expression: bool = False) -> str:
    """A query, or an expression, in DuckDB's dialect; what it reads is in the database from then on."""
    names: dict[int, str] = {}

    def stand_in(reference: S.Reference) -> str:
        return names.setdefault(reference.start, database.new_name())

    tree = read_spark(splice_query(query, stand_in), expression=expression)
    for reference in query.references:
        name = names[reference.start]
        database.add(name, _rows_of(session, reference, tree, name))
    return to_duck(tree)


def _rows_of(session: EmbeddedStatementSession, reference: S.Reference, tree: exp.Expr, name: str) -> RowSource | pa.Table:
    """The rows of what a query reads.  name: what it has there."""
    if reference.name is None:
        table = session.table(table_argument(reference))
        found = function_rows(reference, table)
        return found if isinstance(found, pa.Table) else RowSource(found.to_reader)
    named = session.catalog.lookup(reference.name)
    if not isinstance(named, str):
        if reference.as_of is not None:
            raise InvalidRequest(f"{reference.name} stands for rows in memory, which have no state AS OF a time")
        return arrow_reader(named).read_all()
    table = session.table(reference.name)
    columns = _needed(tree, table.schema(meta_columns=True).names)
    asked = partial(table_predicate, tree, name, is_plain=is_exact_in_duckdb)
    return RowSource(table_statements.requested_rows(table, columns, reference.as_of, asked).to_reader)


def _needed(tree: exp.Expr, names: list[str]) -> list[str]:
    """The columns of a table that a query may name: those with the name of anything in it, or all where it says so."""
    everything = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    aliases = {alias.name.lower() for alias in tree.find_all(exp.TableAlias)}
    whole_rows = any(not column.table and column.name.lower() in aliases for column in tree.find_all(exp.Column))
    natural = any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join))
    if everything or whole_rows or natural or any(True for _ in tree.find_all(exp.Pivot)):
        return ["*"]
    said = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    return [name for name in names if name.lower() in said] or names[-1:]


def _select(session: EmbeddedStatementSession, statement: S.Select) -> pa.Table:
    with opened(session, statement.query) as (database, (text,)):
        return database.table(text)


# ---------------------------------------------------------------------------------------------------------------------
# Creation and inserts


def _create_as(session: EmbeddedStatementSession, statement: S.CreateTable, query: S.SelectQuery, path: str) -> WriteResult:
    with opened(session, query) as (database, (text,)):
        schema = database.schema(text)
        ordered = table_statements.new_table_columns(statement, schema.names)
        text = f"SELECT {', '.join(quote_identifier(name) for name in ordered)} FROM ({text})"
        options = table_statements.new_options(statement, ordered)
        name = None if statement.table.path else statement.table.parts[-1]
        table = Table.create(path, name=name, storage_options=session.storage_options, options=options)
        try:
            rows = pa.RecordBatchReader.from_batches(database.schema(text), database.batches(text))
            return table.bulk_insert(rows, options=session.options)
        except Exception as error:
            discard_after_error(table.context, CommitSettings.of(parse_options(session.options)).lock_wait_ms, error)
            raise


def _insert(session: EmbeddedStatementSession, statement: S.Insert) -> WriteResult:
    table = session.table(statement.table)
    operation = table_statements.insert_operation(table, statement)
    fixed = {one.column: one.value for one in table_statements.static_partition_values(table, statement.partition)}
    schema = table.schema()
    with opened(session, statement.query) as (database, (text,)):
        found = database.schema(text)
        names = table_statements.without_meta(found.names)
        given = table_statements.insert_columns(table, statement, names)
        places = [place for place, name in enumerate(found.names) if name not in META_COLUMNS]
        wanted = pa.schema([schema.field(name) for name in given])
        check_storable(pa.schema([found.field(place) for place in places]), wanted)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in database.batches(text):
                values = stored(pa.RecordBatch.from_arrays([batch.column(p) for p in places], names=list(given)), wanted)
                yield _completed(values, schema, fixed)

        rows = pa.RecordBatchReader.from_batches(schema, batches())
        write: Callable[..., WriteResult] = getattr(table, operation)
        if not statement.overwrite:
            return write(rows)
        return _overwrite(table, statement, rows.read_all(), write)


def _overwrite(table: Table, statement: S.Insert, rows: pa.Table, write: Callable[..., WriteResult]) -> WriteResult:
    """An overwrite of partitions by no rows leaves them empty."""
    if rows.num_rows or not statement.partition:
        return write(rows)
    return table.delete_partitions(table_statements.resolve_partitions(table, statement.partition))


def _completed(rows: pa.RecordBatch, table_schema: pa.Schema, fixed: Mapping[str, S.Value]) -> pa.RecordBatch:
    """Rows with all columns of the table: those of PARTITION have its values, and those that nothing gives are null."""
    arrays = []
    for column in table_schema:
        if column.name in rows.schema.names:
            arrays.append(rows.column(column.name))
        elif column.name in fixed:
            arrays.append(pa.repeat(table_statements.partition_scalar(fixed[column.name], column), rows.num_rows))
        elif not column.nullable:
            raise InvalidRequest(f"column {column.name} is NOT NULL, and the statement gives it no value")
        else:
            arrays.append(pa.nulls(rows.num_rows, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=table_schema)


# ---------------------------------------------------------------------------------------------------------------------
# Changes


def _update(session: EmbeddedStatementSession, statement: S.Update) -> WriteResult:
    return update_rows(session.opened(statement.table), statement, partial(_prepared, session))


def _delete(session: EmbeddedStatementSession, statement: S.Delete) -> WriteResult:
    return delete_rows(session.opened(statement.table), statement, partial(_prepared, session))


def _merge(session: EmbeddedStatementSession, statement: S.MergeInto) -> WriteResult:
    return merge_rows(session.opened(statement.table), statement, partial(_prepared, session))


def _call(session: EmbeddedStatementSession, statement: S.CallProcedure) -> pa.Table:
    path, arguments = called(session, statement)
    rows: pa.Table = features.load("procedures", "CALL").call(
        statement.procedure, path=path, storage_options=session.storage_options, **arguments
    )
    return rows


_RUN: Mapping[type, Callable[[EmbeddedStatementSession, Any], pa.Table | WriteResult | None]] = {
    S.Select: _select,
    S.Insert: _insert,
    S.Delete: _delete,
    S.Update: _update,
    S.MergeInto: _merge,
    S.CallProcedure: _call,
}
