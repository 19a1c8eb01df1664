"""DELETE blocks: bytes of Apache Hudi in versions 2 and 3, all types of lists, damaged bytes."""

from __future__ import annotations

import io
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro_wrappers import Wrapper, no_ordering, wrap_ordering, wrap_ordering_values
from pyhudi.format.byte_cursor import encode_zigzag
from pyhudi.format.log.delete_blocks import DELETES, decode_deletes, deletes_batch, encode_deletes
from tests.support.kryo import class_named, kryo, text
from tests.support.vectors import vector_body


def decoded(content: bytes) -> pa.Table:
    return pa.Table.from_batches(decode_deletes(content), DELETES)


def rows(content: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decoded(content).to_pylist()
    return found


@pytest.mark.parametrize(
    ("keys", "ordering", "content"),
    [
        (["a"], wrap_ordering(pa.array([10**12])), "000000030000000e" + "02" + "020261" + "0200" + "0680c0a8ca9a3a" + "00"),
        (
            ["K1", "K2", "K3"],
            None,
            "000000030000001a" + "06" + "02044b3102000400" + "02044b3202000400" + "02044b3302000400" + "00",
        ),
        (["K1"], wrap_ordering(pa.array(["s7"])), "000000030000000c" + "02" + "02044b310200" + "0e047337" + "00"),
        ([], None, "00000003" + "00000001" + "00"),
    ],
)
def test_contents_of_the_reference(keys: list[str], ordering: pa.Array | None, content: str) -> None:
    batch = deletes_batch(pa.array(keys, pa.string()), "", ordering)
    assert encode_deletes([batch]).hex() == content
    assert decoded(bytes.fromhex(content)).equals(pa.Table.from_batches([batch]))


def test_kryo_content_of_apache_hudi() -> None:
    found = rows(vector_body("log/delete-block-v2-content-10-records.data"))
    assert len(found) == 10
    assert found[0]["record_key"] == "d448e1b8-a0d4-45c0-bf2d-a9e16ff3c8ce"
    assert found[9]["record_key"] == "d76007d2-9dc8-46ff-bf6f-0789c6ffffc0"
    assert {row["partition_path"] for row in found} == {"0000/00/00"}
    assert {row["ordering"] for row in found} == {0}


WRAPPERS = ["boolean", "int", "long", "float", "double", "bytes", "string", "int", "bytes", "long", "long"]
NAMES = ["Boolean", "Int", "Long", "Float", "Double", "Bytes", "String", "Date", "Decimal", "TimeMicros", "TimestampMicros"]
RECORD_LIST = {
    "type": "record",
    "name": "HoodieDeleteRecordList",
    "fields": [
        {
            "name": "deleteRecordList",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "HoodieDeleteRecord",
                    "fields": [
                        {"name": "recordKey", "type": ["null", "string"]},
                        {"name": "partitionPath", "type": ["null", "string"]},
                        {
                            "name": "orderingVal",
                            "type": [
                                "null",
                                *(
                                    {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": "value", "type": kind}]}
                                    for name, kind in zip(NAMES, WRAPPERS, strict=True)
                                ),
                            ],
                        },
                    ],
                },
            },
        }
    ],
}


def written_by_fastavro(records: list[tuple[str, str, str, Any]]) -> bytes:
    """Records of key, partition path, wrapper and value."""
    items = [
        {
            "recordKey": key,
            "partitionPath": path,
            "orderingVal": None if wrapper == "null" else (f"{wrapper}Wrapper", {"value": value}),
        }
        for key, path, wrapper, value in records
    ]
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(RECORD_LIST), {"deleteRecordList": items})
    payload = buffer.getvalue()
    return b"\0\0\0\x03" + len(payload).to_bytes(4, "big") + payload


RECORDS = st.lists(
    st.tuples(
        st.text(max_size=100),
        st.sampled_from(["", "2026/01/01", "p" * 80]),
        st.sampled_from(
            [("Int", 0), ("Long", 5), ("Long", 2**40), ("Double", 0.5), ("String", "é" * 70), ("Boolean", True), ("null", None)]
        ),
    ),
    max_size=40,
)


