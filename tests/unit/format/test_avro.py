"""Avro compared with fastavro: encoding, schema resolution by name, and damage."""

from __future__ import annotations

import io
import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro.container import (
    add_checksum_marker,
    decode_container,
    decode_datum,
    decode_document,
    encode_container,
    encode_datum,
)
from pyhudi.format.avro.json_values import from_json
from pyhudi.format.avro.nodes import (
    DOUBLE,
    INT,
    LONG,
    NULL,
    STRING,
    Branch,
    Union,
    array_node,
    map_node,
    optional,
    record,
    required,
    version_field,
)
from pyhudi.format.avro.schema import Schema, parse_schema, schema_from_record
from pyhudi.format.avro_columns import avro_records
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.byte_cursor import encode_zigzag

SYNC = bytes(range(16))


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    points: tuple[Point, ...]
    by_name: dict[str, Point] | None
    weight: float
    seen: int = 0
    version: int | None = 2
    not_stored: str = "as new"


_POINT = record("Point", Point, x=required(LONG), label=optional(STRING))
SHAPE = schema_from_record(
    record(
        "Shape",
        Shape,
        points=required(array_node(_POINT)),
        byName=optional(map_node(_POINT), null=dict),
        weight=required(DOUBLE, 1.5),
        seen=optional(INT, null=0),
        version=version_field(1),
    ),
    "a.b",
)
VALUE = Shape((Point(1), Point(-(1 << 63), "é")), {"k": Point(64, "")}, -2.5, 3, None)


def test_the_schema_is_written_as_avro_for_java_does() -> None:
    assert SHAPE.text == (
        '{"type":"record","name":"Shape","namespace":"a.b","fields":['
        '{"name":"points","type":{"type":"array","items":{"type":"record","name":"Point","fields":['
        '{"name":"x","type":"long"},'
        '{"name":"label","type":["null",{"type":"string","avro.java.string":"String"}],"default":null}]}}},'
        '{"name":"byName","type":["null",{"type":"map","values":"Point","avro.java.string":"String"}],"default":null},'
        '{"name":"weight","type":"double","default":1.5},'
        '{"name":"seen","type":["null","int"],"default":null},'
        '{"name":"version","type":["int","null"],"default":1}]}'
    )


def test_container_bytes_match_the_specification() -> None:
    schema = parse_schema('"string"')
    assert encode_container(schema, "bob", SYNC) == (
        b"Obj\x01\x02\x16avro.schema\x10" + b'"string"' + b"\x00" + SYNC + b"\x02\x08\x06bob" + SYNC
    )


def test_fastavro_reads_what_we_write_and_we_read_what_it_writes() -> None:
    ours = encode_container(SHAPE, VALUE, SYNC)
    [theirs] = list(fastavro.reader(io.BytesIO(ours)))
    assert theirs == {
        "points": [{"x": 1, "label": None}, {"x": -(1 << 63), "label": "é"}],
        "byName": {"k": {"x": 64, "label": ""}},
        "weight": -2.5,
        "seen": 3,
        "version": None,
    }
    for codec in ("null", "deflate"):
        out = io.BytesIO()
        fastavro.writer(out, json.loads(SHAPE.text), [theirs, theirs], codec=codec, sync_marker=SYNC)
        assert decode_container(out.getvalue(), SHAPE)[1] == (VALUE, VALUE)
    assert decode_document(SHAPE, ours, Shape) == VALUE


EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "n", "type": "null"},
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "y", "type": "bytes"},
        {"name": "s", "type": "string"},
        {"name": "x", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "e", "type": {"type": "enum", "name": "Suit", "symbols": ["CLUBS", "HEARTS"]}},
        {"name": "a", "type": {"type": "array", "items": ["null", "long", "string", "Suit2"]}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
        {"name": "u", "type": ["string", "null", "boolean", "double"]},
        {
            "name": "r",
            "type": ["null", {"type": "record", "name": "Inner", "namespace": "q", "fields": [{"name": "z", "type": "Four2"}]}],
        },
    ],
}


def _everything() -> Schema:
    text = json.dumps(EVERYTHING).replace('"Suit2"', '{"type":"fixed","name":"Two","size":2}')
    return parse_schema(text.replace('"Four2"', '{"type":"fixed","name":"F2","size":1}'))


