"""`Table.create(..., exist_ok=True)` opens an existing table that matches the request."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import HudiError, InvalidRequest, TableExists, TableState
from pyhudi.format.paths import PROPERTIES_FILE
from pyhudi.storage.memory import MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("fare", pa.float64())])
ASKED: dict[str, Any] = {"record_key": "id", "partition_by": "city"}


@pytest.fixture
def table(tmp_path: Path) -> hp.Table:
    made = hp.Table.create(tmp_path / "t", **ASKED, name="trips", schema=SCHEMA)
    made.upsert(pa.table({"id": ["a"], "city": ["sf"], "fare": [1.5]}))
    return made


@pytest.mark.parametrize(
    "requested",
    [
        ASKED,
        ASKED | {"name": "trips", "table_type": "cow", "schema": SCHEMA},
        ASKED | {"schema": pa.schema([("id", pa.string()), ("city", pa.string())])},
        ASKED | {"options": {"hoodie.write.table.version": 8, "hoodie.datasource.write.hive_style_partitioning": False}},
    ],
    ids=str,
)
def test_create_with_exist_ok_opens_an_equal_table_unchanged(table: hp.Table, requested: dict[str, Any]) -> None:
    before = table.context.storage.read(PROPERTIES_FILE)
    again = hp.Table.create(table.uri, **requested, exist_ok=True)
    assert again.context.storage.read(PROPERTIES_FILE) == before
    assert again.scan().to_arrow()["id"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"partition_by": "city"}, "record key is id, not none"),
        ({"record_key": ["id", "city"]}, "record key is id, not id,city; its partitioning is city, not none"),
        ({"record_key": "id"}, "partitioning is city, not none"),
        (ASKED | {"table_type": "mor"}, "type is COPY_ON_WRITE, not MERGE_ON_READ"),
        (ASKED | {"name": "rides"}, "name is trips, not rides"),
        (ASKED | {"options": {"hoodie.write.table.version": 9}}, "version is 8, not 9"),
        (ASKED | {"ordering": "fare"}, "contradicts the table"),
        (ASKED | {"options": {"hoodie.datasource.write.hive_style_partitioning": True}}, "contradicts the table"),
        (ASKED | {"schema": SCHEMA.append(pa.field("tip", pa.int64()))}, "its column 'tip' is not there, not int64"),
        (ASKED | {"schema": SCHEMA.set(2, pa.field("fare", pa.int64()))}, "its column 'fare' is double, not int64"),
    ],
    ids=str,
)
def test_another_table_is_refused_by_what_differs(table: hp.Table, requested: dict[str, Any], message: str) -> None:
    with pytest.raises(TableExists, match=message):
        hp.Table.create(table.uri, **requested, exist_ok=True)


def test_a_type_that_is_not_named_may_be_any(tmp_path: Path) -> None:
    hp.Table.create(tmp_path / "t", **ASKED, table_type="mor")
    assert not hp.Table.create(tmp_path / "t", **ASKED, exist_ok=True).config.is_cow
    with pytest.raises(TableExists, match="type is MERGE_ON_READ, not COPY_ON_WRITE"):
        hp.Table.create(tmp_path / "t", **ASKED, table_type="cow", exist_ok=True)


def test_times_without_a_zone_are_compared_as_the_table_has_them(tmp_path: Path) -> None:
    requested: dict[str, Any] = {
        "record_key": "id",
        "schema": pa.schema([("id", pa.string()), ("at", pa.timestamp("us"))]),
        "options": {"pyhudi.timestamps.without.zone": "utc"},
    }
    hp.Table.create(tmp_path / "t", **requested)
    assert hp.Table.create(tmp_path / "t", **requested, exist_ok=True).schema().names == ["id", "at"]


def test_of_two_at_once_the_second_opens_what_the_first_has_made(monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryStorage.put_if_absent

    def late(self: MemoryStorage, path: str, data: bytes) -> bool:
        if path == PROPERTIES_FILE:
            monkeypatch.undo()
            hp.Table.create("memory://create-again/t", **ASKED)
        return real(self, path, data)

    monkeypatch.setattr(MemoryStorage, "put_if_absent", late)
    assert hp.Table.create("memory://create-again/t", **ASKED, exist_ok=True).config.keys.record_fields == ("id",)
    with pytest.raises(TableExists, match="already"):
        hp.Table.create("memory://create-again/t", **ASKED)


CREATIONS: dict[str, Callable[[str], object]] = {
    "create": lambda uri: hp.Table.create(uri, **ASKED),
    "create, exist_ok": lambda uri: hp.Table.create(uri, **ASKED, exist_ok=True),
    "write": lambda uri: hp.write(uri, [{"id": "a", "city": "sf", "fare": 1.0}], **ASKED),
    "sql": lambda uri: hp.sql(
        f"CREATE TABLE hudi.`{uri}` (id STRING, city STRING) USING hudi TBLPROPERTIES (primaryKey = 'id') PARTITIONED BY (city)"
    ),
    "sql, as query": lambda uri: hp.sql(
        f"CREATE TABLE IF NOT EXISTS hudi.`{uri}` USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT 'a' AS id"
    ),
}


@pytest.mark.parametrize("create", CREATIONS.values(), ids=CREATIONS)
@pytest.mark.parametrize("version", [8, 9])
def test_no_table_is_created_over_one_whose_properties_are_lost(
    tmp_path: Path, create: Callable[[str], object], version: int
) -> None:
    uri = str(tmp_path / "t")
    table = hp.Table.create(uri, **ASKED, table_type="mor", options={"hoodie.write.table.version": version})
    table.upsert([{"id": "a", "city": "sf", "fare": 1.0}])
    properties = table.context.storage.read(PROPERTIES_FILE)
    assert properties is not None
    table.context.storage.delete([PROPERTIES_FILE])
    for attempt in (create, hp.Table):
        with pytest.raises(TableState, match=r"properties of the table at .* is missing.*restore_properties.*repair --property"):
            attempt(uri)
    table.context.storage.put(PROPERTIES_FILE, properties)
    assert hp.Table(uri).count() == 1


@pytest.mark.parametrize("create", CREATIONS.values(), ids=CREATIONS)
def test_no_table_is_created_over_data_files_whose_hoodie_folder_is_lost(tmp_path: Path, create: Callable[[str], object]) -> None:
    uri = str(tmp_path / "t")
    hp.Table.create(uri, **ASKED).upsert([{"id": "a", "city": "sf", "fare": 1.0}])
    shutil.rmtree(tmp_path / "t" / ".hoodie")
    with pytest.raises(InvalidRequest, match=r"data files of a Hudi table without its folder \.hoodie.*restore_properties"):
        create(uri)
    with pytest.raises(HudiError, match=r"data files of a Hudi table without its folder \.hoodie"):
        hp.Table(uri)


def test_a_table_is_created_next_to_nested_tables(tmp_path: Path) -> None:
    hp.Table.create(tmp_path / "t" / "nested", **ASKED).upsert([{"id": "a", "city": "sf", "fare": 1.0}])
    assert hp.Table.create(tmp_path / "t", **ASKED).timeline().instants == ()
