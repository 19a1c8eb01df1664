"""Conflict check of one write: before the lock to fail early, and under the lock to decide.

The check reads every commit that completed since the write was planned, one request each. With many waiting writers, as
many commits land while each of them waits. So they are read while the writer waits for the lock, and not again under
it: the time under the lock does not grow with the number of writers.

Under the strategy that prefers writers, a pending clustering is no conflict for a write, and a live pending write is one
for a clustering. A pending compaction stays a conflict: base files that the write rewrote would be older than those of
the compaction.

Source: docs/formats/writing.md, "Conflicts".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyhudi.errors import HudiError, WriteConflict
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.hudi_writers import unchecked_clusterings
from pyhudi.operations.commit.planned_commit import CommitCache
from pyhudi.operations.commit.touched_file_groups import (
    file_groups_of_commit,
    load_replaced_groups,
    profiled_file_groups,
    touched_file_groups,
    written_groups,
)
from pyhudi.planning.conflicts import (
    FileGroupId,
    WriteStart,
    concurrently_replaced_groups,
    describe_conflicts,
    find_conflicts,
    instants_to_check,
    keys_looked_up_during_compaction,
)
from pyhudi.storage.liveness import is_alive
from pyhudi.table.snapshot import load_archived_commits
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.archived_timeline import Bounds

_PREFETCH_INTERVAL_MS = 5_000


@dataclass(frozen=True, slots=True)
class ConflictCheck:
    """Compare the file groups of a write with those of other instants.

    Attributes:
        context: The table.
        instant_time: Request time of the write.
        action: Its action.
        start: The state that it was planned on.
        commits: Metadata of other commits.
        settings: Commit settings.
        shares_groups: See `PlannedCommit`.
        ignored_instants: See `PlannedCommit`.
    """

    context: TableContext
    instant_time: str
    action: Action
    start: WriteStart
    commits: CommitCache
    settings: CommitSettings
    shares_groups: bool = False
    ignored_instants: frozenset[str] = frozenset()

    def check(self, current_timeline: Timeline, groups: Collection[FileGroupId]) -> None:
        """Raise WriteConflict if another instant of the timeline conflicts with a write of these groups."""
        start, mine = self.start, set(groups)
        if start.last_completed and not _is_still_completed(current_timeline, start.last_completed):
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} builds on {start.last_completed}, "
                "which was rolled back concurrently; plan the write again",
                instants=(start.last_completed,),
            )
        others: dict[Instant, Collection[FileGroupId]] = {}
        compactions: set[str] = set()
        compacted: set[FileGroupId] = set()
        concurrent = [*self._concurrent_instants(current_timeline), *self._unchecked_clusterings(current_timeline)]
        for instant in concurrent:
            if instant.action is Action.COMPACTION and instant.is_pending:
                compactions.add(instant.request_time)
                if self.shares_groups:
                    continue
            if instant.is_pending:
                others[instant] = self._groups_of_pending(instant)
        commits = [(i, self.commits.read(self.context.timeline, i)) for i in concurrent if i.is_completed]
        for instant, metadata in (*commits, *self._archived_since(current_timeline)):
            if self.shares_groups:
                others[instant] = concurrently_replaced_groups(mine, written_groups(metadata), load_replaced_groups(metadata))
                continue
            others[instant] = file_groups_of_commit(metadata, appends_insert=instant.request_time < start.compacted)
            if metadata.operation is Operation.COMPACT:
                compactions.add(instant.request_time)
                compacted.update(others[instant])
        mine |= keys_looked_up_during_compaction(mine, compacted)
        conflicts = find_conflicts(self.instant_time, mine, others, frozenset(compactions))
        if conflicts:
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} changes file groups that other "
                f"instants changed concurrently: {describe_conflicts(conflicts)}; plan the write again",
                instants=tuple(c.instant.request_time for c in conflicts),
            )

    def check_unlocked(self, timeline: Timeline | None, groups: Collection[FileGroupId]) -> None:
        """Fail early if the write has lost already, so that a writer that can win gets the lock sooner.

        Errors other than a conflict are ignored: without the lock a commit may be archived between two reads, and the
        decisive check follows under the lock.

        Args:
            timeline: The timeline to check; None loads it.
            groups: As in `check`.
        """
        try:
            self.check(self.context.timeline.load() if timeline is None else timeline, groups)
        except WriteConflict:
            raise
        except HudiError:
            return

    @contextmanager
    def prefetching(self) -> Iterator[Callable[[], None]]:
        """Read the commits that `check` will need, in another thread, during the block.

        Yields:
            A function that ends the reading early; a read that has begun may continue.
        """

        def read() -> None:
            # What cannot be read here, such as a commit that is being archived, is read under the lock.
            with suppress(HudiError):
                for instant in self._concurrent_instants(self.context.timeline.load()):
                    if instant.is_completed:
                        self.commits.read(self.context.timeline, instant)

        repetition = self.context.env.every_ms(_PREFETCH_INTERVAL_MS, read)
        try:
            yield repetition.stop
        finally:
            repetition.stop()

    def _concurrent_instants(self, current_timeline: Timeline) -> list[Instant]:
        found = instants_to_check(self.instant_time, self.start, current_timeline)
        if self.settings.prefers_writers and self.action.is_service:
            found += tuple(i for i in current_timeline.pending(Action.COMMIT, Action.DELTACOMMIT) if self._may_commit(i))
        elif self.settings.prefers_writers:
            found = tuple(i for i in found if i.is_completed or i.action is not Action.CLUSTERING)
        return [instant for instant in found if instant.request_time not in self.ignored_instants]

    def _unchecked_clusterings(self, current_timeline: Timeline) -> tuple[Instant, ...]:
        """Return clusterings planned before this write that would replace their file groups without it."""
        if self.action.is_service:
            return ()
        return unchecked_clusterings(self.context, self.settings, self.earlier_clusterings(current_timeline))

    def earlier_clusterings(self, current_timeline: Timeline) -> list[Instant]:
        """Return the pending clusterings that were planned before this write, which has not double-written for them."""
        clusterings = [i for i in current_timeline.pending(Action.CLUSTERING) if i.request_time < self.instant_time]
        return [i for i in clusterings if i.request_time not in self.ignored_instants]

    def _may_commit(self, write: Instant) -> bool:
        """Return True for a pending write that has reported its file groups and whose writer is alive."""
        context, heartbeats = self.context, self.settings.heartbeats
        return write.state is State.INFLIGHT and is_alive(context.storage, context.env, write.request_time, heartbeats)

    def _groups_of_pending(self, instant: Instant) -> Collection[FileGroupId]:
        if instant.action.is_write:
            return profiled_file_groups(self.context, instant)
        return touched_file_groups(self.context, instant)

    def _archived_since(self, current_timeline: Timeline) -> Iterator[tuple[Instant, CommitMetadata]]:
        """Return the writes and services that completed and were archived since the start."""
        if self.start.is_archived(current_timeline):
            active = {i.step for i in current_timeline.instants}
            for instant, metadata in load_archived_commits(self.context.timeline, Bounds(self.start.latest)):
                if (instant.completion_time or "") > self.start.latest and instant.step not in active:
                    yield instant, metadata


def _is_still_completed(current_timeline: Timeline, request_time: str) -> bool:
    """Return True if a completed write is still completed, on the active or archived timeline."""
    return current_timeline.is_completed(request_time) and current_timeline.completion_time(request_time) is not None
