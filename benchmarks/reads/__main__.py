"""The five reads of a copy-on-write table, step by step in turn: as they are, as they were at an earlier commit, and delta-rs's.

    python -m benchmarks.reads --base HEAD~5 --rounds 9
    python -m benchmarks.reads --tables /some/folder          # made there by the first run, and used again

Both tables hold the rows of `benchmarks.data` after the same six batches.  Each read opens the table anew, as each step of
`python -m benchmarks` does.  What counts is processor time, and of each read the median of the ratios of its pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.asked import Asked
from benchmarks.check import unpacked
from benchmarks.environments import ROOT, prepare_python
from benchmarks.reads.process import CASES

_MAKE = """
import sys
from benchmarks.reads.tables import make
make(*sys.argv[1:])
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """One read, by one side.  answer: a hash of what it gave."""

    cpu_s: float
    wall_s: float
    answer: str


class Side:
    """A process that reads."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._process = Asked(command, environment)

    def take(self, case: str) -> Reading:
        """Raises RuntimeError where the process ended."""
        return Reading(**json.loads(self._process.ask(case)))

    def close(self) -> None:
        self._process.close()


class Taking(Protocol):
    """Who reads."""

    @property
    def name(self) -> str: ...

    def take(self, case: str) -> Reading: ...


def measured(sides: Sequence[Taking], cases: Sequence[str], rounds: int) -> dict[str, list[dict[str, Reading]]]:
    """Of each case the readings of all sides, round by round; the order changes, and one round more comes first.

    Raises ValueError where two sides give different rows.
    """
    found: dict[str, list[dict[str, Reading]]] = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case in cases:
            turn = [*sides[number // 2 % len(sides) :], *sides[: number // 2 % len(sides)]]
            # Who comes after whom changes, too: the files are in the processor's caches for the second.
            turn = turn[::-1] if number % 2 else turn
            taken = {side.name: side.take(case) for side in turn}
            if len({reading.answer for reading in taken.values()}) > 1:
                raise ValueError(f"{case}: the sides give different rows: {taken}")
            if number:
                found[case].append(taken)
    return found


def report(found: Mapping[str, Sequence[Mapping[str, Reading]]], first: str, others: Sequence[str]) -> str:
    """A table in Markdown: of each case the processor seconds of all, and the median ratio of the first to each other."""
    names = (first, *others)
    heads = [*(f"{name}, s" for name in names), *(f"{first} / {name}" for name in others)]
    heads += [f"{name} / {others[-1]}" for name in others[:-1]]
    lines = [f"| read | {' | '.join(heads)} |", f"| --- |{' --- |' * len(heads)}"]
    for case, rounds in found.items():
        cells = [f"{statistics.median(taken[name].cpu_s for taken in rounds):.3f}" for name in names]
        pairs = [(first, name) for name in others] + [(name, others[-1]) for name in others[:-1]]
        cells += [f"{statistics.median(taken[one].cpu_s / taken[other].cpu_s for taken in rounds):.2f}" for one, other in pairs]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def make_tables(folder: Path, scale: float) -> dict[str, str]:
    """The table of each peer below a folder, made where it is not there: the place of each, by the name of the peer."""
    from benchmarks.data import load_inputs

    inputs = load_inputs(scale)
    batches = [(name, inputs.batch_file(name)) for name in ("upsert-1", "upsert-10", "delete", "small", "small-cold", "last")]
    places = {name: str(folder / f"{name}-{scale}") for name in ("pyhudi", "delta-rs")}
    for name, place in places.items():
        if not Path(place).exists():
            asked = json.dumps({"peer": name, "place": place, "base": list(inputs.base_files()), "batches": batches})
            subprocess.run([str(prepare_python(name)), "-c", _MAKE, asked], cwd=ROOT, check=True)
    return places


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], prog="python -m benchmarks.reads")
    parser.add_argument("--base", help="a commit whose code reads, too (default: none)")
    parser.add_argument("--rounds", type=int, default=9, help="of each read (default 9)")
    parser.add_argument("--scale", type=float, default=0.25, help="of the tables (default 0.25: 1.5 million rows)")
    parser.add_argument("--tables", type=Path, help="a folder for the tables, kept (default: they are made and removed)")
    parser.add_argument("--reads", nargs="+", default=CASES, choices=CASES, help="which (default: all)")
    chosen = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-reads-")))
        places = make_tables(chosen.tables or scratch, chosen.scale)
        from benchmarks.data import load_inputs

        keys = json.dumps([list(key) for key in load_inputs(chosen.scale).lookups])
        sources = {"now": ROOT / "src", **({"before": unpacked(chosen.base, scratch / "code")} if chosen.base else {})}
        sides = []
        for name, source in sources.items():
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(ROOT)))}
            command = [sys.executable, "-m", "benchmarks.reads.process", "pyhudi", places["pyhudi"], keys]
            sides.append(Side(name, command, environment))
        delta = [str(prepare_python("delta-rs")), "-m", "benchmarks.reads.process", "delta-rs", places["delta-rs"], keys]
        sides.append(Side("delta-rs", delta))
        for side in sides:
            stack.callback(side.close)
        found = measured(sides, chosen.reads, chosen.rounds)
        print(report(found, "now", [side.name for side in sides[1:]]))


if __name__ == "__main__":
    main()
