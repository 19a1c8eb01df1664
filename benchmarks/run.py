"""Runs the steps on all systems, round after round, and compares what they answer.

A round builds every table anew, chain after chain. Within a step the systems run one after the other, while the others are
idle; the order moves on by one from round to round, so that nobody is always first. Around each operation the process tree is
watched for memory and CPU time, and the table's folder is looked at before and after for the bytes written. Then the answer of
a read, and after a step that may change the table its whole content, is compared with what Arrow computed from the input alone;
in later rounds, where the same batches meet the same rows, the content is compared after the last of the writes and at the end
of the chain. A wrong answer is a measurement with the status "wrong": it never counts as a time.

Steps in a fresh process belong to the first round. Later rounds carry them out in the running process, for the steps behind
them, and do not report them: a new process in every round would leave no round in which Spark is warm.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.data import Inputs
from benchmarks.memory import Usage
from benchmarks.steps import CHAINS, Step, is_wanted, select
from benchmarks.systems import BY_NAME, Worker, WorkerLost


@dataclass(frozen=True, slots=True)
class Measurement:
    """One system, one step, one round.

    status: `ok`, `-` (no such step), `not built` (not yet in PyHudi), `skipped` (an earlier step of its chain is missing),
    `failed`, or `wrong`. written_bytes: sizes of the files that are new or changed in the table's folder; removed_bytes: of those
    that are gone.
    """

    system: str
    step: str
    round: int
    status: str
    message: str = ""
    seconds: float | None = None
    cpu_seconds: float | None = None
    start_rss_bytes: int | None = None
    peak_rss_bytes: int | None = None
    written_bytes: int | None = None
    written_files: int | None = None
    removed_bytes: int | None = None
    table_bytes: int | None = None
    read_from: str | None = None


@dataclass(slots=True)
class _Place:
    """A table of this round. broken: the status of all steps to come, once the chain cannot go on; reason: why it cannot."""

    path: Path
    broken: str | None = None
    reason: str = ""


Listing = dict[str, tuple[int, int, int]]


def run(
    inputs: Inputs, workers: Mapping[str, Worker], folder: Path, rounds: int, patterns: Sequence[str]
) -> Iterator[Measurement]:
    """The measurements of the reported steps of all rounds, as they are taken. folder: for the tables; emptied after each
    chain.
    """
    for number in range(rounds):
        for kind in CHAINS:
            yield from run_chain(inputs, workers, folder, number, kind, patterns)


def run_chain(
    inputs: Inputs, workers: Mapping[str, Worker], folder: Path, number: int, kind: str, patterns: Sequence[str]
) -> Iterator[Measurement]:
    """One chain of one round, counted from 0."""
    steps = select(CHAINS[kind], patterns)
    tables = folder / f"round-{number}-{kind}"
    shutil.rmtree(tables, ignore_errors=True)
    tables.mkdir(parents=True)
    names = [name for name in workers if kind in BY_NAME[name].kinds]
    places = {name: _Place(tables / name) for name in names}
    for step in steps:
        reported = is_wanted(step, patterns) and not (step.fresh and number)
        for name in rotated(names, number):
            taken = _take(inputs, workers, places, name, step, number, number == 0 or _is_checkpoint(step, steps))
            _say(taken, reported)
            if reported:
                yield taken
    shutil.rmtree(tables, ignore_errors=True)


def _is_checkpoint(step: Step, steps: Sequence[Step]) -> bool:
    """Whether it is the last of the chain's writes, or of its steps that leave a table to be looked at."""
    checked = [one for one in steps if one.state is not None]
    writes = [one for one in steps if one.changes_rows]
    return step in (*checked[-1:], *writes[-1:])


def rotated(names: Sequence[str], number: int) -> list[str]:
    """The names, beginning with another one each round."""
    start = number % len(names) if names else 0
    return [*names[start:], *names[:start]]


def _take(
    inputs: Inputs,
    workers: Mapping[str, Worker],
    places: Mapping[str, _Place],
    name: str,
    step: Step,
    number: int,
    compare_table: bool,
) -> Measurement:
    place = places[name]
    source = name
    if BY_NAME[name].reads_of and step.method != "bulk_insert":
        if step.answer is None:
            return Measurement(name, step.name, number, "-", "reads only")
        # The first of its sources that is part of this run and still whole.
        found = next((other for other in BY_NAME[name].reads_of if other in places and places[other].broken is None), None)
        if found is None:
            return Measurement(name, step.name, number, "skipped", "no table to read")
        source, place = found, places[found]
    elif place.broken is not None:
        return Measurement(name, step.name, number, place.broken, place.reason)

    taken = _run_step(inputs, workers[name], place, step, number, compare_table)
    if source != name:
        return replace(taken, read_from=source)
    if step.changes_rows and taken.status != "ok":
        place.broken = taken.status if taken.status in ("-", "not built") else "skipped"
        place.reason = f"{step.name} {taken.status}: {taken.message}"
    return taken


