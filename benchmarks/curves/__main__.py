"""How cost grows along each axis of a table's size: `make bench-curves`.

    python -m benchmarks.curves                                  # all axes and sizes: hours on a small machine
    python -m benchmarks.curves --axes files,commits --most 10000
    python -m benchmarks.curves --minutes 20                     # no further size that begins after 20 minutes

Each size of each axis runs in a process of its own, the small ones of all axes first, so that a run that is cut short has the
beginning of every curve.  Points go to curves.json as they come, which a later run adds to, and CURVES.md is made of all of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.curves.axes import AXES, BY_NAME, Axis, Point
from benchmarks.curves.report import report
from benchmarks.environments import ROOT
from benchmarks.machine import commit, describe

MODULES = {"pyhudi": "pyhudi_process", "delta-rs": "delta_rs_process"}


@dataclass(frozen=True, slots=True)
class Run:
    """One size of one axis by one system."""

    axis: Axis
    kind: str
    system: str
    size: int

    @property
    def title(self) -> str:
        return f"{self.axis.name} {self.size:,}, {self.kind}, {self.system}"


def runs_of(axes: Sequence[Axis], most: int, systems: Sequence[str]) -> list[Run]:
    """What is to be run, small sizes first.  most: the largest size."""
    found: list[tuple[int, Run]] = []
    for axis in axes:
        for place, size in enumerate(size for size in axis.sizes if size <= most):
            for kind in axis.kinds:
                found += [
                    (place, Run(axis, kind, name, size)) for name in systems if name == "pyhudi" or _takes_part(axis, kind, name)
                ]
    return [run for _, run in sorted(found, key=lambda one: one[0])]


def _takes_part(axis: Axis, kind: str, name: str) -> bool:
    # delta-rs has one kind of table, which rewrites files.
    return name in axis.peers and kind == "cow"


def carried_out(run: Run, python: Path, timeout_s: float) -> Iterator[Point]:
    """The points of one size.  Raises subprocess.SubprocessError where it fails or takes too long."""
    folder = Path(tempfile.mkdtemp(prefix="curves-"))
    try:
        command = [str(python), "-m", f"benchmarks.curves.{MODULES[run.system]}"]
        command += [run.axis.name, run.kind, str(run.size), str(folder / "t")]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=timeout_s)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                yield Point(run.axis.name, run.kind, run.system, size=run.size, **json.loads(line))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pythons(names: Sequence[str]) -> dict[str, Path]:
    """The interpreters of the systems that are installed.  `python -m benchmarks` makes those of peers."""
    found = {"pyhudi": Path(sys.executable)}
    for name in names:
        python = ROOT / f".venv-bench-{name}" / "bin" / "python"
        if name != "pyhudi" and python.exists():
            found[name] = python
    return {name: found[name] for name in names if name in found}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curves", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--axes", default=",".join(BY_NAME), help="of " + ", ".join(BY_NAME))
    parser.add_argument("--systems", default=",".join(MODULES), help="of " + ", ".join(MODULES))
    parser.add_argument("--most", type=int, default=max(size for axis in AXES for size in axis.sizes), help="the largest size")
    parser.add_argument("--minutes", type=float, default=0, help="begin no size after so many minutes (default: no end)")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one size (default 3600)")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks", help="folder of curves.json and CURVES.md")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.axes.split(",") if name not in BY_NAME]
    if unknown:
        parser.error(f"no such axis: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    interpreters = pythons(chosen.systems.split(","))
    store = chosen.output / "curves.json"
    held = json.loads(store.read_text()) if store.exists() else {"points": [], "notes": {}}
    points, notes = [Point.of(one) for one in held["points"]], dict(held["notes"])
    notes.update({f"{name}": f"{name} is not installed" for name in chosen.systems.split(",") if name not in interpreters})
    started, failed = time.monotonic(), False
    for run in runs_of([BY_NAME[name] for name in chosen.axes.split(",")], chosen.most, tuple(interpreters)):
        if chosen.minutes and time.monotonic() - started > 60 * chosen.minutes:
            continue
        try:
            points += carried_out(run, interpreters[run.system], chosen.timeout)
            notes.pop(run.title, None)
            print(run.title, *(f"{p.step} {p.cpu_seconds:.3f} s" for p in points if _is_of(p, run)), sep="  ", file=sys.stderr)
        except subprocess.TimeoutExpired:
            notes[run.title] = f"{run.title}: did not end within {chosen.timeout:,.0f} s"
        except subprocess.CalledProcessError as error:
            failed = True
            notes[run.title] = f"{run.title}: failed: {(error.stderr or '').strip().splitlines()[-1:]}"
        chosen.output.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps({"points": [asdict(point) for point in points], "notes": notes}, indent=1) + "\n")
    (chosen.output / "CURVES.md").write_text(report(points, notes.values(), _machine()))
    return 1 if failed else 0


def _is_of(point: Point, run: Run) -> bool:
    return (point.axis, point.kind, point.system, point.size) == (run.axis.name, run.kind, run.system, run.size)


def _machine() -> str:
    return ", ".join([f"commit {commit()}", *(f"{name} {value}" for name, value in describe().items())])


if __name__ == "__main__":
    sys.exit(main())
