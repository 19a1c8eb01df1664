"""Ownership of pending plans: how exactly one live process claims a plan on the timeline.

    lock: check that the plan is pending, has no pending rollback of an earlier attempt, and has no live owner; then
          start the heartbeat and write `<t>.<action>.inflight`

A process that dies after its first heartbeat leaves the heartbeat file behind. That file records that the plan was
started, so the next writer or service may roll it back. A plan without a heartbeat waits for a process to claim it.

Source: docs/formats/timeline.md, "Heartbeats and failed writes".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyhudi.errors import TableState, WriteConflict
from pyhudi.features.consistent_hashing.hashing_store import partitions_with_consistent_hashing
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.admin.restore import after_dead_restore
from pyhudi.operations.commit.action_liveness import is_plan_orphaned, runner
from pyhudi.operations.commit.begin_checks import check_may_begin, check_same_version
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import begin_drop, finish_pending_rollbacks, rollback_failed_attempt
from pyhudi.operations.commit.transaction import Transaction, inflight_modified_ms
from pyhudi.storage import liveness
from pyhudi.storage.liveness import WriterHeartbeat
from pyhudi.storage.markers import Markers
from pyhudi.table.snapshot import load_rollback_targets
from pyhudi.table.table_context import TableContext


class PlanTaken(TableState):
    """Another process owns the plan, or the plan does not exist.

    Attributes:
        reason: Short description of the cause.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.reason)

    @classmethod
    def of(cls, context: TableContext, action: Action, request_time: str, reason: str) -> PlanTaken:
        """Build the error for a plan of a table."""
        return cls(f"{action} {request_time} of {context.storage.uri} is not run: {reason}", reason)


class PlanSuperseded(WriteConflict):
    """The files that a plan reads have changed since, so the plan can never run."""


def claim(
    context: TableContext,
    request_time: str,
    action: Action,
    settings: CommitSettings,
    *,
    resumes: bool = False,
    content: bytes = b"",
) -> Transaction:
    """Claim a pending plan for this process. At most one live process owns a plan.

    Args:
        request_time: Request time of the plan.
        action: Its action.
        resumes: True if the work of a dead attempt is continued. If False, dead attempts have been rolled back before,
            and an inflight file belongs to another process.
        content: Content of the inflight file.

    Raises:
        PlanTaken: Another process owns the plan, or the plan is not pending.
        TableState: A restore is pending.
    """
    return after_dead_restore(
        context, settings, lambda: _claim(context, request_time, action, settings, resumes=resumes, content=content)
    )


def _claim(
    context: TableContext, request_time: str, action: Action, settings: CommitSettings, *, resumes: bool, content: bytes
) -> Transaction:
    heartbeat = WriterHeartbeat(context.storage, context.env, request_time, settings.heartbeats)
    with context.locked(settings.lock_wait_ms) as locked:
        timeline = locked.timeline.load()
        check_may_begin(context, timeline, f"running {action} {request_time}")
        pending = [i for i in timeline.pending(action) if i.request_time == request_time]
        reason = None
        if request_time in load_rollback_targets(locked.timeline, timeline):
            # That rollback would not know files written from here on.
            reason = "its last attempt is being rolled back"
        elif not pending:
            reason = "another process completed or dropped it"
        elif (pending[0].state is State.INFLIGHT and not resumes) or liveness.is_alive(
            context.storage, context.env, request_time, settings.heartbeats
        ):
            reason = runner(context, pending[0])
        if reason is not None:
            raise PlanTaken.of(context, action, request_time, reason)
        with started(locked, heartbeat):
            locked.timeline.start_or_join(pending[0], content)
            inflight_ms = _verified_inflight_ms(locked, request_time, action)
            Markers(context.storage, request_time, in_lists=settings.marker_lists).begin()
    return Transaction(context, settings, request_time, action, heartbeat, inflight_ms=inflight_ms)


