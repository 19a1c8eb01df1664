"""A custom delete marker column deletes rows in writes, reads and compaction."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest, Unsupported
from tests.support.delete_markers import _FIELD, _MARKER, _PAYLOADS, _QUIET, BASE, CHANGES, MARKED, made, rows, seen

_TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")


@pytest.mark.parametrize("table_type", _TYPES)
@pytest.mark.parametrize(
    ("merging", "left"),
    [
        ("EVENT", {"b": 5, "d": 7, "e": 5}),
        ("FirstValue", {"COPY_ON_WRITE": {"b": 5, "c": 5, "d": 7, "e": 5}, "MERGE_ON_READ": {"b": 5, "d": 7, "e": 5}}),
    ],
)
def test_marked_rows_of_a_write_are_deletes(tmp_path: Path, table_type: str, merging: str, left: dict[str, Any]) -> None:
    table = made(tmp_path / "t", table_type, merging)
    table.upsert(CHANGES, options=MARKED)
    wanted = left.get(table_type, left)
    # A delete of a write is one for every reader, however it reads.
    assert seen(Table(table.uri)) == seen(table, **MARKED) == wanted
    if table_type == "MERGE_ON_READ":
        table.compact()
        assert seen(Table(table.uri)) == wanted


@pytest.mark.sample(3)
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
@pytest.mark.parametrize("table_type", _TYPES)
def test_marked_rows_without_a_record_are_not_stored(tmp_path: Path, table_type: str, operation: str) -> None:
    table = made(tmp_path / "t", table_type)
    getattr(table, operation)(rows(("x", 9, "D"), ("y", 9, "I")), options=MARKED)
    assert set(seen(table)) == {*"abcde", "y"}


@pytest.mark.sample(4)
@pytest.mark.parametrize("merging", ["COMMIT", "EventTime", "PartialUpdate", "NonDefaults"])
@pytest.mark.parametrize("table_type", _TYPES)
def test_delete_marker_with_a_payload_that_ignores_it_is_refused(tmp_path: Path, table_type: str, merging: str) -> None:
    table = made(tmp_path / "t", table_type, merging)
    before = table.timeline().instants
    with pytest.raises(InvalidRequest, match=r"Payload ignores delete markers"):
        table.upsert(CHANGES, options=MARKED)
    assert table.timeline().instants == before
    # A delete by key takes no rows, so nothing of them could mark it.
    table.delete(pa.table({"id": ["a"]}), options=MARKED)
    assert set(seen(table)) == set("bcde")


@pytest.mark.sample(3)
@pytest.mark.parametrize("merging", sorted(_PAYLOADS))
def test_reads_apply_the_marker_to_log_records_only(tmp_path: Path, merging: str) -> None:
    table = made(tmp_path / "t", "MERGE_ON_READ", merging)
    table.insert(rows(("z", 5, "D")))
    table.upsert(rows(("a", 7, "D"), ("c", 7, "I"), ("e", 7, "I"), flagged="c"))
    assert seen(table) == {"a": 7, "b": 5, "d": 5, "e": 7, "z": 5}
    # `z` is marked too, but is stored in a base file.
    assert seen(table, **MARKED) == {"b": 5, "d": 5, "e": 7, "z": 5}
    assert table.scan(["ts"], filter="id = 'a'", options=MARKED).to_arrow().num_rows == 0
    assert table.scan(options=MARKED).count() == 4
    assert seen(Table(table.uri, options=MARKED)) == seen(table, **MARKED)
    assert table.lookup(["a", "b"], options=MARKED).to_arrow().num_rows == 1
    table.compact(options=MARKED)
    assert seen(table) == {"b": 5, "d": 5, "e": 7, "z": 5}


def test_a_compaction_without_the_marker_keeps_the_rows(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "MERGE_ON_READ")
    table.upsert(CHANGES)
    table.compact()
    assert seen(table, **MARKED) == seen(table) == {"a": 7, "b": 5, "c": 5, "d": 7, "e": 5, "new": 7}


def test_a_log_compaction_carries_the_deletes_on(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "MERGE_ON_READ")
    table.upsert(rows(("a", 7, "D"), ("b", 3, "D")))
    table.upsert(rows(("d", 8, "I")))
    options = {"hoodie.log.compaction.blocks.threshold": 2, **MARKED}
    assert table.log_compact(options=options).runs
    assert seen(table) == {"b": 5, "c": 5, "d": 8, "e": 5}


def test_write_with_a_marker_ignores_the_delete_flag(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "COPY_ON_WRITE")
    table.upsert(rows(("a", 7, "I"), ("b", 7, "D"), flagged="a"), options=MARKED)
    assert seen(table) == {"a": 7, "c": 5, "d": 5, "e": 5}


@pytest.mark.sample(3)
@pytest.mark.parametrize("column", [["1", "0"], [1, 0], [True, False]])
@pytest.mark.parametrize("table_type", _TYPES)
def test_values_are_compared_as_text(tmp_path: Path, table_type: str, column: list[Any]) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", table_type=table_type, options=_QUIET)
    data = pa.table({"id": ["a", "b"], "ts": [1, 1], "gone": pa.array([None, None], pa.array(column).type)})
    table.upsert(data)
    marker = "true" if column[0] is True else "1"
    table.upsert(data.set_column(2, "gone", pa.array(column)), options={_FIELD: "gone", _MARKER: marker})
    assert set(seen(table)) == {"b"}


def test_a_decimal_orders_marked_rows_by_the_flag(tmp_path: Path) -> None:
    data = pa.table({"id": ["a", "b"], "ts": [Decimal("5.00")] * 2, "op": ["I", "I"], "_hoodie_is_deleted": [False, None]})
    for columns, error in ((["id", "ts", "op", "_hoodie_is_deleted"], None), (["id", "ts", "op"], Unsupported)):
        path = str(tmp_path / str(len(columns)))
        table = Table.create(path, record_key="id", ordering="ts", table_type="mor", options=_QUIET)
        table.upsert(data.select(columns))
        newer = data.set_column(2, "op", pa.array(["D", "D"])).set_column(1, "ts", pa.array([Decimal("7.00"), Decimal("3.00")]))
        if error is None:
            table.upsert(newer.select(columns), options=MARKED)
            assert seen(table) == {"b": Decimal("5.00")}
        else:
            with pytest.raises(error, match=r"decimal.*_hoodie_is_deleted"):
                table.upsert(newer.select(columns), options=MARKED)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({_FIELD: "op"}, InvalidRequest, "requires both"),
        ({_MARKER: "D"}, InvalidRequest, "requires both"),
        ({_FIELD: "oop", _MARKER: "D"}, InvalidRequest, "oop is not a column"),
        ({_FIELD: "price", _MARKER: "D"}, Unsupported, "price is a column of type double"),
    ],
)
@pytest.mark.parametrize("table_type", _TYPES)
def test_incomplete_delete_markers_are_refused(
    tmp_path: Path, table_type: str, options: dict[str, str], error: type[Exception], text: str
) -> None:
    table = made(tmp_path / "t", table_type)
    data = BASE.append_column("price", pa.array([1.0] * 5))
    table.upsert(data)
    before = table.timeline().instants
    acts: list[Callable[[], object]] = [lambda: table.upsert(data, options=options), lambda: table.scan(options=options)]
    if table_type == "MERGE_ON_READ":
        acts.append(lambda: table.compact(options=options))
    for act in acts:
        with pytest.raises(error, match=text):
            act()
    assert table.timeline().completed() == before


def test_change_data_takes_no_marker(tmp_path: Path) -> None:
    options = {**_QUIET, "hoodie.table.cdc.enabled": True}
    table = Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", options=options)
    table.upsert(BASE)
    with pytest.raises(Unsupported, match="change data"):
        table.changes(options=MARKED)
    assert table.upsert(rows(("a", 7, "D")), options=MARKED).rows_deleted == 1
    assert table.changes().to_arrow().column("op").to_pylist().count("d") == 1


def test_a_partial_update_takes_no_marker(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "MERGE_ON_READ")
    with pytest.raises(Unsupported, match="partial update"):
        table.upsert(CHANGES.select(["id", "ts", "op"]), partial=True, options=MARKED)


@pytest.mark.parametrize("table_type", _TYPES)
def test_empty_delete_marker_is_ignored(tmp_path: Path, table_type: str) -> None:
    table = made(tmp_path / "t", table_type)
    table.upsert(CHANGES, options={_FIELD: "", _MARKER: ""})
    assert set(seen(table)) == {*"abcde", "new"}
