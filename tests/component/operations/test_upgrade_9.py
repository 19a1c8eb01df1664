"""Upgrade and downgrade between versions 8 and 9 keep rows and give the properties of Apache Hudi 1.1.1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.instants import Action
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.records.record_merge import choose_rows
from pyhudi.table.table_config import load_table_config, store_table_config
from tests.support.golden_tables import open_golden
from tests.support.rows import assert_same_rows, without_meta

MODEL = "org.apache.hudi.common.model."
DEBEZIUM = f"{MODEL}debezium."
EVENT, COMMIT = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", "ce9acb64-bde0-424c-9b91-f6ebba25356d"
PAYLOADS = "00000000-0000-0000-0000-000000000000"
MODE, STRATEGY = "hoodie.record.merge.mode", "hoodie.record.merge.strategy.id"
ALIAS = "hoodie.compaction.record.merger.strategy"
PAYLOAD, LEGACY = "hoodie.compaction.payload.class", "hoodie.table.legacy.payload.class"
UPDATES = "hoodie.table.partial.update.mode"
OLD, NEW = "hoodie.table.precombine.field", "hoodie.table.ordering.fields"
OWN = "hoodie.record.merge.property."
FIELD, TEXT = f"{OWN}hoodie.payload.delete.field", f"{OWN}hoodie.payload.delete.marker"
UNAVAILABLE = f"{OWN}hoodie.write.partial.update.unavailable.value"
OPTIONS = {
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.clean.automatic": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline": "false",
}
SCHEMA = pa.schema(
    [
        *(("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("Op", pa.string())),
        *(("_change_operation_type", pa.string()), ("_event_lsn", pa.int64()), ("_event_seq", pa.string())),
        *(("_event_bin_file", pa.string()), ("_event_pos", pa.int64())),
    ]
)

# Class, ordering field in version 8; properties in version 9, and again in 8, as Hudi 1.1.1 leaves them.
Values = Mapping[str, str | None]
TRANSLATED: dict[str, tuple[str, Values, Values]] = {
    f"{MODEL}OverwriteWithLatestAvroPayload": ("ts", {MODE: "COMMIT_TIME_ORDERING"}, {STRATEGY: COMMIT, ALIAS: COMMIT}),
    f"{MODEL}DefaultHoodieRecordPayload": ("ts", {MODE: "EVENT_TIME_ORDERING"}, {STRATEGY: EVENT, ALIAS: EVENT}),
    f"{MODEL}EventTimeAvroPayload": (
        "ts",
        {MODE: "EVENT_TIME_ORDERING", STRATEGY: EVENT, ALIAS: EVENT},
        {MODE: "EVENT_TIME_ORDERING", STRATEGY: EVENT, ALIAS: EVENT},
    ),
    f"{MODEL}OverwriteNonDefaultsWithLatestAvroPayload": (
        "ts",
        {MODE: "COMMIT_TIME_ORDERING", STRATEGY: COMMIT, ALIAS: COMMIT, UPDATES: "IGNORE_DEFAULTS"},
        {MODE: "CUSTOM", STRATEGY: PAYLOADS, ALIAS: PAYLOADS},
    ),
    f"{MODEL}PartialUpdateAvroPayload": (
        "ts",
        {MODE: "EVENT_TIME_ORDERING", STRATEGY: EVENT, ALIAS: EVENT, UPDATES: "IGNORE_DEFAULTS"},
        {MODE: "CUSTOM", STRATEGY: PAYLOADS, ALIAS: PAYLOADS},
    ),
    f"{MODEL}AWSDmsAvroPayload": (
        "ts",
        {MODE: "COMMIT_TIME_ORDERING", STRATEGY: COMMIT, ALIAS: COMMIT, FIELD: "Op", TEXT: "D"},
        {MODE: "CUSTOM", STRATEGY: PAYLOADS, ALIAS: PAYLOADS},
    ),
    f"{DEBEZIUM}PostgresDebeziumAvroPayload": (
        "_event_lsn",
        {
            **{MODE: "EVENT_TIME_ORDERING", STRATEGY: EVENT, ALIAS: EVENT, UPDATES: "FILL_UNAVAILABLE"},
            **{FIELD: "_change_operation_type", TEXT: "d", UNAVAILABLE: "__debezium_unavailable_value"},
        },
        {MODE: "CUSTOM", STRATEGY: PAYLOADS, ALIAS: PAYLOADS},
    ),
    f"{DEBEZIUM}MySqlDebeziumAvroPayload": (
        "_event_seq",
        {
            **{MODE: "EVENT_TIME_ORDERING", STRATEGY: EVENT, ALIAS: EVENT},
            **{FIELD: "_change_operation_type", TEXT: "d", NEW: "_event_bin_file,_event_pos"},
        },
        {MODE: "CUSTOM", STRATEGY: PAYLOADS, ALIAS: PAYLOADS},
    ),
}


def rows(value: int, keys: str = "abc") -> pa.Table:
    made = [
        {
            **{"id": key, "part": "p", "ts": value, "name": f"{key}{value}", "Op": "I", "_change_operation_type": "c"},
            **{"_event_lsn": value, "_event_seq": f"1.{value}", "_event_bin_file": "1", "_event_pos": value},
        }
        for key in keys
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def table_with_commits(
    path: Path, kind: str = "cow", writes: int = 2, ordering: str | None = "ts", /, **options: str
) -> hp.Table:
    table = hp.Table.create(
        path, record_key="id", partition_by="part", ordering=ordering, table_type=kind, options={**OPTIONS, **options}
    )
    for value in range(writes):
        table.upsert(rows(value + 1, "abc"[value:]))
    return table


def properties(table: hp.Table) -> dict[str, str]:
    """Without fields that carry no information, and fields that differ between any two files."""
    return {key: text for key, text in hp.Table(table.uri).config.properties if text and key != "hoodie.table.checksum"}


def changed(before: Mapping[str, str], changes: Values) -> dict[str, str]:
    return {key: text for key, text in {**before, **changes}.items() if text is not None}


@pytest.mark.sample(3)
@pytest.mark.parametrize("payload", TRANSLATED)
def test_payload_classes_become_merge_modes_and_are_restored_by_downgrade(payload: str, tmp_path: Path) -> None:
    ordering, modes, back = TRANSLATED[payload]
    table = table_with_commits(tmp_path / "t", "cow", 2, ordering, **{"hoodie.datasource.write.payload.class": payload})
    before, expected = properties(table), table.scan().to_arrow()
    result = table.upgrade(9)
    assert (result.before, result.after, result.instants) == (8, 9, 0)
    gone = {PAYLOAD: None, OLD: None, STRATEGY: None}
    upgraded = changed(before, {**gone, "hoodie.table.version": "9", LEGACY: payload, NEW: ordering, **modes})
    assert properties(table) == upgraded
    assert_same_rows(hp.Table(tmp_path / "t").scan().to_arrow(), expected)
    assert table.upgrade(9).before == 9 and table.upgrade().after == 9
    table.downgrade(8)
    # The older of the two keys that a new table of version 8 has is the one that real downgrades leave.
    assert properties(table) == changed(before, {NEW: None, **back})
    assert_same_rows(hp.Table(tmp_path / "t").scan().to_arrow(), expected)
    table.upsert(rows(9, "d"))
    assert hp.Table(tmp_path / "t").scan().count() == expected.num_rows + 1


def test_without_a_payload_class_a_table_gets_that_of_its_mode(tmp_path: Path) -> None:
    """Hudi 1.1.1 omits it, and releases before 1.0 use the default one then."""
    for mode, payload in (
        ("EVENT_TIME_ORDERING", "DefaultHoodieRecordPayload"),
        ("COMMIT_TIME_ORDERING", "OverwriteWithLatestAvroPayload"),
    ):
        made = {"hoodie.write.table.version": "9", "hoodie.write.record.merge.mode": mode}
        table = table_with_commits(tmp_path / mode, "cow", 1, **made)
        assert PAYLOAD not in properties(table)
        table.downgrade()
        assert properties(table)[PAYLOAD] == MODEL + payload
        assert properties(table)["hoodie.table.initial.version"] == "9" and properties(table)["hoodie.table.format"] == "native"
        assert table.downgrade().after == 6
        assert properties(table)[PAYLOAD] == MODEL + payload and table.scan().count() == 3


def test_a_delete_marker_that_writers_named_becomes_the_tables_own(tmp_path: Path) -> None:
    table = table_with_commits(tmp_path / "t")
    table.upgrade(9, options={"hoodie.payload.delete.field": "Op", "hoodie.payload.delete.marker": "D"})
    assert {FIELD: "Op", TEXT: "D"}.items() <= properties(table).items()


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_upgrade_and_downgrade_round_trip_with_a_metadata_table(kind: str, tmp_path: Path) -> None:
    more = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
    table = table_with_commits(tmp_path / "t", kind, 3, **more)
    table.index.create("secondary_index", "name", name="by_name")
    if kind == "mor":
        table.upsert(rows(7, "b"))
    expected = table.scan().to_arrow()
    partitions = hp.Table(table.uri).config.metadata_partitions
    result = table.upgrade(9)
    assert (result.compaction is not None) == (kind == "mor")
    assert table.config.metadata_partitions == partitions
    stored = json.loads((tmp_path / "t" / INDEX_DEFINITIONS_FILE).read_text())["indexDefinitions"]
    assert {name: one["version"] for name, one in stored.items()} == dict.fromkeys(stored, "V1") and len(stored) == 2
    assert metadata_version(table) == 9
    assert_same_rows(hp.Table(tmp_path / "t").scan().to_arrow(), expected)
    assert hp.Table(tmp_path / "t").scan(filter=[("name", "=", "c3")]).to_arrow()["id"].to_pylist() == ["c"]
    assert table.validate().ok, str(table.validate())
    result = table.downgrade()
    assert (result.after, result.dropped_indexes) == (8, ())
    assert table.config.metadata_partitions == partitions and metadata_version(table) == 8
    table.upsert(rows(11, "a"))
    assert hp.Table(tmp_path / "t").scan(filter=[("name", "=", "a11")]).to_arrow()["id"].to_pylist() == ["a"]
    assert table.validate().ok, str(table.validate())
    assert (table.downgrade(6).after, table.scan().count()) == (6, 3)
    assert (table.upgrade(9).after, table.scan().count()) == (9, 3)


def metadata_version(table: hp.Table) -> int:
    return int(load_table_config(table.context.storage.child(".hoodie/metadata")).version)


@pytest.mark.parametrize("name", ["cow_v6", "mor_v6", "mor_v6_by_1_1", "mor_v8_by_1_1", "cow_partitioned", "mor_deletes"])
def test_tables_of_apache_hudi_are_upgraded(name: str, tmp_path: Path) -> None:
    golden = open_golden(name, tmp_path)
    table = hp.Table(golden.path)
    result = table.upgrade(9)
    assert result.after == 9
    assert_same_rows(hp.Table(golden.path).scan(["*"]).to_arrow(), golden.expected("snapshot"), ignoring=("_hoodie_file_name",))
    found = properties(table)
    assert found[NEW] == "ts" and not {OLD, PAYLOAD, STRATEGY} & found.keys()


DOWN = (
    *("cow_v9", "cow_v9_cdc", "mor_v9", "mor_v9_types", "mor_v9_DefaultHoodieRecord", "mor_v9_EventTime", "mor_v9_upgraded"),
    *("mor_v9_OverwriteNonDefaultsWithLatest", "mor_v9_PartialUpdate", "mor_v9_AWSDms", "mor_v9_PostgresDebezium"),
    *("mor_v9_indexes", "mor_v9_partial_blocks"),
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", DOWN)
def test_tables_of_apache_hudi_are_downgraded(name: str, tmp_path: Path) -> None:
    golden = open_golden(name, tmp_path)
    table = hp.Table(golden.path)
    later = {name for name, one in load_index_definitions(table.context).items() if one.layout == 2}
    if "column_stats" in later:
        later |= {"partition_stats"} & {*table.config.metadata_partitions}
    result = table.downgrade()
    assert (result.after, set(result.dropped_indexes)) == (8, later)
    assert not later & {*table.config.metadata_partitions, *load_index_definitions(table.context)}
    assert_same_rows(hp.Table(golden.path).scan(["*"]).to_arrow(), golden.expected("snapshot"), ignoring=("_hoodie_file_name",))
    table.upsert(table.scan().to_arrow())
    assert_same_rows(hp.Table(golden.path).scan().to_arrow(), without_meta(golden.expected("snapshot")))
    assert table.validate().ok, str(table.validate())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cow_v9_two_fields", "several ordering fields"),
        ("mor_v9_tuple_types", "several ordering fields"),
        ("mor_v9_partitioned_index", "record index .* is partitioned"),
    ],
)
def test_downgrade_of_a_table_with_version_9_features_is_rejected(name: str, reason: str, tmp_path: Path) -> None:
    golden = open_golden(name, tmp_path)
    before = {path: path.read_bytes() for path in golden.path.rglob("*") if path.is_file()}
    for target in (8, 6):
        with pytest.raises(Unsupported, match=reason):
            hp.Table(golden.path).downgrade(target)
    assert {path: path.read_bytes() for path in golden.path.rglob("*") if path.is_file()} == before


def test_merge_mode_without_a_payload_class_is_not_downgraded(tmp_path: Path) -> None:
    table = hp.Table(open_golden("mor_v9_PartialUpdate", tmp_path).path)
    for legacy in (None, f"{MODEL}DefaultHoodieRecordPayload"):
        store_table_config(table.context.storage, {LEGACY: legacy}, table.context.env)
        with pytest.raises(Unsupported, match="has no payload class"):
            hp.Table(table.uri).downgrade()


def test_upgrade_to_version_9_with_unsupported_settings_is_rejected(tmp_path: Path) -> None:
    first = table_with_commits(tmp_path / "f", **{"hoodie.datasource.write.payload.class": f"{MODEL}FirstValueAvroPayload"})
    mysql = hp.Table.create(
        tmp_path / "m",
        record_key="id",
        ordering="_event_seq",
        options={**OPTIONS, "hoodie.datasource.write.payload.class": f"{DEBEZIUM}MySqlDebeziumAvroPayload"},
    )
    mysql.upsert(rows(1).drop_columns(["_event_pos"]))
    for table, reason in (
        (first, "FirstValue"),
        (mysql, "_event_pos"),
    ):
        before = properties(table)
        with pytest.raises(Unsupported, match=reason):
            table.upgrade(9)
        assert properties(table) == before


def test_an_index_build_ends_in_the_version_in_which_it_began(tmp_path: Path) -> None:
    table = table_with_commits(tmp_path / "t", **{"hoodie.metadata.record.index.enable": "true"})
    planned = table.index.schedule("secondary_index", "name", name="by_name")
    with pytest.raises(TableState, match=r"index build .* is pending"):
        table.upgrade(9)
    assert planned and table.timeline().pending(Action.INDEXING)


def test_requested_version_must_fit_upgrade_or_downgrade(tmp_path: Path) -> None:
    table = table_with_commits(tmp_path / "t", "cow", 1)
    with pytest.raises(InvalidRequest, match="use a downgrade"):
        table.upgrade(6)
    with pytest.raises(InvalidRequest, match="use an upgrade"):
        table.downgrade(9)
    for version in (7, 10):
        with pytest.raises(Unsupported, match=str(version)):
            table.upgrade(version)
    assert table.upgrade(8).after == 8 == table.downgrade(8).after


def test_event_time_payload_after_a_downgrade_by_hudi_is_read(tmp_path: Path) -> None:
    """Its downgrade writes the payload class next to the mode that replaced it, which its own settings never do."""
    table = table_with_commits(tmp_path / "t")
    store_table_config(table.context.storage, {PAYLOAD: f"{MODEL}EventTimeAvroPayload"}, table.context.env)
    table = hp.Table(tmp_path / "t")
    table.upsert(rows(0))
    assert sorted(table.scan().to_arrow()["ts"].to_pylist()) == [1, 2, 2]


class Highest:
    """The row with the larger `ts` stays by a merger of one's own; a tie keeps the older one, which no mode does."""

    strategy_id = "6f1e3a52-0d1c-4a44-8f5a-7f2f0f7a9d09"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        return choose_rows(older, newer, pc.greater(newer["ts"], older["ts"]).to_numpy()), None


