"""Audit of the storage lease: what is recorded, what it costs, and that its failure does not matter."""

from __future__ import annotations

import json
import os
import random
import uuid
from dataclasses import replace

import pytest

from pyhudi.errors import StorageFull, StorageUnavailable
from pyhudi.storage.base import Listing, Storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.locks import (
    AUDIT_FOLDER,
    AUDIT_SWITCH_PATH,
    LEASE_PATH,
    AuditedHold,
    StorageLock,
    is_audit_enabled,
    set_audit_enabled,
)
from pyhudi.storage.memory import MemoryStorage
from pyhudi.storage.process_identity import Process

VALIDITY_MS = 60_000


@pytest.fixture
def env() -> ReplayEnvironment:
    return ReplayEnvironment(7, 1_000_000)


@pytest.fixture
def storage(env: ReplayEnvironment) -> Storage:
    storage = MemoryStorage(f"memory://{uuid.uuid4().hex}", env)
    set_audit_enabled(storage, enabled=True)
    return storage


class UnwritableAudit(MemoryStorage):
    """Fails where the audit is written and read."""

    error: type[Exception] = StorageUnavailable

    def put(self, path: str, data: bytes) -> None:
        if path.startswith(f"{AUDIT_FOLDER}/"):
            raise self.error(f"{path}: refused")
        super().put(path, data)

    def list(self, folder: str) -> Listing:
        if folder == AUDIT_FOLDER:
            raise self.error(f"{folder}: refused")
        return super().list(folder)


def audit_files(storage: Storage) -> dict[str, bytes]:
    return {info.name: storage.read(info.path) or b"" for info in storage.list(AUDIT_FOLDER).files}


def holds(storage: Storage) -> list[AuditedHold]:
    decoded = [AuditedHold.decode(name, data) for name, data in audit_files(storage).items()]
    assert None not in decoded
    return sorted((hold for hold in decoded if hold is not None), key=lambda hold: hold.started_ms)


def test_records_are_those_of_hudi(storage: Storage, env: ReplayEnvironment) -> None:
    lock = StorageLock(storage, env, label="host:1:")
    lock.acquire()
    owner = lock.owner
    assert owner is not None
    env.sleep_ms(15_000)
    lock.release()
    [(name, data)] = audit_files(storage).items()
    assert name == f"1000000_{owner.removeprefix('host:1:')}.jsonl"

    def record(timestamp: int, state: str, expires: int) -> dict[str, object]:
        times = {"transactionStartTime": 1_000_000, "timestamp": timestamp, "lockExpiration": expires}
        return {"ownerId": owner, **times, "state": state, "lockHeld": True}

    assert [json.loads(line) for line in data.splitlines()] == [
        record(1_000_000, "START", 1_060_000),
        record(1_010_000, "RENEW", 1_070_000),
        record(1_015_000, "END", 1_070_000),
    ]


@pytest.mark.parametrize("switch", [None, b'{"STORAGE_LOCK_AUDIT_SERVICE_ENABLED":false}', b"{broken", b"[]", b""])
def test_without_the_switch_nothing_is_recorded(env: ReplayEnvironment, switch: bytes | None) -> None:
    storage = MemoryStorage(f"memory://{uuid.uuid4().hex}", env)
    if switch is not None:
        storage.put(AUDIT_SWITCH_PATH, switch)
    assert not is_audit_enabled(storage)
    with StorageLock(storage, env).held():
        pass
    assert not audit_files(storage)


def test_lock_without_audit_makes_no_audit_calls(env: ReplayEnvironment) -> None:
    storage = FaultyStorage(MemoryStorage(f"memory://{uuid.uuid4().hex}", env))
    with StorageLock(storage, env).held():
        pass
    assert [(call.operation, call.path.removeprefix(f"{storage.uri}/")) for call in storage.calls] == [
        ("list", ".hoodie/.locks"),
        ("read_versioned", LEASE_PATH),
        ("put_if_absent", LEASE_PATH),
        ("read_versioned", LEASE_PATH),
        ("put_if_matches", LEASE_PATH),
    ]


def test_the_switch_counts_from_the_next_acquisition(storage: Storage, env: ReplayEnvironment) -> None:
    lock = StorageLock(storage, env)
    with lock.held():
        set_audit_enabled(storage, enabled=False)
    with lock.held():
        set_audit_enabled(storage, enabled=True)
    assert len(holds(storage)) == 1
    with lock.held():
        pass
    assert len(holds(storage)) == 2 and all(hold.ended_ms is not None for hold in holds(storage))


