"""Claiming: how a plan on the timeline becomes the work of one living process.

    lock: the plan is pending, no rollback of an earlier attempt is, and nobody lives who carries it out; the first heartbeat;
          `<t>.<action>.inflight`

Whoever dies after the heartbeat leaves it behind, and with it the word that the plan was begun: the next writer or service that
meets such a plan may settle it.  A plan without a heartbeat waits for somebody to begin it.

Source: docs/formats/timeline.md, "Heartbeats and failed writes".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyhudi.errors import TableState, WriteConflict
from pyhudi.features.consistent_hashing.ring_store import partitions_with_consistent_hashing
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import begin_drop, finish_pending_rollbacks, rollback_failed_attempt
from pyhudi.operations.commit.transaction import Transaction, check_may_begin, check_same_version, stored_ms
from pyhudi.storage import liveness
from pyhudi.storage.heartbeats import last_heartbeat_ms
from pyhudi.storage.liveness import WriterHeartbeat
from pyhudi.storage.markers import Markers
from pyhudi.table.snapshot import load_rollback_targets
from pyhudi.table.table_context import TableContext

FOREIGN_EXPIRY_FACTOR = 10
"""How many times as long as for a process of ours an action without a heartbeat is waited for."""


class PlanTaken(TableState):
    """A plan is somebody else's by now, or nobody's.  reason: whose, in a few words."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.reason)

    @classmethod
    def of(cls, context: TableContext, action: Action, request_time: str, reason: str) -> PlanTaken:
        """For a plan of a table."""
        return cls(f"{action} {request_time} of {context.storage.uri} is not run: {reason}", reason)


class PlanSuperseded(WriteConflict):
    """What a plan builds on has changed since; it can never be carried out."""


def claim(
    context: TableContext,
    request_time: str,
    action: Action,
    settings: CommitSettings,
    *,
    resumes: bool = False,
    content: bytes = b"",
) -> Transaction:
    """Make a pending plan this process's own.  At most one living process has a plan.

    resumes: what a dead attempt began is carried on; otherwise it has been removed before, and an inflight file is somebody's.
    content: of the inflight file.
    Raises PlanTaken, TableState while a restore is pending.
    """
    heartbeat = WriterHeartbeat(context.storage, context.env, request_time, settings.heartbeats)
    with context.locked(settings.lock_wait_ms) as held:
        timeline = held.timeline.load()
        check_may_begin(context, timeline, f"{action} {request_time} is carried out")
        pending = [i for i in timeline.pending(action) if i.request_time == request_time]
        reason = None
        if request_time in load_rollback_targets(held.timeline, timeline):
            # Files written from now on would not be known to that rollback.
            reason = "its last attempt is being taken back"
        elif not pending:
            reason = "another process completed or dropped it"
        elif (pending[0].state is State.INFLIGHT and not resumes) or liveness.is_alive(
            context.storage, context.env, request_time, settings.heartbeats
        ):
            reason = "another process carries it out"
        if reason is not None:
            raise PlanTaken.of(context, action, request_time, reason)
        with started(held, heartbeat):
            held.timeline.start_or_join(pending[0], content)
            inflight_ms = _proven(held, request_time, action)
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
    """Store a plan that is this process's own from the start.

    locked_context: the table while the caller holds its lock.  content: of the inflight file.  A process that dies in between
    leaves a plan that was begun.
    """
    heartbeat = WriterHeartbeat(context.storage, context.env, request_time, settings.heartbeats)
    with started(locked_context, heartbeat):
        locked_context.timeline.start(locked_context.timeline.request(request_time, action, plan), content)
        inflight_ms = _proven(locked_context, request_time, action)
        Markers(context.storage, request_time, in_lists=settings.marker_lists).begin()
    return Transaction(context, settings, request_time, action, heartbeat, inflight_ms=inflight_ms)


