"""What a step between two table versions is, and what all of them need: a table without failed writes and without log files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from pyhudi.errors import TableState
from pyhudi.format.instants import Action
from pyhudi.format.table_versions import TableVersion
from pyhudi.operations.commit.rollback import rollback_failed_writes
from pyhudi.operations.commit.transaction import check_no_pending_restore
from pyhudi.operations.services.compact import CompactSettings, run_compaction, unschedule
from pyhudi.records.html_repr import HtmlRepr
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine

CHANGING = "its version is changed"
"""What has to wait for a restore, which ends in the version in which it began."""


@dataclass(frozen=True, slots=True)
class VersionChange(HtmlRepr):
    """What an upgrade or downgrade did.

    instants, archived: how many were taken over into another layout; rolled_back: failed writes that were taken back; compaction:
    its instant, None without one; dropped_indexes: those that the version cannot hold, by their partitions.
    """

    before: int
    after: int
    instants: int = 0
    archived: int = 0
    rolled_back: tuple[str, ...] = ()
    compaction: str | None = None
    dropped_indexes: tuple[str, ...] = ()

    def combine(self, later: VersionChange) -> VersionChange:
        """This change and the one after it, as one."""
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
            return f"the table has version {self.after} already"
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
    """What a step works with.  compression: of files of the history, as Arrow calls it."""

    engine: Engine
    settings: CompactSettings
    compression: str

    @property
    def lock_wait_ms(self) -> int:
        """How long to wait for the table's lock."""
        return self.settings.commit.lock_wait_ms


@dataclass(frozen=True, slots=True)
class Direction:
    """A step in one of its directions.  end: the version of the table after it; the rest as of `VersionStep`."""

    end: TableVersion
    check: Callable[[TableContext], None]
    run: Callable[[TableContext, StepContext], VersionChange]
    finish: Callable[[TableContext], None]


class VersionStep(ABC):
    """The way from a table version to the next one, and back.

    Each way changes the table's version by one change of its properties, after all that readers of the new version need is there:
    a process that dies before it leaves a table of the old version, and one that dies after it a table of the new one, with
    remains that `finish_up` or `finish_down` removes.  Each may be repeated.
    """

    lower: ClassVar[TableVersion]
    upper: ClassVar[TableVersion]

    @property
    def upward(self) -> Direction:
        """The way up."""
        return Direction(self.upper, self.check_up, self.up, self.finish_up)

    @property
    def downward(self) -> Direction:
        """The way down."""
        return Direction(self.lower, self.check_down, self.down, self.finish_down)

    @abstractmethod
    def check_up(self, context: TableContext) -> None:
        """Raises Unsupported or TableState for a table that the way up cannot take, before anything of it is changed.

        The table may have a version below `lower` still.
        """

    @abstractmethod
    def check_down(self, context: TableContext) -> None:
        """As `check_up`, for the way down; the table may have a version above `upper` still."""

    @abstractmethod
    def up(self, context: TableContext, step_context: StepContext) -> VersionChange:
        """Make a table of `lower` one of `upper`."""

    @abstractmethod
    def down(self, context: TableContext, step_context: StepContext) -> VersionChange:
        """Make a table of `upper` one of `lower`."""

    @abstractmethod
    def finish_up(self, locked_context: TableContext) -> None:
        """Remove what a way up left that died after the table had version `upper`.  The lock is held."""

    @abstractmethod
    def finish_down(self, locked_context: TableContext) -> None:
        """As `finish_up`, of a table that has version `lower`."""


def prepare_version_change(context: TableContext, step_context: StepContext) -> tuple[tuple[str, ...], str | None]:
    """Roll failed writes back, and compact a merge-on-read table until no slice has a log file.

    Returns the writes that were rolled back, and the last compaction.  Raises TableState while a restore is pending,
    or a clustering of a merge-on-read table.
    """
    check_can_prepare(context)
    eager = replace(step_context.settings.commit, failed_writes="EAGER")
    rolled_back = tuple(result.rolled_back for result in rollback_failed_writes(context, eager))
    return rolled_back, _merge_all_logs(context, step_context)


def check_can_prepare(context: TableContext) -> None:
    """Raises TableState for what has to be carried out or dropped before."""
    timeline, uri = context.timeline.load(), context.storage.uri
    check_no_pending_restore(context, timeline, CHANGING)
    clusterings = timeline.pending(Action.CLUSTERING)
    if clusterings and not context.config.is_cow:
        raise TableState(
            f"clustering {clusterings[0].request_time} of {uri} is pending, so logs of its file groups cannot be merged; "
            "run it or drop it first"
        )


def check_prepared(locked_context: TableContext) -> None:
    """Raises TableState where a table is not, or not any more, as `prepare_version_change` left it.  The lock is held."""
    timeline, uri = locked_context.timeline.load(), locked_context.storage.uri
    check_no_pending_restore(locked_context, timeline, CHANGING)
    writing = timeline.pending_writes()
    if writing:
        raise TableState(f"{writing[0].action} {writing[0].request_time} of {uri} is under way; let it end first")
    if locked_context.config.is_cow:
        return
    count = _slices_with_logs(locked_context)
    if count or timeline.pending(Action.COMPACTION, Action.LOGCOMPACTION):
        raise TableState(f"{count} file slices of {uri} have log files again; stop its writers and try again")


def check_version(locked_context: TableContext, version: TableVersion) -> None:
    """Raises TableState where a table is of another version by now: what one calls its leftovers is the timeline of another.  The
    lock is held.
    """
    now = locked_context.config.version
    if now is not version:
        raise TableState(
            f"another process has made the table at {locked_context.storage.uri} one of version {int(now)} meanwhile"
        )


def check_index_builds(context: TableContext) -> None:
    """Raises TableState while an index is to be built: its plan holds a definition of the version that the table has."""
    pending = context.timeline.load().pending(Action.INDEXING)
    if pending:
        raise TableState(
            f"index build {pending[0].request_time} of {context.storage.uri} is pending; run it to its end or abort it first"
        )


def unlimited(settings: CompactSettings) -> CompactSettings:
    """The same settings for a compaction of every slice that has log files."""
    return replace(settings, compaction=replace(settings.compaction, strategies=(), incremental=False))


def _merge_all_logs(context: TableContext, step_context: StepContext) -> str | None:
    """Compact until no slice has a log file; the instant of the last compaction."""
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
                f"compaction {min(result.remaining)} of {context.storage.uri} is not run: {min(result.remaining.values())}"
            )
        last = result.instant or last
    return last


def _slices_with_logs(context: TableContext) -> int:
    return sum(1 for found in load_snapshot(context).slices().values() for slice_ in found if slice_.logs)
