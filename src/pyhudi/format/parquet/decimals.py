"""Decimals of a Parquet file, read as the whole numbers that they are.

Hudi stores decimals as FIXED_LEN_BYTE_ARRAY, big-endian, and Arrow takes such values one by one: of a row group of many decimals
that is half of the time to read it.  Values of eight bytes and fewer can be had for less.  For each column:

    1. its pages are taken out of the file, compared with their checksums and unpacked
    2. the values of dictionaries and of plain pages are widened to INT64; numbers of values in a dictionary, and the levels that
       say which rows are null, stay as they are
    3. the pages become a column of a Parquet file in memory, whose type is a decimal stored as INT64, and Arrow reads that; of a
       column without a dictionary and without nulls the values are an Arrow array already, but for the upper half of each

The rule of what is read so: decimals of at most eight bytes, not within other columns, in row groups of `LEAST_ROWS` and more,
packed by Zstandard, Snappy, gzip or not at all, whose pages have a checksum, and are plain or numbers of a dictionary where they
have one, else plain and without nulls.  Any other column is Arrow's to read: among nulls nothing is gained without a dictionary.

Source: parquet-format, parquet.thrift, "Data Pages", "Checksumming" and "Encodings".
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
from pyhudi.format.byte_cursor import encode_varint, encode_zigzag
from pyhudi.format.parquet.thrift_compact import (
    BINARY,
    I32,
    I64,
    STRUCT,
    Numbers,
    ThriftField,
    encode_struct,
    list_field,
    number_field,
    read_numbers,
    text_field,
)

LEAST_ROWS: Final = 8192
"""Row groups of fewer rows are Arrow's to read: opening a file in memory costs more than it saves."""

_MAGIC: Final = b"PAR1"
_WIDEST: Final = 8
_CODECS: Final = {"UNCOMPRESSED": None, "SNAPPY": "snappy", "GZIP": "gzip", "ZSTD": "zstd"}
_ENCODINGS: Final = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_INT64, _DECIMAL, _OPTIONAL = 2, 5, 1
_LENGTH: Final = struct.Struct("<I")
_HEADERS: Final = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""Which field of a page header says more of a page of a kind."""


@dataclass(frozen=True, slots=True)
class DecimalChunk:
    """A column of one row group that can be read as whole numbers.

    width: bytes of a value.  has_dictionary: else all of its pages are plain.  start, size_bytes: where its pages lie in the
    file; unpacked_bytes: of all of them at most.
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
        """The column's type in Arrow."""
        return pa.decimal128(self.precision, self.scale)


