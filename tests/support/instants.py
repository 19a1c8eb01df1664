"""Instants in one line, for tests of timelines."""

from __future__ import annotations

from pyhudi.format.instants import Action, Instant, State


def done(time: str, completion: str | None = None, action: Action = Action.COMMIT) -> Instant:
    """A completed instant; by default it completes five digits after its request."""
    return Instant(time, action, State.COMPLETED, completion or f"{int(time) + 5:0{len(time)}d}")


def inflight(time: str, action: Action = Action.COMMIT) -> Instant:
    return Instant(time, action, State.INFLIGHT)


def requested(time: str, action: Action = Action.COMMIT) -> Instant:
    return Instant(time, action, State.REQUESTED)
