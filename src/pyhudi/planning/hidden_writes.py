"""Find completed writes whose rows no reader sees, by request times, completion times and previous commits.

A file group shows its newest base file by request time, and merges its log files in that order. So these writes are
lost, although they completed:

    base file       the next one in the group was not made from it: its previous commit is older. Its writer read the
                    table before this write completed; or this write took its instant early, and read the table after
                    that instant completed
    clustering      the write was requested after the plan, and the clustering replaced its file group
    log file        it completed after a log file of a later request time, whose records win (commit time ordering)

PyHudi detects these conflicts before it commits; Hudi does not in every case (docs/known-hudi-issues.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation, WriteStat
from pyhudi.format.instants import Instant
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.planning.conflicts import FileGroupId


@dataclass(frozen=True, slots=True)
class HiddenWrite:
    """A file of a write that another instant hides.

    Attributes:
        write: The write.
        by: The instant that hides it.
        path: The file, relative to the table.
    """

    write: Instant
    by: Instant
    path: str


def find_hidden_writes(commits: Mapping[Instant, CommitMetadata], resized: Collection[str] = ()) -> Iterator[HiddenWrite]:
    """Yield the files of completed writes that base files or clusterings hide.

    Args:
        commits: Completed writes and services with their metadata.
        resized: Partitions with consistent hashing, whose writes are stored in both places during a resize.
    """
    bases, logs = _files_by_group(commits, is_log=False), _files_by_group(commits, is_log=True)
    for files in bases.values():
        for (write, older), (other, newer) in pairwise(files):
            previous = newer.prev_commit or ""
            is_service = commits[write].operation.is_service or commits[other].operation.is_service
            if not is_service and previous.isdigit() and previous < write.request_time:
                yield HiddenWrite(write, other, older.path or "")
    for clustering, metadata in commits.items():
        if metadata.operation is not Operation.CLUSTER:
            continue
        replaced = metadata.partition_to_replace_file_ids or {}
        for group in [(partition, file_id) for partition, ids in replaced.items() if partition not in resized for file_id in ids]:
            for write, stat in (*bases.get(group, ()), *logs.get(group, ())):
                if write.request_time > clustering.request_time:
                    yield HiddenWrite(write, clustering, stat.path or "")


def find_late_appends(commits: Mapping[Instant, CommitMetadata]) -> Iterator[HiddenWrite]:
    """Yield log files that completed after one of a later request time: of records that both changed, that one's win."""
    for files in _files_by_group(commits, is_log=True).values():
        for place, (write, stat) in enumerate(files):
            later = [i for i, _ in files[place + 1 :] if i.request_time > write.request_time]
            completed = write.completion_time or ""
            overtaking = [i for i in later if (i.completion_time or "") < completed and not commits[i].operation.is_service]
            if overtaking and not commits[write].operation.is_service:
                yield HiddenWrite(write, overtaking[0], stat.path or "")


def _files_by_group(
    commits: Mapping[Instant, CommitMetadata], *, is_log: bool
) -> dict[FileGroupId, list[tuple[Instant, WriteStat]]]:
    """Return the base files or log files of each file group, by request time."""
    groups: dict[FileGroupId, list[tuple[Instant, WriteStat]]] = defaultdict(list)
    parse = parse_log_file if is_log else parse_base_file
    for instant in sorted(commits, key=lambda i: i.request_time):
        for partition, stats in commits[instant].partition_to_write_stats.items():
            for stat in stats:
                if parse(file_name(stat.path or "")) is not None:
                    groups[partition, stat.file_id or ""].append((instant, stat))
    return groups
