"""Inserts that fill small file groups; run on each engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.storage.environment import ReplayEnvironment

OPTIONS = {
    "hoodie.compact.inline": False,
    "hoodie.index.bloom.num_entries": 100,
    "pyhudi.small.file.growth": 0.5,
    "pyhudi.small.file.always.rewritten": 0,
}


def rows(*numbers: int, ts: int = 0) -> pa.Table:
    return pa.table({"id": [f"k{n:04}" for n in numbers], "ts": pa.array([ts] * len(numbers), pa.int64())})


def created(uri: Path | str, table_type: str = "mor", **options: object) -> Table:
    return Table.create(
        uri,
        record_key="id",
        ordering="ts",
        table_type=table_type,
        options={**OPTIONS, **options},
        environment=ReplayEnvironment(1),
    )


def run_small_inserts(table: Table, data: Callable[[pa.Table], Any]) -> None:
    """Inserts go to a small file of their own while they are less than half of what is there, and what they change to logs."""
    table.insert(rows(*range(1000)))
    told, stored = [], 1000
    for number in range(6):
        new = range(stored, stored + 10)
        result = table.upsert(data(rows(number, *new, ts=1)))
        stored += 10
        told.append((result.file_groups_new, result.file_groups_rewritten, result.log_files))
        assert (result.rows_updated, result.rows_inserted) == (1, 10)
    # 10 rows begin a file, 10 more are as many as it has, and the next 10 half of it; 10 compared with 30 are less than half.
    assert told == [(1, 0, 1), (0, 1, 1), (0, 1, 1), (1, 0, 1), (0, 1, 1), (0, 1, 1)]
    assert table.upsert(data(rows(*range(stored, stored + 2000)))).file_groups_new == 0, "which are worth the largest file"
    found = table.scan().to_arrow().sort_by("id")
    assert found["id"].to_pylist() == [f"k{n:04}" for n in range(stored + 2000)]
    assert [n for n, ts in enumerate(found["ts"].to_pylist()) if ts] == [*range(6), *range(1000, stored)]
