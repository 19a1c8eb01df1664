"""Verify the checksums of pages without decoding them, for files that another reader decodes.

Specification: parquet-format, "Checksumming".
"""

from __future__ import annotations

import zlib
from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData
from pyhudi.format.parquet.thrift_compact import read_numbers

_COMPRESSED_SIZE, _CHECKSUM = 3, 4
"""Fields of a page header."""


def verify_pages(source: pa.NativeFile, metadata: pq.FileMetaData, group: int, names: Collection[str]) -> None:
    """Verify the pages of top-level columns of a row group. Pages without a checksum are not verified.

    Raises:
        CorruptData: A checksum differs, or page headers do not match the footer.
    """
    rows = metadata.row_group(group)
    for number in range(metadata.num_columns):
        chunk = rows.column(number)
        if chunk.path_in_schema.partition(".")[0] in names or chunk.path_in_schema in names:
            verified_chunk(source, chunk)


def verify_row_group(source: pa.NativeFile, metadata: pq.FileMetaData, group: int) -> bool:
    """Verify all pages of a row group; return False if a page has no checksum. Raises as `verify_pages`."""
    rows = metadata.row_group(group)
    results = [_verify(_chunk_bytes(source, chunk), chunk) for chunk in map(rows.column, range(metadata.num_columns))]
    return all(results)


def verified_chunk(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> memoryview:
    """Return the bytes of a column chunk, with the page checksums verified. Raises as `verify_pages`."""
    data = _chunk_bytes(source, chunk)
    _verify(data, chunk)
    return data


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    return min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)


def _chunk_bytes(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> memoryview:
    start, size = _start(chunk), chunk.total_compressed_size
    source.seek(start)
    data = memoryview(source.read_buffer(size)).cast("B")
    if len(data) != size:
        raise CorruptData(
            f"the pages of {chunk.path_in_schema} do not match the footer", offset=start, expected=size, found=len(data)
        )
    return data


def _verify(data: memoryview, chunk: pq.ColumnChunkMetaData) -> bool:
    """Verify the pages of a chunk; return False if one has no checksum."""
    start, size, name = _start(chunk), len(data), chunk.path_in_schema
    at, is_complete = 0, True
    while at < size:
        header, content = read_numbers(data, at, start)
        length = header.get(_COMPRESSED_SIZE)
        if not isinstance(length, int) or not 0 <= length <= size - content:
            raise CorruptData(f"invalid size of a page of {name}", offset=start + at, expected=size - content, found=str(length))
        expected = header.get(_CHECKSUM)
        page = data[content : content + length]
        is_complete &= isinstance(expected, int)
        if isinstance(expected, int) and zlib.crc32(page) != expected & 0xFFFFFFFF:
            raise CorruptData(
                f"checksum mismatch in a page of {name}",
                offset=start + at,
                expected=expected & 0xFFFFFFFF,
                found=zlib.crc32(page),
            )
        at = content + length
    return is_complete
