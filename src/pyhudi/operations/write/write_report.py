"""What a write says of itself: to other writers before it begins, to its caller when it is done."""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.features.consistent_hashing.hashing_metadata import is_copy
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation, WriteStat
from pyhudi.format.instants import Instant
from pyhudi.operations.commit.results import WriteResult
from pyhudi.planning.record_placement import WorkloadProfile
from pyhudi.tasks.write_tasks import WriteStatus


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


def write_result(done: Instant, statuses: Iterable[WriteStatus]) -> WriteResult:
    """What the tasks of a committed write tell of it; its operation and what was planned are for the caller to say."""
    # Rows that a pending resize moves are written twice, and count once.
    stats = [status.stat for status in statuses if not is_copy(status.stat.path or "", done.request_time)]
    rewritten = [s for s in stats if s.prev_base_file is not None]
    return WriteResult(
        operation="",
        instant=done.request_time,
        completion_time=done.completion_time,
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
