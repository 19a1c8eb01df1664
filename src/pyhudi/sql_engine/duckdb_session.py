"""Execute statements on the embedded engine: `Table.scan` reads tables, DuckDB evaluates expressions, `Table` writes.

SELECT                   each table is an Arrow stream of the columns that the query names, from the files that can hold
                         matching rows (sql_pushdown.py)
INSERT, CREATE ... AS    the rows of the query are written batch by batch
UPDATE, DELETE, MERGE    DuckDB computes the changed rows from one snapshot; they are written as one commit based on it,
                         and computed again after a conflict with another writer
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from pyhudi import features
from pyhudi.api.duckdb_scan import native_rows
from pyhudi.api.scan import Scan
from pyhudi.api.table import Table
from pyhudi.api.table_handle import TableHandle
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import InvalidRequest, TableExists
from pyhudi.format.hudi_types import stated_hudi_type
from pyhudi.format.meta_columns import META_COLUMNS
from pyhudi.operations.admin.create_table import discard_after_error
from pyhudi.operations.admin.stored_settings import with_stored_options
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.options.declaration import Options
from pyhudi.options.read_options import BLOB_ROOTS
from pyhudi.options.scope import TABLE_OPERATIONS
from pyhudi.options.supported import parse_options
from pyhudi.options.write_options import SCHEMA_MODE, TIMESTAMPS_NANOSECONDS
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.schema_cast import NULL_REMEDY
from pyhudi.records.schema_evolution import SchemaMode
from pyhudi.records.sql_quoting import quote_identifier
from pyhudi.records.store_assignment import check_storable, stored
from pyhudi.sql_engine import create_statements, show_statements, table_statements
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.column_aliases import check_column_aliases
from pyhudi.sql_engine.column_functions import add_column_functions
from pyhudi.sql_engine.ddl import RUN, called, check_options, result_row
from pyhudi.sql_engine.dml import delete_rows, merge_rows, update_rows
from pyhudi.sql_engine.duckdb_engine import Database, RowSource, read_spark, to_duck
from pyhudi.sql_engine.list_fields import rewrite_list_fields
from pyhudi.sql_engine.session_state import DEFAULT_DATABASE, StatementOptions, View, check_setting, qualified
from pyhudi.sql_engine.sql_catalog import SessionCatalog, is_queryable, stored_namespace, stored_table
from pyhudi.sql_engine.sql_pushdown import is_exact_in_duckdb, table_predicate
from pyhudi.sql_engine.table_functions import function_rows, table_argument
from pyhudi.sql_engine.table_references import splice_query
from pyhudi.sql_engine.views import expand_views

__all__ = ["EmbeddedStatementSession", "run"]


@dataclass(frozen=True, slots=True)
class EmbeddedStatementSession:
    """Session that executes statements in this process.

    Attributes:
        catalog: Catalog that resolves table names.
        storage_options: Credentials and settings of the object store, for tables by path.
        options: `hoodie.*` options of writes: those of the call, in `run` with those of SET.
        tables: Tables and rows of this statement.
        variables: Python variables of the calling code.
        statement_options: These options, and those that only SQL knows.
    """

    catalog: SessionCatalog
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    options: Mapping[str, object] | None = field(default=None, repr=False)
    tables: SessionCatalog = field(default_factory=SessionCatalog)
    variables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    statement_options: StatementOptions = field(default_factory=lambda: StatementOptions(None))

    def with_settings(self) -> EmbeddedStatementSession:
        """This session, with the options of SET as defaults."""
        merged = StatementOptions.of(self.catalog.session.settings, self.options)
        return replace(self, options=merged.options, statement_options=merged)

    def lookup(self, name: S.TableName) -> Any:
        """Resolve a name to a table, its path, or rows. Raises InvalidRequest for an unknown name."""
        if name.path is not None:
            return name.path
        for catalog, key in ((self.tables, name), (self.catalog, self.qualified(name))):
            registered = catalog.lookup(key)
            if registered is not None:
                return registered
        stored = stored_table(self.qualified(name), self.catalog)
        if stored is not None and (len(name.parts) == 3 or stored.exists()):
            return stored.open(self.storage_options)
        rows = self.catalog.lookup(name)
        # Rows have no database, so they are found in every one.
        if rows is not None and not isinstance(rows, (str, Table)):
            return rows
        variable = self.variables.get(str(name))
        if is_queryable(variable):
            return variable
        own = f" or in tables= (with {', '.join(self.tables)})" if any(self.tables) else ""
        origin = f"variable {name} is of type {type(variable).__name__}" if str(name) in self.variables else "no such variable"
        raise InvalidRequest(
            f"table {name} is not in the catalog (it has {', '.join(self.catalog) or 'none'}){own}, nor a Table, Scan or frame "
            f"among the variables of the caller ({origin}): register it, pass tables=, or write its path as hudi.`/path`"
        )

    def table(self, name: S.TableName) -> Table:
        """Open the table that a name resolves to. Raises InvalidRequest for a name of rows, and for an unknown name."""
        if self.view(name) is not None:
            raise InvalidRequest(f"{name} is a view, but the statement requires a table")
        registered = self.lookup(name)
        if isinstance(registered, Table):
            return registered._with_options(self.options)
        if not isinstance(registered, str):
            raise InvalidRequest(f"{name} is registered as rows in memory, but the statement requires a table")
        return Table(registered, self.storage_options, self.options)

    def opened(self, name: S.TableName) -> TableHandle:
        """Handle of the table that a name resolves to, for DML."""
        return self.table(name)._open

    def is_registered(self, name: S.TableName) -> bool:
        return self.catalog._has(self.qualified(name))

    def check_new(self, name: S.TableName) -> None:
        self.catalog._check_new(self.qualified(name))

    def location_for(self, name: S.TableName) -> str:
        return self.catalog.location_for(self.qualified(name))

    def register(self, name: S.TableName, path: str, *, read_optimized: bool = False, managed: bool = False) -> None:
        self.catalog._record(self.qualified(name), path, read_optimized=read_optimized, managed=managed)

    def is_read_optimized(self, name: S.TableName) -> bool:
        return self._is_among(name, self.catalog.session.read_optimized)

    def is_managed(self, name: S.TableName) -> bool:
        return self._is_among(name, self.catalog.session.managed)

    def _is_among(self, name: S.TableName, names: Collection[str]) -> bool:
        own = name.path is None and self.tables.lookup(name) is None
        return own and str(self.qualified(name)).lower() in names

    def names_of_location(self, name: S.TableName) -> list[S.TableName]:
        return [] if name.path is not None else self.catalog._names_of_location(self.qualified(name))

    def unregister(self, name: S.TableName) -> bool:
        return self.catalog._forget(self.qualified(name))

    def stored(self, name: S.TableName) -> Any:
        name = self.qualified(name)
        return None if str(name) in self.catalog else stored_table(name, self.catalog)

    def set_option(self, key: str, value: str | None) -> None:
        settings = self.catalog.session.settings
        settings.pop(key, None)
        if value is not None:
            settings[key] = value

    def qualified(self, name: S.TableName) -> S.TableName:
        return qualified(name, self.catalog.session.current[0])

    def view(self, name: S.TableName) -> View | None:
        return self.catalog.session.views.get(str(self.qualified(name)).lower())

    def set_view(self, name: S.TableName, view: View | None) -> None:
        views, key = self.catalog.session.views, str(self.qualified(name)).lower()
        views.pop(key, None)
        if view is not None:
            views[key] = view

    def names(self, database: str | None) -> list[str]:
        return self.catalog._names(database)

    def create_as(
        self, statement: S.CreateTable, query: S.SelectQuery, path: str, storage_options: Mapping[str, str] | None
    ) -> WriteResult:
        return _create_as(self, statement, query, path, storage_options)


def run(session: EmbeddedStatementSession, statement: S.Statement) -> pa.Table:
    """Execute a statement.

    Returns:
        The rows of a query or a SHOW statement; for a write, one row with its statistics; otherwise no rows and no
        columns.
    """
    check_options(statement, session.options)
    session = session.with_settings()
    result = (_RUN.get(type(statement)) or RUN[type(statement)])(session, statement)
    if isinstance(result, WriteResult):
        return result_row(result)
    return pa.table({}) if result is None else result


# ---------------------------------------------------------------------------------------------------------------------
# Queries


@contextmanager
def opened(
    session: EmbeddedStatementSession, *queries: S.SelectQuery, reads_files: bool = False, truncates_nanoseconds: bool = True
) -> Iterator[tuple[Database, list[str]]]:
    """A database with the rows that queries read, and the queries in DuckDB's dialect.

    Args:
        reads_files: As in `_prepared`.
        truncates_nanoseconds: As in `Database`.
    """
    database = Database(truncates_nanoseconds=truncates_nanoseconds)
    try:
        yield database, [_prepared(session, database, query, reads_files=reads_files) for query in queries]
    finally:
        database.close()


def _prepared(
    session: EmbeddedStatementSession,
    database: Database,
    query: S.SelectQuery,
    *,
    expression: bool = False,
    reads_files: bool = False,
) -> str:
    """Translate to DuckDB's dialect, and register the rows that are read; `reads_files` lets DuckDB read base files."""
    query = expand_views(query, session.view, expression=expression)
    names: dict[int, str] = {}

    def placeholder(reference: S.Reference) -> str:
        return names.setdefault(reference.start, database.new_name())

    tree = read_spark(splice_query(query, placeholder), expression=expression)
    add_column_functions(tree, database, parse_options(session.options).text(BLOB_ROOTS), session.storage_options)
    column_counts: dict[str, int] = {}
    for reference in query.references:
        name = names[reference.start]
        rows = _rows_of(session, database, reference, tree, name)
        database.sources.append(rows.schema if isinstance(rows, pa.Table) else rows[0].schema)
        column_counts[name] = len(database.sources[-1])
        if isinstance(rows, pa.Table):
            database.add(name, rows)
        else:
            _add_scan(database, name, *rows, reads_files=reads_files)
            if reads_files and tree.find(exp.Max, exp.Min) and _has_floats(rows[0].schema):
                database.ignore_statistics_in_results()
    check_column_aliases(tree, column_counts)
    rewrite_list_fields(tree, database.sources)
    return to_duck(tree)


