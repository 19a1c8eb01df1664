"""Compaction and log compaction: planned under the lock, carried out by one process at a time, completed like a write.

    schedule   lock: an instant time, the plan of `plan.compaction`, `<t>.compaction.requested`; unlock
    claim      lock: the plan is pending and nobody lives who carries it out; a heartbeat; `<t>.compaction.inflight`; unlock
    execute    a task for each file group, on the engine; every attempt has file names of its own
    complete   `<t>_<c>.commit`; the plan stays beside it

Writers go on all the while: what completes after `t` belongs to the slice that the compaction makes.  An attempt whose process
died is undone by its markers and the plan carried out anew.  A log compaction lives with less: it must not complete once a newer
compaction or clustering has taken one of its file groups, or an older write one of its slices, and an attempt that fails takes
the plan with it.

Source: writing and services, "Compaction"; timeline document, "Timeline files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated

import pyarrow as pa

from pyhudi.errors import TableState, WriteConflict
from pyhudi.execute.base_file import FileSettings
from pyhudi.execute.compact import CompactionSpec, CompactionTask, run_compact, run_log_compact, run_log_headers
from pyhudi.execute.engine import Engine
from pyhudi.execute.log_scan import InstantValidity, choose_blocks
from pyhudi.execute.read_slice import ReadSpec
from pyhudi.execute.write_base import WriteStatus
from pyhudi.format.actions.commit import Operation
from pyhudi.format.actions.compaction import CompactionPlan
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.log.framing import CorruptBlock, LogBlock
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import WriteToken
from pyhudi.operations.action.attempt import Phases, taken_back_on_error
from pyhudi.operations.action.claim import PlanTaken, claim, drop_plan, plan_and_claim
from pyhudi.operations.action.gate import check_writable
from pyhudi.operations.action.observe import observed
from pyhudi.operations.action.results import CompactionResult, CompactionRun
from pyhudi.operations.action.rollback import finish_pending_rollbacks, rollback_failed_attempt
from pyhudi.operations.action.settings import DELETE_FIELD, DELETE_MARKER, CommitSettings, delete_marker
from pyhudi.operations.action.transaction import Transaction, commit_metadata, new_instant_time, touched_groups
from pyhudi.operations.metadata.mirror import CommitMirror, indexing_of
from pyhudi.operations.metadata.settings import MetadataSettings
from pyhudi.plan.compaction import (
    CompactionSettings,
    FileGroupId,
    compactable_slices,
    compaction_due,
    kept_partitions,
    last_compaction,
    log_compaction_due,
    partitions_to_plan,
    plan_compaction,
    plan_log_compaction,
    planned_groups,
)
from pyhudi.records.merge import DeleteMarker
from pyhudi.records.mergers import marked_rule, merge_rule
from pyhudi.settings import Options, read_settings
from pyhudi.storage.base import join_path
from pyhudi.table.context import TableContext
from pyhudi.table.plans import load_compaction_plan
from pyhudi.table.slices import FileSlice
from pyhudi.table.snapshot import Snapshot, load_snapshot, read_commit
from pyhudi.table.written import load_written_sizes
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline


@dataclass(frozen=True, slots=True)
class CompactSettings:
    """Compaction and log compaction, parsed.  marker: what makes rows of log files deletes beside `_hoodie_is_deleted`."""

    compaction: CompactionSettings
    files: FileSettings
    commit: CommitSettings
    metadata: MetadataSettings
    marker: Annotated[DeleteMarker | None, DELETE_FIELD, DELETE_MARKER] = None

    @classmethod
    def of(cls, options: Options) -> CompactSettings:
        """From checked options."""
        return read_settings(cls, options, marker=delete_marker(options, beside_flag=True))


@dataclass(frozen=True, slots=True)
class Planned:
    """What scheduling came to.

    instant: None when there was nothing to plan, and `reason` says why.  own: of a plan that this process has claimed with it.
    """

    instant: str | None
    reason: str
    own: Transaction | None = None


def _always() -> bool:
    return True


@observed("compact")
def run_compaction(
    context: TableContext,
    engine: Engine,
    settings: CompactSettings,
    instant: str | None = None,
    *,
    if_due: bool = False,
    schedule: bool = True,
    go_on: Callable[[], bool] = _always,
) -> CompactionResult:
    """Carry out the compaction planned at `instant`; without one, all that are pending, and then a new one.

    if_due: plan the new one only when its trigger asks for it.  schedule: False makes no new one.  go_on: asked before each
    plan; False leaves the rest as it is.
    Raises InstantNotFound when no compaction is pending at `instant`, TableState when another process carries it out or the table
    forbids compactions.
    """
    return _run_all(context, engine, settings, _COMPACTION, instant, if_due, schedule, go_on)


@observed("log_compact")
def run_log_compaction(
    context: TableContext,
    engine: Engine,
    settings: CompactSettings,
    instant: str | None = None,
    *,
    if_due: bool = False,
    schedule: bool = True,
    go_on: Callable[[], bool] = _always,
) -> CompactionResult:
    """As `run_compaction`, for log compactions: the log files of a slice become one."""
    return _run_all(context, engine, settings, _LOG_COMPACTION, instant, if_due, schedule, go_on)


def schedule_compaction(context: TableContext, settings: CompactSettings, *, if_due: bool = False) -> CompactionResult:
    """Plan a compaction and leave it to be carried out.  if_due: only when its trigger asks for it."""
    _check_table(context, settings)
    finish_pending_rollbacks(context, settings.commit, context.timeline.load())
    planned = _schedule(context, settings, if_due)
    return CompactionResult(_COMPACTION.name, planned=planned.instant, reason=planned.reason)


def schedule_log_compaction(
    context: TableContext, engine: Engine, settings: CompactSettings, *, if_due: bool = False
) -> CompactionResult:
    """Plan a log compaction and leave it to be carried out.  if_due: only when enough delta commits completed."""
    _check_table(context, settings)
    finish_pending_rollbacks(context, settings.commit, context.timeline.load())
    planned = _schedule_log(context, engine, settings, if_due)
    return CompactionResult(_LOG_COMPACTION.name, planned=planned.instant, reason=planned.reason)


def unschedule(context: TableContext, settings: CompactSettings, instant: str) -> None:
    """Drop the plan of a pending compaction or log compaction; what a dead attempt left is removed first.

    The log files stay what they are, and join the slices that they belonged to.
    Raises InstantNotFound when no such plan is pending, TableState when a process carries it out.
    """
    action = context.timeline.load().find(instant, Action.COMPACTION, Action.LOGCOMPACTION).action
    drop_plan(context, settings.commit, instant, action)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What compaction and log compaction differ in."""

    name: str
    operation: Operation
    action: Action
    task: Callable[[CompactionSpec, CompactionTask], WriteStatus | None]


