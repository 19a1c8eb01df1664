"""Load the state of cleans and savepoints from the timeline: the last clean, pending clean plans, and savepointed files.

Source: docs/formats/writing.md, "Cleaning".
"""

from __future__ import annotations

from pyhudi.errors import CorruptData
from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.paths import file_name
from pyhudi.planning.cleaning import LastClean
from pyhudi.table.table_context import TableContext
from pyhudi.table.tags import read_savepoint
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore


def load_last_clean(store: TimelineStore, timeline: Timeline) -> LastClean | None:
    """Load the newest completed clean, or None. A completed file without content does not count."""
    cleans = (load_clean(store, instant) for instant in reversed(timeline.completed(Action.CLEAN)))
    return next((clean for clean in cleans if clean is not None), None)


def load_clean(store: TimelineStore, instant: Instant) -> LastClean | None:
    """Load a completed clean, or None if its file has no content."""
    data = store.read(instant)
    if not data:
        return None
    with store.errors_with_path(instant):
        return LastClean.of(instant, CleanMetadata.decode(data))


def load_deleted_files(context: TableContext, clean: Instant) -> dict[str, tuple[str, ...]]:
    """Load the names of the files that a clean deleted, or is about to delete, by partition.

    They include files that were missing when the clean reached them: an earlier attempt, which died, had deleted them.
    """
    store = context.timeline
    if clean.is_completed:
        data = store.read(clean)
        with store.errors_with_path(clean):
            parts = CleanMetadata.decode(data).partition_metadata if data else {}
        return {
            path: tuple(map(file_name, (*part.success_delete_files, *part.failed_delete_files))) for path, part in parts.items()
        }
    plan = load_pending_plan(context, clean)
    planned = {} if plan is None else plan.file_paths_to_be_deleted_per_partition or {}
    return {path: tuple(file_name(info.file_path) for info in infos if info.file_path) for path, infos in planned.items()}


def load_savepointed_files(store: TimelineStore, timeline: Timeline) -> frozenset[str]:
    """Load the names of all files that completed savepoints retain."""
    names: set[str] = set()
    for instant in timeline.completed(Action.SAVEPOINT):
        for partition in read_savepoint(store, instant).partition_metadata.values():
            names.update(partition.savepoint_data_file)
    return frozenset(names)


def load_pending_plan(context: TableContext, pending: Instant) -> CleanerPlan | None:
    """Load the plan of a pending clean; None if it is unreadable and nothing has been deleted yet.

    Raises:
        CorruptData: A clean that has begun has no readable plan.
    """
    store = context.timeline
    failure: CorruptData | None = None
    for state in (State.REQUESTED, State.INFLIGHT):
        data = store.read_state(pending.request_time, Action.CLEAN, state)
        if not data:
            continue
        try:
            return CleanerPlan.decode(data)
        except CorruptData as error:
            failure = error.with_path(context.storage.absolute(store.path(Instant(pending.request_time, Action.CLEAN, state))))
    if pending.state is State.REQUESTED:
        return None
    raise failure or CorruptData("a pending clean has no plan").with_path(context.storage.absolute(store.path(pending)))
