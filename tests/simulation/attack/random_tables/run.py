"""One table, the dictionary of its expected rows, and what can be done to both.

A step is a name and a seed of its own, so that a step means the same regardless of the steps omitted before it, and a run that
fails can be made smaller. What a step does to the table and what it does to the dictionary are apart: where the step dies, the
timeline shows whether its commit is there, and so whether the dictionary changes.
"""

from __future__ import annotations

import datetime
import io
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi import Table, bootstrap
from pyhudi.errors import InstantNotFound, InvalidRequest, ServiceFailed, TableState, Unsupported, WriteConflict
from pyhudi.format.instants import Action
from pyhudi.options.scope import TABLE_OPERATIONS, check_call_options
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.storage.memory import MemoryStorage, forget_memory
from tests.simulation.attack.random_tables.codes import MORE, decoded, restyled
from tests.simulation.attack.random_tables.rules import DELETED, UNAVAILABLE
from tests.simulation.attack.random_tables.table_generator import KEYS, PARTITIONS, Drawn
from tests.simulation.pairs import Stop

REFUSED = (TableState, InvalidRequest, Unsupported, WriteConflict)
_names = itertools.count()
Values = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A record as it should be.  instant: of the write whose values it has."""

    values: Values
    instant: str


@dataclass(frozen=True)
class State:
    """What the table should hold from the completion of an instant on.  schema: of the columns then."""

    instant: str
    completed: str
    rows: dict[str, Row]
    columns: dict[str, pa.DataType]


@dataclass(frozen=True)
class Step:
    """What to do.  seed: all that the step draws; crash: at which writing call it dies, 0 for none.  met: what others do in the
    midst of it, before its call `at` of those that it makes without the lock; where it makes fewer, they do nothing.
    """

    name: str
    seed: int
    crash: int = 0
    moment: str = "before"
    met: tuple[Step, ...] = ()
    at: int = 0


@dataclass
class Deed:
    """A step that was drawn.  act: what is done to the table.  change: what the dictionary makes of it, given the instant.  dies:
    whether it may die on the way.  restores: it takes the table back.
    """

    act: Callable[[Table], Any]
    change: Callable[[str], None] | None = None
    again: bool = False
    text: str = ""
    dies: bool = True
    restores: bool = False


def _nothing(table: Table) -> None:
    return None


@dataclass
class Run:
    """A table during a run.

    states: of every instant that still exists; did: the executed steps, to read a failure; gone: completion times of instants
    that were rolled back; newest: the largest event time that each key ever had, including rows that lost.
    """

    drawn: Drawn
    seed: int
    rows: dict[str, Row] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    did: list[str] = field(default_factory=list)
    buried: dict[str, int] = field(default_factory=dict)
    savepoints: set[str] = field(default_factory=set)
    ever: dict[str, list[Values]] = field(default_factory=dict)
    completions: dict[str, str] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    newest: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place()
        self.options = dict(self.drawn.options)
        self.columns: dict[str, pa.DataType] = {
            **{name: pa.string() if name == "id" else pa.int32() for name in self.drawn.keyed},
            "part": pa.string(),
            "ts": pa.int64(),
            "v": pa.int32(),
            "s": pa.string(),
            "f": pa.float64(),
            "d": pa.date32(),
            "n": pa.struct([("a", pa.int32()), ("b", pa.string())]),
        }
        self.rule = self.drawn.rule
        self.columns.update({name: MORE[name] for name in self.drawn.more})
        self.columns.update({name: pa.string() for name, _ in self.rule.columns})
        if self.rule.ordering != "ts":
            self.columns[self.rule.ordering] = pa.int64()
        if self.drawn.soft and not self.rule.columns:
            self.columns[DELETED] = pa.bool_()
        self.by_ids = False
        self.cleaned = False
        self.partly = False
        self.version = self.drawn.version
        self.refusals: list[str] = []
        if self.drawn.bootstrapped:
            self.make_over_files()
        else:
            self.make()
        # Writers that keep one object for the life of the table, and those that open it again.
        self.kept = self.table

    def place(self) -> None:
        """The location of the table, and its clock."""
        self.environment = ReplayEnvironment(self.seed)
        self.uri = f"memory://random-{next(_names)}"
        MemoryStorage(self.uri, self.environment)

    def make(self) -> None:
        """The table, before its first step."""
        Table.create(
            self.uri,
            record_key=list(self.drawn.keyed),
            partition_by="part" if self.drawn.partitioned else None,
            ordering=self.rule.ordering,
            table_type=self.drawn.kind,
            options=self.options,
            environment=self.environment,
            schema=self.schema(self.columns),
        )

    def make_over_files(self) -> None:
        """The table, over files that hold its first rows."""
        rng = random.Random(self.seed)
        source = open_storage(f"{self.uri}/files")
        rows = [self.fresh(key, rng) for key in self.some(rng, most=6)]
        columns = [name for name in self.columns if name != "part" or not self.drawn.partitioned]
        for part in sorted({row["part"] for row in rows}):
            among = [row for row in rows if row["part"] == part]
            sink = io.BytesIO()
            pq.write_table(self.data(among, columns), sink, row_group_size=2)
            source.put(f"part={part}/rows.parquet" if self.drawn.partitioned else f"{part}.parquet", sink.getvalue())
        target = f"{self.uri}/table"
        bootstrap(
            f"{self.uri}/files",
            target,
            record_key=list(self.drawn.keyed),
            partition_by="part" if self.drawn.partitioned else None,
            ordering=self.rule.ordering,
            table_type=self.drawn.kind,
            options={name: value for name, value in self.options.items() if _acts_on_bootstraps(name, value)},
            environment=self.environment,
        )
        self.uri = target
        instant = self.table.timeline().completed_writes()[-1].request_time
        self.did.append(f"bootstrap {[row['id'] for row in rows]} -> {instant}")
        for row in rows:
            self.hold(row, instant)
        self._note({}, instant)

    def close(self) -> None:
        forget_memory(self.uri.removeprefix("memory://").partition("/")[0])

    @property
    def table(self) -> Table:
        self.environment.advance_ms(1000)
        return Table(self.uri, options=self.options, environment=self.environment)

    # Doing

    def take(self, step: Step) -> list[tuple[Deed, str]]:
        """Do one step; the dictionary follows.  Returns what was done to the table and is there."""
        from tests.simulation.attack.random_tables.steps import STEPS

        rng = random.Random(step.seed)
        rows, columns, buried = dict(self.rows), dict(self.columns), dict(self.buried)
        deed = STEPS[step.name](self, rng)
        if deed is None:
            return []
        known = self._writes()
        others: list[tuple[Deed, str]] = []
        self.did.append(f"{step.name} {deed.text}")
        table = self.table
        if not step.crash and step.seed % 4 == 0:
            self.did[-1] += " (kept)"
            table = self.kept
        storage = None
        if step.crash and deed.dies:
            plan = Fault(step.crash, FaultPoint(step.moment))
            storage = FaultyStorage(table.context.storage, plan)
            table._open.context = replace(table.context, storage=storage)
        context = table.context
        if step.met:
            table._open.context = Stop(step.at, lambda: others.extend(self._meet(step, deed, known))).context(context)
        instant = None
        try:
            result = deed.act(table)
            instant = getattr(result, "instant", None)
        except SimulatedCrash:
            self.did[-1] += f" DIED at {step.crash} {step.moment}"
            self.environment.advance_ms(1_000_000)
            instant = self._new_write(known)
            if deed.again:
                try:
                    deed.act(self.table)
                except InstantNotFound:
                    pass
                instant = instant or "again"
        except ServiceFailed as error:
            if not isinstance(error.__cause__, REFUSED):
                raise
            instant = self._new_write(known)
        except REFUSED as error:
            if not others:
                self.rows, self.columns, self.buried = rows, columns, buried
            self.did[-1] += f" REFUSED {type(error).__name__}: {str(error)[:150]}"
            self.refusals.append(f"{step.name}{' met' * bool(others)}: {type(error).__name__}: {str(error)[:110]}")
            return others
        finally:
            if step.met:
                table._open.context = context
        met = dict(self.rows)
        self.did[-1] += f" -> {instant}"
        if deed.change is None or instant is None:
            self._note(met if others else rows, None)
            return others
        deed.change(instant)
        if others:
            self._in_either_order(State("", "", rows, columns), buried, deed, instant, others)
        self._note(met if others else rows, instant)
        return [*others, (deed, instant)]

    def _meet(self, step: Step, deed: Deed, known: dict[str, str]) -> list[tuple[Deed, str]]:
        """What others do in the midst of a step."""
        done = []
        early = self._new_write(known) if deed.change is not None else None
        if early is not None and deed.change is not None:
            # It has completed, and does what comes after that.
            before = dict(self.rows)
            deed.change(early)
            deed.change = None
            self._note(before, early)
        for each in step.met:
            self.did[-1] += f" PAUSED at {step.at}"
            done += self.take(each)
            self.did[-1] = "    " + self.did[-1]
        known.update(self._writes())
        self.did.append(f"{step.name} goes on")
        return done

    def _in_either_order(
        self, before: State, buried: dict[str, int], deed: Deed, instant: str, others: list[tuple[Deed, str]]
    ) -> None:
        """Of the two orders in which a step and what met it may have come, the one that the table shows.  What was planned again
        comes last, and what was not may count as the first.
        """
        last = self.rows, self.columns, self.buried, self.states
        if self._shows(self.rows) or any(each.restores for each, _ in others):
            return
        self.rows, self.columns, self.buried = dict(before.rows), dict(before.columns), dict(buried)
        for each, at in ((deed, instant), *others):
            if each.change is not None:
                each.change(at)
        if self._shows(self.rows):
            self.did[-1] += " FIRST"
            return
        self.rows, self.columns, self.buried, self.states = last

    def _shows(self, rows: dict[str, Row]) -> bool:
        found = decoded(self.table.scan(["id", "v", "ts"]).to_arrow().to_pylist(), self.drawn.codes)
        wanted = [(key, row.values["ts"], repr(row.values["v"])) for key, row in rows.items()]
        return sorted((row["id"], row["ts"], repr(row["v"])) for row in found) == sorted(wanted)

    def _writes(self) -> dict[str, str]:
        timeline = self.table.timeline()
        found = {i.request_time: str(i.completion_time) for i in timeline.completed_writes()}
        self.completions.update(found)
        return found

    def _new_write(self, known: dict[str, str]) -> str | None:
        """The instant of the write, not of a service, that completed."""
        services = (Action.COMPACTION, Action.CLUSTERING, Action.LOGCOMPACTION)
        timeline = self.table.timeline()
        for instant in timeline.completed_writes():
            if instant.request_time in known or instant.action in services:
                continue
            if self._operation(instant.request_time) in ("compact", "cluster", "log_compact", "unknown"):
                continue
            return instant.request_time
        return None

    def _operation(self, request_time: str) -> str:
        rows = self.table.inspect.commits().to_pylist()
        return next((str(row["operation"]).lower() for row in rows if row["request_time"] == request_time), "unknown")

    def _note(self, before: dict[str, Row], instant: str | None) -> None:
        """Keep what the table holds as of each instant that is new."""
        writes = self._writes()
        held = {state.instant for state in self.states}
        own = writes.get(instant) if instant else None
        for request_time, completed in sorted(writes.items(), key=lambda item: item[1]):
            if request_time not in held:
                rows = self.rows if own is None or completed >= own else _latest(self.states, completed, before)
                self.states.append(State(request_time, completed, dict(rows), dict(self.columns)))
        self.states.sort(key=lambda state: state.completed)
        for key, row in self.rows.items():
            self.ever.setdefault(key, []).append(row.values)

    # What steps need

    def part_of(self, key: str, rng: random.Random) -> str:
        if self.drawn.moves:
            return rng.choice(PARTITIONS)
        return PARTITIONS[int(key[1:]) % 3]

    def fresh(self, key: str, rng: random.Random, *, newer: bool = False) -> Values:
        """A row of that key, with every column of the table."""
        held = self.rows.get(key)
        least = max(
            self.buried.get(key, 0),
            held.values["ts"] if held and (newer or self.drawn.moves or self.partly or not self.drawn.late) else 0,
            0 if self.drawn.late else self.newest.get(key, 0),
        )
        if self.rule.name == "first" and self.drawn.is_mor and key in self.buried:
            # The log's newest row meets the base row that the log deleted, and is no newer where it ties.
            least += 1
        values: Values = {name: self.value(name, rng) for name in self.columns}
        values.update({"id": key, "part": self.part_of(key, rng), "ts": max(least, rng.randint(0, 9))})
        if self.drawn.is_mor and key in self.buried:
            # A log record after a delete is merged with the former base row, including gaps.
            values = self.rule.made_whole(values, rng, self.value)
            if self.rule.name == "highest":
                values["v"] = float(5) if pa.types.is_floating(self.columns["v"]) else 5
        values.update(dict(self.rule.columns))
        if self.rule.ordering != "ts":
            values[self.rule.ordering] = values["ts"]
        if "no" in self.columns:
            values["no"] = int(key[1:])
        if DELETED in self.columns:
            values[DELETED] = rng.choice((None, False))
        return values

    def value(self, name: str, rng: random.Random) -> Any:
        """A value of a column."""
        kind = self.columns[name]
        if name == "v":
            # Whole numbers for every type that the column may have.
            number = draw_value(rng, pa.int32())
            return number if number is None or pa.types.is_integer(kind) else float(number)
        if UNAVAILABLE in self.rule.fills and pa.types.is_string(kind) and rng.random() < 0.3:
            return UNAVAILABLE
        return draw_value(rng, kind)

    def data(self, rows: list[Values], names: list[str] | None = None) -> pa.Table:
        chosen = list(self.columns) if names is None else names
        return self.table_of(rows, {name: self.columns[name] for name in chosen})

    def table_of(self, rows: list[Values], columns: dict[str, pa.DataType]) -> pa.Table:
        """Rows with these columns, as a batch has them."""
        codes, rng = self.drawn.codes, random.Random(repr(rows))
        found = {}
        for name, kind in columns.items():
            values = [row[name] for row in rows]
            if name in codes:
                kind, values = codes[name].kind, [None if v is None else codes[name].to(v) for v in values]
            found[name] = pa.array(values, kind)
            if self.drawn.more and self.columns.get(name) == columns[name] and rng.random() < 0.4:
                found[name] = restyled(found[name], rng)
        return pa.table(found)

    def schema(self, columns: dict[str, pa.DataType]) -> pa.Schema:
        codes = self.drawn.codes
        return pa.schema([(name, codes[name].kind if name in codes else kind) for name, kind in columns.items()])

    def literal(self, name: str, value: Any) -> str:
        """A value of a column in a filter."""
        return self.drawn.codes[name].literal(value) if name in self.drawn.codes else repr(value)

    def some(self, rng: random.Random, among: list[str] | None = None, most: int = 4) -> list[str]:
        found = list(KEYS) if among is None else among
        return sorted(rng.sample(found, min(len(found), rng.randint(1, most)))) if found else []

    def hold(self, values: Values, instant: str) -> None:
        """An upsert of one row."""
        # Columns may have come since the row was drawn.
        values = {**dict.fromkeys(self.columns), **values}
        self.newest[values["id"]] = max(self.newest.get(values["id"], 0), values["ts"])
        held = self.rows.get(values["id"])
        blocks = "NON_BLOCKING" not in self.options.get("hoodie.write.concurrency.mode", "")
        if held is None and not blocks and values["ts"] < self.buried.get(values["id"], 0):
            # A delete that came while the row was written has the event time of what it deleted.
            return
        if held is None:
            if not self.rule.deletes(values):
                self.rows[values["id"]] = Row(dict(values), instant)
            elif self.drawn.is_mor:
                # The log records the delete, although there was no such record.
                self.bury(values["id"], values["ts"])
            return
        outcome, is_new = self.rule.meet(values, held.values, self.version, in_log=self.drawn.is_mor)
        if outcome is None:
            self.bury(values["id"], values["ts"])
        else:
            self.rows[values["id"]] = Row(dict(outcome), instant if is_new else held.instant)

    def regain(self, columns: dict[str, pa.DataType]) -> None:
        """Columns of a batch come again that the table has lost since it was drawn, as their addition was rolled back."""
        lost = {name: kind for name, kind in columns.items() if name not in self.columns}
        self.columns = self.columns | lost
        self.rows = {key: Row({**dict.fromkeys(lost), **row.values}, row.instant) for key, row in self.rows.items()}

    def bury(self, key: str, order: int | None = None) -> None:
        row = self.rows.pop(key, None)
        self.buried[key] = max(self.buried.get(key, 0), order or 0, row.values["ts"] if row else 0)

    def back_to(self, instant: str) -> None:
        """The table as of an instant; later ones are removed."""
        at = next((n for n, state in enumerate(self.states) if state.instant == instant), None)
        if at is None:
            raise AssertionError(f"no state of {instant}")
        completed = self.states[at].completed
        self.rows, self.columns = dict(self.states[at].rows), dict(self.states[at].columns)
        # A clustering that was planned before stays, whenever it completed.
        there = set(self._writes().values())
        self.gone += [state.completed for state in self.states if state.completed > completed and state.completed not in there]
        self.states = [state for state in self.states if state.completed <= completed]
        self.version = int(self.table.config.version)
        self.savepoints = {one for one in self.savepoints if one <= instant}


def _acts_on_bootstraps(name: str, value: object) -> bool:
    try:
        check_call_options(TABLE_OPERATIONS["pyhudi.bootstrap"], parse_options({name: value}))
    except InvalidRequest:
        return False
    return True


def _latest(states: list[State], completed: str, before: dict[str, Row]) -> dict[str, Row]:
    """What a service found that ran within a step: the rows of the step's own writes of before it, else those before the step."""
    earlier = [state for state in states if state.completed < completed]
    return max(earlier, key=lambda state: state.completed).rows if earlier else before


