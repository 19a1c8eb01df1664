"""Compare the files that commits wrote with those in storage: which committed files are missing or damaged.

    expected   files of the newest slices by the write statistics of commits, without replaced file groups and files that
               cleans have deleted. A caller may add files of the metadata table, which older slices have too
    missing    an expected file that does not exist
    damaged    an expected file that is empty, shorter or longer than recorded

A listing that is rebuilt from directories alone hides such a loss: the previous slice of the file group, or nothing,
takes the place of the lost file. Every rebuild therefore calls `check_no_lost_files`. A repair with `accept_loss`
records lost files in the extra metadata of a commit (LOST_FILES_KEY), and they are no longer expected.

Before table version 8, several commits append to a log file: only one that is shorter than recorded is damaged.

Source: docs/formats/timeline.md, "Commit metadata".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyhudi.errors import CorruptData
from pyhudi.format.actions.archived_instants import COMMIT_LIKE, decode_completed
from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.actions.commit_metadata import CommitMetadata, decode_lost_files
from pyhudi.format.instants import Action, State
from pyhudi.format.names import parse_base_file, parse_data_file_instant, parse_log_file
from pyhudi.format.paths import file_name, join_path, parent_folder
from pyhudi.table.snapshot import Snapshot, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.archived_timeline import Bounds
from pyhudi.table.timeline.timeline_store import TimelineStore

_NAMED_FILES = 10
"""Maximum number of files that an error lists."""

OnDamage = Callable[[str, CorruptData], None]
"""Called with the path of an unreadable clean, which is then ignored."""


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A file that a commit wrote.

    Attributes:
        path: Relative to the table.
        instant: Request time of the commit.
        size_bytes: Recorded size; 0 if unknown.
        row_count: Rows of a base file, or records of a log file; None if unknown.
    """

    path: str
    instant: str
    size_bytes: int
    row_count: int | None


@dataclass(frozen=True, slots=True)
class LostFile:
    """A committed file that is missing, or has another size than its commit records. found_bytes: None if missing."""

    file: CommittedFile
    found_bytes: int | None

    @property
    def partition(self) -> str:
        """Partition path."""
        return parent_folder(self.file.path)

    @property
    def finding(self) -> str:
        """What is wrong, and how many rows it concerns."""
        rows = "" if self.file.row_count is None else f", {self.file.row_count:,} rows"
        found, recorded = self.found_bytes, self.file.size_bytes
        if not found:
            damage = "is missing" if found is None else "is empty"
        else:
            damage = f"has {found:,} bytes instead of {recorded:,}" if recorded else "cannot be read"
        return f"committed by {self.file.instant}, {damage}{rows}"


def removed_names(store: TimelineStore, timeline: Timeline, on_damage: OnDamage) -> frozenset[str]:
    """Return names of files that cleans on the active timeline have deleted."""
    names: set[str] = set()
    for instant in timeline.completed(Action.CLEAN):
        try:
            cleaned = CleanMetadata.decode(store.read(instant)).partition_metadata
        except CorruptData as error:
            on_damage(store.path(instant), error)
            continue
        names.update(file_name(path) for part in cleaned.values() for path in part.success_delete_files)
    return frozenset(names)


def find_undone_deletions(context: TableContext, timeline: Timeline, paths: Collection[str]) -> dict[str, str]:
    """Return those of the data files in storage that a completed clean has deleted, with the clean.

    A power failure may undo deletions. Once the commit that replaced their file groups is archived, readers that list
    directories return the rows of such files. The archived timeline is read if there are paths.
    """
    found: dict[str, str] = {}
    missing = set(paths)
    for time, clean in _cleans(context.timeline, timeline) if missing else ():
        for partition, cleaned in clean.partition_metadata.items():
            deleted = {join_path(partition, file_name(path)) for path in cleaned.success_delete_files}
            found.update(dict.fromkeys(deleted & missing, time))
    return found


