"""Early conflict detection: a write fails before it writes to a file group that an older pending write is writing.

    1. When its instant is requested, a write records which older writes are pending.
    2. Before its first file it searches their markers for the file groups that it will change, and again for each
       file after creating the file's own marker.
    3. Of two live writes the older one continues.  The younger one raises WriteConflict and is rolled back.

Both marker layouts are read. A file group is identified by its partition and whole file id; in a table with a bucket
index by the bucket number, since two writes may both create its file group.

Early detection is best effort.  An older write may mark a file group after the younger one has checked; then the
conflict check under the lock decides, as it does without early detection.

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
    """Settings of early conflict detection of one write.

    Attributes:
        own_instant: Its request time.
        older: The request times of the older writes that were pending when it was requested.
        by_bucket: File ids begin with the numbers of their buckets.
    """

    own_instant: str
    older: tuple[str, ...]
    heartbeats: HeartbeatSettings
    by_bucket: bool

    def check(self, storage: Storage, groups: Iterable[tuple[str, str]]) -> None:
        """Raise WriteConflict when an older live write has marked a file of one of the groups: partition and file id."""
        by_partition: dict[str, list[str]] = {}
        for partition, file_id in groups:
            by_partition.setdefault(partition, []).append(file_id)
        for other in self.older:
            markers = Markers(storage, other)
            for partition, file_ids in by_partition.items():
                marked = (parse_data_file_group(file_name(path)) for path in markers.marked_in(partition))
                taken = {self._name(file_id) for file_id in marked if file_id is not None}
                shared_id = next((file_id for file_id in file_ids if self._name(file_id) in taken), None)
                if shared_id is not None and is_alive_for_task(storage, self.own_instant, other, self.heartbeats):
                    raise WriteConflict(
                        f"write {self.own_instant} of {storage.uri} failed before it wrote file group {shared_id} of partition "
                        f"{partition!r}: "
                        f"the older write {other} is pending and writes it; repeat the write after that one has ended",
                        instants=(other, self.own_instant),
                        in_progress=(other,),
                    )

    def check_new(self, storage: Storage, partition: str, file_id: str) -> None:
        """As `check` for a file group that the write creates; a random file id outside of a bucket index cannot conflict."""
        if self.by_bucket:
            self.check(storage, [(partition, file_id)])

    def _name(self, file_id: str) -> str | int:
        bucket = parse_bucket(file_id) if self.by_bucket else None
        return file_id if bucket is None else bucket
