"""Processes that are killed with -9 one after the other on one table: two at a time under each concurrency mode, and a single
writer that leaves what the dead wrote to the next clean.

    python -m tests.simulation.attack.kills --seed 1 --kills 300 --mode optimistic

This process imports everything and forks each writer, so that a kill is cheap. It opens no table itself, because a child has
none of its threads. A writer upserts and runs services as in `tests.simulation.attack.writer`, and is killed at a storage call
that the seed selects. `tests.simulation.attack.processes.violations` checks the table from time to time and at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyhudi import Table
from tests.simulation.attack.processes import OPTIONS, WriterOutput, begin, violations
from tests.simulation.attack.writer import say, write

OPTIMISTIC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
NON_BLOCKING = {
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": 2,
}
LAZY = {"hoodie.clean.failed.writes.policy": "LAZY"}
MODES: Mapping[str, Mapping[str, Any]] = {
    "single": {},
    "lazy": LAZY,
    "optimistic": OPTIMISTIC,
    "grouped": {**OPTIMISTIC, "pyhudi.write.group": "auto"},
    "non-blocking": NON_BLOCKING,
}
_CALLS = 600
_TURNS = 3
_BETWEEN_LOOKS = 20


class Child:
    """A forked process, and its output."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._pipe, output = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                os.dup2(output, sys.stdout.fileno())
                act()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(output)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._pid

    def end(self) -> tuple[list[str], int]:
        """Its lines, and how it ended: 0, the code of its exit, or less than 0 for a signal."""
        with os.fdopen(self._pipe) as pipe:
            lines = pipe.read().splitlines()
        return lines, os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def attack(folder: Path, seed: int, kills: int, mode: str) -> list[str]:
    """Kill so many writers of a new table; what was wrong."""
    waits = MODES[mode] is not NON_BLOCKING
    rng, output, dead, number = random.Random(f"{seed}/{mode}"), WriterOutput(by_value=not waits), 0, 0
    path, options = str(folder / "t"), {**OPTIONS, **MODES[mode]}
    kind, has_metadata = rng.choice(("cow", "mor") if waits else ("mor",)), rng.random() < 0.5
    Child(partial(begin, folder, kind, has_metadata, None if waits else "v")).end()
    while dead < kills and not output.wrong:
        names = [f"w{number + 1 + more}" for more in range(1 if MODES[mode] is LAZY else 2)]
        number += len(names)
        running = [Child(partial(write, path, name, seed, _TURNS, options, rng.randint(1, _CALLS))) for name in names]
        for name, child in zip(names, running, strict=True):
            lines, code = child.end()
            output.add_lines(name, lines)
            dead += code < 0
            if code > 0:
                output.wrong.append(f"{name} ended with code {code}")
        if dead >= kills or number % _BETWEEN_LOOKS == 0:
            lines, code = Child(lambda: say(found=violations(path, options, output) + _left_by_the_dead(path, options))).end()
            output.wrong += [text for line in lines for text in json.loads(line)["found"]]
            if code:
                output.wrong.append(f"the last look ended with code {code}")
    print(f"{mode}: {dead} of {number} writers were killed, {len(output.acknowledged)} writes acknowledged", flush=True)
    return output.wrong


def _left_by_the_dead(path: str, options: Mapping[str, Any]) -> list[str]:
    """What a clean leaves of them after the last write."""
    table = Table(path, options=options)
    table.clean(dry_run=False)
    return [f"{instant} is still under way after a clean" for instant in table.timeline().pending_writes()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--mode", choices=tuple(MODES), default="optimistic")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = attack(Path(folder), given.seed, given.kills, given.mode)
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
