"""Table services: methods of `Table`.

    t.compact()                      # schedule and execute
    plan = t.schedule_clustering()   # schedule only, to be executed here or elsewhere
    t.run_services()                 # one pass: pending plans, then services that are due

Each method is also a method of `Table`, under the name given there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyhudi.api.argument_types import checked_class
from pyhudi.api.opened_table import OpenedTable
from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Action
from pyhudi.operations.catalog_sync.sync_settings import SyncSettings, with_names
from pyhudi.operations.catalog_sync.sync_table import SyncResult, run_sync
from pyhudi.operations.commit.commit_settings import CommitSettings, with_commit_metadata
from pyhudi.operations.commit.results import ArchiveResult, CleanResult, ClusteringResult, CompactionResult, WriteResult
from pyhudi.operations.services.archive import ArchiveSettings, run_archive
from pyhudi.operations.services.background_services import BackgroundServices, ServiceOutcomes, run_loop
from pyhudi.operations.services.clean import CleanSettings, preview_clean, run_clean
from pyhudi.operations.services.cluster import (
    ClusterSettings,
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
from pyhudi.operations.services.partition_ttl import TtlSettings, find_expired_partitions, run_ttl
from pyhudi.operations.services.run_services import ServiceRunSettings, format_outcomes, run_services_once
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.scope import TABLE_OPERATIONS
from pyhudi.planning.instant_arguments import CommittedInstant, request_time_text
from pyhudi.table.feature_support import check_open
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession


@checked_class
class TableServices(OpenedTable):
    """The table services of a table, which are methods of `Table`."""

    def clean(
        self, *, dry_run: bool = False, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> CleanResult:
        """Clean: delete file slices that no query within the retention (`hoodie.clean...` options) needs.

        Args:
            dry_run: Only report what would be deleted. Otherwise cleans of dead writers are completed first.
            spark: Session that deletes the files on the cluster.
            options: `hoodie.*` options of this call.

        Returns:
            The number of files and bytes, and the instant of the clean if one ran.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["clean"], options)
        settings = CleanSettings.of(parsed)
        if dry_run:
            context = self._open.load_context(parsed)
            check_open(context)
            return preview_clean(context, settings)
        context = self._open.writable(parsed)
        return run_clean(context, settings, engine=None if spark is None else self._open.engine(spark, parsed))

    def archive(self, *, options: Mapping[str, object] | None = None) -> ArchiveResult:
        """Archive: move the oldest instants to the archived timeline if the active one has more than
        `hoodie.keep.max.commits` writes.

        Args:
            options: `hoodie.*` options of this call.

        Returns:
            The archived instants.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["archive"], options)
        return run_archive(self._open.writable(parsed), ArchiveSettings.of(parsed))

    def compact(
        self,
        instant: str | CommittedInstant | None = None,
        *,
        spark: SparkSession | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Compact: merge the log files of a merge-on-read table into base files.

        Pending plans are executed first, then a new compaction is scheduled and executed. The `hoodie.compaction...`
        options decide which file slices are compacted, and in which order. Writers can continue concurrently.

        Args:
            instant: Execute only the plan of this instant: its request time, or the result of scheduling it.
            spark: Session that runs the tasks on the cluster.
            commit_metadata: Entries stored in the commit, and in a plan that it schedules.
            options: `hoodie.*` options of this call.

        Returns:
            The executed plans, and statistics of the files that they wrote.

        Raises:
            InstantNotFound: No such plan exists.
            TableState: The table is copy-on-write, or another process executes the plan.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["compact"], with_commit_metadata(options, commit_metadata))
        settings = CompactSettings.of(parsed)
        return run_compaction(self._open.load_context(parsed), self._open.engine(spark, parsed), settings, _plan_time(instant))

    def schedule_compaction(
        self,
        *,
        if_due: bool = False,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Schedule a compaction, to be executed by `compact(instant)`, here or elsewhere.

        Args:
            if_due: Schedule only if the trigger (`hoodie.compact.inline.trigger.strategy`) is met.
            commit_metadata: Entries stored in the plan.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the plan in `planned`; None if there is nothing to compact.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["schedule_compaction"], with_commit_metadata(options, commit_metadata))
        settings = CompactSettings.of(parsed)
        return schedule_compaction(self._open.load_context(parsed), settings, if_due=if_due)

    def unschedule_compaction(self, instant: str | CommittedInstant, *, options: Mapping[str, object] | None = None) -> None:
        """Remove the plan of a pending compaction or log compaction.

        Args:
            instant: Request time of the plan, or the result of scheduling it.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: No such plan exists.
            TableState: The plan is being executed.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["unschedule_compaction"], options)
        unschedule(self._open.writable(parsed, retains_indexes=False), CompactSettings.of(parsed), request_time_text(instant))

    def log_compact(
        self,
        instant: str | CommittedInstant | None = None,
        *,
        spark: SparkSession | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Log compaction: merge the log files of each slice with `hoodie.log.compaction.blocks.threshold` blocks into
        one log file.

        Cheaper than a compaction if base files are large: reads get faster, base files are not rewritten.

        Args:
            instant: Execute only the plan of this instant: its request time, or the result of scheduling it.
            spark: Session that runs the tasks on the cluster.
            commit_metadata: Entries stored in the commit, and in a plan that it schedules.
            options: `hoodie.*` options of this call.

        Returns:
            The executed plans, and statistics of the files that they wrote.

        Raises:
            InstantNotFound: No such plan exists.
            TableState: The table is copy-on-write, or another process executes the plan.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["log_compact"], with_commit_metadata(options, commit_metadata))
        settings = CompactSettings.of(parsed)
        return run_log_compaction(
            self._open.load_context(parsed), self._open.engine(spark, parsed), settings, _plan_time(instant)
        )

    def schedule_log_compaction(
        self,
        *,
        spark: SparkSession | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Schedule a log compaction, to be executed by `log_compact(instant)`, here or elsewhere.

        Args:
            spark: Session that scans the log files on the cluster.
            commit_metadata: Entries stored in the plan.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the plan in `planned`; None if there is nothing to compact.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["schedule_log_compaction"], with_commit_metadata(options, commit_metadata))
        settings = CompactSettings.of(parsed)
        return schedule_log_compaction(self._open.load_context(parsed), self._open.engine(spark, parsed), settings)

    def cluster(
        self,
        instant: str | CommittedInstant | None = None,
        *,
        order_by: str | Sequence[str] | None = None,
        layout: str | None = None,
        spark: SparkSession | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> ClusteringResult:
        """Cluster: rewrite file groups to improve sort order and file sizes. Schedules and executes, or executes the
        plan of `instant`.

        Args:
            instant: Execute only the plan of this instant: its request time, or the result of scheduling it.
            order_by: Columns to sort by.
            layout: "linear" (default), "zorder" or "hilbert".
            spark: Session that runs the tasks on the cluster.
            commit_metadata: Entries stored in the commit, and in a plan that it schedules.
            options: `hoodie.*` options of this call.

        Returns:
            The instant, and statistics; no instant if there was nothing to cluster.

        Raises:
            InstantNotFound: No such plan exists.
            TableState: Another process executes the plan.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["cluster"], with_commit_metadata(options, commit_metadata))
        settings = _clustering_options(order_by, layout, parsed)
        context, engine = self._open.load_context(parsed), self._open.engine(spark, parsed)
        if instant is None:
            return plan_and_run_clustering(context, engine, settings)
        return execute_clustering(context, engine, request_time_text(instant), settings)

    def schedule_clustering(
        self,
        *,
        order_by: str | Sequence[str] | None = None,
        layout: str | None = None,
        spark: SparkSession | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> ClusteringResult:
        """Schedule a clustering, to be executed by `cluster(instant)`, here or elsewhere.

        Args:
            order_by: As in `cluster`.
            layout: As in `cluster`.
            spark: As in `cluster`.
            commit_metadata: Entries stored in the plan.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the plan; None if there is nothing to cluster.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["schedule_clustering"], with_commit_metadata(options, commit_metadata))
        settings = _clustering_options(order_by, layout, parsed)
        return schedule_clustering(self._open.load_context(parsed), self._open.engine(spark, parsed), settings)

    def unschedule_clustering(self, instant: str | CommittedInstant, *, options: Mapping[str, object] | None = None) -> None:
        """Remove a pending clustering, with the files that a dead executor wrote.

        Args:
            instant: Request time of the plan, or the result of scheduling it.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: No such plan exists.
            TableState: The plan is being executed.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["unschedule_clustering"], options)
        context = self._open.writable(parsed, retains_indexes=False)
        request_time = request_time_text(instant)
        context.timeline.load().find(request_time, Action.CLUSTERING)
        drop_clustering(context, CommitSettings.of(parsed), request_time)

    def sync(
        self,
        *,
        metastore: str | None = None,
        database: str | None = None,
        table: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> SyncResult:
        """Catalog sync: register the table's latest state in a catalog, so that Spark, Trino, Presto, Hive or Athena
        find it by name.

        The catalog is a Hive metastore, or AWS Glue (`hoodie.datasource.hive_sync.mode=glue`). A write with
        `hoodie.datasource.hive_sync.enable` or `hoodie.datasource.meta.sync.enable` syncs after its commit.

        Args:
            metastore: URI of the Hive metastore, `thrift://host:port`.
            database: Database in the catalog; defaults to that of the table's configuration, or `default`.
            table: Name in the catalog; defaults to the table name.
            options: `hoodie.*` options of this call.

        Returns:
            What was changed in the catalog.

        Raises:
            TableState: The table has no columns yet, the catalog rejects the change, or has a different table of that
                name.
            StorageUnavailable: The catalog does not respond.
            InvalidRequest: The catalog cannot hold the table, or a required package is not installed.
        """
        named = with_names(options, metastore=metastore, database=database, table=table)
        parsed = self._open.parse(TABLE_OPERATIONS["sync"], named)
        return run_sync(self._open.load_context(parsed), SyncSettings.of(parsed))

    def expired_partitions(self, *, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
        """Return the partitions that `run_ttl` would delete.

        Args:
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["expired_partitions"], options)
        return find_expired_partitions(self._open.load_context(parsed), TtlSettings.of(parsed))

    def run_ttl(
        self,
        *,
        spark: SparkSession | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Partition TTL: delete partitions without writes for `hoodie.partition.ttl.strategy.days.retain` days.

        Args:
            spark: Session that runs the tasks on the cluster.
            commit_metadata: Entries stored in the commit.
            options: `hoodie.*` options of this call.

        Returns:
            The instant of the delete; no instant, and `reason`, if no partition was expired.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["run_ttl"], with_commit_metadata(options, commit_metadata))
        settings = WriteSettings.of(parsed, WriteOperation.DELETE_PARTITION)
        context, engine = self._open.writable(parsed), self._open.engine(spark, parsed)
        return run_ttl(context, TtlSettings.of(parsed), lambda paths: run_delete_partitions(context, paths, settings, engine))

    def run_services(
        self,
        services: Sequence[str] | None = None,
        *,
        plan: bool = True,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Mapping[str, str]:
        """Run one pass of table services: execute pending plans, then the services that are due.

        Args:
            services: Any of clean, metadata, archive, compact, log_compact, cluster, ttl. None runs all of them;
                clusterings and log compactions are then scheduled, and partitions expired, only if the options enable that.
            plan: False schedules no new compactions and clusterings.
            spark: Session that runs the tasks on the cluster.
            options: `hoodie.*` options of this call.

        Returns:
            Outcome by service name.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["run_services"], options)
        _, run = self._prepare_pass(services, self._open.engine(spark, parsed), parsed, plan=plan)
        return run(lambda: True)

    def serve(
        self,
        stop: threading.Event,
        services: Sequence[str] | None = None,
        *,
        pause_seconds: float = 30.0,
        plan: bool = True,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
        on_run: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        """Run passes of table services until `stop` is set.

        When `stop` is set, the plan being executed is completed and no other is started. Any number of processes can
        serve one table: each executes different plans.

        Args:
            stop: Event that ends the loop.
            services: As in `run_services`.
            pause_seconds: Pause between two passes.
            plan: As in `run_services`.
            spark: Session that runs the tasks on the cluster.
            options: `hoodie.*` options of this call.
            on_run: Called with the outcomes of each pass.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["serve"], options)
        _, run = self._prepare_pass(services, self._open.engine(spark, parsed), parsed, plan=plan)

        def once() -> ServiceOutcomes:
            outcomes = run(lambda: not stop.is_set())
            if on_run is not None:
                on_run(outcomes)
            return outcomes

        run_loop(once, stop, pause_seconds)

    def background_services(
        self,
        services: Sequence[str] | None = None,
        *,
        pause_seconds: float = 10.0,
        plan: bool = True,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> BackgroundServices:
        """Run table services in a background thread, alongside the writes of this object.

        Writes of this object schedule plans and leave their execution to the thread. An error that ended the thread is
        raised by the next write. The end of the block waits until all pending plans are executed.

        Args:
            services: As in `run_services`.
            pause_seconds: Maximum pause between passes; each commit also starts one.
            plan: As in `run_services`.
            spark: Session that runs the tasks on the cluster.
            options: `hoodie.*` options of this call.

        Returns:
            The services, as a context manager: the thread runs for the block.

        Example:
            >>> with table.background_services():
            ...     result = table.upsert(rows)
        """
        parsed = self._open.parse(TABLE_OPERATIONS["background_services"], options)
        if self._open.background is not None:
            raise InvalidRequest(f"background services of {self._open.uri} are running already; stop them first")
        settings, run = self._prepare_pass(services, self._open.engine(spark, parsed), parsed, plan=plan)

        def clear_background() -> None:
            self._open.background = None

        self._open.background = BackgroundServices(run, settings.names, pause_seconds, clear_background)
        return self._open.background.start()

    def _prepare_pass(
        self,
        services: Sequence[str] | None,
        engine: Engine,
        parsed: Options,
        *,
        plan: bool,
    ) -> tuple[ServiceRunSettings, Callable[[Callable[[], bool]], ServiceOutcomes]]:
        """Settings of a pass, and a function that runs one."""
        self._open.writable(parsed)
        settings = ServiceRunSettings.of(parsed, None if services is None else tuple(services), plan=plan)
        write = WriteSettings.of(parsed, WriteOperation.DELETE_PARTITION)
        without_services = replace(write, services=write.services.none())

        def run(should_continue: Callable[[], bool]) -> ServiceOutcomes:
            context = self._open.writable(parsed)
            delete = partial(run_delete_partitions, context, settings=without_services, engine=engine)
            return format_outcomes(run_services_once(context, engine, settings, delete, should_continue))

        return settings, run


def _plan_time(instant: str | CommittedInstant | None) -> str | None:
    return None if instant is None else request_time_text(instant)


def _clustering_options(order_by: str | Sequence[str] | None, layout: str | None, parsed: Options) -> ClusterSettings:
    columns = (order_by,) if isinstance(order_by, str) else None if order_by is None else tuple(order_by)
    return ClusterSettings.of(parsed, columns, layout)
