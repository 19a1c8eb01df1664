"""Table services: `Table.services`.

    t.services.compact()                      # plan and run
    plan = t.services.schedule_clustering()   # plan, to be run here or elsewhere
    t.services.run()                          # one pass: what is pending, then what is due

Each is also a verb of `Table`, under the name that it has there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyhudi.api.table_handle import TableHandle
from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Action
from pyhudi.operations.catalog_sync.sync_settings import SyncSettings, with_names
from pyhudi.operations.catalog_sync.sync_table import SyncResult, run_sync
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.results import (
    ArchiveResult,
    CleanResult,
    CompactionResult,
    WriteResult,
)
from pyhudi.operations.services.archive import ArchiveSettings, run_archive
from pyhudi.operations.services.background_services import BackgroundServices, Printed, run_loop
from pyhudi.operations.services.clean import CleanSettings, preview_clean, run_clean
from pyhudi.operations.services.cluster import (
    ClusteringResult,
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
from pyhudi.operations.services.run_services import ServiceRunSettings, printed, run_services_once
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.scope import VERBS
from pyhudi.options.supported import Options
from pyhudi.table.feature_support import check_open
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession


class Services:
    """The table services of a table, as `Table.services` gives them."""

    def __init__(self, table: TableHandle) -> None:
        self._open = table

    def clean(
        self, *, dry_run: bool = True, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> CleanResult:
        """Delete file slices that no query within the retention (`hoodie.clean...` options) still needs.

        Args:
            dry_run: Only say what would be deleted; False deletes it, after carrying out cleans that died.
            spark: Delete on the cluster.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["clean"], options)
        settings = CleanSettings.of(parsed)
        if dry_run:
            context = self._open.load_context(parsed)
            check_open(context)
            return preview_clean(context, settings)
        context = self._open.writable(parsed)
        return run_clean(context, settings, engine=None if spark is None else self._open.engine(spark, parsed))

    def archive(self, *, options: Mapping[str, object] | None = None) -> ArchiveResult:
        """Move the oldest instants to the history when more than `hoodie.keep.max.commits` writes stand on the timeline."""
        parsed = self._open.parse(VERBS["archive"], options)
        return run_archive(self._open.writable(parsed), ArchiveSettings.of(parsed))

    def compact(
        self,
        instant: str | None = None,
        *,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Merge the log files of a merge-on-read table into base files: run what is planned, then plan and run a new compaction.

        What is compacted, and what first, is up to the `hoodie.compaction...` options; writers may go on meanwhile.

        Args:
            instant: Run only the plan of that instant.
            spark: Run the tasks on the cluster.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: There is no such plan.
            TableState: The table is copy on write, or another process carries the plan out.
        """
        parsed = self._open.parse(VERBS["compact"], options)
        settings = CompactSettings.of(parsed)
        return run_compaction(self._open.load_context(parsed), self._open.engine(spark, parsed), settings, instant)

    def schedule_compaction(
        self,
        *,
        if_due: bool = False,
        extra_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Plan a compaction and leave it on the timeline, to be run by `compact(instant)`, here or elsewhere.

        Args:
            if_due: Only when its trigger (`hoodie.compact.inline.trigger.strategy`) asks for it.
            extra_metadata: What the plan carries for who looks at it, as text.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["schedule_compaction"], options)
        settings = CompactSettings.of(parsed)
        return schedule_compaction(self._open.load_context(parsed), settings, if_due=if_due, extra_metadata=extra_metadata)

    def unschedule_compaction(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Drop the plan of a pending compaction or log compaction.  Raises InstantNotFound, TableState when it is under way."""
        parsed = self._open.parse(VERBS["unschedule_compaction"], options)
        unschedule(self._open.writable(parsed, retains_indexes=False), CompactSettings.of(parsed), instant)

    def log_compact(
        self,
        instant: str | None = None,
        *,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Merge the log files of each slice that has `hoodie.log.compaction.blocks.threshold` blocks into one log file.

        Cheaper than a compaction where base files are large; reading gets faster, base files stay.

        Args:
            instant: Run only the plan of that instant.
            spark: Run the tasks on the cluster.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: There is no such plan.
            TableState: The table is copy on write, or another process carries the plan out.
        """
        parsed = self._open.parse(VERBS["log_compact"], options)
        settings = CompactSettings.of(parsed)
        return run_log_compaction(self._open.load_context(parsed), self._open.engine(spark, parsed), settings, instant)

    def schedule_log_compaction(
        self, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> CompactionResult:
        """Plan a log compaction and leave it on the timeline, to be run by `log_compact(instant)`, here or elsewhere.

        Args:
            spark: Look at the logs on the cluster.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["schedule_log_compaction"], options)
        settings = CompactSettings.of(parsed)
        return schedule_log_compaction(self._open.load_context(parsed), self._open.engine(spark, parsed), settings)

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

        Args:
            instant: Run only the plan of that instant.
            order_by: Columns to sort by.
            layout: "linear" (default), "zorder" or "hilbert".
            spark: Run the tasks on the cluster.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["cluster"], options)
        settings = _clustering_options(order_by, layout, parsed)
        context, engine = self._open.load_context(parsed), self._open.engine(spark, parsed)
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
        parsed = self._open.parse(VERBS["schedule_clustering"], options)
        settings = _clustering_options(order_by, layout, parsed)
        return schedule_clustering(self._open.load_context(parsed), self._open.engine(spark, parsed), settings)

    def unschedule_clustering(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Drop a pending clustering, with what a dead executor left of it.

        Args:
            instant: The request time of its plan.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: There is no such plan.
            TableState: It is being carried out.
        """
        parsed = self._open.parse(VERBS["unschedule_clustering"], options)
        context = self._open.writable(parsed, retains_indexes=False)
        context.timeline.load().find(instant, Action.CLUSTERING)
        drop_clustering(context, CommitSettings.of(parsed), instant)

    def sync(
        self,
        *,
        metastore: str | None = None,
        database: str | None = None,
        table: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> SyncResult:
        """Register the table as it is now in a catalog, so that Spark, Trino, Presto, Hive or Athena find it by name.

        The catalog is a Hive metastore, or AWS Glue (`hoodie.datasource.hive_sync.mode=glue`).  A write whose options say
        `hoodie.datasource.hive_sync.enable` or `hoodie.datasource.meta.sync.enable` does so by itself after its commit.

        Args:
            metastore: Where the Hive metastore is, `thrift://host:port`.
            database: The catalog's database; that of the table's own settings, or `default`, when left out.
            table: The name in the catalog; the table's own when left out.
            options: `hoodie.*` options of this call.

        Raises:
            TableState: The table has no columns yet, the catalog refuses the change, or has another table of that name.
            StorageUnavailable: The catalog does not answer.
            InvalidRequest: The catalog does not take it, or what it needs is not installed.
        """
        named = with_names(options, metastore=metastore, database=database, table=table)
        parsed = self._open.parse(VERBS["sync"], named)
        return run_sync(self._open.load_context(parsed), SyncSettings.of(parsed))

    def expired_partitions(self, *, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
        """The partitions that `expire_partitions` would delete."""
        parsed = self._open.parse(VERBS["expired_partitions"], options)
        return find_expired_partitions(self._open.load_context(parsed), TtlSettings.of(parsed))

    def expire_partitions(self, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None) -> WriteResult:
        """Delete the partitions that nobody has written to for `hoodie.partition.ttl.strategy.days.retain` days."""
        parsed = self._open.parse(VERBS["run_ttl"], options)
        settings = WriteSettings.of(parsed, WriteOperation.DELETE_PARTITION)
        context, engine = self._open.writable(parsed), self._open.engine(spark, parsed)
        return run_ttl(context, TtlSettings.of(parsed), lambda paths: run_delete_partitions(context, paths, settings, engine))

    def run(
        self,
        services: Sequence[str] | None = None,
        *,
        plan: bool = True,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Mapping[str, str]:
        """One pass of table services: what is pending is carried out, then what is due.

        Args:
            services: Any of clean, metadata, archive, compact, log_compact, cluster, ttl.  None is all of them; clusterings and
                log compactions are then planned, and partitions expire, only where the options switch that on.
            plan: False makes no new plans of compactions and clusterings.
            spark: Run the tasks on the cluster.
            options: `hoodie.*` options of this call.

        Returns:
            Service -> what it did.
        """
        parsed = self._open.parse(VERBS["run_services"], options)
        _, run = self._run_pass(services, self._open.engine(spark, parsed), parsed, plan=plan)
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
        """Run services again and again until `stop` is set.

        When `stop` is set, the plan that is being carried out is completed, and no other begun.  As many processes may serve a
        table as wanted: they take different plans.

        Args:
            stop: Ends the loop.
            services: As of `run`.
            pause_seconds: The rest between two passes.
            plan: As of `run`.
            spark: Run the tasks on the cluster.
            options: `hoodie.*` options of this call.
            on_run: Called with the outcomes of each pass.
        """
        parsed = self._open.parse(VERBS["serve"], options)
        _, run = self._run_pass(services, self._open.engine(spark, parsed), parsed, plan=plan)

        def once() -> Printed:
            outcomes = run(lambda: not stop.is_set())
            if on_run is not None:
                on_run(outcomes)
            return outcomes

        run_loop(once, stop, pause_seconds)

    def background(
        self,
        services: Sequence[str] | None = None,
        *,
        pause_seconds: float = 10.0,
        plan: bool = True,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> BackgroundServices:
        """Services in a thread beside the writes of this object: `with table.background_services(): table.upsert(...)`.

        Writes of this object plan what the thread carries out and leave the rest to it; an error that ended the thread is raised
        by the next write.  The end of the block waits until all that is pending is done.

        Args:
            services: As of `run`.
            pause_seconds: The thread looks after each commit, and after each such rest.
            plan: As of `run`.
            spark: Run the tasks on the cluster.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["background_services"], options)
        if self._open.background is not None:
            raise InvalidRequest(f"services run beside the writes to {self._open.uri} already")
        settings, run = self._run_pass(services, self._open.engine(spark, parsed), parsed, plan=plan)

        def ended() -> None:
            self._open.background = None

        self._open.background = BackgroundServices(run, settings.names, pause_seconds, ended)
        return self._open.background.start()

    def _run_pass(
        self,
        services: Sequence[str] | None,
        engine: Engine,
        parsed: Options,
        *,
        plan: bool,
    ) -> tuple[ServiceRunSettings, Callable[[Callable[[], bool]], Printed]]:
        """What one pass does, and a function that makes it."""
        self._open.writable(parsed)
        settings = ServiceRunSettings.of(parsed, None if services is None else tuple(services), plan=plan)
        write = WriteSettings.of(parsed, WriteOperation.DELETE_PARTITION)
        quiet = replace(write, services=write.services.none())

        def run(go_on: Callable[[], bool]) -> Printed:
            context = self._open.writable(parsed)
            delete = partial(run_delete_partitions, context, settings=quiet, engine=engine)
            return printed(run_services_once(context, engine, settings, delete, go_on))

        return settings, run


def _clustering_options(order_by: str | Sequence[str] | None, layout: str | None, parsed: Options) -> ClusterSettings:
    columns = (order_by,) if isinstance(order_by, str) else None if order_by is None else tuple(order_by)
    return ClusterSettings.of(parsed, columns, layout)
