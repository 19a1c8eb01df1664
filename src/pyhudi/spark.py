"""Hudi tables in Spark jobs, with Hudi's own option names.

    from pyhudi import spark as hs
    df = hs.read(spark, path)                             # spark.read.format("hudi").load(path)
    hs.write(df, path, mode="append", options={...})      #
    df.write.format("hudi").options(...).mode("append").save(path)
    hs.update(spark, path, {"fare": "fare * 2"}, where="city = 'sf'")
    hs.delete(spark, path, where="fare IS NULL")
    hs.merge(spark, path, df, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    hs.save_as_table(df, "db.trips", mode="append")       # df.write.format("hudi").saveAsTable("db.trips")
    hs.write_stream(stream, path, {...}, checkpoint=...)  # stream.writeStream.format("hudi")
    hs.call(spark, "show_commits", path=path, limit=10)   # CALL show_commits(table => 't', limit => 10)
    hs.sql(spark, "INSERT INTO hudi.`/data/t` SELECT ...")  # spark.sql of a session that has Hudi's jar
    hs.enable(spark, alias="hudi")                        # spark.read.format("hudi") reads through PyHudi

Works on classic sessions and on Spark Connect. PyHudi must be installed alongside PySpark on the workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pyhudi import features
from pyhudi.api.argument_types import checked
from pyhudi.api.merge import Merge, assignments, update_on_spark
from pyhudi.api.spark_streaming import StreamSink, start
from pyhudi.api.table import Filter, Table
from pyhudi.api.table_handle import TableHandle, is_spark_value
from pyhudi.api.write_function import table_columns, upsert_keeping
from pyhudi.engines.arrow.input_rows import arrow_reader, typed_rows
from pyhudi.engines.spark.data_source import HudiSource
from pyhudi.engines.spark.data_source import register as register_source
from pyhudi.engines.spark.dataframe_semi_join import matching_dataframe
from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.engines.spark.jobs import set_worker_python
from pyhudi.engines.spark.read_dataframe import plan_query, query_dataframe
from pyhudi.engines.spark.session_catalog import CatalogEntry
from pyhudi.engines.spark.type_conversion import Column, DataFrame, SparkSession, StreamingQuery, small_frame, table_location
from pyhudi.engines.spark.update_delete import run_spark_delete
from pyhudi.errors import InvalidRequest
from pyhudi.operations.admin.open_table import resolve_location
from pyhudi.operations.changes.statement import DeleteStatement
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.save_modes import Save
from pyhudi.operations.write.write_settings import KEEP, WriteOperation, WriteSettings, with_arguments, with_schema_mode
from pyhudi.options.read_options import COLUMNS, FILTER
from pyhudi.options.scope import TABLE_OPERATIONS, check_table_options
from pyhudi.options.supported import parse_options
from pyhudi.options.table_options import NAME
from pyhudi.options.write_options import SCHEMA_MODE, TIMESTAMPS_NANOSECONDS
from pyhudi.records.timestamp_coercion import check_no_truncated_nanoseconds
from pyhudi.sql_engine import spark_table_names
from pyhudi.sql_engine.read_statement import read_statement
from pyhudi.sql_engine.session_state import qualified
from pyhudi.sql_engine.sql_ast import TableName

__all__ = [
    "Merge",
    "StreamSink",
    "call",
    "delete",
    "enable",
    "merge",
    "read",
    "register",
    "save_as_table",
    "sql",
    "update",
    "write",
    "write_stream",
]


@checked
def read(
    spark: SparkSession,
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    keys: Any = None,
) -> DataFrame:
    """Read the rows of a table.

    Args:
        spark: The session.
        path: Path or URI of the table.
        columns: All by default, including the `_hoodie_` columns, as in Hudi's own source.
        filter: SQL text such as `"fare > 10 and city = 'sf'"`, tuples, or an expression of pyarrow or Polars;
            partitions that cannot match are pruned.
        options: `hoodie.datasource.query.type` with the options of each type, `as.of.instant`, `pyhudi.columns`, `pyhudi.filter`.
        storage_options: Credentials for PyHudi's own access; Spark's scan takes its own from the session.
        keys: A DataFrame, or rows of this process, for a semi join: only rows of the table that equal one of them in
            all of its columns are returned. Indexes prune files by its values, or by their range, before files are
            read.

    Raises:
        TableNotFound: No table exists at the path.
        InvalidRequest: A filter or column is invalid.
    """
    parsed = parse_options(options)
    check_table_options(TABLE_OPERATIONS["pyhudi.spark.read"], parsed)
    for argument, option in ((columns, COLUMNS), (filter, FILTER)):
        if argument is not None and parsed.text(option) is not None:
            raise InvalidRequest(f"option {option}={parsed.text(option)} duplicates an argument; pass only one of them")
    _configure_session(spark)
    context = Table(path, storage_options, options).context
    if keys is not None:
        return matching_dataframe(spark, context, parsed, columns, filter, keys)
    return query_dataframe(spark, plan_query(context, parsed, columns, filter))


@checked
def write(
    df: Any,
    path: str | os.PathLike[str],
    mode: str = "append",
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    where: Filter | None = None,
    schema_mode: str | None = None,
    missing_columns: str | None = None,
    once: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
) -> WriteResult:
    """Write a DataFrame to a table, and create the table from the options if it does not exist.

    If the first write fails because of invalid rows, no table remains.

    Args:
        df: The rows: a DataFrame, or rows of this process as in `Table.upsert` (PyArrow, Polars, pandas and others),
            which become one of the active session.
        path: Path or URI of the table.
        mode: One of Spark's save modes, append (the operation of `options`, upsert by default), overwrite, errorifexists
            and ignore; or the name of an operation, above all upsert and insert. overwrite replaces the table's rows and
            columns in one commit, after all checks, so `df` may be read from the table itself. The table's type, key,
            partitioning and merge mode stay, and contradicting options are refused. With insert_overwrite_table columns
            evolve, as with append.
        options: Hudi's, above all `hoodie.datasource.write.operation` (upsert by default; bulk_insert without a record key).
        storage_options: Credentials for PyHudi's own access.
        where: With mode overwrite: predicate over the partition columns, as in `pyhudi.write`. Only the partitions that
            match it are replaced.
        schema_mode: Allowed changes of the table's columns: "strict", "merge" (the default), "widen" or "evolve", as in
            `Table.upsert`.
        missing_columns: "error", "null" or "keep", as in `Table.upsert`. "keep" requires an upsert.
        once: Application id and version of this write, as in `Table.upsert`.
        commit_metadata: Entries stored in the commit, as in `Table.upsert`.

    Returns:
        The instant of the write, and its statistics; no instant if nothing was written.

    Raises:
        TableExists: A table exists, under errorifexists.
        InvalidRequest: Options or columns do not fit the table.
        WriteConflict: Other writers won.
    """
    given = with_schema_mode(options, schema_mode)
    df = _dataframe(df, lambda _: None if mode == "ignore" else table_columns(path, storage_options), given)
    _configure_session(df.sparkSession)
    engine = SparkEngine(df.sparkSession)
    keeps = missing_columns == KEEP
    parsed = parse_options(
        with_arguments(
            options,
            schema_mode=schema_mode,
            missing_columns=None if keeps else missing_columns,
            once=once,
            commit_metadata=commit_metadata,
        )
    )
    if keeps and (kept := upsert_keeping(path, df, mode, parsed, storage_options)) is not None:
        return kept
    save = Save.planned(path, mode, parsed, storage_options, engine.input_schema(df), where)
    return save.run(engine, df, lambda keys: engine.partition_paths(df, keys))


@checked
def update(
    spark: SparkSession,
    path: str | os.PathLike[str],
    set: Mapping[str, Any] | None = None,
    where: str | Column | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    alias: str | None = None,
    once: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult:
    """Change columns of the records for which `where` is true, in one commit.

    The changed rows are upserted, so the table's merge mode applies. With an equal or later ordering value the changed
    row wins; with an earlier one it loses. Changing a partition column moves the record; changing a record key is
    refused. If another writer changes one of the file groups concurrently, the update is computed again.

    Args:
        spark: The session, whose cluster does the work.
        path: Path or URI of the table.
        set: Values by column: Spark SQL text (`"fare * 1.1"`, `"'done'"`) or Columns, over the columns of the current
            row; other Python values, and those of `hp.lit`, are literals. Values are cast to the column's type as in
            Spark's INSERT.
        where: Spark SQL text or a Column; all records if omitted.
        values: Python values by column: text is text.
        alias: A name by which `set` and `where` may qualify the columns (`t.fare`).
        once: Application id and version of this write, as in `Table.upsert`.
        commit_metadata: Entries stored in the commit, as in `Table.upsert`.
        options: `hoodie.*` options.
        storage_options: Credentials for PyHudi's own access.

    Returns:
        The instant of the write, and what it changed.

    Raises:
        InvalidRequest: A column does not exist or cannot have its value's type, or the key of a record would change.
        WriteConflict: Other writers won more often than retries are allowed.
        Unsupported: The table generates its record keys.
    """
    table = TableHandle(path, storage_options, with_arguments(options, once=once, commit_metadata=commit_metadata), None)
    parsed, assigned = table.parse(TABLE_OPERATIONS["pyhudi.spark.update"], None), assignments(set, values)
    return update_on_spark(table, parsed, spark, assigned, where, alias)


@checked
def delete(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: str | Column | None,
    *,
    alias: str | None = None,
    once: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult:
    """Delete the records for which `where` is true, in one commit.

    Args:
        spark: The session, whose cluster does the work.
        path: Path or URI of the table.
        where: Spark SQL text or a Column; None deletes all records.
        alias: A name by which `where` may qualify the columns.
        once: Application id and version of this write, as in `Table.upsert`.
        commit_metadata: Entries stored in the commit, as in `Table.upsert`.
        options: `hoodie.*` options.
        storage_options: Credentials for PyHudi's own access.

    Returns:
        The instant of the write, and what it changed.
    """
    table = TableHandle(path, storage_options, with_arguments(options, once=once, commit_metadata=commit_metadata), None)
    parsed = table.parse(TABLE_OPERATIONS["pyhudi.spark.delete"], None)
    return table.write(
        lambda settings: run_spark_delete(table.load_context(parsed), spark, DeleteStatement(where, alias), settings),
        WriteSettings.of(parsed, WriteOperation.DELETE),
    )


@checked
def merge(
    spark: SparkSession,
    path: str | os.PathLike[str],
    source: Any,
    on: str | Sequence[str] | Column,
    *,
    target_alias: str = "target",
    source_alias: str = "source",
    schema_mode: str | None = None,
    once: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Merge:
    """Start a MERGE of source rows into the table; add clauses to the result, then call `execute()`.

    Nothing is read or written before `execute()`, which makes one commit. No row is sent to the driver.

    Args:
        spark: The session of the source.
        path: Path or URI of the table.
        source: The rows: a DataFrame, or rows of this process as in `write`.
        on: Names of columns that both sides have, or a condition over both aliases (`"target.id = source.key"`, or a
            Column). Nulls match nothing. Equality of record keys or partition fields prunes files outside of the source's ranges.
        target_alias: Name of the table in conditions and values.
        source_alias: Name of the source.
        schema_mode: Changes that `when_matched_update_all` and `when_not_matched_insert_all` may make to the table's
            columns, as in `Table.upsert`.
        once: Application id and version of this write, as in `Table.upsert`.
        commit_metadata: Entries stored in the commit, as in `Table.upsert`.
        options: `hoodie.*` options.
        storage_options: Credentials for PyHudi's own access.

    Returns:
        The merge, without clauses.
    """
    options = with_arguments(options, schema_mode=schema_mode, once=once, commit_metadata=commit_metadata)
    table = TableHandle(path, storage_options, options, None)
    return Merge(
        table,
        table.parse(TABLE_OPERATIONS["pyhudi.spark.merge"], None),
        _dataframe(source, lambda _: table_columns(path, storage_options), options, spark),
        on,
        target_alias=target_alias,
        source_alias=source_alias,
    )


@checked
def write_stream(
    df: DataFrame,
    path: str | os.PathLike[str],
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
) -> StreamingQuery:
    """Start a streaming query that writes to a table, and create the table from the options if it does not exist.

    Each micro-batch becomes one commit, exactly once: its number is stored in the commit. A restart from the checkpoint
    therefore loses and repeats nothing, wherever the last run died. Compactions and clusterings that the batches plan
    run in a separate thread.

    Args:
        df: The streaming DataFrame.
        path: Path or URI of the table.
        options: Hudi's; `hoodie.datasource.write.streaming.checkpoint.identifier` identifies the stream in commits, by
            default the query's id in its checkpoint with the operation.
        storage_options: Credentials for PyHudi's own access.
        checkpoint: Spark's checkpoint location; required unless the session has a default one.
        output_mode: append, update, or complete (each batch replaces the table).
        trigger: Arguments of `DataStreamWriter.trigger`, such as `{"availableNow": True}`.
        query_name: The query's name in Spark.

    Returns:
        The started query.
    """
    sink = StreamSink(path, options, storage_options, output_mode=output_mode, checkpoint=checkpoint)
    return start(sink, df, output_mode=output_mode, checkpoint=checkpoint, trigger=trigger, query_name=query_name)


@checked
def call(
    spark: SparkSession,
    procedure: str,
    /,
    *,
    table: str | None = None,
    path: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    **arguments: object,
) -> DataFrame:
    """Run one of Hudi's procedures on the table at `path`, or on a table of the session's catalog.

    Names, arguments and columns are those of Hudi's `CALL`; `pyhudi.features.procedures.NAMES` lists them. Compactions
    and clusterings run their tasks on the session.

    Args:
        spark: The session.
        procedure: The name of the procedure.
        table: A table of the session's catalog.
        path: Path or URI of the table, instead of `table`.
        storage_options: Credentials for PyHudi's own access.
        arguments: The procedure's own arguments.

    Returns:
        The rows of the procedure.

    Raises:
        InvalidRequest: The procedure, table or argument does not exist.
    """
    procedures = features.load("procedures", f"procedure {procedure}")
    second = procedures.second_table(procedure)
    if second and table is not None and path is not None:
        arguments[second] = os.fspath(path)
        path = None
    if (table is None) == (path is None) and procedure.lower() != "help":
        raise InvalidRequest(f"procedure {procedure} requires either table= or path=")
    if table is not None:
        path, storage_options = resolve_location(table, storage_options)
        path = table_location(spark, table) if path == table else path
    rows = procedures.call(procedure, path=path, storage_options=storage_options, spark=spark, name=table, **arguments)
    return spark.createDataFrame(rows)


@checked
def sql(
    spark: SparkSession,
    statement: str,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Execute a SQL statement on Hudi tables.

    Spark computes queries, conditions and values itself; no jar is needed (`pip install "pyhudi[sql]"`). A Hudi table
    is a path (hudi.`/data/trips`), a name from `register` or CREATE TABLE, or a table of the session's catalog whose
    location contains a Hudi table. Other names, such as views, are resolved by Spark.

    Args:
        spark: The session.
        statement: One statement: SELECT, CREATE TABLE, INSERT, UPDATE, DELETE, MERGE INTO, ALTER TABLE, CALL and
            others.
        params: Values of the parameters of the statement: a list for `?`, a dictionary for `:name` or `$name`.
        storage_options: Credentials for PyHudi's own access.
        commit_metadata: Entries stored in the commit of a write, as in `Table.upsert`.
        options: `hoodie.*` options of writes.

    Returns:
        The rows of a query or SHOW statement; for a write one row with the changes; otherwise a frame without columns.

    Raises:
        InvalidRequest: The statement is malformed (with line, column, and the expected token), or does not fit its
            tables.
        Unsupported: The statement is not supported.
        TableExists: CREATE TABLE of an existing table.
    """
    parsed = read_statement(statement, params, embedded=False)
    from pyhudi.sql_engine.spark_session import SparkOperations, SparkStatementSession, run

    options = with_arguments(options, commit_metadata=commit_metadata)
    operations = SparkOperations(write=write, update=update, delete=delete, merge=merge)
    return run(SparkStatementSession(spark, operations, storage_options, options), parsed)


