"""Which log blocks of the metadata table count.  Source: docs/formats/metadata-table.md, when MDT data counts.

The metadata table is committed before the table is, so its timeline alone does not say what is visible.  A block of instant T
counts when all of these hold:

    1. T is completed on the metadata timeline, or lies before its start
    2. T is not later than the metadata table's last completed instant
    3. T is one of
       a. the completed instants of the table's active timeline
       b. the completed delta commits of the metadata table that are not pending on the table's timeline
       c. the instants that completed rollbacks and restores of the table have taken back
       d. the completed rollbacks and restores of the metadata table
       e. the initialisations of partitions, whose instants begin with fourteen zeros (they are among b)

So what a writer did that died between its two commits stays out of sight.  Base files are not asked: a compaction of the
metadata table takes up committed instants alone.
"""

from __future__ import annotations

from collections.abc import Callable

from pyhudi.format.instants import INIT_INSTANT_TIME, Action
from pyhudi.table.timeline.active_timeline import Timeline

# Every write of the metadata table completes under one of these.


class BlockValidity:
    """The rule for one state of both timelines.

    load_rolled_back: the instants that the table's completed rollbacks and restores have taken back.  Their documents are read
    at the first instant that nothing else decides: hardly ever.
    """

    __slots__ = ("_completed", "_data_completed", "_known", "_last", "_load_rolled_back", "_metadata", "_rolled_back")

    def __init__(self, data: Timeline, metadata: Timeline, load_rolled_back: Callable[[], frozenset[str]]) -> None:
        pending = {instant.request_time for instant in data.pending()} - {i.request_time for i in data.completed()}
        completed = metadata.completed()
        self._metadata = metadata
        self._completed = frozenset(instant.request_time for instant in completed)
        self._last = max(self._completed, default="")
        self._known = frozenset(
            instant.request_time
            for instant in completed
            if (instant.action.is_write and instant.request_time not in pending)
            or instant.action in (Action.ROLLBACK, Action.RESTORE)
            or instant.request_time.startswith(INIT_INSTANT_TIME)
        )
        self._data_completed = frozenset(instant.request_time for instant in data.completed())
        self._load_rolled_back = load_rolled_back
        self._rolled_back: frozenset[str] | None = None

    def counts(self, instant_time: str) -> bool:
        """Whether blocks of that instant are seen."""
        if instant_time > self._last:
            return False
        if instant_time not in self._completed and not self._metadata.is_before_start(instant_time):
            return False
        if instant_time in self._known or instant_time in self._data_completed:
            return True
        if self._rolled_back is None:
            self._rolled_back = self._load_rolled_back()
        return instant_time in self._rolled_back
