"""Detects since when PyHudi is the only writer of a table, so that values in the metadata table can be updated
incrementally.

Each delta commit of the metadata table carries this time (`SINCE_KEY`), and each commit copies it from its predecessor.
It is reset with the next commit in two cases: the newest change of the table does not carry it (another writer, a
rollback, a newly built index), or a later-requested commit has overtaken this one. Cleans and savepoints are ignored:
they do not change current data.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS, Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore

SINCE_KEY = "pyhudi.alone.since"
_NEUTRAL = frozenset({Action.CLEAN, Action.SAVEPOINT})


@dataclass(frozen=True, slots=True)
class SoleWriter:
    """Since when PyHudi is the only writer.

    Attributes:
        newest: Request time of the table's newest change, '' for none.
        since: Only PyHudi has changed the table since this time; None if unknown.
    """

    newest: str
    since: str | None


def load_sole_writer(
    store: TimelineStore, metadata: Timeline, current_timeline: Timeline, previous: SoleWriter | None = None
) -> SoleWriter:
    """Load the state from the newest change of a table; reads one document. Raises the errors of reading it.

    Args:
        store: Timeline store of the metadata table.
        current_timeline: The table's timeline.
        previous: An earlier result.
    """
    changes = [instant for instant in current_timeline.completed() if instant.action not in _NEUTRAL]
    if not changes:
        return SoleWriter("", None)
    newest = max(changes, key=lambda instant: instant.completion_time or instant.request_time)
    # A metadata table that was dropped and rebuilt does not contain the change.
    delta_commits = [i for i in metadata.completed(Action.DELTACOMMIT) if i.request_time == newest.request_time]
    if newest.action not in WRITE_ACTIONS or not delta_commits:
        return SoleWriter(newest.request_time, None)
    if previous is not None and previous.newest == newest.request_time:
        return previous
    return SoleWriter(newest.request_time, CommitMetadata.decode(store.read(delta_commits[0])).extra_metadata.get(SINCE_KEY))