def _cleans(store: TimelineStore, timeline: Timeline) -> Iterator[tuple[str, CleanMetadata]]:
    """The completed cleans, archived ones first, with their request times. An unreadable active one is left out."""
    for row in store.history.all_rows(Bounds(), documents=True):
        if row.action == Action.CLEAN.value and row.metadata:
            decoded = decode_completed(Action.CLEAN, row.metadata)
            if isinstance(decoded, CleanMetadata):
                yield row.instant_time, decoded
    for instant in timeline.completed(Action.CLEAN):
        with suppress(CorruptData):
            yield instant.request_time, CleanMetadata.decode(store.read(instant))


def names_of_pending_cleans(store: TimelineStore, timeline: Timeline, on_damage: OnDamage) -> dict[str, str]:
    """Return names of files that pending cleans are deleting, with the clean of each."""
    names: dict[str, str] = {}
    for instant in timeline.pending(Action.CLEAN):
        try:
            plan = CleanerPlan.decode(store.read_state(instant.request_time, Action.CLEAN, State.REQUESTED) or b"")
        except CorruptData as error:
            on_damage(store.path(instant), error)
            continue
        infos = (plan.file_paths_to_be_deleted_per_partition or {}).values()
        paths = [info.file_path or "" for of_partition in infos for info in of_partition]
        paths += [path for files in (plan.files_to_be_deleted_per_partition or {}).values() for path in files]
        names.update((file_name(path), instant.request_time) for path in paths)
    return names


@dataclass(slots=True)
class CommittedFiles:
    """Files of the newest slices, collected commit by commit in any order. Memory: about one entry per file of these."""

    _newest: dict[tuple[str, str], str] = field(default_factory=dict)
    _files: dict[tuple[str, str], list[CommittedFile]] = field(default_factory=dict)
    _replaced: dict[tuple[str, str], str] = field(default_factory=dict)
    accepted: dict[str, int | None] = field(default_factory=dict)
    """Path of each file whose loss was accepted -> its size at that time, None if it was missing."""

    def add(self, instant: str, metadata: CommitMetadata) -> None:
        """Add a completed commit."""
        self.accepted.update(decode_lost_files(metadata))
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
            for file_id in file_ids:
                self._replaced[partition, file_id] = max(instant, self._replaced.get((partition, file_id), ""))
        for file, group in _written(instant, metadata):
            if instant < self._newest.get(group, ""):
                continue
            if parse_base_file(file_name(file.path)) is not None and instant > self._newest.get(group, ""):
                self._newest[group] = instant
                self._files[group] = [kept for kept in self._files.get(group, ()) if kept.instant >= instant]
            self._files.setdefault(group, []).append(file)

    def files(self) -> dict[str, CommittedFile]:
        """Return the files by path, without replaced file groups; of a path with several commits, the newest one."""
        ordered = (file for group, files in self._files.items() if group not in self._replaced for file in files)
        return {file.path: file for file in sorted(ordered, key=lambda file: file.instant)}


def _written(instant: str, metadata: CommitMetadata) -> Iterator[tuple[CommittedFile, tuple[str, str]]]:
    """The data files that a commit wrote, with their file groups."""
    for partition, stats in metadata.partition_to_write_stats.items():
        for stat in stats:
            if stat.path and stat.file_id is not None and parse_data_file_instant(file_name(stat.path)) is not None:
                yield CommittedFile(stat.path, instant, stat.file_size_in_bytes, stat.num_writes), (partition, stat.file_id)


def encode_lost_files(lost: Iterable[LostFile]) -> str:
    """Return the extra metadata that records lost files: JSON of path -> commit, rows and size in bytes (null if missing)."""
    entries = {one.file.path: {"commit": one.file.instant, "rows": one.file.row_count, "bytes": one.found_bytes} for one in lost}
    return json.dumps(entries, sort_keys=True)


