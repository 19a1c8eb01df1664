"""Filtered reads of row groups with many pages return the rows of a full read from few pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.api import polars_scan
from pyhudi.format.parquet.pages import PAGE_ROWS, ColumnPages, read_pages
from pyhudi.tasks import read_slice

COUNT = 3 * PAGE_ROWS + 5
COLUMNS = ["id", "day", "text", "few", "price", "nested", "ts"]


def rows(first: int, count: int, ts: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    columns = {
        "id": pa.array(numbers),
        "day": pa.array((numbers // 1000).astype(np.int32), mask=numbers % 11 == 0).cast(pa.date32()),
        "text": pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 8, "0"),
        "few": pa.array(["a", "b", None]).take(pa.array(numbers % 3)),
        "price": pa.array(numbers).cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
        "nested": pa.StructArray.from_arrays([pa.array(numbers)], ["n"]),
        "ts": pa.array(np.full(count, ts)),
    }
    return pa.table(columns)


@pytest.fixture(scope="module", params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """One file group; the second commit changes and adds some rows: in a log where the table is merge on read."""
    folder = tmp_path_factory.mktemp(request.param)
    made = Table.create(folder, name="paged", record_key=["id"], ordering=["ts"], table_type=request.param)
    made.bulk_insert(rows(0, COUNT, 1))
    made.upsert(rows(COUNT - 10, 20, 2))
    return made


@pytest.fixture(autouse=True)
def read_without_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polars_scan, "_SMALL_BYTES", 1 << 62)


@pytest.fixture
def pages_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many pages each reading of a column took."""
    counts: list[int] = []

    def counted(pages: ColumnPages, chosen: np.ndarray, open_: object) -> pa.Table:
        counts.append(len(chosen))
        return read_pages(pages, chosen, open_)  # type: ignore[arg-type]

    monkeypatch.setattr("pyhudi.format.parquet.parquet_file.read_pages", counted)
    yield counts


def by_id(found: pa.Table) -> pa.Table:
    return found.select(COLUMNS).sort_by("id").combine_chunks()


FILTERS = {
    "id = 30000": pc.field("id") == 30_000,
    "id >= 59000 AND id < 59010": (pc.field("id") >= 59_000) & (pc.field("id") < 59_010),
    f"id = 19999 OR text = '00020000' OR id = {COUNT + 9}": pc.field("id").isin([19_999, 20_000, COUNT + 9]),
    "text > '00059990' AND few = 'a'": (pc.field("text") > "00059990") & (pc.field("few") == "a"),
    "few IS NULL AND text < '00000100'": pc.field("few").is_null() & (pc.field("text") < "00000100"),
    "day = DATE '1970-01-21'": pc.field("day") == pa.scalar(20, pa.int32()).cast(pa.date32()),
    "day IS NULL AND id < 100": pc.field("day").is_null() & (pc.field("id") < 100),
    "ts = 2": pc.field("ts") == 2,
    "few = 'b'": pc.field("few") == "b",
    "NOT few = 'b'": pc.field("few") != "b",
    "few IN ('c', 'a')": pc.field("few") == "a",
    "id < 0": pc.field("id") < 0,
    "nested.n = 25000": pc.field("id") == 25_000,
    "price = 40000.00 AND id > 39000": pc.field("id") == 40_000,
}


@pytest.mark.sample(13)
@pytest.mark.parametrize("text", FILTERS)
def test_the_rows_of_a_full_read(table: Table, text: str) -> None:
    expected = by_id(table.scan().to_arrow().filter(FILTERS[text]))
    found = table.scan(filter=text).to_arrow()
    assert found.schema.equals(table.scan().schema)
    assert by_id(found).equals(expected)
    assert table.scan(columns=["price"], filter=text).count() == expected.num_rows


@pytest.mark.parametrize("table", ["cow"], indirect=True)
def test_a_row_takes_a_page_of_each_column(table: Table, pages_read: list[int]) -> None:
    assert table.scan(columns=["text", "price"], filter="text = '00030000'").to_arrow().num_rows == 1
    # Of text when it is looked at; of price, whose rows are known then.
    assert pages_read and set(pages_read) == {1}


def test_incremental_reads_give_what_the_commit_wrote(table: Table) -> None:
    last = table.timeline().completed_writes()[-1]
    found = table.incremental(last.completion_time).to_arrow()
    assert by_id(found).equals(by_id(rows(COUNT - 10, 20, 2)))


@pytest.mark.parametrize("table", ["cow"], indirect=True)
def test_file_whose_bloom_filter_lacks_the_key_is_not_read(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("columns were read")

    monkeypatch.setattr(read_slice, "rows_at", fail)
    # Between the keys that are there.
    assert table.lookup(["30000 and more"]).to_arrow().num_rows == 0
    with pytest.raises(AssertionError, match="columns were read"):
        table.lookup(["30000"]).to_arrow()


def test_a_column_that_was_widened_since(tmp_path: Path) -> None:
    made = Table.create(tmp_path / "t", name="wide", record_key=["id"], ordering=["ts"])
    narrow = rows(0, COUNT, 1).append_column("number", pa.array(np.arange(COUNT, dtype=np.int32)))
    made.bulk_insert(narrow)
    made.alter.retype("number", pa.int64())
    found = made.scan(filter="number = 41000").to_arrow()
    assert found["id"].to_pylist() == [41_000]
