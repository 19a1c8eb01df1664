"""Fast decoder for decimal columns of Parquet files, which reads decimals as integers.

Hudi stores decimals as FIXED_LEN_BYTE_ARRAY, big-endian. Arrow decodes such values one by one, which takes half of the
time of reading a row group with many decimals. Values of at most eight bytes can be decoded faster. For each column:

    1. its pages are read from the file, verified by their checksums and decompressed
    2. the values of dictionaries and of plain pages are widened to INT64; dictionary indices, and the definition levels that
       mark null rows, are unchanged
    3. the pages become a column of a Parquet file in memory, whose type is a decimal stored as INT64, which Arrow reads; for
       a column without a dictionary and without nulls the values already are an Arrow array, except for each upper half

Columns that qualify: decimals of at most eight bytes, not nested, in row groups of `LEAST_ROWS` and more rows,
compressed by Zstandard, Snappy, gzip or not at all. Their pages have checksums, and are plain or dictionary-encoded if
there is a dictionary, otherwise plain and without nulls. Arrow reads every other column: with nulls and no dictionary
there is no gain.

Specification: parquet-format, parquet.thrift, "Data Pages", "Checksumming" and "Encodings".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData
from pyhudi.format.byte_cursor import encode_varint
from pyhudi.format.parquet.memory_file import (
    DATA,
    DATA_V2,
    DICTIONARY,
    INDEX,
    PAGE_HEADERS,
    PLAIN,
    RLE,
    RLE_DICTIONARY,
    MemoryColumn,
    memory_file,
)
from pyhudi.format.parquet.thrift_compact import STRUCT, Numbers, ThriftField, encode_struct, number_field, read_numbers

LEAST_ROWS: Final = 8192
"""Arrow reads smaller row groups: opening a file in memory costs more than it saves."""

_WIDEST: Final = 8
_CODECS: Final = {"UNCOMPRESSED": None, "SNAPPY": "snappy", "GZIP": "gzip", "ZSTD": "zstd"}
_ENCODINGS: Final = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_PLAIN_DICTIONARY: Final = 2
_INT64, _DECIMAL = 2, 5
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class DecimalChunk:
    """A column chunk of one row group that can be read as integers.

    Attributes:
        name: Column name.
        width: Bytes of a value.
        precision: Decimal precision.
        scale: Decimal scale.
        is_optional: The column is nullable.
        has_dictionary: If False, all of its pages are plain.
        codec: Compression; None for none.
        value_count: Number of values, nulls included.
        start: Offset of its pages in the file.
        size_bytes: Compressed size of its pages.
        unpacked_bytes: Upper bound of the uncompressed size of its pages.
    """

    name: str
    width: int
    precision: int
    scale: int
    is_optional: bool
    has_dictionary: bool
    codec: str | None
    value_count: int
    start: int
    size_bytes: int
    unpacked_bytes: int

    @property
    def type(self) -> pa.DataType:
        """The column's Arrow type."""
        return pa.decimal128(self.precision, self.scale)


def decimal_chunks(
    metadata: pq.FileMetaData, group: int, names: Collection[str] | None, least_rows: int = LEAST_ROWS
) -> list[DecimalChunk]:
    """Return the column chunks of a row group that qualify by the rule above, as far as the footer shows.

    Args:
        metadata: The footer.
        group: Row group.
        names: Columns; None for all.
        least_rows: Minimum number of rows of the row group.
    """
    rows = metadata.row_group(group)
    if rows.num_rows < least_rows:
        return []
    chunks = []
    for number in range(metadata.num_columns):
        leaf = metadata.schema.column(number)
        if leaf.physical_type != "FIXED_LEN_BYTE_ARRAY" or leaf.logical_type.type != "DECIMAL" or leaf.length > _WIDEST:
            continue
        if leaf.path != leaf.name or leaf.max_repetition_level or (names is not None and leaf.name not in names):
            continue
        chunk = rows.column(number)
        if chunk.compression not in _CODECS or not _ENCODINGS.issuperset(chunk.encodings):
            continue
        if not chunk.has_dictionary_page and not _is_full(leaf, chunk):
            continue
        chunks.append(
            DecimalChunk(
                leaf.name,
                leaf.length,
                leaf.precision,
                leaf.scale,
                leaf.max_definition_level == 1,
                chunk.has_dictionary_page,
                _CODECS[chunk.compression],
                chunk.num_values,
                min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset),
                chunk.total_compressed_size,
                chunk.total_uncompressed_size,
            )
        )
    return chunks


