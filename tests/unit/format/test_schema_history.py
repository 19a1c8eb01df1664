"""Schemas with column ids."""

from __future__ import annotations

import random

import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.schema_history import (
    ArrayType,
    MapType,
    SchemaField,
    StructType,
    VersionedSchema,
    decode_schema,
    decode_schema_history,
    encode_schema,
    encode_schema_history,
)

COLUMNS = (
    SchemaField(0, "_hoodie_commit_time", True, "string", ""),
    SchemaField(1, "de", True, "decimal(10, 2)"),
    SchemaField(2, "a", True, ArrayType(5, StructType((SchemaField(6, "x", False, "int", "note é"),)), True)),
    SchemaField(3, "m", True, MapType(7, "string", 8, ArrayType(9, "double", True), True)),
)
TEXT = (
    '{"max_column_id":9,"version_id":20261121073254113,"type":"record","fields":['
    '{"id":0,"name":"_hoodie_commit_time","optional":true,"type":"string","doc":""},'
    '{"id":1,"name":"de","optional":true,"type":"decimal(10, 2)"},'
    '{"id":2,"name":"a","optional":true,"type":{"type":"array","element_id":5,"element":{"type":"record","fields":['
    '{"id":6,"name":"x","optional":false,"type":"int","doc":"note é"}]},"element_optional":true}},'
    '{"id":3,"name":"m","optional":true,"type":{"type":"map","key_id":7,"key":"string","value_id":8,'
    '"value":{"type":"array","element_id":9,"element":"double","element_optional":true},"value_optional":true}}]}'
)
SCHEMA = VersionedSchema(20261121073254113, 9, COLUMNS)


def history(*schemas: str) -> bytes:
    """What a completed schemacommit holds."""
    return f'{{"schemas":[{",".join(schemas)}]}}'.encode()


def test_one_schema() -> None:
    assert decode_schema_history(history(TEXT)) == (SCHEMA,)
    assert decode_schema(TEXT) == SCHEMA and encode_schema(SCHEMA) == TEXT
    assert encode_schema_history([SCHEMA, SCHEMA]) == history(TEXT, TEXT)


def test_history() -> None:
    older = VersionedSchema(0, 0, COLUMNS[:1])
    column = '{"id":0,"name":"_hoodie_commit_time","optional":true,"type":"string","doc":""}'
    data = history(TEXT, f'{{"max_column_id":0,"version_id":0,"type":"record","fields":[{column}]}}')
    assert decode_schema_history(data) == (SCHEMA, older)
    for end in range(len(data)):
        with pytest.raises(CorruptData):
            decode_schema_history(data[:end])
    chance = random.Random(3)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        try:
            decode_schema_history(bytes(flipped))
        except CorruptData:
            continue


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        '"int"',
        '{"type":"array","element_id":1,"element":"int","element_optional":true}',
        '{"type":"record","fields":[]}',
        '{"type":"record","fields":[],"version_id":true,"max_column_id":0}',
        '{"type":"record","fields":[{"id":0,"name":"a","optional":1,"type":"int"}],"version_id":0,"max_column_id":0}',
        '{"type":"record","fields":[{"id":0,"optional":true,"type":"int"}],"version_id":0,"max_column_id":0}',
        '{"type":"record","fields":[{"id":0,"name":"a","optional":true}],"version_id":0,"max_column_id":0}',
        '{"type":"record","fields":[{"id":0,"name":"a","optional":true,"type":{"type":"set"}}],"version_id":0,"max_column_id":0}',
        '{"element":' * 500 + "1" + "}" * 500,
        '{"type":"array","element_id":1,"element_optional":true,"element":' * 500 + '"int"' + "}" * 500,
        "[" * 100_000,
    ],
)
def test_invalid_schema_history_is_rejected(text: str) -> None:
    with pytest.raises(CorruptData):
        decode_schema_history(history(text))
