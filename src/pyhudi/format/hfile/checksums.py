"""Checksums of HFile blocks: CRC-32 and a vectorized CRC-32C.

A block has one 32-bit checksum for each `bytes_per_checksum` bytes of (header + data as stored); the last chunk is
shorter. Type 1 is CRC-32 as zlib computes it. Type 2 is CRC-32C (Castagnoli), which Java writers use.

CRC-32C without a C library: a CRC is linear over GF(2), so it can be folded as a tree instead of byte by byte.

    1. The chunk is padded in front with zeros to a power of two of 4-byte words, which does not change a CRC that starts
       at 0; the usual start value 0xffffffff is XORed into the first four bytes instead.
    2. Neighbours (a, b) fold into `shift(a, length of b) ^ b`, where shift(a, n) is the CRC register `a` after n zero bytes.
       All pairs of one level fold in one NumPy call, so a chunk of 64 KiB takes 14 calls.
    3. shift by 2n bytes is shift by n bytes applied twice, so each level's lookup tables derive from the level below.

The tables (4 KiB for each power of two) are computed on first use and cached.

Specification: docs/formats/hfile.md, block checksums.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pyhudi.errors import CorruptData, Unsupported

UInt32s = npt.NDArray[np.uint32]

_CASTAGNOLI = 0x82F63B78
_ALL_ONES = np.uint32(0xFFFFFFFF)


class ChecksumType(IntEnum):
    """Checksum algorithm of a block."""

    NULL = 0
    CRC32 = 1
    CRC32C = 2


def encode_checksums(data: memoryview | bytes, bytes_per_checksum: int) -> bytes:
    """Return the CRC-32 of each chunk of `data`, four bytes big endian each, as in a block of checksum type 1."""
    view = memoryview(data)
    sums = [zlib.crc32(view[start : start + bytes_per_checksum]) for start in range(0, len(view), bytes_per_checksum)]
    return np.array(sums, dtype=">u4").tobytes()


def verify_checksums(
    kind: int, data: memoryview, bytes_per_checksum: int, stored: memoryview, *, offset: int | None = None
) -> None:
    """Compare the stored checksums of a block with those of its bytes.

    Args:
        kind: Checksum type. Type 0 has no checksums, at most zeros in their place.
        data: Header and stored data of the block.
        bytes_per_checksum: Chunk size.
        stored: The bytes after `data`.
        offset: Offset of the block in its file, for error messages.

    Raises:
        CorruptData: A checksum differs, or their number is wrong.
        Unsupported: An unknown checksum type.
    """
    if kind == ChecksumType.NULL:
        # Hudi 1.1 reserves space for checksums that it does not compute, filled with zeros.
        if any(stored):
            raise CorruptData(
                "an HFile block of checksum type 0 has checksums", offset=offset, expected=0, found=bytes(stored[:16])
            )
        return
    if kind not in (ChecksumType.CRC32, ChecksumType.CRC32C):
        raise Unsupported(f"HFile block checksum type {kind} is not supported: 0 (none), 1 (CRC-32) and 2 (CRC-32C) are")
    if bytes_per_checksum <= 0:
        raise CorruptData("invalid checksum chunk size of an HFile block", offset=offset, found=bytes_per_checksum)
    chunk_count = -(-len(data) // bytes_per_checksum)
    if len(stored) != 4 * chunk_count:
        raise CorruptData(
            "invalid length of an HFile block's checksums", offset=offset, expected=4 * chunk_count, found=len(stored)
        )
    for index in range(chunk_count):
        chunk = data[index * bytes_per_checksum : (index + 1) * bytes_per_checksum]
        checksum = zlib.crc32(chunk) if kind == ChecksumType.CRC32 else crc32c(chunk)
        expected = int.from_bytes(stored[4 * index : 4 * index + 4], "big")
        if checksum != expected:
            raise CorruptData(
                f"checksum mismatch in chunk {index} of an HFile block", offset=offset, expected=expected, found=checksum
            )


def crc32c(data: memoryview | bytes) -> int:
    """Return the CRC-32C (Castagnoli, reflected, start and final XOR 0xffffffff); `crc32c(b"123456789") == 0xe3069283`."""
    length = len(data)
    if length < 4:
        return int(_advance_bytes(int(_ALL_ONES), bytes(data)) ^ int(_ALL_ONES))
    word_count = 1 << (-(-length // 4) - 1).bit_length()
    padded = np.zeros(4 * word_count, dtype=np.uint8)
    start = 4 * word_count - length
    padded[start:] = np.frombuffer(data, dtype=np.uint8)
    padded[start : start + 4] ^= np.uint8(0xFF)
    registers: UInt32s = padded.view("<u4").astype(np.uint32, copy=False)
    level = 2
    while len(registers) > 1:
        registers = _shift(registers[0::2], level) ^ registers[1::2]
        level += 1
    return int(_shift(registers, 2)[0] ^ _ALL_ONES)


def _shift(registers: UInt32s, level: int) -> UInt32s:
    """Return each CRC register after 2**level zero bytes."""
    table = _shift_table(level)
    shifted: UInt32s = table[0][registers & 0xFF]
    shifted ^= table[1][(registers >> 8) & 0xFF]
    shifted ^= table[2][(registers >> 16) & 0xFF]
    shifted ^= table[3][registers >> 24]
    return shifted


@lru_cache(maxsize=64)
def _shift_table(level: int) -> UInt32s:
    """Return the tables of the shift by 2**level zero bytes: row j, column b is the result for the register `b << 8j`."""
    if level == 0:
        table = np.zeros((4, 256), dtype=np.uint32)
        for byte in range(256):
            register = byte
            for _ in range(8):
                register = (register >> 1) ^ (_CASTAGNOLI if register & 1 else 0)
            table[0, byte] = register
        # A register whose low byte is 0 is only shifted by one byte.
        for row in range(1, 4):
            table[row] = np.arange(256, dtype=np.uint32) << np.uint32(8 * (row - 1))
        return table
    below = _shift_table(level - 1)
    return _shift(below.reshape(-1), level - 1).reshape(4, 256)


def _advance_bytes(register: int, data: bytes) -> int:
    table = _shift_table(0)[0]
    for byte in data:
        register = int(table[(register ^ byte) & 0xFF]) ^ (register >> 8)
    return register
