from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import fingerprint, queries
from benchmarks.data import Inputs, store_lineitem, write_rows
from benchmarks.memory import Usage
from benchmarks.runner import Chain, Measurement, Results, difference, list_files, rotated
from benchmarks.scenarios import BY_NAME, CHECK
from benchmarks.systems import BY_NAME as SYSTEMS
from benchmarks.systems import Worker, WorkerLost
from tests.support.benchmark_rows import lineitem

STATE = {"rows": 1}
OK: dict[str, Any] = {"status": "ok"}
ANSWERS = ("state", "aggregate", "full-read", "filtered-read", "point-lookup", "incremental")


class ScriptedWorker(Worker):
    """Returns the given replies without a process: step method or command -> reply; others succeed with the right answer."""

    def __init__(self, name: str, replies: dict[str, Any] | None = None) -> None:
        self.system = SYSTEMS[name]
        self.versions = {}
        self.replies = replies or {}
        self.seen: list[tuple[str, str]] = []
        self.stops = 0

    def start(self) -> dict[str, Any]:
        return OK

    def stop(self) -> None:
        self.stops += 1

    def measure(self, request: dict[str, Any]) -> tuple[dict[str, Any], Usage | None]:
        path = Path(request["table"]["path"])
        self.seen.append((request["step"], path.name))
        reply = self.replies.get(request["step"], {"status": "ok", "seconds": 2.0, "cpu_seconds": 1.5})
        if isinstance(reply, Exception):
            raise reply
        if request["step"] == "bulk_insert":
            path.mkdir()
            (path / "old").touch()
        elif request["step"] in ("upsert", "delete") and path.exists() and "idle" not in self.replies:
            (path / f"batch-{len(self.seen)}").touch()
        elif request["step"] == "cluster":
            (path / "clustered.parquet").touch()
        elif request["step"] == "clean" and "keeps" not in self.replies:
            (path / "old").unlink()
        return reply, Usage(1, 2, 3.0) if reply["status"] == "ok" else None

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"status": "ok", "answer": self.replies.get(request["command"], STATE)}


