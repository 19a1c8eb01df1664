"""How the cost of one upsert grows: with the rows of the table, and with the commits behind it.  The batch stays 1,000 rows.

More rows: tables of 1, 2 and 4 times the scale; on each a few upserts, their median. More commits: one small table, upserted up
to 1,000 times, looked at when it has 10, 100 and 1,000 commits: the median of the last upserts, and one snapshot aggregate. The
systems keep their defaults, so cleaning, archival and checkpoints happen as they would for a user. A system that does not come to
the last number within its budget is reported as far as it came. At every point the whole table is compared with what Arrow
computed from the batches.
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
from benchmarks.data import INSERTS, UPDATES, apply_batch, load_base, load_inputs, random_batch, write_rows
from benchmarks.fingerprint import Fingerprint
from benchmarks.run import Listing, difference, list_files
from benchmarks.systems import BY_NAME, Worker, WorkerLost

# How many upserts make one point.
SAMPLES = 5
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
    batch_rows: int = UPDATES + INSERTS


@dataclass(frozen=True, slots=True)
class Point:
    """One system on one table. metadata_files: what lies in `.hoodie` or `_delta_log` at that time."""

    system: str
    kind: str
    row_count: int
    commit_count: int
    upsert_seconds: float
    aggregate_seconds: float
    peak_rss_bytes: int
    written_bytes: int
    metadata_files: int


class _Stopped(Exception):
    """A system cannot go on with this table; the text goes into the notes."""


class _History:
    """The batches for one table, made as far as somebody has asked, the same for every system."""

    def __init__(self, base: pa.Table, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._table = base
        self._folder = folder
        self._fingerprints: list[Fingerprint] = []

    def batch_file(self, number: int) -> str:
        """The file of batch `number`, from 1."""
        while len(self._fingerprints) < number:
            made = len(self._fingerprints) + 1
            batch = random_batch(self._table, FIRST_NUMBER + made, UPDATES, INSERTS)
            write_rows(batch, self._path(made))
            self._table = apply_batch(self._table, batch, delete=False)
            self._fingerprints.append(fingerprint.of_batches(self._table.to_batches()))
        return str(self._path(number))

    def state(self, number: int) -> Fingerprint:
        """What the table holds after batch `number`, which has been asked for."""
        return self._fingerprints[number - 1]

    def _path(self, number: int) -> Path:
        return self._folder / f"batch-{number:05}.parquet"


def run_growth(settings: GrowthSettings, workers: Mapping[str, Worker], folder: Path) -> dict[str, Any]:
    """All points, as the JSON that report.py shows."""
    notes: list[str] = []
    by_rows = list(_more_rows(settings, workers, folder / "rows", notes))
    by_commits = list(_more_commits(settings, workers, folder / "commits", notes))
    return {
        "settings": asdict(settings),
        "rows": [asdict(point) for point in by_rows],
        "commits": [asdict(point) for point in by_commits],
        "notes": notes,
        "wrong": any("wrong" in note for note in notes),
    }


def _more_rows(settings: GrowthSettings, workers: Mapping[str, Worker], folder: Path, notes: list[str]) -> Iterator[Point]:
    for factor in settings.factors:
        inputs = load_inputs(settings.scale * factor)
        history = _History(load_base(inputs), folder / f"batches-{factor}")
        for kind in settings.kinds:
            for worker in workers.values():
                yield from _grow(worker, kind, inputs.base_files(), history, (SAMPLES,), None, folder, notes)
        shutil.rmtree(folder, ignore_errors=True)


def _more_commits(settings: GrowthSettings, workers: Mapping[str, Worker], folder: Path, notes: list[str]) -> Iterator[Point]:
    inputs = load_inputs(settings.commit_scale)
    history = _History(load_base(inputs), folder / "batches")
    for kind in settings.kinds:
        for worker in workers.values():
            yield from _grow(worker, kind, inputs.base_files(), history, settings.commit_counts, settings.budget_s, folder, notes)
    shutil.rmtree(folder, ignore_errors=True)


def _grow(
    worker: Worker,
    kind: str,
    base_files: Sequence[str],
    history: _History,
    counts: Sequence[int],
    budget_s: float | None,
    folder: Path,
    notes: list[str],
) -> Iterator[Point]:
    """Bulk insert, then upserts up to the highest of `counts`, with a point at each of them."""
    path = folder / f"{kind}-{worker.system.name}"
    table = {"path": str(path), "kind": kind}
    title = f"{BY_NAME[worker.system.name].title}, {kind.upper()}"
    started = time.monotonic()
    number = 0
    try:
        _asked(worker, "bulk_insert", table, [list(base_files)])
        for count in sorted(counts):
            samples: list[tuple[float, int, int]] = []
            while number < count:
                number += 1
                batch = [[history.batch_file(number)]]
                if count - number < SAMPLES:
                    samples.append(_sampled(worker, table, path, batch))
                else:
                    _asked(worker, "upsert", table, batch)
                if budget_s is not None and time.monotonic() - started > budget_s and number < count:
                    raise _Stopped(f"stopped after {number:,} commits, at the end of its {budget_s:,.0f} s")
            point = _point(worker, kind, table, path, number, history, samples)
            print(
                f"growth  {title:<30} {point.row_count:>9} rows {number:>5} commits {point.upsert_seconds:8.3f} s",
                file=sys.stderr,
                flush=True,
            )
            yield point
    except (_Stopped, WorkerLost) as reason:
        if str(reason) != "-":
            notes.append(f"{title}: {reason}.")
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _point(
    worker: Worker,
    kind: str,
    table: Mapping[str, Any],
    path: Path,
    number: int,
    history: _History,
    samples: Sequence[tuple[float, int, int]],
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
        upsert_seconds=statistics.median(seconds for seconds, _, _ in samples),
        aggregate_seconds=aggregate_s,
        peak_rss_bytes=max(peak for _, peak, _ in samples),
        written_bytes=round(statistics.median(written for _, _, written in samples)),
        metadata_files=sum(len(list_files(one)) for one in metadata),
    )


def _sampled(worker: Worker, table: Mapping[str, Any], path: Path, batch: Sequence[Any]) -> tuple[float, int, int]:
    """One upsert: seconds, peak memory, bytes written."""
    before = list_files(path)
    reply, usage = worker.measure(_request("upsert", table, batch))
    if reply["status"] != "ok" or usage is None:
        raise _Stopped(_reason(reply))
    return reply["seconds"], usage.peak_rss_bytes, _new_bytes(before, list_files(path))


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
