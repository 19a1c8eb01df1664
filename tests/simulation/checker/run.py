"""Run one schedule and check its outcome.

What must hold:

1. No operation fails with anything but the errors that are documented for conflicting operations.
2. There is an order of the operations, one after the other, that explains the rows which each read gave and those which are in
   the table at the end; no key exists twice.
3. A filtered read gives what the filter leaves of an unfiltered one.
4. `validate` finds nothing wrong.
5. After all deaths the next writer succeeds, and what it wrote is there; what was planned can be executed and changes no row.
6. Time travel gives the rows without the writes that were requested later; changes since a write are the rows of those that
   completed after it. If the newest write is rolled back, exactly its rows go.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.api.table import Scan
from pyhudi.api.table_handle import TableHandle
from pyhudi.errors import (
    CommitUnknown,
    HudiError,
    InstantNotFound,
    Internal,
    InvalidRequest,
    ServiceFailed,
    SnapshotOutdated,
    StorageUnavailable,
    TableState,
    WriteConflict,
)
from pyhudi.format.instants import Action, State
from pyhudi.operations.write.group_tickets import Ticket, find_outcomes
from pyhudi.operations.write.write_once import CommitSearch
from pyhudi.options.supported import parse_options
from pyhudi.storage import FileInfo, open_storage
from pyhudi.storage.fault_injection import FaultyStorage
from pyhudi.storage.locks import LockSettings, StorageLock
from pyhudi.storage.memory import MemoryStorage, forget_memory
from pyhudi.table.snapshot_cache import SnapshotCache
from pyhudi.table.table_config import load_table_config
from pyhudi.table.table_context import TableContext
from tests.simulation.checker.actors import END, LOCK, Actor, ActorEnvironment, Clock, Decide, Stage, Stuck
from tests.simulation.checker.history import Effect, Event, find_order
from tests.simulation.checker.schedules import Schedule, decisions
from tests.simulation.checker.worlds import URI, WIDE, WORLDS, Image, World, image_of, rows_of

_RECOVERY_MS = 3_600_000


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run. faults: violated rules, empty if none. outcomes: a short text per operation."""

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
    requested: list[str] = field(default_factory=list)
    staged: list[str] = field(default_factory=list)
    grouped_in: str | None = None
    until: str | None = None

    @property
    def request_time(self) -> str | None:
        """Of its instant, also where it died or failed."""
        return self.instant or self.grouped_in or (self.requested[-1] if self.requested else None)


class ActorTable(Table):
    """A table as a process of its own opens it: the lock is no other thread's."""

    def __init__(self, storage: FaultyStorage | MemoryStorage, actor: Actor, clock: Clock, options: dict[str, object]) -> None:
        self._open = _ActorOpen(storage, actor, clock, options)


