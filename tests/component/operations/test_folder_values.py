"""A partition column has the value of its folder, whatever a file stores in it, as in Hudi."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from tests.support.other_folder import with_other_values

OFF = {"hoodie.metadata.enable": False}
CITIES: dict[Any, list[int]] = {"x": [1, 2], "y": [3], "z w": [4]}


def rows(cities: dict[Any, list[int]], type_: pa.DataType | None = None) -> pa.Table:
    pairs = [(key, city) for city, keys in cities.items() for key in keys]
    ids, values = [key for key, _ in pairs], [city for _, city in pairs]
    return pa.table({"id": ids, "city": pa.array(values, type_), "v": [10 * key for key in ids]})


def by_city(read: pa.Table) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for row in sorted(read.to_pylist(), key=lambda row: row["id"]):
        found.setdefault(row["city"], []).append(row["id"])
    return found


def made(path: Path, data: pa.Table, stored: Any, **options: Any) -> Table:
    with with_other_values("city", stored):
        table = Table.create(path, record_key="id", partition_by=["city"], **{"options": OFF, **options})
        table.insert(data)
    return Table(path, options=OFF)


READERS: dict[str, Callable[[Table], pa.Table]] = {
    "scan": lambda table: table.scan(["id", "city"]).to_arrow(),
    "dataset": lambda table: table.scan(["id", "city"]).to_dataset().to_table(),
    "dataset filter": lambda table: table.scan(["id", "city"]).to_dataset().to_table(filter=pa.compute.field("city") != "q"),
    "duckdb": lambda table: table.scan(["id", "city"]).to_duckdb(duckdb.connect()).to_arrow_table(),
    "polars": lambda table: hp.scan_polars(table.uri, options=OFF).select("id", "city").collect().to_arrow(),
    "polars filter": lambda table: (
        hp.scan_polars(table.uri, options=OFF).select("id", "city").filter(pl.col("city") < "zz").collect().to_arrow()
    ),
    "sql": lambda table: hp.sql("SELECT id, city FROM t", tables={"t": table}),
    "sql filter": lambda table: hp.sql("SELECT id, city FROM t WHERE city < 'zz' AND v > 0", tables={"t": table}),
    "incremental": lambda table: table.incremental("earliest", columns=["id", "city"]).to_arrow(),
    "lookup": lambda table: table.lookup(pa.table({"id": [1, 2, 3, 4]}), columns=["id", "city"]).to_arrow(),
}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("reader", sorted(READERS))
def test_every_reader_shows_the_folder(reader: str, table_type: str, tmp_path: Path) -> None:
    table = made(tmp_path, rows(CITIES), "other", table_type=table_type)
    if table_type == "MERGE_ON_READ":
        with with_other_values("city", "other"):
            table.upsert(rows({"x": [2]}))
    assert by_city(READERS[reader](table)) == CITIES


@pytest.mark.parametrize(
    ("cities", "stored"),
    [
        ({10: [1], None: [2]}, 99),
        ({1.5: [1], -0.25: [2]}, 9.9),
        ({True: [1], False: [2]}, True),
        ({"": [1], None: [2], "x": [3]}, None),
    ],
)
def test_values_of_every_type(cities: dict[Any, list[int]], stored: Any, tmp_path: Path) -> None:
    """An empty text has the folder of null, so what the file stores is right."""
    table = made(tmp_path, rows(cities), stored)
    expected = {1: None, 2: None, 3: "x"} if stored is None else {key: city for city, keys in cities.items() for key in keys}
    for read in (READERS["scan"], READERS["dataset"], READERS["duckdb"], READERS["polars"]):
        assert {row["id"]: row["city"] for row in read(table).to_pylist()} == expected


def test_empty_texts_are_not_nulls(tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", partition_by=["city"], options=OFF)
    table.insert(rows({"": [1], None: [2], "x": [3]}))
    for read in (READERS["scan"], READERS["dataset"], READERS["duckdb"], READERS["polars"]):
        assert by_city(read(table)) == {"": [1], None: [2], "x": [3]}


@pytest.mark.parametrize("metadata", [False, True])
def test_filters_updates_and_deletes_go_by_the_folder(metadata: bool, tmp_path: Path) -> None:
    table = made(tmp_path, rows(CITIES), "y", options={"hoodie.metadata.enable": metadata})
    assert by_city(table.scan(["id", "city"], filter="city = 'y'").to_arrow()) == {"y": [3]}
    assert by_city(table.scan(["id", "city"], filter="city <> 'y' AND id < 4").to_arrow()) == {"x": [1, 2]}
    assert table.count(filter="city = 'x'") == 2
    table.update({"v": 7}, where="city = 'x'")
    assert sorted(table.scan(["id"], filter="v = 7").to_arrow()["id"].to_pylist()) == [1, 2]
    table.delete(where="city = 'y'")
    assert by_city(table.scan(["id", "city"]).to_arrow()) == {"x": [1, 2], "z w": [4]}


def test_ordering_field_as_partition_column(tmp_path: Path) -> None:
    """Rows are merged by what files store, and shown with the folder."""
    data = rows({1: [1], 2: [2]})
    table = made(tmp_path, data, 50, ordering="city", table_type="MERGE_ON_READ")
    table.upsert(rows({2: [2]}).set_column(2, "v", pa.array([7])))
    assert table.scan().to_arrow().sort_by("id").to_pylist() == data.to_pylist()
