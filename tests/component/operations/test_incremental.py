"""Incremental queries: bounds, both range types, and rows of cleaned files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.stream_queries import plan_batch
from pyhudi.options.supported import parse_options

OLD = {"hoodie.datasource.read.incr.table.version": 6}
STRICT = {"hoodie.datasource.read.incr.fallback.fulltablescan.enable": False}


def rows(keys: str, ts: int) -> pa.Table:
    return pa.table({"id": list(keys), "ts": pa.array([ts] * len(keys), pa.int32())})


def table_with_commits(path: Path, kind: str) -> tuple[Table, list[WriteResult]]:
    quiet = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}
    table = Table.create(path, name="t", record_key="id", ordering="ts", table_type=kind, options=quiet)
    return table, [table.upsert(rows(keys, ts)) for ts, keys in enumerate(["abc", "bd", "a"], 1)]


def incremental_rows(
    table: Table, start: str | None, end: str | None = None, options: dict[str, object] | None = None
) -> list[str]:
    found = table.incremental(str(start), end, ["id", "ts"], options=options).to_arrow().to_pylist()
    return sorted(f"{row['id']}{row['ts']}" for row in found)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_bounds(tmp_path: Path, kind: str) -> None:
    table, (one, two, three) = table_with_commits(tmp_path / "t", kind)
    assert incremental_rows(table, "earliest") == incremental_rows(table, "000") == ["a3", "b2", "c1", "d2"]
    assert incremental_rows(table, one.completion_time, one.completion_time) == ["a1", "b1", "c1"]
    assert incremental_rows(table, one.completion_time, two.completion_time) == ["a1", "b2", "c1", "d2"]
    assert incremental_rows(table, two.completion_time) == ["a3", "b2", "d2"]
    assert incremental_rows(table, str(int(str(one.completion_time)) + 1), two.completion_time) == ["b2", "d2"]
    assert incremental_rows(table, str(int(str(three.completion_time)) + 1)) == []
    # By request time, the start left out.
    assert incremental_rows(table, one.instant, options=dict(OLD)) == ["a3", "b2", "d2"]
    assert incremental_rows(table, one.instant, two.instant, dict(OLD)) == ["b2", "d2"]
    for start in ("21.11.2026", "", "yesterday"):
        with pytest.raises(InvalidRequest, match="digits"):
            table.incremental(start)
    with pytest.raises(InvalidRequest, match="ends before"):
        table.incremental(str(two.completion_time), one.completion_time)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_incremental_query_after_a_clean_reads_remaining_versions(tmp_path: Path, kind: str) -> None:
    """Of base files the last versions; log blocks that came after the range hide nothing."""
    table, (one, two, _) = table_with_commits(tmp_path / "t", kind)
    if kind == "mor":
        table.compact()
    last = table.upsert(rows("c", 4))
    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    assert incremental_rows(table, one.completion_time, one.completion_time) == ([] if kind == "cow" else ["c1"])
    assert incremental_rows(table, one.completion_time, two.completion_time) == ["b2", *([] if kind == "cow" else ["c1"]), "d2"]
    assert "fallback" in str(table.incremental(str(one.completion_time)).explain())
    with pytest.raises(TableState, match="cleaned"):
        table.incremental(str(one.completion_time), options=STRICT)
    assert incremental_rows(table, last.completion_time, options=dict(STRICT)) == ["c4"]


@pytest.mark.parametrize("service", ["", "compaction", "clustering"])
def test_late_row_counts_regardless_of_a_service_in_the_range(tmp_path: Path, service: str) -> None:
    """Rows of the range are merged with each other only: the newer row from before it hides nothing, as in Hudi."""
    quiet = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False, "hoodie.write.record.positions": True}
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", table_type="mor", options=quiet)
    first = str(table.upsert(rows("abc", 5)).completion_time)
    table.upsert(rows("b", 6))
    if service == "compaction":
        table.compact()
    elif service == "clustering":
        table.compact()
        table.cluster()
    last = table.upsert(rows("ab", 1))
    assert last.rows_updated == 2
    table = Table(tmp_path / "t")
    changed = table.incremental(after=first, columns=["id", "ts"])
    expected = [{"id": "a", "ts": 1}, {"id": "b", "ts": 6}]
    assert sorted(changed.to_arrow().to_pylist(), key=str) == expected
    assert changed.count() == 2
    by_key = table.incremental(after=first, filter="id = 'a'", columns=["ts"])
    assert by_key.to_arrow()["ts"].to_pylist() == [1]
    assert sorted(changed.to_polars().to_dicts(), key=str) == expected
    batch = plan_batch(table.context, parse_options({}), first, str(last.completion_time), ["id", "ts"], None)
    assert sorted((row for task in batch.tasks for part in batch.reader(task) for row in part.to_pylist()), key=str) == expected  # type: ignore[arg-type]
    assert table.scan(["id", "ts"]).to_arrow().to_pylist() == [{"id": "a", "ts": 5}, {"id": "b", "ts": 6}, {"id": "c", "ts": 5}]


@pytest.mark.parametrize("compact", [False, True])
def test_partial_update_has_its_other_columns_from_before_the_range(tmp_path: Path, compact: bool) -> None:
    quiet = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", table_type="mor", options=quiet)
    table.upsert([{"id": "a", "ts": 5, "x": 1, "y": 2}, {"id": "b", "ts": 5, "x": 1, "y": 2}])
    second = table.upsert([{"id": "b", "ts": 6, "x": 3, "y": 4}])
    if compact:
        table.compact()
    table.upsert([{"id": "a", "ts": 7, "y": 9}], partial=True)
    found = table.incremental(after=second.completion_time, columns=["id", "ts", "x", "y"])
    assert found.to_arrow().to_pylist() == [{"id": "a", "ts": 7, "x": 1, "y": 9}]
