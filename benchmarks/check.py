"""Which of ten steps have become slower or faster since the last published run: `make bench-check`.

    python -m benchmarks.check                       # against the commit of results.json
    python -m benchmarks.check --base HEAD~5 --rounds 5

The code of that commit is unpacked beside this one, and each step runs with both, one right after the other, in a process that
each keeps: so a busy machine disturbs both alike. What counts is the processor's time, of all threads, and of each step the
median of its pairs. The engine is the embedded one; the rows are made up, the same for both. A step that moved by more than a
quarter is named, and one that became slower makes the command fail.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.asked import Asked
from benchmarks.check_steps import STEPS
from benchmarks.environments import ROOT

MOVED = 1.25
"""A step has moved when the median of its ratios is above this, or below its inverse."""

RESOLUTION_S = 0.02
"""Processor seconds below which a step is too short to be told from noise, where both sides stay below it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One step in one round: processor seconds with the code of before and with that of now."""

    before_s: float
    now_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of the pairs of one step.

    before_s, now_s: medians; ratio: the median of now / before over the pairs; moved: `slower`, `faster` or empty.
    """

    step: str
    before_s: float
    now_s: float
    ratio: float
    moved: str = ""

    @property
    def line(self) -> str:
        return f"{self.step:<20}{self.before_s:>10.3f}{self.now_s:>10.3f}{self.ratio:>8.2f}  {self.moved}".rstrip()


HEAD = f"{'step':<20}{'before, s':>10}{'now, s':>10}{'ratio':>8}"


def judged(step: str, pairs: Sequence[Pair]) -> Verdict:
    """The verdict on a step.  Raises ValueError without a pair, or for one that took no time before."""
    if not pairs or any(pair.before_s <= 0 for pair in pairs):
        raise ValueError(f"{step}: each pair needs processor time, found {list(pairs)}")
    before = statistics.median(pair.before_s for pair in pairs)
    now = statistics.median(pair.now_s for pair in pairs)
    ratio = statistics.median(pair.now_s / pair.before_s for pair in pairs)
    is_long = max(before, now) >= RESOLUTION_S
    moved = "slower" if is_long and ratio > MOVED else "faster" if is_long and ratio < 1 / MOVED else ""
    return Verdict(step, before, now, ratio, moved)


def published_commit(results: Path) -> str:
    """The commit of the last published run.  Raises ValueError where the file names none."""
    commit = json.loads(results.read_text())["settings"].get("commit")
    if not commit:
        raise ValueError(f"{results} does not say which commit it measured; name one with --base")
    return str(commit)


def unpacked(commit: str, folder: Path) -> Path:
    """The sources of a commit below a folder.  Raises CalledProcessError for one that this repository does not have."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder / "src"


class Side:
    """A process that carries steps out with one state of the code."""

    def __init__(self, source: Path, folder: Path, rows: int) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(ROOT))), "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "benchmarks.check_steps", str(source), str(folder), str(rows)]
        self._process = Asked(command, environment)

    def take(self, step: str) -> float:
        """Processor seconds of a step.  Raises RuntimeError where the process ended."""
        return float(self._process.ask(step))

    def close(self) -> None:
        self._process.close()


def measured(before: Side, now: Side, rounds: int) -> Mapping[str, list[Pair]]:
    """The pairs of each step.  Who goes first changes from round to round; a round more comes first, which warms both up."""
    pairs: dict[str, list[Pair]] = {step: [] for step in STEPS}
    for number in range(rounds + 1):
        for step in STEPS:
            if number % 2:
                now_s, before_s = now.take(step), before.take(step)
            else:
                before_s, now_s = before.take(step), now.take(step)
            if number:
                pairs[step].append(Pair(before_s, now_s))
    return pairs


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], prog="python -m benchmarks.check")
    parser.add_argument("--base", help="a commit (default: that of benchmarks/results.json)")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of each step (default 3)")
    parser.add_argument("--rows", type=int, default=200_000, help="of a table (default 200000)")
    chosen = parser.parse_args(arguments)
    base = chosen.base or published_commit(ROOT / "benchmarks" / "results.json")
    folder = Path(tempfile.mkdtemp(prefix="bench-check-"))
    try:
        sides = [
            Side(source, folder / name, chosen.rows)
            for name, source in (("before", unpacked(base, folder / "code")), ("now", ROOT / "src"))
        ]
        try:
            pairs = measured(sides[0], sides[1], chosen.rounds)
        finally:
            for side in sides:
                side.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdicts = [judged(step, found) for step, found in pairs.items()]
    print(f"processor seconds, medians of {chosen.rounds} pairs; before: {base}", HEAD, *(v.line for v in verdicts), sep="\n")
    return 1 if any(verdict.moved == "slower" for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
