"""`python -m benchmarks.writers`: one run, and what came of it as a line of a table.  Exit status 1 when something was lost."""

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
    "| run | commits/s | lost attempts per commit | wait: median, 99 %, longest (s) | last attempt (s) | services | load |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def line_of(outcome: Outcome) -> str:
    """An outcome as a row of the table that HEAD begins."""
    found = outcome.figures
    waits = f"{found.median_wait:.2f}, {found.p99_wait:.2f}, {found.longest_wait:.2f}"
    each = found.lost / found.commits if found.commits else 0.0
    load = f"{outcome.load[0]:.1f} to {outcome.load[1]:.1f}"
    rates = f"{found.per_second:.2f} | {each:.2f} | {waits} | {found.median_last:.2f}"
    return f"| {outcome.plan} | {rates} | {outcome.passes} | {load} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.writers")
    parser.add_argument(
        "--writers", action="append", metavar="SYSTEM=COUNT", help=f"{', '.join(COUNTERS)}; pyhudi=8 when left out"
    )
    parser.add_argument("--commits", type=int, default=200, help="of each writer")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no writer begins a commit after so long")
    parser.add_argument("--kind", choices=("cow", "mor"), default="cow")
    parser.add_argument("--keys", choices=("overlapping", "disjoint"), default="overlapping")
    parser.add_argument(
        "--no-services", action="store_true", help="no compaction, clustering, cleaning and archival beside the writers"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of PyHudi's writers")
    parser.add_argument("--output", type=Path, help="append the outcome to this file, as a line of JSON")
    chosen = parser.parse_args()
    pairs = [text.partition("=") for text in chosen.writers or ["pyhudi=8"]]
    plan = Plan(
        writers={system: int(count or 1) for system, _, count in pairs},
        commits=chosen.commits,
        kind=chosen.kind,
        keys=chosen.keys,
        services=not chosen.no_services,
        seconds=chosen.seconds,
        seed=chosen.seed,
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
