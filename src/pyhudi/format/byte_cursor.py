"""Binary cursor and the variable-length integers of Hudi's files.

    fixed       big-endian, two's complement where signed
    varint      unsigned LEB128, 7 bits a byte, low bits first        (protobuf trailers of HFile)
    zigzag      varint of (n << 1) ^ (n >> 63)                        (Avro int and long)
    vlong       Hadoop's: -112..127 in one byte; else a byte for sign and length, then the magnitude, big-endian

A cursor never reads past its end. A decoded length is compared with the remaining bytes before use, so a corrupt length
costs an error and no memory. Not done here: compression, checksums of a whole file.

Text is UTF-8. Python's str can contain a lone surrogate, which UTF-8 cannot encode.
"""

from __future__ import annotations

import struct

from pyhudi.errors import CorruptData, InvalidRequest

_I16 = struct.Struct(">h")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_U64 = struct.Struct(">Q")
_F32 = struct.Struct(">f")
_F64 = struct.Struct(">d")
_U64_MAX = (1 << 64) - 1


def checked_text(text: str, description: str) -> str:
    """Return the text unchanged.

    Args:
        description: Names the text in the error.

    Raises:
        InvalidRequest: It contains a lone surrogate.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{description} {text!r} contains a lone surrogate, which UTF-8 cannot encode") from error
    return text


class ByteCursor:
    """Reads consecutive values from `data[offset:end]`.

    Every method raises CorruptData if fewer bytes remain than it needs, and then does not advance.

    Args:
        data: bytes, bytearray or memoryview; it is not copied.
        offset: Start, in bytes from the start of `data`.
        end: End, in bytes from the start of `data`; None means its length.
        base: Added to offsets in errors, for a `data` that is a window of a file.
    """

    __slots__ = ("_base", "_view", "end", "offset")

    def __init__(self, data: bytes | bytearray | memoryview, offset: int = 0, end: int | None = None, *, base: int = 0) -> None:
        self._view = memoryview(data)
        self._base = base
        self.end = len(self._view) if end is None else end
        self.offset = offset
        if not 0 <= offset <= self.end <= len(self._view):
            raise self.corrupt("a range exceeds its data", expected=len(self._view), found=(offset, self.end))

    @property
    def remaining(self) -> int:
        """Number of remaining bytes."""
        return self.end - self.offset

    def corrupt(self, message: str, *, expected: object = None, found: object = None) -> CorruptData:
        """Return the error for corruption at the current offset."""
        return CorruptData(message, offset=self._base + self.offset, expected=expected, found=found)

    def read(self, size_bytes: int) -> memoryview:
        """Return the next `size_bytes` bytes, not copied."""
        start = self.offset
        if size_bytes < 0 or size_bytes > self.end - start:
            raise self.corrupt("unexpected end of data", expected=size_bytes, found=self.end - start)
        self.offset = start + size_bytes
        return self._view[start : start + size_bytes]

    def skip(self, size_bytes: int) -> None:
        """Skip `size_bytes` bytes."""
        self.read(size_bytes)

    def expect(self, literal: bytes, description: str) -> None:
        """Read `literal`; `description` names it in the error."""
        actual = bytes(self._view[self.offset : min(self.offset + len(literal), self.end)])
        if actual != literal:
            raise self.corrupt(f"{description} is missing", expected=literal, found=actual)
        self.offset += len(literal)

    def expect_end(self, description: str) -> None:
        """Raise CorruptData if bytes remain; `description` names the structure that ends here."""
        if self.offset != self.end:
            raise self.corrupt(f"trailing bytes after {description}", expected=0, found=self.remaining)

    def text(self, size_bytes: int) -> str:
        """Return the next `size_bytes` bytes decoded as UTF-8."""
        start = self.offset
        try:
            return str(self.read(size_bytes), "utf-8")
        except UnicodeDecodeError as error:
            self.offset = start
            raise self.corrupt("a text is not UTF-8") from error

    def u8(self) -> int:
        if self.offset >= self.end:
            raise self.corrupt("unexpected end of data", expected=1, found=0)
        value = self._view[self.offset]
        self.offset += 1
        return value

    def i16(self) -> int:
        return int(self._fixed(_I16))

    def i32(self) -> int:
        return int(self._fixed(_I32))

    def u32(self) -> int:
        return int(self._fixed(_U32))

    def i64(self) -> int:
        return int(self._fixed(_I64))

    def f32(self) -> float:
        return float(self._fixed(_F32))

    def f64(self) -> float:
        return float(self._fixed(_F64))

    def varint(self) -> int:
        """Read an unsigned LEB128, 0 to 2**64 - 1."""
        at, end, view = self.offset, self.end, self._view
        if at < end and (byte := view[at]) < 0x80:
            self.offset = at + 1
            return byte
        value = shift = 0
        while True:
            if at >= end:
                raise self.corrupt("a variable-length integer is not terminated")
            byte = view[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise self.corrupt("a variable-length integer is longer than 10 bytes")
        if value > _U64_MAX:
            raise self.corrupt("a variable-length integer exceeds 64 bits")
        self.offset = at
        return value

    def zigzag(self) -> int:
        """Read Avro's int or long, -2**63 to 2**63 - 1."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def vlong(self) -> int:
        """Read Hadoop's variable-length long, -2**63 to 2**63 - 1."""
        start = self.offset
        first = self.u8()
        if first >= 0x80:
            first -= 0x100
        if first >= -112:
            return first
        negative = first < -120
        size = -120 - first if negative else -112 - first
        if size > self.end - self.offset:
            self.offset = start
            raise self.corrupt("a variable-length integer is not terminated", expected=size)
        value = int.from_bytes(self.read(size), "big")
        if value >= 1 << 63:
            self.offset = start
            raise self.corrupt("a variable-length integer exceeds 64 bits")
        return ~value if negative else value

    def _fixed(self, layout: struct.Struct) -> int | float:
        start = self.offset
        if layout.size > self.end - start:
            raise self.corrupt("unexpected end of data", expected=layout.size, found=self.end - start)
        self.offset = start + layout.size
        value: int | float = layout.unpack_from(self._view, start)[0]
        return value


def encode_varint(value: int) -> bytes:
    """Encode an unsigned LEB128. value: 0 to 2**64 - 1."""
    if not 0 <= value <= _U64_MAX:
        raise ValueError(f"{value} does not fit an unsigned 64-bit integer")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_zigzag(value: int) -> bytes:
    """Encode Avro's int or long. value: -2**63 to 2**63 - 1."""
    return encode_varint((value << 1) ^ (value >> 63))


def encode_vlong(value: int) -> bytes:
    """Encode Hadoop's variable-length long. value: -2**63 to 2**63 - 1."""
    if -112 <= value <= 127:
        return bytes([value & 0xFF])
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit a signed 64-bit integer")
    magnitude = ~value if value < 0 else value
    size = (magnitude.bit_length() + 7) // 8
    first = (-120 if value < 0 else -112) - size
    return bytes([first & 0xFF]) + magnitude.to_bytes(size, "big")