def _run_step(inputs: Inputs, worker: Worker, place: _Place, step: Step, number: int, compare_table: bool) -> Measurement:
    name = worker.system.name
    request = {
        "command": "run",
        "step": step.method,
        "table": {"path": str(place.path), "kind": step.kind},
        "arguments": _arguments(inputs, step),
    }
    try:
        if step.fresh and number == 0:
            worker.stop()
        started = worker.start()
        if started["status"] != "ok":
            return Measurement(name, step.name, number, started["status"], started["message"])
        before = list_files(place.path)
        reply, usage = worker.measure(request)
        if reply["status"] != "ok" or usage is None:
            return Measurement(name, step.name, number, reply["status"], reply.get("message", ""))
        after = list_files(place.path)
        wrong = _wrong(inputs, worker, request, step, compare_table) or _idle(step, before, after)
    except WorkerLost as error:
        return Measurement(name, step.name, number, "failed", str(error))
    status = "wrong" if wrong else "ok"
    return measurement(name, step.name, number, status, wrong, reply["seconds"], usage, before, after)


def measurement(
    system: str, step: str, number: int, status: str, message: str, seconds: float, usage: Usage, before: Listing, after: Listing
) -> Measurement:
    """What was seen around one operation, put together."""
    new = [path for path, facts in after.items() if before.get(path) != facts]
    return Measurement(
        system=system,
        step=step,
        round=number,
        status=status,
        message=message,
        seconds=seconds,
        cpu_seconds=usage.cpu_seconds,
        start_rss_bytes=usage.start_rss_bytes,
        peak_rss_bytes=usage.peak_rss_bytes,
        written_bytes=sum(after[path][0] for path in new),
        written_files=len(new),
        removed_bytes=sum(facts[0] for path, facts in before.items() if path not in after),
        table_bytes=sum(facts[0] for facts in after.values()),
    )


def list_files(folder: Path) -> Listing:
    """Path -> (size, time of change, inode) of every file below the folder."""
    found: Listing = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            facts = os.stat(path)
            found[path] = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
    return found


def difference(expected: Any, found: Any) -> str:
    """Says where an answer differs; empty when it does not. Both come from JSON."""
    if found == expected:
        return ""
    if isinstance(expected, dict) and isinstance(found, dict):
        parts = [f"{key} is {found.get(key)}, not {value}" for key, value in expected.items() if found.get(key) != value]
        return "; ".join(parts) or f"it also has {sorted(set(found) - set(expected))}"
    return f"{found}, not {expected}"


def _arguments(inputs: Inputs, step: Step) -> list[Any]:
    if step.batch == "base":
        return [inputs.base_files()]
    if step.batch is not None:
        return [[inputs.batch_file(step.batch)]]
    return [inputs.lookups] if step.method == "point_lookup" else []


def _wrong(inputs: Inputs, worker: Worker, request: Mapping[str, Any], step: Step, compare_table: bool) -> str:
    """What is wrong with the answer, or with the table after the step; empty when all is right."""
    if step.answer is not None:
        reply = worker.ask({"command": "answer"})
        return _compared(inputs.answers[step.answer], reply)
    if compare_table and step.state is not None and not (worker.system.reads_of and step.method == "bulk_insert"):
        reply = worker.ask({"command": "state", "table": request["table"]})
        return _compared(inputs.states[step.state], reply)
    return ""


def _idle(step: Step, before: Listing, after: Listing) -> str:
    """A service that found nothing to do would look fast."""
    data = {path for path in set(after) - set(before) if path.endswith(".parquet") and "/_delta_log/" not in path}
    if step.method in ("compact", "cluster") and not data:
        return "it wrote no data file"
    if step.method == "clean" and not set(before) - set(after):
        return "it removed nothing"
    return ""


def _compared(expected: Any, reply: Mapping[str, Any]) -> str:
    if reply["status"] != "ok":
        return f"could not be read: {reply.get('message', '')}"
    return difference(expected, reply["answer"])


def _say(taken: Measurement, reported: bool) -> None:
    figures = f"{taken.seconds:9.3f} s {(taken.peak_rss_bytes or 0) / 2**20:7.0f} MiB" if taken.seconds is not None else ""
    message = " ".join(taken.message.split())[:200] + ("" if reported else " (not reported)")
    print(
        f"round {taken.round + 1}  {taken.step:<20} {taken.system:<14} {taken.status:<9} {figures} {message}",
        file=sys.stderr,
        flush=True,
    )
