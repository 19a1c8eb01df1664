"""Check that the table can be read as of a time, considering pending writes and cleans.

A clean by commits or hours records the earliest retained instant. A clean by file versions does not: the files that it
deleted are compared with the file slices as of the time. (Hudi accepts every time that is not before the first active
commit, and returns what is left.) Every clean since the time counts, not only the last: a later clean that retains more
does not bring deleted files back.

Source: docs/formats/reading.md, "Time travel".
"""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.actions.archived_instants import decode_completed
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.instants import Action
from pyhudi.format.names import parse_data_file_group, parse_data_file_instant, parse_log_file
from pyhudi.format.paths import join_path
from pyhudi.operations.services.clean_state import load_clean, load_deleted_files, load_last_clean
from pyhudi.planning.cleaning import LastClean
from pyhudi.planning.time_travel import reason_not_to_travel
from pyhudi.table.snapshot import Snapshot, is_pending_clustering
from pyhudi.table.snapshot_staleness import load_earliest_retained
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS
from pyhudi.table.timeline.archived_timeline import Bounds


def check_as_of(snapshot: Snapshot, time: str) -> None:
    """Raise TableState if the table cannot be read as of a request time."""
    reason = _reason(snapshot, time)
    if reason is not None:
        raise TableState(f"the table at {snapshot.context.storage.uri} cannot be read as of {time}: {reason}")


def check_not_before_first(snapshot: Snapshot, time: str) -> None:
    """Raise InvalidRequest for a request time before the table's first commit, for which Hudi silently returns no rows."""
    store, timeline = snapshot.context.timeline, snapshot.timeline
    writes = [instant.request_time for instant in timeline.completed_writes()]
    if any(write <= time for write in writes):
        return
    archived = [one.request_time for one in store.history.instants() if one.action in WRITE_ACTIONS]
    if any(write <= time for write in archived):
        return
    first = min((*writes, *archived), default=None)
    message = f"the table at {snapshot.context.storage.uri} cannot be read as of {time}"
    if first is None:
        raise InvalidRequest(f"{message}: it has no commits. Read it without as_of.")
    raise InvalidRequest(f"{message}: its first commit is {first}. Use that time or a later one.")


def _reason(snapshot: Snapshot, time: str) -> str | None:
    store, timeline = snapshot.context.timeline, snapshot.timeline
    clusterings = frozenset(i.request_time for i in timeline.pending(Action.REPLACECOMMIT) if is_pending_clustering(store, i))
    for last in (load_last_clean(store, timeline), *_cleans_since(snapshot, time)):
        reason = reason_not_to_travel(timeline, time, last, clusterings)
        if reason is not None:
            return reason
    return _file_missed(snapshot, time)


def _cleans_since(snapshot: Snapshot, time: str) -> Iterator[LastClean]:
    store, timeline = snapshot.context.timeline, snapshot.timeline
    for clean in timeline.completed(Action.CLEAN):
        last_clean = load_clean(store, clean) if clean.request_time > time else None
        if last_clean is not None:
            yield last_clean
    # Archived writes matter only for times before the active timeline: an older write is archived with or before each
    # clean.
    if timeline.is_before_start(time):
        for clean in store.history.instants(Bounds(time, None)):
            row = store.history.find(clean.request_time, Action.CLEAN) if clean.action is Action.CLEAN else None
            metadata = decode_completed(Action.CLEAN, row.metadata or b"") if row else None
            if isinstance(metadata, CleanMetadata):
                yield LastClean.of(clean, metadata)
    # A pending or unfinished clean has deleted files of its plan already.
    for clean in timeline.pending(Action.CLEAN):
        earliest = load_earliest_retained(store, clean)
        if earliest is not None:
            yield LastClean(clean.request_time, earliest, "", ())


def _file_missed(snapshot: Snapshot, time: str) -> str | None:
    """Return a file that a slice as of the time had and a clean by file versions has deleted since."""
    store, timeline = snapshot.context.timeline, snapshot.timeline
    for clean in timeline.instants:
        if clean.action is not Action.CLEAN or clean.request_time <= time or load_earliest_retained(store, clean) != "":
            continue
        files = load_deleted_files(snapshot.context, clean)
        older = {path: set(_older_files(names, time)) for path, names in files.items()}
        file_ids = {path: {group for group, _, _ in names} for path, names in older.items() if names}
        if not file_ids:
            continue
        then = _base_instants(snapshot, file_ids, time)
        now = _base_instants(snapshot, file_ids, None)
        for path, names in older.items():
            for group, instant, name in sorted(names, reverse=True):
                place = (path, group)
                seen = then.get(place)
                # A group that was replaced by that time needs none of its files.
                is_current = place in now or snapshot.slicing.replaced.get(place, "") > time
                if (seen is None and is_current) or (seen is not None and seen < instant):
                    return f"clean {clean.request_time}, which counts file versions, deleted {join_path(path, name)}"
    return None


def _older_files(names: tuple[str, ...], time: str) -> Iterator[tuple[str, str, str]]:
    """Return file id, instant and name of the data files that existed at the time."""
    for name in names:
        group, instant = parse_data_file_group(name), parse_data_file_instant(name)
        log = parse_log_file(name)
        if group is not None and instant is not None and instant <= time and not (log is not None and log.is_cdc):
            yield group, instant, name


def _base_instants(snapshot: Snapshot, requested_files: dict[str, set[str]], as_of: str | None) -> dict[tuple[str, str], str]:
    by_partition = snapshot.slices(as_of=as_of, file_ids=requested_files)
    return {(path, slice_.file_id): slice_.base_instant for path, slices in by_partition.items() for slice_ in slices}
