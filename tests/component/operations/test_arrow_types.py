"""Unusual column types keep their values through base files, logs, compaction, clustering, lookups, filters and
deletes, or are refused by column name.
"""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pyhudi import Table
from pyhudi.errors import HudiError, InvalidRequest
from tests.support.arrow_types import REFUSED, SCALARS, Kind, column_types, key_types
from tests.support.needs import WIDE

_names = itertools.count()
_LAYOUTS = [("cow", "parquet"), ("mor", "avro"), ("mor", "parquet")]


def made(layout: tuple[str, str] = ("cow", "parquet"), **given: Any) -> Table:
    kind, blocks = layout
    options = {"hoodie.logfile.data.block.format": blocks, "hoodie.index.bloom.num_entries": 100}
    return Table.create(
        f"memory://odd-{next(_names)}", table_type=kind, options=options, **{"record_key": "id", "ordering": "ts", **given}
    )


def plain(value: Any) -> Any:
    """A value with equal texts for equal values: -0.0 is not 0.0, and a struct's fields have an order."""
    return repr(value)


def read(table: Table, columns: list[str] | None = None) -> dict[int, Any]:
    rows = table.scan(columns).to_arrow().to_pylist()
    return {row["id"]: {name: plain(value) for name, value in row.items()} for row in rows}


def given_rows(number: int, stamp: int, columns: dict[str, tuple[Kind, list[Any]]], first: int = 0) -> pa.Table:
    names = ["id", "ts", *columns]
    ids = pa.array(range(first, first + number), pa.int64())
    return pa.table([ids, pa.array([stamp] * number), *(kind.array(values) for kind, values in columns.values())], names=names)


def model_of(columns: dict[str, tuple[Kind, list[Any]]], number: int, stamp: int, first: int = 0) -> dict[int, Any]:
    return {
        first + row: {
            "id": plain(first + row),
            "ts": plain(stamp),
            **{name: plain(values[row]) for name, (_, values) in columns.items()},
        }
        for row in range(number)
    }


def check(found: dict[int, Any], expected: dict[int, Any]) -> None:
    assert sorted(found) == sorted(expected)
    for key, row in expected.items():
        for name, value in row.items():
            assert found[key][name] == value, (key, name)


@st.composite
def columns_twice(draw: st.DrawFn) -> tuple[list[Kind], list[dict[str, tuple[Kind, list[Any]]]]]:
    """Some columns, and values for two batches of four rows."""
    found = draw(st.lists(column_types(), min_size=1, max_size=3))
    batches = []
    for _ in range(2):
        rows = [draw(st.lists(st.none() | kind.values, min_size=4, max_size=4)) for kind in found]
        batches.append({f"c{place}": (kind, values) for place, (kind, values) in enumerate(zip(found, rows, strict=True))})
    return found, batches


@settings(max_examples=80 if WIDE else 10, derandomize=True, deadline=None, phases=[Phase.generate])
@given(st.sampled_from(_LAYOUTS), columns_twice())
def test_written_values_are_read_back(
    layout: tuple[str, str], drawn: tuple[list[Kind], list[dict[str, tuple[Kind, list[Any]]]]]
) -> None:
    found, (first, second) = drawn
    table = made(layout)
    table.insert(given_rows(4, 1, first))
    table.upsert(given_rows(4, 2, second, first=2))
    expected = {**model_of(first, 4, 1), **model_of(second, 4, 2, first=2)}
    check(read(table), expected)
    if layout[0] == "mor":
        table.compact()
        check(read(table), expected)
    by = next((name for name, kind in zip(first, found, strict=True) if kind in SCALARS), "id")
    table.cluster(order_by=[by])
    check(read(table), expected)
    table.delete(keys=given_rows(4, 3, first))
    assert read(table) == {key: row for key, row in expected.items() if key >= 4}
    assert table.validate().ok


@settings(max_examples=60 if WIDE else 8, derandomize=True, deadline=None, phases=[Phase.generate])
@given(st.sampled_from(_LAYOUTS), key_types(), st.sampled_from(["record_key", "partition_by"]), st.data())
def test_keys_and_partitions_of_every_arrow_layout_are_found(
    layout: tuple[str, str], kind: Kind, role: str, data: st.DataObject
) -> None:
    values = data.draw(st.lists(kind.values, min_size=3, max_size=3, unique_by=repr))
    columns = {"k": (kind, values)}
    rows = given_rows(3, 1, columns)
    table = made(layout, **{role: "k"})
    try:
        table.insert(rows)
    except InvalidRequest as error:
        # Empty keys, and partitions that no folder can be named after.
        assert "'k'" in str(error) or "partition path" in str(error) or "storage path" in str(error)
        return
    table.upsert(rows)
    assert read(table) == model_of(columns, 3, 1)
    looked_up = table.lookup(rows.select(["id", "k"]) if role == "partition_by" else rows.select(["k"])).to_arrow()
    assert sorted(looked_up.column("id").to_pylist()) == [0, 1, 2]
    table.delete(keys=rows.slice(0, 2))
    assert sorted(read(table)) == [2]


@pytest.mark.parametrize("around", ["column", "list", "struct", "map"])
@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_unsupported_arrow_type_is_rejected_with_the_column_name(kind: pa.DataType, around: str) -> None:
    field = pa.field("odd", kind)
    if around == "list":
        field = pa.field("odd", pa.list_(kind))
    elif around == "struct":
        field = pa.field("odd", pa.struct([("inner", kind)]))
    elif around == "map":
        field = pa.field("odd", pa.map_(pa.string(), kind))
    schema = pa.schema([("id", pa.int64()), field])
    with pytest.raises(InvalidRequest, match="odd"):
        Table.create(f"memory://odd-{next(_names)}", record_key="id", schema=schema)
    empty = pa.table([pa.array([1]), pa.nulls(1, kind) if around == "column" else pa.nulls(1, field.type)], schema=schema)
    table = made(ordering=None)
    with pytest.raises(InvalidRequest, match="odd"):
        table.insert(empty)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64()), pa.struct([("x", pa.int64())])], ids=str
)
def test_an_ordering_field_that_has_no_order_is_refused(kind: pa.DataType) -> None:
    rows = pa.table([pa.array([1]), pa.nulls(1, kind)], names=["id", "o"])
    with pytest.raises(InvalidRequest, match="ordering field 'o'"):
        made(ordering="o").insert(rows)
    with pytest.raises(InvalidRequest, match="ordering field 'o'"):
        made(ordering="o", schema=rows.schema)


def test_a_time_that_microseconds_cannot_hold_is_refused_with_its_column() -> None:
    far = pa.table([pa.array([1]), pa.array([2**60], pa.timestamp("s", "UTC"))], names=["id", "at"])
    with pytest.raises(InvalidRequest, match="'at'"):
        made(ordering=None).insert(far)


def test_two_columns_of_one_name_are_refused() -> None:
    table = made(ordering=None)
    table.insert(pa.table({"id": [1]}))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    for write in (table.insert, table.upsert, table.delete, table.lookup, table.filter_exists):
        with pytest.raises(HudiError, match="id"):
            write(twice)
    with pytest.raises(HudiError, match="id"):
        table.scan(keys=twice)
