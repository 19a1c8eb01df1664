"""Services and repairs verify lock ownership before each change of the timeline.

A suspended process does not know how long it was suspended; a change without that check could repeat an action that
others finished, rolled back or archived. The inflight file of a write needs no check, because a write cannot complete
without its requested file (see `Transaction.check_ownership`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import StorageUnavailable
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.admin.repair import RepairSettings, run_repair
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.admin.savepoint import run_savepoint
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import finish_pending_rollbacks, rollback_instant
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.operations.services.cluster import ClusterSettings, run_clusterings
from pyhudi.operations.services.compact import CompactSettings, run_compaction, run_log_compaction
from pyhudi.options.declaration import Options
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, StorageCall
from pyhudi.storage.heartbeats import delete_heartbeat
from pyhudi.storage.locks import StorageLock
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, killed

OPTIONS = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.clustering.plan.strategy.sort.columns": "value",
    "hoodie.log.compaction.blocks.threshold": 2,
}
ENGINE = LocalEngine(1)
Act = Callable[[TableContext, Options], object]


class Witness(StorageLock):
    """The lock of a table, and a storage of which each change is noted that does not follow a proof that the lock is held."""

    def __init__(self, world: World) -> None:
        context = world.table.context
        super().__init__(context.storage, world.environment)
        self.proven = False
        self.unproven: list[StorageCall] = []
        self.changes = 0
        storage = FaultyStorage(context.storage, listener=self._watch)
        self.context = replace(context, storage=storage, lock=self)

    def check(self) -> None:
        super().check()
        self.proven = True

    def _watch(self, number: int, call: StorageCall) -> None:
        deletes_data = call.operation == "delete" and "/.hoodie/" not in call.path
        if call.writes and ("/.hoodie/timeline/" in call.path or deletes_data):
            self.changes += 1
            if not self.proven:
                self.unproven.append(call)
            self.proven = False


def world_with_commits(kind: str) -> World:
    world = World(kind, OPTIONS)
    for number in range(4):
        world.upsert({f"k{key}": number * 100 + key for key in range(number, number + 4)})
    return world


def clean(context: TableContext, options: Options) -> object:
    return run_clean(context, CleanSettings.of(options))


def rollback(context: TableContext, options: Options) -> object:
    last = context.timeline.load().last_completed_write()
    assert last is not None
    return rollback_instant(context, last, CommitSettings.of(options))


def restore(context: TableContext, options: Options) -> object:
    return run_restore(context, CommitSettings.of(options), context.timeline.load().completed_writes()[-2].request_time)


def savepoint(context: TableContext, options: Options) -> object:
    return run_savepoint(context, CommitSettings.of(options))


def compaction(context: TableContext, options: Options) -> object:
    return run_compaction(context, ENGINE, CompactSettings.of(options))


def log_compaction(context: TableContext, options: Options) -> object:
    return run_log_compaction(context, ENGINE, CompactSettings.of(options))


def clustering(context: TableContext, options: Options) -> object:
    return run_clusterings(context, ENGINE, ClusterSettings.of(options))


def of_timeline(calls: list[StorageCall]) -> list[StorageCall]:
    return [call for call in calls if "/.hoodie/timeline/" in call.path]


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (clean, "cow"),
        (rollback, "cow"),
        (restore, "cow"),
        (savepoint, "cow"),
        (compaction, "mor"),
        (log_compaction, "mor"),
        (clustering, "cow"),
    ],
)
def test_each_timeline_change_verifies_the_lease(act: Act, kind: str) -> None:
    witness = Witness(world_with_commits(kind))
    act(witness.context, parse_options(OPTIONS))
    assert witness.changes >= 2 and of_timeline(witness.unproven) == []


@pytest.mark.parametrize("act", [clean, rollback, restore])
def test_failed_actions_are_finished_with_a_verified_lease(act: Act) -> None:
    """Killed after each of its calls in turn; the next one that looks begins, finishes or drops what is left."""
    world, number = world_with_commits("cow"), 0
    while True:
        number += 1
        run = killed(world, lambda run, context: act(context, parse_options(run.options)), Fault(number, FaultPoint.AFTER))
        if not run.table.timeline().pending():
            if number > 2:
                break
            continue
        witness, options = Witness(run), parse_options(run.options)
        if act is restore:
            plan = run.table.timeline().completed_writes()
            run_restore(
                witness.context, CommitSettings.of(options), plan[-1].request_time if len(plan) < 4 else plan[-2].request_time
            )
        elif act is rollback:
            finish_pending_rollbacks(witness.context, CommitSettings.of(options), run.table.timeline())
        else:
            clean(witness.context, options)
        assert of_timeline(witness.unproven) == [], number
        assert not run.table.timeline().pending(Action.CLEAN, Action.ROLLBACK, Action.RESTORE)
    assert number > 3


@pytest.mark.parametrize("action", [Action.ROLLBACK, Action.CLEAN, Action.RESTORE])
def test_unreadable_plan_is_dropped_with_a_verified_lease(action: Action) -> None:
    world = world_with_commits("cow")
    context = world.table.context
    time = f"{int(world.table.timeline().latest_time()) + 1}"
    context.storage.put(context.timeline.path(Instant(time, action, State.REQUESTED)), b"half a pl")
    world.environment.advance_ms(3_600_000)
    witness, options = Witness(world), parse_options(OPTIONS)
    if action is Action.ROLLBACK:
        finish_pending_rollbacks(witness.context, CommitSettings.of(options), world.table.timeline())
    elif action is Action.CLEAN:
        clean(witness.context, options)
    else:
        restore(witness.context, options)
    assert witness.changes >= 1 and of_timeline(witness.unproven) == []
    assert time not in {i.request_time for i in world.table.timeline().pending()}
    assert world.table.validate().ok


def test_partly_stored_plan_is_not_reported_as_corrupt() -> None:
    """The process that stores it holds the lock; a store may show a part of it before."""
    world = world_with_commits("cow")
    context = world.table.context
    time = f"{int(world.table.timeline().latest_time()) + 1}"
    requested = context.timeline.path(Instant(time, Action.ROLLBACK, State.REQUESTED))
    lock = StorageLock(context.storage, world.environment)
    settings = replace(CommitSettings.of(parse_options(OPTIONS)), lock_wait_ms=1)
    with lock.held(1000):
        context.storage.put(requested, b"half a pl")
        other = replace(context, lock=StorageLock(context.storage, world.environment))
        with pytest.raises(StorageUnavailable):
            finish_pending_rollbacks(other, settings, world.table.timeline())
        assert context.storage.read(requested) == b"half a pl"


def test_orphans_are_deleted_with_a_verified_lease() -> None:
    world = world_with_commits("cow")
    storage = world.table.context.storage
    base = next(info for info in storage.walk("a") if info.name.endswith(".parquet"))
    later = int(world.table.timeline().latest_time()) + 1
    left, data = f"{base.path.rsplit('_', 1)[0]}_{later}.parquet", storage.read(base.path)
    assert data is not None
    storage.put(left, data)
    witness = Witness(world)
    settings = RepairSettings.of(parse_options(OPTIONS))
    assert run_repair(witness.context, ENGINE, settings, dry_run=False).steps[0].path == left
    assert storage.stat(left) is None and witness.unproven == []
    assert world.scanned() == world.rows


def test_old_clean_plan_that_just_started_is_running() -> None:
    """Apache Hudi's services may plan one and carry it out much later, without a sign of life."""
    world = world_with_commits("cow")
    run = killed(
        world,
        lambda run, context: clean(context, parse_options(run.options)),
        Fault(began(world), FaultPoint.AFTER),
    )
    (pending,) = run.table.timeline().pending(Action.CLEAN)
    assert pending.state is State.INFLIGHT
    context = run.table.context
    delete_heartbeat(context.storage, pending.request_time)
    inflight = context.timeline.path(pending)
    begun = context.storage.read(inflight)
    assert begun is not None
    run.environment.advance_ms(36_000_000)
    context.storage.put(inflight, begun)
    assert table_cleans(run.table) == ()
    run.environment.advance_ms(3_600_000)
    assert table_cleans(run.table) == (pending.request_time,)
    assert run.scanned() == run.rows


def table_cleans(table: Table) -> tuple[str, ...]:
    return table.clean(dry_run=False).finished


def began(world: World) -> int:
    """The number of the writing call with which a clean begins."""
    context, storage = world.copy().context()
    clean(context, parse_options(world.options))
    writes = [call for call in storage.calls if call.writes]
    return next(n for n, call in enumerate(writes, 1) if call.path.endswith(".clean.inflight"))
