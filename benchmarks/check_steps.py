"""The ten steps of `benchmarks.check`, and the process that carries them out with one state of the code.

    python -m benchmarks.check_steps SOURCE FOLDER ROWS

reads names of steps, a line each, and answers each with the processor seconds that it took.  A round begins with the first step,
which makes the tables anew.  Only the public API is used, so that older code can be asked, too.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import pyhudi
from pyhudi import Table

PARTITIONS = 7
SMALL_ROWS = 1000


class Tables:
    """The tables of one round, and what is done to them.  rows: how many a table begins with."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder = folder
        self._rows = rows
        self._random = random.Random(7)
        self._stamp = 0
        self._made: dict[str, Table] = {}

    def take(self, step: str) -> float:
        """Processor seconds of a step, of all threads of this process."""
        if step == next(iter(STEPS)):
            self._begin()
        kind, act = step.partition("-")[0], STEPS[step](self)
        table = self._made[kind]
        started = time.process_time()
        act(table)
        return time.process_time() - started

    def all_rows(self) -> pa.Table:
        return self._batch(range(self._rows))

    def some_rows(self, count: int) -> pa.Table:
        """So many rows of the table, drawn from all of it."""
        return self._batch(sorted(self._random.sample(range(self._rows), min(count, self._rows))))

    @property
    def one_percent(self) -> int:
        return max(1, self._rows // 100)

    def begin_of_last(self, table: Table) -> str:
        """The completion time before the newest commit's."""
        return table.timeline().completed_writes()[-2].completion_time or ""

    def _begin(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._random, self._stamp = random.Random(7), 0
        for kind in ("cow", "mor"):
            options = {"hoodie.compact.inline": "false"}
            self._made[kind] = Table.create(
                self._folder / kind,
                name="check",
                record_key=["id"],
                partition_by=["part"],
                ordering=["ts"],
                table_type=kind,
                options=options if kind == "mor" else {},
            )
        self._made["mor"].bulk_insert(self.all_rows())

    def _batch(self, ids: range | list[int]) -> pa.Table:
        self._stamp += 1
        numbers = pa.array(ids, pa.int64())
        columns = {
            "id": pa.array([f"key-{number:09}" for number in ids]),
            "part": pa.array([f"p{number % PARTITIONS}" for number in ids]),
            "ts": pa.array([self._stamp] * len(ids), pa.int64()),
            "note": pa.array([f"note {number * 7919 % 10007} of {number % 31}" for number in ids]),
            "price": numbers.cast(pa.float64()),
        }
        return pa.table({**columns, **{f"n{n}": numbers for n in range(8)}})


STEPS: dict[str, Callable[[Tables], Callable[[Table], object]]] = {
    "cow-bulk-insert": lambda tables: _with(tables.all_rows(), lambda table, rows: table.bulk_insert(rows)),
    "cow-upsert-1": lambda tables: _with(tables.some_rows(tables.one_percent), lambda table, rows: table.upsert(rows)),
    "cow-small": lambda tables: _with(tables.some_rows(SMALL_ROWS), lambda table, rows: table.upsert(rows)),
    "cow-full-read": lambda tables: lambda table: table.scan().to_arrow(),
    "cow-filtered-read": lambda tables: lambda table: table.scan(filter="part = 'p3' AND n0 < 5000").to_arrow(),
    "mor-upsert-1": lambda tables: _with(tables.some_rows(tables.one_percent), lambda table, rows: table.upsert(rows)),
    "mor-small": lambda tables: _with(tables.some_rows(SMALL_ROWS), lambda table, rows: table.upsert(rows)),
    "mor-full-read": lambda tables: lambda table: table.scan().to_arrow(),
    "mor-incremental": lambda tables: lambda table: table.incremental(tables.begin_of_last(table)).to_arrow(),
    "mor-compaction": lambda tables: lambda table: table.compact(),
}
"""Each by the table kind that it needs; rows are made before the clock starts."""


def _with(rows: pa.Table, act: Callable[[Table, pa.Table], object]) -> Callable[[Table], object]:
    return lambda table: act(table, rows)


def main() -> None:
    source, folder, rows = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    if not Path(pyhudi.__file__).is_relative_to(source):
        raise SystemExit(f"pyhudi comes from {pyhudi.__file__}, not from {source}")
    tables = Tables(folder, rows)
    for line in sys.stdin:
        print(tables.take(line.strip()), flush=True)


if __name__ == "__main__":
    main()
