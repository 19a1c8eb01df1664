"""Incremental table services: the partitions that changed since the last compaction or clustering.

Source: docs/formats/writing.md, "Partitions of incremental plans".
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.format.instants import Action, Instant
from pyhudi.planning.compaction import partitions_to_plan
from pyhudi.table.snapshot import Snapshot, read_commit


def changed_partitions(snapshot: Snapshot, last: Instant, missing: Sequence[str] | None) -> tuple[str, ...]:
    """Return the partitions that may need a service, sorted.

    Args:
        snapshot: The current state of the table.
        last: The last completed instant of the service.
        missing: Partitions that its plan did not complete; None if it does not record them: all partitions are returned.
    """
    config, existing = snapshot.config, snapshot.listing.partitions()
    if missing is None:
        return existing
    since = [
        instant
        for instant in snapshot.timeline.completed_writes()
        # On a merge-on-read table commits are compactions, which change no records.
        if instant != last
        and (config.is_cow or instant.action is not Action.COMMIT)
        and (instant.completion_time or "") >= last.request_time
    ]
    written = (tuple(read_commit(snapshot.context.timeline, instant).partition_to_write_stats) for instant in since)
    return partitions_to_plan(written, missing, existing)
