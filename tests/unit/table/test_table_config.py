"""`hoodie.properties` as a value, and the ways in which it may be missing, damaged or half changed."""

from __future__ import annotations

import itertools
import pickle
from datetime import UTC, datetime

import pytest

from pyhudi.errors import CorruptData, HudiError, TableExists, TableNotFound, Unsupported
from pyhudi.format.paths import PROPERTIES_BACKUP, PROPERTIES_FILE
from pyhudi.format.properties import format_properties, parse_properties, table_checksum
from pyhudi.records.keys.key_spec import KeyGenerator
from pyhudi.records.merge_mode import MergeMode
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.table.table_config import (
    TableConfig,
    TableType,
    create_table_files,
    load_table_config,
    local_zone,
    store_table_config,
)

ENV = ReplayEnvironment(1)
_names = itertools.count()

MINIMAL = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "8",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "city",
    "hoodie.table.precombine.field": "ts",
    "hoodie.table.keygenerator.type": "SIMPLE",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.checksum": str(table_checksum("", "t")),
}


def storage_with(**files: dict[str, str] | bytes) -> Storage:
    storage = open_storage(f"memory://config-{next(_names)}")
    for name, content in files.items():
        path = {"main": PROPERTIES_FILE, "backup": PROPERTIES_BACKUP}[name]
        storage.put(path, content if isinstance(content, bytes) else format_properties(content))
    return storage


def test_table_config_is_parsed_from_properties() -> None:
    config = TableConfig.from_properties({**MINIMAL, "hoodie.table.metadata.partitions": "column_stats, files"})
    assert (config.name, config.table_type, config.is_cow, int(config.version)) == ("t", TableType.MERGE_ON_READ, False, 8)
    assert (config.timeline_path, config.history_path) == (".hoodie/timeline", ".hoodie/timeline/history")
    assert config.keys.generator is KeyGenerator.SIMPLE
    assert (config.merge.mode, config.ordering_field) == (MergeMode.EVENT_TIME_ORDERING, "ts")
    assert config.metadata_partitions == ("column_stats", "files")
    assert config.has_metadata_table
    assert config.populate_meta_fields
    assert not config.cdc_enabled
    assert config.property("hoodie.table.type") == "MERGE_ON_READ"
    assert config.property("hoodie.other", "none") == "none"
    assert pickle.loads(pickle.dumps(config)) == config


def test_version_6() -> None:
    values = {**MINIMAL, "hoodie.table.version": "6", "hoodie.timeline.layout.version": "1"}
    del values["hoodie.record.merge.mode"]
    values["hoodie.compaction.payload.class"] = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
    config = TableConfig.from_properties(values)
    assert (config.timeline_path, config.history_path) == (".hoodie", ".hoodie/archived")
    assert config.merge.mode is MergeMode.COMMIT_TIME_ORDERING
    assert config.ordering_field == "ts"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"hoodie.table.name": ""}, CorruptData, "names no table"),
        ({"hoodie.table.type": "COPY_ON_RITE"}, CorruptData, "COPY_ON_RITE"),
        ({"hoodie.table.version": "eight"}, CorruptData, "not a number"),
        ({"hoodie.table.version": "10"}, Unsupported, "10 is not supported"),
        ({"hoodie.table.version": "9", "hoodie.record.merge.property.x": "1"}, Unsupported, "hoodie.record.merge.property.x=1"),
        ({"hoodie.table.version": "9", "hoodie.table.partial.update.mode": "KEEP"}, CorruptData, "partial.update.mode.*KEEP"),
        ({"hoodie.table.base.file.format": "LANCE"}, Unsupported, "LANCE"),
        ({"hoodie.table.version": "5"}, Unsupported, "versions 6, 8, 9; a write of Apache Hudi 0.14 or 0.15 makes"),
        ({"hoodie.table.version": "7"}, Unsupported, "versions 6, 8, 9"),
        (
            {"hoodie.table.ordering.fields": "other"},
            CorruptData,
            "name different fields",
        ),
        ({"hoodie.table.format": "iceberg"}, Unsupported, "hoodie.table.format=iceberg"),
        ({"hoodie.table.checksum": "1"}, CorruptData, "checksum"),
        ({"hoodie.populate.meta.fields": "yes"}, CorruptData, "neither true nor false"),
        ({"hoodie.record.merge.strategy.id": "ce9acb64-bde0-424c-9b91-f6ebba25356d"}, CorruptData, "contradict"),
    ],
)
def test_invalid_table_properties_are_rejected(changes: dict[str, str], error: type[HudiError], message: str) -> None:
    with pytest.raises(error, match=message):
        TableConfig.from_properties({**MINIMAL, **changes})


def test_flags_in_any_case_and_the_zone() -> None:
    config = TableConfig.from_properties({**MINIMAL, "hoodie.populate.meta.fields": " FALSE "})
    assert not config.populate_meta_fields
    assert TableConfig.from_properties({**MINIMAL, "hoodie.table.timeline.timezone": "utc"}).zone is UTC
    zone = pickle.loads(pickle.dumps(config)).zone
    moment = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert moment.astimezone(zone).replace(tzinfo=None) == moment.astimezone().replace(tzinfo=None)
    assert moment.astimezone(local_zone()).utcoffset() == moment.astimezone().utcoffset()


def test_backup_replaces_missing_properties() -> None:
    other = {**MINIMAL, "hoodie.table.type": "COPY_ON_WRITE"}
    assert not load_table_config(storage_with(main=MINIMAL, backup=other)).is_cow
    assert load_table_config(storage_with(backup=other)).is_cow
    for damaged in ({**MINIMAL, "hoodie.table.checksum": "7"}, b"", b"\\u12", b"hoodie.table.name=t\n"):
        assert load_table_config(storage_with(main=damaged, backup=other)).is_cow
        storage = storage_with(main=damaged)
        with pytest.raises(CorruptData) as caught:
            load_table_config(storage)
        assert caught.value.path == storage.absolute(PROPERTIES_FILE)
    with pytest.raises(TableNotFound, match="no Hudi table at memory"):
        load_table_config(storage_with())


