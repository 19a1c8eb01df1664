"""Decide whether the process that runs a pending action is dead, so that another process may take the action over.

    write                       dead if its heartbeat is missing or expired. Hudi writes without a heartbeat only as the
                                single writer of a table
    rollback of PyHudi          always dead: several processes may complete it at once
    any other action            with a heartbeat: dead if it has expired
    restore of PyHudi           without a heartbeat: dead
    of Hudi, no heartbeat       dead if its files show no activity for a long time: the files of its instant on the
                                timeline, its markers, and the data files that carry its instant time; of a restore,
                                every file of the timeline

Modification times come from the clock of the store, and are compared with the local clock. The request time does not
count, since a plan may wait long before it is started.

Source: docs/formats/timeline.md, "Heartbeats and failed writes".
"""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.errors import CorruptData
from pyhudi.format.avro.container import is_sealed
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import parse_data_file_instant
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.options.write_options import SERVICE_EXPIRY_MS
from pyhudi.storage import liveness
from pyhudi.storage.heartbeats import heartbeat_expired, heartbeat_path, last_heartbeat_ms, list_heartbeats
from pyhudi.storage.markers import Markers
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


def is_action_dead(context: TableContext, instant: Instant, settings: CommitSettings) -> bool:
    """Return True if no process runs a pending action."""
    if liveness.is_alive(context.storage, context.env, instant.request_time, settings.heartbeats):
        return False
    if not is_foreign(context, instant):
        return True
    since_ms = context.env.now_ms() - settings.service_expiry_ms
    return all(modified_ms <= since_ms for modified_ms in _activity_ms(context, instant))


def is_foreign(context: TableContext, instant: Instant) -> bool:
    """Return True for a pending service, rollback or restore of Hudi: it has no heartbeat.

    Rollbacks of PyHudi, and its restores that have ended, have none either; their plans have a checksum. A restore whose
    plan is unreadable counts as one of Hudi.
    """
    if instant.action.is_write or last_heartbeat_ms(context.storage, instant.request_time) is not None:
        return False
    if instant.action not in (Action.ROLLBACK, Action.RESTORE):
        return True
    plan = context.timeline.read_state(instant.request_time, instant.action, State.REQUESTED)
    try:
        return plan is not None and not is_sealed(plan)
    except CorruptData:
        # Neither can execute such a rollback, see `rollback`; Hudi may just be writing the plan of a restore.
        return instant.action is Action.RESTORE


def running_in_hudi(context: TableContext, timeline: Timeline, settings: CommitSettings) -> tuple[str, ...]:
    """Describe the writes, services and rollbacks that a live process of Hudi may be running.

    A write of Hudi has a heartbeat before it is on the timeline.
    """
    storage, now_ms = context.storage, context.env.now_ms()
    writes = [
        f"write {time}"
        for time in list_heartbeats(storage)
        if storage.read(heartbeat_path(time)) == b"" and not heartbeat_expired(storage, time, now_ms, settings.heartbeats)
    ]
    started = [i for i in timeline.pending() if i.state is State.INFLIGHT and is_foreign(context, i)]
    return (*writes, *(f"{i.action} {i.request_time}" for i in started if not is_action_dead(context, i, settings)))


def runner(context: TableContext, instant: Instant) -> str:
    """Describe the process that runs a started plan, for messages."""
    if is_foreign(context, instant):
        return f"a process of Hudi started it and may be running it (without heartbeat, see {SERVICE_EXPIRY_MS})"
    return "another process is running it"


def is_run_by_hudi(metadata_context: TableContext, compaction: Instant, settings: CommitSettings) -> bool:
    """Return True if Hudi may be running a pending compaction of the metadata table.

    PyHudi compacts a metadata table under the lock of the table, without heartbeat and markers. Markers are those of Hudi.
    """
    has_markers = any(
        True for _ in metadata_context.storage.walk(Markers(metadata_context.storage, compaction.request_time).folder)
    )
    return has_markers and not is_action_dead(metadata_context, compaction, settings)


def is_plan_orphaned(context: TableContext, instant: Instant, settings: CommitSettings) -> bool:
    """Return True if a process started a pending plan and has died.

    A plan counts as started if it is inflight or has a heartbeat.
    """
    begun = instant.state is State.INFLIGHT or last_heartbeat_ms(context.storage, instant.request_time) is not None
    return begun and is_action_dead(context, instant, settings)


def is_written_without_heartbeat(context: TableContext, write: Instant, settings: CommitSettings) -> bool:
    """Return True if files of a pending write are as new as a heartbeat of a live writer, and it has no heartbeat.

    Its writer has just failed, or is Hudi as the single writer of a table.
    """
    since_ms = context.env.now_ms() - settings.heartbeats.expiry_ms
    if last_heartbeat_ms(context.storage, write.request_time) is not None:
        return False
    return any(modified_ms > since_ms for modified_ms in _activity_ms(context, write))


def _activity_ms(context: TableContext, instant: Instant) -> Iterator[int]:
    """Yield when files of an action were last modified, the cheapest to look up first."""
    storage = context.storage
    if instant.action is Action.RESTORE:
        # It rolls back instants, each with files of its own; nothing else begins during a restore.
        yield from (info.modified_ms for info in context.timeline.listed())
    for state in State:
        if state <= instant.state:
            info = storage.stat(context.timeline.path(Instant(instant.request_time, instant.action, state)))
            if info is not None:
                yield info.modified_ms
    for marker in storage.walk(Markers(storage, instant.request_time).folder):
        yield marker.modified_ms
    if instant.action.is_service and instant.state is State.INFLIGHT:
        # The plan of a log compaction or clustering names file groups; the new files may have other names.
        listing = DirectoryListing(storage)
        for files in listing.files(listing.partitions()).values():
            yield from (info.modified_ms for info in files if parse_data_file_instant(info.name) == instant.request_time)
