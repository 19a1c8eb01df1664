"""File tail of ORC: the parts that Arrow neither reads nor writes.

    ... stripes, metadata (statistics of stripes), footer, postscript, one byte: length of the postscript

    postscript      1 footer length, 2 compression, 3 size of a compression block, 5 metadata length, 8000 magic
    footer          3 stripes (1 offset, 2 index length, 3 data length, 4 footer length, 5 rows)
                    5 user metadata (1 name, 2 value)
                    9 writer: 0 or none is Java's; 11 calendar of dates: 1 hybrid, 2 proleptic Gregorian
    stripe footer   3 the writer's time zone, in which its timestamps are wall clock

All are Protocol Buffers. In compressed files, metadata and footers are split into chunks: three bytes, little
endian, of (length << 1 | is stored uncompressed), then the bytes. Fields of a message may be in any order, so
user metadata is added by appending chunks to a footer.

Not supported: LZ4 and LZO.

Specification: ORC, version 1; docs/formats/base-file.md, "ORC".
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.byte_cursor import ByteCursor
from pyhudi.format.expansion import expansion_limit
from pyhudi.format.protobuf import decode_fields, encode_bytes, encode_number

MAGIC: Final = b"ORC"
_MOST_POSTSCRIPT: Final = 255
_NONE, _ZLIB, _SNAPPY, _LZO, _LZ4, _ZSTD = range(6)
_REFUSED: Final = {_LZO: "LZO", _LZ4: "LZ4"}
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE, _METADATA_LENGTH = 1, 2, 3, 5
_STRIPES, _USER_METADATA, _WRITER_ZONE, _WRITER, _CALENDAR = 3, 5, 3, 9, 11
_OF_JAVA, _UNKNOWN, _HYBRID = 0, 0, 1
_CHUNK_HEADER: Final = 3
_MOST_CHUNK: Final = (1 << 23) - 1


@dataclass(frozen=True, slots=True)
class Stripe:
    """Position of a stripe's footer, and the number of rows of the stripe."""

    footer_offset: int
    footer_bytes: int
    row_count: int


@dataclass(frozen=True, slots=True)
class Tail:
    """Content of a file's tail.

    Attributes:
        compression: Number of the codec.
        block_size: Size of a compression block.
        offset: Start of the footer.
        footer_bytes: Size of the footer.
        stripes: The stripes.
        hybrid_days: Dates before 1582-10-15 are in the Julian calendar, as old Java writers store them without
            declaring it.
    """

    compression: int
    block_size: int
    offset: int
    footer_bytes: int
    stripes: tuple[Stripe, ...]
    hybrid_days: bool = False


def read_tail(source: pa.NativeFile) -> Tail:
    """Read the tail of a file.

    Raises:
        CorruptData: The file is not ORC.
        Unsupported: A compression that is not supported.
    """
    size = source.size()
    if size < len(MAGIC) + 1:
        raise CorruptData("an ORC file is truncated", offset=0, expected=len(MAGIC) + 1, found=size)
    start = max(0, size - _MOST_POSTSCRIPT - 1)
    source.seek(start)
    last = source.read(size - start)
    length = last[-1]
    if length + 1 > len(last) or not last[:-1].endswith(MAGIC):
        raise CorruptData("invalid end of an ORC file", offset=size - 1, expected=MAGIC, found=last[-4:])
    postscript = _numbers(last[-1 - length : -1], size - 1 - length)
    footer_bytes, compression = postscript.get(_FOOTER_LENGTH, 0), postscript.get(_COMPRESSION, _NONE)
    offset = size - 1 - length - footer_bytes
    if offset < len(MAGIC):
        raise CorruptData("invalid length of an ORC footer", offset=size - 1 - length, expected=size, found=footer_bytes)
    source.seek(offset)
    tail = Tail(compression, postscript.get(_BLOCK_SIZE, 0), offset, footer_bytes, ())
    footer = _plain(source.read(footer_bytes), tail)
    stripes = tuple(_stripe(value, offset) for number, value in decode_fields(ByteCursor(footer)) if number == _STRIPES)
    numbers = _numbers(footer, offset)
    calendar, writer = numbers.get(_CALENDAR, _UNKNOWN), numbers.get(_WRITER, _OF_JAVA)
    hybrid = calendar == _HYBRID or (calendar == _UNKNOWN and writer == _OF_JAVA)
    return Tail(compression, tail.block_size, offset, footer_bytes, stripes, hybrid)


def writer_zone(source: pa.NativeFile, tail: Tail) -> str:
    """Return the time zone of the file's timestamps; UTC for a file without stripes or without a declared zone."""
    for stripe in tail.stripes[:1]:
        source.seek(stripe.footer_offset)
        footer = _plain(source.read(stripe.footer_bytes), tail)
        for number, value in decode_fields(ByteCursor(footer)):
            if number == _WRITER_ZONE and isinstance(value, memoryview):
                return ByteCursor(value).text(len(value)) or "UTC"
    return "UTC"