def find_lost_files(
    snapshot: Snapshot,
    sizes: Mapping[str, int],
    *,
    commits: Mapping[str, CommitMetadata] | None = None,
    listed: Mapping[str, int] | None = None,
    archived: bool = False,
    on_damage: OnDamage = lambda path, error: None,
) -> tuple[LostFile, ...]:
    """Return the committed files that are missing or have another size than recorded, by path.

    Args:
        snapshot: The table.
        sizes: Path -> size in bytes of all data files in storage.
        commits: Completed writes of the active timeline by request time, if they are loaded.
        listed: Path -> size in bytes of the files in the metadata table.
        archived: Include archived commits, for a table without a readable metadata table. All of them are read.
        on_damage: Called for unreadable cleans.
    """
    context, timeline = snapshot.context, snapshot.timeline
    store = context.timeline
    if commits is None:
        commits = {i.request_time: snapshot.commits.get(i) or read_commit(store, i) for i in timeline.completed_writes()}
    collected = CommittedFiles()
    for instant, metadata in (*(_archived(store) if archived else ()), *commits.items()):
        collected.add(instant, metadata)
    times = {instant.request_time for instant in timeline.instants}
    expected = {
        path: file
        for path, file in collected.files().items()
        # Without files that were double-written for a dropped resize.
        if (named := parse_data_file_instant(file_name(path))) in times or (named and timeline.is_completed(named))
    }
    doubtful = {path: size_bytes for path, size_bytes in (listed or {}).items() if sizes.get(path) != size_bytes}
    doubtful |= {path: 0 for path, size_bytes in sizes.items() if not size_bytes and path not in doubtful}
    for path in sorted(doubtful.keys() - expected.keys()):
        named = parse_data_file_instant(file_name(path))
        file = _find_committed(store, commits, path, doubtful[path]) if named and timeline.is_completed(named) else None
        if file is not None:
            expected[path] = file
    lost = [
        LostFile(file, sizes.get(path))
        for path, file in expected.items()
        if _is_lost(context, file, sizes.get(path))
        and not (path in collected.accepted and collected.accepted[path] == sizes.get(path))
    ]
    if not lost:
        return ()
    removed = removed_names(store, timeline, on_damage).union(names_of_pending_cleans(store, timeline, on_damage))
    return tuple(sorted((one for one in lost if file_name(one.file.path) not in removed), key=lambda one: one.file.path))


def _is_lost(context: TableContext, file: CommittedFile, found_bytes: int | None) -> bool:
    if found_bytes is None:
        return True
    is_shared = not context.config.version.has_one_log_file_per_commit and parse_log_file(file_name(file.path)) is not None
    if not found_bytes and not is_shared:
        return True
    if file.size_bytes <= 0 or found_bytes == file.size_bytes:
        return False
    return found_bytes < file.size_bytes or not is_shared


def _find_committed(
    store: TimelineStore, commits: Mapping[str, CommitMetadata], path: str, size_bytes: int
) -> CommittedFile | None:
    """The file as its commit records it; None if the commit does not name it, as for one of a failed task attempt."""
    instant = parse_data_file_instant(file_name(path)) or ""
    metadata = commits.get(instant)
    if metadata is None:
        row = store.history.find(instant, *COMMIT_LIKE)
        decoded = None if row is None else decode_completed(Action(row.action), row.metadata or b"")
        if not isinstance(decoded, CommitMetadata):
            return CommittedFile(path, instant, size_bytes, None)
        metadata = decoded
    return next((file for file, _ in _written(instant, metadata) if file.path == path), None)


def _archived(store: TimelineStore) -> Iterator[tuple[str, CommitMetadata]]:
    """The archived commits with their request times."""
    words = {action.value for action in COMMIT_LIKE}
    for row in store.history.all_rows(Bounds(), documents=True):
        if row.action in words:
            metadata = decode_completed(Action(row.action), row.metadata or b"")
            if isinstance(metadata, CommitMetadata):
                yield row.instant_time, metadata


def lost_files_error(uri: str, lost: tuple[LostFile, ...]) -> CorruptData:
    """Return the error for an operation that would hide the loss of files."""
    known = [one.file.row_count for one in lost if one.file.row_count is not None]
    rows = f", {sum(known):,} rows in all" if known else ""
    named = "".join(f"\n  {one.file.path}: {one.finding}" for one in lost[:_NAMED_FILES])
    more = f"\n  and {len(lost) - _NAMED_FILES:,} more" if len(lost) > _NAMED_FILES else ""
    return CorruptData(
        f"committed files of {uri} are missing or damaged ({len(lost):,}{rows}). Restore the same files from a copy; or accept "
        f"the loss with Table.repair(accept_loss=True) or `pyhudi repair --accept-loss --yes`:{named}{more}"
    )
