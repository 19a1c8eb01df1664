from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from benchmarks import fingerprint, queries
from benchmarks.data import BATCH_NAMES, Inputs, write_rows
from benchmarks.memory import Usage
from benchmarks.run import difference, list_files, measurement, rotated, run
from benchmarks.systems import BY_NAME, Worker, WorkerLost
from tests.support.benchmark_rows import lineitem

STATE = {"rows": 1}
OK: dict[str, Any] = {"status": "ok"}


class ScriptedWorker(Worker):
    """Returns the given replies, without a process.

    replies: step method -> reply; others succeed with the right answer. cleanings: how often the service has something to remove.
    """

    def __init__(self, name: str, replies: dict[str, Any] | None = None, cleanings: int = 1) -> None:
        self.cleanings = cleanings
        self.system = BY_NAME[name]
        self.versions = {}
        self.replies = replies or {}
        self.seen: list[tuple[str, str]] = []
        self.asked: list[str] = []

    def start(self) -> dict[str, Any]:
        return OK

    def stop(self) -> None:
        pass

    def measure(self, request: dict[str, Any]) -> tuple[dict[str, Any], Usage | None]:
        path = Path(request["table"]["path"])
        self.seen.append((request["step"], path.name))
        if request["step"] == "bulk_insert":
            path.mkdir()
            for number in range(self.cleanings):
                (path / f"old-{number}").touch()
        elif request["step"] == "cluster":
            (path / "clustered.parquet").touch()
        elif request["step"] == "clean" and self.cleanings:
            (path / "old-0").unlink()
        reply = self.replies.get(request["step"], {"status": "ok", "seconds": 2.0})
        if isinstance(reply, Exception):
            raise reply
        return reply, Usage(1, 2, 3.0) if reply["status"] == "ok" else None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request["command"])
        return {"status": "ok", "answer": self.replies.get(request["command"], STATE)}


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    answers = dict.fromkeys(("aggregate", "full-read", "filtered-read", "point-lookup", "incremental"), STATE)
    return Inputs(tmp_path, 1.0, 1, ((1, 1),), dict.fromkeys(("base", *BATCH_NAMES), STATE), answers)


def run_part(inputs: Inputs, *workers: ScriptedWorker, only: str = "cow", rounds: int = 1) -> dict[tuple[str, str], Any]:
    found = run(inputs, {worker.system.name: worker for worker in workers}, inputs.folder / "tables", rounds, [only])
    return {(one.system, one.step): one for one in found}


def test_a_whole_chain_is_measured(inputs: Inputs) -> None:
    found = run_part(inputs, ScriptedWorker("hudi"))
    assert {one.status for one in found.values()} == {"ok"}
    assert found["hudi", "cow-aggregate"].seconds == 2.0
    assert ("hudi", "cow-last") not in found, "a step that only leads to others is not reported"


def test_a_reader_reads_the_first_whole_table_of_its_list(inputs: Inputs) -> None:
    broken, whole, reader = (
        ScriptedWorker("pyhudi", {"upsert": {"status": "not built", "message": "soon"}}),
        ScriptedWorker("hudi"),
        ScriptedWorker("hudi-rs"),
    )
    found = run_part(inputs, broken, whole, reader)
    assert ("aggregate", "hudi") in reader.seen
    assert found["hudi-rs", "cow-aggregate"].read_from == "hudi"
    assert found["hudi-rs", "cow-upsert-1"].status == "-"
    assert found["pyhudi", "cow-upsert-1"].status == "not built"
    assert found["pyhudi", "cow-aggregate"].status == "not built"


def test_a_wrong_table_ends_its_chain(inputs: Inputs) -> None:
    found = run_part(inputs, ScriptedWorker("hudi", {"state": {"rows": 2}}))
    assert found["hudi", "cow-bulk-insert"].status == "wrong"
    assert found["hudi", "cow-bulk-insert"].message == "rows is 2, not 1"
    assert found["hudi", "cow-upsert-1"].status == "skipped"


def test_a_wrong_answer_of_a_read_hurts_that_read_alone(inputs: Inputs) -> None:
    found = run_part(inputs, ScriptedWorker("hudi", {"answer": {"rows": 2}}))
    assert found["hudi", "cow-full-read"].status == "wrong"
    assert found["hudi", "cow-clustering"].status == "ok"


def test_a_lost_worker_is_a_failure_of_its_step(inputs: Inputs) -> None:
    found = run_part(inputs, ScriptedWorker("hudi", {"aggregate": WorkerLost("gone")}), only="cow-aggregate")
    assert found["hudi", "cow-aggregate"].status == "failed"
    assert found["hudi", "cow-aggregate"].message == "gone"


def test_a_service_that_is_missing_leaves_the_chain_whole(inputs: Inputs) -> None:
    found = run_part(inputs, ScriptedWorker("hudi", {"cluster": {"status": "not built", "message": ""}}))
    assert found["hudi", "cow-clustering"].status == "not built"
    assert found["hudi", "cow-cleaning"].status == "ok"


