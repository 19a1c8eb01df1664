"""The footer of a Parquet file, rewritten without what misleads readers about some columns.

A footer is a Thrift struct in the compact protocol.  On the way to the bounds:

    FileMetaData   4 row groups: list of RowGroup
    RowGroup       1 columns: list of ColumnChunk
    ColumnChunk    3 ColumnMetaData
    ColumnMetaData 3 path: list of text    12 Statistics    13 encodings of the pages: whether all have a dictionary
    Statistics     1, 5 largest value   2, 6 smallest value   7, 8 whether these are exact

Everything else is copied as it stands.  The end of a file is: footer, its length as four bytes little-endian, `PAR1`; readers
start from there, so a second footer behind the first is the one that counts.

Source: parquet-format, parquet.thrift and "File format"; Thrift, "Compact protocol encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from pyhudi.errors import CorruptData
from pyhudi.format.coding import Cursor, encode_zigzag

MAGIC = b"PAR1"

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_ROW_GROUPS, _COLUMNS, _META_DATA, _PATH, _STATISTICS, _ENCODINGS = 4, 1, 3, 3, 12, 13
_BOUNDS = frozenset({1, 2, 5, 6, 7, 8})
_DEPTH_LIMIT = 32

_Edit = Callable[[bytes], bytes]


def closing_without(closing: bytes, bounds: Collection[str], dictionaries: Collection[str] = ()) -> bytes:
    """What closes a Parquet file (footer, length, magic), with some things left out in every row group.

    closing: may have anything before the footer.  bounds: columns that lose their bounds; dictionaries: those of which it is not
    said any more that dictionaries hold all their values; dotted paths of leaves.  Raises CorruptData.
    """
    if len(closing) < 8 or closing[-4:] != MAGIC:
        raise CorruptData("a Parquet file does not end in its magic", expected=MAGIC, found=closing[-4:])
    (size,) = struct.unpack("<I", closing[-8:-4])
    if size > len(closing) - 8:
        raise CorruptData("a Parquet footer is longer than its file", expected=len(closing) - 8, found=size)

    def plain(metadata: bytes) -> bytes:
        fields = _fields(metadata)
        path = _path_text(next((field.value for field in fields if field.number == _PATH), b""))
        if path in dictionaries:
            metadata = _struct([field for field in fields if field.number != _ENCODINGS])
        return _edited(metadata, _STATISTICS, _unbounded) if path in bounds else metadata

    def plain_chunk(chunk: bytes) -> bytes:
        return _edited(chunk, _META_DATA, plain)

    def plain_group(group: bytes) -> bytes:
        return _edited(group, _COLUMNS, lambda chunks: _each(chunks, plain_chunk))

    footer = _edited(closing[-8 - size : -8], _ROW_GROUPS, lambda groups: _each(groups, plain_group))
    return footer + struct.pack("<I", len(footer)) + MAGIC


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a struct.  kind: its type in the compact protocol; value: its bytes, none for a boolean."""

    number: int
    kind: int
    value: bytes


def _unbounded(statistics: bytes) -> bytes:
    return _struct([field for field in _fields(statistics) if field.number not in _BOUNDS])


def _edited(data: bytes, number: int, edit: _Edit) -> bytes:
    """A struct with one field edited, where it has it."""
    return _struct([replace(f, value=edit(f.value)) if f.number == number else f for f in _fields(data)])


def _fields(data: bytes) -> list[_Field]:
    cursor = Cursor(data)
    found: list[_Field] = []
    number = 0
    while (head := cursor.u8()) != _STOP:
        number = number + (head >> 4) if head >> 4 else cursor.zigzag()
        start = cursor.offset
        _skip(cursor, head & 15, 0)
        found.append(_Field(number, head & 15, data[start : cursor.offset]))
    cursor.expect_end("a struct of a Parquet footer")
    return found


def _struct(fields: list[_Field]) -> bytes:
    parts: list[bytes] = []
    before = 0
    for field in fields:
        step = field.number - before
        parts.append(bytes([step << 4 | field.kind]) if 0 < step < 16 else bytes([field.kind]) + encode_zigzag(field.number))
        parts.append(field.value)
        before = field.number
    return b"".join([*parts, b"\x00"])


def _each(data: bytes, edit: _Edit) -> bytes:
    """A list of structs, each edited."""
    cursor = Cursor(data)
    count, _ = _list_head(cursor)
    head = data[: cursor.offset]
    parts = []
    for _ in range(count):
        start = cursor.offset
        _skip(cursor, _STRUCT, 0)
        parts.append(edit(data[start : cursor.offset]))
    cursor.expect_end("a list of a Parquet footer")
    return head + b"".join(parts)


def _path_text(data: bytes) -> str:
    cursor = Cursor(data)
    count, _ = _list_head(cursor) if data else (0, 0)
    return ".".join(cursor.text(cursor.varint()) for _ in range(count))


def _list_head(cursor: Cursor) -> tuple[int, int]:
    head = cursor.u8()
    return cursor.varint() if head >> 4 == 15 else head >> 4, head & 15


def _skip(cursor: Cursor, kind: int, depth: int, *, in_list: bool = False) -> None:
    if depth > _DEPTH_LIMIT:
        raise cursor.corrupt("a Parquet footer is nested too deeply", expected=_DEPTH_LIMIT)
    if kind in (_TRUE, _FALSE):
        cursor.skip(1 if in_list else 0)
    elif kind == _BYTE:
        cursor.skip(1)
    elif kind in (_I16, _I32, _I64):
        cursor.varint()
    elif kind == _DOUBLE:
        cursor.skip(8)
    elif kind == _BINARY:
        cursor.skip(cursor.varint())
    elif kind in (_LIST, _SET):
        count, item = _list_head(cursor)
        for _ in range(count):
            _skip(cursor, item, depth + 1, in_list=True)
    elif kind == _MAP:
        if count := cursor.varint():
            kinds = cursor.u8()
            for _ in range(count):
                _skip(cursor, kinds >> 4, depth + 1, in_list=True)
                _skip(cursor, kinds & 15, depth + 1, in_list=True)
    elif kind == _STRUCT:
        while (head := cursor.u8()) != _STOP:
            if not head >> 4:
                cursor.zigzag()
            _skip(cursor, head & 15, depth + 1)
    else:
        raise cursor.corrupt("a Parquet footer has a field of no known type", found=kind)
