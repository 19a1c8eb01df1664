"""The user's face: `Table` and `Scan`.  Thin: options are parsed here, the verbs live in `operations`, rows are read by tasks.

t = Table.create(uri, name="trips", record_key=["id"], partition_by=["city"], ordering=["ts"], table_type="cow")
t.upsert(frame)                     # anything with the Arrow PyCapsule interface runs in this process
t.scan(columns=["id"], filter="city = 'sf'").to_arrow()
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyhudi.engines.local import LocalEngine
from pyhudi.errors import InstantNotFound, InvalidRequest, TableNotFound
from pyhudi.execute.engine import Engine
from pyhudi.execute.read_slice import rows_without_columns
from pyhudi.format.coding import checked_text
from pyhudi.format.instants import Action, Instant
from pyhudi.inspect import Inspection
from pyhudi.operations.action.gate import check_writable
from pyhudi.operations.action.results import (
    ArchiveResult,
    CleanResult,
    CompactionResult,
    RestoreResult,
    SavepointResult,
    WriteResult,
)
from pyhudi.operations.action.rollback import RollbackResult, rollback_instant
from pyhudi.operations.action.settings import THREADS, CommitSettings
from pyhudi.operations.admin.create import (
    NAME,
    ORDERING,
    PARTITION_FIELDS,
    RECORD_KEY_FIELDS,
    TABLE_TYPE,
    check_against_table,
    check_new_table,
    create_table,
    name_from_uri,
    parse_table_type,
    with_table_settings,
)
from pyhudi.operations.admin.repair import RepairKind, RepairResult, RepairSettings, run_repair
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.admin.savepoint import run_delete_savepoint, run_savepoint
from pyhudi.operations.admin.upgrade import VersionChange, run_downgrade, run_upgrade
from pyhudi.operations.admin.validate import ValidationResult, run_validate
from pyhudi.operations.read.changes import ChangeQuery, plan_change_query
from pyhudi.operations.read.lookup import plan_lookup
from pyhudi.operations.read.query import (
    AS_OF,
    FALL_BACK,
    INCREMENTAL_FORMAT,
    VALUES_FROM_PATH,
    Filter,
    Query,
    incremental_range,
    plan_incremental_query,
    plan_snapshot_query,
    table_schema,
)
from pyhudi.operations.read.skipping import ReadSettings
from pyhudi.operations.services.archive import ArchiveSettings, run_archive
from pyhudi.operations.services.clean import CleanSettings, preview_clean, run_clean
from pyhudi.operations.services.cluster import (
    ClusteringOptions,
    ClusteringResult,
    drop_clustering,
    execute_clustering,
    plan_and_run_clustering,
    schedule_clustering,
)
from pyhudi.operations.services.compact import (
    CompactSettings,
    run_compaction,
    run_log_compaction,
    schedule_compaction,
    schedule_log_compaction,
    unschedule,
)
from pyhudi.operations.services.index import (
    IndexInfo,
    IndexRequest,
    IndexSettings,
    abort_index,
    create_index,
    drop_index,
    drop_metadata_table,
    index_request,
    list_indexes,
    rebuild_index,
    run_index,
    schedule_index,
)
from pyhudi.operations.services.ttl import TtlSettings, find_expired_partitions, run_ttl
from pyhudi.operations.services.upkeep import BackgroundServices, Outcomes, UpkeepSettings, left_to_thread, run_loop, run_pass
from pyhudi.operations.write.batches import BatchLanded, StreamBatch, check_not_landed
from pyhudi.operations.write.run import (
    PARTIAL_UPDATE,
    SCHEMA_MODE,
    WriteOperation,
    WriteSettings,
    run_delete_partitions,
    run_delete_where,
    run_write,
)
from pyhudi.options import Options, parse_options
from pyhudi.plan.incremental import EARLIEST, CompletionRange, RequestRange
from pyhudi.plan.read import ReadPlan
from pyhudi.plot import Plots
from pyhudi.storage import open_storage
from pyhudi.storage.clock import Environment, SystemEnvironment
from pyhudi.storage.locks import LockSettings, open_lock
from pyhudi.table.closed import check_open
from pyhudi.table.config import TableConfig, load_table_config
from pyhudi.table.context import TableContext
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.timeline.timeline import Timeline
from pyhudi.verbs import VERBS, Verb, check_given, check_standing, verb_of

if TYPE_CHECKING:
    import pandas
    import polars

    from pyhudi.engines.spark.convert import DataFrame, SparkSession

__all__ = ["Filter", "Indexes", "Scan", "Table"]


class Table:
    """A Hudi table at a URI: a local path, `s3://`, `gs://`, `az://` or `memory://`.

    Opening reads `hoodie.properties` only.  Every verb loads the table's present state, so an object may be kept as long as
    wanted and used from
    several threads.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        *,
        environment: Environment | None = None,
    ) -> None:
        """Open a table.  options: `hoodie.*` options that hold for every verb of this object.

        Raises TableNotFound, Unsupported for a table version that cannot be read, CorruptData for damaged properties,
        InvalidRequest for options that
        contradict the table.
        """
        storage = open_storage(uri, storage_options)
        env = environment or SystemEnvironment()
        self._options = parse_options(options, stacklevel=3)
        config = load_table_config(storage)
        check_against_table(self._options, config)
        self._context = TableContext(storage, env, config, open_lock(LockSettings.of(self._options, config.name), storage, env))
        self._background: BackgroundServices | None = None

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
    ) -> Table:
        """Create a table and open it.

        name: the folder's name when left out.  record_key: columns that name a record; none means generated keys.  partition_by:
        columns, a kind may
        follow (`day:TIMESTAMP`).  ordering: the column whose larger value is the newer record.  table_type: `cow` (default) or
        `mor`.
        schema: the columns; those of the first write when left out.  options: further `hoodie.*` settings.
        Raises TableExists, InvalidRequest.
        """
        storage = open_storage(uri, storage_options)
        given = parse_options(options, stacklevel=3)
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
        if settings.given(NAME) is None:
            settings = settings.merged({NAME.key: name_from_uri(storage.uri)})
        env = environment or SystemEnvironment()
        check_new_table(given, settings, schema)
        open_lock(LockSettings.of(given, settings.word(NAME)), storage, env)
        create_table(storage, env, settings, schema)
        return cls(uri, storage_options, options, environment=environment)

    @classmethod
    def exists(cls, uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
        """Whether there is a table at the URI."""
        try:
            load_table_config(open_storage(uri, storage_options))
        except TableNotFound:
            return False
        return True

    def __repr__(self) -> str:
        config = self._context.config
        kind = "cow" if config.is_cow else "mor"
        return f"Table({self.uri!r}, name={config.name!r}, type={kind!r}, version={int(config.version)})"

    @property
    def uri(self) -> str:
        """Where the table lies."""
        return self._context.storage.uri

    @property
    def name(self) -> str:
        """`hoodie.table.name`."""
        return self._context.config.name

    @property
    def config(self) -> TableConfig:
        """The table's settings as read when it was opened."""
        return self._context.config

    @property
    def context(self) -> TableContext:
        """The open table as operations take it."""
        return self._context

    def schema(self, *, meta_columns: bool = False) -> pa.Schema:
        """The columns of the latest commit.  Raises TableState for a table without commits that was created without a schema."""
        return table_schema(self._snapshot(), meta_columns=meta_columns)

    def timeline(self) -> Timeline:
        """The active timeline as it stands."""
        return self._context.timeline.load()

    def partitions(self) -> tuple[str, ...]:
        """All partition paths, sorted."""
        return self._snapshot().listing.partitions()

    # Writing

    def upsert(
        self,
        data: Any,
        *,
        partial: bool = False,
        schema_mode: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Insert records with new keys and merge those whose keys are there, by the table's merge mode.

        partial: the data holds key, partition and ordering fields and some other columns; columns that it lacks keep their
        values, and keys that are not in the table are passed over.  (Option `pyhudi.partial.update`.)
        schema_mode: what the data may change of the table's columns.  "strict": nothing.  "widen", the default: it may bring new
        columns, and wider types that hold all values exactly (int32 to int64 or double, float to double).  "evolve": as Hudi
        does, also whole numbers to floating point and numbers to text.  Record key, partition and ordering fields keep their
        types.  The result tells what changed.  (Option `pyhudi.schema.mode`.)
        """
        if partial:
            options = {**(options or {}), PARTIAL_UPDATE.key: True}
        return self._write(data, WriteOperation.UPSERT, _with_mode(options, schema_mode))

    def insert(self, data: Any, *, schema_mode: str | None = None, options: Mapping[str, object] | None = None) -> WriteResult:
        """Add records without looking for their keys; small files are filled up first.  schema_mode: as of `upsert`."""
        return self._write(data, WriteOperation.INSERT, _with_mode(options, schema_mode))

    def bulk_insert(
        self, data: Any, *, schema_mode: str | None = None, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Add records to new files only: the fastest way to fill a table.  schema_mode: as of `upsert`."""
        return self._write(data, WriteOperation.BULK_INSERT, _with_mode(options, schema_mode))

    def insert_overwrite(
        self, data: Any, *, schema_mode: str | None = None, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Replace all records of the partitions that the data touches.  schema_mode: as of `upsert`."""
        return self._write(data, WriteOperation.INSERT_OVERWRITE, _with_mode(options, schema_mode))

    def insert_overwrite_table(
        self, data: Any, *, schema_mode: str | None = None, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Replace all records of the table.  schema_mode: as of `upsert`."""
        return self._write(data, WriteOperation.INSERT_OVERWRITE_TABLE, _with_mode(options, schema_mode))

    def delete(
        self,
        keys: Any = None,
        *,
        where: Filter | None = None,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Delete records: those whose key fields are in `keys`, or those for which `where` is true.

        keys: rows with the record key fields; with the partition fields too only those partitions are searched.
        spark: with `where`, the records are searched and deleted on the cluster; the kind of `keys` says where those are.
        """
        if (keys is None) == (where is None):
            raise InvalidRequest("delete takes either keys= or where=")
        if where is not None:
            parsed = self._parse(VERBS["delete"], options)
            engine = self._service_engine(spark, parsed)
            read = None if spark is None else _reader_on(spark)
            return self._beside_services(
                lambda settings: run_delete_where(self._opened(parsed), engine, where, settings, read),
                WriteSettings.of(parsed, WriteOperation.DELETE),
            )
        if spark is not None:
            raise InvalidRequest("delete with keys= takes no spark=: a Spark DataFrame of keys runs on its own session")
        return self._write(keys, WriteOperation.DELETE, options)

    def delete_partitions(
        self,
        partitions: str | Iterable[str],
        *,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Delete all records of partitions, named by path; `*` stands for any characters.

        spark: services that follow, and the upkeep of a record index, run on the cluster.
        """
        paths = [partitions] if isinstance(partitions, str) else list(partitions)
        parsed = self._parse(VERBS["delete_partitions"], options)
        settings = WriteSettings.of(parsed, WriteOperation.DELETE_PARTITION)
        engine = self._service_engine(spark, parsed)
        return self._beside_services(
            lambda settings: run_delete_partitions(self._opened(parsed), paths, settings, engine), settings
        )

    def write_batch(
        self, data: Any, operation: WriteOperation, batch: StreamBatch, *, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Write a batch of a stream, unless it or a later one of the same stream is committed already.

        The result has no instant when the batch had landed before.
        """
        parsed = self._parse(verb_of(operation), options)
        settings = replace(WriteSettings.of(parsed, operation), batch=batch)
        try:
            context = self._opened(parsed)
            check_not_landed(context, batch, context.timeline.load())
            engine = _engine_for(data, parsed)
            return self._beside_services(lambda chosen: run_write(self._opened(parsed), engine, data, chosen), settings)
        except BatchLanded:
            return WriteResult(str(operation), None, None)

    def rollback(self, instant: str, *, options: Mapping[str, object] | None = None) -> RollbackResult:
        """Undo the write requested at `instant`, completed or not.  Raises InstantNotFound, and TableState when later writes
        build on it.

        Plans of compactions and clusterings are not writes: `unschedule_compaction` and `unschedule_clustering` drop those.
        """
        parsed = self._parse(VERBS["rollback"], options)
        context = self._writable(parsed, keeps_indexes=False)
        return rollback_instant(context, self._find_write(instant), CommitSettings.of(parsed))

    # Table services

    def clean(
        self, *, dry_run: bool = True, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> CleanResult:
        """Delete file slices that no query within the retention (`hoodie.clean...` options) still needs.

        dry_run: only say what would be deleted; False deletes it, after carrying out cleans that died.  spark: delete on the
        cluster.
        """
        parsed = self._parse(VERBS["clean"], options)
        settings = CleanSettings.of(parsed)
        if dry_run:
            context = self._opened(parsed)
            check_open(context)
            return preview_clean(context, settings)
        context = self._writable(parsed)
        return run_clean(context, settings, engine=None if spark is None else self._service_engine(spark, parsed))

    def archive(self, *, options: Mapping[str, object] | None = None) -> ArchiveResult:
        """Move the oldest instants to the history when more than `hoodie.keep.max.commits` writes stand on the timeline."""
        parsed = self._parse(VERBS["archive"], options)
        return run_archive(self._writable(parsed), ArchiveSettings.of(parsed))

    def cluster(
        self,
        instant: str | None = None,
        *,
        order_by: str | Sequence[str] | None = None,
        layout: str | None = None,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> ClusteringResult:
        """Rewrite file groups in a better order and size: plan and run, or run the plan of `instant`.

        order_by: columns to sort by; layout: "linear" (default), "zorder" or "hilbert".  spark: run the tasks on the cluster.
        """
        parsed = self._parse(VERBS["cluster"], options)
        settings = self._clustering_options(order_by, layout, parsed)
        context, engine = self._opened(parsed), self._service_engine(spark, parsed)
        if instant is None:
            return plan_and_run_clustering(context, engine, settings)
        return execute_clustering(context, engine, instant, settings)

    def schedule_clustering(
        self,
        *,
        order_by: str | Sequence[str] | None = None,
        layout: str | None = None,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> ClusteringResult:
        """Plan a clustering and leave it on the timeline, to be run by `cluster(instant)`, here or elsewhere."""
        parsed = self._parse(VERBS["schedule_clustering"], options)
        settings = self._clustering_options(order_by, layout, parsed)
        return schedule_clustering(self._opened(parsed), self._service_engine(spark, parsed), settings)

    def unschedule_clustering(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Drop a pending clustering, with what a dead executor left of it.  Raises InstantNotFound, TableState when it is under
        way.
        """
        parsed = self._parse(VERBS["unschedule_clustering"], options)
        context = self._writable(parsed, keeps_indexes=False)
        context.timeline.load().find(instant, Action.CLUSTERING)
        drop_clustering(context, CommitSettings.of(parsed), instant)

    def compact(
        self,
        instant: str | None = None,
        *,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Merge the log files of a merge-on-read table into base files: run what is planned, then plan and run a new compaction.

        instant: run only the plan of that instant.  spark: run the tasks on the cluster.  What is compacted, and what first, is
        up to the `hoodie.compaction...` options; writers may go on meanwhile.
        Raises InstantNotFound, and TableState for a copy-on-write table and for a plan that another process carries out.
        """
        parsed = self._parse(VERBS["compact"], options)
        settings = CompactSettings.of(parsed)
        return run_compaction(self._opened(parsed), self._service_engine(spark, parsed), settings, instant)

    def schedule_compaction(self, *, if_due: bool = False, options: Mapping[str, object] | None = None) -> CompactionResult:
        """Plan a compaction and leave it on the timeline, to be run by `compact(instant)`, here or elsewhere.

        if_due: only when its trigger (`hoodie.compact.inline.trigger.strategy`) asks for it.
        """
        parsed = self._parse(VERBS["schedule_compaction"], options)
        return schedule_compaction(self._opened(parsed), CompactSettings.of(parsed), if_due=if_due)

    def log_compact(
        self,
        instant: str | None = None,
        *,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Merge the log files of each slice that has `hoodie.log.compaction.blocks.threshold` blocks into one log file.

        Cheaper than a compaction where base files are large; reading gets faster, base files stay.  Otherwise as `compact`.
        """
        parsed = self._parse(VERBS["log_compact"], options)
        settings = CompactSettings.of(parsed)
        return run_log_compaction(self._opened(parsed), self._service_engine(spark, parsed), settings, instant)

    def schedule_log_compaction(
        self, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> CompactionResult:
        """Plan a log compaction and leave it on the timeline, to be run by `log_compact(instant)`, here or elsewhere.

        spark: look at the logs on the cluster.
        """
        parsed = self._parse(VERBS["schedule_log_compaction"], options)
        settings = CompactSettings.of(parsed)
        return schedule_log_compaction(self._opened(parsed), self._service_engine(spark, parsed), settings)

    def unschedule_compaction(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Drop the plan of a pending compaction or log compaction.  Raises InstantNotFound, TableState when it is under way."""
        parsed = self._parse(VERBS["unschedule_compaction"], options)
        unschedule(self._writable(parsed, keeps_indexes=False), CompactSettings.of(parsed), instant)

    def run_services(
        self,
        services: Sequence[str] | None = None,
        *,
        plan: bool = True,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Mapping[str, str]:
        """One pass of table services: what is pending is carried out, then what is due; service -> what it did.

        services: of clean, metadata, archive, compact, log_compact, cluster, ttl.  None is all of them; clusterings and log
        compactions are then planned, and partitions expire, only where the options switch that on.  plan: False makes no new
        plans of compactions and clusterings.  spark: run the tasks on the cluster.
        """
        parsed = self._parse(VERBS["run_services"], options)
        _, run = self._run_pass(services, plan, self._service_engine(spark, parsed), parsed)
        return run(lambda: True)

    def serve(
        self,
        stop: threading.Event,
        services: Sequence[str] | None = None,
        *,
        rest_seconds: float = 30.0,
        plan: bool = True,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
        on_pass: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        """Run services again and again until `stop` is set, resting `rest_seconds` between passes; otherwise as `run_services`.

        When `stop` is set, the plan that is being carried out is carried to its end, and no other begun.  As many processes may
        serve a table as wanted: they take different plans.  on_pass: called with the outcomes of each pass.
        """
        parsed = self._parse(VERBS["serve"], options)
        _, run = self._run_pass(services, plan, self._service_engine(spark, parsed), parsed)

        def once() -> Outcomes:
            outcomes = run(lambda: not stop.is_set())
            if on_pass is not None:
                on_pass(outcomes)
            return outcomes

        run_loop(once, stop, rest_seconds)

    def background_services(
        self,
        services: Sequence[str] | None = None,
        *,
        rest_seconds: float = 10.0,
        plan: bool = True,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> BackgroundServices:
        """Services in a thread beside the writes of this object: `with table.background_services(): table.upsert(...)`.

        The thread looks after each commit, and every `rest_seconds`.  Writes of this object plan what the thread carries out and
        leave the rest to it; an error that ended the thread is raised by the next write.  The end of the block waits until all
        that is pending is done.  Arguments as in `run_services`.
        """
        parsed = self._parse(VERBS["background_services"], options)
        if self._background is not None:
            raise InvalidRequest(f"services run beside the writes to {self.uri} already")
        settings, run = self._run_pass(services, plan, self._service_engine(spark, parsed), parsed)

        def ended() -> None:
            self._background = None

        self._background = BackgroundServices(run, settings.names, rest_seconds, ended)
        return self._background.start()

    def savepoint(
        self,
        instant: str | None = None,
        *,
        user: str = "",
        comments: str = "",
        options: Mapping[str, object] | None = None,
    ) -> SavepointResult:
        """Keep the files of a completed write, None for the newest, from being cleaned, so that the table can be restored to it.

        Raises InstantNotFound, and TableState when its files may be gone already.
        """
        parsed = self._parse(VERBS["savepoint"], options)
        settings = CommitSettings.of(parsed)
        return run_savepoint(self._opened(parsed), settings, instant=instant, user=user, comments=comments)

    def delete_savepoint(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Remove a savepoint; later cleans may delete what it kept.  Raises InstantNotFound."""
        parsed = self._parse(VERBS["delete_savepoint"], options)
        run_delete_savepoint(self._opened(parsed), CommitSettings.of(parsed), instant)

    def expired_partitions(self, *, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
        """The partitions that `run_ttl` would delete: unwritten for `hoodie.partition.ttl.strategy.days.retain` days."""
        parsed = self._parse(VERBS["expired_partitions"], options)
        return find_expired_partitions(self._opened(parsed), TtlSettings.of(parsed))

    def run_ttl(self, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None) -> WriteResult:
        """Delete the partitions that nobody has written to for `hoodie.partition.ttl.strategy.days.retain` days."""
        parsed = self._parse(VERBS["run_ttl"], options)
        settings = WriteSettings.of(parsed, WriteOperation.DELETE_PARTITION)
        context, engine = self._writable(parsed), self._service_engine(spark, parsed)
        return run_ttl(context, TtlSettings.of(parsed), lambda paths: run_delete_partitions(context, paths, settings, engine))

    def drop_metadata_table(self, *, options: Mapping[str, object] | None = None) -> None:
        """Remove the metadata table: readers list directories from then on, and the next write builds it anew, unless its options
        say `hoodie.metadata.enable=false`.
        """
        parsed = self._parse(VERBS["drop_metadata_table"], options)
        drop_metadata_table(self._opened(parsed), CommitSettings.of(parsed).lock_wait_ms)

    def restore(self, instant: str, *, options: Mapping[str, object] | None = None) -> RestoreResult:
        """Take the table back to a savepoint, or to any completed write whose files are all there; later writes are deleted.

        A restore that died blocks writing until it is run again.  Raises InstantNotFound, TableState.
        """
        parsed = self._parse(VERBS["restore"], options)
        return run_restore(self._opened(parsed), CommitSettings.of(parsed), instant)

    def upgrade(self, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None) -> VersionChange:
        """Make a table of version 6 one of version 8; nothing happens to one of version 8.  Nobody else may write meanwhile.

        The metadata table is dropped, and built anew by the next write; a merge-on-read table is compacted.  A crash leaves a
        table of the one version or the other, and another call goes on.  Raises TableState, Unsupported, CorruptData.
        """
        parsed = self._parse(VERBS["upgrade"], options)
        settings, codec = CompactSettings.of(parsed), ArchiveSettings.of(parsed).compression
        result = run_upgrade(self._opened(parsed), self._service_engine(spark, parsed), settings, codec)
        self._context = self._context.reloaded()
        return result

    def downgrade(self, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None) -> VersionChange:
        """Make a table of version 8 one of version 6, for releases of Hudi before 1.0; PyHudi only reads it from then on.

        The metadata table is dropped; a merge-on-read table is compacted until no log file is left to merge.  Otherwise as
        `upgrade`.
        """
        parsed = self._parse(VERBS["downgrade"], options)
        settings = CompactSettings.of(parsed)
        result = run_downgrade(self._opened(parsed), self._service_engine(spark, parsed), settings)
        self._context = self._context.reloaded()
        return result

    def validate(self, *, sample: int | None = None, keys: bool = False) -> ValidationResult:
        """Compare the timeline, the data files, the metadata table and its indexes with one another.  Nothing is changed.

        sample: how many base files to open for their footers; None for all.  keys: look for keys that stand twice in a partition
        too, which reads the keys of all rows.
        """
        engine = LocalEngine(self._options.integer(THREADS))
        return run_validate(self._context.reloaded(), engine, sample=sample, keys=keys)

    @property
    def index(self) -> Indexes:
        """The indexes of the table's metadata table: created, dropped, built anew, listed."""
        return Indexes(self._context, self._parse, self._opened)

    def repair(
        self,
        kinds: Iterable[str] | None = None,
        *,
        dry_run: bool = True,
        options: Mapping[str, object] | None = None,
    ) -> RepairResult:
        """Mend what is broken around the data, or say what that would take.

        kinds: any of properties, pending (what died), partition-metadata, orphans, metadata-table; None for all.  dry_run: change
        nothing.  Raises InvalidRequest for another kind.
        """
        known = [kind.value for kind in RepairKind]
        chosen = known if kinds is None else list(kinds)
        unknown = [kind for kind in chosen if kind not in known]
        if unknown:
            raise InvalidRequest(f"{unknown[0]!r} is nothing that can be repaired; there are {', '.join(known)}")
        parsed = self._parse(VERBS["repair"], options)
        context = self._writable(parsed)
        settings = RepairSettings.of(parsed, [RepairKind(kind) for kind in chosen])
        return run_repair(context, LocalEngine(parsed.integer(THREADS)), settings, dry_run=dry_run)

    @property
    def inspect(self) -> Inspection:
        """What the table consists of, as Arrow tables: timeline, files, file slices, statistics, log blocks, and more."""
        return Inspection(self._context.reloaded())

    @property
    def plot(self) -> Plots:
        """Pictures of the table's health, drawn with matplotlib (`pip install "pyhudi[plot]"`)."""
        return Plots(self.inspect, self.name)

    # Reading

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        as_of: str | None = None,
        *,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """The table's rows as of now.  columns: data columns by default; meta columns (`_hoodie_...`) may be named too, and "*"
        is all of both.

        filter: SQL text such as `"fare > 10 and city = 'sf'"`, or tuples such as `[("city", "=", "sf")]`.  as_of: an instant or a
        time.
        Nothing is read until one of the scan's `to_...` methods is called.
        """
        parsed = self._parse(VERBS["scan"], options)
        query = plan_snapshot_query(
            self._opened(parsed),
            columns,
            filter,
            as_of=_as_of(as_of, parsed),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=ReadSettings.of(parsed),
        )
        return Scan(query, parsed.integer(THREADS))

    def read_optimized(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """The rows of base files alone; on a copy-on-write table the same as `scan`."""
        parsed = self._parse(VERBS["read_optimized"], options)
        settings = ReadSettings.of(parsed)
        query = plan_snapshot_query(
            self._opened(parsed),
            columns,
            filter,
            as_of=parsed.text(AS_OF),
            base_files_only=True,
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=settings,
        )
        return Scan(query, parsed.integer(THREADS))

    def lookup(self, keys: Any, columns: Sequence[str] | None = None, *, options: Mapping[str, object] | None = None) -> Scan:
        """The rows of some keys, in no order; keys that the table does not have give none.

        keys: record keys as texts (a list, or an Arrow array), or rows with the record key fields: with the partition fields
        too, a key is only looked for in its partition.  The record index finds the files where the table has one.
        """
        parsed = self._parse(VERBS["lookup"], options)
        query = plan_lookup(
            self._opened(parsed),
            _keys(keys),
            columns,
            ReadSettings.of(parsed),
            as_of=parsed.text(AS_OF),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
        )
        return Scan(query, parsed.integer(THREADS))

    def incremental(
        self,
        start: str,
        end: str | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """The records changed by instants that completed from `start` to `end`, both included, in their state as of `end`.

        start: a completion time (a result's `completion_time`) or "earliest"; end: None for now.  Deletes do not appear.
        Tables of version 6 store no completion times: there `start` (left out) and `end` are request times.

        With the option `hoodie.datasource.query.incremental.format=cdc` it is Hudi's query of change data: the columns of
        `changes`, and `start` (left out) and `end` are request times.
        """
        parsed = self._parse(VERBS["incremental"], options)
        if parsed.word(INCREMENTAL_FORMAT) == "cdc":
            changes = plan_change_query(
                self._opened(parsed), RequestRange.parse(start, end), columns, filter, settings=ReadSettings.of(parsed)
            )
            return Scan(changes, parsed.integer(THREADS))
        query = plan_incremental_query(
            self._opened(parsed),
            incremental_range(parsed, self._context.config.version, start, end),
            columns,
            filter,
            fall_back=parsed.flag(FALL_BACK),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=ReadSettings.of(parsed),
        )
        return Scan(query, parsed.integer(THREADS))

    def changes(
        self,
        start: str = EARLIEST,
        end: str | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        typed: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """Every change that instants made which completed from `start` to `end`, both included: also the deletes, and each of
        several changes of one record.

        The table needs `hoodie.table.cdc.enabled=true` from its creation on.  Columns: op (`i`, `u`, `d`), ts_ms (request time of
        the instant), before and after: the record without meta columns as JSON text, or as a struct when `typed`; null where
        there is none.  start: a completion time (a result's `completion_time`) or "earliest"; end: None for now.
        Raises TableState when files that tell the changes were cleaned.
        """
        parsed = self._parse(VERBS["changes"], options)
        settings = ReadSettings.of(parsed)
        range_ = CompletionRange.parse(start, end)
        query = plan_change_query(self._opened(parsed), range_, columns, filter, typed=typed, settings=settings)
        return Scan(query, parsed.integer(THREADS))

    # Private

    def _write(
        self, data: Any, operation: WriteOperation, options: Mapping[str, object] | None, engine: Engine | None = None
    ) -> WriteResult:
        parsed = self._parse(verb_of(operation), options)
        chosen = engine or _engine_for(data, parsed)
        return self._beside_services(
            lambda settings: run_write(self._opened(parsed), chosen, data, settings), WriteSettings.of(parsed, operation)
        )

    def _beside_services(self, write: Callable[[WriteSettings], WriteResult], settings: WriteSettings) -> WriteResult:
        """Write; what a thread beside the writer does is left to it, and it is told of the commit."""
        beside = self._background
        if beside is None:
            return write(settings)
        beside.check()
        result = write(replace(settings, services=left_to_thread(settings.services, beside.names)))
        beside.wake()
        return result

    def _run_pass(
        self,
        services: Sequence[str] | None,
        plan: bool,
        engine: Engine,
        parsed: Options,
    ) -> tuple[UpkeepSettings, Callable[[Callable[[], bool]], Outcomes]]:
        """What one pass does, and a function that makes it."""
        self._writable(parsed)
        settings = UpkeepSettings.of(parsed, None if services is None else tuple(services), plan=plan)
        write = WriteSettings.of(parsed, WriteOperation.DELETE_PARTITION)
        quiet = replace(write, services=write.services.none())

        def run(go_on: Callable[[], bool]) -> Outcomes:
            context = self._writable(parsed)
            delete = partial(run_delete_partitions, context, settings=quiet, engine=engine)
            return run_pass(context, engine, settings, delete, go_on)

        return settings, run

    def _clustering_options(self, order_by: str | Sequence[str] | None, layout: str | None, parsed: Options) -> ClusteringOptions:
        columns = (order_by,) if isinstance(order_by, str) else None if order_by is None else tuple(order_by)
        return ClusteringOptions.of(parsed, columns, layout)

    def _service_engine(self, spark: SparkSession | None, parsed: Options) -> Engine:
        if spark is None:
            return LocalEngine(parsed.integer(THREADS))
        from pyhudi.engines.spark.engine import SparkEngine

        return SparkEngine(spark)

    def _parse(self, verb: Verb, options: Mapping[str, object] | None) -> Options:
        """The table's options with those of a call laid over them; refused where the verb does not go by them."""
        given = parse_options(options, stacklevel=5)
        check_given(verb, given)
        check_standing(verb, self._options)
        if not options:
            return self._options
        parsed = self._options.merged(dict(given.values), dict(given.extra))
        check_against_table(parsed, self._context.config)
        return parsed

    def _opened(self, parsed: Options) -> TableContext:
        """The table as it is now, with the lock that the options name."""
        context, wanted = self._context.reloaded(), LockSettings.of(parsed, self.name)
        if wanted == LockSettings.of(self._options, self.name):
            return context
        return replace(context, lock=open_lock(wanted, context.storage, context.env))

    def _writable(self, parsed: Options, *, keeps_indexes: bool = True) -> TableContext:
        """The table for a verb that changes it, as `_opened`.  Raises Unsupported when PyHudi must not write it."""
        context = self._opened(parsed)
        check_writable(context, keeps_indexes=keeps_indexes)
        return context

    def _snapshot(self) -> Snapshot:
        return load_snapshot(self._context.reloaded())

    def _find_write(self, request_time: str) -> Instant:
        timeline = self.timeline()
        for instant in (*timeline.completed_writes(), *timeline.pending_writes()):
            if instant.request_time == request_time:
                return instant
        raise InstantNotFound(f"the active timeline of {self.uri} has no write requested at {request_time}")


class Indexes:
    """The indexes of a table, as `Table.index` gives them.

    t.index.create("record_index")
    t.index.create("secondary_index", "city")
    t.index.create("column_stats", "ts", function="to_date", name="day")         # an expression index

    Writers may go on while an index is built.  Every method raises InvalidRequest for what the table has not or cannot have.
    """

    def __init__(
        self,
        context: TableContext,
        parse: Callable[[Verb, Mapping[str, object] | None], Options],
        opened: Callable[[Options], TableContext],
    ) -> None:
        """parse: the options of a call, as a verb takes them.  opened: the table as it is now, with the lock that those name."""
        self._context = context
        self._parse = parse
        self._opened = opened

    def create(
        self,
        kind: str,
        columns: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        function: str | None = None,
        function_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> IndexInfo:
        """Build an index; what it is then.  One whose building died is built anew.

        kind: `record_index`, `column_stats` (columns: with statistics; the table's first when left out), `partition_stats`,
        `bloom_filters`, `secondary_index` (one column).  function: makes `column_stats` or `bloom_filters` an expression index
        over one column, with function_options such as `format`.  name: of a secondary or expression index.
        """
        request = self._request(kind, columns, name, function, function_options)
        create_index(*self._call("create", options), request)
        return next(info for info in self.list() if info.name == request.partition)

    def schedule(
        self,
        kind: str,
        columns: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        function: str | None = None,
        function_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> str:
        """Plan an index, as `create` does, for `run` to build; the instant of the plan."""
        request = self._request(kind, columns, name, function, function_options)
        return schedule_index(*self._call("schedule", options), request)

    def run(self, instant: str, *, options: Mapping[str, object] | None = None) -> Instant:
        """Build a planned index, also one whose building died; the completed instant.

        Raises InstantNotFound, TableState when another process builds it.
        """
        return run_index(*self._call("run", options), instant)

    def abort(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Take back a planned index, or one whose building has not ended."""
        context, _, settings = self._call("abort", options)
        abort_index(context, settings, instant)

    def drop(self, name: str, *, options: Mapping[str, object] | None = None) -> None:
        """Remove one index, such as `record_index` or `secondary_index_by_city`."""
        parsed = self._parse(VERBS["index.drop"], options)
        drop_index(self._opened(parsed), name, CommitSettings.of(parsed).lock_wait_ms)

    def rebuild(self, name: str | None = None, *, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
        """Build an index anew from the table's files, or the whole metadata table; what was built.  Mends what is damaged."""
        return rebuild_index(*self._call("rebuild", options), name)

    def list(self) -> tuple[IndexInfo, ...]:
        """The indexes: ready, being built, planned."""
        return list_indexes(self._context.reloaded())

    def _call(self, method: str, options: Mapping[str, object] | None) -> tuple[TableContext, Engine, IndexSettings]:
        parsed = self._parse(VERBS[f"index.{method}"], options)
        return self._opened(parsed), LocalEngine(parsed.integer(THREADS)), IndexSettings.of(parsed)

    def _request(
        self,
        kind: str,
        columns: str | Sequence[str] | None,
        name: str | None,
        function: str | None,
        function_options: Mapping[str, str] | None,
    ) -> IndexRequest:
        named = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
        return index_request(kind, named, name=name, function=function, function_options=function_options)


class Scan:
    """A read that is described and planned, and not yet carried out."""

    def __init__(self, query: Query | ChangeQuery, threads: int = 0) -> None:
        self._query = query
        self._threads = threads

    def __repr__(self) -> str:
        return f"Scan({self._query.snapshot.context.storage.uri!r}, {len(self._query.tasks)} file slices)"

    @property
    def schema(self) -> pa.Schema:
        """The columns that the scan gives."""
        return self._query.schema

    def explain(self) -> ReadPlan:
        """Which file slices are read, and what passed the others over; prints as text."""
        return self._query.plan

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch, in no promised order; one file slice after the other, so memory holds one row group."""
        return _batches(self._query)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
        read: Callable[[Any], Iterator[pa.Table]] = self._query.reader
        engine = LocalEngine(self._threads)
        parts = engine.map(lambda task: list(read(task)), self._query.tasks)
        tables = [table for part in parts for table in part]
        if not self.schema.names:
            return rows_without_columns(sum(table.num_rows for table in tables))
        return pa.concat_tables([self.schema.empty_table(), *tables])

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars frame."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The rows as a Spark DataFrame; base files without logs go through Spark's own Parquet scan."""
        from pyhudi.engines.spark.read import query_dataframe

        return query_dataframe(spark, self._query)

    def count(self) -> int:
        """How many rows the scan gives."""
        return sum(batch.num_rows for batch in _batches(self._query.without_columns()))


def _batches(query: Query | ChangeQuery) -> Iterator[pa.RecordBatch]:
    read: Callable[[Any], Iterator[pa.Table]] = query.reader
    for task in query.tasks:
        for table in read(task):
            if table.num_columns:
                yield from table.to_batches()
            elif table.num_rows:
                yield pa.RecordBatch.from_arrays([pa.nulls(table.num_rows)], names=[""]).select([])


def _engine_for(data: Any, options: Options) -> Engine:
    """The engine that the kind of data calls for: Spark for its DataFrames, threads of this process for the rest."""
    if type(data).__module__.startswith("pyspark.sql."):
        from pyhudi.engines.spark.engine import SparkEngine

        return SparkEngine(data.sparkSession)
    return LocalEngine(options.integer(THREADS))


def _reader_on(spark: SparkSession) -> Callable[[Query], DataFrame]:
    from pyhudi.engines.spark.read import query_dataframe

    return lambda query: query_dataframe(spark, query)


def _keys(keys: Any) -> pa.Table | pa.StringArray:
    """Keys to look up, as record keys or as rows."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if isinstance(keys, (list, tuple, set, frozenset)) and all(isinstance(key, str) for key in keys):
        return pa.array([checked_text(key, "the key") for key in keys], pa.string())
    if isinstance(keys, pa.Array):
        if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type) or pa.types.is_string_view(keys.type)):
            raise InvalidRequest(f"record keys are texts, not {keys.type}; give rows with the key fields otherwise")
        return keys.cast(pa.string())
    try:
        return pa.table(keys)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InvalidRequest(
            f"keys of type {type(keys).__module__}.{type(keys).__name__} are neither record keys nor rows: {error}"
        ) from error


def _as_of(argument: str | None, options: Options) -> str | None:
    """The time of a snapshot, from the argument or from the option.  Raises InvalidRequest when they differ."""
    option = options.text(AS_OF)
    if argument is not None and option is not None and argument != option:
        raise InvalidRequest(f"as_of={argument} and option {AS_OF}={option} disagree")
    return option if argument is None else argument


def _with_mode(options: Mapping[str, object] | None, schema_mode: str | None) -> Mapping[str, object] | None:
    return options if schema_mode is None else {**(options or {}), SCHEMA_MODE.key: schema_mode}


def _joined(names: str | Sequence[str] | None) -> str | None:
    if names is None:
        return None
    return names if isinstance(names, str) else ",".join(names)
