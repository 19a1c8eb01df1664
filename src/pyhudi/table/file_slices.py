"""File groups and file slices: which base and log files belong together, and which of them a query reads.

    file group   all versions of the records with one file id, in one partition
    file slice   one base file (or none) and the log files written on top of it; its key is the base instant
    slicing      a log file joins the slice with the largest key at or before the log's completion time (table version
                 8), or the slice whose key its name holds (version 6); a table downgraded from version 8 has both types
                 of logs

Everything here is pure: listings and a timeline in, values out.

Source: docs/formats/reading.md, "File groups and slices".
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.bootstrap_index import SourceFile
from pyhudi.format.names import (
    BaseFileName,
    LogFileName,
    is_log_file,
    parse_base_file,
    parse_external_file,
    parse_log_file,
    split_base_files,
)
from pyhudi.format.paths import file_name, join_path, parent_folder
from pyhudi.storage.base import FileInfo
from pyhudi.table.timeline.active_timeline import Timeline

# Bulk construction of small frozen objects from columns of their fields.

T = TypeVar("T")


def construct_many(class_: Callable[..., T], count: int, columns: Mapping[str, Iterable[Any]]) -> list[T]:
    """Construct many objects of a slotted dataclass, five times as fast as its constructor.

    The values are trusted: validation of the class is skipped.

    kind: The dataclass. columns: Values of each field, `count` of each. A field without a column has no value.
    """
    with _no_collection():
        objects = list(map(object.__new__, [class_] * count))  # type: ignore[arg-type]
        for name, values in columns.items():
            deque(map(getattr(class_, name).__set__, objects, values), maxlen=0)
    return objects


_lock = threading.Lock()
_threads = 0
_was_on = False


@contextmanager
def _no_collection() -> Iterator[None]:
    """Suspend garbage collection while many long-lived objects are created; nested and concurrent uses are counted."""
    global _threads, _was_on
    with _lock:
        if not _threads:
            _was_on = gc.isenabled()
            gc.disable()
        _threads += 1
    try:
        yield
    finally:
        with _lock:
            _threads -= 1
            if not _threads and _was_on:
                gc.enable()


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file.  path: relative to the table."""

    path: str
    name: BaseFileName
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file with data blocks (CDC logs, `.cdc`, are excluded).  path: relative to the table."""

    path: str
    name: LogFileName
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group, with its logs in merge order.

    Attributes:
        full_slice: The slice that this one is a subset of, if a query reads only some of its files; else None.
        source: The bootstrap source file that holds the data columns of the base file. None if the base file holds
            them, or if the source has not been looked up (see `table.bootstrap_sources`).
    """

    partition: str
    file_id: str
    base_instant: str
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()
    full_slice: FileSlice | None = None
    source: SourceFile | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of all files of the slice, including the bootstrap source file."""
        outside = 0 if self.source is None else self.source.size_bytes
        return (self.base.size_bytes if self.base else 0) + sum(log.size_bytes for log in self.logs) + outside


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All slices of one file id, newest first, before a query selects from them."""

    partition: str
    file_id: str
    slices: tuple[FileSlice, ...]


@dataclass(frozen=True, slots=True)
class SlicingState:
    """The part of the timeline that slicing depends on.

    Attributes:
        replaced: (partition, file id) -> request time of the newest completed replace commit that replaces it.
        pending_compactions: (partition, file id) -> instant of the compaction plan that covers it.
        external_files: Base files may be those of another table format (`table.external_files`).
    """

    timeline: Timeline
    replaced: Mapping[tuple[str, str], str]
    pending_compactions: Mapping[tuple[str, str], str]
    by_completion_time: bool = True
    external_files: bool = False