class _ActorOpen(TableHandle):
    def __init__(self, storage: FaultyStorage | MemoryStorage, actor: Actor, clock: Clock, options: dict[str, object]) -> None:
        environment = ActorEnvironment(actor, clock)
        self.options = _parsed(tuple(options.items()))
        lock = _Lock(actor, storage, environment, self.options)
        self.context = TableContext(storage, environment, load_table_config(storage), lock)
        self.background = None
        self.snapshot_cache = SnapshotCache()


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
            self._actor.stage.arrive(self._actor, LOCK)
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
    """Run the operations of a schedule, with the decisions of `decide`.

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
            self._check_errors()
            self._recover()
        finally:
            self.stage.close()
        return Verdict(tuple(self.faults), self._outcomes())

    # What actors do

    def _work(self, actor: Actor) -> None:
        storage = FaultyStorage(open_storage(URI), listener=actor.watch)
        options = self.world.settings
        for number, text in enumerate(self.schedule.operations[actor.name], 1):
            actor.begin()
            self.clock.now_ms += 5
            done = _Done(actor.name, number, text, next(self.stage.steps), requested=actor.requested, staged=actor.staged)
            self.done.append(done)
            try:
                table = ActorTable(storage, actor, self.clock, options)
                self._execute(table, done)
                done.end = next(self.stage.steps)
            except ServiceFailed as error:
                done.end, done.error, done.instant = next(self.stage.steps), error, error.instant
            except Exception as error:
                done.end, done.error = next(self.stage.steps), error
            self.stage.arrive(actor, END)

    def _execute(self, table: Table, done: _Done) -> None:
        method, _, rest = done.text.partition(" ")
        rest, _, extra = rest.partition(" | ")
        options = {_SHORT[word]: _VALUES[word] for word in extra.split()} if extra else None
        if method in ("upsert", "insert", "bulk_insert", "insert_overwrite"):
            result = getattr(table, method)(rows_of(_values(done, rest)), options=options)
        elif method == "delete":
            keys = rest.split()
            result = table.delete(pa.table({"id": keys, "part": [key[0] for key in keys]}), options=options)
        elif method == "delete_where":
            result = table.delete(where=rest, options=options)
        elif method == "delete_partitions":
            result = table.delete_partitions(rest.split(), options=options)
        elif method == "widen":
            chosen, _, kind = rest.rpartition(" ")
            result = table.upsert(rows_of(_values(done, chosen, WIDE_FROM), _KINDS[kind]), options=options)
        elif method == "scan":
            done.rows = _read(table, rest or None)
            return
        elif method == "travel":
            done.until = self.image.instants[-1]
            done.rows = _rows(table.scan(["id", "v"], as_of=done.until))
            return
        elif method == "poll":
            done.rows = _rows(table.incremental(after=self.image.completed, columns=["id", "v"]))
            return
        elif method == "savepoint":
            done.instant = table.savepoint().instant
            return
        elif method == "restore":
            saved = (d.instant for d in reversed(self.done) if d.text == "savepoint" and d.instant)
            done.until = next(saved, self.image.instants[-1])
            table.restore(done.until)
            return
        elif method == "rollback":
            target = next((d for d in reversed(self.done) if d.actor == done.actor and d.instant and d is not done), None)
            if target is None or any(d.undone is target for d in self.done):
                return
            assert target.instant is not None
            done.undone = target
            table.rollback(target.instant)
            return
        elif method in ("cluster", "compact", "log_compact"):
            service = getattr(table, method)(options=options)
            done.order = getattr(service, "completion_time", None) or ""
            return
        elif method in ("schedule_clustering", "schedule_compaction", "schedule_log_compaction", "archive"):
            getattr(table, method)(options=options)
            return
        elif method == "clean":
            table.clean(dry_run=False, options=options)
            return
        elif method == "services":
            outcomes = table.run_services(rest.split() or None, options=options)
            failed = {name: text for name, text in outcomes.items() if text.startswith("failed")}
            if failed:
                raise _ServicesFailed(failed)
            return
        elif method == "index":
            kind, *columns = rest.split()
            table.index.create(kind, columns or None)
            return
        else:
            raise ValueError(done.text)
        done.instant, done.order = result.instant, result.completion_time or ""

    # What must hold

    def _check_errors(self) -> None:
        for done in self.done:
            if done.error is not None and not _is_documented(done, self.done):
                self.faults.append(f"{type(done.error).__name__}: {done.error} [{done.actor} {done.number} {done.text}]")

    def _recover(self) -> None:
        self.stage.advance(_RECOVERY_MS)
        actor = Actor("Z", lambda actor: None, self.schedule.seed)
        table = ActorTable(self.storage, actor, self.clock, self.world.settings)
        self._find_tickets(table)
        if not self._finish_restore(table):
            return
        self._look(table, "at the end")
        left = any(info.name.endswith((".requested", ".inflight")) for info in _timeline(self.storage))
        if not (self.thorough or left):
            return
        if self.schedule.takes_back:
            self._roll_back(table)
        last = _Done("Z", 1, "upsert a3 b1 a9", next(self.stage.steps))
        try:
            self._write_again(table, last)
        except HudiError as error:
            self.faults.append(f"the next writer: {type(error).__name__}: {error}")
            return
        last.end = next(self.stage.steps)
        self.done.append(last)
        self._look(table, "after the next writer")
        self._check_time_travel(table)
        plans = (".clustering.requested", ".compaction.requested", ".logcompaction.requested")
        if any(info.name.endswith(plans) for info in _timeline(self.storage)):
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

    def _find_tickets(self, table: ActorTable) -> None:
        """Find the commits of batches whose writers did not learn the outcome."""
        open_batches = {ticket: done for done in self.done if done.instant is None for ticket in done.staged}
        if not open_batches:
            return
        tickets = [Ticket(name, "", "", "", 0) for name in open_batches]
        context = table.context
        for name, outcome in find_outcomes(context, context.timeline.load(), CommitSearch(), tickets).items():
            open_batches[name].grouped_in = outcome.instant.request_time

    def _finish_restore(self, table: ActorTable) -> bool:
        """Finish a pending restore, also one that was killed again; return whether none is pending."""
        if not table.timeline().pending(Action.RESTORE):
            return True
        started = [done for done in self.done if (done.text == "restore" and done.end is None) or done.error is not None]
        for until in {done.until for done in started if done.until is not None}:
            again = _Done("Z", 0, "restore", next(self.stage.steps), until=until)
            try:
                table.restore(until)
            except TableState:
                continue
            except HudiError as error:
                self.faults.append(f"the restore that died: {type(error).__name__}: {error}")
                return False
            again.end = next(self.stage.steps)
            self.done.append(again)
            return True
        self.faults.append("no restore can be run to its end")
        return False

    def _roll_back(self, table: ActorTable) -> None:
        """Roll back the newest write of any actor, and check that exactly its rows disappear."""
        newest = table.timeline().completed_writes()[-1].request_time
        if newest in self.image.instants:
            return
        back = _Done("Z", 0, "rollback", next(self.stage.steps))
        back.undone = next((done for done in self.done if newest in (done.instant, *done.requested)), None)
        try:
            table.rollback(newest)
        except TableState:
            return
        except HudiError as error:
            self.faults.append(f"rollback of the newest write: {type(error).__name__}: {error}")
            return
        back.end = next(self.stage.steps)
        self.done.append(back)
        self._look(table, "after the newest write was rolled back")

    def _check_time_travel(self, table: ActorTable) -> None:
        """Time travel to every write, and changes since each."""
        timeline = table.timeline()
        writes = timeline.completed_writes()
        rows = _rows(table.scan(["id", "v"]))
        completed = {str(i.request_time): str(i.completion_time) for i in writes}
        when: dict[int, str | None] = {}
        for done in self.done:
            for value in _values_of(done):
                when[value] = completed.get(done.request_time or "")
        for write in writes:
            if write.request_time < self.image.instants[-1]:
                continue
            done = _Done("Z", 0, "travel", next(self.stage.steps), until=write.request_time)
            try:
                done.rows = _rows(table.scan(["id", "v"], as_of=write.request_time))
            except TableState:
                # Its files may be cleaned.
                continue
            except HudiError as error:
                self.faults.append(f"as of {write.request_time}: {type(error).__name__}: {error}")
                continue
            done.end = next(self.stage.steps)
            self._explain(done, f"as of {write.request_time}")
            if self.world.ordering is not None and self.world.kind == "mor":
                # Logs are merged among themselves there: a late record is a change, though an older base file's row is newer.
                continue
            since = str(write.completion_time)
            if any(when.get(value) is None for _, value in rows if value >= 100):
                continue
            wanted = [(key, value) for key, value in rows if (when.get(value) or "") > since]
            try:
                found = _rows(table.incremental(after=since, columns=["id", "v"]))
            except HudiError as error:
                self.faults.append(f"changes since {since}: {type(error).__name__}: {error}")
                continue
            if sorted(found) != sorted(wanted):
                self.faults.append(f"changes since {since} are {sorted(found)} in place of {sorted(wanted)}")

    def _write_again(self, table: ActorTable, last: _Done) -> None:
        # A plan that waits for its executor may refuse writers; one whose executor died is settled by the next writer.
        pending = table.timeline().pending(Action.CLUSTERING)
        try:
            self._execute(table, last)
        except TableState as error:
            begun = any(i.state is State.INFLIGHT and i.request_time in str(error) for i in pending)
            if begun or "pending clustering" not in str(error):
                raise
            table.run_services(["cluster"])
            self._look(table, "after the clustering that was planned")
            self._execute(table, last)

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
        self._explain(done, when)
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

    def _explain(self, done: _Done, when: str) -> None:
        """There is an order of the operations that explains what was read after them all."""
        assert done.rows is not None
        self.done.append(done)
        events = [event for event in self._events() if event is not None]
        if find_order(self.image.rows, events) is None:
            self.faults.append(f"{when} no order of the operations explains {sorted(done.rows)}")
        self.done.remove(done)

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
        # A rollback or restore without a response may have begun, or even ended; other processes complete what has begun.
        unknown = isinstance(done.error, CommitUnknown)
        unknown |= done.text in ("rollback", "restore") and isinstance(done.error, StorageUnavailable)
        if failed and not unknown:
            return None
        end = None if unknown else done.end
        method, _, rest = done.text.partition(" ")
        rest, _, extra = rest.partition(" | ")
        if method == "scan":
            if done.rows is None:
                return None
            return Event(done.text, done.start, end, seen=tuple(sorted(done.rows)), keeps=_condition(rest or None))
        if method in ("travel", "poll"):
            if done.rows is None:
                return None
            keeps = _condition(None if method == "travel" else "v >= 100")
            return Event(done.text, done.start, end, seen=tuple(sorted(done.rows)), keeps=keeps, until=done.until)
        if method == "restore":
            # One that died or got no answer may have taken place already before it was run again.
            return None if done.until is None else Event(done.text, done.start, end, effect=lambda rows: None, until=done.until)
        if method == "rollback":
            if done.undone is None or id(done.undone) not in numbers:
                return None
            return Event(done.text, done.start, end, undoes=numbers[id(done.undone)])
        effect = _effect(done, method, rest, "drop" in extra.split(), self.world.ordering is not None)
        if effect is None:
            return None
        return Event(done.text, done.start, end, effect=effect, order=done.order, instant=done.request_time)

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


WIDE_FROM = 50
"""The first place of the values of a row that has the additional column."""

_KINDS = {"int": pa.int32(), "long": pa.int64()}


def _values(done: _Done, keys: str, first: int = 0) -> dict[str, int]:
    actor = 0 if done.actor == "Z" else ord(done.actor) - ord("A") + 1
    return {key: 1000 * actor + 100 * done.number + place for place, key in enumerate(keys.split(), first)}


def _values_of(done: _Done) -> Iterator[int]:
    """Every value that an operation may have written."""
    first = _values(done, "any")["any"]
    yield from range(first, first + 100)


def _effect(done: _Done, method: str, rest: str, drops: bool, by_value: bool) -> Effect | None:
    if method in ("upsert", "insert", "bulk_insert", "insert_overwrite"):
        return partial(_put, _values(done, rest), drops, method == "insert_overwrite", by_value)
    if method == "widen":
        return partial(_put, _values(done, rest.rpartition(" ")[0], WIDE_FROM), False, False, by_value)
    if method == "delete":
        named = rest.split()
        return partial(_remove, lambda key, value: key in named)
    if method == "delete_where":
        return partial(_remove, _condition(rest))
    if method == "delete_partitions":
        partitions = rest.split()
        return partial(_remove, lambda key, value: key[0] in partitions)
    return None


def _put(values: dict[str, int], drops: bool, overwrites: bool, by_value: bool, rows: dict[str, int]) -> None:
    if overwrites:
        partitions = {key[0] for key in values}
        _remove(lambda key, value: key[0] in partitions, rows)
    for key, value in values.items():
        if key not in rows or not (drops or (by_value and rows[key] > value)):
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
    return _rows(table.scan(None, where))


def _rows(scan: Scan) -> list[tuple[str, int]]:
    """What a read gives.  A row that has the additional column repeats its value there, and another one has null."""
    found = scan.to_arrow()
    values = found["v"].to_pylist()
    if WIDE in found.column_names:
        for value, wide in zip(values, found[WIDE].to_pylist(), strict=True):
            if wide != (value if value % 100 >= WIDE_FROM else None):
                raise Internal(f"a row with v = {value} has {WIDE} = {wide}")
    return list(zip(found["id"].to_pylist(), values, strict=True))


def _timeline(storage: MemoryStorage) -> tuple[FileInfo, ...]:
    return storage.list(".hoodie/timeline").files


_MEETINGS = re.compile(
    "lock was not free|lock was lost|pending clustering|pending compaction|drop it with unschedule_|"
    "is alive|build on it|is running it|is being run|"
    "did not finish; run it again|the answer was lost|was rolled back|another executor|is planned to|(is|was) not run: |"
    "files that it replaced were cleaned|is savepointed|has no plan; roll it back"
)
_BYGONES = re.compile(
    rf"{_MEETINGS.pattern}|may be missing|cannot be read as of|has a savepoint already|is about to delete files|are archived"
)


def _is_documented(done: _Done, all_done: list[_Done]) -> bool:
    error = done.error
    if isinstance(error, WriteConflict):
        return True
    if isinstance(error, InvalidRequest):
        same = any(other.text == done.text for other in all_done if other is not done)
        return done.text.startswith("index") and same and "already, or it is being built" in str(error)
    if isinstance(error, InstantNotFound):
        return done.text in ("rollback", "restore", "savepoint")
    if isinstance(error, TableState) and done.text.startswith("scan") and "is missing: if a clean removed it" in str(error):
        return True
    if isinstance(error, StorageUnavailable | TableState):
        return (_BYGONES if done.text in ("travel", "restore", "savepoint") else _MEETINGS).search(str(error)) is not None
    if isinstance(error, _ServicesFailed):
        # A plan that slept until its lease was over finds the state outdated, which is a conflict as any other.
        lost = (WriteConflict.__name__, SnapshotOutdated.__name__)
        return all(_MEETINGS.search(text) or any(name in text for name in lost) for text in error.args[0].values())
    if isinstance(error, ServiceFailed):
        cause = error.__cause__
        return isinstance(cause, WriteConflict | StorageUnavailable) or "did not finish; run it again" in str(cause)
    return False
