"""Tables of version 9: leftover, wrong and unknown properties, damage, feature gate."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, HudiError, InvalidRequest, Unsupported
from pyhudi.format.actions.commit_metadata import CommitMetadata
from tests.support.golden_tables import open_golden
from tests.support.rows import assert_same_rows, without_meta

# A reader that cannot use the metadata table lists directories and warns: right rows alone would not show it.
pytestmark = pytest.mark.filterwarnings("error:the metadata table at:RuntimeWarning")

MODEL = "org.apache.hudi.common.model."
DELETED_AS = "hoodie.record.merge.property.hoodie.payload.delete."

# What release 1.1 makes of the eight payload classes that it translates, and what an upgrade and a custom merger leave.
PROPERTIES: dict[str, dict[str, str]] = {
    "OverwriteWithLatestAvroPayload": {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"},
    "DefaultHoodieRecordPayload": {DELETED_AS + "field": "op", DELETED_AS + "marker": "D"},
    "EventTimeAvroPayload": {},
    "OverwriteNonDefaultsWithLatestAvroPayload": {
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
    },
    "PartialUpdateAvroPayload": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
    "AWSDmsAvroPayload": {
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        DELETED_AS + "field": "Op",
        DELETED_AS + "marker": "D",
    },
    "debezium.PostgresDebeziumAvroPayload": {
        "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
        "hoodie.table.ordering.fields": "_event_lsn",
    },
    "debezium.MySqlDebeziumAvroPayload": {"hoodie.table.ordering.fields": "_event_bin_file,_event_pos"},
}
OTHERS: dict[str, dict[str, str]] = {
    "two ordering fields": {"hoodie.table.ordering.fields": "ts,fare"},
    "a strategy that an upgrade left": {"hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000"},
    "a payload class of somebody's own": {
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.compaction.payload.class": "com.example.OurPayload",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
    },
    "a merger of somebody's own": {
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "11111111-2222-3333-4444-555555555555",
    },
}
CASES = {name: {"hoodie.table.legacy.payload.class": MODEL + name, **values} for name, values in PROPERTIES.items()} | OTHERS


def changed(path: Path, values: dict[str, str]) -> Path:
    file = path / ".hoodie" / "hoodie.properties"
    kept = [line for line in file.read_text().splitlines() if line.partition("=")[0] not in values]
    file.write_text("\n".join([*(f"{key}={value}" for key, value in values.items()), *kept]) + "\n")
    return path


@pytest.mark.parametrize("name", CASES)
def test_rows_are_read_with_any_merge_properties(name: str, tmp_path: Path) -> None:
    golden = open_golden("cow_v9", tmp_path)
    table = Table(str(changed(golden.path, CASES[name])))
    assert_same_rows(table.scan().to_arrow(), without_meta(golden.expected("snapshot")))
    fields = CASES[name].get("hoodie.table.ordering.fields", "ts")
    assert ",".join(table.config.ordering_fields) == fields


@pytest.mark.parametrize("name", ["a payload class of somebody's own", "a merger of somebody's own"])
def test_logs_are_not_merged_by_rules_that_are_not_known(name: str, tmp_path: Path) -> None:
    path = changed(open_golden("mor_v9", tmp_path).path, CASES[name])
    with pytest.raises(Unsupported, match=r"com\.example\.OurPayload|11111111-2222"):
        Table(str(path)).scan()


def test_legacy_payload_properties_of_an_upgrade_are_ignored(tmp_path: Path) -> None:
    golden = open_golden("mor_v9", tmp_path)
    left = {
        "hoodie.table.legacy.payload.class": MODEL + "PartialUpdateAvroPayload",
        "hoodie.compaction.payload.class": MODEL + "AWSDmsAvroPayload",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        "hoodie.compaction.record.merger.strategy": "ce9acb64-bde0-424c-9b91-f6ebba25356d",
    }
    table = Table(str(changed(golden.path, left)))
    assert_same_rows(table.scan(["*"]).to_arrow(), golden.expected("snapshot"))


@pytest.mark.parametrize(
    ("values", "error", "found"),
    [
        ({"hoodie.record.merge.property.hoodie.payload.taste": "sweet"}, Unsupported, "hoodie.payload.taste=sweet"),
        ({"hoodie.table.partial.update.mode": "KEEP_VALUES"}, CorruptData, "KEEP_VALUES"),
        ({"hoodie.table.base.file.format": "LANCE"}, Unsupported, "LANCE"),
        ({"hoodie.table.version": "10"}, Unsupported, "10"),
    ],
)
def test_table_with_unknown_properties_is_rejected_at_open(
    values: dict[str, str], error: type[HudiError], found: str, tmp_path: Path
) -> None:
    path = changed(open_golden("mor_v9", tmp_path).path, values)
    with pytest.raises(error, match=found) as caught:
        Table(str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["vector", "blob", "variant"])
@pytest.mark.parametrize("nested", [False, True])
def test_column_of_a_type_that_is_not_decoded_leaves_the_others_readable(kind: str, nested: bool, tmp_path: Path) -> None:
    golden = open_golden("mor_v9", tmp_path)
    types = {
        "vector": '{"type":"fixed","name":"halves","size":6,"logicalType":"vector","dimension":3,"elementType":"FLOAT16"}',
        "blob": '{"type":"record","name":"blob","logicalType":"blob","fields":[{"name":"data","type":["null","bytes"]}]}',
        "variant": '{"type":"record","name":"v","logicalType":"variant","fields":[{"name":"metadata","type":"bytes"}]}',
    }
    type_ = f'{{"type":"array","items":{types[kind]}}}' if nested else types[kind]
    added = f'{{"name":"odd","type":["null",{type_}],"default":null}}'
    path = golden.path
    for instant in (path / ".hoodie" / "timeline").glob("*commit"):
        instant.write_bytes(_with_column(instant.read_bytes(), added))
    table = Table(str(path))
    names = [name for name in table.schema().names if name != "odd"]
    expected = golden.expected("snapshot").select(names)
    assert_same_rows(table.scan(names).to_arrow(), expected)
    assert table.scan(names[:1], filter=f"{names[0]} is not null").count() == expected.num_rows
    uses: list[dict[str, Any]] = [{}, {"columns": ["odd"]}, {"columns": names[:1], "filter": "odd is null"}]
    for use in uses:
        with pytest.raises(Unsupported, match=f"column 'odd': the logical type {kind}"):
            table.scan(**use)
    before = sorted((path / ".hoodie" / "timeline").iterdir())
    writes: list[Callable[[], object]] = [lambda: table.upsert(expected), table.compact, table.cluster]
    for write in writes:
        with pytest.raises(Unsupported, match=f"cannot be written: column 'odd': the logical type {kind}"):
            write()
    assert sorted((path / ".hoodie" / "timeline").iterdir()) == before


def _with_column(commit: bytes, added: str) -> bytes:
    """Commit metadata whose schema has one column more."""
    metadata = CommitMetadata.decode(commit)
    schema = json.loads(metadata.extra_metadata["schema"])
    schema["fields"].append(json.loads(added))
    return replace(metadata, extra_metadata={**metadata.extra_metadata, "schema": json.dumps(schema)}).encode()


def test_a_tuple_of_another_length_names_file_and_lengths(tmp_path: Path) -> None:
    path = changed(open_golden("mor_v9_two_fields", tmp_path).path, {"hoodie.table.ordering.fields": "ts,qty,name"})
    with pytest.raises(CorruptData, match=r"ArrayWrapper.*expected 3.*found 2") as caught:
        Table(str(path)).scan().to_arrow()
    assert ".log." in str(caught.value) and str(path) in str(caught.value)


def test_an_index_definition_without_version_is_damage(tmp_path: Path) -> None:
    path = open_golden("mor_v9_indexes", tmp_path).path
    document = path / ".hoodie" / ".index_defs" / "index.json"
    definitions = json.loads(document.read_text())
    del definitions["indexDefinitions"]["column_stats"]["version"]
    document.write_text(json.dumps(definitions))
    with pytest.raises(CorruptData, match="'column_stats' has no version") as caught:
        Table(str(path)).scan(filter="ts > 0", options={"hoodie.fileIndex.dataSkippingFailureMode": "strict"})
    assert str(document) in str(caught.value)


def test_delete_marker_other_than_the_tables_is_refused(tmp_path: Path) -> None:
    golden = open_golden("mor_v9_delete_marker", tmp_path)
    option = {"hoodie.payload.delete.field": "state", "hoodie.payload.delete.marker": "DEL"}
    assert_same_rows(Table(golden.path).scan(["*"], options=option).to_arrow(), golden.expected("snapshot"))
    with pytest.raises(InvalidRequest, match="'DEL' in 'state'"):
        Table(golden.path).scan(options={**option, "hoodie.payload.delete.marker": "on"})


def test_statistics_of_version_2_prune_files(tmp_path: Path) -> None:
    """Of each type a filter that no row can match, and one that a row does."""
    table = Table(open_golden("cow_v9_types", tmp_path).path)
    rows = table.scan().to_arrow()
    for name in ("flag", "tiny", "whole", "large", "text", "raw", "day", "moment", "price", "amount", "huge"):
        smallest = min(value for value in rows[name].to_pylist() if value is not None)
        assert table.scan(filter=[(name, "=", smallest)]).count(), name
        assert not table.scan(filter=[(name, "<", smallest)]).explain().slices, name


SECONDARY = {"x$y": [], "moved": ["t000"], "nul\0c": [], "plain": ["t007", "t070"], "ümlaut": ["t005"], "nobody": []}


@pytest.mark.parametrize("value", sorted(SECONDARY))
def test_secondary_index_of_version_2_finds_keys(value: str, tmp_path: Path) -> None:
    scan = Table(open_golden("mor_v9_indexes", tmp_path).path).scan(["id"], filter=[("rider", "=", value)])
    assert sorted(scan.to_arrow()["id"].to_pylist()) == SECONDARY[value]
    assert "secondary index secondary_index_by_rider" in str(scan.explain())


def test_only_the_first_of_several_secondary_indexes_is_used(tmp_path: Path) -> None:
    """Release 1.1.1 leaves the others as they were before the logs."""
    table = Table(open_golden("mor_v9_two_secondary", tmp_path).path)
    by_qty = table.scan(["id"], filter=[("qty", "=", 7)])
    assert by_qty.to_arrow()["id"].to_pylist() == ["a"]
    assert "secondary index" not in str(by_qty.explain())
    by_day = table.scan(["id"], filter=[("day", "=", datetime.date(1969, 12, 31))])
    assert by_day.to_arrow()["id"].to_pylist() == ["c"]
    assert "secondary index secondary_index_by_day" in str(by_day.explain())


@pytest.mark.parametrize("name", ["mor_v9_partitioned_index", "mor_v8_downgraded"])
def test_partitioned_record_index_is_read_in_every_partition(name: str, tmp_path: Path) -> None:
    table = Table(open_golden(name, tmp_path).path)
    twice = table.scan(["id", "city"], filter=[("id", "=", "t000")])
    assert sorted(twice.to_arrow()["city"].to_pylist()) == ["a-b", "north_east"]
    assert "record index" in str(twice.explain())
    assert table.scan(filter=[("id", "=", "t002")]).to_arrow().num_rows == 0
    assert "record_index" in [index.name for index in table.index.list()]
    if name.startswith("mor_v8"):
        # What release 1.1 left by its downgrade: writers of version 8 know no such index.
        with pytest.raises(
            Unsupported, match="it is partitioned, and writers of table version 8 do not support partitioned indexes"
        ):
            table.upsert(table.scan().to_arrow())


def test_incremental_queries_leave_their_start_out(tmp_path: Path) -> None:
    """As release 1.1 does in tables of version 9; 1.0 takes it in, and PyHudi does so in tables of version 8."""
    for name, taken in (("mor_v9", False), ("mor_v8_by_1_1", True)):
        table = Table(open_golden(name, tmp_path).path)
        second = str(table.timeline().completed_writes()[1].completion_time)
        found = table.incremental(second, second).count()
        assert bool(found) is taken, name


@pytest.mark.parametrize("name", ["cow_v8_by_1_1", "mor_v8_by_1_1"])
def test_version_8_tables_of_release_1_1_are_written_unchanged(name: str, tmp_path: Path) -> None:
    golden = open_golden(name, tmp_path)
    before = dict(Table(golden.path).config.properties)
    assert before["hoodie.table.ordering.fields"] == "ts" and "hoodie.table.precombine.field" not in before
    table = Table(golden.path)
    rows = table.scan().to_arrow()
    late = rows.set_column(1, "ts", pa.array([0] * rows.num_rows, pa.int64()))
    table.upsert(late.set_column(3, "fare", pa.array([-1.0] * rows.num_rows)))
    # Late rows change nothing: the ordering field was found.
    assert_same_rows(Table(golden.path).scan().to_arrow(), rows)
    after = dict(Table(golden.path).config.properties)
    assert before.items() <= after.items() and "hoodie.table.precombine.field" not in after
    assert table.validate().ok, str(table.validate())


def test_a_merge_mode_that_is_none_is_damage(tmp_path: Path) -> None:
    path = changed(open_golden("cow_v9", tmp_path).path, {"hoodie.record.merge.mode": "SOMEHOW"})
    with pytest.raises(CorruptData, match="SOMEHOW"):
        Table(str(path))


def test_two_ordering_fields_of_version_8_are_read_and_not_written(tmp_path: Path) -> None:
    golden = open_golden("cow_partitioned", tmp_path)
    table = Table(str(changed(golden.path, {"hoodie.table.precombine.field": "ts,fare"})))
    assert_same_rows(table.scan().to_arrow(), without_meta(golden.expected("snapshot")))
    with pytest.raises(Unsupported, match="several ordering fields"):
        table.upsert(table.scan().to_arrow())
    with pytest.raises(Unsupported, match="several ordering fields"):
        table.upgrade()