def _has_floats(schema: pa.Schema) -> bool:
    return any(pa.types.is_floating(type_) or pa.types.is_nested(type_) for type_ in schema.types)


def _add_scan(database: Database, name: str, scan: Scan, condition: Expr | None, *, reads_files: bool) -> None:
    """Register the rows of a scan. condition: the part of its condition that the query does not have."""
    query = scan.query
    native = None
    if reads_files and scan.limit is None and isinstance(query, SnapshotQuery):
        native = native_rows(query, condition, database.new_name)
    if native is None:
        database.add(name, RowSource(scan.to_reader))
        return
    sql = native.sql
    for table_name, rows in native.tables.items():
        database.add(table_name, rows)
    if native.rest:
        rest = database.new_name()
        database.add(rest, RowSource(scan.of_slices(native.rest).to_reader))
        sql += f" UNION ALL SELECT * FROM {rest}"
    database.add_files(name, sql, native.folder, RowSource(scan.to_reader))


def _rows_of(
    session: EmbeddedStatementSession, database: Database, reference: S.Reference, tree: exp.Expr, name: str
) -> tuple[Scan, Expr | None] | pa.Table:
    """Rows of a table reference, of a scan with the condition that the query does not have. name: its name in the tree."""
    if reference.name is None:
        table = session.table(table_argument(reference))
        rows = function_rows(reference, table)
        return rows if isinstance(rows, pa.Table) else (rows, _condition(rows))
    predicate = partial(table_predicate, tree, name, is_plain=is_exact_in_duckdb)
    registered = session.lookup(reference.name)
    if isinstance(registered, (str, Table)):
        table = session.table(reference.name)
        scan = partial(table_statements.scan_rows, table, read_optimized=session.is_read_optimized(reference.name))
        if reference.as_of is not None:
            return _narrowed(database, tree, scan(["*"], as_of=reference.as_of), predicate), None
        schema = table.schema(meta_columns=True)
        database.known_columns.update(schema.names)
        return scan(_needed(tree, schema.names), filter=predicate(schema)), None
    if reference.as_of is not None:
        raise InvalidRequest(f"{reference.name} AS OF a time: the name is registered as rows in memory, which have no history")
    if isinstance(registered, Scan):
        return _narrowed(database, tree, registered, predicate), _condition(registered)
    return arrow_reader(registered).read_all()


