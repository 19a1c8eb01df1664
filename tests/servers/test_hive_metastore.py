"""The Hive metastore lock on a server."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pyhudi.errors import StorageUnavailable
from pyhudi.storage.environment import Environment, ReplayEnvironment
from pyhudi.storage.locks import hive_metastore
from pyhudi.storage.locks.hive_metastore import HiveLock, HiveLockSettings
from tests.conformance.lock_suite import LockSuite, MakeLock
from tests.conformance.servers import Server


@pytest.fixture
def env() -> ReplayEnvironment:
    return ReplayEnvironment(9)


@pytest.fixture
def make_lock(metastore: Server, monkeypatch: pytest.MonkeyPatch) -> MakeLock:
    # The server answers late where the processor is withheld from it.
    monkeypatch.setattr(hive_metastore, "_ANSWER_TIMEOUT_MS", 1_200_000)
    settings = HiveLockSettings((f"thrift://{metastore.address}",), "lakes", f"t{uuid.uuid4().hex}")
    return lambda env: HiveLock(env, settings)


class TestHiveLock(LockSuite):
    is_fair = False


def test_waiting_leaves_nothing_in_the_queue_of_the_server(make_lock: MakeLock, env: Environment) -> None:
    holder, waiter = make_lock(env), make_lock(env)
    assert isinstance(holder, HiveLock)
    with holder.held():
        with pytest.raises(StorageUnavailable, match=r"on \S+ \(pyhudi [0-9a-f-]{36}\) holds it"):
            waiter.acquire(3_000)
        (only,) = holder._locks()
        assert only.agentInfo == holder._agent
    assert holder._locks() == []


def test_a_lock_that_the_server_dropped_is_lost(make_lock: MakeLock, env: ReplayEnvironment) -> None:
    holder, other = make_lock(env), make_lock(env)
    assert isinstance(holder, HiveLock) and isinstance(other, HiveLock)
    holder.acquire()
    other._lock_id = holder._lock_id
    other._release_lease()
    other.acquire(0)
    env.stall_ms(5_001)
    with pytest.raises(StorageUnavailable, match="the table's lock was lost: the metastore does not know the lock"):
        holder.check()
    holder.release()
    other.check()
    other.release()


@pytest.mark.parametrize("operation", ["lock", "heartbeat", "unlock"])
def test_acquire_with_a_lost_response(
    make_lock: MakeLock, env: ReplayEnvironment, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    lock = make_lock(env)
    assert isinstance(lock, HiveLock)
    connected = lock._connected
    lost: list[str] = []

    def losing() -> Any:
        client = connected()
        asked = client._req

        def request(name: str, *args: object, **kwargs: object) -> Any:
            answer = asked(name, *args, **kwargs)
            if name == operation and not lost:
                lost.append(name)
                raise OSError("the connection broke")
            return answer

        client._req = request
        return client

    monkeypatch.setattr(lock, "_connected", losing)
    with lock.held():
        env.sleep_ms(60_001)
        lock.check()
        assert len(lock._locks()) == 1
    assert lost == [operation]
    assert lock._locks() == []


def test_unreachable_server_is_reported(env: Environment) -> None:
    lock = HiveLock(env, HiveLockSettings(("thrift://127.0.0.1:1",), "d", "t"))
    with pytest.raises(StorageUnavailable, match=r"no Hive metastore can be reached: 127\.0\.0\.1:1: "):
        lock.acquire(0)
