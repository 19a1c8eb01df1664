"""Key arguments: values, tuples and rows; limits on rows; missing partitions."""

from __future__ import annotations

import itertools
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest

_names = itertools.count()


def made(record_key: Any = "id", **settings: Any) -> Table:
    options = {"hoodie.index.bloom.num_entries": 100, "hoodie.metadata.enable": False}
    table = Table.create(f"memory://given-keys-{next(_names)}", record_key=record_key, options=options, **settings)
    table.append([{"id": number, "name": f"n{number % 3}", "city": ("oslo", "rome")[number % 2]} for number in range(6)])
    return table


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


class _Size(Enum):
    SMALL = 1


def test_decimal_keys_have_the_scale_of_the_table() -> None:
    table = Table.create(f"memory://given-keys-{next(_names)}", record_key="id")
    table.upsert(pa.table({"id": pa.array([Decimal("1.500"), Decimal("2.250")], pa.decimal128(20, 3)), "v": [1, 2]}))
    assert table.lookup([Decimal("1.5")]).count() == 1
    assert table.delete([Decimal("1.5")]).rows_deleted == 1


def test_a_uuid_is_text_and_an_enum_member_is_refused() -> None:
    table, key = Table.create(f"memory://given-keys-{next(_names)}", record_key="id"), UUID(int=7)
    table.upsert([{"id": key, "v": 1}])
    assert table.lookup([key]).to_arrow()["id"].to_pylist() == [str(key)]
    assert table.count([("id", "=", key)]) == table.delete([key]).rows_deleted == 1
    for refused in (lambda: table.lookup([_Size.SMALL]), lambda: table.upsert([{"id": "a", "v": _Size.SMALL}])):
        with pytest.raises(InvalidRequest, match=r"pass _Size\.SMALL\.value"):
            refused()


@pytest.mark.parametrize("partition", [None, "city"])
def test_values(partition: str | None) -> None:
    table = made(partition_by=partition)
    for keys in (
        [1, 4, 9],
        (1, 4),
        {1, 4},
        pa.array([1, 4], pa.int32()),
        [{"id": 1}, {"id": 4}],
        ["1", "4"],
        pa.array(["1", "4"]),
        np.array([1, 4]),
        pd.Series([1, 4]),
        pl.Series([1, 4]),
        [np.int32(1), pa.scalar(4)],
    ):
        assert ids(table.lookup(keys).to_arrow()) == [1, 4]
    for items in (np.array([1, 4]), pl.Series([1, 4]), [np.int64(1), pa.scalar(4)]):
        assert ids(table.scan(filter=[("id", "in", items)]).to_arrow()) == [1, 4]
    assert ids(table.lookup(range(2, 4)).to_arrow()) == [2, 3]
    assert table.delete(keys=[1, 4, 9]).rows_deleted == 2
    assert table.delete(pl.Series([2])).rows_deleted == 1
    assert table.delete(["3"]).rows_deleted == 1
    assert table.delete([{"id": 5}, {"id": 8}]).rows_deleted == 1
    assert ids(table.scan().to_arrow()) == [0]
    for wrong in ([0.0], [None], [(0, "n0")], [0, "x"], [b"0"]):
        with pytest.raises(InvalidRequest):
            table.delete(wrong)
    assert ids(table.scan().to_arrow()) == [0]


@pytest.mark.parametrize("value", [1, 1.0, True, b"1", Decimal(1)], ids=repr)
def test_keys_of_text_are_given_as_text(value: object) -> None:
    """Both methods have one rule and one message."""
    table = Table.create(f"memory://given-keys-{next(_names)}", record_key="id", options={"hoodie.metadata.enable": False})
    table.append([{"id": str(value)}])
    said = []
    for operation in (table.lookup, table.delete):
        for keys in ([value], [{"id": value}]):
            with pytest.raises(InvalidRequest, match=r"keys of column 'id' must be strings, not .*: cast them") as refused:
                operation(keys)
            said.append(str(refused.value))
    assert len(set(said)) == 1
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        rows = pa.table({"id": pa.array([str(value)]).cast(kind)})
        assert table.lookup(rows).to_arrow().num_rows == 1
        table.delete(rows)
        table.append([{"id": str(value)}])


def test_keys_of_several_fields_are_tuples() -> None:
    table = made(["id", "name"])
    assert ids(table.lookup([(1, "n1"), (2, "n0"), (3, "n0")]).to_arrow()) == [1, 3]
    assert ids(table.lookup(["id:1,name:n1"]).to_arrow()) == [1]
    assert table.delete([(1, "n1"), (2, "n0")]).rows_deleted == 1
    for wrong in ([1], [(1,)], [(1, "n1", 2)], pa.array([1])):
        with pytest.raises(InvalidRequest):
            table.delete(wrong)
        with pytest.raises(InvalidRequest):
            table.lookup(wrong)


def test_tables_that_generate_keys_take_rows() -> None:
    table = made(None)
    with pytest.raises(InvalidRequest, match="_hoodie_record_key and _hoodie_partition_path"):
        table.delete([1])


@pytest.mark.parametrize("key", [1, "n0", b"x", 1.5, True])
def test_single_key_is_refused_where_a_list_is_required(key: object) -> None:
    table = made()
    with pytest.raises(InvalidRequest, match=r"list of values, such as \[.*where="):
        table.delete(key)
    with pytest.raises(InvalidRequest, match="list of values"):
        table.lookup(key)


def test_some_rows() -> None:
    table = made(partition_by="city")
    assert [table.scan(["id"]).head(limit).num_rows for limit in (0, 1, 4, 6, 60)] == [0, 1, 4, 6, 6]
    assert table.scan(filter="id = 3").head().to_pylist() == [{"id": 3, "name": "n0", "city": "rome"}]
    with pytest.raises(InvalidRequest):
        table.scan().head(-1)


def test_missing_partitions_are_reported() -> None:
    table = made(partition_by="city")
    result = table.delete_partitions(["rome", "paris", "l*", "o*"])
    assert result.not_found == ("paris", "l*")
    assert "not found     paris, l*" in str(result)
    assert not table.scan().count()
    assert not table.delete_partitions([]).not_found
