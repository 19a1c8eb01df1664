"""Real processes against one table on disk: killed with -9, or suspended until others have taken them for dead.

    python -m tests.simulation.attack.processes --seed 1 --seconds 600

Each round makes a table, lets writers work on it at the same time, kills some of them at a storage call that the seed chooses and
starts them again; then one is suspended at such a call while another works, and woken.  What must hold: what was acknowledged is
there, no key exists twice, `validate` finds nothing, and the next writer succeeds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from tests.simulation.attack.writer import SHARED

# Short, so that a round is over soon: others take a silent process for dead after two seconds.
OPTIONS: dict[str, Any] = {
    "pyhudi.threads": 1,
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.write.num.retries.on.conflict.failures": 100,
    "hoodie.write.lock.storage.validity.timeout.secs": 2,
    "hoodie.write.lock.storage.heartbeat.poll.secs": 1,
    "hoodie.client.heartbeat.interval_in_ms": 500,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
    "hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy",
}
_CALLS = 150


@dataclass
class WriterOutput:
    """Output of the writers.

    sent: values of each writer, in order; acknowledged: value -> completion time. by_value: of two values of a key the larger one
    remains, not the later.
    """

    by_value: bool = False
    sent: dict[str, list[int]] = field(default_factory=dict)
    acknowledged: dict[int, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add_lines(self, name: str, lines: Sequence[str]) -> None:
        for line in lines:
            words = json.loads(line)
            if "value" in words:
                self.sent.setdefault(name, []).append(words["value"])
            if "acknowledged" in words:
                self.acknowledged[words["acknowledged"]] = words["completion"]
            if "wrong" in words:
                self.wrong.append(words["wrong"])


def begin(folder: Path, kind: str, metadata: bool, ordering: str | None = None) -> tuple[str, dict[str, Any]]:
    """A new table and the options of its writers."""
    options = {**OPTIONS, "hoodie.metadata.enable": metadata}
    path = str(folder / "t")
    Table.create(path, record_key="id", table_type=kind, ordering=ordering, options=options)
    return path, options


def start(path: str, name: str, seed: int, turns: int, options: dict[str, Any], at: int, number: str) -> subprocess.Popen[str]:
    """A writer in a process of its own."""
    words = {"path": path, "name": name, "seed": seed, "turns": turns, "options": options, "at": at, "signal": number}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.attack.writer", json.dumps(words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def killed(folder: Path, seed: int, *, writers: int = 3, turns: int = 3) -> list[str]:
    """Writers side by side, some of which die and are followed by others; what was wrong."""
    rng = random.Random(seed)
    path, options = begin(folder, rng.choice(("cow", "mor")), rng.random() < 0.5)
    output = WriterOutput()
    running = {
        f"w{number + 1}": start(path, f"w{number + 1}", seed, turns, options, rng.choice((0, rng.randint(1, _CALLS))), "KILL")
        for number in range(writers)
    }
    again = {}
    for name, process in running.items():
        out, err = process.communicate()
        output.add_lines(name, out.splitlines())
        if process.returncode == -signal.SIGKILL:
            again[f"{name}0"] = start(path, f"{name}0", seed, 1, options, 0, "KILL")
        elif process.returncode:
            output.wrong.append(f"{name}: {err[-500:]}")
    for name, process in again.items():
        out, err = process.communicate()
        output.add_lines(name, out.splitlines())
        if process.returncode:
            output.wrong.append(f"{name}: {err[-500:]}")
    return output.wrong + violations(path, options, output)


def suspended(folder: Path, seed: int) -> list[str]:
    """A writer that sleeps at one of its calls until another has written, and goes on then; what was wrong."""
    rng = random.Random(seed)
    path, options = begin(folder, rng.choice(("cow", "mor")), rng.random() < 0.5)
    output = WriterOutput()
    table = Table(path, options=options)
    table.upsert(pa.table({"id": ["first", SHARED], "v": pa.array([1, 1], pa.int64())}))
    sleeper = start(path, "w1", seed, 1, options, rng.randint(1, _CALLS), "STOP")
    # Comes back when it has stopped, or ended because it made fewer calls.
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    for value in (2001, 2002):
        done = table.upsert(pa.table({"id": ["w2", SHARED], "v": pa.array([value, value], pa.int64())}))
        output.sent.setdefault("w2", []).append(value)
        output.acknowledged[value] = str(done.completion_time)
    sleeper.send_signal(signal.SIGCONT)
    out, err = sleeper.communicate()
    output.add_lines("w1", out.splitlines())
    if sleeper.returncode:
        output.wrong.append(err[-500:])
    return output.wrong + violations(path, options, output)


def violations(path: str, options: dict[str, Any], output: WriterOutput) -> list[str]:
    """Violations in the table, given the output of all writers."""
    table = Table(path, options=options)
    wrong = _check_rows(table, output)
    table.upsert(pa.table({"id": ["last"], "v": pa.array([9], pa.int64())}))
    wrong += _check_rows(table, output)
    report = table.validate()
    return wrong if report.ok else [*wrong, str(report)]


def _check_rows(table: Table, output: WriterOutput) -> list[str]:
    found = table.scan(["id", "v"]).to_arrow()
    rows = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    if len(rows) != found.num_rows:
        return [f"a key stands twice: {sorted(zip(found['id'].to_pylist(), found['v'].to_pylist(), strict=True))}"]
    wrong = []
    for name, sent in output.sent.items():
        known = [value for value in sent if value in output.acknowledged]
        # For writes without acknowledgement, both outcomes are possible.
        allowed = {*sent[sent.index(known[-1]) :]} if known else {*sent, None}
        if rows.get(name) not in allowed:
            wrong.append(f"{name} is {rows.get(name)}, and {known} of {sent} were acknowledged")
    last = max(output.acknowledged, key=lambda value: (value if output.by_value else 0, output.acknowledged[value]), default=None)
    unknown = {value for sent in output.sent.values() for value in sent if value not in output.acknowledged}
    if last is not None and output.by_value:
        unknown = {value for value in unknown if value > last}
    # A group commit applies the values of several writers, in an order that they do not know.
    together = {value for value, completion in output.acknowledged.items() if last and completion == output.acknowledged[last]}
    if last is not None and rows.get(SHARED) not in {last, *unknown, *({} if output.by_value else together)}:
        found_at = output.acknowledged.get(rows.get(SHARED) or 0)
        wrong.append(
            f"{SHARED} is {rows.get(SHARED)}, acknowledged at {found_at}, and {last} was acknowledged "
            f"{'as the largest' if output.by_value else 'last'}, at {output.acknowledged[last]}"
        )
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    end, seed, failures = time.monotonic() + options.seconds, options.seed, 0
    while time.monotonic() < end:
        for attack in (killed, suspended):
            with tempfile.TemporaryDirectory() as folder:
                for text in attack(Path(folder), seed):
                    failures += 1
                    print(f"seed {seed} {attack.__name__}: {text}", flush=True)
        seed += 1
    print(f"seeds {options.seed} to {seed - 1}: {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