def build_file_groups(
    partition: str, files: Iterable[FileInfo], state: SlicingState, *, change_logs: bool = False
) -> tuple[FileGroup, ...]:
    """Sort the files of one partition into groups and slices.  Names that are not data files are skipped.

    Groups are ordered by file id.  No file is filtered here: that depends on the query.

    change_logs: Include `.cdc` files among the logs, for callers that delete slices.
    """
    bases: dict[str, list[BaseFile]] = {}
    logs: dict[str, list[LogFile]] = {}
    for info in files:
        name = file_name(info.path)
        external = parse_external_file(name) if state.external_files else None
        if external is not None:
            path = join_path(parent_folder(info.path), external.file_id)
            bases.setdefault(external.file_id, []).append(BaseFile(path, external, info.size_bytes))
            continue
        if is_log_file(name):
            log = parse_log_file(name)
            if log is not None and (change_logs or not log.is_cdc):
                logs.setdefault(log.file_id, []).append(LogFile(info.path, log, info.size_bytes))
            continue
        base = parse_base_file(name)
        if base is not None:
            bases.setdefault(base.file_id, []).append(BaseFile(info.path, base, info.size_bytes))
    return tuple(
        _build_group(partition, file_id, bases.get(file_id, []), logs.get(file_id, []), state)
        for file_id in sorted(bases.keys() | logs.keys())
    )


def visible_slice(group: FileGroup, state: SlicingState, as_of: str | None = None) -> FileSlice | None:
    """Return the slice of a group that a snapshot query reads, with committed logs only; None if the group is replaced or empty.

    A slice whose instant has not completed is invisible: its committed logs belong to the slice before it. (Apache Hudi
    ignores them until the instant completes or its base file is deleted.)  The same holds for a slice with a pending
    compaction.

    as_of: A request time; None for the latest state. A write requested by then may have completed after a later
    compaction was planned: its log is stored in the slice of that compaction, and is merged onto the slice before it.
    """
    timeline = state.timeline
    last = timeline.last_visible
    if last is None:
        return None
    limit = as_of if as_of is not None else last
    replaced = state.replaced.get((group.partition, group.file_id))
    if replaced is not None and limit >= replaced:
        return None
    base: BaseFile | None = None
    logs: list[LogFile] = []
    key: str | None = None
    waiting = state.pending_compactions.get((group.partition, group.file_id))
    for candidate in group.slices:
        if candidate.base_instant > limit or (candidate.base_instant != waiting and not _slice_counts(candidate, timeline)):
            if state.by_completion_time:
                logs.extend(candidate.logs)
            continue
        logs.extend(candidate.logs)
        key = candidate.base_instant
        if key != waiting:
            base = candidate.base
            break
    counted = sorted(
        (log for log in logs if _log_counts(log, timeline, limit, by_completion_time=state.by_completion_time)), key=_log_order
    )
    if base is None and not counted:
        return None
    return FileSlice(group.partition, group.file_id, key or counted[0].name.instant_time, base, tuple(counted))


def visible_slices(groups: Iterable[FileGroup], state: SlicingState, as_of: str | None = None) -> tuple[FileSlice, ...]:
    """The visible slice of every group that has one, in the order of the groups."""
    slices = (visible_slice(group, state, as_of) for group in groups)
    return tuple(slice_ for slice_ in slices if slice_ is not None)


def logs_with_uncovered_keys(slice_: FileSlice, timeline: Timeline) -> tuple[LogFile, ...]:
    """Return the logs of a slice that may hold keys which its base file lacks.

    These are the logs of writes requested before the base file's commit completed. Such a write located its keys in the
    previous base file, so it may re-insert a key that the compaction dropped because an earlier log deleted it. All
    logs if the completion time of the base file is unknown; none for a slice without base file.
    """
    if slice_.base is None or not slice_.logs:
        return ()
    completed = timeline.completion_time(slice_.base.name.instant_time)
    return tuple(log for log in slice_.logs if completed is None or log.name.instant_time <= completed)


