"""Prefetch commit metadata of concurrent commits while waiting for the table lock, to shorten the critical section.

Conflict detection reads every commit that completed since the write was planned, one request each. With many waiting
writers, as many commits land while each of them waits. If each read all of them under the lock, lock time would grow
with the number of writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pyhudi.errors import HudiError
from pyhudi.format.instants import Instant
from pyhudi.planning.conflicts import WriteStart, instants_to_check
from pyhudi.table.table_context import TableContext

_INTERVAL_MS = 5_000


@contextmanager
def prefetch_concurrent_commits(
    context: TableContext, own_time: str, start: WriteStart | None, load_commit: Callable[[Instant], object]
) -> Iterator[Callable[[], None]]:
    """Call ``load_commit`` repeatedly during the block, for the commits that conflict detection will read.

    Args:
        context: The table.
        own_time: Request time of the write.
        start: The state on which the write was planned; None skips the prefetch.
        load_commit: Reads and caches commit metadata. It is called from another thread, and possibly once more after the
            end.

    Returns:
        A context manager whose value ends the prefetch early.
    """
    if start is None:
        yield lambda: None
        return
    seen = start

    def read() -> None:
        # What cannot be read here, such as a commit that is being archived, is read under the lock.
        with suppress(HudiError):
            for instant in instants_to_check(own_time, seen, context.timeline.load()):
                if instant.is_completed:
                    load_commit(instant)

    repetition = context.env.every_ms(_INTERVAL_MS, read)
    try:
        yield repetition.stop
    finally:
        repetition.stop()
