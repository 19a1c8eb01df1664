"""What is timed at each size of the axes with rows, by any system: tables are made, then each step is carried out some times.

A system gives its clock of the processor, and three functions of a folder:
`create` a table with rows, `upsert` a batch, `read` all rows or those of a filter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from benchmarks.curves.rows import PARTITIONS, all_rows, batch, neighbours

SAMPLES = 3


class System(Protocol):
    """What takes part in the curves."""

    def processor(self) -> float:
        """Seconds of the processor that it has used, in all of its processes."""

    def create(self, folder: Path, kind: str, rows: pa.RecordBatchReader) -> None: ...

    def upsert(self, folder: Path, rows: pa.Table) -> None: ...

    def read(self, folder: Path, part: str | None) -> int:
        """How many rows the table has; part: those of one partition."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One step, the least of some samples by processor time."""

    step: str
    seconds: float
    cpu_seconds: float


def least_of(
    step: str, act: Callable[[int], object], samples: int = SAMPLES, processor: Callable[[], float] = time.process_time
) -> Timed:
    """Carry a step out some times.  act: takes the number of the sample, from 0; processor: seconds of it that were used."""
    found: list[tuple[float, float]] = []
    for number in range(samples):
        started, cpu_started = time.perf_counter(), processor()
        act(number)
        found.append((processor() - cpu_started, time.perf_counter() - started))
    cpu, wall = min(found)
    return Timed(step, wall, cpu)


def measured(system: System, axis: str, kind: str, size: int, folder: Path) -> Iterator[Timed]:
    """The steps of one size of an axis with rows.  Raises ValueError for another axis, AssertionError for wrong answers."""
    if axis == "rows":
        yield from _table(system, kind, folder, size, neighbours(1000, size), PARTITIONS)
    elif axis == "partitions":
        yield from _table(system, kind, folder, 10 * size, neighbours(10, 10 * size, partitions=size), size)
    elif axis == "columns":
        yield from _table(system, kind, folder, 2000, list(range(0, 2000, 20)), 1, size)
    elif axis in {"commits", "logs"}:
        yield from _history(system, kind, folder, size, 100 if axis == "commits" else 1000)
    else:
        raise ValueError(f"{axis} is no axis with rows")


def _table(
    system: System, kind: str, folder: Path, count: int, changed: list[int], partitions: int, columns: int = 8
) -> Iterator[Timed]:
    rows = all_rows(count, partitions=partitions, columns=columns)
    yield least_of("bulk insert", lambda number: system.create(folder, kind, rows), 1, system.processor)
    batches = [batch(changed, 1 + sample, partitions=partitions, columns=columns) for sample in range(SAMPLES)]
    yield least_of("upsert", lambda sample: system.upsert(folder, batches[sample]), processor=system.processor)
    yield from _reads(system, folder, count, f"p{changed[0] % partitions:05}")


def _history(system: System, kind: str, folder: Path, commits: int, count: int) -> Iterator[Timed]:
    system.create(folder, kind, all_rows(count, partitions=1))
    batches = (batch(range(10), stamp, partitions=1) for stamp in range(1, commits + 1))
    for rows in (next(batches) for _ in range(commits - SAMPLES)):
        system.upsert(folder, rows)
    yield least_of("upsert", lambda sample: system.upsert(folder, next(batches)), processor=system.processor)
    yield from _reads(system, folder, count, None)


def _reads(system: System, folder: Path, count: int, part: str | None) -> Iterator[Timed]:
    found: list[int] = []
    yield least_of("full read", lambda sample: found.append(system.read(folder, None)), processor=system.processor)
    assert set(found) == {count}, f"{count} rows were written, and {found} read"
    if part is not None:
        yield least_of("filtered read", lambda sample: system.read(folder, part), processor=system.processor)
