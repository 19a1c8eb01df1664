"""Timestamps stored in another type than the table declares, at any depth and in log blocks."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.log.data_blocks import decode_avro, decode_parquet, encode_avro, encode_parquet
from pyhudi.format.timestamp_units import declared_bounds, in_declared_units, in_millis, may_have_wrong_unit
from pyhudi.records.stored_rows import in_table_columns

TIME = 1_782_907_200_001
"""2026-07-01T12:00:00.001Z in milliseconds."""
LAST = 253_402_300_799_999


def avro(type_: Any) -> str:
    union = ["null", type_]
    nested = {"type": "record", "name": "s", "fields": [{"name": "t", "type": union}, {"name": "x", "type": ["null", "int"]}]}
    fields = [
        {"name": "t", "type": union},
        {"name": "s", "type": ["null", nested]},
        {"name": "l", "type": ["null", {"type": "array", "items": union}]},
        {"name": "m", "type": ["null", {"type": "map", "values": union}]},
    ]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


def logical(name: str) -> dict[str, str]:
    return {"type": "long", "logicalType": name}


def rows(schema: str, *values: int | None) -> pa.Table:
    arrow = avro_to_arrow(schema)
    leaf = arrow.field("t").type
    times = [None if value is None else pa.scalar(value, pa.int64()).cast(leaf).as_py() for value in values]
    lists = [{"t": t, "s": None if t is None else {"t": t, "x": 1}, "l": [None, t], "m": [("k", t)]} for t in times]
    return pa.Table.from_pylist(lists, arrow)


CASES = [
    ("timestamp-micros", "timestamp-millis", TIME, TIME * 1000),
    ("timestamp-micros", "timestamp-millis", TIME * 1000, TIME * 1000),
    ("timestamp-micros", "timestamp-millis", -TIME, -TIME * 1000),
    ("timestamp-micros", "timestamp-millis", LAST, LAST * 1000),
    ("timestamp-micros", "timestamp-millis", LAST + 1, LAST + 1),
    ("long", "local-timestamp-millis", TIME, TIME * 1000),
    ("long", "local-timestamp-micros", TIME * 1000, TIME * 1000),
    ("timestamp-millis", "timestamp-millis", TIME * 1000, TIME * 1000),
    ("timestamp-millis", "timestamp-micros", TIME * 1000, TIME * 1000),
    ("timestamp-micros", "timestamp-micros", TIME, TIME),
    ("local-timestamp-micros", "local-timestamp-millis", TIME * 1000, TIME * 1000),
]


@pytest.mark.parametrize("kind", ["avro", "parquet"])
@pytest.mark.parametrize(("stored", "declared", "value", "expected"), CASES)
def test_log_blocks_are_read_in_the_declared_unit(kind: str, stored: str, declared: str, value: int, expected: int) -> None:
    theirs, ours = avro("long" if stored == "long" else logical(stored)), avro(logical(declared))
    batches = rows(theirs, value, None).to_batches()
    encode, decode = (encode_avro, decode_avro) if kind == "avro" else (encode_parquet, decode_parquet)
    blocks = list(decode(theirs, encode(theirs, batches)))
    found = in_table_columns(pa.Table.from_batches(blocks), None, avro_to_arrow(ours))
    assert found.to_pylist() == rows(ours, expected, None).to_pylist()
    if kind == "parquet":
        # The header of the block has the declared type, and the Parquet file in it another one.
        other = decode_parquet(ours, encode_parquet(theirs, batches))
        assert in_table_columns(pa.Table.from_batches(other), None, avro_to_arrow(ours)).equals(found)


def test_slices_of_nested_values_are_converted() -> None:
    declared = avro_to_arrow(avro(logical("timestamp-millis")))
    stored = rows(avro(logical("timestamp-micros")), 1, TIME, 2)
    expected = rows(avro(logical("timestamp-millis")), 1000, TIME * 1000, 2000)
    assert in_declared_units(stored.slice(1), declared).to_pylist() == expected.slice(1).to_pylist()


def test_columns_of_the_declared_type_are_not_copied() -> None:
    schema = avro(logical("timestamp-millis"))
    stored = rows(schema, TIME * 1000)
    assert in_declared_units(stored, avro_to_arrow(schema)) is stored


def test_columns_that_may_have_a_wrong_unit() -> None:
    def flags(name: str) -> tuple[bool, bool]:
        fields = avro_to_arrow(avro(logical(name)))
        (found,) = {(may_have_wrong_unit(field), in_millis(field)) for field in fields}
        return found

    assert flags("timestamp-millis") == flags("local-timestamp-millis") == (True, True)
    assert flags("local-timestamp-micros") == (True, False)
    assert flags("timestamp-micros") == (False, False)


def test_bounds_in_both_units_are_none() -> None:
    field = avro_to_arrow(avro(logical("timestamp-millis"))).field("t")
    assert declared_bounds(-1, TIME, field) == (-1000, TIME * 1000)
    assert declared_bounds(LAST + 1, TIME * 1000, field) == (LAST + 1, TIME * 1000)
    assert declared_bounds(TIME, TIME * 1000, field) is None
    assert declared_bounds(-TIME * 1000, TIME * 1000, field) is None