@given(RECORDS, st.sampled_from([1, 20]))
def test_delete_block_of_fastavro_is_decoded(few: list[tuple[str, str, tuple[str, Any]]], repeat: int) -> None:
    records = [(key, path, wrapper, value) for key, path, (wrapper, value) in few * repeat]
    content = written_by_fastavro(records)
    found = decoded(content)
    assert found.to_pylist() == [{"record_key": k, "partition_path": p, "ordering": v} for k, p, _, v in records]
    if all(wrapper != "null" for _, _, wrapper, _ in records):
        assert encode_deletes(found.to_batches()) == content


def test_long_lists_of_every_shape() -> None:
    chooser = random.Random(7)

    def key(row: int) -> str:
        # Long stretches of one length, broken by others, and keys that look like the bytes between keys.
        if row % 5_000 < 300:
            return "\x02\x00\x04\x00" * chooser.randint(0, 30)
        return f"key-{row:09d}"

    keys = [key(row) for row in range(40_000)]
    numbers = [row if row % 7_000 else None for row in range(40_000)]
    batch = deletes_batch(pa.array(keys), "part", wrap_ordering(pa.array(numbers, pa.int64())))
    content = encode_deletes([batch.slice(0, 25_000), batch.slice(25_000)])
    assert decoded(content).equals(pa.Table.from_batches([batch]))
    listed = [(k, "part", "Int" if n is None else "Long", n or 0) for k, n in zip(keys, numbers, strict=True)]
    assert written_by_fastavro(listed) == content


def test_lists_in_several_blocks() -> None:
    one = bytes.fromhex("02044b3102000400")
    payload = encode_zigzag(2) + one + one + encode_zigzag(-1) + encode_zigzag(len(one)) + one + b"\0"
    assert len(rows(b"\0\0\0\x03" + len(payload).to_bytes(4, "big") + payload)) == 3


def test_partition_paths_of_their_own() -> None:
    batch = deletes_batch(pa.array(["a", "b"]), pa.array(["p", "q"]))
    assert rows(encode_deletes([batch])) == [
        {"record_key": "a", "partition_path": "p", "ordering": 0},
        {"record_key": "b", "partition_path": "q", "ordering": 0},
    ]