def _is_full(leaf: Any, chunk: Any) -> bool:
    """Return whether a chunk has no nulls according to its footer; its definition levels are verified later."""
    if leaf.max_definition_level == 0:
        return True
    statistics = chunk.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == 0


def read_decimals(source: pa.NativeFile, chunks: Sequence[DecimalChunk], *, verified: bool = True) -> pa.Table:
    """Read columns of one row group, in that order, except those whose pages do not qualify and must be read by Arrow.

    Args:
        chunks: The columns.
        verified: Verify the checksums of their pages.

    Raises:
        CorruptData: A checksum or a size differs.
    """
    columns: list[MemoryColumn] = []
    columns_by_name: dict[str, pa.Array | pa.ChunkedArray] = {}
    for chunk in chunks:
        if chunk.has_dictionary:
            column = _widened_column(source, chunk, verified=verified)
            columns += [] if column is None else [column]
            continue
        values = _plain_values(source, chunk, verified=verified)
        if values is not None:
            columns_by_name[chunk.name] = values
    if columns:
        read = pq.ParquetFile(memory_file(columns, chunks[0].value_count)).read(use_threads=False)
        columns_by_name.update(zip(read.column_names, read.columns, strict=True))
    had = [chunk for chunk in chunks if chunk.name in columns_by_name]
    fields = [pa.field(chunk.name, chunk.type, nullable=chunk.is_optional) for chunk in had]
    return pa.table([columns_by_name[chunk.name] for chunk in had], schema=pa.schema(fields))


@dataclass(frozen=True, slots=True)
class _Page:
    """A decompressed page of the file.

    Attributes:
        kind: Page type.
        fields: Header of the page type, by field number.
        levels: Definition levels, in the form of version 1.
        values: Encoded values.
    """

    kind: int
    fields: dict[int, int]
    levels: memoryview | bytes
    values: memoryview


class _UnsupportedPage(Exception):
    """A page that this decoder does not support."""


def _widened_column(source: pa.NativeFile, chunk: DecimalChunk, *, verified: bool) -> MemoryColumn | None:
    """Return a chunk with values widened to eight bytes; None if a page must be read by Arrow."""
    dictionary: list[bytes | memoryview] = []
    pages: list[bytes | memoryview] = []
    count = 0
    try:
        for page in _pages(source, chunk, verified=verified):
            if page.kind == DICTIONARY:
                dictionary += _dictionary_page(chunk, page)
            else:
                pages += _data_page(chunk, page)
                count += page.fields.get(1, 0)
    except _UnsupportedPage:
        return None
    if count != chunk.value_count:
        raise CorruptData(
            f"invalid number of values in the pages of {chunk.name}", offset=chunk.start, expected=chunk.value_count, found=count
        )
    size = sum(map(len, (*dictionary, *pages)))
    return MemoryColumn(
        chunk.name,
        _INT64,
        chunk.is_optional,
        pages,
        dictionary,
        size,
        converted=_DECIMAL,
        precision=chunk.precision,
        scale=chunk.scale,
    )


def _plain_values(source: pa.NativeFile, chunk: DecimalChunk, *, verified: bool) -> pa.Array | None:
    """Return the values of a chunk of plain pages without nulls; None if a page must be read by Arrow."""
    parts: list[npt.NDArray[np.int64]] = []
    try:
        for page in _pages(source, chunk, verified=verified):
            count = page.fields.get(1, 0)
            if page.kind == DICTIONARY or page.fields.get(2, 0) != PLAIN:
                return None
            if chunk.is_optional and not _are_all_present(page.levels, count):
                return None
            values = _widened_integers(chunk, page.values)
            if len(values) != count:
                raise CorruptData(
                    f"invalid values of a page of {chunk.name}", offset=chunk.start, expected=count, found=len(values)
                )
            parts.append(values)
    except _UnsupportedPage:
        return None
    total = sum(map(len, parts))
    if total != chunk.value_count:
        raise CorruptData(
            f"invalid number of values in the pages of {chunk.name}", offset=chunk.start, expected=chunk.value_count, found=total
        )
    # Sixteen bytes each, the lower half first; the upper half is the sign.
    halves = np.empty((total, 2), dtype="<i8")
    at = 0
    for part in parts:
        end = at + len(part)
        halves[at:end, 0] = part
        np.right_shift(part, 63, out=halves[at:end, 1])
        at = end
    return pa.Array.from_buffers(chunk.type, total, [None, pa.py_buffer(halves)], null_count=0)


