"""Bloom filters over record keys, and their serialized form.

A base file stores one filter in its footer, so that an upsert can skip files that cannot contain a key. Two types
exist. A SIMPLE filter is one bit vector. A DYNAMIC_V0 filter is a list of bit vectors ("rows") that grows with the
number of keys up to a limit, and then distributes further keys over its existing rows.

Bytes (big endian; the text is their base64):

    row      int -1 | int hash count | byte hash type (1 = Murmur) | int bits | (bits + 7) / 8 bytes, least bit first
    SIMPLE   row
    DYNAMIC  the first 13 bytes of a row | int keys per row | int keys counted | int rows | rows

One key sets `hash count` bits: iv starts at 0, is replaced by murmur2(key, seed=iv) `hash count` times, and
each value selects the bit |iv| mod bits.

Vectorization: keys are sorted by byte length and cut into chunks whose arrays fit the processor's cache. The four-byte
words of the keys are mixed once, because mixing does not depend on the seed. Each of the chained rounds is then one
multiply and one xor per word over the whole chunk. In memory each bit is one byte, so that setting bits is a plain
scatter; bits are packed when the filter is encoded. numpy releases the GIL during these operations.

Not supported: the Jenkins hash and the unversioned layout of Hadoop, which Hudi never wrote (Unsupported).
Specification: docs/formats/bloom-filter.md.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported

DEFAULT_NUM_ENTRIES: Final = 60_000
DEFAULT_FPP: Final = 0.000000001
DEFAULT_MAX_ENTRIES: Final = 100_000


class BloomKind(StrEnum):
    """Filter types as named by the footer key `hoodie_bloom_filter_type_code`; without the key the type is SIMPLE."""

    SIMPLE = "SIMPLE"
    DYNAMIC_V0 = "DYNAMIC_V0"


class BloomFilter:
    """A set of keys with false positives and without false negatives.

    Concurrent lookups are safe; concurrent `add` calls are not. Construct one with `create` or `from_text`.
    """

    __slots__ = ("_counted", "_hash_count", "_kind", "_max_entries", "_num_entries", "_rows")

    def __init__(
        self,
        kind: BloomKind,
        hash_count: int,
        rows: list[npt.NDArray[np.bool_]],
        num_entries: int,
        max_entries: int,
        counted: int,
    ) -> None:
        self._kind = kind
        self._hash_count = hash_count
        self._rows = rows
        self._num_entries = num_entries
        self._max_entries = max_entries
        self._counted = counted

    @staticmethod
    def create(
        kind: BloomKind | str = BloomKind.DYNAMIC_V0,
        num_entries: int = DEFAULT_NUM_ENTRIES,
        fpp: float = DEFAULT_FPP,
        max_entries: int = DEFAULT_MAX_ENTRIES,
    ) -> BloomFilter:
        """Return an empty filter.

        Args:
            kind: Filter type.
            num_entries: Number of keys that one row is sized for.
            fpp: Target false positive probability, 0 < fpp < 1.
            max_entries: Number of keys at which a DYNAMIC_V0 filter stops growing. SIMPLE ignores it, as Hudi does.

        Raises:
            InvalidRequest: A number is out of range.
        """
        kind = _kind_of(kind)
        bits, hash_count = bloom_size(num_entries, fpp)
        if max_entries < 1:
            raise InvalidRequest(f"a bloom filter needs max_entries of at least 1, not {max_entries}")
        return BloomFilter(kind, hash_count, [np.zeros(bits, np.bool_)], num_entries, max_entries, 0)

    @staticmethod
    def from_text(
        text: str | bytes, kind: BloomKind | str = BloomKind.SIMPLE, max_entries: int = DEFAULT_MAX_ENTRIES
    ) -> BloomFilter:
        """Decode the filter from the text in a footer.

        Args:
            text: Base64.
            kind: Filter type.
            max_entries: Growth limit for keys added later. It is a setting of the writer and is not stored.

        Raises:
            CorruptData: The text is not such a filter.
            Unsupported: The Jenkins hash, or the unversioned layout.
        """
        raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
        try:
            data = base64.b64decode(raw, validate=True)
        except (binascii.Error, ValueError) as error:
            raise CorruptData(f"the text of a bloom filter is not base64: {error}") from error
        return BloomFilter.decode(data, kind, max_entries)

    @staticmethod
    def decode(
        data: bytes | memoryview, kind: BloomKind | str = BloomKind.SIMPLE, max_entries: int = DEFAULT_MAX_ENTRIES
    ) -> BloomFilter:
        """Decode the filter from its bytes; see `from_text`."""
        kind = _kind_of(kind)
        view = memoryview(data).cast("B")
        if kind is BloomKind.SIMPLE:
            row, end = _decode_row(view, 0)
            if end != len(view):
                raise CorruptData("trailing bytes after a bloom filter", offset=end, expected=end, found=len(view))
            return BloomFilter(kind, row.hash_count, [row.bits], 0, max_entries, 0)
        return _decode_dynamic(view, max_entries)

    @property
    def filter_type(self) -> BloomKind:
        return self._kind

    @property
    def row_count(self) -> int:
        return len(self._rows)

    @property
    def size_bytes(self) -> int:
        """Length of `encode()`."""
        rows = sum(_ROW_HEADER.size + (len(row) + 7) // 8 for row in self._rows)
        return rows if self._kind is BloomKind.SIMPLE else rows + _ROW_HEADER.size + _DYNAMIC_HEADER.size

    def copy(self, max_entries: int | None = None) -> BloomFilter:
        """Return an independent filter with the same keys, for a writer that rewrites a file and adds keys to it."""
        return BloomFilter(
            self._kind,
            self._hash_count,
            [row.copy() for row in self._rows],
            self._num_entries,
            self._max_entries if max_entries is None else max_entries,
            self._counted,
        )

    @staticmethod
    def merged(filters: Sequence[BloomFilter], max_entries: int = DEFAULT_MAX_ENTRIES) -> BloomFilter | None:
        """Return a filter with the keys of several ones; None if their types or sizes differ, so that keys must be added.

        Rows are combined as long as their keys fit into one row; a DYNAMIC_V0 filter has at most as many rows as one to
        which the keys were added.

        Args:
            filters: At least one.
            max_entries: As for `create`.
        """
        first = filters[0]
        sizes = {(f._kind, f._hash_count, len(f._rows[0]), f._num_entries) for f in filters}
        if len(sizes) > 1:
            return None
        capacity = first._num_entries
        limit = 1 if first._kind is BloomKind.SIMPLE else max(1, -(-max_entries // max(1, capacity)))
        rows: list[npt.NDArray[np.bool_]] = []
        counts: list[int] = []
        for each in filters:
            for number, row in enumerate(each._rows):
                count = each._counted if number == len(each._rows) - 1 else capacity
                if not rows or (counts[-1] + count > capacity and len(rows) < limit):
                    rows.append(row.copy())
                    counts.append(count)
                    continue
                target = len(rows) - 1 if counts[-1] + count <= capacity else int(np.argmin(counts))
                rows[target] |= row
                counts[target] += count
        return BloomFilter(first._kind, first._hash_count, rows, capacity, max_entries, counts[-1])

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Add every key, in order. One call with many keys produces the same bytes as many calls with one.

        Args:
            keys: string, large_string, binary or string_view; null and empty keys raise InvalidRequest.
        """
        for array in _key_arrays(keys):
            if self._kind is BloomKind.SIMPLE:
                self._set(0, array)
            else:
                self._add_dynamic(array)

    def might_contain(self, keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """Return for each key, in order, False if it was certainly never added, and True if it probably was.

        Args:
            keys: As for `add`, except that an empty key, which no filter can contain, returns True.
        """
        answers = [self._test_with_empty(array) for array in _key_arrays(keys, may_be_empty=True)]
        return np.concatenate(answers) if answers else np.zeros(0, np.bool_)

    def encode(self) -> bytes:
        """Return the serialized bytes."""
        parts: list[bytes] = []
        if self._kind is BloomKind.DYNAMIC_V0:
            parts.append(_row_header(self._hash_count, len(self._rows[0])))
            parts.append(_DYNAMIC_HEADER.pack(self._num_entries, self._counted, len(self._rows)))
        for row in self._rows:
            parts.append(_row_header(self._hash_count, len(row)))
            parts.append(np.packbits(row, bitorder="little").tobytes())
        return b"".join(parts)

    def to_text(self) -> str:
        """Return the value of the footer key `org.apache.hudi.bloomfilter`: base64 with padding, on one line."""
        return base64.b64encode(self.encode()).decode("ascii")

    def _add_dynamic(self, keys: pa.Array) -> None:
        # Hudi's rule is defined one key at a time; this assigns each row its whole run of keys at once.
        position = 0
        while position < len(keys):
            if self._counted < self._num_entries:
                run = min(self._num_entries - self._counted, len(keys) - position)
                self._set(len(self._rows) - 1, keys.slice(position, run))
                self._counted += run
                position += run
            elif len(self._rows) * self._num_entries < self._max_entries:
                self._rows.append(np.zeros(len(self._rows[0]), np.bool_))
                self._counted = 0
            else:
                self._spread(keys.slice(position))
                self._counted += len(keys) - position
                position = len(keys)

    def _spread(self, keys: pa.Array) -> None:
        # The key that finds the filter full goes to row 0 without advancing the round robin, so row 0 gets two keys in
        # a row.
        turn, row_count = self._counted - self._num_entries, len(self._rows)
        if turn == 0:
            self._set(0, keys.slice(0, 1))
            keys, turn = keys.slice(1), 1
        for start in range(min(row_count, len(keys))):
            self._set((turn - 1 + start) % row_count, keys.take(pa.array(np.arange(start, len(keys), row_count))))

    def _set(self, row: int, keys: pa.Array) -> None:
        bits = self._rows[row]
        for chunk in _chunks(keys, ordered=False):
            for iv in _rounds(chunk, self._hash_count):
                bits[_positions(iv, len(bits))] = True

    def _test_with_empty(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        empty = np.asarray(pc.equal(pc.binary_length(keys), 0), dtype=np.bool_)
        if not empty.any():
            return self._test(keys)
        answer = np.ones(len(keys), np.bool_)
        if not empty.all():
            answer[~empty] = self._test(keys.filter(pa.array(~empty)))
        return answer

    def _test(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        if len(self._rows) > _MAX_TESTED_ROWS:
            return np.ones(len(keys), np.bool_)
        answer = np.zeros(len(keys), np.bool_)
        for row in self._rows:
            for chunk in _chunks(keys, ordered=True):
                answer[chunk.index] |= _test_chunk(chunk, row, self._hash_count)
        return answer


def bloom_size(num_entries: int, fpp: float) -> tuple[int, int]:
    """Return (bits, hash count) of one row for `num_entries` keys at the false positive probability `fpp`.

    Raises:
        InvalidRequest: A number is out of range.
    """
    if num_entries < 1:
        raise InvalidRequest(f"a bloom filter needs num_entries of at least 1, not {num_entries}")
    if not 0.0 < fpp < 1.0:
        raise InvalidRequest(f"the error rate of a bloom filter must be between 0 and 1, not {fpp}")
    bits = math.ceil(num_entries * (-math.log(fpp) / (math.log(2) * math.log(2))))
    hash_count = math.ceil(math.log(2) * bits / num_entries)
    if bits > _MAX_BITS:
        raise InvalidRequest(
            f"a bloom filter for {num_entries} keys at {fpp} needs {bits} bits; the format's maximum is {_MAX_BITS}"
        )
    return bits, hash_count


def murmur2(keys: pa.Array | pa.ChunkedArray, seed: int = 0) -> npt.NDArray[np.int32]:
    """Return the signed 32-bit Murmur2 hash of each key with one seed, in order: one step of the chain above."""
    parts: list[npt.NDArray[np.int32]] = []
    for array in _key_arrays(keys):
        hashes = np.empty(len(array), np.int32)
        for chunk in _chunks(array, ordered=True):
            iv = np.full(chunk.size, seed & 0xFFFFFFFF, np.uint32)
            _murmur_step(chunk, iv, np.empty_like(iv))
            hashes[chunk.index] = iv.view(np.int32)
        parts.append(hashes)
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


_ROW_HEADER: Final = struct.Struct(">iibi")
_DYNAMIC_HEADER: Final = struct.Struct(">iii")
_VERSION: Final = -1
_MURMUR: Final = 1
_MAX_BITS: Final = 2**31 - 1

# The smallest positive double as error rate requires 1,075 hashes. A larger count in a file can only be corruption, and
# would make each lookup run for minutes.
_MAX_HASH_COUNT: Final = 1_100

# Each lookup tests every row; a filter of more rows excludes no key, because reading the keys of its file takes less time.
_MAX_TESTED_ROWS: Final = 4_096

# 16,384 keys of 30 bytes and the working arrays take less than a megabyte. Larger chunks exceed the cache of one core;
# smaller ones spend their time in calls.
_CHUNK_BYTES: Final = 512 * 1024
_CHUNK_KEYS: Final = 16_384

_M: Final = np.uint32(0x5BD1E995)


@dataclass(frozen=True, slots=True)
class _Row:
    hash_count: int
    bits: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _KeyChunk:
    """Keys in descending order of length, prepared for hashing with any seed.

    Attributes:
        size: Number of keys.
        lengths: Byte length of each key.
        words: One array per four-byte word, already mixed. words[j] covers the keys long enough to have word j: a
            prefix.
        tail: The last one to three bytes as one word.
        tail_factor: The factor to multiply by after the tail (1 for keys without one).
        index: Position of each key in the caller's array.
    """

    size: int
    lengths: npt.NDArray[np.uint32]
    words: tuple[npt.NDArray[np.uint32], ...]
    tail: npt.NDArray[np.uint32] | None
    tail_factor: npt.NDArray[np.uint32] | np.uint32
    index: Any

    def select(self, selection: npt.NDArray[np.bool_]) -> _KeyChunk:
        """Return the chunk of the selected keys."""
        factor = self.tail_factor
        return _KeyChunk(
            size=int(np.count_nonzero(selection)),
            lengths=self.lengths[selection],
            words=tuple(word[selection[: len(word)]] for word in self.words),
            tail=None if self.tail is None else self.tail[selection],
            tail_factor=factor[selection] if isinstance(factor, np.ndarray) else factor,
            index=None,
        )


def _kind_of(kind: BloomKind | str) -> BloomKind:
    try:
        return BloomKind(kind)
    except ValueError as error:
        raise Unsupported(f"unknown bloom filter type {kind!r}; known: {', '.join(BloomKind)}") from error


def _row_header(hash_count: int, bits: int) -> bytes:
    return _ROW_HEADER.pack(_VERSION, hash_count, _MURMUR, bits)


def _decode_row_header(view: memoryview, offset: int) -> tuple[int, int]:
    if len(view) - offset < _ROW_HEADER.size:
        raise CorruptData(
            "a bloom filter is truncated in its header", offset=offset, expected=_ROW_HEADER.size, found=len(view) - offset
        )
    version, hash_count, hash_type, bits = _ROW_HEADER.unpack_from(view, offset)
    if version > 0:
        raise Unsupported("a bloom filter in Hadoop's unversioned layout (Jenkins hash) is not supported")
    if version != _VERSION:
        raise CorruptData("unknown version of a bloom filter", offset=offset, expected=_VERSION, found=version)
    if hash_type == 0:
        raise Unsupported("a bloom filter with the Jenkins hash is not supported")
    if hash_type != _MURMUR:
        raise CorruptData("unknown hash of a bloom filter", offset=offset + 8, expected=_MURMUR, found=hash_type)
    if not 1 <= hash_count <= _MAX_HASH_COUNT:
        raise CorruptData("invalid hash count of a bloom filter", offset=offset + 4, found=hash_count)
    if bits < 1:
        raise CorruptData("invalid size of a bloom filter", offset=offset + 9, found=bits)
    return hash_count, bits


def _decode_row(view: memoryview, offset: int) -> tuple[_Row, int]:
    hash_count, bits = _decode_row_header(view, offset)
    start = offset + _ROW_HEADER.size
    end = start + (bits + 7) // 8
    if end > len(view):
        raise CorruptData("a bloom filter is truncated in its bits", offset=start, expected=end - start, found=len(view) - start)
    packed = np.frombuffer(view[start:end], np.uint8)
    return _Row(hash_count, np.unpackbits(packed, count=bits, bitorder="little").view(np.bool_)), end


def _decode_dynamic(view: memoryview, max_entries: int) -> BloomFilter:
    hash_count, bits = _decode_row_header(view, 0)
    offset = _ROW_HEADER.size
    if len(view) - offset < _DYNAMIC_HEADER.size:
        raise CorruptData("a dynamic bloom filter is truncated in its header", offset=offset)
    num_entries, counted, row_count = _DYNAMIC_HEADER.unpack_from(view, offset)
    if num_entries < 1 or counted < 0 or row_count < 1:
        raise CorruptData("invalid counts of a dynamic bloom filter", offset=offset, found=(num_entries, counted, row_count))
    offset += _DYNAMIC_HEADER.size
    row_size = _ROW_HEADER.size + (bits + 7) // 8
    if row_count * row_size != len(view) - offset:
        raise CorruptData(
            "the rows of a dynamic bloom filter do not match its length",
            offset=offset,
            expected=row_count * row_size,
            found=len(view) - offset,
        )
    rows: list[npt.NDArray[np.bool_]] = []
    for _ in range(row_count):
        row, end = _decode_row(view, offset)
        if row.hash_count != hash_count or len(row.bits) != bits:
            raise CorruptData(
                "a row of a dynamic bloom filter differs from its header",
                offset=offset,
                expected=(hash_count, bits),
                found=(row.hash_count, len(row.bits)),
            )
        rows.append(row.bits)
        offset = end
    return BloomFilter(BloomKind.DYNAMIC_V0, hash_count, rows, num_entries, max_entries, counted)


def _key_arrays(keys: pa.Array | pa.ChunkedArray, *, may_be_empty: bool = False) -> Iterator[pa.Array]:
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    for chunk in chunks:
        kind = chunk.type
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
                raise InvalidRequest(f"record keys of a bloom filter must be strings, not {kind}")
            if pa.types.is_string_view(kind):
                chunk = chunk.cast(pa.large_string())
            large = pa.types.is_large_string(chunk.type)
            chunk = chunk.cast(pa.large_binary() if large else pa.binary())
        if chunk.null_count:
            raise InvalidRequest("a record key is null; a bloom filter cannot hold it")
        if len(chunk):
            if not may_be_empty and pc.min(pc.binary_length(chunk)).as_py() == 0:
                raise InvalidRequest("a record key is empty; a bloom filter cannot hold it")
            yield chunk


def _chunks(keys: pa.Array, *, ordered: bool) -> Iterator[_KeyChunk]:
    """Cut keys (binary, not null, not empty) into chunks of descending length; `ordered` sets the `index` of each."""
    lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    order: npt.NDArray[np.int64] | None = None
    if lengths.min() != lengths.max():
        # numpy sorts 16 bits in linear time.
        order = np.argsort(-lengths.astype(np.int16) if lengths.max() < 1 << 15 else -lengths, kind="stable")
        lengths = lengths[order]
        sorted_keys = cast("pa.Array | pa.ChunkedArray", keys.take(pa.array(order)))
        # Keys whose total bytes exceed the offsets of one array arrive in chunks.
        keys = sorted_keys.cast(pa.large_binary()).combine_chunks() if isinstance(sorted_keys, pa.ChunkedArray) else sorted_keys
    start = 0
    while start < len(keys):
        step = int(min(_CHUNK_KEYS, max(1, _CHUNK_BYTES // lengths[start])))
        part = keys.slice(start, step)
        size = len(part)
        index: Any = None
        if ordered:
            index = slice(start, start + size) if order is None else order[start : start + size]
        yield _mix(_data_of(part), lengths[start : start + size], index)
        start += size


def _data_of(keys: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the concatenated bytes of the keys, without a copy."""
    _, offsets_buffer, data_buffer = keys.buffers()
    width = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, width)
    first, last = int(offsets[keys.offset]), int(offsets[keys.offset + len(keys)])
    return np.frombuffer(data_buffer, np.uint8)[first:last]


def _mix(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64], index: Any) -> _KeyChunk:
    """Prepare keys that are concatenated in `data`, longest first."""
    size = len(lengths)
    word_counts = lengths >> 2
    has_tail = (lengths & 3) != 0
    # word_counts descends, so the keys that have word j are a prefix.
    reach = size - np.searchsorted(word_counts[::-1], np.arange(1, int(word_counts[0]) + 1), side="left")
    words = [np.empty(int(count), np.uint32) for count in reach]
    tail = np.zeros(size, np.uint32) if bool(has_tail.any()) else None
    boundaries = np.nonzero(np.diff(lengths))[0] + 1
    first, at = 0, 0
    for last in [*boundaries.tolist(), size]:
        length = int(lengths[first])
        block = data[at : at + length * (last - first)].reshape(last - first, length)
        full = length >> 2
        if full:
            table = np.ascontiguousarray(block[:, : full * 4]).view("<u4")
            for j in range(full):
                words[j][first:last] = table[:, j]
        if length & 3 and tail is not None:
            # The reference reads the tail as signed bytes, so a byte above 127 also flips all bits to its left. It
            # reads from the end: the last byte of the key is the lowest of the word.
            signed = block[:, full * 4 :].astype(np.int8).astype(np.int32).astype(np.uint32)
            for i in range(length & 3):
                tail[first:last] ^= signed[:, -1 - i] << np.uint32(8 * i)
        at += length * (last - first)
        first = last
    for word in words:
        word *= _M
        word ^= word >> np.uint32(24)
        word *= _M
    factor: npt.NDArray[np.uint32] | np.uint32 = _M
    if not bool(has_tail.all()):
        factor = np.where(has_tail, _M, np.uint32(1))
    return _KeyChunk(size, lengths.astype(np.uint32), tuple(words), tail, factor, index)


def _murmur_step(chunk: _KeyChunk, h: npt.NDArray[np.uint32], scratch: npt.NDArray[np.uint32]) -> None:
    """Replace each seed in `h` by the hash of its key with that seed."""
    h ^= chunk.lengths
    for word in chunk.words:
        part = h[: len(word)]
        part *= _M
        part ^= word
    if chunk.tail is not None:
        h ^= chunk.tail
        h *= chunk.tail_factor
    np.right_shift(h, np.uint32(13), out=scratch)
    h ^= scratch
    h *= _M
    np.right_shift(h, np.uint32(15), out=scratch)
    h ^= scratch


def _rounds(chunk: _KeyChunk, hash_count: int) -> Iterator[npt.NDArray[np.uint32]]:
    """Yield the chained hashes of all keys, round by round; the array is reused."""
    iv = np.zeros(chunk.size, np.uint32)
    scratch = np.empty_like(iv)
    for _ in range(hash_count):
        _murmur_step(chunk, iv, scratch)
        yield iv


def _positions(iv: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.int64]:
    # The absolute value of the smallest int is itself; read as unsigned it is 2**31, which is the reference's result.
    magnitude = np.abs(iv.view(np.int32)).view(np.uint32)
    size = np.uint32(bits)
    # numpy divides by a constant with vector instructions, but computes remainders one by one.
    quotient = magnitude // size
    quotient *= size
    magnitude -= quotient
    return magnitude.astype(np.int64)


def _test_chunk(chunk: _KeyChunk, bits: npt.NDArray[np.bool_], hash_count: int) -> npt.NDArray[np.bool_]:
    """Return which keys of the chunk have all their bits set."""
    alive: npt.NDArray[np.bool_] = np.ones(chunk.size, np.bool_)
    where = np.arange(chunk.size)
    iv = np.zeros(chunk.size, np.uint32)
    scratch = np.empty_like(iv)
    contained: npt.NDArray[np.bool_] = np.ones(chunk.size, np.bool_)
    for _ in range(hash_count):
        _murmur_step(chunk, iv, scratch)
        alive &= bits[_positions(iv, len(bits))]
        alive_count = int(np.count_nonzero(alive))
        # Most lookups are for absent keys, which drop out in the first rounds: continue with the remaining keys only.
        if alive_count * 2 <= chunk.size:
            contained[where[~alive]] = False
            if not alive_count:
                return contained
            chunk = chunk.select(alive)
            where, iv = where[alive], iv[alive]
            scratch = np.empty_like(iv)
            alive = np.ones(alive_count, np.bool_)
    contained[where[~alive]] = False
    return contained
