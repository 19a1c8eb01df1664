"""Change data capture (CDC): from which files the changes of each commit are read, and how they are derived.

For each file that a commit wrote, in this order:

    LOGGED      the statistics name change logs (`.cdc`), and these exist
    DELETED     a delete left a base file without rows: all rows of the previous one
    INSERTED    a base file has only new rows: all of them
    REWRITTEN   another base file, whose change log is missing: its rows of this commit, and the rows of the previous
                one that it lacks.  (The reader of Apache Hudi fails here.)
    APPENDED    a log file: each of its keys, looked up in the slice without the log and with it

and for each file group that a commit replaced: DELETED, all rows of its last slice. Compactions, clusterings and
similar services change no record, and produce no changes.

Order: a consumer that applies the changes one by one, in the order of the sources, gets the rows of the table.

    instants           by completion time: each change begins where the previous one ended
    within an instant  all deletes, then all inserts and updates: a record that moves is a delete in one file group and
                       an insert in another; one that is overwritten is a delete in a replaced file group and an insert
                       in a new one

A source with deletes among other changes is read twice if another source of its instant may insert: records may move in
both directions between the two, so neither can be read as a whole before the other.

Everything here is pure: commits and listings in, values out.

Source: docs/formats/reading.md, "Change data"; docs/formats/log-file.md, "Change logs".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.instants import Instant
from pyhudi.format.log.cdc_blocks import CdcMode
from pyhudi.format.names import is_log_file, parse_base_file, parse_log_file
from pyhudi.format.paths import file_name, join_path
from pyhudi.options.service_options import CLEAN_COMMITS_RETAINED
from pyhudi.planning.partition_pruning import PruningStep, ReadPlan
from pyhudi.table.file_slices import BaseFile, FileGroup, FileSlice, LogFile, SlicingState, visible_slice
from pyhudi.table.timeline.double_writes import copies_among


class ChangeKind(StrEnum):
    """How changes are derived; see the module docstring."""

    LOGGED = "LOGGED"
    DELETED = "DELETED"
    INSERTED = "INSERTED"
    REWRITTEN = "REWRITTEN"
    APPENDED = "APPENDED"


class ChangePart(StrEnum):
    """Which changes of a file group a source provides."""

    ALL = "ALL"
    DELETES = "DELETES"
    OTHERS = "OTHERS"


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The changes of one file group by one commit, or a part of them, as one task reads them.

    Attributes:
        completion_time: Of the commit; its request time if the table stores none.
        before: Slice of the before images, None if not needed or missing.
        after: Slice of the after images, None if not needed or missing.
        change_logs: For LOGGED.
        log: For APPENDED, the last log of `after`.
    """

    instant_time: str
    completion_time: str
    change_type: ChangeKind
    partition: str
    file_id: str
    before: FileSlice | None = None
    after: FileSlice | None = None
    change_logs: tuple[LogFile, ...] = ()
    log: LogFile | None = None
    part: ChangePart = ChangePart.ALL

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that are read."""
        slices = sum(slice_.size_bytes for slice_ in (self.before, self.after) if slice_ is not None)
        return slices + sum(file.size_bytes for file in self.change_logs)


@dataclass(frozen=True, slots=True)
class ChangePlan(ReadPlan):
    """The sources that a CDC query reads, in the order of the changes, and how they were chosen. slices: of the sources."""

    sources: tuple[ChangeSource, ...] = ()

    @classmethod
    def of(cls, sources: tuple[ChangeSource, ...], prunings: tuple[PruningStep, ...]) -> ChangePlan:
        """The plan that reads the sources."""
        slices = [slice_ for source in sources for slice_ in (source.before, source.after) if slice_ is not None]
        return cls(tuple(dict.fromkeys(slices)), prunings, sources)

    def __str__(self) -> str:
        groups = [source for source in self.sources if source.part is not ChangePart.DELETES]
        types = {type_: sum(1 for source in groups if source.change_type is type_) for type_ in ChangeKind}
        counts = ", ".join(f"{count} {type_.lower()}" for type_, count in types.items() if count)
        lines = [f"read the changes of {len(groups)} file groups{f' ({counts})' if counts else ''}"]
        if len(groups) < len(self.sources):
            lines.append(f"  {len(self.sources) - len(groups)} of them twice, deletes first")
        lines.append(f"  {sum(source.size_bytes for source in self.sources):,} bytes")
        lines += [f"  {p.step}: {p.remaining} of {p.total} {p.unit}" for p in self.prunings]
        return "\n".join(lines)


def changes_records(metadata: CommitMetadata) -> bool:
    """Whether a commit changed records, rather than moved them."""
    return metadata.operation.changes_rows


def changed_partitions(commits: Iterable[CommitMetadata]) -> tuple[str, ...]:
    """Return the partitions whose files hold the changes of the commits, sorted."""
    partitions: set[str] = set()
    for metadata in commits:
        partitions.update(partition for partition, stats in metadata.partition_to_write_stats.items() if stats)
        partitions.update(partition for partition, ids in (metadata.partition_to_replace_file_ids or {}).items() if ids)
    return tuple(sorted(partitions))


def plan_changes(
    commits: Mapping[Instant, CommitMetadata],
    sizes: Mapping[str, int],
    groups: Mapping[str, Sequence[FileGroup]],
    state: SlicingState,
    mode: CdcMode,
) -> tuple[ChangeSource, ...]:
    """Plan the sources for the changes of the commits, in the order of the module docstring.

    sizes: path to size in bytes of all files of the partitions that `changed_partitions` names, including change logs;
    groups:
    the file groups of these partitions.  mode: the table's supplemental logging mode, which decides the images that
    change logs lack.

    Raises:
        TableState: A required file is missing.
        CorruptData: A change log has another size than its commit records.
        Unsupported: Log files of tables before version 8.
    """
    there = _FileIndex(sizes, groups, state)
    sources: list[ChangeSource] = []
    for instant in sorted(commits, key=lambda i: (_completion_time(i), i.sort_key)):
        metadata = commits[instant]
        if not changes_records(metadata):
            continue
        copies = frozenset(copies_among(state.timeline, metadata, instant.request_time) if state.by_completion_time else ())
        own: list[_CountedSource] = []
        for partition, stats in sorted(metadata.partition_to_write_stats.items()):
            for stat in sorted(stats, key=lambda s: s.path or ""):
                if stat.path and stat.path not in copies:
                    own.append(_CountedSource.of(_written(there, instant, metadata, partition, stat, mode), metadata, stat))
        for partition, file_ids in sorted((metadata.partition_to_replace_file_ids or {}).items()):
            for file_id in sorted(file_ids):
                before = there.last_slice(partition, file_id, instant.request_time)
                own.append(
                    _CountedSource(replace(_source(instant, partition, file_id), change_type=ChangeKind.DELETED, before=before))
                )
        sources.extend(_deletes_first(own))
    return tuple(sources)


def _completion_time(instant: Instant) -> str:
    """When an instant completed; its request time where the table stores no completion times."""
    return instant.completion_time or instant.request_time


@dataclass(frozen=True, slots=True)
class _CountedSource:
    """A source of an instant; whether it has deletes among other changes, and whether it may have inserts."""

    source: ChangeSource
    has_deletes: bool = False
    may_insert: bool = False

    @classmethod
    def of(cls, source: ChangeSource, metadata: CommitMetadata, stat: WriteStat) -> _CountedSource:
        if metadata.operation.deletes:
            return cls(source)
        # Statistics of a log may count records that are new to the file group as updates.
        may_insert = stat.num_inserts > 0 or source.change_type is ChangeKind.APPENDED
        return cls(source, has_deletes=stat.num_deletes > 0, may_insert=may_insert)


def _deletes_first(own_sources: Sequence[_CountedSource]) -> Iterator[ChangeSource]:
    """The sources of one instant in the order in which they are read."""
    inserting = sum(counted.may_insert for counted in own_sources)
    others: list[ChangeSource] = []
    for counted in own_sources:
        source = counted.source
        if source.change_type is ChangeKind.DELETED:
            yield source
        elif counted.has_deletes and inserting > counted.may_insert:
            yield replace(source, part=ChangePart.DELETES)
            others.append(replace(source, part=ChangePart.OTHERS))
        else:
            others.append(source)
    yield from others


def _source(instant: Instant, partition: str, file_id: str) -> ChangeSource:
    return ChangeSource(instant.request_time, _completion_time(instant), ChangeKind.INSERTED, partition, file_id)


class _FileIndex:
    """The files of some partitions, looked up by path and by file group."""

    def __init__(self, sizes: Mapping[str, int], groups: Mapping[str, Sequence[FileGroup]], state: SlicingState) -> None:
        # The state just before the replacement is read, so the replacement is excluded.
        self.state = replace(state, replaced={})
        self._sizes = sizes
        self._groups = {(partition, group.file_id): group for partition, members in groups.items() for group in members}

    def has(self, path: str) -> bool:
        return path in self._sizes

    def log(self, path: str, instant_time: str) -> LogFile:
        """A log file that must exist."""
        size_bytes = self._sizes.get(path)
        if size_bytes is None:
            raise _missing(instant_time, path)
        name = parse_log_file(file_name(path))
        if name is None:
            raise CorruptData(f"commit metadata names {path!r} as a log file, which is none")
        return LogFile(path, name, size_bytes)

    def base(self, partition: str, name: str) -> BaseFile | None:
        """A base file by name; None when it is missing."""
        path, parsed = _in(partition, name), parse_base_file(name)
        return None if parsed is None or not self.has(path) else BaseFile(path, parsed, self._sizes[path])

    def base_at(self, partition: str, file_id: str, instant_time: str) -> BaseFile | None:
        """The base file of a group at an instant; None when it is missing."""
        group = self.group(partition, file_id)
        slices = () if group is None else group.slices
        return next((s.base for s in slices if s.base_instant == instant_time and s.base is not None), None)

    def group(self, partition: str, file_id: str) -> FileGroup | None:
        return self._groups.get((partition, file_id))

    def last_slice(self, partition: str, file_id: str, instant_time: str) -> FileSlice:
        """The last slice of a group before it was replaced."""
        group = self.group(partition, file_id)
        slice_ = None if group is None else visible_slice(group, self.state, instant_time)
        if slice_ is None:
            raise _missing(instant_time, f"{_in(partition, file_id)}_*")
        return slice_


def _written(
    files: _FileIndex, instant: Instant, metadata: CommitMetadata, partition: str, stat: WriteStat, mode: CdcMode
) -> ChangeSource:
    path, instant_time = stat.path or "", instant.request_time
    name = file_name(path)
    file_id = stat.file_id or ""
    source = _source(instant, partition, file_id)
    if is_log_file(name):
        return _appended(files, source, path, stat)
    before = _base_before(files, partition, stat)
    after = files.base(partition, name)
    if stat.cdc_stats and all(map(files.has, stat.cdc_stats)):
        needs_before, needs_after = mode is CdcMode.OP_KEY_ONLY, mode is not CdcMode.DATA_BEFORE_AFTER
        if needs_before and stat.num_writes != stat.num_inserts and before is None:
            raise _missing(instant_time, stat.prev_base_file or f"{file_id} of {stat.prev_commit}")
        if needs_after and after is None:
            raise _missing(instant_time, path)
        return replace(
            source,
            change_type=ChangeKind.LOGGED,
            before=_slice(partition, file_id, before) if needs_before else None,
            after=_slice(partition, file_id, after) if needs_after else None,
            change_logs=tuple(
                _with_committed_size(files.log(log, instant_time), size) for log, size in sorted(stat.cdc_stats.items())
            ),
        )
    is_delete = metadata.operation.deletes
    if is_delete and not stat.num_writes and stat.num_deletes:
        if before is None:
            raise _missing(instant_time, stat.prev_base_file or f"{file_id} of {stat.prev_commit}")
        return replace(source, change_type=ChangeKind.DELETED, before=_slice(partition, file_id, before))
    if after is None:
        raise _missing(instant_time, path)
    if not stat.num_update_writes and not stat.num_deletes and stat.num_writes == stat.num_inserts:
        return replace(source, after=_slice(partition, file_id, after))
    if before is None:
        raise _missing(instant_time, next(iter(stat.cdc_stats or ()), stat.prev_base_file or f"{file_id} of {stat.prev_commit}"))
    return replace(
        source,
        change_type=ChangeKind.REWRITTEN,
        before=_slice(partition, file_id, before),
        after=_slice(partition, file_id, after),
    )


def _appended(files: _FileIndex, source: ChangeSource, path: str, stat: WriteStat) -> ChangeSource:
    if not files.state.by_completion_time:
        raise Unsupported(f"changes in {path} are not read: before table version 8 a log file holds several commits")
    instant_time, partition, file_id = source.instant_time, source.partition, source.file_id
    log = _with_committed_size(files.log(path, instant_time), stat.file_size_in_bytes)
    before = _named_slice(files, instant_time, partition, file_id, stat, log) or _slice_before(files, partition, file_id, log)
    after = FileSlice(partition, file_id, before.base_instant, before.base, (*before.logs, log))
    return replace(source, change_type=ChangeKind.APPENDED, before=before, after=after, log=log)


def _named_slice(
    files: _FileIndex, instant_time: str, partition: str, file_id: str, stat: WriteStat, log: LogFile
) -> FileSlice | None:
    """The slice to which a log was appended, where the statistics name it."""
    if not stat.base_file:
        return None
    base = files.base(partition, stat.base_file)
    if base is None:
        raise _missing(instant_time, _in(partition, stat.base_file))
    logs = []
    for name in stat.log_files or ():
        parsed = parse_log_file(name)
        if name == log.name.text or (parsed is not None and parsed.is_cdc):
            continue
        logs.append(files.log(_in(partition, name), instant_time))
    return FileSlice(partition, file_id, base.name.instant_time, base, tuple(sorted(logs, key=lambda one: one.name.sort_key)))


def _slice_before(files: _FileIndex, partition: str, file_id: str, log: LogFile) -> FileSlice:
    """The slice that a log was appended to, from existing files: what had completed before the log did."""
    # A slice whose compaction is pending has no base file yet, and begins with the previous one.
    group = files.group(partition, file_id)
    timeline = files.state.timeline
    own = timeline.completion_time(log.name.instant_time) or log.name.instant_time
    base: BaseFile | None = None
    logs: list[LogFile] = []
    contains_log = False
    for candidate in () if group is None else group.slices:
        contains_log = contains_log or log in candidate.logs
        if not contains_log:
            continue
        earlier = (other for other in candidate.logs if (timeline.completion_time(other.name.instant_time) or "") < own)
        logs += [other for other in earlier if other != log]
        if candidate.base is not None and timeline.is_completed(candidate.base_instant):
            base = candidate.base
            break
    begun = log.name.instant_time if base is None else base.name.instant_time
    return FileSlice(partition, file_id, begun, base, tuple(sorted(logs, key=lambda one: one.name.sort_key)))


def _base_before(files: _FileIndex, partition: str, stat: WriteStat) -> BaseFile | None:
    if stat.prev_base_file:
        return files.base(partition, stat.prev_base_file)
    if stat.prev_commit in (None, "null"):
        return None
    return files.base_at(partition, stat.file_id or "", stat.prev_commit)


def _slice(partition: str, file_id: str, base: BaseFile | None) -> FileSlice | None:
    return None if base is None else FileSlice(partition, file_id, base.name.instant_time, base)


def _with_committed_size(log: LogFile, size_bytes: int) -> LogFile:
    """A log file with the size that the commit records: readers could not detect one truncated between blocks."""
    if log.size_bytes != size_bytes:
        raise CorruptData(
            "the size of a log file differs from the size in its commit", expected=size_bytes, found=log.size_bytes
        ).with_path(log.path)
    return log


def _in(partition: str, name: str) -> str:
    return join_path(partition, name)


def _missing(instant_time: str, path: str) -> TableState:
    return TableState(
        f"the changes of instant {instant_time} are unavailable: {path} was cleaned or is missing; begin after that "
        f"instant, or retain more ({CLEAN_COMMITS_RETAINED})"
    )
