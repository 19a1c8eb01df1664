"""Table services that follow a commit by themselves: clean, archive, compaction, log compaction, clustering, partition TTL.

Each service is a row of `_SERVICES`: a name and a function that takes the table, the engine, the settings and a glance at the
timeline, and says what it did in a few words: `run: ...`, `planned: ...`, `not due: ...` or `off: ...`.  A service that is not
due costs nothing beyond what the write has loaded.

The commit stands whatever happens here.  By `hoodie.fail.writes.on.inline.table.service.exception` a failure is raised as
`ServiceFailed` (the default, as in real Hudi) or noted in the result as `failed: ...`; then the services after it still run.

Source: writing and services, "Commit: exact order", "Cleaning" and "Archival triggers".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from pyhudi.errors import InvalidRequest, ServiceFailed
from pyhudi.execute.engine import Engine
from pyhudi.format.instants import Action, Instant, State, format_instant_time
from pyhudi.operations.action.outcome import Runs
from pyhudi.operations.action.results import CompactionResult, WriteResult
from pyhudi.operations.metadata.services import MetadataServiceSettings, run_metadata_services
from pyhudi.operations.metadata.settings import MetadataSettings
from pyhudi.operations.services.archive import ArchiveSettings, run_archive
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.operations.services.cluster import INLINE as CLUSTER_INLINE
from pyhudi.operations.services.cluster import ClusteringOptions, ClusteringResult, due_now, run_clusterings, schedule_clustering
from pyhudi.operations.services.compact import CompactSettings, run_compaction, run_log_compaction, schedule_compaction
from pyhudi.operations.services.ttl import DeletePartitions, TtlSettings, run_ttl
from pyhudi.plan.archival import reason_not_to_archive
from pyhudi.plan.cleaning import reason_not_to_clean
from pyhudi.plan.compaction import Due, compaction_due
from pyhudi.settings import Option, Options, read_settings
from pyhudi.storage.locks import LOCK_WAIT
from pyhudi.table.context import TableContext
from pyhudi.timeline.timeline import Timeline

_LOG = logging.getLogger("pyhudi.operations.services.run")


SERVICES_SWITCH = Option("hoodie.table.services.enabled", bool, "true", "services follow writes at all")
CLEAN_SWITCH = Option("hoodie.clean.automatic", bool, "true", "a clean follows a write when it is due")
ARCHIVE_SWITCH = Option("hoodie.archive.automatic", bool, "true", "an archival follows a write when it is due")
COMPACT_INLINE = Option(
    "hoodie.compact.inline",
    bool,
    None,
    "a write to a merge-on-read table compacts it when that is due; unset: unless the options say who else does",
)
COMPACT_SCHEDULE = Option(
    "hoodie.compact.schedule.inline", bool, "false", "a write plans a compaction when it is due, and leaves it to others"
)
COMPACT_ASYNC = Option(
    "hoodie.datasource.compaction.async.enable", bool, None, "others compact: true plans for them, false leaves that to them too"
)
LOG_COMPACT_INLINE = Option(
    "hoodie.log.compaction.inline", bool, "false", "a write to a merge-on-read table makes a log compaction when that is due"
)
CLUSTER_SCHEDULE = Option(
    "hoodie.clustering.schedule.inline", bool, "false", "a write plans a clustering when it is due, and leaves it to others"
)
CLUSTER_ASYNC = Option(
    "hoodie.clustering.async.enabled",
    bool,
    "false",
    "others cluster: a write plans for them when a clustering is due",
    aliases=("hoodie.datasource.clustering.async.enable",),
)
TTL_INLINE = Option("hoodie.partition.ttl.inline", bool, "false", "a write deletes partitions that have expired")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Which services follow a write by themselves.

    clean, archive, metadata (those of the metadata table): None when switched off.

    compact: how compactions are made.  compact_inline, log_compact_inline: pending plans are carried out and new ones made and
    carried out; compact_schedule_inline: new ones are made, when none is pending, and left to another thread or process.
    clustering, cluster_inline, cluster_schedule: the same of clusterings.  ttl: None when switched off.
    raise_failures: a service that fails makes the write raise, after its commit.
    """

    clean: Annotated[CleanSettings | None, SERVICES_SWITCH, CLEAN_SWITCH]
    archive: Annotated[ArchiveSettings | None, SERVICES_SWITCH, ARCHIVE_SWITCH]
    metadata: Annotated[MetadataServiceSettings | None, SERVICES_SWITCH]
    compact: CompactSettings
    compact_inline: Annotated[bool, SERVICES_SWITCH, COMPACT_INLINE, COMPACT_SCHEDULE, COMPACT_ASYNC]
    compact_schedule_inline: Annotated[bool, SERVICES_SWITCH, COMPACT_INLINE, COMPACT_SCHEDULE, COMPACT_ASYNC]
    log_compact_inline: Annotated[bool, SERVICES_SWITCH, LOG_COMPACT_INLINE]
    clustering: ClusteringOptions
    cluster_inline: Annotated[bool, SERVICES_SWITCH, CLUSTER_INLINE]
    cluster_schedule: Annotated[bool, SERVICES_SWITCH, CLUSTER_SCHEDULE, CLUSTER_ASYNC]
    ttl: Annotated[TtlSettings | None, SERVICES_SWITCH, TTL_INLINE]
    raise_failures: Annotated[
        bool,
        Option(
            "hoodie.fail.writes.on.inline.table.service.exception",
            bool,
            "true",
            "a service that fails after a commit makes the write raise; false: the result says so",
        ),
    ]

    @classmethod
    def of(cls, options: Options) -> ServiceSettings:
        """From checked options.

        A write to a merge-on-read table compacts inline unless the options say who does it: so it is with real Hudi's writers of
        batches, and a table that nobody compacts gets slower with every write.
        """
        enabled = options.flag(SERVICES_SWITCH)
        inline, beside = options.given(COMPACT_INLINE), options.given(COMPACT_ASYNC)
        left_to_others = beside is not None
        scheduled = options.flag(COMPACT_SCHEDULE) or beside == "true"
        clusters = options.flag(CLUSTER_INLINE)
        cluster_scheduled = options.flag(CLUSTER_SCHEDULE) or options.flag(CLUSTER_ASYNC)
        if inline == "true" and options.flag(COMPACT_SCHEDULE):
            raise InvalidRequest(
                f"{COMPACT_INLINE} does not go with {COMPACT_SCHEDULE}: either the writer compacts, or it plans and leaves the "
                "work to others"
            )
        if clusters and cluster_scheduled:
            raise InvalidRequest(
                f"{CLUSTER_INLINE} does not go with {CLUSTER_SCHEDULE} or {CLUSTER_ASYNC}: either the writer clusters, or it "
                "plans and leaves the work to others"
            )
        archive = ArchiveSettings.of(options) if enabled and options.flag(ARCHIVE_SWITCH) else None
        metadata = MetadataServiceSettings(
            MetadataSettings.of(options), CleanSettings.of(options), archive, options.integer(LOCK_WAIT)
        )
        return read_settings(
            cls,
            options,
            clean=CleanSettings.of(options) if enabled and options.flag(CLEAN_SWITCH) else None,
            archive=archive,
            metadata=metadata if enabled else None,
            compact_inline=enabled and (not left_to_others and not scheduled if inline is None else inline == "true"),
            compact_schedule_inline=enabled and scheduled and inline != "true",
            log_compact_inline=enabled and options.flag(LOG_COMPACT_INLINE),
            cluster_inline=enabled and clusters,
            cluster_schedule=enabled and cluster_scheduled,
            ttl=TtlSettings.of(options) if enabled and options.flag(TTL_INLINE) else None,
        )

    def none(self) -> ServiceSettings:
        """The same, with everything switched off."""
        return replace(
            self,
            clean=None,
            archive=None,
            metadata=None,
            compact_inline=False,
            compact_schedule_inline=False,
            log_compact_inline=False,
            cluster_inline=False,
            cluster_schedule=False,
            ttl=None,
        )


