"""Rollback: make an instant not have happened, and say so on the timeline.

    1. lock: plan: the files of the instant, from its markers when it never completed, else from a listing;
       `<R>.rollback.requested`
    2. `<R>.rollback.inflight`; the completed file of a completed instant is removed, so readers stop counting its files; unlock
    3. delete the files
    4. lock: remove the instant's pending files, publish `<R>_<C>.rollback`; then remove its markers

A writer that takes its own write back deletes the files first, and does the rest in one turn at the lock (`rollback_own_write`).
One that has no inflight file yet has written nothing that anybody counts or has to be told of: its requested file goes.

A rollback that died is found by its pending instant and finished from its plan, by several processes at once if need be: each
step may be repeated.  A write cannot complete while a rollback of it is pending (see `transaction`).  Log files are deleted
like base files (table version 8).

Source: docs/formats/writing.md, "Rollback".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyhudi.errors import CorruptData, InstantNotFound, InvalidRequest, TableState, Unsupported
from pyhudi.features.consistent_hashing.ring_store import remove_rings
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
from pyhudi.metadata_table.writer.metadata_commit import apply_rollback_to_metadata
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.hbase_hooks import sync_rollback
from pyhudi.operations.commit.orphan_cleanup import remove_leftovers, sweep_unfinished_documents
from pyhudi.operations.commit.rollback_checks import check_can_roll_back, file_id_from_name
from pyhudi.operations.commit.transaction import check_same_version, new_instant_time
from pyhudi.records.html_repr import HtmlRepr
from pyhudi.storage import liveness
from pyhudi.storage.markers import Markers
from pyhudi.table.bootstrap_sources import remove_bootstrap_index
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.partition_buckets import remove_counts
from pyhudi.table.pending_plans import planned_path
from pyhudi.table.snapshot import double_written_logs, load_rollback_targets
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_SLOWEST_FILE_MS = 24 * 3600 * 1000
"""How long a task may take for one data file: the heartbeat of its writer goes on, and HDFS gives the file no later time."""


@dataclass(frozen=True, slots=True)
class RollbackResult(HtmlRepr):
    """What a rollback did.  instant: its own; rolled_back: of the write that is gone; deleted: paths relative to the table."""

    instant: str
    rolled_back: str
    deleted: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

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
    """Roll back the writes of writers that died, newest first, after finishing rollbacks that died themselves.

    timeline: one that was just loaded, for callers that go on with it where nothing was rolled back.

    A pending write counts as dead when its heartbeat says so; a writer that keeps none (real Hudi under the EAGER policy) is
    taken for dead.  Pending compactions and clusterings are left alone: their plans are carried out later.
    """
    timeline = timeline or context.timeline.load()
    done = list(finish_pending_rollbacks(context, settings, timeline))
    if settings.failed_writes == "NEVER" or timeline.pending(Action.RESTORE):
        # What a restore has half taken off the timeline is its own, and so are the markers of that.
        return tuple(done)
    rolled = {result.rolled_back for result in done}
    dead = [i for i in timeline.pending_writes() if i.request_time not in rolled and not _is_alive(context, settings, i)]
    if dead:
        # A writer removes its heartbeat when its write is complete or taken back: of what is pending no more, that said nothing.
        pending = {i.step for i in context.timeline.load().pending_writes()}
        for instant in reversed([i for i in dead if i.step in pending]):
            planned = _request(context, instant, settings, failed_only=True)
            if planned is not None:
                done.append(_execute(context, settings, *planned))
    if remove_leftovers(context, settings) or done:
        sweep_unfinished_documents(context, settings)
    return tuple(done)


def finish_pending_rollbacks(context: TableContext, settings: CommitSettings, timeline: Timeline) -> tuple[RollbackResult, ...]:
    """Carry rollbacks that died to their end.

    A writer that lives and takes its own write back is left to it: all who begin meanwhile would queue for the lock to do it too.
    """
    own = load_rollback_targets(context.timeline, timeline)
    busy = {
        r.request_time
        for target, r in own.items()
        if liveness.is_alive(context.storage, context.env, target, settings.heartbeats)
    }
    pending = (instant for instant in timeline.pending(Action.ROLLBACK) if instant.request_time not in busy)
    finished = (_finish_pending_rollback(context, settings, instant) for instant in pending)
    return tuple(result for result in finished if result is not None)


@observed("rollback")
def rollback_instant(context: TableContext, instant: Instant, settings: CommitSettings) -> RollbackResult:
    """Roll one write or service back, pending or completed.

    Raises TableState for a savepointed instant, for one that later writes build on and for one whose writer lives,
    for a table that has another version by now, InstantNotFound when it is gone, Unsupported for layouts before table version 8.
    """
    planned = _request(context, instant, settings, failed_only=False)
    assert planned is not None, "only a rollback of failed writes finds nothing to do"
    return _execute(context, settings, *planned)


@observed("rollback")
def rollback_own_write(context: TableContext, instant: Instant, settings: CommitSettings) -> RollbackResult:
    """Roll back a write of this process that is under way and will not commit.  Raises InstantNotFound when others did.

    Nobody but this process writes files of the instant, and its markers stay until all is done: so the files can go before the
    rollback is planned, and one turn at the lock is enough where there are two otherwise.
    """
    begun_ms = context.env.now_ms()
    # A child of fork unwinds writes of its parent, which lives.
    _refuse_alive(context, settings, instant)
    marked = sorted({path for path, _ in Markers(context.storage, instant.request_time).list()})
    context.storage.delete(marked)
    sync_rollback(context, settings, [instant.request_time])
    with context.locked(settings.lock_wait_ms) as held:
        planned = _request_under_lock(held, instant, settings, failed_only=False)
        assert planned is not None, "only a rollback of failed writes finds nothing to do"
        requested, plan = planned
        files = _files_by_partition(plan.rollback_requests or ())
        named = {_path(context, partition, file) for partition, found in files.items() for file in found}
        # A task that is still running may have written another one, and rings go once the rollback stands on the timeline.
        if named <= set(marked) and instant.action is not Action.REPLACECOMMIT:
            return _publish(held, settings, requested, plan, files, begun_ms)
    return _execute(context, settings, requested, plan)


def withdraw_write(context: TableContext, requested: Instant, settings: CommitSettings) -> bool:
    """Take a write of this process off the timeline of which only the requested file stands there, as if it had never begun.

    False, with nothing done, where others have begun to roll it back.  Not for replacecommits, which store rings and counts of
    buckets before they have an inflight file.
    """
    # As of `rollback_own_write`.
    _refuse_alive(context, settings, requested)
    with context.locked(settings.lock_wait_ms) as held:
        check_same_version(held)
        if requested.request_time in load_rollback_targets(held.timeline, held.timeline.load()):
            return False
        Markers(held.storage, requested.request_time).delete()
        # In this order, since a request without a heartbeat is rolled back by the next writer.
        liveness.remove_heartbeat(held.storage, requested.request_time)
        held.timeline.remove_pending(requested.request_time, requested.action, State.REQUESTED)
    return True


def rollback_failed_attempt(
    context: TableContext, request_time: str, action: Action, settings: CommitSettings
) -> RollbackResult | None:
    """Undo what a dead process did of a planned service, and leave its plan (that of a log compaction goes too).

    Whatever the policy for failed writes is, NEVER too: the policy says when the files of dead writes go, and those count for
    nothing however long they lie there.  A plan is carried out again under the same instant, so the files of its dead attempt
    would come to count with the next one's.

    None when there is no such attempt, or its process lives.  Several processes may call this at once.
    """
    planned = _request(context, Instant(request_time, action, State.INFLIGHT), settings, failed_only=True)
    return None if planned is None else _execute(context, settings, *planned)


def begin_drop(locked_context: TableContext, timeline: Timeline, planned: Instant, settings: CommitSettings) -> Instant:
    """Put the rollback of a resize that nobody has begun on the timeline, which takes its plan, and what writes copied for it.

    locked_context: the table while the caller holds its lock; timeline: as it stands.  `finish_pending_rollbacks` carries it out.
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
    """Put the rollback of a write on the timeline, or find the one that stands there: its instant and plan.

    The write is looked up anew under the lock: since the caller saw it, it may have completed or gone.
    failed_only: None then, and when its writer turns out to live.
    """
    with context.locked(settings.lock_wait_ms) as held:
        return _request_under_lock(held, instant, settings, failed_only=failed_only)


