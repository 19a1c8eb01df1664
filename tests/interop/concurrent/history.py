"""What concurrent writers reported, and what must hold of their table.

a write that was acknowledged is on the timeline exactly once
a write that was refused is not; one whose outcome is unknown may be
the rows are those of the committed writes, applied in the order of their completion
each writer reads its own acknowledged writes, and no key twice
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pyhudi import Table
from pyhudi.format.actions.commit_metadata import CommitMetadata

WRITE_ID = "_write"
"""Key of a write's id in the extra metadata of its commit."""

Effect = Mapping[str, str | None]
"""Key -> new value; None deletes the row."""


class Outcome(StrEnum):
    """How a write ended for its writer."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Committed:
    """A completed commit of a write.

    Attributes:
        is_overtaken: Whether it built a base file on one with a later instant, below which no reader finds it. Hudi 1.0.2 does
            so when it plans long after it took its instant (docs/limitations.md).
    """

    request_time: str
    completion_time: str
    is_overtaken: bool = False


@dataclass
class History:
    """All reports; thread-safe.

    Attributes:
        effects: Write id -> its effect.
        outcomes: Write id -> outcome; UNKNOWN until one is reported.
        writers: Write id -> writer.
        errors: How often each error was reported, without its numbers.
        services: How often each service ended in which way.
        wrong: Defects that were found during the run.
    """

    effects: dict[str, Effect] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    writers: dict[str, str] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    services: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    kills: int = 0
    suspensions: int = 0
    ended: int = 0
    ready: set[str] = field(default_factory=set)
    _own: dict[str, set[str | None]] = field(default_factory=dict)
    _before: dict[str, dict[str, set[str | None]]] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def count(self, outcome: Outcome, writer: str = "") -> int:
        """Number of writes with this outcome, of one writer or all."""
        return sum(1 for write, found in self.outcomes.items() if found is outcome and self.writers[write].startswith(writer))

    def add(self, writer: str, words: Mapping[str, Any]) -> None:
        """Add one report of a writer."""
        with self._changed:
            if "begun" in words:
                self.effects[words["begun"]] = words["effect"]
                self.outcomes[words["begun"]] = Outcome.UNKNOWN
                self.writers[words["begun"]] = writer
                self._begin(writer, words["effect"])
            if "ended" in words:
                outcome = Outcome(words["outcome"])
                self.outcomes[words["ended"]] = outcome
                self._end(writer, self.effects[words["ended"]], outcome)
            if "service" in words:
                self.services[f"{writer}: {words['service']}: {without_numbers(str(words['result']))}"] += 1
            if "error" in words:
                self.errors[f"{writer}: {without_numbers(words['error'])}"] += 1
            if "wrong" in words:
                self.wrong.append(f"{writer}: {words['wrong']}")
            self.kills += "killed" in words
            self.suspensions += "stopped" in words
            if "ready" in words or "wrong" in words:
                self.ready.add(writer)
            if "rows" in words:
                self._check_read(writer, words["rows"])
            self.ended += "ended" in words or "service" in words
            self._changed.notify_all()

    def await_outcomes(self, number: int, stop: threading.Event) -> None:
        """Wait until so many writes or services of any writer have ended, or `stop` is set."""
        with self._changed:
            target = self.ended + number
            self._changed.wait_for(lambda: self.ended >= target or stop.is_set())

    def await_ready(self, writers: Sequence[str]) -> None:
        """Wait until each writer has started, or failed."""
        with self._changed:
            self._changed.wait_for(lambda: self.ready.issuperset(writers))

    def notify(self) -> None:
        """Wake those who wait for outcomes."""
        with self._changed:
            self._changed.notify_all()

    def _begin(self, writer: str, effect: Effect) -> None:
        """Until its outcome is known, a write may be seen or not."""
        self._before[writer] = {key: self._own.setdefault(key, {None}) for key in effect if key.startswith(writer)}
        self._own |= {key: {*before, effect[key]} for key, before in self._before[writer].items()}

    def _end(self, writer: str, effect: Effect, outcome: Outcome) -> None:
        if outcome is Outcome.ACKNOWLEDGED:
            self._own |= {key: {value} for key, value in effect.items() if key.startswith(writer)}
        elif outcome is Outcome.REFUSED:
            self._own |= self._before[writer]

    def _check_read(self, writer: str, found: Sequence[tuple[str, str]]) -> None:
        self.wrong += [f"{writer} reads {text}" for text in twice(found)]
        values = dict(found)
        for key, possible in self._own.items():
            if key.startswith(writer) and values.get(key) not in possible:
                self.wrong.append(f"{writer} reads {values.get(key)} for {key}, which can be {sorted(map(str, possible))}")


def twice(found: Iterable[tuple[str, str]]) -> list[str]:
    """Keys that exist more than once."""
    rows = list(found)
    counts = Counter(key for key, _ in rows)
    return [f"{key} {count} times: {[v for k, v in rows if k == key]}" for key, count in counts.items() if count > 1]


def without_numbers(text: str) -> str:
    """The text without words that differ from run to run."""
    words = text.replace("'", " ").replace('"', " ").split()
    return " ".join(word for word in words if not any(c.isdigit() for c in word))[:300]


def committed_writes(table: Table) -> dict[str, list[Committed]]:
    """Write id -> its completed commits, in the active and the archived timeline."""
    store = table.context.timeline
    timeline = store.load()
    found: dict[str, list[Committed]] = {}
    for instant in {i.request_time: i for i in (*store.history.instants(), *timeline.completed_writes())}.values():
        if not instant.action.is_write:
            continue
        metadata = CommitMetadata.decode(store.read(instant))
        write = metadata.extra_metadata.get(WRITE_ID)
        if write is not None:
            files = [stat for stats in metadata.partition_to_write_stats.values() for stat in stats]
            overtaken = any(".log." not in (stat.path or "") and _time(stat.prev_commit) > instant.request_time for stat in files)
            commit = Committed(instant.request_time, str(instant.completion_time), overtaken)
            found.setdefault(write, []).append(commit)
    return found


def _time(prev_commit: str | None) -> str:
    return prev_commit if prev_commit is not None and prev_commit.isdecimal() else ""


def violations(history: History, committed: Mapping[str, Sequence[Committed]], found: Sequence[tuple[str, str]]) -> list[str]:
    """Defects of the rows (key, value) at the end of a run."""
    wrong = [*history.wrong, *twice(found)]
    for write, commits in committed.items():
        if len(commits) > 1:
            wrong.append(f"{write} was committed {len(commits)} times: {commits}")
        if write not in history.outcomes:
            wrong.append(f"{write} was committed by an unknown writer")
        elif history.outcomes[write] is Outcome.REFUSED:
            wrong.append(f"{write} was refused, and is committed: {commits}")
    lost = [write for write, outcome in history.outcomes.items() if outcome is Outcome.ACKNOWLEDGED and write not in committed]
    wrong += [f"{write} was acknowledged, and is not on the timeline" for write in lost]
    expected: dict[str, str] = {}
    order = sorted((commits[0].completion_time, write) for write, commits in committed.items() if write in history.effects)
    for _, write in order:
        for key, value in history.effects[write].items():
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
    values = dict(found)
    for key in sorted({*expected, *values}):
        if values.get(key) != expected.get(key):
            writes = [(done, write, committed[write][0].request_time) for done, write in order if key in history.effects[write]]
            wrong.append(f"{key} is {values.get(key)}, expected {expected.get(key)}; its commits: {json.dumps(writes[-4:])}")
    return wrong
