"""Validation of log content, plans and keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.operations.admin.validate import ValidationResult
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import load_snapshot, read_commit


def rows(*keys: str, value: int = 0) -> pa.Table:
    size = len(keys)
    return pa.table({"id": list(keys), "part": ["x"] * size, "ts": [value] * size, "value": [value] * size})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part", ordering="ts", table_type="mor")
    table.upsert(rows("a", "b", "c"))
    table.upsert(rows("a", "b", value=1))
    table.delete(rows("c", value=2))
    return table


def slice_of(table: Table) -> FileSlice:
    (found,) = load_snapshot(table.context).slices(["x"])["x"]
    return found


def finding_of(result: ValidationResult, check: str) -> str:
    assert not result.ok, str(result)
    return next(f"{finding.path}: {finding.detail}" for finding in result.findings if finding.check == check)


def test_valid_table_has_no_findings(table: Table) -> None:
    table.schedule_compaction()
    result = table.validate(keys=True)
    assert result.ok and not result.findings, str(result)
    assert {("logs", "2 read"), ("plans", "1 pending"), ("keys", "2 keys")} <= set(result.checks)


@pytest.mark.parametrize(
    ("place", "field", "message"), [(0, "num_writes", "2 records and 0"), (1, "num_deletes", "0 records and 1")]
)
def test_log_with_fewer_blocks_than_committed_is_an_error(table: Table, place: int, field: str, message: str) -> None:
    log = slice_of(table).logs[place]
    instant = table.timeline().find(log.name.instant_time)
    store = table.context.timeline
    metadata = read_commit(store, instant)
    stats = tuple(replace(stat, **{field: getattr(stat, field) + 1}) for stat in metadata.partition_to_write_stats["x"])
    changed = replace(metadata, partition_to_write_stats={"x": stats})
    table.context.storage.put(store.path(instant), changed.encode(bytes(16)))
    assert finding_of(table.validate(), "logs").startswith(f"{log.path}: contains {message} deletes, and its commit records")


def test_partly_unreadable_log_is_an_error(table: Table) -> None:
    log = slice_of(table).logs[0]
    data = bytearray(table.context.storage.read(log.path) or b"")
    data[-40] ^= 1
    table.context.storage.put(log.path, bytes(data))
    assert log.path in finding_of(table.validate(), "logs")


@pytest.mark.parametrize("part", ["base", "log"])
def test_a_compaction_that_can_never_run(table: Table, part: str) -> None:
    found = slice_of(table)
    assert found.base is not None
    table.schedule_compaction()
    path = found.base.path if part == "base" else found.logs[0].path
    table.context.storage.delete([path])
    assert f"can never run, as {path} is missing" in finding_of(table.validate(), "plans")


def test_duplicate_keys_are_found_on_request(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part", ordering="ts")
    table.bulk_insert(rows("a", "b", "c"))
    table.bulk_insert(rows("b", "c", "d"))
    assert table.validate().ok
    assert finding_of(table.validate(keys=True), "keys") == "x: 2 keys occur more than once, such as 'b', 'c'"
