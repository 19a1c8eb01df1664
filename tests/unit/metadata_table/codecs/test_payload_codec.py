"""Metadata records in PyHudi's schema, in schemas of other writers, and damaged."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.metadata_table.codecs.bloom_filter_codec import BLOOM_FILTER_SCHEMA, decode_bloom_filters, encode_bloom_filters
from pyhudi.metadata_table.codecs.column_stats_codec import decode_column_stats
from pyhudi.metadata_table.codecs.files_codec import decode_files
from pyhudi.metadata_table.codecs.metadata_schema import RECORD_SCHEMA, Payload
from pyhudi.metadata_table.codecs.payload_codec import decode_payload
from pyhudi.metadata_table.codecs.record_index_codec import decode_locations
from pyhudi.metadata_table.codecs.secondary_index_codec import decode_secondary_values, encode_secondary_values

# Bytes of real log records.
LOCATION = (
    bytes.fromhex("0000000000000a00000002020e")
    + b"part=aa"
    + bytes.fromhex("0296a8ea89efa8eceb50" + "02a390edf8e1cee2968001" + "02000200" + "02a69ccac7bf68" + "000000")
)
SECONDARY = bytes.fromhex("0000000000000e000000000200")
PARTITIONS = bytes.fromhex("000000000000020204" + "14") + "part=é ü".encode() + bytes.fromhex("00000e") + b"part=aa" + bytes(7)
FLOAT_STATS = (
    bytes.fromhex("00000000000006000002" + "0208")
    + b"file"
    + bytes.fromhex("020266" + "0800000080" + "08abaaca40" + "0228" + "0200" + "02de01" + "02de01" + "00" + "00" + "0000")
)
VALUES = {
    Payload.RECORD_INDEX: LOCATION,
    Payload.SECONDARY_INDEX: SECONDARY,
    Payload.FILES: PARTITIONS,
    Payload.COLUMN_STATS: FLOAT_STATS,
}


def binary(*values: bytes) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def written(schema: str, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), record)
    return out.getvalue()


def test_real_values() -> None:
    assert decode_locations(binary(LOCATION), RECORD_SCHEMA).to_pylist() == [
        {"partition": "part=aa", "file_id": "286bd8a3-789d-4a0b-bfe9-3ac4f0725bee-0", "instant_ms": 1795237168915}
    ]
    assert decode_secondary_values(binary(SECONDARY), RECORD_SCHEMA).to_pylist() == [False]
    assert encode_secondary_values(2).to_pylist() == [SECONDARY, SECONDARY]
    files = decode_files(binary(b"__all_partitions__"), binary(PARTITIONS), RECORD_SCHEMA).to_pylist()
    assert [(row["partition"], row["name"], row["size_bytes"]) for row in files] == [
        ("__all_partitions__", "part=é ü", 0),
        ("__all_partitions__", "part=aa", 0),
    ]
    stats, types = decode_column_stats(binary(FLOAT_STATS), RECORD_SCHEMA)
    assert types.to_pylist() == [3]
    assert (stats["file_name"][0].as_py(), stats["column_name"][0].as_py()) == ("file", "f")
    assert stats["min"][0].as_py() == {"kind": 4, "value": bytes.fromhex("00000080")}
    assert (stats["value_count"][0].as_py(), stats["null_count"][0].as_py(), stats["total_size_bytes"][0].as_py()) == (20, 0, 111)


def test_keys_and_meta_fields_in_the_value_are_ignored() -> None:
    record = {
        "_hoodie_file_name": "files-0000-0_0-5-4_00000000000000000.hfile",
        "_hoodie_commit_time": "1",
        "key": "a key that was not blanked",
        "type": 7,
        "SecondaryIndexMetadata": {"isDeleted": True},
    }
    values = binary(SECONDARY, written(RECORD_SCHEMA, record))
    assert decode_secondary_values(values, RECORD_SCHEMA).to_pylist() == [False, True]


def test_records_of_another_kind_are_corrupt() -> None:
    for payload in Payload:
        for other, value in VALUES.items():
            if other is not payload:
                with pytest.raises(CorruptData):
                    decode_payload(binary(value), RECORD_SCHEMA, payload)


@pytest.mark.parametrize("payload", list(VALUES))
def test_truncated_at_each_byte(payload: Payload) -> None:
    value = VALUES[payload]
    decode_payload(binary(value), RECORD_SCHEMA, payload)
    for length in range(len(value)):
        with pytest.raises(CorruptData):
            decode_payload(binary(value[:length]), RECORD_SCHEMA, payload)
    with pytest.raises(CorruptData):
        decode_payload(binary(value + b"\x00"), RECORD_SCHEMA, payload)


@given(st.sampled_from(sorted(VALUES)), st.data())
def test_a_flipped_bit_is_a_value_or_a_known_error(name: str, draw: st.DataObject) -> None:
    payload = Payload(name)
    value = bytearray(VALUES[payload])
    value[draw.draw(st.integers(0, len(value) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        decode_payload(binary(bytes(value)), RECORD_SCHEMA, payload)
        if payload is Payload.RECORD_INDEX:
            decode_locations(binary(bytes(value)), RECORD_SCHEMA)
    except (CorruptData, Unsupported):
        pass


def changed(path: list[Any], change: Any) -> str:
    """Our schema with a field list changed: `path` leads to it, `change` gets it."""
    schema = json.loads(RECORD_SCHEMA)
    node = schema
    for step in path:
        node = node[step]
    change(node)
    return json.dumps(schema)


def field(name: str) -> int:
    return [each["name"] for each in json.loads(RECORD_SCHEMA)["fields"]].index(name)


STATS_FIELDS = ["fields", field("ColumnStatsMetadata"), "type", 1, "fields"]
FULL_STATS = {
    "fileName": "f",
    "columnName": "c",
    "minValue": ("org.apache.hudi.avro.model.IntWrapper", {"value": -3}),
    "maxValue": ("org.apache.hudi.avro.model.IntWrapper", {"value": 7}),
    "valueCount": 5,
    "nullCount": 1,
    "totalSize": 9,
    "totalUncompressedSize": 10,
    "isDeleted": False,
}


def test_a_schema_of_version_6_lacks_fields() -> None:
    def shorten(fields: list[Any]) -> None:
        del fields[-1]

    def without_last_payload(root: dict[str, Any]) -> None:
        del root["fields"][-1]

    schema = changed(STATS_FIELDS, shorten)
    stats, _ = decode_column_stats(binary(written(schema, {"key": "", "type": 3, "ColumnStatsMetadata": FULL_STATS})), schema)
    assert stats["is_tight"].to_pylist() == [False]
    assert stats["max"].to_pylist() == [{"kind": 2, "value": b"\x0e"}]
    schema = changed([], without_last_payload)
    assert decode_locations(binary(LOCATION[:-1]), schema).num_rows == 1
    with pytest.raises(Unsupported):
        decode_secondary_values(binary(SECONDARY), schema)


def test_schema_without_a_required_field_is_refused() -> None:
    def without_counts(fields: list[Any]) -> None:
        del fields[4]

    schema = changed(STATS_FIELDS, without_counts)
    with pytest.raises(Unsupported, match="valueCount"):
        decode_column_stats(binary(written(schema, {"key": "", "type": 3, "ColumnStatsMetadata": FULL_STATS})), schema)


def test_later_schema_has_more_fields_and_types_of_bounds() -> None:
    later = {"type": "record", "name": "LaterWrapper", "fields": [{"name": "value", "type": "long"}]}
    list_of = {"type": "record", "name": "ListWrapper", "fields": [{"name": "value", "type": {"type": "array", "items": "long"}}]}

    def extend(fields: list[Any]) -> None:
        fields[2]["type"] += [later, list_of]
        fields[3]["type"] += ["LaterWrapper", "ListWrapper"]
        fields.insert(2, {"name": "laterValue", "type": ["null", "string"], "default": None})

    schema = changed(STATS_FIELDS, extend)
    model = "org.apache.hudi.avro.model."
    bounds = {"minValue": (model + "LaterWrapper", {"value": 1}), "maxValue": (model + "LaterWrapper", {"value": 300})}
    rows = [FULL_STATS, FULL_STATS | bounds | {"laterValue": "x"}]
    values = binary(*(written(schema, {"key": "", "type": 3, "ColumnStatsMetadata": row}) for row in rows))
    stats, _ = decode_column_stats(values, schema)
    assert [row["kind"] for row in stats["min"].to_pylist()] == [2, 255]
    assert stats["value_count"].to_pylist() == [5, 5]
    listed = FULL_STATS | {"minValue": (model + "ListWrapper", {"value": [1]})}
    with pytest.raises(Unsupported):
        decode_column_stats(binary(written(schema, {"key": "", "type": 3, "ColumnStatsMetadata": listed})), schema)


def test_schemas_that_are_none() -> None:
    with pytest.raises(CorruptData):
        decode_payload(binary(SECONDARY), "{", Payload.FILES)
    with pytest.raises(CorruptData):
        decode_payload(binary(SECONDARY), '"string"', Payload.FILES)
    with pytest.raises(Unsupported):
        decode_payload(binary(SECONDARY), '{"type":"record","name":"r","fields":[{"name":"key","type":"string"}]}', Payload.FILES)


def test_no_values() -> None:
    for payload in Payload:
        types, payloads = decode_payload(binary(), RECORD_SCHEMA, payload)
        assert len(types) == len(payloads) == 0


def test_many_values_round_trip_in_order() -> None:
    count = 40_000
    columns = [
        pa.repeat("SIMPLE", count),
        pa.array([str(number % 7) for number in range(count)]),
        pa.array([b"x" * (number % 5) for number in range(count)]),
        pa.array([number % 3 == 0 for number in range(count)]),
    ]
    filters = pa.RecordBatch.from_arrays(columns, schema=BLOOM_FILTER_SCHEMA)
    values = encode_bloom_filters(filters)
    assert decode_bloom_filters(values, RECORD_SCHEMA).equals(filters)
    large = pa.array([b"y" * 3_000_000] * 4 + [b"z" * 5_000_000], pa.binary())
    filters = pa.RecordBatch.from_arrays(
        [pa.array(["SIMPLE"] * 5), pa.array(list("abcde")), large, pa.array([False] * 5)], schema=BLOOM_FILTER_SCHEMA
    )
    assert decode_bloom_filters(encode_bloom_filters(filters), RECORD_SCHEMA).equals(filters)
