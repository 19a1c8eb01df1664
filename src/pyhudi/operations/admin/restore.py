"""Restore: return a table to a savepoint, or to any completed write whose files all exist.

    1. lock: continue an unfinished restore; else plan: pending clusterings, then every other write and service
       requested after the target, newest first; write `<R>.restore.requested`
    2. write `<R>.restore.inflight`; unlock; from here on no write begins
    3. lock: drop the metadata table, which the next write rebuilds from a listing; mark files that the instants
       double-wrote for resizes; remove the instants from the timeline, newest first, completed file before pending
       ones, then the consistent hashing metadata that they created; unlock
    4. delete their data files, found by a listing, and their markers
    5. lock: publish `<R>_<C>.restore`; remove the rollbacks after the target

A file belongs to the instant in its name. So log files of a write that was requested before the target and completed
after a compaction stay, and belong to the file slice before the compaction again. Once an instant is not on the
timeline, no reader counts its files: a crash leaves a pending restore. The next writer completes it from its plan, once
its heartbeat shows that its process has died (`after_dead_restore`); so does running it again.

Source: docs/formats/writing.md, "Savepoint and restore".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from pyhudi.errors import CorruptData, SnapshotOutdated, TableState
from pyhudi.features.consistent_hashing.hashing_store import remove_hashing_metadata
from pyhudi.format.actions.restore_metadata import RestoreMetadata, RestorePlan
from pyhudi.format.actions.rollback_metadata import InstantInfo, RollbackMetadata, RollbackPartitionMetadata
from pyhudi.format.instants import Action, Instant, State, comparable_action
from pyhudi.format.names import MarkerType, parse_data_file_instant
from pyhudi.metadata_table.codecs.metadata_partitions import FILES
from pyhudi.metadata_table.writer.initialize_partitions import unrestored_indexes
from pyhudi.metadata_table.writer.metadata_commit import apply_restore_to_metadata
from pyhudi.operations.admin.savepoint import check_retained, completed_write
from pyhudi.operations.commit.action_liveness import is_action_dead, running_in_hudi
from pyhudi.operations.commit.begin_checks import RestorePending, check_same_version
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.hbase_hooks import sync_rollback
from pyhudi.operations.commit.instant_times import new_instant_time
from pyhudi.operations.commit.results import RestoreResult
from pyhudi.storage import liveness
from pyhudi.storage.liveness import WriterHeartbeat
from pyhudi.storage.markers import Markers
from pyhudi.storage.thread_pool import in_threads
from pyhudi.storage.uris import parse_uri
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.partition_buckets import remove_counts
from pyhudi.table.snapshot import check_no_external_files, double_written_logs, is_pending_clustering
from pyhudi.table.table_context import TableContext
from pyhudi.table.tags import resolve_tag
from pyhudi.table.timeline.active_timeline import SLICING_ACTIONS, WRITE_ACTIONS, Timeline
from pyhudi.table.timeline.archived_timeline import Bounds

T = TypeVar("T")


@observed("restore")
def run_restore(context: TableContext, settings: CommitSettings, instant: str, *, force: bool = False) -> RestoreResult:
    """Restore the table to the state as of a completed write.

    Args:
        instant: Request time of the write, or the tag of its savepoint.
        force: Begin although a process of Hudi writes to the table.

    Raises:
        InstantNotFound: The active timeline has no such write.
        TableState: Files of that state may be missing, a later write is savepointed or archived, a restore to another
            instant is pending, a process of Hudi writes to the table, or the table's version changed since it was
            opened.
    """
    check_writable(context)
    return _run(context, settings, resolve_tag(context, instant), force=force)


def _run(
    context: TableContext, settings: CommitSettings, instant: str, *, only_dead: bool = False, force: bool = False
) -> RestoreResult:
    """Restore to an instant. ``only_dead``: continue only a restore whose process has died. Raises as `run_restore`."""
    heartbeat: WriterHeartbeat | None = None
    try:
        with context.locked(settings.lock_wait_ms) as locked:
            store = locked.timeline
            timeline = store.load()
            check_same_version(locked)
            if only_dead and not any(is_action_dead(context, i, settings) for i in timeline.pending(Action.RESTORE)):
                raise RestorePending(
                    f"another process completes or has completed the restore of {context.storage.uri}; try again"
                )
            restoring, plan = _pending_plan(locked, timeline, instant)
            if plan is None:
                _check_target(context, timeline, instant)
                if not force:
                    _check_not_running_in_hudi(context, settings, timeline, instant)
                plan = RestorePlan(_instants_to_roll_back(context, timeline, instant), savepoint_to_restore_timestamp=instant)
                restoring = Instant(new_instant_time(context, timeline, settings), Action.RESTORE, State.REQUESTED)
            assert restoring is not None, "a plan has an instant"
            heartbeat = WriterHeartbeat(context.storage, context.env, restoring.request_time, settings.heartbeats)
            heartbeat.start()
            if restoring not in timeline.instants:
                store.request(restoring.request_time, Action.RESTORE, plan.encode(context.env.token_bytes(16)))
            if restoring.state is State.REQUESTED:
                store.start_or_join(restoring)
        result = _execute(context, settings, restoring, plan, instant)
        heartbeat.stop(delete=True)
    except BaseException as error:
        if heartbeat is None:
            raise
        # From here on the next writer completes what is left; one that considered this process dead may have done so.
        heartbeat.stop(delete=False)
        assert restoring is not None and plan is not None, "a heartbeat has an instant and its plan"
        completed = _completed(context.timeline.load(), restoring) if isinstance(error, SnapshotOutdated) else None
        if completed is None:
            raise
        result = _result(completed, instant, tuple(info.commit_time for info in plan.instants_to_rollback))
    return result


def _pending_plan(locked: TableContext, timeline: Timeline, target: str) -> tuple[Instant | None, RestorePlan | None]:
    """Return the unfinished restore and its plan. One with an unreadable plan has changed nothing yet, and is removed.

    Raises TableState if it has another target.
    """
    pending = timeline.pending(Action.RESTORE)
    if not pending:
        return None, None
    restoring, plan = pending[0], _load_plan(locked, pending[0])
    if plan is None:
        locked.timeline.remove_pending(restoring.request_time, Action.RESTORE)
    elif plan.savepoint_to_restore_timestamp != target:
        raise TableState(
            f"restore {restoring.request_time} of {locked.storage.uri} to {plan.savepoint_to_restore_timestamp} "
            "did not finish; run that one again first"
        )
    return restoring, plan


def after_dead_restore(context: TableContext, settings: CommitSettings, begin: Callable[[], T]) -> T:
    """Begin an action, after completing the restore of a dead process if one is pending.

    Args:
        context: The table.
        settings: Commit settings.
        begin: Begins the action; raises RestorePending while a restore is pending.
    """
    try:
        return begin()
    except RestorePending:
        dead = [i for i in context.timeline.load().pending(Action.RESTORE) if is_action_dead(context, i, settings)]
        if not dead:
            raise
        # Another process may be completing it, or has: the action is refused again, or begins.
        with suppress(RestorePending):
            finish_restore(context, settings, dead[0])
    return begin()


def finish_restore(context: TableContext, settings: CommitSettings, restoring: Instant) -> bool:
    """Complete the restore of a dead process, or drop one that has changed nothing and whose plan is unreadable.

    The caller has verified that the process died.

    Returns:
        False if the plan does not record the target: then only a caller of `run_restore` can complete it.
    """
    plan = _load_plan(context, restoring)
    if plan is None:
        with context.locked(settings.lock_wait_ms) as locked:
            if restoring in locked.timeline.load().instants:
                locked.timeline.remove_pending(restoring.request_time, Action.RESTORE)
        return True
    if not plan.savepoint_to_restore_timestamp:
        return False
    check_writable(context)
    _run(context, settings, plan.savepoint_to_restore_timestamp, only_dead=True)
    return True


def _execute(
    context: TableContext,
    settings: CommitSettings,
    restoring: Instant,
    plan: RestorePlan,
    target: str,
) -> RestoreResult:
    begun_ms = context.env.now_ms()
    removed_instants = tuple(info.commit_time for info in plan.instants_to_rollback)
    with context.locked(settings.lock_wait_ms) as locked:
        files = locked.timeline.load_files()
        times = frozenset(removed_instants)
        now = locked.timeline.build_timeline(files)
        completed = _completed(now, restoring)
        if completed is not None:
            return _result(completed, target, removed_instants)
        dropped = apply_restore_to_metadata(locked)
        for instant in files:
            if instant.is_completed and instant.request_time in times:
                # Readers count these files until the commit is removed, which alone records them; from then on a marker
                # records them.
                for path in sorted(double_written_logs(locked.timeline, now, instant)):
                    Markers(locked.storage, instant.request_time).create(path, MarkerType.CREATE)
        for info in plan.instants_to_rollback:
            _remove_instant(locked, info, files)
        # Hashing metadata that writes have marked is valid regardless of the timeline.
        remove_hashing_metadata(locked, times)
        remove_counts(locked, times)
    for time in removed_instants:
        # A task that ends later removes its files itself (`tasks.task_attempts`); the others have written theirs.
        liveness.remove_heartbeat(context.storage, time)
    deleted = _delete_files(context, removed_instants)
    sync_rollback(context, settings, removed_instants)
    for time in removed_instants:
        markers = Markers(context.storage, time)
        # A file name may contain another instant than the one that wrote it; only its marker records the writer.
        context.storage.delete([path for path, _ in markers.list()])
        markers.delete()
        # Its writer may have been alive, and renewed the heartbeat once more.
        liveness.remove_heartbeat(context.storage, time)
    with context.locked(settings.lock_wait_ms) as locked:
        store = locked.timeline
        timeline = store.load()
        completed = _completed(timeline, restoring)
        if completed is not None:
            return _result(completed, target, removed_instants)
        taken_ms = max(0, context.env.now_ms() - begun_ms)
        metadata = RestoreMetadata(
            start_restore_time=restoring.request_time,
            time_taken_in_millis=taken_ms,
            instants_to_rollback=removed_instants,
            hoodie_restore_metadata={
                info.commit_time: (_rollback_metadata(context, restoring, info, deleted.get(info.commit_time, {}), taken_ms),)
                for info in plan.instants_to_rollback
            },
            restore_instant_info=plan.instants_to_rollback,
        )
        completion_time = new_instant_time(context, timeline, settings)
        inflight = Instant(restoring.request_time, Action.RESTORE, State.INFLIGHT)
        store.complete(inflight, Action.RESTORE, completion_time, metadata.encode(context.env.token_bytes(16)))
        rollbacks = [i for i in store.load_files() if i.action is Action.ROLLBACK and i.request_time > target]
        locked.storage.delete([store.path(i) for i in sorted(rollbacks, key=lambda i: (i.request_time, -i.state))])
    return RestoreResult(
        instant=restoring.request_time,
        completion_time=completion_time,
        restored_to=target,
        rolled_back=removed_instants,
        files_deleted=sum(len(paths) for by_partition in deleted.values() for paths in by_partition.values()),
        dropped_indexes=tuple(name for name in dropped if name != FILES),
        indexes_to_create=unrestored_indexes(context, dropped),
    )


def _completed(timeline: Timeline, restoring: Instant) -> Instant | None:
    """The completed instant of the restore if another process has completed it, else None."""
    return next((i for i in timeline.completed(Action.RESTORE) if i.request_time == restoring.request_time), None)


def _result(completed: Instant, target: str, removed_instants: tuple[str, ...]) -> RestoreResult:
    """The result of a restore that another process completed."""
    return RestoreResult(
        instant=completed.request_time,
        completion_time=completed.completion_time or "",
        restored_to=target,
        rolled_back=removed_instants,
        files_deleted=0,
        dropped_indexes=(),
        indexes_to_create=(),
    )


def _check_target(context: TableContext, timeline: Timeline, target: str) -> None:
    completed_write(context, timeline, target)
    check_no_external_files(context)
    if not any(i.request_time == target for i in timeline.completed(Action.SAVEPOINT)):
        check_retained(context, timeline, target)
    later = [i.request_time for i in timeline.completed(Action.SAVEPOINT) if i.request_time > target]
    if later:
        raise TableState(
            f"instant {later[0]} of {context.storage.uri} is savepointed and later than {target}; delete its savepoint first"
        )
    if timeline.start is None or target < timeline.start:
        # Archival beyond savepoints leaves savepointed instants behind: later instants may be archived.
        archived = [
            i
            for i in context.timeline.history.instants(Bounds(target, None))
            if i.request_time > target and i.action in WRITE_ACTIONS
        ]
        if archived:
            raise TableState(
                f"{len(archived)} writes after {target} of {context.storage.uri} are archived (the first is "
                f"{archived[0].request_time}); they cannot be rolled back"
            )


def _check_not_running_in_hudi(context: TableContext, settings: CommitSettings, timeline: Timeline, target: str) -> None:
    """Raise TableState if a live process of Hudi writes: it may publish an instant that the restore has removed.

    Writers of PyHudi notice that their instant was removed, and plan their write again.
    """
    running = running_in_hudi(context, timeline, settings)
    if running:
        raise TableState(
            f"restore of {context.storage.uri} to {target} is refused: a process of Hudi may be running {running[0]}. Stop "
            "that process, or pass force=True to remove what it writes"
        )


def _instants_to_roll_back(context: TableContext, timeline: Timeline, target: str) -> tuple[InstantInfo, ...]:
    later = [i for i in reversed(timeline.instants) if i.action in SLICING_ACTIONS and i.request_time > target]
    clusterings = [i for i in later if i.is_pending and is_pending_clustering(context.timeline, i)]
    ordered = [*clusterings, *(i for i in later if i not in clusterings)]
    return tuple(InstantInfo(i.request_time, i.action.value) for i in ordered)


def _load_plan(context: TableContext, restoring: Instant) -> RestorePlan | None:
    """Load the plan of an unfinished restore; None if it is unreadable and has changed nothing yet."""
    requested = Instant(restoring.request_time, Action.RESTORE, State.REQUESTED)
    try:
        return RestorePlan.decode(context.timeline.read_state(restoring.request_time, Action.RESTORE, State.REQUESTED) or b"")
    except CorruptData as error:
        if restoring.state is State.REQUESTED:
            return None
        raise error.with_path(context.storage.absolute(context.timeline.path(requested))) from error


def _remove_instant(context: TableContext, info: InstantInfo, files: Sequence[Instant]) -> None:
    """Remove an instant from the timeline: its completed file, then its pending files under any name of its action."""
    step = (info.commit_time, comparable_action(Action(info.action)))
    instant_files = [i for i in files if i.step == step]
    for file in sorted(instant_files, key=lambda i: -i.state):
        context.storage.delete([context.timeline.path(file)])


def _delete_files(context: TableContext, instants: Iterable[str]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Delete the data files of instants; return the deleted paths, relative to the table, by instant and partition."""
    instant_times = set(instants)
    if not instant_times:
        return {}
    listing = DirectoryListing(context.storage)
    deleted: dict[str, dict[str, tuple[str, ...]]] = {}
    by_partition = listing.files(listing.partitions())
    for partition, infos in by_partition.items():
        for info in infos:
            instant = parse_data_file_instant(info.name)
            if instant is not None and instant in instant_times:
                there = deleted.setdefault(instant, {})
                there[partition] = (*there.get(partition, ()), info.path)
    batches = [paths for partitions in deleted.values() for paths in partitions.values()]
    in_threads(context.storage.delete, batches)
    return deleted


def _rollback_metadata(
    context: TableContext, restoring: Instant, info: InstantInfo, deleted: dict[str, tuple[str, ...]], elapsed_ms: int
) -> RollbackMetadata:
    """Build rollback metadata; as in every rollback planned from a listing, paths are absolute, without a scheme."""
    return RollbackMetadata(
        start_rollback_time=restoring.request_time,
        time_taken_in_millis=elapsed_ms,
        total_files_deleted=sum(len(paths) for paths in deleted.values()),
        commits_rollback=(info.commit_time,),
        partition_metadata={
            partition: RollbackPartitionMetadata(
                partition_path=partition,
                success_delete_files=tuple(f"/{parse_uri(context.storage.absolute(path)).path}" for path in paths),
            )
            for partition, paths in deleted.items()
        },
        instants_rollback=(info,),
    )
