"""Conflict resolution (optimistic concurrency control): compare the file groups of a completing write with those of
other instants.

A write conflicts with another instant when both change one file group, and the other instant either completed since the
write read the table or is a service that will rewrite the group.

A write that looked up keys and did not find some has also read that no file group has them. So its write set contains
the *new keys* of each partition into which it inserts, and so does that of every write that inserts there, whether into
a new file group or an existing one: of two upserts that insert the same new key, the later one finds the key when it is
replanned. Plain inserts look up nothing; they conflict with writes that do, but not with each other. Lookups of keys
for which nothing is written count too: file groups with keys that an insert skips, and the new keys of partitions in
which keys to delete were not found. A compaction drops keys that logs had deleted. A write requested before it
completed may restore such a key in a log, if it still found the key in the base file; a write requested later does not
find the key and inserts it. So if a compaction completed concurrently with a write, what the write appends to the
compacted file groups counts as inserted and as looked up. Under a bucket index a write has read that a bucket has no
file group; two writes that create one for it conflict.

Writers under non-blocking concurrency control append to the same file groups without conflict.  They
conflict only with an instant that replaced such a group, or that wrote to another file group of the same
bucket.

Instants that completed since the write's start may be archived by now; the archived timeline is checked, too.

Source: docs/formats/writing.md, "Conflicts".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import parse_bucket
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS, Timeline

FileGroupId = tuple[str, str]
"""(partition path, file id)."""

NEW_KEYS_IN_ANY_GROUP: FileGroupId = ("", "*")
"""Represents the records that a write adds to any partition; no file id is `*`."""

_NEW = ""
_BUCKET = "bucket "


def new_keys(partition: str) -> FileGroupId:
    """Return the id that represents the records that a write adds to a partition; no file id is empty."""
    return partition, _NEW


def new_bucket(partition: str, file_id: str) -> tuple[FileGroupId, ...]:
    """Return the id that represents the new file group of a bucket, regardless of the rest of its file id; none for a
    file id without a bucket.
    """
    bucket = parse_bucket(file_id)
    return () if bucket is None else ((partition, f"{_BUCKET}{bucket}"),)


def concurrently_replaced_groups(
    appended: Iterable[FileGroupId], written: Iterable[FileGroupId], replaced: Iterable[FileGroupId]
) -> frozenset[FileGroupId]:
    """Return the file groups that a write appended to concurrently and that another instant replaced.

    written, replaced: the groups of the other instant. These are the groups that it replaced, and those of buckets for
    which it wrote to a file group of another id: a bucket has one.
    """
    mine = frozenset(appended)
    of_bucket = {(partition, parse_bucket(file_id)): (partition, file_id) for partition, file_id in mine}
    own = {group: of_bucket.get((group[0], parse_bucket(group[1]))) for group in written}
    return mine.intersection(replaced).union(held for group, held in own.items() if held not in (None, group))


@dataclass(frozen=True, slots=True)
class WriteStart:
    """State of the timeline when a write read the table.

    Attributes:
        last_completed: Request time of the newest completed write, '' for none.
        pending: Request times of pending writes and services.
        schema: Avro text of the table's columns, '' for a table that has none yet; None when the write does not affect
            them.
        latest: The largest time on the timeline; every later completion has a larger completion time.
        compacted: When the newest compaction completed, '' for none.
    """

    last_completed: str
    pending: frozenset[str]
    schema: str | None = None
    latest: str = ""
    compacted: str = ""

    @classmethod
    def of(cls, timeline: Timeline, schema: str | None = None) -> WriteStart:
        """Build from the timeline that the write was planned on, and the table's schema at that time."""
        last = timeline.last_completed_write()
        pending = frozenset(i.request_time for i in timeline.pending(*_CHECKED_ACTIONS))
        # In a table without logs these are writes; nothing is appended there.
        compacted = max((i.completion_time or "" for i in timeline.completed(Action.COMMIT)), default="")
        return cls(last.request_time if last else "", pending, schema, timeline.latest_time(), compacted)

    def is_archived(self, current_timeline: Timeline) -> bool:
        """Whether instants that completed since may have left the active timeline."""
        oldest = min((self.last_completed, *self.pending))
        return current_timeline.start is None or oldest < current_timeline.start