VALUES = st.fixed_dictionaries(
    {
        "n": st.none(),
        "b": st.booleans(),
        "i": st.integers(-(1 << 31), (1 << 31) - 1),
        "l": st.integers(-(1 << 63), (1 << 63) - 1),
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "y": st.binary(),
        "s": st.text(),
        "x": st.binary(min_size=4, max_size=4),
        "e": st.sampled_from(["CLUBS", "HEARTS"]),
        "a": st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text() | st.binary(min_size=2, max_size=2)).map(
            tuple
        ),
        "m": st.dictionaries(st.text(), st.lists(st.floats(allow_nan=False)).map(tuple)),
        "u": st.text() | st.none() | st.booleans() | st.floats(allow_nan=False),
        "r": st.none() | st.fixed_dictionaries({"z": st.binary(min_size=1, max_size=1)}),
    }
)


def _listed(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_listed(one) for one in value]
    return {key: _listed(one) for key, one in value.items()} if isinstance(value, dict) else value


@given(VALUES)
def test_every_type_is_encoded_as_by_fastavro(value: dict[str, Any]) -> None:
    schema = _everything()
    data = encode_datum(schema, value)
    parsed = fastavro.parse_schema(json.loads(schema.text))
    assert fastavro.schemaless_reader(io.BytesIO(data), parsed, None) == _listed(value)
    assert decode_datum(schema, data) == value
    for end in range(0, len(data), max(1, len(data) // 20)):
        with pytest.raises(CorruptData):
            decode_datum(schema, data[:end])
    with pytest.raises(CorruptData):
        decode_datum(schema, data + b"\x00")


def test_unions_of_records_name_their_branch() -> None:
    boxes = [
        {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}
        for name, kind in (("IntBox", "int"), ("LongBox", "long"))
    ]
    schema = parse_schema(json.dumps(["null", *boxes]))
    value = Branch("LongBox", {"value": 7})
    assert encode_datum(schema, value) == b"\x04\x0e"
    assert decode_datum(schema, b"\x04\x0e") == value
    assert decode_datum(schema, b"\x00") is None
    with pytest.raises(InvalidRequest):
        encode_datum(schema, {"value": 7})


# Resolution by name.


def _shape_written_as(fields: Sequence[object], value: dict[str, Any], name: str = "Other") -> Any:
    schema = {"type": "record", "name": name, "fields": fields}
    out = io.BytesIO()
    fastavro.writer(out, schema, [value])
    return decode_container(out.getvalue(), SHAPE)[1][0]


POINTS = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "P",
        "fields": [{"name": "label", "type": ["string", "null"]}, {"name": "x", "type": "int"}],
    },
}


def test_other_order_other_unions_narrower_numbers_other_names() -> None:
    fields = [
        {"name": "version", "type": ["null", "int"]},
        {"name": "weight", "type": "float"},
        {"name": "points", "type": ["null", POINTS]},
        {"name": "seen", "type": "int"},
        {"name": "byName", "type": [{"type": "map", "values": "P"}, "null"]},
    ]
    value = {"version": 2, "weight": 0.5, "points": [{"label": "a", "x": 5}], "seen": 4, "byName": {"k": {"label": None, "x": 6}}}
    assert _shape_written_as(fields, value) == Shape((Point(5, "a"),), {"k": Point(6)}, 0.5, 4, 2)


def test_unknown_fields_are_skipped_and_missing_ones_take_their_default() -> None:
    fields = [
        {"name": "later", "type": {"type": "map", "values": {"type": "array", "items": POINTS}}},
        {"name": "points", "type": {"type": "array", "items": "P"}},
        {"name": "more", "type": ["null", "string", "bytes", "P"]},
    ]
    value = {"later": {"a": [[{"label": "b", "x": 1}]]}, "points": [{"label": None, "x": 2}], "more": {"label": None, "x": 3}}
    shape = _shape_written_as(fields, value)
    assert shape == Shape((Point(2),), {}, 1.5, 0, 1)
    assert shape.not_stored == "as new"
    # Each value has a map of its own: a shared one would carry a change into every document read after it.
    assert shape.by_name is not _shape_written_as(fields, value).by_name


