"""Apache Hudi reads, writes, services and validates tables whose commits contain the batches of several writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.support.group_follower import Follower
from tests.support.rows import assert_same_rows

THEIRS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.embed.timeline.server": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.write.auto.upgrade": False,
}


def rows(ts: int, *ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": pa.array([ts] * len(ids), pa.int64()), "v": [str(ts)] * len(ids)})


@pytest.mark.parametrize("release", ["hudi", pytest.param("newer_hudi", marks=pytest.mark.wide)])
def test_hudi_works_between_group_commits(request: pytest.FixtureRequest, release: str, tmp_path: Path) -> None:
    hudi: ApacheHudi = request.getfixturevalue(release)
    path = tmp_path / "t"
    mor = release == "newer_hudi"
    Table.create(path, name="t", record_key="id", ordering="ts", table_type="mor" if mor else "cow").upsert(rows(1, "a", "b"))
    theirs = {**THEIRS, "hoodie.compact.inline": mor, "hoodie.compact.inline.max.delta.commits": 2}
    table = Table(path, options={"pyhudi.write.group": "auto", "hoodie.compact.inline": False})
    for turn in (2, 4, 6):
        follower = Follower(table, rows(turn, "a", f"f{turn}"))
        led = table.upsert(rows(turn, "b", f"l{turn}"))
        assert led.grouped == 2
        assert follower.finish().instant == led.instant
        waiting = Follower(table, rows(turn, f"w{turn}"))
        assert_same_rows(Table(path).scan(["*"]).to_arrow(), hudi.read(path))
        # A staged batch is stored in .hoodie/ while Hudi writes, cleans and compacts.
        hudi.write(rows(turn + 1, "a", f"t{turn}"), path, **theirs)
        assert_same_rows(Table(path).scan(["*"]).to_arrow(), hudi.read(path))
        assert waiting.finish().rows_inserted == 1
    found = Table(path).scan(["id", "v"]).to_arrow()
    expected = {"a": "7", "b": "6"} | {f"{who}{turn}": str(turn + (who == "t")) for turn in (2, 4, 6) for who in "fltw"}
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    assert_same_rows(Table(path).scan(["*"]).to_arrow(), hudi.read(path))
    assert Table(path).validate().ok
