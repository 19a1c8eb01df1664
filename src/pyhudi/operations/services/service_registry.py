"""Registry of table services, one row each.

    name    name in results and for users
    part    what a trigger runs: nothing, scheduling, running pending plans, or both
    due     whether there is anything to do, by what is loaded already
    run     runs it, and returns the outcome

`run_services` iterates over `SERVICES` for writes, service runs, threads and processes; adding a service means adding its row.

Source: docs/formats/writing.md, "Completing a commit", "Cleaning" and "Deployment"; docs/formats/timeline.md, "Which
instants are archived".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pyhudi.format.instants import Action, format_instant_time
from pyhudi.metadata_table.writer.metadata_services import run_metadata_services
from pyhudi.operations.commit.results import CompactionResult
from pyhudi.operations.commit.service_result import Deferred, Disabled, Executed, NotDue, Outcome, Scheduled
from pyhudi.operations.services.archive import run_archive
from pyhudi.operations.services.clean import run_clean
from pyhudi.operations.services.cluster import is_clustering_due, run_clusterings, schedule_clustering
from pyhudi.operations.services.compact import run_compaction, run_log_compaction, schedule_compaction
from pyhudi.operations.services.partition_ttl import DeletePartitions, run_ttl
from pyhudi.operations.services.service_settings import ServiceSettings
from pyhudi.options.declaration import Option
from pyhudi.options.service_options import ARCHIVE_SWITCH, CLEAN_SWITCH, COMPACT_INLINE, LOG_COMPACT_INLINE, SERVICES_SWITCH
from pyhudi.options.service_options import CLUSTERING_INLINE as CLUSTER_INLINE
from pyhudi.planning.archival import reason_not_to_archive
from pyhudi.planning.cleaning import reason_not_to_clean
from pyhudi.planning.compaction import compaction_due
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine


class Trigger(StrEnum):
    """What triggers a service."""

    AFTER_WRITE = "after a write"
    IN_RUN = "in a run of all services"
    BY_NAME = "in a run of named services"


class Mode(StrEnum):
    """Which steps of a service run."""

    OFF = "nothing"
    PLAN = "what is due is scheduled, and run elsewhere"
    PENDING = "pending plans are run"
    RUN = "pending plans are run, and what is due"


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """Input of a service.

    Attributes:
        context: The table.
        engine: Runs its tasks; None if there is no engine.
        settings: Settings of the services.
        part: What to run of the service.
        timeline: A loaded timeline, possibly not the newest.
        delete_partitions: Deletes expired partitions.
        should_continue: Called before each plan; if it returns False, the remaining plans stay pending.
        metadata_timeline: Timeline of the metadata table right after the commit that the service follows; None if not
            loaded.
        inline: The service follows a write.
    """

    context: TableContext
    engine: Engine | None
    settings: ServiceSettings
    part: Mode
    timeline: Timeline
    delete_partitions: DeletePartitions
    should_continue: Callable[[], bool] = lambda: True
    metadata_timeline: Timeline | None = None
    inline: bool = False

    @property
    def workers(self) -> Engine:
        """The engine, for a service with tasks."""
        assert self.engine is not None, "a service with tasks has an engine"
        return self.engine


@dataclass(frozen=True, slots=True)
class Service:
    """One table service.

    Attributes:
        name: Name of the service.
        part: Returns what to run; None if the service does not appear at all.
        run: Runs it.
        is_due: Returns why it need not run, or None if it has to check.
        switch: Option that makes it follow writes, if any.
        parts_with_tasks: Modes that need an engine.
        of_logs: Applies to merge-on-read tables only.
        plans: Whether a writer may schedule plans that run elsewhere.
    """

    name: str
    part: Callable[[ServiceSettings, Trigger], Mode | None]
    run: Callable[[ServiceRun], Outcome]
    is_due: Callable[[ServiceRun], NotDue | None] = lambda service_run: None
    switch: Option | None = None
    parts_with_tasks: frozenset[Mode] = frozenset()
    of_logs: bool = False
    plans: bool = False

    @property
    def off(self) -> Disabled:
        """The outcome if it is disabled."""
        return Disabled(f"{self.switch}=false" if self.switch else "no option enables it")

    def outcome(self, service_run: ServiceRun) -> Outcome:
        """Run what is due of it."""
        not_due = self.is_due(service_run)
        if not_due is not None:
            return not_due
        if service_run.engine is None and service_run.part in self.parts_with_tasks:
            return Deferred("the next write")
        return self.run(service_run)


def _on(switched_on: bool) -> Mode:
    return Mode.RUN if switched_on else Mode.OFF


# Cleaning, metadata table, archival


def _clean_due(service_run: ServiceRun) -> NotDue | None:
    chosen, timeline = service_run.settings.clean, service_run.timeline
    assert chosen is not None, "it is enabled"
    commit = chosen.commit
    unfinished = bool(
        timeline.pending(Action.CLEAN)
        or (commit.failed_writes == "LAZY" and timeline.pending_writes())
        or (commit.clustering_expiry_ms is not None and timeline.pending(Action.CLUSTERING))
    )
    reason = None if unfinished else reason_not_to_clean(timeline, chosen.cleaning, None)
    return None if reason is None else NotDue(reason)


def _clean(service_run: ServiceRun) -> Outcome:
    assert service_run.settings.clean is not None, "it is enabled"
    published: list[Timeline | None] = []
    result = run_clean(service_run.context, service_run.settings.clean, on_metadata_commit=published.append)
    if result.instant is None and not result.finished:
        return NotDue(result.reason)
    earlier = f", {len(result.finished)} earlier cleans finished" if result.finished else ""
    return Executed(f"{result.file_count} files deleted{earlier}", metadata_timeline=published[-1] if published else None)


def _metadata(service_run: ServiceRun) -> Outcome:
    assert service_run.settings.metadata is not None, "it is enabled"
    if not service_run.context.config.has_metadata_table:
        return Disabled("the table has no metadata table")
    loaded = None if service_run.metadata_timeline is None else (service_run.metadata_timeline, service_run.timeline)
    return run_metadata_services(service_run.context, service_run.engine, service_run.settings.metadata, loaded)


def _archive_due(service_run: ServiceRun) -> NotDue | None:
    assert service_run.settings.archive is not None, "it is enabled"
    reason = reason_not_to_archive(service_run.timeline, service_run.settings.archive.archival)
    return None if reason is None else NotDue(reason)


def _archive(service_run: ServiceRun) -> Outcome:
    assert service_run.settings.archive is not None, "it is enabled"
    result = run_archive(service_run.context, service_run.settings.archive)
    return Executed(f"{len(result.instants)} instants archived") if result.instants else NotDue(result.reason)


# Compaction and log compaction


def _compact_part(settings: ServiceSettings, trigger: Trigger) -> Mode:
    if trigger is not Trigger.AFTER_WRITE or settings.compact_inline:
        return Mode.RUN
    return Mode.PLAN if settings.compact_schedule_inline else Mode.OFF


def _compact_due(service_run: ServiceRun) -> NotDue | None:
    pending = service_run.timeline.pending(Action.COMPACTION)
    if service_run.part is Mode.PENDING:
        return None
    if service_run.part is Mode.PLAN and pending:
        return NotDue(f"compaction {pending[0].request_time} is already planned")
    zone = service_run.context.config.zone
    now = format_instant_time(service_run.context.env.now_ms(), zone)
    due = compaction_due(service_run.timeline, service_run.settings.compact.compaction, now, zone)
    return None if pending or due.is_due else NotDue(due.reason)


def _compact(service_run: ServiceRun) -> Outcome:
    settings = service_run.settings.compact
    if service_run.part is Mode.PLAN:
        return _of_compactions(schedule_compaction(service_run.context, settings, if_due=True))
    schedule = service_run.part is Mode.RUN
    return _of_compactions(
        run_compaction(
            service_run.context,
            service_run.workers,
            settings,
            if_due=True,
            schedule=schedule,
            should_continue=service_run.should_continue,
            inline=service_run.inline,
        )
    )


def _log_compact_part(settings: ServiceSettings, trigger: Trigger) -> Mode:
    if trigger is Trigger.BY_NAME or settings.log_compact_inline:
        return Mode.RUN
    return Mode.OFF if trigger is Trigger.AFTER_WRITE else Mode.PENDING


def _log_compact(service_run: ServiceRun) -> Outcome:
    schedule = service_run.part is Mode.RUN
    return _of_compactions(
        run_log_compaction(
            service_run.context,
            service_run.workers,
            service_run.settings.compact,
            if_due=True,
            schedule=schedule,
            should_continue=service_run.should_continue,
            inline=service_run.inline,
        )
    )


def _of_compactions(result: CompactionResult) -> Outcome:
    if result.runs:
        groups = sum(run.file_groups for run in result.runs)
        return Executed(f"{', '.join(run.instant for run in result.runs)}, {groups} file groups", result.remaining)
    return Scheduled(result.planned, result.remaining) if result.planned else NotDue(result.reason, result.remaining)


# Clustering


def _cluster_part(settings: ServiceSettings, trigger: Trigger) -> Mode:
    if trigger is Trigger.BY_NAME or settings.cluster_inline:
        return Mode.RUN
    if trigger is Trigger.IN_RUN:
        return Mode.RUN if settings.cluster_schedule else Mode.PENDING
    return Mode.PLAN if settings.cluster_schedule else Mode.OFF


def _cluster_due(service_run: ServiceRun) -> NotDue | None:
    pending = service_run.timeline.pending(Action.CLUSTERING)
    if service_run.part is Mode.PENDING or (service_run.part is Mode.RUN and pending):
        return None
    if pending:
        return NotDue(f"clustering {pending[0].request_time} is already planned")
    due = is_clustering_due(service_run.context, service_run.timeline, service_run.settings.clustering)
    return None if due.is_due else NotDue(due.reason)


def _cluster(service_run: ServiceRun) -> Outcome:
    settings = service_run.settings.clustering
    if service_run.part is Mode.PLAN:
        planned = schedule_clustering(service_run.context, service_run.workers, settings, if_due=True)
        return Scheduled(planned.instant) if planned.instant else NotDue(planned.reason)
    schedule = service_run.part is Mode.RUN
    done = run_clusterings(
        service_run.context,
        service_run.workers,
        settings,
        schedule=schedule,
        should_continue=service_run.should_continue,
        inline=service_run.inline,
    )
    return done.outcome((run.instant or "" for run in done.runs), sum(run.file_groups_read for run in done.runs))


# Partition TTL


def _expire_part(settings: ServiceSettings, trigger: Trigger) -> Mode | None:
    return Mode.RUN if trigger is Trigger.BY_NAME or settings.ttl_inline else None


def _expire(service_run: ServiceRun) -> Outcome:
    result = run_ttl(service_run.context, service_run.settings.ttl, service_run.delete_partitions)
    if result.instant is None:
        return NotDue("no partition has expired")
    return Executed(f"{result.instant}, {result.file_groups_replaced} file groups")


_EXECUTING_MODES = frozenset({Mode.PENDING, Mode.RUN})

SERVICES: tuple[Service, ...] = (
    Service("clean", lambda settings, _: _on(settings.clean is not None), _clean, _clean_due, CLEAN_SWITCH),
    Service("metadata", lambda settings, _: _on(settings.metadata is not None), _metadata, switch=SERVICES_SWITCH),
    Service("archive", lambda settings, _: _on(settings.archive is not None), _archive, _archive_due, ARCHIVE_SWITCH),
    Service("compact", _compact_part, _compact, _compact_due, COMPACT_INLINE, _EXECUTING_MODES, of_logs=True, plans=True),
    Service(
        "log_compact",
        _log_compact_part,
        _log_compact,
        switch=LOG_COMPACT_INLINE,
        parts_with_tasks=_EXECUTING_MODES,
        of_logs=True,
    ),
    Service("cluster", _cluster_part, _cluster, _cluster_due, CLUSTER_INLINE, _EXECUTING_MODES | {Mode.PLAN}, plans=True),
    Service("ttl", _expire_part, _expire),
)
"""In execution order, which is that of Hudi; TTL deletion is a write, and comes last."""
