"""Pairs of actions that meet on one table: the world in which they meet, what each does, and how it ends for both.

One action, the first, runs until a point of its life; there the second runs whole; then the first goes on:

    before it takes the lock for the first time   it has read the table, and nothing of it is stored
    after its plan       what it is going to do is on the timeline: the inflight file of a write, the plan of a service
    before it publishes  everything is written, and it is about to take the lock under which it completes

What came of each is an `Ending`.  A pair ends well when the rows are those of the two that landed, one after the other.

`python -m tests.simulation.pairs` prints the outcomes, as pair_outcomes.py has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import permutations
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import HudiError, InvalidRequest, TableState, WriteConflict
from pyhudi.operations.admin.versions.version_step import VersionChange
from pyhudi.operations.commit.results import ArchiveResult, CleanResult, ClusteringResult, CompactionResult, WriteResult
from pyhudi.operations.services import clean
from pyhudi.storage import Storage
from pyhudi.storage.locks import LockProvider
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import Rows, World, partition_of

OPTIONS: Mapping[str, object] = {
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.table.services.enabled": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.log.compaction.blocks.threshold": 3,
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.metadata.index.partition.stats.enable": False,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.parquet.bloom.filter.enabled": False,
    "hoodie.parquet.compression.codec": "uncompressed",
    "hoodie.parquet.dictionary.enabled": False,
    "pyhudi.threads": 1,
}


class Ending(StrEnum):
    """What came of an action of a pair."""

    LANDS = "lands"
    ANEW = "lands, planned anew"
    NOTHING = "finds nothing to do"
    LEFT = "leaves its plan"
    CONFLICT = "WriteConflict"
    STATE = "TableState"
    REFUSED = "InvalidRequest"

    @property
    def has_landed(self) -> bool:
        return self in (Ending.LANDS, Ending.ANEW)

    @property
    def word(self) -> str:
        """For tables."""
        return _WORDS[self]


_WORDS = {
    Ending.LANDS: "",
    Ending.ANEW: "retry",
    Ending.NOTHING: "idle",
    Ending.LEFT: "yields",
    Ending.CONFLICT: "yields",
    Ending.STATE: "refused",
    Ending.REFUSED: "refused",
}


class Point(StrEnum):
    """The step of the first action of a pair at which the second runs."""

    LOADED = "before it takes the lock for the first time"
    PLANNED = "after its plan"
    WRITTEN = "before it publishes"


@dataclass(frozen=True)
class Meeting:
    """A world where pairs meet, and what the actions have to know of it.

    older: the write to which a restore goes back, and the rows then.  last: the write that a rollback undoes, of partition a.
    before_last: the rows before it.
    """

    world: World
    older: str
    older_rows: Rows
    last: str
    before_last: Rows

    def copy(self) -> Meeting:
        return replace(self, world=self.world.copy())


Act = Callable[[Table, Meeting, str, int], Any]
"""From the table, the meeting, the partition and who acts, 1 or 2, to the result of the operation."""

Effect = Callable[[Rows, Meeting, str, int], Rows]


@dataclass(frozen=True)
class Action:
    """act: what it does.  effect: what that does to the rows.  places: the partitions that it can be confined to; nothing for
    what takes all of the table. indexed: it needs a metadata table. ringed: the table uses consistent hashing. is_nine: the table
    has version 9. publishes: how the path begins that it stores at its end.
    """

    name: str
    act: Act
    effect: Effect = lambda rows, meeting, place, who: rows
    places: str = ""
    indexed: bool = False
    ringed: bool = False
    is_nine: bool = False
    publishes: str = ".hoodie/timeline/"


def _clean_of_many_files(table: Table) -> CleanResult:
    """A clean that releases the lock before it deletes files."""
    with patch.object(clean, "_FILES_UNDER_LOCK", 0):
        return table.clean(dry_run=False)


def _batch(meeting: Meeting, place: str, who: int, *numbers: int) -> pa.Table:
    """Rows of a partition: keys with these numbers in it, with a value that identifies their writer."""
    keys = [f"k{2 * number + 'ab'.index(place)}" for number in numbers]
    return pa.table(
        {
            "id": keys,
            "part": [partition_of(key) for key in keys],
            "ts": pa.array([meeting.world.environment.now_ms()] * len(keys), pa.int64()),
            "value": pa.array([who * 100] * len(keys), pa.int64()),
        }
    )


def _written(place: str, who: int) -> Rows:
    return {f"k{2 * number + 'ab'.index(place)}": who * 100 for number in (0, 2)}


def _without(rows: Rows, place: str) -> Rows:
    return {key: value for key, value in rows.items() if partition_of(key) != place}


def _rows_after_rollback(rows: Rows, meeting: Meeting) -> Rows:
    changed = {key for key, value in meeting.world.rows.items() if meeting.before_last.get(key) != value}
    return {key: meeting.before_last[key] if key in changed else value for key, value in rows.items()}


def _regex(place: str) -> dict[str, object]:
    return {
        "hoodie.compaction.strategy": "org.apache.hudi.table.action.compact.strategy.PartitionRegexBasedCompactionStrategy",
        "hoodie.compaction.partition.path.regex": place,
    }


EARLY: Mapping[str, object] = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.concurrency.early.conflict.detection.enable": True,
}
PROPERTIES = ".hoodie/hoodie.properties"

ACTIONS = (
    Action(
        "upsert",
        lambda table, meeting, place, who: table.upsert(_batch(meeting, place, who, 0, 2)),
        lambda rows, meeting, place, who: {**rows, **_written(place, who)},
        "ab",
    ),
    Action(
        "insert",
        lambda table, meeting, place, who: table.insert(_batch(meeting, place, who, 2 + who)),
        lambda rows, meeting, place, who: {**rows, f"k{2 * (2 + who) + 'ab'.index(place)}": who * 100},
        "ab",
    ),
    Action(
        "delete",
        lambda table, meeting, place, who: table.delete(_batch(meeting, place, who, 0).select(["id", "part", "ts"])),
        lambda rows, meeting, place, who: {key: v for key, v in rows.items() if key != f"k{'ab'.index(place)}"},
        "ab",
    ),
    Action(
        "insert_overwrite",
        lambda table, meeting, place, who: table.insert_overwrite(_batch(meeting, place, who, 0, 2)),
        lambda rows, meeting, place, who: {**_without(rows, place), **_written(place, who)},
        "ab",
    ),
    Action(
        "insert_overwrite_table",
        lambda table, meeting, place, who: table.insert_overwrite_table(_batch(meeting, place, who, 0, 2)),
        lambda rows, meeting, place, who: _written(place, who),
    ),
    Action(
        "delete_partitions",
        lambda table, meeting, place, who: table.delete_partitions(place),
        lambda rows, meeting, place, who: _without(rows, place),
        "ab",
    ),
    Action("compaction", lambda table, meeting, place, who: table.compact(options=_regex(place)), places="ab"),
    Action("log compaction", lambda table, meeting, place, who: table.log_compact(), places="a"),
    Action(
        "clustering",
        lambda table, meeting, place, who: table.cluster(
            options={"hoodie.clustering.plan.strategy.partition.regex.pattern": place}
        ),
        places="ab",
    ),
    Action("clean", lambda table, meeting, place, who: _clean_of_many_files(table)),
    Action("archive", lambda table, meeting, place, who: table.archive(), publishes=".hoodie/timeline/history/"),
    Action(
        "rollback",
        lambda table, meeting, place, who: table.rollback(meeting.last),
        lambda rows, meeting, place, who: _rows_after_rollback(rows, meeting),
        "a",
    ),
    Action(
        "restore",
        lambda table, meeting, place, who: table.restore(meeting.older),
        lambda rows, meeting, place, who: meeting.older_rows,
    ),
    Action("savepoint", lambda table, meeting, place, who: table.savepoint(meeting.older)),
    Action("indexing", lambda table, meeting, place, who: table.index.create("record_index"), indexed=True),
    Action(
        "resize",
        lambda table, meeting, place, who: table.cluster(
            options={"hoodie.clustering.plan.strategy.partition.regex.pattern": place}
        ),
        places="ab",
        ringed=True,
    ),
    Action("downgrade to 6", lambda table, meeting, place, who: table.downgrade(6), publishes=PROPERTIES),
    Action("upgrade to 9", lambda table, meeting, place, who: table.upgrade(9), publishes=PROPERTIES),
    Action("downgrade to 8", lambda table, meeting, place, who: table.downgrade(8), is_nine=True, publishes=PROPERTIES),
    Action(
        "early upsert",
        lambda table, meeting, place, who: table.upsert(_batch(meeting, place, who, 0, 2), options=EARLY),
        lambda rows, meeting, place, who: {**rows, **_written(place, who)},
        "ab",
    ),
)
BY_NAME = {action.name: action for action in ACTIONS}


RINGED: Mapping[str, object] = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.bucket.index.max.num.buckets": 2,
    "hoodie.bucket.index.merge.threshold": 0.0,
    "hoodie.parquet.max.file.size": 100,
    "hoodie.clustering.updates.strategy": "SparkConsistentBucketDuplicateUpdateStrategy",
}
"""The table in which others meet a resize: a node in each partition, which splits, and writes that copy for it."""
VERSION = "hoodie.write.table.version"


@dataclass(frozen=True)
class Ground:
    """The table that some actions need: its type, and the fields of `Action`."""

    kind: str
    indexed: bool
    ringed: bool
    is_nine: bool

    @classmethod
    def of(cls, kind: str, *actions: Action) -> Ground:
        return cls(kind, any(a.indexed for a in actions), any(a.ringed for a in actions), any(a.is_nine for a in actions))

    @property
    def options(self) -> Mapping[str, object]:
        """With which it is made."""
        return {
            **OPTIONS,
            **(RINGED if self.ringed else {}),
            **({VERSION: 9} if self.is_nine else {}),
            "hoodie.metadata.enable": self.indexed,
        }


@cache
def _made(ground: Ground) -> Meeting:
    """Three commits of partition a and two of b, a file group in each; a compaction in between, so that a clean has work."""
    kind, world = ground.kind, World(ground.kind, ground.options)
    world.options.pop(VERSION, None)
    world.upsert({"k0": 0, "k2": 2, "k1": 1, "k3": 3})
    world.upsert({"k0": 4, "k1": 5})
    if kind == "mor":
        world.table.compact()
    older = world.upsert({"k2": 6, "k3": 7})
    rows = dict(world.rows)
    world.upsert({"k0": 8})
    before = dict(world.rows)
    last = world.upsert({"k0": 10})
    return Meeting(world, older, rows, last, before)


@dataclass(frozen=True)
class Met:
    """What came of a pair.  rows: those of the table; allowed: those of the serial orders in which both may have run."""

    first: Ending
    second: Ending
    errors: tuple[str, ...]
    rows: Rows
    allowed: tuple[Rows, ...]
    problems: str
    paused_at: str


def meet(kind: str, first: Action, second: Action, point: Point, *, same: bool) -> Met | None:
    """Let two actions meet on the same file group, or on different ones; None where the first has no such point."""
    ground = Ground.of(kind, first, second)
    meeting = _made(ground).copy()
    places = places_of(first, second, same=same)
    at = _step_of(ground, first, places[0], point)
    if at is None:
        return None
    run, before = meeting.world, dict(meeting.world.rows)
    endings: dict[int, tuple[Ending, str]] = {}
    stop = Stop(at, lambda: endings.update({2: _ending_of(lambda: second.act(run.table, meeting, places[1], 2))}))
    table = run.table
    table._open.context = stop.context(table.context)
    endings[1] = _ending_of(lambda: first.act(table, meeting, places[0], 1))
    assert 2 in endings, f"{first.name} ended before it came to its step {at}"
    took_part = ((1, first, places[0]), (2, second, places[1]))
    landed = [(action, place, who) for who, action, place in took_part if endings[who][0].has_landed]
    allowed = []
    for order in permutations(landed):
        rows = before
        for action, place, who in order:
            rows = action.effect(rows, meeting, place, who)
        allowed.append(rows)
    report = run.table.validate()
    errors = tuple(text for _, (_, text) in sorted(endings.items()) if text)
    return Met(
        endings[1][0], endings[2][0], errors, run.scanned(), tuple(allowed), "" if report.ok else str(report), stop.steps[at - 1]
    )


def verdict_of(kind: str, first: Action, second: Action, *, same: bool) -> tuple[str, list[str]]:
    """What becomes of a pair, in a word, or two where it is not the same after the plan and before publishing; and what is wrong
    with it.
    """
    words, wrong = [], []
    for point in (Point.PLANNED, Point.WRITTEN):
        met = meet(kind, first, second, point, same=same)
        if met is None:
            continue
        words.append(word_of(met))
        wrong += [f"{point} ({met.paused_at}): {text}" for text in problems_of(met)]
    return "/".join(dict.fromkeys(words)), wrong


def word_of(met: Met) -> str:
    """`both`, or what else became of the first (1) and of the second (2)."""
    said = [f"{number}-{ending.word}" for number, ending in ((1, met.first), (2, met.second)) if ending.word]
    return "+".join(said) or "both"


def problems_of(met: Met) -> list[str]:
    """What is wrong with the table after two actions met."""
    found = [met.problems] if met.problems else []
    if met.rows not in met.allowed:
        found.append(f"the rows are {met.rows}, and {' or '.join(map(str, met.allowed))} would be right; {met.errors}")
    return found


def places_of(first: Action, second: Action, *, same: bool) -> tuple[str, str]:
    """The partitions in which two actions act; all of the table counts as the same."""
    if same:
        return "a", "a"
    return ("a", "b") if "b" in second.places else ("b", "a")


def can_differ(first: Action, second: Action) -> bool:
    """Whether two actions can be confined to different file groups."""
    return bool(first.places and second.places) and "b" in first.places + second.places


def _ending_of(act: Callable[[], Any]) -> tuple[Ending, str]:
    try:
        result = act()
    except HudiError as error:
        kind = next(kind for kind in (WriteConflict, InvalidRequest, TableState, HudiError) if isinstance(error, kind))
        return Ending(kind.__name__), str(error)
    if isinstance(result, WriteResult):
        return (Ending.ANEW if result.conflict_retries else Ending.LANDS), ""
    if isinstance(result, CompactionResult) and not result.runs:
        return (Ending.LEFT if result.remaining else Ending.NOTHING), "; ".join(result.remaining.values())
    if isinstance(result, VersionChange):
        return (Ending.LANDS if result.before != result.after else Ending.NOTHING), ""
    if isinstance(result, ArchiveResult):
        return (Ending.LANDS if result.instants else Ending.NOTHING), ""
    if isinstance(result, (ClusteringResult, CleanResult)):
        return (Ending.LANDS if result.instant is not None else Ending.NOTHING), ""
    return Ending.LANDS, ""


@cache
def _step_of(ground: Ground, action: Action, place: str, point: Point) -> int | None:
    """The number of the step before a point of an action's life, without concurrent actions."""
    meeting = _made(ground).copy()
    stop = Stop(publishes=action.publishes)
    table = meeting.world.table
    table._open.context = stop.context(table.context)
    action.act(table, meeting, place, 1)
    # An action without work publishes nothing: then it stops at its lock.
    published = stop.published or stop.steps.index("lock") + 1
    if point is Point.WRITTEN:
        return published
    if point is Point.LOADED:
        return stop.steps.index("lock") + 1
    return stop.planned if 0 < stop.planned < published else None


