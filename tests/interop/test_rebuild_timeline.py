"""Apache Hudi reads and writes tables with a rebuilt timeline or rebuilt properties."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table, restore_properties
from tests.interop.oracle import ApacheHudi
from tests.interop.pair import BY_METADATA
from tests.support.hudi_shared_table import BLOOMS, SharedTable, keyed_rows

WRITE: dict[str, Any] = {
    "hoodie.table.name": "remade",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "2",
}


def rows(numbers: range, ts: int) -> pa.Table:
    ids = [f"k{n:03}" for n in numbers]
    return pa.table(
        {"id": ids, "p": ["ab"[n % 2] for n in numbers], "ts": [ts] * len(ids), "v": [1000 * ts + n for n in numbers]}
    )


def values(table: pa.Table) -> list[tuple[str, int]]:
    return sorted(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))


def test_both_write_after_a_timeline_rebuild(hudi: ApacheHudi, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    options = {**WRITE, "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    hudi.write(rows(range(12), 1), path, **options, mode="overwrite")
    hudi.write(rows(range(0, 12, 3), 2), path, **options)
    Table(path).upsert(rows(range(8, 16), 3))
    before = values(Table(path).scan().to_arrow())
    shutil.rmtree(tmp_path / "t" / ".hoodie" / "timeline")
    Table(path).repair(dry_run=False)
    assert Table(path).repair(dry_run=True).steps == () and not Table(path).validate(keys=True).findings
    assert values(Table(path).scan().to_arrow()) == before
    assert values(hudi.read(path)) == before
    assert values(hudi.read(path, **BY_METADATA)) == before
    hudi.write(rows(range(14, 20), 4), path, **options)
    Table(path).upsert(rows(range(2), 5))
    latest = values(Table(path).scan().to_arrow())
    assert dict(latest) == {**dict(before), **dict(values(rows(range(14, 20), 4))), **dict(values(rows(range(2), 5)))}
    assert values(hudi.read(path)) == latest


def test_both_write_after_properties_were_restored(hudi: ApacheHudi, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    options = {**WRITE, "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    hudi.write(rows(range(12), 1), path, **options, mode="overwrite")
    hudi.write(rows(range(0, 12, 3), 2), path, **options)
    Table(path).upsert(rows(range(8, 16), 3))
    before = values(Table(path).scan().to_arrow())
    (tmp_path / "t" / ".hoodie" / "hoodie.properties").unlink()
    given = {
        "hoodie.table.precombine.field": "ts",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
    }
    restore_properties(path, given, dry_run=False)
    assert Table(path).repair(dry_run=True).steps == () and not Table(path).validate(keys=True).findings
    assert values(hudi.read(path)) == values(hudi.read(path, **BY_METADATA)) == before
    hudi.write(rows(range(14, 20), 4), path, **options)
    Table(path).upsert(rows(range(2), 5))
    latest = values(Table(path).scan().to_arrow())
    assert dict(latest) == {**dict(before), **dict(values(rows(range(14, 20), 4))), **dict(values(rows(range(2), 5)))}
    assert values(hudi.read(path)) == latest


@pytest.mark.wide
def test_both_write_after_a_timeline_rebuild_with_column_ids(hudi: ApacheHudi, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    by_ids: dict[str, Any] = {"hoodie.schema.on.read.enable": "true"}
    options: dict[str, Any] = {
        **WRITE,
        **by_ids,
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.compact.inline": "false",
    }
    hudi.write(rows(range(8), 1), path, **options, mode="overwrite")
    Table(path).alter.rename("v", "w")
    hudi.write(rows(range(4, 12), 2).rename_columns(["id", "p", "ts", "w"]), path, **options)
    Table(path).alter.drop("w")
    Table(path).alter.add("w", pa.int64())
    Table(path).upsert(rows(range(10, 14), 3).rename_columns(["id", "p", "ts", "w"]))

    def known(table: pa.Table) -> list[tuple[str, int | None]]:
        return sorted(zip(table.column("id").to_pylist(), table.column("w").to_pylist(), strict=True))

    before = known(Table(path).scan().to_arrow())
    assert dict(before)["k003"] is None and dict(before)["k011"] == 3011
    shutil.rmtree(tmp_path / "t" / ".hoodie" / "timeline")
    Table(path).repair(dry_run=False)
    assert Table(path).repair(dry_run=True).steps == () and not Table(path).validate(keys=True).findings
    assert known(Table(path).scan().to_arrow()) == known(hudi.read(path, **by_ids)) == before
    hudi.write(rows(range(2), 4).rename_columns(["id", "p", "ts", "w"]), path, **options)
    Table(path).upsert(rows(range(2, 3), 5).rename_columns(["id", "p", "ts", "w"]))
    latest = {**dict(before), "k000": 4000, "k001": 4001, "k002": 5002}
    assert dict(known(Table(path).scan().to_arrow())) == dict(known(hudi.read(path, **by_ids))) == latest


@pytest.mark.wide
def test_hudi_writes_after_a_repair(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """A metadata table that does not list a file is mended, and Apache Hudi writes on."""
    shared = SharedTable(newer_hudi, tmp_path / "t", "mor", BLOOMS)
    shared.theirs(keyed_rows(("a", 1, "a1", 1), ("c", 1, "c1", 3)))
    shared.theirs(keyed_rows(("a", 2, "a2", 1)))
    base = next((shared.path / "x").glob("*.parquet"))
    shutil.copy(base, base.with_name("stray-0_0-0-0_20200101000000000.parquet"))
    (shared.path / "x" / ".hoodie_partition_metadata").unlink()
    assert not shared.table.validate().ok
    shared.table.repair(dry_run=False)
    shared.checked()
    shared.theirs(keyed_rows(("a", 3, "a3", 1), ("b", 3, "b3", 1)))
    assert shared.same() == {"a": "a3", "b": "b3", "c": "c1"}
    shared.checked()
