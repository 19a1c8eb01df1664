"""Reading ahead: what others commit while a write waits for the lock is read then, and not under the lock.

A write looks at every commit that completed since it was planned, a request for each.  Where many writers wait, as many commits
land while each of them does, so a turn under the lock that read them all would grow with the number of writers.
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
    context: TableContext, own_time: str, start: WriteStart | None, commit_of: Callable[[Instant], object]
) -> Iterator[Callable[[], None]]:
    """Call `commit_of` with what a write is going to look at, again and again during the block; it gives what ends that sooner.

    own_time: the request time of the write.  start: what it was planned on; None for one that looks at nothing.  commit_of:
    remembers what it has read; it may be called on another thread, and once more after the end.
    """
    if start is None:
        yield lambda: None
        return
    seen = start

    def read() -> None:
        # What cannot be read now, such as a commit that is just being archived, is read under the lock.
        with suppress(HudiError):
            for instant in instants_to_check(own_time, seen, context.timeline.load()):
                if instant.is_completed:
                    commit_of(instant)

    repetition = context.env.every_ms(_INTERVAL_MS, read)
    try:
        yield repetition.stop
    finally:
        repetition.stop()
