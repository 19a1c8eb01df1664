"""Table properties that may and may not be changed after creation."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Table, TableState
from pyhudi.errors import Unsupported
from pyhudi.storage.locks import LockSettings

_names = itertools.count()
NAME = "hoodie.table.name"


def made(table_type: str = "mor") -> Table:
    table = Table.create(
        f"memory://properties-{next(_names)}", name="rows", record_key="id", ordering="ts", table_type=table_type
    )
    table.upsert({"id": [1, 2], "ts": [1, 1]})
    return table


def stored(table: Table) -> dict[str, str]:
    return dict(Table(table.uri).config.properties)


def test_user_properties_survive_every_change_of_the_table() -> None:
    table = made()
    assert table.set_properties({"owner": "fares", "kept.days": 30, "audited": True, "odd=key: é": "\n"}) == {
        "owner": "fares",
        "kept.days": "30",
        "audited": "true",
        "odd=key: é": "\n",
    }
    table.upsert({"id": [2, 3], "ts": [2, 1]})
    table.index.create("record_index")
    table.compact()
    table.upgrade(to=9)
    assert {key: stored(table)[key] for key in ("owner", "kept.days", "audited", "odd=key: é")} == {
        "owner": "fares",
        "kept.days": "30",
        "audited": "true",
        "odd=key: é": "\n",
    }
    assert table.set_properties({"owner": "fares", "audited": None, "nothing": None}) == {"audited": None}
    assert "audited" not in stored(table) and table.validate().ok


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_table_under_another_name_is_read_written_and_serviced(table_type: str) -> None:
    table = made(table_type)
    other = Table(table.uri)
    assert table.set_properties({NAME: "rides", "hoodie.database.name": "fares"})[NAME] == "rides"
    assert table.name == "rides"
    # One that was opened under the old name goes on.
    other.upsert({"id": [2, 3], "ts": [2, 1]})
    table.upsert({"id": [3, 4], "ts": [2, 1]})
    if table_type == "mor":
        table.compact()
    assert sorted(table.scan(["id", "ts"]).to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "ts": 1},
        {"id": 2, "ts": 2},
        {"id": 3, "ts": 2},
        {"id": 4, "ts": 1},
    ]
    assert table.validate().ok
    table.set_properties({"hoodie.database.name": None})
    assert Table(table.uri).name == "rides"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("hoodie.table.type", "defines the content or layout"),
        ("hoodie.table.recordkey.fields", "defines the content or layout"),
        ("primaryKey", "defines the content or layout"),
        ("hoodie.table.timeline.timezone", "defines the content or layout"),
        ("hoodie.table.cdc.enabled", "defines the content or layout"),
        ("hoodie.something.unknown", "defines the content or layout"),
        ("hoodie.table.checksum", "defines the content or layout"),
        ("hoodie.table.version", "Table.upgrade"),
        ("hoodie.table.metadata.partitions", "Table.index"),
        ("hoodie.datasource.write.operation", "options="),
        ("hoodie.write.lock.provider", "another lock"),
        ("", "not a valid property name"),
        (" owner", "not a valid property name"),
    ],
)
def test_set_properties_rejects_table_and_write_definitions(key: str, message: str) -> None:
    table = made()
    before = stored(table)
    for value in ("x", None):
        with pytest.raises(InvalidRequest, match=message):
            table.set_properties({"owner": "me", key: value})
    assert stored(table) == before


def test_values_are_text_numbers_or_flags() -> None:
    table = made()
    with pytest.raises(InvalidRequest, match="owner has type list"):
        table.set_properties({"owner": ["a"]})
    with pytest.raises(InvalidRequest, match="has a name"):
        table.set_properties({NAME: None})
    with pytest.raises(InvalidRequest, match="has no effect on set_properties"):
        table.set_properties({"owner": "a"}, options={"hoodie.datasource.write.operation": "upsert"})


def test_table_of_another_version_by_now_is_not_changed() -> None:
    table = made()
    stale = table._open.context
    Table(table.uri).upgrade(to=9)
    from pyhudi.operations.admin.alter_properties import run_set_properties
    from pyhudi.operations.commit.commit_settings import CommitSettings

    parsed = table._open.options
    with pytest.raises(TableState, match="version 9"):
        run_set_properties(stale, {"owner": "me"}, CommitSettings.of(parsed), LockSettings.of(parsed, "rows"))
    assert table.set_properties({"owner": "me"}) == {"owner": "me"}


def test_table_of_an_unsupported_write_version_is_not_changed() -> None:
    table = made("cow")
    table.downgrade(to=6)
    with pytest.raises(Unsupported, match="version 6"):
        table.set_properties({"owner": "me"})


def test_table_name_in_the_lock_key_cannot_be_changed() -> None:
    table = made()
    from pyhudi.operations.admin.alter_properties import run_set_properties
    from pyhudi.operations.commit.commit_settings import CommitSettings
    from pyhudi.options.supported import parse_options

    parsed = parse_options(
        {
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
            "hoodie.write.lock.zookeeper.url": "localhost:1",
            "hoodie.write.lock.zookeeper.base_path": "/locks",
        }
    )
    named, settings = LockSettings.of(parsed, "rows"), CommitSettings.of(table._open.options)
    context = table._open.context
    with pytest.raises(InvalidRequest, match="named after the table"):
        run_set_properties(context, {NAME: "rides"}, settings, named)
    assert run_set_properties(context, {NAME: "rows", "owner": "me"}, settings, named) == {"owner": "me"}
    keyed = LockSettings.of(parsed.merged({"hoodie.write.lock.zookeeper.lock_key": "rows"}), "rows")
    assert run_set_properties(context, {NAME: "rides"}, settings, keyed) == {NAME: "rides"}


def test_crash_during_a_property_change_leaves_old_or_new_properties(tmp_path: object) -> None:
    table = Table.create(f"{tmp_path}/t", record_key="id")
    table.insert(pa.table({"id": [1]}))
    table.set_properties({"owner": "me"})
    whole = (table.context.storage.read(".hoodie/hoodie.properties")) or b""
    # Died between the backup and the file.
    table.context.storage.put(".hoodie/hoodie.properties.backup", whole)
    table.context.storage.put(".hoodie/hoodie.properties", whole[: len(whole) // 2])
    assert stored(table)["owner"] == "me"
    table.set_properties({"owner": "you"})
    assert stored(table)["owner"] == "you" and table.scan().count() == 1
