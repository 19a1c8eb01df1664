"""Columns by id: positions in files and conversion of values."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.format.schema_history import SchemaField, StructType, VersionedSchema
from pyhudi.records.schema_cast import conform_table
from pyhudi.records.schema_on_read.column_ids import (
    FIRST_UNKNOWN,
    ColumnIds,
    by_ids,
    identified,
    names_in_file,
    numbered,
    reconciled,
    retype,
    same_columns,
)

XY = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.string()),
        ("st", XY),
        ("ar", pa.list_(pa.field("element", pa.struct([("k", pa.int32()), ("l", pa.string())])))),
        ("mp", pa.map_(pa.string(), pa.struct([("m", pa.int32()), ("n", pa.string())]))),
    ]
)


def changed(schema: VersionedSchema, renames: dict[int, str], words: dict[int, str], dropped: frozenset[int]) -> VersionedSchema:
    """The schema with other names and types of plain columns by id, and without some."""

    def type_of(kind: Any) -> Any:
        if isinstance(kind, StructType):
            return StructType(columns_of(kind.columns))
        if hasattr(kind, "element"):
            return type(kind)(kind.element_id, type_of(kind.element), kind.element_optional)
        if hasattr(kind, "value"):
            return type(kind)(kind.key_id, kind.key, kind.value_id, type_of(kind.value), kind.value_optional)
        return kind

    def columns_of(columns: tuple[SchemaField, ...]) -> tuple[SchemaField, ...]:
        return tuple(
            SchemaField(c.column_id, renames.get(c.column_id, c.name), c.optional, words.get(c.column_id) or type_of(c.type))
            for c in columns
            if c.column_id not in dropped
        )

    return VersionedSchema(2, schema.max_column_id, columns_of(schema.columns))


def test_numbering_takes_a_record_first_and_then_what_is_below() -> None:
    schema = numbered(SCHEMA)
    assert [column.column_id for column in schema.columns] == [0, 1, 2, 3, 4]
    kinds: list[Any] = [column.type for column in schema.columns[2:]]
    st, ar, mp = kinds
    assert [c.column_id for c in st.columns] == [5, 6]
    assert ar.element_id == 7 and [c.column_id for c in ar.element.columns] == [8, 9]
    assert (mp.key_id, mp.value_id) == (10, 11)
    assert [c.column_id for c in mp.value.columns] == [12, 13] and schema.max_column_id == 13


def test_columns_are_found_by_ids_at_every_level() -> None:
    held = numbered(SCHEMA)
    after = changed(held, {1: "c", 2: "su", 5: "z", 8: "kk", 12: "mm"}, {0: "long"}, frozenset())
    # Names that were released are used by other columns now.
    after = reconciled(
        after,
        pa.schema(
            [
                ("a", pa.int64()),
                ("c", pa.string()),
                ("su", pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.int32())])),
                ("ar", pa.list_(pa.field("element", pa.struct([("k", pa.int32()), ("kk", pa.int32()), ("l", pa.string())])))),
                ("mp", pa.map_(pa.string(), pa.struct([("m", pa.int32()), ("mm", pa.int32()), ("n", pa.string())]))),
                ("b", pa.string()),
            ]
        ),
        3,
    )
    rows = pa.table(
        {
            "a": pa.array([1, None], pa.int32()),
            "b": ["one", None],
            "st": pa.array([{"x": 1, "y": "s"}, None], XY),
            "ar": pa.array([[{"k": 1, "l": "p"}, None], None], SCHEMA.field("ar").type),
            "mp": pa.array([[("q", {"m": 5, "n": "t"})], None], SCHEMA.field("mp").type),
        }
    )
    ids = ColumnIds(after, ("", "3"), (held, after))
    origins = ids.origins("1")
    wanted = pa.schema(
        [
            ("b", pa.string()),
            ("c", pa.string()),
            ("a", pa.int64()),
            ("su", pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.int32())])),
            ("ar", pa.list_(pa.field("element", pa.struct([("k", pa.int32()), ("kk", pa.int32()), ("l", pa.string())])))),
            ("mp", pa.map_(pa.string(), pa.struct([("m", pa.int32()), ("mm", pa.int32()), ("n", pa.string())]))),
        ]
    )
    assert names_in_file(origins, wanted.names) == ["b", "a", "st", "ar", "mp"]
    for slice_ in (rows, rows.slice(0, 1), rows.slice(1, 1)):
        found = conform_table(by_ids(slice_, origins, wanted), wanted)
        assert (
            found.to_pylist()
            == [
                {
                    "b": None,
                    "c": "one",
                    "a": 1,
                    "su": {"x": None, "y": "s", "z": 1},
                    "ar": [{"k": None, "kk": 1, "l": "p"}, None],
                    "mp": [("q", {"m": None, "mm": 5, "n": "t"})],
                },
                {"b": None, "c": None, "a": None, "su": None, "ar": None, "mp": None},
            ][0 if slice_.num_rows == 2 or slice_["a"][0].as_py() else 1 :][: slice_.num_rows]
        )
    assert ids.moved("1") == {"a", "b", "c", "su", "ar", "mp"} and ids.moved("4") == frozenset()
    assert ids.origins("4") is None and by_ids(rows, None, wanted) is rows


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([7], pa.int32(), pa.decimal128(8, 1), ["7.0"]),
        (
            [2.2, 2.675, 0.0049999, 1e-300, -2.5, None],
            pa.float64(),
            pa.decimal128(12, 2),
            ["2.20", "2.68", "0.00", "0.00", "-2.50"],
        ),
        ([0.1], pa.float32(), pa.decimal128(38, 30), ["0.1" + "0" * 29]),
        (["3.255"], pa.string(), pa.decimal128(6, 2), ["3.26"]),
        ([b"ab"], pa.binary(), pa.string(), ["ab"]),
        (["é"], pa.string(), pa.binary(), ["é".encode()]),
        ([1.1], pa.float32(), pa.float64(), [1.1]),
    ],
)
def test_types_that_follow_one_another(values: list[Any], source: pa.DataType, target: pa.DataType, expected: list[Any]) -> None:
    schema = pa.schema([("c", target)])
    found = conform_table(pa.table({"c": retype(pa.array(values, source), target)}), schema)["c"].to_pylist()
    wanted = [decimal.Decimal(value) if pa.types.is_decimal(target) else value for value in expected]
    assert found == wanted + [None] * (len(values) - len(wanted))


def test_values_that_the_type_does_not_hold() -> None:
    with pytest.raises(InvalidRequest):
        retype(pa.array([12345.0]), pa.decimal128(4, 2))
    with pytest.raises(InvalidRequest):
        retype(pa.array([b"\xff"]), pa.string())


def test_an_id_that_was_given_twice_is_two_columns() -> None:
    """As Apache Hudi leaves it: `w` is dropped, another column renamed, `v` added."""
    first = numbered(pa.schema([("a", pa.int32()), ("b", pa.int32()), ("w", pa.int32())]))
    without = changed(first, {}, {}, frozenset({2}))
    again = VersionedSchema(4, 2, (*changed(first, {1: "c"}, {}, frozenset({2})).columns, SchemaField(2, "v", True, "int")))
    ids = identified((first, without, again))
    origins = ColumnIds(ids[-1], ("", "2", "4"), ids).origins("1")
    assert origins is not None and "v" not in origins and origins["c"].name == "b"


def test_a_column_that_came_by_name_is_the_one_that_gets_an_id_later() -> None:
    first = numbered(pa.schema([("a", pa.int32())]))
    named = pa.schema([("a", pa.int32()), ("z", pa.int32())])
    between, later = reconciled(first, named, 5, FIRST_UNKNOWN), reconciled(first, named, 6)
    ids = identified((first, between, later))
    assert same_columns(ids[1], ids[2])
    assert ColumnIds(ids[-1], ("", "5", "6"), ids).origins("5") is None


def test_a_column_of_another_kind_of_value_is_another_column() -> None:
    first = numbered(pa.schema([("a", pa.string()), ("d", pa.decimal128(6, 2)), ("n", pa.int32())]))
    after = reconciled(first, pa.schema([("a", pa.bool_()), ("d", pa.decimal128(7, 3)), ("n", pa.int64())]), 2)
    assert [column.column_id for column in after.columns] == [3, 1, 2] and after.max_column_id == 3
    narrower = reconciled(first, pa.schema([("a", pa.string()), ("d", pa.decimal128(6, 3)), ("n", pa.float32())]), 2)
    assert [column.column_id for column in narrower.columns] == [0, 3, 2]
