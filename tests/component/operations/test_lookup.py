"""Lookup of records by key, with and without the record index."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest

from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.tasks import read_slice
from tests.support.golden_tables import golden_cases, open_golden
from tests.support.rows import assert_same_rows

ROWS = pa.table(
    {
        "id": [f"k{n:03d}" for n in range(200)],
        "n": pa.array(range(200), pa.int32()),
        "day": pa.array([datetime.date(2026, 1, 1 + n % 3) for n in range(200)]),
        "text": [f"text {n}" for n in range(200)],
        "city": [("oslo", "rome")[n % 2] for n in range(200)],
    }
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    opened = Table.create(tmp_path / "t", name="t", record_key="id", partition_by="city")
    opened.insert(ROWS)
    yield opened


def ids(found: pa.Table) -> list[str]:
    return sorted(found["id"].to_pylist())


def test_texts_and_rows(table: Table) -> None:
    assert ids(table.lookup(["k003", "k150", "nobody", "k003"]).to_arrow()) == ["k003", "k150"]
    assert ids(table.lookup(pa.chunked_array([["k001"], ["k002"]])).to_arrow()) == ["k001", "k002"]
    assert ids(table.lookup(pa.table({"id": ["k004", "k005"], "other": [1, 2]})).to_arrow()) == ["k004", "k005"]
    assert table.lookup(["k007"], ["n"]).to_arrow().to_pylist() == [{"n": 7}]
    assert table.lookup([]).to_arrow().num_rows == 0
    for nothing in (pa.table({"id": pa.array([], pa.string())}), pa.array([], pa.int64()), pa.schema([]).empty_table()):
        assert table.lookup(nothing).count() == 0
    assert table.lookup([f"k{n:03d}" for n in range(300)]).count() == 200


def test_lookup_with_partition_values_reads_only_that_partition(table: Table) -> None:
    keys = pa.table({"id": ["k001", "k002", "k003"], "city": ["rome", "rome", "rome"]})
    found = table.lookup(keys)
    assert ids(found.to_arrow()) == ["k001", "k003"]
    assert {slice_.partition for slice_ in found.explain().slices} == {"rome"}
    both = pa.table({"id": ["k001", "k002", "k003", "k004"], "city": ["oslo", "oslo", "rome", "oslo"]})
    assert ids(table.lookup(both).to_arrow()) == ["k002", "k003", "k004"]


def test_lookup_reads_other_columns_only_in_files_with_matches(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, ...]] = []
    original = read_slice._group_rows

    def noting(file: Any, group: Any, needed: pa.Schema, *chosen: Any, **more: Any) -> Any:
        read.append(tuple(needed.names))
        return original(file, group, needed, *chosen, **more)

    monkeypatch.setattr(read_slice, "_group_rows", noting)
    assert table.lookup(["k0995"]).count() == 0
    # The key filter in the footer does not know it.
    assert not read
    assert table.lookup(["k100"], ["text"]).to_arrow().to_pylist() == [{"text": "text 100"}]
    assert ("text",) in read


@pytest.mark.parametrize("populate", [True, False])
def test_composite_keys_of_several_types(populate: bool) -> None:
    options = {"hoodie.populate.meta.fields": populate}
    table = Table.create(f"memory://lookup-composite-{populate}", name="t", record_key=["n", "day"], options=options)
    table.bulk_insert(ROWS)
    asked = ROWS.select(["day", "n"]).slice(5, 3)
    assert ids(table.lookup(asked).to_arrow()) == ["k005", "k006", "k007"]
    crossed = pa.table({"n": pa.array([5, 6], pa.int32()), "day": ROWS["day"].slice(6, 1).to_pylist() * 2})
    assert ids(table.lookup(crossed).to_arrow()) == ["k006"]
    if not populate:
        with pytest.raises(InvalidRequest, match="n, day"):
            table.lookup(["n:1,day:2026-01-01"])


@pytest.mark.parametrize("name", golden_cases(with_traits={"record_index"}))
def test_by_the_record_index(name: str, tmp_path: Path) -> None:
    golden = open_golden(name, tmp_path)
    table = Table(golden.path)
    rows = golden.expected("snapshot")
    for keys in (rows["id"].to_pylist()[:3], pa.table({"id": ["t004", "nobody"]})):
        wanted = keys if isinstance(keys, list) else keys["id"].to_pylist()
        found = table.lookup(keys, ["*"])
        assert_same_rows(found.to_arrow(), rows.filter(pa.compute.is_in(rows["id"], value_set=pa.array(wanted))))
        assert "record index" in {step.step for step in found.explain().prunings}
    assert table.lookup(["nobody"]).explain().slices == ()


def test_lookup_of_invalid_keys_is_rejected(table: Table) -> None:
    for keys in (pa.table({"n": [1]}), pa.array([1]), [1, 2], "k001", pa.array(["a", None]), pa.table({"id": ["a", None]}), 5):
        with pytest.raises(InvalidRequest):
            table.lookup(keys)
    empty = Table.create("memory://lookup-empty", name="t", record_key="id")
    with pytest.raises(TableState):
        empty.lookup(pa.table({"id": ["a"]}))


def test_text_is_the_name_of_one_column(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id")
    table.insert({"id": [1], "value": ["a"]})
    assert table.scan("value").to_arrow().to_pylist() == [{"value": "a"}]
    assert "_hoodie_record_key" in table.scan("*").to_arrow().column_names
