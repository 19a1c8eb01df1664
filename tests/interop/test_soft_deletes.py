"""Soft deletes whose ordering value a delete block cannot hold, in merge-on-read tables of PyHudi and of Apache Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi

OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.metadata.enable": False,
    "hoodie.compact.inline": False,
    "hoodie.write.table.version": 8,
}


def rows(*records: tuple[str, int, bool]) -> pa.Table:
    return pa.table(
        {
            "id": [key for key, _, _ in records],
            "ts": pa.array([value for _, value, _ in records], pa.int32()),
            "_hoodie_is_deleted": [deleted for _, _, deleted in records],
        }
    )


@pytest.mark.parametrize("release", ["hudi", "newer_hudi", "newest_hudi"])
def test_soft_delete_with_ordering_value_zero(request: pytest.FixtureRequest, tmp_path: Path, release: str) -> None:
    """Each release of Hudi deletes the record in its own table; it keeps the record in the table that PyHudi wrote."""
    hudi: ApacheHudi = request.getfixturevalue(release)
    before, delete = rows(("a", 10, False), ("b", 0, False)), rows(("a", 0, True), ("b", 0, True))
    hudi.write(before, tmp_path / "theirs", **OPTIONS)
    hudi.write(delete, tmp_path / "theirs", **OPTIONS)
    assert hudi.read(tmp_path / "theirs", columns=["id"])["id"].to_pylist() == []
    table = Table.create(str(tmp_path / "ours"), options=OPTIONS)
    table.upsert(before)
    table.upsert(delete)
    assert table.scan(["id"]).to_arrow()["id"].to_pylist() == ["a"]
    assert hudi.read(tmp_path / "ours", columns=["id"])["id"].to_pylist() == ["a"]