def _condition(scan: Scan) -> Expr | None:
    return scan.query.spec.condition if isinstance(scan.query, SnapshotQuery) else None


def _narrowed(database: Database, tree: exp.Expr, scan: Scan, build_predicate: Callable[[pa.Schema], Expr | None]) -> Scan:
    """The part of a scan that a query reads. A limit of the scan applies before the query's predicate."""
    database.known_columns.update(scan.schema.names)
    columns = _needed(tree, scan.schema.names)
    predicate = build_predicate(scan.schema) if scan.limit is None else None
    bound = None if predicate is None else bind(predicate, scan.schema)
    return Scan(scan.query.narrowed(None if columns == ["*"] else columns, bound), limit=scan.limit)


def _needed(tree: exp.Expr, names: list[str]) -> list[str]:
    """Columns of a table that a query can reference: those whose name occurs in it, or all for `*`, NATURAL JOIN, PIVOT and
    an alias that names columns.
    """
    everything = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    aliases = {alias.name.lower() for alias in tree.find_all(exp.TableAlias)}
    whole_rows = any(not column.table and column.name.lower() in aliases for column in tree.find_all(exp.Column))
    natural = any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join))
    renamed = any(alias.columns and isinstance(alias.parent, exp.Table) for alias in tree.find_all(exp.TableAlias))
    if everything or whole_rows or renamed or natural or any(True for _ in tree.find_all(exp.Pivot)):
        return ["*"]
    identifiers = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    return [name for name in names if name.lower() in identifiers] or names[-1:]


