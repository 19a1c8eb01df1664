"""Copy-on-write tables of version 9: their rows are read whatever their properties say of merging, which reading does not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, Unsupported
from tests.golden_tables import open_golden
from tests.rows import assert_same_rows, without_meta

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
def test_rows_are_read_whatever_the_merge_properties_are(name: str, tmp_path: Path) -> None:
    golden = open_golden("cow_v9", tmp_path)
    table = Table(str(changed(golden.path, CASES[name])))
    assert_same_rows(table.scan().to_arrow(), without_meta(golden.expected("snapshot")))
    fields = CASES[name].get("hoodie.table.ordering.fields", "ts")
    assert ",".join(table.config.ordering_fields) == fields
    with pytest.raises(Unsupported, match="version 9"):
        table.delete(where="ts > 0")


@pytest.mark.parametrize("name", ["two ordering fields", "a merger of somebody's own"])
def test_merge_on_read_tables_of_version_9_stay_refused(name: str, tmp_path: Path) -> None:
    path = changed(open_golden("cow_v9", tmp_path).path, {**CASES[name], "hoodie.table.type": "MERGE_ON_READ"})
    with pytest.raises(Unsupported, match="merge-on-read of version 9"):
        Table(str(path))


def test_a_merge_mode_that_is_none_is_damage(tmp_path: Path) -> None:
    path = changed(open_golden("cow_v9", tmp_path).path, {"hoodie.record.merge.mode": "SOMEHOW"})
    with pytest.raises(CorruptData, match="SOMEHOW"):
        Table(str(path))


def test_two_ordering_fields_of_version_8_are_read_and_not_written(tmp_path: Path) -> None:
    golden = open_golden("cow_partitioned", tmp_path)
    table = Table(str(changed(golden.path, {"hoodie.table.precombine.field": "ts,fare"})))
    assert_same_rows(table.scan().to_arrow(), without_meta(golden.expected("snapshot")))
    with pytest.raises(Unsupported, match="several fields"):
        table.upsert(table.scan().to_arrow())
    with pytest.raises(Unsupported, match="several fields"):
        table.upgrade()