@pytest.mark.sample(2)
@pytest.mark.parametrize("payload", [None, f"{MODEL}PartialUpdateAvroPayload"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_custom_merger_is_kept(kind: str, payload: str | None, tmp_path: Path) -> None:
    """Hudi 1.1.1 also leaves the properties unchanged if the table names no payload class; next to one it drops the merger."""
    hp.register_merger(Highest())
    options = {"hoodie.write.record.merge.mode": "CUSTOM", "hoodie.write.record.merge.strategy.id": Highest.strategy_id}
    if payload is not None:
        options["hoodie.datasource.write.payload.class"] = payload
    table = table_with_commits(tmp_path / "t", kind, 2, "ts", **options)
    before, expected = properties(table), table.scan().to_arrow()
    named = payload or f"{MODEL}DefaultHoodieRecordPayload"
    assert before[PAYLOAD] == named
    table.upgrade(9)
    upgraded = changed(before, {"hoodie.table.version": "9", PAYLOAD: None, OLD: None, LEGACY: named, NEW: "ts"})
    assert properties(table) == upgraded
    table = hp.Table(tmp_path / "t", options=OPTIONS)
    tie = rows(2, "b").set_column(3, "name", pa.array(["a tie"]))
    table.upsert(tie)
    assert_same_rows(table.scan().to_arrow(), expected)
    table.downgrade(8)
    assert {**properties(table), NEW: "ts"} == {**before, NEW: "ts"}
    hp.Table(tmp_path / "t", options={**OPTIONS, **options}).upsert(tie)
    assert_same_rows(hp.Table(tmp_path / "t").scan().to_arrow(), expected)