def _select(session: EmbeddedStatementSession, statement: S.Select) -> pa.Table:
    with opened(session, statement.query, reads_files=True) as (database, (text,)):
        return database.table(text)


# ---------------------------------------------------------------------------------------------------------------------
# Creation and inserts


def _create_as(
    session: EmbeddedStatementSession,
    statement: S.CreateTable,
    query: S.SelectQuery,
    path: str,
    storage_options: Mapping[str, str] | None,
) -> WriteResult:
    truncates = parse_options(session.options).value_or_default(TIMESTAMPS_NANOSECONDS) == "cut"
    with opened(session, query, truncates_nanoseconds=truncates) as (database, (text,)):
        schema = database.schema(text)
        ordered = create_statements.new_table_columns(statement, schema.names)
        text = f"SELECT {', '.join(quote_identifier(name) for name in ordered)} FROM ({text})"
        defaults = create_statements.creation_defaults(session.statement_options)
        options = create_statements.new_options(statement, ordered, defaults)
        name = None if statement.table.path else statement.table.parts[-1]
        table = Table.create(path, name=name, storage_options=storage_options, options=options)
        try:
            columns = _with_hudi_types(database.schema(text), database.sources)
            batches = (stored(batch, columns) for batch in database.batches(text))
            rows = pa.RecordBatchReader.from_batches(columns, batches)
            return table.bulk_insert(rows, options=session.options)
        except Exception as error:
            discard_after_error(table.context, CommitSettings.of(parse_options(session.options)).lock_wait_ms, error)
            raise


def _with_hudi_types(schema: pa.Schema, sources: Iterable[pa.Schema]) -> pa.Schema:
    """Columns of a query; those of the type of a VECTOR, BLOB or VARIANT column that it reads get that type."""
    known = {_form(field.type): field for source in sources for field in source if stated_hudi_type(field) is not None}
    return pa.schema(
        [known.get(_form(field.type), field).with_name(field.name).with_nullable(field.nullable) for field in schema]
    )


def _form(type_: pa.DataType) -> str:
    """A type without the nullability and the names of elements, which DuckDB does not keep."""
    if pa.types.is_fixed_size_list(type_):
        return f"{type_.value_type}[{type_.list_size}]"
    return str(type_).replace(" not null", "")