class _Watched(LockProvider):
    """A lock that reports its steps to a `Stop`."""

    def __init__(self, inner: LockProvider, stop: Stop) -> None:
        self._inner = inner
        self._stop = stop

    def acquire(self, timeout_ms: int | None = None) -> None:
        self._stop.step("lock")
        self._inner.acquire(timeout_ms)
        self._stop.held = True

    def release(self) -> None:
        self._stop.held = False
        self._inner.release()

    def check(self) -> None:
        self._inner.check()

    def renew(self) -> None:
        self._inner.renew()


_CALLS = ("list", "names", "read", "stat", "open_input", "put", "put_if_absent", "open_output", "delete", "delete_folder")
_TIMELINE = ".hoodie/timeline/"
_PLANS = (".requested", ".inflight")


class _Storage:
    """A storage that reports its calls to a `Stop`."""

    def __init__(self, inner: Storage, stop: Stop) -> None:
        self._inner = inner
        self._stop = stop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _CALLS:
            return found

        def call(path: Any, *rest: Any, **named: Any) -> Any:
            text = path if isinstance(path, str) else ""
            if "/.heartbeat" not in text:
                self._stop.step(f"{name} {text}")
            return found(path, *rest, **named)

        return call


class Stop:
    """Counts the steps of an action while it does not hold the lock, and calls `others` before number `at`.

    planned: the first step after its plan, or its inflight file, was stored.  published: the step at which it takes the lock to
    store what it publishes, a file that begins so.
    """

    def __init__(self, at: int = 0, others: Callable[[], object] = lambda: None, publishes: str = _TIMELINE) -> None:
        self.held = False
        self.steps: list[str] = []
        self.planned = 0
        self.published = 0
        self._has_planned = False
        self._at = at
        self._others = others
        self._publishes = publishes

    def step(self, what: str) -> None:
        call, _, path = what.partition(" ")
        if not self.held:
            self.steps.append(what)
            if self._has_planned:
                self.planned, self._has_planned = len(self.steps), False
        if call.startswith("put"):
            if path.startswith(_TIMELINE) and path.endswith(_PLANS):
                self._has_planned = True
            elif path.startswith(self._publishes):
                self.published = len(self.steps)
        if not self.held and len(self.steps) == self._at:
            self._others()

    def context(self, context: TableContext) -> TableContext:
        """A context whose steps are counted."""
        storage: Any = _Storage(context.storage, self)
        return replace(context, storage=storage, lock=_Watched(context.lock, self))


def main() -> None:
    """Print the outcomes."""
    for same, name in ((True, "SAME"), (False, "DIFFERENT")):
        print(f"{name} = {{")
        for first in ACTIONS:
            row = [
                verdict_of("mor", first, second, same=same)[0] if same or can_differ(first, second) else "-" for second in ACTIONS
            ]
            print(f"    {first.name!r}: {' '.join(row)!r},", flush=True)
        print("}")


if __name__ == "__main__":
    main()
