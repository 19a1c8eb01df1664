"""Non-blocking writers do not change each other's work.

Streams of two to four writers arrive out of order, during compactions, log compactions, cleans and archivals, with
reads at many calls. Then one writer crashes at each changing call.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import WriteConflict
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage
from pyhudi.table.table_context import TableContext
from tests.simulation.checker.actors import Actor, Clock, Stage
from tests.simulation.checker.quick import quickly
from tests.simulation.checker.run import ActorTable
from tests.simulation.interleavings import meeting
from tests.simulation.non_blocking import FIRST, OPTIONS, Batch, merged, rows
from tests.simulation.tables import World, every_file_counts, killed_everywhere
from tests.support.shares import EACH_SHARE, Share

TIMES = int(os.environ.get("PYHUDI_SCHEDULES", "1"))
"""How many times as many interleavings are run."""

KEYS = [f"k{number}" for number in range(6)]
SERVICES = ("compact", "schedule_compaction", "log_compact", "clean", "archive")


class SharedClock(Clock):
    """The clock of the world is that of the actors, so that the store stamps their heartbeats by it."""

    def __init__(self, environment: ReplayEnvironment) -> None:
        self._environment = environment
        self.repetitions = []

    @property
    def now_ms(self) -> int:
        return self._environment.now_ms()

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        self._environment.advance_ms(value - self._environment.now_ms())


class RandomStreams:
    """One run: a function of its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World("mor", OPTIONS)
        self.world.table.upsert(rows(FIRST))
        self.world.environment.advance_ms(1000)
        self.clock = SharedClock(self.world.environment)
        times = self.rng.sample(range(1, 1000), 60)
        self.batches = {
            name: [[(key, times.pop()) for key in self.rng.sample(KEYS, 3)] for _ in range(self.rng.randint(1, 3))]
            for name in "ABCD"[: self.rng.randint(2, 4)]
        }
        self.services = self.rng.choices(SERVICES, k=5)
        self.rate = self.rng.choice((0.02, 0.1, 0.4))
        self.batch_of: dict[str, Batch] = {}
        actors = [*(Actor(name, self._write, seed) for name in self.batches), Actor("S", self._serve, seed)]
        self.stage = Stage(actors, self.clock, self.world.uri, self._decide)

    def run(self) -> None:
        try:
            self.stage.run()
            for actor in self.stage.actors.values():
                if actor.error is not None:
                    raise actor.error
        finally:
            self.stage.close()
        everything = merged([FIRST, *(batch for batches in self.batches.values() for batch in batches)])
        assert self.world.scanned() == everything
        if "clean" not in self.services:
            self._check_changes(everything)
        self.world.table.compact()
        assert self.world.scanned() == everything
        every_file_counts(self.world)
        assert self.world.table.validate().ok

    def check_read(self) -> None:
        """A read at this time finds what has completed."""
        timeline = self.world.table.timeline()
        landed = [batch for time, batch in self.batch_of.items() if timeline.is_completed(time)]
        assert self.world.scanned() == merged([FIRST, *landed])

    def _check_changes(self, everything: dict[str, int]) -> None:
        """Change by change the table comes about, each from what was there."""
        held: dict[str, object] = {}
        for change in self.world.table.changes("earliest", typed=True).to_arrow().to_pylist():
            assert held.get(change["after"]["id"]) == change["before"]
            held[change["after"]["id"]] = change["after"]
        assert {key: row["value"] for key, row in held.items()} == everything  # type: ignore[index]

    def _decide(self, actor: Actor, place: str, count: int) -> str | None:
        if actor.name in self.batches:
            self.batch_of |= dict.fromkeys(actor.requested, self.batches[actor.name][actor.operation - 1])
        if self.rng.random() < 0.02:
            self.check_read()
        return self.rng.choice(list(self.stage.actors)) if self.rng.random() < self.rate else None

    def _open(self, actor: Actor) -> ActorTable:
        actor.begin()
        self.clock.now_ms += 5
        storage = FaultyStorage(open_storage(self.world.uri), listener=actor.watch)
        return ActorTable(storage, actor, self.clock, self.world.options)

    def _write(self, actor: Actor) -> None:
        for batch in self.batches[actor.name]:
            done = self._open(actor).upsert(rows(batch))
            assert done.instant is not None and done.conflict_retries == 0

    def _serve(self, actor: Actor) -> None:
        for method in self.services:
            table = self._open(actor)
            try:
                table.clean(dry_run=False) if method == "clean" else getattr(table, method)()
            except WriteConflict:
                # A log compaction backs off for newer actions.
                assert method == "log_compact"


@EACH_SHARE
def test_concurrent_streams_give_one_result(share: Share) -> None:
    first = 5 * TIMES
    with quickly():
        for seed in range(first) if share is Share.SMOKE else range(first, 24 * TIMES):
            try:
                RandomStreams(seed).run()
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise


DYING: Batch = [("k0", 50), ("k1", 5), ("k2", 50)]
OTHERS: list[Batch] = [[("k0", 10), ("k1", 10), ("k3", 10)], [("k1", 20), ("k2", 20)]]


def write_among_others(run: World, context: TableContext) -> object:
    """The dying writer; during its write another one writes, and a compaction is planned and executed."""

    def others() -> None:
        run.table.upsert(rows(OTHERS[0]))
        run.table.compact()
        run.table.upsert(rows(OTHERS[1]))

    met = meeting(run, others)
    storage = met.storage
    storage._inner = context.storage  # type: ignore[attr-defined]
    settings = WriteSettings.of(parse_options(run.options), WriteOperation.UPSERT)
    return run_write(replace(context, storage=storage), LocalEngine(1), rows(DYING), settings)


def check_other_writers(run: World) -> None:
    done = len(run.table.timeline().completed_writes())
    run.environment.advance_ms(3_600_000)
    wrote = [OTHERS[0], OTHERS[1]] if done > 1 else []
    # The first write, the others' two and their compaction; a fifth is that of the dying one.
    if done == 5:
        wrote.append(DYING)
    assert done in (1, 4, 5)
    assert run.scanned() == merged([FIRST, *wrote])
    last: Batch = [("k4", 1)]
    run.table.upsert(rows(last))
    run.table.clean(dry_run=False)
    assert run.scanned() == merged([FIRST, *wrote, last])
    run.table.compact()
    assert run.scanned() == merged([FIRST, *wrote, last])
    assert not run.table.timeline().pending()
    every_file_counts(run)


@pytest.mark.crash_points
def test_writer_that_crashes_at_any_call_keeps_the_others_complete() -> None:
    world = World("mor", OPTIONS)
    world.table.upsert(rows(FIRST))
    world.environment.advance_ms(1000)
    assert killed_everywhere(world, write_among_others, check_other_writers) > 8
