"""Apache Hudi and PyHudi write one table at the same time under one lock."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

import pyhudi
from tests.conformance.servers import Server
from tests.interop.oracle import ApacheHudi


def rows(writer: str, numbers: range) -> pa.Table:
    return pa.table({"id": [f"{writer}{n}" for n in numbers], "writer": [writer] * len(numbers), "ts": list(numbers)})


def options(server: Server, provider: str, **more: object) -> dict[str, Any]:
    return {
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.lock.provider": f"org.apache.hudi.client.transaction.lock.{provider}",
        "hoodie.write.lock.zookeeper.url": server.address,
        # No machine is so slow that one of them is taken for dead.
        "hoodie.write.lock.zookeeper.session_timeout_ms": 600_000,
        "hoodie.write.lock.zookeeper.connection_timeout_ms": 600_000,
        **more,
    }


TABLE: dict[str, Any] = {
    "hoodie.table.name": "counted",
    "hoodie.embed.timeline.server": False,
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    # Each writes to files of its own, so that what they share is the timeline, the metadata table and the lock.
    "hoodie.datasource.write.partitionpath.field": "writer",
}


def children(server: Server, path: str) -> list[str]:
    from kazoo.client import KazooClient

    client = KazooClient(server.address, timeout=600)
    client.start(600)
    try:
        found: list[str] = client.get_children(path)
        return found
    finally:
        client.stop()
        client.close()


def test_concurrent_hudi_and_pyhudi_writers_lose_no_write(hudi: ApacheHudi, tmp_path: Path, zookeeper: Server) -> None:
    path = tmp_path / "t"
    base = {"hoodie.write.lock.zookeeper.base_path": "/hudi", "hoodie.write.lock.wait_time_ms": 600_000}
    shared = options(zookeeper, "ZookeeperBasedLockProvider", **base)
    hudi.write(rows("real", range(1)), path, mode="overwrite", **TABLE, **shared)
    table = pyhudi.Table(path, options=shared)
    landed = {"real": 1, "ours": 0}
    trouble: list[BaseException] = []
    done = threading.Event()

    def ours() -> None:
        try:
            # However slow the machine is, ours writes more than once.
            while not done.is_set() or landed["ours"] < 2:
                n = landed["ours"]
                table.upsert(rows("ours", range(n, n + 1)))
                landed["ours"] = n + 1
        except BaseException as error:
            trouble.append(error)

    writer = threading.Thread(target=ours)
    writer.start()
    try:
        for n in range(1, 3):
            hudi.write(rows("real", range(n, n + 1)), path, mode="append", **TABLE, **shared)
            landed["real"] = n + 1
    finally:
        done.set()
        writer.join()
    assert trouble == []
    assert landed["ours"] > 1
    expected = sorted([f"{name}{n}" for name, count in landed.items() for n in range(count)])
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == expected
    assert sorted(hudi.read(path, columns=["id"])["id"].to_pylist()) == expected
    # Both have locked the same node, or there would be two.
    assert children(zookeeper, "/hudi") == ["counted"]
    assert children(zookeeper, "/hudi/counted") == []


def test_implicit_lock_has_the_name_of_hudi(hudi: ApacheHudi, tmp_path: Path, zookeeper: Server) -> None:
    path = tmp_path / "t"
    shared = options(zookeeper, "ZookeeperBasedImplicitBasePathLockProvider")
    hudi.write(rows("real", range(1)), path, mode="overwrite", **TABLE, **shared)
    (node,) = children(zookeeper, "/tmp")
    pyhudi.Table(path, options=shared).upsert(rows("ours", range(1)))
    assert children(zookeeper, "/tmp") == [node]
    assert children(zookeeper, f"/tmp/{node}") == ["lock_key"]
