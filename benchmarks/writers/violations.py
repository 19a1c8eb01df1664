"""What must hold of a table after all its writers ended.

    every acknowledged commit is there whole: its row, and its part of each of its counters
    nothing else is, except commits that were begun and not acknowledged
    a counter is the number of commits that counted it, and each of its values was returned to one commit

So the commits have a serial order: each read what the one before it on the same counter wrote.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.writers.counters import LEDGER


@dataclass(slots=True)
class WriterOutput:
    """Reports of the processes.

    Attributes:
        begun: Row of a commit -> its counters.
        values: Row of an acknowledged commit -> its counters' values, if the system returns them.
        seconds: From the first attempt at each commit to its acknowledgement; `last` of the last attempt.
        grouped: Most writes that shared a commit.
    """

    begun: dict[str, tuple[str, ...]] = field(default_factory=dict)
    values: dict[str, Mapping[str, int] | None] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    lost: int = 0
    passes: int = 0
    grouped: int = 1
    failed: list[str] = field(default_factory=list)

    def add_lines(self, lines: Iterable[str]) -> None:
        """Read the lines of one process."""
        for line in lines:
            words = json.loads(line)
            if "begun" in words:
                self.begun[words["begun"]] = tuple(words["keys"])
            if "acknowledged" in words:
                self.values[words["acknowledged"]] = words["values"]
                self.seconds.append(words["seconds"])
                self.last.append(words["last"])
                self.lost += words["lost"]
                self.grouped = max(self.grouped, words.get("grouped", 1))
            if "passes" in words:
                self.passes += words["passes"]
            if "failed" in words:
                self.failed.append(words["failed"])


def violations(output: WriterOutput, rows: Sequence[tuple[str, int]], *, counted: bool = True) -> list[str]:
    """Defects of the rows (key, value); counted: whether other rows are counters."""
    wrong = list(output.failed)
    found = dict(rows)
    if len(found) != len(rows):
        twice = [key for key, times in Counter(key for key, _ in rows).items() if times > 1]
        wrong.append(f"{len(twice)} keys stand twice, such as {twice[0]!r}")
    there = {key for key in found if key.startswith(LEDGER)}
    missing = sorted(set(output.values) - there)
    if missing:
        wrong.append(f"{len(missing)} acknowledged commits are not there, such as {missing[0]!r}")
    foreign = sorted(there - set(output.begun))
    if foreign:
        wrong.append(f"{len(foreign)} rows were never written, such as {foreign[0]!r}")
    return wrong + (_counter_violations(output, found, there) if counted else [])


def _counter_violations(output: WriterOutput, found: Mapping[str, int], there: set[str]) -> list[str]:
    wrong = []
    expected = Counter(key for row in there for key in output.begun.get(row, ()))
    given: dict[str, list[int]] = {}
    for row in there:
        for key, value in (output.values.get(row) or {}).items():
            given.setdefault(key, []).append(value)
    for key, value in found.items():
        if key.startswith(LEDGER):
            continue
        if value != expected[key]:
            wrong.append(f"counter {key!r} is {value} after {expected[key]} commits counted it")
        values = given.get(key, [])
        if len(set(values)) != len(values) or max(values, default=0) > value:
            wrong.append(f"counter {key!r} had a value that two commits were given: {sorted(values)}")
    return wrong


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a run. seconds: of all of it; waits: of one commit from its first attempt, in seconds."""

    commits: int
    seconds: float
    lost: int
    median_wait: float
    p99_wait: float
    longest_wait: float
    median_last: float
    grouped: int = 1

    @classmethod
    def of(cls, output: WriterOutput, seconds: float) -> Figures:
        waits, last = sorted(output.seconds) or [0.0], sorted(output.last) or [0.0]
        return cls(
            commits=len(output.values),
            seconds=seconds,
            lost=output.lost,
            median_wait=waits[len(waits) // 2],
            p99_wait=waits[min(len(waits) - 1, len(waits) * 99 // 100)],
            longest_wait=waits[-1],
            median_last=last[len(last) // 2],
            grouped=output.grouped,
        )

    @property
    def per_second(self) -> float:
        return self.commits / self.seconds if self.seconds else 0.0
