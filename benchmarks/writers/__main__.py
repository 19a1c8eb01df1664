"""`python -m benchmarks.writers`: one run, and its outcome as a row of a table. Exit status 1 if something was lost."""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.environments import EnvironmentMissing
from benchmarks.writers.process import COUNTERS
from benchmarks.writers.run import Outcome, Plan, run

HEAD = (
    "| run | commits/s | lost attempts per commit | wait (s): median, 99 %, longest | last try (s) | group | services | load |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


def line_of(outcome: Outcome) -> str:
    """A row below HEAD."""
    found = outcome.figures
    waits = f"{found.median_wait:.2f}, {found.p99_wait:.2f}, {found.longest_wait:.2f}"
    each = found.lost / found.commits if found.commits else 0.0
    load = f"{outcome.load[0]:.1f} to {outcome.load[1]:.1f}"
    rates = f"{found.per_second:.2f} | {each:.2f} | {waits} | {found.median_last:.2f}"
    return f"| {outcome.plan} | {rates} | {found.grouped} | {outcome.passes} | {load} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.writers")
    parser.add_argument("--writers", action="append", metavar="SYSTEM=COUNT", help=f"{', '.join(COUNTERS)} (default pyhudi=8)")
    parser.add_argument("--commits", type=int, help="of each writer (default 200, or as many as --seconds allows)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no writer begins a commit after so long")
    parser.add_argument("--kind", choices=("cow", "mor"), default="cow")
    parser.add_argument("--keys", choices=("overlapping", "disjoint"), default="overlapping")
    parser.add_argument(
        "--no-services", action="store_true", help="no compaction, clustering, cleaning and archival beside the writers"
    )
    parser.add_argument(
        "--mode", choices=("count", "write"), default="count", help="increment counters, or upsert without reading"
    )
    parser.add_argument("--kills", type=int, default=0, help="writers that are killed and replaced")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of PyHudi's writers")
    parser.add_argument("--output", type=Path, help="append the outcome to this file, as a line of JSON")
    chosen = parser.parse_args()
    pairs = [text.partition("=") for text in chosen.writers or ["pyhudi=8"]]
    plan = Plan(
        writers={system: int(count or 1) for system, _, count in pairs},
        commits=chosen.commits or (200 if math.isinf(chosen.seconds) else 1_000_000),
        kind=chosen.kind,
        keys=chosen.keys,
        services=not chosen.no_services,
        seconds=chosen.seconds,
        seed=chosen.seed,
        mode=chosen.mode,
        kills=chosen.kills,
        options=dict(text.split("=", 1) for text in chosen.option),
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(plan, Path(folder))
    except EnvironmentMissing as missing:
        print(f"benchmarks: {missing}", file=sys.stderr)
        return 2
    print(*HEAD, line_of(outcome), *outcome.wrong, sep="\n")
    if chosen.output:
        with chosen.output.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