@pytest.fixture(autouse=True)
def _same_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every query of every chain has one answer."""
    monkeypatch.setattr(Inputs, "expected", lambda self, batches: dict.fromkeys(ANSWERS, STATE))
    inputs = Inputs(tmp_path, "lineitem", 1, ((1, 1),))
    monkeypatch.setattr("benchmarks.scenarios.load_lineitem", lambda scale: inputs)


def chain(folder: Path, *workers: ScriptedWorker, only: tuple[str, ...] = (), rounds: int = 1, scenario: str = "steps") -> Chain:
    by_name: dict[str, Worker] = {worker.system.name: worker for worker in workers}
    results = Results(folder / "results.jsonl")
    return Chain(BY_NAME[scenario], 0.25, "cow", "full", by_name, results, folder / "tables", rounds, only)


def run(folder: Path, *workers: ScriptedWorker, **more: Any) -> dict[tuple[str, str, int], Measurement]:
    made = chain(folder, *workers, **more)
    assert made.run()
    return {(one.system, one.step, one.round): one for one in made.results.measurements.values()}


def test_every_step_of_a_chain_is_measured(tmp_path: Path) -> None:
    found = run(tmp_path, ScriptedWorker("hudi"), ScriptedWorker("pyhudi"))
    assert {one.status for one in found.values()} == {"ok"}
    assert found["hudi", "aggregate", 0].cpu_seconds == 3.0, "of the process tree"
    assert found["pyhudi", "aggregate", 0].cpu_seconds == 1.5, "of the process itself"
    assert ("hudi", "last", 0) not in found, "a step that prepares others is not reported"
    assert not (tmp_path / "tables").exists()


def test_reader_uses_the_first_complete_table_of_its_list(tmp_path: Path) -> None:
    broken, whole, reader = (
        ScriptedWorker("pyhudi", {"upsert": {"status": "-"}}),
        ScriptedWorker("hudi"),
        ScriptedWorker("hudi-rs"),
    )
    found = run(tmp_path, broken, whole, reader)
    assert ("aggregate", "hudi") in reader.seen
    assert found["hudi-rs", "aggregate", 0].read_from == "hudi"
    assert found["hudi-rs", "upsert-1", 0].status == found["pyhudi", "aggregate", 0].status == "-"


def test_a_wrong_table_ends_its_chain(tmp_path: Path) -> None:
    found = run(tmp_path, ScriptedWorker("hudi", {"state": {"rows": 2}}))
    wrong = found["hudi", "bulk-insert", 0]
    assert (wrong.status, wrong.message) == ("wrong", "rows is 2, not 1")
    assert found["hudi", "upsert-1", 0].status == "skipped"


def test_wrong_result_marks_only_its_read(tmp_path: Path) -> None:
    found = run(tmp_path, ScriptedWorker("hudi", {"answer": {"rows": 2}}))
    assert found["hudi", "full-read", 0].status == "wrong" and found["hudi", "clustering", 0].status == "ok"


def test_a_lost_worker_and_a_service_that_does_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, ScriptedWorker("hudi", {"aggregate": WorkerLost("gone"), "keeps": True}))
    assert (found["hudi", "aggregate", 0].status, found["hudi", "aggregate", 0].message) == ("failed", "gone")
    assert (found["hudi", "cleaning", 0].status, found["hudi", "cleaning", 0].message) == ("wrong", "it removed nothing")


def test_a_write_that_writes_nothing_does_not_count(tmp_path: Path) -> None:
    found = run(tmp_path, ScriptedWorker("hudi", {"idle": True}))
    assert (found["hudi", "small", 0].status, found["hudi", "full-read", 0].status) == ("skipped", "ok")


def test_new_processes_belong_to_the_first_round(tmp_path: Path) -> None:
    worker = ScriptedWorker("hudi")
    found = run(tmp_path, worker, rounds=2)
    assert worker.stops == 1
    assert ("hudi", "small-cold", 1) not in found and ("hudi", "small", 1) in found


def test_tables_of_reads_are_made_once(tmp_path: Path) -> None:
    worker, polars = ScriptedWorker("pyhudi"), ScriptedWorker("polars")
    found = run(tmp_path, worker, polars, rounds=3, scenario="reads", only=("to-arrow",))
    assert {number for _, _, number in found} == {0, 1, 2} and len(found) == 6
    assert [step for step, _ in worker.seen] == ["bulk_insert", "track_changes", "upsert", *["full_read"] * 3]
    assert found["polars", "to-arrow", 2].read_from == "pyhudi"


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    late = chain(tmp_path, ScriptedWorker("hudi"))
    late.deadline = 0.0
    assert not late.run()
    first = ScriptedWorker("hudi")
    run(tmp_path, first, only=("bulk-insert", "upsert-1", "aggregate"))
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"scenario": "steps", "si')
    second = ScriptedWorker("hudi")
    found = run(tmp_path, second)
    steps = [step for step, _ in second.seen]
    assert steps[:2] == ["bulk_insert", "upsert"] and "aggregate" not in steps, "writes are repeated, measured reads are not"
    assert ("hudi", "cleaning", 0) in found
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines() if line.endswith("}")]
    keys = [(line["step"], line["round"]) for line in lines]
    assert len(keys) == len(set(keys)), "no step is recorded twice"
    third = ScriptedWorker("hudi")
    run(tmp_path, third)
    assert third.seen == []


def test_each_system_runs_first_once() -> None:
    assert [rotated(["a", "b", "c"], number) for number in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated([], 1) == []


def test_a_difference_names_the_groups() -> None:
    assert difference({"rows": 1, "text": 5}, {"rows": 1, "text": 5}) == ""
    assert difference({"rows": 1, "text": 5}, {"rows": 1, "text": 6}) == "text is 6, not 5"
    assert difference({"rows": 1}, {"rows": 1, "more": 2}) == "it also has ['more']"
    assert difference([[1]], None) == "None, not [[1]]"


def test_changed_files_have_other_facts(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "one").write_bytes(b"x")
    before = list_files(tmp_path)
    (tmp_path / "folder" / "one").write_bytes(b"yy")
    assert list(before) == list(list_files(tmp_path)) and before != list_files(tmp_path)


def test_unknown_names_and_results_of_another_commit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        command.main(["--scenarios", "colours"])
    Results(tmp_path / "results.jsonl").append({"header": {"commit": "other"}})
    assert command.main(["--scenarios", "commits", "--output", str(tmp_path)]) == 2


@pytest.mark.wide
def test_two_states_of_the_code_take_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes: embedded PyHudi twice, on 1,200 rows."""
    monkeypatch.undo()
    (tmp_path / "data").mkdir()
    store_lineitem(lineitem(1200), tmp_path / "data")
    keys = ((1, 1), (2, 1))
    monkeypatch.setattr("benchmarks.scenarios.load_lineitem", lambda scale: Inputs(tmp_path / "data", "lineitem", 1200, keys))
    workers: dict[str, Worker] = {name: Worker(SYSTEMS["pyhudi"], 1, "1g", tmp_path / "work", 600.0) for name in CHECK.systems}
    results = Results(tmp_path / "results.jsonl")
    try:
        for kind in CHECK.steps:
            assert Chain(CHECK, 0.25, kind, "quick", workers, results, tmp_path / "tables", 1).run()
    finally:
        for worker in workers.values():
            worker.stop()
    assert {one.status for one in results.measurements.values()} == {"ok"}, results.measurements
    assert len(results.measurements) == 22


