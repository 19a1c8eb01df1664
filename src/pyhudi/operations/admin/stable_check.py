"""What a look at a table finds that is so, while others may change the table.

A look reads the timeline, directories, markers and the metadata table one after the other, so it may see one part before what
another process does and another part after it, and find that they do not fit, in whatever order it reads.  So the state of the
table is noted before a look and after it.  Where it is the same, all that was found is so.  Where it is not, the look is made
again, and what not every look finds was the doing of the others.  A look that misses a file which another process has removed
since the look began (SnapshotOutdated) is repeated with a new state.

A look that finds nothing is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from pyhudi.format.paths import METADATA_FOLDER, PROPERTIES_BACKUP, TIMELINE_FOLDER, file_name, join_path
from pyhudi.table.snapshot import retry_on_stale_files
from pyhudi.table.table_context import TableContext

R = TypeVar("R")
F = TypeVar("F", bound=Hashable)

_LOOKS = 4


def _state_of(context: TableContext) -> tuple[object, ...]:
    """What changes with everything that a process does to a table: its properties, and whether they are being written; the
    timeline, and that of the metadata table, by the names alone: one that is damaged is for the look to find.
    """
    storage = context.storage
    beside = storage.list(join_path(METADATA_FOLDER, TIMELINE_FOLDER)).files
    changing = storage.stat(PROPERTIES_BACKUP) is not None
    return context.config, changing, context.timeline.load().instants, {file_name(info.path) for info in beside}


def repeat_until_stable(
    context: TableContext, attempt: Callable[[TableContext], R], found: Callable[[R], frozenset[F]]
) -> tuple[R, frozenset[F]]:
    """What the last look gave, and those of its findings that are so.

    found: the findings of a look, in words that are the same whenever the same is found.
    """
    lasting: frozenset[F] | None = None
    attempt = retry_on_stale_files(attempt)
    before = _state_of(context)
    for _ in range(_LOOKS):
        result = attempt(context)
        named = found(result)
        lasting = named if lasting is None else lasting & named
        if not lasting:
            break
        context = context.reloaded()
        after = _state_of(context)
        if after == before:
            return result, named
        before = after
    assert lasting is not None, "a look was made"
    return result, lasting
