"""Which partitions a sync looks at: those of writes since the last one, or all.

    written   partitions of writes requested after the last sync, or completed after it
    dropped   partitions that a write deleted, or a clean, and to which nobody has written since

All are compared where nobody has told the catalog before, where the last sync lies before the active timeline, and where the
write that it had last is gone, as after a restore.
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
"""Parameters of a catalog's table: the request time of the last write that it was told of, and the largest completion time."""


@dataclass(frozen=True, slots=True)
class SyncedInstant:
    """How far a catalog's table was told of the timeline.  commit, completion: None where it says nothing."""

    commit: str | None = None
    completion: str | None = None

    @classmethod
    def by(cls, parameters: Mapping[str, str]) -> SyncedInstant:
        """From the parameters of a catalog's table."""
        return cls(parameters.get(LAST_COMMIT), parameters.get(LAST_COMPLETION))

    @classmethod
    def of(cls, timeline: Timeline) -> SyncedInstant:
        """All of a timeline."""
        writes = timeline.completed_writes()
        if not writes:
            return cls()
        return cls(writes[-1].request_time, max(_completed(write) for write in writes))

    def parameters(self) -> dict[str, str]:
        """As a catalog's table carries it."""
        pairs = ((LAST_COMMIT, self.commit), (LAST_COMPLETION, self.completion))
        return {key: value for key, value in pairs if value is not None}

    def can_sync_incrementally(self, timeline: Timeline) -> bool:
        """Whether the writes since can be told from the timeline alone."""
        if self.commit is None or timeline.is_before_start(self.commit):
            return False
        return timeline.is_completed(self.commit)

    def is_behind(self, completed_instant: Instant) -> bool:
        """Whether a completed instant came after it."""
        if self.commit is None or completed_instant.request_time > self.commit:
            return True
        return self.completion is not None and _completed(completed_instant) > self.completion


@dataclass(frozen=True, slots=True)
class PartitionsSince:
    """Paths.  written: None for all that there are."""

    written: frozenset[str] | None
    dropped: frozenset[str]


def partitions_since(snapshot: Snapshot, synced: SyncedInstant) -> PartitionsSince:
    """What to look at in a table of which a catalog was told so far."""
    timeline, follows = snapshot.timeline, synced.can_sync_incrementally(snapshot.timeline)
    # Partition -> when somebody wrote to it last, and when somebody deleted it last.
    written: dict[str, str] = {}
    deleted: dict[str, str] = {}
    store = snapshot.context.timeline
    # Whatever was written to a partition after its deletion is as new to the catalog as that is.
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
