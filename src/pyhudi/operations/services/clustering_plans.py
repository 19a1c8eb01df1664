"""Clustering plans: conversion between plan documents and groups of file slices, and whether a plan can still run.

Plans of other writers are read the same way. A plan can never run if files that it reads are deleted, or if a write has
changed one of its file groups since.

Source: docs/formats/writing.md, "Clustering".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyhudi.errors import CorruptData, TableState
from pyhudi.features.consistent_hashing.hashing_metadata import decode_nodes, encode_nodes, is_copy
from pyhudi.features.consistent_hashing.plan_resizes import NodeChange
from pyhudi.format.actions.clustering_plan import (
    COMMIT_CHECKPOINT_KEY,
    COPY_STRATEGIES,
    COPY_STRATEGY,
    GROUP_NODES_KEY,
    GROUP_PARTITION_KEY,
    GROUP_SEQUENCE_KEY,
    RESIZE_STRATEGY,
    SORT_AND_SIZE_STRATEGY,
    SORT_COLUMNS_KEY,
    ClusteringGroup,
    ClusteringPlan,
    ClusteringStrategy,
    SliceInfo,
)
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import parse_base_file, parse_data_file_instant, parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.format.properties import split_list
from pyhudi.operations.commit.plan_ownership import PlanSuperseded
from pyhudi.operations.commit.touched_file_groups import file_groups_of_commit, load_replaced_groups, written_groups
from pyhudi.operations.services.candidate_partitions import changed_partitions
from pyhudi.options.service_options import LAYOUT_OPTIMIZE_STRATEGY
from pyhudi.planning.clustering import ClusterGroup, ClusteringRules, group_metrics
from pyhudi.planning.conflicts import FileGroupId, WriteStart, describe_conflicts, find_conflicts, instants_to_check
from pyhudi.table.bootstrap_sources import with_sources
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile
from pyhudi.table.log_file_sizes import check_size, load_written_sizes
from pyhudi.table.pending_plans import planned_path
from pyhudi.table.snapshot import Snapshot, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


@dataclass(frozen=True, slots=True)
class ClusteringWork:
    """A decoded clustering plan.

    Attributes:
        groups: File groups to rewrite together.
        order: Sort columns.
        layout: Sort order, in capitals.
        is_copy: The plan requests to copy row groups.
    """

    groups: tuple[ClusterGroup, ...]
    order: tuple[str, ...]
    layout: str
    is_copy: bool = False

    @property
    def changes(self) -> dict[str, tuple[NodeChange, ...]]:
        """Changes of hash nodes by partition; empty for a plan that is not a resize."""
        changes: dict[str, tuple[NodeChange, ...]] = {}
        for group in self.groups:
            if group.change is not None:
                changes[group.partition] = (*changes.get(group.partition, ()), group.change)
        return changes


def last_clustering(context: TableContext, timeline: Timeline, after: str = "") -> Instant | None:
    """Return the completed clustering with the newest request time; None if there is none after `after`."""
    for instant in reversed(timeline.completed(Action.REPLACECOMMIT)):
        if instant.request_time <= after:
            break
        if read_commit(context.timeline, instant).operation is Operation.CLUSTER:
            return instant
    return None


def candidate_partitions(snapshot: Snapshot, settings: ClusteringRules) -> tuple[str, ...]:
    """Return the partitions that changed since the last clustering.

    All, if there is none, if the last one had another sort order, or if plans are not incremental.
    """
    context, existing = snapshot.context, snapshot.listing.partitions()
    if not settings.incremental or settings.after_commit is not None:
        return existing
    last = last_clustering(context, snapshot.timeline)
    if last is None or not context.timeline.read_state(last.request_time, Action.CLUSTERING, State.REQUESTED):
        return existing
    plan = _load_plan(context, last.request_time)
    columns, layout = _sort_order(plan)
    if columns != settings.sort_columns or (columns and layout != settings.layout):
        return existing
    return changed_partitions(snapshot, last, plan.missing_schedule_partitions)


def clustering_document(
    context: TableContext,
    groups: Iterable[ClusterGroup],
    settings: ClusteringRules,
    missing: Iterable[str] = (),
    *,
    is_copy: bool = False,
    checkpoint: str | None = None,
) -> ClusteringPlan:
    """Build the plan document of chosen groups.

    missing: partitions that changed and that the plan does not complete. is_copy: it requests to copy row groups.
    checkpoint: the last commit whose files are in the plan.
    """
    chosen = tuple(groups)
    absolute = context.storage.absolute
    documents = tuple(
        ClusteringGroup(
            slices=tuple(
                SliceInfo(
                    data_file_path=absolute(s.base.path) if s.base else "",
                    delta_file_paths=tuple(absolute(log.path) for log in reversed(s.logs)),
                    bootstrap_file_path="" if s.source is None else s.source.uri,
                    file_id=s.file_id,
                    partition_path=s.partition,
                )
                for s in group.slices
            ),
            metrics=group_metrics(group, settings),
            num_output_file_groups=group.output_count,
            extra_metadata=_node_metadata(group),
        )
        for group in chosen
    )
    parameters: dict[str, str] = {}
    if settings.sort_columns:
        parameters[SORT_COLUMNS_KEY] = ",".join(settings.sort_columns)
        if settings.layout != "LINEAR":
            parameters[LAYOUT_OPTIMIZE_STRATEGY.key] = settings.layout
    resized = {group.partition for group in chosen if group.change is not None}
    class_name = RESIZE_STRATEGY if resized else COPY_STRATEGY if is_copy else SORT_AND_SIZE_STRATEGY
    strategy = ClusteringStrategy(class_name, parameters)
    extra = {} if checkpoint is None else {COMMIT_CHECKPOINT_KEY: checkpoint}
    left = tuple(sorted(resized.union(missing))) if settings.incremental else None
    return ClusteringPlan(documents, strategy, extra, missing_schedule_partitions=left)


WrittenGroups = tuple[str, set[FileGroupId]]
"""Request time of a commit, and the file groups that it wrote."""


def commits_after(snapshot: Snapshot, earliest: str | None) -> list[WrittenGroups]:
    """Return the commits that were requested after an instant, oldest first; none for None."""
    if earliest is None:
        return []
    store, completed = snapshot.context.timeline, snapshot.timeline.completed(Action.COMMIT, Action.DELTACOMMIT)
    return [(i.request_time, written_groups(read_commit(store, i))) for i in completed if i.request_time > earliest]


def commit_checkpoint(
    snapshot: Snapshot, settings: ClusteringRules, commits: Iterable[WrittenGroups], groups: Iterable[ClusterGroup]
) -> str | None:
    """Return the last commit up to which the groups of a plan hold all current file groups that commits wrote."""
    if settings.after_commit is None:
        return None
    planned = {(slice_.partition, slice_.file_id) for group in groups for slice_ in group.slices}
    left = {(s.partition, s.file_id) for slices in snapshot.slices(None).values() for s in slices} - planned
    checkpoint = settings.after_commit
    for time, written in commits:
        if written & left:
            break
        checkpoint = time
    return checkpoint


def load_clustering(context: TableContext, timeline: Timeline, request_time: str) -> ClusteringWork:
    """Load the plan of an instant.

    Raises:
        TableState: There is no plan, or a file that it names is missing.
        CorruptData: A log file is shorter or longer than its commit records.
    """
    plan = _load_plan(context, request_time)
    columns, layout = _sort_order(plan)
    groups = []
    pieces = [piece for document in plan.input_groups or () for piece in document.slices or ()]
    logs = [_below(context, piece, file) for piece in pieces for file in piece.delta_file_paths or ()]
    written = load_written_sizes(context.timeline, timeline, logs)
    for document in plan.input_groups or ():
        slices = with_sources(context, (_slice_of(context, piece, written) for piece in document.slices or ()))
        # A file group belongs to one partition, whichever groups a custom strategy combines.
        for partition in dict.fromkeys(slice_.partition for slice_ in slices):
            partition_slices = tuple(slice_ for slice_ in slices if slice_.partition == partition)
            outputs = -(-(document.num_output_file_groups or 1) * len(partition_slices) // len(slices))
            groups.append(ClusterGroup(partition, partition_slices, outputs, _change_of(document)))
    class_name = (plan.strategy.strategy_class_name if plan.strategy else None) or ""
    return ClusteringWork(
        tuple(groups),
        columns,
        layout,
        is_copy=class_name.rsplit(".", 1)[-1] in COPY_STRATEGIES,
    )


def load_node_changes(context: TableContext, request_time: str) -> dict[str, tuple[NodeChange, ...]]:
    """Return the changes of hash nodes in the plan of an instant, by partition. Raises the errors of `load_clustering`."""
    changes: dict[str, tuple[NodeChange, ...]] = {}
    for document in _load_plan(context, request_time).input_groups or ():
        change, pieces = _change_of(document), document.slices or ()
        if change is not None and pieces:
            partition = pieces[0].partition_path or ""
            changes[partition] = (*changes.get(partition, ()), change)
    return changes


def never_runnable_reason(context: TableContext, timeline: Timeline, instant: Instant) -> str | None:
    """Return why a pending clustering can never run (files deleted or superseded), or None if it can."""
    try:
        work = load_clustering(context, timeline, instant.request_time)
        start = since_plan(timeline, instant.request_time)
        check_not_superseded(context, timeline, instant.request_time, start, work.groups)
    except (TableState, PlanSuperseded) as error:
        return str(error)
    except CorruptData:
        # The process that runs it gets the error; the damage may be repaired before.
        return None
    return None


def since_plan(timeline: Timeline, planned: str) -> WriteStart:
    """Return the start for conflict detection: every write that completed after the plan was made, or is pending."""
    after = {i.request_time for i in timeline.completed_writes() if (i.completion_time or i.request_time) > planned}
    last = timeline.last_completed_write()
    pending = {i.request_time for i in timeline.pending_writes()}
    return WriteStart(last.request_time if last else "", frozenset(after | pending), latest=planned)


def check_not_superseded(
    context: TableContext, timeline: Timeline, planned: str, start: WriteStart, groups: Iterable[ClusterGroup]
) -> None:
    """Raise PlanSuperseded before any work if a write has changed one of the groups; the commit checks again.

    During a resize, a write that has double-written its changes into the new file groups does not count.
    """
    copies: dict[FileGroupId, list[str]] = {}
    for group in groups:
        coming = [node.file_id for node in group.change.new_nodes] if group.change else []
        copies.update({(group.partition, slice_.file_id): coming for slice_ in group.slices})
    own_copies = set(copies)
    others: dict[Instant, set[FileGroupId]] = {}
    for instant in instants_to_check(planned, start, timeline):
        if instant.state is State.COMPLETED:
            metadata = read_commit(context.timeline, instant)
            copied = _copied_groups(metadata, instant, planned)
            followed = {group for group in own_copies if any((group[0], file_id) in copied for file_id in copies[group])}
            others[instant] = file_groups_of_commit(metadata) - (followed - load_replaced_groups(metadata))
    conflicts = find_conflicts(planned, own_copies, others, frozenset())
    if conflicts:
        raise PlanSuperseded(
            f"file groups of clustering {planned} of {context.storage.uri} were changed since it was planned, by "
            f"{describe_conflicts(conflicts)}",
            instants=tuple(c.instant.request_time for c in conflicts),
        )


def _node_metadata(group: ClusterGroup) -> dict[str, str]:
    if group.change is None:
        return {}
    return {
        GROUP_PARTITION_KEY: group.partition,
        GROUP_NODES_KEY: encode_nodes(group.change.nodes),
        GROUP_SEQUENCE_KEY: str(group.change.sequence),
    }


def _change_of(document: ClusteringGroup) -> NodeChange | None:
    metadata = document.extra_metadata or {}
    if GROUP_NODES_KEY not in metadata:
        return None
    sequence = metadata.get(GROUP_SEQUENCE_KEY, "")
    if not (sequence.isascii() and sequence.isdigit()):
        raise CorruptData(
            f"the plan of a resize has no sequence number of its hashing metadata ({GROUP_SEQUENCE_KEY}={sequence!r})"
        )
    return NodeChange(decode_nodes(metadata[GROUP_NODES_KEY]), int(sequence))


def _copied_groups(metadata: CommitMetadata, instant: Instant, planned: str) -> set[FileGroupId]:
    """Return the file groups into which a write has double-written rows for a resize."""
    copied = set()
    for partition, stats in metadata.partition_to_write_stats.items():
        for stat in stats:
            path = stat.path or ""
            if is_copy(path, instant.request_time) and parse_data_file_instant(file_name(path)) == planned:
                copied.add((partition, stat.file_id or ""))
    return copied


def _sort_order(plan: ClusteringPlan) -> tuple[tuple[str, ...], str]:
    """Return the sort columns of a plan and its layout, in capitals."""
    parameters: Mapping[str, str] = (plan.strategy.strategy_params if plan.strategy else None) or {}
    return split_list(parameters.get(SORT_COLUMNS_KEY)), parameters.get(LAYOUT_OPTIMIZE_STRATEGY.key, "LINEAR").upper()


def _load_plan(context: TableContext, request_time: str) -> ClusteringPlan:
    data = context.timeline.read_state(request_time, Action.CLUSTERING, State.REQUESTED)
    plan = RequestedReplaceMetadata.decode(data).clustering_plan if data else None
    if plan is None:
        raise TableState(f"clustering {request_time} of {context.storage.uri} has no plan; roll it back")
    return plan


def _slice_of(context: TableContext, group: SliceInfo, written: Mapping[str, int]) -> FileSlice:
    base = None
    if group.data_file_path:
        path = _below(context, group, group.data_file_path)
        name = parse_base_file(file_name(path))
        if name is None:
            raise TableState(f"the clustering plan names {group.data_file_path}, which is not a base file")
        base = BaseFile(path, name, _size(context, path))
    logs = []
    for file in reversed(group.delta_file_paths or ()):
        path = _below(context, group, file)
        log_name = parse_log_file(file_name(path))
        if log_name is None:
            raise TableState(f"the clustering plan names {file}, which is not a log file")
        logs.append(LogFile(path, log_name, check_size(context.storage, path, _size(context, path), written)))
    instant = base.name.instant_time if base else logs[0].name.instant_time if logs else ""
    return FileSlice(group.partition_path or "", group.file_id or "", instant, base, tuple(logs))


def _below(context: TableContext, group: SliceInfo, uri: str) -> str:
    path = planned_path(group.partition_path or "", uri)
    if path is None:
        raise TableState(
            f"the clustering plan names {uri}, which is not a file of partition {group.partition_path!r} of {context.storage.uri}"
        )
    return path


def _size(context: TableContext, path: str) -> int:
    info = context.storage.stat(path)
    if info is None:
        raise TableState(
            f"{context.storage.absolute(path)}, which the clustering plan reads, is missing; roll the clustering back"
        )
    return info.size_bytes
