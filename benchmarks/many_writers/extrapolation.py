"""Extrapolate the cost of concurrent writers to numbers whose simulation takes too long.

A commit excludes others while it holds the lock: a fixed number of sequential requests and a pause. Waiting writers poll too;
beyond the request rate of the store, all requests slow down, including those of the lock holder.
The first two numbers are measured on simulated runs of 32 writers, at 30 and at 8 ms a request; the others are PyHudi's settings.
`tests/simulation/test_many_writers.py` compares the result with a simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.many_writers.run import Setting

_REQUESTS_IN_A_ROW = 22.7
_PAUSE_MS = 100.0
_REQUESTS_OF_A_COMMIT = 24
_TICKETS_OF_A_PAGE = 1000
_PAUSE_PER_PLACE_MS = 50.0
_LONGEST_PAUSE_MS = 1000.0
_TICKET_EVERY_MS = 2_000.0
_AHEAD_EVERY_MS = 5_000.0
_LONGEST_REQUEST_MS = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """per_second: commits of all writers together.  wait_ms: of one commit beside its work.  request_ms: what a request takes."""

    per_second: float
    wait_ms: float
    request_ms: float


def estimate(setting: Setting) -> Estimate:
    """What becomes of writers that never pause between two commits."""
    low, high = setting.latency_ms, _LONGEST_REQUEST_MS
    if _demand(setting, low) <= setting.requests_per_second:
        high = low
    while high - low > 0.1:
        middle = (low + high) / 2
        low, high = (low, middle) if _demand(setting, middle) <= setting.requests_per_second else (middle, high)
    rate = _rate(setting, high)
    return Estimate(rate, setting.writers / rate * 1000 - setting.work_ms, high)


def _rate(setting: Setting, request_ms: float) -> float:
    """Commits a second: bounded by the lock, or by how long each writer takes alone."""
    turn_ms = setting.held_ms + _REQUESTS_IN_A_ROW * request_ms + _PAUSE_MS
    alone_ms = setting.work_ms + setting.held_ms + _REQUESTS_OF_A_COMMIT * request_ms
    return min(1000 / turn_ms, setting.writers * 1000 / alone_ms)


def _demand(setting: Setting, request_ms: float) -> float:
    """Requests a second, when each takes so long."""
    rate = _rate(setting, request_ms)
    waiting = max(round(setting.writers - rate * setting.work_ms / 1000), 0)
    pages = -(-waiting // _TICKETS_OF_A_PAGE)
    listing_ms = pages * request_ms
    near = min(waiting, round(_LONGEST_PAUSE_MS / _PAUSE_PER_PLACE_MS))
    asking = sum(pages * 1000 / (place * _PAUSE_PER_PLACE_MS + listing_ms) for place in range(1, near + 1))
    asking += (waiting - near) * pages * 1000 / (_LONGEST_PAUSE_MS + listing_ms)
    # One request after the other: who waits for an answer asks nothing else.
    others = 1000 / (_TICKET_EVERY_MS + request_ms) + (1 + rate * _AHEAD_EVERY_MS / 1000) * 1000 / (_AHEAD_EVERY_MS + request_ms)
    return rate * _REQUESTS_OF_A_COMMIT + asking + waiting * others


def line_of(setting: Setting) -> str:
    """An estimate as a row of a table: writers, commits a second, wait in seconds, milliseconds of a request."""
    found = estimate(setting)
    return f"| {setting.writers:,} | {found.per_second:.2f} | {found.wait_ms / 1000:,.0f} | {found.request_ms:,.0f} |"


def lines_of(setting: Setting, counts: list[int]) -> list[str]:
    """A table with a row for each number of writers."""
    head = ["| writers | commits/s | a commit's wait (s) | a request (ms) |", "| --- | --- | --- | --- |"]
    return [*head, *(line_of(replace(setting, writers=count)) for count in counts)]
