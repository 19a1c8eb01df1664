"""Merging rows into a base file copies only the columns whose values change."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("few", pa.string()),
        ("text", pa.string()),
        ("price", pa.decimal128(15, 2)),
        ("time", pa.timestamp("us", "UTC")),
        ("number", pa.float64()),
        ("numbers", pa.list_(pa.float64())),
        ("ts", pa.int64()),
    ]
)
BEFORE: dict[str, Any] = {
    "few": "a",
    "text": "one",
    "price": Decimal("1.50"),
    "time": datetime(2024, 1, 1, tzinfo=UTC),
    "number": 0.0,
    "numbers": [0.0, None],
    "ts": 0,
}
AFTER: dict[str, Any] = {
    "few": "b",
    "text": None,
    "price": Decimal("-1.50"),
    "time": datetime(2024, 1, 2, tzinfo=UTC),
    "number": -0.0,
    "numbers": [-0.0, None],
    "ts": 1,
}


def exact(row: dict[str, Any]) -> dict[str, Any]:
    """Add the signs of zeros, which are equal otherwise."""
    return {**row, "signs": (math.copysign(1, row["number"]), math.copysign(1, row["numbers"][0]))}


@pytest.mark.parametrize("changed", [[], *([name] for name in AFTER), ["few", "number"], list(AFTER)])
def test_changed_columns_of_an_upsert_are_replaced(tmp_path: Path, changed: list[str]) -> None:
    table = hp.Table.create(tmp_path / "t", schema=SCHEMA, record_key="id")
    rows = [{"id": number, **BEFORE} for number in range(40)]
    table.insert(pa.Table.from_pylist(rows, SCHEMA))
    for number in (3, 4, 39):
        rows[number] |= {name: AFTER[name] for name in changed}
    result = table.upsert(pa.Table.from_pylist([rows[3], rows[39], rows[4]], SCHEMA))
    stored = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [exact(row) for row in stored] == [exact(row) for row in rows]
    times = dict(zip(*table.scan(["id", "_hoodie_commit_time"]).to_arrow().to_pydict().values(), strict=True))
    assert {number for number, time in times.items() if time == result.instant} == {3, 4, 39}
