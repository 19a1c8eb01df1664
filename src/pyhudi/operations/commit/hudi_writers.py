"""Waiting for writers that cannot wait for us.

A write of ours that loses is planned again by itself, within a fraction of a second.  The real Hudi's takes seconds from its
request to its commit, fails when anybody has committed to its file groups meanwhile, and starts from nothing: beside a few busy
writers of ours it would never land.  So a write that is about to commit lets those go first that were requested before it, that
are not ours, that live, and that change its file groups or have not said yet which they change.

It waits once, for a limited time, and holds no lock meanwhile.

Nor does a write of ours commit over one that shows itself late: the real Hudi takes its instant's time first, puts the instant on
the timeline a while after, and reads then what it builds on.  What builds on a commit and bears an older time would lie below it,
unseen by every reader.  So our write is planned again, and is then the newer one that waits.

What this does not do: nothing of the kind among our own writers, whose instant and plan are made together.
"""

from __future__ import annotations

from collections.abc import Set

from pyhudi.errors import CorruptData, WriteConflict
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Instant, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.planning.conflicts import FileGroupId
from pyhudi.storage.heartbeats import heartbeat_expired, heartbeat_path
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LONGEST_WAIT_MS = 15_000
_PAUSE_MS = 250


def wait_for_foreign_writers(
    context: TableContext, settings: CommitSettings, requested_on: Timeline, own_time: str, groups: Set[FileGroupId] | None
) -> None:
    """Wait while a living write of another kind of writer, older than ours, may be about to commit to the same file groups.

    requested_on: the timeline when ours was requested.  own_time: its request time.  groups: what it changes;
    None where every older write counts.
    """
    older = [
        i for i in requested_on.pending_writes() if i.request_time < own_time and _is_live_foreign_write(context, settings, i)
    ]
    deadline_ms = context.env.monotonic_ms() + _LONGEST_WAIT_MS
    while older and context.env.monotonic_ms() < deadline_ms:
        now = {i.request_time: i for i in context.timeline.load().pending_writes()}
        older = [now[i.request_time] for i in older if i.request_time in now]
        older = [i for i in older if _is_live_foreign_write(context, settings, i) and _may_share(context, i, groups)]
        if older:
            context.env.sleep_ms(_PAUSE_MS)


def reject_late_foreign_writers(
    context: TableContext,
    settings: CommitSettings,
    requested_on: Timeline,
    current_timeline: Timeline,
    own_time: str,
    groups: Set[FileGroupId] | None,
) -> None:
    """Raises WriteConflict where a living write of another kind of writer, with an older time, has come since ours was requested
    and may build on what we are about to commit.  current_timeline: the timeline under the lock; the others as of
    `wait_for_foreign_writers`.
    """
    known = {i.request_time for i in requested_on.instants}
    late = [i for i in current_timeline.pending_writes() if i.request_time < own_time and i.request_time not in known]
    late = [i for i in late if _is_live_foreign_write(context, settings, i) and _may_share(context, i, groups)]
    if late:
        raise WriteConflict(
            f"instant {own_time} of {context.storage.uri} is newer than {late[0]}, which another kind of writer has put on the "
            "timeline meanwhile and may still plan; plan the write again",
            instants=(late[0].request_time,),
        )


def _is_live_foreign_write(context: TableContext, settings: CommitSettings, instant: Instant) -> bool:
    """Whether a write is not ours and lives: real Hudi's heartbeats are empty."""
    if context.storage.read(heartbeat_path(instant.request_time)) != b"":
        return False
    return not heartbeat_expired(context.storage, instant.request_time, context.env.now_ms(), settings.heartbeats)


def _may_share(context: TableContext, instant: Instant, groups: Set[FileGroupId] | None) -> bool:
    """Whether a pending write says that it changes one of the groups, or does not say yet what it changes."""
    if groups is None:
        return True
    data = context.timeline.read_state(instant.request_time, instant.action, State.INFLIGHT)
    if not data:
        return True
    try:
        stats = CommitMetadata.decode(data).partition_to_write_stats
    except CorruptData:
        return True
    return any((partition, stat.file_id or "") in groups for partition, found in stats.items() for stat in found)
