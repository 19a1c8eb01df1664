"""Applying change data row by row in its order gives the rows of the table."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings

import pyhudi as hp
from pyhudi.api.scan import Scan
from pyhudi.planning.change_data import ChangeKind, ChangePart, ChangePlan
from tests.simulation.tables import World
from tests.support.non_blocking import OPTIONS as NON_BLOCKING
from tests.support.non_blocking import rows as shared_rows
from tests.support.non_blocking import write_during
from tests.support.replay import MODES, STEPS, TABLES, ChangingTable, apply_changes, changing_table

Rows = list[dict[str, Any]]
ORDERED = ("op", "ts_ms", "before", "after", "completion_time")


def in_batches(scan: Scan) -> Rows:
    return list(chain.from_iterable(batch.to_pylist() for batch in scan.to_batches()))


def in_splits(scan: Scan) -> Rows:
    return list(chain.from_iterable(split.to_arrow().to_pylist() for split in scan.splits()))


def by_duckdb(scan: Scan) -> Rows:
    changes = scan.to_dataset()  # noqa: F841 - DuckDB finds it by its name
    found = duckdb.sql("SELECT * FROM changes")
    assert found is not None
    return list(found.to_arrow_table().to_pylist())


def by_polars(scan: Scan) -> Rows:
    frame = hp.scan_polars(scan).collect()
    assert isinstance(frame, polars.DataFrame)
    return frame.to_dicts()


READERS: dict[str, Callable[[Scan], Rows]] = {
    "batches": in_batches,
    "arrow": lambda scan: scan.to_arrow().to_pylist(),
    "reader": lambda scan: scan.to_reader().read_all().to_pylist(),
    "pandas": lambda scan: pa.Table.from_pandas(scan.to_pandas(), preserve_index=False).to_pylist(),
    "polars": lambda scan: scan.to_polars().to_dicts(),
    "scan_polars": by_polars,
    "dataset": lambda scan: scan.to_dataset().to_table().to_pylist(),
    "duckdb": by_duckdb,
    "splits": in_splits,
}


def changes_of(world: ChangingTable, after: str, end: str) -> Scan:
    return world.table.changes(end=end) if after == "earliest" else world.table.changes(after=after, end=end)


def parts_of(scan: Scan) -> list[tuple[str, ChangeKind, ChangePart]]:
    plan = scan.explain()
    assert isinstance(plan, ChangePlan)
    return [(source.partition, source.change_type, source.part) for source in plan.sources]


@pytest.mark.full
@settings(max_examples=8)
@given(TABLES, STEPS)
def test_changes_applied_in_order_lead_from_each_state_to_the_next(
    made: tuple[str, str, str, bool], steps: list[tuple[str, str, str]]
) -> None:
    world = changing_table(made, steps)
    for start, end in world.ranges():
        scan = changes_of(world, start.completion_time, end.completion_time)
        assert apply_changes(start.rows, in_batches(scan)) == end.rows


def swapped(kind: str, mode: str, uri: str = "") -> ChangingTable:
    """Records that move between two partitions in both directions in one commit, and then overwrites."""
    world = ChangingTable(kind, mode, "GLOBAL_SIMPLE", small_files=True, uri=uri)
    for keys, part in (("ad", "x"), ("be", "y"), ("cf", "z")):
        world.upsert_to({key: part for key in keys})
    world.upsert_to({"a": "y", "b": "x", "d": "x", "e": "y", "g": "z"})
    world.upsert_to({"c": "x", "f": "x"})
    world.run("insert_overwrite", "abdg", "x")
    world.run("insert_overwrite_table", "abf", "y")
    world.run("delete_partitions", "a", "y")
    return world


@pytest.mark.sample(4)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_keeps_the_order(reader: str) -> None:
    world = swapped("mor", "DATA_BEFORE")
    found = READERS[reader](changes_of(world, "earliest", world.commits[-1].completion_time))
    assert apply_changes({}, found) == world.rows


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_queries_by_request_time_and_in_sql_have_the_same_order(kind: str, tmp_path: Path) -> None:
    world = swapped(kind, "OP_KEY_ONLY", str(tmp_path / "t"))
    by_request = world.table.incremental("000", options={"hoodie.datasource.query.incremental.format": "cdc"})
    assert apply_changes({}, in_batches(by_request)) == world.rows
    found = hp.sql(f"SELECT * FROM hudi_table_changes('{world.uri}', 'cdc', 'earliest')")
    assert apply_changes({}, pa.table(found).to_pylist()) == world.rows


@pytest.mark.parametrize("mode", MODES)
def test_a_file_group_that_records_leave_and_enter_is_read_twice(mode: str) -> None:
    world = swapped("cow", mode)
    first, moved = world.commits[3], world.commits[4]
    scan = changes_of(world, first.completion_time, moved.completion_time)
    logged = ChangeKind.LOGGED
    assert parts_of(scan) == [
        ("x", logged, ChangePart.DELETES),
        ("y", logged, ChangePart.DELETES),
        ("x", logged, ChangePart.OTHERS),
        ("y", logged, ChangePart.OTHERS),
        ("z", logged, ChangePart.ALL),
    ]
    assert "read the changes of 3 file groups (3 logged)\n  2 of them twice, deletes first" in str(scan.explain())
    assert [row["op"] for row in in_batches(scan)][:2] == ["d", "d"]
    assert scan.count() == len(in_batches(scan)) == 7


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_file_groups_are_read_once_where_nothing_can_move(kind: str) -> None:
    world = ChangingTable(kind, MODES[2], "GLOBAL_SIMPLE", small_files=False)
    world.run("upsert", "abcdef", "x")
    world.run("delete", "abc", "x")
    world.run("upsert", "def", "x")
    if kind == "cow":
        # Deletes among updates; nothing is inserted.
        world.run("soft_delete", "de", "x")
    scan = changes_of(world, "earliest", world.commits[-1].completion_time)
    assert {part for _, _, part in parts_of(scan)} == {ChangePart.ALL}


def test_a_missing_change_log_does_not_change_the_order(tmp_path: Path) -> None:
    world = swapped("cow", "DATA_BEFORE_AFTER", str(tmp_path / "t"))
    logs = list((tmp_path / "t").rglob("*.cdc"))
    for log in logs:
        log.unlink()
    scan = changes_of(world, "earliest", world.commits[-1].completion_time)
    assert (len(logs) > 2) and ChangeKind.REWRITTEN in {kind for _, kind, _ in parts_of(scan)}
    assert apply_changes({}, in_batches(scan)) == world.rows


def sorted_again(rows: Iterable[dict[str, Any]], *names: str) -> Rows:
    """Rows in another order, and then sorted by some columns."""
    mixed = list(rows)
    random.Random(7).shuffle(mixed)
    return sorted(mixed, key=lambda row: [row[name] for name in names])


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_completion_time_and_operation_restore_the_order(kind: str) -> None:
    world = swapped(kind, "DATA_BEFORE_AFTER")
    found = world.table.changes(columns=["*", "completion_time"]).to_arrow()
    assert tuple(found.column_names) == ORDERED
    assert set(found["completion_time"].to_pylist()) == {commit.completion_time for commit in world.commits[1:]}
    assert apply_changes({}, sorted_again(found.to_pylist(), "completion_time", "op")) == world.rows
    last = world.commits[-1].completion_time
    assert set(world.table.changes(columns=["op"], filter=f"completion_time = '{last}'").to_arrow()["op"].to_pylist()) == {"d"}
    assert world.table.changes().schema.names == ["op", "ts_ms", "before", "after"]


@pytest.mark.parametrize("has_base", [False, True])
def test_writers_that_do_not_wait_are_in_the_order_of_completion(has_base: bool) -> None:
    """The write that was requested first completes last."""
    world = World("mor", {**NON_BLOCKING, "hoodie.table.cdc.enabled": True})
    if has_base:
        world.table.upsert(shared_rows(1, a=1, b=1))
        world.table.compact()
    write_during(world, shared_rows(10, a=100, k=100), lambda: world.table.upsert(shared_rows(5, a=5, k=5)))
    write_during(world, shared_rows(20, a=200, k=200), lambda: world.table.upsert(shared_rows(25, a=25, k=25)))
    found = world.table.changes(columns=ORDERED).to_arrow().to_pylist()
    state = apply_changes({}, found)
    assert apply_changes({}, sorted_again(found, "completion_time", "op")) == state
    present = {row["id"]: row["value"] for row in world.table.scan().to_arrow().to_pylist()}
    assert {key: json.loads(text)["value"] for key, text in state.items()} == present
    with pytest.raises(AssertionError, match="does not fit"):
        apply_changes({}, sorted_again(found, "ts_ms", "op"))
