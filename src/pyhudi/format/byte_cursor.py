"""Numbers as bytes: a bounded big-endian cursor, and the three variable-length integers that Hudi's files use.

    fixed       big-endian, two's complement where signed
    varint      unsigned LEB128, 7 bits a byte, low bits first        (protobuf trailers of HFile)
    zigzag      varint of (n << 1) ^ (n >> 63)                        (Avro int and long)
    vlong       Hadoop's: -112..127 in one byte; else a byte that says sign and length, then the magnitude, big-endian

A cursor never reads past its end: a length that was decoded is compared with what is left before it is used, so a damaged
length costs an error and no memory.  What it does not do: compression, checksums of a whole file.

Text is UTF-8 everywhere.  Python's text may hold half a character (a lone surrogate), which has no UTF-8.
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
    """The text itself.  description: for the error.  Raises InvalidRequest when it holds half a character."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"{description} {text!r} holds half a character (a lone surrogate), which is not text"
            ) from error
    return text


class ByteCursor:
    """Reads values one after the other from `data[offset:end]`.

    data: bytes, bytearray or memoryview; it is not copied.  offset, end: bytes from its start; end None means all of it.
    base: what is added to offsets in errors, for a `data` that is a window of a file.
    Every method raises CorruptData when fewer bytes are left than it needs, and then does not advance.
    """

    __slots__ = ("_base", "_view", "end", "offset")

    def __init__(self, data: bytes | bytearray | memoryview, offset: int = 0, end: int | None = None, *, base: int = 0) -> None:
        self._view = memoryview(data)
        self._base = base
        self.end = len(self._view) if end is None else end
        self.offset = offset
        if not 0 <= offset <= self.end <= len(self._view):
            raise self.corrupt("a range that is not inside its data", expected=len(self._view), found=(offset, self.end))

    @property
    def remaining(self) -> int:
        """Bytes that are left."""
        return self.end - self.offset

    def corrupt(self, message: str, *, expected: object = None, found: object = None) -> CorruptData:
        """The error to raise for damage at the current offset."""
        return CorruptData(message, offset=self._base + self.offset, expected=expected, found=found)

    def read(self, size_bytes: int) -> memoryview:
        """The next `size_bytes` bytes, not copied."""
        start = self.offset
        if size_bytes < 0 or size_bytes > self.end - start:
            raise self.corrupt("the data ends too early", expected=size_bytes, found=self.end - start)
        self.offset = start + size_bytes
        return self._view[start : start + size_bytes]

    def skip(self, size_bytes: int) -> None:
        """Pass over `size_bytes` bytes."""
        self.read(size_bytes)

    def expect(self, literal: bytes, description: str) -> None:
        """Read `literal`; `description` names it in the error."""
        found = bytes(self._view[self.offset : min(self.offset + len(literal), self.end)])
        if found != literal:
            raise self.corrupt(f"{description} is not there", expected=literal, found=found)
        self.offset += len(literal)

    def expect_end(self, description: str) -> None:
        """`description` must end here: bytes that are left are damage."""
        if self.offset != self.end:
            raise self.corrupt(f"{description} goes on after its end", expected=0, found=self.remaining)

    def text(self, size_bytes: int) -> str:
        """The next `size_bytes` bytes, which must be UTF-8."""
        start = self.offset
        try:
            return str(self.read(size_bytes), "utf-8")
        except UnicodeDecodeError as error:
            self.offset = start
            raise self.corrupt("a text is not UTF-8") from error

    def u8(self) -> int:
        if self.offset >= self.end:
            raise self.corrupt("the data ends too early", expected=1, found=0)
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
        """Unsigned LEB128, 0 to 2**64 - 1."""
        at, end, view = self.offset, self.end, self._view
        if at < end and (byte := view[at]) < 0x80:
            self.offset = at + 1
            return byte
        value = shift = 0
        while True:
            if at >= end:
                raise self.corrupt("a variable-length number has no end")
            byte = view[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise self.corrupt("a variable-length number is longer than 10 bytes")
        if value > _U64_MAX:
            raise self.corrupt("a variable-length number needs more than 64 bits")
        self.offset = at
        return value

    def zigzag(self) -> int:
        """Avro's int and long, -2**63 to 2**63 - 1."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def vlong(self) -> int:
        """Hadoop's variable-length long, -2**63 to 2**63 - 1."""
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
            raise self.corrupt("a variable-length number has no end", expected=size)
        value = int.from_bytes(self.read(size), "big")
        if value >= 1 << 63:
            self.offset = start
            raise self.corrupt("a variable-length number needs more than 64 bits")
        return ~value if negative else value

    def _fixed(self, layout: struct.Struct) -> int | float:
        start = self.offset
        if layout.size > self.end - start:
            raise self.corrupt("the data ends too early", expected=layout.size, found=self.end - start)
        self.offset = start + layout.size
        value: int | float = layout.unpack_from(self._view, start)[0]
        return value


def encode_varint(value: int) -> bytes:
    """Unsigned LEB128.  value: 0 to 2**64 - 1."""
    if not 0 <= value <= _U64_MAX:
        raise ValueError(f"{value} does not fit an unsigned 64-bit number")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_zigzag(value: int) -> bytes:
    """Avro's int and long.  value: -2**63 to 2**63 - 1."""
    return encode_varint((value << 1) ^ (value >> 63))


def encode_vlong(value: int) -> bytes:
    """Hadoop's variable-length long.  value: -2**63 to 2**63 - 1."""
    if -112 <= value <= 127:
        return bytes([value & 0xFF])
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit a signed 64-bit number")
    magnitude = ~value if value < 0 else value
    size = (magnitude.bit_length() + 7) // 8
    first = (-120 if value < 0 else -112) - size
    return bytes([first & 0xFF]) + magnitude.to_bytes(size, "big")
