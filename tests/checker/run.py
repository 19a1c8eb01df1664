"""Run one schedule and judge what came of it.

What must hold:

1. No operation fails with anything but the errors that are documented for those who meet others.
2. There is an order of the operations, one after the other, that explains the rows which each read gave and those which stand in
   the table at the end; no key stands twice.
3. A filtered read gives what the filter leaves of an unfiltered one.
4. `validate` finds nothing wrong.
5. After all deaths the next writer succeeds, and what it wrote is there; what was planned can be carried out and changes no row.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import CommitUnknown, HudiError, InstantNotFound, ServiceFailed, StorageUnavailable, TableState, WriteConflict
from pyhudi.format.instants import Action, State
from pyhudi.options import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.faults import FaultyStorage
from pyhudi.storage.locks import LockSettings, StorageLock
from pyhudi.storage.memory import MemoryStorage, forget_memory
from pyhudi.table.config import load_table_config
from pyhudi.table.context import TableContext
from tests.checker.actors import END, LOCK, Actor, ActorEnvironment, Clock, Decide, Stage, Stuck
from tests.checker.history import Effect, Event, find_order
from tests.checker.schedules import Schedule, decisions
from tests.checker.worlds import URI, WORLDS, Image, World, image_of, rows_of

_RECOVERY_MS = 3_600_000


@dataclass(frozen=True)
class Verdict:
    """What a run came to.  faults: what should not be, empty when all is well.  outcomes: of each operation, in a few words."""

    faults: tuple[str, ...]
    outcomes: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not self.faults


@dataclass
class _Done:
    """One operation of one actor, as far as it came."""

    actor: str
    number: int
    text: str
    start: int
    end: int | None = None
    instant: str | None = None
    order: str = ""
    error: BaseException | None = None
    rows: list[tuple[str, int]] | None = None
    undone: _Done | None = None


class ActorTable(Table):
    """A table as a process of its own opens it: the lock is no other thread's."""

    def __init__(self, storage: FaultyStorage | MemoryStorage, actor: Actor, clock: Clock, options: dict[str, object]) -> None:
        environment = ActorEnvironment(actor, clock)
        self._options = _parsed(tuple(options.items()))
        lock = _Lock(actor, storage, environment, self._options)
        self._context = TableContext(storage, environment, load_table_config(storage), lock)
        self._background = None


class _Lock(StorageLock):
    def __init__(self, actor: Actor, storage: Any, env: ActorEnvironment, options: Any) -> None:
        settings = LockSettings.of(options)
        super().__init__(
            storage,
            env,
            validity_ms=settings.storage.validity_ms,
            renew_ms=settings.storage.renew_ms,
            wait_ms=settings.wait_ms,
            label=actor.name,
        )
        self._actor = actor

    def acquire(self, timeout_ms: int | None = None) -> None:
        if self._actor.stage is not None:
            self._actor.stage.stand(self._actor, LOCK)
        super().acquire(timeout_ms)

    def check(self) -> None:
        super().check()
        self._actor.fenced = True


_options: dict[tuple[tuple[str, object], ...], Any] = {}


def _parsed(options: tuple[tuple[str, object], ...]) -> Any:
    found = _options.get(options)
    if found is None:
        found = _options[options] = parse_options(dict(options))
    return found


def replay(schedule: Schedule) -> Verdict:
    """Run a schedule as it is written."""
    known = decisions(schedule.turns)
    return run(schedule, lambda actor, place, count: known.get((actor.name, actor.operation, place, count)))


def run(schedule: Schedule, decide: Decide, *, thorough: bool = True) -> Verdict:
    """Run the operations of a schedule, with turns as `decide` says.

    thorough: False looks only at the rows, and lets the next writer come only where something was left on the timeline.
    """
    return _Run(schedule, decide, thorough).verdict()


