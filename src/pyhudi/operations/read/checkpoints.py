"""Checkpoints of incremental readers: completion times up to which everything was read, from which they continue.

A restore, or a rollback of a completed commit, is not part of any range of commits. A reader that had read what was
rolled back would retain rows that the table lacks, or lack rows that reappeared. This is detected by the checkpoint: no
instant completed at that time.

Source: docs/incremental-queries-and-cdc.md, "After a restore or rollback".
"""

from __future__ import annotations

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.actions.restore_metadata import RestorePlan
from pyhudi.format.actions.rollback_metadata import RollbackPlan
from pyhudi.format.instants import Action, Instant, State, format_instant_time, parse_instant_time
from pyhudi.metadata_table.reader.metadata_reader import rolled_back_instants
from pyhudi.planning.incremental_query import CompletionRange, RequestRange
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.timeline.archived_timeline import Bounds
from pyhudi.table.timeline.timeline_store import TimelineStore

# Maximum duration of a write that can be found in the history by its completion time; history files are ordered by
# request time.
_LONGEST_WRITE_MS = 7 * 24 * 3600 * 1000


def earliest_request(completed: str, store: TimelineStore) -> str | None:
    """Return the earliest request time of instants that may have completed at a time; None if unknown."""
    if completed < "1971":
        return None
    try:
        return format_instant_time(parse_instant_time(completed, store.zone) - _LONGEST_WRITE_MS, store.zone)
    except InvalidRequest:
        return None


def check_checkpoint_not_restored(snapshot: Snapshot, range_: CompletionRange | RequestRange, *, by_stream: bool = False) -> None:
    """Check that nothing before the start of a range was rolled back after the reader passed it.

    Args:
        by_stream: The start is a stream's offset, at which an instant did complete, so that a rollback counts as well.
            Other starts may be any time, and a rollback does not record whether its target had completed; in most cases
            the target had failed.

    Raises:
        TableState: No instant completed at the start, and a later restore has removed, or is about to remove, instants
            requested before it.
    """
    if not isinstance(range_, CompletionRange) or not range_.open_start or range_.start < "1971":
        return
    position, store, timeline = range_.start, snapshot.context.timeline, snapshot.timeline
    if any(instant.completion_time == position for instant in timeline.completed()):
        return
    actions = (Action.ROLLBACK, Action.RESTORE) if by_stream else (Action.RESTORE,)
    # A pending or unfinished restore may have removed the commit's completed file already.
    taking = [i for i in (*timeline.completed(*actions), *timeline.pending(*actions)) if i.request_time > position]
    if timeline.start is not None and position < timeline.start:
        since = earliest_request(position, store)
        if store.history.instants(Bounds(since), Bounds(position, position)):
            return
        taking += [i for i in store.history.instants(Bounds(position)) if i.action in actions and i.state is State.COMPLETED]
    for instant in taking:
        if any(time < position for time in _rolled_back_times(store, instant)):
            raise TableState(
                f"no instant of the table at {snapshot.context.storage.uri} completed at {position}, and "
                f"{instant.action.value} {instant.request_time} has since rolled back instants requested before it: a "
                f"reader that had read up to {position} may have rows that the table lacks. Start again from a "
                "snapshot, or continue after an older commit that exists."
            )


def _rolled_back_times(store: TimelineStore, instant: Instant) -> tuple[str, ...]:
    """Return the request times that an instant rolled back, or is about to. For a restore they include its target:
    rollbacks requested after the target, which would report further instants, are removed as well.
    """
    times = rolled_back_instants(store, instant) if instant.is_completed else ()
    if instant.is_completed and instant.action is Action.ROLLBACK:
        return times
    requested = Instant(instant.request_time, instant.action, State.REQUESTED)
    data = store.read_state(instant.request_time, instant.action, State.REQUESTED)
    if not data:
        # Its plan was never written, so it has done nothing.
        return times
    with store.errors_with_path(requested):
        if instant.action is Action.ROLLBACK:
            planned = RollbackPlan.decode(data).instant_to_rollback
            return (*times, planned.commit_time) if planned is not None else times
        plan = RestorePlan.decode(data)
    savepoint = plan.savepoint_to_restore_timestamp
    return (*times, *(info.commit_time for info in plan.instants_to_rollback), *(() if savepoint is None else (savepoint,)))
