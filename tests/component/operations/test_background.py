"""Services outside of writes: one pass, a background thread, several processes on one table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Action, State
from pyhudi.operations.services.service_registry import SERVICES

OPTIONS = {
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.metadata.enable": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline.max.delta.commits": "2",
    "hoodie.clustering.async.max.commits": "2",
}
SOURCE = Path(hp.__file__).parents[1]


def rows(batch: int, count: int = 20) -> pa.Table:
    return pa.table(
        {
            "id": [str(i) for i in range(count)],
            "part": [f"p{i % 5}" for i in range(count)],
            "ts": pa.array([batch] * count, pa.int64()),
        }
    )


def new_table(uri: str | Path, table_type: str = "mor", **options: str) -> hp.Table:
    return hp.Table.create(
        uri, record_key="id", partition_by="part", ordering="ts", table_type=table_type, options={**OPTIONS, **options}
    )


def test_service_run_executes_pending_and_due_services() -> None:
    table = new_table("memory://background-pass", **{"hoodie.datasource.compaction.async.enable": "true"})
    table.upsert(rows(0))
    assert table.run_services()["compact"].startswith("not due")
    table.upsert(rows(1))
    planned = table.timeline().pending(Action.COMPACTION)
    assert len(planned) == 1
    outcomes = table.run_services()
    assert list(outcomes) == [service.name for service in SERVICES if service.name != "ttl"]
    assert outcomes["compact"].startswith(f"run: {planned[0].request_time}")
    assert not table.timeline().pending()
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {1}
    table.upsert(rows(2), options={"hoodie.table.services.enabled": "false"})
    table.upsert(rows(3), options={"hoodie.table.services.enabled": "false"})
    assert table.run_services(["compact"], plan=False) == {"compact": "not due: no plan was scheduled"}
    assert table.run_services(["compact"])["compact"].startswith("run:")
    with pytest.raises(InvalidRequest, match="no table service is named vacuum"):
        table.run_services(["vacuum"])


def test_failed_service_does_not_stop_the_others() -> None:
    table = new_table("memory://background-fails")
    for batch in range(2):
        table.upsert(rows(batch), options={"hoodie.table.services.enabled": "false"})
    store = table.context.timeline
    store.start(store.request(f"{int(table.timeline().latest_time()) + 1}", Action.CLEAN, b"damaged"), b"damaged")
    outcomes = table.run_services()
    assert outcomes["clean"].startswith("failed: CorruptData")
    assert outcomes["compact"].startswith("run:")


def test_background_thread_executes_plans_of_the_writer() -> None:
    table = new_table("memory://background-thread", **{"hoodie.clustering.plan.strategy.sort.columns": "id"})
    with table.background_services(pause_seconds=60) as background:
        results = [table.upsert(rows(batch)) for batch in range(6)]
        assert table.scan().count() == 20
    assert background.runs >= 2 and not background.running
    assert all(not r.services["compact"].startswith("run") for r in results)
    assert any(r.services["compact"].startswith("planned") for r in results)
    timeline = table.timeline()
    assert not timeline.pending()
    assert timeline.completed(Action.COMMIT), "a compaction ran"
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {5}
    # Afterwards the writer does it all itself again.
    last = [table.upsert(rows(batch)).services["compact"] for batch in (6, 7)]
    assert any(outcome.startswith("run") for outcome in last)


def test_an_error_of_the_thread_reaches_the_writer() -> None:
    table = new_table("memory://background-error")
    background = table.background_services(pause_seconds=60)
    background.stop()
    with table.background_services(pause_seconds=60) as background:
        with pytest.raises(InvalidRequest, match="already"):
            table.background_services()
        failed = threading.Event()

        def broken(go_on: object) -> Mapping[str, str]:
            failed.set()
            raise OSError("no space left")

        background.run = broken
        table.upsert(rows(0))
        assert failed.wait(600)
        while background.running:
            time.sleep(0.01)
        with pytest.raises(OSError, match="no space"):
            table.upsert(rows(1))
        with pytest.raises(OSError, match="no space"):
            background.stop()
        background._error = None
    assert table.scan().count() == 20


def test_serving_ends_when_the_stop_event_is_set() -> None:
    table = new_table("memory://background-serve")
    for batch in range(2):
        table.upsert(rows(batch), options={"hoodie.table.services.enabled": "false"})
    stop = threading.Event()
    seen: list[Mapping[str, str]] = []

    def record(outcomes: Mapping[str, str]) -> None:
        seen.append(outcomes)
        stop.set()

    table.serve(stop, pause_seconds=600, on_run=record)
    assert len(seen) == 1 and seen[0]["compact"].startswith("run:")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[hp.Table]:
    """A table on disk with four plans that wait: two compactions and two clusterings, each of another partition."""
    options = {"hoodie.compaction.strategy": "BoundedIOCompactionStrategy", "hoodie.compact.inline": "false"}
    table = new_table(tmp_path / "t", **options)
    for batch in range(2):
        table.upsert(rows(batch))
    for number in range(2):
        regex = {
            "hoodie.compaction.strategy": "PartitionRegexBasedCompactionStrategy",
            "hoodie.compaction.partition.path.regex": f"p{number}",
        }
        assert table.schedule_compaction(options=regex).planned
        chosen = {"hoodie.clustering.plan.strategy.partition.selected": f"p{number + 2}"}
        assert table.schedule_clustering(order_by="id", options=chosen).instant
    yield table


# Dies after it has executed a plan except for the last step.
DIES = """
import os, runpy, signal
from pyhudi.operations.commit.transaction import Transaction
Transaction.commit = lambda *arguments, **named: os.kill(os.getpid(), signal.SIGKILL)
runpy.run_module("pyhudi", run_name="__main__")
"""


def serve(table: hp.Table, *arguments: str, program: tuple[str, str] = ("-m", "pyhudi")) -> subprocess.Popen[str]:
    options = [part for key, value in OPTIONS.items() for part in ("-O", f"{key}={value}")]
    return subprocess.Popen(
        [sys.executable, *program, "serve", table.uri, *options, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
def test_processes_take_different_plans(served: hp.Table) -> None:
    before = served.scan(["id", "ts"]).to_arrow().sort_by("id")
    plans = {i.request_time for i in served.timeline().pending(Action.COMPACTION, Action.CLUSTERING)}
    assert len(plans) == 4
    processes = [serve(served, "--once", "--no-plan", "--services", "compact,cluster") for _ in range(2)]
    said = []
    for process in processes:
        out, err = process.communicate(timeout=1200)
        assert process.returncode == 0, err
        said.append(out)
    ran = [plan for plan in plans for out in said if f"run: {plan}" in out or f", {plan}" in out]
    assert sorted(ran) == sorted(plans), said
    timeline = served.timeline()
    assert not timeline.pending()
    assert served.scan(["id", "ts"]).to_arrow().sort_by("id") == before
    assert served.validate().ok


@pytest.mark.full
def test_a_signal_ends_a_process_between_plans(served: hp.Table) -> None:
    process = serve(served, "--pause", "600", "--no-plan")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "run:" in line
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err
    assert not any(i.state is State.INFLIGHT for i in served.timeline().pending())
    assert served.scan().count() == 20


@pytest.mark.full
def test_plan_of_a_killed_process_is_executed_by_the_next_one(served: hp.Table) -> None:
    process = serve(served, "--once", "--no-plan", program=("-c", DIES))
    _, err = process.communicate(timeout=1200)
    assert process.returncode == -signal.SIGKILL, err
    assert any(i.state is State.INFLIGHT for i in served.timeline().pending())
    second = serve(served, "--once", "--no-plan")
    _, err = second.communicate(timeout=1200)
    assert second.returncode == 0, err
    assert not served.timeline().pending()
    assert served.scan().count() == 20
    assert served.validate().ok
