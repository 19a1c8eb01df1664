"""The active timeline as a frozen value.

There is one entry for each instant, in its highest state.  Queries are pure.  Times are compared as strings, as in
Hudi.

Source: docs/formats/timeline.md; docs/formats/reading.md, "File groups and slices".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyhudi.errors import InstantNotFound
from pyhudi.format.instants import COMPLETED_AS, Action, Instant, State

WRITE_ACTIONS = frozenset(action for action in Action if action.is_write)
"""Actions whose completed form adds data, and whose pending form is an ordinary write."""

SERVICE_ACTIONS = frozenset(action for action in Action if action.is_service)
"""Actions of table services that write data files from a plan, and complete as writes."""

SLICING_ACTIONS = WRITE_ACTIONS | SERVICE_ACTIONS
"""Actions that create data files in any state."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The active instants of a table, ordered by (request time, comparable action).

    archived_completions: completion times of instants that left the active timeline; read from the archived timeline on demand.
    """

    instants: tuple[Instant, ...]
    archived_completions: Mapping[str, str] = field(default_factory=dict)
    _completions: dict[str, str] = field(init=False, repr=False, compare=False)
    _start: str | None = field(init=False, repr=False, compare=False)
    _last_visible: str | None = field(init=False, repr=False, compare=False)
    _completed: tuple[Instant, ...] = field(init=False, repr=False, compare=False)
    _pending: tuple[Instant, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        completed: list[Instant] = []
        pending: list[Instant] = []
        slicing: list[str] = []
        completions: dict[str, str] = {}
        planned: list[str] = []
        saved: set[str] = set()
        for instant in self.instants:
            is_completed, action, request_time = instant.state is State.COMPLETED, instant.action, instant.request_time
            (completed if is_completed else pending).append(instant)
            if action in SLICING_ACTIONS:
                slicing.append(request_time)
                if is_completed:
                    completions[request_time] = instant.completion_time or request_time
                if action is Action.COMPACTION:
                    planned.append(request_time)
            elif action is Action.SAVEPOINT:
                saved.add(request_time)
        # If only savepointed commits are left, the timeline holds nothing between them.
        start = min((time for time in slicing if time not in saved), default=None)
        object.__setattr__(self, "_completions", completions)
        object.__setattr__(self, "_start", max(saved.intersection(completions), default=None) if start is None else start)
        object.__setattr__(self, "_last_visible", max((*completions, *planned), default=None))
        object.__setattr__(self, "_completed", tuple(completed))
        object.__setattr__(self, "_pending", tuple(pending))

    @classmethod
    def of(cls, instants: Iterable[Instant], archived_completions: Mapping[str, str] | None = None) -> Timeline:
        """Build the timeline of these instant files: for each instant the highest state is retained."""
        best: dict[tuple[str, Action], Instant] = {}
        for instant in instants:
            key = (instant.request_time, COMPLETED_AS[instant.action])
            held = best.setdefault(key, instant)
            if held is not instant and (held.state, held.completion_time or "") < (instant.state, instant.completion_time or ""):
                best[key] = instant
        ordered = tuple(best[key] for key in sorted(best))
        return cls(ordered, {} if archived_completions is None else archived_completions)

    def completed_writes(self) -> tuple[Instant, ...]:
        """Completed commits, delta commits and replace commits (including compactions and clusterings), by request time."""
        return self.completed(*WRITE_ACTIONS)

    def last_completed_write(self) -> Instant | None:
        """The completed write with the largest request time."""
        writes = self.completed_writes()
        return writes[-1] if writes else None

    def pending(self, *actions: Action) -> tuple[Instant, ...]:
        """Instants not completed; of the given actions, or of all."""
        return tuple([i for i in self._pending if i.action in actions]) if actions else self._pending

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """Completed instants; of the given actions (as in their completed files), or of all."""
        return tuple([i for i in self._completed if i.action in actions]) if actions else self._completed

    def pending_writes(self) -> tuple[Instant, ...]:
        """Pending writes, without compactions and clusterings, which keep their plans."""
        return self.pending(*WRITE_ACTIONS)

    def earliest_unread_bound(self) -> str | None:
        """Return the lower bound of what the oldest pending write or service may not have read; None when none is pending.

        Everything requested before that time had completed when each pending instant was requested. Concurrent writers
        may conflict with later instants, and may still read files that those replaced.
        """
        pending = self.pending(*SLICING_ACTIONS)
        if not pending:
            return None
        first = pending[0].request_time
        late = (time for time, completed in self._completions.items() if time < first < completed)
        return min(late, default=first)

    def find(self, request_time: str, *actions: Action) -> Instant:
        """Return the instant of a request time.  Raises InstantNotFound."""
        for instant in self.instants:
            if instant.request_time == request_time and (not actions or instant.action in actions):
                return instant
        kinds = f" ({', '.join(actions)})" if actions else ""
        raise InstantNotFound(f"the active timeline has no instant {request_time}{kinds}")

    def completion_time(self, request_time: str) -> str | None:
        """Return when a data-writing instant completed; None when it is pending or unknown.

        The archived timeline is read only for instants before the start of the active timeline.
        """
        found = self._completions.get(request_time)
        if found is not None or (self._start is not None and request_time >= self._start):
            return found
        return self.archived_completions.get(request_time)

    def is_completed(self, request_time: str) -> bool:
        """Return True when files of that instant are committed: it completed, or it is older than the whole active timeline."""
        return request_time in self._completions or self.is_before_start(request_time)

    def is_before_start(self, request_time: str) -> bool:
        """Return True when the time is before the first write instant of the active timeline (savepointed commits ignored)."""
        return self._start is not None and request_time < self._start

    @property
    def start(self) -> str | None:
        """Request time of the first write instant that is not a savepointed commit."""
        return self._start

    @property
    def last_visible(self) -> str | None:
        """Request time of the last instant that can be the key of a slice: completed writes and pending compactions;
        None without any.
        """
        return self._last_visible

    def latest_time(self) -> str:
        """The largest request or completion time on the timeline, '' when it is empty: new times must be larger."""
        return max((max(i.request_time, i.completion_time or "") for i in self.instants), default="")

    def up_to(self, request_time: str) -> Timeline:
        """The timeline limited to instants requested at or before a time."""
        return Timeline(tuple(i for i in self.instants if i.request_time <= request_time), self.archived_completions)
