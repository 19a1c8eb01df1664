"""Writing to a table: inserts, upserts, deletes, updates, merges and batches of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from pyhudi.api.key_arguments import keys_to_delete
from pyhudi.api.merge import Merge, update_on_spark
from pyhudi.api.scan import Scan
from pyhudi.api.table_handle import is_spark_value
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.input_rows import is_empty
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.operations.commit.commit_settings import THREADS, CommitSettings
from pyhudi.operations.commit.results import (
    WriteResult,
)
from pyhudi.operations.read.query import (
    SnapshotQuery,
)
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.delete_where import run_delete_where
from pyhudi.operations.write.micro_batches import BatchAlreadyCommitted, StreamBatch, check_not_committed
from pyhudi.operations.write.update_merge import run_update
from pyhudi.operations.write.write_attempt import exclusive_write
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import PARTIAL_UPDATE, WriteOperation, WriteSettings, with_schema_mode
from pyhudi.options.scope import VERBS, operation_for
from pyhudi.options.supported import Options
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.storage.locks import MAX_HOLD_MS
from pyhudi.table.snapshot import Snapshot
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import Column, DataFrame, SparkSession

from pyhudi.api.opened_table import OpenedTable


class TableWrites(OpenedTable):
    """The writes of `Table`."""

    def upsert(
        self,
        data: Any,
        *,
        partial: bool = False,
        based_on: Scan | None = None,
        schema_mode: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Insert records with new keys and merge those whose keys are there, by the table's merge mode.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark DataFrame.
            partial: The data holds key, partition and ordering fields and some other columns.  Columns that it lacks keep their
                values, and keys that are not in the table are passed over.  (Option `pyhudi.partial.update`.)
            based_on: The scan that the rows were computed from.  The write lands only if nobody has changed the file groups that
                it writes to since that scan was made; otherwise it raises `WriteConflict`, and the rows are computed anew from
                another scan.  So no change is lost between reading and writing.  File groups that were read and are not written
                to are not compared.
            schema_mode: What the data may change of the table's columns.  "strict": nothing.  "widen", the default: it may bring
                new columns, and wider types that hold all values exactly (int32 to int64 or double, float to double).  "evolve":
                as Hudi does, also whole numbers to floating point and numbers to text.  Record key, partition and ordering fields
                keep their types.  The result tells what changed.  (Option `pyhudi.schema.mode`.)
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed.

        Raises:
            WriteConflict: Other writers won more often than retries are allowed, or once since the scan of `based_on`.
            InvalidRequest: The data, an option or `based_on` does not fit the table.
            Unsupported: `based_on` under non-blocking concurrency control, where nobody's write is a conflict.
        """
        if partial:
            options = {**(options or {}), PARTIAL_UPDATE.key: True}
        seen = None if based_on is None else self._state_of(based_on)
        return self._write(data, WriteOperation.UPSERT, with_schema_mode(options, schema_mode), base_snapshot=seen)

    def insert(self, data: Any, *, schema_mode: str | None = None, options: Mapping[str, object] | None = None) -> WriteResult:
        """Add records without looking for their keys; small files are filled up first.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark DataFrame.
            schema_mode: What the data may change of the table's columns, as of `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed.
        """
        return self._write(data, WriteOperation.INSERT, with_schema_mode(options, schema_mode))

    def append(self, data: Any, *, schema_mode: str | None = None, options: Mapping[str, object] | None = None) -> WriteResult:
        """Add records: `insert`, by the name that other table formats give it.

        Args:
            data: As of `insert`.
            schema_mode: As of `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed.
        """
        return self.insert(data, schema_mode=schema_mode, options=options)

    def bulk_insert(
        self, data: Any, *, schema_mode: str | None = None, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Add records to new files only: the fastest way to fill a table.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark DataFrame.
            schema_mode: What the data may change of the table's columns, as of `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed.
        """
        return self._write(data, WriteOperation.BULK_INSERT, with_schema_mode(options, schema_mode))

    def insert_overwrite(
        self, data: Any, *, schema_mode: str | None = None, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Replace all records of the partitions that the data touches.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark DataFrame.
            schema_mode: What the data may change of the table's columns, as of `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed.
        """
        return self._write(data, WriteOperation.INSERT_OVERWRITE, with_schema_mode(options, schema_mode))

    def insert_overwrite_table(
        self, data: Any, *, schema_mode: str | None = None, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Replace all records of the table.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark DataFrame.
            schema_mode: What the data may change of the table's columns, as of `upsert`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed.
        """
        return self._write(data, WriteOperation.INSERT_OVERWRITE_TABLE, with_schema_mode(options, schema_mode))

    def delete(
        self,
        keys: Any = None,
        *,
        where: Filter | None = None,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Delete records: those whose key fields are in `keys`, or those for which `where` is true.

        Args:
            keys: Values of the record key field (`[1, 2]`), tuples of values where it has several fields, or rows with the record
                key fields; with the partition fields too only those partitions are searched.
            where: SQL text, tuples or an expression, as the filter of `scan`.
            spark: With `where`, the records are searched and deleted on the cluster; the kind of `keys` says where those are.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed.
        """
        if (keys is None) == (where is None):
            raise InvalidRequest("delete takes either keys= or where=")
        if where is not None:
            parsed = self._open.parse(VERBS["delete"], options)
            engine = self._open.engine(spark, parsed)
            read = None if spark is None else _reader_on(spark)
            return self._open.write(
                lambda settings: run_delete_where(self._open.load_context(parsed), engine, where, settings, read),
                WriteSettings.of(parsed, WriteOperation.DELETE),
            )
        if spark is not None:
            raise InvalidRequest("delete with keys= takes no spark=: a Spark DataFrame of keys runs on its own session")
        return self._write(keys_to_delete(keys, self._open.context.config.keys), WriteOperation.DELETE, options)

    def update(
        self,
        set: Mapping[str, Any],
        where: Filter | Column | None = None,
        *,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Give the records for which `where` is true other values in some columns.

        A record keeps its key and, but on Spark, its partition.  The changed rows are upserted, so the table's merge mode
        decides as between any two rows of a key: with the ordering value that it had, or a later one, the changed row wins; with
        an earlier one it loses.  When another writer changes one of the file groups meanwhile, the rows are searched and changed
        anew.  Without `spark` the changed rows are held in memory.

        Args:
            set: Values by column.  Text is a literal as filters write it (`"'done'"`, `"1.5"`, `"DATE '2024-05-06'"`,
                `"NULL"`) or the name of another column; other values of Python are literals as they are.
            where: SQL text or tuples, as the filter of `scan`; all records when left out.
            spark: The records are searched and changed on the cluster: values and `where` are Spark SQL text or Columns, as of
                `pyhudi.spark.update`.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed.

        Raises:
            InvalidRequest: A column is not there, is a key or partition field, or cannot hold its value.
            WriteConflict: Other writers won more often than retries are allowed.
            Unsupported: A value is another expression, or the table generates its record keys.
        """
        parsed = self._open.parse(VERBS["update"], options)
        if spark is not None:
            return update_on_spark(self._open, parsed, spark, set, where)
        engine, found = self._open.engine(None, parsed), _filter_of(where)
        return self._open.write(
            lambda settings: run_update(self._open.load_context(parsed), engine, set, found, settings),
            WriteSettings.of(parsed, WriteOperation.UPSERT),
        )

    def merge(
        self,
        source: Any,
        on: str | Sequence[str] | Column,
        *,
        schema_mode: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Merge:
        """Let the rows of a source meet those of the table: say what becomes of them, and then `execute()`.

        Nothing is read or written before that.

        Args:
            source: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB).  They are held in memory,
                and so are the rows of the table that they match.  A Spark DataFrame makes it a merge on Spark, as of
                `pyhudi.spark.merge`.
            on: Columns that have equal values in a row of the source and in the row of the table that it matches; nulls match
                nothing.  The record key finds the rows by the table's indexes; for other columns all rows are read.
            schema_mode: What the source may change of the table's columns, as of `upsert`.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["merge"], with_schema_mode(options, schema_mode))
        return Merge(self._open, parsed, source, on)

    def delete_partitions(
        self,
        partitions: str | Iterable[str],
        *,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Delete all records of partitions.

        Args:
            partitions: Paths; `*` stands for any characters.  The result says which of them stood for no partition.
            spark: Table services that follow, and updates of a record index, run on the cluster.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed.
        """
        paths = [partitions] if isinstance(partitions, str) else list(partitions)
        parsed = self._open.parse(VERBS["delete_partitions"], options)
        settings = WriteSettings.of(parsed, WriteOperation.DELETE_PARTITION)
        engine = self._open.engine(spark, parsed)
        return self._open.write(
            lambda settings: run_delete_partitions(self._open.load_context(parsed), paths, settings, engine), settings
        )

    def write_batch(
        self, data: Any, operation: WriteOperation, batch: StreamBatch, *, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Write a batch of a stream, unless it or a later one of the same stream is committed already.

        Args:
            data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark DataFrame.
            operation: What the write does.
            batch: The stream and the number of the batch.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the write, and what it changed; no instant when the batch had landed before.
        """
        parsed = self._open.parse(operation_for(operation), options)
        settings = replace(WriteSettings.of(parsed, operation), batch=batch)
        try:
            context = self._open.load_context(parsed)
            check_not_committed(context, batch, context.timeline.load())
            engine = _engine_for(data, parsed)
            return self._open.write(lambda chosen: run_write(self._open.load_context(parsed), engine, data, chosen), settings)
        except BatchAlreadyCommitted:
            return WriteResult(str(operation), None, None)

    @contextmanager
    def exclusive(self, *, seconds: float = 60) -> Iterator[Self]:
        """Hold the table's lock from a read to the commit of what was computed from it, so that no other writer comes first.

        For callers that read, compute and write with `based_on`, and that have lost to others often enough.  Everybody else waits
        meanwhile, so keep it short: read, compute, write.  The first write that lands ends the turn, before its services run;
        from then on, and after the block, the table that it gives takes the lock like every other.

        Args:
            seconds: How long others should expect to wait.  Their limit, `hoodie.write.lock.wait_time_ms`, is longer by that much
                then; nothing ends the turn when the time is over.

        Yields:
            This table, to read and write in the turn, by one thread.

        Raises:
            StorageUnavailable: The lock was not free in time.
            InvalidRequest: The time is not between a thousandth of a second and a day.
        """
        if not 0.001 <= seconds <= MAX_HOLD_MS / 1000:
            raise InvalidRequest(f"a turn of {seconds} seconds on {self.uri}: give between 0.001 and {MAX_HOLD_MS // 1000}")
        context = self._open.writable(self._open.options)
        with exclusive_write(context, CommitSettings.of(self._open.options), int(seconds * 1000)) as held:
            mine = copy(self)
            mine._open = self._open.at(held)
            yield mine

    def _write(
        self,
        data: Any,
        operation: WriteOperation,
        options: Mapping[str, object] | None,
        engine: Engine | None = None,
        base_snapshot: Snapshot | None = None,
    ) -> WriteResult:
        parsed = self._open.parse(operation_for(operation), options)
        if operation in _ADDING and is_empty(data) and (columns := self._columns_of_files()) is not None:
            data = columns.empty_table()
        chosen = engine or _engine_for(data, parsed)
        return self._open.write(
            lambda settings: run_write(self._open.load_context(parsed), chosen, data, settings, base_snapshot=base_snapshot),
            WriteSettings.of(parsed, operation),
        )

    def _columns_of_files(self) -> pa.Schema | None:
        """The table's columns; None before its first commit."""
        try:
            return self.schema()
        except TableState:
            return None

    def _state_of(self, scan: Scan) -> Snapshot:
        """The state that a scan reads.  Raises InvalidRequest for one that rows to be written cannot be based on."""
        query = scan.query
        if not (isinstance(query, SnapshotQuery) and query.is_latest):
            raise InvalidRequest("based_on takes a scan of the table's latest state: `table.scan(...)` without as_of")
        read = query.snapshot.context.storage.uri
        if read != self.uri:
            raise InvalidRequest(f"based_on takes a scan of the table that is written, {self.uri}; this one reads {read}")
        return query.snapshot


_ADDING = (WriteOperation.INSERT, WriteOperation.BULK_INSERT, WriteOperation.UPSERT)
"""Operations that change nothing when there are no rows; an overwrite without rows deletes."""


def _engine_for(data: Any, options: Options) -> Engine:
    """The engine that the kind of data calls for: Spark for its DataFrames, threads of this process for the rest."""
    if type(data).__module__.startswith("pyspark.sql."):
        from pyhudi.engines.spark.engine import SparkEngine

        return SparkEngine(data.sparkSession)
    return LocalEngine(options.integer(THREADS))


def _filter_of(where: Filter | Column | None) -> Filter | None:
    """Raises InvalidRequest for a Column of Spark's, which says nothing to the embedded engine."""
    if is_spark_value(where):
        raise InvalidRequest("where is a Column of Spark: give spark= too, and the cluster does the work")
    return cast("Filter | None", where)


def _reader_on(spark: SparkSession) -> Callable[[SnapshotQuery], DataFrame]:
    from pyhudi.engines.spark.read_dataframe import query_dataframe

    return lambda query: query_dataframe(spark, query)
