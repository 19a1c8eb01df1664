"""Record placement: updates go to their file groups, inserts into small files first, then into new files.

Steps: estimate the size of a record from recent commits; assign each partition's inserts to its small files up to the
target size; split the remainder over new file groups. In a merge-on-read table a small file receives inserts only if
rewriting it pays off (`should_rewrite`): an upsert appends updates to logs, and a few new rows should not cost a whole
file.

Source: docs/formats/writing.md, "Which file group takes a row".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import numpy as np
import numpy.typing as npt

from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action
from pyhudi.options import write_options
from pyhudi.options.declaration import OptionSettings
from pyhudi.options.write_options import MAX_FILE_SIZE, SMALL_FILE_LIMIT
from pyhudi.table.file_slices import FileSlice

ESTIMATION_COMMITS = 5
"""How many recent commits are used to estimate the size of a record."""


@dataclass(frozen=True, slots=True)
class SizingSettings(OptionSettings):
    """How inserts are packed into files.  Sizes in bytes."""

    max_file_size_bytes: Annotated[int, MAX_FILE_SIZE]
    small_file_limit_bytes: Annotated[int, SMALL_FILE_LIMIT]
    record_size_estimate_bytes: Annotated[int, write_options.COPYONWRITE_RECORD_SIZE_ESTIMATE]
    estimation_threshold: Annotated[float, write_options.RECORD_SIZE_ESTIMATION_THRESHOLD]
    average_metadata_size_bytes: Annotated[int, write_options.RECORD_SIZE_ESTIMATOR_AVERAGE_METADATA_SIZE]
    auto_split: Annotated[bool, write_options.COPYONWRITE_INSERT_AUTO_SPLIT]
    split_row_count: Annotated[int, write_options.COPYONWRITE_INSERT_SPLIT_SIZE]
    merge_candidates_limit: Annotated[int, write_options.MERGE_SMALL_FILE_GROUP_CANDIDATES_LIMIT]
    growth: Annotated[float, write_options.SMALL_FILE_GROWTH]
    always_rewritten_bytes: Annotated[int, write_options.SMALL_FILE_ALWAYS_REWRITTEN]


@dataclass(frozen=True, slots=True)
class WorkloadProfile:
    """How many records of a write go where, before inserts are placed.

    Attributes:
        updates: (partition, file id) -> number of records found there.
        inserts: partition -> number of records not found.
        exact: False when the counts are upper bounds.
    """

    updates: Mapping[tuple[str, str], int]
    inserts: Mapping[str, int]
    exact: bool = True


@dataclass(frozen=True, slots=True)
class InsertTarget:
    """A file group that receives inserts of one partition.

    slice: the small file's current slice; None for a new file group.  row_count: how many inserts it should receive.
    """

    partition: str
    file_id: str
    slice: FileSlice | None
    row_count: int


def assign_inserts(row_counts: Sequence[int], first: int, count: int) -> npt.NDArray[np.int64]:
    """Return which of a partition's targets receives each of `count` inserts, the first of which is number `first` of
    the partition.

    Each target receives its row count, in order; the last one receives the remainder.
    """
    ends = np.cumsum(row_counts)
    numbers = np.arange(first, first + count)
    return np.minimum(np.searchsorted(ends, numbers, side="right"), len(row_counts) - 1)


def estimate_record_size_bytes(commits: Iterable[tuple[Action, CommitMetadata]], settings: SizingSettings) -> int:
    """Return the average bytes of a stored record, from completed commits and delta commits, newest first; the
    configured estimate when none has enough rows.

    A commit as a whole, and each base file of a delta commit, counts when it has more bytes than the threshold. The
    average is over all that count in the last commits.
    """
    threshold = settings.estimation_threshold * max(settings.small_file_limit_bytes, 0)
    overhead = settings.average_metadata_size_bytes
    recent = islice((pair for pair in commits if pair[0] in (Action.COMMIT, Action.DELTACOMMIT)), ESTIMATION_COMMITS)
    total_bytes = total_rows = 0
    for action, metadata in recent:
        stats = [stat for written in metadata.partition_to_write_stats.values() for stat in written]
        if action is Action.COMMIT:
            samples = [(sum(stat.total_write_bytes for stat in stats), sum(stat.num_writes for stat in stats))]
        else:
            samples = [(stat.total_write_bytes, stat.num_writes) for stat in stats if not stat.log_files]
        for size_bytes, row_count in samples:
            if row_count > 0 and size_bytes > threshold and size_bytes > overhead:
                total_bytes += size_bytes - overhead
                total_rows += row_count
    return max(1, total_bytes // total_rows) if total_bytes > 0 else settings.record_size_estimate_bytes


def small_files(
    slices: Iterable[FileSlice], settings: SizingSettings, excluded: frozenset[tuple[str, str]], limit: int | None = None
) -> tuple[FileSlice, ...]:
    """Return slices of one partition that may receive more records: base files below the limit, smallest first, without logs.

    A bootstrapped base file is not eligible: an insert would rewrite it with all its rows.
    excluded: file groups under pending clustering or compaction, which receive no inserts.  limit: how many at most.
    """
    if settings.small_file_limit_bytes <= 0:
        return ()
    candidates = [
        slice_
        for slice_ in slices
        if slice_.base is not None
        and slice_.source is None
        and not slice_.logs
        and slice_.base.size_bytes < settings.small_file_limit_bytes
        and (slice_.partition, slice_.file_id) not in excluded
    ]
    ordered = sorted(candidates, key=lambda s: (s.base.size_bytes if s.base else 0, s.file_id))
    return tuple(ordered if limit is None else ordered[:limit])


def should_rewrite(size_bytes: int, row_count: int, row_bytes: float, settings: SizingSettings) -> bool:
    """Return whether a base file of a merge-on-read table is rewritten to add some rows.

    size_bytes: of the file.  row_bytes: size of a row in such files.  So the write amplification of inserts is bounded:
    `1 / growth` at most and about half of it on average, except for files so small that they cost no more than a
    commit.
    """
    return size_bytes <= settings.always_rewritten_bytes or row_count * row_bytes >= settings.growth * size_bytes


def plan_inserts(
    inserts: Mapping[str, int],
    candidates: Mapping[str, Sequence[FileSlice]],
    record_size_bytes: int,
    settings: SizingSettings,
    new_file_id: Callable[[], str],
) -> dict[str, tuple[InsertTarget, ...]]:
    """Return, for each partition with inserts, the file groups that receive them, in order, with the number for each."""
    per_file = rows_per_new_file(record_size_bytes, settings)
    plan: dict[str, tuple[InsertTarget, ...]] = {}
    for partition, count in sorted(inserts.items()):
        if count <= 0:
            continue
        left = count
        targets: list[InsertTarget] = []
        for slice_ in candidates.get(partition, ()):
            if left == 0:
                break
            room = (settings.max_file_size_bytes - (slice_.base.size_bytes if slice_.base else 0)) // record_size_bytes
            take = min(room, left)
            if take > 0:
                targets.append(InsertTarget(partition, slice_.file_id, slice_, take))
                left -= take
        while left > 0:
            take = min(per_file, left)
            targets.append(InsertTarget(partition, new_file_id(), None, take))
            left -= take
        plan[partition] = tuple(targets)
    return plan


def rows_per_new_file(record_size_bytes: int, settings: SizingSettings) -> int:
    """Return how many inserts one new file group receives."""
    if not settings.auto_split:
        return settings.split_row_count
    return max(1, -(-settings.max_file_size_bytes // record_size_bytes))
