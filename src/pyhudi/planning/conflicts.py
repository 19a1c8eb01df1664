"""Two sets of file groups, one verdict: may a write that is about to complete go on?

A write conflicts with another instant when both touch one file group, and the other instant either completed since the write
read the table or is a service that will rewrite the group.

A write that looked keys up and found some nowhere has also read that no file group has them. So it touches the *new
keys* of each partition into which it inserts, and every write touches them that inserts there, into a file group that
it makes or one that was there: of two upserts that bring the same new key, the later one finds the key when it is
planned again. Plain inserts look nothing up; they meet those that do, and not each other. What a write reads about keys
for which it writes nothing counts too: file groups with keys that an insert passes over, and the new keys of partitions
in which what is to be deleted stands nowhere. A compaction leaves out what logs had deleted. A write that was requested
before it completed may bring such a key back in a log, where it still found the key in the base file; a write that was
requested later finds the key nowhere and inserts it. So where a compaction completed beside a write, what the write
appends to the compacted file groups counts as inserted and as looked up. Under a bucket index a write has read of a
bucket that it has no file group; two writes that make one for it meet.

Writers that do not wait for each other (non-blocking concurrency control) append to the same file groups, and that is none.  They
meet only what takes such a group from under them: another instant that replaced it, or that wrote to another file group of the
same bucket.

The timeline may have moved on so far that instants which completed since the write's start are in the history by now; they are
met there.

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
"""Stands for the records that a write adds to any partition; no file id is `*`."""

_NEW = ""
_BUCKET = "bucket "


def new_keys(partition: str) -> FileGroupId:
    """Stands for the records that a write adds to a partition; no file id is empty."""
    return partition, _NEW


def new_bucket(partition: str, file_id: str) -> tuple[FileGroupId, ...]:
    """Stands for the new file group of a bucket, whatever the rest of its file id; nothing for a file id without a bucket."""
    bucket = parse_bucket(file_id)
    return () if bucket is None else ((partition, f"{_BUCKET}{bucket}"),)


def replaced_under_us(
    appended: Iterable[FileGroupId], written: Iterable[FileGroupId], replaced: Iterable[FileGroupId]
) -> frozenset[FileGroupId]:
    """Of the file groups that a write appended to beside others, those that another instant took from under it.

    written, replaced: the groups of the other instant.  It took those that it replaced, and those of buckets for which it wrote
    to a file group of another id: a bucket has one.
    """
    mine = frozenset(appended)
    of_bucket = {(partition, parse_bucket(file_id)): (partition, file_id) for partition, file_id in mine}
    own = {group: of_bucket.get((group[0], parse_bucket(group[1]))) for group in written}
    return mine.intersection(replaced).union(held for group, held in own.items() if held not in (None, group))


@dataclass(frozen=True, slots=True)
class WriteStart:
    """What stood on the timeline when a write read the table.

    last_completed: request time of the newest completed write, '' for none.  pending: request times of writes and services that
    were under way.  schema: Avro text of the table's columns, '' for a table that has none yet; None when the write has no say in
    them.  latest: the largest time on the timeline; whatever completed later has a larger completion time.  compacted: when the
    newest compaction completed, '' for none.
    """

    last_completed: str
    pending: frozenset[str]
    schema: str | None = None
    latest: str = ""
    compacted: str = ""

    @classmethod
    def of(cls, timeline: Timeline, schema: str | None = None) -> WriteStart:
        """From the timeline that the write was planned on, and the table's schema then."""
        last = timeline.last_completed_write()
        pending = frozenset(i.request_time for i in timeline.pending(*_LOOKED_AT))
        # In a table without logs these are writes; nothing is appended there.
        compacted = max((i.completion_time or "" for i in timeline.completed(Action.COMMIT)), default="")
        return cls(last.request_time if last else "", pending, schema, timeline.latest_time(), compacted)

    def is_archived(self, current_timeline: Timeline) -> bool:
        """Whether what completed since may have left the active timeline."""
        oldest = min((self.last_completed, *self.pending))
        return current_timeline.start is None or oldest < current_timeline.start


@dataclass(frozen=True, slots=True)
class Conflict:
    """An instant that touches file groups of this write."""

    instant: Instant
    groups: tuple[FileGroupId, ...]


_LOOKED_AT = (*sorted(WRITE_ACTIONS), Action.COMPACTION, Action.CLUSTERING, Action.LOGCOMPACTION)


def schema_to_commit(own_time: str, start: str, current_schema: str) -> str | None:
    """The schema that a completing write carries; None when the table's schema and the write's went different ways.

    own_time: the write's; start: the table's when the write was planned; now: the table's now.  Avro schemas as JSON, '' for
    none.
    """
    if current_schema in (start, own_time):
        return own_time
    return current_schema if own_time == start else None


def instants_to_check(own_time: str, start: WriteStart, current_timeline: Timeline) -> tuple[Instant, ...]:
    """The instants whose file groups a completing write has to be compared with, in timeline order.

    own_time: the write's request time. Completed since the start: by completion time; or requested after the newest
    completed write seen then, or pending then, for the clocks of others need not agree with ours. Pending: compactions
    and clusterings requested after this write.
    """
    found = []
    for instant in current_timeline.instants:
        if instant.request_time == own_time:
            continue
        if instant.state is State.COMPLETED:
            if instant.action in WRITE_ACTIONS and (
                (instant.completion_time or "") > start.latest
                or instant.request_time > start.last_completed
                or instant.request_time in start.pending
            ):
                found.append(instant)
        elif instant.action in (Action.COMPACTION, Action.CLUSTERING) and instant.request_time > own_time:
            found.append(instant)
    return tuple(found)


def keys_looked_up_during_compaction(file_groups: Iterable[FileGroupId], compacted: Iterable[FileGroupId]) -> set[FileGroupId]:
    """The new keys that a write touches because a compaction of its file groups completed beside it."""
    partitions = {partition for partition, _ in set(file_groups).intersection(compacted)}
    return {*map(new_keys, partitions), *((NEW_KEYS_IN_ANY_GROUP,) if partitions else ())}


def find_conflicts(
    own_time: str,
    file_groups: Iterable[FileGroupId],
    others: Mapping[Instant, Iterable[FileGroupId]],
    compactions: frozenset[str],
) -> tuple[Conflict, ...]:
    """The instants among `others` that touch a group of ours.

    compactions: request times of those that are compactions, pending or completed.  One requested before this write is no
    conflict: log files that complete later join the slice that it makes.
    """
    mine = frozenset(file_groups)
    conflicts = []
    for instant, groups in others.items():
        shared = tuple(sorted(mine.intersection(groups)))
        if shared and not (instant.request_time in compactions and instant.request_time < own_time):
            conflicts.append(Conflict(instant, shared))
    return tuple(conflicts)


def describe_conflicts(conflicts: Iterable[Conflict]) -> str:
    """One sentence for the error: which instants, and a group of each."""
    return "; ".join(f"{c.instant.action} {c.instant.request_time} ({_describe_groups(c.groups)})" for c in conflicts)


def _describe_groups(groups: tuple[FileGroupId, ...]) -> str:
    made = [f"{file_id} in {partition or 'the table'}" for partition, file_id in groups if file_id.startswith(_BUCKET)]
    if made:
        return f"the new file group of {made[0]}"
    present = [file_id for _, file_id in groups if file_id not in (_NEW, NEW_KEYS_IN_ANY_GROUP[1])]
    if present:
        return f"{len(present)} file groups, such as {present[0]}"
    partition = next((partition for partition, file_id in groups if partition and file_id == _NEW), "the table")
    return f"records new to {partition}, among which no keys were looked up"