_COMPACTION = _Kind("compact", Operation.COMPACT, Action.COMPACTION, run_compact)
_LOG_COMPACTION = _Kind("log_compact", Operation.LOG_COMPACT, Action.LOGCOMPACTION, run_log_compact)


def _run_all(
    context: TableContext,
    engine: Engine,
    settings: CompactSettings,
    kind: _Kind,
    instant: str | None,
    if_due: bool,
    schedule: bool,
    go_on: Callable[[], bool],
) -> CompactionResult:
    _check_table(context, settings)
    phases = Phases(context.env)
    timeline = context.timeline.load()
    if finish_pending_rollbacks(context, settings.commit, timeline):
        timeline = context.timeline.load()
    runs: list[CompactionRun] = []
    if instant is not None:
        timeline.find(instant, kind.action)
        run = _execute(context, engine, settings, kind, instant)
        if isinstance(run, str):
            raise TableState(f"{kind.action} {instant} of {context.storage.uri} is not run: {run}")
        phases.end("run")
        return CompactionResult(kind.name, runs=(run,), seconds=phases.seconds)
    left: dict[str, str] = {}

    def attempt(request_time: str, own: Transaction | None = None) -> None:
        try:
            outcome = _execute(context, engine, settings, kind, request_time, own)
        except WriteConflict as error:
            # What overtook the plan stands; nothing is wrong with the table, and the next plan takes up what is left.
            outcome = str(error)
        if isinstance(outcome, str):
            left[request_time] = outcome
        else:
            runs.append(outcome)

    for pending in timeline.pending(kind.action):
        if go_on():
            attempt(pending.request_time)
    phases.end("pending plans")
    if not schedule or not go_on():
        return CompactionResult(kind.name, None, "no plan is made", tuple(runs), left, phases.seconds)
    if kind is _COMPACTION:
        planned = _schedule(context, settings, if_due, claims=True)
    else:
        planned = _schedule_log(context, engine, settings, if_due)
    phases.end("plan")
    if planned.instant is not None:
        attempt(planned.instant, planned.own)
        phases.end("run")
    return CompactionResult(kind.name, planned.instant, planned.reason, tuple(runs), left, phases.seconds)


