"""Compression of HFile blocks.

Every block of a file, index and file info included, is compressed with the codec in the trailer.

    GZ       one gzip member
    NONE     the bytes themselves
    SNAPPY   a Hadoop block stream: groups of (uncompressed length u32, then chunks of compressed length u32 + bytes
             until the group's uncompressed length is reached)
    ZSTD     one zstd frame
    LZO, LZ4, BZIP2   not supported. LZ4 chunks in a Hadoop block stream lack the uncompressed length that our codec
                      needs.

Hudi's default reader opens GZ and NONE only, so PyHudi writes no other codec. A block records its uncompressed length:
a longer or shorter result is CorruptData, and no more than that is ever allocated.

Specification: docs/formats/hfile.md, trailer field compression_codec.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.byte_cursor import ByteCursor

_GZIP_WINDOW = 31  # zlib's number for "a gzip member, 32 KiB window".

# Maximum expansion of gzip data (deflate's limit is 1032) and of a Snappy stream, so that a corrupt length cannot allocate a
# huge buffer.
_MAX_RATIO_GZIP = 1032
_MAX_RATIO_SNAPPY = 64
# The zstd format has no such limit; 64 MiB is well above the expanded size of a block of an index file.
_MAX_ZSTD_BYTES = 1 << 26


class Codec(IntEnum):
    """Values of the trailer field; a file without the field is NONE."""

    LZO = 0
    GZ = 1
    NONE = 2
    SNAPPY = 3
    LZ4 = 4
    BZIP2 = 5
    ZSTD = 6


def compress(data: memoryview | bytes, codec: Codec, level: int) -> bytes:
    """Return the stored form of a block's data. Raises InvalidRequest for a codec other than GZ and NONE.

    Args:
        data: Uncompressed bytes.
        codec: GZ or NONE.
        level: 1 (fast) to 9 (small), GZ only.
    """
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZ:
        return zlib.compress(data, level, _GZIP_WINDOW)
    raise InvalidRequest(f"HFile codec {codec.name} cannot be written: use GZ or NONE, which every Hudi reader supports")


def max_plain_bytes(codec: Codec, stored_bytes: int) -> int:
    """Return an upper bound of the uncompressed size of stored data; a larger one in a file is corrupt."""
    if codec is Codec.GZ:
        return _MAX_RATIO_GZIP * stored_bytes
    if codec is Codec.ZSTD:
        return max(_MAX_ZSTD_BYTES, stored_bytes)
    return stored_bytes if codec is Codec.NONE else _MAX_RATIO_SNAPPY * stored_bytes


def decompress(data: memoryview, codec: Codec, size_bytes: int, *, offset: int | None = None) -> bytes | memoryview:
    """Return the data of a block, exactly `size_bytes` long.

    Raises:
        CorruptData: The bytes do not expand to that length.
        Unsupported: A codec that is not supported.
    """
    if codec is Codec.NONE:
        plain: bytes | memoryview = data
    elif codec is Codec.GZ:
        plain = _inflate(data, size_bytes, offset)
    elif codec is Codec.SNAPPY:
        plain = _decode_snappy_stream(data, size_bytes, offset)
    elif codec is Codec.ZSTD:
        if size_bytes > max(_MAX_ZSTD_BYTES, len(data)):
            raise Unsupported(f"a zstd block of {size_bytes} bytes in an HFile exceeds the limit of {_MAX_ZSTD_BYTES}")
        plain = _decode_chunk("zstd", data, size_bytes, offset) if size_bytes else b""
    else:
        raise Unsupported(f"HFile compression {codec.name} is not supported")
    if len(plain) != size_bytes:
        raise CorruptData("invalid length of an HFile block's data", offset=offset, expected=size_bytes, found=len(plain))
    return plain


def _inflate(data: memoryview, size_bytes: int, offset: int | None) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        # One byte more than the recorded length detects a longer stream; zlib takes max_length 0 as "no limit".
        plain = stream.decompress(data, size_bytes + 1)
    except zlib.error as error:
        raise CorruptData(f"invalid gzip data of an HFile block: {error}", offset=offset) from error
    if len(plain) == size_bytes and not stream.eof:
        raise CorruptData("gzip data of an HFile block is truncated", offset=offset)
    return plain


def _decode_snappy_stream(data: memoryview, size_bytes: int, offset: int | None) -> bytes:
    cursor = ByteCursor(data, base=offset or 0)
    if size_bytes > _MAX_RATIO_SNAPPY * len(data):
        raise cursor.corrupt("an HFile block cannot expand to its size", expected=size_bytes)
    plain = bytearray()
    while cursor.remaining:
        group_end = len(plain) + cursor.u32()
        while len(plain) < group_end:
            chunk = cursor.read(cursor.u32())
            # A Snappy chunk begins with its uncompressed length, which Arrow's codec needs as an argument.
            chunk_bytes = ByteCursor(chunk, base=offset or 0).varint()
            if not 0 < chunk_bytes <= min(group_end, size_bytes) - len(plain):
                raise cursor.corrupt("invalid uncompressed length of a Snappy chunk", expected=size_bytes, found=chunk_bytes)
            plain += _decode_chunk("snappy", chunk, chunk_bytes, offset)
    return bytes(plain)


def _decode_chunk(name: str, data: memoryview, size_bytes: int, offset: int | None) -> bytes:
    """Decompress one chunk of `size_bytes` uncompressed bytes."""
    try:
        plain: bytes = pa.Codec(name).decompress(data, decompressed_size=size_bytes, asbytes=True)
    except (OSError, ValueError) as error:
        raise CorruptData(f"invalid {name} data of an HFile block: {error}", offset=offset) from error
    return plain
