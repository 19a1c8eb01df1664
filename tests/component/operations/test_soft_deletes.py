"""Soft deletes (`_hoodie_is_deleted`) by event time: the highest ordering value decides, also where a log cannot store it."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table

TYPES = {"int32": pa.int32(), "int16": pa.int16(), "date": pa.date32(), "int64": pa.int64()}


def ordering_value(kind: str, number: int | None) -> object:
    if number is None or kind != "date":
        return number
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=number)


def rows(kind: str, *records: tuple[str, int | None, bool]) -> pa.Table:
    return pa.table(
        {
            "id": [key for key, _, _ in records],
            "ts": pa.array([ordering_value(kind, number) for _, number, _ in records], TYPES[kind]),
            "_hoodie_is_deleted": [deleted for _, _, deleted in records],
        }
    )


def keys(table: Table) -> set[str]:
    return set(table.scan().to_arrow()["id"].to_pylist())


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_soft_delete_with_ordering_value_zero_loses_against_a_larger_one(tmp_path: Path, table_type: str, kind: str) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", table_type=table_type)
    table.insert(
        rows(kind, ("newer", 10, False), ("equal", 0, False), ("older", -5, False), ("other", 1, False), ("in_log", 1, False))
    )
    table.upsert(rows(kind, ("in_log", 7, False), ("other", 2, False)))
    table.upsert(rows(kind, *((key, 0, True) for key in ("newer", "equal", "older", "in_log"))))
    assert keys(table) == {"newer", "other", "in_log"}
    table.upsert(rows(kind, ("newer", 10, True), ("in_log", 8, True)))
    assert keys(table) == {"other"}
    if table_type == "mor":
        table.compact()
        assert keys(table) == {"other"}


def test_upsert_of_only_outdated_deletes_keeps_every_record(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", table_type="mor")
    table.insert(rows("int32", ("a", 10, False), ("b", 3, False)))
    table.upsert(rows("int32", ("a", 0, True), ("b", 0, True)))
    assert keys(table) == {"a", "b"}
    assert table.validate().ok
