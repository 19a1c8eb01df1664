"""Savepoints: protect the files of a completed write from cleaning, so that the table can be restored to it.

    create   lock: write `<t>.savepoint.inflight`; list the files of the slices as of t; write `<t>_<c>.savepoint` with
             their names; unlock
    delete   lock: delete the completed file, then the inflight one; unlock

t is the request time of the write itself. Creation holds the lock while it lists, so that no clean can be requested
between the listing and the savepoint.

Source: docs/formats/writing.md, "Savepoint and restore".
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.errors import InstantNotFound, TableState
from pyhudi.format.actions.savepoint_metadata import SavepointMetadata, SavepointPartitionMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.paths import file_name
from pyhudi.operations.commit.begin_checks import check_no_pending_restore, check_same_version
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.instant_times import new_instant_time
from pyhudi.operations.commit.results import SavepointResult
from pyhudi.operations.services.clean_state import load_clean, load_pending_plan
from pyhudi.planning.instant_arguments import completion_time_hint
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.tags import load_tags, resolve_tag, with_tag
from pyhudi.table.timeline.active_timeline import Timeline


@observed("savepoint")
def run_savepoint(
    context: TableContext,
    settings: CommitSettings,
    *,
    instant: str | None = None,
    user: str = "",
    comments: str = "",
    tag: str | None = None,
) -> SavepointResult:
    """Create a savepoint of a completed write.

    Args:
        instant: Request time of the write, None for the newest.
        user: Author.
        tag: A name for it (`table.tags`).

    Raises:
        InstantNotFound: The active timeline has no such completed write.
        TableState: It is savepointed already, another savepoint has the tag, files of that state may have been cleaned,
            a restore is pending, or the table's version changed since it was opened.
        InvalidRequest: The tag is not a valid name.
    """
    if tag is not None:
        comments = with_tag(tag, comments)
    check_writable(context, retains_indexes=False)
    with context.locked(settings.lock_wait_ms) as locked:
        check_same_version(locked)
        store = locked.timeline
        snapshot = load_snapshot(locked)
        timeline = snapshot.timeline
        check_no_pending_restore(context, timeline, "creating a savepoint")
        write = completed_write(context, timeline, instant)
        time = write.request_time
        if any(i.request_time == time for i in timeline.completed(Action.SAVEPOINT)):
            raise TableState(f"instant {time} of {context.storage.uri} has a savepoint already")
        if tag is not None and (tagged := load_tags(context, timeline).get(tag)) is not None:
            raise TableState(
                f"the savepoint of instant {tagged} of {context.storage.uri} has the tag {tag!r}: use another name, or delete it"
            )
        check_retained(context, timeline, time)
        slices = snapshot.slices(as_of=time)
        names = {partition: tuple(sorted(_names(file_slices))) for partition, file_slices in slices.items()}
        _refuse_files_of_pending_cleans(context, timeline, {name for group in names.values() for name in group}, time)
        inflight = Instant(time, Action.SAVEPOINT, State.INFLIGHT)
        if inflight not in timeline.instants:
            store.start(Instant(time, Action.SAVEPOINT, State.REQUESTED))
        metadata = SavepointMetadata(
            savepointed_by=user,
            savepointed_at=context.env.now_ms(),
            comments=comments,
            partition_metadata={
                partition: SavepointPartitionMetadata(partition, file_slices) for partition, file_slices in names.items()
            },
        )
        completion_time = new_instant_time(context, timeline, settings)
        done = store.complete(inflight, Action.SAVEPOINT, completion_time, metadata.encode(context.env.token_bytes(16)))
    return SavepointResult(
        instant=time,
        completion_time=done.completion_time or "",
        user=user,
        comments=comments,
        partitions=len(names),
        files=sum(len(file_slices) for file_slices in names.values()),
        size_bytes=sum(slice_.size_bytes for file_slices in slices.values() for slice_ in file_slices),
    )


def run_delete_savepoint(context: TableContext, settings: CommitSettings, instant: str) -> None:
    """Delete a savepoint, or the remains of its unfinished creation. Its files stay until a clean deletes them.

    Args:
        instant: Request time of the savepointed write, or its tag.

    Raises:
        InstantNotFound: There is no such savepoint.
        TableState: The table's version changed since it was opened.
    """
    instant = resolve_tag(context, instant)
    check_writable(context, retains_indexes=False)
    with context.locked(settings.lock_wait_ms) as locked:
        check_same_version(locked)
        store = locked.timeline
        savepoints = [i for i in store.load_files() if i.request_time == instant and i.action is Action.SAVEPOINT]
        if not savepoints:
            raise InstantNotFound(f"the timeline of {context.storage.uri} has no savepoint of instant {instant}")
        for savepoint in sorted(savepoints, key=lambda i: -i.state):
            locked.storage.delete([store.path(savepoint)])


def completed_write(context: TableContext, timeline: Timeline, instant: str | None) -> Instant:
    """Return the completed write with a request time, or the newest. Raises InstantNotFound."""
    writes = timeline.completed_writes()
    candidates = [i for i in writes if instant is None or i.request_time == instant]
    if not candidates:
        missing = "no completed write" if instant is None else f"no completed write requested at {instant}"
        hint = "" if instant is None else completion_time_hint(timeline, instant)
        raise InstantNotFound(f"the active timeline of {context.storage.uri} has {missing}{hint}")
    return candidates[-1]


def check_retained(context: TableContext, timeline: Timeline, time: str) -> None:
    """Raise TableState if files of the state as of a request time may have been cleaned, or are about to be."""
    for instant in timeline.instants:
        if instant.action is not Action.CLEAN:
            continue
        if instant.is_completed:
            clean = load_clean(context.timeline, instant)
            earliest = "" if clean is None else clean.earliest_retained or clean.last_completed
        else:
            plan = load_pending_plan(context, instant)
            retained = plan.earliest_instant_to_retain if plan else None
            earliest = "" if plan is None else retained.timestamp if retained else plan.last_completed_commit_timestamp
        if time < earliest:
            raise TableState(
                f"files of instant {time} of {context.storage.uri} may be missing: clean {instant.request_time} "
                f"retained only files needed from {earliest} on"
            )


def _names(slices: Iterable[FileSlice]) -> Iterable[str]:
    for slice_ in slices:
        if slice_.base is not None:
            yield file_name(slice_.base.path)
        for log in slice_.logs:
            yield file_name(log.path)


def _refuse_files_of_pending_cleans(context: TableContext, timeline: Timeline, names: set[str], time: str) -> None:
    for instant in timeline.pending(Action.CLEAN):
        plan = load_pending_plan(context, instant)
        for infos in (plan.file_paths_to_be_deleted_per_partition or {}).values() if plan else ():
            if any(file_name(info.file_path or "") in names for info in infos):
                raise TableState(
                    f"clean {instant.request_time} of {context.storage.uri} is about to delete files of instant {time}; "
                    "complete the clean, and create a savepoint of a later instant"
                )