def _proven(locked_context: TableContext, request_time: str, action: Action) -> int | None:
    """When the inflight file that was just made was stored, proven to be of this process by the lock that it still holds."""
    found = stored_ms(locked_context, request_time, action)
    locked_context.lock.check()
    return found


def is_plan_orphaned(context: TableContext, instant: Instant, settings: CommitSettings) -> bool:
    """Whether somebody began to carry a pending plan out, and lives no more.

    A plan is begun when it is inflight, or has a heartbeat.
    """
    begun = instant.state is State.INFLIGHT or last_heartbeat_ms(context.storage, instant.request_time) is not None
    return begun and is_service_dead(context, instant, settings)


def is_service_dead(context: TableContext, instant: Instant, settings: CommitSettings) -> bool:
    """Whether nobody carries a pending service out any more.

    Services of ours say so by their heartbeats.  Those of real Hudi may have no sign of life: of them only the age of their
    newest instant file tells, by the store's time, and they are waited for longer.  Their request time tells nothing, for a plan
    may wait for long before somebody begins it.
    """
    if liveness.is_alive(context.storage, context.env, instant.request_time, settings.heartbeats):
        return False
    if last_heartbeat_ms(context.storage, instant.request_time) is not None:
        return True
    newest = context.storage.stat(context.timeline.path(instant))
    patience_ms = FOREIGN_EXPIRY_FACTOR * settings.heartbeats.expiry_ms
    return newest is not None and context.env.now_ms() - newest.modified_ms > patience_ms


def drop_plan(context: TableContext, settings: CommitSettings, request_time: str, action: Action) -> bool:
    """Drop a pending plan: what a dead attempt left of it is removed, and the plan.  False when it is gone already.

    Raises PlanTaken when a living process carries it out, TableState for a table that has another version by now.
    """
    rollback_failed_attempt(context, request_time, action, settings)
    with context.locked(settings.lock_wait_ms) as held:
        timeline = held.timeline.load()
        found = [i for i in timeline.pending(action) if i.request_time == request_time]
        if not found:
            return False
        check_same_version(held)
        if found[0].state is State.INFLIGHT or liveness.is_alive(context.storage, context.env, request_time, settings.heartbeats):
            raise PlanTaken(
                f"{action} {request_time} of {context.storage.uri} is being carried out; stop that process first",
                "another process carries it out",
            )
        if action is not Action.CLUSTERING or not partitions_with_consistent_hashing(held):
            held.timeline.remove_pending(request_time, action, State.REQUESTED)
            liveness.remove_heartbeat(held.storage, request_time)
            return True
        # Under the lock no write completes that has left files for the resize.
        begin_drop(held, timeline, found[0], settings)
    finish_pending_rollbacks(context, settings, context.timeline.load())
    return True


def drop_orphaned_plan(context: TableContext, settings: CommitSettings, instant: Instant, *, never: bool = False) -> bool:
    """Drop a pending plan that nobody will carry out; False when somebody may, and it stays.

    Such is one whose process died after it had begun, and one that can never run (never).
    """
    if not never and not is_plan_orphaned(context, instant, settings):
        return False
    if liveness.is_alive(context.storage, context.env, instant.request_time, settings.heartbeats):
        # Whoever carries it out finds out by itself, and need not be told by each writer in a turn at the lock.
        return False
    try:
        drop_plan(context, settings, instant.request_time, instant.action)
    except PlanTaken:
        return False
    return True


@contextmanager
def started(locked_context: TableContext, heartbeat: WriterHeartbeat) -> Iterator[None]:
    """Start a heartbeat under the lock, for what the block publishes; it stops when that fails."""
    # The heartbeat goes on when the lock has been given back, so it does not pass through the storage of the held table.
    locked_context.lock.check()
    heartbeat.start()
    try:
        yield
    except BaseException as error:
        # Where the store did not answer, the file may stand there; then the heartbeat says that this attempt is dead.
        heartbeat.stop(delete=isinstance(error, TableState))
        raise
