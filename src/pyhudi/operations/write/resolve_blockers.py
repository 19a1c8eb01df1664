"""Resolve what blocks a write: failed writes, and pending services whose plans name its file groups."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from pyhudi.errors import TableState
from pyhudi.features.consistent_hashing.hashing_store import partitions_with_consistent_hashing
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.hudi_writers import unchecked_clusterings
from pyhudi.operations.commit.plan_ownership import PlanTaken, drop_orphaned_plan
from pyhudi.operations.commit.rollback import rollback_failed_writes
from pyhudi.operations.commit.touched_file_groups import touched_file_groups
from pyhudi.operations.services.clean import run_clean
from pyhudi.operations.services.cluster import drop_clustering, drop_orphaned_clustering, drop_orphaned_clusterings
from pyhudi.operations.services.clustering_plans import load_node_changes
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.options.write_options import CLUSTERING_UPDATES_STRATEGY, CONFLICT_RESOLUTION
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine


def rollback_failed_if_eager(context: TableContext, settings: CommitSettings) -> tuple[tuple[str, ...], Timeline | None]:
    """Roll back failed writes under the EAGER policy.

    Returns:
        The instants that were rolled back, and the loaded timeline if there were none, which is as current as one
        loaded now.
    """
    if settings.failed_writes != "EAGER":
        return (), None
    timeline = context.timeline.load()
    rolled_back = tuple(result.rolled_back for result in rollback_failed_writes(context, settings, timeline))
    return rolled_back, None if rolled_back else timeline


def run_prewrite(
    context: TableContext, settings: WriteSettings, engine: Engine | None
) -> tuple[tuple[str, ...], Timeline | None]:
    """Clean the table and roll back failed writes before a write, by its policies. Returns as `rollback_failed_if_eager`."""
    if settings.prewrite == "NONE":
        return rollback_failed_if_eager(context, settings.commit)
    rolled_back = tuple(result.rolled_back for result in rollback_failed_writes(context, settings.commit))
    if settings.commit.clustering_expiry_ms is not None:
        rolled_back += drop_orphaned_clusterings(context, settings.commit)
    if settings.prewrite == "CLEAN":
        run_clean(context, settings.prewrite_clean, engine=engine)
    return rolled_back, None


def resolve_pending_services(snapshot: Snapshot, groups: Iterable[tuple[str, str]], settings: WriteSettings) -> None:
    """Check that no pending clustering conflicts with the file groups of the write.

    A plan that no process will run is dropped (see `drop_orphaned_plan`). Under the update strategy that allows it, the
    write proceeds, and a pending clustering of its groups is dropped now if the options request that, otherwise by the
    commit. A clustering that is being run by PyHudi stays: whichever of the two commits later detects the conflict. One
    that another process runs blocks the write (see `hudi_writers`). During
    a bucket resize, only writes under the strategy that writes rows twice proceed; others are refused under every
    strategy.

    Raises:
        TableState: The write must not change groups that a service is about to rewrite.
    """
    context, timeline, write_groups = snapshot.context, snapshot.timeline, frozenset(groups)
    pending = (
        [i for i in timeline.pending(Action.CLUSTERING) if write_groups & touched_file_groups(context, i)] if write_groups else []
    )
    clustered = [i.request_time for i in pending if not drop_orphaned_clustering(context, settings.commit, i)]
    ringed = partitions_with_consistent_hashing(context) if clustered else frozenset[str]()
    resized = any(partition in ringed for partition, _ in write_groups)
    if settings.clustering_updates == "duplicate" and not settings.operation.replaces:
        clustered = [time for time in clustered if not _is_resize_of(context, time, write_groups)]
    if clustered and (resized or settings.clustering_updates != "allow"):
        count = len(snapshot.pending_clusterings.intersection(write_groups))
        raise TableState(
            f"{settings.operation} would change {count} file groups of {context.storage.uri} that pending "
            f"clustering {', '.join(clustered)} is about to replace, and one of the two would be lost; run it "
            f"with cluster({clustered[0]!r}), drop it with unschedule_clustering({clustered[0]!r})"
            + _remedy(settings, resized=resized)
        )
    _refuse_unchecked_clusterings(context, [i for i in pending if i.request_time in clustered], settings)
    if settings.drops_clusterings:
        for instant in clustered:
            with suppress(PlanTaken):
                drop_clustering(context, settings.commit, instant)


def _refuse_unchecked_clusterings(context: TableContext, pending: Iterable[Instant], settings: WriteSettings) -> None:
    """Raise TableState if a process other than PyHudi runs a clustering and may not detect the conflict with the write."""
    if settings.clustering_updates != "allow":
        return
    unchecked = unchecked_clusterings(context, settings.commit, pending)
    if unchecked:
        raise TableState(
            f"{settings.operation} would change file groups of {context.storage.uri} that clustering "
            f"{unchecked[0].request_time} of another engine is replacing, and could be lost. Repeat it after the clustering, "
            f"or set {CONFLICT_RESOLUTION}=PreferWriterConflictResolutionStrategy for all writers and clusterings"
        )


def refuse_planned_compactions(snapshot: Snapshot, groups: Iterable[tuple[str, str]], settings: WriteSettings) -> None:
    """Check that no compaction is planned for rows whose types the write changes.

    Hudi runs plans of replaced file groups too, and would fail to read these rows. A plan that no process will run is dropped.

    Raises:
        TableState: Such a compaction is planned.
    """
    context, planned = snapshot.context, snapshot.slicing.pending_compactions
    times = {planned[group] for group in groups if group in planned}
    pending = [i for i in snapshot.timeline.pending(Action.COMPACTION) if i.request_time in times]
    waiting = [i.request_time for i in pending if not drop_orphaned_plan(context, settings.commit, i)]
    if waiting:
        raise TableState(
            f"{settings.operation} changes the type of a column of {context.storage.uri}, and compaction {', '.join(waiting)} is "
            f"planned for rows of the old type; run it first with compact({waiting[0]!r}), or drop it with "
            f"unschedule_compaction({waiting[0]!r})"
        )


def _is_resize_of(context: TableContext, clustering: str, groups: frozenset[tuple[str, str]]) -> bool:
    """Return True if a pending clustering resizes the buckets of all groups that it is about to replace."""
    replaced = touched_file_groups(context, Instant(clustering, Action.CLUSTERING, State.REQUESTED)) & groups
    return {partition for partition, _ in replaced} <= load_node_changes(context, clustering).keys() if replaced else True


def _remedy(settings: WriteSettings, *, resized: bool) -> str:
    """Return alternatives for a write that a pending clustering blocks."""
    if not resized:
        return f", or give writes precedence with {CLUSTERING_UPDATES_STRATEGY}=SparkAllowUpdateStrategy"
    if settings.operation.replaces:
        return ""
    return f", or write rows twice with {CLUSTERING_UPDATES_STRATEGY}=SparkConsistentBucketDuplicateUpdateStrategy"
