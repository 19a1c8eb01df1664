"""How the cost of one upsert grows: with the rows of the table, and with the commits behind it.  The batch stays 1,000 rows.

More rows: tables of 1, 2 and 4 times the scale; on each a few upserts, their median. More commits: one small table, upserted up
to 1,000 times, looked at when it has 10, 100 and 1,000 commits: the median of the last upserts, and one snapshot aggregate. The
systems keep their defaults, so cleaning, archival and checkpoints happen as they would for a user. A system that does not come to
the last number within its budget is reported as far as it came. At every point the whole table is compared with what Arrow
computed from the batches.

A history of 1,000 commits is the same table whoever wrote it, and made fastest by the embedded engine: where both take part,
PyHudi on Spark is measured on copies of the tables that PyHudi embedded has brought to each number of commits.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import fingerprint
from benchmarks.checkpoint import Checkpoint
from benchmarks.data import INSERTS, UPDATES, apply_batch, load_base, load_inputs, random_batch, write_rows
from benchmarks.fingerprint import Fingerprint
from benchmarks.run import Listing, difference, list_files
from benchmarks.systems import BY_NAME, Worker, WorkerLost

# How many upserts make one point.
SAMPLES = 5
ROW_SAMPLES = 3
# Measured on copies of the table of another system, in the run of commits.
FOLLOWS = {"pyhudi-spark": "pyhudi"}
# Above the numbers of the batches in data.py, which the ordering column holds.
FIRST_NUMBER = 100


@dataclass(frozen=True, slots=True)
class GrowthSettings:
    """See `python -m benchmarks --help`."""

    scale: float
    factors: tuple[int, ...]
    commit_scale: float
    commit_counts: tuple[int, ...]
    kinds: Sequence[str]
    budget_s: float
    peer_budget_s: float
    batch_rows: int = UPDATES + INSERTS


@dataclass(frozen=True, slots=True)
class Point:
    """One system on one table. metadata_files: what lies in `.hoodie` or `_delta_log` at that time."""

    system: str
    kind: str
    row_count: int
    commit_count: int
    upsert_seconds: float
    upsert_cpu_seconds: float
    aggregate_seconds: float
    peak_rss_bytes: int
    written_bytes: int
    metadata_files: int


class _Stopped(Exception):
    """A system cannot go on with this table; the text goes into the notes."""


class _History:
    """The batches for one table, made as far as somebody has asked, the same for every system."""

    def __init__(self, base: pa.Table, folder: Path, looked_at: Sequence[int]) -> None:
        """looked_at: the numbers of the batches after which the table's content is asked for."""
        folder.mkdir(parents=True, exist_ok=True)
        self._table = base
        self._folder = folder
        self._made = 0
        self._looked_at = set(looked_at)
        self._fingerprints: dict[int, Fingerprint] = {}

    def batch_file(self, number: int) -> str:
        """The file of batch `number`, from 1."""
        while self._made < number:
            self._made += 1
            batch = random_batch(self._table, FIRST_NUMBER + self._made, UPDATES, INSERTS)
            write_rows(batch, self._path(self._made))
            self._table = apply_batch(self._table, batch, delete=False)
            if self._made in self._looked_at:
                self._fingerprints[self._made] = fingerprint.of_batches(self._table.to_batches())
        return str(self._path(number))

    def state(self, number: int) -> Fingerprint:
        """What the table holds after batch `number`, one of those looked at, which has been asked for."""
        return self._fingerprints[number]

    def _path(self, number: int) -> Path:
        return self._folder / f"batch-{number:05}.parquet"


