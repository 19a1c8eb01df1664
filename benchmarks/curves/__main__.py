"""How cost grows along each axis of a table's size: `make bench-curves`.

    python -m benchmarks.curves                                  # all axes and sizes: hours on a small machine
    python -m benchmarks.curves --axes files,commits --most 10000
    python -m benchmarks.curves --minutes 20                     # no further size that begins after 20 minutes
    python -m benchmarks.curves --axes rows --again              # measured anew

Each size of each axis runs in a process of its own, the small ones of all axes first, so that a run that is cut short has the
beginning of every curve.  Points go to curves.json as they come, and CURVES.md is made of all of them after each size: a run that
is ended loses nothing but the step that it was at.  A later run goes on from there: it measures the sizes of which there is
nothing yet, or that did not come to their end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.curves.axes import AXES, BY_NAME, Axis, Point
from benchmarks.curves.report import report
from benchmarks.environments import ROOT
from benchmarks.machine import commit, describe

MODULES = {"pyhudi": "pyhudi_process", "delta-rs": "delta_rs_process", "delta-spark": "delta_spark_process"}
PEER_KINDS = {"delta-rs": ("cow",), "delta-spark": ("cow", "mor")}
"""Peer -> its kinds of tables: delta-rs always rewrites files; Delta on Spark writes deletion vectors in its `mor`."""


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


@dataclass(slots=True)
class Held:
    """What was measured, now and before, and what was not, in a folder.  notes: a run's title or a system -> why not."""

    folder: Path
    points: list[Point]
    notes: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> Held:
        """What a folder has; nothing where there is none."""
        store = folder / "curves.json"
        held = json.loads(store.read_text()) if store.exists() else {"points": [], "notes": {}}
        return cls(folder, [Point.of(one) for one in held["points"]], dict(held["notes"]))

    def has(self, run: Run) -> bool:
        """Whether all steps of a run were measured."""
        wanted = (run.axis.name, run.kind, run.system, run.size)
        return run.title not in self.notes and any((p.axis, p.kind, p.system, p.size) == wanted for p in self.points)

    def store(self) -> None:
        """Write both files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Of two points of one step and size the later one counts.
        latest = {(p.axis, p.kind, p.system, p.step, p.size): p for p in self.points}
        document = {"points": [asdict(point) for point in latest.values()], "notes": self.notes}
        (self.folder / "curves.json").write_text(json.dumps(document, indent=1) + "\n")
        commits = sorted({p.commit for p in latest.values() if p.commit})
        told = ", ".join([f"commit {', '.join(commits) or commit()}", *(f"{name} {value}" for name, value in describe().items())])
        (self.folder / "CURVES.md").write_text(report(self.points, self.notes.values(), told))


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
    return name in axis.peers and kind in PEER_KINDS[name]


def carried_out(run: Run, python: Path, timeout_s: float) -> Iterator[Point]:
    """The points of one size, each as it comes.  Raises subprocess.SubprocessError where it fails or takes too long."""
    folder = Path(tempfile.mkdtemp(prefix="curves-"))
    command = [str(python), "-m", f"benchmarks.curves.{MODULES[run.system]}"]
    command += [run.axis.name, run.kind, str(run.size), str(folder / "t")]
    try:
        with (
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, cwd=ROOT) as process,
        ):
            late = threading.Event()

            def end() -> None:
                late.set()
                process.kill()

            timer = threading.Timer(timeout_s, end)
            timer.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.startswith("{"):
                        yield Point(run.axis.name, run.kind, run.system, size=run.size, commit=commit(), **json.loads(line))
                code = process.wait()
            finally:
                timer.cancel()
                process.kill()
            if late.is_set():
                raise subprocess.TimeoutExpired(command, timeout_s)
            if code != 0:
                said.seek(0)
                raise subprocess.CalledProcessError(code, command, stderr=said.read())
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
    parser.add_argument("--again", action="store_true", help="measure anew what is there already")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one size (default 3600)")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks", help="folder of curves.json and CURVES.md")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.axes.split(",") if name not in BY_NAME]
    if unknown:
        parser.error(f"no such axis: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    interpreters = pythons(chosen.systems.split(","))
    held = Held.of(chosen.output)
    held.notes.update({name: f"{name} is not installed" for name in chosen.systems.split(",") if name not in interpreters})
    for name in interpreters:
        held.notes.pop(name, None)
    started, failed = time.monotonic(), False
    for run in runs_of([BY_NAME[name] for name in chosen.axes.split(",")], chosen.most, tuple(interpreters)):
        if chosen.minutes and time.monotonic() - started > 60 * chosen.minutes:
            continue
        if held.has(run) and not chosen.again:
            continue
        # Until it has ended it counts as one that did not.
        held.notes[run.title] = f"{run.title}: did not come to its end"
        try:
            for point in carried_out(run, interpreters[run.system], chosen.timeout):
                held.points.append(point)
                held.store()
                print(run.title, f"{point.step} {point.cpu_seconds:.3f} s", sep="  ", file=sys.stderr, flush=True)
            del held.notes[run.title]
        except subprocess.TimeoutExpired:
            held.notes[run.title] = f"{run.title}: did not end within {chosen.timeout:,.0f} s"
        except subprocess.CalledProcessError as error:
            failed = True
            held.notes[run.title] = f"{run.title}: failed: {(error.stderr or '').strip().splitlines()[-1:]}"
        held.store()
    held.store()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
