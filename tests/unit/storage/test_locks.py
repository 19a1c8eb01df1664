from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyhudi.errors import Internal, InvalidRequest, StorageFull, StorageUnavailable, Unsupported
from pyhudi.options.supported import parse_options
from pyhudi.records.hashing import path_hash
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment, SystemEnvironment
from pyhudi.storage.fault_injection import CountedCalls, Fault, FaultOutcome, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.storage.locks import (
    LEASE_PATH,
    QUEUE_FOLDER,
    CombinedLock,
    FileSystemLock,
    FileSystemLockSettings,
    InProcessLock,
    LockProvider,
    LockSettings,
    StorageLock,
    StorageLockSettings,
    hive_metastore,
    lock_registry,
    open_lock,
    register_lock_provider,
)
from pyhudi.storage.locks.dynamodb import DynamoDbSettings
from pyhudi.storage.locks.hive_metastore import HiveLockSettings
from pyhudi.storage.locks.zookeeper import ZookeeperSettings
from pyhudi.storage.memory import MemoryStorage
from pyhudi.storage.process_identity import Process

CLASS = "org.apache.hudi.client.transaction.lock."
ZOOKEEPER = CLASS + "ZookeeperBasedLockProvider"
DYNAMODB = "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"
HIVE = "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider"


@pytest.fixture
def env() -> ReplayEnvironment:
    return ReplayEnvironment(11, 1_000_000)


@pytest.fixture
def storage(env: ReplayEnvironment) -> Storage:
    return MemoryStorage(f"memory://{uuid.uuid4().hex}", env)


def lease(storage: Storage) -> dict[str, object]:
    data = storage.read(LEASE_PATH)
    assert data is not None
    document = json.loads(data)
    assert isinstance(document, dict)
    return document


