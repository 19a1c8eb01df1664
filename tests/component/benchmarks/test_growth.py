"""The growth benchmark with workers that upsert with Arrow alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import fingerprint, growth
from benchmarks.checkpoint import Checkpoint
from benchmarks.data import Inputs, apply_batch, write_rows
from benchmarks.growth import GrowthSettings, run_growth
from benchmarks.memory import Usage
from benchmarks.systems import BY_NAME, Worker
from tests.support.benchmark_rows import lineitem


class ArrowWorker(Worker):
    """A table is one Parquet file."""

    def __init__(self, name: str) -> None:
        self.system = BY_NAME[name]
        self.upserts = 0

    def start(self) -> dict[str, Any]:
        return {"status": "ok"}

    def measure(self, request: dict[str, Any]) -> tuple[dict[str, Any], Usage | None]:
        return self.ask(request), Usage(1, 2, 3.0)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        folder = Path(request["table"]["path"])
        path = folder / "rows.parquet"
        if request["command"] == "state":
            return {"status": "ok", "answer": fingerprint.of_batches(pq.read_table(path).to_batches())}
        if request["step"] == "bulk_insert":
            folder.mkdir(parents=True)
            write_rows(pa.concat_tables([pq.read_table(file) for file in request["arguments"][0]]), path)
        if request["step"] == "upsert":
            self.upserts += 1
            write_rows(apply_batch(pq.read_table(path), pq.read_table(request["arguments"][0][0]), delete=False), path)
        return {"status": "ok", "seconds": 1.0}


def test_points_of_all_systems_and_resumption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base").mkdir()
    write_rows(lineitem(1500), tmp_path / "base" / "part-0.parquet")
    inputs = Inputs(tmp_path, 1.0, 1500, (), {}, {})
    monkeypatch.setattr(growth, "load_inputs", lambda scale: inputs)
    settings = GrowthSettings(1.0, (1, 2), 1.0, (6, 12), ("cow",), 60.0, 60.0)
    workers = {name: ArrowWorker(name) for name in ("pyhudi-spark", "pyhudi", "delta-rs")}
    checkpoint = Checkpoint(tmp_path / "growth.json", {}, resume=False)
    found = run_growth(settings, workers, tmp_path / "tables", checkpoint)
    assert (found["notes"], found["wrong"]) == ([], False)
    assert len(found["rows"]) == 2 * 3
    points = sorted((point["system"], point["commit_count"]) for point in found["commits"])
    assert points == [(name, count) for name in ("delta-rs", "pyhudi", "pyhudi-spark") for count in (6, 12)]
    # PyHudi on Spark was measured on copies: three upserts for each number of rows, five for each number of commits.
    assert workers["pyhudi-spark"].upserts == 2 * 3 + 2 * 5
    assert workers["pyhudi"].upserts == 2 * 3 + 12
    again = {name: ArrowWorker(name) for name in workers}
    assert run_growth(settings, again, tmp_path / "tables", checkpoint) == found
    assert {worker.upserts for worker in again.values()} == {0}
    shutil.rmtree(tmp_path / "tables", ignore_errors=True)
