"""Since when PyHudi alone has changed a table: what its own commits said of the table in the metadata table may be built upon.

Each delta commit of the metadata table carries a time (`SINCE_KEY`).  It is handed on from commit to commit; where the newest
change of the table does not carry it (another kind of writer, a rollback, an index that was built), or a commit finds itself
overtaken by one that was requested later, it begins anew with the next commit.  Cleans and savepoints change nothing of what is
there.
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
    """What may be built upon.

    newest: request time of the table's newest change, '' for none; since: PyHudi alone has changed the table from this time on,
    None where nothing says so.
    """

    newest: str
    since: str | None


def load_sole_writer(
    store: TimelineStore, metadata: Timeline, current_timeline: Timeline, previous: SoleWriter | None = None
) -> SoleWriter:
    """What the newest change of a table says; one document is read.

    store, metadata: of the metadata table; current_timeline: the table's timeline; previous: what was found before.
    Raises what reading the document raises.
    """
    changes = [instant for instant in current_timeline.completed() if instant.action not in _NEUTRAL]
    if not changes:
        return SoleWriter("", None)
    newest = max(changes, key=lambda instant: instant.completion_time or instant.request_time)
    # A metadata table that was dropped and built anew does not know the change.
    told = [i for i in metadata.completed(Action.DELTACOMMIT) if i.request_time == newest.request_time]
    if newest.action not in WRITE_ACTIONS or not told:
        return SoleWriter(newest.request_time, None)
    if previous is not None and previous.newest == newest.request_time:
        return previous
    return SoleWriter(newest.request_time, CommitMetadata.decode(store.read(told[0])).extra_metadata.get(SINCE_KEY))
