"""One attempt at a write, as a value, what its tasks wrote, and how often a write is attempted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from pyhudi.errors import TableState, WriteConflict
from pyhudi.features.consistent_hashing.write_rings import RingsOfWrite
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing
from pyhudi.operations.commit.action_attempt import Phases, give_way
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.exclusive_write import its_turn
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write.index_lookup import PlannedLookup
from pyhudi.operations.write.operation_traits import WriteShape
from pyhudi.operations.write.write_report import encode_profile
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.planning.conflicts import FileGroupId, WriteStart
from pyhudi.planning.record_placement import WorkloadProfile
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: what is written, the state that it is planned on, and the instant that it took.

    start: what its commit is compared with.  spec: how its tasks write files.  looked: the slices of the state that were looked
    at before the instant was taken, and found to go with the options; None where none were.
    """

    context: TableContext
    settings: WriteSettings
    shape: WriteShape
    schemas: WriteSchemas
    phases: Phases
    snapshot: Snapshot
    start: WriteStart
    transaction: Transaction
    spec: WriterSpec
    looked: Mapping[str, tuple[FileSlice, ...]] | None = None

    def check_early(self, groups: Collection[FileGroupId]) -> None:
        """Raises WriteConflict, while no file is written, where others have changed file groups between the state that this is
        planned on and its instant; and where the settings ask for it and others change them now.
        """
        # What is appended beside others meets less, and a resize that the write follows is none of it.
        if not (self.shape.shares_groups or self.shape.has_rings):
            self.transaction.check_begun(self.start, groups)
        if self.spec.early is None:
            return
        self.spec.early.check(self.context.storage, groups)
        if self.settings.early.checks_commits:
            self.transaction.check_conflicts(self.start, groups)

    def begin_files(self, profile: WorkloadProfile | None) -> None:
        """Write the inflight file; data files may follow.  profile: what it tells other writers, None for nothing."""
        operation, env = self.shape.operation.recorded, self.context.env
        self.transaction.start(b"" if profile is None else encode_profile(profile, operation, env.token_bytes(16)))


@dataclass(frozen=True, slots=True)
class Written:
    """What the tasks of an attempt wrote.

    lookup: where keys were looked up, None where they were not.  read: what was read about keys for which nothing is written.
    rings: of the partitions that it writes, under an index that has some.
    """

    statuses: list[WriteStatus]
    lookup: PlannedLookup | None = None
    read: tuple[FileGroupId, ...] = ()
    rings: RingsOfWrite | None = None


@contextmanager
def outdated_where_files_are_gone(snapshot: Snapshot) -> Iterator[None]:
    """A file that is gone from a state which is no longer whole is not damage: the write is planned anew."""
    try:
        yield
    except TableState:
        snapshot.check_whole()
        if isinstance(snapshot.listing, MetadataListing) and snapshot.listing.metadata is not None:
            snapshot.listing.metadata.check_whole()
        raise


def start_of(snapshot: Snapshot) -> WriteStart:
    """What the commit of a write that is planned on a state is compared with."""
    return WriteStart.of(snapshot.timeline, snapshot.schema.avro if snapshot.schema else "")


_LEAST_TURN_MS = 60_000
_ATTEMPTS_OF_A_TURN = 4
"""What others are told that a turn may take: the longest attempt so far is no measure of the next one."""


def until_no_conflict(
    context: TableContext,
    settings: CommitSettings,
    attempt: Callable[[TableContext], WriteResult],
    look: Callable[[TableContext], None] | None = None,
) -> WriteResult:
    """Attempt a write that plans itself anew each time, and as often again as the settings allow while other writers win.

    attempt: is given the table to write to.  When it has been overtaken `CommitSettings.turn_after` times, that is one in its
    turn: whatever the attempt reads of it, nobody overtakes.  One that early detection stopped beside an older write was not
    overtaken.
    look: is called before each attempt but the first, and before that where it is in its turn; what it raises ends it all.
    """
    number = overtaken = longest_ms = 0
    while True:
        turn_ms = max(_LEAST_TURN_MS, _ATTEMPTS_OF_A_TURN * longest_ms)
        with nullcontext(context) if overtaken < settings.turn_after else its_turn(context, settings, turn_ms) as now:
            begun_ms = now.env.monotonic_ms()
            if look is not None and (number or now.in_turn):
                look(now)
            try:
                return replace(attempt(now), conflict_retries=number)
            except WriteConflict as conflict:
                if number >= settings.conflict_retries:
                    raise
                lost = conflict
        took_ms = context.env.monotonic_ms() - begun_ms
        overtaken += not lost.under_way
        if overtaken < settings.turn_after:
            give_way(context, settings, lost, took_ms, number)
        number, longest_ms = number + 1, max(longest_ms, took_ms)
