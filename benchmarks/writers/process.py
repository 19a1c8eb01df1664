"""One process of a run, by its role: `create` the table, `count` or `write`, `serve` until the input ends, `look`.

    python -m benchmarks.writers.process '{"role": "count", "system": "pyhudi", "path": "/tmp/t", "name": "w0", ...}'

Each printed line is a JSON object: `ready` when a writer has started (it begins when its input ends); `begun` before the first
attempt at a commit; `acknowledged` after it, with values and seconds; `failed`; `row` and `wrong` of a look.
"""

from __future__ import annotations

import importlib
import json
import math
import random
import select
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.writers.counters import LEDGER, Commit, Counters, Lost

COUNTERS = {
    "pyhudi": "benchmarks.writers.embedded:Embedded",
    "pyhudi-spark": "benchmarks.writers.spark:PyHudiOnSpark",
    "hudi": "benchmarks.writers.spark:ApacheHudi",
    "hudi-1.1": "benchmarks.writers.spark:ApacheHudi",
    "delta-spark": "benchmarks.writers.spark:DeltaOnSpark",
    "delta-rs": "benchmarks.writers.delta_rs:DeltaRs",
}
"""System -> where its counters are; imported by those alone that have its packages."""

SHARED_PARTS = 4
KEYS_OF_A_PART = 4
KEYS_OF_A_COMMIT = 2
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Work:
    """Task of one process.

    Attributes:
        kind: `cow` or `mor`.
        parts: Partitions in which it counts, or which it creates.
        commits, seconds: Limits of the process; it ends at the first that it reaches.
        owners: Writers with counters of their own.
        service: Service that it executes repeatedly, with pauses.
    """

    role: str
    system: str
    path: str
    name: str
    kind: str
    options: Mapping[str, object] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    commits: int = 0
    seconds: float = math.inf
    seed: int = 0
    owners: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    service: str = ""
    pause_s: float = 0.5

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def counters_of(work: Work) -> Counters:
    """The counters of a system."""
    module, _, name = COUNTERS[work.system].partition(":")
    found: Counters = getattr(importlib.import_module(module), name)(work.path, work.options, work.jars)
    return found


def parts_of(keys: str, name: str) -> tuple[str, ...]:
    """Partitions of a writer. keys: `overlapping` (the same for all) or `disjoint`."""
    return (name,) if keys == "disjoint" else tuple(f"p{number}" for number in range(SHARED_PARTS))


def keys_of(part: str, owner: str = "") -> tuple[str, ...]:
    """Counters of a partition: those of all, or those of an owner."""
    return tuple(f"{part}-{owner}{number}" for number in range(KEYS_OF_A_PART))


def count(work: Work) -> None:
    """Make all commits of a writer, each as often as necessary."""
    rng = random.Random(f"{work.seed}/{work.name}")
    counters = counters_of(work)
    say(ready=work.name)
    sys.stdin.read()
    end = time.monotonic() + work.seconds
    for number in range(work.commits):
        if time.monotonic() > end:
            break
        part = rng.choice(work.parts)
        keys = tuple(sorted(rng.sample(keys_of(part, *work.owners), KEYS_OF_A_COMMIT)))
        commit = Commit(part, keys, f"{LEDGER}{work.name} {number}", is_own=bool(work.owners))
        begun = time.monotonic()
        say(begun=commit.row, keys=commit.keys)
        lost, values, grouped = 0, None, 1
        while True:
            attempted = time.monotonic()
            try:
                if work.role == "write":
                    grouped = counters.write(commit)
                else:
                    values = counters.add(commit, lost)
                break
            except Lost:
                # As long as the attempt, and longer each time, so that the loser meets fewer others.
                longest = min((time.monotonic() - attempted) * 2 ** min(lost, 4), _LONGEST_PAUSE_S)
                time.sleep(rng.uniform(0, longest))
                lost += 1
        now = time.monotonic()
        say(acknowledged=commit.row, values=values, lost=lost, grouped=grouped, seconds=now - begun, last=now - attempted)


def serve(work: Work) -> None:
    """Execute services until the input ends."""
    from pyhudi import Table
    from pyhudi.errors import TableState, WriteConflict

    passes = lost = 0
    while not select.select([sys.stdin], [], [], work.pause_s)[0]:
        try:
            Table(work.path, options=work.options).run_services([work.service])
            passes += 1
        except (WriteConflict, TableState):
            lost += 1
    say(passes=passes, lost=lost)


def create(work: Work) -> None:
    """Create the table, with all counters at 0."""
    rows = [(part, key) for part in work.parts for owner in ("", *work.owners) for key in keys_of(part, owner)]
    counters_of(work).create(work.kind, rows)


def look(work: Work) -> None:
    """Print every row, and defects that the system finds."""
    counters = counters_of(work)
    for row in counters.rows():
        say(row=row)
    for text in counters.wrong():
        say(wrong=text)


ROLES = {"create": create, "count": count, "write": count, "serve": serve, "look": look}


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def main() -> None:
    given = json.loads(sys.argv[1])
    work = Work(**{**given, **{name: tuple(given[name]) for name in ("parts", "owners", "jars")}})
    try:
        ROLES[work.role](work)
    except Exception as error:
        say(failed=f"{work.role} {work.name}: {type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    main()