def visible_slices_from_rows(rows: pa.Table, state: SlicingState, as_of: str | None = None) -> dict[str, tuple[FileSlice, ...]]:
    """Return the visible slices of many files at once: partition -> slices by file id, without empty partitions.

    A file group without log files is the newest of its committed base files. The others are built by `build_file_groups`.

    rows: partition, name (bare), file_id (the start of the name) and size_bytes of files.
    """
    rows = rows.combine_chunks()
    last = state.timeline.last_visible
    if last is None or not rows.num_rows:
        return {}
    limit = as_of if as_of is not None else last
    columns = {name: rows.column(name).combine_chunks() for name in ("partition", "name", "file_id", "size_bytes")}
    parts = split_base_files(columns["name"])
    groups = pc.binary_join_element_wise(columns["partition"], columns["file_id"], "/").dictionary_encode()
    codes = groups.indices.to_numpy()
    is_base = parts.is_valid().to_numpy(zero_copy_only=False)
    is_plain = np.bincount(codes[~is_base], minlength=len(groups.dictionary)) == 0
    special = pa.array(
        [f"{partition}/{file_id}" for partition, file_id in {*state.replaced, *state.pending_compactions}], pa.string()
    )
    if len(special):
        is_plain &= ~pc.is_in(groups.dictionary, value_set=special).to_numpy(zero_copy_only=False)
    instants = parts.field("instant_time").dictionary_encode()
    counting = [text <= limit and state.timeline.is_completed(text) for text in instants.dictionary.to_pylist()]
    places = pc.fill_null(instants.indices, 0).to_numpy()
    chosen = np.flatnonzero(is_plain[codes] & np.array([*counting, False], dtype=np.bool_)[places])
    result = _single_slices(columns, parts, _newest_of_groups(chosen, codes, columns["name"], parts.field("instant_time")))
    for partition, infos in _infos_by_partition(columns, ~is_plain[codes]).items():
        slices = visible_slices(build_file_groups(partition, infos, state), state, as_of)
        if slices:
            result[partition] = [*result.get(partition, ()), *slices]
    return {partition: tuple(sorted(slices, key=_by_file_id)) for partition, slices in sorted(result.items())}


def _newest_of_groups(
    rows: npt.NDArray[np.int64], codes: npt.NDArray[np.int32], names: pa.Array, instants: pa.Array
) -> npt.NDArray[np.int64]:
    """Row numbers of the newest base file of each file group, ascending; of two with one instant, the larger name."""
    if len(np.unique(codes[rows])) == len(rows):
        return rows
    chosen = pa.array(rows)
    order = pc.sort_indices(
        pa.table({"group": codes[rows], "instant": instants.take(chosen), "name": names.take(chosen)}),
        sort_keys=[("group", "ascending"), ("instant", "ascending"), ("name", "ascending")],
    ).to_numpy()
    of_groups = codes[rows[order]]
    is_last = np.append(of_groups[1:] != of_groups[:-1], True)
    return np.sort(rows[order[is_last]])


def _single_slices(
    columns: Mapping[str, pa.Array], parts: pa.StructArray, chosen: npt.NDArray[np.int64]
) -> dict[str, list[FileSlice]]:
    """Partition -> slices of one base file each, in the order of the row numbers."""
    rows = pa.array(chosen)
    partitions, names = (columns[name].take(rows) for name in ("partition", "name"))
    inside = pc.binary_join_element_wise(partitions, names, "/")
    paths = pc.if_else(pc.equal(partitions, ""), names, inside).to_pylist()
    split = {name: parts.field(name).take(rows).to_pylist() for name in ("file_id", "write_token", "instant_time", "extension")}
    count = len(paths)
    named = construct_many(BaseFileName, count, split)
    sizes = columns["size_bytes"].take(rows).to_pylist()
    bases = construct_many(BaseFile, count, {"path": paths, "name": named, "size_bytes": sizes})
    encoded = partitions.dictionary_encode()
    of = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy()
    fields: dict[str, Iterable[object]] = {
        "partition": [of[code] for code in codes.tolist()],
        "file_id": split["file_id"],
        "base_instant": split["instant_time"],
        "base": bases,
        "logs": repeat((), count),
        "full_slice": repeat(None, count),
        "source": repeat(None, count),
    }
    slices = construct_many(FileSlice, count, fields)
    result: dict[str, list[FileSlice]] = {}
    bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), count]
    for start, end in pairwise(bounds):
        if start < end:
            result.setdefault(slices[start].partition, []).extend(slices[start:end])
    return result


