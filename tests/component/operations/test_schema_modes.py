"""Schema changes by a batch: keys, partition and ordering columns are fixed; other columns may widen without loss."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest

_names = itertools.count()
LARGE = 2**53 + 1


def made(table_type: str = "cow", **types: pa.DataType) -> Table:
    kinds = {"id": pa.int64(), "p": pa.int32(), "ts": pa.int64(), "n": pa.int64(), "i": pa.int32(), "f": pa.float32(), **types}
    schema = pa.schema(list(kinds.items()))
    table = Table.create(
        f"memory://modes-{next(_names)}",
        name="t",
        record_key="id",
        partition_by="p",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.index.bloom.num_entries": 100, "hoodie.compact.inline": False},
    )
    row = {"id": 1, "p": 1, "ts": 10, "n": 1.5 if "n" in types else LARGE, "i": 1, "f": 0.1}
    text = {name: str(value) for name, value in row.items() if kinds[name] == pa.string()}
    table.upsert(pa.Table.from_pylist([{**row, **text}], schema))
    return table


def batch(**values: Any) -> pa.Table:
    row = {"id": 1, "p": 1, "ts": 11, "n": 5, "i": 5, "f": 0.5, **values}
    kinds = {"p": pa.int32(), "i": pa.int32(), "f": pa.float32()}
    return pa.table({name: v if isinstance(v, pa.Array) else pa.array([v], kinds.get(name)) for name, v in row.items()})


def read(table: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return rows


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", ["strict", "merge", "widen", "evolve"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_key_partition_and_ordering_fields_never_change_their_type(table_type: str, mode: str) -> None:
    table = made(table_type)
    before = read(table), table.schema()
    changes: dict[str, tuple[Any, ...]] = {
        "id": ("1", 1.0, pa.array([1.0], pa.float32())),
        "p": ("1", 1.0),
        "ts": ("9", 12.0),
    }
    for name, values in changes.items():
        for value in values:
            data = batch(**{name: value if isinstance(value, pa.Array) else pa.array([value])})
            for operation in (
                table.upsert,
                table.insert,
                table.bulk_insert,
                table.insert_overwrite,
                table.insert_overwrite_table,
            ):
                with pytest.raises(InvalidRequest, match=rf"(?s){name} .*cannot change"):
                    operation(data, schema_mode=mode)
    assert (read(table), table.schema()) == before
    # What fits their type is cast to it.
    table.upsert(
        batch(id=pa.array([1], pa.int16()), p=pa.array([1], pa.int64()), ts=pa.array([12], pa.int32())), schema_mode=mode
    )
    assert [row["ts"] for row in read(table)] == [12] and table.schema() == before[1]


def test_lossless_changes_are_allowed_and_reported() -> None:
    table = made()
    result = table.upsert(batch(i=pa.array([2**40]), f=pa.array([0.25]), new=pa.array(["x"])))
    assert result.schema_changes == ("i was int32 and is int64", "f was float and is double", "new string is new")
    assert "schema        i was int32 and is int64" in str(result)
    assert read(table) == [{"id": 1, "p": 1, "ts": 11, "n": 5, "i": 2**40, "f": 0.25, "new": "x"}]
    assert table.upsert(batch(i=1, f=0.5, new="y", ts=12)).schema_changes == ()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_lossy_changes_require_the_option(table_type: str) -> None:
    table = made(table_type)
    before = table.schema()
    for values in (
        {"n": pa.array([1.5])},
        {"n": pa.array(["text"])},
        {"f": pa.array(["text"])},
        {"i": pa.array([1.5], pa.float32())},
    ):
        for mode in ("strict", "merge", "widen", None):
            with pytest.raises(InvalidRequest, match=r"pyhudi\.schema\.mode"):
                table.upsert(batch(id=2, **values), schema_mode=mode)
    assert table.schema() == before and read(table)[0]["n"] == LARGE
    result = table.upsert(batch(id=2, n=pa.array(["text"])), schema_mode="evolve")
    assert result.schema_changes == ("n was int64 and is string",)
    assert {row["id"]: row["n"] for row in read(table)} == {1: str(LARGE), 2: "text"}


def test_integers_are_not_rounded_to_floating_point() -> None:
    table = made(n=pa.float64())
    for mode in ("strict", "merge", "widen", "evolve"):
        with pytest.raises(InvalidRequest, match=f"'n': {LARGE} cannot be stored as double"):
            table.upsert(batch(n=LARGE), schema_mode=mode)
    table.upsert(batch(n=2**53))
    assert read(table)[0]["n"] == float(2**53)


def test_strict_takes_no_new_columns_and_no_wider_types() -> None:
    table = made()
    for values in ({"new": 1}, {"i": pa.array([1], pa.int64())}):
        with pytest.raises(InvalidRequest, match="schema mode strict"):
            table.upsert(batch(**values), schema_mode="strict")
    with pytest.raises(InvalidRequest, match=r"pyhudi\.schema\.mode"):
        table.upsert(batch(), schema_mode="loose")
    table.upsert(batch(n=pa.array([7], pa.int8())), options={"pyhudi.schema.mode": "strict"})
    assert read(table)[0]["n"] == 7


def test_column_of_only_nulls_takes_the_table_type() -> None:
    table = made()
    assert table.upsert(batch(n=pa.nulls(1), f=pa.nulls(1))).schema_changes == ()
    assert read(table)[0]["n"] is None
    with pytest.raises(InvalidRequest, match="only nulls has no type"):
        table.upsert(batch(new=pa.nulls(1)))


def test_keys_to_delete_have_the_types_of_the_table() -> None:
    table = made()
    for keys in ({"id": [1.0]}, {"id": [1], "p": [1.0]}):
        with pytest.raises(InvalidRequest, match="cast it"):
            table.delete(pa.table(keys))
    assert table.delete(pa.table({"id": pa.array([1], pa.int8()), "p": [1]})).rows_deleted == 1


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_text_of_keys_partitions_and_ordering_values_takes_no_floats_and_no_dates(table_type: str) -> None:
    table = made(table_type, id=pa.string(), p=pa.string(), ts=pa.string())
    before = read(table)
    text = {"id": "1", "p": "1", "ts": "2"}
    for name, role in (("id", "a record key field"), ("p", "a partition field"), ("ts", "the ordering field")):
        for value in (1.0, date(2026, 7, 1), Decimal("1.0"), True, datetime(2026, 7, 1, tzinfo=UTC)):
            for operation in (table.upsert, table.insert):
                with pytest.raises(InvalidRequest, match="cast the column to the table's type") as refused:
                    operation(batch(**{n: pa.array([v]) for n, v in {**text, name: value}.items()}))
                assert isinstance(value, (bool, datetime)) or role in str(refused.value)
    with pytest.raises(InvalidRequest, match="cast"):
        table.delete(pa.table({"id": ["1"], "p": [1.0]}))
    assert read(table) == before
    table.upsert(batch(id=1, p=1, ts=pa.array(["2"])))
    assert [(row["id"], row["p"], row["ts"], row["n"]) for row in read(table)] == [("1", "1", "2", 5)]
