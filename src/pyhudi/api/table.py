"""The user's face: `Table` and `Scan`.  Thin: options are parsed here, the verbs live in `operations`, rows are read by tasks.

t = Table.create(uri, name="trips", record_key=["id"], partition_by=["city"], ordering=["ts"], table_type="cow")
t.upsert(frame)                     # anything with the Arrow PyCapsule interface runs in this process
t.scan(columns=["id"], filter="city = 'sf'").to_arrow()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import pyarrow as pa

from pyhudi.api.alter import Alter
from pyhudi.api.attribute_hints import absent
from pyhudi.api.indexes import Indexes
from pyhudi.api.inspect import Inspection
from pyhudi.api.key_arguments import keys_to_delete, keys_to_look_up
from pyhudi.api.merge import Merge, update_on_spark
from pyhudi.api.scan import Scan
from pyhudi.api.services import Services
from pyhudi.api.table_handle import OpenTable, is_of_spark
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.input_rows import arrow_reader, is_empty
from pyhudi.errors import InstantNotFound, InvalidRequest, TableExists, TableNotFound, TableState
from pyhudi.features.report.plot import Plots
from pyhudi.format.instants import Instant
from pyhudi.format.table_versions import parse_table_version
from pyhudi.operations.admin.alter_properties import run_set_properties
from pyhudi.operations.admin.create_table import new_table_properties, stored_columns
from pyhudi.operations.admin.open_table import make_table, named_settings
from pyhudi.operations.admin.option_consistency import check_same_columns, check_same_table
from pyhudi.operations.admin.repair import RepairKind, RepairResult, RepairSettings, run_repair
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.admin.savepoint import run_delete_savepoint, run_savepoint
from pyhudi.operations.admin.table_settings import (
    NAME,
    ORDERING,
    PARTITION_FIELDS,
    RECORD_KEY_FIELDS,
    TABLE_TYPE,
    parse_table_type,
    with_table_settings,
)
from pyhudi.operations.admin.upgrade import run_downgrade, run_upgrade
from pyhudi.operations.admin.validate import ValidationResult, run_validate
from pyhudi.operations.admin.versions.version_step import VersionChange
from pyhudi.operations.commit.commit_settings import THREADS, CommitSettings
from pyhudi.operations.commit.exclusive_write import its_turn
from pyhudi.operations.commit.results import (
    RestoreResult,
    SavepointResult,
    WriteResult,
)
from pyhudi.operations.commit.rollback import RollbackResult, rollback_instant
from pyhudi.operations.read.change_queries import plan_change_query
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.key_lookup import plan_lookup
from pyhudi.operations.read.query import (
    AS_OF,
    FALL_BACK,
    INCREMENTAL_FORMAT,
    VALUES_FROM_PATH,
    Query,
    completion_range,
    incremental_range,
    plan_incremental_query,
    plan_snapshot_query,
    table_schema,
)
from pyhudi.operations.read.semi_join import MAX_MATCHED, key_columns, narrowed_to, without_matches
from pyhudi.operations.services.archive import ArchiveSettings
from pyhudi.operations.services.compact import (
    CompactSettings,
)
from pyhudi.operations.services.index_admin import (
    drop_metadata_table,
)
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.delete_where import run_delete_where
from pyhudi.operations.write.micro_batches import BatchLanded, StreamBatch, check_not_landed
from pyhudi.operations.write.update_merge import run_update
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import PARTIAL_UPDATE, WriteOperation, WriteSettings, with_schema_mode
from pyhudi.options.scope import VERBS, verb_of
from pyhudi.options.supported import Options, parse_options
from pyhudi.planning.incremental_query import EARLIEST, CompletionRange, RequestRange
from pyhudi.planning.instant_arguments import Moment, as_of_text, check_told_apart, range_text
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.html_repr import facts_as_html
from pyhudi.storage import open_storage
from pyhudi.storage.environment import Environment, SystemEnvironment
from pyhudi.storage.locks import LONGEST_TURN_MS, LockSettings
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_config import TableConfig, load_table_config, new_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.tags import tags_of
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import Column, DataFrame, SparkSession

__all__ = ["Filter", "Indexes", "Merge", "Scan", "Services", "Table"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _service(
    method: Callable[Concatenate[Services, _Arguments], _Result],
) -> Callable[Concatenate[Table, _Arguments], _Result]:
    """A verb of `Table` that is a method of its services, with the same arguments and documentation."""

    @wraps(method)
    def verb(self: Table, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return method(self.services, *args, **kwargs)

    return verb


class Table:
    """A Hudi table at a URI: a local path, `s3://`, `gs://`, `az://` or `memory://`.

    Opening reads `hoodie.properties` only.  Every verb gives the table's present state, so an object may be kept as long as
    wanted and used from several threads.  What a read has loaded of that state is kept, up to some tens of MiB, and used again by
    the next read of the same object where nobody has changed the table since.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        *,
        environment: Environment | None = None,
    ) -> None:
        """Open a table.

        Args:
            uri: Where the table lies.
            storage_options: Credentials and settings of the store, by the names that `docs/object-stores.md` lists.
            options: `hoodie.*` options that hold for every verb of this object.
            environment: Clock, identifiers and sleep; those of this machine by default.

        Raises:
            TableNotFound: There is no table at the URI.
            Unsupported: The table is of a version that cannot be read.
            CorruptData: The table's properties are damaged.
            InvalidRequest: An option contradicts the table.
        """
        self._open = OpenTable(uri, storage_options, options, environment)

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        *,
        name: str | None = None,
        record_key: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        ordering: str | Sequence[str] | None = None,
        table_type: str | None = None,
        schema: pa.Schema | None = None,
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        environment: Environment | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create a table and open it.

        Args:
            uri: Where the table is to lie.
            name: Its name; the folder's name when left out.
            record_key: Columns that name a record; none means generated keys.
            partition_by: Columns; a kind may follow (`day:TIMESTAMP`).
            ordering: The column whose larger value is the newer record.
            table_type: `cow` (default) or `mor`.
            schema: The columns; those of the first write when left out.
            storage_options: Credentials and settings of the store, by the names that `docs/object-stores.md` lists.
            options: Further `hoodie.*` settings.
            environment: Clock, identifiers and sleep; those of this machine by default.
            exist_ok: Open the table that is there already, where it has this record key and partitioning, the columns of
                `schema`, and every setting that is named here.  What is not named may differ, such as its type or version.

        Raises:
            TableExists: There is a table at the URI; with `exist_ok`, one that differs in what the message names.
            InvalidRequest: An option is wrong or contradicts another, or a field is not a column of the schema.
        """
        storage = open_storage(uri, storage_options)
        given = parse_options(options)
        settings = with_table_settings(
            given,
            {
                NAME: name,
                RECORD_KEY_FIELDS: _joined(record_key),
                PARTITION_FIELDS: _joined(partition_by),
                ORDERING: _joined(ordering),
                TABLE_TYPE: parse_table_type(table_type) if table_type else None,
            },
        )
        named = settings
        settings = named_settings(storage, settings)
        try:
            make_table(storage, environment or SystemEnvironment(), given, settings, schema)
        except TableExists:
            if not exist_ok:
                raise
            asked, found = new_table_config(new_table_properties(settings, schema)), load_table_config(storage)
            check_same_table(named, asked, found, storage.uri)
            there = cls(uri, storage_options, options, environment=environment)
            if schema is not None:
                check_same_columns(stored_columns(settings, schema, found.version), there.schema(), there.uri)
            return there
        return cls(uri, storage_options, options, environment=environment)

    @classmethod
    def exists(cls, uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
        """Whether there is a table at the URI."""
        try:
            load_table_config(open_storage(uri, storage_options))
        except TableNotFound:
            return False
        return True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent(type(self).__name__, name), name=name, obj=self)

    def __repr__(self) -> str:
        config = self._open.context.config
        kind = "cow" if config.is_cow else "mor"
        return f"Table({self._open.uri!r}, name={config.name!r}, type={kind!r}, version={int(config.version)})"

    def _repr_html_(self) -> str:
        config = self._open.context.config
        facts = {
            "name": config.name,
            "uri": self._open.uri,
            "type": config.table_type,
            "version": int(config.version),
            "record key": ", ".join(config.keys.record_fields) or "(generated)",
            "partitioned by": ", ".join(field.name for field in config.keys.partition_fields) or "(not partitioned)",
            "ordering field": ", ".join(config.ordering_fields) or "(none)",
            "indexes": ", ".join(config.metadata_partitions) or "(no metadata table)",
        }
        return facts_as_html(facts)

    @property
    def uri(self) -> str:
        """Where the table lies."""
        return self._open.context.storage.uri

    @property
    def name(self) -> str:
        """`hoodie.table.name`."""
        return self._open.context.config.name

    @property
    def config(self) -> TableConfig:
        """The table's settings as read when it was opened."""
        return self._open.context.config

    @property
    def context(self) -> TableContext:
        """The open table as operations take it."""
        return self._open.context

    def schema(self, *, meta_columns: bool = False) -> pa.Schema:
        """The columns of the latest commit.

        Args:
            meta_columns: Whether the five `_hoodie_` columns are among them.

        Raises:
            TableState: The table has no commits and was created without a schema.
        """
        return table_schema(self._open.snapshot(), meta_columns=meta_columns)

    def timeline(self) -> Timeline:
        """The active timeline as it stands."""
        return self._open.context.timeline.load()

    def partitions(self) -> tuple[str, ...]:
        """All partition paths, sorted."""
        return self._open.snapshot().listing.partitions()

    # Writing

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
        return self._write(data, WriteOperation.UPSERT, with_schema_mode(options, schema_mode), seen=seen)

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
                lambda settings: run_delete_where(self._open.now(parsed), engine, where, settings, read),
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
            lambda settings: run_update(self._open.now(parsed), engine, set, found, settings),
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
        return self._open.write(lambda settings: run_delete_partitions(self._open.now(parsed), paths, settings, engine), settings)

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
        parsed = self._open.parse(verb_of(operation), options)
        settings = replace(WriteSettings.of(parsed, operation), batch=batch)
        try:
            context = self._open.now(parsed)
            check_not_landed(context, batch, context.timeline.load())
            engine = _engine_for(data, parsed)
            return self._open.write(lambda chosen: run_write(self._open.now(parsed), engine, data, chosen), settings)
        except BatchLanded:
            return WriteResult(str(operation), None, None)

    @contextmanager
    def turn(self, *, seconds: float = 60) -> Iterator[Table]:
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
        if not 0.001 <= seconds <= LONGEST_TURN_MS / 1000:
            raise InvalidRequest(f"a turn of {seconds} seconds on {self.uri}: give between 0.001 and {LONGEST_TURN_MS // 1000}")
        context = self._open.writable(self._open.options)
        with its_turn(context, CommitSettings.of(self._open.options), int(seconds * 1000)) as held:
            mine = copy(self)
            mine._open = self._open.at(held)
            yield mine

    def rollback(self, instant: str, *, options: Mapping[str, object] | None = None) -> RollbackResult:
        """Undo the write requested at `instant`, completed or not.

        Plans of compactions and clusterings are not writes: `unschedule_compaction` and `unschedule_clustering` drop those.

        Args:
            instant: The request time.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: The active timeline has no such write.
            TableState: Later writes build on it.
        """
        parsed = self._open.parse(VERBS["rollback"], options)
        context = self._open.writable(parsed, keeps_indexes=False)
        return rollback_instant(context, self._find_write(instant), CommitSettings.of(parsed))

    # Table services

    @property
    def services(self) -> Services:
        """The table services: compaction, clustering, cleaning, archiving, and passes of all of them."""
        return Services(self._open)

    clean = _service(Services.clean)
    archive = _service(Services.archive)
    cluster = _service(Services.cluster)
    schedule_clustering = _service(Services.schedule_clustering)
    unschedule_clustering = _service(Services.unschedule_clustering)
    compact = _service(Services.compact)
    schedule_compaction = _service(Services.schedule_compaction)
    log_compact = _service(Services.log_compact)
    schedule_log_compaction = _service(Services.schedule_log_compaction)
    unschedule_compaction = _service(Services.unschedule_compaction)
    run_services = _service(Services.run)
    serve = _service(Services.serve)
    background_services = _service(Services.background)
    expired_partitions = _service(Services.expired_partitions)
    run_ttl = _service(Services.expire_partitions)
    sync = _service(Services.sync)

    # Administration

    def savepoint(
        self,
        instant: str | None = None,
        *,
        user: str = "",
        comments: str = "",
        tag: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> SavepointResult:
        """Keep the files of a completed write from being cleaned, so that the table can be restored to it.

        Args:
            instant: The request time of the write; None for the newest.
            user: Who makes it, for the savepoint's file.
            comments: Anything, for the savepoint's file.
            tag: A name for this state, which is then read by `scan(as_of="tag:NAME")`; the first line of its comments.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: There is no such completed write.
            TableState: It has a savepoint, its files are gone or about to go, or another savepoint has the tag.
            InvalidRequest: The tag is empty, of several lines, longer than 200 characters, or ends in a space.
        """
        parsed = self._open.parse(VERBS["savepoint"], options)
        settings = CommitSettings.of(parsed)
        return run_savepoint(self._open.now(parsed), settings, instant=instant, user=user, comments=comments, tag=tag)

    def tags(self) -> dict[str, str]:
        """The names that savepoints have, oldest first, and for each the request time of the write that it names.

        `scan(as_of="tag:NAME")`, `restore("tag:NAME")` and `delete_savepoint("tag:NAME")` take them.  One file is read for each
        savepoint.
        """
        context = self._open.context.reloaded()
        return tags_of(context, context.timeline.load())

    def delete_savepoint(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Remove a savepoint; later cleans may delete what it kept.

        Args:
            instant: The request time of the write that it keeps, or `tag:NAME`.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: There is no such savepoint.
        """
        parsed = self._open.parse(VERBS["delete_savepoint"], options)
        run_delete_savepoint(self._open.now(parsed), CommitSettings.of(parsed), instant)

    def set_properties(
        self, properties: Mapping[str, object], *, options: Mapping[str, object] | None = None
    ) -> dict[str, str | None]:
        """Set properties of the table that no file goes by, under its lock: its name, its database, and keys of your own.

        The others say how files are laid out, and are refused with the verb that changes them, if there is one.  Every reader
        and writer finds the properties in `config.properties`, and the real Hudi keeps them.

        Args:
            properties: Values by key, such as `{"owner": "fares"}` or `{"hoodie.table.name": "rides"}`; None removes a key.
            options: `hoodie.*` options of this call.

        Returns:
            The properties that are other than before, with their new values.

        Raises:
            InvalidRequest: A property defines the table or how writes are done, or the name is that of the writers' lock.
        """
        parsed = self._open.parse(VERBS["set_properties"], options)
        changes = {key: _property_text(key, value) for key, value in properties.items()}
        context = self._open.now(parsed)
        changed = run_set_properties(context, changes, CommitSettings.of(parsed), LockSettings.of(parsed, self.name))
        self._open.context = self._open.context.reloaded()
        return changed

    def drop_metadata_table(self, *, options: Mapping[str, object] | None = None) -> None:
        """Remove the metadata table.

        Readers list directories from then on, and the next write builds it anew, unless its options say
        `hoodie.metadata.enable=false`.

        Args:
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["drop_metadata_table"], options)
        drop_metadata_table(self._open.now(parsed), CommitSettings.of(parsed).lock_wait_ms)

    def restore(self, instant: str, *, options: Mapping[str, object] | None = None) -> RestoreResult:
        """Take the table back to a savepoint, or to any completed write whose files are all there; later writes are deleted.

        A restore that died blocks writing until it is run again.

        Args:
            instant: The request time of that write, or `tag:NAME` of its savepoint.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: There is no such completed write, or tag.
            TableState: Another restore did not finish, files that this one needs are gone, or later writes are kept or archived.
        """
        parsed = self._open.parse(VERBS["restore"], options)
        return run_restore(self._open.now(parsed), CommitSettings.of(parsed), instant)

    def upgrade(
        self, to: int | None = None, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> VersionChange:
        """Make the table one of a later table version; nothing happens to one that has it.  Nobody else may write meanwhile.

        A merge-on-read table is compacted.  From version 6 the metadata table is dropped, and built anew by the next write; from
        8 to 9 it stays with all its indexes, and a payload class becomes a merge mode.  A crash leaves a table of a version on
        the way, and another call goes on.

        Args:
            to: 8 or 9; None for 8, the version of the tables that PyHudi makes.
            spark: A session on which the compaction runs its tasks; None for this process.
            options: `hoodie.*` options of this call.  `hoodie.payload.delete.field` and `.marker`, which version 8 takes with
                every write, become the table's own in version 9.

        Raises:
            TableState: A restore is pending, or a writer lives.
            Unsupported: Tables of the version cannot be what this one is.
            InvalidRequest: The table has a later version.
            CorruptData: Instants or an archive cannot be read.
        """
        parsed = self._open.parse(VERBS["upgrade"], options)
        settings, codec = CompactSettings.of(parsed), ArchiveSettings.of(parsed).compression
        target = None if to is None else parse_table_version(str(to))
        result = run_upgrade(self._open.now(parsed), self._open.engine(spark, parsed), settings, codec, target)
        self._open.context = self._open.context.reloaded()
        return result

    def downgrade(
        self, to: int | None = None, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> VersionChange:
        """Make the table one of an earlier version: 8 for releases 1.0 of Hudi, 6 for those before, which PyHudi only reads then.

        A merge-on-read table is compacted until no log file is left to merge.  From version 9 to 8 indexes of a later layout are
        dropped (the result says which), to 6 the metadata table.  Otherwise as `upgrade`.

        Args:
            to: 8 or 6; None for the version below the table's.
            spark: A session on which the compaction runs its tasks; None for this process.
            options: `hoodie.*` options of this call.

        Raises:
            TableState: A restore, an index build or a clustering of a merge-on-read table is pending, or another process writes.
            Unsupported: The version cannot hold the table: several ordering fields, a partitioned record index, a record merger.
            InvalidRequest: The table has an earlier version.
        """
        parsed = self._open.parse(VERBS["downgrade"], options)
        settings = CompactSettings.of(parsed)
        target = None if to is None else parse_table_version(str(to))
        result = run_downgrade(self._open.now(parsed), self._open.engine(spark, parsed), settings, target)
        self._open.context = self._open.context.reloaded()
        return result

    def validate(self, *, sample: int | None = None, keys: bool = False) -> ValidationResult:
        """Compare the timeline, the data files, the metadata table and its indexes with one another.  Nothing is changed.

        Args:
            sample: How many base files to open for their footers; None for all.
            keys: Look for keys that stand twice in a partition too, which reads the keys of all rows.

        Returns:
            What was compared, what was found, and what was passed over.
        """
        engine = LocalEngine(self._open.options.integer(THREADS))
        return run_validate(self._open.context.reloaded(), engine, sample=sample, keys=keys)

    @property
    def alter(self) -> Alter:
        """Changes of the table's columns by ids: added, dropped, renamed, retyped, reordered, commented on."""
        return Alter(self._open)

    @property
    def index(self) -> Indexes:
        """The indexes of the table's metadata table: created, dropped, built anew, listed."""
        return Indexes(self._open)

    def repair(
        self,
        kinds: Iterable[str] | None = None,
        *,
        dry_run: bool = True,
        options: Mapping[str, object] | None = None,
    ) -> RepairResult:
        """Repair what is broken around the data, or say what that would take.

        Args:
            kinds: Any of timeline, properties, pending (what died), partition-metadata, orphans, metadata-table; None for all.
            dry_run: Change nothing.
            options: `hoodie.*` options of this call.

        Raises:
            InvalidRequest: There is no such kind.
        """
        known = [kind.value for kind in RepairKind]
        chosen = known if kinds is None else list(kinds)
        unknown = [kind for kind in chosen if kind not in known]
        if unknown:
            raise InvalidRequest(f"{unknown[0]!r} is not something that can be repaired; there are {', '.join(known)}")
        parsed = self._open.parse(VERBS["repair"], options)
        context = self._open.writable(parsed)
        settings = RepairSettings.of(parsed, [RepairKind(kind) for kind in chosen])
        return run_repair(context, LocalEngine(parsed.integer(THREADS)), settings, dry_run=dry_run)

    @property
    def inspect(self) -> Inspection:
        """What the table consists of, as Arrow tables: timeline, files, file slices, statistics, log blocks, and more."""
        return Inspection(self._open.context.reloaded())

    @property
    def plot(self) -> Plots:
        """Pictures of the table's health, drawn with matplotlib (`pip install "pyhudi[plot]"`)."""
        return Plots(self.inspect, self.name)

    # Reading

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        as_of: Moment | None = None,
        *,
        limit: int | None = None,
        keys: Any = None,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """The table's rows as of now.

        Nothing is read until one of the scan's `to_...` methods is called.

        Args:
            columns: Data columns by default; meta columns (`_hoodie_...`) may be named too, and "*" is all of both.
            filter: SQL text such as `"fare > 10 and city = 'sf'"`, tuples such as `[("city", "=", "sf")]`, or an expression of
                pyarrow (`pc.field("fare") > 10`) or Polars (`pl.col("fare") > 10`).
            as_of: An instant, a datetime, a date, ISO text, or `tag:NAME` of a savepoint.  Without a zone it is a time in the
                zone in which the table writes its times.
            limit: Give at most so many rows, whichever are read first; None for all.
            keys: Rows with some of the table's columns: only rows are given that equal one of them in all of these, as a semi
                join gives them, and the indexes are asked for its values before files are read.
            options: `hoodie.*` options of this call.

        Raises:
            Unsupported: `keys` are very many and of several columns other than the record key fields.
        """
        parsed = self._open.parse(VERBS["scan"], options)
        query = plan_snapshot_query(
            self._open.now(parsed),
            columns,
            filter,
            as_of=_as_of(None if as_of is None else as_of_text(as_of, self._open.context.config.zone), parsed),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=ReadSettings.of(parsed),
            kept=self._open.kept,
        )
        if keys is not None:
            query = narrowed_to(query, arrow_reader(keys).read_all(), exactly=True)
        return Scan(query, parsed.integer(THREADS), limit)

    def read_optimized(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        limit: int | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """The rows of base files alone; on a copy-on-write table the same as `scan`.

        Args:
            columns: As of `scan`.
            filter: As of `scan`.
            limit: As of `scan`.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["read_optimized"], options)
        settings = ReadSettings.of(parsed)
        query = plan_snapshot_query(
            self._open.now(parsed),
            columns,
            filter,
            as_of=parsed.text(AS_OF),
            base_files_only=True,
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=settings,
            kept=self._open.kept,
        )
        return Scan(query, parsed.integer(THREADS), limit)

    def lookup(self, keys: Any, columns: Sequence[str] | None = None, *, options: Mapping[str, object] | None = None) -> Scan:
        """The rows of some keys, in no order; keys that the table does not have give none.

        The record index finds the files where the table has one.

        Args:
            keys: Values of the record key field (`[1, 2]`), tuples of values where it has several fields, record keys as strings,
                or rows with the record key fields: with the partition fields too, a key is only looked for in its partition.
                A Spark DataFrame of them is collected; `pyhudi.spark.read(..., keys=)` joins with one of any size.
            columns: As of `scan`.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["lookup"], options)
        query = plan_lookup(
            self._open.now(parsed),
            keys_to_look_up(_collected(keys), self._open.context.config.keys),
            columns,
            ReadSettings.of(parsed),
            as_of=parsed.text(AS_OF),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            kept=self._open.kept,
        )
        return Scan(query, parsed.integer(THREADS))

    def filter_exists(self, data: Any, *, options: Mapping[str, object] | None = None) -> Any:
        """The rows of `data` whose record keys the table does not have, in their order: what an insert would add.

        The indexes are asked for the keys as `lookup` asks them.  Nothing is written, and another writer may add a key meanwhile.

        Args:
            data: Rows with the record key fields: with the partition fields too, a key is only looked for in its partition.  A
                Spark DataFrame is filtered on Spark, in no order.
            options: `hoodie.*` options of this call.

        Returns:
            A DataFrame for a DataFrame, else an Arrow table.

        Raises:
            InvalidRequest: The rows lack a key field, or the table generates its keys.
        """
        parsed = self._open.parse(VERBS["filter_exists"], options)
        context, spec = self._open.now(parsed), self._open.context.config.keys
        if is_of_spark(data):
            from pyhudi.engines.spark.dataframe_semi_join import rows_without_known

            return rows_without_known(context, parsed, data, key_columns(spec, data.columns))
        rows = arrow_reader(data).read_all()
        names = key_columns(spec, rows.column_names)
        query = plan_snapshot_query(context, names, settings=ReadSettings.of(parsed), kept=self._open.kept)
        found = Scan(narrowed_to(query, rows.select(names)), parsed.integer(THREADS)).to_arrow()
        return without_matches(rows, found)

    def incremental(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        after: Moment | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """The records changed by instants that completed from `start` to `end`, both included, in their state as of `end`.

        Deletes do not appear.  In a table of version 9 `start` is left out, as its real Hudi does.  Tables of version 6 store no
        completion times: there `start` (left out) and `end` are request times.

        With the option `hoodie.datasource.query.incremental.format=cdc` it is Hudi's query of change data: the columns of
        `changes`, and `start` (left out) and `end` are request times.

        Args:
            start: A completion time (a result's `completion_time`), a datetime, a date, ISO text, or "earliest".
            end: As `start`; None for now.
            columns: As of `scan`.
            filter: As of `scan`.
            after: In place of `start`, which it leaves out in tables of every version: the completion time up to which all was
                read before.  No commit is read twice by who goes on from there.
            options: `hoodie.*` options of this call.

        Raises:
            InvalidRequest: Both or neither of `start` and `after` are given, or the instant of a write stands for its completion
                time.
        """
        parsed = self._open.parse(VERBS["incremental"], options)
        first, last = self._range_ends(start, end, after)
        if parsed.word(INCREMENTAL_FORMAT) == "cdc":
            changes = plan_change_query(
                self._open.now(parsed), RequestRange.parse(first, last), columns, filter, settings=ReadSettings.of(parsed)
            )
            return Scan(changes, parsed.integer(THREADS))
        range_ = _opened(incremental_range(parsed, self._open.context.config.version, first, last), after)
        query = plan_incremental_query(
            self._open.now(parsed),
            range_,
            columns,
            filter,
            fall_back=parsed.flag(FALL_BACK),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=ReadSettings.of(parsed),
        )
        check_told_apart(range_, (start, end, after), query.snapshot.timeline)
        return Scan(query, parsed.integer(THREADS))

    def changes(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        after: Moment | None = None,
        typed: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """Every change by instants that completed from `start` to `end`: also deletes, and each of several changes of a record.

        Both ends are included; in a table of version 9 the start is left out, as its real Hudi does.  The table needs
        `hoodie.table.cdc.enabled=true` from its creation on.

        Rows come in the order of the changes: instants by completion time, and within an instant deletes before inserts and
        updates.  Applied one by one to the rows as of the start, they give the rows as of the end.  What does not keep their
        order (a shuffle on Spark, a parallel reader) restores it by sorting by `completion_time` and `op`.

        Args:
            start: A completion time (a result's `completion_time`), a datetime, a date, ISO text, or "earliest", which is the
                default.
            end: As `start`; None for now.
            columns: Some of the columns below; op, ts_ms, before and after by default.
            filter: As of `scan`, over the columns below.
            after: As of `incremental`.
            typed: Give the images as structs instead of JSON.
            options: `hoodie.*` options of this call.

        Returns:
            Columns op (`i`, `u`, `d`), ts_ms (request time of the instant), before and after: the record without meta columns as
            JSON text, or as a struct; null where there is none.  And completion_time (of the instant), where `columns` names it.

        Raises:
            TableState: Files that tell the changes were cleaned.
        """
        parsed = self._open.parse(VERBS["changes"], options)
        settings = ReadSettings.of(parsed)
        first, last = self._range_ends(EARLIEST if start is None and after is None else start, end, after)
        range_ = _opened(completion_range(self.context.config.version, first, last), after)
        query = plan_change_query(self._open.now(parsed), range_, columns, filter, typed=typed, settings=settings)
        check_told_apart(range_, (start, end, after), query.snapshot.timeline)
        return Scan(query, parsed.integer(THREADS))

    # Private

    def _range_ends(self, start: Moment | None, end: Moment | None, after: Moment | None) -> tuple[str, str | None]:
        """The ends of a range of times, as text.  Raises InvalidRequest unless one of start and after is given."""
        zone, given = self._open.context.config.zone, start if after is None else after
        if given is None or (start is not None and after is not None):
            raise InvalidRequest(
                "a range begins with either start=, which is included, or after=, which is not: give one of them; "
                'start="earliest" begins with the first commit'
            )
        # A second begins with its first millisecond, and what comes after it with the next second.
        first = range_text(given, zone, end=after is not None)
        return first, None if end is None else range_text(end, zone, end=True)

    def _write(
        self,
        data: Any,
        operation: WriteOperation,
        options: Mapping[str, object] | None,
        engine: Engine | None = None,
        seen: Snapshot | None = None,
    ) -> WriteResult:
        parsed = self._open.parse(verb_of(operation), options)
        if operation in _ADDING and is_empty(data) and (columns := self._columns_of_files()) is not None:
            data = columns.empty_table()
        chosen = engine or _engine_for(data, parsed)
        return self._open.write(
            lambda settings: run_write(self._open.now(parsed), chosen, data, settings, seen=seen),
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
        if not (isinstance(query, Query) and query.is_latest):
            raise InvalidRequest("based_on takes a scan of the table's latest state: `table.scan(...)` without as_of")
        read = query.snapshot.context.storage.uri
        if read != self.uri:
            raise InvalidRequest(f"based_on takes a scan of the table that is written, {self.uri}; this one reads {read}")
        return query.snapshot

    def _find_write(self, request_time: str) -> Instant:
        timeline = self.timeline()
        for instant in (*timeline.completed_writes(), *timeline.pending_writes()):
            if instant.request_time == request_time:
                return instant
        raise InstantNotFound(f"the active timeline of {self._open.uri} has no write requested at {request_time}")


_ADDING = (WriteOperation.INSERT, WriteOperation.BULK_INSERT, WriteOperation.UPSERT)
"""Operations that change nothing when there are no rows; an overwrite without rows deletes."""


def _engine_for(data: Any, options: Options) -> Engine:
    """The engine that the kind of data calls for: Spark for its DataFrames, threads of this process for the rest."""
    if type(data).__module__.startswith("pyspark.sql."):
        from pyhudi.engines.spark.engine import SparkEngine

        return SparkEngine(data.sparkSession)
    return LocalEngine(options.integer(THREADS))


def _collected(keys: Any) -> Any:
    """Keys as this process has them: few enough rows of a DataFrame are brought here.  Raises InvalidRequest for more."""
    if not is_of_spark(keys):
        return keys
    rows = keys.limit(MAX_MATCHED + 1).toArrow()
    if rows.num_rows > MAX_MATCHED:
        raise InvalidRequest(f"more than {MAX_MATCHED} keys to look up: pyhudi.spark.read(spark, path, keys=...) joins with them")
    return rows


def _filter_of(where: Filter | Column | None) -> Filter | None:
    """Raises InvalidRequest for a Column of Spark's, which says nothing to the embedded engine."""
    if is_of_spark(where):
        raise InvalidRequest("where is a Column of Spark: give spark= too, and the cluster does the work")
    return cast("Filter | None", where)


def _reader_on(spark: SparkSession) -> Callable[[Query], DataFrame]:
    from pyhudi.engines.spark.read_dataframe import query_dataframe

    return lambda query: query_dataframe(spark, query)


def _opened(range_: CompletionRange | RequestRange, after: Moment | None) -> CompletionRange | RequestRange:
    """The range without its start, where it comes after that."""
    return replace(range_, open_start=True) if after is not None and isinstance(range_, CompletionRange) else range_


def _as_of(argument: str | None, options: Options) -> str | None:
    """The time of a snapshot, from the argument or from the option.  Raises InvalidRequest when they differ."""
    option = options.text(AS_OF)
    if argument is not None and option is not None and argument != option:
        raise InvalidRequest(f"as_of={argument} and option {AS_OF}={option} disagree")
    return option if argument is None else argument


def _property_text(key: str, value: object) -> str | None:
    """A property as it is stored.  Raises InvalidRequest for what is neither text, a number nor true or false."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, (bool, int, float)):
        raise InvalidRequest(f"property {key} is given as {type(value).__name__}, and properties are text: {value!r:.80}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _joined(names: str | Sequence[str] | None) -> str | None:
    if names is None:
        return None
    return names if isinstance(names, str) else ",".join(names)