@checked
def save_as_table(
    df: Any,
    name: str,
    mode: str = "errorifexists",
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    schema_mode: str | None = None,
    once: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
) -> WriteResult:
    """Write a DataFrame to a table of the session's catalog, and create it if needed, as `df.write.saveAsTable` does.

    `spark.table(name)` and Spark SQL then read it by `format("pyhudi")`; `sql`, `call` and this function change it.

    Args:
        df: The rows, as in `write`.
        name: The table's name, with dots between several parts.
        mode: errorifexists (the default, as in Spark), append, overwrite, ignore.
        options: Hudi's, as in `write`.
        storage_options: Credentials for PyHudi's own access. Spark's catalog stores none, so reads by name take them
            from the environment.
        path: Path or URI of the table; by default its location in the catalog, or below `spark.sql.warehouse.dir`.
        schema_mode: As in `write`.
        once: As in `write`.
        commit_metadata: As in `write`.

    Returns:
        The instant of the write, and what it changed.

    Raises:
        TableExists: A table exists, under errorifexists, or a table of another format has the name.
    """
    if resolve_location(name, storage_options)[0] != name:
        raise InvalidRequest(f"{name} is a table of a configured catalog and not of Spark's: use hs.write(df, {name!r})")
    given = with_schema_mode(options, schema_mode)
    df = _dataframe(df, lambda spark: table_columns(CatalogEntry.of(spark, name, path).path, storage_options), given)
    spark = df.sparkSession
    _configure_session(spark)
    entry = CatalogEntry.of(spark, name, path)
    if not Table.exists(entry.path, storage_options):
        options = {NAME.key: entry.parts[-1], **(options or {})}
    result = write(
        df, entry.path, mode, options, storage_options, schema_mode=schema_mode, once=once, commit_metadata=commit_metadata
    )
    entry.enter()
    return result


