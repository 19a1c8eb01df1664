"""A disk that is full from one storage call on, for one operation: it fails with a HudiError, and nothing is lost.

    python -m tests.simulation.attack.full_disk --seed 1 --rounds 200

The limit of the size of files (RLIMIT_FSIZE) represents the disk: from the call that the seed chooses, no file of this process
grows.  It is this process that suffers, so tests run it as one of its own.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import HudiError, ServiceFailed
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall

_CALLS = 120
_OPTIONS: dict[str, object] = {
    "pyhudi.threads": 1,
    "hoodie.index.bloom.num_entries": 100,
    # Far shorter than a lease: a lock is given back on a full disk too.
    "hoodie.write.lock.wait_time_ms": 1000,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
}


def attack(folder: Path, seed: int, rounds: int) -> list[str]:
    """Rounds of one write on a full disk and one on a disk with room; what was wrong."""
    rng = random.Random(seed)
    options = {**_OPTIONS, "hoodie.metadata.enable": rng.random() < 0.5}
    path = str(folder / "t")
    Table.create(path, record_key="id", table_type=rng.choice(("cow", "mor")), options=options)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows: dict[str, set[int | None]] = {}
    wrong = []
    for number in range(rounds):
        at = rng.randint(1, _CALLS)

        def watch(call_number: int, call: StorageCall, at: int = at) -> None:
            if call_number == at:
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))

        storage = FaultyStorage(open_storage(path), listener=watch)
        key, data = f"k{number % 5}", pa.table({"id": [f"k{number % 5}"], "v": pa.array([number], pa.int64())})
        try:
            Table(path, dict(storage.spec().options), options).upsert(data)
            rows[key] = {number}
        except ServiceFailed:
            rows[key] = {number}
        except HudiError:
            rows[key] = {*rows.get(key, {None}), number}
        except Exception as error:
            wrong.append(f"seed {seed}, round {number}, call {at}: {type(error).__name__}: {error}")
            rows[key] = {*rows.get(key, {None}), number}
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        table = Table(path, options=options)
        table.upsert(pa.table({"id": ["room"], "v": pa.array([number], pa.int64())}))
        rows["room"] = {number}
        found = table.scan(["id", "v"]).to_arrow()
        held = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
        bad = {name: held.get(name) for name, allowed in rows.items() if held.get(name) not in allowed}
        if bad or len(held) != found.num_rows:
            wrong.append(f"seed {seed}, round {number}, call {at}: {found.to_pylist()} is not {rows}")
    report = table.validate() if rounds else None
    if report is not None and not report.ok:
        wrong.append(str(report))
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = attack(Path(folder), options.seed, options.rounds)
    print("\n".join(wrong) or "nothing was lost")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
