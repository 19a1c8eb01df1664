"""Reads that match a small table of keys open only candidate files and return the rows of a join."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest, Unsupported
from tests.support.opened_files import recorded

OPTIONS: dict[str, Any] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.index.column.stats.column.list": "n,at",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
}
DAY = 86_400


@pytest.fixture(scope="module", params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Four files of three records, keyed by two fields; merge on read: one of them with a log that moves `n`."""
    table = Table.create(
        tmp_path_factory.mktemp("match") / "t",
        record_key=["id", "place"],
        partition_by="part",
        ordering="ts",
        table_type=request.param,
        options=OPTIONS,
    )
    for part in range(4):
        table.bulk_insert(rows(part))
    table.index.create("record_index")
    table.index.create("secondary_index", "note")
    if request.param == "mor":
        table.upsert(rows(3, ts=2, n=50))
    return table


def rows(part: int, ts: int = 1, n: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{part}{number}" for number in range(3)],
            "place": pa.array([10 * part + number for number in range(3)], pa.int64()),
            "part": ["abcd"[part]] * 3,
            "ts": pa.array([ts] * 3, pa.int64()),
            "n": pa.array([n + part, None, n + part + 1], pa.int32()),
            "note": [f"of {part}", None, "any"],
            "at": pa.array([datetime.fromtimestamp(DAY * part, UTC)] * 3, pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return recorded(monkeypatch)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("keys", "files"),
    [
        ({"id": ["k11", "k12", "nobody"], "place": [11, 13, 12]}, 1),
        ({"n": [1, None, 90]}, 2),
        ({"at": [datetime.fromtimestamp(DAY * 2, UTC)], "n": [3]}, 1),
        ({"part": ["b", "c"], "place": [12, 20]}, 2),
        ({"note": ["of 2", "of 0"]}, 2),
        ({"n": []}, 0),
    ],
)
def test_a_scan_of_matching_rows(table: Table, opened: list[str], keys: dict[str, list[Any]], files: int) -> None:
    small = pa.table(keys) if keys.get("n") != [] else pa.table({"n": pa.array([], pa.int64())})
    found = table.scan(["id"], keys=small).to_arrow()["id"].to_pylist()
    assert len(set(opened)) == files
    typed = small.cast(pa.schema([table.scan(["*"]).to_arrow().schema.field(name) for name in small.column_names]))
    whole = table.scan(["*"]).to_arrow()
    expected = whole.join(typed, typed.column_names, join_type="left semi")["id"].to_pylist()
    assert sorted(found) == sorted(expected)


def test_rows_that_do_not_fit_are_refused(table: Table) -> None:
    for keys, error, said in (
        (pa.table({"nowhere": [1]}), InvalidRequest, "no column 'nowhere'|is none"),
        (pa.table({"id": [1]}), InvalidRequest, "cast them"),
        (pa.table({"n": [1.5]}), InvalidRequest, "1.5|n"),
        (pa.table({"n": list(range(1001)), "ts": list(range(1001))}), Unsupported, "limited to 1000"),
    ):
        with pytest.raises(error, match=said):
            table.scan(keys=keys).to_arrow()
    assert table.scan(["id"], keys=pl.DataFrame({"n": [1]}), filter="note = 'any'").count() == 1


def test_only_rows_whose_keys_are_new_are_left(table: Table, opened: list[str]) -> None:
    data = pa.table(
        {
            "id": ["k10", "new", "k10", "k20", None],
            "place": [10, 1, 11, 20, 5],
            "part": ["b", "b", "b", "a", "a"],
            "payload": [{"x": 1}, {"x": 2}, None, {"x": 4}, {"x": 5}],
        }
    )
    assert table.filter_exists(data)["payload"].to_pylist() == [{"x": 2}, None, {"x": 4}, {"x": 5}]
    assert len(set(opened)) <= 2
    anywhere = table.filter_exists(data.drop_columns(["part"]))
    assert anywhere["payload"].to_pylist() == [{"x": 2}, None, {"x": 5}]
    assert table.filter_exists(data.slice(0, 0)).num_rows == 0
    with pytest.raises(InvalidRequest, match="lack the record key fields place"):
        table.filter_exists(data.select(["id"]))


def test_filter_exists_gives_views_of_text_back(tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", options=OPTIONS)
    table.upsert(pa.table({"id": ["a", "b"], "raw": [b"1", b"2"]}))
    rows = pa.table({"id": pa.array(["b", "c"], pa.string_view()), "raw": pa.array([b"2", None], pa.binary_view())})
    assert table.filter_exists(rows).equals(rows.slice(1))
    assert table.filter_exists(pl.DataFrame({"id": ["b", "c"]})).to_pylist() == [{"id": "c"}]


def test_filter_exists_leaves_what_an_insert_would_add(tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", ordering="ts", options=OPTIONS)
    table.upsert(pa.table({"id": [1, 2], "ts": [1, 1]}))
    new = table.filter_exists(pl.DataFrame({"id": [2, 3], "ts": [5, 5]}))
    assert new.to_pylist() == [{"id": 3, "ts": 5}]
    table.insert(new)
    assert table.filter_exists(new).num_rows == 0
