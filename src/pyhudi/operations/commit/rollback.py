"""Rollback: remove the effects of an instant, and record the rollback on the timeline.

    1. lock: plan the files of the instant, from its markers if it never completed, else from a listing; write
       `<R>.rollback.requested`
    2. write `<R>.rollback.inflight`; remove the completed file of a completed instant, so that readers ignore its
       files; unlock
    3. delete the files
    4. lock: remove the instant's pending files, publish `<R>_<C>.rollback`; then remove its markers

A writer that rolls back its own write deletes the files first and does the rest under one lock (`rollback_own_write`).
If the metadata table does not have the write, nothing is left to record, and its instant is removed without a rollback.

An unfinished rollback is detected by its pending instant and completed from its plan, by several processes of PyHudi at
once if necessary: each step is idempotent. One of Hudi is left to its process (see `action_liveness`). A write cannot
complete while a rollback of it is pending (see `transaction`). Log files are deleted like base files (table version 8).

Source: docs/formats/writing.md, "Rollback".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyhudi.errors import CorruptData, InstantNotFound, InvalidRequest, TableState, Unsupported
from pyhudi.features.consistent_hashing.hashing_store import remove_hashing_metadata
from pyhudi.format.actions.rollback_metadata import (
    InstantInfo,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
)
from pyhudi.format.instants import METADATA_BOOTSTRAP_INSTANT_TIME, Action, Instant, State
from pyhudi.format.names import parse_data_file_instant
from pyhudi.format.paths import (
    parent_folder,
)
from pyhudi.metadata_table.writer.metadata_commit import apply_rollback_to_metadata, remove_uncommitted_from_metadata
from pyhudi.operations.commit.action_liveness import is_action_dead
from pyhudi.operations.commit.begin_checks import check_same_version
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.hbase_hooks import sync_rollback
from pyhudi.operations.commit.instant_times import new_instant_time
from pyhudi.operations.commit.orphan_cleanup import remove_leftovers, sweep_unfinished_documents
from pyhudi.operations.commit.results import OperationResult
from pyhudi.operations.commit.rollback_checks import check_can_roll_back, file_id_from_name
from pyhudi.planning.instant_arguments import completion_time_hint
from pyhudi.storage import liveness
from pyhudi.storage.markers import Markers
from pyhudi.table.bootstrap_sources import remove_bootstrap_index
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.partition_buckets import remove_counts
from pyhudi.table.pending_plans import load_clustering_plan, planned_path
from pyhudi.table.snapshot import double_written_logs, load_rollback_targets
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_SLOWEST_FILE_MS = 24 * 3600 * 1000
"""Maximum time a task may take to write one data file. The writer's heartbeat continues during that time, but HDFS does
not update the modification time of the file.
"""


@dataclass(frozen=True, slots=True)
class RollbackResult(OperationResult):
    """The outcome of a rollback.

    Attributes:
        instant: Request time of the rollback; '' for a write of this process that left nothing but its instant.
        rolled_back: Request time of the instant that was rolled back.
        deleted: Deleted files, as paths relative to the table.
    """

    instant: str
    rolled_back: str
    deleted: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"rollback {self.instant}",
                f"  undone        {self.rolled_back}",
                f"  files         {len(self.deleted):,} deleted",
            ]
        )


def rollback_failed_writes(
    context: TableContext, settings: CommitSettings, timeline: Timeline | None = None
) -> tuple[RollbackResult, ...]:
    """Complete unfinished rollbacks, then roll back the writes of dead writers, newest first.

    A pending write counts as failed if its heartbeat has expired, or if it has no heartbeat (Hudi under the EAGER
    policy). Pending compactions and clusterings are not rolled back: their plans run later.

    Args:
        timeline: A freshly loaded timeline, for callers that continue with it if nothing was rolled back.

    Returns:
        The rollbacks that were executed.
    """
    timeline = timeline or context.timeline.load()
    done = list(finish_pending_rollbacks(context, settings, timeline))
    if settings.failed_writes == "NEVER" or timeline.pending(Action.RESTORE):
        # An unfinished restore owns the instants that it is removing, and their markers.
        return tuple(done)
    rolled = {result.rolled_back for result in done}
    dead = [i for i in timeline.pending_writes() if i.request_time not in rolled and is_action_dead(context, i, settings)]
    if dead:
        # A writer removes its heartbeat when its write is complete or rolled back. The missing heartbeat of an instant
        # that is not pending proves nothing.
        pending = {i.step for i in context.timeline.load().pending_writes()}
        for instant in reversed([i for i in dead if i.step in pending]):
            planned = _request(context, instant, settings, failed_only=True)
            if planned is not None:
                done.append(_execute(context, settings, *planned))
    if remove_leftovers(context, settings) or done:
        sweep_unfinished_documents(context, settings)
    return tuple(done)


def finish_pending_rollbacks(context: TableContext, settings: CommitSettings, timeline: Timeline) -> tuple[RollbackResult, ...]:
    """Complete the rollbacks of dead processes.

    A live writer completes the rollback of its own write; otherwise every writer that begins would queue for the lock
    to do it too. A process of Hudi completes the rollback that it has begun.
    """
    targets = load_rollback_targets(context.timeline, timeline)
    busy = {
        r.request_time
        for target, r in targets.items()
        if liveness.is_alive(context.storage, context.env, target, settings.heartbeats)
    }
    pending = (
        instant
        for instant in timeline.pending(Action.ROLLBACK)
        if instant.request_time not in busy and is_action_dead(context, instant, settings)
    )
    finished = (_finish_pending_rollback(context, settings, instant) for instant in pending)
    return tuple(result for result in finished if result is not None)


def find_rollback_target(context: TableContext, timeline: Timeline, request_time: str) -> Instant:
    """Return the write of a request time, or the pending clustering whose plan is empty: a failed planner left it.

    Raises:
        InstantNotFound: The timeline has neither.
    """
    for instant in (*timeline.completed_writes(), *timeline.pending_writes(), *timeline.pending(Action.CLUSTERING)):
        if instant.request_time == request_time and (instant.action.is_write or _is_empty_plan(context, instant)):
            return instant
    raise InstantNotFound(
        f"the active timeline of {context.storage.uri} has no write requested at {request_time}"
        f"{completion_time_hint(timeline, request_time)}"
    )


def _is_empty_plan(context: TableContext, instant: Instant) -> bool:
    """Whether the instant is a clustering whose requested file holds no plan: no process can run it."""
    return (
        instant.action is Action.CLUSTERING
        and instant.state is State.REQUESTED
        and load_clustering_plan(context.timeline, instant) is None
    )


@observed("rollback")
def rollback_instant(context: TableContext, instant: Instant, settings: CommitSettings) -> RollbackResult:
    """Roll back one write or service, pending or completed.

    Raises:
        TableState: The instant is savepointed, later writes build on it, its writer is alive, or the table's version
            changed since it was opened.
        InstantNotFound: The instant does not exist.
        Unsupported: The table version is older than 8.
    """
    planned = _request(context, instant, settings, failed_only=False)
    assert planned is not None, "only a rollback of failed writes finds nothing to do"
    return _execute(context, settings, *planned)


def plan_rollback_of_unseen(
    locked_context: TableContext, instant: Instant, settings: CommitSettings
) -> tuple[Instant, RollbackPlan]:
    """Begin the rollback of a completed commit that no other writer has seen: return its instant and plan.

    Other writers may have committed since. `execute_planned_rollback` continues, without the lock.

    Raises:
        TableState: A pending plan, a savepoint or a clean depends on the commit.
    """
    planned = _request_under_lock(locked_context, instant, settings, failed_only=False, unseen=True)
    assert planned is not None, "only a rollback of failed writes finds nothing to do"
    return planned


@observed("rollback")
def execute_planned_rollback(
    context: TableContext, requested: Instant, settings: CommitSettings, plan: RollbackPlan
) -> RollbackResult:
    """Continue the rollback that `plan_rollback_of_unseen` has begun."""
    return _execute(context, settings, requested, plan)


@observed("rollback")
def rollback_own_write(context: TableContext, instant: Instant, settings: CommitSettings) -> RollbackResult:
    """Roll back a pending write of this process that will not commit.

    Only this process writes files of the instant, and its markers stay until the end. So the files can be deleted
    before the rollback is planned, and the lock is taken once instead of twice. If nothing else is left of the write,
    its instant is removed without a rollback on the timeline, which Hudi would execute too while it is pending.

    Raises:
        InstantNotFound: Another writer has already rolled it back.
    """
    begun_ms = context.env.now_ms()
    # A forked child unwinds writes of its parent, which is alive.
    _refuse_alive(context, settings, instant)
    marked = sorted({path for path, _ in Markers(context.storage, instant.request_time).list()})
    context.storage.delete(marked)
    sync_rollback(context, settings, [instant.request_time])
    with context.locked(settings.lock_wait_ms) as locked:
        # Hashing metadata and bucket counts of a replacecommit are removed once the rollback is on the timeline.
        replaces = instant.action is Action.REPLACECOMMIT
        if not replaces and _withdraw(locked, instant, marked):
            return RollbackResult("", instant.request_time, tuple(marked))
        planned = _request_under_lock(locked, instant, settings, failed_only=False)
        assert planned is not None, "only a rollback of failed writes finds nothing to do"
        requested, plan = planned
        files = _files_by_partition(plan.rollback_requests or ())
        named = {_path(context, partition, file) for partition, partition_files in files.items() for file in partition_files}
        # A running task may have written another file.
        if named <= set(marked) and not replaces:
            return _publish(locked, settings, requested, plan, files, begun_ms)
    return _execute(context, settings, requested, plan)


def _withdraw(locked_context: TableContext, write: Instant, deleted: Sequence[str]) -> bool:
    """Remove the instant of a write of this process whose files are deleted.

    Returns:
        False, with no effect, if more is left of it, or another process has begun to roll it back.
    """
    store, time = locked_context.timeline, write.request_time
    timeline = store.load()
    current = next((i for i in timeline.pending() if i.step == write.step), None)
    if current is None or time in load_rollback_targets(store, timeline):
        return False
    check_same_version(locked_context)
    markers = Markers(locked_context.storage, time)
    if current.state is State.INFLIGHT:
        if not {path for path, _ in markers.list()}.issubset(deleted):
            # A running task has written another file.
            return False
        by_partition: dict[str, list[str]] = {}
        for path in deleted:
            by_partition.setdefault(parent_folder(path), []).append(path)
        if not remove_uncommitted_from_metadata(locked_context, time, by_partition, timeline):
            return False
    # If this process dies now, the next writer rolls back the pending instant, which has no heartbeat.
    liveness.remove_heartbeat(locked_context.storage, time)
    if current.state is State.INFLIGHT:
        # As in `_publish`: a task that ends later removes its files itself.
        locked_context.storage.delete([path for path, _ in markers.list(in_progress=True)])
    markers.delete()
    store.remove_pending(time, write.action, *(_BOTH if current.state is State.INFLIGHT else (State.REQUESTED,)))
    return True


def rollback_failed_attempt(
    context: TableContext, request_time: str, action: Action, settings: CommitSettings
) -> RollbackResult | None:
    """Roll back the dead attempt at a planned service and retain its plan (the plan of a log compaction is removed
    too).

    This applies under every failed-writes policy, NEVER included. The policy decides when files of dead writes are
    removed; those never become visible. A plan runs again under the same instant, so files of its dead attempt would
    become visible with those of the next attempt.

    Several processes may call this concurrently.

    Returns:
        None if there is no such attempt, or its process is alive.
    """
    planned = _request(context, Instant(request_time, action, State.INFLIGHT), settings, failed_only=True)
    return None if planned is None else _execute(context, settings, *planned)


def begin_drop(locked_context: TableContext, timeline: Timeline, planned: Instant, settings: CommitSettings) -> Instant:
    """Schedule the rollback of a resize that no process has started. The rollback removes the plan and the rows
    double-written for it.

    `finish_pending_rollbacks` executes it.

    Args:
        locked_context: The table while the caller holds its lock.
        timeline: Its current timeline.
        planned: The planned resize.

    Returns:
        The rollback instant.
    """
    info = InstantInfo(planned.request_time, Action.REPLACECOMMIT.value)
    plan = RollbackPlan(info, _list_requests(locked_context, timeline, planned))
    time = new_instant_time(locked_context, timeline, settings)
    requested = locked_context.timeline.request(time, Action.ROLLBACK, plan.encode(locked_context.env.token_bytes(16)))
    _begin(locked_context, timeline, requested, plan)
    return requested


def _request(
    context: TableContext, instant: Instant, settings: CommitSettings, *, failed_only: bool
) -> tuple[Instant, RollbackPlan] | None:
    """Schedule the rollback of a write, or return the pending one: its instant and plan.

    The write is looked up again under the lock, since it may have completed or been removed since the caller saw it.
    With ``failed_only`` the result is None in that case, and if its writer is alive.
    """
    with context.locked(settings.lock_wait_ms) as locked:
        return _request_under_lock(locked, instant, settings, failed_only=failed_only)


def _request_under_lock(
    locked_context: TableContext, instant: Instant, settings: CommitSettings, *, failed_only: bool, unseen: bool = False
) -> tuple[Instant, RollbackPlan] | None:
    if not locked_context.config.version.has_one_log_file_per_commit:
        raise Unsupported(
            f"rollback on table version {int(locked_context.config.version)} is not supported; upgrade the table first"
        )
    store = locked_context.timeline
    timeline = store.load()
    pending = load_rollback_targets(store, timeline).get(instant.request_time)
    if pending is not None:
        check_same_version(locked_context)
        if not is_action_dead(locked_context, pending, settings):
            if failed_only:
                return None
            raise InstantNotFound(
                f"instant {instant.request_time} of {locked_context.storage.uri} is being rolled back by a process of Hudi "
                f"({pending}); wait until it has finished"
            )
        plan = _read_plan(locked_context, pending)
        _begin(locked_context, timeline, pending, plan)
        return pending, plan
    current = next((i for i in timeline.instants if i.step == instant.step), None)
    if failed_only and (current is None or current.is_completed or not is_action_dead(locked_context, current, settings)):
        return None
    if failed_only and current is not None and current.state is State.REQUESTED and current.action is Action.COMPACTION:
        return None
    if current is None:
        raise InstantNotFound(
            f"instant {instant.request_time} of {locked_context.storage.uri} does not exist: it was rolled back already"
        )
    check_same_version(locked_context)
    if current.is_completed:
        check_can_roll_back(locked_context, timeline, current, unseen=unseen)
    else:
        _refuse_alive(locked_context, settings, current)
    # The rollback of a clustering by that name retains its plan.
    action = Action.REPLACECOMMIT if _is_empty_plan(locked_context, current) else current.action
    plan = RollbackPlan(InstantInfo(current.request_time, action.value), _plan_requests(locked_context, timeline, current))
    time = new_instant_time(locked_context, timeline, settings)
    requested = store.request(time, Action.ROLLBACK, plan.encode(locked_context.env.token_bytes(16)))
    _begin(locked_context, timeline, requested, plan)
    return requested, plan


def _finish_pending_rollback(context: TableContext, settings: CommitSettings, instant: Instant) -> RollbackResult | None:
    """Complete the rollback of a dead process. A rollback with an unreadable plan that has deleted nothing is dropped."""
    with context.locked(settings.lock_wait_ms) as locked:
        # Under the lock no plan is half-written, and no process restarts a rollback that another process has completed.
        timeline = locked.timeline.load()
        rollbacks = [i for i in timeline.pending(Action.ROLLBACK) if i.request_time == instant.request_time]
        if not rollbacks:
            return None
        check_same_version(locked)
        try:
            plan = _read_plan(locked, rollbacks[0])
        except CorruptData:
            if rollbacks[0].state is State.REQUESTED:
                locked.timeline.remove_pending(instant.request_time, Action.ROLLBACK)
                return None
            raise
        _begin(locked, timeline, rollbacks[0], plan)
    return _execute(context, settings, rollbacks[0], plan)


def _begin(locked_context: TableContext, timeline: Timeline, requested: Instant, plan: RollbackPlan) -> None:
    """Write the inflight file of a rollback, and remove the completed file of the instant that it rolls back."""
    target, action = _target_of(locked_context, requested, plan)
    if requested.state is State.REQUESTED:
        locked_context.timeline.start_or_join(requested)
    if action.is_write:
        # An attempt at a plan has no completed file. If one exists, another process has already rolled the attempt back
        # and run the plan again.
        for done in timeline.completed():
            if done.request_time == target and done.action.is_write:
                locked_context.timeline.remove_completed(done)


def _target_of(context: TableContext, requested: Instant, plan: RollbackPlan) -> tuple[str, Action]:
    """Return the request time and action of the instant that a rollback removes."""
    if plan.instant_to_rollback is None:
        path = context.storage.absolute(context.timeline.path(requested))
        raise CorruptData("the rollback plan names no instant to roll back").with_path(path)
    return plan.instant_to_rollback.commit_time, Action(plan.instant_to_rollback.action)


def _read_plan(context: TableContext, instant: Instant) -> RollbackPlan:
    requested = Instant(instant.request_time, Action.ROLLBACK, State.REQUESTED)
    with context.timeline.errors_with_path(requested):
        return RollbackPlan.decode(context.timeline.read_state(instant.request_time, Action.ROLLBACK, State.REQUESTED) or b"")


def _execute(context: TableContext, settings: CommitSettings, requested: Instant, plan: RollbackPlan) -> RollbackResult:
    """Delete the files of a rollback plan, and publish the rollback."""
    storage = context.storage
    begun_ms = context.env.now_ms()
    target, _ = _target_of(context, requested, plan)
    sync_rollback(context, settings, [target])
    files = _files_by_partition(plan.rollback_requests or ())
    for partition, partition_files in files.items():
        storage.delete([_path(context, partition, file) for file in partition_files])
        # A file that was being written when the writer died has only a temporary name.
        storage.sweep_unfinished(partition, begun_ms - max(_SLOWEST_FILE_MS, settings.heartbeats.expiry_ms))
    with context.locked(settings.lock_wait_ms) as locked:
        return _publish(locked, settings, requested, plan, files, begun_ms)


def _publish(
    locked_context: TableContext,
    settings: CommitSettings,
    requested: Instant,
    plan: RollbackPlan,
    files: Mapping[str, Sequence[str]],
    start_ms: int,
) -> RollbackResult:
    """Remove the pending files of the rolled-back instant, and complete the rollback after its files were deleted.

    Args:
        locked_context: The table while the caller holds its lock.
        requested: The rollback instant.
        plan: Its plan.
        files: Planned files by partition.
        start_ms: When the deletion of files began.
    """
    store, storage = locked_context.timeline, locked_context.storage
    target, action = _target_of(locked_context, requested, plan)
    deleted_by_partition = {
        partition: tuple(_path(locked_context, partition, file) for file in partition_files)
        for partition, partition_files in files.items()
    }
    deleted = tuple(path for paths in deleted_by_partition.values() for path in paths)
    timeline = store.load()
    rollbacks = [i for i in timeline.instants if i.request_time == requested.request_time and i.action is Action.ROLLBACK]
    if not rollbacks or rollbacks[0].state is State.COMPLETED:
        # The target may be running again by now, so its files must not be removed.
        return RollbackResult(requested.request_time, target, deleted)
    partitions = {
        partition: RollbackPartitionMetadata(
            partition_path=partition, success_delete_files=tuple(partition_files), failed_delete_files=()
        )
        for partition, partition_files in files.items()
    }
    metadata = RollbackMetadata(
        start_rollback_time=requested.request_time,
        time_taken_in_millis=max(0, locked_context.env.now_ms() - start_ms),
        total_files_deleted=len(deleted),
        commits_rollback=(target,),
        partition_metadata=partitions,
        instants_rollback=(InstantInfo(target, action.value),),
    )
    # Once the pending files are removed, the metadata table's records of the target would become valid.
    # If the plan stays on the timeline, log files with its instant time are double writes of other commits.
    apply_rollback_to_metadata(
        locked_context, requested.request_time, target, deleted_by_partition, timeline, logs=not action.retains_plan
    )
    if action in (Action.REPLACECOMMIT, Action.CLUSTERING):
        # While the rollback is pending no process runs the plan again, and no new hashing metadata can get the same name.
        remove_hashing_metadata(locked_context, (target,))
        remove_counts(locked_context, (target,))
    if target == METADATA_BOOTSTRAP_INSTANT_TIME:
        remove_bootstrap_index(locked_context.storage)
    markers = Markers(storage, target)
    if not action.retains_plan:
        # If the plan stays, its expired heartbeat must remain as evidence that it was started.
        liveness.remove_heartbeat(storage, target)
        # A task that ends later removes its files itself (`tasks.task_attempts`); others may have written since the
        # plan.
        storage.delete([path for path, _ in markers.list(in_progress=True)])
    markers.delete()
    for pending, states in _PENDING_FILES.get(action, ((action, _BOTH),)):
        store.remove_pending(target, pending, *states)
    time = new_instant_time(locked_context, timeline, settings)
    store.complete(requested, Action.ROLLBACK, time, metadata.encode(locked_context.env.token_bytes(16)))
    return RollbackResult(requested.request_time, target, deleted)


def _refuse_alive(context: TableContext, settings: CommitSettings, instant: Instant) -> None:
    if not _is_empty_plan(context, instant) and not is_action_dead(context, instant, settings):
        raise TableState(f"the writer of {instant.action} {instant.request_time} is alive; stop it before rolling its write back")


_BOTH = (State.INFLIGHT, State.REQUESTED)

_PENDING_FILES: Mapping[Action, tuple[tuple[Action, tuple[State, ...]], ...]] = {
    Action.COMPACTION: ((Action.COMPACTION, (State.INFLIGHT,)),),
    Action.CLUSTERING: ((Action.CLUSTERING, (State.INFLIGHT,)),),
    Action.COMMIT: ((Action.COMMIT, _BOTH), (Action.COMPACTION, _BOTH)),
    Action.DELTACOMMIT: ((Action.DELTACOMMIT, _BOTH), (Action.LOGCOMPACTION, _BOTH)),
    Action.REPLACECOMMIT: ((Action.REPLACECOMMIT, _BOTH), (Action.CLUSTERING, _BOTH)),
}
"""Which pending files are removed with an instant, by the action in the rollback plan. The completed file of a service
has the action of a write, and its pending files have the action of the service.
"""


def _plan_requests(context: TableContext, timeline: Timeline, instant: Instant) -> tuple[RollbackRequest, ...]:
    if instant.state is State.REQUESTED:
        return ()
    if instant.state is State.INFLIGHT:
        marked = Markers(context.storage, instant.request_time).list()
        return tuple(
            RollbackRequest(
                partition_path=parent_folder(path),
                file_id=file_id_from_name(path),
                latest_base_instant=instant.request_time,
                files_to_be_deleted=(context.storage.absolute(path),),
            )
            for path, _ in sorted(marked)
        )
    return _list_requests(context, timeline, instant)


def _list_requests(context: TableContext, timeline: Timeline, instant: Instant) -> tuple[RollbackRequest, ...]:
    """Plan from a listing: files with the instant's time, and files double-written for a resize (see `double_written_logs`)."""
    listing = DirectoryListing(context.storage)
    copies = double_written_logs(context.timeline, timeline, instant)
    requests = []
    for partition, files in listing.files(listing.partitions()).items():
        paths = tuple(
            context.storage.absolute(info.path)
            for info in files
            if parse_data_file_instant(info.name) == instant.request_time or info.path in copies
        )
        if paths:
            requests.append(
                RollbackRequest(partition_path=partition, file_id="", latest_base_instant="", files_to_be_deleted=paths)
            )
    return tuple(requests)


def _files_by_partition(requests: Iterable[RollbackRequest]) -> dict[str, list[str]]:
    by_partition: dict[str, list[str]] = {}
    for request in requests:
        by_partition.setdefault(request.partition_path, []).extend(request.files_to_be_deleted)
        if request.log_blocks_to_be_deleted:
            raise Unsupported("the rollback plan requests rollback blocks in log files, which tables of version 8 do not have")
    return by_partition


def _path(context: TableContext, partition: str, file: str) -> str:
    path = planned_path(partition, file)
    if path is None:
        raise InvalidRequest(
            f"the rollback plan names {file}, which is not a file of partition {partition!r} of "
            f"{context.storage.uri}; no "
            "file of the plan was deleted"
        )
    return path