def plan_and_claim(
    context: TableContext,
    locked_context: TableContext,
    request_time: str,
    action: Action,
    plan: bytes,
    settings: CommitSettings,
    *,
    content: bytes = b"",
) -> Transaction:
    """Store a plan and claim it for this process at once.

    If the process dies in between, the plan counts as started.

    Args:
        locked_context: The table while the caller holds its lock.
        request_time: Request time of the plan.
        action: Its action.
        plan: Content of the requested file.
        content: Content of the inflight file.
    """
    heartbeat = WriterHeartbeat(context.storage, context.env, request_time, settings.heartbeats)
    with started(locked_context, heartbeat):
        locked_context.timeline.start(locked_context.timeline.request(request_time, action, plan), content)
        inflight_ms = _verified_inflight_ms(locked_context, request_time, action)
        Markers(context.storage, request_time, in_lists=settings.marker_lists).begin()
    return Transaction(context, settings, request_time, action, heartbeat, inflight_ms=inflight_ms)


def _verified_inflight_ms(locked_context: TableContext, request_time: str, action: Action) -> int | None:
    """Return the modification time of the new inflight file, after verifying that this process still holds the lock."""
    inflight_ms = inflight_modified_ms(locked_context, request_time, action)
    locked_context.lock.check()
    return inflight_ms


def drop_plan(context: TableContext, settings: CommitSettings, request_time: str, action: Action) -> bool:
    """Drop a pending plan, with all files of a dead attempt.

    Returns:
        False if the plan does not exist.

    Raises:
        PlanTaken: A live process is running it.
        TableState: The table has been upgraded or downgraded since it was opened.
    """
    rollback_failed_attempt(context, request_time, action, settings)
    with context.locked(settings.lock_wait_ms) as locked:
        timeline = locked.timeline.load()
        pending = [i for i in timeline.pending(action) if i.request_time == request_time]
        if not pending:
            return False
        check_same_version(locked)
        if pending[0].state is State.INFLIGHT or liveness.is_alive(
            context.storage, context.env, request_time, settings.heartbeats
        ):
            reason = runner(context, pending[0])
            raise PlanTaken(
                f"{action} {request_time} of {context.storage.uri} cannot be dropped: {reason}; stop that process first", reason
            )
        if action is not Action.CLUSTERING or not partitions_with_consistent_hashing(locked):
            locked.timeline.remove_pending(request_time, action, State.REQUESTED)
            liveness.remove_heartbeat(locked.storage, request_time)
            return True
        # Under the lock no write completes that has double-written files for the resize.
        begin_drop(locked, timeline, pending[0], settings)
    finish_pending_rollbacks(context, settings, context.timeline.load())
    return True


def drop_orphaned_plan(context: TableContext, settings: CommitSettings, instant: Instant, *, never: bool = False) -> bool:
    """Drop a pending plan that no process will run.

    Such a plan was started by a process that died, or can never run (``never``).

    Returns:
        False if a process may still run it; the plan then stays.
    """
    if not never and not is_plan_orphaned(context, instant, settings):
        return False
    if liveness.is_alive(context.storage, context.env, instant.request_time, settings.heartbeats):
        # The process that runs it detects this itself, so writers need not report it under the lock.
        return False
    try:
        drop_plan(context, settings, instant.request_time, instant.action)
    except PlanTaken:
        return False
    return True


@contextmanager
def started(locked_context: TableContext, heartbeat: WriterHeartbeat) -> Iterator[None]:
    """Start a heartbeat under the lock for the instant that the block publishes; stop it if the block fails."""
    # The heartbeat outlives the lock, so it must not use the fenced storage of the locked context.
    locked_context.lock.check()
    heartbeat.start()
    try:
        yield
    except BaseException as error:
        # If the store did not respond, the file may exist; the remaining heartbeat then marks this attempt as dead.
        heartbeat.stop(delete=isinstance(error, TableState))
        raise
