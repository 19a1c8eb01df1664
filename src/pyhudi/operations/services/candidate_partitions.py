"""Incremental table services: the partitions that changed since the last compaction or clustering.

Source: docs/formats/writing.md, "Partitions of incremental plans".
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.format.instants import Action, Instant
from pyhudi.planning.compaction import partitions_to_plan
from pyhudi.table.snapshot import Snapshot, load_archived_commits, read_commit
from pyhudi.table.timeline.archived_timeline import Bounds


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

    def changes_records(instant: Instant) -> bool:
        # On a merge-on-read table commits are compactions, which change no records.
        return instant != last and (config.is_cow or instant.action is not Action.COMMIT)

    writes = snapshot.timeline.completed_writes()
    since = [i for i in writes if changes_records(i) and (i.completion_time or "") >= last.request_time]
    changed = [tuple(read_commit(snapshot.context.timeline, instant).partition_to_write_stats) for instant in since]
    if writes and writes[0].request_time >= last.request_time:
        # Archival is in the order of request times: a write that was requested before the service may have completed after it.
        archived = load_archived_commits(snapshot.context.timeline, Bounds(last.request_time))
        changed += [tuple(metadata.partition_to_write_stats) for instant, metadata in archived if changes_records(instant)]
    return partitions_to_plan(changed, missing, existing)
