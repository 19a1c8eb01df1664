"""Interface of a step between two table versions, and its common preparation: no failed writes and no log files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from pyhudi.errors import TableState
from pyhudi.format.instants import Action
from pyhudi.format.table_versions import TableVersion
from pyhudi.operations.commit.begin_checks import check_no_pending_restore
from pyhudi.operations.commit.rollback import rollback_failed_writes
from pyhudi.operations.services.compact import CompactSettings, run_compaction, unschedule
from pyhudi.records.html_repr import HtmlRepr
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine

CHANGING = "changing its version"
"""Completes "run it again before ..." for an unfinished restore, which must complete in the version in which it began."""


@dataclass(frozen=True, slots=True)
class VersionChange(HtmlRepr):
    """The outcome of an upgrade or downgrade.

    Attributes:
        before: Version before.
        after: Version after.
        instants: Number of converted active instants.
        archived: Number of converted archived instants.
        rolled_back: Failed writes that were rolled back.
        compaction: Instant of the compaction, None if there was none.
        dropped_indexes: Indexes that the version does not support, by their partitions.
    """

    before: int
    after: int
    instants: int = 0
    archived: int = 0
    rolled_back: tuple[str, ...] = ()
    compaction: str | None = None
    dropped_indexes: tuple[str, ...] = ()

    def combine(self, later: VersionChange) -> VersionChange:
        """Return this change and the next one as one change."""
        return VersionChange(
            self.before,
            later.after,
            self.instants + later.instants,
            self.archived + later.archived,
            (*self.rolled_back, *later.rolled_back),
            later.compaction or self.compaction,
            (*self.dropped_indexes, *later.dropped_indexes),
        )

    def __str__(self) -> str:
        if self.before == self.after:
            return f"the table already has version {self.after}"
        done = []
        if TableVersion(self.before).layout is not TableVersion(self.after).layout:
            done.append(f"{self.instants} instants, {self.archived} archived ones")
        if self.rolled_back:
            done.append(f"{len(self.rolled_back)} failed writes rolled back")
        if self.compaction:
            done.append(f"compacted by {self.compaction}")
        if self.dropped_indexes:
            done.append(f"indexes dropped: {', '.join(self.dropped_indexes)}")
        return ": ".join(filter(None, (f"version {self.before} -> {self.after}", ", ".join(done))))


@dataclass(frozen=True, slots=True)
class StepContext:
    """Inputs of a step.

    Attributes:
        engine: The engine.
        settings: Settings of compactions.
        compression: Compression codec of history files, by its Arrow name.
    """

    engine: Engine
    settings: CompactSettings
    compression: str

    @property
    def lock_wait_ms(self) -> int:
        """How long to wait for the table lock."""
        return self.settings.commit.lock_wait_ms


@dataclass(frozen=True, slots=True)
class Direction:
    """A step in one of its directions.

    Attributes:
        end: Version of the table after it.
        check: See `VersionStep.check_up`.
        run: See `VersionStep.up`.
        finish: See `VersionStep.finish_up`.
    """

    end: TableVersion
    check: Callable[[TableContext], None]
    run: Callable[[TableContext, StepContext], VersionChange]
    finish: Callable[[TableContext], None]


class VersionStep(ABC):
    """The conversion between two adjacent table versions, in both directions.

    Each direction changes the version with one write of the properties, after it has created everything that readers of
    the new version need. A process that dies before that write leaves a table of the old version; one that dies after
    it leaves a table of the new version, with remains that `finish_up` or `finish_down` removes. Each direction may be
    repeated.
    """

    lower: ClassVar[TableVersion]
    upper: ClassVar[TableVersion]

    @property
    def upward(self) -> Direction:
        """The upgrade direction."""
        return Direction(self.upper, self.check_up, self.up, self.finish_up)

    @property
    def downward(self) -> Direction:
        """The downgrade direction."""
        return Direction(self.lower, self.check_down, self.down, self.finish_down)

    @abstractmethod
    def check_up(self, context: TableContext) -> None:
        """Raise Unsupported or TableState if the table cannot be upgraded, before any change.

        The table may still have a version below `lower`.
        """

    @abstractmethod
    def check_down(self, context: TableContext) -> None:
        """Raise Unsupported or TableState if the table cannot be downgraded; it may still have a version above `upper`."""

    @abstractmethod
    def up(self, context: TableContext, step_context: StepContext) -> VersionChange:
        """Upgrade a table from `lower` to `upper`."""

    @abstractmethod
    def down(self, context: TableContext, step_context: StepContext) -> VersionChange:
        """Downgrade a table from `upper` to `lower`."""

    @abstractmethod
    def finish_up(self, locked_context: TableContext) -> None:
        """Remove the remains of an upgrade that died after the table had version `upper`. The lock is held."""

    @abstractmethod
    def finish_down(self, locked_context: TableContext) -> None:
        """Remove the remains of a downgrade that died after the table had version `lower`. The lock is held."""


def prepare_version_change(context: TableContext, step_context: StepContext) -> tuple[tuple[str, ...], str | None]:
    """Roll failed writes back, and compact a merge-on-read table until no file slice has a log file.

    Returns:
        The writes that were rolled back, and the last compaction.

    Raises:
        TableState: A restore is pending, or a clustering of a merge-on-read table.
    """
    check_can_prepare(context)
    eager = replace(step_context.settings.commit, failed_writes="EAGER")
    rolled_back = tuple(result.rolled_back for result in rollback_failed_writes(context, eager))
    return rolled_back, _merge_all_logs(context, step_context)


def check_can_prepare(context: TableContext) -> None:
    """Raise TableState if something has to be run or dropped first."""
    timeline, uri = context.timeline.load(), context.storage.uri
    check_no_pending_restore(context, timeline, CHANGING)
    clusterings = timeline.pending(Action.CLUSTERING)
    if clusterings and not context.config.is_cow:
        raise TableState(
            f"clustering {clusterings[0].request_time} of {uri} is pending, so logs of its file groups cannot be merged; "
            "run it or drop it first"
        )


def check_prepared(locked_context: TableContext) -> None:
    """Raise TableState if the table is not in the state that `prepare_version_change` creates. The lock is held."""
    timeline, uri = locked_context.timeline.load(), locked_context.storage.uri
    check_no_pending_restore(locked_context, timeline, CHANGING)
    writing = timeline.pending_writes()
    if writing:
        raise TableState(f"{writing[0].action} {writing[0].request_time} of {uri} is pending; let it complete first")
    if locked_context.config.is_cow:
        return
    count = _slices_with_logs(locked_context)
    if count or timeline.pending(Action.COMPACTION, Action.LOGCOMPACTION):
        raise TableState(f"{count} file slices of {uri} have new log files; stop its writers and try again")


def check_version(locked_context: TableContext, version: TableVersion) -> None:
    """Raise TableState if the version changed: files that are remains in one version may be the timeline of another.
    The lock is held.
    """
    now = locked_context.config.version
    if now is not version:
        raise TableState(
            f"table {locked_context.storage.uri} was upgraded or downgraded to version {int(now)} by another process; try again"
        )


def check_index_builds(context: TableContext) -> None:
    """Raise TableState while an index build is pending: its plan contains a definition of the current version."""
    pending = context.timeline.load().pending(Action.INDEXING)
    if pending:
        raise TableState(
            f"index build {pending[0].request_time} of {context.storage.uri} is pending; complete it or abort it first"
        )


def unlimited(settings: CompactSettings) -> CompactSettings:
    """Return the settings of a compaction of every file slice with log files."""
    return replace(settings, compaction=replace(settings.compaction, strategies=(), incremental=False))


def _merge_all_logs(context: TableContext, step_context: StepContext) -> str | None:
    """Compact until no file slice has a log file; return the instant of the last compaction."""
    if context.config.is_cow:
        return None
    for pending in context.timeline.load().pending(Action.LOGCOMPACTION):
        unschedule(context, step_context.settings, pending.request_time)
    everything = unlimited(step_context.settings)
    last: str | None = None
    for _ in range(3):
        if not _slices_with_logs(context):
            return last
        result = run_compaction(context, step_context.engine, everything)
        if result.remaining:
            raise TableState(
                f"compaction {min(result.remaining)} of {context.storage.uri} was not run: {min(result.remaining.values())}"
            )
        last = result.instant or last
    return last


def _slices_with_logs(context: TableContext) -> int:
    return sum(1 for partition_slices in load_snapshot(context).slices().values() for slice_ in partition_slices if slice_.logs)
