"""Partitions that a catalog sync compares: those of writes since the last sync, or all.

    written   partitions of writes requested after the last sync, or completed after it
    dropped   partitions that a write or a clean deleted, without later writes

All partitions are compared on the first sync, if the last sync precedes the active timeline, and if the last synced
write does not exist any more, for example after a restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.instants import Action, Instant
from pyhudi.table.snapshot import Snapshot, read_commit
from pyhudi.table.timeline.active_timeline import Timeline

LAST_COMMIT = "last_commit_time_sync"
LAST_COMPLETION = "last_commit_completion_time_sync"
"""Parameters of a catalog entry: request time of the last synced write, and the largest synced completion time."""


@dataclass(frozen=True, slots=True)
class SyncedInstant:
    """The state of the timeline at the last sync of a catalog entry; fields are None if the entry records nothing."""

    commit: str | None = None
    completion: str | None = None

    @classmethod
    def by(cls, parameters: Mapping[str, str]) -> SyncedInstant:
        """Read from the parameters of a catalog entry."""
        return cls(parameters.get(LAST_COMMIT), parameters.get(LAST_COMPLETION))

    @classmethod
    def of(cls, timeline: Timeline) -> SyncedInstant:
        """Build from a timeline."""
        writes = timeline.completed_writes()
        if not writes:
            return cls()
        return cls(writes[-1].request_time, max(_completed(write) for write in writes))

    def parameters(self) -> dict[str, str]:
        """Parameters for the catalog entry."""
        pairs = ((LAST_COMMIT, self.commit), (LAST_COMPLETION, self.completion))
        return {key: value for key, value in pairs if value is not None}

    def can_sync_incrementally(self, timeline: Timeline) -> bool:
        """Return True if the active timeline contains all writes since the last sync."""
        if self.commit is None or timeline.is_before_start(self.commit):
            return False
        return timeline.is_completed(self.commit)

    def is_behind(self, completed_instant: Instant) -> bool:
        """Return True if an instant completed after the last sync."""
        if self.commit is None or completed_instant.request_time > self.commit:
            return True
        return self.completion is not None and _completed(completed_instant) > self.completion


@dataclass(frozen=True, slots=True)
class PartitionsSince:
    """Partition paths; ``written`` is None for all."""

    written: frozenset[str] | None
    dropped: frozenset[str]


def partitions_since(snapshot: Snapshot, synced: SyncedInstant) -> PartitionsSince:
    """Return the partitions to compare since the last sync."""
    timeline, follows = snapshot.timeline, synced.can_sync_incrementally(snapshot.timeline)
    # Partition -> its last write, and its last deletion.
    written: dict[str, str] = {}
    deleted: dict[str, str] = {}
    store = snapshot.context.timeline
    # Every write to a partition after its deletion is as new to the catalog as the deletion.
    for write in timeline.completed_writes():
        if follows and not synced.is_behind(write):
            continue
        commit = read_commit(store, write)
        _note(written, commit.partition_to_write_stats, _completed(write))
        if commit.operation is Operation.DELETE_PARTITION:
            _note(deleted, commit.partition_to_replace_file_ids or (), _completed(write))
    for clean in timeline.completed(Action.CLEAN):
        if not follows or synced.is_behind(clean):
            done = CleanMetadata.decode(store.read(clean)).partition_metadata
            _note(deleted, (path for path, part in done.items() if part.is_partition_deleted), clean.request_time)
    dropped = frozenset(path for path, time in deleted.items() if written.get(path, "") <= time)
    return PartitionsSince(frozenset(written) - dropped if follows else None, dropped)


def _note(times: dict[str, str], paths: Iterable[str], time: str) -> None:
    for path in paths:
        times[path] = max(time, times.get(path, ""))


def _completed(completed_instant: Instant) -> str:
    return completed_instant.completion_time or completed_instant.request_time
