"""Updates, merges and schema changes concurrent with writes and all services, in any order, against a dictionary.

The model maps key to column id to value. Plans are made and executed at different steps. Sometimes one action is
suspended while another runs; it then counts as the later one or ends with a conflict.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import HudiError, InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.format.instants import Action, State
from pyhudi.operations.write.update_merge import run_update
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.table.table_context import TableContext
from tests.support.needs import WIDE
from tests.support.paused_write import PausedWrite

KEYS = [f"k{number}" for number in range(6)]
OPTIONS: dict[str, object] = {
    "hoodie.table.services.enabled": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.compact.inline.max.delta.commits": 1,
    "hoodie.log.compaction.blocks.threshold": 1,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.index.bloom.num_entries": 10,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.write.set.null.for.missing.columns": True,
    "pyhudi.schema.mode": "evolve",
    "pyhudi.threads": 1,
}
SETTINGS: dict[str, dict[str, object]] = {
    "plain": {"hoodie.metadata.enable": False},
    "indexes": {
        "hoodie.metadata.record.index.enable": True,
        "hoodie.metadata.index.column.stats.enable": True,
        "hoodie.metadata.index.bloom.filter.enable": True,
    },
    "buckets": {"hoodie.metadata.enable": False, "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2},
    "rings": {
        "hoodie.metadata.enable": False,
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": 2,
    },
    "global": {"hoodie.metadata.enable": False, "hoodie.index.type": "GLOBAL_SIMPLE"},
    "version 9": {"hoodie.write.table.version": 9, "hoodie.metadata.enable": True},
    "virtual keys": {"hoodie.metadata.enable": False, "hoodie.populate.meta.fields": False},
    "omitted": {"hoodie.metadata.enable": False, "hoodie.datasource.write.drop.partition.columns": True},
}
_names = itertools.count()
_PART = -1
"""Stands for the partition among the numbers of columns."""
Row = dict[int, Any]


class PausedAnywhere(PausedWrite):
    """A write that waits, once, before it creates a file whose path ends so, also where one of its tasks does."""

    def __init__(self, context: TableContext, act: Callable[[TableContext], object], before: tuple[str, ...]) -> None:
        self._endings = before
        self._has_waited = False
        super().__init__(replace(context, storage=FaultyStorage(context.storage, listener=self._watch)), act, before="nothing")

    def _watch(self, number: int, call: StorageCall) -> None:
        wanted = call.operation == "put_if_absent" and call.path.endswith(self._endings) and "/metadata/" not in call.path
        if wanted and not self._has_waited:
            self._has_waited = True
            self._pause()


@dataclass
class Model:
    """columns: number -> name, in addition to id, part and ts. rows: key -> number -> value."""

    columns: dict[int, str]
    rows: dict[str, Row]

    def named(self) -> dict[str, dict[str, Any]]:
        return {key: {name: row.get(number) for number, name in self.columns.items()} for key, row in self.rows.items()}


@dataclass
class Run:
    """One table and its model.

    saved: models of savepoints, and of the time before the newest write; done: the executed steps.
    """

    kind: str
    settings: str
    seed: int
    done: list[str] = field(default_factory=list)
    savepoints: dict[str, Model] = field(default_factory=dict)
    before: Model | None = None

    def __post_init__(self) -> None:
        self.draw = random.Random(f"{self.kind} {self.settings} {self.seed}")
        self.environment = ReplayEnvironment(self.seed)
        self.options = {**OPTIONS, **SETTINGS[self.settings]}
        self.uri = f"memory://changed-{next(_names)}"
        Table.create(
            self.uri,
            record_key="id",
            partition_by="part",
            ordering="ts",
            table_type=self.kind,
            options=self.options,
            environment=self.environment,
        )
        self.model = Model({0: "a", 1: "b"}, {})
        self.numbers = itertools.count(2)
        self.values = itertools.count()
        self.upsert()
        self.newest = self.last()

    @property
    def table(self) -> Table:
        self.environment.advance_ms(1000)
        return Table(self.uri, options=self.options, environment=self.environment)

    def data(self, keys: list[str], ahead_ms: int = 0, **more: int) -> pa.Table:
        stamp = self.environment.now_ms() + ahead_ms
        columns = {name: [next(self.values) for _ in keys] for name in (*self.model.columns.values(), *more)}
        # Under a global index a record may come in another partition than it is in.
        moves = self.settings == "global"
        return pa.table(
            {
                "id": keys,
                "part": [self.draw.choice("xy") if moves else _part(key) for key in keys],
                "ts": pa.array([stamp] * len(keys), pa.int64()),
                **{name: pa.array(values, pa.int64()) for name, values in columns.items()},
            }
        )

    def some(self, among: list[str]) -> list[str]:
        return sorted(self.draw.sample(among, self.draw.randint(1, max(1, len(among) // 2)))) if among else []

    def hold(self, data: pa.Table) -> None:
        numbers = {name: number for number, name in self.model.columns.items()}
        for row in data.to_pylist():
            self.model.rows[row["id"]] = self.row_of(row, numbers)

    def row_of(self, row: dict[str, Any], numbers: dict[str, int]) -> Row:
        values = {numbers[name]: value for name, value in row.items() if name in numbers}
        return {_PART: row["part"], **{number: value for number, value in values.items() if number in self.model.columns}}

    # Writes

    def upsert(self) -> None:
        data = self.data(self.some(KEYS))
        self.table.upsert(data)
        self.hold(data)

    def upsert_with_a_new_column(self) -> None:
        number = next(self.numbers)
        data = self.data(self.some(KEYS), **{f"c{number}": number})
        self.table.upsert(data)
        self.model.columns[number] = f"c{number}"
        self.hold(data)

    def delete(self) -> None:
        keys = self.some(sorted(self.model.rows))
        if keys:
            self.table.delete(keys)
            for key in keys:
                del self.model.rows[key]

    def delete_partition(self) -> None:
        self.table.delete_partitions("x")
        self.model.rows = {key: row for key, row in self.model.rows.items() if row[_PART] != "x"}

    def update(self) -> None:
        number = self.draw.choice(sorted(self.model.columns))
        name, value = self.model.columns[number], next(self.values)
        keys = self.some(sorted(self.model.rows))
        self.table.update({name: value}, where=[("id", "in", keys)])
        for key in keys:
            self.model.rows[key][number] = value

    def merge(self) -> None:
        data = self.data(self.some(KEYS))
        number = self.draw.choice(sorted(self.model.columns))
        name, gone = self.model.columns[number], self.draw.choice(KEYS)
        merge = self.table.merge(data, ["id"]).when_matched_delete(where=f"source.id = '{gone}'")
        merge.when_matched_update({name: f"source.{name}"}).when_not_matched_insert_all().execute()
        for row in data.to_pylist():
            key = row["id"]
            if key not in self.model.rows:
                self.model.rows[key] = self.row_of(row, {one: n for n, one in self.model.columns.items()})
            elif key == gone:
                del self.model.rows[key]
            else:
                self.model.rows[key][number] = row[name]

    # Columns

    def add(self) -> None:
        number = next(self.numbers)
        # A name that another column had is taken at times.
        name = self.draw.choice([name for name in ("a", "b", "c", "d", "e") if name not in self.model.columns.values()])
        self.table.alter.add(name, pa.int64())
        self.model.columns[number] = name

    def drop(self) -> None:
        if len(self.model.columns) > 1:
            number = self.draw.choice(sorted(self.model.columns))
            self.table.alter.drop(self.model.columns[number])
            del self.model.columns[number]
            for row in self.model.rows.values():
                row.pop(number, None)

    def rename(self) -> None:
        number = self.draw.choice(sorted(self.model.columns))
        name = self.draw.choice([name for name in ("a", "b", "c", "d", "e", "f") if name not in self.model.columns.values()])
        self.table.alter.rename(self.model.columns[number], name)
        self.model.columns[number] = name

    # Services

    def plan_compaction(self) -> None:
        if self.kind == "mor":
            self.table.schedule_compaction()

    def plan_clustering(self) -> None:
        self.table.schedule_clustering()

    def carry_out(self) -> None:
        pending = self.table.timeline().pending(Action.COMPACTION, Action.CLUSTERING)
        if pending:
            instant = self.draw.choice(pending)
            act = self.table.compact if instant.action is Action.COMPACTION else self.table.cluster
            act(instant.request_time)

    def log_compact(self) -> None:
        if self.kind == "mor":
            self.table.log_compact()

    def clean(self) -> None:
        self.table.clean(dry_run=True)

    def archive(self) -> None:
        self.table.archive()

    # Ways back

    def savepoint(self) -> None:
        done = self.table.timeline().completed_writes()[-1].request_time
        self.table.savepoint(done)
        self.savepoints[done] = copy.deepcopy(self.model)

    def restore(self) -> None:
        if self.savepoints:
            time = self.draw.choice(sorted(self.savepoints))
            self.table.restore(time)
            self.model = copy.deepcopy(self.savepoints[time])
            self.savepoints = {one: model for one, model in self.savepoints.items() if one <= time}

    def roll_back(self) -> None:
        last = self.table.timeline().completed_writes()[-1].request_time
        if self.before is not None and last not in self.savepoints and last == self.newest:
            self.table.rollback(last)
            self.model = self.before

    # Concurrent actions

    def beside(self) -> None:
        """An update or an upsert has its instant, and waits while something else is done."""
        begin = self.draw.choice((self.begin_update, self.begin_upsert, self.begin_carrying_out))
        others = [Run.upsert, Run.update, Run.merge, Run.delete, Run.carry_out, Run.log_compact, Run.clean, Run.archive]
        others += [Run.add, Run.drop, Run.rename, Run.plan_compaction] if begin == self.begin_update else [Run.plan_compaction]
        paused, landed = begin()
        if paused is None:
            return
        other = self.draw.choice(others)
        before = copy.deepcopy(self.model)
        self.done.append(f"({begin.__name__} beside {other.__name__})")
        try:
            other(self)
        except (TableState, InvalidRequest, Unsupported, WriteConflict):
            self.model = before
        try:
            paused.finish()
        except (TableState, InvalidRequest, Unsupported, WriteConflict) as error:
            self.done.append(f"{begin.__name__} ends: {type(error).__name__}")
        else:
            landed()

    def paused(self, act: Callable[[TableContext], object], *, planned: bool = False) -> PausedWrite:
        """It waits before its inflight file, or before its first data file.  planned: by then it has its inflight file."""
        places: list[tuple[str, ...]] = [(".marker.CREATE", ".marker.MERGE", ".marker.APPEND")]
        if not planned:
            # Not that of a rollback, which is written under the lock.
            places.append((".deltacommit.inflight", *(f"{digit}.inflight" for digit in range(10))))
        return PausedAnywhere(self.table.context, act, self.draw.choice(places))

    def parsed(self) -> WriteSettings:
        return WriteSettings.of(parse_options(self.options), WriteOperation.UPSERT)

    def begin_update(self) -> tuple[PausedWrite | None, Callable[[], None]]:
        number, keys = self.draw.choice(sorted(self.model.columns)), self.some(sorted(self.model.rows))
        name, value, settings = self.model.columns[number], next(self.values), self.parsed()

        def landed() -> None:
            # Planned again, it changes the column that has the name by then, and the rows that exist by then.
            for key in set(keys) & set(self.model.rows):
                self.model.rows[key][number] = value

        if not keys or self.settings == "virtual keys":
            return None, landed
        where: Any = [("id", "in", keys)]
        return self.paused(lambda context: run_update(context, LocalEngine(1), {name: value}, where, settings)), landed

    def begin_upsert(self) -> tuple[PausedWrite | None, Callable[[], None]]:
        # Newer than concurrent writes, and older than later ones.
        data, settings = self.data(self.some(KEYS), ahead_ms=500_000), self.parsed()

        def landed() -> None:
            self.environment.advance_ms(1_000_000)
            self.hold(data)

        return self.paused(lambda context: run_write(context, LocalEngine(1), data, settings)), landed

    def begin_carrying_out(self) -> tuple[PausedWrite | None, Callable[[], None]]:
        pending = self.table.timeline().pending(Action.COMPACTION, Action.CLUSTERING)
        planned = [instant for instant in pending if instant.state is State.REQUESTED]
        if not planned:
            return None, lambda: None
        instant = self.draw.choice(planned)

        def act(context: TableContext) -> object:
            table = self.table
            table._open.context = context
            return (table.compact if instant.action is Action.COMPACTION else table.cluster)(instant.request_time)

        return self.paused(act, planned=True), lambda: None

    def step(self) -> None:
        act = self.draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        name = act.__name__
        before, newest = copy.deepcopy(self.model), self.last()
        try:
            act(self)
            self.done.append(name)
        except (TableState, InvalidRequest, Unsupported) as error:
            assert name != "beside"
            self.model = before
            self.done.append(f"{name} refused: {type(error).__name__}")
        if self.last() != newest:
            self.before, self.newest = (None if name in ("restore", "roll_back", "carry_out", "beside") else before), self.last()

    def last(self) -> str:
        return self.table.timeline().completed_writes()[-1].request_time

    def check(self) -> None:
        found = self.table.scan().to_arrow().to_pylist()
        rows = {row.pop("id"): {n: v for n, v in row.items() if n not in ("part", "ts")} for row in found}
        assert len(rows) == len(found), "a key stands there twice"
        assert rows == self.model.named()
        if self.model.rows:
            key = self.draw.choice(sorted(self.model.rows))
            name = self.draw.choice(sorted(self.model.columns.values()))
            value = self.model.named()[key][name]
            test = f"{name} is null" if value is None else f"{name} = {value}"
            assert key in self.table.scan(["id"], filter=test).to_arrow()["id"].to_pylist()
            assert [row[name] for row in self.table.lookup(pa.table({"id": [key]})).to_arrow().to_pylist()] == [value]


def _part(key: str) -> str:
    return "xy"[int(key[1:]) % 2]


WEIGHTS: dict[Callable[[Run], None], int] = {
    Run.upsert: 5,
    Run.upsert_with_a_new_column: 1,
    Run.delete: 2,
    Run.delete_partition: 1,
    Run.update: 4,
    Run.merge: 4,
    Run.add: 2,
    Run.drop: 2,
    Run.rename: 3,
    Run.plan_compaction: 3,
    Run.plan_clustering: 2,
    Run.carry_out: 4,
    Run.log_compact: 2,
    Run.clean: 2,
    Run.archive: 2,
    Run.beside: 6,
    Run.savepoint: 1,
    Run.restore: 1,
    Run.roll_back: 1,
}


NARROW = [("cow", "plain"), ("cow", "omitted"), ("mor", "indexes"), ("mor", "rings"), ("mor", "global"), ("mor", "version 9")]
IMPOSSIBLE = [("cow", "rings"), ("mor", "omitted")]
ALL = [(kind, name) for kind in ("cow", "mor") for name in SETTINGS if (kind, name) not in IMPOSSIBLE]


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(20 if WIDE else 1))
@pytest.mark.parametrize(("kind", "settings"), ALL if WIDE else NARROW)
def test_rows_are_those_of_the_model(kind: str, settings: str, seed: int) -> None:
    run = Run(kind, settings, seed)
    try:
        # What a metadata table adds makes a step several times as dear.
        for _ in range(24 if WIDE else 8 if settings in ("indexes", "version 9") else 16):
            run.step()
            run.check()
        assert run.table.validate(keys=settings != "virtual keys").ok, run.table.validate()
    except (AssertionError, HudiError) as error:
        error.add_note(f"after {', '.join(run.done)}")
        raise
