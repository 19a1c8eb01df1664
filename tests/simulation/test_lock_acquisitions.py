"""Lock acquisitions of a write.

A successful write acquires the lock twice, to begin and to commit. A failed one acquires it to begin and to roll back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from pyhudi import Table
from pyhudi.errors import WriteConflict
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.action_attempt import rollback_own_attempt
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import finish_pending_rollbacks, rollback_instant
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import Fault, FaultOutcome, FaultPoint, FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.storage.heartbeats import heartbeat_path
from pyhudi.storage.locks import StorageLock
from tests.simulation.fair_lock_options import OPTIONS
from tests.simulation.tables import World

KINDS = ("cow", "mor")


class CountedLock(StorageLock):
    acquisitions = 0

    def acquire(self, timeout_ms: int | None = None) -> None:
        super().acquire(timeout_ms)
        self.acquisitions += 1


def counted(world: World, watch: Callable[[int, StorageCall], None] | None = None) -> tuple[Table, CountedLock]:
    """The table as a separate process opens it, with a lock that counts its acquisitions."""
    table = world.table
    lock = CountedLock(table.context.storage, world.environment)
    table._open.context = replace(table.context, lock=lock, storage=FaultyStorage(table.context.storage, listener=watch))
    return table, lock


def world_with_commits(kind: str) -> World:
    world = World(kind, OPTIONS)
    world.upsert({"k0": 0, "k1": 1})
    return world


@pytest.mark.parametrize("kind", KINDS)
def test_committed_write_acquires_the_lock_twice(kind: str) -> None:
    world = world_with_commits(kind)
    table, lock = counted(world)
    table.upsert(world.table.scan().to_arrow())
    assert lock.acquisitions == 2


@pytest.mark.parametrize("kind", KINDS)
def test_conflicting_write_acquires_the_lock_to_begin_and_to_roll_back(kind: str) -> None:
    world = world_with_commits(kind)
    others = iter([lambda: world.upsert({"k0": 100})])

    def act_concurrently(number: int, call: StorageCall) -> None:
        if call.path.endswith(".inflight"):
            next(others, lambda: None)()

    table, lock = counted(world, act_concurrently)
    before = table.scan().to_arrow()
    with pytest.raises(WriteConflict, match="changed concurrently"):
        table.upsert(before)
    assert lock.acquisitions == 2
    timeline = world.table.timeline()
    # A clean of Hudi would execute a pending rollback too.
    assert not timeline.pending() and not timeline.completed(Action.ROLLBACK)
    folders = (".hoodie/.heartbeat", ".hoodie/.temp")
    assert not [info for folder in folders for info in world.table.context.storage.walk(folder)]
    assert world.scanned() == world.rows
    assert world.table.validate().ok


@pytest.mark.parametrize("kind", KINDS)
def test_write_that_fails_after_its_commit_to_the_metadata_table_is_rolled_back(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(kind, {**OPTIONS, "hoodie.metadata.enable": "true"})
    world.upsert({"k0": 0, "k1": 1})

    def lose(transaction: Transaction, *_: object) -> None:
        raise WriteConflict("lost")

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "_complete", lose)
        with pytest.raises(WriteConflict):
            world.table.upsert(world.table.scan().to_arrow())
    timeline = world.table.timeline()
    assert timeline.completed(Action.ROLLBACK) and not timeline.pending()
    assert world.scanned() == world.rows
    assert world.table.validate().ok


class ConflictThenCrash:
    """Watch the calls of a write: another write to its file groups commits first, then this one crashes while it ends.

    The crash follows a number of calls after the first deletion.
    """

    def __init__(self, world: World, calls: int) -> None:
        self._world, self._calls = world, calls
        self._overtaken = self._ending = False

    def __call__(self, number: int, call: StorageCall) -> None:
        if not self._overtaken and call.path.endswith(".inflight"):
            self._overtaken = True
            self._world.upsert({"k0": 100})
        elif self._overtaken:
            self._ending = self._ending or (call.operation == "delete")
            self._calls -= self._ending
            if not self._calls:
                raise SimulatedCrash


@pytest.mark.parametrize("kind", KINDS)
def test_conflicting_write_that_crashes_while_it_removes_itself_is_rolled_back_by_the_next(kind: str) -> None:
    for number in count(1):
        world = world_with_commits(kind)
        table, _ = counted(world, ConflictThenCrash(world, number))
        with pytest.raises((WriteConflict, SimulatedCrash)) as failure:
            table.upsert(table.scan().to_arrow())
        if failure.type is WriteConflict:
            assert number > 5
            return
        world.environment.advance_ms(CommitSettings.of(parse_options(world.options)).heartbeats.expiry_ms + 60_000)
        world.upsert({"k0": number})
        assert world.table.timeline().pending() == ()
        assert world.scanned() == world.rows
        assert world.table.validate().ok


@pytest.mark.parametrize("kind", KINDS)
def test_write_on_an_outdated_snapshot_writes_no_files(kind: str) -> None:
    world = world_with_commits(kind)
    calls: list[StorageCall] = []
    table, lock = counted(world, lambda _, call: calls.append(call))
    scan = table.scan()
    rows = scan.to_arrow()
    world.upsert({"k0": 100})
    calls.clear()
    before = world.table.timeline()
    with pytest.raises(WriteConflict, match="changed concurrently"):
        table.upsert(rows, based_on=scan)
    assert lock.acquisitions == 2
    assert not [call for call in calls if call.path.endswith(".inflight") or call.operation == "open_output"]
    assert world.table.timeline().instants == before.instants
    assert not [call for call in calls if call.path.endswith((".rollback.requested", ".rollback"))]
    folders = (".hoodie/.heartbeat", ".hoodie/.temp")
    assert not [info for folder in folders for info in world.table.context.storage.walk(folder)]
    assert world.scanned() == world.rows
    assert world.table.validate().ok


@pytest.mark.parametrize("kind", KINDS)
def test_write_that_crashes_while_withdrawing_is_rolled_back_by_the_next(kind: str) -> None:
    number = 1
    while True:
        world = world_with_commits(kind)
        context, settings = world.table.context, CommitSettings.of(parse_options(world.options))
        write = Transaction.begin(context, Action.COMMIT if kind == "cow" else Action.DELTACOMMIT, settings)
        write.stop_heartbeat()
        faulty = FaultyStorage(context.storage, Fault(number, FaultPoint.AFTER, FaultOutcome.CRASH))
        write.context = replace(context, storage=faulty)
        try:
            rollback_own_attempt(write)
        except SimulatedCrash:
            number += 1
        else:
            assert world.table.timeline().pending() == ()
            assert number > 3
            return
        world.environment.advance_ms(settings.heartbeats.expiry_ms + 60_000)
        world.upsert({"k0": number})
        timeline = world.table.timeline()
        assert timeline.pending() == ()
        assert world.scanned() == world.rows
        assert world.table.validate().ok


def test_write_rolled_back_by_others_is_not_rolled_back_again() -> None:
    world = world_with_commits("cow")
    context, settings = world.table.context, CommitSettings.of(parse_options(world.options))
    write = Transaction.begin(context, Action.COMMIT, settings)
    write.stop_heartbeat()
    faulty = replace(context, storage=FaultyStorage(context.storage, Fault(3, FaultPoint.AFTER, FaultOutcome.CRASH)))
    with pytest.raises(SimulatedCrash):
        rollback_instant(faulty, Instant(write.instant_time, Action.COMMIT, State.REQUESTED), settings)
    assert len(world.table.timeline().pending(Action.ROLLBACK)) == 1
    rollback_own_attempt(write)
    timeline = world.table.timeline()
    assert timeline.pending() == ()
    assert len(timeline.completed(Action.ROLLBACK)) == 1


def test_commits_read_before_the_lock_are_not_read_under_it() -> None:
    world = world_with_commits("cow")
    reads: list[tuple[str, bool]] = []
    others = iter([{"k1": 100}, {"k1": 101}])

    def act_concurrently(number: int, call: StorageCall) -> None:
        if call.path.endswith(".inflight"):
            for other in others:
                world.upsert(other)
        if call.operation == "read" and call.path.endswith(".commit"):
            reads.append((call.path, lock.owner is not None))

    table, lock = counted(world, act_concurrently)
    scanned = table.scan(filter="id = 'k0'").to_arrow()
    reads.clear()
    table.upsert(scanned)
    newest = max(path for path, _ in reads)
    assert {path for path, held in reads if not held and path != newest}
    assert not [path for path, held in reads if held]
    assert world.table.validate().ok


def test_finished_write_is_not_rolled_back_after_waiting() -> None:
    world = world_with_commits("cow")
    context, settings = world.table.context, CommitSettings.of(parse_options(world.options))
    other = Transaction.begin(context, Action.COMMIT, settings)
    other.start()

    gone = False

    def ends(number: int, call: StorageCall) -> None:
        # The timeline was loaded, with the write pending on it; its heartbeat goes when it is over.
        nonlocal gone
        if call.path.endswith(heartbeat_path(other.instant_time)) and not gone:
            gone = True
            context.timeline.remove_pending(other.instant_time, Action.COMMIT, State.INFLIGHT, State.REQUESTED)
            other.heartbeat.stop(delete=True)

    table, lock = counted(world, ends)
    table.upsert(world.table.scan().to_arrow())
    assert gone
    assert lock.acquisitions == 2


def test_active_writer_rolls_back_its_own_write() -> None:
    world = world_with_commits("cow")
    context, settings = world.table.context, CommitSettings.of(parse_options(world.options))
    write = Transaction.begin(context, Action.COMMIT, settings)
    write.start()
    write.heartbeat.stop(delete=True)
    faulty = replace(context, storage=FaultyStorage(context.storage, Fault(3, FaultPoint.AFTER, FaultOutcome.CRASH)))
    with pytest.raises(SimulatedCrash):
        rollback_instant(faulty, Instant(write.instant_time, Action.COMMIT, State.INFLIGHT), settings)
    pending = world.table.timeline().pending(Action.ROLLBACK)
    assert len(pending) == 1
    # As Apache Hudi's: a heartbeat without content is believed while it is fresh.
    context.storage.put(heartbeat_path(write.instant_time), b"")
    table, lock = counted(world)
    assert finish_pending_rollbacks(table.context, settings, table.timeline()) == ()
    assert lock.acquisitions == 0
    world.environment.advance_ms(settings.heartbeats.expiry_ms + 1)
    assert [done.rolled_back for done in finish_pending_rollbacks(table.context, settings, table.timeline())] == [
        write.instant_time
    ]
    assert world.scanned() == world.rows
