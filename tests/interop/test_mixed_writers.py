"""Embedded writers, one on Spark and the real Hudi 1.0.2 count in one table under one lock, services of ours beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.writers.run import Plan, run
from tests.conformance.servers import running_zookeeper
from tests.interop.oracle import missing
from tests.needs import unavailable

pytestmark = [pytest.mark.interop, pytest.mark.wide]


def test_nothing_is_lost_between_the_real_one_and_ours(tmp_path: Path) -> None:
    lacking = missing()
    if lacking:
        unavailable("interop", lacking)
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    with running_zookeeper(folder) as server:
        options = {
            "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
            "hoodie.write.lock.zookeeper.url": server.address,
            "hoodie.write.lock.zookeeper.base_path": "/counters",
            "hoodie.write.lock.zookeeper.lock_key": "counters",
        }
        plan = Plan({"pyhudi": 2, "pyhudi-spark": 1, "hudi": 1}, 5, "cow", "overlapping", options=options)
        outcome = run(plan, tmp_path / "table", timeout_s=3_600)
    print(outcome.figures)
    assert outcome.wrong == ()
    assert outcome.figures.commits == 20
