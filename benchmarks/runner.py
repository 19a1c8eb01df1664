"""Executes scenarios, compares every result with what Arrow computed, and appends each measurement to a file.

Within a step the systems run one after the other while the others are idle; their order rotates from round to round. Around
each operation the process tree is watched for memory and CPU time, and the table's folder compared for bytes written. Then the
answer of a read, or the table after a write or service, is compared. A wrong result has the status `wrong` and never counts.

A run that was interrupted continues: it skips chains that are complete, and in others executes only the writes of measured
steps again, without measuring, to restore the tables.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.data import Inputs
from benchmarks.scenarios import Scenario, Step, select
from benchmarks.systems import Worker, WorkerLost

Key = tuple[str, float, str, int, str, str]
Listing = dict[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One system, one step, one round.

    Attributes:
        status: `ok`, `-` (not offered), `skipped` (an earlier step of its chain is missing), `failed`, or `wrong`.
        cpu_seconds: Of the process tree; of a system in one process, exact user and system time.
        load: Load average of the machine at the end.
    """

    scenario: str
    size: float
    kind: str
    round: int
    step: str
    system: str
    status: str
    message: str = ""
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_rss_bytes: int | None = None
    written_bytes: int | None = None
    removed_bytes: int | None = None
    read_from: str = ""
    load: float = 0.0

    @property
    def key(self) -> Key:
        return (self.scenario, self.size, self.kind, self.round, self.step, self.system)


class Results:
    """Measurements in a file of JSON lines: a header per run of a scenario, its measurements, and what is known at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.headers: list[dict[str, Any]] = []
        self.measurements: dict[Key, Measurement] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            # A run that was killed may have left half a line.
            if line.endswith("}"):
                self._add(json.loads(line))

    def _add(self, document: dict[str, Any]) -> None:
        if "header" in document:
            self.headers.append(document["header"])
        elif "end" in document:
            self.headers[-1] |= document["end"]
        else:
            measurement = Measurement(**document)
            self.measurements[measurement.key] = measurement

    def append(self, document: dict[str, Any]) -> None:
        """Store a line; it is on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with self.path.open("a") as file:
            file.write(("" if whole else "\n") + json.dumps(document) + "\n")
        self._add(document)


@dataclass(slots=True)
class _Place:
    """A table of a chain. batches: those in it, in order; broken: status of the steps to come, with the reason."""

    path: Path
    batches: list[str] = field(default_factory=list)
    broken: str = ""
    reason: str = ""