@pytest.mark.parametrize("error", [StorageUnavailable, StorageFull])
def test_a_failing_audit_does_not_fail_the_lock(
    env: ReplayEnvironment, error: type[Exception], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = UnwritableAudit(f"memory://{uuid.uuid4().hex}", env)
    set_audit_enabled(storage, enabled=True)
    monkeypatch.setattr(UnwritableAudit, "error", error)
    lock = StorageLock(storage, env)
    with lock.held():
        env.sleep_ms(15_000)
        lock.check()
    StorageLock(storage, env).acquire(0)
    assert "lacks a record" in caplog.text and not MemoryStorage.list(storage, AUDIT_FOLDER).files


def test_a_dead_process_of_this_machine_ends_with_the_next_holder(storage: Storage, env: ReplayEnvironment) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    owner = f"{replace(Process.current(), pid=child).text}:{VALIDITY_MS}:dead-id"
    lease = {"expired": False, "validUntil": env.now_ms() + VALIDITY_MS, "owner": owner}
    storage.put(LEASE_PATH, json.dumps(lease).encode())
    start = {"ownerId": owner, "transactionStartTime": env.now_ms(), "timestamp": env.now_ms(), "state": "START"}
    record = {**start, "lockExpiration": lease["validUntil"], "lockHeld": True}
    storage.put(f"{AUDIT_FOLDER}/{env.now_ms()}_dead-id.jsonl", json.dumps(record).encode() + b"\n")
    env.sleep_ms(1_000)
    with StorageLock(storage, env, label=None).held():
        env.sleep_ms(1_000)
    dead, following = holds(storage)
    assert dead.name.endswith("_dead-id.jsonl")
    assert (dead.started_ms, dead.end_ms) == (1_000_000, 1_001_000)
    assert (following.started_ms, following.end_ms) == (1_001_000, 1_002_000)


def test_an_expired_lease_ends_with_its_expiry(storage: Storage, env: ReplayEnvironment) -> None:
    sleeper, other = StorageLock(storage, env), StorageLock(storage, env)
    sleeper.acquire()
    env.stall_ms(61_000)
    other.acquire(0)
    sleeper.release()
    other.release()
    first, second = holds(storage)
    assert first.ended_ms is None and first.end_ms == 1_060_000 < second.started_ms == 1_061_000


def test_the_records_of_a_long_hold_are_bounded(storage: Storage, env: ReplayEnvironment) -> None:
    lock = StorageLock(storage, env)
    with lock.held():
        env.sleep_ms(3_600_000)
    [data] = audit_files(storage).values()
    [hold] = holds(storage)
    assert data.count(b"\n") == 101 and (hold.started_ms, hold.ended_ms) == (1_000_000, 4_600_000)


def test_damaged_files_decode_to_a_hold_or_to_none(storage: Storage, env: ReplayEnvironment) -> None:
    with StorageLock(storage, env).held():
        env.sleep_ms(15_000)
    [data] = audit_files(storage).values()
    rng = random.Random(5)
    lines = {end for end in range(len(data)) if data[:end].endswith(b"}") or data[:end].endswith(b"}\n")}
    for end in range(len(data)):
        assert (AuditedHold.decode("x", data[:end]) is not None) == (end in lines)
    for _ in range(500):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        AuditedHold.decode("x", bytes(damaged))


def test_an_interruption_at_any_call_of_an_acquisition_leaves_the_lock_free(env: ReplayEnvironment) -> None:
    def audited() -> Storage:
        storage = MemoryStorage(f"memory://{uuid.uuid4().hex}", env)
        set_audit_enabled(storage, enabled=True)
        return storage

    counting = FaultyStorage(audited())
    StorageLock(counting, env).acquire(0)
    assert any(AUDIT_FOLDER in call.path for call in counting.calls)
    for interrupted_call in range(1, len(counting.calls) + 1):

        def interrupt(number: int, _call: StorageCall, interrupted_call: int = interrupted_call) -> None:
            if number == interrupted_call:
                raise KeyboardInterrupt

        storage = audited()
        with pytest.raises(KeyboardInterrupt):
            StorageLock(FaultyStorage(storage, listener=interrupt), env).acquire(0)
        StorageLock(storage, env).acquire(0)
