"""One run: a table, its processes, and their outcome."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.environments import ROOT, java_home, prepare_jars, prepare_python
from benchmarks.machine import load_average
from benchmarks.systems import BY_NAME
from benchmarks.writers.embedded import OPTIONS
from benchmarks.writers.process import Work, parts_of
from benchmarks.writers.violations import Figures, WriterOutput, violations

SERVICES = ("compact", "cluster", "clean", "archive")
SERVING: Mapping[str, object] = {
    "hoodie.clean.automatic": True,
    "hoodie.archive.automatic": True,
}
"""Options of the processes of services; writers have them off."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        writers: System -> number of its processes.
        kind: `cow` or `mor`.
        keys: `overlapping` or `disjoint`.
        commits, seconds: Limits of each writer; it ends at the first that it reaches.
        services: Whether table services of PyHudi run in processes of their own.
        options: Added to those of PyHudi's writers.
        mode: `count` or `write`.
        kills: Writers killed at random times and replaced.
    """

    writers: Mapping[str, int]
    commits: int
    kind: str
    keys: str
    services: bool = True
    seconds: float = math.inf
    seed: int = 1
    options: Mapping[str, object] = field(default_factory=dict)
    mode: str = "count"
    kills: int = 0

    @property
    def is_ours(self) -> bool:
        """Whether it is a Hudi table."""
        return not any(name.startswith("delta") for name in self.writers)

    @property
    def all_options(self) -> Mapping[str, object]:
        """Options of every process."""
        if not self.is_ours:
            return {}
        return {**OPTIONS, **self.options}

    @property
    def real(self) -> tuple[str, ...]:
        """Releases of Apache Hudi among the writers."""
        return tuple(name for name in self.writers if name in ("hudi", "hudi-1.1"))

    def __str__(self) -> str:
        names = " + ".join(f"{count} {name}" for name, count in self.writers.items())
        most = f"{self.commits} commits each" if math.isinf(self.seconds) else f"for {self.seconds:.0f} s"
        group = self.options.get("pyhudi.write.group")
        more = [*([f"group={group}"] if group else []), *([f"{self.kills} kills"] if self.kills else [])]
        return ", ".join([f"{names}, {self.kind}, {self.keys}, {self.mode}, {most}", *more])


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run. wrong: defects; load: load average before and after."""

    plan: Plan
    figures: Figures
    passes: int
    wrong: tuple[str, ...]
    load: tuple[float, float]


def run(plan: Plan, folder: Path, timeout_s: float = 36_000) -> Outcome:
    """Execute a run; folder: for the table. Raises EnvironmentMissing."""
    before = load_average()
    base = Work("create", "pyhudi" if plan.is_ours else next(iter(plan.writers)), str(folder / "counters"), "", plan.kind)
    base = replace(base, options=plan.all_options, seed=plan.seed)
    writers = [_writer(plan, base, system, number) for system, count in plan.writers.items() for number in range(count)]
    parts = tuple(sorted({part for writer in writers for part in writer.parts}))
    owners = tuple(owner for writer in writers for owner in writer.owners)
    output = WriterOutput()
    output.add_lines(_output_lines(replace(base, parts=parts, owners=owners), timeout_s))
    on = {**plan.all_options, **SERVING}
    serving = [_start(replace(base, role="serve", name=name, service=name, options=on)) for name in _services(plan)]
    writing = [_start(writer) for writer in writers]
    for process in writing:
        _await_ready(process)
    begun = time.monotonic()
    with ThreadPoolExecutor(len(writing) + len(serving) + plan.kills) as threads:
        # Each is read while it runs, so that none waits with a full pipe.
        hearing = [threads.submit(_heard, process, timeout_s) for process in writing]
        rng = random.Random(plan.seed)
        for number in range(plan.kills):
            time.sleep(rng.uniform(0.05, 2 * min(plan.seconds, 60) / plan.kills))
            place = rng.randrange(len(writing))
            writing[place].kill()
            name = f"{writers[place].name}.{number}"
            writing[place] = _start(replace(writers[place], name=name))
            _await_ready(writing[place])
            hearing.append(threads.submit(_heard, writing[place], timeout_s))
        heard = [future.result() for future in hearing]
        seconds = time.monotonic() - begun
        heard += list(threads.map(lambda process: _heard(process, timeout_s), serving))
    for lines in heard:
        output.add_lines(lines)
    rows, wrong = _looked(base, timeout_s)
    wrong = [*violations(output, rows, counted=plan.mode == "count"), *wrong]
    for system in plan.real:
        theirs, more = _looked(replace(base, system=system), timeout_s)
        wrong += more
        if sorted(theirs) != sorted(rows):
            wrong.append(f"{system} reads other rows: {sorted(set(theirs) ^ set(rows))[:4]}")
    return Outcome(plan, Figures.of(output, seconds), output.passes, tuple(wrong), (before, load_average()))


def _looked(base: Work, timeout_s: float) -> tuple[list[tuple[str, int]], list[str]]:
    """Rows as a system reads them, and defects that it finds."""
    looked = [json.loads(line) for line in _output_lines(replace(base, role="look"), timeout_s)]
    rows = [(key, value) for words in looked if "row" in words for key, value in [words["row"]]]
    return rows, [words[kind] for words in looked for kind in ("wrong", "failed") if kind in words]


def _writer(plan: Plan, base: Work, system: str, number: int) -> Work:
    name = f"{system}-{number}"
    work = replace(base, role=plan.mode, system=system, name=name, parts=parts_of(plan.keys, name))
    # For merge on read, Apache Hudi has no statement that reads and writes in one step.
    owners = (name,) if plan.kind == "mor" and system in plan.real else ()
    return replace(work, commits=plan.commits, seconds=plan.seconds, owners=owners)


def _services(plan: Plan) -> tuple[str, ...]:
    if not (plan.services and plan.is_ours):
        return ()
    return SERVICES if plan.kind == "mor" else SERVICES[1:]


def _start(work: Work) -> subprocess.Popen[str]:
    system = BY_NAME[work.system]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))), "PYTHONHASHSEED": "0"}
    if system.on_spark:
        environment["JAVA_HOME"] = str(java_home())
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
    """Wait until it has started, or ended."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith('{"ready"'):
            return


def _output_lines(work: Work, timeout_s: float) -> list[str]:
    return _heard(_start(work), timeout_s)


def _heard(process: subprocess.Popen[str], timeout_s: float) -> list[str]:
    """Lines of a process until it ended; its input ends now. A process that died is reported, unless it was killed."""
    out, err = process.communicate("", timeout=timeout_s)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if process.returncode not in (0, -signal.SIGKILL) and not any('"failed"' in line for line in lines):
        lines.append(json.dumps({"failed": f"a process ended with {process.returncode}: {err[-1000:]}"}))
    return lines
