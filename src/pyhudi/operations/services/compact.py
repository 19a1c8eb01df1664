"""Compaction and log compaction: scheduled under the lock, run by one process at a time, and committed like a write.

    schedule   lock: take an instant time; write the plan of `planning.compaction` to `<t>.compaction.requested`; unlock
    claim      lock: check that the plan is pending and has no live owner; start a heartbeat; write
               `<t>.compaction.inflight`; unlock
    execute    one task for each file group, on the engine; every attempt writes files with names of its own
    complete   `<t>_<c>.commit`; the plan stays on the timeline

These steps are those of `scheduled_action`. Writers continue throughout: what completes after `t` belongs to the file
slice that the compaction creates. If the process dies, its attempt is rolled back from its markers, and the plan runs
again.

Source: docs/formats/writing.md, "Compaction"; docs/formats/timeline.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Annotated, ClassVar

import pyarrow as pa

from pyhudi.errors import TableState, WriteConflict
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.actions.compaction_plan import CompactionPlan
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.log.framing import CorruptBlock, LogBlock
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import WriteToken
from pyhudi.format.paths import file_name, join_path
from pyhudi.metadata_table.writer.metadata_commit import indexing_requirements
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings, delete_marker_setting
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.plan_ownership import drop_plan
from pyhudi.operations.commit.results import CompactionResult, CompactionRun
from pyhudi.operations.commit.scheduled_action import Rewrite, RewriteAction, run_all, run_planned, schedule
from pyhudi.operations.commit.service_result import NotDue, RunSummary, Scheduled
from pyhudi.operations.commit.touched_file_groups import touched_file_groups
from pyhudi.operations.services.candidate_partitions import changed_partitions
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.write_options import DELETE_FIELD, DELETE_MARKER
from pyhudi.planning.compaction import (
    CompactionRules,
    FileGroupId,
    compactable_slices,
    compaction_due,
    last_compaction,
    log_compaction_due,
    plan_compaction,
    plan_log_compaction,
    planned_groups,
    select_partitions,
    without_groups,
)
from pyhudi.records.mergers import marked_rule, merge_rule
from pyhudi.records.record_merge import DeleteMarker
from pyhudi.table.bootstrap_sources import load_sources
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.log_file_sizes import load_written_sizes
from pyhudi.table.pending_plans import load_compaction_plan
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS, Timeline
from pyhudi.tasks.base_file_writer import FileSettings
from pyhudi.tasks.compaction_tasks import CompactionSpec, CompactionTask, run_compact
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.log_compaction_tasks import run_log_compact, run_log_headers
from pyhudi.tasks.log_scan import InstantValidity, choose_blocks
from pyhudi.tasks.read_slice import ReadSpec
from pyhudi.tasks.write_tasks import WriteStatus


@dataclass(frozen=True, slots=True)
class CompactSettings:
    """Settings of compaction and log compaction.

    Attributes:
        compaction: How plans are made.
        files: How files are written.
        commit: Commit settings.
        metadata: Metadata table settings.
        marker: Marks log records as deletes, in addition to `_hoodie_is_deleted`.
    """

    compaction: CompactionRules
    files: FileSettings
    commit: CommitSettings
    metadata: MetadataSettings
    marker: Annotated[DeleteMarker | None, DELETE_FIELD, DELETE_MARKER] = None

    @classmethod
    def of(cls, options: Options) -> CompactSettings:
        """Build the settings from checked options."""
        return read_settings(cls, options, marker=delete_marker_setting(options, combines_with_flag=True))


@observed("compact")
def run_compaction(
    context: TableContext,
    engine: Engine,
    settings: CompactSettings,
    instant: str | None = None,
    *,
    if_due: bool = False,
    schedule: bool = True,
    should_continue: Callable[[], bool] = lambda: True,
    inline: bool = False,
) -> CompactionResult:
    """Run the compaction planned at ``instant``; without one, run all pending compactions, then schedule and run a new one.

    Args:
        settings: Settings of the compaction.
        instant: A pending compaction.
        if_due: Schedule the new one only if its trigger fires.
        schedule: False schedules no new one.
        should_continue: Called before each plan; if it returns False, the remaining plans stay pending.
        inline: It follows a write, see `ScheduledAction`.

    Raises:
        InstantNotFound: No compaction is pending at ``instant``.
        TableState: Another process is running it, or the table does not allow compactions.
    """
    action = Compaction(context, engine, settings, inline=inline)
    if instant is not None:
        return _single_plan("compact", run_planned(action, instant))
    return _result("compact", run_all(action, if_due=if_due, schedule=schedule, should_continue=should_continue))


@observed("log_compact")
def run_log_compaction(
    context: TableContext,
    engine: Engine,
    settings: CompactSettings,
    instant: str | None = None,
    *,
    if_due: bool = False,
    schedule: bool = True,
    should_continue: Callable[[], bool] = lambda: True,
    inline: bool = False,
) -> CompactionResult:
    """Like `run_compaction`, for log compactions: the log files of a file slice are merged into one."""
    action = LogCompaction(context, engine, settings, inline=inline)
    if instant is not None:
        return _single_plan("log_compact", run_planned(action, instant))
    return _result("log_compact", run_all(action, if_due=if_due, schedule=schedule, should_continue=should_continue))


def schedule_compaction(context: TableContext, settings: CompactSettings, *, if_due: bool = False) -> CompactionResult:
    """Schedule a compaction without running it; `if_due`: only if its trigger fires."""
    return _planned("compact", schedule(Compaction(context, None, settings), if_due=if_due))


def schedule_log_compaction(
    context: TableContext, engine: Engine, settings: CompactSettings, *, if_due: bool = False
) -> CompactionResult:
    """Schedule a log compaction without running it. ``if_due``: only if enough delta commits completed."""
    return _planned("log_compact", schedule(LogCompaction(context, engine, settings), if_due=if_due))


def unschedule(context: TableContext, settings: CompactSettings, instant: str) -> None:
    """Drop the plan of a pending compaction or log compaction, after removing the files of a dead attempt.

    The log files are unchanged, and belong to their previous file slices again.

    Raises:
        InstantNotFound: No such plan is pending.
        TableState: A process is running it.
    """
    action = context.timeline.load().find(instant, Action.COMPACTION, Action.LOGCOMPACTION).action
    drop_plan(context, settings.commit, instant, action)


@dataclass(frozen=True, slots=True)
class _MergeLogsAction(RewriteAction[CompactionRun, CompactionPlan]):
    """Base of compaction and log compaction: the plan lists log files of file slices, and a task merges those of one slice."""

    settings: CompactSettings

    description = "compacting"
    task: ClassVar[Callable[[CompactionSpec, CompactionTask], WriteStatus | None]]

    @property
    def commit(self) -> CommitSettings:
        return self.settings.commit

    def check(self) -> None:
        check_writable(self.context)
        if self.context.config.is_cow:
            raise TableState(f"the table at {self.context.storage.uri} is copy-on-write: it has no log files to compact")
        if self.settings.marker is not None:
            schema = load_snapshot(self.context).schema
            self.settings.marker.check(pa.schema([]) if schema is None else schema.arrow)

    def load(self, snapshot: Snapshot, request_time: str) -> Rewrite[CompactionPlan]:
        plan = load_compaction_plan(self.context.timeline, Instant(request_time, self.action, State.REQUESTED))
        # File groups that were replaced since need no compaction; a clean may have deleted their files.
        plan = without_groups(plan, snapshot.slicing.replaced)
        spec = _task_spec(snapshot, self.settings, request_time)
        tasks = _tasks(self.context, plan, snapshot.timeline)
        return Rewrite(plan, partial(type(self).task, spec), tasks, spec.indexing, verify=self.verify(plan, request_time))

    def verify(self, plan: CompactionPlan, request_time: str) -> Callable[[Timeline], None] | None:
        """Return the check of the timeline under the lock, or None if the plan itself protects its file groups."""
        return None

    def result(
        self,
        rewrite: Rewrite[CompactionPlan],
        completed_instant: Instant,
        statuses: Sequence[WriteStatus],
        seconds: Mapping[str, float],
    ) -> CompactionRun:
        stats, operations = [status.stat for status in statuses], rewrite.plan.operations or ()
        return CompactionRun(
            instant=completed_instant.request_time,
            completion_time=completed_instant.completion_time or "",
            file_groups=len(operations),
            log_files=sum(len(operation.delta_file_paths or ()) for operation in operations),
            files_written=len(stats),
            rows_written=sum(stat.num_writes for stat in stats),
            rows_updated=sum(stat.num_update_writes for stat in stats),
            rows_deleted=sum(stat.num_deletes for stat in stats),
            bytes_read=sum(stat.total_log_size_compacted for stat in stats),
            bytes_written=sum(stat.total_write_bytes for stat in stats),
            seconds=sum(seconds.values()),
        )


@dataclass(frozen=True, slots=True)
class Compaction(_MergeLogsAction):
    """Merges file slices with log files into base files."""

    action = Action.COMPACTION
    operation = Operation.COMPACT
    task = run_compact

    def plan(self, snapshot: Snapshot, time: str, *, if_due: bool) -> bytes | NotDue:
        chosen, context = self.settings.compaction, snapshot.context
        if if_due:
            due = compaction_due(snapshot.timeline, chosen, time, context.config.zone)
            if not due.is_due:
                return NotDue(due.reason)
        partitions, dropped = select_partitions(_candidate_partitions(context, snapshot, chosen), chosen, time)
        excluded = snapshot.pending_clusterings.union(snapshot.slicing.pending_compactions)
        slices, passed_over = _find_slices(snapshot, partitions, time, excluded)
        plan = plan_compaction(slices, chosen, time, {*passed_over, *dropped})
        if plan is None:
            return NotDue("no file slice with log files to compact")
        return replace(plan, extra_metadata=dict(self.commit.extra_metadata)).encode(context.env.token_bytes(16))


@dataclass(frozen=True, slots=True)
class LogCompaction(_MergeLogsAction):
    """Merges the log files of a file slice into one.

    It must not complete after a newer compaction or clustering has taken one of its file groups, or after an older
    write to one of its slices. A failed attempt removes the plan. ``headers`` are those of log files, read before the
    lock is taken.
    """

    headers: dict[str, tuple[LogBlock | CorruptBlock, ...]] = field(default_factory=dict)

    action = Action.LOGCOMPACTION
    operation = Operation.LOG_COMPACT
    task = run_log_compact

    def prepare(self, *, if_due: bool) -> NotDue | None:
        context, chosen = self.context, self.settings.compaction
        early = load_snapshot(context)
        if if_due:
            due = log_compaction_due(early.timeline, chosen, _last_log_compaction(context, early.timeline))
            if not due.is_due:
                return NotDue(due.reason)
        self._read_headers(early, self._slices(early, _AFTER_ALL_INSTANTS)[0])
        return None

    def plan(self, snapshot: Snapshot, time: str, *, if_due: bool) -> bytes | NotDue:
        chosen, timeline = self.settings.compaction, snapshot.timeline
        writing = timeline.pending_writes()
        if writing:
            # Its commit would have an older instant time than the merged block, but newer records.
            return NotDue(f"{writing[0].action} {writing[0].request_time} is pending")
        slices, passed_over = self._slices(snapshot, time)
        self._read_headers(snapshot, slices)
        validity = InstantValidity.of(timeline)
        decides = merge_rule(self.context.config.merge).custom_merge
        counted = ((s, _block_count(s, self.headers, validity, only_marked=decides)) for s in slices)
        plan = plan_log_compaction(counted, chosen, passed_over)
        if plan is None:
            return NotDue(f"no file slice with {chosen.log_block_threshold} log blocks to merge")
        return replace(plan, extra_metadata=dict(self.commit.extra_metadata)).encode(self.context.env.token_bytes(16))

    def verify(self, plan: CompactionPlan, request_time: str) -> Callable[[Timeline], None] | None:
        return partial(_check_still_newest, self.context, plan, request_time)

    def _slices(self, snapshot: Snapshot, time: str) -> tuple[list[FileSlice], set[str]]:
        partitions = _candidate_partitions(self.context, snapshot, self.settings.compaction)
        return _find_slices(snapshot, partitions, time, _excluded_groups(self.context, snapshot))

    def _read_headers(self, snapshot: Snapshot, slices: Iterable[FileSlice]) -> None:
        """Read headers that are not cached: under the lock, only those of log files written since."""
        unread = [log for slice_ in slices for log in slice_.logs if log.path not in self.headers]
        task = partial(run_log_headers, self.context.storage.spec(), InstantValidity.of(snapshot.timeline))
        for headers in self.workers.map(task, unread):
            self.headers[headers.path] = headers.blocks


def _single_plan(operation: str, run: CompactionRun) -> CompactionResult:
    return CompactionResult(operation, runs=(run,), seconds={"run": run.seconds})


def _result(operation: str, runs: RunSummary[CompactionRun]) -> CompactionResult:
    return CompactionResult(operation, runs.planned, runs.reason, runs.runs, runs.remaining, runs.seconds)


def _planned(operation: str, planned: Scheduled | NotDue) -> CompactionResult:
    if isinstance(planned, NotDue):
        return CompactionResult(operation, reason=planned.reason)
    return CompactionResult(operation, planned=planned.instant)


# Planning


_AFTER_ALL_INSTANTS = "9" * 17
"""Later than every instant time."""


def _candidate_partitions(context: TableContext, snapshot: Snapshot, settings: CompactionRules) -> tuple[str, ...]:
    """Return the partitions that may need compaction: those that changed since the last plan was made, or all."""
    existing = snapshot.listing.partitions()
    last = last_compaction(snapshot.timeline)
    if not settings.incremental or last is None:
        return existing
    requested = Instant(last.request_time, Action.COMPACTION, State.REQUESTED)
    if context.storage.stat(context.timeline.path(requested)) is None:
        return existing
    return changed_partitions(snapshot, last, load_compaction_plan(context.timeline, requested).missing_schedule_partitions)


def _find_slices(
    snapshot: Snapshot, partitions: Iterable[str], time: str, excluded: frozenset[FileGroupId]
) -> tuple[list[FileSlice], set[str]]:
    slices: list[FileSlice] = []
    passed_over: set[str] = set()
    for partition, groups in snapshot.groups(partitions).items():
        compactable, more = compactable_slices(groups, snapshot.slicing, time, excluded)
        slices.extend(compactable)
        if more:
            passed_over.add(partition)
    return slices, passed_over


def _excluded_groups(context: TableContext, snapshot: Snapshot) -> frozenset[FileGroupId]:
    """Return the file groups that a log compaction must not touch."""
    excluded = set(snapshot.pending_clusterings.union(snapshot.slicing.pending_compactions))
    for pending in snapshot.timeline.pending(Action.LOGCOMPACTION):
        excluded |= planned_groups(load_compaction_plan(context.timeline, pending))
    return frozenset(excluded)


def _block_count(
    slice_: FileSlice,
    headers: dict[str, tuple[LogBlock | CorruptBlock, ...]],
    validity: InstantValidity,
    *,
    only_marked: bool,
) -> int:
    """Count the valid blocks that no log compaction merged; all blocks of one log compaction count as one."""
    files = ((log.path, headers[log.path]) for log in slice_.logs)
    blocks, _, _ = choose_blocks(files, validity, only_marked=only_marked)
    merged = {located.block.instant_time for located in blocks if located.block.compacted_block_times}
    return len(merged) + sum(1 for located in blocks if not located.block.compacted_block_times)


def _last_log_compaction(context: TableContext, timeline: Timeline) -> str:
    """Return the request time of the newest completed log compaction, or ''; its plan remains next to the delta commit."""
    for instant in reversed(timeline.completed(Action.DELTACOMMIT)):
        requested = Instant(instant.request_time, Action.LOGCOMPACTION, State.REQUESTED)
        if context.storage.stat(context.timeline.path(requested)) is not None:
            return instant.request_time
        if instant.request_time < (last_compaction(timeline) or instant).request_time:
            break
    return ""


# Execution


def _task_spec(snapshot: Snapshot, settings: CompactSettings, request_time: str) -> CompactionSpec:
    context, config = snapshot.context, snapshot.config
    if snapshot.schema is None:
        raise TableState(f"the table at {context.storage.uri} has no schema, so its log files cannot be read")
    stored = with_meta_fields(snapshot.schema.arrow)
    reader = ReadSpec.of(
        context.storage.spec(),
        config,
        stored,
        InstantValidity.of(snapshot.timeline, request_time),
        rule=marked_rule(merge_rule(config.merge, snapshot.defaults), settings.marker, stored),
        ids=snapshot.ids,
        use_positions=settings.files.use_positions,
    )
    schema = snapshot.schema.arrow
    indexing = indexing_requirements(context, settings.metadata, schema, schema, keys=False)
    return CompactionSpec(
        instant_time=request_time,
        table_name=config.name,
        reader=reader,
        avro_schema=snapshot.schema.stored_avro(config.name),
        files=settings.files,
        indexing=indexing,
        now_ms=context.env.now_ms,
        extension=config.base_extension(settings.files.base_format),
    )


def _tasks(context: TableContext, plan: CompactionPlan, timeline: Timeline) -> list[CompactionTask]:
    # File names differ between attempts, so a late cleanup of a dead attempt never deletes files of a new one.
    attempt = int.from_bytes(context.env.token_bytes(4), "big") >> 1
    logs = [
        [join_path(operation.partition_path or "", _name(path)) for path in operation.delta_file_paths or ()]
        for operation in plan.operations or ()
    ]
    written = load_written_sizes(context.timeline, timeline, chain.from_iterable(logs))
    partitions = [operation.partition_path or "" for operation in plan.operations or ()]
    names = [_name(operation.data_file_path or "") for operation in plan.operations or ()]
    bases = [join_path(*pair) for pair in zip(partitions, names, strict=True)]
    sources = load_sources(context, zip(partitions, bases, strict=True))
    return [
        CompactionTask(
            partition=operation.partition_path or "",
            file_id=operation.file_id or "",
            base_name=_name(operation.data_file_path) if operation.data_file_path else None,
            log_names=tuple(_name(path) for path in operation.delta_file_paths or ()),
            token=WriteToken(number, attempt, 0),
            written={path: written[path] for path in logs[number] if path in written},
            source=sources.get(bases[number]),
        )
        for number, operation in enumerate(plan.operations or ())
    ]


def _name(path: str) -> str:
    """Return the file name of a plan entry; plans of version 1 contain full paths."""
    return file_name(path)


def _check_still_newest(context: TableContext, plan: CompactionPlan, request_time: str, current_timeline: Timeline) -> None:
    """Raise WriteConflict if the merged block would get a wrong position in the order of changes."""
    # A newer compaction, clustering or replacement has closed the old file slice, so the merged block would override newer
    # records. A write with an older time that was not planned for would be ordered before the records that it followed.
    groups = planned_groups(plan)
    for instant in current_timeline.instants:
        if instant.request_time == request_time:
            continue
        services = (Action.COMPACTION, Action.CLUSTERING)
        older_write = (
            instant.request_time < request_time
            and instant.action in WRITE_ACTIONS
            and (instant.state is not State.COMPLETED or (instant.completion_time or "") > request_time)
        )
        newer_service = instant.request_time > request_time and (
            instant.action in services
            or (instant.state is State.COMPLETED and instant.action in (Action.COMMIT, Action.REPLACECOMMIT))
        )
        if older_write and instant.state is not State.COMPLETED:
            shared: Iterable[FileGroupId] = groups
        elif older_write or newer_service:
            shared = groups.intersection(touched_file_groups(context, instant))
        else:
            continue
        if shared:
            raise WriteConflict(
                f"log compaction {request_time} of {context.storage.uri} was superseded by {instant.action} "
                f"{instant.request_time}; it is dropped, and the next one merges what remains",
                instants=(instant.request_time,),
            )