# Planning


def _schedule(context: TableContext, settings: CompactSettings, if_due: bool, *, claims: bool = False) -> Planned:
    chosen = settings.compaction
    with context.locked(settings.commit.lock_wait_ms) as held:
        snapshot = load_snapshot(held)
        timeline = snapshot.timeline
        _refuse_while_restoring(context, timeline)
        time = new_instant_time(context, timeline, settings.commit)
        if if_due:
            due = compaction_due(timeline, chosen, time, context.config.zone)
            if not due.due:
                return Planned(None, due.reason)
        partitions, dropped = kept_partitions(_candidate_partitions(context, snapshot, chosen), chosen, time)
        excluded = snapshot.pending_clusterings.union(snapshot.slicing.pending_compactions)
        slices, passed_over = _find_slices(snapshot, partitions, time, excluded)
        plan = plan_compaction(slices, chosen, time, {*passed_over, *dropped})
        if plan is None:
            return Planned(None, "no file slice with log files to compact")
        content = plan.encode(context.env.token_bytes(16))
        if claims:
            return Planned(time, "", plan_and_claim(context, held, time, Action.COMPACTION, content, settings.commit))
        held.timeline.request(time, Action.COMPACTION, content)
    return Planned(time, "")


def _schedule_log(context: TableContext, engine: Engine, settings: CompactSettings, if_due: bool) -> Planned:
    chosen = settings.compaction
    if not merge_rule(context.config.merge).picks:
        return Planned(None, f"merge mode {context.config.merge.mode} needs the base file's rows")
    # Headers are read before the lock is taken; under it only those of log files that came since.
    headers: dict[str, tuple[LogBlock | CorruptBlock, ...]] = {}
    early = load_snapshot(context)
    if if_due:
        due = log_compaction_due(early.timeline, chosen, _last_log_compaction(context, early.timeline))
        if not due.due:
            return Planned(None, due.reason)
    partitions = _candidate_partitions(context, early, chosen)
    slices, _ = _find_slices(early, partitions, _AFTER_ALL, _held_groups(context, early))
    _read_headers(early, engine, slices, headers)
    with context.locked(settings.commit.lock_wait_ms) as held:
        snapshot = load_snapshot(held)
        timeline = snapshot.timeline
        _refuse_while_restoring(context, timeline)
        writing = timeline.pending_writes()
        if writing:
            # It would carry an older time than the merged block and yet be newer than what that holds.
            return Planned(None, f"{writing[0].action} {writing[0].request_time} is under way")
        time = new_instant_time(context, timeline, settings.commit)
        slices, passed_over = _find_slices(
            snapshot, _candidate_partitions(context, snapshot, chosen), time, _held_groups(context, snapshot)
        )
        _read_headers(snapshot, engine, slices, headers)
        validity = InstantValidity.of(timeline)
        plan = plan_log_compaction(((s, _block_count(s, headers, validity)) for s in slices), chosen, passed_over)
        if plan is None:
            return Planned(None, f"no file slice with {chosen.log_block_threshold} log blocks to merge")
        held.timeline.request(time, Action.LOGCOMPACTION, plan.encode(context.env.token_bytes(16)))
    return Planned(time, "")


_AFTER_ALL = "9" * 17
"""Later than every instant time."""


def _candidate_partitions(context: TableContext, snapshot: Snapshot, settings: CompactionSettings) -> tuple[str, ...]:
    """The partitions that may hold something to compact: those that changed since the last plan was made, or all."""
    existing = snapshot.listing.partitions()
    last = last_compaction(snapshot.timeline)
    if not settings.incremental or last is None:
        return existing
    requested = Instant(last.request_time, Action.COMPACTION, State.REQUESTED)
    if context.storage.stat(context.timeline.path(requested)) is None:
        return existing
    missing = load_compaction_plan(context.timeline, requested).missing_schedule_partitions
    since = [i for i in snapshot.timeline.completed_writes() if (i.completion_time or "") >= last.request_time]
    written = (tuple(read_commit(context.timeline, i).partition_to_write_stats) for i in since)
    found = partitions_to_plan(written, missing, existing)
    return existing if found is None else found


