"""Pages read one by one: the rows of Arrow, trusted bounds, damage."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.parquet.pages import PAGE_ROWS, ColumnPages, column_pages
from pyhudi.format.parquet.parquet_file import CheckedParquetFile, open_parquet

COUNT = 4 * PAGE_ROWS + 77


def rows() -> pa.Table:
    numbers = np.arange(COUNT)
    some = pa.array(numbers % 7 == 0)
    ascending = pa.array(numbers * 3)
    padded = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 8, "0")
    columns = {
        "long": ascending,
        "gaps": pa.array(numbers * 3, mask=numbers % 7 == 0),
        "int": pa.array((numbers % 1000).astype(np.int32)),
        "flag": some,
        "double": pa.array(numbers / 4),
        "float": pa.array((numbers / 4).astype(np.float32)),
        "text": padded,
        "few": pa.array(["a", "b", None]).take(pa.array(numbers % 3)),
        "bytes": padded.cast(pa.binary()),
        "date": pa.array((numbers // 100).astype(np.int32)).cast(pa.date32()),
        "time": pa.array(numbers * 10**9).cast(pa.timestamp("us", "UTC")),
        "local": pa.array(numbers).cast(pa.timestamp("us")),
        "price": pa.array(numbers).cast(pa.decimal128(21, 2)).cast(pa.decimal128(15, 2)),
        "large": pa.array(numbers).cast(pa.decimal128(38, 2)),
        "nulls": pa.nulls(COUNT, pa.int64()),
        "list": pa.ListArray.from_arrays(np.arange(COUNT + 1, dtype=np.int32), pa.array(numbers)),
        "struct": pa.StructArray.from_arrays([pa.array(numbers)], ["a"]),
    }
    return pa.table(columns)


ROWS = rows()


def written(**settings: Any) -> bytes:
    sink = io.BytesIO()
    given = {"write_page_checksum": True, "store_schema": False, "row_group_size": COUNT, "compression": "zstd", **settings}
    pq.write_table(ROWS, sink, **given)
    return sink.getvalue()


DATA = written()


def opened(data: bytes) -> CheckedParquetFile:
    return open_parquet(pa.BufferReader(data), ["few"])


def pages(data: bytes, name: str) -> ColumnPages | None:
    return column_pages(pa.BufferReader(data), pq.read_metadata(io.BytesIO(data)), 0, name)


@pytest.mark.parametrize(
    "settings",
    [{}, {"compression": "none", "use_dictionary": False}, {"compression": "snappy", "data_page_version": "2.0"}],
    ids=str,
)
def test_page_reader_returns_the_rows_of_arrow(settings: dict[str, Any]) -> None:
    data = written(**settings)
    expected = opened(data).read_row_group(0)
    chosen = [[0], [COUNT - 1], [PAGE_ROWS - 1, PAGE_ROWS], [5, 6, 3 * PAGE_ROWS, 3 * PAGE_ROWS + 9], list(range(0, COUNT, 5000))]
    for numbers in chosen:
        found = opened(data).read_rows(0, ROWS.column_names, np.array(numbers))
        assert found.schema.equals(expected.schema)
        assert found.equals(expected.take(numbers))
    assert opened(data).read_rows(0, ["struct", "few"], np.array([3])).column_names == ["struct", "few"]


def test_which_columns_have_pages_of_their_own() -> None:
    assert {name for name in ROWS.column_names if pages(DATA, name) is None} == {"local", "list", "struct"}
    assert pages(DATA, "none of the file") is None


def test_page_headers_are_cached() -> None:
    file = opened(DATA)
    assert file.pages(0, "long") is file.pages(0, "long")
    assert file.read_rows(0, ["long", "few"], None).equals(opened(DATA).read_row_group(0, ["long", "few"]))


def test_bounds_are_those_of_columns_that_ascend() -> None:
    with_bounds = {name for name in ROWS.column_names if (found := pages(DATA, name)) and found.bounds}
    assert with_bounds == {"long", "gaps", "text", "bytes", "date", "time"}
    found = pages(DATA, "long")
    assert found is not None and found.bounds is not None
    # Each reaches to the values of its neighbours.
    assert [(page.least, page.greatest) for page in found.bounds[:2]] == [
        (0, 3 * PAGE_ROWS),
        (3 * (PAGE_ROWS - 1), 3 * 2 * PAGE_ROWS),
    ]
    assert found.bounds[-1].greatest == 3 * (COUNT - 1)


def test_one_wrong_bit_in_the_head_of_a_page_hides_no_row() -> None:
    """Every third bit of the head of a page, one by one: an error, no bounds, or bounds within which the values still lie."""
    found = pages(DATA, "long")
    assert found is not None
    chunk = pq.read_metadata(io.BytesIO(DATA)).row_group(0).column(0)
    values = ROWS.column("long").to_numpy()
    at = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    before = 0 if found.dictionary is None else len(found.dictionary[0])
    starts = at + before + np.cumsum([0, *(len(page) for page, _ in found.pages)])
    metadata, harmless = pq.read_metadata(io.BytesIO(DATA)), 0
    start = int(starts[2])
    for bit in range(0, 8 * 70, 3):
        flipped = bytes([DATA[start + bit // 8] ^ 1 << bit % 8])
        source = pa.BufferReader(DATA[: start + bit // 8] + flipped + DATA[start + bit // 8 + 1 :])
        try:
            again = column_pages(source, metadata, 0, "long")
        except CorruptData:
            continue
        if again is None or again.bounds is None:
            continue
        harmless += 1
        assert again.first_rows.tolist() == found.first_rows.tolist()
        for number, page in enumerate(again.bounds):
            inside = values[again.first_rows[number] : again.first_rows[number + 1]]
            assert page.least <= inside.min() and inside.max() <= page.greatest
    assert harmless


def test_a_page_that_is_read_is_compared_with_its_checksum() -> None:
    found = pages(DATA, "text")
    assert found is not None
    data = bytearray(DATA)
    at = DATA.index(bytes(found.pages[2][0]))
    data[at + len(found.pages[2][0]) - 5] ^= 1
    assert opened(bytes(data)).read_rows(0, ["text"], np.array([1])).column("text").to_pylist() == ["00000001"]
    with pytest.raises(OSError, match="CRC"):
        opened(bytes(data)).read_rows(0, ["text"], np.array([2 * PAGE_ROWS + 1]))
