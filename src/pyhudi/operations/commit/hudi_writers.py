"""Fairness towards concurrent writers of Apache Hudi, which do not retry after a conflict.

A PyHudi write that loses a conflict is planned again within a fraction of a second. A Hudi write takes seconds from its
request to its commit, fails when another writer has committed to its file groups, and starts from scratch. Next to a
few busy PyHudi writers it would never commit. So before committing, a PyHudi write waits for other writes that satisfy
all of these conditions: they were requested earlier, are not from PyHudi, are alive, and change the same file groups or
have not yet reported which file groups they change.

It waits once, for a limited time, without holding the lock.

A PyHudi write also does not commit over a Hudi write that appears late. Hudi first takes its instant time, then puts
the instant on the timeline, and only then reads the state that it builds on. If it built on the PyHudi commit with an
older instant time, its changes would be ordered before that commit, and no reader would see them. So the PyHudi write
is planned again, gets the newer instant time, and waits.

PyHudi writers do not wait for each other: their instant and their plan are created together.

A clustering that Hudi runs does not check whether a write has changed its file groups since its plan, unless writers
take precedence on both sides. It would replace the groups without the write. So a write conflicts with such a
clustering once it is inflight, and removes a plan that no process has started.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from pyhudi.errors import CorruptData, WriteConflict
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Instant, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.touched_file_groups import clustering_groups
from pyhudi.planning.conflicts import FileGroupId
from pyhudi.storage.heartbeats import heartbeat_expired, heartbeat_path
from pyhudi.storage.liveness import is_alive
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LONGEST_WAIT_MS = 15_000
_PAUSE_MS = 250


def wait_for_foreign_writers(
    context: TableContext, settings: CommitSettings, requested_on: Timeline, own_time: str, groups: Set[FileGroupId] | None
) -> None:
    """Wait while a live, older write of Hudi may be about to commit to the same file groups.

    Args:
        requested_on: The timeline when this write was requested.
        own_time: Request time of this write.
        groups: File groups that this write changes; None waits for every older write.
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
    """Reject the commit if an older, live write of Hudi appeared on the timeline after this write was requested.

    Args:
        requested_on: The timeline when this write was requested.
        current_timeline: The timeline under the lock.
        own_time: Request time of this write.
        groups: File groups that this write changes; None counts every older write.

    Raises:
        WriteConflict: The other write may build on the commit that this write is about to publish.
    """
    known = {i.request_time for i in requested_on.instants}
    late = [i for i in current_timeline.pending_writes() if i.request_time < own_time and i.request_time not in known]
    late = [i for i in late if _is_live_foreign_write(context, settings, i) and _may_share(context, i, groups)]
    if late:
        raise WriteConflict(
            f"instant {own_time} of {context.storage.uri} is newer than {late[0]}, which another kind of writer "
            "added to the timeline "
            "concurrently and may still be planning; plan the write again",
            instants=(late[0].request_time,),
        )


def unchecked_clusterings(context: TableContext, settings: CommitSettings, pending: Iterable[Instant]) -> tuple[Instant, ...]:
    """Return the running clusterings that would replace their file groups without a write to them that commits first."""
    if settings.prefers_writers:
        return ()
    return tuple(i for i in pending if i.state is State.INFLIGHT and not _is_run_by_pyhudi(context, settings, i))


def drop_overtaken_clusterings(
    locked_context: TableContext, settings: CommitSettings, pending: Iterable[Instant], groups: Set[FileGroupId]
) -> None:
    """Remove the plans of clusterings that no process has started, and whose file groups a write is about to change.

    PyHudi does not execute such a plan; Hudi would.

    Args:
        locked_context: The table while the caller holds its lock.
        settings: Commit settings.
        pending: Pending clusterings.
        groups: File groups that the write changes.

    Raises:
        WriteConflict: Hudi has started the plan since the timeline was loaded.
    """
    if settings.prefers_writers:
        return
    store = locked_context.timeline
    for plan in pending:
        content = store.read_state(plan.request_time, plan.action, State.REQUESTED) if plan.state is State.REQUESTED else None
        if not content or not groups & clustering_groups(content):
            continue
        store.remove_pending(plan.request_time, plan.action, State.REQUESTED)
        inflight = Instant(plan.request_time, plan.action, State.INFLIGHT)
        if locked_context.storage.stat(store.path(inflight)) is not None:
            # Hudi starts a plan without the lock, and only while its requested file exists.
            locked_context.storage.put_if_absent(store.path(plan), content)
            raise WriteConflict(
                f"{plan} of {locked_context.storage.uri} was started concurrently and replaces file groups of the write; "
                "plan the write again",
                instants=(plan.request_time,),
            )


def _is_run_by_pyhudi(context: TableContext, settings: CommitSettings, instant: Instant) -> bool:
    """Return True if a live process of PyHudi runs a pending service, recognized by a heartbeat with content."""
    content = context.storage.read(heartbeat_path(instant.request_time))
    return bool(content) and is_alive(context.storage, context.env, instant.request_time, settings.heartbeats)


def _is_live_foreign_write(context: TableContext, settings: CommitSettings, instant: Instant) -> bool:
    """Return True for a live write of Hudi, recognized by an empty heartbeat file."""
    if context.storage.read(heartbeat_path(instant.request_time)) != b"":
        return False
    return not heartbeat_expired(context.storage, instant.request_time, context.env.now_ms(), settings.heartbeats)


def _may_share(context: TableContext, instant: Instant, groups: Set[FileGroupId] | None) -> bool:
    """Return True if a pending write changes one of the groups, or has not reported its groups yet."""
    if groups is None:
        return True
    data = context.timeline.read_state(instant.request_time, instant.action, State.INFLIGHT)
    if not data:
        return True
    try:
        stats = CommitMetadata.decode(data).partition_to_write_stats
    except CorruptData:
        return True
    return any(
        (partition, stat.file_id or "") in groups for partition, partition_stats in stats.items() for stat in partition_stats
    )