def _find_slices(
    snapshot: Snapshot, partitions: Iterable[str], time: str, excluded: frozenset[FileGroupId]
) -> tuple[list[FileSlice], set[str]]:
    slices: list[FileSlice] = []
    passed_over: set[str] = set()
    for partition, groups in snapshot.groups(partitions).items():
        found, more = compactable_slices(groups, snapshot.slicing, time, excluded)
        slices.extend(found)
        if more:
            passed_over.add(partition)
    return slices, passed_over


def _held_groups(context: TableContext, snapshot: Snapshot) -> frozenset[FileGroupId]:
    """The groups that a log compaction must leave alone."""
    held = set(snapshot.pending_clusterings.union(snapshot.slicing.pending_compactions))
    for pending in snapshot.timeline.pending(Action.LOGCOMPACTION):
        held |= planned_groups(load_compaction_plan(context.timeline, pending))
    return frozenset(held)


def _read_headers(
    snapshot: Snapshot,
    engine: Engine,
    slices: Iterable[FileSlice],
    headers: dict[str, tuple[LogBlock | CorruptBlock, ...]],
) -> None:
    unread = [log for slice_ in slices for log in slice_.logs if log.path not in headers]
    task = partial(run_log_headers, snapshot.context.storage.spec(), InstantValidity.of(snapshot.timeline))
    for found in engine.map(task, unread):
        headers[found.path] = found.blocks


def _block_count(slice_: FileSlice, headers: dict[str, tuple[LogBlock | CorruptBlock, ...]], validity: InstantValidity) -> int:
    """The blocks that count and that no log compaction merged; all that one log compaction wrote are one."""
    blocks, _, _ = choose_blocks(((log.path, headers[log.path]) for log in slice_.logs), validity)
    merged = {found.block.instant_time for found in blocks if found.block.compacted_block_times}
    return len(merged) + sum(1 for found in blocks if not found.block.compacted_block_times)


def _last_log_compaction(context: TableContext, timeline: Timeline) -> str:
    """Request time of the newest completed log compaction, '' without one; its plan stands beside the delta commit."""
    for instant in reversed(timeline.completed(Action.DELTACOMMIT)):
        requested = Instant(instant.request_time, Action.LOGCOMPACTION, State.REQUESTED)
        if context.storage.stat(context.timeline.path(requested)) is not None:
            return instant.request_time
        if instant.request_time < (last_compaction(timeline) or instant).request_time:
            break
    return ""


# Carrying out


def _execute(
    context: TableContext,
    engine: Engine,
    settings: CompactSettings,
    kind: _Kind,
    request_time: str,
    own: Transaction | None = None,
) -> CompactionRun | str:
    """Carry out one plan; a text says why that is somebody else's business, or nobody's.  own: of a plan that is claimed."""
    if own is None and _undo_dead_attempt(context, settings, kind, request_time) and kind is _LOG_COMPACTION:
        return "its last attempt died, so it was dropped"
    try:
        transaction = own or claim(context, request_time, kind.action, settings.commit)
    except PlanTaken as taken:
        return taken.reason
    phases = Phases(context.env)
    with taken_back_on_error(transaction):
        plan = load_compaction_plan(context.timeline, Instant(request_time, kind.action, State.REQUESTED))
        snapshot = load_snapshot(context)
        spec = _task_spec(snapshot, settings, request_time)
        found = engine.map(partial(kind.task, spec), _tasks(context, plan, snapshot.timeline))
        statuses = [status for status in found if status is not None]
        assert snapshot.schema is not None, "a table with log files has a schema"
        metadata = commit_metadata(kind.operation, statuses, snapshot.schema.avro, {}, compacted=True)
        verify = partial(_check_still_newest, context, plan, request_time) if kind is _LOG_COMPACTION else None
        mirror = CommitMirror(engine, spec.indexing, snapshot.schema.arrow, statuses)
        mirror = mirror.prepare(context, snapshot, request_time, kind.operation)
        done = transaction.commit(metadata, None, mirror=mirror, verify=verify)
    phases.end("run")
    return _run_result(done, plan, statuses, phases)


def _undo_dead_attempt(context: TableContext, settings: CompactSettings, kind: _Kind, request_time: str) -> bool:
    """Undo what a dead process left of a plan.  True when there was something."""
    inflight = [
        i for i in context.timeline.load().pending(kind.action) if i.request_time == request_time and i.state is State.INFLIGHT
    ]
    if not inflight:
        return False
    return rollback_failed_attempt(context, request_time, kind.action, settings.commit) is not None


