"""Pickling of tables, scans, options, results and locks, and use in forked processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.api.scan import Scan
from pyhudi.errors import Unsupported, WriteConflict
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.environment import ReplayEnvironment, SystemEnvironment
from pyhudi.storage.heartbeats import Heartbeat
from pyhudi.storage.locks import InProcessLock, LockSettings, open_lock
from pyhudi.storage.locks.dynamodb import DynamoDbSettings
from pyhudi.storage.locks.hive_metastore import HiveLockSettings
from pyhudi.storage.locks.zookeeper import ZookeeperSettings

CLASS = "org.apache.hudi.client.transaction.lock."


def rows(*names: str, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(names), "ts": [ts] * len(names)})


def names(scan: Scan) -> list[str]:
    return sorted(scan.to_arrow()["id"].to_pylist())


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    made = Table.create(
        tmp_path / "t",
        record_key="id",
        ordering="ts",
        table_type=request.param,
        options={"hoodie.table.cdc.enabled": True, "hoodie.write.lock.wait_time_ms": 50_000},
    )
    made.insert(rows("a", "b"))
    made.upsert(rows("b", "c", ts=2))
    return made


@pytest.mark.sample(2)
@pytest.mark.parametrize("travel", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_table_and_its_results_are_pickled(table: Table, travel: Any) -> None:
    def again(thing: Any) -> Any:
        return travel.loads(travel.dumps(thing))

    for scan in (
        table.scan(filter="ts >= 1"),
        table.read_optimized(),
        table.lookup(["a", "b"]),
        table.incremental("earliest"),
        table.changes("earliest"),
    ):
        assert again(scan).to_arrow() == scan.to_arrow()
        assert str(again(scan).explain()) == str(scan.explain())
    arrived = again(table)
    assert names(arrived.scan()) == ["a", "b", "c"]
    result = arrived.upsert(rows("d"))
    assert again(result) == result
    assert names(table.scan()) == ["a", "b", "c", "d"]
    assert again(table.index).list() == table.index.list()
    assert again(table.config) == table.config
    assert again(table.timeline()).instants == table.timeline().instants


def test_unpickled_table_has_its_options_and_a_free_lock(table: Table) -> None:
    with table.context.lock.held():
        arrived = pickle.loads(pickle.dumps(table))
    assert arrived._open.options == table._open.options
    with arrived.context.lock.held(0):
        arrived.context.lock.check()
    with table.background_services():
        assert names(pickle.loads(pickle.dumps(table)).scan()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "settings",
    [
        LockSettings(),
        LockSettings(CLASS + "InProcessLockProvider"),
        LockSettings(CLASS + "FileSystemBasedLockProvider"),
        LockSettings(CLASS + "ZookeeperBasedLockProvider", zookeeper=ZookeeperSettings("h:1", "/l"), table_name="t"),
        LockSettings(
            "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider", dynamodb=DynamoDbSettings("t"), table_name="t"
        ),
        LockSettings(
            "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
            hive=HiveLockSettings(("thrift://h",), "d", "t"),
        ),
    ],
    ids=lambda settings: str(settings.provider).rpartition(".")[2],
)
def test_every_lock_is_pickled(settings: LockSettings, tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(settings)) == settings
    lock = open_lock(settings, open_storage(tmp_path), SystemEnvironment())
    arrived = pickle.loads(pickle.dumps(lock))
    assert type(arrived) is type(lock)
    assert arrived is not lock


def test_options_are_pickled() -> None:
    options = parse_options({"hoodie.index.type": "BLOOM", "hoodie.write.lock.wait_time_ms": 7})
    assert pickle.loads(pickle.dumps(options)) == options
    settings = CommitSettings.of(options)
    assert pickle.loads(pickle.dumps(settings)) == settings


def _elsewhere(table: Table, scan: Scan) -> list[str]:
    seen = names(scan)
    table.upsert(rows("z"))
    return seen


@pytest.mark.parametrize("table", ["mor"], indirect=True)
def test_another_process_reads_and_writes_an_unpickled_table(table: Table) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_elsewhere, (table, table.scan())) == ["a", "b", "c"]
    assert names(table.scan()) == ["a", "b", "c", "z"]


def in_a_child(work: Callable[[], None]) -> None:
    """Run it in a child of fork, and fail where it fails or does not end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            # A child that hangs is killed.
            signal.alarm(60)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_of_fork_reads_and_writes(table: Table) -> None:
    def work() -> None:
        assert names(table.scan()) == ["a", "b", "c"]
        table.upsert(rows("child"))

    with table.context.lock.held():
        pass
    in_a_child(work)
    table.upsert(rows("parent"))
    assert names(table.scan()) == ["a", "b", "c", "child", "parent"]


@pytest.mark.parametrize("table", ["cow"], indirect=True)
def test_forked_process_starts_its_own_threads(table: Table) -> None:
    def work() -> None:
        table.upsert(rows("child"), options={"hoodie.clean.commits.retained": 1})
        actions = [instant.action for instant in table.timeline().instants]
        assert any(str(action) == "clean" for action in actions)

    with table.background_services(["clean"], options={"hoodie.clean.commits.retained": 100}):
        in_a_child(work)


def test_forked_process_neither_renews_nor_removes_heartbeats_of_its_parent(tmp_path: Path) -> None:
    storage, env = open_storage(tmp_path), ReplayEnvironment(1)
    heartbeat = Heartbeat(storage, env, "20260101000000000")
    heartbeat.start()
    before = storage.read(heartbeat._path)

    def work() -> None:
        with pytest.raises(WriteConflict, match="the parent of this forked process"):
            heartbeat.check()
        heartbeat.stop()
        assert storage.read(heartbeat._path) == before

    in_a_child(work)
    heartbeat.check()
    assert storage.read(heartbeat._path) == before


@pytest.mark.parametrize("table", ["cow"], indirect=True)
def test_forked_process_does_not_roll_back_a_write_of_its_parent(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyhudi.operations.commit.transaction import Transaction

    commit = Transaction.commit

    def forks(transaction: Transaction, *args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            raise KeyError("the child fails in the middle of its parent's write")
        assert os.waitpid(child, 0)[1] == 0
        return commit(transaction, *args, **kwargs)

    monkeypatch.setattr(Transaction, "commit", forks)
    parent = os.getpid()
    try:
        table.upsert(rows("d"))
    except KeyError:
        assert os.getpid() != parent
        os._exit(0)
    assert names(table.scan()) == ["a", "b", "c", "d"]


def test_object_store_of_the_parent_raises_in_a_forked_process() -> None:
    # Port 1 accepts no connections: only the attempt matters.
    options = {"endpoint": "http://127.0.0.1:1", "allow_http": "true", "anonymous": "true", "region": "x", "max_retries": "0"}
    store = open_storage("s3://bucket/t", options)
    with pytest.raises(Exception, match="read"):
        store.read("a")

    def work() -> None:
        for tried in (store, open_storage("s3://bucket/t", options)):
            with pytest.raises(Unsupported, match='method "spawn" or "forkserver"'):
                tried.read("a")

    in_a_child(work)


def test_a_thread_lock_of_the_parent_is_free_in_its_child() -> None:
    env = SystemEnvironment()
    with InProcessLock("forked", env).held():
        in_a_child(lambda: InProcessLock("forked", env).acquire(0))
