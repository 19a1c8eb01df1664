"""Embedded writers, a Spark writer and Apache Hudi count in one table under one lock, during services of PyHudi."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.writers.counters import LEDGER, Commit, Lost
from benchmarks.writers.embedded import OPTIONS, Embedded
from benchmarks.writers.process import keys_of
from benchmarks.writers.run import Outcome, Plan, run
from benchmarks.writers.violations import WriterOutput, violations
from pyhudi import Table
from pyhudi.errors import TableState, WriteConflict
from tests.conformance.servers import Server
from tests.interop.oracle import ApacheHudi, HudiFailure, missing
from tests.support.needs import unavailable

pytestmark = pytest.mark.interop

TOGETHER: dict[str, Any] = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
THEIRS: dict[str, Any] = {
    **TOGETHER,
    "hoodie.write.lock.num_retries": "600",
    "hoodie.write.lock.wait_time_ms_between_retry": "50",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.spark.sql.insert.into.operation": "upsert",
}
SET = """
for key, value in options.items():
    spark.conf.set(key, value)
"""


def test_concurrent_hudi_and_pyhudi_writers_count_in_merge_on_read(hudi: ApacheHudi, tmp_path: Path) -> None:
    """One file group, two writers of PyHudi during a process of compactions, and Apache Hudi.

    Hudi counts rows of its own: its MERGE INTO of merge on read cannot name a column of the table, and what it reads before is
    not part of its commit.
    """
    part, theirs, commits = "p0", "hudi", 2
    ours = Embedded(str(tmp_path / "t"), {**OPTIONS, **TOGETHER, "hoodie.compact.inline.max.delta.commits": 2})
    ours.create("mor", [(part, key) for owner in ("", theirs) for key in keys_of(part, owner)])
    hudi.register(ours.path, "counted")
    hudi.run(SET, options=THEIRS)
    output, over = WriterOutput(), threading.Event()

    def begun(name: str, number: int, keys: tuple[str, ...]) -> Commit:
        commit = Commit(part, keys, f"{LEDGER}{name} {number}")
        output.begun[commit.row] = commit.keys
        return commit

    def count(name: str) -> None:
        for number in range(commits):
            commit = begun(name, number, keys_of(part)[:2])
            while commit.row not in output.values:
                try:
                    output.values[commit.row] = ours.add(commit)
                except Lost:
                    output.lost += 1

    def compact() -> None:
        while not over.wait(0.2):
            try:
                Table(ours.path, options=ours.options).run_services(["compact"])
                output.passes += 1
            except (WriteConflict, TableState):
                output.lost += 1

    with ThreadPoolExecutor(3) as threads:
        serving = threads.submit(compact)
        counting = [threads.submit(count, name) for name in ("one", "other")]
        try:
            for number in range(commits):
                commit = begun(theirs, number, keys_of(part, theirs)[:2])
                hudi.sql("REFRESH TABLE counted")
                found = hudi.sql(f"SELECT id, v FROM counted WHERE id IN {commit.keys}")
                values = {key: value + 1 for key, value in zip(*found.to_pydict().values(), strict=True)}
                new = {**values, commit.row: len(values)}
                listed = ", ".join(f"('{key}', '{part}', {value}L)" for key, value in new.items())
                while commit.row not in output.values:
                    try:
                        hudi.sql(f"INSERT INTO counted (id, part, v) VALUES {listed}")
                        output.values[commit.row] = values
                    except HudiFailure as failure:
                        assert failure.mentions("WriteConflict") or failure.mentions("ConcurrentModification"), failure
                        output.lost += 1
        finally:
            for writer in counting:
                writer.exception()
            over.set()
        for writer in (*counting, serving):
            writer.result()
    rows = ours.rows()
    assert [*violations(output, rows), *ours.wrong()] == []
    assert len(output.values) == 3 * commits
    assert output.passes
    read = hudi.read(ours.path, columns=["id", "v"])
    assert sorted(zip(*read.to_pydict().values(), strict=True)) == sorted(rows)


def world(folder: Path, server: Server, kind: str, writers: dict[str, int], commits: int, **more: object) -> Outcome:
    """Writers that count in the same partitions, under a lock of the server."""
    options = {
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": server.address,
        "hoodie.write.lock.zookeeper.base_path": "/counters",
        "hoodie.write.lock.zookeeper.lock_key": f"{kind}-{'-'.join(writers)}",
        **more,
    }
    return run(Plan(writers, commits, kind, "overlapping", options=options), folder, timeout_s=3_600)


def check(outcome: Outcome) -> None:
    """All commits remain, every counter is right, the table is valid, and Apache Hudi reads the same rows."""
    print(outcome.plan, outcome.figures, outcome.passes)
    assert outcome.wrong == ()
    assert outcome.figures.commits == outcome.plan.commits * sum(outcome.plan.writers.values())


@pytest.mark.wide
@pytest.mark.parametrize(
    ("kind", "writers", "commits"),
    [("cow", {"pyhudi": 2, "pyhudi-spark": 1, "hudi": 1}, 5), ("mor", {"pyhudi": 2, "pyhudi-spark": 1, "hudi": 2}, 3)],
)
def test_concurrent_hudi_and_pyhudi_writers_lose_nothing(
    tmp_path: Path, zookeeper: Server, kind: str, writers: dict[str, int], commits: int
) -> None:
    lacking = missing()
    if lacking:
        unavailable("interop", lacking)
    check(world(tmp_path / "table", zookeeper, kind, writers, commits))


@pytest.mark.wide
def test_concurrent_release_1_1_and_pyhudi_writers_lose_nothing_on_version_9(tmp_path: Path, zookeeper: Server) -> None:
    lacking = missing("1.1.1")
    if lacking:
        unavailable("interop", lacking)
    writers = {"pyhudi": 2, "hudi-1.1": 1}
    check(world(tmp_path / "table", zookeeper, "mor", writers, 3, **{"hoodie.write.table.version": 9}))
