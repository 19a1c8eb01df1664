"""The turn of a write that keeps losing: it holds the table's lock from its read to its commit, so that nobody overtakes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.hudi_writers import wait_for_foreign_writers
from pyhudi.table.table_context import TableContext

_LATEST = "9" * 17


@contextmanager
def its_turn(context: TableContext, settings: CommitSettings, longest_ms: int) -> Iterator[TableContext]:
    """The table during a turn.  longest_ms: how long others should expect it to be.

    Writers of another kind that are under way would wait for the lock until they have lost, and begin from nothing then: they are
    let go first, for a while.  Raises as `LockProvider.acquire`.
    """
    if not context.in_turn:
        wait_for_foreign_writers(context, settings, context.timeline.load(), _LATEST, None)
    with context.turn(settings.lock_wait_ms, longest_ms) as held:
        yield held
