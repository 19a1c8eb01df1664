"""Positions of readers on the timeline: completion times up to which all was read, from which they go on.

A restore, or a rollback of a completed commit, is no change that a range of commits tells: a reader that had read what was taken
back would keep rows which the table does not have, or lack those that came back.  It is told by its position, which no instant
completes at any more.

Source: docs/incremental-queries-and-cdc.md, "Ranges".
"""

from __future__ import annotations

from pyhudi.errors import CorruptData, InvalidRequest, TableState
from pyhudi.format.actions.restore_metadata import RestorePlan
from pyhudi.format.actions.rollback_metadata import RollbackPlan
from pyhudi.format.instants import Action, Instant, State, format_instant_time, parse_instant_time
from pyhudi.metadata_table.reader.metadata_reader import rolled_back_instants
from pyhudi.planning.incremental_query import CompletionRange, RequestRange
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.timeline.archived_timeline import Bounds
from pyhudi.table.timeline.timeline_store import TimelineStore

# How long a write may have run to be found in the history by when it completed; files of the history are ordered by request time.
_LONGEST_WRITE_MS = 7 * 24 * 3600 * 1000


def earliest_request(completed: str, store: TimelineStore) -> str | None:
    """The earliest request time of what may have completed at a time; None when that cannot be told."""
    if completed < "1971":
        return None
    try:
        return format_instant_time(parse_instant_time(completed, store.zone) - _LONGEST_WRITE_MS, store.zone)
    except InvalidRequest:
        return None


def check_checkpoint_not_restored(snapshot: Snapshot, range_: CompletionRange | RequestRange, *, by_stream: bool = False) -> None:
    """Raises TableState for a range whose start was read before, where nothing completed then, and a restore since has taken back
    what was requested before it, or is about to.

    by_stream: the start is a stream's offset, at which something did complete, so that a rollback since tells as much.  Others
    may name any moment, and a rollback does not say whether what it took back had completed: mostly it had failed.
    """
    if not isinstance(range_, CompletionRange) or not range_.open_start or range_.start < "1971":
        return
    position, store, timeline = range_.start, snapshot.context.timeline, snapshot.timeline
    if any(instant.completion_time == position for instant in timeline.completed()):
        return
    actions = (Action.ROLLBACK, Action.RESTORE) if by_stream else (Action.RESTORE,)
    # One that is under way, or died half-way, may have removed the commit's completed file already.
    taking = [i for i in (*timeline.completed(*actions), *timeline.pending(*actions)) if i.request_time > position]
    if timeline.start is not None and position < timeline.start:
        since = earliest_request(position, store)
        if store.history.instants(Bounds(since), Bounds(position, position)):
            return
        taking += [i for i in store.history.instants(Bounds(position)) if i.action in actions and i.state is State.COMPLETED]
    for instant in taking:
        if any(time < position for time in _taken_back(store, instant)):
            raise TableState(
                f"nothing of the table at {snapshot.context.storage.uri} completed at {position}, and {instant.action.value} "
                f"{instant.request_time} has since taken back what was requested before it: who had read up to {position} "
                "may hold rows that the table lacks. Begin anew from a snapshot, or go on after an older commit that is there"
            )


def _taken_back(store: TimelineStore, instant: Instant) -> tuple[str, ...]:
    """Request times of what it took back, or is about to.  Of a restore also that to which it went back: with what was requested
    later go the rollbacks that would tell of others.
    """
    times = rolled_back_instants(store, instant) if instant.is_completed else ()
    if instant.is_completed and instant.action is Action.ROLLBACK:
        return times
    requested = Instant(instant.request_time, instant.action, State.REQUESTED)
    data = store.read_state(instant.request_time, instant.action, State.REQUESTED)
    if not data:
        # Its plan was never written, and without one nothing is done.
        return times
    try:
        if instant.action is Action.ROLLBACK:
            planned = RollbackPlan.decode(data).instant_to_rollback
            return (*times, planned.commit_time) if planned is not None else times
        plan = RestorePlan.decode(data)
    except CorruptData as error:
        raise error.with_path(store.storage.absolute(store.path(requested))) from error
    kept = plan.savepoint_to_restore_timestamp
    return (*times, *(info.commit_time for info in plan.instants_to_rollback), *(() if kept is None else (kept,)))