def _task_spec(snapshot: Snapshot, settings: CompactSettings, request_time: str) -> CompactionSpec:
    context, config = snapshot.context, snapshot.config
    if snapshot.schema is None:
        raise TableState(f"the table at {context.storage.uri} has no schema, so its logs cannot be read")
    stored = with_meta_fields(snapshot.schema.arrow)
    reader = ReadSpec(
        storage=context.storage.spec(),
        table_schema=stored,
        output=stored,
        condition=None,
        keys=config.keys,
        rule=marked_rule(merge_rule(config.merge), settings.marker, stored),
        validity=InstantValidity.of(snapshot.timeline, request_time),
        populate_meta_fields=config.populate_meta_fields,
        use_positions=settings.files.use_positions,
    )
    schema = snapshot.schema.arrow
    indexing = indexing_of(context, settings.metadata, schema, schema, keys=False)
    return CompactionSpec(
        request_time, config.name, reader, arrow_to_avro(stored, config.name), settings.files, indexing, context.env.now_ms
    )


def _tasks(context: TableContext, plan: CompactionPlan, timeline: Timeline) -> list[CompactionTask]:
    # Names of one attempt never meet those of another: a late hand that clears away a dead attempt touches nothing of a new one.
    attempt = int.from_bytes(context.env.token_bytes(4), "big") >> 1
    logs = [
        [join_path(operation.partition_path or "", _name(path)) for path in operation.delta_file_paths or ()]
        for operation in plan.operations or ()
    ]
    written = load_written_sizes(context.timeline, timeline, chain.from_iterable(logs))
    return [
        CompactionTask(
            partition=operation.partition_path or "",
            file_id=operation.file_id or "",
            base_name=_name(operation.data_file_path) if operation.data_file_path else None,
            log_names=tuple(_name(path) for path in operation.delta_file_paths or ()),
            token=WriteToken(number, attempt, 0),
            written={path: written[path] for path in logs[number] if path in written},
        )
        for number, operation in enumerate(plan.operations or ())
    ]


def _name(path: str) -> str:
    """The file name in a plan; plans of version 1 hold whole paths."""
    return path.rsplit("/", 1)[-1]


def _check_still_newest(context: TableContext, plan: CompactionPlan, request_time: str, now: Timeline) -> None:
    """Raises WriteConflict when a log compaction would stand before or after what it must not.

    A newer compaction, clustering or replacement took a group's old slice, so the merged block would come on top of what is
    newer; a write with an older time that was not planned for would be taken for older than what it followed.
    """
    groups = planned_groups(plan)
    for instant in now.instants:
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
            shared = groups.intersection(touched_groups(context, instant))
        else:
            continue
        if shared:
            raise WriteConflict(
                f"log compaction {request_time} of {context.storage.uri} is overtaken by {instant.action} "
                f"{instant.request_time}; "
                "it is dropped, and the next one will find what is left to merge",
                instants=(instant.request_time,),
            )


def _run_result(done: Instant, plan: CompactionPlan, statuses: list[WriteStatus], phases: Phases) -> CompactionRun:
    stats = [status.stat for status in statuses]
    return CompactionRun(
        instant=done.request_time,
        completion_time=done.completion_time or "",
        file_groups=len(plan.operations or ()),
        log_files=sum(len(operation.delta_file_paths or ()) for operation in plan.operations or ()),
        files_written=len(stats),
        rows_written=sum(stat.num_writes for stat in stats),
        rows_updated=sum(stat.num_update_writes for stat in stats),
        rows_deleted=sum(stat.num_deletes for stat in stats),
        bytes_read=sum(stat.total_log_size_compacted for stat in stats),
        bytes_written=sum(stat.total_write_bytes for stat in stats),
        seconds=sum(phases.seconds.values()),
    )


def _check_table(context: TableContext, settings: CompactSettings) -> None:
    check_writable(context)
    if context.config.is_cow:
        raise TableState(f"the table at {context.storage.uri} is copy on write: it has no log files to compact")
    if settings.marker is not None:
        schema = load_snapshot(context).schema
        settings.marker.check(pa.schema([]) if schema is None else schema.arrow)


def _refuse_while_restoring(context: TableContext, timeline: Timeline) -> None:
    restoring = timeline.pending(Action.RESTORE)
    if restoring:
        raise TableState(
            f"restore {restoring[0].request_time} of {context.storage.uri} did not finish; run it again before compacting"
        )