def _are_all_present(levels: memoryview | bytes, count: int) -> bool:
    """Return whether definition levels, with their length, are one run of non-null values, as writers encode it."""
    return bytes(levels[_LENGTH.size :]) == encode_varint(count << 1) + b"\x01"


def _dictionary_page(chunk: DecimalChunk, page: _Page) -> list[bytes | memoryview]:
    values = _widened(chunk, page.values)
    value_count = page.fields.get(1, 0)
    if value_count * _WIDEST != len(values):
        raise CorruptData(
            f"invalid dictionary of {chunk.name}", offset=chunk.start, expected=value_count, found=len(values) // _WIDEST
        )
    header = encode_struct([number_field(1, value_count), number_field(2, PLAIN)])
    return [_page_header(DICTIONARY, len(values), header), values]


def _data_page(chunk: DecimalChunk, page: _Page) -> list[bytes | memoryview]:
    encoding, value_count = page.fields.get(2, 0), page.fields.get(1, 0)
    values: bytes | memoryview = page.values
    if encoding == PLAIN:
        values = _widened(chunk, page.values)
        count = len(values) // _WIDEST
        if count > value_count or (count < value_count and not chunk.is_optional):
            raise CorruptData(f"invalid values of a page of {chunk.name}", offset=chunk.start, expected=value_count, found=count)
    header = encode_struct([number_field(1, value_count), number_field(2, encoding), number_field(3, RLE), number_field(4, RLE)])
    return [_page_header(DATA, len(page.levels) + len(values), header), page.levels, values]


def _widened(chunk: DecimalChunk, values: memoryview) -> memoryview:
    """Convert big-endian integers of `chunk.width` bytes to little-endian ones of eight."""
    return memoryview(_widened_integers(chunk, values).view(np.uint8))  # type: ignore[arg-type]


