"""Minimal Protocol Buffers codec for HFiles and ORC files: a message is a sequence of (field number, number or bytes).

    field   varint of (number << 3 | wire type), then: type 0 a varint, 1 eight bytes, 2 a varint length and bytes, 5 four bytes

Unknown fields are returned like known ones; the caller ignores them. Groups (types 3 and 4) are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.format.byte_cursor import ByteCursor, encode_varint

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def decode_fields(cursor: ByteCursor) -> Iterator[tuple[int, int | memoryview]]:
    """Yield each field of the message that fills the cursor, in order.

    Varints and fixed numbers are returned as unsigned int (fixed ones are little endian), strings and messages as memoryview.

    Raises:
        CorruptData: A truncated field, or an unknown wire type.
    """
    while cursor.remaining:
        tag = cursor.varint()
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            yield number, cursor.varint()
        elif wire_type == _BYTES:
            yield number, cursor.read(cursor.varint())
        elif wire_type == _FIXED64:
            yield number, int.from_bytes(cursor.read(8), "little")
        elif wire_type == _FIXED32:
            yield number, int.from_bytes(cursor.read(4), "little")
        else:
            raise cursor.corrupt("unsupported wire type of a protobuf field", found=wire_type)


def encode_number(number: int, value: int) -> bytes:
    """Encode a varint field. value: 0 to 2**64 - 1, negative numbers as their two's complement."""
    return encode_varint(number << 3 | _VARINT) + encode_varint(value & 0xFFFFFFFFFFFFFFFF)


def encode_bytes(number: int, value: bytes) -> bytes:
    """Encode a length-delimited field: a string, bytes or an encoded message."""
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(value)) + value