def test_null_where_the_document_has_its_own_meaning_for_it() -> None:
    fields = json.loads(SHAPE.text)["fields"]
    value: dict[str, Any] = {"points": [], "byName": None, "weight": 0.0, "seen": None, "version": None}
    assert _shape_written_as(fields, value) == Shape((), {}, 0.0, 0, None)


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ([{"name": "weight", "type": "double"}], {"weight": 1.0}),
        ([{"name": "points", "type": "string"}], {"points": "x"}),
        ([{"name": "points", "type": {"type": "array", "items": "long"}}], {"points": [1]}),
        ([{"name": "points", "type": ["null", POINTS]}], {"points": None}),
        ([{"name": "points", "type": POINTS}, {"name": "seen", "type": ["null", "string"]}], {"points": [], "seen": "x"}),
        ([{"name": "points", "type": POINTS}, {"name": "seen", "type": "boolean"}], {"points": [], "seen": True}),
    ],
)
def test_schemas_and_values_that_do_not_fit(fields: list[dict[str, Any]], value: dict[str, Any]) -> None:
    with pytest.raises(CorruptData):
        _shape_written_as(fields, value)


@pytest.mark.parametrize(
    "value",
    [
        Shape((Point("1"),), None, 1.0),  # type: ignore[arg-type]
        Shape((Point(1 << 63),), None, 1.0),
        Shape((Point(1),), None, 1.0, 1 << 31),
        Shape((Point(1, "\ud800"),), None, 1.0),
        Shape("ab", None, 1.0),  # type: ignore[arg-type]
        Shape((None,), None, 1.0),  # type: ignore[arg-type]
        Point(1),
        None,
        {"points": []},
    ],
)
def test_values_that_do_not_fit_their_schema(value: object) -> None:
    with pytest.raises(InvalidRequest):
        encode_datum(SHAPE, value)


def test_from_json() -> None:
    document = {"points": [{"x": 1, "extra": 1}], "weight": 2, "byName": None, "unknown": [1]}
    assert from_json(SHAPE, document) == Shape((Point(1),), {}, 2.0, 0, 1)
    points: tuple[object, ...] = ([{"x": True}], [{"x": 1.5}], {})
    for broken in ({}, [], *({"points": some} for some in points), {"points": [], "byName": [1]}):
        with pytest.raises(CorruptData):
            from_json(SHAPE, broken)


# Damage.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "3",
        "[]",
        '"unknown"',
        '{"type":"record","name":"r"}',
        '{"type":"record","fields":[]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"array"}',
        '["null",["null"]]',
        '{"type":"fixed","name":"f","size":-1}',
        '{"type":"enum","name":"e","symbols":[1]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"fixed","name":"r","size":1}}]}',
        '{"type":' * 200 + '"int"' + "}" * 200,
        "[" * 100_000,
    ],
)
def test_texts_that_are_no_schema(text: str) -> None:
    with pytest.raises(CorruptData):
        parse_schema(text)


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]},
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "e", "fields": []}},
        {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}},
    ],
)
def test_schemas_that_a_few_bytes_could_make_endless(definition: object) -> None:
    with pytest.raises(Unsupported):
        parse_schema(json.dumps(definition))


def test_counts_and_lengths_beyond_the_data_cost_nothing() -> None:
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    for text, data in (
        ('{"type":"array","items":"long"}', huge),
        ('{"type":"array","items":"long"}', b"\x03" + huge),
        ('{"type":"map","values":"null"}', huge),
        ('"string"', huge),
        ('"bytes"', huge),
        ('"bytes"', b"\x01"),
        ('"string"', b"\x01"),
        ('["null","long"]', b"\x04"),
        ('["null","long"]', b"\x01"),
        ('"boolean"', b"\x02"),
        ('"long"', b"\xff" * 11),
        ('"string"', b"\x02\xff"),
    ):
        with pytest.raises(CorruptData):
            decode_datum(parse_schema(text), data)


def test_negative_block_counts_carry_their_size() -> None:
    assert decode_datum(parse_schema('{"type":"array","items":"long"}'), b"\x03\x04\x02\x04\x02\x06\x00") == (1, 2, 3)


def test_containers_that_are_no_single_document() -> None:
    data = encode_container(SHAPE, VALUE, SYNC)
    block = data[data.index(SYNC) + 16 :]
    for broken in (
        b"",
        b"Obj\x01",
        data[:4] + b"\x00" + SYNC,
        data[: -len(block)],
        data + block,
        data + b"\x00",
        b"Obj\x02" + data[4:],
    ):
        with pytest.raises(CorruptData):
            decode_document(SHAPE, broken, Shape)


