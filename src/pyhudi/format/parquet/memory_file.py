"""Parquet files of one row group in memory, made of pages of other files, for Arrow to read.

Specification: parquet-format, parquet.thrift, "FileMetaData".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyhudi.format.byte_cursor import encode_varint, encode_zigzag
from pyhudi.format.parquet.thrift_compact import (
    BINARY,
    I32,
    I64,
    STRUCT,
    ThriftField,
    encode_struct,
    list_field,
    number_field,
    text_field,
)

PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
"""Encodings."""

DATA, INDEX, DICTIONARY, DATA_V2 = range(4)
"""Types of pages."""

PAGE_HEADERS: Final = {DATA: 5, DICTIONARY: 7, DATA_V2: 8}
"""Field of a page header with the details of each type of page."""

UNCOMPRESSED: Final = 0
_DECIMAL: Final = 5
_MAGIC: Final = b"PAR1"
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class MemoryColumn:
    """A column of the file. Types, codecs and converted types are the numbers of the format.

    Attributes:
        name: Column name.
        physical: Physical type.
        is_optional: The column is nullable.
        pages: Its data pages, with their headers.
        dictionary: Its dictionary page; empty without one.
        unpacked_bytes: Uncompressed size of all its pages.
        codec: Compression.
        converted: Converted type; None for none.
        length: Bytes of a value of fixed length; None for other types.
        precision: Precision of a decimal.
        scale: Scale of a decimal.
    """

    name: str
    physical: int
    is_optional: bool
    pages: Sequence[bytes | memoryview]
    dictionary: Sequence[bytes | memoryview]
    unpacked_bytes: int
    codec: int = UNCOMPRESSED
    converted: int | None = None
    length: int | None = None
    precision: int = 0
    scale: int = 0


def memory_file(columns: Sequence[MemoryColumn], rows: int) -> pa.BufferReader:
    """Return a Parquet file with one row group of these columns.

    Args:
        columns: At least one.
        rows: Number of rows, nulls included.
    """
    parts: list[bytes | memoryview] = [_MAGIC]
    at = len(_MAGIC)
    leaves, chunks = [], []
    for column in columns:
        dictionary_bytes, page_bytes = (sum(map(len, pages)) for pages in (column.dictionary, column.pages))
        parts += [*column.dictionary, *column.pages]
        leaves.append(_leaf(column))
        chunks.append(_chunk(column, rows, at, dictionary_bytes, dictionary_bytes + page_bytes))
        at += dictionary_bytes + page_bytes
    unpacked = sum(column.unpacked_bytes for column in columns)
    root = encode_struct([text_field(4, "schema"), number_field(5, len(columns))])
    group = encode_struct([list_field(1, STRUCT, chunks), number_field(2, unpacked, I64), number_field(3, rows, I64)])
    schema = list_field(2, STRUCT, [root, *leaves])
    footer = encode_struct([number_field(1, 1), schema, number_field(3, rows, I64), list_field(4, STRUCT, [group])])
    return pa.BufferReader(b"".join([*parts, footer, _LENGTH.pack(len(footer)), _MAGIC]))


def _leaf(column: MemoryColumn) -> bytes:
    fields = [number_field(1, column.physical)]
    if column.length is not None:
        fields.append(number_field(2, column.length))
    fields += [number_field(3, int(column.is_optional)), text_field(4, column.name)]
    if column.converted is not None:
        fields.append(number_field(6, column.converted))
    if column.converted == _DECIMAL:
        fields += [number_field(7, column.scale), number_field(8, column.precision)]
    return encode_struct(fields)


def _chunk(column: MemoryColumn, rows: int, at: int, dictionary_bytes: int, size: int) -> bytes:
    name = column.name.encode()
    fields = [
        number_field(1, column.physical),
        list_field(2, I32, [encode_zigzag(PLAIN), encode_zigzag(RLE), encode_zigzag(RLE_DICTIONARY)]),
        list_field(3, BINARY, [encode_varint(len(name)) + name]),
        number_field(4, column.codec),
        number_field(5, rows, I64),
        number_field(6, column.unpacked_bytes, I64),
        number_field(7, size, I64),
        number_field(9, at + dictionary_bytes, I64),
    ]
    if dictionary_bytes:
        fields.append(number_field(11, at, I64))
    return encode_struct([number_field(2, 0, I64), ThriftField(3, STRUCT, encode_struct(fields))])
