"""Hudi tables in Spark jobs, with Hudi's own option names.

    from pyhudi import spark as hs
    df = hs.read(spark, path)                             # spark.read.format("hudi").load(path)
    hs.write(df, path, mode="append", options={...})      # df.write.format("hudi").options(...).mode("append").save(path)
    hs.update(spark, path, {"fare": "fare * 2"}, where="city = 'sf'")
    hs.delete(spark, path, where="fare IS NULL")
    hs.merge(spark, path, df, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    hs.save_as_table(df, "db.trips", mode="append")       # df.write.format("hudi").saveAsTable("db.trips")
    hs.write_stream(stream, path, {...}, checkpoint=...)  # stream.writeStream.format("hudi")
    hs.call(spark, "show_commits", path=path, limit=10)   # CALL show_commits(table => 't', limit => 10)
    hs.sql(spark, "INSERT INTO hudi.`/data/t` SELECT ...")  # spark.sql of a session that has Hudi's jar
    hs.enable(spark, alias="hudi")                        # spark.read.format("hudi") reads through PyHudi

Works on classic sessions and on Spark Connect.  Workers need PyHudi installed beside PySpark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyhudi import features
from pyhudi.api.merge import Merge, update_on_spark
from pyhudi.api.spark_streaming import StreamSink, start
from pyhudi.api.table import Filter, Table
from pyhudi.api.table_handle import TableHandle
from pyhudi.engines.spark.data_source import HudiSource
from pyhudi.engines.spark.data_source import register as register_source
from pyhudi.engines.spark.dataframe_semi_join import matching_dataframe
from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.engines.spark.jobs import set_worker_python
from pyhudi.engines.spark.read_dataframe import plan_query, query_dataframe
from pyhudi.engines.spark.session_catalog import CatalogEntry
from pyhudi.engines.spark.type_conversion import Column, DataFrame, SparkSession, StreamingQuery, table_location
from pyhudi.engines.spark.update_delete import SparkDelete, run_spark_delete
from pyhudi.errors import InvalidRequest
from pyhudi.operations.admin.table_settings import NAME
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import COLUMNS, FILTER
from pyhudi.operations.write.save_modes import Save
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings, with_schema_mode
from pyhudi.options.scope import VERBS, check_table_options
from pyhudi.options.supported import parse_options
from pyhudi.sql_engine import spark_table_names
from pyhudi.sql_engine.read_statement import read_statement

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
    """The rows of a table.

    Args:
        spark: The session.
        path: Where the table lies.
        columns: All by default, the `_hoodie_` columns among them, as Hudi's own source gives them.
        filter: SQL text such as `"fare > 10 and city = 'sf'"`, tuples, or an expression of pyarrow or Polars; partitions that
            cannot match are not read.
        options: `hoodie.datasource.query.type` with the options of each type, `as.of.instant`, `pyhudi.columns`,
            `pyhudi.filter`.
        storage_options: Credentials for PyHudi's own access; Spark's scan takes its own from the session.
        keys: A DataFrame, or rows of this process: only rows of the table are given that equal one of them in all of its columns,
            as a semi join gives them, and the indexes are asked for its values, or their range, before files are read.

    Raises:
        TableNotFound: There is no table at the path.
        InvalidRequest: A filter or column does not fit.
    """
    parsed = parse_options(options)
    check_table_options(VERBS["pyhudi.spark.read"], parsed)
    for argument, option in ((columns, COLUMNS), (filter, FILTER)):
        if argument is not None and parsed.text(option) is not None:
            raise InvalidRequest(f"option {option}={parsed.text(option)} and the argument that means the same are both given")
    _at_home(spark)
    context = Table(path, storage_options, options).context
    if keys is not None:
        return matching_dataframe(spark, context, parsed, columns, filter, keys)
    return query_dataframe(spark, plan_query(context, parsed, columns, filter))


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    mode: str = "append",
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    schema_mode: str | None = None,
) -> WriteResult:
    """Write a DataFrame to a table, creating it from the options when there is none.

    A first write that fails, for rows that do not fit among others, leaves no table.

    Args:
        df: The rows.
        path: Where the table lies.
        mode: append; overwrite; errorifexists; ignore.  overwrite replaces the table's rows and columns in one commit, after
            every check, so `df` may have been read from the table itself; what the table is (type, key, partitioning, merging)
            stays, and an option that says otherwise is refused.  With insert_overwrite_table columns evolve, as with append.
        options: Hudi's, above all `hoodie.datasource.write.operation` (upsert by default; bulk_insert when nothing names a record
            key).
        storage_options: Credentials for PyHudi's own access.
        schema_mode: What the rows may change of the table's columns, "strict", "widen" (the default) or "evolve", as of
            `Table.upsert`.

    Raises:
        TableExists: There is a table, under errorifexists.
        InvalidRequest: Options or columns do not fit the table.
        WriteConflict: Other writers won.
    """
    _at_home(df.sparkSession)
    engine = SparkEngine(df.sparkSession)
    options = with_schema_mode(options, schema_mode)
    save = Save.planned(path, mode, parse_options(options), storage_options, engine.input_schema(df))
    return save.run(engine, df, lambda keys: engine.partition_paths(df, keys))


def update(
    spark: SparkSession,
    path: str | os.PathLike[str],
    set: Mapping[str, Any],
    where: str | Column | None = None,
    *,
    alias: str | None = None,
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult:
    """Give the records for which `where` is true other values in some columns, in one commit.

    The changed rows are upserted, so the table's merge mode decides as between any two rows of a key: with the ordering value
    that it had, or a later one, the changed row wins; with an earlier one it loses.  A partition column that changes moves the
    record; a record key that would change is refused.  When another writer changes one of the file groups
    meanwhile, the rows are searched and changed anew.

    Args:
        spark: The session, whose cluster does the work.
        path: Where the table lies.
        set: Values by column: Spark SQL text (`"fare * 1.1"`, `"'done'"`) or Columns, over the columns of the row as it is; other
            values of Python are literals.  A value becomes one of its column's type as in an INSERT of Spark's.
        where: Spark SQL text or a Column; all records when left out.
        alias: A name by which `set` and `where` may qualify the columns (`t.fare`).
        options: `hoodie.*` options.
        storage_options: Credentials for PyHudi's own access.

    Returns:
        The instant of the write, and what it changed.

    Raises:
        InvalidRequest: A column is not there or cannot have its value's type, or the key of a record would change.
        WriteConflict: Other writers won more often than retries are allowed.
        Unsupported: The table generates its record keys.
    """
    table = TableHandle(path, storage_options, options, None)
    return update_on_spark(table, table.parse(VERBS["pyhudi.spark.update"], None), spark, set, where, alias)


def delete(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: str | Column | None,
    *,
    alias: str | None = None,
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult:
    """Delete the records for which `where` is true, in one commit.

    Args:
        spark: The session, whose cluster does the work.
        path: Where the table lies.
        where: Spark SQL text or a Column; None deletes all records.
        alias: A name by which `where` may qualify the columns.
        options: `hoodie.*` options.
        storage_options: Credentials for PyHudi's own access.

    Returns:
        The instant of the write, and what it changed.
    """
    table = TableHandle(path, storage_options, options, None)
    parsed = table.parse(VERBS["pyhudi.spark.delete"], None)
    return table.write(
        lambda settings: run_spark_delete(table.load_context(parsed), SparkDelete(spark, where, alias), settings),
        WriteSettings.of(parsed, WriteOperation.DELETE),
    )


def merge(
    spark: SparkSession,
    path: str | os.PathLike[str],
    source: DataFrame,
    on: str | Sequence[str] | Column,
    *,
    target_alias: str = "target",
    source_alias: str = "source",
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Merge:
    """Let the rows of a source meet those of the table: say what becomes of them, and then `execute()`.

    Nothing is read or written before that; then it is one commit.  No row comes to the driver.

    Args:
        spark: The session of the source.
        path: Where the table lies.
        source: The rows.
        on: Names of columns that both sides have, or a condition over both aliases (`"target.id = source.key"`, or a Column).
            Nulls match nothing.  Equal record keys, or partition fields, leave the files outside of the source's ranges unread.
        target_alias: What conditions and values call the table.
        source_alias: What they call the source.
        options: `hoodie.*` options; `pyhudi.schema.mode` says what `when_matched_update_all` and `when_not_matched_insert_all`
            may change of the table's columns.
        storage_options: Credentials for PyHudi's own access.
    """
    table = TableHandle(path, storage_options, options, None)
    return Merge(
        table, table.parse(VERBS["pyhudi.spark.merge"], None), source, on, target_alias=target_alias, source_alias=source_alias
    )


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
    """Start a streaming query that writes to a table, creating it from the options when there is none.

    Each micro-batch becomes one commit, exactly once: its number stands in the commit, so a restart from the checkpoint, wherever
    the last run died, loses and repeats nothing.  Compactions and clusterings that the batches plan run in a thread beside.

    Args:
        df: The streaming DataFrame.
        path: Where the table lies.
        options: Hudi's; `hoodie.datasource.write.streaming.checkpoint.identifier` names the stream in commits, and is the query's
            id in its checkpoint when left out.
        storage_options: Credentials for PyHudi's own access.
        checkpoint: Spark's checkpoint location; required unless the session has a default one.
        output_mode: append, update, or complete (each batch replaces the table).
        trigger: Arguments of `DataStreamWriter.trigger`, such as `{"availableNow": True}`.
        query_name: The query's name in Spark.
    """
    sink = StreamSink(path, options, storage_options, output_mode=output_mode)
    return start(sink, df, output_mode=output_mode, checkpoint=checkpoint, trigger=trigger, query_name=query_name)


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
    """Run one of Hudi's procedures on the table at `path`, or on the table of the session's catalog with that name.

    Names, arguments and columns are those of Hudi's `CALL`; `pyhudi.features.procedures.NAMES` lists them.  Compactions and
    clusterings
    run their tasks on the session.

    Args:
        spark: The session.
        procedure: The name of the procedure.
        table: A table of the session's catalog.
        path: Where the table lies, in place of `table`.
        storage_options: Credentials for PyHudi's own access.
        arguments: The procedure's own arguments.

    Raises:
        InvalidRequest: There is no such procedure, table or argument.
    """
    if (table is None) == (path is None):
        raise InvalidRequest(f"procedure {procedure} takes either table= or path=")
    if table is not None:
        path = table_location(spark, table)
    rows = features.load("procedures", f"procedure {procedure}").call(
        procedure, path=path, storage_options=storage_options, spark=spark, **arguments
    )
    return spark.createDataFrame(rows)


def sql(
    spark: SparkSession,
    statement: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Carry a SQL statement out on tables of Hudi's.

    Spark computes queries, conditions and values itself; no jar is needed (`pip install "pyhudi[sql]"`).  What stands for a
    table: a path (hudi.`/data/trips`), a name given to `register` or to CREATE TABLE, or one of the session's catalog whose place
    holds a table of Hudi's.  Any other name is Spark's own, such as a view.

    Args:
        spark: The session.
        statement: One statement: SELECT, CREATE TABLE, INSERT, UPDATE, DELETE, MERGE INTO, ALTER TABLE, CALL and others.
        storage_options: Credentials for PyHudi's own access.
        options: `hoodie.*` options of writes.

    Returns:
        The rows of a query, or of what is shown; of a write one row that says what it changed; else a frame without columns.

    Raises:
        InvalidRequest: The statement is not well formed (with its line, its column, and what was expected), or does not fit its
            tables.
        Unsupported: The statement is not carried out.
        TableExists: CREATE TABLE of one that is there.
    """
    parsed = read_statement(statement, embedded=False)
    from pyhudi.sql_engine.spark_session import SparkOperations, SparkStatementSession, run

    verbs = SparkOperations(write=write, update=update, delete=delete, merge=merge, call=call)
    return run(SparkStatementSession(spark, verbs, storage_options, options), parsed)