def with_user_metadata(end: bytes, entries: Mapping[str, bytes]) -> bytes:
    """Return the end of a file with additional user metadata. end: from the footer or before to the last byte."""
    length = end[-1]
    postscript = end[-1 - length : -1]
    fields = _numbers(postscript, 0)
    added = b"".join(encode_bytes(_USER_METADATA, encode_bytes(1, k.encode()) + encode_bytes(2, v)) for k, v in entries.items())
    if fields.get(_COMPRESSION, _NONE) != _NONE:
        max_chunk = min(fields[_BLOCK_SIZE], _MOST_CHUNK)
        pieces = (added[start : start + max_chunk] for start in range(0, len(added), max_chunk))
        added = b"".join((len(piece) << 1 | 1).to_bytes(_CHUNK_HEADER, "little") + piece for piece in pieces)
    longer = encode_number(_FOOTER_LENGTH, fields.get(_FOOTER_LENGTH, 0) + len(added))
    # Of a repeated field the last one counts, but a reader may use the first: it is written once.
    other_fields = _without(postscript, _FOOTER_LENGTH)
    return end[: -1 - length] + added + longer + other_fields + bytes([len(longer) + len(other_fields)])


def _without(message: bytes, dropped: int) -> bytes:
    """Return a message without a field."""
    parts = []
    for number, value in decode_fields(ByteCursor(message)):
        if number != dropped:
            parts.append(encode_number(number, value) if isinstance(value, int) else encode_bytes(number, bytes(value)))
    return b"".join(parts)


def _numbers(message: bytes, offset: int) -> dict[int, int]:
    fields: Any = decode_fields(ByteCursor(message, base=offset))
    return {number: value for number, value in fields if isinstance(value, int)}


def _stripe(value: int | memoryview, limit: int) -> Stripe:
    if isinstance(value, int):
        raise CorruptData("invalid stripe in an ORC footer", expected="a message", found=value)
    fields = _numbers(bytes(value), 0)
    place = fields.get(1, 0) + fields.get(2, 0) + fields.get(3, 0)
    stripe = Stripe(place, fields.get(4, 0), fields.get(5, 0))
    if place + stripe.footer_bytes > limit:
        raise CorruptData("invalid stripe of an ORC file", expected=limit, found=place + stripe.footer_bytes)
    return stripe


def _plain(data: bytes, tail: Tail) -> bytes:
    """Return a decompressed footer."""
    if tail.compression == _NONE:
        return data
    parts = []
    cursor = ByteCursor(data, base=tail.offset)
    remaining_bytes = expansion_limit(len(data))
    while cursor.remaining:
        header = int.from_bytes(cursor.read(_CHUNK_HEADER), "little")
        chunk = bytes(cursor.read(header >> 1))
        parts.append(chunk if header & 1 else _decompressed(chunk, tail))
        remaining_bytes -= len(parts[-1])
        if remaining_bytes < 0:
            raise cursor.corrupt("an ORC footer expands too much", expected=expansion_limit(len(data)))
    return b"".join(parts)


def _decompressed(chunk: bytes, tail: Tail) -> bytes:
    kind, most = tail.compression, tail.block_size
    if not 0 < most <= _MOST_CHUNK + 1:
        raise CorruptData("invalid size of an ORC compression block", offset=tail.offset, expected=_MOST_CHUNK + 1, found=most)
    if kind in _REFUSED:
        raise Unsupported(f"ORC compression {_REFUSED[kind]} is not supported: write the files with ZLIB, ZSTD or SNAPPY")
    try:
        if kind == _ZLIB:
            # One byte more detects a longer stream.
            return _within(zlib.decompressobj(-15).decompress(chunk, most + 1), tail)
        if kind == _SNAPPY:
            size = ByteCursor(chunk).varint()
            if size <= most:
                return bytes(pa.Codec("snappy").decompress(chunk, size, asbytes=True))
        if kind == _ZSTD:
            # Arrow's type stubs do not declare this class.
            arrow: Any = pa
            return _within(bytes(arrow.CompressedInputStream(pa.BufferReader(chunk), "zstd").read(most + 1)), tail)
    except (zlib.error, pa.ArrowInvalid, OSError) as error:
        raise CorruptData(f"invalid chunk of an ORC file: {error}", offset=tail.offset) from error
    raise CorruptData("unknown compression of an ORC file", offset=tail.offset, found=kind)


def _within(chunk: bytes, tail: Tail) -> bytes:
    if len(chunk) > tail.block_size:
        raise CorruptData("a chunk of an ORC file exceeds its block size", offset=tail.offset, expected=tail.block_size)
    return chunk
