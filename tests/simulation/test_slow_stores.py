"""A store that answers late, not at all, or twice, at every call of an action: also those of the lock and the heartbeat.

Late, another writer commits before the call takes effect, after it, or while the request is still under way; the lock of
the slow process has expired then. No acknowledged row is lost, neither of that process nor of the other writer, and the
next writers and services continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import CommitUnknown, HudiError, StorageUnavailable, TableState, WriteConflict
from pyhudi.format.instants import Action as HudiAction
from pyhudi.format.instants import Instant, State
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.admin.savepoint import run_savepoint
from pyhudi.operations.changes.arrow_changes import run_update
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import rollback_instant
from pyhudi.operations.services.archive import ArchiveSettings, run_archive
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.operations.services.cluster import ClusterSettings, run_clusterings
from pyhudi.operations.services.compact import CompactSettings, run_compaction, run_log_compaction
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import CountedCalls, Fault, FaultOutcome, FaultPoint, FaultyStorage
from pyhudi.storage.locks import StorageLock
from pyhudi.table.table_context import TableContext
from tests.simulation.crashing_writes import data
from tests.simulation.tables import Rows, World, kind_of, partition_of
from tests.support.needs import WIDE
from tests.support.shares import EACH_SHARE, Share

PLAIN = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.clustering.plan.strategy.sort.columns": "value",
    "hoodie.log.compaction.blocks.threshold": 2,
}
ENGINE = LocalEngine(1)
AWAY_MS = 300_000
CONCURRENT = {"k0": 5000, "k1": 5001, "k7": 5007}
UPSERTED = {"k1": 101, "k2": 102, "k9": 109}
NEXT = {"k1": 6001, "k8": 6008}
CASES_OF_FULL_TIER = 3
"""Calls of an action that are slow in the full tier, for each outcome and point; the wide tier takes all."""

Act = Callable[[World, TableContext, Options], object]


@dataclass(frozen=True, slots=True)
class Action:
    """An action on a table, and the rows that it makes of others."""

    act: Act
    change: Callable[[World, Rows], Rows] = lambda world, rows: rows
    kind: str = "cow"
    metadata: bool = False


def upsert(world: World, context: TableContext, options: Options) -> object:
    return run_write(context, ENGINE, data(world, UPSERTED), WriteSettings.of(options, WriteOperation.UPSERT))


def insert_overwrite(world: World, context: TableContext, options: Options) -> object:
    settings = WriteSettings.of(options, WriteOperation.INSERT_OVERWRITE)
    return run_write(context, ENGINE, data(world, {"k2": 102}), settings)


def update(world: World, context: TableContext, options: Options) -> object:
    settings = WriteSettings.of(options, WriteOperation.UPSERT)
    return run_update(context, ENGINE, {"value": 9}, "value = 303", settings)


def rollback(world: World, context: TableContext, options: Options) -> object:
    last = Instant(sorted(world.states)[3], HudiAction.COMMIT, State.COMPLETED)
    return rollback_instant(context, last, CommitSettings.of(options))


def restore(world: World, context: TableContext, options: Options) -> object:
    return run_restore(context, CommitSettings.of(options), sorted(world.states)[2])


def _overwritten(world: World, rows: Rows) -> Rows:
    return {**{key: value for key, value in rows.items() if partition_of(key) != partition_of("k2")}, "k2": 102}


def _updated(world: World, rows: Rows) -> Rows:
    return {key: 9 if value == 303 else value for key, value in rows.items()}


def _before_last(world: World, rows: Rows) -> Rows:
    return dict(world.states[sorted(world.states)[2]])


ACTIONS = {
    "upsert": Action(upsert, lambda world, rows: {**rows, **UPSERTED}),
    "upsert of logs": Action(upsert, lambda world, rows: {**rows, **UPSERTED}, "mor"),
    "upsert with a metadata table": Action(upsert, lambda world, rows: {**rows, **UPSERTED}, metadata=True),
    "insert_overwrite": Action(insert_overwrite, _overwritten),
    "update": Action(update, _updated),
    "compaction": Action(lambda w, c, o: run_compaction(c, ENGINE, CompactSettings.of(o)), kind="mor"),
    "log compaction": Action(lambda w, c, o: run_log_compaction(c, ENGINE, CompactSettings.of(o)), kind="mor"),
    "clustering": Action(lambda w, c, o: run_clusterings(c, ENGINE, ClusterSettings.of(o))),
    "clean": Action(lambda w, c, o: run_clean(c, CleanSettings.of(o))),
    "archive": Action(lambda w, c, o: run_archive(c, ArchiveSettings.of(o))),
    "rollback": Action(rollback, _before_last),
    "restore": Action(restore, _before_last),
    "savepoint": Action(lambda w, c, o: run_savepoint(c, CommitSettings.of(o))),
}
OUTCOMES = [
    (FaultOutcome.LOST_RESPONSE, FaultPoint.BEFORE),
    (FaultOutcome.LOST_RESPONSE, FaultPoint.AFTER),
    (FaultOutcome.LATE_RESPONSE, FaultPoint.BEFORE),
    (FaultOutcome.LATE_RESPONSE, FaultPoint.AFTER),
    (FaultOutcome.LATE_REQUEST, FaultPoint.BEFORE),
    (FaultOutcome.REPEATED, FaultPoint.AFTER),
]


class SlowProcess:
    """A process with its own clock, whose lock, heartbeats and files are behind one storage with a fault."""

    def __init__(self, world: World, fault: Fault | None = None) -> None:
        self.world = world
        self.concurrent = False
        self.clock = ReplayEnvironment(9, world.environment.now_ms())
        context = world.table.context
        self.storage = FaultyStorage(context.storage, fault, meanwhile=self._others)
        self.context = replace(context, storage=self.storage, lock=StorageLock(self.storage, self.clock), env=self.clock)

    def _others(self) -> None:
        """Time passes, and another writer commits unless the action refuses it."""
        self.world.environment.advance_ms(AWAY_MS)
        with suppress(TableState):
            self.world.upsert(CONCURRENT)
            self.concurrent = True
        self.clock.stall_ms(max(0, self.world.environment.now_ms() - self.clock.now_ms()))


def world_of(kind: str, *, metadata: bool) -> World:
    world = World(kind, {**PLAIN, "hoodie.metadata.enable": metadata})
    for number in range(4):
        world.upsert({f"k{key}": number * 100 + key for key in range(number, number + 4)})
    return world


def spread(items: Sequence[int], count: int) -> list[int]:
    """So many of the items, evenly."""
    return (
        [items[number * len(items) // count] for number in range(min(count, len(items)))] if len(items) > count else list(items)
    )


def check(world: World, run: World, process: SlowProcess, action: Action, failure: HudiError | None) -> None:
    def concurrent(rows: Rows) -> Rows:
        return {**rows, **CONCURRENT} if process.concurrent else rows

    def own(rows: Rows) -> Rows:
        return action.change(world, rows)

    before = dict(world.rows)
    states = [concurrent(own(before)), own(concurrent(before))]
    if failure is not None:
        # A writer that gets an error does not know whether a step took effect; a conflict has none.
        states = [concurrent(before), *(() if isinstance(failure, WriteConflict) else states)]
    run.environment.advance_ms(3_600_000)
    run.rows = {}
    run.upsert(NEXT)
    found = run.scanned()
    assert found in [{**rows, **NEXT} for rows in states], found
    run.rows = found
    run.table.clean(dry_run=False)
    run.table.run_services(["compact", "log_compact", "cluster"])
    run.upsert({"k2": 7002})
    assert run.scanned() == run.rows
    assert run.table.validate().ok, str(run.table.validate())


@pytest.mark.sample(10)
@EACH_SHARE
@pytest.mark.parametrize(("outcome", "point"), OUTCOMES)
@pytest.mark.parametrize("name", ACTIONS)
def test_each_call(name: str, outcome: FaultOutcome, point: FaultPoint, share: Share) -> None:
    action = ACTIONS[name]
    world = world_of(action.kind, metadata=action.metadata)
    whole = SlowProcess(world.copy())
    action.act(whole.world, whole.context, parse_options(world.options))
    calls = whole.storage.calls
    numbers = [number for number, call in enumerate(calls, 1) if outcome is FaultOutcome.LATE_RESPONSE or call.writes]
    chosen = numbers if WIDE else spread(numbers, CASES_OF_FULL_TIER)
    middle = numbers[len(numbers) // 2]
    for number in [middle] if share is Share.SMOKE else chosen:
        run = world.copy()
        process = SlowProcess(run, Fault(number, point, outcome, CountedCalls.ALL))
        failure: HudiError | None = None
        try:
            action.act(run, process.context, parse_options(world.options))
        except HudiError as error:
            failure = error
        process.storage.deliver()
        try:
            assert process.storage.triggered
            assert failure is None or isinstance(failure, StorageUnavailable | CommitUnknown | WriteConflict | TableState), (
                failure
            )
            check(world, run, process, action, failure)
        except BaseException as error:
            error.add_note(f"call {number} of {len(calls)}, {kind_of(calls[number - 1])}; it ended with {failure!r}")
            raise