def test_other_codecs_are_refused() -> None:
    schema = b'"string"'
    head = b"Obj\x01\x04\x16avro.schema\x10" + schema + b"\x14avro.codec"
    with pytest.raises(Unsupported):
        decode_container(head + b"\x0csnappy\x00" + SYNC)
    with pytest.raises(CorruptData):
        decode_container(head + b"\x0edeflate\x00" + SYNC + b"\x02\x04\xff\xff" + SYNC)


def test_a_sync_marker_has_16_bytes() -> None:
    with pytest.raises(InvalidRequest):
        encode_container(SHAPE, VALUE, b"short")


def test_truncated_at_each_byte_and_flipped_at_random() -> None:
    data = encode_container(SHAPE, VALUE, SYNC)
    for end in range(len(data)):
        with pytest.raises(CorruptData):
            decode_document(SHAPE, data[:end], Shape)
    chance = random.Random(7)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        try:
            assert isinstance(decode_document(SHAPE, bytes(flipped), Shape), Shape)
        except (CorruptData, Unsupported):
            continue


def test_unions_without_null_branch_are_not_optional() -> None:
    schema = Schema(Union((INT, STRING)), '["int","string"]')
    assert [encode_datum(schema, value) for value in (1, "a")] == [b"\x00\x02", b"\x02\x02a"]
    with pytest.raises(InvalidRequest):
        encode_datum(schema, None)
    assert decode_datum(schema, b"\x02\x02a") == "a"
    assert NULL.kind == "null"


def nested_twice(depth: int) -> str:
    """A schema of some kilobytes in which each record holds the one before it twice."""
    fields: list[dict[str, object]] = [{"name": "f0", "type": {"type": "record", "name": "r0", "fields": []}}]
    for number in range(1, depth):
        inner = [{"name": name, "type": f"r{number - 1}"} for name in "ab"]
        fields.append({"name": f"f{number}", "type": {"type": "record", "name": f"r{number}", "fields": inner}})
    return json.dumps({"type": "record", "name": "top", "fields": fields})


@pytest.mark.parametrize("read", [parse_schema, avro_to_arrow, avro_records], ids=["values", "types", "columns"])
def test_schema_that_expands_beyond_memory_is_refused(read: Callable[[str], object]) -> None:
    read(nested_twice(5).replace('"fields": []', '"fields": [{"name": "x", "type": "int"}]'))
    with pytest.raises(Unsupported, match="100000 types"):
        read(nested_twice(40))


def test_a_block_that_inflates_to_more_than_any_memory() -> None:
    schema = parse_schema('{"type": "record", "name": "r", "fields": [{"name": "b", "type": "bytes"}]}')
    plain = encode_datum(schema, {"b": bytes(64 << 20)})
    deflated = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = deflated.compress(plain) + deflated.flush()
    text = schema.text.encode()
    header = b"\x04" + b"".join(encode_zigzag(len(part)) + part for part in (b"avro.schema", text, b"avro.codec", b"deflate"))
    data = b"Obj\x01" + header + b"\x00" + bytes(16) + b"\x02" + encode_zigzag(len(block)) + block + bytes(16)
    with pytest.raises(Unsupported, match="inflates to more"):
        decode_container(data)


def test_a_sealed_container_is_what_was_written_or_refused() -> None:
    fields = [{"name": "a", "type": "string"}, {"name": "b", "type": "long"}]
    schema = parse_schema(json.dumps({"type": "record", "name": "r", "fields": fields}))
    plain = encode_container(schema, {"a": "some text", "b": 77}, SYNC)
    sealed = add_checksum_marker(plain)
    assert len(sealed) == len(plain)
    assert decode_container(sealed)[1] == decode_container(plain)[1]
    assert list(fastavro.reader(io.BytesIO(sealed))) == [{"a": "some text", "b": 77}]
    assert add_checksum_marker(sealed) == sealed
    for other in (b"", b"{}", b"Obj"):
        assert add_checksum_marker(other) == other
    for at in range(len(sealed)):
        for bit in range(8):
            damaged = bytearray(sealed)
            damaged[at] ^= 1 << bit
            with pytest.raises((CorruptData, Unsupported)):
                decode_container(bytes(damaged))
