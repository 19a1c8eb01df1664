"""Check that the table can be read as of a time, considering pending writes and cleans.

A clean by commits or hours records the earliest retained instant. A clean by file versions does not: the files that it
deleted are compared with the file slices as of the time. (Hudi accepts every time that is not before the first active
commit, and returns what is left.) Every clean since the time counts, not only the last: a later clean that retains more
does not bring deleted files back.

Source: docs/formats/reading.md, "Time travel".
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import UTC

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.actions.archived_instants import decode_completed
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.instants import Action, parse_instant_time
from pyhudi.format.names import parse_data_file_group, parse_data_file_instant, parse_log_file
from pyhudi.format.paths import join_path
from pyhudi.operations.services.clean_state import load_clean, load_deleted_files, load_last_clean
from pyhudi.planning.cleaning import LastClean
from pyhudi.planning.time_travel import LocalTime, classify_local_time, reason_not_to_travel
from pyhudi.table.snapshot import Snapshot, is_pending_clustering
from pyhudi.table.snapshot_staleness import load_earliest_retained
from pyhudi.table.table_config import local_zone_name
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS, Timeline
from pyhudi.table.timeline.archived_timeline import Bounds


def resolve_local_time(context: TableContext, timeline: Timeline, time: str) -> str | None:
    """Return the request time up to which a table of zone LOCAL is read; None for its latest state.

    Issues a warning where the state cannot be determined, because instants of other zones, or of the two passes of a
    repeated hour, are compared as text.

    Args:
        context: The table, of zone LOCAL.
        timeline: Its current timeline.
        time: In the form of `planning.time_travel`.
    """
    zone, now_ms = context.config.zone, context.env.now_ms()
    meaning = classify_local_time(timeline, time, now_ms, zone)
    reader = local_zone_name() or "unknown"
    message = f"{context.storage.uri} as of {time}: the instants of this table are in the local time of each writer, "
    match meaning:
        case LocalTime.NOW:
            return None
        case LocalTime.OTHER_ZONE:
            last = timeline.completed_writes()[-1].request_time
            warnings.warn(
                f"{message}and {last} is in the future for this process (time zone {reader}): it was written in a time zone "
                f"of at least {_offset_name(parse_instant_time(last, UTC) - now_ms)}. Commits of other zones may be missing "
                "or too new. Read as of an instant instead",
                RuntimeWarning,
                stacklevel=2,
            )
        case LocalTime.REPEATED_HOUR:
            warnings.warn(
                f"{message}and clocks in time zone {reader} were set back over this time, before or after a commit of the same "
                "hour. Read as of an instant instead",
                RuntimeWarning,
                stacklevel=2,
            )
        case LocalTime.UNAMBIGUOUS:
            pass
    return time


def _offset_name(offset_ms: int) -> str:
    """Offset from UTC, rounded up to a quarter of an hour, in which all zones are."""
    quarters = -(-offset_ms // 900_000)
    sign = "-" if quarters < 0 else "+"
    return f"UTC{sign}{abs(quarters) // 4:02d}:{abs(quarters) % 4 * 15:02d}"


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
