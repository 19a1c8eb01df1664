"""Tables of version 9 written by PyHudi: file content, and rows of each merge mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest
from pyhudi.metadata_table.reader.index_lookups import scan_column_stats
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from tests.support.golden_tables import open_golden
from tests.support.rows import assert_same_rows

# A reader that cannot use the metadata table lists directories and warns: right rows alone would not show it.
pytestmark = pytest.mark.filterwarnings("error:the metadata table at:RuntimeWarning")

VERSION = {"hoodie.write.table.version": "9"}
MODEL = "org.apache.hudi.common.model."
PAYLOAD = "hoodie.datasource.write.payload.class"
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "city"}
MARKER = {"hoodie.payload.delete.field": "state", "hoodie.payload.delete.marker": "DEL"}

# Options that release 1.1.1 got for a golden table, in addition to key and type.
MADE_BY: dict[str, dict[str, str]] = {
    **{
        f"mor_v9_{name}": {PAYLOAD: f"{MODEL}{name}AvroPayload", "hoodie.table.ordering.fields": "ts"}
        for name in ("OverwriteWithLatest", "EventTime", "OverwriteNonDefaultsWithLatest", "PartialUpdate", "AWSDms")
    },
    "mor_v9_DefaultHoodieRecord": {PAYLOAD: f"{MODEL}DefaultHoodieRecordPayload", "preCombineField": "ts"},
    "mor_v9_PostgresDebezium": {PAYLOAD: f"{MODEL}debezium.PostgresDebeziumAvroPayload"},
    "mor_v9_MySqlDebezium": {PAYLOAD: f"{MODEL}debezium.MySqlDebeziumAvroPayload"},
    "mor_v9_delete_marker": {PAYLOAD: f"{MODEL}DefaultHoodieRecordPayload", "orderingFields": "ts", **MARKER},
    "mor_v9_two_fields": {"hoodie.datasource.write.precombine.field": "ts,qty"},
    "cow_v9_cdc": {"hoodie.datasource.write.precombine.field": "ts", "hoodie.table.cdc.enabled": "true", **PARTITIONED},
}


@pytest.mark.parametrize("name", MADE_BY)
def test_a_new_table_has_the_properties_of_release_1_1(name: str, tmp_path: Path) -> None:
    real = dict(Table(open_golden(name, tmp_path).path).config.properties)
    options = {**VERSION, **MADE_BY[name]}
    made = Table.create(tmp_path / "t", name=name, record_key="id", table_type=name[:3], options=options)
    own = dict(made.config.properties)
    assert {key: value for key, value in own.items() if value} == {key: value for key, value in real.items() if value}
    # The options that made a table say what it is; others contradict it.
    assert Table(made.uri, options=options).config == made.config
    with pytest.raises(InvalidRequest, match=r"contradicts the table"):
        Table(made.uri, options={**options, PAYLOAD: "com.example.Other"})


def test_keys_of_one_field_and_several_partition_fields_name_the_field(tmp_path: Path) -> None:
    """As release 1.1.1 for the key generator COMPLEX, in new tables: `test_key_forms` has those of other releases."""
    table = Table.create(tmp_path / "t", record_key="id", partition_by=["a", "b"], ordering="ts", options=VERSION)
    rows = pa.table({"id": ["x", "y"], "a": ["1", "2"], "b": ["1", "2"], "ts": [1, 1]})
    for _ in range(2):
        table.upsert(rows)
    assert sorted(table.scan(["_hoodie_record_key"]).to_arrow()["_hoodie_record_key"].to_pylist()) == ["id:x", "id:y"]
    assert table.scan(filter="id = 'x'").count() == table.lookup(["id:x"]).count() == 1
    assert table.delete(rows.slice(1).select(["id", "a", "b"])).rows_deleted == 1
    plain = Table.create(tmp_path / "eight", record_key="id", partition_by=["a", "b"], ordering="ts")
    plain.upsert(rows)
    assert sorted(plain.scan(["_hoodie_record_key"]).to_arrow()["_hoodie_record_key"].to_pylist()) == ["x", "y"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({PAYLOAD: f"{MODEL}AWSDmsAvroPayload", "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"}, "AWSDms"),
        ({PAYLOAD: f"{MODEL}debezium.PostgresDebeziumAvroPayload", "preCombineField": "ts"}, "_event_lsn"),
        ({PAYLOAD: "com.example.Mine", "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}, "com.example.Mine"),
        ({"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"}, "ordering column"),
    ],
)
def test_settings_that_contradict_each_other_make_no_table(options: dict[str, str], found: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=found):
        Table.create(tmp_path / "t", record_key="id", options={**VERSION, **options})
    assert not (tmp_path / "t" / ".hoodie" / "hoodie.properties").exists()


def test_the_version_is_not_changed_by_an_option(tmp_path: Path) -> None:
    Table.create(tmp_path / "old", record_key="id")
    Table.create(tmp_path / "new", record_key="id", options=VERSION)
    for path, other in (("old", "9"), ("new", "8")):
        with pytest.raises(InvalidRequest, match=r"hoodie\.table\.version"):
            Table(tmp_path / path, options={"hoodie.write.table.version": other})


ROWS = pa.table({"id": ["a", "b", "c"], "p": ["x", "y", "x"], "ts": [5, 5, 5], "v": ["a5", "b5", "c5"]})


def rows(*given: tuple[str, str, int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(ROWS.column_names, row, strict=True)) for row in given], ROWS.schema)


def values(table: Table) -> dict[str, str]:
    found = table.scan(["id", "v"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_operation_and_service(kind: str, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", partition_by="p", ordering="ts", table_type=kind, options=VERSION)
    table.bulk_insert(ROWS)
    table.insert(rows(("d", "y", 5, "d5")))
    table.upsert(rows(("a", "x", 6, "a6"), ("b", "y", 4, "late"), ("e", "z", 1, "e1")))
    table.delete(rows(("c", "x", 0, "")).select(["id", "p"]))
    assert values(table) == {"a": "a6", "b": "b5", "d": "d5", "e": "e1"}
    saved = table.savepoint().instant
    table.insert_overwrite(rows(("f", "z", 1, "f1")))
    table.delete_partitions("p=x" if "p=x" in table.partitions() else "x")
    assert values(table) == {"b": "b5", "d": "d5", "f": "f1"}
    if kind == "mor":
        table.upsert(rows(("b", "y", 7, "b7")))
        table.compact()
    table.cluster()
    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    assert values(table) == {"b": "b7" if kind == "mor" else "b5", "d": "d5", "f": "f1"}
    assert table.validate().ok, str(table.validate())
    table.restore(saved)
    table.insert_overwrite_table(rows(("g", "x", 1, "g1")))
    table.rollback(str(table.timeline().completed_writes()[-1].request_time))
    assert values(table) == {"a": "a6", "b": "b5", "d": "d5", "e": "e1"}
    assert table.config.version == 9
    assert table.validate().ok, str(table.validate())


# The worked example of docs/formats/reading.md: two rows, then a newer row of one and an older of the other.
TEXT = pa.string()
EXAMPLE = pa.schema({"id": TEXT, "ts": pa.int64(), "name": TEXT, "amount": pa.float64(), "qty": pa.int32(), "Op": TEXT})
BEFORE = [("a", 1, "x", 1.5, 1, "I"), ("b", 1, "y", None, 2, "I")]
AFTER = [("a", 2, None, 7.5, None, "U"), ("b", 0, "old", 9.0, 9, "U")]
NEWER = ("a", 2, None, 7.5, None, "U")
TOLD: dict[str, list[tuple[object, ...]]] = {
    "OverwriteWithLatest": [NEWER, AFTER[1]],
    "EventTime": [NEWER, BEFORE[1]],
    "OverwriteNonDefaultsWithLatest": [("a", 2, "x", 7.5, 1, "U"), AFTER[1]],
    "PartialUpdate": [("a", 2, "x", 7.5, 1, "U"), ("b", 1, "y", 9.0, 2, "I")],
    "AWSDms": [NEWER, AFTER[1]],
}


def example(*given: tuple[object, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(EXAMPLE.names, row, strict=True)) for row in given], EXAMPLE)


def stored(table: Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.scan(EXAMPLE.names).to_arrow().to_pylist()), key=str)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        *((payload, "mor") for payload in TOLD),
        # One by each merge mode, and the one that deletes.
        *(
            pytest.param(
                payload,
                "cow",
                marks=() if payload in ("OverwriteNonDefaultsWithLatest", "EventTime", "AWSDms") else pytest.mark.wide,
            )
            for payload in TOLD
        ),
    ],
)
def test_translated_payload_classes(payload: str, kind: str, tmp_path: Path) -> None:
    options = {**VERSION, **MADE_BY[f"mor_v9_{payload}"]}
    table = Table.create(tmp_path / "t", record_key="id", table_type=kind, options=options)
    table.upsert(example(*BEFORE))
    table.upsert(example(*AFTER))
    assert stored(table) == TOLD[payload]
    if kind == "mor":
        table.compact()
        assert stored(table) == TOLD[payload]
    # Two rows of one batch are merged as two writes are.
    table.upsert(example(("c", 1, "x", 1.5, 1, "I"), ("c", 2, None, 7.5, None, "U")))
    assert stored(table)[2] == ("c", *TOLD[payload][0][1:])
    # A marked row deletes if the table has the marker, and is stored otherwise.
    table.upsert(example(("a", 3, "gone", 0.0, 0, "D")))
    assert ("a" in {row[0] for row in stored(table)}) is (payload != "AWSDms")
    assert table.validate().ok, str(table.validate())


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("payload", ["PostgresDebezium", "MySqlDebezium"])
def test_changes_of_databases(payload: str, kind: str, tmp_path: Path) -> None:
    """Deletes by an operation type, order by positions, and large columns that a change did not carry."""
    postgres = payload == "PostgresDebezium"
    places = ("_event_lsn",) if postgres else ("_event_bin_file", "_event_pos")
    names = ("id", "_change_operation_type", *places, "x")
    table = Table.create(tmp_path / "t", record_key="id", table_type=kind, options={**VERSION, **MADE_BY[f"mor_v9_{payload}"]})

    def write(*rows: tuple[str, str, int, str]) -> None:
        made = [(key, op, *((at,) if postgres else (f"bin.{at // 10:03d}", at % 10)), x) for key, op, at, x in rows]
        table.upsert(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in made]))

    write(("a", "c", 19, "long"), ("b", "c", 19, "b"), ("c", "c", 19, "c"))
    write(("a", "u", 20, "__debezium_unavailable_value"), ("b", "d", 20, "b"), ("c", "d", 18, "late"))
    write(("b", "u", 18, "too late"))
    found = {row["id"]: row["x"] for row in table.scan(["id", "x"]).to_arrow().to_pylist()}
    # A base file knows nothing of the record that was deleted from it.
    gone = {} if kind == "mor" else {"b": "too late"}
    assert found == {"a": "long" if postgres else "__debezium_unavailable_value", "c": "c", **gone}
    assert table.validate().ok, str(table.validate())


def statistics(path: Path, index: str) -> dict[bytes, dict[str, Any]]:
    table = Table(path)
    metadata = MetadataTable(table.context, table.context.timeline.load())
    return {row["key"]: row for batch in scan_column_stats(metadata, index) for row in batch.to_pylist()}


@pytest.mark.parametrize("name", ["cow_v9_types", "mor_v9_types"])
def test_statistics_are_those_of_release_1_1(name: str, tmp_path: Path) -> None:
    """Of every type, in base files and logs; the sizes apart, which writers of Parquet do not agree on."""
    path = open_golden(name, tmp_path).path
    real = statistics(path, "column_stats")
    table = Table(path)
    table.index.rebuild()
    own = statistics(path, "column_stats")
    told = ("file_name", "column_name", "min", "max", "value_count", "null_count", "value_type", "type_info")
    unlike = {row["column_name"] for row in own.values() if row["max"]["value"].endswith((b"\xf0\x7f", b"\x80\x7f"))}
    compared = set()
    for key, row in own.items():
        # Release 1.1.1 states 0 for columns that are null throughout or hold NaN, where ours state no bounds, or +Infinity.
        if row["null_count"] != row["value_count"] and row["column_name"] not in unlike:
            assert {field: row[field] for field in told} == {field: real[key][field] for field in told}
            compared.add(row["value_type"])
    # Whole numbers, text, bytes, decimals, dates and timestamps.
    assert {3, 4, 7, 8, 10, 12, 16} <= compared
    assert table.validate().ok, str(table.validate())


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["cow_v9", "mor_v9_indexes", "mor_v9_upgraded"])
def test_tables_of_release_1_1_are_written_with_their_indexes(name: str, tmp_path: Path) -> None:
    """Each index in the form that its definition names, also when the metadata table is compacted."""
    path = open_golden(name, tmp_path).path
    table = Table(path, options={"hoodie.metadata.compact.max.delta.commits": 2})
    before = table.config.metadata_partitions
    document = (path / ".hoodie" / ".index_defs" / "index.json").read_text()
    rows = table.scan().to_arrow()
    newer = rows.set_column(1, "ts", pc.add(rows["ts"], 1))
    for _ in range(3):
        table.upsert(newer)
    table.delete(newer.slice(0, 1))
    assert_same_rows(table.scan().to_arrow(), newer.slice(1))
    assert table.validate().ok, str(table.validate())
    assert table.config.metadata_partitions == before
    assert (path / ".hoodie" / ".index_defs" / "index.json").read_text() == document


def test_new_indexes_have_version_2(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", partition_by="p", ordering="ts", table_type="mor", options=VERSION)
    table.upsert(ROWS, options={"hoodie.metadata.record.index.enable": "true"})
    table.index.create("secondary_index", "v")
    table.index.create("column_stats", "ts", function="from_unixtime", function_options={"format": "yyyy-MM-dd"})
    for number in range(12):
        table.upsert(rows(("a", "x", 6, f"a{number}")))
    document = json.loads((tmp_path / "t" / ".hoodie" / ".index_defs" / "index.json").read_text())["indexDefinitions"]
    named = {name: definition["version"] for name, definition in document.items()}
    assert named.pop("record_index") == "V1" and set(named.values()) == {"V2"} and len(named) == 3
    by_value = table.scan(["id"], filter=[("v", "=", "a11")])
    assert by_value.to_arrow()["id"].to_pylist() == ["a"]
    assert "secondary index" in str(by_value.explain())
    assert table.validate().ok, str(table.validate())


RECORDS = pa.schema({"id": pa.string(), "city": pa.string(), "ts": pa.int64(), "v": pa.string(), "qty": pa.int32()})
MOVING = {"hoodie.index.type": "RECORD_INDEX", "hoodie.record.index.update.partition.path": "true"}
# What release 1.1.1 makes of the same writes, but for d and e: seen of the first class, copy on write and merge on read, and of
# the second, merge on read.
MOVED: dict[str, tuple[set[tuple[object, ...]], set[tuple[object, ...]]]] = {
    "PartialUpdateAvroPayload": (
        {
            ("a", "y", 6, "a5", 9),
            ("b", "x", 5, "b5", 2),
            ("c", "y", 5, "c5", 3),
            ("d", "x", 5, "late", 4),
            ("e", "x", 6, "e6", 5),
        },
        {
            ("a", "x", 7, "a5", 9),
            ("b", "y", 8, "b5", 2),
            ("c", "y", 5, "c5", 3),
            ("d", "x", 5, "late", 4),
            ("e", "x", 6, "e6", 5),
        },
    ),
    "OverwriteNonDefaultsWithLatestAvroPayload": (
        {
            *{("a", "y", 6, "a5", 9), ("b", "y", 4, "late", 2), ("c", "y", 5, "c5", 3)},
            *{("d", "y", 4, "late", 4), ("e", "x", 6, "e6", 5)},
        },
        {
            *{("a", "x", 7, "a5", 9), ("b", "y", 8, "late", 2), ("c", "y", 5, "c5", 3)},
            *{("d", "y", 4, "late", 4), ("e", "x", 6, "e6", 5)},
        },
    ),
}


def _records(*rows: tuple[str, str | None, int, str | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(RECORDS.names, row, strict=True)) for row in rows], RECORDS)


def _found(table: Table) -> set[tuple[object, ...]]:
    rows = table.scan([*RECORDS.names, "_hoodie_partition_path"]).to_arrow()
    assert rows["city"].to_pylist() == rows["_hoodie_partition_path"].to_pylist()
    assert table.validate().ok
    return {tuple(row[name] for name in RECORDS.names) for row in rows.to_pylist()}


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("payload", MOVED)
def test_records_that_move_are_filled_from_what_they_were(payload: str, kind: str, tmp_path: Path) -> None:
    """The late d fills a gap in its place; e, without a city, keeps the value that filled it."""
    options = {**VERSION, **PARTITIONED, **MOVING, PAYLOAD: MODEL + payload, "hoodie.compact.inline": "false"}
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", table_type=kind, options=options)
    table.upsert(_records(("a", "x", 5, "a5", 1), ("b", "x", 5, "b5", 2), ("c", "x", 5, "c5", 3), ("e", "x", 5, "e5", 5)))
    table.upsert(_records(("d", "x", 5, None, 4)))
    table.upsert(
        _records(
            *(("a", "y", 6, None, 9), ("b", "y", 4, "late", None), ("c", "y", 5, None, None)),
            *(("d", "y", 4, "late", None), ("e", None, 6, "e6", None)),
        )
    )
    assert _found(table) == MOVED[payload][0]
    table.upsert(_records(("a", "x", 7, None, None), ("b", "y", 8, None, None)))
    assert _found(table) == MOVED[payload][1]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("payload", MOVED)
def test_partial_updates_under_update_modes(payload: str, kind: str, tmp_path: Path) -> None:
    """As MERGE INTO of release 1.1.1, which writes whole rows there; an explicit null means the same as an omitted column."""
    options = {**VERSION, PAYLOAD: MODEL + payload, "hoodie.compact.inline": "false"}
    table = Table.create(tmp_path / "t", record_key="id", partition_by="city", ordering="ts", table_type=kind, options=options)
    table.upsert(_records(*((key, "x", 5, None if key == "c" else f"{key}5", at) for at, key in enumerate("abcd", 1))))
    news = _records(("a", "x", 6, None, 0), ("b", "x", 4, "late", 0), ("c", "x", 4, "late", 0), ("d", "x", 6, "d6", 0))
    more = _records(("a", "x", 6, "twice", 0), ("new", "x", 6, "new", 0))
    table.upsert(pa.concat_tables([news, more]).select(["id", "city", "ts", "v"]), partial=True)
    late = {("b", "x", 5, "b5", 2), ("c", "x", 5, "late", 3)}
    if payload.startswith("OverwriteNonDefaults"):
        late = {("b", "x", 4, "late", 2), ("c", "x", 4, "late", 3)}
    assert _found(table) == {("a", "x", 6, "twice", 1), *late, ("d", "x", 6, "d6", 4)}
    table.upsert(_records(("a", "x", 7, None, 7), ("d", "x", 7, None, None)))
    assert _found(table) == {("a", "x", 7, "twice", 7), *late, ("d", "x", 7, "d6", 4)}
