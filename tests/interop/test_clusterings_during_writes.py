"""Apache Hudi executes a clustering during a write of PyHudi to its file groups: an acknowledged write is never lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table, TableState, WriteConflict
from pyhudi.format.instants import Action, Instant
from pyhudi.operations.commit.planned_commit import PlannedCommit
from pyhudi.operations.commit.transaction import Transaction
from tests.interop.background_statements import BEGIN, END
from tests.interop.oracle import ApacheHudi

STRATEGY = "hoodie.write.lock.conflict.resolution.strategy"
PREFER_WRITER = "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy"
SIMPLE = "org.apache.hudi.client.transaction.SimpleConcurrentFileWritesConflictResolutionStrategy"
OURS: dict[str, Any] = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.clustering.updates.strategy": "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
THEIRS = {
    **OURS,
    "hoodie.write.auto.upgrade": "false",
    "hoodie.write.table.version": "8",
    "hoodie.write.lock.num_retries": "6000",
    "hoodie.write.lock.wait_time_ms_between_retry": "100",
}
EXECUTE = "CALL run_clustering(table => 'clustered', op => 'execute')"
IS_RUNNING = """
thread, errors = spark.held
result = thread.is_alive()
"""


def rows(**values: str) -> pa.Table:
    return pa.table({"id": list(values), "v": list(values.values())})


def values(path: Path) -> dict[str, str]:
    found = Table(str(path)).scan(["id", "v"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def planned(hudi: ApacheHudi, path: Path, kind: str, strategy: str) -> tuple[Table, str]:
    """A table with two rows in two file groups, and the plan of a clustering of both."""
    Table.create(str(path), name="clustered", record_key="id", table_type=kind, options={"hoodie.write.table.version": 8})
    table = Table(str(path), options={**OURS, STRATEGY: strategy})
    table.upsert(rows(a="1", b="1"))
    table.upsert(rows(a="2"))
    plan = table.schedule_clustering().instant
    assert plan is not None
    hudi.register(path, "clustered")
    return table, plan


def write_during(hudi: ApacheHudi, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, strategy: str) -> None:
    """Let Hudi start the clustering when the data files of a write are written, before the write commits."""
    table, plan = planned(hudi, path, kind, strategy)
    inflight = path / ".hoodie" / "timeline" / f"{plan}.clustering.inflight"
    commit, clusterings = Transaction.commit, [plan]

    def during_the_clustering(self: Transaction, planned: PlannedCommit) -> Instant:
        if clusterings:
            clusterings.pop()
            hudi.run(BEGIN, text=EXECUTE, options={**THEIRS, STRATEGY: strategy})
            deadline = time.monotonic() + 300
            while not inflight.exists() and hudi.run(IS_RUNNING):
                assert time.monotonic() < deadline
        return commit(self, planned)

    acknowledged = True
    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "commit", during_the_clustering)
        try:
            table.upsert(rows(b="NEW"))
        except (TableState, WriteConflict):
            acknowledged = False
    errors = hudi.run(END)
    assert not clusterings
    if strategy == SIMPLE:
        # The write yields to the clustering: it is refused, or planned again on the new file groups.
        assert errors == []
        assert not Table(str(path)).timeline().pending(Action.CLUSTERING)
    else:
        assert acknowledged
    assert values(path) == {"a": "2", "b": "NEW" if acknowledged else "1"}
    assert Table(str(path)).validate().ok


@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.wide)])
@pytest.mark.parametrize("strategy", [SIMPLE, pytest.param(PREFER_WRITER, marks=pytest.mark.wide)])
def test_write_during_which_hudi_starts_a_clustering(
    hudi: ApacheHudi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, strategy: str
) -> None:
    write_during(hudi, tmp_path / "t", monkeypatch, kind, strategy)


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("strategy", [SIMPLE, PREFER_WRITER])
def test_write_during_which_release_1_1_starts_a_clustering(
    newer_hudi: ApacheHudi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, strategy: str
) -> None:
    write_during(newer_hudi, tmp_path / "t", monkeypatch, kind, strategy)


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_plan_that_a_write_made_impossible_is_not_executed(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table, _ = planned(hudi, path, kind, SIMPLE)
    table.upsert(rows(b="NEW"))
    hudi.run(BEGIN, text=EXECUTE, options={**THEIRS, STRATEGY: SIMPLE})
    assert hudi.run(END) == []
    assert values(path) == {"a": "2", "b": "NEW"}
    assert not Table(str(path)).timeline().pending()
    assert Table(str(path)).validate().ok