def _insert(session: EmbeddedStatementSession, statement: S.Insert) -> WriteResult:
    table = session.table(statement.table)
    operation, write_options = table_statements.insert_operation(table, statement, session.statement_options)
    fixed = table_statements.constant_values(table, statement)
    options = with_stored_options(parse_options(session.options), table.config, table.uri)
    schema = _assignable(options, table)
    truncates = options.value_or_default(TIMESTAMPS_NANOSECONDS) == "cut"
    with opened(session, statement.query, truncates_nanoseconds=truncates) as (database, (text,)):
        query_schema = database.schema(text)
        positions = [position for position, name in enumerate(query_schema.names) if name not in META_COLUMNS]
        assigned = pa.schema([query_schema.field(position) for position in positions])
        columns, by_name = table_statements.insert_columns(table, statement, assigned)
        input_schema = pa.schema([schema.field(name) for name in columns])
        check_storable(assigned, input_schema, by_name=by_name)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in database.batches(text):
                values = pa.RecordBatch.from_arrays([batch.column(p) for p in positions], names=list(columns))
                values = stored(values, input_schema, fixed_columns(table.config), by_name=by_name)
                yield _completed(values, schema, fixed)

        rows = pa.RecordBatchReader.from_batches(schema, batches())
        write: Callable[..., WriteResult] = getattr(table, operation)
        # The query may read the table that an overwrite replaces, and a write that lifts NOT NULL reads its rows twice.
        streams = not statement.overwrite and schema.equals(table.schema())
        return write(rows if streams else rows.read_all(), options=write_options)


def _assignable(options: Options, table: Table) -> pa.Schema:
    """The columns that a statement assigns: nullable if the options let the write make them so."""
    lifts = options.value_or_default(SCHEMA_MODE) in (SchemaMode.WIDEN, SchemaMode.EVOLVE)
    schema = table.schema()
    return pa.schema([field.with_nullable(True) for field in schema]) if lifts else schema