def test_invalid_deletes_are_not_encoded() -> None:
    with pytest.raises(InvalidRequest, match="key"):
        encode_deletes([deletes_batch(pa.array(["a", None]), "")])
    with pytest.raises(InvalidRequest, match="ordering"):
        encode_deletes([deletes_batch(pa.array(["a"]), "", wrap_ordering_values(pa.nulls(1, pa.int64()), Wrapper.LONG))])
    with pytest.raises(InvalidRequest):
        encode_deletes([deletes_batch(pa.array(["a"]), "", wrap_ordering_values(pa.array([1], pa.date32()), Wrapper.LOCAL_DATE))])


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", CorruptData),
        ("0000000400000001" + "00", Unsupported),
        ("0000000000000001" + "00", Unsupported),
        ("ffffffff00000001" + "00", CorruptData),
        ("0000000300000002" + "00", CorruptData),
        ("0000000300000000" + "00", CorruptData),
        ("0000000300000002" + "0000", CorruptData),
        ("0000000300000001" + "02", CorruptData),
        ("00000003" + "0000000a" + "ffffffffffffffffff01", CorruptData),
        ("00000003" + "0000000a" + "feffffffffffffffff01", CorruptData),
        ("00000003" + "00000005" + "02" + "00" + "00" + "18" + "00", CorruptData),
        ("00000003" + "00000005" + "02" + "04" + "00" + "00" + "00", CorruptData),
        ("00000003" + "00000006" + "02" + "0202ff" + "00" + "00" + "00", CorruptData),
    ],
)
def test_damaged_contents(content: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        rows(bytes.fromhex(content))


def sample(version: int) -> bytes:
    if version == 2:
        return vector_body("log/delete-block-v2-content-10-records.data")
    ordering = pa.concat_arrays([wrap_ordering(pa.array([300, None, 7])), wrap_ordering(pa.array(["x"])), no_ordering(36)])
    return encode_deletes([deletes_batch(pa.array([f"key{row}" for row in range(40)]), "p", ordering)])


@pytest.mark.parametrize("version", [2, 3])
def test_every_truncation_is_an_error(version: int) -> None:
    content = sample(version)
    for end in range(len(content)):
        with pytest.raises(CorruptData):
            rows(content[:end])
        if end >= 8:
            # The same with a size that matches the rest.
            with pytest.raises((CorruptData, Unsupported)):
                rows(content[:4] + (end - 8).to_bytes(4, "big") + content[8:end])


@pytest.mark.parametrize("version", [2, 3])
def test_flipped_bits_give_deletes_or_an_error(version: int) -> None:
    content = sample(version)
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            decoded(bytes(damaged)).validate(full=True)
        except (CorruptData, Unsupported):
            pass


@settings(max_examples=300)
@given(st.sampled_from([1, 2, 3]), st.binary(max_size=60))
def test_any_bytes_give_deletes_or_an_error(version: int, payload: bytes) -> None:
    try:
        decoded(version.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload)
    except (CorruptData, Unsupported):
        pass


def test_kryo_version_1_holds_keys() -> None:
    content = kryo(1, [b"\x01" + text("part") + b"\x01" + text("k1"), b"\x04" + b"\x01" + text("k2")])
    assert rows(content) == [
        {"record_key": "k1", "partition_path": "part", "ordering": 0},
        {"record_key": "k2", "partition_path": "part", "ordering": 0},
    ]


# 30 digits, 15 of them behind the point.
LONG_DECIMAL = class_named(3, "java.math.BigDecimal") + b"\x01\x0e" + (1 - 10**30).to_bytes(13, "big", signed=True) + b"\x1e"


@pytest.mark.parametrize(
    ("ordering", "value", "wrapper"),
    [
        (b"\x00", None, Wrapper.NULL),
        (b"\x02\x0e", 7, Wrapper.INT),
        (b"\x09\x0e", 7, Wrapper.LONG),
        (b"\x0a" + b"\x40\x1c" + bytes(6), 7.0, Wrapper.DOUBLE),
        (b"\x04" + b"\x3f\x80\0\0", 1.0, Wrapper.FLOAT),
        (b"\x05\x01", True, Wrapper.BOOLEAN),
        (b"\x08\x00\x05", 5, Wrapper.INT),
        (b"\x03\x01" + text("s7"), "s7", Wrapper.STRING),
        (b"\x03\x01" + b"\x83\xc3\xa9\x61", "éa", Wrapper.STRING),
        (LONG_DECIMAL, Decimal("-999999999999999.999999999999999"), Wrapper.DECIMAL),
    ],
)
def test_kryo_ordering_values(ordering: bytes, value: Any, wrapper: Wrapper) -> None:
    key = class_named(2, "org.apache.hudi.common.model.HoodieKey") + b"\x01" + b"\x01\x81" + b"\x01" + text("k1")
    content = kryo(2, [key + ordering])
    (batch,) = decode_deletes(content)
    assert batch.to_pylist() == [{"record_key": "k1", "partition_path": "", "ordering": value}]
    assert batch.column("ordering").type_codes.to_pylist() == [wrapper]


def test_kryo_of_other_classes() -> None:
    key = class_named(2, "org.apache.hudi.common.model.HoodieKey") + b"\x01" + b"\x01\x81" + b"\x01" + text("k1")
    with pytest.raises(Unsupported, match="Timestamp"):
        rows(kryo(2, [key + class_named(3, "java.sql.Timestamp") + b"\x01\x02"]))
    with pytest.raises(Unsupported, match="HoodieKey"):
        rows(kryo(2, [class_named(2, "example.Key")]))
