"""One size of one axis, by PyHudi embedded, in a process of its own: a line of JSON for each step.

python -m benchmarks.curves.pyhudi_process AXIS KIND SIZE FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from benchmarks.curves.steps import Timed, least_of, measured
from benchmarks.metadata_scale import build, measure_commits, measure_lookups, peak_rss_bytes
from pyhudi.api.table import Table

FILES_A_PARTITION = 100
TOUCHED = 10
FILTERS = {"plan of one file": "n = 31415", "plan of all files": "n >= 0"}


class Embedded:
    """PyHudi on Arrow, in this process."""

    def __init__(self, options: dict[str, object] | None = None) -> None:
        self._options = options or {}

    def processor(self) -> float:
        return time.process_time()

    def create(self, folder: Path, kind: str, rows: pa.RecordBatchReader) -> None:
        table = Table.create(
            folder, name="curves", record_key="id", partition_by="part", ordering="ts", table_type=kind, options=self._options
        )
        table.bulk_insert(rows)

    def upsert(self, folder: Path, rows: pa.Table) -> None:
        Table(folder).upsert(rows, options=self._options)

    def read(self, folder: Path, part: str | None) -> int:
        rows: int = Table(folder).scan(filter=part and f"part = '{part}'").to_arrow().num_rows
        return rows


def steps_of(axis: str, kind: str, size: int, folder: Path) -> Iterator[Timed]:
    """The steps of one size."""
    alone: dict[str, Callable[[Path, int], Iterator[Timed]]] = {"files": _files, "neighbours": _neighbours, "keys": _keys}
    if axis in alone:
        yield from alone[axis](folder, size)
        return
    # All logs stay in one slice, as many as there are commits.
    options: dict[str, object] = {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"} if axis == "logs" else {}
    yield from measured(Embedded(options), axis, kind, size, folder)


def _files(folder: Path, size: int) -> Iterator[Timed]:
    partitions = max(TOUCHED, size // FILES_A_PARTITION)
    build(folder, partitions, size // partitions)
    for step, condition in FILTERS.items():
        yield least_of(step, lambda sample, condition=condition: Table(folder).scan(filter=condition).explain())  # type: ignore[misc]
    yield _commits(folder, partitions)


def _neighbours(folder: Path, size: int) -> Iterator[Timed]:
    build(folder, TOUCHED, size)
    yield _commits(folder, TOUCHED)


def _commits(folder: Path, partitions: int) -> Timed:
    found = measure_commits(folder, partitions)
    return Timed("commit of ten files", found["seconds"], found["cpu_seconds"])


def _keys(folder: Path, size: int) -> Iterator[Timed]:
    build(folder, 10, 10, size)
    found = measure_lookups(folder, size)
    yield Timed("lookup of one key", found["median_ms"] / 1000, found["median_cpu_ms"] / 1000)


def main() -> None:
    axis, kind, size, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    for step in steps_of(axis, kind, size, folder):
        print(json.dumps({**asdict(step), "peak_mib": peak_rss_bytes() / 2**20}), flush=True)


if __name__ == "__main__":
    main()
