"""Early conflict detection: a write stops before it writes to a file group to which an older write is writing already.

    1. When its instant is requested, a write notes which older writes are under way.
    2. Before its first file it looks through their markers for the file groups that it is about to change, and again for each
       file as soon as the file's own marker stands.
    3. Of two writes that live the older one goes on.  The younger one raises WriteConflict and is taken back.

Both layouts of markers are read, and a file group is told by its partition and whole file id.  In a table of buckets the number
of the bucket names it, for two writes may both be about to make its file group.

What this does not do: it proves nothing.  An older write may mark a file group after the younger one has looked, and then the
conflict check under the lock decides, as it does without all this.

Source: docs/formats/timeline.md, "Heartbeats and failed writes".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyhudi.errors import WriteConflict
from pyhudi.format.names import parse_bucket, parse_data_file_group
from pyhudi.format.paths import file_name
from pyhudi.storage.base import Storage
from pyhudi.storage.heartbeats import HeartbeatSettings
from pyhudi.storage.liveness import is_alive_for_task
from pyhudi.storage.markers import Markers


@dataclass(frozen=True, slots=True)
class EarlyConflicts:
    """What a write looks for.

    own_instant: its request time.  older: the request times of the older writes that were under way when it was requested.
    by_bucket: file ids begin with the numbers of their buckets.
    """

    own_instant: str
    older: tuple[str, ...]
    heartbeats: HeartbeatSettings
    by_bucket: bool

    def check(self, storage: Storage, groups: Iterable[tuple[str, str]]) -> None:
        """Raises WriteConflict when an older write that lives has marked a file of one of the groups: partition and file id."""
        by_partition: dict[str, list[str]] = {}
        for partition, file_id in groups:
            by_partition.setdefault(partition, []).append(file_id)
        for other in self.older:
            markers = Markers(storage, other)
            for partition, file_ids in by_partition.items():
                marked = (parse_data_file_group(file_name(path)) for path in markers.marked_in(partition))
                taken = {self._name(file_id) for file_id in marked if file_id is not None}
                met = next((file_id for file_id in file_ids if self._name(file_id) in taken), None)
                if met is not None and is_alive_for_task(storage, self.own_instant, other, self.heartbeats):
                    raise WriteConflict(
                        f"write {self.own_instant} of {storage.uri} stops before it writes file group {met} of partition "
                        f"{partition!r}: "
                        f"write {other} is older, under way, and writes it; run the write again when that one has ended",
                        instants=(other, self.own_instant),
                        in_progress=(other,),
                    )

    def check_new(self, storage: Storage, partition: str, file_id: str) -> None:
        """As `check` for a file group that the write makes: where nothing but its random file id names it, nobody has it."""
        if self.by_bucket:
            self.check(storage, [(partition, file_id)])

    def _name(self, file_id: str) -> str | int:
        bucket = parse_bucket(file_id) if self.by_bucket else None
        return file_id if bucket is None else bucket