def _infos_by_partition(columns: Mapping[str, pa.Array], chosen: npt.NDArray[np.bool_]) -> dict[str, list[FileInfo]]:
    rows = pa.array(np.flatnonzero(chosen))
    result: dict[str, list[FileInfo]] = {}
    listed = (columns[name].take(rows).to_pylist() for name in ("partition", "name", "size_bytes"))
    for partition, name, size_bytes in zip(*listed, strict=True):
        result.setdefault(partition, []).append(FileInfo(join_path(partition, name), size_bytes, 0))
    return result


def _by_file_id(slice_: FileSlice) -> str:
    return slice_.file_id


def _build_group(partition: str, file_id: str, bases: list[BaseFile], logs: list[LogFile], state: SlicingState) -> FileGroup:
    base_of: dict[str, BaseFile] = {}
    for base in bases:
        held = base_of.get(base.name.instant_time)
        # Two attempts of one task may both exist until the commit removes the loser; either may be chosen, so the
        # larger name is.
        if held is None or held.path < base.path:
            base_of[base.name.instant_time] = base
    keys: dict[str, list[LogFile]] = {instant: [] for instant in base_of}
    waiting = state.pending_compactions.get((partition, file_id))
    if waiting is not None:
        keys.setdefault(waiting, [])
    key_of = _completion_key(state.timeline) if state.by_completion_time else _base_key(state.timeline)
    for log in sorted(logs, key=_log_order):
        keys.setdefault(key_of(log, keys), []).append(log)
    return FileGroup(
        partition,
        file_id,
        tuple(FileSlice(partition, file_id, key, base_of.get(key), tuple(keys[key])) for key in sorted(keys, reverse=True)),
    )


def _completion_key(timeline: Timeline) -> Callable[[LogFile, Mapping[str, object]], str]:
    def key_of(log: LogFile, keys: Mapping[str, object]) -> str:
        if not keys:
            return log.name.instant_time
        completed = timeline.completion_time(log.name.instant_time)
        newest = max(keys)
        if completed is None:
            if not timeline.is_before_start(log.name.instant_time):
                return newest
            # The instant left the active timeline and the archived timeline is not available: its request time is the
            # nearest bound.
            completed = log.name.instant_time
        at = completed if len(completed) == len(newest) else log.name.instant_time
        return max((key for key in keys if at >= key), default=log.name.instant_time)

    return key_of


def _base_key(timeline: Timeline) -> Callable[[LogFile, Mapping[str, object]], str]:
    by_completion = _completion_key(timeline)

    def key_of(log: LogFile, keys: Mapping[str, object]) -> str:
        own = log.name.instant_time
        if own in keys or timeline.completion_time(own) is None:
            return own
        # No base file of that instant: it is the delta commit that wrote the file, as in version 8.
        return by_completion(log, keys)

    return key_of


def _log_order(log: LogFile) -> tuple[str, int, str, bool]:
    return log.name.sort_key


def _slice_counts(candidate: FileSlice, timeline: Timeline) -> bool:
    return timeline.is_completed(candidate.base_instant)


def _log_counts(log: LogFile, timeline: Timeline, limit: str, *, by_completion_time: bool) -> bool:
    if not by_completion_time:
        # The name holds the base instant; block headers inside decide which blocks are committed.
        return True
    return log.name.instant_time <= limit and timeline.is_completed(log.name.instant_time)
