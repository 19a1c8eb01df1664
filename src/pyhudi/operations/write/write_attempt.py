"""One attempt at a write: its inputs, the output of its tasks, and the retry loop after conflicts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from pyhudi.errors import TableState, WriteConflict
from pyhudi.features.consistent_hashing.hashing_metadata import is_copy
from pyhudi.features.consistent_hashing.hashing_writes import ConsistentHashingWrite
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation, WriteStat
from pyhudi.format.instants import Instant
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing
from pyhudi.operations.commit.action_attempt import Phases, backoff
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.foreign_index_builds import wait_for_index_builds
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

# What a write reports: to other writers in its inflight file, and to its caller in its result.


def encode_profile(profile: WorkloadProfile, operation: Operation, token: bytes) -> bytes:
    """Encode the workload profile for the inflight file: planned inserts of each partition, then each file group with updates.

    Args:
        token: Sixteen random bytes.
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
    """Build the result of a committed write from its write statuses; the caller adds operation and plan figures."""
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


# A write that keeps losing conflicts holds the table lock from its read to its commit, so that no other write can
# commit first.

_LATEST = "9" * 17


@contextmanager
def exclusive_write(context: TableContext, settings: CommitSettings, longest_ms: int) -> Iterator[TableContext]:
    """Hold the table lock for one exclusive write.

    Pending writers of another kind would wait for the lock until they have lost, and then start from scratch. So they
    may commit first, for a limited time.

    Args:
        longest_ms: Expected maximum duration, published to waiting writers.

    Raises:
        The errors of `LockProvider.acquire`.
    """
    if not context.holds_lock:
        wait_for_foreign_writers(context, settings, context.timeline.load(), _LATEST, None)
        wait_for_index_builds(context, settings)
    with context.exclusive(settings.lock_wait_ms, longest_ms) as locked:
        yield locked


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a write.

    Attributes:
        context: The table.
        settings: Settings of the write.
        shape: Traits of the operation.
        schemas: Schemas of the write.
        phases: Timing.
        snapshot: The snapshot that it is planned on.
        start: The state that conflicts are detected against.
        transaction: Its transaction.
        spec: How its tasks write files.
        loaded_metadata: File slices that were checked against the options before the instant was taken; None if none
            were.
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
        """Raise WriteConflict before any file is written if the write has already lost.

        That is the case if file groups changed between the snapshot and the instant of the attempt. With early conflict
        detection, pending writes to the same file groups count too.
        """
        # Appends to shared file groups have fewer conflicts, and a resize that the write double-writes for is none.
        if not (self.shape.shares_groups or self.shape.is_consistent_hashing):
            self.transaction.check_requested_on_state(self.start, groups)
        if self.spec.early is None:
            return
        self.spec.early.check(self.context.storage, groups)
        if self.settings.early.checks_commits:
            self.transaction.check_conflicts(self.start, groups)

    def begin_files(self, profile: WorkloadProfile | None) -> None:
        """Write the inflight file with the profile; data files may follow."""
        operation, env = self.settings.recorded, self.context.env
        self.transaction.start(b"" if profile is None else encode_profile(profile, operation, env.token_bytes(16)))


@dataclass(frozen=True, slots=True)
class Written:
    """The output of the tasks of an attempt.

    Attributes:
        statuses: Write statuses.
        lookup: The index lookup, None if there was none.
        read: Read set of keys for which nothing was written.
        hashing: Consistent hashing metadata of the written partitions.
    """

    statuses: list[WriteStatus]
    lookup: PlannedLookup | None = None
    read: tuple[FileGroupId, ...] = ()
    hashing: ConsistentHashingWrite | None = None


@contextmanager
def raise_stale_on_missing_file(snapshot: Snapshot) -> Iterator[None]:
    """Treat a missing file of an outdated snapshot as a stale snapshot, not as corruption: the write is planned again."""
    try:
        yield
    except TableState:
        snapshot.check_not_stale()
        if isinstance(snapshot.listing, MetadataListing) and snapshot.listing.metadata is not None:
            snapshot.listing.metadata.check_not_stale()
        raise


def write_start(snapshot: Snapshot) -> WriteStart:
    """Return the state that the commit of a write planned on ``snapshot`` is compared with."""
    return WriteStart.of(snapshot.timeline, snapshot.schema.avro if snapshot.schema else "")


_MIN_EXCLUSIVE_MS = 60_000
_EXCLUSIVE_ATTEMPTS = 4
"""Expected duration of an exclusive write, as a multiple of the longest attempt, which may be shorter than the next one."""


def retry_on_conflict(
    context: TableContext,
    settings: CommitSettings,
    attempt: Callable[[TableContext], WriteResult],
    prepare_attempt: Callable[[TableContext], None] | None = None,
) -> WriteResult:
    """Run an attempt, and retry after conflicts as often as the settings allow.

    Args:
        attempt: Plans and runs one attempt on the given table. After `CommitSettings.exclusive_after` conflicts it runs
            as an exclusive write, which no other write can overtake. An attempt that early conflict detection stopped
            does not count.
        prepare_attempt: Called before each retry, and before the attempt of an exclusive write, under its lock. Its errors
            end the loop.
    """
    number = overtaken = longest_ms = 0
    while True:
        exclusive_ms = max(_MIN_EXCLUSIVE_MS, _EXCLUSIVE_ATTEMPTS * longest_ms)
        with (
            nullcontext(context)
            if overtaken < settings.exclusive_after
            else exclusive_write(context, settings, exclusive_ms) as now
        ):
            begun_ms = now.env.monotonic_ms()
            if prepare_attempt is not None and (number or now.holds_lock):
                prepare_attempt(now)
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