def save_as_table(
    df: DataFrame,
    name: str,
    mode: str = "errorifexists",
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    schema_mode: str | None = None,
) -> WriteResult:
    """Write a DataFrame to a table that the session's catalog has, or gets, as `df.write.saveAsTable` does.

    `spark.table(name)` and Spark's SQL read it from then on, by `format("pyhudi")`; `sql`, `call` and this function change it.

    Args:
        df: The rows.
        name: The table's name; several parts may have dots between them.
        mode: errorifexists (the default, as Spark has it), append, overwrite, ignore.
        options: Hudi's, as of `write`.
        storage_options: Credentials for PyHudi's own access; Spark's catalog keeps none, so that reads by the name take them from
            the environment.
        path: Where the table lies; unset: where the catalog has it, else below `spark.sql.warehouse.dir`.
        schema_mode: As of `write`.

    Returns:
        The instant of the write, and what it changed.

    Raises:
        TableExists: There is a table, under errorifexists, or another kind of table has the name.
    """
    spark = df.sparkSession
    _at_home(spark)
    named = CatalogEntry.of(spark, name, path)
    if not Table.exists(named.path, storage_options):
        options = {NAME.key: named.parts[-1], **(options or {})}
    result = write(df, named.path, mode, options, storage_options, schema_mode=schema_mode)
    named.enter()
    return result


def register(spark: SparkSession, name: str, path: str | os.PathLike[str]) -> None:
    """Let a name stand for the table at a path, in `sql` on this session.

    It is kept in the session's configuration, as `pyhudi.table.<name>`.

    Args:
        spark: The session.
        name: The name; several parts may have dots between them.
        path: Where the table lies.
    """
    spark_table_names.register_path(spark, name, os.fspath(path))


def enable(spark: SparkSession, alias: str | None = "hudi") -> None:
    """Register `format("pyhudi")` in a session, and let its filters reach the reader.

    `format("pyhudi")` works without this call where Spark finds the package by itself; the alias, for jobs that say
    `format("hudi")`, needs it, and goes only where Hudi's own bundle is not on the class path.  Sets
    `spark.sql.python.filterPushdown.enabled` in this session.

    Args:
        spark: The session.
        alias: Another name to register it under.
    """
    register_source(spark, alias)


def _at_home(spark: SparkSession) -> None:
    """Workers of a local session run this interpreter, and `format("pyhudi")` is known, which Spark looked for with another."""
    if set_worker_python(spark):
        spark.dataSource.register(HudiSource)
