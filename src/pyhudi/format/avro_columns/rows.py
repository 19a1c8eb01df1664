"""Encoded bytes, and a cursor in them for each row."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import CorruptData
from pyhudi.format.avro_columns.buffers import Bools, Longs, Octets, Words, every_other

# Numbers are read eight bytes at a time, and decimals sixteen: padding at both ends keeps such reads inside the buffer.
PAD_BYTES: Final = 32


class Source:
    """Encoded bytes, copied once with padding around them. base: offset of the first byte in the caller's file."""

    __slots__ = ("base", "buffer", "octets", "words")

    def __init__(self, data: memoryview, base: int) -> None:
        padded = np.empty(len(data) + 2 * PAD_BYTES, np.uint8)
        padded[:PAD_BYTES] = 0
        padded[PAD_BYTES : PAD_BYTES + len(data)] = np.frombuffer(data, np.uint8)
        padded[PAD_BYTES + len(data) :] = 0
        self.octets: Octets = padded
        self.words: Words = np.ndarray((len(padded) - 7,), "<u8", padded.data, 0, (1,))
        self.buffer = pa.py_buffer(padded)
        self.base = base


class RowCursors:
    """A cursor for each row, and the end of its record.

    Every method that reads advances the cursors, and raises CorruptData if one passes its end.
    """

    __slots__ = ("at", "end", "source")

    def __init__(self, source: Source, at: Longs, end: Longs) -> None:
        self.source = source
        self.at = at
        self.end = end

    def __len__(self) -> int:
        return len(self.at)

    def subset(self, index: npt.NDArray[Any]) -> RowCursors:
        """Return some of the rows, with independent cursors; write them back with `advance`."""
        return RowCursors(self.source, self.at[index], self.end[index])

    def advance(self, index: npt.NDArray[Any], rows: RowCursors) -> None:
        """Take over the cursors of `rows`, which was created by `subset(index)`."""
        self.at[index] = rows.at

    def skip(self, sizes: Longs | int) -> None:
        """Skip `sizes` bytes, which are not negative."""
        self.at += sizes
        self._check(self.at > self.end, "a record is truncated inside a field")

    def octet(self) -> Octets:
        """Read one byte of each row."""
        values = self.source.octets[self.at]
        self.skip(1)
        return values

    def read_word(self, size: int) -> Words:
        """Read `size` bytes of each row, 1 to 8, little-endian; higher bytes of the result are not cleared."""
        values = self.source.words[self.at]
        self.skip(size)
        return values

    def varint(self) -> Longs:
        """Read a zig-zag number of each row."""
        octets = self.source.octets[self.at]
        if not bool((octets & 0x80).any()):
            self.skip(1)
            small = octets.astype(np.int64)
            return (small >> 1) ^ -(small & 1)
        words = self.source.words[self.at]
        # The first byte without its top bit ends the number; `last` has only that bit.
        stops = ~words & _TOP_BITS
        last = stops & (~stops + _ONE)
        bits = words & (last - _ONE) & _LOW_BITS
        # Seven-bit groups are compacted in pairs, then fours, then eights.
        bits = ((bits & _PAIRS) >> _ONE) | (bits & _PAIRS_LOW)
        bits = ((bits & _FOURS) >> np.uint64(2)) | (bits & _FOURS_LOW)
        bits = ((bits & _EIGHTS) >> np.uint64(4)) | (bits & _EIGHTS_LOW)
        # As a float, the exponent of the stop bit is its number: 7, 15, ...
        exponents = last.astype(np.float64).view(np.int64) >> 52
        sizes = (exponents - 1022) >> 3
        long = np.nonzero(last == 0)[0]
        if len(long):
            sizes[long] = self._finish_long(long, bits)
        self.skip(sizes)
        return ((bits >> _ONE) ^ (~(bits & _ONE) + _ONE)).view(np.int64)

    def sizes(self) -> Longs:
        """Read the length of a string or bytes value of each row, and verify that it is inside its record."""
        sizes = self.varint()
        self._check((sizes < 0) | (sizes > self.end - self.at), "invalid length of a value")
        return sizes

    def ranges(self, sizes: Longs) -> pa.Array:
        """Read `sizes` bytes of each row as a binary array."""
        count = len(self)
        offsets = np.empty(2 * count + 1, np.int32)
        offsets[0:-1:2] = self.at
        self.skip(sizes)
        offsets[1::2] = self.at
        offsets[-1] = offsets[-2] if count else 0
        return every_other(offsets, self.source.buffer)

    def expect_ends(self) -> None:
        """Raise CorruptData unless every record ends here."""
        self._check(self.at != self.end, "a record does not end at its recorded length")

    def fail(self, bad: Bools, message: str) -> None:
        """Raise CorruptData with `message` if any row is bad."""
        self._check(bad, message)

    def _check(self, bad: Bools, message: str) -> None:
        if bool(bad.any()):
            row = int(np.argmax(bad))
            raise CorruptData(message, offset=int(self.at[row]) - PAD_BYTES + self.source.base)

    def _finish_long(self, long: npt.NDArray[np.int64], bits: Words) -> Longs:
        """Add the ninth and tenth byte to numbers of more than eight; return their sizes."""
        at = np.minimum(self.at[long] + 8, len(self.source.words) - 1)
        words = self.source.words[at]
        ninth = words & np.uint64(0xFF)
        tenth = (words >> np.uint64(8)) & np.uint64(0xFF)
        longer = ninth >= 0x80
        wrong = np.zeros(len(self), np.bool_)
        wrong[long[longer & (tenth > 1)]] = True
        self._check(wrong, "a number exceeds 64 bits")
        bits[long] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        bits[long[longer]] |= tenth[longer] << np.uint64(63)
        return np.where(longer, 10, 9)


_ONE: Final = np.uint64(1)
_TOP_BITS: Final = np.uint64(0x8080808080808080)
_LOW_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_PAIRS: Final = np.uint64(0x7F007F007F007F00)
_PAIRS_LOW: Final = np.uint64(0x007F007F007F007F)
_FOURS: Final = np.uint64(0x3FFF00003FFF0000)
_FOURS_LOW: Final = np.uint64(0x00003FFF00003FFF)
_EIGHTS: Final = np.uint64(0x0FFFFFFF00000000)
_EIGHTS_LOW: Final = np.uint64(0x000000000FFFFFFF)
