"""What processes that died leave beside the timeline: markers, heartbeats, and temporary files of documents.

Source: docs/formats/timeline.md, "Heartbeats and failed writes".
"""

from __future__ import annotations

from pyhudi.format.instants import Action
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
from pyhudi.operations.action.settings import CommitSettings
from pyhudi.storage import liveness
from pyhudi.storage.heartbeats import list_heartbeats
from pyhudi.storage.locks import QUEUE_FOLDER
from pyhudi.storage.markers import Markers, marked_instants
from pyhudi.table.context import TableContext


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
    for request_time in orphaned:
        Markers(context.storage, request_time).delete()
    silent = [
        request_time
        for request_time in beating
        if request_time not in pending and not liveness.is_alive(context.storage, context.env, request_time, settings.heartbeats)
    ]
    for request_time in silent:
        liveness.forget(context.storage, request_time)
    return bool(orphaned or silent)


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
    before_ms = context.env.now_ms() - settings.heartbeats.patience_ms
    for folder in folders:
        context.storage.sweep_unfinished(folder, before_ms)
