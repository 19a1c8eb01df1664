"""Upgrade and downgrade between versions 6 and 8: each reads and writes the other's result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi

MANUAL = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False}
FEW = {
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.clean.commits.retained": 1,
    "hoodie.metadata.enable": False,
}
Rows = dict[str, int]


def rows(numbers: range, value: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "ts": pa.array([value] * len(numbers), pa.int64()),
            "value": pa.array([value * 100 + number for number in numbers], pa.int64()),
            "part": ["ab"[number % 2] for number in numbers],
        }
    )


def real_options(kind: str, **more: object) -> dict[str, Any]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[kind],
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.compact.inline": False,
        "hoodie.embed.timeline.server": False,
        **more,
    }


def version_6(kind: str, **more: object) -> dict[str, Any]:
    return real_options(kind, **{"hoodie.write.table.version": 6, "hoodie.write.auto.upgrade": False, **more})


def seen(table: pa.Table) -> Rows:
    found = dict(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert len(found) == table.num_rows
    return found


def our_rows(path: Path) -> Rows:
    return seen(Table(path).scan().to_arrow())


def real_rows(hudi: ApacheHudi, path: Path, **options: Any) -> Rows:
    return seen(hudi.read(path, **options))


def assert_same_time_travel(hudi: ApacheHudi, path: Path, *places: int) -> None:
    """As of some instants, and from them on: there are log files named after their delta commits, and after base instants.

    places: of the instants among all writes.
    """
    writes = Table(path).timeline().completed_writes()
    for write in (writes[place] for place in places):
        moment, completed = write.request_time, str(write.completion_time)
        assert seen(Table(path).scan(as_of=moment).to_arrow()) == real_rows(hudi, path, **{"as.of.instant": moment})
        changed = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": completed}
        assert seen(Table(path).incremental(completed).to_arrow()) == real_rows(hudi, path, **changed)


@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.wide)])
def test_hudi_writes_after_an_upgrade_of_pyhudi(hudi: ApacheHudi, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    # So many that Apache Hudi archives, where it does.
    for value in range(6 if kind == "cow" else 3):
        hudi.write(rows(range(value % 3, 8), value), path, **version_6(kind, **(FEW if kind == "cow" else {})))
    expected = real_rows(hudi, path)
    table = Table(path)
    assert int(table.config.version) == 6
    assert our_rows(path) == expected
    result = table.upgrade()
    assert result.after == 8 and (result.archived > 0) == (kind == "cow")
    assert our_rows(path) == expected == real_rows(hudi, path)
    hudi.write(rows(range(2, 10), 20), path, **real_options(kind))
    expected |= seen(rows(range(2, 10), 20))
    assert our_rows(path) == expected == real_rows(hudi, path)
    table.upsert(rows(range(3), 21))
    expected |= seen(rows(range(3), 21))
    assert our_rows(path) == expected == real_rows(hudi, path)
    assert table.validate().ok


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_hudi_writes_after_a_downgrade_of_pyhudi(hudi: ApacheHudi, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    few = {**FEW, "hoodie.compact.inline": False} if kind == "cow" else MANUAL
    table = Table.create(path, name="t", record_key="id", partition_by="part", ordering="ts", table_type=kind, options=few)
    for value in range(9):
        table.upsert(rows(range(value % 3, 8), value))
    expected = our_rows(path)
    result = table.downgrade()
    assert result.after == 6 and (result.archived > 0) == (kind == "cow")
    assert our_rows(path) == expected == real_rows(hudi, path)
    if kind == "mor":
        assert_same_time_travel(hudi, path, 1, 4, -2)
    # It writes version 6 there, reads our archive when it archives more, and upgrades it by itself in the end.
    for value in range(20, 22):
        hudi.write(rows(range(2, 10), value), path, **version_6(kind, **(FEW if kind == "cow" else {})))
    expected |= seen(rows(range(2, 10), 21))
    assert int(Table(path).config.version) == 6
    assert our_rows(path) == expected == real_rows(hudi, path)
    if kind == "mor":
        assert_same_time_travel(hudi, path, 4, -2)
    hudi.write(rows(range(1), 30), path, **real_options(kind))
    expected |= seen(rows(range(1), 30))
    assert int(Table(path).config.version) == 8
    assert our_rows(path) == expected == real_rows(hudi, path)
    Table(path).upsert(rows(range(1, 3), 31))
    expected |= seen(rows(range(1, 3), 31))
    assert our_rows(path) == expected == real_rows(hudi, path)


def test_pyhudi_writes_after_a_downgrade_of_hudi(hudi: ApacheHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = Table.create(path, name="t", record_key="id", partition_by="part", ordering="ts", options=MANUAL)
    for value in range(3):
        table.upsert(rows(range(8), value))
    expected = our_rows(path)
    hudi.sql(f"CREATE TABLE IF NOT EXISTS downgraded USING hudi LOCATION 'file:{path}'")
    hudi.call("downgrade_table", table="downgraded", to_version="SIX")
    assert int(Table(path).config.version) == 6
    assert our_rows(path) == expected
    table = Table(path)
    table.upgrade()
    table.upsert(rows(range(2), 9))
    expected |= seen(rows(range(2), 9))
    assert our_rows(path) == expected == real_rows(hudi, path)