class _Run:
    def __init__(self, schedule: Schedule, decide: Decide, thorough: bool) -> None:
        self.thorough = thorough
        self.schedule = schedule
        self.world: World = WORLDS[schedule.world]
        self.image: Image = image_of(schedule.world)
        self.clock = Clock(self.image.now_ms)
        self.done: list[_Done] = []
        self.faults: list[str] = []
        forget_memory("checker")
        environment = ActorEnvironment(Actor("store", lambda actor: None, schedule.seed), self.clock)
        self.storage = MemoryStorage(URI, environment)
        for path, data in self.image.files:
            self.storage.put(path, data)
        actors = [Actor(name, self._work, schedule.seed) for name in schedule.actors]
        self.stage = Stage(actors, self.clock, self.storage.uri, decide)

    def verdict(self) -> Verdict:
        try:
            self.stage.run()
        except Stuck as stuck:
            return Verdict((str(stuck),), self._outcomes())
        try:
            for actor in self.stage.actors.values():
                if actor.error is not None:
                    raise actor.error
            self._judge_errors()
            self._recover()
        finally:
            self.stage.close()
        return Verdict(tuple(self.faults), self._outcomes())

    # What actors do

    def _work(self, actor: Actor) -> None:
        storage = FaultyStorage(open_storage(URI), watch=actor.watch)
        options = self.world.settings
        for number, text in enumerate(self.schedule.operations[actor.name], 1):
            actor.begin()
            self.clock.now_ms += 5
            done = _Done(actor.name, number, text, next(self.stage.steps))
            self.done.append(done)
            try:
                table = ActorTable(storage, actor, self.clock, options)
                self._carry_out(table, done)
                done.end = next(self.stage.steps)
            except ServiceFailed as error:
                done.end, done.error, done.instant = next(self.stage.steps), error, error.instant
            except Exception as error:
                done.end, done.error = next(self.stage.steps), error
            self.stage.stand(actor, END)

    def _carry_out(self, table: Table, done: _Done) -> None:
        verb, _, rest = done.text.partition(" ")
        rest, _, extra = rest.partition(" | ")
        options = {_SHORT[word]: _VALUES[word] for word in extra.split()} if extra else None
        if verb in ("upsert", "insert", "bulk_insert", "insert_overwrite"):
            result = getattr(table, verb)(rows_of(_values(done, rest)), options=options)
        elif verb == "delete":
            keys = rest.split()
            result = table.delete(pa.table({"id": keys, "part": [key[0] for key in keys]}), options=options)
        elif verb == "delete_where":
            result = table.delete(where=rest, options=options)
        elif verb == "delete_partitions":
            result = table.delete_partitions(rest.split(), options=options)
        elif verb == "scan":
            done.rows = _read(table, rest or None)
            return
        elif verb == "rollback":
            target = next((d for d in reversed(self.done) if d.actor == done.actor and d.instant and d is not done), None)
            if target is None or any(d.undone is target for d in self.done):
                return
            assert target.instant is not None
            done.undone = target
            table.rollback(target.instant)
            return
        elif verb in ("cluster", "compact", "log_compact"):
            service = getattr(table, verb)(options=options)
            done.order = getattr(service, "completion_time", None) or ""
            return
        elif verb in ("schedule_clustering", "schedule_compaction", "schedule_log_compaction", "archive"):
            getattr(table, verb)(options=options)
            return
        elif verb == "clean":
            table.clean(dry_run=False, options=options)
            return
        elif verb == "services":
            outcomes = table.run_services(rest.split() or None, options=options)
            failed = {name: text for name, text in outcomes.items() if text.startswith("failed")}
            if failed:
                raise _ServicesFailed(failed)
            return
        elif verb == "index":
            kind, *columns = rest.split()
            table.index.create(kind, columns or None)
            return
        else:
            raise ValueError(done.text)
        done.instant, done.order = result.instant, result.completion_time or ""

    # What must hold

    def _judge_errors(self) -> None:
        for done in self.done:
            if done.error is not None and not _is_documented(done, self.done):
                self.faults.append(f"{type(done.error).__name__}: {done.error} [{done.actor} {done.number} {done.text}]")

    def _recover(self) -> None:
        self.stage.advance(_RECOVERY_MS)
        actor = Actor("Z", lambda actor: None, self.schedule.seed)
        table = ActorTable(self.storage, actor, self.clock, self.world.settings)
        self._look(table, "at the end")
        left = any(info.name.endswith((".requested", ".inflight")) for info in self.storage.list(".hoodie/timeline").files)
        if not (self.thorough or left):
            return
        last = _Done("Z", 1, "upsert a3 b1 a9", next(self.stage.steps))
        try:
            self._write_again(table, last)
        except HudiError as error:
            self.faults.append(f"the next writer: {type(error).__name__}: {error}")
            return
        last.end = next(self.stage.steps)
        self.done.append(last)
        self._look(table, "after the next writer")
        plans = (".clustering.requested", ".compaction.requested", ".logcompaction.requested")
        if any(info.name.endswith(plans) for info in self.storage.list(".hoodie/timeline").files):
            buckets = self.world.settings.get("hoodie.index.type") == "BUCKET"
            outcomes = table.run_services(["compact", "log_compact", *([] if buckets else ["cluster"])])
            self.faults.extend(f"{name} at the end {text}" for name, text in outcomes.items() if text.startswith("failed"))
            self._look(table, "after what was planned")
        try:
            report = table.validate()
        except HudiError as error:
            self.faults.append(f"validate: {type(error).__name__}: {error}")
            return
        if not report.ok:
            self.faults.append(f"validate: {report}")

    def _write_again(self, table: ActorTable, last: _Done) -> None:
        # A plan that waits for its executor may refuse writers; one whose executor died is settled by the next writer.
        begun = any(i.state is State.INFLIGHT for i in table.timeline().pending(Action.CLUSTERING))
        try:
            self._carry_out(table, last)
        except TableState as error:
            if begun or "pending clustering" not in str(error):
                raise
            table.run_services(["cluster"])
            self._look(table, "after the clustering that was planned")
            self._carry_out(table, last)

    def _look(self, table: Table, when: str) -> None:
        done = _Done("Z", 0, "scan", next(self.stage.steps))
        try:
            done.rows = _read(table, None)
        except HudiError as error:
            self.faults.append(f"scan {when}: {type(error).__name__}: {error}")
            return
        done.end = next(self.stage.steps)
        twice = [key for key, count in Counter(key for key, _ in done.rows).items() if count > 1]
        if twice:
            self.faults.append(f"{when} keys stand twice: {sorted(done.rows)}")
            return
        self.done.append(done)
        events = [event for event in self._events() if event is not None]
        if find_order(self.image.rows, events) is None:
            seen = sorted(done.rows)
            self.faults.append(f"{when} no order of the operations explains {seen}")
        self.done.remove(done)
        for text in self._filters(done.rows):
            keeps = _condition(text)
            wanted = sorted((key, value) for key, value in done.rows if keeps(key, value))
            try:
                found = _read(table, text)
            except HudiError as error:
                self.faults.append(f"scan {text} {when}: {type(error).__name__}: {error}")
                continue
            if sorted(found) != wanted:
                self.faults.append(f"{when} scan {text} gives {sorted(found)} in place of {wanted}")

    def _filters(self, rows: list[tuple[str, int]]) -> Iterator[str]:
        if not rows:
            return
        values = sorted({value for _, value in rows})
        if not self.world.has_metadata:
            yield f"v >= {values[-1]}"
            return
        for value in values:
            yield f"v = {value}"

    def _events(self) -> list[Event | None]:
        numbers: dict[int, int] = {}
        events: list[Event | None] = []
        for done in self.done:
            event = self._event(done, numbers)
            if event is not None:
                numbers[id(done)] = len(events)
                events.append(event)
        return events

    def _event(self, done: _Done, numbers: dict[int, int]) -> Event | None:
        failed = done.error is not None and not isinstance(done.error, (ServiceFailed, CommitUnknown))
        if failed:
            return None
        end = None if isinstance(done.error, CommitUnknown) else done.end
        verb, _, rest = done.text.partition(" ")
        rest, _, extra = rest.partition(" | ")
        if verb == "scan":
            if done.rows is None:
                return None
            return Event(done.text, done.start, end, seen=tuple(sorted(done.rows)), keeps=_condition(rest or None))
        if verb == "rollback":
            if done.undone is None or id(done.undone) not in numbers:
                return None
            return Event(done.text, done.start, end, undoes=numbers[id(done.undone)])
        effect = _effect(done, verb, rest, "drop" in extra.split())
        return None if effect is None else Event(done.text, done.start, end, effect=effect, order=done.order)

    def _outcomes(self) -> tuple[str, ...]:
        found = []
        for done in self.done:
            result = "ended" if done.end else "died"
            if done.error is not None:
                result = f"{type(done.error).__name__}: {done.error}"
            elif done.rows is not None:
                result = str(sorted(done.rows))
            elif done.instant:
                result = done.instant
            found.append(f"{done.actor} {done.number} {done.text}: {result}")
        return tuple(found)


