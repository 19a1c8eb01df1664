"""Log files of a size: a write goes on in the next version of a file that has it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

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
_names = itertools.count()


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
    """Updates and deletes in several files of one write are read, told once, and compacted."""
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


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_a_write_of_several_log_files(log_format: str) -> None:
    options = {"hoodie.logfile.data.block.format": log_format, "hoodie.metadata.record.index.enable": True}
    run_log_files(created(f"memory://log-files-{next(_names)}", **options), lambda batch: batch)


def test_the_size_is_that_from_which_a_file_takes_no_further_block() -> None:
    table = created(f"memory://log-files-{next(_names)}", **{"hoodie.logfile.max.size": 10**6})
    table.insert(rows(range(40), 0))
    assert table.upsert(rows(range(30), 1)).log_files == 1 and versions(table) == [1]


def test_changes_of_several_log_files_are_told_once() -> None:
    table = created(f"memory://log-files-{next(_names)}", **{"hoodie.table.cdc.enabled": True})
    since = table.insert(rows(range(40), 0)).completion_time
    assert table.upsert(rows(range(30), 1)).log_files > 2
    told = table.changes(after=since).to_arrow()
    assert sorted(told["op"].to_pylist()) == ["u"] * 30


def test_a_log_compaction_of_several_files_is_one_file() -> None:
    table = created(f"memory://log-files-{next(_names)}")
    table.insert(rows(range(40), 0))
    table.upsert(rows(range(30), 1))
    table.upsert(rows(range(20), 2))
    before, held = versions(table), seen(table)
    assert table.log_compact() is not None
    assert len(versions(table)) == len(before) + 1 and seen(table) == held
