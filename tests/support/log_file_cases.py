"""How inserts and updates are divided among log files; run on each engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.table.snapshot import load_snapshot

OPTIONS = {
    "hoodie.compact.inline": False,
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.logfile.data.block.max.size": 300,
    "hoodie.logfile.max.size": 1,
    "hoodie.log.compaction.blocks.threshold": 2,
}


def rows(numbers: range, ts: int) -> pa.Table:
    return pa.table({"id": [f"k{n:02}" for n in numbers], "ts": pa.array([ts] * len(numbers), pa.int64())})


def created(uri: Path | str, **options: object) -> Table:
    return Table.create(
        uri,
        record_key="id",
        ordering="ts",
        table_type="mor",
        options={**OPTIONS, **options},
        environment=ReplayEnvironment(1),
    )


def seen(table: Table) -> dict[str, int]:
    found = table.scan(["id", "ts"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))


def versions(table: Table) -> list[int]:
    (slice_,) = load_snapshot(table.context.reloaded()).slices(None)[""]
    return [log.name.version for log in slice_.logs]


def run_log_files(table: Table, data: Callable[[pa.Table], Any]) -> None:
    """Updates and deletes in several files of one write are read, reported once, and compacted."""
    table.insert(rows(range(40), 0))
    result = table.upsert(data(rows(range(30), 1)))
    assert result.log_files == len(versions(table)) > 2 and versions(table) == [*range(1, result.log_files + 1)]
    assert (result.rows_updated, result.rows_inserted) == (30, 0)
    deleted = table.delete(data(rows(range(5), 1).select(["id"])))
    assert deleted.rows_deleted == 5
    expected = {f"k{n:02}": int(n < 30) for n in range(5, 40)}
    assert seen(table) == expected
    assert table.validate().ok
    assert table.compact() is not None
    assert versions(table) == [] and seen(table) == expected
