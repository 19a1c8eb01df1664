"""File groups that an instant writes, replaces or rewrites: the write set used for conflict detection.

Source: docs/formats/writing.md, "Conflicts".
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.errors import CorruptData
from pyhudi.format.actions.commit_metadata import NO_PREVIOUS_COMMIT, CommitMetadata, WriteStat
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import is_shared_file_id
from pyhudi.planning.conflicts import (
    NEW_KEYS_IN_ANY_GROUP,
    FileGroupId,
    new_bucket,
    new_keys,
)
from pyhudi.table.pending_plans import load_compaction_plan
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext


def written_groups(metadata: CommitMetadata) -> set[FileGroupId]:
    """Return the file groups that a commit wrote to."""
    return {(partition, stat.file_id or "") for partition, stats in metadata.partition_to_write_stats.items() for stat in stats}


def touched_file_groups(context: TableContext, instant: Instant) -> set[FileGroupId]:
    """Return the file groups that an instant writes, replaces or will rewrite."""
    store = context.timeline
    if instant.state is State.COMPLETED:
        return file_groups_of_commit(read_commit(store, instant))
    if instant.action is Action.COMPACTION:
        plan = load_compaction_plan(store, instant)
        return {(operation.partition_path or "", operation.file_id or "") for operation in plan.operations or ()}
    return set(_clustered_groups(context, instant))


def profiled_file_groups(context: TableContext, write: Instant) -> set[FileGroupId]:
    """Return the existing file groups that a pending write changes, by the profile in its inflight file.

    Raises:
        CorruptData: The profile is damaged; the error contains its path.
    """
    data = context.timeline.read_state(write.request_time, write.action, State.INFLIGHT)
    if not data:
        return set()
    try:
        return {group for group in written_groups(CommitMetadata.decode(data)) if group[1]}
    except CorruptData as error:
        raise error.with_path(context.storage.absolute(context.timeline.path(write))) from error


def file_groups_of_commit(metadata: CommitMetadata, *, appends_insert: bool = False) -> set[FileGroupId]:
    """Return the file groups that a commit wrote to or replaced, and `new_keys` of the partitions into which it
    inserted.

    Args:
        appends_insert: Count records appended to log files as inserts.
    """
    groups = written_groups(metadata)
    if not metadata.operation.is_service:
        added = {
            partition
            for partition, stats in metadata.partition_to_write_stats.items()
            if any(_adds_records(stat) or (appends_insert and stat.log_files) for stat in stats)
        }
        groups.update(map(new_keys, added), (NEW_KEYS_IN_ANY_GROUP,) if added else ())
        for partition, stats in metadata.partition_to_write_stats.items():
            new_file_ids = (s.file_id or "" for s in stats if _is_new(s) or is_shared_file_id(s.file_id or ""))
            groups.update(group for file_id in new_file_ids for group in new_bucket(partition, file_id))
    return groups | load_replaced_groups(metadata)


def load_replaced_groups(metadata: CommitMetadata) -> set[FileGroupId]:
    """Return the file groups that a commit replaced."""
    replaced = metadata.partition_to_replace_file_ids or {}
    return {(partition, file_id) for partition, file_ids in replaced.items() for file_id in file_ids}


def _adds_records(stat: WriteStat) -> bool:
    return stat.num_inserts > 0 or _is_new(stat)


def _is_new(stat: WriteStat) -> bool:
    return stat.prev_commit == NO_PREVIOUS_COMMIT and not stat.log_files


def _clustered_groups(context: TableContext, instant: Instant) -> Iterable[FileGroupId]:
    from_plan = context.timeline.read_state(instant.request_time, instant.action, State.REQUESTED)
    return clustering_groups(from_plan) if from_plan else ()


def clustering_groups(requested: bytes) -> frozenset[FileGroupId]:
    """Return the file groups that a clustering plan will replace."""
    plan = RequestedReplaceMetadata.decode(requested).clustering_plan
    if plan is None:
        return frozenset()
    return frozenset(
        (piece.partition_path or "", piece.file_id or "") for group in plan.input_groups or () for piece in group.slices or ()
    )
