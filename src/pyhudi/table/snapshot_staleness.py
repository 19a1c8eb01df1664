"""Detect whether a snapshot refers to files that a clean, rollback or archival has since removed.

A snapshot consists of a timeline, and of files that are listed on demand, perhaps much later. In between a clean may
delete files of the snapshot; the files of later commits that replace them are not part of it, so records would be
missing silently. So the timeline is checked again after every listing:

    rolled back   a completed write of the snapshot is missing: restored or rolled back
    moved on      the newest write of the snapshot was archived: cleans since then are unknown.  A savepointed
                  commit stays when later ones are archived, and so do all files of a snapshot that ends with it
    cleaned       an unknown clean was planned, and it may delete files of the snapshot.  A clean retains all
                  slices from an earliest instant on and the newest one before it.  That covers the snapshot as long as
                  it contains every write before that instant; for time travel, as long as the query's time is at or
                  after it

A clean that the snapshot contains was planned on an older state, so it retains the newest slice of every file group here.

Source: docs/formats/writing.md, "Cleaning".
"""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.table.timeline.active_timeline import SLICING_ACTIONS, Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore


@dataclass(frozen=True, slots=True)
class StaleSnapshot:
    """Why files of a snapshot may be deleted.  instants: request times of the causes."""

    reason: str
    instants: tuple[str, ...]


def find_stale_reason(store: TimelineStore, later_timeline: Timeline, as_of: str | None = None) -> StaleSnapshot | None:
    """Return what may have deleted files of a snapshot; None if the snapshot is current.

    Lists the timeline, and reads the plans of cleans that the snapshot lacks.

    later_timeline: The snapshot's timeline. as_of: The request time of a time travel query.
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
    """The instant from which on a clean retains everything, '' if it retains by file versions; None for one without a plan."""
    with store.errors_with_path(clean):
        plan = store.read_state(clean.request_time, Action.CLEAN, State.REQUESTED)
        if plan:
            earliest = CleanerPlan.decode(plan).earliest_instant_to_retain
            return earliest.timestamp if earliest else ""
        if clean.state is State.COMPLETED:
            return CleanMetadata.decode(store.read(clean)).earliest_commit_to_retain.strip()
    return None