class _ServicesFailed(Exception):
    pass


_SHORT = {
    "packed": "hoodie.parquet.small.file.limit",
    "apart": "hoodie.parquet.small.file.limit",
    "drop": "hoodie.datasource.insert.dup.policy",
    "lenient": "hoodie.clustering.updates.strategy",
    "dropping": "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
}
_VALUES: dict[str, object] = {
    "packed": 104857600,
    "apart": 0,
    "drop": "drop",
    "lenient": "SparkAllowUpdateStrategy",
    "dropping": True,
}
"""What an operation may carry after ` | `."""


def _values(done: _Done, keys: str) -> dict[str, int]:
    actor = 0 if done.actor == "Z" else ord(done.actor) - ord("A") + 1
    return {key: 1000 * actor + 100 * done.number + place for place, key in enumerate(keys.split())}


def _effect(done: _Done, verb: str, rest: str, drops: bool) -> Effect | None:
    if verb in ("upsert", "insert", "bulk_insert", "insert_overwrite"):
        return partial(_put, _values(done, rest), drops, verb == "insert_overwrite")
    if verb == "delete":
        named = rest.split()
        return partial(_remove, lambda key, value: key in named)
    if verb == "delete_where":
        return partial(_remove, _condition(rest))
    if verb == "delete_partitions":
        partitions = rest.split()
        return partial(_remove, lambda key, value: key[0] in partitions)
    return None


