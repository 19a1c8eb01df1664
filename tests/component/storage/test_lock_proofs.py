"""The release of a lock proves that it was held until then; without the proof no change under it is acknowledged."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from pyhudi import Table
from pyhudi.errors import StorageUnavailable
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.deadlines import check_lease_left, within_lease
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultOutcome, FaultPoint, FaultyStorage
from pyhudi.storage.locks import FileSystemLock, LockLost, RetainedLock, StorageLock

VALIDITY_MS = 30_000
LATER_MS = 40_000
_names = itertools.count()


@pytest.fixture
def storage() -> Storage:
    return open_storage(f"memory://proofs-{next(_names)}")


def lock_on(storage: Storage, env: ReplayEnvironment) -> StorageLock:
    return StorageLock(storage, env, validity_ms=VALIDITY_MS)


def test_a_lease_that_another_writer_took_over_is_no_proof(storage: Storage) -> None:
    env = ReplayEnvironment(1)
    lock, other = lock_on(storage, env), lock_on(storage, env)
    lock.acquire(0)
    env.stall_ms(LATER_MS)
    assert lock.left_ms() < 0
    other.acquire(0)
    assert lock.release() is False
    assert other.release() is True


def test_an_expired_lease_that_no_writer_took_over_is_a_proof(storage: Storage) -> None:
    env = ReplayEnvironment(2)
    lock = lock_on(storage, env)
    lock.acquire(0)
    env.stall_ms(LATER_MS)
    assert lock.release() is True


@pytest.mark.parametrize("is_late", [False, True])
def test_without_an_answer_the_time_that_is_left_proves_it(storage: Storage, is_late: bool) -> None:
    """And the lock is free at once for the same holder, who knows that its hold has ended."""
    env = ReplayEnvironment(3)
    faulty = FaultyStorage(storage, Fault(2, FaultPoint.BEFORE, FaultOutcome.LOST_RESPONSE))
    lock = lock_on(faulty, env)
    lock.acquire(0)
    if is_late:
        env.stall_ms(LATER_MS)
    assert lock.release() is not is_late
    assert faulty.triggered
    if not is_late:
        with pytest.raises(StorageUnavailable):
            lock_on(storage, env).acquire(0)
    lock.acquire(0)
    assert lock.release() is True


def test_renewals_do_not_make_an_expiring_lock_file_younger(tmp_path: Path) -> None:
    env = ReplayEnvironment(4)
    lock = FileSystemLock(open_storage(tmp_path), env, expire_ms=60_000)
    lock.acquire(0)
    env.stall_ms(20_000)
    lock.renew()
    assert lock.left_ms() == 40_000
    assert lock.release() is True


def test_an_exclusive_hold_proves_each_of_its_steps(storage: Storage) -> None:
    env = ReplayEnvironment(5)
    inner, other = lock_on(storage, env), lock_on(storage, env)
    lock = RetainedLock(inner, storage)
    lock.hold(0, "id", 1_000)
    lock.acquire(0)
    assert lock.release() is True
    lock.acquire(0)
    env.stall_ms(LATER_MS)
    other.acquire(0)
    assert lock.release() is False and not lock.is_held


@pytest.mark.parametrize("changes", [False, True])
def test_a_locked_step_that_changed_something_needs_the_proof(changes: bool) -> None:
    env = ReplayEnvironment(6)
    table = Table.create(f"memory://proofs-{next(_names)}", record_key="id", environment=env)
    context = replace(table.context, lock=lock_on(table.context.storage, env))
    other = lock_on(table.context.storage, env)

    def step() -> None:
        with context.locked(0) as locked:
            if changes:
                locked.storage.child("x").put("y", b"")
            env.stall_ms(LATER_MS)
            other.acquire(0)

    if not changes:
        return step()
    with pytest.raises(LockLost, match="lost before the end of this step"):
        step()


def test_a_local_change_does_not_take_effect_after_the_lease(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    storage.put("old", b"1")
    found = storage.read_versioned("old")
    assert found is not None
    with within_lease(lambda: 0):
        for change in (
            lambda: storage.put("new", b"2"),
            lambda: storage.put_if_absent("new", b"2"),
            lambda: storage.put_if_absent("new", b""),
            lambda: storage.put_if_matches("old", b"2", found[1]),
        ):
            with pytest.raises(StorageUnavailable, match="lock expired"):
                change()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["old"]
    assert storage.read("old") == b"1"


def test_the_shortest_of_several_leases_counts() -> None:
    with within_lease(lambda: 1_000), within_lease(lambda: 0), pytest.raises(StorageUnavailable):
        check_lease_left("f")
    check_lease_left("f")
