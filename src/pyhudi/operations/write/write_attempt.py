"""One attempt at a write, as a value, what its tasks wrote, and how often a write is attempted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from pyhudi.errors import TableState, WriteConflict
from pyhudi.features.consistent_hashing.hashing_metadata import is_copy
from pyhudi.features.consistent_hashing.write_rings import ConsistentHashingWrite
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation, WriteStat
from pyhudi.format.instants import Instant
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing
from pyhudi.operations.commit.action_attempt import Phases, backoff
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.hudi_writers import wait_for_foreign_writers
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write.index_lookup import PlannedLookup
from pyhudi.operations.write.operation_traits import OperationTraits
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.planning.conflicts import FileGroupId, WriteStart
from pyhudi.planning.record_placement import WorkloadProfile
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus

# What a write says of itself: to other writers before it begins, to its caller when it is done.


def encode_profile(profile: WorkloadProfile, operation: Operation, token: bytes) -> bytes:
    """The workload profile as other writers expect it in the inflight file: planned inserts of each partition, then each file
    group with updates.  token: sixteen random bytes.
    """
    by_partition: dict[str, list[WriteStat]] = {}
    for partition, count in sorted(profile.inserts.items()):
        by_partition.setdefault(partition, []).append(WriteStat(file_id="", partition_path=None, num_inserts=count))
    for (partition, file_id), count in sorted(profile.updates.items()):
        by_partition.setdefault(partition, []).append(WriteStat(file_id=file_id, num_update_writes=count))
    metadata = CommitMetadata(
        partition_to_write_stats={p: tuple(stats) for p, stats in by_partition.items()},
        operation_type=operation.value,
    )
    return metadata.encode(token)


def write_result(completed_instant: Instant, statuses: Iterable[WriteStatus]) -> WriteResult:
    """What the tasks of a committed write tell of it; its operation and what was planned are for the caller to say."""
    # Rows that a pending resize moves are written twice, and count once.
    stats = [status.stat for status in statuses if not is_copy(status.stat.path or "", completed_instant.request_time)]
    rewritten = [s for s in stats if s.prev_base_file is not None]
    return WriteResult(
        operation="",
        instant=completed_instant.request_time,
        completion_time=completed_instant.completion_time,
        rows_in=sum(s.num_inserts for s in stats),
        rows_inserted=sum(s.num_inserts for s in stats),
        rows_updated=sum(s.num_update_writes for s in stats),
        rows_deleted=sum(s.num_deletes for s in stats),
        file_groups_new=sum(1 for s in stats if s.prev_base_file is None and not s.log_files),
        file_groups_rewritten=len(rewritten),
        log_files=sum(1 for s in stats if s.log_files),
        bytes_written=sum(s.total_write_bytes for s in stats),
        bytes_rewritten=sum(s.total_write_bytes for s in rewritten),
    )


# The turn of a write that keeps losing: it holds the table's lock from its read to its commit, so that nobody overtakes it.

_LATEST = "9" * 17


@contextmanager
def exclusive_write(context: TableContext, settings: CommitSettings, longest_ms: int) -> Iterator[TableContext]:
    """The table during a turn.  longest_ms: how long others should expect it to be.

    Writers of another kind that are under way would wait for the lock until they have lost, and begin from nothing then: they are
    let go first, for a while.  Raises as `LockProvider.acquire`.
    """
    if not context.holds_lock:
        wait_for_foreign_writers(context, settings, context.timeline.load(), _LATEST, None)
    with context.exclusive(settings.lock_wait_ms, longest_ms) as held:
        yield held


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: what is written, the state that it is planned on, and the instant that it took.

    start: what its commit is compared with.  spec: how its tasks write files.  loaded_metadata: the slices of the state that were
    looked at before the instant was taken, and found to go with the options; None where none were.
    """

    context: TableContext
    settings: WriteSettings
    shape: OperationTraits
    schemas: WriteSchemas
    phases: Phases
    snapshot: Snapshot
    start: WriteStart
    transaction: Transaction
    spec: WriterSpec
    loaded_metadata: Mapping[str, tuple[FileSlice, ...]] | None = None

    def check_early(self, groups: Collection[FileGroupId]) -> None:
        """Raises WriteConflict, while no file is written, where others have changed file groups between the state that this is
        planned on and its instant; and where the settings ask for it and others change them now.
        """
        # What is appended beside others meets less, and a resize that the write follows is none of it.
        if not (self.shape.shares_groups or self.shape.is_consistent_hashing):
            self.transaction.check_requested_on_state(self.start, groups)
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
    hashing: of the partitions that it writes, under an index that has some.
    """

    statuses: list[WriteStatus]
    lookup: PlannedLookup | None = None
    read: tuple[FileGroupId, ...] = ()
    hashing: ConsistentHashingWrite | None = None


@contextmanager
def raise_stale_on_missing_file(snapshot: Snapshot) -> Iterator[None]:
    """A file that is gone from a state which is no longer whole is not damage: the write is planned anew."""
    try:
        yield
    except TableState:
        snapshot.check_not_stale()
        if isinstance(snapshot.listing, MetadataListing) and snapshot.listing.metadata is not None:
            snapshot.listing.metadata.check_not_stale()
        raise


def write_start(snapshot: Snapshot) -> WriteStart:
    """What the commit of a write that is planned on a state is compared with."""
    return WriteStart.of(snapshot.timeline, snapshot.schema.avro if snapshot.schema else "")


_LEAST_TURN_MS = 60_000
_ATTEMPTS_OF_A_TURN = 4
"""What others are told that a turn may take: the longest attempt so far is no measure of the next one."""


def retry_on_conflict(
    context: TableContext,
    settings: CommitSettings,
    attempt: Callable[[TableContext], WriteResult],
    run_attempt: Callable[[TableContext], None] | None = None,
) -> WriteResult:
    """Attempt a write that plans itself anew each time, and as often again as the settings allow while other writers win.

    attempt: is given the table to write to.  When it has been overtaken `CommitSettings.exclusive_after` times, that is one in
    its turn: whatever the attempt reads of it, nobody overtakes.  One that early detection stopped beside an older write was not
    overtaken.
    run_attempt: is called before each attempt but the first, and before that where it is in its turn; what it raises ends it all.
    """
    number = overtaken = longest_ms = 0
    while True:
        turn_ms = max(_LEAST_TURN_MS, _ATTEMPTS_OF_A_TURN * longest_ms)
        with nullcontext(context) if overtaken < settings.exclusive_after else exclusive_write(context, settings, turn_ms) as now:
            begun_ms = now.env.monotonic_ms()
            if run_attempt is not None and (number or now.holds_lock):
                run_attempt(now)
            try:
                return replace(attempt(now), conflict_retries=number)
            except WriteConflict as conflict:
                if number >= settings.conflict_retries:
                    raise
                lost = conflict
        took_ms = context.env.monotonic_ms() - begun_ms
        overtaken += not lost.in_progress
        if overtaken < settings.exclusive_after:
            backoff(context, settings, lost, took_ms, number)
        number, longest_ms = number + 1, max(longest_ms, took_ms)
