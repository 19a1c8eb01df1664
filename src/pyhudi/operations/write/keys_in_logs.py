"""Which log files hold record keys that no base file of their file group has, so that a lookup must read them too.

    inserts        delta commits report them for log files (`numInserts`): Flink and the index INMEMORY write so
    buckets        writers with a bucket index insert into logs and report updates; file ids begin with the bucket number
    hashing nodes  the same; the table has consistent hashing metadata
    log compaction a log file that combines earlier ones

The logs of writes that ran during a compaction may hold such keys with every index (`logs_with_uncovered_keys`). Hudi's
indexes SIMPLE and BLOOM read no logs, and insert such keys a second time.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.format.instants import Instant
from pyhudi.format.paths import HASHING_FOLDER
from pyhudi.planning.bucket_routing import are_buckets
from pyhudi.table.file_slices import FileSlice, LogFile, logs_with_uncovered_keys
from pyhudi.table.snapshot import Snapshot, read_commit

_GroupId = tuple[str, str]

_inserting: dict[tuple[str, Instant], frozenset[_GroupId]] = {}
"""File groups (partition, file id) with inserts in logs, by table and delta commit; completed commits never change."""

_MOST_COMMITS = 10_000

_without_nodes: set[tuple[str, str]] = set()
"""File groups by table and file id that are no hashing nodes; a file group never becomes one."""

_MOST_GROUPS = 200_000


class LogsToSearch:
    """The logs of file slices in which keys are looked up besides their base files."""

    def __init__(self, snapshot: Snapshot, slices: Iterable[FileSlice]) -> None:
        self._timeline = snapshot.timeline
        with_logs = [s for s in slices if s.base is not None and s.logs]
        unclear = [s for s in with_logs if not are_buckets([s.file_id])]
        self._has_nodes = _has_nodes(snapshot, unclear)
        self._by_commit = {} if self._has_nodes else _inserts_by_commit(snapshot, unclear)

    def of(self, slice_: FileSlice) -> tuple[LogFile, ...]:
        """Return the logs of a slice; all of them if it has no base file, or if a log holds inserts."""
        if slice_.base is None or not slice_.logs:
            return slice_.logs
        if self._has_nodes or are_buckets([slice_.file_id]):
            return slice_.logs
        group = slice_.partition, slice_.file_id
        commits = (self._by_commit.get(log.name.instant_time) for log in slice_.logs)
        # The commit of a log may be archived: what it inserted is unknown then.
        if any(groups is None or group in groups for groups in commits):
            return slice_.logs
        return logs_with_uncovered_keys(slice_, self._timeline)


def _has_nodes(snapshot: Snapshot, slices: Iterable[FileSlice]) -> bool:
    """Return whether the table has consistent hashing metadata, so that its file groups may be nodes."""
    storage = snapshot.context.storage
    groups = {(storage.uri, slice_.file_id) for slice_ in slices}
    if groups <= _without_nodes:
        return False
    listing = storage.list(HASHING_FOLDER)
    if listing.files or listing.folders:
        return True
    if len(_without_nodes) >= _MOST_GROUPS:
        _without_nodes.clear()
    _without_nodes.update(groups)
    return False


def _inserts_by_commit(snapshot: Snapshot, slices: Iterable[FileSlice]) -> dict[str, frozenset[_GroupId]]:
    """Return the file groups with inserts in logs by request time, of the active commits that wrote logs of the slices."""
    times = {log.name.instant_time for slice_ in slices for log in slice_.logs}
    result: dict[str, frozenset[_GroupId]] = {}
    store, uri = snapshot.context.timeline, snapshot.context.storage.uri
    for instant in snapshot.timeline.completed_writes() if times else ():
        if instant.request_time not in times:
            continue
        if (uri, instant) not in _inserting:
            if len(_inserting) >= _MOST_COMMITS:
                _inserting.clear()
            metadata = snapshot.commits.get(instant) or read_commit(store, instant)
            _inserting[uri, instant] = _groups_with_inserts(metadata)
        result[instant.request_time] = _inserting[uri, instant]
    return result


def _groups_with_inserts(metadata: CommitMetadata) -> frozenset[_GroupId]:
    combines_logs = metadata.operation is Operation.LOG_COMPACT
    return frozenset(
        (partition, stat.file_id or "")
        for partition, stats in metadata.partition_to_write_stats.items()
        for stat in stats
        if stat.log_version is not None and (combines_logs or stat.num_inserts > 0)
    )
