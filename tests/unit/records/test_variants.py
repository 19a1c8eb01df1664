"""Variant values: JSON in both directions, paths, shredded columns, and damaged bytes."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData, HudiError, InvalidRequest, Unsupported
from pyhudi.format.hudi_types import VARIANT_TYPE
from pyhudi.records.variants.variant_encoding import variants_from_json
from pyhudi.records.variants.variant_json import variants_to_json
from pyhudi.records.variants.variant_path import parse_path, target_type, variant_get
from pyhudi.records.variants.variant_shredding import is_shredded, unshredded

TEXTS = [
    "1",
    "-129",
    "70000",
    "12345678901",
    "123456789012345678901234567890",
    "-0.05",
    "0.00000001",
    "1e300",
    "true",
    "null",
    None,
    '"abc"',
    '"' + "é" * 50 + '"',
    "[]",
    "{}",
    '[1,[2,{"b":3,"a":"x\\n\\"y"}],null]',
    '{"z":1,"a":{"k":[1,2,3]},"é":false,"":0}',
    json.dumps(list(range(300))),
    json.dumps({f"k{i}": i for i in range(300)}),
    json.dumps({"long": "x" * 70_000, "more": [["y" * 300]]}),
]


def values(texts: list[str | None]) -> pa.StructArray:
    return variants_from_json(pa.array(texts, pa.string()))


def test_json_survives_the_encoding() -> None:
    variants = values(TEXTS)
    assert variants.type == VARIANT_TYPE
    found = variants_to_json(variants).to_pylist()
    for text, other in zip(TEXTS, found, strict=True):
        expected, read = (None if t is None else json.loads(t, parse_float=Decimal) for t in (text, other))
        assert (text is None) == (other is None) and expected == read
    assert variants_to_json(variants.slice(3, 9)).to_pylist() == found[3:12]
    assert variants_to_json(variants.slice(0, 0)).to_pylist() == []


def test_duckdb_reads_the_same() -> None:
    extension = {"ARROW:extension:name": "arrow.parquet.variant", "ARROW:extension:metadata": ""}
    variants = values([text for text in TEXTS if text not in (None, "null", "1e300")])
    rows = pa.table([variants], schema=pa.schema([pa.field("v", VARIANT_TYPE, metadata=extension)]))
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        found = [json.loads(text) for (text,) in connection.sql("SELECT v::JSON::VARCHAR FROM rows").fetchall()]
    expected = [json.loads(text) for text in variants_to_json(variants).to_pylist()]
    assert [json.dumps(v, sort_keys=True) for v in found] == [json.dumps(v, sort_keys=True) for v in expected]


def encoded(kind: int, data: bytes) -> dict[str, bytes]:
    return {"metadata": b"\x01\x00\x00", "value": bytes([kind << 2]) + data}


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (11, (19_844).to_bytes(4, "little"), '"2024-05-01"'),
        (12, (1_500_000).to_bytes(8, "little"), '"1970-01-01 00:00:01.5+00:00"'),
        (13, (1_000_000).to_bytes(8, "little"), '"1970-01-01 00:00:01"'),
        (14, np.float32(1.5).tobytes(), "1.5"),
        (7, np.float64(np.nan).tobytes(), '"NaN"'),
        (7, np.float64(1e10).tobytes(), "1.0E10"),
        (15, b"\x02\x00\x00\x00\xde\xad", '"3q0="'),
        (17, (25_689_000_000).to_bytes(8, "little"), '"07:08:09"'),
        (18, (1_000_000_001).to_bytes(8, "little"), '"1970-01-01 00:00:01.000000001+00:00"'),
        (19, (1_000_000_001).to_bytes(8, "little"), '"1970-01-01 00:00:01.000000001"'),
        (20, bytes.fromhex("f24f9b6481fa49d1b74e8c09a6e31c56"), '"f24f9b64-81fa-49d1-b74e-8c09a6e31c56"'),
        (8, b"\x02" + (1250).to_bytes(4, "little"), "12.5"),
        (9, b"\x03" + (-5).to_bytes(8, "little", signed=True), "-0.005"),
        (10, b"\x00" + (10**30).to_bytes(16, "little"), "1" + "0" * 30),
    ],
)
def test_json_of_types_that_json_lacks(kind: int, data: bytes, text: str) -> None:
    assert variants_to_json(pa.array([encoded(kind, data)], VARIANT_TYPE)).to_pylist() == [text]


def test_unknown_primitive_types_are_refused() -> None:
    with pytest.raises(Unsupported, match="primitive type 40"):
        variants_to_json(pa.array([encoded(40, b"")], VARIANT_TYPE))


PATHS = [
    '{"a":{"b":1,"c":[10,20,{"d":"x"}]},"e":"5"}',
    '{"a":{"b":"7"}}',
    '{"a":5}',
    None,
    "null",
    "[1]",
    '{"a":{"b":null}}',
    '{"a":{"b":1.75}}',
    '{"a":{"b":99999999999}}',
    '{"a":{"b":[1,2]}}',
]


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("$.a.b", "int", [1, 7, None, None, None, None, None, 1, None, None]),
        ("$.a.b", "string", ["1", "7", None, None, None, None, None, "1.75", "99999999999", "[1,2]"]),
        ("$.a.b", "double", [1.0, 7.0, None, None, None, None, None, 1.75, 99999999999.0, None]),
        ("$.a.b", "boolean", [True, None, None, None, None, None, None, True, True, None]),
        ("$['a'][\"c\"][2].d", "string", ["x"] + [None] * 9),
        ("$[0]", "bigint", [None] * 5 + [1] + [None] * 4),
        ("$.none", "date", [None] * 10),
    ],
)
def test_parts_are_extracted_by_path(path: str, kind: str, expected: list[Any]) -> None:
    assert variant_get(values(PATHS), parse_path(path), target_type(kind)).to_pylist() == expected


def test_strict_extraction_names_the_row() -> None:
    with pytest.raises(InvalidRequest, match="row 8: variant_get: 99999999999 is no int32"):
        variant_get(values(PATHS), parse_path("$.a.b"), target_type("int"), strict=True)
    with pytest.raises(Unsupported, match="to the type 'interval'"):
        target_type("interval")


@pytest.mark.parametrize("text", ["", "a", "$a", "$..b", "$.a[", "$['a", "$.a[x]", "$.", "$[-1]"])
def test_invalid_variant_path_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest, match="path"):
        parse_path(text)


@pytest.mark.parametrize("text", ["{", "'a'", "NaN", "[1,]", '{"a":1,"a":2}', "", "[" * 5000])
def test_invalid_json_is_rejected_with_its_row(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"row 1 \(counted from 0\)"):
        values(["1", text])


def test_shredded_columns_are_put_together(tmp_path: Path) -> None:
    """Objects with and without fields in columns, lists, scalars of another type, nulls and missing fields."""
    path = tmp_path / "shredded.parquet"
    with duckdb.connect() as connection:
        connection.sql(f"""
            COPY (SELECT i AS id, (CASE WHEN i % 5 = 4 THEN NULL WHEN i % 7 = 6 THEN '[1,2]' ELSE
              '{{"a":' || i || ',"s":"t' || i || '","o":{{"p":' || i || '.5,"q":[1,' || i || ']}},"l":[' || i || ',2]'
              || (CASE WHEN i % 3 = 0 THEN ',"z":{{"k":1}}' ELSE '' END)
              || (CASE WHEN i % 11 = 0 THEN ',"a' || i || '":null' ELSE '' END) || '}}' END)::JSON::VARIANT AS v
            FROM range(100) t(i)) TO '{path}'""")
        found = connection.sql(f"SELECT v::JSON::VARCHAR FROM '{path}' ORDER BY id").fetchall()
    column = pq.read_table(path)["v"].combine_chunks()
    assert is_shredded(column.type)
    texts = variants_to_json(unshredded(column)).to_pylist()
    expected = [None if text in (None, "null") else json.loads(text) for (text,) in found]
    assert [None if text in (None, "null") else json.loads(text) for text in texts] == expected
    assert variants_to_json(unshredded(column.slice(40, 20))).to_pylist() == texts[40:60]


def shredded(typed: pa.Array, rest: list[bytes | None], names: list[str]) -> pa.StructArray:
    metadata = values([json.dumps(dict.fromkeys(names, 1))] * len(rest)).field(0)
    return pa.StructArray.from_arrays([metadata, pa.array(rest, pa.binary()), typed], names=["metadata", "value", "typed_value"])


def test_scalars_of_every_type_are_put_together() -> None:
    for typed, text in (
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([1, -1], pa.int8()), ["1", "-1"]),
        (pa.array([1, -1], pa.int16()), ["1", "-1"]),
        (pa.array([1, -1], pa.int64()), ["1", "-1"]),
        (pa.array([1.5, 2], pa.float32()), ["1.5", "2.0"]),
        (pa.array([Decimal("1.50"), Decimal("-3")], pa.decimal128(9, 2)), ["1.5", "-3"]),
        (pa.array([Decimal("1.50"), Decimal("-3")], pa.decimal128(30, 2)), ["1.5", "-3"]),
        (pa.array([0, 1], pa.date32()), ['"1970-01-01"', '"1970-01-02"']),
        (pa.array([0, 1], pa.timestamp("us", "UTC")), ['"1970-01-01 00:00:00+00:00"', '"1970-01-01 00:00:00.000001+00:00"']),
        (pa.array(["a", "é"]), ['"a"', '"é"']),
        (pa.array([b"a", b""]), ['"YQ=="', '""']),
    ):
        assert variants_to_json(unshredded(shredded(typed, [None, None], []))).to_pylist() == text
    with pytest.raises(Unsupported, match="duration"):
        unshredded(shredded(pa.array([1], pa.duration("s")), [None], []))


def test_shredded_columns_that_contradict_each_other_are_damage() -> None:
    field = pa.array([{"a": {"typed_value": 1}}], pa.struct([("a", pa.struct([("typed_value", pa.int64())]))]))
    cases: list[tuple[pa.Array, list[bytes | None], list[str], str]] = [
        (pa.array([1]), [b"\x00"], ["a"], "has two values"),
        (field, [b"\x00"], ["a"], "a value that is no object"),
        (field, [None], ["b"], "lacks the name 'a'"),
        (field, [values(['{"a":1}']).field(1)[0].as_py()], ["a"], "has the field 'a' twice"),
    ]
    for typed, rest, names, message in cases:
        with pytest.raises(CorruptData, match=f"row 0: .*{message}"):
            unshredded(shredded(typed, rest, names))


@pytest.mark.parametrize("text", ['{"a":[1,"x",{"b":2.5}],"long":"' + "y" * 70 + '"}'])
def test_damaged_bytes_raise_typed_errors(text: str) -> None:
    """Every truncation and every flipped bit of metadata and value; other bytes may be another value."""
    whole = values([text]).to_pylist()[0]
    damaged: list[dict[str, bytes]] = []
    for part in ("metadata", "value"):
        data = whole[part]
        damaged += [{**whole, part: data[:end]} for end in range(len(data))]
        damaged += [
            {**whole, part: data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]}
            for at in range(min(len(data), 60))
            for bit in range(8)
        ]
    failed = 0
    for value in damaged:
        array = pa.array([value], VARIANT_TYPE)
        try:
            variants_to_json(array)
            variant_get(array, parse_path("$.a[2].b"), pa.float64())
        except HudiError:
            failed += 1
    assert failed > len(whole["metadata"]) + len(whole["value"])


def test_overlapping_parts_are_damage() -> None:
    """Arrays whose elements are all the same deeper array would double with each level."""
    value = b"\x00"
    for _ in range(40):
        size = len(value)
        value = bytes([1 << 2 | 3, 2]) + b"".join(n.to_bytes(2, "little") for n in (0, 0, size)) + value
    with pytest.raises(CorruptData, match=r"overlap|shorter"):
        variants_to_json(pa.array([{"metadata": b"\x01\x00\x00", "value": value}], VARIANT_TYPE))
