"""Checksums of pages are verified without decoding."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.parquet.verify_pages import verify_pages

ROWS = pa.table({"a": list(range(5000)), "b": [[n, None] for n in range(5000)], "c": [f"text {n}" for n in range(5000)]})


def _file(**settings: Any) -> tuple[bytearray, pq.FileMetaData]:
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink, data_page_size=4096, **settings)
    content = bytearray(sink.getvalue().to_pybytes())
    return content, pq.read_metadata(pa.BufferReader(bytes(content)))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_flipped_bit_is_found_only_in_verified_columns(version: str, codec: str) -> None:
    content, metadata = _file(write_page_checksum=True, data_page_version=version, compression=codec)
    verify_pages(pa.BufferReader(bytes(content)), metadata, 0, ROWS.column_names)
    for number in range(metadata.num_columns):
        chunk = metadata.row_group(0).column(number)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        for offset in (start + chunk.total_compressed_size - 1, start + chunk.total_compressed_size // 2):
            damaged = bytearray(content)
            damaged[offset] ^= 16
            name = chunk.path_in_schema.partition(".")[0]
            with pytest.raises(CorruptData):
                verify_pages(pa.BufferReader(bytes(damaged)), metadata, 0, {name})
            verify_pages(pa.BufferReader(bytes(damaged)), metadata, 0, {*ROWS.column_names} - {name})


def test_pages_without_checksums_are_not_verified() -> None:
    content, metadata = _file(write_page_checksum=False, compression="zstd")
    chunk = metadata.row_group(0).column(0)
    content[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 1] ^= 16
    verify_pages(pa.BufferReader(bytes(content)), metadata, 0, {"a"})


def test_a_truncated_chunk_is_corrupt() -> None:
    content, metadata = _file(write_page_checksum=True)
    with pytest.raises(CorruptData, match="do not match the footer"):
        verify_pages(pa.BufferReader(bytes(content[:100])), metadata, 0, {"a"})