def with_services(
    context: TableContext,
    engine: Engine | None,
    settings: ServiceSettings,
    result: WriteResult,
    before: Timeline,
    action: Action,
    delete_partitions: DeletePartitions,
) -> WriteResult:
    """The result of a write, after the services that are due; none is when the write committed nothing.

    engine: where tasks of services run; None leaves those with tasks to a later write.  before: the timeline on which the write
    was planned.  action: under which it completed.  delete_partitions: how partitions whose time is over are deleted.
    Raises ServiceFailed when the settings ask for it.
    """
    if result.instant is None:
        return result
    done = Instant(result.instant, action, State.COMPLETED, result.completion_time)
    glance = Timeline.of((*before.instants, done), before.archived_completions)
    outcomes = dict(run_services(context, engine, settings, glance, done))
    if settings.ttl is not None:
        chosen = settings.ttl
        outcomes["ttl"] = _outcome("ttl", context, settings, done, lambda: _expire(context, chosen, delete_partitions))
    return replace(result, services=outcomes)


def run_services(
    context: TableContext, engine: Engine | None, settings: ServiceSettings, glance: Timeline, done: Instant
) -> Mapping[str, str]:
    """Run what is due after a commit; service -> what it did.  glance: the timeline with the commit, possibly not the newest."""
    outcomes: dict[str, str] = {}
    for name, service in (*_SERVICES, *(() if context.config.is_cow else _LOG_SERVICES), ("cluster", _cluster)):
        outcomes[name] = _outcome(name, context, settings, done, partial(service, context, engine, settings, glance))
    return outcomes


