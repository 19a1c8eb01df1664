"""Writers suspended at a storage call of a commit, or while they replace the lock's document, on each lock of a local disk.

    python -m tests.simulation.attack.suspensions --lock lease --every 1

At each point a process commits and stops itself there (SIGSTOP).  Another writer then commits, or fails when its lock wait
is over; it never waits without end.  The first one goes on afterwards.  What must hold: see
`tests.simulation.attack.processes.violations`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import HudiError
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from tests.simulation.attack.kills import Child
from tests.simulation.attack.processes import OPTIONS, WriterOutput, begin, violations
from tests.simulation.attack.writer import SHARED, say

FILE_LOCK = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
LOCKS: Mapping[str, Mapping[str, Any]] = {
    "lease": {"hoodie.write.lock.wait_time_ms": 30_000},
    # Its file does not expire, so a writer fails when its wait is over.
    "file": {"hoodie.write.lock.provider": FILE_LOCK, "hoodie.write.lock.wait_time_ms": 200},
}
FEW_CALLS: dict[str, Any] = {"hoodie.table.services.enabled": False, "hoodie.write.num.retries.on.conflict.failures": 10}
STEPS = ("flock", "rename", "scandir", "replace")
# A commit replaces the lock's document at least twice.
REPLACEMENTS = 2
HUNG_AFTER_S = 300
_TOGETHER = 6


@dataclass(frozen=True)
class Point:
    """Where a writer stops: before a storage call, by its number, or before a step of replacing the lock's document."""

    call: int = 0
    step: str = ""
    time: int = 0


def commit(path: str, name: str, value: int, options: Mapping[str, Any], point: Point | None = None) -> None:
    """Upsert a key of this writer and the shared one."""
    if point is None:
        # A wait without end kills this process.
        signal.alarm(HUNG_AFTER_S)
    calls = 0

    def watch(number: int, call: StorageCall) -> None:
        nonlocal calls
        calls = number
        if point is not None and number == point.call:
            os.kill(os.getpid(), signal.SIGSTOP)

    if point is not None and point.step:
        _stop_at(point)
    storage = FaultyStorage(open_storage(path), listener=watch)
    say(value=value)
    try:
        done = Table(path, dict(storage.spec().options), dict(options)).upsert(
            pa.table({"id": [name, SHARED], "v": pa.array([value, value], pa.int64())})
        )
        say(acknowledged=value, completion=done.completion_time, calls=calls)
    except HudiError as error:
        say(error=f"{type(error).__name__}: {error}")


def _stop_at(point: Point) -> None:
    """Stop this process at one of the system calls that replace the lock's document."""
    module = fcntl if point.step == "flock" else os
    real: Callable[..., object] = getattr(module, point.step)
    times = 0

    def stopping(*arguments: object) -> object:
        nonlocal times
        concerns_lock = point.step == "flock" or ".cas" in str(arguments[0]) or ".cas" in str(arguments[-1])
        times += concerns_lock
        result = real(*arguments) if point.step == "flock" else None
        if concerns_lock and times == point.time:
            os.kill(os.getpid(), signal.SIGSTOP)
        return result if point.step == "flock" else real(*arguments)

    setattr(module, point.step, stopping)


def attack(folder: Path, lock: str, every: int) -> list[str]:
    """Suspend a writer at each `every`-th storage call of a commit, and at each step of replacing the lock; what was wrong."""
    options = {**OPTIONS, **FEW_CALLS, **LOCKS[lock]}

    def made(path: Path) -> str:
        path.mkdir()
        Child(partial(begin, path, "cow", False)).end()
        uri = str(path / "t")
        Child(partial(commit, uri, "first", 1, options)).end()
        return uri

    lines, _ = Child(partial(commit, made(folder / "count"), "w1", 1001, options)).end()
    last = json.loads(lines[-1])
    if "calls" not in last:
        return [str(last)]
    points = [Point(call=number) for number in range(1, last["calls"] + 1, every)]
    if lock == "lease":
        points += [Point(step=step, time=time) for step in STEPS for time in range(1, REPLACEMENTS + 1)]
    wrong: list[str] = []
    for start in range(0, len(points), _TOGETHER):
        some = points[start : start + _TOGETHER]
        places = [made(folder / f"{start + number}") for number in range(len(some))]
        wrong += _round(lock, some, places, options)
    print(f"{lock}: {len(points)} suspensions", flush=True)
    return wrong


def _round(lock: str, points: Sequence[Point], places: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Suspend a writer of each table at its point, let another write, and wake the first."""
    sleepers = [Child(partial(commit, place, "w1", 1001, options, point)) for place, point in zip(places, points, strict=True)]
    stopped = [os.waitid(os.P_PID, one.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT) for one in sleepers]
    others = [Child(partial(commit, place, "w2", 2001, options)) for place in places]
    output = [WriterOutput() for _ in places]
    wrong = []
    for number, other in enumerate(others):
        lines, code = other.end()
        output[number].add_lines("w2", lines)
        error = json.loads(lines[-1]).get("error", "")
        if code or (error and (lock == "lease" or not error.startswith("StorageUnavailable"))):
            wrong.append(f"{points[number]}: the other writer ended with {code}: {error or lines}")
    for number, sleeper in enumerate(sleepers):
        was = stopped[number]
        if was is None or was.si_code != os.CLD_STOPPED:
            wrong.append(f"{points[number]}: the writer did not come there")
        os.kill(sleeper.pid, signal.SIGCONT)
        lines, code = sleeper.end()
        output[number].add_lines("w1", lines)
        if code:
            wrong.append(f"{points[number]}: the suspended writer ended with {code}")
    for number, place in enumerate(places):
        lines, code = Child(partial(_check_violations, place, options, output[number])).end()
        wrong += [f"{points[number]}: {text}" for line in lines for text in json.loads(line)["found"]]
        if code:
            wrong.append(f"{points[number]}: the last look ended with {code}")
    return wrong


def _check_violations(place: str, options: Mapping[str, Any], output: WriterOutput) -> None:
    say(found=violations(place, dict(options), output))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lock", choices=tuple(LOCKS), default="lease")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = attack(Path(folder), given.lock, given.every)
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
