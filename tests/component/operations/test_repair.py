"""Repair finds each kind of damage, changes nothing in a dry run, and fixes it otherwise."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Table
from pyhudi.format.instants import Action

ROWS = pa.table({"id": ["a", "b"], "part": ["x", "y"], "ts": [1, 1], "value": [1, 2]})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), record_key="id", partition_by="part", ordering="ts")
    made.upsert(ROWS)
    made.upsert(ROWS)
    return made


def rows(table: Table) -> list[dict[str, object]]:
    return sorted(Table(table.uri).scan(["id", "value"]).to_arrow().to_pylist(), key=lambda row: str(row["id"]))


def repair(table: Table, kind: str) -> None:
    """A dry run reports the damage and changes nothing; a repair removes it."""
    before = sorted(info.path for info in table.context.storage.walk(""))
    found = table.repair(dry_run=True)
    assert [step.kind.value for step in found.steps] == [kind], found
    assert found.dry_run and "dry run" in str(found)
    assert sorted(info.path for info in table.context.storage.walk("")) == before
    assert table.repair(dry_run=False).steps == found.steps
    assert table.repair(dry_run=True).steps == ()
    assert Table(table.uri).validate().ok


def test_a_table_in_order_needs_nothing(table: Table) -> None:
    found = table.repair(dry_run=True)
    assert found.steps == () and "nothing to repair" in str(found)
    assert found.to_dict()["dry_run"] is True


@pytest.mark.parametrize("damage", [None, b"", b"hoodie.table.name=t\n"])
def test_properties_are_restored_from_the_backup(table: Table, damage: bytes | None) -> None:
    storage = table.context.storage
    data = storage.read(".hoodie/hoodie.properties")
    assert data is not None
    storage.put(".hoodie/hoodie.properties.backup", data)
    if damage is None:
        storage.delete([".hoodie/hoodie.properties"])
    else:
        storage.put(".hoodie/hoodie.properties", damage)
    before = rows(table)
    repair(table, "properties")
    assert rows(table) == before
    assert storage.stat(".hoodie/hoodie.properties.backup") is None


def test_leftover_backup_is_deleted(table: Table) -> None:
    storage = table.context.storage
    storage.put(".hoodie/hoodie.properties.backup", storage.read(".hoodie/hoodie.properties") or b"")
    repair(table, "properties")


def test_missing_partition_metadata_is_written(table: Table) -> None:
    table.drop_metadata_table()
    table.context.storage.delete(["x/.hoodie_partition_metadata"])
    assert rows(table) == [{"id": "b", "value": 2}]
    repair(table, "partition-metadata")
    assert rows(table) == [{"id": "a", "value": 1}, {"id": "b", "value": 2}]


def test_a_file_of_no_instant(table: Table) -> None:
    storage = table.context.storage
    base = next(info for info in storage.walk("x") if info.name.endswith(".parquet"))
    late = f"x/{base.name.rsplit('_', 1)[0]}_20991231000000000.parquet"
    storage.put(late, storage.read(base.path) or b"")
    before = rows(table)
    repair(table, "orphans")
    assert rows(table) == before and storage.stat(late) is None


def test_files_of_a_writer_at_work_are_no_orphans(table: Table) -> None:
    storage, store = table.context.storage, table.context.timeline
    base = next(info for info in storage.walk("x") if info.name.endswith(".parquet"))
    store.start(store.request("20991231000000000", Action.COMMIT))
    storage.put(f"x/{base.name.rsplit('_', 1)[0]}_20991231000000000.parquet", b"")
    assert [step.kind.value for step in table.repair(["orphans"], dry_run=True).steps] == []


def test_failed_write_is_rolled_back(table: Table) -> None:
    store = table.context.timeline
    store.start(store.request("20991231000000000", Action.COMMIT))
    repair(table, "pending")
    assert not table.timeline().pending()


@pytest.mark.parametrize("damage", ["a file is not listed", "nothing can be read"])
def test_a_metadata_table_that_is_wrong(table: Table, damage: str) -> None:
    storage = table.context.storage
    before = rows(table)
    table.index.create("record_index")
    table.index.create("secondary_index", "value", name="by_value")
    indexes = Table(table.uri).config.metadata_partitions
    if damage == "nothing can be read":
        for info in list(storage.walk(".hoodie/metadata/files")):
            if "files-" in info.name:
                storage.put(info.path, b"no such thing")
    else:
        old = min((i for i in storage.walk("x") if i.name.endswith(".parquet")), key=lambda i: i.name.rsplit("_", 1)[1])
        # A copy with another write token, as of an attempt that the commit does not name.
        file_id, _, instant = old.name.split("_")
        storage.put(f"x/{file_id}_9-9-9_{instant}", storage.read(old.path) or b"")
    found = table.repair(dry_run=True)
    assert [step.kind.value for step in found.steps] == ["metadata-table"]
    table.repair(dry_run=False)
    assert table.repair(dry_run=True).steps == ()
    assert rows(table) == before
    assert set(Table(table.uri).config.metadata_partitions) == set(indexes)


def test_another_kind_is_refused(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="partition-metadata"):
        table.repair(["everything"], dry_run=True)