class TestStorageLock:
    def test_lock_file_has_the_format_of_hudi(self, storage: Storage, env: ReplayEnvironment) -> None:
        lock = StorageLock(storage, env, label="host:1:")
        lock.acquire()
        assert lock.owner is not None
        assert lock.owner.startswith("host:1:")
        assert uuid.UUID(lock.owner.removeprefix("host:1:")).version == 4
        assert storage.read(LEASE_PATH) == b'{"expired":false,"validUntil":1060000,"owner":"%s"}' % lock.owner.encode()
        lock.release()
        assert lease(storage)["expired"] is True

    def test_each_acquisition_has_an_id_of_its_own(self, storage: Storage, env: ReplayEnvironment) -> None:
        lock = StorageLock(storage, env)
        owners = set()
        for _ in range(3):
            with lock.held():
                owners.add(lock.owner)
        assert len(owners) == 3

    def test_live_holder_keeps_its_lease(self, storage: Storage, env: ReplayEnvironment) -> None:
        holder = StorageLock(storage, env)
        holder.acquire()
        with pytest.raises(StorageUnavailable, match=f"{holder.owner} holds it"):
            StorageLock(storage, env).acquire(3_600_000)
        holder.check()

    def test_lease_of_a_crashed_holder_expires(self, storage: Storage, env: ReplayEnvironment) -> None:
        dead = StorageLock(FaultyStorage(storage, Fault(2)), env)
        dead.acquire()
        with pytest.raises(SimulatedCrash):
            dead.renew()
        started_ms = env.now_ms()
        next_one = StorageLock(storage, env)
        next_one.acquire(120_000)
        assert 60_500 < env.now_ms() - started_ms < 62_000
        next_one.check()

    @pytest.mark.parametrize(("late_ms", "free"), [(0, False), (500, False), (501, True)])
    def test_lease_is_taken_over_only_after_the_clock_margin(
        self, storage: Storage, env: ReplayEnvironment, late_ms: int, free: bool
    ) -> None:
        document = {"expired": False, "validUntil": env.now_ms() - late_ms, "owner": "somebody"}
        storage.put(LEASE_PATH, json.dumps(document).encode())
        lock = StorageLock(storage, env)
        if free:
            lock.acquire(0)
        else:
            with pytest.raises(StorageUnavailable):
                lock.acquire(0)

    def test_suspended_holder_notices_its_expired_lease(self, storage: Storage, env: ReplayEnvironment) -> None:
        sleeper, other = StorageLock(storage, env), StorageLock(storage, env)
        sleeper.acquire()
        env.stall_ms(61_000)
        other.acquire(0)
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="lost"):
                sleeper.check()
        held = lease(storage)
        sleeper.release()
        assert lease(storage) == held
        other.check()

    def test_suspended_holder_with_an_untaken_lease_continues(self, storage: Storage, env: ReplayEnvironment) -> None:
        sleeper = StorageLock(storage, env)
        sleeper.acquire()
        env.stall_ms(3_600_000)
        sleeper.check()
        with pytest.raises(StorageUnavailable):
            StorageLock(storage, env).acquire(0)

    def test_check_reads_storage_only_near_expiry(self, storage: Storage, env: ReplayEnvironment) -> None:
        counting = FaultyStorage(storage)
        lock = StorageLock(counting, env)
        lock.acquire()
        calls = len(counting.calls)
        env.stall_ms(39_000)
        lock.check()
        assert len(counting.calls) == calls
        env.stall_ms(2_000)
        lock.check()
        assert len(counting.calls) == calls + 2
        assert lease(storage)["validUntil"] == env.now_ms() + 60_000

    def test_renewal_in_the_background(self, storage: Storage, env: ReplayEnvironment) -> None:
        lock = StorageLock(storage, env)
        lock.acquire()
        env.sleep_ms(25_000)
        assert lease(storage)["validUntil"] == 1_020_000 + 60_000
        lock.release()
        after = lease(storage)
        env.sleep_ms(100_000)
        assert lease(storage) == after

    def test_renewal_survives_a_temporary_outage(self, storage: Storage, env: ReplayEnvironment) -> None:
        faulty = FaultyStorage(storage, Fault(2, FaultPoint.BEFORE, FaultOutcome.LOST_RESPONSE))
        lock = StorageLock(faulty, env)
        lock.acquire()
        env.sleep_ms(25_000)
        assert faulty.triggered
        assert lease(storage)["validUntil"] == 1_020_000 + 60_000
        lock.check()

    @pytest.mark.parametrize("moment", [FaultPoint.BEFORE, FaultPoint.AFTER])
    @pytest.mark.parametrize("counted", [CountedCalls.READS, CountedCalls.WRITES])
    def test_acquire_with_a_lost_response(
        self, storage: Storage, env: ReplayEnvironment, moment: FaultPoint, counted: CountedCalls
    ) -> None:
        lock = StorageLock(FaultyStorage(storage, Fault(1, moment, FaultOutcome.LOST_RESPONSE, counted)), env)
        lock.acquire(5_000)
        assert lease(storage)["owner"] == lock.owner
        lock.release()
        StorageLock(storage, env).acquire(0)

    def test_takeover_with_a_lost_response(self, storage: Storage, env: ReplayEnvironment) -> None:
        with StorageLock(storage, env).held():
            pass
        lock = StorageLock(FaultyStorage(storage, Fault(1, FaultPoint.AFTER, FaultOutcome.LOST_RESPONSE)), env)
        lock.acquire(5_000)
        assert lease(storage)["owner"] == lock.owner

    def test_timed_out_acquire_with_a_lost_response_leaves_no_lease(self, storage: Storage, env: ReplayEnvironment) -> None:
        lock = StorageLock(FaultyStorage(storage, Fault(1, FaultPoint.AFTER, FaultOutcome.LOST_RESPONSE)), env)
        with pytest.raises(StorageUnavailable):
            lock.acquire(0)
        StorageLock(storage, env).acquire(0)

    @pytest.mark.parametrize("moment", [FaultPoint.BEFORE, FaultPoint.AFTER])
    def test_release_with_a_lost_response_raises_nothing(
        self, storage: Storage, env: ReplayEnvironment, moment: FaultPoint
    ) -> None:
        with StorageLock(FaultyStorage(storage, Fault(2, moment, FaultOutcome.LOST_RESPONSE)), env).held():
            pass
        StorageLock(storage, env).acquire(120_000)

    def test_a_crash_at_each_call_blocks_the_next_writer_for_one_lease_at_most(self, env: ReplayEnvironment) -> None:
        def work(storage: Storage) -> None:
            lock = StorageLock(storage, env)
            with lock.held():
                env.sleep_ms(25_000)
                lock.renew()
                lock.check()

        def fresh() -> Storage:
            return MemoryStorage(f"memory://{uuid.uuid4().hex}", env)

        counting = FaultyStorage(fresh())
        work(counting)
        assert len(counting.calls) > 8
        for call in range(1, len(counting.calls) + 1):
            for moment in (FaultPoint.BEFORE, FaultPoint.AFTER):
                storage = fresh()
                with pytest.raises(SimulatedCrash):
                    work(FaultyStorage(storage, Fault(call, moment, counted=CountedCalls.ALL)))
                StorageLock(storage, env).acquire(62_000)

    @pytest.mark.parametrize(
        "data",
        [
            *(b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000),
            b'{"expired":false}',
            b'{"expired":0,"validUntil":1,"owner":"x"}',
            b'{"expired":false,"validUntil":"1","owner":"x"}',
            b'{"expired":false,"validUntil":true,"owner":"x"}',
        ],
    )
    def test_an_unreadable_object_is_not_overrun(self, storage: Storage, env: ReplayEnvironment, data: bytes) -> None:
        storage.put(LEASE_PATH, data)
        with pytest.raises(StorageUnavailable, match="unreadable; delete it"):
            StorageLock(storage, env).acquire(10)
        assert storage.read(LEASE_PATH) == data

    @pytest.mark.parametrize("data", [b"", b"\0" * 80, b'{"expired":false,"validUn'])
    def test_an_object_that_a_power_failure_emptied_expires(self, storage: Storage, env: ReplayEnvironment, data: bytes) -> None:
        storage.put(LEASE_PATH, data)
        begun_ms = env.monotonic_ms()
        lock = StorageLock(storage, env, validity_ms=30_000)
        lock.acquire(60_000)
        assert env.monotonic_ms() - begun_ms > 30_000
        lock.release()

    def test_an_object_that_was_deleted_means_lost(self, storage: Storage, env: ReplayEnvironment) -> None:
        lock = StorageLock(storage, env)
        lock.acquire()
        storage.delete([LEASE_PATH])
        with pytest.raises(StorageUnavailable, match="missing"):
            lock.renew()
        lock.release()
        assert storage.read(LEASE_PATH) is None

    def test_without_a_thread_to_renew_it_there_is_no_lease(
        self, storage: Storage, env: ReplayEnvironment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(env, "every_ms", refuse)
        with pytest.raises(RuntimeError):
            StorageLock(storage, env).acquire()
        assert lease(storage)["expired"] is True

    def test_misuse(self, storage: Storage, env: ReplayEnvironment) -> None:
        lock = StorageLock(storage, env)
        with pytest.raises(Internal):
            lock.check()
        lock.release()
        lock.acquire()
        with pytest.raises(Internal):
            lock.acquire()
        with pytest.raises(InvalidRequest, match="twice as often"):
            StorageLock(storage, env, validity_ms=1_000, renew_ms=600)

    def test_ended_owner_process_on_this_host_is_detected(self, storage: Storage, env: ReplayEnvironment) -> None:
        gone = replace(Process.current(), pid=os.getpid(), started=1)
        elsewhere = replace(gone, host="elsewhere")
        for process, dead in ((gone, True), (elsewhere, False), (Process.current(), False)):
            document = {"expired": False, "validUntil": env.now_ms() + 30_000, "owner": f"{process.text}:30000:id"}
            storage.put(LEASE_PATH, json.dumps(document).encode())
            lock = StorageLock(storage, env)
            if dead:
                lock.acquire(0)
            else:
                with pytest.raises(StorageUnavailable):
                    lock.acquire(0)

    def test_the_wait_outlasts_the_lease_of_a_dead_holder(self, storage: Storage, env: ReplayEnvironment) -> None:
        settings = LockSettings.of(parse_options({}))
        for chosen in (settings, LockSettings()):
            document = {"expired": False, "validUntil": env.now_ms() + chosen.storage.validity_ms, "owner": "another machine's"}
            storage.put(LEASE_PATH, json.dumps(document).encode())
            lock = open_lock(chosen, storage, env)
            lock.acquire()
            lock.release()

    @pytest.mark.parametrize("step_ms", [-3_600_000, -86_400_000])
    def test_clock_set_back_does_not_extend_the_wait(self, storage: Storage, env: ReplayEnvironment, step_ms: int) -> None:
        dead = replace(Process.current(), host="elsewhere")
        document = {"expired": False, "validUntil": env.now_ms() + 30_000, "owner": f"{dead.text}:30000:id"}
        storage.put(LEASE_PATH, json.dumps(document).encode())
        env.step_ms(step_ms)
        begun_ms = env.monotonic_ms()
        StorageLock(storage, env).acquire(60_000)
        assert 30_500 <= env.monotonic_ms() - begun_ms < 32_000

    def test_a_holder_notices_its_sleep_though_the_clock_was_set_back(self, storage: Storage, env: ReplayEnvironment) -> None:
        sleeper = StorageLock(storage, env)
        sleeper.acquire()
        env.stall_ms(61_000)
        StorageLock(storage, env).acquire(0)
        env.step_ms(-61_000)
        with pytest.raises(StorageUnavailable, match="lost"):
            sleeper.check()

    def test_queue_tickets_of_ended_processes_are_ignored(self, storage: Storage, env: ReplayEnvironment) -> None:
        gone, elsewhere = (replace(Process.current(), started=1), replace(Process.current(), host="elsewhere"))
        storage.put(f"{QUEUE_FOLDER}/000000000001.{gone.text}.00000000", b"")
        StorageLock(storage, env).held().__enter__()
        storage.delete([LEASE_PATH])
        storage.put(f"{QUEUE_FOLDER}/000000000001.{elsewhere.text}.00000000", b"")
        begun_ms = env.monotonic_ms()
        StorageLock(storage, env).acquire(60_000)
        assert env.monotonic_ms() - begun_ms < 12_000
        assert storage.list(QUEUE_FOLDER).files == ()

    def test_full_disk_is_reported_at_once(self, env: ReplayEnvironment) -> None:
        class Full(MemoryStorage):
            def put_if_absent(self, path: str, data: bytes) -> bool:
                raise StorageFull(f"cannot write {path}: no space left")

        begun_ms = env.monotonic_ms()
        with pytest.raises(StorageFull):
            open_lock(LockSettings(), Full(f"memory://{uuid.uuid4().hex}", env), env).acquire()
        assert env.monotonic_ms() == begun_ms

    def test_release_reuses_the_last_written_version(self, env: ReplayEnvironment) -> None:
        storage = FaultyStorage(MemoryStorage(f"memory://{uuid.uuid4().hex}", env))
        lock = StorageLock(storage, env)
        for _ in range(2):
            lock.acquire()
            made = len(storage.calls)
            lock.release()
        assert [call.operation for call in storage.calls[made:]] == ["put_if_matches"]
        # A renewal knows what it wrote, too.
        lock.acquire()
        lock.renew()
        made = len(storage.calls)
        lock.release()
        assert [call.operation for call in storage.calls[made:]] == ["put_if_matches"]

    def test_release_keeps_a_lease_taken_over_by_another(self, env: ReplayEnvironment) -> None:
        storage = MemoryStorage(f"memory://{uuid.uuid4().hex}", env)
        first, second = StorageLock(storage, env), StorageLock(storage, env)
        first.acquire()
        first.release()
        first.acquire()
        env.stall_ms(3_600_000)
        second.acquire()
        owner = second.owner
        first.release()
        second.check()
        found = storage.read(LEASE_PATH)
        assert found is not None and json.loads(found)["owner"] == owner and not json.loads(found)["expired"]

    def test_release_works_on_a_full_disk(self, env: ReplayEnvironment) -> None:
        class Full(MemoryStorage):
            full = False

            def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
                if Full.full:
                    raise StorageFull(f"cannot write {path}: no space left")
                return super().put_if_matches(path, data, tag)

        storage = Full(f"memory://{uuid.uuid4().hex}", env)
        first = StorageLock(storage, env)
        first.acquire()
        Full.full = True
        first.release()
        # No client waits for a lease, nor does it have to be expired.
        second = StorageLock(storage, env)
        second.acquire(0)
        # One that may belong to another process by the time of the deletion is not deleted.
        env.advance_ms(50_000)
        second.release()
        assert storage.read(LEASE_PATH) is not None

    def test_lease_is_renewed_in_real_time(self, tmp_path: Path) -> None:
        storage, env = open_storage(tmp_path, {"sync": "none"}), SystemEnvironment()
        lock = StorageLock(storage, env, validity_ms=600_000, renew_ms=20)
        with lock.held():
            leases = {storage.read(LEASE_PATH)}
            while len(leases) < 4:
                leases.add(storage.read(LEASE_PATH))
            with pytest.raises(StorageUnavailable):
                StorageLock(storage, env, margin_ms=0).acquire(0)
            lock.check()
        StorageLock(storage, env).acquire(0)


def called_by_pyhudi(call: Callable[[], object]) -> Callable[[], None]:
    """A function of PyHudi that makes a call, and may end without the release that should follow."""
    module = {"__name__": "pyhudi.operations.test", "call": call}
    exec("def outermost(): call()", module)
    return module["outermost"]  # type: ignore[return-value]


class TestAbandonedLease:
    """The release of an interrupted call never ran, as when the interruption hits the first line of `__exit__`."""

    def test_next_acquisition_of_the_same_object_releases_it(self, storage: Storage) -> None:
        lock = StorageLock(storage, SystemEnvironment())
        called_by_pyhudi(lock.acquire)()
        first = lease(storage)["owner"]
        lock.acquire(0)
        assert lease(storage)["owner"] != first
        lock.release()

    def test_next_acquisition_of_another_object_releases_it(self, storage: Storage) -> None:
        env = SystemEnvironment()
        called_by_pyhudi(open_lock(LockSettings(), storage, env).acquire)()
        with open_lock(LockSettings(), storage, env).held(0):
            assert lease(storage)["expired"] is False

    def test_it_is_not_renewed_but_released(self, storage: Storage, env: ReplayEnvironment) -> None:
        lock = StorageLock(storage, env, validity_ms=30_000, renew_ms=5_000)
        called_by_pyhudi(lock.acquire)()
        env.advance_ms(5_001)
        assert lease(storage)["expired"] is True
        assert lock.current_hold is None

    def test_a_lock_file_is_deleted(self, storage: Storage, env: ReplayEnvironment) -> None:
        called_by_pyhudi(FileSystemLock(storage, env).acquire)()
        env.advance_ms(5_001)
        assert storage.read("lock") is None

    def test_a_mutex_that_was_left_locked_does_not_block_the_release(
        self, storage: Storage, env: ReplayEnvironment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pyhudi.storage.locks.lease._UNLOCK_WAIT_S", 0.001)
        lock = StorageLock(storage, env)

        def acquire_and_lock_mutex() -> None:
            lock.acquire()
            lock._mutex.acquire()

        called_by_pyhudi(acquire_and_lock_mutex)()
        lock.acquire(0)

    def test_a_block_that_ends_late_does_not_release_the_next_hold(self, storage: Storage) -> None:
        lock = StorageLock(storage, SystemEnvironment())
        block = lock.held(0)
        called_by_pyhudi(block.__enter__)()
        with lock.held(0):
            block.__exit__(None, None, None)
            lock.renew()

    def test_the_exclusive_write_of_a_caller_is_not_abandoned(self, storage: Storage) -> None:
        """Its outermost function is a generator, which ends with the caller's block."""
        lock = StorageLock(storage, SystemEnvironment())
        module = {"__name__": "pyhudi.api.test", "lock": lock}
        exec("def exclusive():\n  with lock.held(0):\n    yield", module)
        block = module["exclusive"]()  # type: ignore[operator]
        next(block)
        lock.recover()
        lock.renew()
        block.close()


def _work(path: str, rounds: int) -> None:
    storage, env = open_storage(path, {"sync": "none"}), SystemEnvironment()
    # A lease that lasts longer than any pause of its holder.
    lock = open_lock(LockSettings(wait_ms=1_200_000, storage=StorageLockSettings(600_000, 50)), storage, env)
    for _ in range(rounds):
        with lock.held():
            # What the lock guards is a plain read and write, so that any overlap loses a count.
            seen = int(storage.read("n") or b"0")
            env.sleep_ms(1)
            lock.check()
            storage.put("n", str(seen + 1).encode())


def _take_and_die(path: str) -> None:
    open_lock(LockSettings(storage=StorageLockSettings(500, 50)), open_storage(path), SystemEnvironment()).acquire()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.full
def test_contending_processes_and_a_crash_lose_no_count(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(str(tmp_path), 8)) for _ in range(3)]
    victim = context.Process(target=_take_and_die, args=(str(tmp_path),))
    for worker in (*workers, victim):
        worker.start()
    victim.join()
    assert victim.exitcode == -9
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert open_storage(tmp_path).read("n") == b"24"


class TestFileSystemLock:
    @pytest.fixture
    def folder(self, storage: Storage) -> Storage:
        return storage.child(".hoodie")

    def test_lock_file_has_the_name_of_hudi_and_an_owner(self, storage: Storage, folder: Storage, env: ReplayEnvironment) -> None:
        lock = FileSystemLock(folder, env)
        with lock.held():
            assert Process.current().text in json.loads(storage.read(".hoodie/lock") or b"")["owner"]
            lock.check()
        assert storage.read(".hoodie/lock") is None

    def test_a_file_left_behind_blocks_for_ever_without_an_expiry(self, folder: Storage, env: ReplayEnvironment) -> None:
        folder.put("lock", b"")
        env.sleep_ms(1 << 40)
        with pytest.raises(StorageUnavailable, match="delete it if that writer has ended"):
            FileSystemLock(folder, env).acquire(100)

    def test_a_file_left_behind_is_taken_over_after_the_expiry(self, folder: Storage, env: ReplayEnvironment) -> None:
        folder.put("lock", b"")
        FileSystemLock(folder, env, expire_ms=60_000).acquire(61_500)
        assert env.now_ms() > 1_060_000

    def test_lock_file_of_another_holder_is_kept(self, folder: Storage, env: ReplayEnvironment) -> None:
        lock = FileSystemLock(folder, env)
        lock.acquire()
        env.sleep_ms(10)
        folder.put("lock", b"")
        with pytest.raises(StorageUnavailable, match="lost"):
            lock.check()
        lock.release()
        assert folder.read("lock") == b""

    def test_holding_it_longer_than_its_expiry_is_noticed(self, folder: Storage, env: ReplayEnvironment) -> None:
        lock = FileSystemLock(folder, env, expire_ms=1_000)
        lock.acquire()
        env.sleep_ms(1_001)
        with pytest.raises(StorageUnavailable, match="longer than it may"):
            lock.check()

    def test_not_in_object_stores(self, env: ReplayEnvironment) -> None:
        with pytest.raises(Unsupported, match="StorageBasedLockProvider"):
            FileSystemLock(open_storage("s3://b/t", {"anonymous": "true"}), env)


class TestInProcessLock:
    def test_a_thread_that_ended_without_release_blocks_no_other(self, env: ReplayEnvironment) -> None:
        lock = InProcessLock("ended", env)
        recovered: list[str] = []
        lock.recovery = lambda: recovered.append("once")
        thread = threading.Thread(target=called_by_pyhudi(lock.acquire))
        thread.start()
        thread.join()
        with InProcessLock("ended", env).held(0):
            assert recovered == ["once"]

    def test_keys_are_locks_of_their_own(self, env: ReplayEnvironment) -> None:
        with InProcessLock("one", env).held(0), InProcessLock("two", env).held(0):
            pass

    def test_releasing_what_is_not_held_is_a_mistake(self, env: ReplayEnvironment) -> None:
        for call in (InProcessLock("k", env).release, InProcessLock("k", env).check):
            with pytest.raises(Internal):
                call()

    def test_waiting_in_real_time(self) -> None:
        env = SystemEnvironment()
        lock = InProcessLock("real wait", env)
        lock.acquire()
        threading.Timer(0.05, lock.release).start()
        InProcessLock("real wait", env).acquire(600_000)


class Recorded(LockProvider):
    def __init__(self, name: str, events: list[str], *, fails: bool = False) -> None:
        self.name, self.events, self.fails = name, events, fails

    def acquire(self, timeout_ms: int | None = None) -> None:
        self.events.append(f"{self.name} acquire {timeout_ms}")
        if self.fails:
            raise StorageUnavailable(self.name)

    def release(self) -> None:
        self.events.append(f"{self.name} release")
        if self.fails:
            raise StorageUnavailable(self.name)

    def check(self) -> None:
        self.events.append(f"{self.name} check")

    def renew(self) -> None:
        self.events.append(f"{self.name} renew")


class TestCombinedLock:
    @pytest.fixture
    def events(self) -> Iterator[list[str]]:
        yield []

    def test_locks_are_acquired_in_order_and_released_in_reverse(self, env: ReplayEnvironment, events: list[str]) -> None:
        lock = CombinedLock(Recorded("a", events), Recorded("b", events), env=env)
        with lock.held(70):
            lock.check()
            lock.renew()
        assert events == [
            *("a acquire 70", "b acquire 70"),
            *("a check", "b check", "a renew", "b renew"),
            *("b release", "a release"),
        ]

    def test_acquired_locks_are_released_when_a_later_one_fails(self, env: ReplayEnvironment, events: list[str]) -> None:
        lock = CombinedLock(Recorded("a", events), Recorded("b", events, fails=True), Recorded("c", events), env=env)
        with pytest.raises(StorageUnavailable):
            lock.acquire(5)
        assert events == ["a acquire 5", "b acquire 5", "a release"]

    def test_every_release_is_tried(self, env: ReplayEnvironment, events: list[str]) -> None:
        lock = CombinedLock(Recorded("a", events), Recorded("b", events, fails=True), env=env)
        with pytest.raises(StorageUnavailable):
            lock.release()
        assert events == ["b release", "a release"]


class TestOpenLock:
    def test_the_default_is_a_lease_behind_a_thread_lock(self, storage: Storage, env: ReplayEnvironment) -> None:
        lock = open_lock(LockSettings(), storage, env)
        with lock.held():
            assert lease(storage)["expired"] is False
            with pytest.raises(StorageUnavailable, match="another thread"):
                open_lock(LockSettings(), storage, env).acquire(0)
            with pytest.raises(StorageUnavailable, match="holds it"):
                StorageLock(storage, env).acquire(0)

    def test_provider_class_names_of_hudi(self, storage: Storage, env: ReplayEnvironment, tmp_path: Path) -> None:
        with open_lock(LockSettings(CLASS + "StorageBasedLockProvider"), storage, env).held():
            assert lease(storage)["expired"] is False
        with open_lock(LockSettings(CLASS + "FileSystemBasedLockProvider"), storage, env).held():
            assert storage.read(".hoodie/lock")
        folder = FileSystemLockSettings(str(tmp_path / "locks"))
        elsewhere = LockSettings(CLASS + "FileSystemBasedLockProvider", file_system=folder)
        with open_lock(elsewhere, storage, env).held():
            assert (tmp_path / "locks" / "lock").read_bytes()
        with open_lock(LockSettings(CLASS + "InProcessLockProvider"), storage.child("t"), env).held():
            assert list(storage.walk("t")) == []

    @pytest.mark.parametrize(
        ("name", "settings", "missing"),
        [
            (ZOOKEEPER, {}, r"hoodie\.write\.lock\.zookeeper\.base_path"),
            (ZOOKEEPER, {"zookeeper": ZookeeperSettings(base_path="/l")}, r"hoodie\.write\.lock\.zookeeper\.url"),
            (CLASS + "ZookeeperBasedImplicitBasePathLockProvider", {}, r"hoodie\.write\.lock\.zookeeper\.url"),
            (ZOOKEEPER, {"zookeeper": ZookeeperSettings("h:x", "/l")}, r"zookeeper\.url=h:x: expected host:port"),
            (DYNAMODB, {}, r"hoodie\.write\.lock\.dynamodb\.table"),
            (DYNAMODB, {"dynamodb": DynamoDbSettings("t", access_key="k")}, r"hoodie\.aws\.secret\.key go together"),
            (HIVE, {}, r"hoodie\.write\.lock\.hivemetastore\.uris"),
            (HIVE, {"hive": HiveLockSettings(("thrift://h",), "d")}, r"hoodie\.write\.lock\.hivemetastore\.table"),
            (HIVE, {"hive": HiveLockSettings(("http://h",), "d", "t")}, r"uris=http://h: expected thrift://host:port"),
            (HIVE, {"hive": HiveLockSettings(("thrift://h:x",), "d", "t")}, r"uris=thrift://h:x: expected thrift://host:port"),
        ],
    )
    def test_missing_provider_settings_are_reported_at_once(
        self, storage: Storage, env: ReplayEnvironment, name: str, settings: dict[str, Any], missing: str
    ) -> None:
        with pytest.raises(InvalidRequest, match=missing):
            open_lock(LockSettings(name, **settings), storage, env)

    @pytest.mark.parametrize(
        ("name", "settings", "module", "extra"),
        [
            (ZOOKEEPER, {"zookeeper": ZookeeperSettings("h:1", "/l")}, "kazoo", "zookeeper"),
            (DYNAMODB, {"dynamodb": DynamoDbSettings("t")}, "boto3", "aws"),
            (HIVE, {"hive": HiveLockSettings(("thrift://h",), "d", "t")}, "thriftpy2", "hive"),
        ],
    )
    def test_missing_provider_package_is_reported_at_once(
        self,
        storage: Storage,
        env: ReplayEnvironment,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        settings: dict[str, Any],
        module: str,
        extra: str,
    ) -> None:
        for loaded in (module, f"{module}.client"):
            monkeypatch.setitem(sys.modules, loaded, None)
        hive_metastore._messages.cache_clear()
        with pytest.raises(InvalidRequest, match=rf'needs {module}: pip install "pyhudi\[{extra}\]"'):
            open_lock(LockSettings(name, **settings), storage, env)

    @pytest.mark.parametrize("name", [None, CLASS + "InProcessLockProvider", DYNAMODB])
    def test_lock_server_settings_without_its_provider_are_refused(
        self, storage: Storage, env: ReplayEnvironment, name: str | None
    ) -> None:
        settings = LockSettings(name, zookeeper=ZookeeperSettings("h:1"), dynamodb=DynamoDbSettings(None))
        with pytest.raises(InvalidRequest, match=r"zookeeper\.url=h:1 selects where writers lock.*set hoodie.*Zookeeper"):
            open_lock(settings, storage, env)

    def test_options_of_all_providers(self) -> None:
        given = {
            "hoodie.write.lock.zookeeper.url": "a:1,b:2/c",
            "hoodie.write.lock.zookeeper.session_timeout_ms": 4_000,
            "hoodie.write.lock.dynamodb.table": "locks",
            "hoodie.write.lock.dynamodb.billing_mode": "provisioned",
            "hoodie.aws.access.key": "key",
            "hoodie.write.lock.hivemetastore.uris": "thrift://a:1, thrift://b",
            "hoodie.write.lock.heartbeat_interval_ms": 30_000,
        }
        settings = LockSettings.of(parse_options(given), "trips")
        assert settings.zookeeper == ZookeeperSettings("a:1,b:2/c", session_timeout_ms=4_000)
        assert settings.dynamodb == DynamoDbSettings("locks", billing_mode="PROVISIONED", access_key="key")
        assert settings.hive == HiveLockSettings(("thrift://a:1", "thrift://b"), heartbeat_ms=30_000)
        secret = replace(settings, dynamodb=DynamoDbSettings("locks", access_key="word", secret_key="word", session_token="word"))
        assert "word" not in repr(secret)

    def test_names_of_locks(self, env: ReplayEnvironment, tmp_path: Path) -> None:
        s3 = open_storage("s3a://bucket/table", {"anonymous": "true"})
        assert lock_registry._implicit_name(s3) == "4DCF035CB614089C"
        assert lock_registry._implicit_name(open_storage(tmp_path)) == path_hash(str(tmp_path))
        assert ZookeeperSettings(base_path="//a//b/").path("trips") == "/a/b/trips"
        assert ZookeeperSettings(base_path="/a", lock_key="k").path("trips") == "/a/k"

    @pytest.mark.parametrize("name", ["com.example.Mine", ""])
    def test_unknown_providers_are_refused_by_name(self, storage: Storage, env: ReplayEnvironment, name: str) -> None:
        with pytest.raises(Unsupported, match=f"{name} is not available.*FileSystemBasedLockProvider.*StorageBased"):
            open_lock(LockSettings(name), storage, env)

    def test_registered_provider_is_used(self, storage: Storage, env: ReplayEnvironment) -> None:
        events: list[str] = []
        register_lock_provider("com.example.Registered", lambda *_: Recorded("mine", events))
        with open_lock(LockSettings("com.example.Registered", wait_ms=9), storage, env).held():
            pass
        assert events == ["mine acquire 9", "mine release"]
