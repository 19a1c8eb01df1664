"""Resize service of the consistent hashing index: clusterings that change nodes and create new file groups.

    plan     requires that no delta commit is pending; in partitions without a pending clustering, nodes split, merge or
             stay
    run      rows go to the nodes that replace theirs; each partition's new metadata is stored, and is valid once the
             replace commit has completed

Two attempts at one plan store the same metadata, because the plan names its nodes.

Source: docs/formats/writing.md, "Resizing consistent hashing buckets".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyhudi.errors import TableState
from pyhudi.features.consistent_hashing.hashing_metadata import HashRing
from pyhudi.features.consistent_hashing.hashing_routing import ConsistentHashingLayout, check_hashing_groups
from pyhudi.features.consistent_hashing.hashing_store import (
    check_hashing_groups_exist,
    file_id_prefixes,
    load_hashing_metadata,
    partitions_with_consistent_hashing,
)
from pyhudi.features.consistent_hashing.plan_resizes import ResizeRules, plan_resize
from pyhudi.format.instants import Action, Instant
from pyhudi.operations.commit.plan_ownership import PlanSuperseded
from pyhudi.operations.commit.service_result import NotDue
from pyhudi.operations.commit.touched_file_groups import touched_file_groups
from pyhudi.operations.services.clustering_plans import ClusteringWork, load_node_changes
from pyhudi.planning.clustering import ClusterGroup
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext


def reason_not_to_resize(snapshot: Snapshot) -> NotDue | None:
    """Return why no resize can be planned; None when one can.

    Rows of a write that began before the plan would go only to the file groups that the plan replaces.
    """
    writing = snapshot.timeline.pending(Action.DELTACOMMIT, Action.LOGCOMPACTION)
    return NotDue(f"{writing[0].action} {writing[0].request_time} is under way") if writing else None


def choose_resizes(snapshot: Snapshot, partitions: Iterable[str], rules: ResizeRules) -> tuple[ClusterGroup, ...]:
    """Return the node changes of partitions, group by group.

    Raises TableState for a partition with file groups that its consistent hashing metadata lacks.
    """
    context = snapshot.context
    busy = snapshot.pending_clusterings
    groups: list[ClusterGroup] = []
    for partition, slices in snapshot.slices(tuple(partitions)).items():
        if not slices or any(place == partition for place, _ in busy):
            continue
        prefixes = file_id_prefixes(s.file_id for s in slices if s.base is not None)
        ring = load_hashing_metadata(context, snapshot.timeline, partition, prefixes)
        if ring is None:
            raise TableState(
                f"partition {partition!r} of {context.storage.uri} has file groups and no consistent hashing "
                "metadata: it was written by another index, "
                "and cannot be resized"
            )
        check_hashing_groups_exist(context, ring, snapshot.slicing.replaced)
        check_hashing_groups(slices, ConsistentHashingLayout({partition: ring}))
        free = [s for s in slices if (partition, s.file_id) not in snapshot.slicing.pending_compactions]
        for resize in plan_resize(ring, free, rules, context.env.uuid4):
            groups.append(ClusterGroup(partition, resize.slices, len(resize.change.new_nodes), resize.change))
    return tuple(groups)


def resized_hashing_metadata(snapshot: Snapshot, work: ClusteringWork, instant: str) -> Mapping[str, HashRing]:
    """Return the consistent hashing metadata of the partitions of a plan after its execution.

    Raises PlanSuperseded if the valid metadata is not the one that the plan was made for.
    """
    context, changes = snapshot.context, work.changes
    rings: dict[str, HashRing] = {}
    for partition, slices in snapshot.slices(sorted(changes)).items():
        prefixes = file_id_prefixes(s.file_id for s in slices if s.base is not None)
        ring = load_hashing_metadata(context, snapshot.timeline, partition, prefixes)
        if ring is None or {change.sequence for change in changes[partition]} != {ring.sequence}:
            raise PlanSuperseded(
                f"clustering {instant} of {context.storage.uri} was planned on outdated consistent hashing metadata of "
                f"partition {partition!r}; plan it again",
                instants=(instant,),
            )
        rings[partition] = ring.changed(instant, (node for change in changes[partition] for node in change.nodes))
    return rings


def check_is_resize(context: TableContext, has_consistent_hashing: Iterable[str], work: ClusteringWork, instant: str) -> None:
    """Raise TableState for a plan that would move rows out of their nodes. has_consistent_hashing: partitions with consistent
    hashing metadata.
    """
    plain = {group.partition for group in work.groups if group.change is None}.intersection(has_consistent_hashing)
    if plain:
        raise TableState(
            f"clustering {instant} of {context.storage.uri} would move records out of the consistent hashing nodes of partition "
            f"{min(plain)!r}, where no write would find them; drop it with "
            f"unschedule_clustering({instant!r})"
        )


def changes_hashing_metadata(context: TableContext, instant: Instant) -> bool:
    """Whether a pending clustering would move rows out of the nodes of their keys: it is no resize.

    It must not be executed, and writes to these file groups wait for it.
    """
    groups = touched_file_groups(context, instant)
    changes = load_node_changes(context, instant.request_time)
    ringed = partitions_with_consistent_hashing(context)
    return any(partition in ringed and partition not in changes for partition, _ in groups)
