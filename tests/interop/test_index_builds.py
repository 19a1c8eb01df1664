"""Apache Hudi builds an index while a write of PyHudi is in progress: it does not wait in vain, and has all keys."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.instants import Instant
from pyhudi.operations.commit.planned_commit import PlannedCommit
from pyhudi.operations.commit.transaction import Transaction
from tests.interop.background_statements import BEGIN, END
from tests.interop.oracle import ApacheHudi

LOCK: dict[str, Any] = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
OURS = {**LOCK, "hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
THEIRS = {
    **LOCK,
    "hoodie.write.lock.num_retries": "6000",
    "hoodie.write.lock.wait_time_ms_between_retry": "100",
    "hoodie.metadata.index.check.timeout.seconds": "120",
}
STARTED = """
import glob
thread, errors = spark.held
result = not thread.is_alive() or bool(glob.glob(path + "/.hoodie/timeline/*.indexing.inflight"))
"""
WAITS = """
thread, errors = spark.held
stacks = jvm.java.lang.Thread.getAllStackTraces()
frames = (str(frame) for found in stacks.keySet().toArray() for frame in stacks.get(found) or ())
result = not thread.is_alive() or any("IndexingCatchupTask.awaitInstantCaughtUp" in frame for frame in frames)
"""


def rows(**values: str) -> pa.Table:
    return pa.table({"id": list(values), "v": list(values.values())})


@pytest.mark.parametrize("until", [STARTED, WAITS], ids=["it has started", "it waits for the write"])
def test_index_contains_a_write_that_commits_during_its_build(
    hudi: ApacheHudi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: str
) -> None:
    path = tmp_path / "t"
    options = {**OURS, "hoodie.write.table.version": 8}
    Table.create(str(path), name="built", record_key="id", table_type="mor", options=options)
    table = Table(str(path), options=OURS)
    table.upsert(rows(a="1", b="1"))
    hudi.register(path, "built")
    commit, builds = Transaction.commit, [until]

    def during_the_build(self: Transaction, planned: PlannedCommit) -> Instant:
        if builds:
            hudi.run(BEGIN, text="CREATE INDEX record_index ON built (id)", options=THEIRS)
            condition, deadline = builds.pop(), time.monotonic() + 120
            while not hudi.run(condition, path=str(path)):
                assert time.monotonic() < deadline
        return commit(self, planned)

    monkeypatch.setattr(Transaction, "commit", during_the_build)
    table.upsert(rows(a="2", n="2"))
    assert hudi.run(END) == []
    indexed = Table(str(path))
    assert "record_index" in indexed.context.config.metadata_partitions
    assert indexed.validate(keys=True).ok
    assert sorted(indexed.lookup(["a", "b", "n"]).to_arrow()["v"].to_pylist()) == ["1", "2", "2"]
