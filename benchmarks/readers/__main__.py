"""The readers beside each other, case by case in turn.

    python -m benchmarks.readers --scale 0.25 --rounds 5
    python -m benchmarks.readers --table /path/of/a/lineitem/table

Without a table one is made: the rows of `benchmarks.data`, one update of 10 % and one of 1,000 rows.  Processor seconds are
medians of the rounds; memory is what the process grew by at most in a round, its result included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.asked import Asked
from benchmarks.memory import Watch
from benchmarks.readers.kinds import COLUMNS, installed

_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """One case read once."""

    cpu_s: float
    wall_s: float
    grew_bytes: int
    answer: tuple[int, ...]


class Taking(Protocol):
    """Who reads cases."""

    @property
    def name(self) -> str: ...

    def take(self, case: str) -> Reading: ...


class Reader:
    """The process of one reader."""

    def __init__(self, name: str, table: str) -> None:
        self.name = name
        self._process = Asked([sys.executable, "-m", "benchmarks.readers.process", name, table])

    def take(self, case: str) -> Reading:
        """Read a case.  Raises RuntimeError where the process ended."""
        watch = Watch(self._process.pid)
        with watch:
            line = self._process.ask(case)
        said = json.loads(line)
        grew = watch.usage.peak_rss_bytes - watch.usage.start_rss_bytes
        return Reading(said["cpu_s"], said["wall_s"], grew, tuple(said["answer"]))

    def close(self) -> None:
        self._process.close()


def measured(readers: Sequence[Taking], cases: Sequence[str], rounds: int) -> dict[tuple[str, str], list[Reading]]:
    """The readings of each case and reader, case by case in turn; one round more comes first.

    Raises ValueError where two readers give different rows.
    """
    found: dict[tuple[str, str], list[Reading]] = {}
    for number in range(rounds + 1):
        for case in cases:
            taken = {reader.name: reader.take(case) for reader in readers}
            if len({reading.answer for reading in taken.values()}) > 1:
                raise ValueError(f"{case}: { ({name: reading.answer for name, reading in taken.items()}) }")
            if number:
                for name, reading in taken.items():
                    found.setdefault((case, name), []).append(reading)
    return found


def report(found: Mapping[tuple[str, str], Sequence[Reading]]) -> str:
    """A table in Markdown: of each case and reader the medians, and the median of its ratios to the first reader's."""
    lines = ["| case | reader | processor, s | clock, s | grew by, MiB | of the first |", "| --- | --- | --- | --- | --- | --- |"]
    first: dict[str, Sequence[Reading]] = {}
    for (case, name), readings in found.items():
        base = first.setdefault(case, readings)
        ratio = statistics.median(one.cpu_s / other.cpu_s for one, other in zip(readings, base, strict=True))
        cpu, wall = (statistics.median(getattr(reading, key) for reading in readings) for key in ("cpu_s", "wall_s"))
        grew = max(reading.grew_bytes for reading in readings) / _MEBIBYTE
        lines.append(f"| {case} | {name} | {cpu:.3f} | {wall:.3f} | {grew:.0f} | {ratio:.2f} |")
    return "\n".join(lines)


def make_table(folder: Path, scale: float) -> str:
    """A copy-on-write table of the benchmark's rows, of which the newest commit changed 1,000."""
    from benchmarks.data import load_inputs
    from benchmarks.peers.base import Table
    from benchmarks.peers.pyhudi_embedded import PyHudiEmbedded

    inputs, peer, table = load_inputs(scale), PyHudiEmbedded(), Table(str(folder / "lineitem"), "cow")
    peer.bulk_insert(table, inputs.base_files()).operation()
    for batch in ("upsert-10", "last"):
        peer.upsert(table, [inputs.batch_file(batch)]).operation()
    return table.path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], prog="python -m benchmarks.readers")
    parser.add_argument("--table", help="a copy-on-write table of lineitem (default: one is made)")
    parser.add_argument("--scale", type=float, default=0.25, help="of the table that is made (default 0.25)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each case is read (default 5)")
    parser.add_argument("--readers", default=",".join(installed()), help="which, the first is compared with (default: all)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-readers-") as folder:
        table = chosen.table or make_table(Path(folder), chosen.scale)
        readers = [Reader(name, table) for name in chosen.readers.split(",")]
        try:
            print(report(measured(readers, tuple(COLUMNS), chosen.rounds)))
        finally:
            for reader in readers:
                reader.close()


if __name__ == "__main__":
    main()
