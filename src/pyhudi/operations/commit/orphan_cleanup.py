"""Remove orphans of dead processes: markers, heartbeats, side files, temporary files and staged rows.

Other writers begin at any time. So each function first lists the files and then loads the timeline: an instant is
requested before its writer creates any file, so every listed file with a live writer has its instant on that timeline.

Source: docs/formats/timeline.md, "Heartbeats and failed writes".
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.errors import CorruptData
from pyhudi.format.actions.archived_instants import COMMIT_LIKE, decode_completed
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, parse_action
from pyhudi.format.names import parse_base_file
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
from pyhudi.storage.base import Storage
from pyhudi.storage.heartbeats import list_heartbeats
from pyhudi.storage.locks import AUDIT_FOLDER, QUEUE_FOLDER
from pyhudi.storage.markers import Markers, marked_instants
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore
from pyhudi.tasks.staged_writes import sweep_staged


def delete_unreported_files(storage: Storage, instant_time: str, metadata: CommitMetadata) -> None:
    """Delete files of repeated task attempts: they have a marker but no write statistic, and must not become visible."""
    reported = set()
    for stats in metadata.partition_to_write_stats.values():
        for stat in stats:
            reported.add(stat.path)
            reported.update(stat.cdc_stats or {})
    lost = [path for path, _ in Markers(storage, instant_time).list() if path not in reported]
    if lost:
        storage.delete(lost)


def delete_files_of_attempts(context: TableContext, request_time: str, partitions: Iterable[str]) -> None:
    """Delete the base files that failed attempts at a plan left in some partitions, with or without markers.

    Hudi's binary copy creates no markers, so a rollback does not find its files. The caller has claimed the plan, and has
    not written a file.
    """
    storage = context.storage
    for partition in partitions:
        names = ((info.path, parse_base_file(info.name)) for info in storage.list(partition).files)
        storage.delete([path for path, name in names if name is not None and name.instant_time == request_time])


def remove_leftovers(context: TableContext, settings: CommitSettings) -> bool:
    """Remove orphaned markers and heartbeats: those without a pending instant, because their writer or rollback died at
    the very end.

    They are listed before the timeline is loaded. A write is on the timeline before its first marker exists. A
    heartbeat starts slightly earlier than its instant, and then its writer is alive. An unfinished restore needs its
    markers, so nothing is removed until it has been run again.

    Returns:
        True if there were any.
    """
    marked, beating = marked_instants(context.storage), list_heartbeats(context.storage)
    if not marked and not beating:
        return False
    timeline = context.timeline.load()
    if timeline.pending(Action.RESTORE):
        # An unfinished restore uses the markers of instants that it removed to find files with another instant time.
        return False
    pending = {instant.request_time for instant in timeline.pending()}
    orphaned = [request_time for request_time in marked if request_time not in pending]
    if orphaned:
        with context.locked(settings.lock_wait_ms) as locked:
            # Under the lock no commit is archived while it is looked up, and no restore begins.
            now = locked.timeline.load()
            pending = {instant.request_time for instant in now.pending()}
            if now.pending(Action.RESTORE):
                return False
            for request_time in orphaned:
                if request_time not in pending:
                    remove_marked(locked, now, request_time, strict=False)
    silent = [
        request_time
        for request_time in beating
        if request_time not in pending and not liveness.is_alive(context.storage, context.env, request_time, settings.heartbeats)
    ]
    for request_time in silent:
        liveness.remove_heartbeat(context.storage, request_time)
    return bool(orphaned or silent)


def remove_marked(locked_context: TableContext, timeline: Timeline, request_time: str, *, strict: bool) -> int:
    """Remove the markers of an instant that is not pending, after deleting the marked files that no commit reports.

    Those files come from repeated task attempts, or from tasks that were still running when their write was rolled back
    or committed.

    Args:
        locked_context: The table while the caller holds its lock.
        timeline: Its current timeline.
        request_time: The instant.
        strict: Raise CorruptData for a file that is not a marker.

    Returns:
        The number of unreported paths.
    """
    markers = Markers(locked_context.storage, request_time)
    marked = markers.list(in_progress=not strict)
    reported = _reported_files(locked_context, timeline, request_time) if marked else frozenset()
    lost = [path for path, _ in marked if path not in reported]
    locked_context.storage.delete(lost)
    markers.delete()
    return len(lost)


def _reported_files(context: TableContext, timeline: Timeline, request_time: str) -> frozenset[str]:
    """Return the data files that the completed instant reports, active or archived; empty if there is no such instant."""
    store = context.timeline
    active = [i for i in timeline.completed_writes() if i.request_time == request_time]
    if active:
        path, action, data = store.path(active[0]), active[0].action, store.read(active[0])
    else:
        row = store.history.find(request_time, *COMMIT_LIKE)
        if row is None:
            return frozenset()
        path, action, data = store.history.folder, parse_action(row.action), row.metadata or b""
    try:
        metadata = decode_completed(action, data)
    except CorruptData as error:
        raise error.with_path(context.storage.absolute(path)) from error
    if not isinstance(metadata, CommitMetadata):
        return frozenset()
    paths = {stat.path for stat in metadata.write_stats if stat.path}
    for stat in metadata.write_stats:
        paths.update(stat.cdc_stats or {})
    return frozenset(paths)


def sweep_side_files(metadata: TableContext, table: TimelineStore) -> int:
    """Delete orphaned side files: files that dead writers prepared for the metadata table and never committed to it.

    The files of an instant stay while either timeline contains it, pending or completed: the HBase index reads them
    after the commit. Indexes are built under instants that no timeline contains, so their files stay while an indexing
    action is pending. Side files are stored where a table has its markers; Hudi stores the markers of its
    metadata-table delta commits there.

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
    """Remove temporary files that killed writers left in the folders of the timeline, locks and metadata table, and staged
    rows of crashed writes.
    """
    config = context.config
    folders = (
        *(META_FOLDER, config.timeline_path, config.history_path, AUX_FOLDER, INDEX_DEFINITIONS_FOLDER),
        *(
            HEARTBEAT_FOLDER,
            LOCK_FOLDER,
            QUEUE_FOLDER,
            AUDIT_FOLDER,
            join_path(METADATA_FOLDER, META_FOLDER),
            join_path(METADATA_FOLDER, TIMELINE_FOLDER),
        ),
        *(f"{METADATA_FOLDER}/{name}" for name in (*config.metadata_partitions, *config.metadata_partitions_inflight)),
    )
    before_ms = context.env.now_ms() - settings.heartbeats.expiry_ms
    for folder in folders:
        context.storage.sweep_unfinished(folder, before_ms)
    sweep_staged(context.storage, context.env.now_ms())