def draw_value(rng: random.Random, kind: pa.DataType) -> Any:
    """A value of a type, null at times."""
    if rng.random() < 0.2:
        return None
    if pa.types.is_integer(kind):
        return rng.randint(-5, 5)
    if pa.types.is_floating(kind):
        return rng.choice((float("nan"), -0.0, 0.0, 1.5, -2.5, 3.0))
    if pa.types.is_string(kind):
        return rng.choice(("", "x", "y", "it's", "zebra"))
    if pa.types.is_date(kind):
        return datetime.date(2024, 1, rng.randint(1, 5))
    if pa.types.is_struct(kind):
        return {each.name: draw_value(rng, each.type) for each in kind}
    if pa.types.is_boolean(kind):
        return rng.choice((True, False))
    if pa.types.is_binary(kind):
        return rng.choice((b"", b"\x00\xff", b"abc"))
    if pa.types.is_decimal(kind):
        return Decimal(rng.choice((0, -1, 1, 25, -1250, 10**kind.precision - 1, 99999))).scaleb(-kind.scale)
    if pa.types.is_timestamp(kind):
        zone = datetime.UTC if kind.tz else None
        year = rng.choice((1583, 1899, 1969, 1970, 2024, 2262))
        time = datetime.datetime(year, 1, rng.randint(1, 5), 3, 59, 58, rng.choice((0, 1000, 999000)), tzinfo=zone)
        return time if kind.unit == "ms" else time.replace(microsecond=rng.choice((0, 1, 999_999)))
    if pa.types.is_list(kind):
        return [draw_value(rng, kind.value_type) for _ in range(rng.choice((0, 1, 3)))]
    if pa.types.is_map(kind):
        return [(name, draw_value(rng, kind.item_type)) for name in rng.sample(("", "x", "y"), rng.choice((0, 1, 2)))]
    raise AssertionError(kind)
