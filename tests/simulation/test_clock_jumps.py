"""A machine's clock jumps by an hour, forward or back, between any two steps of a process.

No held lease is taken over, no acknowledged write is lost, instant times only grow, and all processes proceed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import StorageUnavailable
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.operations.services.cluster import ClusterSettings, run_clusterings
from pyhudi.operations.services.compact import CompactSettings, run_compaction
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.supported import parse_options
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.locks import StorageLock
from pyhudi.storage.memory import MemoryStorage
from pyhudi.table.table_context import TableContext
from tests.simulation.interleavings import rows
from tests.simulation.tables import World

OPTIONS: dict[str, object] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.clustering.plan.strategy.sort.columns": "value",
    "pyhudi.threads": 1,
}
MODES: dict[str, dict[str, object]] = {
    "optimistic": {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"},
    "lazy": {"hoodie.clean.failed.writes.policy": "LAZY"},
    "non-blocking": {
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": 2,
    },
}
HOUR_MS = 3_600_000
JUMPS = {"ahead": HOUR_MS, "back": -HOUR_MS}
# Every step takes half a minute: PYHUDI_STRIDE=1.
STRIDE = int(os.environ.get("PYHUDI_STRIDE", "6"))


class JumpingClockProcess:
    """A process on a machine of its own, whose clock is set at its storage call number `at`.  at: 0 for never."""

    def __init__(self, world: World, at: int, jump_ms: int) -> None:
        self._world, self._at, self._jump_ms = world, at, jump_ms
        self.clock = ReplayEnvironment(9, world.environment.now_ms())
        self.steps: list[str] = []
        context = world.table.context
        self.lock = StorageLock(context.storage, self.clock, label="here-")
        storage = FaultyStorage(context.storage, listener=self._watch)
        self.context = replace(context, storage=storage, lock=self.lock, env=self.clock)

    def _watch(self, number: int, call: StorageCall) -> None:
        self.steps.append(f"{call.operation} {call.path}")
        if len(self.steps) == self._at:
            self.clock.step_ms(self._jump_ms)
            self._renew()
            if self.lock.owner is not None:
                other = StorageLock(self._world.table.context.storage, self._world.environment, label="there-")
                with pytest.raises(StorageUnavailable, match="holds it"):
                    other.acquire(0)

    def _renew(self) -> None:
        """Time goes on for both alike, and the lease is renewed in it."""
        self._world.environment.advance_ms(11_000)
        self.clock.advance_ms(11_000)


Act = Callable[[TableContext, World, Options], object]
ACTS: dict[str, tuple[str, Act]] = {
    "upsert": (
        "mor",
        lambda context, world, options: run_write(
            context, LocalEngine(1), rows(world, k0=700, k8=708), WriteSettings.of(options, WriteOperation.UPSERT)
        ),
    ),
    "compaction": ("mor", lambda context, world, options: run_compaction(context, LocalEngine(1), CompactSettings.of(options))),
    "clustering": ("cow", lambda context, world, options: run_clusterings(context, LocalEngine(1), ClusterSettings.of(options))),
    "clean": ("cow", lambda context, world, options: run_clean(context, CleanSettings.of(options))),
}


def jump(made: World, name: str, at: int, jump_ms: int) -> int:
    """One run; how many calls were made."""
    world = made.copy()
    machine = JumpingClockProcess(world, at, jump_ms)
    ACTS[name][1](machine.context, world, parse_options(world.options))
    if name == "upsert":
        world.rows = {**world.rows, "k0": 700, "k8": 708}
    try:
        before = max(i.request_time for i in world.table.timeline().instants)
        last = world.upsert({"k1": 9001, "k6": 9006})
        assert last > before
        check(world)
    except BaseException as error:
        error.add_note(f"the clock was set at call {at}, {machine.steps[at - 1]}")
        raise
    return len(machine.steps)


def check(world: World) -> None:
    instants = world.table.timeline().completed()
    assert [time for time, count in Counter(i.request_time for i in instants).items() if count > 1] == []
    assert all((i.completion_time or "") > i.request_time for i in instants)
    assert world.table.timeline().pending() == ()
    assert world.scanned() == world.rows
    assert world.table.validate().ok


RUNS = [
    pytest.param(name, mode, marks=() if mode == "optimistic" or name == "upsert" else pytest.mark.wide, id=f"{name}-{mode}")
    for name in ACTS
    for mode in MODES
    if mode != "non-blocking" or name in ("upsert", "compaction")
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("direction", JUMPS)
@pytest.mark.parametrize(("name", "mode"), RUNS)
def test_clock_jump_between_any_two_steps(name: str, mode: str, direction: str) -> None:
    made = World(ACTS[name][0], {**OPTIONS, **MODES[mode]})
    for number in range(3):
        made.upsert({f"k{key}": number * 100 + key for key in range(number, number + 4)})
    steps = jump(made, name, 0, 0)
    for at in range(1 + list(JUMPS).index(direction), steps + 1, STRIDE):
        jump(made, name, at, JUMPS[direction])


@pytest.fixture
def storage() -> Storage:
    MemoryStorage("memory://clocks-that-jump", ReplayEnvironment(1)).delete_folder(".hoodie")
    return open_storage("memory://clocks-that-jump")


def test_a_lease_that_is_renewed_by_a_clock_that_was_set_back_is_held(storage: Storage) -> None:
    here, there = ReplayEnvironment(1), ReplayEnvironment(2)
    holder = StorageLock(storage, here, label="here-")
    holder.acquire()
    here.step_ms(-HOUR_MS)
    here.advance_ms(11_000)
    there.advance_ms(11_000)
    with pytest.raises(StorageUnavailable, match="holds it"):
        StorageLock(storage, there, label="there-").acquire(0)
    holder.check()


def test_waiter_with_an_advanced_clock_does_not_take_a_held_lease(storage: Storage) -> None:
    here, there = ReplayEnvironment(1), ReplayEnvironment(2)
    holder, waiter = StorageLock(storage, here, label="here-"), StorageLock(storage, there, label="there-")
    holder.acquire()

    def passes() -> None:
        here.advance_ms(1000)

    there.every_ms(1000, passes)
    there.every_ms(5000, lambda: there.step_ms(HOUR_MS))
    with pytest.raises(StorageUnavailable, match="holds it"):
        waiter.acquire(20_000)
    holder.check()


def test_lease_of_a_crashed_host_expires_for_waiters_with_changed_clocks(storage: Storage) -> None:
    dead, there = ReplayEnvironment(1), ReplayEnvironment(2)
    StorageLock(storage, dead, label="dead-").acquire()
    there.every_ms(5000, lambda: there.step_ms(-HOUR_MS))
    begun_ms = there.monotonic_ms()
    StorageLock(storage, there, label="there-").acquire(120_000)
    assert there.monotonic_ms() - begun_ms < 65_000
