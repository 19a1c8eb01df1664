"""Avro records <-> Arrow columns, against fastavro, and with damaged bytes."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro_columns import AvroRecords, avro_records, supports
from pyhudi.format.byte_cursor import encode_zigzag
from pyhudi.format.hudi_types import VARIANT_TYPE, stated_hudi_type

UTC = datetime.UTC
EARLIEST = datetime.datetime(1, 1, 2)
LATEST = datetime.datetime(9999, 12, 30)
PAIR = tuple[Any, st.SearchStrategy[Any]]


def whole_millis(value: datetime.datetime) -> datetime.datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def with_zone(value: datetime.datetime) -> datetime.datetime:
    return value.replace(tzinfo=UTC)


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**precision - 1
    context = decimal.Context(prec=60)
    # fastavro writes the numbers -128, -32768, ... with one byte more than they need, unlike other writers.
    padded = {-(1 << bits) for bits in range(7, 136, 8)}
    return (
        st.integers(-most, most)
        .filter(lambda number: number not in padded)
        .map(lambda number: decimal.Decimal(number).scaleb(-scale, context))
    )


MOMENTS = st.datetimes(EARLIEST, LATEST)
CLOCK = st.times()
LEAVES: list[PAIR] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("int", st.integers(-70, 70)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("long", st.integers(-(2**35), 2**35)),
    ("double", st.floats(allow_nan=False)),
    ("float", st.floats(allow_nan=False, width=32)),
    ("string", st.text(max_size=100)),
    ("bytes", st.binary(max_size=80)),
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-micros"}, MOMENTS.map(with_zone)),
    ({"type": "long", "logicalType": "timestamp-millis"}, MOMENTS.map(whole_millis).map(with_zone)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, MOMENTS),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, MOMENTS.map(whole_millis)),
    ({"type": "long", "logicalType": "time-micros"}, CLOCK),
    ({"type": "int", "logicalType": "time-millis"}, CLOCK.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    ({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}, decimals(20, 4)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}, decimals(38, 0)),
]


def named(kind: str, counter: list[int], **rest: Any) -> dict[str, Any]:
    counter[0] += 1
    return {"type": kind, "name": f"n{counter[0]}", **rest}


def named_leaves(counter: list[int]) -> list[PAIR]:
    def fixed_decimal(precision: int, scale: int, size: int) -> PAIR:
        schema = named("fixed", counter, size=size, logicalType="decimal", precision=precision, scale=scale)
        return schema, decimals(precision, scale)

    return [
        (named("fixed", counter, size=5), st.binary(min_size=5, max_size=5)),
        (named("enum", counter, symbols=["A", "B", "C"]), st.sampled_from("ABC")),
        fixed_decimal(9, 2, 4),
        fixed_decimal(18, 6, 8),
        fixed_decimal(19, 0, 9),
        fixed_decimal(38, 10, 16),
        fixed_decimal(38, 10, 20),
    ]


def types(draw: st.DrawFn, counter: list[int], depth: int) -> PAIR:
    """A schema and the values that fit it."""
    choice = draw(st.integers(0, 9)) if depth else 0
    if choice <= 4:
        schema, values = draw(st.sampled_from(LEAVES + named_leaves(counter)))
    elif choice <= 6:
        item, items = types(draw, counter, depth - 1)
        schema, values = {"type": "array", "items": item}, st.lists(items, max_size=4)
    elif choice == 7:
        item, items = types(draw, counter, depth - 1)
        schema, values = {"type": "map", "values": item}, st.dictionaries(st.text(max_size=5), items, max_size=3)
    else:
        schema, values = records(draw, counter, depth - 1)
    if draw(st.booleans()):
        union = ["null", schema] if draw(st.booleans()) else [schema, "null"]
        return union, st.none() | values
    return schema, values


def records(draw: st.DrawFn, counter: list[int], depth: int) -> PAIR:
    schema = named("record", counter, fields=[])
    values = {}
    for index in range(draw(st.integers(1, 4))):
        field, strategy = types(draw, counter, depth)
        schema["fields"].append({"name": f"f{index}", "type": field})
        values[f"f{index}"] = strategy
    return schema, st.fixed_dictionaries(values)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    schema, values = records(draw, [0], 2)
    few = draw(st.lists(values, min_size=1, max_size=6))
    # Many rows go other ways through the codec than few; the generator makes no more values than it must.
    count = draw(st.sampled_from([len(few), 70]))
    chooser = random.Random(draw(st.integers(0, 1000)))
    return schema, few if count == len(few) else [chooser.choice(few) for _ in range(count)]


def fast(schema: Any, rows: list[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)
    out = []
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        out.append(buffer.getvalue())
    return out


def comparable(value: Any) -> Any:
    """Maps come out of Arrow as pairs, and the fields of a record in the order of the schema."""
    pairs = value.items() if isinstance(value, dict) else value
    if isinstance(value, (dict, list)) and all(isinstance(pair, tuple) for pair in pairs):
        return sorted((key, comparable(item)) for key, item in pairs)
    return [comparable(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tables())
def test_columns_round_trip_with_fastavro(table: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    schema, rows = table
    codec = avro_records(json.dumps(schema))
    encoded = fast(schema, rows)
    batch = codec.decode_values(pa.array(encoded, pa.binary()))
    batch.validate(full=True)
    assert comparable(batch.to_pylist()) == comparable(rows)
    assert codec.encode(batch).to_pylist() == encoded
    # A slice has offsets, and rows that its buffers hold do not count.
    assert codec.encode(batch.slice(1, len(rows) - 1)).to_pylist() == encoded[1:]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tables(), st.data())
def test_chosen_columns(table: tuple[dict[str, Any], list[dict[str, Any]]], data: st.DataObject) -> None:
    schema, rows = table
    names = [field["name"] for field in schema["fields"]]
    wanted = data.draw(st.lists(st.sampled_from(names), unique=True))
    codec = avro_records(json.dumps(schema))
    batch = codec.decode_values(pa.array(fast(schema, rows), pa.binary()), wanted)
    assert batch.schema.names == [name for name in names if name in wanted]
    for name in wanted:
        assert comparable(batch.column(name).to_pylist()) == comparable([row[name] for row in rows])


WIDE = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "key", "type": ["null", "string"]},
        {"name": "number", "type": ["long", "null"]},
        {
            "name": "price",
            "type": {"type": "fixed", "name": "fixed", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": ["null", {"type": "map", "values": "int"}]},
        {"name": "vector", "type": {"type": "array", "items": ["null", "double"]}},
        {"name": "inner", "type": ["null", {"type": "record", "name": "i", "fields": [{"name": "flag", "type": "boolean"}]}]},
    ],
}


def wide_rows(count: int) -> list[dict[str, Any]]:
    chooser = random.Random(count)
    return [
        {
            "key": None if row % 7 == 3 else f"key-{row}",
            "number": None if row % 5 == 0 else chooser.randint(-(2**63), 2**63 - 1),
            "price": decimal.Decimal(chooser.randint(-(10**9), 10**9)).scaleb(-2),
            "tags": [chooser.choice([None, "", "é" * chooser.randint(0, 60)]) for _ in range(chooser.choice([0, 0, 1, 2, 9]))],
            "counts": None if row % 11 == 0 else {f"k{n}": chooser.randint(-100, 100) for n in range(chooser.randint(0, 3))},
            "vector": [None if chooser.random() < 0.01 else chooser.random() for _ in range(chooser.randint(0, 8))],
            "inner": None if row % 2 else {"flag": row % 4 == 0},
        }
        for row in range(count)
    ]


def wide() -> AvroRecords:
    return avro_records(json.dumps(WIDE))


@pytest.mark.parametrize("count", [1, 2, 23, 24, 25, 500])
def test_any_number_of_rows(count: int) -> None:
    rows = wide_rows(count)
    encoded = fast(WIDE, rows)
    batch = wide().decode_values(pa.array(encoded, pa.binary()))
    assert comparable(batch.to_pylist()) == comparable(rows)
    assert wide().encode(batch).to_pylist() == encoded


def test_no_rows() -> None:
    batch = wide().decode_values(pa.array([], pa.binary()))
    assert (batch.num_rows, batch.schema) == (0, wide().schema)
    assert wide().encode(batch).to_pylist() == []
    assert wide().decode(b"", np.zeros(0, np.int64), np.zeros(0, np.int64), ["key"]).schema.names == ["key"]


def test_records_with_gaps_between_them() -> None:
    rows = wide_rows(30)
    data, starts, ends = b"xx", [], []
    for row in fast(WIDE, rows):
        starts.append(len(data) + 4)
        data += b"\0\0\0\0" + row
        ends.append(len(data))
    batch = wide().decode(data + b"yy", np.array(starts), np.array(ends))
    assert comparable(batch.to_pylist()) == comparable(rows)


def test_one_long_array_among_short_ones() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}]}
    rows = [{"a": [f"{row}-{n}" for n in range(20_000 if row == 17 else row % 3)]} for row in range(60)]
    codec = avro_records(json.dumps(schema))
    assert codec.decode_values(pa.array(fast(schema, rows), pa.binary())).to_pylist() == rows


def test_vectors_of_numbers() -> None:
    item: Any
    for item in ("float", ["null", "float"], ["float", "null"]):
        schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": {"type": "array", "items": item}}]}
        rows: list[dict[str, Any]] = [{"v": [float(row * n) for n in range(row % 50)]} for row in range(200)]
        if item != "float":
            rows[49]["v"][7] = None
            rows[149]["v"][48] = None
        codec = avro_records(json.dumps(schema))
        encoded = fast(schema, rows)
        batch = codec.decode_values(pa.array(encoded, pa.binary()))
        assert batch.to_pylist() == rows
        assert codec.encode(batch).to_pylist() == encoded


def test_sequences_in_several_blocks() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}
    codec = avro_records(json.dumps(schema))
    block = encode_zigzag(2) + encode_zigzag(1) + encode_zigzag(300)
    sized = encode_zigzag(-1) + encode_zigzag(1) + encode_zigzag(7)
    values = [block + sized + b"\0", b"\0", sized + sized + block + b"\0"]
    expected: list[list[int]] = [[1, 300, 7], [], [7, 7, 1, 300]]
    for repeat in (1, 30):
        batch = codec.decode_values(pa.array(values * repeat, pa.binary()))
        assert batch.column("a").to_pylist() == expected * repeat


def test_longest_numbers() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    codec = avro_records(json.dumps(schema))
    numbers = [sign * (2**bits + extra) for bits in range(63) for sign in (1, -1) for extra in (-1, 0, 1)] + [2**63 - 1, -(2**63)]
    encoded = [encode_zigzag(number) for number in numbers]
    batch = codec.decode_values(pa.array(encoded, pa.binary()))
    assert batch.column("n").to_pylist() == numbers
    assert codec.encode(batch).to_pylist() == encoded
    # Zeros at the end make a number longer, not another number.
    assert codec.decode_values(pa.array([b"\x82\x80\0", b"\x84" + b"\x80" * 8 + b"\0"], pa.binary())).column("n").to_pylist() == [
        1,
        2,
    ]
    for bad in (b"\x80" * 9 + b"\x02", b"\x80" * 10 + b"\0", b"\x80", b"\xff" * 9):
        with pytest.raises(CorruptData):
            codec.decode_values(pa.array([bad], pa.binary()))


@pytest.mark.parametrize(
    ("field", "data"),
    [
        ("boolean", b"\x02"),
        ("int", encode_zigzag(2**31)),
        ("int", encode_zigzag(-(2**31) - 1)),
        ("string", b"\x02"),
        ("string", b"\x01"),
        ("string", encode_zigzag(2**60)),
        ("string", b"\x02\xff"),
        (["null", "int"], b"\x04\x02"),
        (["null", "int"], b"\x01\x02"),
        ("int", b"\x02\x02"),
        ("int", b""),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02"),
        ({"type": "int", "logicalType": "time-millis"}, encode_zigzag(86_400_000)),
        ({"type": "long", "logicalType": "timestamp-millis"}, encode_zigzag(2**62)),
        ({"type": "array", "items": "int"}, encode_zigzag(2**60)),
        ({"type": "array", "items": "int"}, encode_zigzag(-(2**63)) + b"\0"),
        ({"type": "array", "items": "double"}, encode_zigzag(2) + bytes(8)),
        ({"type": "array", "items": "int"}, b"\x02\x02"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}, b"\0"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}, b"\x04\x7f\xff"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}, encode_zigzag(17) + b"\x01" + bytes(16)),
        ({"type": "fixed", "name": "f", "size": 3}, b"ab"),
    ],
)
@pytest.mark.parametrize("count", [1, 40])
def test_damaged_records(field: Any, data: bytes, count: int) -> None:
    codec = avro_records(json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": field}]}))
    with pytest.raises(CorruptData):
        codec.decode_values(pa.array([data] * count, pa.binary()))


def test_every_truncation_is_an_error() -> None:
    encoded = fast(WIDE, wide_rows(3))
    for end in range(len(encoded[2])):
        with pytest.raises(CorruptData):
            wide().decode_values(pa.array([*encoded[:2], encoded[2][:end]], pa.binary()))
        with pytest.raises(CorruptData):
            wide().decode_values(pa.array([encoded[2][:end], *encoded[:2]], pa.binary()))


@pytest.mark.parametrize("count", [1, 30])
def test_flipped_bits_give_rows_or_an_error(count: int) -> None:
    encoded = fast(WIDE, wide_rows(count))
    data = max(encoded, key=len)
    for bit in range(0, len(data) * 8, 1 if count == 1 else 5):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            wide().decode_values(pa.array([*encoded[1:], bytes(damaged)], pa.binary())).validate(full=True)
        except CorruptData:
            pass


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=3), st.booleans())
def test_any_bytes_give_rows_or_an_error(values: list[bytes], many: bool) -> None:
    try:
        wide().decode_values(pa.array(values * 30 if many else values, pa.binary())).validate(full=True)
    except CorruptData:
        pass


@pytest.mark.parametrize(
    ("field", "array"),
    [
        ("int", pa.array([1, None], pa.int32())),
        ("int", pa.array([1], pa.int64())),
        ("string", pa.array(["a"], pa.large_string())),
        ({"type": "array", "items": "int"}, pa.array([[1], [None]], pa.list_(pa.field("element", pa.int32())))),
        ({"type": "map", "values": "int"}, pa.array([[("a", None)]], pa.map_(pa.string(), pa.int32()))),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.array(["B"])),
        (
            {"type": "fixed", "name": "f", "size": 1, "logicalType": "decimal", "precision": 4, "scale": 0},
            pa.array([decimal.Decimal(128)], pa.decimal128(4, 0)),
        ),
    ],
)
def test_refused_values(field: Any, array: pa.Array) -> None:
    codec = avro_records(json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": field}]}))
    with pytest.raises(InvalidRequest):
        codec.encode(pa.RecordBatch.from_arrays([array], names=["f"]))


def test_a_null_struct_may_hide_nulls_of_required_fields() -> None:
    inner = {"type": "record", "name": "i", "fields": [{"name": "a", "type": "int"}]}
    codec = avro_records(json.dumps({"type": "record", "name": "r", "fields": [{"name": "s", "type": ["null", inner]}]}))
    batch = pa.RecordBatch.from_arrays([pa.array([None, {"a": 1}], codec.schema.field("s").type)], schema=codec.schema)
    assert codec.encode(batch).to_pylist() == [b"\0", b"\x02\x02"]


def test_unsupported_avro_schemas() -> None:
    def record(field: Any) -> str:
        return json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": field}]})

    assert supports(json.dumps(WIDE))
    assert not supports(record(["null", "int", "string"]))
    assert not supports(record(["null", "r"]))
    assert not supports(record({"type": "array", "items": {"type": "record", "name": "e", "fields": []}}))
    with pytest.raises(Unsupported):
        avro_records(record(["null", "int", "string"]))


def test_overlapping_records_are_refused() -> None:
    for starts, ends in (([0, 1], [2, 3]), ([2, 0], [3, 1]), ([0], [99]), ([-1], [2])):
        with pytest.raises(CorruptData):
            wide().decode(bytes(10), np.array(starts), np.array(ends))


def test_variants_with_the_value_first() -> None:
    """Hudi on Spark 4.0 wrote the fields in this order; in Arrow the metadata is first."""
    variant = {"type": "record", "name": "v", "logicalType": "variant"}
    fields = [{"name": name, "type": "bytes"} for name in ("value", "metadata")]
    schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": ["null", {**variant, "fields": fields}]}]}
    codec = avro_records(json.dumps(schema))
    assert codec.schema.field("v").type == VARIANT_TYPE and stated_hudi_type(codec.schema.field("v")) == "VARIANT"
    rows = pa.RecordBatch.from_pylist([{"v": {"metadata": b"m", "value": b"vv"}}, {"v": None}], codec.schema)
    encoded = codec.encode(rows)
    assert encoded.to_pylist() == [b"\x02\x04vv\x02m", b"\x00"]
    assert codec.decode_values(encoded).equals(rows)
    assert codec.decode_values(codec.encode(rows.slice(1))).equals(rows.slice(1))
