"""Check the sizes of log files against commit metadata, before a table service merges them.

From table version 8 on one commit writes a log file, and its statistics record the size. A shorter file was truncated,
perhaps between two blocks, which its bytes alone do not show. Readers take sizes from the metadata table if there is
one; a service reads the commits (active or archived) of the few logs that it is about to merge, because its result is
permanent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyhudi.errors import CorruptData
from pyhudi.format.actions.archived_instants import COMMIT_LIKE, decode_completed
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action
from pyhudi.format.names import parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.storage.base import Storage
from pyhudi.table.snapshot import read_commit
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore


def load_written_sizes(store: TimelineStore, timeline: Timeline, paths: Iterable[str]) -> dict[str, int]:
    """Load the sizes of log files from the commits that wrote them; logs whose commits are not in the timeline are omitted.

    paths: relative to the table.  Raises CorruptData that names a commit which cannot be read.
    """
    wanted: dict[str, set[str]] = {}
    for path in paths:
        name = parse_log_file(file_name(path))
        if name is not None:
            wanted.setdefault(name.instant_time, set()).add(path)
    active = {instant.request_time: instant for instant in timeline.completed_writes()}
    sizes: dict[str, int] = {}
    for request_time, files in wanted.items():
        if request_time in active:
            metadata = read_commit(store, active[request_time])
        else:
            row = store.history.find(request_time, *COMMIT_LIKE) if timeline.is_before_start(request_time) else None
            archived = decode_completed(Action(row.action), row.metadata or b"") if row else None
            if not isinstance(archived, CommitMetadata):
                continue
            metadata = archived
        sizes.update(sizes_in(metadata, files))
    return sizes


def sizes_in(metadata: CommitMetadata, paths: Iterable[str]) -> dict[str, int]:
    """Sizes that a commit records for those of the log files that it wrote."""
    wanted = frozenset(paths)
    return {
        stat.path: stat.file_size_in_bytes
        for stats in metadata.partition_to_write_stats.values()
        for stat in stats
        if stat.path in wanted and stat.file_size_in_bytes > 0
    }


def check_size(storage: Storage, path: str, is_present: int, written: Mapping[str, int]) -> int:
    """Return the current size of a file.  Raises CorruptData with the path if its commit wrote more bytes."""
    expected = written.get(path, is_present)
    if is_present < expected:
        raise CorruptData(
            "a log file is shorter than its commit records",
            expected=expected,
            found=is_present,
            path=storage.absolute(path),
        )
    return is_present
