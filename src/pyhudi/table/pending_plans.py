"""Plans of pending table services in requested files of the timeline: the file groups they cover, and the files they read.

Source: docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.format.actions.clustering_plan import ClusteringPlan
from pyhudi.format.actions.compaction_plan import CompactionPlan
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.paths import file_name, join_path
from pyhudi.storage.uris import parse_uri
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore


def load_pending_compactions(store: TimelineStore, timeline: Timeline) -> dict[tuple[str, str], str]:
    """Map (partition, file id) of each file group that a pending compaction will rewrite to the compaction's instant."""
    pending: dict[tuple[str, str], str] = {}
    for instant in timeline.pending(Action.COMPACTION):
        for operation in load_compaction_plan(store, instant).operations or ():
            pending[operation.partition_path or "", operation.file_id or ""] = instant.request_time
    return pending


def load_compaction_plan(store: TimelineStore, instant: Instant) -> CompactionPlan:
    """Load the plan in the requested file of a compaction or log compaction. Raises CorruptData when it is missing or damaged."""
    requested = Instant(instant.request_time, instant.action, State.REQUESTED)
    with store.errors_with_path(requested):
        return CompactionPlan.decode(store.read(requested))


def load_clustering_plan(store: TimelineStore, instant: Instant) -> ClusteringPlan | None:
    """Load the plan in the requested file of a clustering or replace commit; None for a replace commit that is no clustering."""
    data = store.read_state(instant.request_time, instant.action, State.REQUESTED)
    if not data:
        return None
    with store.errors_with_path(instant):
        return RequestedReplaceMetadata.decode(data).clustering_plan


def load_plan_files(store: TimelineStore, instant: Instant) -> frozenset[str]:
    """Return the paths of the files that the plan of a table service reads, relative to the table; none for other actions."""
    if instant.action in (Action.COMPACTION, Action.LOGCOMPACTION):
        return compaction_files(load_compaction_plan(store, instant))
    if instant.action in (Action.CLUSTERING, Action.REPLACECOMMIT):
        return _files_of_clustering(load_clustering_plan(store, instant))
    return frozenset()


def plan_files(action: Action, plan: bytes) -> frozenset[str]:
    """As `load_plan_files`, for a plan that is not stored yet."""
    if action in (Action.COMPACTION, Action.LOGCOMPACTION):
        return compaction_files(CompactionPlan.decode(plan))
    if action in (Action.CLUSTERING, Action.REPLACECOMMIT):
        return _files_of_clustering(RequestedReplaceMetadata.decode(plan).clustering_plan)
    return frozenset()


def load_planned_files(store: TimelineStore, pending: Iterable[Instant]) -> frozenset[str]:
    """The paths of the files that pending compactions, log compactions and clusterings read and that must not be deleted."""
    return frozenset().union(*(load_plan_files(store, instant) for instant in pending))


def compaction_files(plan: CompactionPlan) -> frozenset[str]:
    """Return the paths of the files that a compaction plan reads."""
    return _paths(
        (operation.partition_path, (operation.data_file_path, *(operation.delta_file_paths or ())))
        for operation in plan.operations or ()
    )


def _files_of_clustering(plan: ClusteringPlan | None) -> frozenset[str]:
    groups = () if plan is None else plan.input_groups or ()
    return _paths(
        (piece.partition_path, (piece.data_file_path, *(piece.delta_file_paths or ())))
        for group in groups
        for piece in group.slices or ()
    )


def _paths(named_files: Iterable[tuple[str | None, Iterable[str | None]]]) -> frozenset[str]:
    """Plans name files or their URIs, by partition."""
    return frozenset(join_path(partition or "", file_name(name)) for partition, names in named_files for name in names if name)


def planned_path(partition: str, uri: str) -> str | None:
    """Return the current path, relative to the table, of a file that a plan names by its former URI.

    The table may have been moved or copied since; partition and file name are the same.  None for a URI that
    names no file of the partition.
    """
    where = parse_uri(uri).path
    path = join_path(partition, file_name(where))
    return path if f"/{where}".endswith(f"/{path}") else None