@pytest.mark.full
def test_a_worker_process_runs_a_system(tmp_path: Path) -> None:
    rows = lineitem(50)
    worker = Worker(SYSTEMS["duckdb"], 1, "1g", tmp_path / "work", 600.0)
    # The newest base files of a Hudi table, by their names.
    file_id = "00000000-0000-0000-0000-000000000000-0_0-1-2"
    write_rows(rows.slice(1), tmp_path / "hudi" / f"{file_id}_20250101000000000.parquet")
    write_rows(rows, tmp_path / "hudi" / f"{file_id}_20260101000000000.parquet")
    request = {"command": "run", "table": {"path": str(tmp_path / "hudi"), "kind": "cow"}, "arguments": []}
    try:
        assert worker.start()["status"] == "ok" and "duckdb" in worker.versions
        reply, usage = worker.measure({**request, "step": "aggregate", "repeat": 2})
        assert reply["status"] == "ok" and reply["seconds"] > 0
        assert usage is not None and usage.peak_rss_bytes > 0
        answer = queries.aggregate_answer(queries.to_rows(queries.aggregate(rows)))
        assert worker.send({"command": "answer"})["answer"] == answer
        state = worker.send({"command": "state", "table": request["table"]})["answer"]
        assert state == fingerprint.of_batches(rows.to_batches())
        assert worker.measure({**request, "step": "compact"})[0]["status"] == "-"
        assert worker.measure({**request, "step": "no_such"})[0]["status"] == "failed"
        assert worker.measure({**request, "step": "aggregate", "table": {"path": "", "kind": "mor"}})[0]["status"] == "-"
    finally:
        worker.stop()
    with pytest.raises(WorkerLost):
        worker.send({"command": "settle"})


@pytest.mark.full
def test_unresponsive_worker_is_ended(tmp_path: Path) -> None:
    worker = Worker(SYSTEMS["polars"], 1, "1g", tmp_path / "work", 600.0)
    worker.start()
    assert worker._process is not None
    # It cannot reply, however long this process is kept from checking for its reply.
    worker._process.send_signal(signal.SIGSTOP)
    worker.timeout_s = 0.0
    with pytest.raises(WorkerLost, match="no answer"):
        worker.send({"command": "settle"})
    with pytest.raises(WorkerLost, match="not started"):
        worker.send({"command": "settle"})