def test_properties_without_a_checksum_count_where_nothing_better_is_there() -> None:
    """As with Apache Hudi. They may be truncated, so the other required properties have to exist, and a complete backup is
    preferred.
    """
    bare = {key: value for key, value in MINIMAL.items() if key != "hoodie.table.checksum"}
    storage = storage_with(main=bare)
    assert load_table_config(storage).ordering_field == "ts"
    assert store_table_config(storage, {"hoodie.own": "x"}, ENV).property("hoodie.table.checksum")
    assert load_table_config(storage_with(main=bare, backup={**MINIMAL, "hoodie.table.type": "COPY_ON_WRITE"})).is_cow
    assert not load_table_config(storage_with(main=bare, backup=b"hoodie.table.name=t\n")).is_cow
    for key in ("hoodie.table.name", "hoodie.table.type", "hoodie.table.version", "hoodie.timeline.layout.version"):
        with pytest.raises(CorruptData, match=key.replace(".", r"\.")):
            load_table_config(storage_with(main={name: value for name, value in bare.items() if name != key}))


def test_properties_of_the_first_releases_are_those_of_version_0() -> None:
    old = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.archivelog.folder": "archived",
        "hoodie.timeline.layout.version": "1",
    }
    storage = storage_with(main=old)
    with pytest.raises(Unsupported, match=r"version 0 \(no hoodie.table.version\).*0\.14 or 0\.15") as raised:
        load_table_config(storage)
    assert storage.absolute(PROPERTIES_FILE) in str(raised.value)
    assert not load_table_config(storage_with(main=old, backup=MINIMAL)).is_cow
    for truncated in ({**old, "hoodie.timeline.layout.version": "2"}, {**old, "hoodie.table.recordkey.fields": "id"}):
        with pytest.raises(CorruptData, match=r"no hoodie\.table\.version"):
            load_table_config(storage_with(main=truncated))


@pytest.mark.parametrize(("version", "layout"), [("8", "1"), ("9", "1"), ("6", "2"), ("8", "0")])
def test_a_layout_that_is_not_the_versions(version: str, layout: str) -> None:
    """Its instants would be looked for in another folder than they lie in."""
    values = {**MINIMAL, "hoodie.table.version": version, "hoodie.timeline.layout.version": layout}
    with pytest.raises(CorruptData, match=rf"layout\.version={layout}, but a table of version {version} has another"):
        load_table_config(storage_with(main=values))
    with pytest.raises(Unsupported, match="newest known layout is"):
        load_table_config(storage_with(main={**MINIMAL, "hoodie.timeline.layout.version": "3"}))


def test_a_change_by_apache_hudi_is_no_missing_table() -> None:
    """It removes the file, writes it, and removes the backup; a reader may look at each just when it is away."""
    storage = storage_with(backup=MINIMAL)

    class Changing:
        def __getattr__(self, name: str) -> object:
            return getattr(storage, name)

        def read(self, path: str) -> bytes | None:
            found = storage.read(path)
            if path == PROPERTIES_FILE and found is None:
                storage.put(PROPERTIES_FILE, format_properties(MINIMAL))
                storage.delete([PROPERTIES_BACKUP])
            return found

    assert load_table_config(Changing()).name == "t"  # type: ignore[arg-type]


def test_creation_and_change() -> None:
    storage = storage_with()
    config = create_table_files(storage, {**MINIMAL, "hoodie.database.name": "db"}, ENV)
    stored = parse_properties(storage.read(PROPERTIES_FILE) or b"")
    assert stored["hoodie.table.checksum"] == str(table_checksum("db", "t"))
    assert load_table_config(storage) == config
    with pytest.raises(TableExists):
        create_table_files(storage, MINIMAL, ENV)
    changed = store_table_config(storage, {"hoodie.table.name": "u", "hoodie.own": "x", "hoodie.database.name": None}, ENV)
    assert load_table_config(storage) == changed
    assert (changed.name, changed.database, changed.property("hoodie.own")) == ("u", "", "x")
    assert changed.property("hoodie.table.checksum") == str(table_checksum("", "u"))
    assert storage.read(PROPERTIES_BACKUP) is None


def test_no_table_is_made_over_an_interrupted_change() -> None:
    storage = storage_with(backup=MINIMAL)
    with pytest.raises(TableExists):
        create_table_files(storage, {**MINIMAL, "hoodie.table.name": "u"}, ENV)
    assert load_table_config(storage).name == "t"
    assert store_table_config(storage, {"hoodie.own": "x"}, ENV).name == "t"
    assert storage.read(PROPERTIES_FILE) is not None


def test_a_change_killed_at_every_call() -> None:
    whole = FaultyStorage(storage_with(main=MINIMAL))
    store_table_config(whole, {"hoodie.own": "x"}, ENV)
    for call in range(1, whole.write_count + 1):
        for moment in FaultPoint:
            inner = storage_with(main=MINIMAL)
            with pytest.raises(SimulatedCrash):
                store_table_config(FaultyStorage(inner, Fault(call, moment)), {"hoodie.own": "x"}, ENV)
            assert load_table_config(inner).property("hoodie.own") in ("", "x")
            assert store_table_config(inner, {"hoodie.own": "y"}, ENV).property("hoodie.own") == "y"
            assert load_table_config(inner).property("hoodie.own") == "y"
            assert inner.read(PROPERTIES_BACKUP) is None
