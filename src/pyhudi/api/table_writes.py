"""Writes of `Table`: insert, upsert, delete, update, merge, overwrite and micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from pyhudi.api.argument_types import checked_class
from pyhudi.api.grouped_writes import write_small_batch
from pyhudi.api.key_arguments import keys_to_delete
from pyhudi.api.merge import Merge, assignments, update_embedded, update_on_spark
from pyhudi.api.scan import Scan
from pyhudi.api.table_handle import is_spark_value
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.input_rows import arrow_reader, is_empty, required_without_nulls, typed_rows
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.delete_where import run_delete_where
from pyhudi.operations.write.write_attempt import exclusive_write
from pyhudi.operations.write.write_once import CommitMark
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import KEEP, WriteOperation, WriteSettings, with_arguments, with_schema_mode
from pyhudi.options.declaration import Options
from pyhudi.options.scope import TABLE_OPERATIONS, operation_for
from pyhudi.options.write_options import PARTIAL_UPDATE, SCHEMA_MODE, THREADS
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.schema_evolution import SchemaMode
from pyhudi.storage.locks import MAX_HOLD_MS
from pyhudi.table.snapshot import Snapshot
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import Column, DataFrame, SparkSession

from pyhudi.api.opened_table import OpenedTable


@checked_class
class TableWrites(OpenedTable):
    """The write methods of `Table`."""

    def upsert(
        self,
        data: Any,
        *,
        partial: bool = False,
        based_on: Scan | None = None,
        schema_mode: str | None = None,
        missing_columns: str | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Insert records with new keys and merge the others with the stored records, by the table's merge mode.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark
                DataFrame.
            partial: Partial update: the data has the key, partition and ordering fields and some other columns. Missing
                columns keep their stored values, and keys that do not exist in the table are skipped. (Option
                `pyhudi.partial.update`.)
            based_on: The scan from which the rows were computed (optimistic concurrency). The write commits only if the
                file groups that it writes to have not changed since that scan; otherwise it raises `WriteConflict`, and
                the caller scans and computes again. No update is lost between read and write. File groups that were
                only read are not checked.
            schema_mode: Schema evolution that the data may cause. "strict": none. "merge" (default): new columns, and
                wider types that hold all values exactly (int32 to int64 or double, float to double). "widen": also nulls
                in columns that may not be null, which become nullable. "evolve": as in Hudi, also integers to floating
                point and numbers to strings. Record key, partition and ordering fields keep their types. The result
                reports the changes. (Option `pyhudi.schema.mode`.)
            missing_columns: Columns of the table that the data lacks. "error" (default) refuses the data. "null" writes nulls.
                "keep" retains the stored values of records that exist, and writes nulls into new ones; the rows are then
                written as a merge. (Option `hoodie.write.set.null.for.missing.columns` for "null".)
            once: Application id and version of this write, such as `("daily-load", 17)`. If that version or a later one
                of the application is committed, nothing is written and `WriteResult.skipped` is True, so a write whose
                outcome is unknown can be repeated. Of concurrent writes of one version, one commits. (Option
                `pyhudi.write.once`.)
            commit_metadata: Entries stored in the commit, as shown by `Table.inspect.commits`, such as
                `{"job": "daily"}`. (Option `pyhudi.commit.metadata`.)
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics.

        Raises:
            WriteConflict: Conflicts with other writers exhausted the retries, or a conflict occurred since the scan of
                `based_on`.
            InvalidRequest: The data, an option or `based_on` does not fit the table.
            Unsupported: `based_on` with non-blocking concurrency control, where writes never conflict.

        Example:
            >>> result = table.upsert({"id": [1], "ts": [11], "fare": [8.0]})
            >>> seen = table.scan(["id", "ts", "fare"], filter="fare < 5")
            >>> result = table.upsert(raise_fares(seen.to_arrow()), based_on=seen)
        """
        if missing_columns == KEEP:
            if partial or based_on is not None:
                raise InvalidRequest(f"missing_columns={KEEP!r} is incompatible with partial= and based_on=")
            data = self._reopenable(data, with_schema_mode(options, schema_mode))
            if self._lacks_columns(data):
                return self._merge_by_key(
                    data, schema_mode=schema_mode, once=once, commit_metadata=commit_metadata, options=options
                )
            missing_columns = None
        if partial:
            options = {**(options or {}), PARTIAL_UPDATE.key: True}
        seen = None if based_on is None else self._snapshot_from_scan(based_on)
        options = with_arguments(
            options, schema_mode=schema_mode, missing_columns=missing_columns, once=once, commit_metadata=commit_metadata
        )
        return self._write(data, WriteOperation.UPSERT, options, base_snapshot=seen)

    def insert(
        self,
        data: Any,
        *,
        schema_mode: str | None = None,
        missing_columns: str | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Insert records without looking up their keys. Small files are filled first.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark
                DataFrame.
            schema_mode: Schema evolution that the data may cause, as in `upsert`.
            missing_columns: "error" or "null", as in `upsert`. "error" is the default, and "null" if `schema_mode` is passed
                to an insert.
            once: Application id and version of this write, as in `upsert`.
            commit_metadata: As in `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics.
        """
        return self._write(
            data,
            WriteOperation.INSERT,
            with_arguments(
                options, schema_mode=schema_mode, missing_columns=missing_columns, once=once, commit_metadata=commit_metadata
            ),
        )

    def append(
        self,
        data: Any,
        *,
        schema_mode: str | None = None,
        missing_columns: str | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Insert records: an alias of `insert`, named as in other table formats.

        Args:
            data: As in `insert`.
            schema_mode: As in `upsert`.
            missing_columns: "error" or "null", as in `upsert`. "error" is the default, and "null" if `schema_mode` is passed
                to an insert.
            once: As in `upsert`.
            commit_metadata: As in `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics.
        """
        return self.insert(
            data,
            schema_mode=schema_mode,
            missing_columns=missing_columns,
            once=once,
            commit_metadata=commit_metadata,
            options=options,
        )

    def bulk_insert(
        self,
        data: Any,
        *,
        schema_mode: str | None = None,
        missing_columns: str | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Insert records into new files only: the fastest way to load a table.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark
                DataFrame.
            schema_mode: Schema evolution that the data may cause, as in `upsert`.
            missing_columns: "error" or "null", as in `upsert`. "error" is the default, and "null" if `schema_mode` is passed
                to an insert.
            once: Application id and version of this write, as in `upsert`.
            commit_metadata: As in `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics.
        """
        return self._write(
            data,
            WriteOperation.BULK_INSERT,
            with_arguments(
                options, schema_mode=schema_mode, missing_columns=missing_columns, once=once, commit_metadata=commit_metadata
            ),
        )

    def insert_overwrite(
        self,
        data: Any,
        *,
        where: Filter | None = None,
        schema_mode: str | None = None,
        missing_columns: str | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Replace all records of the partitions that occur in the data (dynamic partition overwrite), or of those that match
        a predicate.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark
                DataFrame.
            where: Predicate over the partition columns, as the filter of `scan`. All partitions that match it are
                replaced, also those without new rows, and rows of other partitions are refused.
            schema_mode: Schema evolution that the data may cause, as in `upsert`.
            missing_columns: "error" or "null", as in `upsert`. "error" is the default, and "null" if `schema_mode` is passed
                to an insert.
            once: Application id and version of this write, as in `upsert`.
            commit_metadata: As in `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics.

        Raises:
            InvalidRequest: Rows lie outside of `where`, or it names a column that is no partition column.

        Example:
            >>> result = table.insert_overwrite(rows, where="day = '2026-01-01'")
        """
        options = with_arguments(
            options, schema_mode=schema_mode, missing_columns=missing_columns, once=once, commit_metadata=commit_metadata
        )
        return self._write(data, WriteOperation.INSERT_OVERWRITE, options, overwrite_where=where)

    def insert_overwrite_table(
        self,
        data: Any,
        *,
        schema_mode: str | None = None,
        missing_columns: str | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Replace all records of the table.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark
                DataFrame.
            schema_mode: Schema evolution that the data may cause, as in `upsert`.
            missing_columns: "error" or "null", as in `upsert`. "error" is the default, and "null" if `schema_mode` is passed
                to an insert.
            once: Application id and version of this write, as in `upsert`.
            commit_metadata: As in `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics.
        """
        return self._write(
            data,
            WriteOperation.INSERT_OVERWRITE_TABLE,
            with_arguments(
                options, schema_mode=schema_mode, missing_columns=missing_columns, once=once, commit_metadata=commit_metadata
            ),
        )

    def delete(
        self,
        keys: Any = None,
        *,
        where: Filter | None = None,
        spark: SparkSession | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Delete records by key (`keys`) or by predicate (`where`).

        Args:
            keys: Values of the record key field (`[1, 2]`), tuples of values if the key has several fields, or rows
                with the record key fields. With the partition fields too, only those partitions are searched.
            where: SQL text, tuples or an expression, as the filter of `scan`.
            spark: With `where`: session that finds and deletes the records on the cluster. With `keys` the type of
                `keys` decides.
            once: Application id and version of this write, as in `upsert`.
            commit_metadata: As in `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics.

        Raises:
            InvalidRequest: Both or neither of `keys` and `where` are passed, or the keys do not fit the record key.

        Example:
            >>> result = table.delete([1, 2])
            >>> result = table.delete(where="city = 'sf' and fare < 1")
        """
        if (keys is None) == (where is None):
            raise InvalidRequest("delete takes either keys= or where=; pass exactly one of them")
        if where is not None:
            parsed = self._open.parse(
                TABLE_OPERATIONS["delete"], with_arguments(options, once=once, commit_metadata=commit_metadata)
            )
            engine = self._open.engine(spark, parsed)
            read = None if spark is None else _reader_on(spark)
            return self._open.write(
                lambda settings: run_delete_where(self._open.load_context(parsed), engine, where, settings, read),
                WriteSettings.of(parsed, WriteOperation.DELETE),
            )
        if spark is not None:
            raise InvalidRequest(
                "delete with keys= takes no spark=: pass the keys as a Spark DataFrame, which runs on its own session"
            )
        return self._write(
            keys_to_delete(keys, self._open.context.config.keys),
            WriteOperation.DELETE,
            with_arguments(options, once=once, commit_metadata=commit_metadata),
        )

    def update(
        self,
        set: Mapping[str, Any] | None = None,
        where: Filter | Column | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        spark: SparkSession | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Update some columns of the records that match `where`.

        A record keeps its key; a changed partition column moves it. The changed rows are upserted, so the table's merge
        mode applies: with an equal or later ordering value the changed row wins, with an earlier one it loses. If
        another writer changes one of the file groups concurrently, the update is computed again. Without `spark` the
        changed rows are held in memory.

        Args:
            set: Values by column. Text is SQL: a literal as in filters (`"'done'"`, `"1.5"`, `"DATE '2024-05-06'"`,
                `"NULL"`), the name of another column, or an expression (`"fare * 1.1"`, `"upper(city)"`), which
                requires `pip install "pyhudi[sql]"`; other Python values, and those of `hp.lit`, are literals.
            where: SQL text or tuples, as the filter of `scan`, or another condition in SQL; None updates all records.
            values: Python values by column: text is text.
            spark: Session that runs the update on the cluster; values and `where` are then Spark SQL text or Columns,
                as in `pyhudi.spark.update`.
            once: Application id and version of this write, as in `upsert`.
            commit_metadata: As in `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics.

        Raises:
            InvalidRequest: A column does not exist, or cannot hold its value, or a record would get another key.
            WriteConflict: Conflicts with other writers exhausted the retries.
            Unsupported: An expression contains a query, or a function that DuckDB lacks.

        Example:
            >>> result = table.update({"status": "'done'"}, where="fare > 10")
            >>> result = table.update({"fare": "fare * 2"}, where="fare % 2 = 1")
            >>> result = table.update(values={"note": "2025-01-01"}, where="id = 1")
        """
        assigned = assignments(set, values)
        parsed = self._open.parse(TABLE_OPERATIONS["update"], with_arguments(options, once=once, commit_metadata=commit_metadata))
        if spark is not None:
            return update_on_spark(self._open, parsed, spark, assigned, where)
        return update_embedded(self._open, parsed, assigned, _filter_of(where))

    def merge(
        self,
        source: Any,
        on: str | Sequence[str] | Column,
        *,
        target_alias: str = "target",
        source_alias: str = "source",
        schema_mode: str | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Merge:
        """Start a merge (MERGE INTO) of source rows into the table: add clauses, then call `execute()`.

        Nothing is read or written before `execute()`.

        Args:
            source: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB). They are held
                in memory, and so are the rows of the table that they match. A Spark DataFrame makes it a merge on
                Spark, as in `pyhudi.spark.merge`.
            on: Columns whose values are equal in a source row and the table row that it matches; nulls match nothing.
                Matching by record key uses the table's indexes; matching by other columns reads all rows. Or a condition
                in SQL, such as `"target.id = source.id AND target.day > source.day"`.
            target_alias: Qualifier of the table's columns in conditions and values.
            source_alias: Qualifier of the source's columns.
            schema_mode: Schema evolution that the source may cause, as in `upsert`.
            once: Application id and version of this write, as in `upsert`.
            commit_metadata: As in `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The merge, without clauses.

        Example:
            >>> result = (
            ...     table.merge(source, on="id")
            ...     .when_matched_update_all()
            ...     .when_not_matched_insert_all()
            ...     .execute()
            ... )
        """
        parsed = self._open.parse(
            TABLE_OPERATIONS["merge"],
            with_arguments(options, schema_mode=schema_mode, once=once, commit_metadata=commit_metadata),
        )
        source = typed_rows(source, self._file_columns, may_widen=True)
        return Merge(self._open, parsed, source, on, target_alias=target_alias, source_alias=source_alias)

    def delete_partitions(
        self,
        partitions: str | Iterable[str],
        *,
        spark: SparkSession | None = None,
        once: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Delete all records of partitions.

        Args:
            partitions: Partition paths; `*` matches any characters. The result lists those that matched no partition.
            spark: Session that runs subsequent table services and record index updates on the cluster.
            once: Application id and version of this write, as in `upsert`.
            commit_metadata: As in `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics.
        """
        paths = [partitions] if isinstance(partitions, str) else list(partitions)
        parsed = self._open.parse(
            TABLE_OPERATIONS["delete_partitions"], with_arguments(options, once=once, commit_metadata=commit_metadata)
        )
        settings = WriteSettings.of(parsed, WriteOperation.DELETE_PARTITION)
        engine = self._open.engine(spark, parsed)
        return self._open.write(
            lambda settings: run_delete_partitions(self._open.load_context(parsed), paths, settings, engine), settings
        )

    def write_batch(
        self, data: Any, operation: WriteOperation, batch: CommitMark, *, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Write a batch of a stream or an ingestion job exactly once: it is skipped if it, or a later batch, is committed.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark
                DataFrame.
            operation: Write operation.
            batch: Mark of the batch in the commits of the table.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and its statistics; no instant if the batch was committed earlier.
        """
        parsed = self._open.parse(operation_for(operation), options)
        settings = replace(WriteSettings.of(parsed, operation), once=batch)
        engine = engine_for(data, parsed)
        return self._open.write(lambda chosen: run_write(self._open.load_context(parsed), engine, data, chosen), settings)

    @contextmanager
    def exclusive(self, *, seconds: float = 60) -> Iterator[Self]:
        """Hold the table lock from a read to the commit of the rows computed from it, so that no other writer commits in between.

        For callers that read, compute and write with `based_on`, and whose writes conflict too often. All other writers
        wait, so keep the block short: read, compute, write. The first write that commits releases the lock, before its
        table services run. After that, and after the block, writes of the yielded table take the lock as usual.

        Args:
            seconds: Expected duration of the block, for other writers. They wait that much longer than
                `hoodie.write.lock.wait_time_ms`. The lock is not released when the time is over.

        Yields:
            This table, for reads and writes under the lock, by one thread.

        Raises:
            StorageUnavailable: The lock was not acquired in time.
            InvalidRequest: `seconds` is not between 0.001 and one day.

        Example:
            >>> with table.exclusive(seconds=10) as t:
            ...     seen = t.scan(filter="status = 'open'")
            ...     result = t.upsert(close(seen.to_arrow()), based_on=seen)
        """
        if not 0.001 <= seconds <= MAX_HOLD_MS / 1000:
            raise InvalidRequest(
                f"cannot hold the lock of {self.uri} for {seconds} seconds: pass between 0.001 and {MAX_HOLD_MS // 1000} seconds"
            )
        context = self._open.writable(self._open.options)
        with exclusive_write(context, CommitSettings.of(self._open.options), int(seconds * 1000)) as locked_context:
            locked_table = copy(self)
            locked_table._open = self._open.at(locked_context)
            yield locked_table

    def _reopenable(self, data: Any, options: Mapping[str, object] | None) -> Any:
        """Return rows whose columns are known."""
        if is_spark_value(data):
            return data
        may_widen = self._open.parse(TABLE_OPERATIONS["upsert"], options).explicit(SCHEMA_MODE) is not None
        return arrow_reader(typed_rows(data, self._file_columns, may_widen=may_widen))

    def _lacks_columns(self, data: Any) -> bool:
        stored = self._file_columns()
        given = data.columns if is_spark_value(data) else data.schema.names
        return stored is not None and not set(stored.names) <= set(given)

    def _merge_by_key(self, data: Any, **arguments: Any) -> WriteResult:
        """Update the columns that the rows have, and insert the rows of new keys."""
        keys = self._open.context.config.keys
        if keys.generates_keys:
            raise InvalidRequest(f"missing_columns={KEEP!r} finds records by key, and {self.uri} generates its record keys")
        named = dict.fromkeys((*keys.record_fields, *partition_columns(keys)))
        return self.merge(data, list(named), **arguments).when_matched_update_all().when_not_matched_insert_all().execute()

    def _write(
        self,
        data: Any,
        operation: WriteOperation,
        options: Mapping[str, object] | None,
        engine: Engine | None = None,
        base_snapshot: Snapshot | None = None,
        overwrite_where: Filter | None = None,
    ) -> WriteResult:
        parsed = self._open.parse(operation_for(operation), options)
        if operation in _ADDING and is_empty(data) and (columns := self._file_columns()) is not None:
            data = columns.empty_table()
        data = typed_rows(data, self._file_columns, may_widen=parsed.explicit(SCHEMA_MODE) is not None)
        if parsed.value_or_default(SCHEMA_MODE) in (SchemaMode.WIDEN, SchemaMode.EVOLVE):
            stored = self._file_columns() or pa.schema([])
            data = required_without_nulls(data, {field.name for field in stored if not field.nullable})
        chosen = engine or engine_for(data, parsed)

        def write(settings: WriteSettings) -> WriteResult:
            context = self._open.load_context(parsed)
            if settings.group != "never" and base_snapshot is None and not context.holds_lock and chosen.name == LocalEngine.name:
                return write_small_batch(context, parsed, data, settings)
            return run_write(context, chosen, data, settings, base_snapshot=base_snapshot)

        return self._open.write(write, replace(WriteSettings.of(parsed, operation), overwrite_where=overwrite_where))

    def _file_columns(self) -> pa.Schema | None:
        """Table schema; None before the first commit."""
        try:
            return self.schema()
        except TableState:
            return None

    def _snapshot_from_scan(self, scan: Scan) -> Snapshot:
        """Snapshot that a scan reads. Raises InvalidRequest for a scan that a write cannot be based on."""
        query = scan.query
        if not (isinstance(query, SnapshotQuery) and query.is_latest):
            raise InvalidRequest("based_on takes a scan of the table's latest state: pass `table.scan(...)` without as_of")
        read = query.snapshot.context.storage.uri
        if read != self.uri:
            raise InvalidRequest(f"based_on takes a scan of the table that is written, {self.uri}; this scan reads {read}")
        return query.snapshot


_ADDING = (WriteOperation.INSERT, WriteOperation.BULK_INSERT, WriteOperation.UPSERT)
"""Operations that change nothing if there are no input rows; an overwrite without rows deletes."""


def engine_for(data: Any, options: Options) -> Engine:
    """Engine for the type of the data: Spark for its DataFrames, threads of this process otherwise."""
    if type(data).__module__.startswith("pyspark.sql."):
        from pyhudi.engines.spark.engine import SparkEngine

        return SparkEngine(data.sparkSession)
    return LocalEngine(options.integer(THREADS))


def _filter_of(where: Filter | Column | None) -> Filter | None:
    """The filter. Raises InvalidRequest for a Spark Column, which the embedded engine cannot evaluate."""
    if is_spark_value(where):
        raise InvalidRequest("where is a Spark Column: pass spark= too, to run on the cluster")
    return cast("Filter | None", where)


def _reader_on(spark: SparkSession) -> Callable[[SnapshotQuery], DataFrame]:
    from pyhudi.engines.spark.read_dataframe import query_dataframe

    return lambda query: query_dataframe(spark, query)
