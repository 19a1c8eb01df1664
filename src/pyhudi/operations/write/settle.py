"""What is in the way of a write: writes that died, and services whose plans name its file groups."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from pyhudi.errors import TableState
from pyhudi.format.instants import Action
from pyhudi.operations.action.claim import PlanTaken, settle_plan
from pyhudi.operations.action.rollback import rollback_failed_writes
from pyhudi.operations.action.settings import CommitSettings
from pyhudi.operations.action.transaction import touched_groups
from pyhudi.operations.services.cluster import drop_clustering, settle_clustering
from pyhudi.operations.write.settings import UPDATE_STRATEGY, WriteSettings
from pyhudi.table.context import TableContext
from pyhudi.table.rings import partitions_with_rings
from pyhudi.table.snapshot import Snapshot


def settle_failed_writes(context: TableContext, settings: CommitSettings) -> tuple[str, ...]:
    """Under the EAGER policy, roll back what died before.  Returns the instants that were rolled back."""
    if settings.failed_writes != "EAGER":
        return ()
    return tuple(result.rolled_back for result in rollback_failed_writes(context, settings))


def settle_groups_under_service(snapshot: Snapshot, groups: Iterable[tuple[str, str]], settings: WriteSettings) -> None:
    """Raises TableState when the write may not change groups that a service is about to rewrite.

    A plan that nobody will carry out is dropped (see `settle_plan`) and in nobody's way.  Under the update strategy
    that allows it, the write goes on, and a pending clustering of its groups is dropped if the options say so.  One that is being
    carried out is left alone: whichever of the two commits later finds the other.  A resize of rings is not asked to find it: the
    write is refused whatever the strategy.
    """
    context, timeline, wanted = snapshot.context, snapshot.timeline, frozenset(groups)
    pending = [i for i in timeline.pending(Action.CLUSTERING) if wanted & touched_groups(context, i)] if wanted else []
    clustered = [i.request_time for i in pending if not settle_clustering(context, settings.commit, i)]
    resized = partitions_with_rings(context).intersection(partition for partition, _ in wanted) if clustered else set()
    if clustered and (resized or settings.clustering_updates == "reject"):
        count = len(snapshot.pending_clusterings.intersection(wanted))
        remedy = (
            "let the writer that planned it carry it out first"
            if resized
            else f"run it with cluster({clustered[0]!r}), drop it with unschedule_clustering({clustered[0]!r}), or let "
            f"writes win with {UPDATE_STRATEGY}=SparkAllowUpdateStrategy"
        )
        raise TableState(
            f"{settings.operation} would change {count} file groups of {context.storage.uri} that pending clustering "
            f"{', '.join(clustered)} is about to replace, and one of the two would be lost; {remedy}"
        )
    if settings.operation.replaces:
        compacted = {group: time for group, time in snapshot.slicing.pending_compactions.items() if group in wanted}
        planned = [i for i in timeline.pending(Action.COMPACTION) if i.request_time in compacted.values()]
        waiting = [i.request_time for i in planned if not settle_plan(context, settings.commit, i)]
        if waiting:
            raise TableState(
                f"{settings.operation} would drop {len(compacted)} file groups that compaction {', '.join(waiting)} rewrites; "
                f"run it first with compact({waiting[0]!r}), or drop it with unschedule_compaction({waiting[0]!r})"
            )
    if settings.drops_clusterings:
        for instant in clustered:
            with suppress(PlanTaken):
                drop_clustering(context, settings.commit, instant)