@dataclass(frozen=True, slots=True)
class Conflict:
    """An instant that changes file groups of this write."""

    instant: Instant
    groups: tuple[FileGroupId, ...]


_CHECKED_ACTIONS = (*sorted(WRITE_ACTIONS), Action.COMPACTION, Action.CLUSTERING, Action.LOGCOMPACTION)


def schema_to_commit(own_time: str, start: str, current_schema: str) -> str | None:
    """Return the schema that a completing write stores; None when the table's schema and the write's have diverged.

    own_time: the write's; start: the table's when the write was planned; now: the table's now. Avro schemas as JSON, '' for none.
    """
    if current_schema in (start, own_time):
        return own_time
    return current_schema if own_time == start else None


def instants_to_check(own_time: str, start: WriteStart, current_timeline: Timeline) -> tuple[Instant, ...]:
    """Return the instants whose file groups a completing write has to be compared with, in timeline order.

    own_time: the write's request time. Completed since the start: by completion time; or requested after the newest
    completed write seen then, or pending then, since clocks of writers may differ. Pending: compactions and clusterings
    requested after this write, or planned since the start: Hudi takes the request time long before it plans.
    """
    instants = []
    for instant in current_timeline.instants:
        if instant.request_time == own_time:
            continue
        if instant.state is State.COMPLETED:
            if instant.action in WRITE_ACTIONS and (
                (instant.completion_time or "") > start.latest
                or instant.request_time > start.last_completed
                or instant.request_time in start.pending
            ):
                instants.append(instant)
        elif instant.action in (Action.COMPACTION, Action.CLUSTERING) and (
            instant.request_time > own_time or instant.request_time not in start.pending
        ):
            instants.append(instant)
    return tuple(instants)


def keys_looked_up_during_compaction(file_groups: Iterable[FileGroupId], compacted: Iterable[FileGroupId]) -> set[FileGroupId]:
    """Return the new keys that a write affects because a compaction of its file groups completed concurrently."""
    partitions = {partition for partition, _ in set(file_groups).intersection(compacted)}
    return {*map(new_keys, partitions), *((NEW_KEYS_IN_ANY_GROUP,) if partitions else ())}


def find_conflicts(
    own_time: str,
    file_groups: Iterable[FileGroupId],
    concurrent: Mapping[Instant, Iterable[FileGroupId]],
    compactions: frozenset[str],
) -> tuple[Conflict, ...]:
    """Return the instants among `concurrent` that change a group of this write.

    compactions: request times of those that are compactions, pending or completed. One requested before this write is
    no conflict: log files that complete later join the slice that it creates.
    """
    mine = frozenset(file_groups)
    conflicts = []
    for instant, groups in concurrent.items():
        shared = tuple(sorted(mine.intersection(groups)))
        if shared and not (instant.request_time in compactions and instant.request_time < own_time):
            conflicts.append(Conflict(instant, shared))
    return tuple(conflicts)


def describe_conflicts(conflicts: Iterable[Conflict]) -> str:
    """Describe conflicts in one sentence for the error: which instants, and a group of each."""
    return "; ".join(f"{c.instant.action} {c.instant.request_time} ({_describe_groups(c.groups)})" for c in conflicts)


def _describe_groups(groups: tuple[FileGroupId, ...]) -> str:
    new_groups = [f"{file_id} in {partition or 'the table'}" for partition, file_id in groups if file_id.startswith(_BUCKET)]
    if new_groups:
        return f"the new file group of {new_groups[0]}"
    present = [file_id for _, file_id in groups if file_id not in (_NEW, NEW_KEYS_IN_ANY_GROUP[1])]
    if present:
        return f"{len(present)} file groups, such as {present[0]}"
    partition = next((partition for partition, file_id in groups if partition and file_id == _NEW), "the table")
    return f"records new to {partition}, among which no keys were looked up"