def _request_under_lock(
    locked_context: TableContext, instant: Instant, settings: CommitSettings, *, failed_only: bool
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
        plan = _read_plan(locked_context, pending)
        _begin(locked_context, timeline, pending, plan)
        return pending, plan
    present = next((i for i in timeline.instants if i.step == instant.step), None)
    if failed_only and (present is None or present.is_completed or _is_alive(locked_context, settings, present)):
        return None
    if failed_only and present is not None and present.state is State.REQUESTED and present.action is Action.COMPACTION:
        return None
    if present is None:
        raise InstantNotFound(
            f"instant {instant.request_time} of {locked_context.storage.uri} is gone: it was rolled back already"
        )
    check_same_version(locked_context)
    if present.is_completed:
        check_can_roll_back(locked_context, timeline, present)
    else:
        _refuse_alive(locked_context, settings, present)
    plan = RollbackPlan(
        InstantInfo(present.request_time, present.action.value), _plan_requests(locked_context, timeline, present)
    )
    time = new_instant_time(locked_context, timeline, settings)
    requested = store.request(time, Action.ROLLBACK, plan.encode(locked_context.env.token_bytes(16)))
    _begin(locked_context, timeline, requested, plan)
    return requested, plan


def _finish_pending_rollback(context: TableContext, settings: CommitSettings, instant: Instant) -> RollbackResult | None:
    """Carry a rollback that died to its end.  One whose plan is unreadable and that deleted nothing is dropped."""
    with context.locked(settings.lock_wait_ms) as held:
        # Under the lock nobody is half-way through storing a plan, and nobody begins what others have completed.
        timeline = held.timeline.load()
        own = [i for i in timeline.pending(Action.ROLLBACK) if i.request_time == instant.request_time]
        if not own:
            return None
        check_same_version(held)
        try:
            plan = _read_plan(held, own[0])
        except CorruptData:
            if own[0].state is State.REQUESTED:
                held.timeline.remove_pending(instant.request_time, Action.ROLLBACK)
                return None
            raise
        _begin(held, timeline, own[0], plan)
    return _execute(context, settings, own[0], plan)


def _begin(locked_context: TableContext, timeline: Timeline, requested: Instant, plan: RollbackPlan) -> None:
    """Say that a rollback is under way, and take the instant that it undoes from the completed ones.

    locked_context: the table while the caller holds its lock.  timeline: as it stands.
    """
    target, action = _target_of(locked_context, requested, plan)
    if requested.state is State.REQUESTED:
        locked_context.timeline.start_or_join(requested)
    if action.is_write:
        # The attempt at a plan has no completed file; where one stands there, somebody has undone the attempt before us and
        # carried the plan out again.
        for done in timeline.completed():
            if done.request_time == target and done.action.is_write:
                locked_context.timeline.remove_completed(done)


def _target_of(context: TableContext, requested: Instant, plan: RollbackPlan) -> tuple[str, Action]:
    """Request time and action of what a rollback undoes."""
    if plan.instant_to_rollback is None:
        where = context.storage.absolute(context.timeline.path(requested))
        raise CorruptData("a rollback plan names no instant").with_path(where)
    return plan.instant_to_rollback.commit_time, Action(plan.instant_to_rollback.action)


def _read_plan(context: TableContext, instant: Instant) -> RollbackPlan:
    requested = Instant(instant.request_time, Action.ROLLBACK, State.REQUESTED)
    try:
        return RollbackPlan.decode(context.timeline.read_state(instant.request_time, Action.ROLLBACK, State.REQUESTED) or b"")
    except CorruptData as error:
        raise error.with_path(context.storage.absolute(context.timeline.path(requested))) from error


def _execute(context: TableContext, settings: CommitSettings, requested: Instant, plan: RollbackPlan) -> RollbackResult:
    """Delete what a rollback that has begun names, and publish it."""
    storage = context.storage
    begun_ms = context.env.now_ms()
    target, _ = _target_of(context, requested, plan)
    sync_rollback(context, settings, [target])
    files = _files_by_partition(plan.rollback_requests or ())
    for partition, found in files.items():
        storage.delete([_path(context, partition, file) for file in found])
        # What was being written when the writer died has no name yet.
        storage.sweep_unfinished(partition, begun_ms - max(_SLOWEST_FILE_MS, settings.heartbeats.expiry_ms))
    with context.locked(settings.lock_wait_ms) as held:
        return _publish(held, settings, requested, plan, files, begun_ms)


def _publish(
    locked_context: TableContext,
    settings: CommitSettings,
    requested: Instant,
    plan: RollbackPlan,
    files: Mapping[str, Sequence[str]],
    start_ms: int,
) -> RollbackResult:
    """Remove the instant that a rollback undoes, and complete the rollback, whose files are deleted.  locked_context: under the
    lock.

    files: by partition, as the plan names them.  start_ms: when their deletion began.
    """
    store, storage = locked_context.timeline, locked_context.storage
    target, action = _target_of(locked_context, requested, plan)
    gone = {partition: tuple(_path(locked_context, partition, file) for file in found) for partition, found in files.items()}
    deleted = tuple(path for paths in gone.values() for path in paths)
    timeline = store.load()
    own = [i for i in timeline.instants if i.request_time == requested.request_time and i.action is Action.ROLLBACK]
    if not own or own[0].state is State.COMPLETED:
        # The target may be under way again by now: what has its name is not ours to remove.
        return RollbackResult(requested.request_time, target, deleted)
    partitions = {
        partition: RollbackPartitionMetadata(partition_path=partition, success_delete_files=tuple(found), failed_delete_files=())
        for partition, found in files.items()
    }
    metadata = RollbackMetadata(
        start_rollback_time=requested.request_time,
        time_taken_in_millis=max(0, locked_context.env.now_ms() - start_ms),
        total_files_deleted=len(deleted),
        commits_rollback=(target,),
        partition_metadata=partitions,
        instants_rollback=(InstantInfo(target, action.value),),
    )
    # From the moment that the pending files are gone, the metadata table's word on the target would be believed.
    # Beside a plan that stays, logs that bear its time are copies of other writes.
    apply_rollback_to_metadata(locked_context, requested.request_time, target, gone, timeline, logs=not action.retains_plan)
    if action in (Action.REPLACECOMMIT, Action.CLUSTERING):
        # While the rollback is pending nobody carries the plan out again, whose ring would have the same name.
        remove_rings(locked_context, (target,))
        remove_counts(locked_context, (target,))
    if target == METADATA_BOOTSTRAP_INSTANT_TIME:
        remove_bootstrap_index(locked_context.storage)
    markers = Markers(storage, target)
    if not action.retains_plan:
        # Beside a plan that stays, the dead heartbeat goes on saying that the plan was begun.
        liveness.remove_heartbeat(storage, target)
        # A task that ends from now on removes its files itself (`tasks.task_attempts`); others may have written since the plan.
        storage.delete([path for path, _ in markers.list(in_progress=True)])
    markers.delete()
    for pending, states in _PENDING_FILES.get(action, ((action, _BOTH),)):
        store.remove_pending(target, pending, *states)
    time = new_instant_time(locked_context, timeline, settings)
    store.complete(requested, Action.ROLLBACK, time, metadata.encode(locked_context.env.token_bytes(16)))
    return RollbackResult(requested.request_time, target, deleted)


def _refuse_alive(context: TableContext, settings: CommitSettings, instant: Instant) -> None:
    if _is_alive(context, settings, instant):
        raise TableState(f"the writer of {instant.action} {instant.request_time} lives; stop it before rolling its write back")


def _is_alive(context: TableContext, settings: CommitSettings, instant: Instant) -> bool:
    return liveness.is_alive(context.storage, context.env, instant.request_time, settings.heartbeats)


_BOTH = (State.INFLIGHT, State.REQUESTED)

_PENDING_FILES: Mapping[Action, tuple[tuple[Action, tuple[State, ...]], ...]] = {
    Action.COMPACTION: ((Action.COMPACTION, (State.INFLIGHT,)),),
    Action.CLUSTERING: ((Action.CLUSTERING, (State.INFLIGHT,)),),
    Action.COMMIT: ((Action.COMMIT, _BOTH), (Action.COMPACTION, _BOTH)),
    Action.DELTACOMMIT: ((Action.DELTACOMMIT, _BOTH), (Action.LOGCOMPACTION, _BOTH)),
    Action.REPLACECOMMIT: ((Action.REPLACECOMMIT, _BOTH), (Action.CLUSTERING, _BOTH)),
}
"""Which pending files go with an instant of each action, as its plan names it.  A completed service bears the name of the write
that it looks like, and its pending files another one."""


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
    """From a listing: files that bear the instant's time, and those that a write made for a resize (see
    `double_written_logs`).
    """
    listing = DirectoryListing(context.storage)
    copies = double_written_logs(context.timeline, timeline, instant)
    requests = []
    for partition, files in listing.files(listing.partitions()).items():
        own = tuple(
            context.storage.absolute(info.path)
            for info in files
            if parse_data_file_instant(info.name) == instant.request_time or info.path in copies
        )
        if own:
            requests.append(
                RollbackRequest(partition_path=partition, file_id="", latest_base_instant="", files_to_be_deleted=own)
            )
    return tuple(requests)


def _files_by_partition(requests: Iterable[RollbackRequest]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for request in requests:
        found.setdefault(request.partition_path, []).extend(request.files_to_be_deleted)
        if request.log_blocks_to_be_deleted:
            raise Unsupported("the rollback plan asks for rollback blocks in log files, which tables of version 8 do not have")
    return found


def _path(context: TableContext, partition: str, file: str) -> str:
    path = planned_path(partition, file)
    if path is None:
        raise InvalidRequest(
            f"the rollback plan names {file}, which is not a file of partition {partition!r} of {context.storage.uri}; nothing "
            "of it was deleted"
        )
    return path
