"""Columns that may not be null: a null is refused with its column and row, and mode `widen` makes the column nullable."""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("ts", pa.int64(), False),
        pa.field("name", pa.string(), False),
        pa.field("place", pa.struct([pa.field("city", pa.string(), False)])),
    ]
)
_numbers = itertools.count()


def made(table_type: str = "cow", options: dict[str, Any] | None = None) -> hp.Table:
    uri = f"memory://required-{next(_numbers)}/t"
    return hp.Table.create(uri, name="t", record_key="id", ordering="ts", table_type=table_type, schema=SCHEMA, options=options)


def row(key: int, name: str | None = "a", city: str | None = "oslo") -> dict[str, Any]:
    return {"id": key, "ts": 1, "name": name, "place": {"city": city}}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_nullable_input_keeps_required_columns(table_type: str) -> None:
    table = made(table_type)
    table.append(pd.DataFrame([row(1)]))
    table.append(pa.Table.from_pylist([row(2)]))
    result = table.upsert([row(3), row(1, "b")])
    assert table.schema().equals(SCHEMA)
    assert result.schema_changes == ()
    assert sorted(table.scan(["id", "name"]).to_arrow().to_pylist(), key=str) == [
        {"id": 1, "name": "b"},
        {"id": 2, "name": "a"},
        {"id": 3, "name": "a"},
    ]


@pytest.mark.parametrize("mode", [None, "strict", "merge"])
def test_a_null_is_refused_with_column_and_row(mode: str | None) -> None:
    table = made()
    table.append([row(1)])
    before = table.scan().to_arrow()
    for operation in (table.upsert, table.insert, table.bulk_insert, table.insert_overwrite, table.insert_overwrite_table):
        with pytest.raises(InvalidRequest, match=r"column 'name' may not be null: row 1 .*pyhudi\.schema\.mode=widen"):
            operation([row(2), row(3, None)], schema_mode=mode)
        with pytest.raises(InvalidRequest, match=r"column 'place\.city' may not be null: row 0"):
            operation([row(2, city=None)], schema_mode=mode)
    assert table.scan().to_arrow().equals(before)
    assert table.schema().equals(SCHEMA)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_widen_makes_the_columns_with_nulls_nullable(table_type: str) -> None:
    table = made(table_type)
    table.append([row(1)])
    result = table.upsert([row(2, None), row(3)], schema_mode="widen")
    assert result.schema_changes[0] == "name may be null"
    assert not table.schema().field("id").nullable
    assert not table.schema().field("ts").nullable
    assert table.schema().field("name").nullable
    assert sorted(table.scan().to_arrow()["name"].to_pylist(), key=str) == [None, "a", "a"]
    table.upsert([row(1, None)])
    assert table.scan(filter="name IS NULL").count() == 2


def test_a_null_record_key_is_refused_in_every_mode() -> None:
    table = made()
    table.append([row(1)])
    for mode in ("strict", "merge", "widen", "evolve"):
        with pytest.raises(InvalidRequest, match="id"):
            table.append([{**row(2), "id": None}, row(3)], schema_mode=mode)
    assert not table.schema().field("id").nullable


def test_missing_required_columns_need_widen() -> None:
    table = made(options={"hoodie.write.set.null.for.missing.columns": True})
    table.append([row(1)])
    missing = [{"id": 2, "ts": 1, "place": {"city": "rome"}}]
    with pytest.raises(InvalidRequest, match=r"name .*may not be null: pass values for it, or set pyhudi\.schema\.mode=widen"):
        table.append(missing)
    assert "name may be null" in table.append(missing, schema_mode="widen").schema_changes
    assert table.scan(filter="name IS NULL").count() == 1


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_partial_updates_keep_required_columns(table_type: str) -> None:
    table = made(table_type)
    table.append([row(1), row(2)])
    table.upsert(pa.table({"id": [1], "ts": [2], "place": pa.array([{"city": "rome"}])}), partial=True)
    assert table.schema().equals(SCHEMA)
    assert table.lookup([1]).to_arrow().to_pylist() == [{"id": 1, "ts": 2, "name": "a", "place": {"city": "rome"}}]


def test_update_and_merge_keep_required_columns() -> None:
    table = made()
    table.append([row(1), row(2)])
    with pytest.raises(InvalidRequest, match="name"):
        table.update({"name": None}, where="id = 1")
    source = pa.Table.from_pylist([row(1, None), row(5)])
    merge = table.merge(source, on="id").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(InvalidRequest, match="'name' may not be null"):
        merge.execute()
    assert table.schema().equals(SCHEMA)


def test_sql_agrees_with_python() -> None:
    table = made()
    table.append([row(1)])
    statement = f"INSERT INTO hudi.`{table.uri}` SELECT 2, 1, CAST(NULL AS STRING), named_struct('city', 'rome')"
    with pytest.raises(InvalidRequest, match=r"column 'name' may not be null: row 0 .*pyhudi\.schema\.mode=widen"):
        hp.sql(statement)
    hp.sql(statement, options={"pyhudi.schema.mode": "widen"})
    assert table.schema().field("name").nullable
    assert not table.schema().field("ts").nullable
    with pytest.raises(InvalidRequest, match=r"may not be null|NOT NULL"):
        hp.sql(f"UPDATE hudi.`{table.uri}` SET ts = NULL WHERE id = 1")
