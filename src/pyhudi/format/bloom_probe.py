"""Lookup of a few keys in a serialized Bloom filter, decoding only the bits that those keys set.

Most absent keys are ruled out after two bits. Decoding a filter of some hundred thousand keys takes a thousand times as long.

Specification: docs/formats/bloom-filter.md.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pyhudi.errors import CorruptData
from pyhudi.format.bloom_filter import BloomFilter, BloomKind

MAX_KEYS: Final = 16
"""For more keys than this, decode the whole filter."""

_ROW: Final = struct.Struct(">iibi")
_DYNAMIC: Final = struct.Struct(">iii")
_HEAD_CHARACTERS: Final = 36
_VERSION, _MURMUR = -1, 1
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def text_might_contain(text: bytes, kind: str, keys: pa.StringArray) -> bool:
    """Return whether a filter may contain any of some keys, which are neither null nor empty.

    Args:
        text: As for `BloomFilter.from_text`, with its errors for the bytes that are decoded.
        kind: As for `BloomFilter.from_text`.
        keys: At most `MAX_KEYS` keys.
    """
    rows = _rows(text, kind) if len(keys) <= MAX_KEYS else None
    if rows is None:
        return bool(BloomFilter.from_text(text, kind).might_contain(keys).any())
    starts, hash_count, bits = rows
    return any(
        all(_is_set(text, start, number) for number in _bits_of(key, hash_count, bits))
        for key in keys.cast(pa.binary()).to_pylist()
        for start in starts
    )


def _rows(text: bytes, kind: str) -> tuple[range, int, int] | None:
    """Return the byte offset of each row's bits, the bits per key and the bits per row; None if the header is invalid."""
    padding = 4 - len(text[-4:].rstrip(b"="))
    size = len(text) // 4 * 3 - padding
    head = _decoded(text, 0, _HEAD_CHARACTERS)
    if len(text) % 4 or padding > 2 or len(head) < _ROW.size + _DYNAMIC.size:
        return None
    version, hash_count, hash_type, bits = _ROW.unpack_from(head)
    row_size = _ROW.size + (bits + 7) // 8
    first, count = 0, 1
    if kind == BloomKind.DYNAMIC_V0:
        first, count = _ROW.size + _DYNAMIC.size, _DYNAMIC.unpack_from(head, _ROW.size)[2]
    is_sound = version == _VERSION and hash_type == _MURMUR and hash_count > 0 and bits > 0 and count > 0
    if kind not in set(BloomKind) or not is_sound or first + count * row_size != size:
        return None
    return range(first + _ROW.size, size, row_size), hash_count, bits


@lru_cache(maxsize=MAX_KEYS)
def _bits_of(key: bytes, hash_count: int, bits: int) -> tuple[int, ...]:
    """Return the bits that a key sets; cached, because the same key is looked up in many files."""
    return tuple(_each_bit(key, hash_count, bits))


def _each_bit(key: bytes, hash_count: int, bits: int) -> Iterator[int]:
    """Hash one key with Python integers, which is faster than an array of one."""
    full = len(key) // 4 * 4
    words = [_mixed(int.from_bytes(key[at : at + 4], "little")) for at in range(0, full, 4)]
    tail = 0
    for place, byte in enumerate(reversed(key[full:])):
        tail ^= (byte - 256 if byte > 127 else byte) << 8 * place & _MASK
    value = 0
    for _ in range(hash_count):
        value ^= len(key)
        for word in words:
            value = value * _FACTOR & _MASK ^ word
        if full < len(key):
            value = (value ^ tail) * _FACTOR & _MASK
        value = (value ^ value >> 13) * _FACTOR & _MASK
        value ^= value >> 15
        yield (value if value < 1 << 31 else (1 << 32) - value) % bits


def _mixed(word: int) -> int:
    word = word * _FACTOR & _MASK
    return (word ^ word >> 24) * _FACTOR & _MASK


def _is_set(text: bytes, start: int, number: int) -> bool:
    byte, bit = divmod(number, 8)
    group, place = divmod(start + byte, 3)
    return bool(_decoded(text, group * 4, group * 4 + 4)[place] >> bit & 1)


def _decoded(text: bytes, start: int, end: int) -> bytes:
    try:
        return base64.b64decode(text[start:end], validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptData(f"the text of a bloom filter is not base64: {error}", offset=start) from error
