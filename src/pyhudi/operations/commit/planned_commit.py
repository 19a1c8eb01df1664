"""The values that describe a commit: what it publishes (`PlannedCommit`), and its state under the lock (`LockedCommit`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyhudi.format.actions.commit_metadata import SCHEMA_KEY, CommitMetadata, Operation, WriteStat
from pyhudi.format.instants import Action, Instant
from pyhudi.operations.commit.touched_file_groups import written_groups
from pyhudi.planning.conflicts import FileGroupId, WriteStart
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore
from pyhudi.tasks.write_tasks import WriteStatus


class CommitCache:
    """Commit metadata of one table's timeline, read once: completed files never change."""

    def __init__(self) -> None:
        self._known: dict[Instant, CommitMetadata] = {}

    def add(self, commits: Mapping[Instant, CommitMetadata]) -> None:
        """Add metadata that was read before."""
        self._known.update(commits)

    def read(self, store: TimelineStore, instant: Instant) -> CommitMetadata:
        """Return the metadata of a completed instant. Raises the errors of `read_commit`."""
        if instant not in self._known:
            self._known[instant] = read_commit(store, instant)
        return self._known[instant]


@dataclass(frozen=True, slots=True)
class LockedCommit:
    """A commit under the table's lock, after it was checked and before its completed file exists.

    Attributes:
        context: The table; its storage verifies the lock.
        instant_time: Request time.
        action: The action of the requested file.
        metadata: The commit metadata.
        timeline: The current timeline, on which the action is inflight.
        commits: Metadata of other commits.
    """

    context: TableContext
    instant_time: str
    action: Action
    metadata: CommitMetadata
    timeline: Timeline
    commits: CommitCache


MetadataHook = Callable[[LockedCommit], Timeline | None]
"""Writes a commit to the metadata table, under the lock, before the commit is published. Returns the timeline of the
metadata table with that delta commit, or None if the timeline has to be loaded.
"""


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """What a transaction publishes, and what it depends on.

    Attributes:
        metadata: The commit metadata.
        start: The state that the write was planned on; None skips conflict detection (for table services, whose plan
            protects their file groups).
        read_set: What the commit depends on besides the file groups that it writes: file groups that it replaces, and
            `new_keys` of partitions in which it looked up keys without finding them.
        metadata_commit: Writes to the metadata table; required if the table has one.
        verify: Checks the timeline under the lock, and raises if the action must not complete. May return entries to
            add to the extra metadata.
        shares_groups: All data was appended to file groups that other writers append to as well. Only an instant that
            replaces such a group is then a conflict.
        ignored_instants: Resizes that are no conflict, because this write double-wrote its changes for them.
        validate: Checks the commit on a timeline, and raises ValidationFailed if it must not complete. Called without the
            lock, again when other writes completed since, and at last under the lock.
    """

    metadata: CommitMetadata
    start: WriteStart | None = None
    read_set: tuple[FileGroupId, ...] = ()
    metadata_commit: MetadataHook | None = None
    verify: Callable[[Timeline], Mapping[str, str] | None] | None = None
    shares_groups: bool = False
    ignored_instants: frozenset[str] = frozenset()
    validate: Callable[[Timeline], None] | None = None

    @property
    def groups(self) -> set[FileGroupId]:
        """File groups that the commit writes or depends on."""
        return written_groups(self.metadata).union(self.read_set)

    @property
    def changes_files(self) -> bool:
        """True if the commit adds or replaces files."""
        return bool(self.metadata.partition_to_write_stats or self.metadata.partition_to_replace_file_ids)


def commit_metadata(
    operation: Operation,
    statuses: Iterable[WriteStatus],
    schema_text: str,
    extra: Mapping[str, str],
    replaced: Mapping[str, Iterable[str]] | None = None,
    *,
    compacted: bool = False,
) -> CommitMetadata:
    """Build the commit metadata of a write: statistics by partition, the table's schema and the caller's extra metadata."""
    by_partition: dict[str, list[WriteStat]] = {}
    for status in statuses:
        by_partition.setdefault(status.stat.partition_path or "", []).append(status.stat)
    return CommitMetadata(
        partition_to_write_stats={p: tuple(sorted(s, key=lambda stat: stat.path or "")) for p, s in sorted(by_partition.items())},
        compacted=compacted,
        extra_metadata={SCHEMA_KEY: schema_text, **extra},
        operation_type=operation.value,
        partition_to_replace_file_ids=None if replaced is None else {p: tuple(ids) for p, ids in sorted(replaced.items())},
    )


def rolled_metadata(
    commits: CommitCache, store: TimelineStore, timeline: Timeline, keys: Sequence[str], limit: int
) -> dict[str, str]:
    """Return entries of extra metadata from the newest completed commits that have them, without empty ones.

    Args:
        commits: Metadata of commits.
        store: The timeline's files.
        keys: Names of the entries.
        limit: Number of commits to search, from the newest on.
    """
    found: dict[str, str] = {}
    latest = sorted(timeline.completed_writes(), key=lambda instant: instant.completion_time or "", reverse=True)
    for instant in latest[:limit]:
        missing = [key for key in keys if key not in found]
        if not missing:
            break
        extra = commits.read(store, instant).extra_metadata
        found.update((key, extra[key]) for key in missing if extra.get(key))
    return found
