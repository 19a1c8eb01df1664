"""Remove what dead processes leave beside the timeline: markers, heartbeats, side files, and temporary files of documents.

Other writers begin at any time.  So each function lists what there is first and loads the timeline afterwards: an instant is
requested before its writer puts anything aside, so whatever was listed and still has a living writer is on that timeline.

Source: docs/formats/timeline.md, "Heartbeats and failed writes".
"""

from __future__ import annotations

from pyhudi.errors import CorruptData
from pyhudi.format.actions.archived_instants import COMMIT_LIKE, decode_completed
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, parse_action
from pyhudi.format.paths import (
    AUX_FOLDER,
    HEARTBEAT_FOLDER,
    INDEX_DEFINITIONS_FOLDER,
    LOCK_FOLDER,
    META_FOLDER,
    METADATA_FOLDER,
    TIMELINE_FOLDER,
    join_path,
)
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.storage import liveness
from pyhudi.storage.heartbeats import list_heartbeats
from pyhudi.storage.locks import QUEUE_FOLDER
from pyhudi.storage.markers import Markers, marked_instants
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore


def remove_leftovers(context: TableContext, settings: CommitSettings) -> bool:
    """Markers and heartbeats that stand beside no pending instant: their writer or rollback died when all but this was done.

    True when there were any.  A restore that did not finish needs its own, and all stay until it is run again.

    They are listed before the timeline, on which a write stands before its first marker; a heartbeat comes a moment earlier, and
    then its writer lives.
    """
    marked, beating = marked_instants(context.storage), list_heartbeats(context.storage)
    if not marked and not beating:
        return False
    timeline = context.timeline.load()
    if timeline.pending(Action.RESTORE):
        # By the markers of what it has taken off the timeline it finds files that bear another time.
        return False
    pending = {instant.request_time for instant in timeline.pending()}
    orphaned = [request_time for request_time in marked if request_time not in pending]
    if orphaned:
        with context.locked(settings.lock_wait_ms) as held:
            # Under the lock nothing is archived while its commit is looked for, and no restore begins.
            now = held.timeline.load()
            pending = {instant.request_time for instant in now.pending()}
            if now.pending(Action.RESTORE):
                return False
            for request_time in orphaned:
                if request_time not in pending:
                    remove_marked(held, now, request_time, strict=False)
    silent = [
        request_time
        for request_time in beating
        if request_time not in pending and not liveness.is_alive(context.storage, context.env, request_time, settings.heartbeats)
    ]
    for request_time in silent:
        liveness.remove_heartbeat(context.storage, request_time)
    return bool(orphaned or silent)


def remove_marked(locked_context: TableContext, timeline: Timeline, request_time: str, *, strict: bool) -> int:
    """Remove the markers of an instant that is not pending, and before them the marked files that no commit reports; returns how
    many paths those were.

    They are of task attempts that were repeated, or still ran when their write was rolled back or had committed.
    locked_context: the table while the caller holds its lock; timeline: as it stands.  strict: raises CorruptData for what is no
    marker.
    """
    markers = Markers(locked_context.storage, request_time)
    marked = markers.list(in_progress=not strict)
    reported = _reported_files(locked_context, timeline, request_time) if marked else frozenset()
    lost = [path for path, _ in marked if path not in reported]
    locked_context.storage.delete(lost)
    markers.delete()
    return len(lost)


def _reported_files(context: TableContext, timeline: Timeline, request_time: str) -> frozenset[str]:
    """The data files that the completed instant of a request time reports, active or archived; none when there is none."""
    store = context.timeline
    active = [i for i in timeline.completed_writes() if i.request_time == request_time]
    if active:
        where, action, data = store.path(active[0]), active[0].action, store.read(active[0])
    else:
        row = store.history.find(request_time, *COMMIT_LIKE)
        if row is None:
            return frozenset()
        where, action, data = store.history.folder, parse_action(row.action), row.metadata or b""
    try:
        metadata = decode_completed(action, data)
    except CorruptData as error:
        raise error.with_path(context.storage.absolute(where)) from error
    if not isinstance(metadata, CommitMetadata):
        return frozenset()
    paths = {stat.path for stat in metadata.write_stats if stat.path}
    for stat in metadata.write_stats:
        paths.update(stat.cdc_stats or {})
    return frozenset(paths)


def sweep_side_files(metadata: TableContext, table: TimelineStore) -> int:
    """Delete the side files of dead writers: what they put aside for the metadata table and never committed to it.

    The files of an instant stay while either timeline has it, completed or not: index HBASE reads them after the commit.  Indexes
    are built under instants that no timeline has, so theirs stay while an indexing is pending.  Side files lie where a table has
    its markers; the real Hudi has the markers of its delta commits there.

    Args:
        metadata: The metadata table, while the caller holds the lock.
        table: The timeline of its data table.

    Returns:
        The number of instants whose side files were deleted.
    """
    listed = marked_instants(metadata.storage)
    if not listed:
        return 0
    timeline = table.load()
    in_use = {instant.request_time for instant in (*timeline.instants, *metadata.timeline.load().instants)}
    builds_index = bool(timeline.pending(Action.INDEXING))
    dead = [time for time in listed if time not in in_use and not (builds_index and time.startswith(INIT_INSTANT_TIME))]
    for request_time in dead:
        Markers(metadata.storage, request_time).delete()
    return len(dead)


def sweep_unfinished_documents(context: TableContext, settings: CommitSettings) -> None:
    """Remove temporary files that writers left around the timeline and the lock when they were killed within a call."""
    config = context.config
    folders = (
        *(META_FOLDER, config.timeline_path, config.history_path, AUX_FOLDER, INDEX_DEFINITIONS_FOLDER),
        *(
            HEARTBEAT_FOLDER,
            LOCK_FOLDER,
            QUEUE_FOLDER,
            join_path(METADATA_FOLDER, META_FOLDER),
            join_path(METADATA_FOLDER, TIMELINE_FOLDER),
        ),
        *(f"{METADATA_FOLDER}/{name}" for name in (*config.metadata_partitions, *config.metadata_partitions_inflight)),
    )
    before_ms = context.env.now_ms() - settings.heartbeats.expiry_ms
    for folder in folders:
        context.storage.sweep_unfinished(folder, before_ms)
