"""After repeated conflicts a write holds the lock from its read to its commit, so a bounded number of attempts
succeeds.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import Internal, InvalidRequest, StorageUnavailable, WriteConflict
from pyhudi.format.instants import Action
from pyhudi.operations.changes.arrow_changes import run_merge, run_update
from pyhudi.operations.changes.statement import Clause, ClauseAction, MergeStatement
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.delete_where import run_delete_where
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import Fault, FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.storage.locks import HOLD_NOTICE_PATH, LEASE_PATH, InProcessLock, RetainedLock
from pyhudi.storage.locks.hold_notices import HoldNotice
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, crash_points, partition_of, sampled

OPTIONS: dict[str, object] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.write.lock.wait_time_ms": 1000,
    "pyhudi.threads": 1,
}
KINDS = ("cow", "mor")
ENGINE = LocalEngine(1)


def rows(world: World, **values: int) -> pa.Table:
    # Newer than the concurrent writes of others.
    stamp = world.environment.now_ms() + 1_000_000
    return pa.table(
        {
            "id": list(values),
            "part": [partition_of(key) for key in values],
            "ts": pa.array([stamp] * len(values), pa.int64()),
            "value": pa.array(list(values.values()), pa.int64()),
        }
    )


def settings(
    world: World, operation: WriteOperation = WriteOperation.UPSERT, *, more: Mapping[str, object] | None = None
) -> WriteSettings:
    return WriteSettings.of(parse_options({**world.options, **(more or {})}), operation)


SLOW: dict[str, Callable[[World, TableContext], WriteResult]] = {
    "upsert": lambda world, table: run_write(table, ENGINE, rows(world, k0=-1), settings(world)),
    "update": lambda world, table: run_update(table, ENGINE, {"value": -1}, "id = 'k0'", settings(world)),
    "merge": lambda world, table: run_merge(
        table, ENGINE, MergeStatement(rows(world, k0=-1), ("id",), (Clause(ClauseAction.UPDATE),)), settings(world)
    ),
    "delete": lambda world, table: run_delete_where(table, ENGINE, "id = 'k0'", settings(world, WriteOperation.DELETE)),
    "delete_partitions": lambda world, table: run_delete_partitions(
        table, ["a"], settings(world, WriteOperation.DELETE_PARTITION)
    ),
}


def world_with_commits(kind: str, **options: object) -> World:
    world = World(kind, {**OPTIONS, **options})
    world.upsert({"k0": 0, "k1": 1})
    return world


class QuickWriters:
    """Writers that are always ready: whenever the slow one stores its inflight file they write to its file group, if they can.

    everywhere: at each of its calls that change the store.  They try for the lock once.
    """

    def __init__(self, world: World, *, everywhere: bool = False) -> None:
        self.world = world
        self.everywhere = everywhere
        self.landed = 0
        self.kept_out = 0

    def __call__(self, number: int, call: StorageCall) -> None:
        own = call.path.endswith(".inflight") and "rollback" not in call.path and "metadata" not in call.path
        if not (call.writes if self.everywhere else own and call.operation == "put_if_absent"):
            return
        options = self.world.options
        self.world.options = {**options, "hoodie.write.lock.wait_time_ms": 0}
        try:
            self.world.upsert({"k0": 100 + self.landed})
            self.landed += 1
        except StorageUnavailable:
            self.kept_out += 1
        finally:
            self.world.options = options


def slow(world: World, watch: Callable[[int, StorageCall], None] | None) -> TableContext:
    """The table as a process of its own has it, watched."""
    context = world.table.context
    return replace(context, storage=FaultyStorage(context.storage, listener=watch))


@pytest.mark.sample(5)
@pytest.mark.parametrize("method", SLOW)
@pytest.mark.parametrize("kind", KINDS)
def test_slow_write_among_quick_ones_commits_with_an_exclusive_retry(kind: str, method: str) -> None:
    world = world_with_commits(kind)
    quick = QuickWriters(world)
    result = SLOW[method](world, slow(world, quick))
    assert result.conflict_retries == 3
    assert (quick.landed, quick.kept_out) == (3, 1)
    wanted = {"upsert": {"k0": -1, "k1": 1}, "update": {"k0": -1, "k1": 1}, "merge": {"k0": -1, "k1": 1}}
    assert world.scanned() == wanted.get(method, {"k1": 1})
    assert world.table.timeline().pending() == ()
    assert world.table.context.storage.stat(HOLD_NOTICE_PATH) is None
    world.upsert({"k0": 7})
    assert world.table.validate().ok


@pytest.mark.parametrize("after", [0, 1, 5])
def test_exclusive_retry_starts_after_the_configured_conflicts(after: int) -> None:
    world = world_with_commits("mor", **{"pyhudi.write.exclusive.after.conflicts": after})
    quick = QuickWriters(world)
    assert SLOW["update"](world, slow(world, quick)).conflict_retries == after
    assert (quick.landed, quick.kept_out) == (after, 1)


@pytest.mark.sample(5)
@pytest.mark.parametrize("method", SLOW)
@pytest.mark.parametrize("kind", KINDS)
def test_exclusive_retry_commits_despite_writers_at_any_call(kind: str, method: str) -> None:
    world = world_with_commits(kind, **{"pyhudi.write.exclusive.after.conflicts": 1})
    quick = QuickWriters(world, everywhere=True)
    assert SLOW[method](world, slow(world, quick)).conflict_retries == 1
    assert quick.landed >= 3
    assert quick.kept_out >= 3
    assert world.table.timeline().pending() == ()
    assert world.table.validate().ok


def test_write_without_exclusive_retry_conflicts_every_time() -> None:
    world = world_with_commits("mor", **{"pyhudi.write.exclusive.after.conflicts": 11})
    quick = QuickWriters(world)
    with pytest.raises(WriteConflict):
        SLOW["update"](world, slow(world, quick))
    assert (quick.landed, quick.kept_out) == (11, 0)


def test_exclusive_retry_on_version_9_with_a_metadata_table() -> None:
    world = world_with_commits("mor", **{"hoodie.metadata.enable": True, "hoodie.write.table.version": 9})
    quick = QuickWriters(world)
    assert SLOW["update"](world, slow(world, quick)).conflict_retries == 3
    assert world.scanned() == {"k0": -1, "k1": 1}
    assert world.table.validate().ok


def test_services_run_after_the_exclusive_lock_is_released() -> None:
    world = world_with_commits("mor", **{"pyhudi.write.exclusive.after.conflicts": 0})
    world.upsert({"k0": 2})
    held: list[bool] = []

    def watch(number: int, call: StorageCall) -> None:
        if call.path.endswith((HOLD_NOTICE_PATH, ".deltacommit", ".compaction.requested")) and call.writes:
            held.append(world.table.context.storage.stat(HOLD_NOTICE_PATH) is not None)

    compacting = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
    run_update(slow(world, watch), ENGINE, {"value": -1}, "id = 'k0'", settings(world, more=compacting))
    assert len(world.table.timeline().completed(Action.COMMIT)) == 1
    # The notice comes, the write completes, the notice goes, the compaction is planned.
    assert held == [False, True, True, False]
    assert world.table.validate().ok


@pytest.mark.crash_points
@pytest.mark.parametrize("method", ["upsert", "update"])
@pytest.mark.parametrize("kind", KINDS)
def test_crash_under_the_exclusive_lock_does_not_block_the_next_writer(kind: str, method: str) -> None:
    def run(fault: Fault | None) -> tuple[World, FaultyStorage]:
        world = world_with_commits(kind, **{"pyhudi.write.exclusive.after.conflicts": 0})
        context, storage = world.context(fault)
        try:
            SLOW[method](world, context)
        except SimulatedCrash:
            assert storage.triggered
        return world, storage

    _, whole = run(None)
    assert any(call.path.endswith(HOLD_NOTICE_PATH) for call in whole.calls)
    for fault in sampled(crash_points(whole.calls), whole.calls):
        world, _ = run(fault)
        assert world.scanned()["k0"] in (0, -1), fault
        world.environment.advance_ms(3_600_000)
        # The notice of the dead one may still exist, and blocks no writer.
        world.upsert({"k0": 5, "k1": 6})
        assert world.scanned() == {"k0": 5, "k1": 6}, fault
        assert SLOW["update"](world, world.table.context).conflict_retries == 0
        assert world.table.context.storage.stat(HOLD_NOTICE_PATH) is None
        assert world.table.timeline().pending() == ()
        assert world.table.validate().ok, fault


def test_waiting_for_an_exclusive_writer_extends_the_lock_wait_and_reports_it() -> None:
    world = world_with_commits("cow")
    before_ms = world.environment.monotonic_ms()
    with world.table.exclusive(seconds=20), pytest.raises(StorageUnavailable, match=r"waited 1000 ms, and 20\d\d\d ms more"):
        world.upsert({"k0": 1})
    assert 21_000 <= world.environment.monotonic_ms() - before_ms <= 25_000
    with world.table.context.locked(), pytest.raises(StorageUnavailable, match=r"\(waited 1000 ms\)"):
        world.upsert({"k0": 1})
    world.upsert({"k0": 2})
    assert world.scanned() == {"k0": 2, "k1": 1}


def test_notice_of_an_ended_process_or_a_damaged_one_is_ignored() -> None:
    world = world_with_commits("cow")
    own = HoldNotice.for_this_process("t", 60_000)
    process = own.owner.rpartition("~")
    dead = replace(own, owner=f"{process[0]}~{int(process[2]) + 1}")
    for data in (dead.encode(), b"", b"{", b"[]", replace(own, longest_ms=0).encode(), replace(own, longest_ms=10**12).encode()):
        world.table.context.storage.put(HOLD_NOTICE_PATH, data)
        with world.table.context.locked(), pytest.raises(StorageUnavailable, match=r"\(waited 1000 ms\)"):
            world.upsert({"k0": 1})


# The caller's own exclusive write


def test_caller_reads_and_writes_under_exclusive() -> None:
    world = world_with_commits("mor")
    with world.table.exclusive(seconds=1) as mine:
        scan = mine.scan(filter="id = 'k0'")
        found = scan.to_arrow()
        with pytest.raises(StorageUnavailable):
            world.upsert({"k0": 100})
        mine.upsert(found.set_column(3, "value", pa.array([41], pa.int64())), based_on=scan)
        # It has landed, so the others can write, while the block continues.
        assert not mine.context.holds_lock
        world.upsert({"k1": 100})
        with pytest.raises(WriteConflict):
            mine.upsert(rows(world, k1=3), based_on=scan)
    assert world.scanned() == {"k0": 41, "k1": 100}


def test_every_operation_works_under_exclusive() -> None:
    world = world_with_commits("mor", **{"hoodie.compact.inline.max.delta.commits": 1})
    acts: tuple[Callable[[Table], object], ...] = (
        lambda table: table.update({"value": 5}, where="id = 'k0'"),
        lambda table: table.delete(where="id = 'k9'"),
        lambda table: table.compact(),
        lambda table: table.clean(dry_run=False),
        lambda table: table.archive(),
        lambda table: table.savepoint(),
        lambda table: table.index.create("column_stats"),
        lambda table: table.run_services(),
        lambda table: table.rollback(table.upsert(rows(world, k0=9)).instant or ""),
        lambda table: table.alter.add("more", pa.int64()),
    )
    for act in acts:
        with world.table.exclusive() as mine:
            act(mine)
        assert world.table.context.storage.stat(HOLD_NOTICE_PATH) is None
    assert world.scanned() == {"k0": 5, "k1": 1}
    assert world.table.validate().ok


def test_nested_exclusive_uses_the_same_lock() -> None:
    world = world_with_commits("cow")
    with world.table.exclusive() as mine, mine.exclusive() as again:
        again.update({"value": 3}, where="id = 'k0'")
    assert world.scanned() == {"k0": 3, "k1": 1}


def test_invalid_arguments_of_exclusive_are_refused() -> None:
    world = world_with_commits("cow")
    for seconds in (0, -1, 0.0001, 86_401, float("nan"), float("inf")):
        with pytest.raises(InvalidRequest, match="cannot hold the lock"), world.table.exclusive(seconds=seconds):
            raise AssertionError(seconds)
    with world.table.exclusive() as mine, pytest.raises(InvalidRequest, match="another lock"):
        mine.update({"value": 3}, where="id = 'k0'", options={"hoodie.write.lock.wait_time_ms": 5})
    with pytest.raises(ZeroDivisionError), world.table.exclusive():
        raise ZeroDivisionError
    world.upsert({"k0": 1})


# The lock


def retained_lock(world: World) -> RetainedLock:
    context = world.table.context
    return RetainedLock(context.lock, context.storage)


def test_exclusive_lock_is_acquired_once() -> None:
    world = world_with_commits("cow")
    lock = retained_lock(world)
    lock.hold(0, "t", 1000)
    with lock.held(), pytest.raises(Internal, match="acquired already"):
        lock.acquire()
    with lock.held():
        lock.check()
        lock.renew()
    lock.end()
    lock.end()
    with lock.held(0), pytest.raises(StorageUnavailable):
        world.table.context.lock.acquire(0)


def test_exclusive_without_a_stored_notice_does_not_hold_the_lock() -> None:
    world = world_with_commits("cow")
    context = world.table.context

    class Full(FaultyStorage):
        def put(self, path: str, data: bytes) -> None:
            raise StorageUnavailable("full")

    lock = RetainedLock(context.lock, Full(context.storage))
    with pytest.raises(StorageUnavailable, match="full"):
        lock.hold(0, "t", 1000)
    assert not lock.is_held
    world.upsert({"k0": 1})


def test_pickled_exclusive_table_does_not_hold_the_lock() -> None:
    table = Table.create("memory://turns-that-travel", record_key="id", options=OPTIONS)
    lock = RetainedLock(InProcessLock("turns-that-travel", table.context.env, wait_ms=0), table.context.storage)
    lock.hold(0, "t", 1000)
    arrived = pickle.loads(pickle.dumps(RetainedLock(InProcessLock("elsewhere", table.context.env), table.context.storage)))
    assert not arrived.is_held
    lock.after_fork()
    assert not lock.is_held


def test_pickled_lock_keeps_its_notice_location() -> None:
    lock: Any = Table.create("memory://turns-that-are-told", record_key="id", options=OPTIONS).context.lock
    for one in (lock, pickle.loads(pickle.dumps(lock))):
        assert [inner.table.uri for inner in one._locks] == ["memory://turns-that-are-told"] * 2


def test_exclusive_lock_has_one_lease_from_start_to_end() -> None:
    world = world_with_commits("cow", **{"pyhudi.write.exclusive.after.conflicts": 0})
    owners: list[bytes] = []

    def watch(number: int, call: StorageCall) -> None:
        data = world.table.context.storage.read(LEASE_PATH)
        if call.writes and data is not None and b'"expired":false' in data:
            owners.append(data.partition(b'"owner"')[2])

    SLOW["update"](world, slow(world, watch))
    assert len(set(owners)) == 1