@checked
def register(spark: SparkSession, name: str, path: str | os.PathLike[str]) -> None:
    """Register a name for the table at a path, for `sql` on this session.

    It is stored in the session's configuration, as `pyhudi.table.<name>`.

    Args:
        spark: The session.
        name: The name, with dots between several parts; a single part belongs to the current database.
        path: Path or URI of the table.
    """
    table = qualified(TableName(tuple(name.split("."))), str(spark.catalog.currentDatabase()))
    spark_table_names.register_path(spark, str(table), os.fspath(path))


@checked
def enable(spark: SparkSession, alias: str | Sequence[str] | None = "hudi") -> None:
    """Register `format("pyhudi")` in a session.

    `format("pyhudi")` works without this call if Spark discovers the package by itself. Aliases, for jobs that use
    `format("hudi")`, require it, and work only if Hudi's own bundle is not on the class path.

    Args:
        spark: The session.
        alias: Other names to register it under, such as `["hudi", "org.apache.hudi"]`; None for no other name.
    """
    register_source(spark, [alias] if isinstance(alias, str) else alias or ())


def _dataframe(
    rows: Any,
    columns: Callable[[SparkSession], pa.Schema | None],
    options: Mapping[str, object] | None,
    spark: SparkSession | None = None,
) -> Any:
    """The rows as a DataFrame of the session, by default the active one.

    Args:
        columns: Returns the table's columns.
        options: Options of the write.

    Raises:
        InvalidRequest: There is no session, or Spark would truncate nanoseconds of the rows.
    """
    if is_spark_value(rows):
        return rows
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise InvalidRequest("rows of this process need an active Spark session: create one, or pass a Spark DataFrame")
    parsed = parse_options(options)
    may_widen = parsed.explicit(SCHEMA_MODE) is not None
    table = arrow_reader(typed_rows(rows, lambda: columns(session), may_widen=may_widen)).read_all()
    if parsed.value_or_default(TIMESTAMPS_NANOSECONDS) != "cut":
        check_no_truncated_nanoseconds(table)
    return small_frame(session, table)


def _configure_session(spark: SparkSession) -> None:
    """Make workers of a local session run this interpreter, and register `format("pyhudi")`, which Spark looked up with
    another one.
    """
    if set_worker_python(spark):
        spark.dataSource.register(HudiSource)
