"""Plans that stand in requested files of the timeline, and which file groups wait for them.

Source: docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

from pyhudi.errors import CorruptData
from pyhudi.format.actions.compaction import CompactionPlan
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.paths import file_name_of, join_path
from pyhudi.storage.uris import parse_uri
from pyhudi.timeline.store import TimelineStore
from pyhudi.timeline.timeline import Timeline


def load_pending_compactions(store: TimelineStore, timeline: Timeline) -> dict[tuple[str, str], str]:
    """(partition, file id) of each file group that a pending compaction will rewrite -> the compaction's instant."""
    pending: dict[tuple[str, str], str] = {}
    for instant in timeline.pending(Action.COMPACTION):
        for operation in load_compaction_plan(store, instant).operations or ():
            pending[operation.partition_path or "", operation.file_id or ""] = instant.request_time
    return pending


def load_compaction_plan(store: TimelineStore, instant: Instant) -> CompactionPlan:
    """The plan in the requested file of a compaction or log compaction.  Raises CorruptData when it is missing or damaged."""
    requested = Instant(instant.request_time, instant.action, State.REQUESTED)
    try:
        return CompactionPlan.decode(store.read(requested))
    except CorruptData as error:
        raise error.with_path(store.storage.absolute(store.path(requested))) from error


def planned_path(partition: str, uri: str) -> str | None:
    """The path, relative to the table where it lies now, of a file that a plan names by the URI that it had then.

    Meanwhile the table may have been moved or copied; its partitions and file names are what they were.  None for a URI that
    names no file of the partition.
    """
    where = parse_uri(uri).path
    path = join_path(partition, file_name_of(where))
    return path if f"/{where}".endswith(f"/{path}") else None
