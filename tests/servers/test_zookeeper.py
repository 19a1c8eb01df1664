"""The ZooKeeper lock on a server."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import uuid
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.api.table import Table
from pyhudi.errors import StorageUnavailable
from pyhudi.storage.environment import Environment, ReplayEnvironment, SystemEnvironment
from pyhudi.storage.locks.zookeeper import ZookeeperLock, ZookeeperSettings, _session_of
from tests.conformance.lock_suite import LockSuite, MakeLock
from tests.conformance.servers import Server
from tests.servers.zookeeper_locks import _PATIENT_MS, _PATIENT_S, lock_at


@pytest.fixture
def env() -> Environment:
    return SystemEnvironment()


@pytest.fixture
def path() -> str:
    return f"/locks/{uuid.uuid4().hex}"


@pytest.fixture
def other(zookeeper: Server) -> Any:
    """A client of its own."""
    from kazoo.client import KazooClient

    client = KazooClient(zookeeper.address, timeout=_PATIENT_S)
    client.start(_PATIENT_S)
    yield client
    client.stop()
    client.close()


class TestZookeeperLock(LockSuite):
    @pytest.fixture
    def make_lock(self, zookeeper: Server, path: str) -> MakeLock:
        return lambda env: lock_at(zookeeper.address, path, env)


def test_lock_nodes_have_the_names_of_curator(zookeeper: Server, path: str, env: Environment, other: Any) -> None:
    lock = lock_at(zookeeper.address, path, env)
    with lock.held():
        (node,) = other.get_children(path)
        head, mark, number = node.rpartition("-lock-")
        assert mark
        assert head.startswith("_c_")
        assert uuid.UUID(head.removeprefix("_c_")).version == 4
        assert len(number) == 10
        assert number.isdecimal()
    assert other.get_children(path) == []


def test_a_node_of_curator_with_a_smaller_number_comes_first(zookeeper: Server, path: str, env: Environment, other: Any) -> None:
    # The text before the mark must not count: z sorts behind every uuid.
    node = other.create(f"{path}/_c_zzzz-lock-", ephemeral=True, sequence=True, makepath=True)
    lock = lock_at(zookeeper.address, path, env)
    with pytest.raises(StorageUnavailable, match="_c_zzzz-lock-0000000000 holds it"):
        lock.acquire(0)
    assert other.get_children(path) == [node.rpartition("/")[2]]
    other.delete(node)
    lock.acquire(0)
    lock.release()


def test_one_session_serves_every_lock(zookeeper: Server, env: Environment) -> None:
    first, second = (lock_at(zookeeper.address, f"/locks/{uuid.uuid4().hex}", env) for _ in range(2))
    with first.held(), second.held():
        assert first._session.id == second._session.id
        held = first._session.id
    with first.held():
        assert first._session.id == held


def end_session(lock: ZookeeperLock) -> None:
    from kazoo.client import KazooClient

    client = lock._session._client
    gone = threading.Event()
    client.add_listener(lambda state: gone.set() if state == "LOST" else None)
    # A client that takes a session over and closes it ends it for both.
    double = KazooClient(lock._url, client_id=client.client_id, timeout=_PATIENT_S)
    double.start(_PATIENT_S)
    double.stop()
    assert gone.wait(_PATIENT_S)


def test_a_session_that_ended_has_lost_the_lock(zookeeper: Server, path: str, env: Environment) -> None:
    # Locks with the same limits share a session.
    holder = lock_at(zookeeper.address, path, env)
    waiter = lock_at(zookeeper.address, path, env, session_timeout_ms=_PATIENT_MS // 2)
    holder.acquire()
    end_session(holder)
    waiter.acquire()
    with pytest.raises(StorageUnavailable, match="the table's lock was lost: "):
        holder.check()
    holder.release()
    waiter.check()
    waiter.release()


def test_new_session_does_not_confirm_the_lock_of_the_old_one(zookeeper: Server, path: str, env: Environment) -> None:
    lock = lock_at(zookeeper.address, path, env)
    lock.acquire()
    lock._session.end()
    lock._session.request("exists", path)
    with pytest.raises(StorageUnavailable, match="the table's lock was lost: "):
        lock.check()
    lock.release()


def test_unreachable_server_does_not_end_the_session(zookeeper: Server, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = ReplayEnvironment(1)
    lock = lock_at(zookeeper.address, path, env)
    with lock.held():
        with zookeeper.silent(), monkeypatch.context() as impatient:
            # Only where no answer can come: elsewhere a slow machine would meet the limit too.
            impatient.setattr(lock._session, "_answer_timeout_s", 0.3)
            # A recent check is believed, and then the server has to be queried.
            lock.check()
            env.stall_ms(1_001)
            with pytest.raises(StorageUnavailable, match=r"no answer to \w+ \S+ within 0\.3 s"):
                lock.check()
        lock.check()


def test_session_end_is_detected_while_the_server_is_unreachable(
    zookeeper: Server, path: str, env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_at(zookeeper.address, path, env)
    lock.acquire()
    session = lock._session
    with zookeeper.silent():
        # kazoo would wait for most of the session's length, which is longer than a test may last.
        monkeypatch.setattr(session, "_answer_timeout_s", 0.3)
        lock.release()
        with pytest.raises(StorageUnavailable, match=r"no connection within 0\.3 s"):
            lock.acquire(0)
    monkeypatch.undo()
    waiter = lock_at(zookeeper.address, f"{path}-other", env)
    with waiter.held():
        waiter.check()


def test_unknown_lock_node_is_removed_with_its_session(
    zookeeper: Server, path: str, env: Environment, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_at(zookeeper.address, path, env)
    session = lock._session
    asked = session.request

    def lose_responses(operation: str, where: str, **arguments: object) -> Any:
        if operation == "create" or (lock._in_doubt and operation != "ensure_path"):
            if operation == "create":
                asked(operation, where, **arguments)
            raise StorageUnavailable("no answer")
        return asked(operation, where, **arguments)

    monkeypatch.setattr(session, "request", lose_responses)
    with pytest.raises(StorageUnavailable, match="no answer"):
        lock.acquire(0)
    monkeypatch.undo()
    assert other.get_children(path) == []
    lock.acquire(0)
    lock.release()


def test_lost_response_to_a_create_makes_no_second_node(
    zookeeper: Server, path: str, env: Environment, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_at(zookeeper.address, path, env)
    session = lock._session
    asked = session.request

    def lose_response(operation: str, where: str, **arguments: object) -> Any:
        answer = asked(operation, where, **arguments)
        if operation == "create":
            monkeypatch.undo()
            raise StorageUnavailable("no answer")
        return answer

    monkeypatch.setattr(session, "request", lose_response)
    with lock.held():
        assert len(other.get_children(path)) == 1
    assert other.get_children(path) == []


def test_unreachable_server_is_reported_within_the_timeout(env: Environment) -> None:
    settings = ZookeeperSettings("127.0.0.1:1", connection_timeout_ms=100)
    with pytest.raises(StorageUnavailable, match=r"zookeeper://127\.0\.0\.1:1: no connection within 0\.1 s"):
        ZookeeperLock(env, settings, "/l").acquire(0)


def test_sessions_are_cached_by_their_settings() -> None:
    assert _session_of("a:1", 1, 2) is _session_of("a:1", 1, 2)
    assert _session_of("a:1", 1, 2) is not _session_of("b:1", 1, 2)


def rows(*names: str) -> pa.Table:
    return pa.table({"id": list(names), "ts": [1] * len(names)})


def test_write_whose_session_ends_is_rolled_back(zookeeper: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": zookeeper.address,
        "hoodie.write.lock.zookeeper.base_path": f"/{uuid.uuid4().hex}",
        "hoodie.write.lock.zookeeper.session_timeout_ms": str(_PATIENT_MS),
        "hoodie.write.lock.zookeeper.connection_timeout_ms": str(_PATIENT_MS),
    }
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", options=options)
    proven = ZookeeperLock.check
    proofs = 0
    ends_at: int | None = None

    def counted(lock: ZookeeperLock) -> None:
        nonlocal proofs
        proofs += 1
        if proofs == ends_at:
            end_session(lock)
        proven(lock)

    monkeypatch.setattr(ZookeeperLock, "check", counted)
    # The first write makes the metadata table too.
    table.insert(rows("first"))
    proofs = 0
    table.insert(rows("a"))
    in_a_write, landed = proofs, ["first", "a"]
    assert in_a_write > 5
    for ends_at in (1, in_a_write // 2, *range(in_a_write - 2, in_a_write + 1)):
        proofs = 0
        try:
            table.insert(rows(f"b{ends_at}"))
            landed.append(f"b{ends_at}")
        except StorageUnavailable as error:
            assert "the table's lock was lost" in str(error)
        assert proofs >= ends_at
        assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == sorted(landed)
    ends_at = None
    table.insert(rows("c"))
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == sorted([*landed, "c"])
    assert len(landed) < 6, "a session that ends before the completed file fails the write"


def _count(address: str, path: str, file: str, rounds: int) -> None:
    env = SystemEnvironment()
    lock = lock_at(address, path, env)
    counter = Path(file)
    for _ in range(rounds):
        with lock.held():
            # What the lock guards is a plain read and write, so that any overlap loses a count.
            seen = int(counter.read_text())
            env.sleep_ms(1)
            lock.check()
            counter.write_text(str(seen + 1))


def _take_and_die(address: str, path: str) -> None:
    lock_at(address, path, SystemEnvironment(), session_timeout_ms=1_000).acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def test_contending_processes_and_a_crash_lose_no_count(zookeeper: Server, path: str, tmp_path: Path) -> None:
    counter = tmp_path / "n"
    counter.write_text("0")
    # Each child of fork makes a session of its own.
    context = multiprocessing.get_context("fork")
    victim = context.Process(target=_take_and_die, args=(zookeeper.address, path))
    workers = [context.Process(target=_count, args=(zookeeper.address, path, str(counter), 20)) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for process in (victim, *workers):
            process.start()
    for process in (victim, *workers):
        process.join(_PATIENT_S)
    assert [process.exitcode for process in (victim, *workers)] == [-signal.SIGKILL, 0, 0]
    assert counter.read_text() == "40"
