"""The put of a completed file takes effect after the lock was lost: the writer looks, and no acknowledged row is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import CommitUnknown, StorageUnavailable
from pyhudi.format.instants import Action
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import CountedCalls, Fault, FaultOutcome, FaultPoint, FaultyStorage
from pyhudi.storage.locks import StorageLock
from tests.simulation.crashing_writes import OPTIONS, data
from tests.simulation.tables import World

OWN = {"k1": 101, "k9": 109}
OTHERS = {"k3": 503, "k5": 505}
AWAY_MS = 60_000


class Writer:
    """A writer with a slow connection. publishing: number of the call that puts its completed file."""

    def __init__(self, world: World, meanwhile: Callable[[], object], outcome: FaultOutcome | None, point: FaultPoint) -> None:
        self.world = world
        self.clock = ReplayEnvironment(9, world.environment.now_ms())
        self.others = meanwhile
        fault = None if outcome is None else Fault(self.publishing(), point, outcome, CountedCalls.ALL)
        context = world.table.context
        self.storage = FaultyStorage(context.storage, fault, meanwhile=self._others_act)
        self.context = replace(context, storage=self.storage, lock=StorageLock(self.storage, self.clock), env=self.clock)

    def publishing(self) -> int:
        run = Writer(self.world.copy(), lambda: None, None, FaultPoint.BEFORE)
        run.upsert()
        writes = ((n, call.path) for n, call in enumerate(run.storage.calls, 1) if call.writes)
        return next(n for n, path in writes if path.endswith("commit") and "/metadata/" not in path)

    def upsert(self) -> str | None:
        settings = WriteSettings.of(parse_options(self.world.options), WriteOperation.UPSERT)
        return run_write(self.context, LocalEngine(1), data(self.world, OWN), settings).instant

    def _others_act(self) -> None:
        self.world.environment.advance_ms(AWAY_MS)
        self.others()
        self.world.environment.advance_ms(1000)
        self.clock.stall_ms(self.world.environment.now_ms() - self.clock.now_ms())


def world_of(kind: str) -> World:
    world = World(kind, {**OPTIONS, "hoodie.compact.inline": False, "hoodie.metadata.enable": True})
    world.upsert({f"k{number}": number for number in range(6)})
    world.upsert({"k1": 11, "k3": 13})
    return world


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("action", ["upsert", "compaction", "clustering"])
def test_a_late_commit_is_rolled_back_and_planned_again(kind: str, action: str) -> None:
    world = world_of(kind)
    acts: dict[str, Callable[[], object]] = {
        "upsert": lambda: world.upsert(OTHERS),
        "compaction": lambda: world.table.compact(options={"hoodie.compact.inline.max.delta.commits": 1}),
        "clustering": lambda: world.table.cluster(options={"hoodie.clustering.plan.strategy.sort.columns": "value"}),
    }
    if (kind, action) == ("cow", "compaction"):
        return
    writer = Writer(world, acts[action], FaultOutcome.LATE_RESPONSE, FaultPoint.BEFORE)
    assert writer.upsert()
    assert writer.storage.triggered
    assert world.scanned() == {**world.rows, **OWN}
    timeline = world.table.timeline()
    assert len(timeline.completed(Action.ROLLBACK)) == 1 and not timeline.pending()
    world.upsert({"k2": 42})
    assert world.scanned() == {**world.rows, **OWN, "k2": 42}
    assert world.table.validate().ok, str(world.table.validate())


def test_a_commit_that_was_stored_before_the_lease_expired_is_right() -> None:
    """Only its answer is late; the other writer has seen it."""
    world = world_of("cow")
    writer = Writer(world, lambda: world.upsert(OTHERS), FaultOutcome.LATE_RESPONSE, FaultPoint.AFTER)
    instant = writer.upsert()
    assert world.scanned() == {**world.rows, **OWN, **OTHERS}
    assert instant in {i.request_time for i in world.table.timeline().completed_writes()}
    assert not world.table.timeline().completed(Action.ROLLBACK)


def test_a_commit_that_was_not_stored_is_published_again() -> None:
    world = world_of("cow")
    writer = Writer(world, lambda: None, FaultOutcome.LOST_RESPONSE, FaultPoint.BEFORE)
    assert writer.upsert()
    assert world.scanned() == {**world.rows, **OWN}


def test_a_commit_under_way_while_others_commit_is_unknown_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of("cow")
    other = world.table

    def others() -> None:
        other.upsert(data(world, {"k3": 503}))

    others()
    writer = Writer(world, others, FaultOutcome.LATE_RESPONSE, FaultPoint.BEFORE)
    path: list[str] = []

    class Deaf:
        """The store executes a put of a completed file later, and never answers it."""

        def __getattr__(self, name: str) -> object:
            return getattr(writer.storage, name)

        def put_if_absent(self, name: str, content: bytes) -> bool:
            if not name.endswith(".commit"):
                return writer.storage.put_if_absent(name, content)
            if not path:
                path.extend((name, content.hex()))
                writer._others_act()
            raise StorageUnavailable("no answer")

    deaf = Deaf()
    writer.context = replace(writer.context, storage=deaf, lock=StorageLock(deaf, writer.clock))  # type: ignore[arg-type]
    with pytest.raises(CommitUnknown, match="delete nothing"):
        writer.upsert()
    world.table.context.storage.put_if_absent(path[0], bytes.fromhex(path[1]))
    with caplog.at_level(logging.WARNING, "pyhudi"):
        other.upsert(data(world, {"k4": 504}))
    assert any("reached the store after later commits" in record.message for record in caplog.records)
