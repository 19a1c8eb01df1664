"""Releases of Hudi store keys of COMPLEX with one key field in two forms, whatever form the table's keys have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.alternation import COMMON, READ
from tests.interop.oracle import ApacheHudi

OPTIONS: dict[str, Any] = {
    **COMMON,
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "city,day",
}
WRITES: dict[int, dict[str, Any]] = {8: {}, 9: {"hoodie.write.table.version": 9}}


def rows(ts: int, *ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [ts] * len(ids), "city": ["x"] * len(ids), "day": ["d"] * len(ids)})


def stored(path: Path) -> list[tuple[str, int]]:
    found = Table(path).scan(["*"]).to_arrow().to_pylist()
    return sorted((row["_hoodie_record_key"], row["ts"]) for row in found)


@pytest.mark.parametrize("release", ["1.0.2", "1.1.1"])
def test_hudi_stores_a_record_twice_in_a_table_of_the_other_form(
    request: pytest.FixtureRequest, tmp_path: Path, release: str
) -> None:
    """1.0.2 stores `a` in tables that hold `id:a`, and 1.1.1 `id:a` in tables of version 9 that hold `a`."""
    hudi: ApacheHudi = request.getfixturevalue("hudi" if release == "1.0.2" else "newer_hudi")
    first, other = ("id:a", "a") if release == "1.0.2" else ("a", "id:a")
    version = 8 if release == "1.0.2" else 9
    path = tmp_path / "matrix"
    table = Table.create(
        path,
        record_key="id",
        partition_by=["city", "day"],
        ordering="ts",
        options={"hoodie.write.table.version": 17 - version},
    )
    table.upsert(rows(1, "a", "b"))
    table.downgrade(8) if version == 8 else table.upgrade(9)
    assert stored(path) == [(first, 1), (first.replace("a", "b"), 1)]
    # PyHudi follows the stored keys.
    Table(path).upsert(rows(2, "a"))
    assert stored(path) == [(first, 2), (first.replace("a", "b"), 1)]
    hudi.write(rows(3, "a"), path, **OPTIONS, **WRITES[version])
    assert sorted(stored(path)) == sorted([(first, 2), (first.replace("a", "b"), 1), (other, 3)])
    (result,) = Table(path).rewrite_record_keys()
    assert result.rows_inserted == 2
    assert [ts for _, ts in stored(path)] == [3, 1]
    assert sorted(row["ts"] for row in hudi.read(path, **READ).to_pylist()) == [1, 3]
