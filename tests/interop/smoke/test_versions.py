"""Smoke tests with Apache Hudi 1.1.1: tables of versions 8 and 9, read and written by both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("qty", pa.int32()), ("name", pa.string())])
OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": False,
    "hoodie.embed.timeline.server": False,
}


def rows(*values: tuple[str, int, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def test_hudi_1_1_reads_and_writes_version_8_tables_after_pyhudi(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = {**OPTIONS, "hoodie.write.table.version": 8}
    newer_hudi.write(rows(("a", 5, 1, "x"), ("b", 5, 2, "y")), path, **options)
    table = Table(path)
    # b is late: the ordering field is found under its newer name.
    table.upsert(rows(("a", 6, 3, "ours"), ("b", 1, 4, "late"), ("c", 1, 5, "new")), options={"hoodie.compact.inline": False})
    newer_hudi.write(rows(("c", 2, 6, "theirs"), ("a", 5, 7, "late")), path, **{**options, "hoodie.write.auto.upgrade": False})
    found = Table(path).scan(["*"]).to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == {"a": "ours", "b": "y", "c": "theirs"}
    assert_same_rows(found, newer_hudi.read(path))
    assert Table(path).validate().ok


@pytest.mark.parametrize("ordering", [pytest.param("ts", marks=pytest.mark.wide), "ts,qty"])
def test_version_9_table_is_read_as_by_hudi(newer_hudi: ApacheHudi, tmp_path: Path, ordering: str) -> None:
    path = tmp_path / "t"
    options = {**OPTIONS, "hoodie.datasource.write.precombine.field": ordering}
    newer_hudi.write(rows(("a", 5, 1, "x"), ("b", 5, 2, "y"), ("c", 5, 3, "z")), path, **options)
    newer_hudi.write(rows(("b", 1, 1, None)), path, **{**options, "hoodie.datasource.write.operation": "delete"})
    newer_hudi.write(rows(("a", 5, 0, "tie"), ("b", 3, 9, "back"), ("c", 6, 0, None)), path, **options)
    assert_same_rows(Table(path).scan(["*"]).to_arrow(), newer_hudi.read(path))
    assert Table(path).validate().ok
