"""Repeat a check of a table until its findings are not side effects of concurrent changes.

A check reads the timeline, directories, markers and the metadata table one after the other. It may see one part before
a concurrent change and another part after it, and report an inconsistency, in any order of reading. So the state of
the table is recorded before and after a check. If both are equal, all findings are valid. Otherwise the check is
repeated, and findings that not every run reports are discarded as side effects. A check that misses a file which
another process has removed since it began (SnapshotOutdated) is repeated with a new state.

A check without findings runs once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from pyhudi.format.paths import METADATA_FOLDER, PROPERTIES_BACKUP, TIMELINE_FOLDER, file_name, join_path
from pyhudi.table.snapshot import retry_on_stale_files
from pyhudi.table.table_context import TableContext

R = TypeVar("R")
F = TypeVar("F", bound=Hashable)

_MAX_READS = 4


def _state_of(context: TableContext) -> tuple[object, ...]:
    """The table's properties, and the file names of its timeline and of the metadata table's: any change alters them."""
    storage = context.storage
    metadata_instants = storage.list(join_path(METADATA_FOLDER, TIMELINE_FOLDER)).files
    changing = storage.stat(PROPERTIES_BACKUP) is not None
    return context.config, changing, context.timeline.load().instants, {file_name(info.path) for info in metadata_instants}


def repeat_until_stable(
    context: TableContext, attempt: Callable[[TableContext], R], defects: Callable[[R], frozenset[F]]
) -> tuple[R, frozenset[F]]:
    """Return the result of the last run, and its valid findings.

    Args:
        attempt: The check.
        found: Returns the findings of a run, equal for equal defects.
    """
    lasting: frozenset[F] | None = None
    attempt = retry_on_stale_files(attempt)
    before = _state_of(context)
    for _ in range(_MAX_READS):
        result = attempt(context)
        named = defects(result)
        lasting = named if lasting is None else lasting & named
        if not lasting:
            break
        context = context.reloaded()
        after = _state_of(context)
        if after == before:
            return result, named
        before = after
    assert lasting is not None, "the check ran at least once"
    return result, lasting
