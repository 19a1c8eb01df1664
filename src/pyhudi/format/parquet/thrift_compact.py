"""Thrift compact protocol: structs decoded and encoded field by field.

The value of a field is copied unchanged unless it is edited. `footer` and `decimals` interpret the structs.

Specification: Thrift, "Compact protocol encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyhudi.format.byte_cursor import ByteCursor, encode_varint, encode_zigzag

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
DEPTH_LIMIT = 32
_FEW_BYTES = 5

Edit = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class ThriftField:
    """A field of a struct.

    Attributes:
        number: Field number.
        kind: Its type in the compact protocol.
        value: Its bytes, empty for a boolean.
    """

    number: int
    kind: int
    value: bytes


def edited(data: bytes, number: int, edit: Edit) -> bytes:
    """Return a struct with one field edited, if it has it."""
    return encode_struct([replace(f, value=edit(f.value)) if f.number == number else f for f in decode_fields(data)])


def decode_fields(data: bytes) -> list[ThriftField]:
    """Return the fields of a struct that fills `data`. Raises CorruptData."""
    cursor = ByteCursor(data)
    fields = _read_fields(cursor, data)
    cursor.expect_end("a struct of a Parquet footer")
    return fields


def decode_structs(data: bytes) -> list[list[ThriftField]]:
    """Return the fields of each struct of a list that fills `data`. Raises CorruptData."""
    cursor = ByteCursor(data)
    count, _ = list_head(cursor)
    structs = [_read_fields(cursor, data) for _ in range(count)]
    cursor.expect_end("a list of a Parquet footer")
    return structs


def _read_fields(cursor: ByteCursor, data: bytes) -> list[ThriftField]:
    fields: list[ThriftField] = []
    for number, kind in each_field(cursor):
        start = cursor.offset
        skip(cursor, kind, 0)
        fields.append(ThriftField(number, kind, data[start : cursor.offset]))
    return fields


def each_field(cursor: ByteCursor) -> Iterator[tuple[int, int]]:
    """Yield number and type of each field of a struct. The cursor is at its value, which the caller must read or skip."""
    number = 0
    while (head := cursor.u8()) != STOP:
        number = number + (head >> 4) if head >> 4 else cursor.zigzag()
        yield number, head & 15


Numbers = dict[int, "int | bytes | Numbers"]
"""Numbers, booleans (1 and 0), texts and nested structs of a struct, by field number."""


def read_numbers(data: memoryview, offset: int, base: int = 0) -> tuple[Numbers, int]:
    """Return the numbers and texts of the struct at `offset`, and where it ends; fields of other types are skipped.

    Args:
        data: The bytes.
        offset: Start of the struct.
        base: As for `ByteCursor`.

    Raises:
        CorruptData: The struct is invalid.
    """
    try:
        return _numbers(data, offset, base, 0)
    except IndexError:
        raise ByteCursor(data, len(data), base=base).corrupt("a struct of a Parquet file is truncated") from None


def _numbers(data: memoryview, at: int, base: int, depth: int) -> tuple[Numbers, int]:
    values: Numbers = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at, base)
        if I16 <= kind <= I64:
            values[number], at = _zigzag(data, at, base)
        elif kind in (TRUE, FALSE):
            values[number] = int(kind == TRUE)
        elif kind == STRUCT and depth < DEPTH_LIMIT:
            values[number], at = _numbers(data, at, base, depth + 1)
        elif kind == BINARY and (size := data[at]) < 128:
            values[number] = bytes(data[at + 1 : at + 1 + size])
            at += 1 + size
        elif kind == BINARY:
            cursor = ByteCursor(data, at, base=base)
            values[number] = bytes(cursor.read(cursor.varint()))
            at = cursor.offset
        else:
            cursor = ByteCursor(data, at, base=base)
            skip(cursor, kind, depth)
            at = cursor.offset
    return values, at + 1


def _zigzag(data: memoryview, at: int, base: int) -> tuple[int, int]:
    # Page headers are numbers of a few bytes, and there are many of them.
    start = at
    value = data[at] & 127
    while data[at] >= 128 and at - start < _FEW_BYTES:
        at += 1
        value |= (data[at] & 127) << 7 * (at - start)
    at += 1
    if at - start > _FEW_BYTES:
        cursor = ByteCursor(data, start, base=base)
        value, at = cursor.varint(), cursor.offset
    return value >> 1 ^ -(value & 1), at


def encode_struct(fields: Iterable[ThriftField]) -> bytes:
    """Encode a struct of fields, which are in the order of their numbers."""
    parts: list[bytes] = []
    before = 0
    for field in fields:
        step = field.number - before
        parts.append(bytes([step << 4 | field.kind]) if 0 < step < 16 else bytes([field.kind]) + encode_zigzag(field.number))
        parts.append(field.value)
        before = field.number
    return b"".join([*parts, b"\x00"])


def number_field(number: int, value: int, kind: int = I32) -> ThriftField:
    """Return an integer field."""
    return ThriftField(number, kind, encode_zigzag(value))


def text_field(number: int, text: str) -> ThriftField:
    """Return a binary field with UTF-8 text."""
    data = text.encode()
    return ThriftField(number, BINARY, encode_varint(len(data)) + data)


def list_field(number: int, kind: int, items: Sequence[bytes]) -> ThriftField:
    """Return a field with a list of encoded items of one type."""
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + encode_varint(len(items))
    return ThriftField(number, LIST, head + b"".join(items))


def each(data: bytes, edit: Edit) -> bytes:
    """Return a list of structs, each edited."""
    cursor = ByteCursor(data)
    count, _ = list_head(cursor)
    head = data[: cursor.offset]
    parts = []
    for _ in range(count):
        start = cursor.offset
        skip(cursor, STRUCT, 0)
        parts.append(edit(data[start : cursor.offset]))
    cursor.expect_end("a list of a Parquet footer")
    return head + b"".join(parts)


def list_head(cursor: ByteCursor) -> tuple[int, int]:
    """Read the number of items of a list, and their type; the cursor advances to the first."""
    head = cursor.u8()
    return cursor.varint() if head >> 4 == 15 else head >> 4, head & 15


def skip(cursor: ByteCursor, kind: int, depth: int, *, in_list: bool = False) -> None:
    """Skip a value. in_list: the value is a list item, where a boolean is a byte."""
    if depth > DEPTH_LIMIT:
        raise cursor.corrupt("a struct of a Parquet file is nested too deeply", expected=DEPTH_LIMIT)
    if I16 <= kind <= I64:
        cursor.varint()
    elif kind == BINARY:
        cursor.skip(cursor.varint())
    elif kind == STRUCT:
        _skip_struct(cursor, depth)
    elif kind in (TRUE, FALSE):
        cursor.skip(1 if in_list else 0)
    elif kind == BYTE:
        cursor.skip(1)
    elif kind == DOUBLE:
        cursor.skip(8)
    elif kind in (LIST, SET):
        count, item = list_head(cursor)
        for _ in range(count):
            skip(cursor, item, depth + 1, in_list=True)
    elif kind == MAP:
        if count := cursor.varint():
            kinds = cursor.u8()
            for _ in range(count):
                skip(cursor, kinds >> 4, depth + 1, in_list=True)
                skip(cursor, kinds & 15, depth + 1, in_list=True)
    else:
        raise cursor.corrupt("a struct of a Parquet file has a field of unknown type", found=kind)


def _skip_struct(cursor: ByteCursor, depth: int) -> None:
    while (head := cursor.u8()) != STOP:
        if not head >> 4:
            cursor.zigzag()
        kind = head & 15
        if I16 <= kind <= I64 and depth < DEPTH_LIMIT:
            # Most fields are numbers.
            cursor.varint()
        else:
            skip(cursor, kind, depth + 1)
