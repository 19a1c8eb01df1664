"""Consistent hashing metadata of one write: what it reads and stores, and whether that is still valid when it completes.

A write that creates a file group for a node, or new metadata, depends on the valid metadata. Another write that
concurrently stored new metadata for the partition may have none of the same file groups, so this is checked again under
the lock.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyhudi.errors import WriteConflict
from pyhudi.features.consistent_hashing.hashing_metadata import HashRing
from pyhudi.features.consistent_hashing.hashing_routing import ConsistentHashingLayout, ConsistentHashingSettings
from pyhudi.features.consistent_hashing.hashing_store import (
    check_hashing_groups_exist,
    file_id_prefixes,
    load_hashing_metadata,
    load_or_create_hashing_metadata,
    renewed,
    store_hashing_metadata,
)
from pyhudi.format.instants import Action
from pyhudi.operations.commit.touched_file_groups import touched_file_groups
from pyhudi.operations.services.clustering_plans import load_node_changes
from pyhudi.planning.conflicts import FileGroupId
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import Snapshot, load_rollback_targets
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.append_log import DoubleWriteTargets


@dataclass(frozen=True, slots=True)
class ConsistentHashingWrite:
    """Routing of one write.

    Attributes:
        layout: Where rows go.
        valid_hashing_metadata: The metadata that was valid when the write was planned.
        replaced_groups: The file groups of replaced nodes, including those without files.
        copies: (partition, file id) of file groups -> file groups of a pending resize to which their rows are also
            written.
    """

    layout: ConsistentHashingLayout
    valid_hashing_metadata: Mapping[str, HashRing]
    replaced_groups: tuple[FileGroupId, ...] = ()
    copies: Mapping[FileGroupId, DoubleWriteTargets] = field(default_factory=dict)

    @property
    def double_written_resizes(self) -> frozenset[str]:
        """The resizes for which the write duplicates rows: they may complete concurrently."""
        return frozenset(copies.instant_time for copies in self.copies.values())

    def check_hashing_unchanged(self, context: TableContext, planned: Timeline, current_timeline: Timeline) -> None:
        """Raise WriteConflict if other metadata became valid, or a resize was dropped for which rows were duplicated.

        planned: the timeline that the write was planned on.
        """
        going = {i.request_time for i in current_timeline.pending(Action.CLUSTERING)} - load_rollback_targets(
            context.timeline, current_timeline
        ).keys()
        gone = [
            time for time in self.double_written_resizes if time not in going and current_timeline.completion_time(time) is None
        ]
        if gone:
            raise WriteConflict(
                f"clustering {gone[0]} of {context.storage.uri} was dropped concurrently, for which this write has copied rows; "
                "plan the write again",
                instants=tuple(gone),
            )
        # Only these create hashing metadata.
        if set(current_timeline.completed(Action.REPLACECOMMIT)).issubset(planned.completed(Action.REPLACECOMMIT)):
            return
        for partition, ring in self.valid_hashing_metadata.items():
            present = load_hashing_metadata(context, current_timeline, partition, file_id_prefixes(ring.file_ids))
            if present is None or present.instant not in {ring.instant, *self.double_written_resizes}:
                raise WriteConflict(
                    f"partition {partition!r} of {context.storage.uri} got other file groups concurrently (hashing metadata "
                    f"{present.instant if present else 'missing'} instead of {ring.instant}); plan the write again"
                )


def load_hashing_for_write(
    context: TableContext,
    snapshot: Snapshot,
    slices: Mapping[str, Iterable[FileSlice]],
    settings: ConsistentHashingSettings,
    *,
    create_missing: bool,
) -> ConsistentHashingWrite:
    """Load the consistent hashing metadata of partitions. slices: current ones, by partition. create_missing: store the
    first metadata of partitions without any.

    Raises TableState if file groups of the metadata were replaced, as by Hudi's overwrites.
    """
    counted: dict[str, HashRing] = {}
    timeline = snapshot.timeline
    for partition, current in slices.items():
        present = file_id_prefixes(s.file_id for s in current if s.base is not None)
        if create_missing:
            counted[partition] = load_or_create_hashing_metadata(context, timeline, partition, present, settings.first_count)
        elif (ring := load_hashing_metadata(context, timeline, partition, present, marks=True)) is not None:
            counted[partition] = ring
    for ring in counted.values():
        check_hashing_groups_exist(context, ring, snapshot.slicing.replaced)
    return ConsistentHashingWrite(ConsistentHashingLayout(counted, settings.hash_fields), counted)


def with_double_writes(
    hashing_write: ConsistentHashingWrite, context: TableContext, snapshot: Snapshot, groups: Iterable[FileGroupId]
) -> ConsistentHashingWrite:
    """Add double writes for pending resizes: changes of removed nodes are also written to the new ones.

    groups: those that the write changes.
    """
    wanted = frozenset(groups) & snapshot.pending_clusterings
    copies: dict[FileGroupId, DoubleWriteTargets] = {}
    for instant in snapshot.timeline.pending(Action.CLUSTERING) if wanted else ():
        planned = touched_file_groups(context, instant) & wanted
        for partition, changes in load_node_changes(context, instant.request_time).items() if planned else ():
            ring = hashing_write.valid_hashing_metadata.get(partition)
            if ring is None or {change.sequence for change in changes} != {ring.sequence}:
                continue
            after = ring.changed(instant.request_time, (node for change in changes for node in change.nodes))
            versions: dict[str, int] = {}
            for group in snapshot.groups([partition])[partition]:
                for log in (log for slice_ in group.slices for log in slice_.logs):
                    if log.name.instant_time == instant.request_time:
                        versions[group.file_id] = max(versions.get(group.file_id, 0), log.name.version + 1)
            copy = DoubleWriteTargets(instant.request_time, after, hashing_write.layout.hash_fields, versions)
            copies.update({group: copy for group in planned if group[0] == partition})
    return replace(hashing_write, copies=copies)


def replace_hashing_metadata(
    context: TableContext, snapshot: Snapshot, partitions: Iterable[str], instant: str, settings: ConsistentHashingSettings | None
) -> ConsistentHashingWrite:
    """Store metadata with new file groups for partitions whose groups are replaced; valid once the instant has completed.

    settings: the initial layout of partitions without metadata; None leaves these without one.
    """
    counted: dict[str, HashRing] = {}
    new_rings: dict[str, HashRing] = {}
    slices = snapshot.slices(sorted(set(partitions)))
    for partition in sorted(set(partitions)):
        present = file_id_prefixes(s.file_id for s in slices.get(partition, ()) if s.base is not None)
        ring = load_hashing_metadata(context, snapshot.timeline, partition, present, marks=True)
        if ring is not None:
            counted[partition] = ring
            new_rings[partition] = renewed(ring, instant, context.env.uuid4)
            store_hashing_metadata(context, new_rings[partition])
        elif settings is not None:
            # Its file groups were never replaced, so the initial hashing metadata is current.
            first = load_or_create_hashing_metadata(context, snapshot.timeline, partition, present, settings.first_count)
            counted[partition] = new_rings[partition] = first
    given_up = tuple((partition, file_id) for partition, ring in counted.items() for file_id in ring.file_ids)
    return ConsistentHashingWrite(ConsistentHashingLayout(new_rings, settings.hash_fields if settings else ()), counted, given_up)
