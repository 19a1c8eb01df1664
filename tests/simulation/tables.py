"""In-memory tables for simulations: created once, copied per run, opened through a storage with injected faults."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import xxhash

from pyhudi import Table
from pyhudi.errors import CommitUnknown, HudiError
from pyhudi.storage import open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import (
    CountedCalls,
    Fault,
    FaultOutcome,
    FaultPoint,
    FaultyStorage,
    SimulatedCrash,
    StorageCall,
)
from pyhudi.storage.locks import InProcessLock
from pyhudi.storage.memory import MemoryStorage
from pyhudi.table.table_context import TableContext
from tests.support.needs import WIDE
from tests.support.shares import chosen, is_smoke

Rows = dict[str, int]
"""Record key -> value."""

# What the metadata table adds is killed in test_metadata_table.py.
SMALL = {
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.fpp": 0.01,
    "hoodie.metadata.enable": False,
}
_names = itertools.count()
T = TypeVar("T")


class World:
    """A table in memory, its clock, and the rows that it should have.  states: rows after each instant."""

    def __init__(self, kind: str, options: Mapping[str, object]) -> None:
        self.environment = ReplayEnvironment(7)
        self.options = {**SMALL, **options}
        self.uri = f"memory://simulation-{next(_names):06}"
        MemoryStorage(self.uri, self.environment)
        self.rows: Rows = {}
        self.states: dict[str, Rows] = {}
        Table.create(
            self.uri,
            record_key="id",
            partition_by="part",
            ordering="ts",
            table_type=kind,
            environment=self.environment,
            options=self.options,
        )

    @property
    def table(self) -> Table:
        """Opened again, as another process would."""
        return Table(self.uri, options=self.options, environment=self.environment)

    def upsert(self, rows: Rows) -> str:
        """Returns the instant."""
        self.environment.advance_ms(1000)
        stamp = self.environment.now_ms()
        keys = sorted(rows)
        data = pa.table(
            {
                "id": keys,
                "part": [partition_of(key) for key in keys],
                "ts": pa.array([stamp] * len(keys), pa.int64()),
                "value": pa.array([rows[key] for key in keys], pa.int64()),
            }
        )
        done = self.table.upsert(data)
        self.rows = {**self.rows, **rows}
        return self._committed(done.instant)

    def delete_partition(self, partition: str) -> str:
        self.environment.advance_ms(1000)
        done = self.table.delete_partitions(partition)
        self.rows = {key: value for key, value in self.rows.items() if partition_of(key) != partition}
        return self._committed(done.instant)

    def copy(self) -> World:
        """The same world in a place of its own."""
        other = object.__new__(World)
        other.environment = ReplayEnvironment(8, self.environment.now_ms() + 1000)
        other.options = dict(self.options)
        other.uri = f"memory://simulation-{next(_names):06}"
        MemoryStorage(other.uri, other.environment)
        other.rows, other.states = dict(self.rows), dict(self.states)
        source, target = open_storage(self.uri), open_storage(other.uri)
        for info in source.walk(""):
            data = source.read(info.path)
            assert data is not None
            target.put(info.path, data)
        return other

    def context(self, fault: Fault | None = None) -> tuple[TableContext, FaultyStorage]:
        """The table behind a storage that fails as planned, under a lock that a dead process does not keep."""
        context = self.table.context
        storage = FaultyStorage(context.storage, fault)
        return replace(context, storage=storage, lock=InProcessLock(f"{self.uri}-{next(_names)}", self.environment)), storage

    def scanned(self, as_of: str | None = None) -> Rows:
        found = self.table.scan(["id", "value"], as_of=as_of).to_arrow()
        rows = dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))
        assert len(rows) == found.num_rows, "a key stands there twice"
        return rows

    def files(self) -> set[str]:
        return {info.path for info in open_storage(self.uri).walk("") if not info.path.startswith(".hoodie/")}

    def _committed(self, instant: str | None) -> str:
        assert instant is not None
        self.states[instant] = dict(self.rows)
        return instant


Act = Callable[[World, TableContext], object]
"""What is done to a table through a context of its own, and may die."""


def partition_of(key: str) -> str:
    return "ab"[int(key[1:]) % 2]


IN_PARTS = ("delete", "delete_folder")
"""Calls that may come to half their effect; the others, and files that are streamed to memory, are there or not."""


def crash_points(calls: Iterable[StorageCall], outcome: FaultOutcome = FaultOutcome.CRASH) -> list[Fault]:
    """Every place where an operation that makes `calls` can die and leave something else.

    Before each writing call, within those that may come to half their effect, and after the last: a death after any other call
    leaves what one before the next leaves (test_tables.py proves it).
    """
    writes = [call for call in calls if call.writes]
    found = []
    for number, call in enumerate(writes, 1):
        found.append(Fault(number, FaultPoint.BEFORE, outcome))
        if call.operation in IN_PARTS:
            found.append(Fault(number, FaultPoint.DURING, outcome))
    return [*found, Fault(len(writes), FaultPoint.AFTER, outcome)] if writes else found


def sampled(faults: Iterable[Fault], calls: Iterable[StorageCall]) -> list[Fault]:
    """The faults of the active share; see `tests.support.shares.chosen`.

    calls: those that the faults count.  Of one kind are the same faults at the same call of files that differ in their instant,
    their file group, their partition or the index that they belong to.
    """
    counted: dict[CountedCalls, list[StorageCall]] = {CountedCalls.READS: [], CountedCalls.WRITES: []}
    for call in calls:
        counted[CountedCalls.WRITES if call.writes else CountedCalls.READS].append(call)
    return chosen(faults, lambda fault: (kind_of(counted[fault.counted][fault.call - 1]), fault.point, fault.counted))


_NAMES = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+")
_INDEXES = re.compile(r"/metadata/(?!\.hoodie)[^/]+(/\.?[a-z-]+)?")


def kind_of(call: StorageCall) -> str:
    """The call without the parts that distinguish two files of one type."""
    path = re.sub(r"/[ab](?=/|$)", "/*", _NAMES.sub("*", call.path))
    return f"{call.operation} {_INDEXES.sub('/metadata/*', path)}"


def killed(world: World, act: Act, fault: Fault) -> World:
    """A copy of the world in which `act` died at the fault."""
    return _killed(world, act, fault)[0]


def killed_everywhere(world: World, act: Act, check: Callable[[World], None]) -> int:
    """Run `act` on copies of the world, killed at its crash points, `sampled`; returns how many writing calls it makes.

    check: what must hold of each copy, and of one in which nothing died.  A crash that leaves the same files as an earlier one is
    checked once.
    """
    whole = world.copy()
    context, storage = whole.context()
    act(whole, context)
    write_count = storage.write_count
    faults = sampled(crash_points(storage.calls), storage.calls)
    states = {durable_state(whole)}
    check(whole)
    for fault in faults:
        run, storage = _killed(world, act, fault)
        state = durable_state(run)
        if state in states:
            continue
        states.add(state)
        try:
            check(run)
        except BaseException as error:
            error.add_note(f"after {fault}: {storage.calls[-1]}")
            raise
    for fault in _slow_faults(write_count):
        run = world.copy()
        context, storage = run.context(fault)
        failure: HudiError | None = None
        try:
            act(run, context)
        except HudiError as error:
            failure = error
        storage.deliver()
        if isinstance(failure, CommitUnknown):
            # No process changes its instant before its heartbeat has ended.
            run.environment.advance_ms(3_600_000)
        if (state := durable_state(run)) in states:
            continue
        states.add(state)
        try:
            check(run)
        except BaseException as error:
            error.add_note(f"after {fault}, which ended with {failure!r}")
            raise
    return write_count


def _slow_faults(write_count: int) -> list[Fault]:
    """Lost answers, late requests and repeated ones: of one writing call in the smoke tier, of three each in the full tier."""
    outcomes = ((FaultOutcome.LOST_RESPONSE, FaultPoint.AFTER), (FaultOutcome.LATE_REQUEST, FaultPoint.BEFORE))
    points = (*outcomes, (FaultOutcome.LOST_RESPONSE, FaultPoint.BEFORE), (FaultOutcome.REPEATED, FaultPoint.AFTER))
    if is_smoke():
        return [Fault(write_count * 2 // 3 + 1, FaultPoint.AFTER, FaultOutcome.LOST_RESPONSE)]
    calls = range(1, write_count + 1) if WIDE else sorted({1 + write_count * part // 4 for part in range(1, 4)})
    return [Fault(call, point, outcome) for outcome, point in points for call in calls if call <= write_count]


def durable_state(world: World) -> bytes:
    """A digest of the paths and contents of all files of the world."""
    digest = xxhash.xxh3_128()
    storage = open_storage(world.uri)
    for info in sorted(storage.walk(""), key=lambda info: info.path):
        data = storage.read(info.path)
        assert data is not None
        digest.update(f"{info.path} {len(data)}\n".encode())
        digest.update(data)
    return digest.digest()


def every_file_counts(run: World) -> None:
    """No data file is left of attempts that failed."""
    timeline = run.table.timeline()
    for path in run.files():
        name = path.rsplit("/", 1)[-1]
        if name.startswith(".hoodie_partition_metadata"):
            continue
        instant = name.split("_")[1].split(".")[0] if name.startswith(".") else name.split("_")[2].split(".")[0]
        assert timeline.is_completed(instant), f"{path} belongs to nothing"


def _killed(world: World, act: Act, fault: Fault) -> tuple[World, FaultyStorage]:
    run = world.copy()
    context, storage = run.context(fault)
    try:
        act(run, context)
    except SimulatedCrash:
        pass
    assert storage.triggered, f"{fault} never came"
    return run, storage
