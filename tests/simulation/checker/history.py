"""Is there an order of the operations, one after the other, that explains what was seen?

Each operation took place between its start and its end.  An order explains a history when it keeps every operation that ended
before another began in front of it, and when each read finds in it what it found.  An operation whose outcome is unknown,
because its process died, may be in the order or not.

`find_order` tries first the order of the commits, and then everything, with a memory of what was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Rows = Mapping[str, int]
"""Record key -> value."""

Effect = Callable[[dict[str, int]], None]
"""What a write does to the rows."""


@dataclass(frozen=True, slots=True)
class Event:
    """One operation.  start, end: steps of the run; end is None when it never ended.

    effect: of a write.  undoes: number of the event that this one undoes, as a rollback does.  seen, keeps: of a read, the rows
    that it gave and which rows of the table those are to be.  order: a hint, such as the completion time.

    instant: of a write, its request time where it is known.  until: a read sees the table without the writes that were requested
    later, as time travel does; with neither rows nor effect those are undone for good, as a restore does.
    """

    text: str
    start: int
    end: int | None
    effect: Effect | None = None
    undoes: int | None = None
    seen: tuple[tuple[str, int], ...] | None = None
    keeps: Callable[[str, int], bool] | None = None
    order: str = ""
    instant: str | None = None
    until: str | None = None


def find_order(first: Rows, events: Sequence[Event]) -> tuple[int, ...] | None:
    """Numbers of the events in an order that explains them; None when there is none."""
    hinted = sorted(range(len(events)), key=lambda n: (events[n].order or "~", events[n].start))
    seen: set[tuple[frozenset[int], tuple[int, ...]]] = set()

    def rows_after(applied: tuple[int, ...]) -> dict[str, int]:
        rows = dict(first)
        for number in applied:
            effect = events[number].effect
            if effect is not None:
                effect(rows)
        return rows

    def search(done: frozenset[int], applied: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...] | None:
        waiting = [n for n in hinted if n not in done]
        if not any(events[n].end is not None for n in waiting):
            return order
        if (done, applied) in seen:
            return None
        seen.add((done, applied))
        # No operation may precede one that had ended when it began.
        horizon = min(end for n in waiting if (end := events[n].end) is not None)
        for number in waiting:
            event = events[number]
            if event.start > horizon:
                continue
            after = applied
            left = tuple(n for n in applied if event.until is None or (events[n].instant or "") <= event.until)
            if event.seen is not None and event.keeps is not None:
                rows = rows_after(left)
                if tuple(sorted((key, value) for key, value in rows.items() if event.keeps(key, value))) != event.seen:
                    continue
            elif event.undoes is not None:
                if event.undoes not in applied:
                    continue
                after = tuple(n for n in applied if n != event.undoes)
            else:
                after = (*left, number)
            found = search(done | {number}, after, (*order, number))
            if found is not None:
                return found
        return None

    return search(frozenset(), (), ())