def test_a_service_that_does_nothing_is_wrong(inputs: Inputs) -> None:
    found = run_part(inputs, ScriptedWorker("hudi", cleanings=0))
    assert found["hudi", "cow-cleaning"].status == "wrong"
    assert found["hudi", "cow-cleaning"].message == "it removed nothing"


def test_later_rounds_are_warm_and_compare_the_table_at_their_ends(inputs: Inputs) -> None:
    worker = ScriptedWorker("hudi")
    stops: list[int] = []
    worker.stop = lambda: stops.append(1)  # type: ignore[method-assign]
    found = list(run(inputs, {"hudi": worker}, inputs.folder / "tables", 2, []))
    assert len(stops) == 1
    assert [one.round for one in found if one.step == "cow-small-cold"] == [0]
    assert [one.round for one in found if one.step == "cow-small"] == [0, 1]
    assert not any(one.step.startswith("mor") for one in found), "the plain Hudi takes part in Copy on Write alone"
    states = worker.asked.count("state")
    # bulk insert, six batches and two services in the first round; the last batch and the last service in the second
    assert states == 9 + 2


def test_everybody_is_first_once() -> None:
    assert [rotated(["a", "b", "c"], number) for number in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated([], 1) == []


def test_bytes_written_are_those_of_new_and_changed_files(tmp_path: Path) -> None:
    for name, size in (("kept", 10), ("changed", 20), ("gone", 40)):
        (tmp_path / name).write_bytes(b"x" * size)
    before = list_files(tmp_path)
    (tmp_path / "gone").unlink()
    (tmp_path / "changed").write_bytes(b"y" * 80)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "new").write_bytes(b"z" * 160)
    seen = measurement("hudi", "cow-small", 0, "ok", "", 1.0, Usage(1, 2, 3.0), before, list_files(tmp_path))
    assert (seen.written_bytes, seen.written_files, seen.removed_bytes, seen.table_bytes) == (240, 2, 40, 250)


def test_a_difference_names_the_groups() -> None:
    assert difference({"rows": 1, "text": 5}, {"rows": 1, "text": 5}) == ""
    assert difference({"rows": 1, "text": 5}, {"rows": 1, "text": 6}) == "text is 6, not 5"
    assert difference({"rows": 1}, {"rows": 1, "more": 2}) == "it also has ['more']"
    assert difference([[1]], None) == "None, not [[1]]"


@pytest.mark.full
def test_a_worker_process_runs_a_system(tmp_path: Path) -> None:
    """The limit without Spark needs nothing that the tests do not have."""
    rows = lineitem(50)
    write_rows(rows, tmp_path / "rows.parquet")
    worker = Worker(BY_NAME["pyarrow"], 1, "1g", tmp_path / "work", 600.0)
    table = {"path": str(tmp_path / "table"), "kind": "cow"}
    try:
        assert worker.start()["status"] == "ok"
        assert "pyarrow" in worker.versions
        request = {"command": "run", "step": "bulk_insert", "table": table, "arguments": [[str(tmp_path / "rows.parquet")]]}
        reply, usage = worker.measure(request)
        assert reply["status"] == "ok" and reply["seconds"] > 0
        assert usage is not None and usage.peak_rss_bytes > 0
        assert ds.dataset(tmp_path / "table", partitioning="hive").count_rows() == 50

        # Reads look for the base files of a Hudi table, by their names.
        table = {"path": str(tmp_path / "hudi"), "kind": "cow"}
        (tmp_path / "hudi").mkdir()
        write_rows(rows.slice(1), tmp_path / "hudi" / "00000000-0000-0000-0000-000000000000-0_0-1-2_20250101000000000.parquet")
        write_rows(rows, tmp_path / "hudi" / "00000000-0000-0000-0000-000000000000-0_0-1-2_20260101000000000.parquet")
        reply, _ = worker.measure({"command": "run", "step": "aggregate", "table": table, "arguments": []})
        assert reply["status"] == "ok"
        assert worker.ask({"command": "answer"})["answer"] == queries.aggregate_answer(
            queries.rows_of(queries.arrow_aggregate(rows))
        )
        assert worker.ask({"command": "state", "table": table})["answer"] == fingerprint.of_batches(rows.to_batches())

        assert worker.measure({"command": "run", "step": "compact", "table": table, "arguments": []})[0]["status"] == "-"
        unknown = {"command": "run", "step": "no_such", "table": table, "arguments": []}
        assert worker.measure(unknown)[0]["status"] == "failed"
    finally:
        worker.stop()
    with pytest.raises(WorkerLost):
        worker.ask({"command": "settle"})


@pytest.mark.full
def test_a_worker_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    worker = Worker(BY_NAME["pyarrow"], 1, "1g", tmp_path / "work", 600.0)
    worker.start()
    assert worker._process is not None
    # It cannot reply, however long this process is kept from checking for its reply.
    worker._process.send_signal(signal.SIGSTOP)
    worker.timeout_s = 0.0
    with pytest.raises(WorkerLost, match="no answer"):
        worker.ask({"command": "settle"})
    with pytest.raises(WorkerLost, match="not started"):
        worker.ask({"command": "settle"})
