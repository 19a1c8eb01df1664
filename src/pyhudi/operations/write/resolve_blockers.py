"""What is in the way of a write: writes that died, and services whose plans name its file groups."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from pyhudi.errors import TableState
from pyhudi.features.consistent_hashing.ring_store import partitions_with_consistent_hashing
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.plan_ownership import PlanTaken, drop_orphaned_plan
from pyhudi.operations.commit.rollback import rollback_failed_writes
from pyhudi.operations.commit.touched_file_groups import touched_file_groups
from pyhudi.operations.services.cluster import drop_clustering, drop_orphaned_clustering
from pyhudi.operations.services.clustering_plans import load_node_changes
from pyhudi.operations.write.write_settings import UPDATE_STRATEGY, WriteSettings
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


def rollback_failed_if_eager(context: TableContext, settings: CommitSettings) -> tuple[tuple[str, ...], Timeline | None]:
    """Under the EAGER policy, roll back what died before.

    Returns the instants that were rolled back, and the timeline that was looked at for them where none was: a state of the table
    as good as one that is loaded now.
    """
    if settings.failed_writes != "EAGER":
        return (), None
    timeline = context.timeline.load()
    rolled_back = tuple(result.rolled_back for result in rollback_failed_writes(context, settings, timeline))
    return rolled_back, None if rolled_back else timeline


def resolve_pending_services(snapshot: Snapshot, groups: Iterable[tuple[str, str]], settings: WriteSettings) -> None:
    """Raises TableState when the write may not change groups that a service is about to rewrite.

    A plan that nobody will carry out is dropped (see `drop_orphaned_plan`) and in nobody's way.  Under the update strategy
    that allows it, the write goes on, and a pending clustering of its groups is dropped if the options say so.  One that is being
    carried out is left alone: whichever of the two commits later finds the other.  A resize of rings is gone on beside by writes
    that copy their rows for it, under the strategy that does so; others are refused whatever the strategy.
    """
    context, timeline, wanted = snapshot.context, snapshot.timeline, frozenset(groups)
    pending = [i for i in timeline.pending(Action.CLUSTERING) if wanted & touched_file_groups(context, i)] if wanted else []
    clustered = [i.request_time for i in pending if not drop_orphaned_clustering(context, settings.commit, i)]
    ringed = partitions_with_consistent_hashing(context) if clustered else frozenset[str]()
    resized = any(partition in ringed for partition, _ in wanted)
    if settings.clustering_updates == "duplicate" and not settings.operation.replaces:
        clustered = [time for time in clustered if not _takes_copies(context, time, wanted)]
    if clustered and (resized or settings.clustering_updates != "allow"):
        count = len(snapshot.pending_clusterings.intersection(wanted))
        raise TableState(
            f"{settings.operation} would change {count} file groups of {context.storage.uri} that pending clustering "
            f"{', '.join(clustered)} is about to replace, and one of the two would be lost; run it with "
            f"cluster({clustered[0]!r}), drop it with unschedule_clustering({clustered[0]!r})"
            + _remedy(settings, resized=resized)
        )
    if settings.drops_clusterings:
        for instant in clustered:
            with suppress(PlanTaken):
                drop_clustering(context, settings.commit, instant)


def refuse_planned_compactions(snapshot: Snapshot, groups: Iterable[tuple[str, str]], settings: WriteSettings) -> None:
    """Raises TableState when a compaction is planned of file groups whose rows do not fit the columns that the write brings.

    Hudi carries out plans of replaced file groups too, and would fail to read these.  A plan that no process will carry out is
    dropped.
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


def _takes_copies(context: TableContext, clustering: str, groups: frozenset[tuple[str, str]]) -> bool:
    """Whether a pending clustering resizes the rings of all of the groups that it is about to replace."""
    taken = touched_file_groups(context, Instant(clustering, Action.CLUSTERING, State.REQUESTED)) & groups
    return {partition for partition, _ in taken} <= load_node_changes(context, clustering).keys() if taken else True


def _remedy(settings: WriteSettings, *, resized: bool) -> str:
    """What else a write that a pending clustering refuses may do."""
    if not resized:
        return f", or let writes win with {UPDATE_STRATEGY}=SparkAllowUpdateStrategy"
    if settings.operation.replaces:
        return ""
    return f", or write to both places with {UPDATE_STRATEGY}=SparkConsistentBucketDuplicateUpdateStrategy"
