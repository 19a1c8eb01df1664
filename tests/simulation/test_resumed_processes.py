"""A process is suspended for an hour at every call; others consider it dead, roll its work back and repeat it.

After it resumes, it publishes nothing: each action is on the timeline once, no acknowledged write is lost, keys are
unique, and all processes proceed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import HudiError, TableState
from pyhudi.operations.services.cluster import ClusterSettings, run_clusterings
from pyhudi.operations.services.compact import CompactSettings, run_compaction, run_log_compaction
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.locks import StorageLock
from tests.simulation.interleavings import rows
from tests.simulation.tables import World

OCC: dict[str, object] = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
NON_BLOCKING: dict[str, object] = {
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": 2,
}
MODES: dict[str, dict[str, object]] = {"single writer": {}, "optimistic": OCC, "non-blocking": NON_BLOCKING}
"""Whatever mode there is, one row."""
OPTIONS: dict[str, object] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.write.num.retries.on.conflict.failures": 0,
    "hoodie.clustering.plan.strategy.sort.columns": "value",
    "hoodie.log.compaction.blocks.threshold": 2,
    "pyhudi.threads": 1,
}
AWAY_MS = 3_600_000
# Every step in each mode takes a minute: PYHUDI_STRIDE=1.
STRIDE = int(os.environ.get("PYHUDI_STRIDE", "5"))


class SuspendedProcess:
    """A process with a clock of its own, which sleeps at its step number `at`.  at: 0 for never.

    A step is a call of the storage or a proof that the lock is held.  What changes the table under the lock is none: between a
    proof and the end of the next call no store can detect.
    beats: after it wakes, its heartbeat goes on before anything else does.
    """

    def __init__(self, world: World, at: int, renews_heartbeats: bool, act_concurrently: Callable[[], object]) -> None:
        self._world, self._at, self._renews_heartbeats, self._act_concurrently = world, at, renews_heartbeats, act_concurrently
        self.clock = ReplayEnvironment(9, world.environment.now_ms())
        self.steps: list[str] = []
        context = world.table.context
        storage = FaultyStorage(context.storage, listener=self._watch)
        self._lock = _SteppedLock(context.storage, self.clock)
        self._lock.step = self._step
        self.context = replace(context, storage=storage, lock=self._lock, env=self.clock)

    def _watch(self, number: int, call: StorageCall) -> None:
        if not (call.writes and self._lock.owner is not None):
            self._step(f"{call.operation} {call.path}")

    def _step(self, what: str) -> None:
        self.steps.append(what)
        if len(self.steps) != self._at:
            return
        self._world.environment.advance_ms(AWAY_MS)
        self._act_concurrently()
        self.clock.stall_ms(self._world.environment.now_ms() - self.clock.now_ms())
        if self._renews_heartbeats:
            self.clock.advance_ms(60_001)


class _SteppedLock(StorageLock):
    step: Callable[[str], None]

    def check(self) -> None:
        self.step("proof of the lock")
        super().check()


class Attack:
    """The action of the sleeper, and what the others do with it while it sleeps.

    plan: makes the plan that both execute.
    """

    kind = "mor"

    def plan(self, world: World) -> str:
        return ""

    def act(self, suspended: SuspendedProcess, world: World, plan: str) -> object:
        raise NotImplementedError

    def take_over(self, world: World, plan: str) -> object:
        raise NotImplementedError


class Upsert(Attack):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def act(self, suspended: SuspendedProcess, world: World, plan: str) -> object:
        settings = WriteSettings.of(parse_options(world.options), WriteOperation.UPSERT)
        return run_write(suspended.context, LocalEngine(1), rows(world, k0=700, k8=708), settings)

    def take_over(self, world: World, plan: str) -> object:
        # Under optimistic control it is the clean that rolls back what died.
        return world.table.clean(dry_run=True)


class Compaction(Attack):
    def plan(self, world: World) -> str:
        return str(world.table.schedule_compaction().planned)

    def act(self, suspended: SuspendedProcess, world: World, plan: str) -> object:
        return run_compaction(suspended.context, LocalEngine(1), CompactSettings.of(parse_options(world.options)), plan)

    def take_over(self, world: World, plan: str) -> object:
        return world.table.compact(plan)


class LogCompaction(Attack):
    def plan(self, world: World) -> str:
        return str(world.table.schedule_log_compaction().planned)

    def act(self, suspended: SuspendedProcess, world: World, plan: str) -> object:
        return run_log_compaction(suspended.context, LocalEngine(1), CompactSettings.of(parse_options(world.options)), plan)

    def take_over(self, world: World, plan: str) -> object:
        return world.table.log_compact()


class Clustering(Attack):
    kind = "cow"

    def plan(self, world: World) -> str:
        return str(world.table.schedule_clustering().instant)

    def act(self, suspended: SuspendedProcess, world: World, plan: str) -> object:
        return run_clusterings(
            suspended.context, LocalEngine(1), ClusterSettings.of(parse_options(world.options)), schedule=False
        )

    def take_over(self, world: World, plan: str) -> object:
        return world.table.cluster(plan)


def check(run: World) -> None:
    names = [info.name.split("_")[0] for info in run.table.context.storage.list(".hoodie/timeline").files if "_" in info.name]
    assert [time for time, count in Counter(names).items() if count > 1] == [], "an action completed twice"
    assert run.scanned() == run.rows
    run.table.clean(dry_run=True)
    run.table.run_services(["compact", "log_compact", "cluster"])
    run.upsert({"k1": 6001, "k6": 6006})
    assert run.scanned() == run.rows
    validated = run.table.validate()
    assert validated.ok, str(validated)


def run_suspended(made: World, attack: Attack, at: int, renews_heartbeats: bool) -> int:
    """One run; how many calls the sleeper made until it slept, or in all."""
    world = made.copy()
    plan = attack.plan(world)

    def act_concurrently() -> None:
        with suppress(TableState):
            attack.take_over(world, plan)
        world.upsert({"k0": 5000, "k7": 5007})

    suspended, failure = SuspendedProcess(world, at, renews_heartbeats, act_concurrently), None
    try:
        attack.act(suspended, world, plan)
    except HudiError as error:
        failure = error
    if isinstance(attack, Upsert) and failure is None:
        # The later of the two has the greater ordering value, regardless of which one commits last.
        world.rows = {**world.rows, "k8": 708, **({} if at else {"k0": 700})}
    try:
        check(world)
    except BaseException as error:
        error.add_note(f"slept at step {at}, {suspended.steps[at - 1]}; beats {renews_heartbeats}; it ended with {failure!r}")
        raise
    return len(suspended.steps)


ATTACKS = {
    "upsert cow": Upsert("cow"),
    "upsert mor": Upsert("mor"),
    "compaction": Compaction(),
    "log compaction": LogCompaction(),
    "clustering": Clustering(),
}


# What does not wait for others takes merge on read in buckets, of which no clustering is made.
RUNS = [(name, mode) for name in ATTACKS for mode in MODES if mode != "non-blocking" or ATTACKS[name].kind == "mor"]


@pytest.mark.parametrize(("name", "mode"), RUNS)
def test_resumed_process_publishes_nothing(name: str, mode: str) -> None:
    attack = ATTACKS[name]
    made = World(attack.kind, {**OPTIONS, **MODES[mode]})
    for number in range(3):
        made.upsert({f"k{key}": number * 100 + key for key in range(number, number + 4)})
    steps = run_suspended(made, attack, 0, False)
    assert steps > 20
    for turn, at in enumerate(range(1 + list(MODES).index(mode), steps + 1, STRIDE)):
        run_suspended(made, attack, at, renews_heartbeats=turn % 2 == 0)