@dataclass(slots=True)
class Chain:
    """The steps of one size and table type of a scenario.

    Attributes:
        folder: For the tables; emptied before and after.
        deadline: Monotonic time after which no step begins.
    """

    scenario: Scenario
    size: float
    kind: str
    profile: str
    workers: Mapping[str, Worker]
    results: Results
    folder: Path
    rounds: int
    only: tuple[str, ...] = ()
    deadline: float = float("inf")

    def run(self) -> bool:
        """Execute what is not measured yet; False if the deadline ended it."""
        steps = select(self.scenario, self.kind, self.profile, self.only)
        names = [name for name in self.scenario.systems if name in self.workers]
        planned = [
            (number, step, name)
            for number in range(self.rounds)
            for step in steps
            if number == 0 or self.scenario.rebuild or not step.once
            for name in rotated(names, number)
            if not step.systems or not step.reported or name in step.systems
        ]
        pending = {(number, name) for number, step, name in planned if self._is_pending(number, step, name)}
        if not pending:
            return True
        inputs = self.scenario.inputs(self.size)
        places: dict[str, _Place] = {}
        for number, step, name in planned:
            if time.monotonic() > self.deadline:
                return False
            if step is steps[0] and name == rotated(names, number)[0] and (number == 0 or self.scenario.rebuild):
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder.mkdir(parents=True)
                places = {other: _Place(self.folder / other) for other in names}
                if self.scenario.is_curve:
                    for worker in self.workers.values():
                        worker.stop()
            remaining = {other for at, other in pending if at == number or (not self.scenario.rebuild and at >= number)}
            if not remaining & {name, *(other for other in names if name in self.workers[other].system.reads_of)}:
                continue
            self._take(inputs, places, number, step, name)
        shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def _key(self, number: int, step: Step, name: str) -> Key:
        return (self.scenario.name, self.size, self.kind, number, step.name, name)

    def _is_reported(self, number: int, step: Step) -> bool:
        return step.reported and not (step.fresh and number)

    def _is_pending(self, number: int, step: Step, name: str) -> bool:
        return self._is_reported(number, step) and self._key(number, step, name) not in self.results.measurements

    def _take(self, inputs: Inputs | None, places: Mapping[str, _Place], number: int, step: Step, name: str) -> None:
        key = self._key(number, step, name)
        known = self.results.measurements.get(key)
        changes = bool(step.batch) or step.method in ("compact", "cluster", "clean", "track_changes", "build_metadata")
        if known is not None and not changes:
            return
        taken = self._measured(inputs, places, number, step, name, Measurement(*key, ""))
        if step.batch and (taken.seconds is None or taken.status == "wrong"):
            place = places[name]
            if not place.broken and not self.workers[name].system.reads_of:
                place.broken = "-" if taken.status == "-" else "skipped"
                place.reason = f"{step.name} {taken.status}: {taken.message}"
        if known is None and self._is_reported(number, step):
            taken = replace(taken, load=machine.load_average())
            self.results.append(asdict(taken))
            _print(taken)

    def _measured(
        self, inputs: Inputs | None, places: Mapping[str, _Place], number: int, step: Step, name: str, blank: Measurement
    ) -> Measurement:
        worker, place = self.workers[name], places[name]
        if worker.system.reads_of and step.method != "bulk_insert":
            if not step.answer:
                return replace(blank, status="-", message="reads only")
            sources = [one for one in worker.system.reads_of if one in places and places[one].batches and not places[one].broken]
            if not sources:
                return replace(blank, status="skipped", message="no table to read")
            place, blank = places[sources[0]], replace(blank, read_from=sources[0])
        elif place.broken:
            return replace(blank, status=place.broken, message=place.reason)
        try:
            return self._executed(inputs, worker, place, number, step, blank)
        except WorkerLost as error:
            return replace(blank, status="failed", message=str(error))

    def _executed(
        self, inputs: Inputs | None, worker: Worker, place: _Place, number: int, step: Step, blank: Measurement
    ) -> Measurement:
        layout = inputs.layout if inputs else "rows"
        request: dict[str, Any] = {
            "command": "run",
            "step": step.method,
            "table": {"path": str(place.path), "kind": self.kind, "layout_name": layout, "kept": step.kept},
            "arguments": self._arguments(inputs, step, number),
        }
        if step.history:
            request["repeat"] = max(1, int(self.size) - self.rounds)
        if step.fresh and number == 0:
            worker.stop()
        reply = worker.start()
        if reply["status"] != "ok":
            return replace(blank, status=reply["status"], message=reply["message"])
        before = list_files(place.path)
        reply, usage = worker.measure(request)
        if reply["status"] != "ok" or usage is None:
            return replace(blank, status=reply["status"], message=reply.get("message", ""))
        after = list_files(place.path)
        if step.batch:
            place.batches.append(step.batch)
        wrong = self._wrong(inputs, worker, place, request, step) or idle(step, before, after)
        new = [path for path, facts in after.items() if before.get(path) != facts]
        # pyiceberg writes nothing for a batch that changes no value.
        nothing = "" if wrong or new or not step.batch else "it had the batch already and wrote nothing"
        return replace(
            blank,
            status="wrong" if wrong else "skipped" if nothing else "ok",
            message=wrong or nothing,
            seconds=reply["seconds"],
            cpu_seconds=usage.cpu_seconds if worker.system.on_spark else reply["cpu_seconds"],
            peak_rss_bytes=usage.peak_rss_bytes,
            written_bytes=sum(after[path][0] for path in new),
            removed_bytes=sum(facts[0] for path, facts in before.items() if path not in after),
        )

    def _arguments(self, inputs: Inputs | None, step: Step, number: int) -> list[Any]:
        if inputs is not None and step.batch:
            return [inputs.files(step.batch)]
        if inputs is not None and step.method == "point_lookup":
            return [inputs.lookups]
        if inputs is not None and step.method == "filtered_read" and inputs.layout == "rows":
            return [inputs.condition]
        values = {"axis": self.scenario.axis, "size": int(self.size), "round": number}
        return [values.get(argument, argument) if isinstance(argument, str) else argument for argument in step.arguments]

    def _wrong(self, inputs: Inputs | None, worker: Worker, place: _Place, request: Mapping[str, Any], step: Step) -> str:
        """What differs in the answer, or in the table after the step; empty if nothing."""
        if inputs is None or (worker.system.reads_of and not step.answer):
            return ""
        if step.answer:
            return _compared(inputs.expected(place.batches)[step.answer], worker.send({"command": "answer"}))
        if step.batch or step.method in ("compact", "cluster", "clean"):
            expected = inputs.expected(place.batches)["state"]
            return _compared(expected, worker.send({"command": "state", "table": request["table"]}))
        return ""


def rotated(names: Sequence[str], number: int) -> list[str]:
    """The names, beginning with another one each round."""
    start = number % len(names) if names else 0
    return [*names[start:], *names[:start]]


def list_files(folder: Path) -> Listing:
    """Path -> (size, time of change, inode) of every file below the folder."""
    found: Listing = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            facts = os.stat(os.path.join(parent, name))
            found[os.path.join(parent, name)] = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
    return found


def idle(step: Step, before: Listing, after: Listing) -> str:
    """Complaint about a service that did nothing, which would look fast."""
    data = [path for path in set(after) - set(before) if path.endswith(".parquet") and "/_delta_log/" not in path]
    if step.method in ("compact", "cluster") and not data:
        return "it wrote no data file"
    return "it removed nothing" if step.method == "clean" and not set(before) - set(after) else ""


def difference(expected: Any, found: Any) -> str:
    """Where an answer differs; empty if it does not. Both come from JSON."""
    if found == expected:
        return ""
    if isinstance(expected, dict) and isinstance(found, dict):
        parts = [f"{key} is {found.get(key)}, not {value}" for key, value in expected.items() if found.get(key) != value]
        return "; ".join(parts) or f"it also has {sorted(set(found) - set(expected))}"
    return f"{found}, not {expected}"


def _compared(expected: Any, reply: Mapping[str, Any]) -> str:
    if reply["status"] != "ok":
        return f"could not be read: {reply.get('message', '')}"
    return difference(expected, reply["answer"])


def _print(taken: Measurement) -> None:
    figures = f"{taken.seconds:9.3f} s {taken.cpu_seconds:9.3f} CPU s" if taken.seconds is not None else ""
    name = f"{taken.scenario} {taken.size:g} {taken.kind} {taken.round + 1}  {taken.step}"
    message = " ".join(taken.message.split())[:200]
    print(f"{name:<44} {taken.system:<18} {taken.status:<8} {figures} {message}", file=sys.stderr, flush=True)