def _widened_integers(chunk: DecimalChunk, values: memoryview) -> npt.NDArray[np.int64]:
    width, size = chunk.width, len(values)
    if size % width:
        raise CorruptData(f"invalid size of a page of {chunk.name}", offset=chunk.start, expected=width, found=size % width)
    # Eight bytes are read from the start of each value; the bytes after the value are shifted out.
    padded = np.zeros(size + _WIDEST, dtype=np.uint8)
    padded[:size] = np.frombuffer(values, dtype=np.uint8)
    big = np.ndarray((size // width,), dtype=">i8", buffer=padded, strides=(width,))
    numbers = big.astype("<i8")
    numbers >>= 64 - 8 * width
    return numbers


def _pages(source: pa.NativeFile, chunk: DecimalChunk, *, verified: bool) -> Iterator[_Page]:
    """Yield the pages of a chunk, decompressed. verified: their checksums are compared first."""
    source.seek(chunk.start)
    data = memoryview(source.read_buffer(chunk.size_bytes)).cast("B")
    if len(data) != chunk.size_bytes:
        raise CorruptData(f"truncated pages of {chunk.name}", offset=chunk.start, expected=chunk.size_bytes, found=len(data))
    codec = None if chunk.codec is None else pa.Codec(chunk.codec)
    at, seen, remaining_bytes = 0, 0, chunk.unpacked_bytes
    while seen < chunk.value_count:
        page_header, start = read_numbers(data, at, chunk.start)
        kind, unpacked, packed = (_number_of(page_header, number) for number in (1, 2, 3))
        offset = chunk.start + at
        if not 0 <= packed <= len(data) - start:
            raise CorruptData(f"invalid size of a page of {chunk.name}", offset=offset, expected=len(data) - start, found=packed)
        if not 0 <= unpacked <= remaining_bytes:
            raise CorruptData(
                f"invalid uncompressed size of a page of {chunk.name}", offset=offset, expected=remaining_bytes, found=unpacked
            )
        at, remaining_bytes = start + packed, remaining_bytes - unpacked
        if kind == INDEX:
            continue
        header = page_header.get(PAGE_HEADERS.get(kind, 0))
        if not isinstance(header, dict) or 4 not in page_header:
            raise _UnsupportedPage
        content = data[start:at]
        expected = _number_of(page_header, 4) & 0xFFFFFFFF
        if verified and expected != (actual := zlib.crc32(content)):
            raise CorruptData(f"checksum mismatch in a page of {chunk.name}", offset=offset, expected=expected, found=actual)
        try:
            page = _unpacked(chunk, kind, {n: _number_of(header, n, 0) for n in header}, content, unpacked, codec)
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptData(f"a page of {chunk.name} cannot be decompressed: {error}", offset=offset) from error
        if kind != DICTIONARY:
            if page.fields.get(1, 0) <= 0:
                raise CorruptData(f"a page of {chunk.name} without values", offset=offset)
            seen += page.fields[1]
        yield page


def _unpacked(
    chunk: DecimalChunk, kind: int, header: dict[int, int], content: memoryview, size: int, codec: pa.Codec | None
) -> _Page:
    encoding = header.get(2 if kind != DATA_V2 else 4)
    if kind == DICTIONARY:
        if encoding not in (PLAIN, _PLAIN_DICTIONARY):
            raise _UnsupportedPage
        return _Page(kind, header, b"", _inflated(content, size, codec))
    if encoding not in (PLAIN, _PLAIN_DICTIONARY, RLE_DICTIONARY):
        raise _UnsupportedPage
    if kind == DATA_V2:
        return _second_version(chunk, header, content, size, codec)
    data = _inflated(content, size, codec)
    if not chunk.is_optional:
        return _Page(kind, header, b"", data)
    if header.get(3) != RLE:
        raise _UnsupportedPage
    return _split(chunk, kind, header, data)


def _second_version(chunk: DecimalChunk, header: dict[int, int], content: memoryview, size: int, codec: pa.Codec | None) -> _Page:
    """Convert a page of version 2 to version 1: its levels precede the compressed part, without their length."""
    levels = header.get(5, 0)
    if header.get(6, 0) or not 0 <= levels <= min(size, len(content)):
        raise CorruptData(f"invalid levels of a page of {chunk.name}", offset=chunk.start, expected=len(content), found=levels)
    is_packed = header.get(7, 1) == 1
    values = _inflated(content[levels:], size - levels, codec if is_packed else None)
    fields = {1: header.get(1, 0), 2: header[4]}
    if not chunk.is_optional:
        return _Page(DATA, fields, b"", values)
    return _Page(DATA, fields, _LENGTH.pack(levels) + bytes(content[:levels]), values)


def _split(chunk: DecimalChunk, kind: int, header: dict[int, int], data: memoryview) -> _Page:
    size = _LENGTH.unpack_from(data)[0] + _LENGTH.size if len(data) >= _LENGTH.size else _LENGTH.size
    if size > len(data):
        raise CorruptData(f"invalid levels of a page of {chunk.name}", offset=chunk.start, expected=len(data), found=size)
    return _Page(kind, header, data[:size], data[size:])


def _inflated(content: memoryview, size: int, codec: pa.Codec | None) -> memoryview:
    if codec is None:
        if len(content) != size:
            raise CorruptData("invalid size of an uncompressed page", expected=size, found=len(content))
        return content
    return memoryview(codec.decompress(content, size)).cast("B") if size else memoryview(b"")


def _number_of(fields: Numbers, number: int, absent: int = -1) -> int:
    value = fields.get(number, absent)
    return value if isinstance(value, int) else absent


def _page_header(kind: int, size: int, header: bytes) -> bytes:
    return encode_struct(
        [number_field(1, kind), number_field(2, size), number_field(3, size), ThriftField(PAGE_HEADERS[kind], STRUCT, header)]
    )