def _completed(rows: pa.RecordBatch, table_schema: pa.Schema, fixed: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    """Add missing columns of the table: partition values and defaults, otherwise null."""
    arrays = []
    for column in table_schema:
        if column.name in rows.schema.names:
            arrays.append(rows.column(column.name))
        elif column.name in fixed:
            arrays.append(pa.repeat(fixed[column.name], rows.num_rows))
        elif not column.nullable:
            raise InvalidRequest(f"column {column.name} is NOT NULL, but the statement has no value for it. {NULL_REMEDY}")
        else:
            arrays.append(pa.nulls(rows.num_rows, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=table_schema)


# ---------------------------------------------------------------------------------------------------------------------
# Changes


def _update(session: EmbeddedStatementSession, statement: S.Update) -> WriteResult:
    table = session.opened(statement.table)
    return update_rows(table, table.parse(TABLE_OPERATIONS["update"], None), statement.change, partial(_prepared, session))


def _delete(session: EmbeddedStatementSession, statement: S.Delete) -> WriteResult:
    table = session.opened(statement.table)
    return delete_rows(table, table.parse(TABLE_OPERATIONS["delete"], None), statement.change, partial(_prepared, session))


def _merge(session: EmbeddedStatementSession, statement: S.MergeInto) -> WriteResult:
    table = session.opened(statement.table)
    return merge_rows(table, table.parse(TABLE_OPERATIONS["merge"], None), statement.change, partial(_prepared, session))


def _explain(session: EmbeddedStatementSession, statement: S.Explain) -> pa.Table:
    with opened(session, statement.query) as (database, (text,)):
        plan = database.table(f"EXPLAIN {text}").column("explain_value").to_pylist()
    return pa.table({"plan": pa.array(["\n".join(plan)], pa.string())})


def _set_option(session: EmbeddedStatementSession, statement: S.SetOption) -> pa.Table:
    settings = session.catalog.session.settings
    if statement.value is not None and statement.key is not None:
        check_setting(statement.key, statement.value, settings)
        session.set_option(statement.key, statement.value)
    values = settings if statement.key is None else {statement.key: settings.get(statement.key, "<undefined>")}
    return show_statements.key_value_rows(values)


def _reset_options(session: EmbeddedStatementSession, statement: S.ResetOptions) -> None:
    for key in list(session.catalog.session.settings) if statement.key is None else [statement.key]:
        session.set_option(key, None)


def _create_database(session: EmbeddedStatementSession, statement: S.CreateDatabase) -> None:
    stored = stored_namespace(statement.name, session.catalog)
    if stored is not None:
        stored.create(if_not_exists=statement.if_not_exists)
        return
    databases, key = session.catalog.session.databases, statement.name.lower()
    if key in databases and not statement.if_not_exists:
        raise TableExists(f"CREATE DATABASE {statement.name}: it exists already")
    databases.setdefault(key, statement.name)


def _drop_database(session: EmbeddedStatementSession, statement: S.DropDatabase) -> None:
    state, key = session.catalog.session, statement.name.lower()
    stored = stored_namespace(statement.name, session.catalog)
    if stored is not None:
        stored.drop(if_exists=statement.if_exists, cascade=statement.cascade)
        state.current[0] = DEFAULT_DATABASE if state.current[0].lower() == key else state.current[0]
        return
    if key == DEFAULT_DATABASE:
        raise InvalidRequest(f"DROP DATABASE {statement.name}: the default database cannot be dropped")
    if key not in state.databases:
        if statement.if_exists:
            return
        raise InvalidRequest(f"DROP DATABASE {statement.name}: there is no such database")
    tables = [f"{key}.{name}" for name in session.names(key)]
    views = [name for name in state.views if name.startswith(f"{key}.")]
    if (tables or views) and not statement.cascade:
        raise InvalidRequest(f"DROP DATABASE {statement.name}: it has {', '.join([*tables, *views])}. Add CASCADE to remove them")
    for name in tables:
        session.catalog.unregister(name)
    for name in views:
        del state.views[name]
    del state.databases[key]
    if state.current[0].lower() == key:
        state.current[0] = DEFAULT_DATABASE


def _use(session: EmbeddedStatementSession, statement: S.UseDatabase) -> None:
    state = session.catalog.session
    stored = stored_namespace(statement.name, session.catalog)
    if stored is not None:
        stored.check()
        state.current[0] = statement.name
        return
    name = state.databases.get(statement.name.lower())
    if name is None:
        raise InvalidRequest(f"USE {statement.name}: there is no such database; there are {', '.join(state.databases.values())}")
    state.current[0] = name


def _drop_table(session: EmbeddedStatementSession, statement: S.DropTable) -> pa.Table | WriteResult | None:
    if statement.purge and session.tables.lookup(statement.table) is not None:
        raise InvalidRequest(f"DROP TABLE {statement.table} PURGE: tables= has the name. Call Table.drop of the table to delete")
    return RUN[S.DropTable](session, statement)


def _show_databases(session: EmbeddedStatementSession, statement: S.ShowDatabases) -> pa.Table:
    names = session.catalog._databases(statement.catalog)
    return pa.table({"namespace": pa.array(sorted(names), pa.string())})


def _call(session: EmbeddedStatementSession, statement: S.CallProcedure) -> pa.Table:
    call = called(session, statement)
    rows: pa.Table = features.load("procedures", "CALL").call(
        statement.procedure,
        path=call.path,
        storage_options=call.storage_options,
        session_options=session.options,
        name=call.name,
        **call.arguments,
    )
    return rows


_RUN: Mapping[type, Callable[[EmbeddedStatementSession, Any], pa.Table | WriteResult | None]] = {
    S.Select: _select,
    S.Insert: _insert,
    S.Delete: _delete,
    S.Update: _update,
    S.MergeInto: _merge,
    S.CallProcedure: _call,
    S.Explain: _explain,
    S.DropTable: _drop_table,
    S.SetOption: _set_option,
    S.ResetOptions: _reset_options,
    S.CreateDatabase: _create_database,
    S.DropDatabase: _drop_database,
    S.UseDatabase: _use,
    S.ShowDatabases: _show_databases,
}