def _outcome(name: str, context: TableContext, settings: ServiceSettings, done: Instant, service: Callable[[], str]) -> str:
    try:
        return service()
    except Exception as error:
        # Whatever failed, the caller has to learn that the commit stands.
        if settings.raise_failures:
            raise ServiceFailed(
                f"{done.action} {done.request_time} of {context.storage.uri} is committed and stands; "
                f"the {name} that followed it failed: {error}",
                instant=done.request_time,
                service=name,
            ) from error
        _LOG.warning("%s after %s of %s failed: %s", name, done.request_time, context.storage.uri, error)
        return f"failed: {error}"


def _clean(context: TableContext, engine: Engine | None, settings: ServiceSettings, glance: Timeline) -> str:
    chosen = settings.clean
    if chosen is None:
        return f"off: {CLEAN_SWITCH}=false"
    unfinished = bool(glance.pending(Action.CLEAN)) or (chosen.commit.failed_writes == "LAZY" and bool(glance.pending_writes()))
    reason = None if unfinished else reason_not_to_clean(glance, chosen.cleaning, None)
    if reason is not None:
        return f"not due: {reason}"
    result = run_clean(context, chosen)
    if result.instant is None and not result.finished:
        return f"not due: {result.reason}"
    return f"run: {result.file_count} files deleted" + (
        f", {len(result.finished)} earlier cleans finished" if result.finished else ""
    )


def _metadata(context: TableContext, engine: Engine | None, settings: ServiceSettings, glance: Timeline) -> str:
    if settings.metadata is None:
        return f"off: {SERVICES_SWITCH}=false"
    if not context.config.has_metadata_table:
        return "off: the table has no metadata table"
    return run_metadata_services(context, engine, settings.metadata)


def _archive(context: TableContext, engine: Engine | None, settings: ServiceSettings, glance: Timeline) -> str:
    chosen = settings.archive
    if chosen is None:
        return f"off: {ARCHIVE_SWITCH}=false"
    reason = reason_not_to_archive(glance, chosen.archival)
    if reason is not None:
        return f"not due: {reason}"
    result = run_archive(context, chosen)
    return f"run: {len(result.instants)} instants archived" if result.instants else f"not due: {result.reason}"


