"""Compression of HFile blocks.  Source: storage format, "HFile format", trailer field compression_codec.

Every block of a file, index and file info included, is compressed with the codec that the trailer names.

    GZ       one gzip member
    NONE     the bytes themselves
    SNAPPY   Hadoop block streams: groups of (uncompressed length u32, then chunks of compressed length u32 + bytes,
    LZ4      until the group's uncompressed length is reached)
    BZIP2    one bzip2 stream
    ZSTD     one zstd frame
    LZO      not read: no codec for it exists among our dependencies

Hudi's readers open GZ and NONE only, so PyHudi writes no other.  A block says how long its data must come out: a longer or
shorter result is CorruptData, and no more than that is ever allocated.
"""

from __future__ import annotations

import bz2
import zlib
from enum import IntEnum

import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported

_GZIP_WINDOW = 31  # zlib's number for "a gzip member, 32 KiB window".

# The best ratios that the formats allow, so that a corrupted length cannot ask for a huge buffer.
_MAX_RATIO_SNAPPY = 64
_MAX_RATIO_LZ4 = 256
# The zstd format has no such limit; 64 MiB is well above what a block of an index file expands to.
_MAX_ZSTD_BYTES = 1 << 26


class Codec(IntEnum):
    """Numbers of the trailer field; a file without the field is NONE."""

    LZO = 0
    GZ = 1
    NONE = 2
    SNAPPY = 3
    LZ4 = 4
    BZIP2 = 5
    ZSTD = 6


def compress(data: memoryview | bytes, codec: Codec, level: int) -> bytes:
    """The stored form of a block's data.  level: 1 (fast) to 9 (small), GZ only.  Raises InvalidRequest for other codecs."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZ:
        return zlib.compress(data, level, _GZIP_WINDOW)
    raise InvalidRequest(f"HFiles are written with GZ or NONE, the codecs that every Hudi reader opens, not {codec.name}")


def decompress(data: memoryview, codec: Codec, size_bytes: int, *, offset: int | None = None) -> bytes | memoryview:
    """The data of a block, exactly `size_bytes` long.

    Raises CorruptData when the bytes do not expand to that length, Unsupported for LZO.
    """
    if codec is Codec.NONE:
        plain: bytes | memoryview = data
    elif codec is Codec.GZ:
        plain = _inflate(data, size_bytes, offset)
    elif codec is Codec.BZIP2:
        plain = _bunzip(data, size_bytes, offset)
    elif codec is Codec.SNAPPY:
        plain = _decode_block_stream(data, "snappy", size_bytes, size_bytes <= _MAX_RATIO_SNAPPY * len(data), offset)
    elif codec is Codec.LZ4:
        plain = _decode_block_stream(data, "lz4_raw", size_bytes, size_bytes <= _MAX_RATIO_LZ4 * len(data), offset)
    elif codec is Codec.ZSTD:
        if size_bytes > max(_MAX_ZSTD_BYTES, len(data)):
            raise Unsupported(f"a zstd block of {size_bytes} bytes in an HFile: the limit is {_MAX_ZSTD_BYTES}")
        plain = _decode_chunk("zstd", data, size_bytes, offset) if size_bytes else b""
    else:
        raise Unsupported(f"HFile compression {codec.name}")
    if len(plain) != size_bytes:
        raise CorruptData("length of an HFile block's data", offset=offset, expected=size_bytes, found=len(plain))
    return plain


def _inflate(data: memoryview, size_bytes: int, offset: int | None) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        # One byte more than promised lets a longer stream show itself; zlib takes max_length 0 as "no limit".
        plain = stream.decompress(data, size_bytes + 1)
    except zlib.error as error:
        raise CorruptData(f"gzip data of an HFile block: {error}", offset=offset) from error
    if len(plain) == size_bytes and not stream.eof:
        raise CorruptData("gzip data of an HFile block does not end", offset=offset)
    return plain


def _bunzip(data: memoryview, size_bytes: int, offset: int | None) -> bytes:
    if size_bytes == 0:
        return b""
    try:
        return bz2.BZ2Decompressor().decompress(data, size_bytes + 1)
    except (OSError, ValueError) as error:
        raise CorruptData(f"bzip2 data of an HFile block: {error}", offset=offset) from error


def _decode_block_stream(data: memoryview, name: str, size_bytes: int, ratio_is_possible: bool, offset: int | None) -> bytes:
    if not ratio_is_possible:
        raise CorruptData(f"{name} data of an HFile block cannot expand to {size_bytes} bytes", offset=offset)
    plain = bytearray()
    position = 0
    group_left = 0
    while position < len(data):
        if group_left == 0:
            group_left, position = _length(data, position, offset)
            if group_left > size_bytes - len(plain):
                raise CorruptData(f"{name} data of an HFile block is longer than promised", offset=offset)
            continue
        length, position = _length(data, position, offset)
        if length > len(data) - position:
            raise CorruptData(f"{name} chunk of an HFile block is cut short", offset=offset)
        chunk = _decode_chunk(name, data[position : position + length], group_left, offset)
        plain += chunk
        group_left -= len(chunk)
        position += length
        if not chunk:
            raise CorruptData(f"{name} chunk of an HFile block is empty", offset=offset)
    return bytes(plain)


def _length(data: memoryview, position: int, offset: int | None) -> tuple[int, int]:
    if len(data) - position < 4:
        raise CorruptData("compressed data of an HFile block is cut short", offset=offset)
    return int.from_bytes(data[position : position + 4], "big"), position + 4


def _decode_chunk(name: str, data: memoryview, size_bytes: int, offset: int | None) -> bytes:
    """One compressed chunk; size_bytes bounds its plain length, and is that length for formats that do not store it."""
    try:
        plain: bytes = pa.Codec(name).decompress(data, decompressed_size=size_bytes, asbytes=True)
    except (OSError, ValueError) as error:
        raise CorruptData(f"{name} data of an HFile block: {error}", offset=offset) from error
    return plain
