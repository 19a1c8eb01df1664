"""Early conflict detection with Apache Hudi: the younger writer stops before it writes data."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import WriteConflict
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.heartbeats import heartbeat_path
from tests.conformance.servers import Server
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.interop.pair import Pair, make
from tests.support.hudi_dead_writes import DYING, data_files

EARLY: dict[str, Any] = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.concurrency.early.conflict.detection.enable": "true",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.write.num.retries.on.conflict.failures": 0,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
}


def table_with_commits(hudi: ApacheHudi, path: Path, kind: str, **options: Any) -> Pair:
    pair = Pair(hudi, path, kind, {**EARLY, **options})
    pair.create()
    pair.ours("upsert", make(range(20), 1), check=False)
    return pair


def server_of(request: pytest.FixtureRequest, options: dict[str, Any]) -> dict[str, Any]:
    """Where ZooKeeper is, for options that name its lock; a node for each test."""
    if "hoodie.write.lock.zookeeper.base_path" not in options:
        return {}
    server: Server = request.getfixturevalue("zookeeper")
    return {"hoodie.write.lock.zookeeper.url": server.address, "hoodie.write.lock.zookeeper.lock_key": uuid.uuid4().hex}


def upsert(pair: Pair, storage: FaultyStorage, data: pa.Table) -> None:
    settings = WriteSettings.of(parse_options(pair.options), WriteOperation.UPSERT)
    run_write(replace(pair.table.context, storage=storage), LocalEngine(1), data, settings)
    pair.rows |= {row["id"]: row for row in data.to_pylist()}


STRATEGY = "hoodie.write.concurrency.early.conflict.detection.strategy"
DIRECT: dict[str, Any] = {STRATEGY: "org.apache.hudi.table.marker.SimpleDirectMarkerBasedDetectionStrategy"}
TRANSACTION: dict[str, Any] = {
    STRATEGY: "org.apache.hudi.table.marker.SimpleTransactionDirectMarkerBasedDetectionStrategy",
    # It locks each file group besides, which Apache Hudi does by ZooKeeper alone.
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
    "hoodie.write.lock.zookeeper.base_path": "/early",
    # No machine is so slow that one of them is taken for dead.
    "hoodie.write.lock.zookeeper.session_timeout_ms": 600_000,
    "hoodie.write.lock.zookeeper.connection_timeout_ms": 600_000,
}
IN_LISTS: dict[str, Any] = {
    STRATEGY: "org.apache.hudi.timeline.service.handlers.marker.AsyncTimelineServerBasedDetectionStrategy",
    "hoodie.write.markers.type": "TIMELINE_SERVER_BASED",
    "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms": 0,
    "hoodie.write.concurrency.async.conflict.detector.period_ms": 500,
}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("cow", DIRECT),
        pytest.param("mor", DIRECT, marks=pytest.mark.wide),
        pytest.param("cow", TRANSACTION, marks=pytest.mark.wide),
        ("mor", TRANSACTION),
        # Not IN_LISTS, which looks later: see the next test.
    ],
)
def test_hudi_detects_conflicts_with_markers_of_pyhudi(
    request: pytest.FixtureRequest, hudi: ApacheHudi, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    pair = table_with_commits(hudi, tmp_path / "t", kind, **options, **server_of(request, options))
    before = data_files(pair.path)
    failures: list[HudiFailure] = []

    def watch(number: int, call: StorageCall) -> None:
        if call.operation == "open_output" and "/.hoodie/" not in call.path and not failures:
            with pytest.raises(HudiFailure) as caught:
                hudi.write(make(range(0, 20, 3), 3), pair.path, **pair.options)
            failures.append(caught.value)
            assert data_files(pair.path) == before

    upsert(pair, FaultyStorage(pair.table.context.storage, listener=watch), make(range(0, 20, 3), 2))
    assert failures[0].mentions("Early conflict detected")
    pair.check(0)
    # Its files are those of a dead write once its heartbeat is missing, and block no writer.
    (left,) = pair.table.timeline().pending_writes()
    pair.table.context.storage.delete([heartbeat_path(left.request_time)])
    pair.theirs("upsert", make(range(15), 4), check=False)
    pair.ours("upsert", make(range(10), 5))
    assert pair.table.validate().ok


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_detects_conflicts_with_marker_lists_of_pyhudi_during_a_write(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    """Its timeline server compares lists during the write, from the first marker on, and refuses a marker after a conflict.

    So it stops a write of many files, of which it makes two at a time, and one of few commits.
    """
    options = {
        **IN_LISTS,
        "hoodie.write.concurrency.async.conflict.detector.period_ms": 50,
        "hoodie.markers.timeline_server_based.batch.interval_ms": 300,
    }
    pair = table_with_commits(hudi, tmp_path / "t", kind, **options)
    for begin in range(20, 80, 20):
        pair.ours("upsert", make(range(begin, begin + 20), 1), check=False)
    file_count = len(data_files(pair.path))
    assert file_count == 12
    opened = 0
    failures: list[HudiFailure] = []

    def watch(number: int, call: StorageCall) -> None:
        nonlocal opened
        opened += call.operation == "open_output" and "/.hoodie/" not in call.path
        if opened == file_count and not failures:
            # All markers of ours are there, and the last file is not.
            with pytest.raises(HudiFailure) as caught:
                hudi.write(make(range(80), 3), pair.path, **pair.options)
            failures.append(caught.value)

    upsert(pair, FaultyStorage(pair.table.context.storage, listener=watch), make(range(80), 2))
    assert failures[0].mentions("Early conflict detected")
    pair.check(0)
    (left,) = pair.table.timeline().pending_writes()
    pair.table.context.storage.delete([heartbeat_path(left.request_time)])
    pair.table.rollback(left.request_time)
    pair.theirs("upsert", make(range(15), 4), check=False)
    pair.ours("upsert", make(range(10), 5))
    assert pair.table.validate().ok


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("cow", IN_LISTS, marks=pytest.mark.wide),
        ("mor", IN_LISTS),
        ("cow", DIRECT),
        pytest.param("mor", DIRECT, marks=pytest.mark.wide),
        pytest.param("cow", TRANSACTION, marks=pytest.mark.wide),
        pytest.param("mor", TRANSACTION, marks=pytest.mark.wide),
    ],
)
def test_pyhudi_detects_conflicts_with_markers_of_hudi(
    request: pytest.FixtureRequest, hudi: ApacheHudi, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    pair = table_with_commits(hudi, tmp_path / "t", kind, **options, **server_of(request, options))
    with pytest.raises(HudiFailure):
        hudi.write(make(range(5, 15), 2), pair.path, **pair.options, **DYING)
    (other,) = pair.table.timeline().pending_writes()
    left = {path.name for path in (pair.path / ".hoodie" / ".temp" / other.request_time).rglob("*") if path.is_file()}
    assert ("MARKERS.type" in left) == (options is IN_LISTS)
    storage = pair.table.context.storage
    # It has failed; while its heartbeat exists, it counts as an active writer.
    storage.put(heartbeat_path(other.request_time), b"")
    before = data_files(pair.path)
    watched = FaultyStorage(storage)
    with pytest.raises(WriteConflict, match="is pending and writes it") as caught:
        upsert(pair, watched, make(range(20), 3))
    assert caught.value.in_progress == (other.request_time,)
    assert data_files(pair.path) == before
    assert not [call for call in watched.calls if call.operation == "open_output" and "/.hoodie/" not in call.path]
    storage.delete([heartbeat_path(other.request_time)])
    upsert(pair, watched, make(range(20), 3))
    pair.table.rollback(other.request_time)
    pair.theirs("upsert", make(range(15), 4))
    assert pair.table.validate().ok
