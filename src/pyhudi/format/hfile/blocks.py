"""HFile block: a header of 33 bytes, the data as stored, checksums.

    offset  size  field
         0     8  magic, see BlockKind
         8     4  size on disk without the header: stored data + checksums
        12     4  size of the data before compression
        16     8  offset of the previous block of the same kind, -1 for the first; not needed for reading
        24     1  checksum type: 0 none, 1 CRC-32, 2 CRC-32C
        25     4  bytes of (header + stored data) that one checksum covers
        29     4  33 + size of the stored data: where the checksums begin
        33        data, compressed with the file's codec
                  checksums, four bytes each

The Java reader of Hudi 1.0 computes the end of the entries of a data block as `uncompressed size - 4 * ceil(size on
disk / bytes per checksum)`: it misses an entry that begins in those last bytes. Blocks encoded here use a checksum
chunk larger than the block. They have a single checksum, so only 4 bytes are affected, fewer than any entry has.
Decoding uses the true size.

Specification: docs/formats/hfile.md, blocks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.hfile.checksums import ChecksumType, encode_checksums, verify_checksums
from pyhudi.format.hfile.compression import Codec, compress, decompress, max_plain_bytes

HEADER_BYTES = 33
MAX_BLOCK_BYTES = 1 << 30
_ALWAYS_INFLATED_BYTES = 16 << 20

_HEADER = struct.Struct(">8siiqBii")
_BYTES_PER_CHECKSUM = 1 << 24


class BlockKind(Enum):
    """Block types by their magic."""

    DATA = b"DATABLK*"
    LEAF_INDEX = b"IDXLEAF2"
    INTERMEDIATE_INDEX = b"IDXINTE2"
    ROOT_INDEX = b"IDXROOT2"
    META = b"METABLKc"
    FILE_INFO = b"FILEINF2"


@dataclass(frozen=True, slots=True)
class Block:
    """A decoded block.

    Attributes:
        kind: Block type.
        data: Uncompressed bytes.
        size_bytes: Size in the file, header and checksums included.
    """

    kind: BlockKind
    data: memoryview
    size_bytes: int


def decode_block(window: memoryview, position: int, codec: Codec, *, window_offset: int = 0) -> Block:
    """Decode the block at `position` of `window`, and verify its checksums.

    Args:
        window: Bytes of the file.
        position: Start of the block in `window`.
        codec: The file's codec.
        window_offset: Offset of the window in the file, for error messages.

    Raises:
        CorruptData: The bytes are not a complete block.
        Unsupported: A codec or checksum type that is not supported.
    """
    offset = window_offset + position
    if not 0 <= position <= len(window) - HEADER_BYTES:
        raise CorruptData(
            "an HFile block header is truncated", offset=offset, expected=HEADER_BYTES, found=len(window) - position
        )
    magic, stored_bytes, plain_bytes, _, checksum_type, bytes_per_checksum, data_end = _HEADER.unpack_from(window, position)
    try:
        kind = BlockKind(magic)
    except ValueError as error:
        raise CorruptData("no HFile block begins here", offset=offset, found=bytes(magic)) from error
    size_bytes = HEADER_BYTES + stored_bytes
    if stored_bytes < 0 or size_bytes > len(window) - position:
        raise CorruptData("invalid size of an HFile block", offset=offset, expected=len(window) - position, found=size_bytes)
    if not HEADER_BYTES <= data_end <= size_bytes:
        raise CorruptData("invalid end of an HFile block's data", offset=offset, expected=size_bytes, found=data_end)
    if checksum_type and bytes_per_checksum < HEADER_BYTES:
        # HBase writes no such blocks, and each checksum takes a call.
        raise CorruptData("invalid checksum chunk size of an HFile block", offset=offset, found=bytes_per_checksum)
    # A larger expansion than the codec allows is a decompression bomb.
    most_bytes = min(MAX_BLOCK_BYTES, max(_ALWAYS_INFLATED_BYTES, max_plain_bytes(codec, stored_bytes)))
    if not 0 <= plain_bytes <= most_bytes:
        raise CorruptData("invalid uncompressed size of an HFile block", offset=offset, expected=most_bytes, found=plain_bytes)
    block = window[position : position + size_bytes]
    verify_checksums(checksum_type, block[:data_end], bytes_per_checksum, block[data_end:], offset=offset)
    data = decompress(block[HEADER_BYTES:data_end], codec, plain_bytes, offset=offset)
    return Block(kind, memoryview(data), size_bytes)


def expect_block(window: memoryview, position: int, kind: BlockKind, codec: Codec, *, window_offset: int = 0) -> Block:
    """Decode a block as `decode_block`, and raise CorruptData if it has another type."""
    block = decode_block(window, position, codec, window_offset=window_offset)
    if block.kind is not kind:
        raise CorruptData(
            "unexpected type of an HFile block", offset=window_offset + position, expected=kind.value, found=block.kind.value
        )
    return block


def encode_block(kind: BlockKind, data: memoryview | bytes, codec: Codec, *, previous_offset: int, level: int) -> bytes:
    """Return the block's bytes in the file, with checksum type CRC-32.

    Args:
        kind: Block type.
        data: Uncompressed bytes.
        codec: GZ or NONE.
        previous_offset: Offset of the previous block of the same type, -1 for the first.
        level: Gzip level 1 to 9.

    Raises:
        InvalidRequest: The data exceeds the maximum block size.
    """
    if len(data) > MAX_BLOCK_BYTES:
        raise InvalidRequest(f"an HFile block of {len(data)} bytes: the limit is {MAX_BLOCK_BYTES}")
    stored = compress(data, codec, level)
    data_end = HEADER_BYTES + len(stored)
    checksum_count = -(-data_end // _BYTES_PER_CHECKSUM)
    header = _HEADER.pack(
        kind.value,
        len(stored) + 4 * checksum_count,
        len(data),
        previous_offset,
        ChecksumType.CRC32,
        _BYTES_PER_CHECKSUM,
        data_end,
    )
    block = header + stored
    return block + encode_checksums(block, _BYTES_PER_CHECKSUM)
