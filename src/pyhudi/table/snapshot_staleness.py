"""Is a state that was loaded a while ago still whole: is every file that it counts in its place?

A state is a timeline, and files that are listed when they are asked for, perhaps much later.  Between the two a clean may take
away what the timeline counts; what later commits put in its place does not count for it, so records would be missing without a
word.  So whoever has listed files looks at the timeline once more:

    rolled back   a completed write that the state counts is gone: restored or rolled back
    moved on      the newest write that the state counts was archived: nobody can tell what was cleaned since.  A savepointed
                  commit stays when later ones are archived, and so do all files that a state ending with it counts
    cleaned       a clean that the state does not know was planned, and it may take what the state counts.  A clean keeps all
                  slices from an earliest instant on and the newest one before it.  That is what the state counts as long as it
                  knows every write before that instant; for a query as of an earlier time, as long as that lies at or after it

A clean that the state knows was planned on an older state, so it leaves the newest slice of every file group that counts here.

Source: docs/formats/writing.md, "Cleaning".
"""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.errors import CorruptData
from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.table.timeline.active_timeline import SLICING_ACTIONS, Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore


@dataclass(frozen=True, slots=True)
class StaleSnapshot:
    """Why files that a state counts may be gone.  instants: request times of what did it."""

    reason: str
    instants: tuple[str, ...]


def find_stale_reason(store: TimelineStore, later_timeline: Timeline, as_of: str | None = None) -> StaleSnapshot | None:
    """What may have taken files that a state counts; None when they are there.

    later_timeline: the state's timeline.  as_of: the request time of a query of an older state.  Lists the timeline, and reads
    the plans of cleans that the state does not know.
    """
    now = store.load()
    if now.instants == later_timeline.instants:
        return None
    return _lost_writes(later_timeline, now) or _lost_files(store, later_timeline, now, as_of)


def _lost_writes(later_timeline: Timeline, current_timeline: Timeline) -> StaleSnapshot | None:
    counted = [i.request_time for i in later_timeline.completed_writes()]
    active = {i.request_time for i in current_timeline.completed_writes()}
    if counted and counted[-1] not in active and current_timeline.is_before_start(counted[-1]):
        return StaleSnapshot(f"{counted[-1]}, its newest write, was archived", (counted[-1],))
    lost = tuple(time for time in counted if time not in active and not current_timeline.is_before_start(time))
    if lost:
        return StaleSnapshot(f"write {lost[-1]} was rolled back", lost)
    known = active.union(i.request_time for i in current_timeline.pending())
    for instant in later_timeline.pending(*SLICING_ACTIONS):
        if instant.request_time not in known and current_timeline.is_before_start(instant.request_time):
            return StaleSnapshot(f"{instant.action} {instant.request_time} ended and was archived", (instant.request_time,))
    return None


def _lost_files(
    store: TimelineStore, later_timeline: Timeline, current_timeline: Timeline, as_of: str | None
) -> StaleSnapshot | None:
    known = {i.request_time for i in later_timeline.instants if i.action is Action.CLEAN}
    counted = {i.request_time for i in later_timeline.completed_writes()}
    for clean in current_timeline.instants:
        if clean.action is not Action.CLEAN or clean.request_time in known:
            continue
        earliest = load_earliest_retained(store, clean)
        if earliest is None:
            continue
        unknown = any(i.request_time < earliest and i.request_time not in counted for i in current_timeline.completed_writes())
        if not earliest or unknown or (as_of is not None and as_of < earliest):
            return StaleSnapshot(f"clean {clean.request_time} may take files of it", (clean.request_time,))
    return None


def load_earliest_retained(store: TimelineStore, clean: Instant) -> str | None:
    """From which instant on a clean keeps everything, '' where it counts versions of files; None for one without a plan."""
    try:
        plan = store.read_state(clean.request_time, Action.CLEAN, State.REQUESTED)
        if plan:
            found = CleanerPlan.decode(plan).earliest_instant_to_retain
            return found.timestamp if found else ""
        if clean.state is State.COMPLETED:
            return CleanMetadata.decode(store.read(clean)).earliest_commit_to_retain.strip()
    except CorruptData as error:
        raise error.with_path(store.storage.absolute(store.path(clean))) from error
    return None
