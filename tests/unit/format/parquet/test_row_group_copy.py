"""Row groups are copied with their pages, indexes and Bloom filters; damage is found, and readers accept the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.parquet.parquet_file import open_parquet
from pyhudi.format.parquet.row_group_copy import CopySource, RowGroupCopier, _chunks, _numbers
from pyhudi.format.parquet.thrift_compact import decode_fields, decode_structs, read_numbers
from tests.support.parquet_files import files_of_others

COUNT = 5000
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("many", pa.list_(pa.int32())),
        ("inner", pa.struct([("x", pa.float64()), ("m", pa.map_(pa.string(), pa.int64()))])),
    ]
)


def rows(seed: int, count: int = COUNT) -> pa.Table:
    numbers = range(seed, seed + count)
    columns: dict[str, list[Any]] = {
        "name": ["old"] * count,
        "id": list(numbers),
        "text": [None if n % 7 == 0 else f"text {n % 50}" for n in numbers],
        "many": [None if n % 5 == 0 else [n, None] * (n % 3) for n in numbers],
        "inner": [None if n % 11 == 0 else {"x": n / 2, "m": [("k", n)]} for n in numbers],
    }
    return pa.table(columns, schema=SCHEMA)


def written(seed: int, row_group_size: int = 2000, **settings: Any) -> bytes:
    sink = pa.BufferOutputStream()
    options = {"write_page_checksum": True, "data_page_size": 4096, "store_schema": False, **settings}
    pq.write_table(rows(seed), sink, row_group_size=row_group_size, **options)
    return bytes(sink.getvalue())


def new_name(count: int) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"name": pa.array(["new"] * count)})
    pq.write_table(table, sink, write_page_index=True, row_group_size=max(1, count), store_schema=False)
    return bytes(sink.getvalue())


def copied(*contents: bytes, replaces: bool = True, entries: Mapping[str, str] | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    sources = [CopySource.read(pa.BufferReader(content)) for content in contents]
    copier = RowGroupCopier(sink, sources[0])
    for content, source in zip(contents, sources, strict=True):
        for number in range(source.metadata.num_row_groups):
            copier.copy(pa.BufferReader(content), source, number, new_name if replaces else None)
    is_ordered = all(source.order_of_values is not None for source in sources)
    metadata = copier.close(entries or {}, is_ordered=is_ordered, created_by="several")
    result = bytes(sink.getvalue())
    assert copier.size_bytes == len(result)
    assert copier.row_count == metadata.num_rows
    return result


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["zstd", "gzip", "none"])
def test_rows_are_those_of_the_sources_except_for_replaced_columns(codec: str, version: str) -> None:
    first = written(0, compression=codec, data_page_version=version)
    second = written(COUNT, compression=codec, use_dictionary=False)
    result = copied(first, second, entries={"key": "value"})
    file = open_parquet(pa.BufferReader(result))
    expected = rows(0, 2 * COUNT).set_column(0, "name", pa.array(["new"] * 2 * COUNT))
    assert file.read().equals(expected)
    assert file.metadata.num_row_groups == 6
    assert (file.metadata.metadata or {})[b"key"] == b"value"
    assert pq.read_table(pa.BufferReader(result), page_checksum_verification=True).equals(expected)
    chunks = [file.metadata.row_group(group).column(1).statistics for group in range(6)]
    assert [chunk and (chunk.min, chunk.max) for chunk in (chunks[0], chunks[-1])] == [(0, 1999), (9000, 2 * COUNT - 1)]


def test_page_indexes_are_copied_with_positions_of_the_new_file() -> None:
    source = written(0, write_page_index=True)
    result = copied(source)
    for group in range(3):
        for leaf in range(1, 6):
            old, new = (pq.read_metadata(pa.BufferReader(content)).row_group(group).column(leaf) for content in (source, result))
            assert new.has_offset_index and new.has_column_index
            assert new.total_compressed_size == old.total_compressed_size
    for start, _ in page_starts(result):
        header, _ = read_numbers(memoryview(result), start)
        assert header[1] in (0, 3), "a page of values begins there"


def page_starts(content: bytes) -> list[tuple[int, int]]:
    """Position and size of each page that the offset indexes of a file name."""
    source = CopySource.read(pa.BufferReader(content))
    found = []
    for group in range(source.metadata.num_row_groups):
        for chunk in _chunks(pa.BufferReader(content), source, group).values():
            at, size = chunk.numbers[4], chunk.numbers[5]
            (locations,) = (f.value for f in decode_fields(content[at : at + size]) if f.number == 1)
            for location in decode_structs(locations):
                numbers = _numbers(location)
                found.append((numbers[1], numbers[2]))
    return found


def test_page_indexes_that_some_columns_lack_are_left_out() -> None:
    result = copied(written(0))
    metadata = pq.read_metadata(pa.BufferReader(result))
    assert not any(metadata.row_group(0).column(leaf).has_offset_index for leaf in range(6))


def test_every_bit_of_a_page_is_verified() -> None:
    content = written(0)
    metadata = pq.read_metadata(pa.BufferReader(content))
    chunk = metadata.row_group(1).column(2)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    for offset in (start + chunk.total_compressed_size - 1, start + chunk.total_compressed_size // 2):
        damaged = bytearray(content)
        damaged[offset] ^= 4
        with pytest.raises(CorruptData):
            copied(bytes(damaged))


def test_a_footer_of_another_writer_is_validated() -> None:
    content = bytearray(written(0))
    del content[100:200]
    with pytest.raises(CorruptData):
        copied(bytes(content))


@pytest.mark.full
def test_files_of_hudi_can_be_copied() -> None:
    files = files_of_others()
    assert files
    for name, content in files.items():
        result = copied(content, replaces=False)
        old, new = (open_parquet(pa.BufferReader(data)) for data in (content, result))
        assert str(new.read().to_pydict()) == str(old.read().to_pydict()), name
        assert new.metadata.created_by == old.metadata.created_by


def test_an_empty_file_contributes_nothing() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(rows(0, 0), sink, store_schema=False)
    empty = bytes(sink.getvalue())
    assert open_parquet(pa.BufferReader(copied(empty, written(0)))).metadata.num_rows == COUNT