def _put(values: dict[str, int], drops: bool, overwrites: bool, rows: dict[str, int]) -> None:
    if overwrites:
        partitions = {key[0] for key in values}
        _remove(lambda key, value: key[0] in partitions, rows)
    for key, value in values.items():
        if not (drops and key in rows):
            rows[key] = value


def _remove(matches: Callable[[str, int], bool], rows: dict[str, int]) -> None:
    for key in [key for key, value in rows.items() if matches(key, value)]:
        del rows[key]


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {">=": operator.ge, "<=": operator.le, "=": operator.eq, "<": operator.lt}


def _condition(text: str | None) -> Callable[[str, int], bool]:
    if not text:
        return lambda key, value: True
    column, sign, limit = text.split(" ")
    assert column == "v"
    compare, number = _OPERATORS[sign], int(limit)
    return lambda key, value: compare(value, number)


def _read(table: Table, where: str | None) -> list[tuple[str, int]]:
    found = table.scan(["id", "v"], where).to_arrow()
    return list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


_MEETINGS = re.compile(
    "lock was not free|lock was lost|pending clustering|pending compaction|drop it with unschedule_|"
    "lives|build on it|carries out|carried out|"
    "the answer was lost|was rolled back|another executor|is planned to|is not run: "
)


def _is_documented(done: _Done, all_done: list[_Done]) -> bool:
    error = done.error
    if isinstance(error, WriteConflict):
        return True
    if isinstance(error, InstantNotFound):
        return done.text == "rollback"
    if isinstance(error, TableState) and done.text.startswith("scan") and "is gone: where a clean removed it" in str(error):
        return True
    if isinstance(error, StorageUnavailable | TableState):
        return _MEETINGS.search(str(error)) is not None
    if isinstance(error, _ServicesFailed):
        return all(_MEETINGS.search(text) is not None or "WriteConflict" in text for text in error.args[0].values())
    if isinstance(error, ServiceFailed):
        return isinstance(error.__cause__, WriteConflict | StorageUnavailable)
    return False