def decimal_chunks(
    metadata: pq.FileMetaData, group: int, names: Collection[str] | None, least_rows: int = LEAST_ROWS
) -> list[DecimalChunk]:
    """Those of some columns of a row group that go by the rule above, as far as the footer tells.  names: None for all."""
    rows = metadata.row_group(group)
    if rows.num_rows < least_rows:
        return []
    found = []
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
        found.append(
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
    return found


def _is_full(leaf: Any, chunk: Any) -> bool:
    """Whether a chunk has no nulls, as far as its footer tells; the levels of its pages are looked at besides."""
    if leaf.max_definition_level == 0:
        return True
    told = chunk.statistics
    return told is not None and told.has_null_count and told.null_count == 0


def read_decimals(source: pa.NativeFile, chunks: Sequence[DecimalChunk]) -> pa.Table:
    """The columns of one row group, in that order, without those whose pages turn out to be Arrow's to read.

    Raises CorruptData where bytes are not those that were written.
    """
    parts: list[bytes | memoryview] = [_MAGIC]
    columns: list[_Column] = []
    found: dict[str, pa.Array | pa.ChunkedArray] = {}
    at = len(_MAGIC)
    for chunk in chunks:
        if not chunk.has_dictionary:
            values = _plain_values(source, chunk)
            if values is not None:
                found[chunk.name] = values
            continue
        pages = _widened_pages(source, chunk)
        if pages is None:
            continue
        size = sum(map(len, pages.parts))
        dictionary = at if pages.dictionary_bytes else None
        columns.append(_Column(chunk, at + pages.dictionary_bytes, dictionary, size))
        parts += pages.parts
        at += size
    if columns:
        footer = _footer(columns)
        file = pa.BufferReader(b"".join([*parts, footer, _LENGTH.pack(len(footer)), _MAGIC]))
        read = pq.ParquetFile(file).read(use_threads=False)
        found.update(zip(read.column_names, read.columns, strict=True))
    had = [chunk for chunk in chunks if chunk.name in found]
    fields = [pa.field(chunk.name, chunk.type, nullable=chunk.is_optional) for chunk in had]
    return pa.table([found[chunk.name] for chunk in had], schema=pa.schema(fields))


@dataclass(frozen=True, slots=True)
class _Pages:
    """dictionary_bytes: of the first parts that are the dictionary's page, 0 without one."""

    parts: list[bytes | memoryview]
    dictionary_bytes: int


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the file in memory: where its pages begin, and how many bytes they are."""

    chunk: DecimalChunk
    first_page: int
    dictionary: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Page:
    """A page of the file, unpacked.  fields: of the header of its kind, by number; levels: as of version 1."""

    kind: int
    fields: dict[int, int]
    levels: memoryview | bytes
    values: memoryview


class _UnsupportedPage(Exception):
    """A page is none of those that are read here."""


def _widened_pages(source: pa.NativeFile, chunk: DecimalChunk) -> _Pages | None:
    """The pages of a chunk with values of eight bytes; None where a page is Arrow's to read."""
    parts: list[bytes | memoryview] = []
    dictionary_bytes = count = 0
    try:
        for page in _pages(source, chunk):
            if page.kind == _DICTIONARY:
                parts += _dictionary_page(chunk, page)
                dictionary_bytes = sum(map(len, parts))
            else:
                parts += _data_page(chunk, page)
                count += page.fields.get(1, 0)
    except _UnsupportedPage:
        return None
    if count != chunk.value_count:
        raise CorruptData(f"the values in the pages of {chunk.name}", offset=chunk.start, expected=chunk.value_count, found=count)
    return _Pages(parts, dictionary_bytes)


def _plain_values(source: pa.NativeFile, chunk: DecimalChunk) -> pa.Array | None:
    """The values of a chunk of plain pages without nulls; None where a page is Arrow's to read."""
    parts: list[npt.NDArray[np.int64]] = []
    try:
        for page in _pages(source, chunk):
            count = page.fields.get(1, 0)
            if page.kind == _DICTIONARY or page.fields.get(2, 0) != _PLAIN:
                return None
            if chunk.is_optional and not _are_all_present(page.levels, count):
                return None
            values = _whole_numbers(chunk, page.values)
            if len(values) != count:
                raise CorruptData(f"the values of a page of {chunk.name}", offset=chunk.start, expected=count, found=len(values))
            parts.append(values)
    except _UnsupportedPage:
        return None
    total = sum(map(len, parts))
    if total != chunk.value_count:
        raise CorruptData(f"the values in the pages of {chunk.name}", offset=chunk.start, expected=chunk.value_count, found=total)
    # Sixteen bytes each, the lower half first; the upper one holds the sign alone.
    halves = np.empty((total, 2), dtype="<i8")
    at = 0
    for part in parts:
        end = at + len(part)
        halves[at:end, 0] = part
        np.right_shift(part, 63, out=halves[at:end, 1])
        at = end
    return pa.Array.from_buffers(chunk.type, total, [None, pa.py_buffer(halves)], null_count=0)


def _are_all_present(levels: memoryview | bytes, count: int) -> bool:
    """Whether levels, with their length, are one run that says so of each value, which is how writers say it."""
    return bytes(levels[_LENGTH.size :]) == encode_varint(count << 1) + b"\x01"


def _dictionary_page(chunk: DecimalChunk, page: _Page) -> list[bytes | memoryview]:
    values = _widened(chunk, page.values)
    said = page.fields.get(1, 0)
    if said * _WIDEST != len(values):
        raise CorruptData(f"the dictionary of {chunk.name}", offset=chunk.start, expected=said, found=len(values) // _WIDEST)
    header = encode_struct([number_field(1, said), number_field(2, _PLAIN)])
    return [_page_header(_DICTIONARY, len(values), header), values]


def _data_page(chunk: DecimalChunk, page: _Page) -> list[bytes | memoryview]:
    encoding, said = page.fields.get(2, 0), page.fields.get(1, 0)
    values: bytes | memoryview = page.values
    if encoding == _PLAIN:
        values = _widened(chunk, page.values)
        count = len(values) // _WIDEST
        if count > said or (count < said and not chunk.is_optional):
            raise CorruptData(f"the values of a page of {chunk.name}", offset=chunk.start, expected=said, found=count)
    header = encode_struct([number_field(1, said), number_field(2, encoding), number_field(3, _RLE), number_field(4, _RLE)])
    return [_page_header(_DATA, len(page.levels) + len(values), header), page.levels, values]


def _widened(chunk: DecimalChunk, values: memoryview) -> memoryview:
    """Big-endian numbers of `chunk.width` bytes as little-endian ones of eight."""
    return memoryview(_whole_numbers(chunk, values).view(np.uint8))  # type: ignore[arg-type]


def _whole_numbers(chunk: DecimalChunk, values: memoryview) -> npt.NDArray[np.int64]:
    width, size = chunk.width, len(values)
    if size % width:
        raise CorruptData(f"the bytes of a page of {chunk.name}", offset=chunk.start, expected=width, found=size % width)
    # Eight bytes are taken from where each value begins; what follows the value is shifted out.
    padded = np.zeros(size + _WIDEST, dtype=np.uint8)
    padded[:size] = np.frombuffer(values, dtype=np.uint8)
    big = np.ndarray((size // width,), dtype=">i8", buffer=padded, strides=(width,))
    numbers = big.astype("<i8")
    numbers >>= 64 - 8 * width
    return numbers


def _pages(source: pa.NativeFile, chunk: DecimalChunk) -> Iterator[_Page]:
    """The pages of a chunk, compared with their checksums and unpacked."""
    source.seek(chunk.start)
    data = memoryview(source.read_buffer(chunk.size_bytes)).cast("B")
    if len(data) != chunk.size_bytes:
        raise CorruptData(f"the pages of {chunk.name}", offset=chunk.start, expected=chunk.size_bytes, found=len(data))
    codec = None if chunk.codec is None else pa.Codec(chunk.codec)
    at, seen, left = 0, 0, chunk.unpacked_bytes
    while seen < chunk.value_count:
        said, start = read_numbers(data, at, chunk.start)
        kind, unpacked, packed = (_number_of(said, number) for number in (1, 2, 3))
        offset = chunk.start + at
        if not 0 <= packed <= len(data) - start:
            raise CorruptData(f"the bytes of a page of {chunk.name}", offset=offset, expected=len(data) - start, found=packed)
        if not 0 <= unpacked <= left:
            raise CorruptData(f"the unpacked bytes of a page of {chunk.name}", offset=offset, expected=left, found=unpacked)
        at, left = start + packed, left - unpacked
        if kind == _INDEX:
            continue
        header = said.get(_HEADERS.get(kind, 0))
        if not isinstance(header, dict) or 4 not in said:
            raise _UnsupportedPage
        content = data[start:at]
        expected, actual = _number_of(said, 4) & 0xFFFFFFFF, zlib.crc32(content)
        if expected != actual:
            raise CorruptData(f"checksum of a page of {chunk.name}", offset=offset, expected=expected, found=actual)
        try:
            page = _unpacked(chunk, kind, {n: _number_of(header, n, 0) for n in header}, content, unpacked, codec)
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptData(f"a page of {chunk.name} cannot be unpacked: {error}", offset=offset) from error
        if kind != _DICTIONARY:
            if page.fields.get(1, 0) <= 0:
                raise CorruptData(f"a page of {chunk.name} without values", offset=offset)
            seen += page.fields[1]
        yield page


def _unpacked(
    chunk: DecimalChunk, kind: int, header: dict[int, int], content: memoryview, size: int, codec: pa.Codec | None
) -> _Page:
    encoding = header.get(2 if kind != _DATA_V2 else 4)
    if kind == _DICTIONARY:
        if encoding not in (_PLAIN, _PLAIN_DICTIONARY):
            raise _UnsupportedPage
        return _Page(kind, header, b"", _inflated(content, size, codec))
    if encoding not in (_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY):
        raise _UnsupportedPage
    if kind == _DATA_V2:
        return _second_version(chunk, header, content, size, codec)
    data = _inflated(content, size, codec)
    if not chunk.is_optional:
        return _Page(kind, header, b"", data)
    if header.get(3) != _RLE:
        raise _UnsupportedPage
    return _split(chunk, kind, header, data)


def _second_version(chunk: DecimalChunk, header: dict[int, int], content: memoryview, size: int, codec: pa.Codec | None) -> _Page:
    """A page of version 2 as one of version 1: levels stand before what is packed, without their length."""
    levels = header.get(5, 0)
    if header.get(6, 0) or not 0 <= levels <= min(size, len(content)):
        raise CorruptData(f"the levels of a page of {chunk.name}", offset=chunk.start, expected=len(content), found=levels)
    is_packed = header.get(7, 1) == 1
    values = _inflated(content[levels:], size - levels, codec if is_packed else None)
    fields = {1: header.get(1, 0), 2: header[4]}
    if not chunk.is_optional:
        return _Page(_DATA, fields, b"", values)
    return _Page(_DATA, fields, _LENGTH.pack(levels) + bytes(content[:levels]), values)


def _split(chunk: DecimalChunk, kind: int, header: dict[int, int], data: memoryview) -> _Page:
    size = _LENGTH.unpack_from(data)[0] + _LENGTH.size if len(data) >= _LENGTH.size else _LENGTH.size
    if size > len(data):
        raise CorruptData(f"the levels of a page of {chunk.name}", offset=chunk.start, expected=len(data), found=size)
    return _Page(kind, header, data[:size], data[size:])


def _inflated(content: memoryview, size: int, codec: pa.Codec | None) -> memoryview:
    if codec is None:
        if len(content) != size:
            raise CorruptData("the bytes of a page that is not packed", expected=size, found=len(content))
        return content
    return memoryview(codec.decompress(content, size)).cast("B") if size else memoryview(b"")


def _number_of(fields: Numbers, number: int, absent: int = -1) -> int:
    value = fields.get(number, absent)
    return value if isinstance(value, int) else absent


# The file in memory ----------------------------------------------------------------------------------------------------


def _page_header(kind: int, size: int, header: bytes) -> bytes:
    return encode_struct(
        [number_field(1, kind), number_field(2, size), number_field(3, size), ThriftField(_HEADERS[kind], STRUCT, header)]
    )


def _footer(columns: Sequence[_Column]) -> bytes:
    """Of one row group: the schema, then where each column lies."""
    count = columns[0].chunk.value_count
    root = encode_struct([text_field(4, "schema"), number_field(5, len(columns))])
    leaves, chunks = [], []
    for column in columns:
        chunk = column.chunk
        leaves.append(
            encode_struct(
                [
                    number_field(1, _INT64),
                    number_field(3, int(chunk.is_optional) * _OPTIONAL),
                    text_field(4, chunk.name),
                    number_field(6, _DECIMAL),
                    number_field(7, chunk.scale),
                    number_field(8, chunk.precision),
                ]
            )
        )
        name = chunk.name.encode()
        fields = [
            number_field(1, _INT64),
            list_field(2, I32, [encode_zigzag(_PLAIN), encode_zigzag(_RLE), encode_zigzag(_RLE_DICTIONARY)]),
            list_field(3, BINARY, [encode_varint(len(name)) + name]),
            number_field(4, 0),
            number_field(5, count, I64),
            number_field(6, column.size_bytes, I64),
            number_field(7, column.size_bytes, I64),
            number_field(9, column.first_page, I64),
        ]
        if column.dictionary is not None:
            fields.append(number_field(11, column.dictionary, I64))
        chunks.append(encode_struct([number_field(2, 0, I64), ThriftField(3, STRUCT, encode_struct(fields))]))
    total = sum(column.size_bytes for column in columns)
    group = encode_struct([list_field(1, STRUCT, chunks), number_field(2, total, I64), number_field(3, count, I64)])
    return encode_struct(
        [number_field(1, 1), list_field(2, STRUCT, [root, *leaves]), number_field(3, count, I64), list_field(4, STRUCT, [group])]
    )