def run_growth(settings: GrowthSettings, workers: Mapping[str, Worker], folder: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """All points, as the JSON that report.py shows. What the checkpoint holds is not measured again."""
    parts = [*_more_rows(settings, workers, folder / "rows", checkpoint)]
    rows = len(parts)
    parts += _more_commits(settings, workers, folder / "commits", checkpoint)
    notes = [note for part in parts for note in part["notes"]]
    return {
        "settings": asdict(settings),
        "rows": [point for part in parts[:rows] for point in part["points"]],
        "commits": [point for part in parts[rows:] for point in part["points"]],
        "notes": notes,
        "wrong": any("wrong" in note for note in notes),
    }


def _more_rows(
    settings: GrowthSettings, workers: Mapping[str, Worker], folder: Path, checkpoint: Checkpoint
) -> Iterator[dict[str, Any]]:
    for factor in settings.factors:
        names = [f"rows-{factor}-{kind}-{name}" for kind in settings.kinds for name in workers]
        if not all(name in checkpoint for name in names):
            inputs = load_inputs(settings.scale * factor)
            history = _History(load_base(inputs), folder / f"batches-{factor}", (ROW_SAMPLES,))
            for kind in settings.kinds:
                for worker in workers.values():
                    name = f"rows-{factor}-{kind}-{worker.system.name}"
                    if name not in checkpoint:
                        growing = _Growing(history, inputs.base_files(), folder, kind, ROW_SAMPLES)
                        checkpoint.add(name, growing.measured(worker, (ROW_SAMPLES,), None, ()))
        yield from (checkpoint[name] for name in names)
        shutil.rmtree(folder, ignore_errors=True)


def _more_commits(
    settings: GrowthSettings, workers: Mapping[str, Worker], folder: Path, checkpoint: Checkpoint
) -> Iterator[dict[str, Any]]:
    inputs = load_inputs(settings.commit_scale)
    followed = {name: other for name, other in FOLLOWS.items() if name in workers and other in workers}
    for kind in settings.kinds:
        # The batches of a history are made as far as the fastest system comes, and are the same for all.
        history = _History(load_base(inputs), folder / f"batches-{kind}", settings.commit_counts)
        growing = _Growing(history, inputs.base_files(), folder, kind, SAMPLES)
        for name, worker in workers.items():
            part = f"commits-{kind}-{name}"
            if part not in checkpoint and name not in followed:
                followers = [workers[other] for other, leader in followed.items() if leader == name]
                budget_s = settings.budget_s if worker.system.role == "ours" else settings.peer_budget_s
                checkpoint.add(part, growing.measured(worker, settings.commit_counts, budget_s, followers))
            if part in checkpoint:
                yield checkpoint[part]
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class _Growing:
    """One table kind of one history, on which systems are measured one after the other. samples: upserts for one point."""

    history: _History
    base_files: Sequence[str]
    folder: Path
    kind: str
    samples: int

    def measured(
        self, worker: Worker, counts: Sequence[int], budget_s: float | None, followers: Sequence[Worker]
    ) -> dict[str, Any]:
        """Bulk insert, then upserts up to the highest of `counts`, with a point at each: {"points": [...], "notes": [...]}.

        followers: systems that get a copy of the table before each point's upserts, and a point of their own.
        """
        path = self.folder / f"{self.kind}-{worker.system.name}"
        points: list[dict[str, Any]] = []
        notes: list[str] = []
        spent = 0.0
        number = 0
        try:
            spent += _asked(worker, "bulk_insert", self._table(path), [list(self.base_files)])
            for count in sorted(counts):
                while number < count - self.samples:
                    number += 1
                    batch = [[self.history.batch_file(number)]]
                    started = time.monotonic()
                    _asked(worker, "upsert", self._table(path), batch)
                    spent += time.monotonic() - started
                    if budget_s is not None and spent > budget_s:
                        raise _Stopped(f"stopped after {number:,} commits, at the end of its {budget_s:,.0f} s")
                for follower in followers:
                    copy = self.folder / f"{self.kind}-{follower.system.name}"
                    shutil.copytree(path, copy)
                    try:
                        points.append(self._point(follower, copy, number, count))
                    except (_Stopped, WorkerLost) as reason:
                        notes.append(f"{self._title(follower)}: {reason}.")
                    finally:
                        shutil.rmtree(copy, ignore_errors=True)
                started = time.monotonic()
                points.append(self._point(worker, path, number, count))
                spent += time.monotonic() - started
                number = count
        except (_Stopped, WorkerLost) as reason:
            if str(reason) != "-":
                notes.append(f"{self._title(worker)}: {reason}.")
        finally:
            shutil.rmtree(path, ignore_errors=True)
        return {"points": points, "notes": notes}

    def _point(self, worker: Worker, path: Path, number: int, count: int) -> dict[str, Any]:
        """The upserts from `number` to `count`, and what the table is like afterwards."""
        samples = []
        while number < count:
            number += 1
            samples.append(_sampled(worker, self._table(path), path, [[self.history.batch_file(number)]]))
        point = _point(worker, self.kind, self._table(path), path, number, self.history, samples)
        print(
            f"growth  {self._title(worker):<30} {point.row_count:>9} rows {number:>5} commits {point.upsert_seconds:8.3f} s",
            file=sys.stderr,
            flush=True,
        )
        return asdict(point)

    def _table(self, path: Path) -> dict[str, str]:
        return {"path": str(path), "kind": self.kind}

    def _title(self, worker: Worker) -> str:
        return f"{BY_NAME[worker.system.name].title}, {self.kind.upper()}"


def _point(
    worker: Worker,
    kind: str,
    table: Mapping[str, Any],
    path: Path,
    number: int,
    history: _History,
    samples: Sequence[tuple[float, float, int, int]],
) -> Point:
    aggregate_s = statistics.median(_asked(worker, "aggregate", table, []) for _ in range(3))
    expected = history.state(number)
    wrong = difference(expected, worker.ask({"command": "state", "table": table}).get("answer"))
    if wrong:
        raise _Stopped(f"wrong after {number:,} commits: {wrong}")
    metadata = [folder for folder in (path / ".hoodie", path / "_delta_log") if folder.exists()]
    return Point(
        system=worker.system.name,
        kind=kind,
        row_count=expected["rows"],
        commit_count=number,
        upsert_seconds=statistics.median(seconds for seconds, _, _, _ in samples),
        upsert_cpu_seconds=statistics.median(cpu for _, cpu, _, _ in samples),
        aggregate_seconds=aggregate_s,
        peak_rss_bytes=max(peak for _, _, peak, _ in samples),
        written_bytes=round(statistics.median(written for _, _, _, written in samples)),
        metadata_files=sum(len(list_files(one)) for one in metadata),
    )


def _sampled(worker: Worker, table: Mapping[str, Any], path: Path, batch: Sequence[Any]) -> tuple[float, float, int, int]:
    """One upsert: seconds, those of the processor, peak memory, bytes written."""
    worker.start()
    before = list_files(path)
    reply, usage = worker.measure(_request("upsert", table, batch))
    if reply["status"] != "ok" or usage is None:
        raise _Stopped(_reason(reply))
    return reply["seconds"], usage.cpu_seconds, usage.peak_rss_bytes, _new_bytes(before, list_files(path))


def _new_bytes(before: Listing, after: Listing) -> int:
    return sum(facts[0] for path, facts in after.items() if before.get(path) != facts)


def _asked(worker: Worker, step: str, table: Mapping[str, Any], arguments: Sequence[Any]) -> float:
    """The seconds of one step that nothing else is wanted of."""
    worker.start()
    reply = worker.ask(_request(step, table, arguments))
    if reply["status"] != "ok":
        raise _Stopped(_reason(reply))
    seconds: float = reply["seconds"]
    return seconds


def _request(step: str, table: Mapping[str, Any], arguments: Sequence[Any]) -> dict[str, Any]:
    return {"command": "run", "step": step, "table": table, "arguments": arguments}


def _reason(reply: Mapping[str, Any]) -> str:
    return "-" if reply["status"] == "-" else f"{reply['status']}: {reply.get('message', '')}"
