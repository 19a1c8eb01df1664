"""Many processes that write small batches to one table, with and without group commits, and an exact ledger of what they wrote.

    python -m benchmarks.writers.small_batches --writers 8 --seconds 30 --kind cow --group auto
    python -m benchmarks.writers.small_batches --operation insert --group auto --kills 40

Each write has one row with a key of its own (the ledger) and, for upserts, rows with keys that all writers change.  A writer
notes each write before it begins and after it is acknowledged.  At the end the table has each acknowledged row once, no row
twice, and no row that was not begun.  With `--kills` random writers are killed while they write, and others take their place.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pyarrow as pa

_SHARED = 8
_SHARED_OF_A_BATCH = 4


@dataclass(frozen=True, slots=True)
class Load:
    """One run.  begin: a file that appears when all writers have started."""

    uri: str
    notes: str
    begin: str
    operation: str
    group: str
    seconds: float
    seed: int


def write(load: Load, name: str) -> None:
    """One writer: batches until the time is over."""
    from pyhudi import Table

    table = Table(
        load.uri, options={"pyhudi.threads": 1, "pyhudi.write.group": load.group, "hoodie.write.lock.wait_time_ms": 300_000}
    )
    rng = random.Random(f"{load.seed}/{name}")
    with open(Path(load.notes) / name, "a", buffering=1) as notes:
        notes.write(json.dumps({"ready": name}) + "\n")
        while not os.path.exists(load.begin):
            time.sleep(0.02)
        end = time.monotonic() + load.seconds
        number = 0
        while time.monotonic() < end:
            key = f"{name}-{number}"
            shared = rng.sample(range(_SHARED), _SHARED_OF_A_BATCH) if load.operation == "upsert" else []
            keys = [key, *(f"shared-{place}" for place in shared)]
            rows = pa.table({"id": keys, "part": [str(len(k) % 2) for k in keys], "v": [number] * len(keys)})
            notes.write(json.dumps({"begun": key}) + "\n")
            begun = time.monotonic()
            result = getattr(table, load.operation)(rows)
            notes.write(json.dumps({"done": key, "seconds": time.monotonic() - begun, "grouped": result.grouped}) + "\n")
            number += 1


def run(load: Load, kind: str, writers: int, kills: int) -> str:
    """A run, as a line of text.  Raises AssertionError if the ledger is not exact."""
    from pyhudi import Table

    table = Table.create(load.uri, record_key="id", partition_by="part", table_type=kind)
    table.upsert(pa.table({"id": ["first"], "part": ["0"], "v": [0]}))
    spawn = multiprocessing.get_context("spawn")
    rng = random.Random(load.seed)

    def start(number: int) -> SpawnProcess:
        process = spawn.Process(target=write, args=(load, f"w{number}"))
        process.start()
        return process

    running = [start(number) for number in range(writers)]
    while len(os.listdir(load.notes)) < writers:
        time.sleep(0.05)
    Path(load.begin).touch()
    begun = time.monotonic()
    for number in range(kills):
        time.sleep(rng.uniform(0.05, 2 * load.seconds / max(1, kills)))
        victim = rng.randrange(writers)
        pid = running[victim].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        running[victim].join()
        running[victim] = start(writers + number)
    for process in running:
        process.join()
    seconds = time.monotonic() - begun
    notes = [
        json.loads(line) for file in Path(load.notes).iterdir() for line in file.read_text().splitlines() if line.endswith("}")
    ]
    begun_keys = {note["begun"] for note in notes if "begun" in note}
    done = [note for note in notes if "done" in note]
    _check(Table(load.uri), begun_keys, {note["done"] for note in done})
    failed = [process.exitcode for process in running if process.exitcode]
    waits = sorted(note["seconds"] for note in done)
    groups = Counter(note["grouped"] for note in done)
    return (
        f"{kind} {load.operation} group={load.group} writers={writers} kills={kills}: {len(done)} acknowledged, "
        f"{len(done) / seconds:.2f}/s, wait median {_part(waits, 0.5):.2f} s, 99 % {_part(waits, 0.99):.2f} s, "
        f"longest {waits[-1]:.2f} s, largest group {max(groups)}, failed {failed}, ledger exact"
    )


def _check(table: object, begun: set[str], done: set[str]) -> None:
    from pyhudi import Table

    assert isinstance(table, Table)
    table.upsert(pa.table({"id": ["last"], "part": ["0"], "v": [0]}))
    counts = Counter(table.scan(["id"]).to_arrow()["id"].to_pylist())
    assert all(count == 1 for count in counts.values()), [key for key, count in counts.items() if count > 1]
    ledger = {key for key in counts if not key.startswith("shared-")} - {"first", "last"}
    assert done <= ledger, sorted(done - ledger)
    assert ledger <= begun, sorted(ledger - begun)
    report = table.validate()
    assert report.ok, str(report)


def _part(sorted_values: Sequence[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--kind", default="cow,mor")
    parser.add_argument("--group", default="auto,never", help="values of pyhudi.write.group")
    parser.add_argument("--operation", choices=("upsert", "insert"), default="upsert")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    for kind in chosen.kind.split(","):
        for group in chosen.group.split(","):
            with tempfile.TemporaryDirectory(prefix="pyhudi-batches-") as folder:
                notes = Path(folder) / "notes"
                notes.mkdir()
                begin = str(Path(folder) / "begin")
                load = Load(str(Path(folder) / "table"), str(notes), begin, chosen.operation, group, chosen.seconds, chosen.seed)
                print(run(load, kind, chosen.writers, chosen.kills), flush=True)


if __name__ == "__main__":
    main()