def _compact(context: TableContext, engine: Engine | None, settings: ServiceSettings, glance: Timeline) -> str:
    chosen = settings.compact
    if not settings.compact_inline and not settings.compact_schedule_inline:
        return f"off: {COMPACT_INLINE}=false"
    pending = glance.pending(Action.COMPACTION)
    due = _due(context, chosen, glance)
    if not settings.compact_inline:
        if pending:
            return f"not due: compaction {pending[0].request_time} is planned already"
        if not due.due:
            return f"not due: {due.reason}"
        result = schedule_compaction(context, chosen, if_due=True)
        return f"planned: {result.planned}" if result.planned else f"not due: {result.reason}"
    if not pending and not due.due:
        return f"not due: {due.reason}"
    if engine is None:
        return "due: left to the next write"
    return describe_compactions(run_compaction(context, engine, chosen, if_due=True))


def _log_compact(context: TableContext, engine: Engine | None, settings: ServiceSettings, glance: Timeline) -> str:
    if not settings.log_compact_inline:
        return f"off: {LOG_COMPACT_INLINE}=false"
    if engine is None:
        return "due: left to the next write"
    return describe_compactions(run_log_compaction(context, engine, settings.compact, if_due=True))


def _cluster(context: TableContext, engine: Engine | None, settings: ServiceSettings, glance: Timeline) -> str:
    chosen = settings.clustering
    if not settings.cluster_inline and not settings.cluster_schedule:
        return f"off: {CLUSTER_INLINE}=false"
    pending = glance.pending(Action.CLUSTERING)
    if not settings.cluster_inline and pending:
        return f"not due: clustering {pending[0].request_time} is planned already"
    due = due_now(context, glance, chosen)
    if not due.due and not (pending and settings.cluster_inline):
        return f"not due: {due.reason}"
    if engine is None:
        return "due: left to the next write"
    if settings.cluster_inline:
        return describe_clusterings(run_clusterings(context, engine, chosen))
    planned = schedule_clustering(context, engine, chosen, if_due=True).instant
    return f"planned: {planned}" if planned else "not due: nothing to cluster"


def describe_clusterings(runs: Runs[ClusteringResult]) -> str:
    """What clusterings came to."""
    return str(runs.outcome((run.instant or "" for run in runs.runs), sum(run.file_groups_read for run in runs.runs)))


def _expire(context: TableContext, settings: TtlSettings, delete_partitions: DeletePartitions) -> str:
    result = run_ttl(context, settings, delete_partitions)
    if result.instant is None:
        return "not due: no partition's time is over"
    return f"run: {result.instant}, {result.file_groups_replaced} file groups"


def _due(context: TableContext, settings: CompactSettings, glance: Timeline) -> Due:
    now = format_instant_time(context.env.now_ms(), context.config.zone)
    return compaction_due(glance, settings.compaction, now, context.config.zone)


def describe_compactions(result: CompactionResult) -> str:
    """A few words on what compactions came to."""
    left = [f"{instant} not run, {why}" for instant, why in result.left.items()]
    if result.runs:
        groups = sum(run.file_groups for run in result.runs)
        done = f"run: {', '.join(run.instant for run in result.runs)}, {groups} file groups"
        return "; ".join([done, *left])
    return "; ".join([f"not due: {result.reason}" if result.reason else "planned", *left])


def run_housekeeping(context: TableContext, settings: ServiceSettings, names: Iterable[str], glance: Timeline) -> dict[str, str]:
    """Those services that need no engine of their own (clean, metadata, archive), where named; service -> what it did."""
    chosen = frozenset(names)
    return {name: service(context, None, settings, glance) for name, service in _SERVICES if name in chosen}


Service = Callable[[TableContext, Engine | None, ServiceSettings, Timeline], str]

_SERVICES: tuple[tuple[str, Service], ...] = (("clean", _clean), ("metadata", _metadata), ("archive", _archive))
"""In the order in which they run; the others come after these, as in real Hudi: those of logs, clustering, and partition TTL,
whose deletion is a write."""

_LOG_SERVICES: tuple[tuple[str, Service], ...] = (("compact", _compact), ("log_compact", _log_compact))
"""Those of merge-on-read tables."""
