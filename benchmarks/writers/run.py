"""One run: a table, its processes, and what came of them."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.environments import ROOT, java_home, prepare_jars, prepare_python
from benchmarks.machine import load_average
from benchmarks.systems import BY_NAME, System
from benchmarks.writers.embedded import OPTIONS
from benchmarks.writers.judge import Figures, Told, judge
from benchmarks.writers.process import Work, parts_of

SERVICES = ("compact", "cluster", "clean", "archive")
SERVING: Mapping[str, object] = {
    "hoodie.clean.automatic": True,
    "hoodie.archive.automatic": True,
}
"""Of the processes of services; writers have them switched off."""


NEWER_HUDI = "hudi-1.1"
SYSTEMS: Mapping[str, System] = {**BY_NAME, NEWER_HUDI: replace(BY_NAME["hudi"], name=NEWER_HUDI, environment=NEWER_HUDI)}
"""Those of the other benchmarks, and a later release of Apache Hudi to write beside ours."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.  writers: system -> how many processes of it.  kind: `cow` or `mor`.  keys: `overlapping` or `disjoint`.

    commits: of each writer, or as many as it makes in so many seconds.  services: whether table services of PyHudi run in
    processes of their own.  options: on top of those of PyHudi's writers.
    """

    writers: Mapping[str, int]
    commits: int
    kind: str
    keys: str
    services: bool = True
    seconds: float = math.inf
    seed: int = 1
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """Whether the table is one of Hudi."""
        return not any(name.startswith("delta") for name in self.writers)

    @property
    def all_options(self) -> Mapping[str, object]:
        """Of every process."""
        if not self.is_ours:
            return {}
        return {**OPTIONS, **self.options}

    @property
    def real(self) -> tuple[str, ...]:
        """Apache Hudi among the writers."""
        return tuple(name for name in self.writers if name in ("hudi", NEWER_HUDI))

    def __str__(self) -> str:
        names = " + ".join(f"{count} {name}" for name, count in self.writers.items())
        most = f"{self.commits} commits each" if math.isinf(self.seconds) else f"for {self.seconds:.0f} s"
        return f"{names}, {self.kind}, {self.keys}, {most}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.  wrong: what must hold and does not.  load: processes that wanted a core, before and after."""

    plan: Plan
    figures: Figures
    passes: int
    wrong: tuple[str, ...]
    load: tuple[float, float]


def run(plan: Plan, folder: Path, timeout_s: float = 36_000) -> Outcome:
    """Carry a run out.  folder: for the table.  Raises EnvironmentMissing for a system that cannot be had."""
    before = load_average()
    base = Work("create", "pyhudi" if plan.is_ours else next(iter(plan.writers)), str(folder / "counters"), "", plan.kind)
    base = replace(base, options=plan.all_options, seed=plan.seed)
    writers = [_writer(plan, base, system, number) for system, count in plan.writers.items() for number in range(count)]
    parts = tuple(sorted({part for writer in writers for part in writer.parts}))
    owners = tuple(owner for writer in writers for owner in writer.owners)
    told = Told()
    told.hear(_said(replace(base, parts=parts, owners=owners), timeout_s))
    on = {**plan.all_options, **SERVING}
    serving = [_start(replace(base, role="serve", name=name, service=name, options=on)) for name in _services(plan)]
    writing = [_start(writer) for writer in writers]
    for process in writing:
        _await_ready(process)
    begun = time.monotonic()
    with ThreadPoolExecutor(len(writing) + len(serving)) as threads:
        # Each is read while it runs, so that none waits with a full pipe.
        heard = list(threads.map(lambda process: _heard(process, timeout_s), writing))
        seconds = time.monotonic() - begun
        heard += list(threads.map(lambda process: _heard(process, timeout_s), serving))
    for lines in heard:
        told.hear(lines)
    rows, wrong = _looked(base, timeout_s)
    wrong = [*judge(told, rows), *wrong]
    for system in plan.real:
        theirs, more = _looked(replace(base, system=system), timeout_s)
        wrong += more
        if sorted(theirs) != sorted(rows):
            wrong.append(f"{system} reads other rows: {sorted(set(theirs) ^ set(rows))[:4]}")
    return Outcome(plan, Figures.of(told, seconds), told.passes, tuple(wrong), (before, load_average()))


def _looked(base: Work, timeout_s: float) -> tuple[list[tuple[str, int]], list[str]]:
    """The rows of the table as a system reads them, and what it finds wrong."""
    looked = [json.loads(line) for line in _said(replace(base, role="look"), timeout_s)]
    rows = [(key, value) for words in looked if "row" in words for key, value in [words["row"]]]
    return rows, [words[kind] for words in looked for kind in ("wrong", "failed") if kind in words]


def _writer(plan: Plan, base: Work, system: str, number: int) -> Work:
    name = f"{system}-{number}"
    work = replace(base, role="count", system=system, name=name, parts=parts_of(plan.keys, name))
    # Of merge on read, Apache Hudi has no statement in which reading and writing are one step.
    owners = (name,) if plan.kind == "mor" and system in plan.real else ()
    return replace(work, commits=plan.commits, seconds=plan.seconds, owners=owners)


def _services(plan: Plan) -> tuple[str, ...]:
    if not (plan.services and plan.is_ours):
        return ()
    return SERVICES if plan.kind == "mor" else SERVICES[1:]


def _start(work: Work) -> subprocess.Popen[str]:
    system = SYSTEMS[work.system]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))), "PYTHONHASHSEED": "0"}
    if system.on_spark:
        environment["JAVA_HOME"] = str(java_home())
        # A Spark installed on the machine must not take the place of the one in the environment.
        environment.pop("SPARK_HOME", None)
    work = replace(work, jars=tuple(map(str, prepare_jars(system.environment))))
    return subprocess.Popen(
        [str(prepare_python(system.environment)), "-m", "benchmarks.writers.process", work.to_json()],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _await_ready(process: subprocess.Popen[str]) -> None:
    """Until it has started, or ended: what it is made of takes its time, and is nobody's wait."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith('{"ready"'):
            return


def _said(work: Work, timeout_s: float) -> list[str]:
    return _heard(_start(work), timeout_s)


def _heard(process: subprocess.Popen[str], timeout_s: float) -> list[str]:
    """What a process said when it has ended; its input ends now.  That it died without a word is told in its place."""
    out, err = process.communicate("", timeout=timeout_s)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if process.returncode and not any('"failed"' in line for line in lines):
        lines.append(json.dumps({"failed": f"a process ended with {process.returncode}: {err[-1000:]}"}))
    return lines
