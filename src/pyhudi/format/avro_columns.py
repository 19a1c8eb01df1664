"""Avro records <-> Arrow columns, a whole column at a time.  Source: Avro specification 1.11, "Binary Encoding".

Log blocks hold rows as Avro, where a field is found only by walking over the fields before it.  Going row by row through
Python objects costs microseconds a row; here no Python runs per row.

Decoding.  Where each record begins and ends is known to the caller (log blocks and HFiles store lengths).  An array of
positions, one per record, walks through the schema: each step reads one field of all records with a few numpy operations
and moves every position behind it.

    varint          eight bytes per record in one gather; continuation bits give the length, three shifts close the gaps
    string, bytes   the content itself becomes an Arrow array in which wanted ranges and the gaps between them alternate,
                    and Arrow's `take` copies the wanted ones
    ["null", T]     T for the records on that branch, spread over the rows again by validity and offsets
    array, map      the first item of all records, then the second of those that have one, ...; when only few records are
                    left, their items are found one by one and then read together.  Items of a fixed size are read at once

Encoding.  Each column becomes binary columns: short ones for branches, lengths and numbers, and the strings as they are.
Arrow's element-wise join makes the records of them.

Types: null unions of two branches in either order, boolean, int, long, float, double, bytes, string, enum, fixed, record,
array, map; decimal (bytes and fixed), date, times, timestamps (local ones too), uuid.  Arrow types are those of
`records.schema.avro_to_arrow`.  What is not done: other unions, recursive records, schema resolution (rows come in the
schema that wrote them), and items without bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.coding import Cursor
from pyhudi.records.schema import avro_to_arrow, resolve_avro

Longs: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Octets: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]

CHUNK_ROWS: Final = 16_384
"""Rows to decode or encode in one call: so many that calls cost little, so few that their arrays stay in the cache."""

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Encoded bytes to decode in one call; it bounds the memory that arrays of many small items take."""


@dataclass(frozen=True, slots=True)
class AvroRecords:
    """The codec of one record schema.  Made by `avro_records`."""

    schema: pa.Schema
    _root: RecordNode

    def decode(
        self, data: bytes | memoryview, starts: Longs, ends: Longs, columns: Sequence[str] | None = None, base: int = 0
    ) -> pa.RecordBatch:
        """The records at `data[starts[i]:ends[i]]`, one row each, in that order.

        starts, ends: int64, not falling, without overlap.  At most about CHUNK_ROWS and CHUNK_BYTES in one call is what
        makes it fast.  columns: the top-level columns to return, in the order of the schema; None means all.
        base: what to add to offsets in errors.
        Returns a batch with the columns of `schema`.  Raises CorruptData when a record breaks its schema or does not end
        where it should.
        """
        if not len(starts):
            return _empty(_select(self.schema, columns))
        first, last = int(starts[0]), int(ends[-1])
        view = memoryview(data).cast("B")
        ordered = bool((starts <= ends).all()) and bool((starts[1:] >= ends[:-1]).all())
        if first < 0 or last > len(view) or not ordered:
            raise CorruptData("records do not lie one after the other", offset=base, found=(first, last))
        source = Source(view[first:last], base + first)
        shift = PAD_BYTES - first
        rows = Rows(source, starts + shift, ends + shift)
        arrays = self._root.decode_columns(rows, None if columns is None else frozenset(columns))
        rows.expect_ends()
        return pa.RecordBatch.from_arrays(arrays, schema=_select(self.schema, columns))

    def decode_values(self, values: pa.Array, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """As `decode`, of a binary array without nulls that holds one record in each value."""
        offsets, data = binary_parts(values)
        return self.decode(data.data, offsets[:-1], offsets[1:], columns)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """A binary array with one encoded record for each row.

        batch: the columns of `schema` by position, with its types (nested names aside).  Raises InvalidRequest for other
        types, and for nulls where the schema has no null.
        """
        return join(self.encode_parts(batch), batch.num_rows)

    def encode_parts(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Binary arrays which, joined row by row, are the records; for callers that put something before each."""
        if batch.num_columns != len(self.schema):
            raise InvalidRequest(f"{batch.num_columns} columns do not fit a schema of {len(self.schema)}")
        return self._root.encode_columns(batch.columns, batch.num_rows)


@lru_cache(maxsize=256)
def avro_records(text: str) -> AvroRecords:
    """The codec of a record schema, kept for the next call with the same text.

    Raises CorruptData when the text is no Avro record, Unsupported for what the head of this module leaves out.
    """
    schema = avro_to_arrow(text)
    root = compile_node(resolve_avro(text), pa.struct(list(schema)))
    assert isinstance(root, RecordNode)
    return AvroRecords(schema, root)


def supports(text: str) -> bool:
    """Whether `avro_records` takes the schema."""
    try:
        avro_records(text)
    except Unsupported:
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# The bytes to decode, and a position in them for each row


# Numbers are read eight bytes at a time and decimals end where sixteen bytes are read: room at both ends keeps such reads
# inside the buffer.
PAD_BYTES: Final = 32


class Source:
    """Encoded bytes, copied once with room around them.  base: the offset of the first in the caller's file."""

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


class Rows:
    """A reading position for each row, and where its record ends.

    Every method that reads moves the positions on, and raises CorruptData when one passes its end.
    """

    __slots__ = ("at", "end", "source")

    def __init__(self, source: Source, at: Longs, end: Longs) -> None:
        self.source = source
        self.at = at
        self.end = end

    def __len__(self) -> int:
        return len(self.at)

    def subset(self, index: npt.NDArray[Any]) -> Rows:
        """Some of the rows, with positions of their own; give them back with `advance`."""
        return Rows(self.source, self.at[index], self.end[index])

    def advance(self, index: npt.NDArray[Any], rows: Rows) -> None:
        """Take the positions of `rows`, which was made by `subset(index)`."""
        self.at[index] = rows.at

    def skip(self, sizes: Longs | int) -> None:
        """Pass over `sizes` bytes, which are not negative."""
        self.at += sizes
        self._check(self.at > self.end, "a record ends inside a field")

    def octet(self) -> Octets:
        """One byte of each row."""
        values = self.source.octets[self.at]
        self.skip(1)
        return values

    def word(self, size: int) -> Words:
        """`size` bytes of each row, 1 to 8, little-endian; what stands above them is not cleared."""
        values = self.source.words[self.at]
        self.skip(size)
        return values

    def varint(self) -> Longs:
        """A zig-zag number of each row."""
        octets = self.source.octets[self.at]
        if not bool((octets & 0x80).any()):
            self.skip(1)
            small = octets.astype(np.int64)
            return (small >> 1) ^ -(small & 1)
        words = self.source.words[self.at]
        # The first byte without its top bit ends the number; `last` has that bit alone.
        stops = ~words & _TOP_BITS
        last = stops & (~stops + _ONE)
        bits = words & (last - _ONE) & _LOW_BITS
        # Seven-bit groups close up in pairs, then fours, then eights.
        bits = ((bits & _PAIRS) >> _ONE) | (bits & _PAIRS_LOW)
        bits = ((bits & _FOURS) >> np.uint64(2)) | (bits & _FOURS_LOW)
        bits = ((bits & _EIGHTS) >> np.uint64(4)) | (bits & _EIGHTS_LOW)
        # The exponent of the stop bit as a float is its number: 7, 15, ...
        exponents = last.astype(np.float64).view(np.int64) >> 52
        sizes = (exponents - 1022) >> 3
        long = np.nonzero(last == 0)[0]
        if len(long):
            sizes[long] = self._finish_long(long, bits)
        self.skip(sizes)
        return ((bits >> _ONE) ^ (~(bits & _ONE) + _ONE)).view(np.int64)

    def sizes(self) -> Longs:
        """The length of a string or bytes value of each row, which then lie inside their records."""
        sizes = self.varint()
        self._check((sizes < 0) | (sizes > self.end - self.at), "impossible length of a value")
        return sizes

    def ranges(self, sizes: Longs) -> pa.Array:
        """`sizes` bytes of each row as a binary array."""
        count = len(self)
        offsets = np.empty(2 * count + 1, np.int32)
        offsets[0:-1:2] = self.at
        self.skip(sizes)
        offsets[1::2] = self.at
        offsets[-1] = offsets[-2] if count else 0
        return _every_other(offsets, self.source.buffer)

    def expect_ends(self) -> None:
        """Every record must end here."""
        self._check(self.at != self.end, "a record does not end where its length says")

    def fail(self, bad: Bools, message: str) -> None:
        """Raise CorruptData when a row is bad; `message` says why."""
        self._check(bad, message)

    def _check(self, bad: Bools, message: str) -> None:
        if bool(bad.any()):
            row = int(np.argmax(bad))
            raise CorruptData(message, offset=int(self.at[row]) - PAD_BYTES + self.source.base)

    def _finish_long(self, long: npt.NDArray[np.int64], bits: Words) -> Longs:
        """Add the ninth and tenth byte to the numbers that have more than eight; their sizes."""
        at = np.minimum(self.at[long] + 8, len(self.source.words) - 1)
        words = self.source.words[at]
        ninth = words & np.uint64(0xFF)
        tenth = (words >> np.uint64(8)) & np.uint64(0xFF)
        longer = ninth >= 0x80
        wrong = np.zeros(len(self), np.bool_)
        wrong[long[longer & (tenth > 1)]] = True
        self._check(wrong, "a number needs more than 64 bits")
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


# ---------------------------------------------------------------------------------------------------------------------
# One node for each type of a schema


class Node(ABC):
    """A type of the schema.

    arrow: its Arrow type.  min_bytes: what its smallest value takes.  stride: what each value takes, when all take the
    same (a nullable node: what each that is not null takes).
    """

    __slots__ = ("arrow", "min_bytes", "stride")

    def __init__(self, arrow: pa.DataType, min_bytes: int, stride: int | None = None) -> None:
        self.arrow = arrow
        self.min_bytes = min_bytes
        self.stride = stride

    @abstractmethod
    def decode(self, rows: Rows) -> pa.Array:
        """The value of each row."""

    @abstractmethod
    def walk(self, cursor: Cursor) -> None:
        """Pass over one value."""

    @abstractmethod
    def encode(self, array: pa.Array) -> list[pa.Array]:
        """Binary arrays whose join is the values; `array` has the node's type and no nulls."""

    def skip(self, rows: Rows) -> None:
        """Pass over the value of each row."""
        self.decode(rows)

    def encode_nullable(self, array: pa.Array, live: int, null: int) -> list[pa.Array]:
        """As `encode`, each value behind the byte `live` of its branch; a null is the byte `null` alone."""
        if not array.null_count:
            return [octet_column(np.full(len(array), live, np.uint8)), *self.encode(array)]
        valid = valid_mask(array)
        codes = np.where(valid, np.uint8(live), np.uint8(null))
        return [octet_column(codes), *(expand(part, valid) for part in self.encode(array.drop_null()))]


class BooleanNode(Node):
    """boolean."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(pa.bool_(), 1, 1)

    def decode(self, rows: Rows) -> pa.Array:
        octets = rows.octet()
        rows.fail(octets > 1, "a boolean is neither 0 nor 1")
        return pa.Array.from_buffers(pa.bool_(), len(octets), [None, pa.py_buffer(np.packbits(octets, bitorder="little"))], 0)

    def walk(self, cursor: Cursor) -> None:
        cursor.skip(1)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [octet_column(array.cast(pa.uint8()).to_numpy(zero_copy_only=False))]


class NumberNode(Node):
    """int, long and what is stored as one.

    factor: Arrow counts in microseconds what the schema counts in milliseconds, so stored numbers are multiplied by it.
    below: values from 0 on are smaller than this, for the times of a day; 0 means any.
    """

    __slots__ = ("below", "bits", "factor")

    def __init__(self, arrow: pa.DataType, bits: int, factor: int = 1, below: int = 0) -> None:
        super().__init__(arrow, 1)
        self.bits = bits
        self.factor = factor
        self.below = below

    def decode(self, rows: Rows) -> pa.Array:
        values = rows.varint()
        if self.bits == 32:
            rows.fail((values < -(2**31)) | (values >= 2**31), "an int needs more than 32 bits")
        if self.below:
            rows.fail((values < 0) | (values >= self.below), "a time that is not on the clock")
        if self.factor != 1:
            most = (2**63 - 1) // self.factor
            rows.fail((values > most) | (values < -most), "a timestamp that microseconds cannot hold")
            values = values * self.factor
        stored = values.astype(np.int32) if self.arrow.bit_width == 32 else values
        return pa.Array.from_buffers(self.arrow, len(stored), [None, pa.py_buffer(stored)], 0)

    def skip(self, rows: Rows) -> None:
        rows.varint()

    def walk(self, cursor: Cursor) -> None:
        cursor.zigzag()

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [varints(self._numbers(array))]

    def encode_nullable(self, array: pa.Array, live: int, null: int) -> list[pa.Array]:
        valid = valid_mask(array) if array.null_count else None
        return [varints(self._numbers(array), live, null, valid)]

    def _numbers(self, array: pa.Array) -> Longs:
        width = np.int32 if self.arrow.bit_width == 32 else np.int64
        numbers = fixed_values(array, width).astype(np.int64, copy=False)
        return numbers // self.factor if self.factor != 1 else numbers


class FloatNode(Node):
    """float and double."""

    __slots__ = ()

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__(arrow, arrow.bit_width // 8, arrow.bit_width // 8)

    def decode(self, rows: Rows) -> pa.Array:
        words = rows.word(self.min_bytes)
        stored: npt.NDArray[Any] = words if self.min_bytes == 8 else words.astype(np.uint32)
        return pa.Array.from_buffers(self.arrow, len(stored), [None, pa.py_buffer(stored)], 0)

    def skip(self, rows: Rows) -> None:
        rows.skip(self.min_bytes)

    def walk(self, cursor: Cursor) -> None:
        cursor.skip(self.min_bytes)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [_fixed(fixed_values(array, np.uint8, self.min_bytes))]


class BinaryNode(Node):
    """string and bytes; strings must be UTF-8."""

    __slots__ = ()

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__(arrow, 1)

    def decode(self, rows: Rows) -> pa.Array:
        values = rows.ranges(rows.sizes())
        if self.arrow == values.type:
            return values
        try:
            return values.cast(self.arrow)
        except pa.ArrowInvalid as error:
            raise CorruptData("a string is not UTF-8", offset=rows.source.base) from error

    def skip(self, rows: Rows) -> None:
        rows.skip(rows.sizes())

    def walk(self, cursor: Cursor) -> None:
        cursor.skip(cursor.zigzag())

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [varints(_lengths(array)), array.cast(pa.binary())]

    def encode_nullable(self, array: pa.Array, live: int, null: int) -> list[pa.Array]:
        valid = valid_mask(array) if array.null_count else None
        return [varints(_lengths(array), live, null, valid), array.cast(pa.binary())]


class EnumNode(Node):
    """An enum, which is a string in Arrow."""

    __slots__ = ("symbols",)

    def __init__(self, symbols: Sequence[str]) -> None:
        super().__init__(pa.string(), 1)
        self.symbols = pa.array(symbols, pa.string())

    def decode(self, rows: Rows) -> pa.Array:
        numbers = rows.varint()
        rows.fail((numbers < 0) | (numbers >= len(self.symbols)), "an enum has no such symbol")
        return self.symbols.take(pa.array(numbers))

    def walk(self, cursor: Cursor) -> None:
        cursor.zigzag()

    def encode(self, array: pa.Array) -> list[pa.Array]:
        numbers = pc.index_in(array, self.symbols)
        if numbers.null_count:
            wrong = array.filter(numbers.is_null())[0].as_py()
            raise InvalidRequest(f"{wrong!r} is no symbol of the enum {self.symbols.to_pylist()}")
        return [varints(numbers.to_numpy().astype(np.int64))]


class FixedNode(Node):
    """fixed without a logical type."""

    __slots__ = ()

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__(arrow, arrow.byte_width, arrow.byte_width)

    def decode(self, rows: Rows) -> pa.Array:
        values = rows.ranges(np.full(len(rows), self.min_bytes, np.int64))
        return pa.Array.from_buffers(self.arrow, len(rows), [None, values.buffers()[2] or pa.py_buffer(b"")], 0)

    def skip(self, rows: Rows) -> None:
        rows.skip(self.min_bytes)

    def walk(self, cursor: Cursor) -> None:
        cursor.skip(self.min_bytes)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [_fixed(fixed_values(array, np.uint8, self.min_bytes))]


class DecimalNode(Node):
    """A decimal, big-endian two's complement.  size: bytes of a fixed; None for bytes, which bring their length."""

    __slots__ = ("size",)

    def __init__(self, arrow: pa.DataType, size: int | None) -> None:
        super().__init__(arrow, 1 if size is None else size, size)
        self.size = size

    def decode(self, rows: Rows) -> pa.Array:
        sizes = rows.sizes() if self.size is None else np.full(len(rows), self.size, np.int64)
        start = rows.at.copy()
        rows.skip(sizes)
        rows.fail(sizes == 0, "a decimal without bytes")
        values = _decode_decimals(rows, start, sizes)
        array = pa.Array.from_buffers(self.arrow, len(rows), [None, pa.py_buffer(values)], 0)
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptData(f"a decimal does not fit {self.arrow}", offset=rows.source.base) from error
        return array

    def walk(self, cursor: Cursor) -> None:
        cursor.skip(cursor.zigzag() if self.size is None else self.size)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        octets = fixed_values(array, np.uint8, 16)[:, ::-1]
        sign = np.where(octets[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
        if self.size is None:
            # A byte in front may go while it repeats the sign that the next one shows.
            needless = (octets[:, :-1] == sign) & ((octets[:, 1:] >= 0x80) == (sign > 0))
            skipped = np.minimum.accumulate(needless, axis=1).sum(axis=1)
            flat = np.ascontiguousarray(octets)
            starts = np.arange(len(array), dtype=np.int64) * 16
            return [varints(16 - skipped), _gather(flat, starts + skipped, starts + 16)]
        if self.size >= 16:
            wide = np.concatenate([np.repeat(sign, self.size - 16, axis=1), octets], axis=1)
            return [_fixed(wide)]
        cut = 16 - self.size
        fits = (octets[:, :cut] == sign).all(axis=1) & ((octets[:, cut] >= 0x80) == (sign[:, 0] > 0))
        if not bool(fits.all()):
            raise InvalidRequest(f"a decimal does not fit the {self.size} bytes that its schema gives it")
        return [_fixed(octets[:, cut:])]


class NullableNode(Node):
    """A union of null and one type.  live, null: the bytes of the two branches."""

    __slots__ = ("inner", "live", "null")

    def __init__(self, inner: Node, live: int) -> None:
        super().__init__(inner.arrow, 1, None if inner.stride is None else inner.stride + 1)
        self.inner = inner
        self.live = 2 * live
        self.null = 2 - 2 * live

    def decode(self, rows: Rows) -> pa.Array:
        valid, index, live = self._branches(rows)
        if index is None:
            return self.inner.decode(rows)
        if not len(index):
            return pa.nulls(len(rows), self.arrow)
        array = self.inner.decode(live)
        rows.advance(index, live)
        return expand(array, valid)

    def skip(self, rows: Rows) -> None:
        _, index, live = self._branches(rows)
        if len(live):
            self.inner.skip(live)
        if index is not None:
            rows.advance(index, live)

    def walk(self, cursor: Cursor) -> None:
        branch = cursor.zigzag()
        if branch not in (0, 1):
            raise cursor.corrupt("a union has no such branch", found=branch)
        if branch * 2 == self.live:
            self.inner.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return self.inner.encode_nullable(array, self.live, self.null)

    def _branches(self, rows: Rows) -> tuple[Bools, npt.NDArray[np.int64] | None, Rows]:
        """Which rows are not null, their numbers (None when all are), and the rows themselves."""
        codes = rows.octet()
        rows.fail((codes != 0) & (codes != 2), "a union has no such branch")
        valid = codes == self.live
        if bool(valid.all()):
            return valid, None, rows
        index = np.nonzero(valid)[0]
        return valid, index, rows.subset(index)


class RecordNode(Node):
    """A record: a struct in Arrow, or the columns of a batch."""

    __slots__ = ("children", "names")

    def __init__(self, arrow: pa.DataType, children: tuple[Node, ...]) -> None:
        strides = [child.stride for child in children if not isinstance(child, NullableNode)]
        stride = sum(s for s in strides if s is not None) if len(strides) == len(children) and None not in strides else None
        super().__init__(arrow, sum(child.min_bytes for child in children), stride)
        self.children = children
        self.names = tuple(field.name for field in arrow.fields)

    def decode(self, rows: Rows) -> pa.Array:
        count = len(rows)
        arrays = self.decode_columns(rows, None)
        if not arrays:
            return pa.Array.from_buffers(self.arrow, count, [None], 0, children=[])
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow.fields))

    def decode_columns(self, rows: Rows, wanted: frozenset[str] | None) -> list[pa.Array]:
        """The fields of every row, or those that are wanted; the others are passed over."""
        arrays = []
        for name, child in zip(self.names, self.children, strict=True):
            if wanted is None or name in wanted:
                arrays.append(child.decode(rows))
            else:
                child.skip(rows)
        return arrays

    def skip(self, rows: Rows) -> None:
        self.decode_columns(rows, frozenset())

    def walk(self, cursor: Cursor) -> None:
        for child in self.children:
            child.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        # `field` forgets the slice of the struct, `flatten` does not.
        return self.encode_columns(array.flatten(), len(array))

    def encode_columns(self, arrays: Sequence[pa.Array], count: int) -> list[pa.Array]:
        """The parts of all fields."""
        parts: list[pa.Array] = []
        for field, child, array in zip(self.arrow.fields, self.children, arrays, strict=True):
            if array.type != child.arrow:
                raise InvalidRequest(f"column {field.name!r} is {array.type}, its schema says {child.arrow}")
            if array.null_count and not field.nullable:
                raise InvalidRequest(f"column {field.name!r} may not be null, and is in {array.null_count} of {count} rows")
            parts += child.encode(array)
        return parts


class SequenceNode(Node):
    """array and map: items in counted blocks, closed by an empty block.  item: a map's is the record of key and value."""

    __slots__ = ("item", "item_nullable")

    def __init__(self, arrow: pa.DataType, item: Node, item_nullable: bool) -> None:
        if not item.min_bytes:
            raise Unsupported("an Avro array whose items take no bytes is not supported")
        super().__init__(arrow, 1)
        self.item = item
        self.item_nullable = item_nullable

    def decode(self, rows: Rows) -> pa.Array:
        counts, items = _decode_items(rows, self.item)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets.astype(np.int32))]
        return pa.Array.from_buffers(self.arrow, len(rows), buffers, 0, children=[items])

    def walk(self, cursor: Cursor) -> None:
        while count := _block_count(cursor):
            for _ in range(count):
                self.item.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        total = int(offsets[-1] - offsets[0])
        counts = np.diff(offsets)
        items = join(self._encode_items(array, int(offsets[0]), total), total)
        ends, data = binary_parts(items)
        # The items of one row lie side by side, so their encoded bytes are one value over the same data.
        values = _binary(ends[offsets - offsets[0]], data)
        some = counts > 0
        closing = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(some, out=closing[1:])
        return [varints(counts), values, _binary(closing, np.zeros(int(closing[-1]), np.uint8))]

    def _encode_items(self, array: pa.Array, first: int, count: int) -> list[pa.Array]:
        items = array.values.slice(first, count)
        if items.null_count and not self.item_nullable:
            raise InvalidRequest("an array holds nulls that its schema does not allow")
        return self.item.encode(items)


class MapNode(SequenceNode):
    """A map with string keys: a sequence of records of key and value."""

    __slots__ = ()

    def _encode_items(self, array: pa.Array, first: int, count: int) -> list[pa.Array]:
        assert isinstance(self.item, RecordNode)
        return self.item.encode_columns([array.keys.slice(first, count), array.items.slice(first, count)], count)


def compile_node(schema: Any, arrow: pa.DataType) -> Node:
    """The node of a type.  schema: resolved Avro; arrow: what `avro_to_arrow` makes of it."""
    if isinstance(schema, list):
        if len(schema) == 1:
            raise Unsupported("an Avro union of one type is not supported")
        if len(schema) != 2 or "null" not in schema:
            raise Unsupported("an Avro union of several types is not supported")
        live = 0 if schema[1] == "null" else 1
        return NullableNode(compile_node(schema[live], arrow), live)
    kind = schema if isinstance(schema, str) else schema["type"]
    make = _MAKERS.get(kind)
    if make is None:
        raise Unsupported(f"the Avro type {kind} is not supported")
    return make(schema if isinstance(schema, dict) else {"type": kind}, arrow)


def _make_number(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    bits = 32 if schema["type"] == "int" else 64
    logical = schema.get("logicalType")
    factor = 1000 if pa.types.is_timestamp(arrow) and logical in ("timestamp-millis", "local-timestamp-millis") else 1
    below = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000}.get(arrow, 0)
    return NumberNode(arrow, bits, factor, below)


def _make_binary(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    return DecimalNode(arrow, None) if pa.types.is_decimal(arrow) else BinaryNode(arrow)


def _make_fixed(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    if pa.types.is_decimal(arrow):
        if not 1 <= schema["size"] <= _MAX_DECIMAL_BYTES:
            raise Unsupported(f"a decimal of {schema['size']} bytes is not supported")
        return DecimalNode(arrow, schema["size"])
    return FixedNode(arrow)


def _make_record(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    children = [compile_node(field["type"], arrow.field(index).type) for index, field in enumerate(schema["fields"])]
    return RecordNode(arrow, tuple(children))


def _make_array(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    return SequenceNode(arrow, compile_node(schema["items"], arrow.value_type), arrow.value_field.nullable)


def _make_map(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    entry = pa.struct([arrow.key_field, arrow.item_field])
    return MapNode(arrow, RecordNode(entry, (BinaryNode(pa.string()), compile_node(schema["values"], arrow.item_type))), False)


_MAX_DECIMAL_BYTES: Final = 64
_MAKERS: Final[dict[str, Callable[[dict[str, Any], pa.DataType], Node]]] = {
    "boolean": lambda schema, arrow: BooleanNode(),
    "int": _make_number,
    "long": _make_number,
    "float": lambda schema, arrow: FloatNode(arrow),
    "double": lambda schema, arrow: FloatNode(arrow),
    "bytes": _make_binary,
    "string": _make_binary,
    "enum": lambda schema, arrow: EnumNode(schema["symbols"]),
    "fixed": _make_fixed,
    "record": _make_record,
    "array": _make_array,
    "map": _make_map,
}


# ---------------------------------------------------------------------------------------------------------------------
# Items of arrays and maps

# With fewer rows than this, a pass over them costs more than walking over their items one by one.
_FEW_ROWS: Final = 24


def _decode_items(rows: Rows, item: Node) -> tuple[Longs, pa.Array]:
    """How many items each row has, and the items of all rows, row after row."""
    counts = np.zeros(len(rows), np.int64)
    found = _Found()
    open_rows = np.arange(len(rows))
    while len(open_rows):
        blocks = rows.subset(open_rows)
        sizes = _block_counts(blocks, item.min_bytes)
        rows.advance(open_rows, blocks)
        more = sizes > 0
        open_rows, sizes = open_rows[more], sizes[more]
        if len(open_rows):
            _decode_block(rows, item, open_rows, sizes, counts, found)
            counts[open_rows] += sizes
    return counts, found.in_order(counts, item.arrow)


class _Found:
    """Decoded items in the order in which they were read, each with its row and its number in the row."""

    __slots__ = ("arrays", "numbers", "rows")

    def __init__(self) -> None:
        self.arrays: list[pa.Array] = []
        self.rows: list[Longs] = []
        self.numbers: list[Longs] = []

    def add(self, array: pa.Array, rows: Longs, numbers: Longs) -> None:
        self.arrays.append(array)
        self.rows.append(rows)
        self.numbers.append(numbers)

    def in_order(self, counts: Longs, arrow: pa.DataType) -> pa.Array:
        if not self.arrays:
            return pa.array([], arrow)
        items = pa.concat_arrays(self.arrays) if len(self.arrays) > 1 else self.arrays[0]
        starts = np.cumsum(counts) - counts
        places = starts[np.concatenate(self.rows)] + np.concatenate(self.numbers)
        if len(places) == 1 or bool((places[1:] > places[:-1]).all()):
            return items
        order = np.empty(len(places), np.int64)
        order[places] = np.arange(len(places))
        return items.take(pa.array(order))


def _block_counts(rows: Rows, min_bytes: int) -> Longs:
    """The item count of the next block of each row; 0 closes the sequence."""
    counts = rows.varint()
    # A negative count is followed by the block's size in bytes, which serves readers that skip.
    sized = np.nonzero(counts < 0)[0]
    if len(sized):
        some = rows.subset(sized)
        sizes = some.varint()
        some.fail((sizes < 0) | (sizes > some.end - some.at), "impossible size of a block of items")
        rows.advance(sized, some)
        counts = np.abs(counts)
    rows.fail((counts < 0) | (counts > (rows.end - rows.at) // min_bytes), "more items than a record has room for")
    return counts


def _block_count(cursor: Cursor) -> int:
    count = cursor.zigzag()
    if count < 0:
        count = -count
        cursor.zigzag()
    if count > cursor.remaining:
        raise cursor.corrupt("more items than a record has room for", found=count)
    return count


def _decode_block(rows: Rows, item: Node, index: Longs, sizes: Longs, before: Longs, found: _Found) -> None:
    """One block of items of the rows `index`, which have `sizes` items in it after `before` earlier ones."""
    if item.stride is not None:
        strided = _decode_strided(rows, item, index, sizes, before, found)
        index, sizes = index[~strided], sizes[~strided]
    part = rows.subset(index)
    number = 0
    while len(index) >= _FEW_ROWS:
        found.add(item.decode(part), index, before[index] + number)
        number += 1
        goes_on = sizes > number
        if not bool(goes_on.all()):
            rows.advance(index, part)
            index, sizes = index[goes_on], sizes[goes_on]
            part = rows.subset(index)
    if len(index):
        rows.advance(index, part)
        _decode_walked(rows, item, index, sizes - number, before[index] + number, found)


def _decode_strided(rows: Rows, item: Node, index: Longs, sizes: Longs, before: Longs, found: _Found) -> Bools:
    """Items that all take the same bytes, at once; which rows were like that.

    A nullable item takes fewer when it is null: rows in which the branches do not stand where they should are left.
    """
    stride = item.stride
    assert stride is not None
    fits = sizes <= (rows.end[index] - rows.at[index]) // stride
    owners, numbers = _flat(sizes)
    at = rows.at[index][owners] + numbers * stride
    if isinstance(item, NullableNode):
        at = np.minimum(at, rows.end[index][owners])
        wrong = rows.source.octets[at] != item.live
        fits &= np.bincount(owners, weights=wrong, minlength=len(index)) == 0
    else:
        rows.subset(index).fail(~fits, "a record ends inside an array")
    if not bool(fits.all()):
        kept = fits[owners]
        owners, numbers, at = owners[kept], numbers[kept], at[kept]
    if len(at):
        items = Rows(rows.source, at, rows.end[index][owners])
        found.add(item.decode(items), index[owners], before[index][owners] + numbers)
    rows.at[index[fits]] += sizes[fits] * stride
    return fits


def _decode_walked(rows: Rows, item: Node, index: Longs, sizes: Longs, before: Longs, found: _Found) -> None:
    """The items of a few rows: each is found by walking over the one before, then all are decoded together."""
    starts: list[int] = []
    view = rows.source.octets.data
    for row, size in zip(index.tolist(), sizes.tolist(), strict=True):
        cursor = Cursor(view, int(rows.at[row]), int(rows.end[row]), base=rows.source.base - PAD_BYTES)
        for _ in range(size):
            starts.append(cursor.offset)
            item.walk(cursor)
        rows.at[row] = cursor.offset
    owners, numbers = _flat(sizes)
    items = Rows(rows.source, np.array(starts, np.int64), rows.end[index][owners])
    found.add(item.decode(items), index[owners], before[owners] + numbers)


def _flat(sizes: Longs) -> tuple[Longs, Longs]:
    """For groups of these sizes, one after the other: the group of each member, and its number in the group."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    return owners, np.arange(len(owners)) - starts[owners]


# ---------------------------------------------------------------------------------------------------------------------
# Arrow buffers


def expand(array: pa.Array, valid: Bools) -> pa.Array:
    """The array's values, in order, at the rows that are valid; null at the others.  The array has no nulls of its own."""
    kind = array.type
    count = len(valid)
    if len(array) == count:
        return array
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    nulls = count - len(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        if not array.null_count:
            offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
            before = np.zeros(count + 1, np.int64)
            np.cumsum(valid, out=before[1:])
            data = array.buffers()[2] or pa.py_buffer(b"")
            return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets[before]), data], nulls)
    elif pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) and not array.null_count:
        width = kind.bit_width // 8
        spread = np.zeros(count, f"V{width}" if width > 8 else f"i{width}")
        spread[valid] = np.frombuffer(array.buffers()[1], spread.dtype)[array.offset : array.offset + len(array)]
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(spread)], nulls)
    places = np.cumsum(valid) - 1
    return array.take(pa.array(places, pa.int64(), mask=~valid))


def valid_mask(array: pa.Array) -> Bools:
    """Which values are not null."""
    mask: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def fixed_values(array: pa.Array, dtype: npt.DTypeLike, width: int = 0) -> npt.NDArray[Any]:
    """The values of an array of fixed-width type as numpy sees them; null ones are arbitrary.

    width: give a table of that many items a row instead of a flat array.
    """
    buffer = array.buffers()[1]
    flat = np.frombuffer(buffer if buffer is not None else b"", dtype)
    if width:
        return flat[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)
    return flat[array.offset : array.offset + len(array)]


def binary_parts(array: pa.Array) -> tuple[Longs, Octets]:
    """The offsets (one more than values) and the data of a binary or string array without nulls; offsets begin at 0."""
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets_buffer, data_buffer = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int64 if large else np.int32)[array.offset : array.offset + len(array) + 1]
    offsets = offsets.astype(np.int64)
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)[offsets[0] : offsets[-1]]
    return offsets - offsets[0], data


def varints(numbers: Longs, live: int | None = None, null: int = 0, valid: Bools | None = None) -> pa.Array:
    """A binary array with the zig-zag varint of each number.

    live: a byte to put before each.  valid: where it is False the value is the byte `null` alone.
    """
    lead = 0 if live is None else 1
    bits = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    if valid is not None:
        bits[~valid] = 0
    most = int(bits.max()) if len(bits) else 0
    width = max(1, (most.bit_length() + 6) // 7)
    table = np.empty((len(bits), lead + width), np.uint8)
    if live is not None:
        table[:, 0] = live if valid is None else np.where(valid, np.uint8(live), np.uint8(null))
    if width == 1:
        table[:, lead] = bits
        if valid is None:
            return _fixed(table)
        return _ragged(table, lead + valid.astype(np.int64))
    sizes = np.ones(len(bits), np.int64)
    for place in range(1, width):
        sizes += bits >= np.uint64(1 << (7 * place))
    for place in range(width):
        group = (bits >> np.uint64(7 * place)).astype(np.uint8)
        if place < width - 1:
            group |= np.uint8(0x80)
        table[:, lead + place] = group
    table[np.arange(len(bits)), lead + sizes - 1] &= 0x7F
    if valid is not None:
        sizes[~valid] = 0
    return _ragged(table, lead + sizes)


def join(parts: Sequence[pa.Array], count: int) -> pa.Array:
    """The parts of each row, one after the other, as a binary array; a null part adds nothing."""
    if not parts:
        return _binary(np.zeros(count + 1, np.int64), np.zeros(0, np.uint8))
    if len(parts) == 1 and not parts[0].null_count:
        return parts[0]
    try:
        return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise InvalidRequest(f"rows of more than 2 GiB in one piece: {error}") from error


def part_sizes(parts: Sequence[pa.Array], count: int) -> Longs:
    """How many bytes each row has in all parts together."""
    total = np.zeros(count, np.int64)
    for part in parts:
        sizes = np.diff(np.frombuffer(part.buffers()[1], np.int32)[part.offset : part.offset + count + 1])
        if part.null_count:
            sizes = np.where(valid_mask(part), sizes, 0)
        total += sizes
    return total


def big_endian_ints(numbers: Longs) -> pa.Array:
    """A binary array with each number as a 4-byte int."""
    return _fixed(numbers.astype(">i4").view(np.uint8).reshape(-1, 4))


def octet_column(octets: Octets) -> pa.Array:
    """A binary array with one byte in each value."""
    return _fixed(octets.reshape(-1, 1))


def _fixed(table: Octets) -> pa.Array:
    """A binary array with each row of the table."""
    count, width = table.shape
    return _binary(np.arange(count + 1, dtype=np.int64) * width, np.ascontiguousarray(table))


def _ragged(table: Octets, sizes: Longs) -> pa.Array:
    """A binary array with the first `sizes` bytes of each row of the table."""
    count, width = table.shape
    starts = np.arange(count, dtype=np.int64) * width
    return _gather(table, starts, starts + sizes)


def _gather(octets: Octets, starts: Longs, ends: Longs) -> pa.Array:
    """A binary array with the bytes of each range; ranges do not overlap and rise."""
    offsets = np.empty(2 * len(starts) + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = offsets[-2] if len(starts) else 0
    return _every_other(offsets, pa.py_buffer(octets))


def _every_other(offsets: npt.NDArray[np.int32], data: pa.Buffer) -> pa.Array:
    """The values at even places of the binary array with these offsets, whose odd places are gaps."""
    count = len(offsets) // 2
    values = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), data], 0)
    return values.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def _binary(offsets: Longs, data: Octets) -> pa.Array:
    if int(offsets[-1]) > 2**31 - 1:
        raise InvalidRequest("rows of more than 2 GiB in one piece")
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)], 0
    )


def _lengths(array: pa.Array) -> Longs:
    """The byte length of each string; of nulls, any number."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets).astype(np.int64)


def _decode_decimals(rows: Rows, start: Longs, sizes: Longs) -> npt.NDArray[np.int64]:
    """Two's complement numbers of `sizes` bytes as the two little-endian halves of 16 bytes."""
    words = rows.source.words
    end = start + sizes
    negative = rows.source.octets[start] >= 0x80
    fill = np.where(negative, np.uint64(2**64 - 1), np.uint64(0))
    halves = np.empty((len(sizes), 2), np.uint64)
    for half in (0, 1):
        bits = words[end - 8 * (half + 1)].byteswap()
        inside = np.clip(sizes - 8 * half, 0, 8)
        # The bytes before the number belong to something else: the sign takes their place.  A shift by 64 is not defined.
        shift = (np.minimum(8 * inside, 63)).astype(np.uint64)
        outside = np.where(inside == 8, np.uint64(0), np.uint64(2**64 - 1) << shift)
        halves[:, half] = (bits & ~outside) | (fill & outside)
    wide = np.nonzero(sizes > 16)[0]
    if len(wide):
        # Longer numbers are legal when what goes beyond 16 bytes only repeats the sign.
        bad = np.zeros(len(sizes), np.bool_)
        sign = np.where(negative, np.uint8(0xFF), np.uint8(0))
        owners, numbers = _flat(sizes[wide] - 16)
        wrong = rows.source.octets[start[wide][owners] + numbers] != sign[wide][owners]
        bad[wide[owners[wrong]]] = True
        bad |= (halves[:, 1].view(np.int64) < 0) != negative
        rows.fail(bad, "a decimal needs more than 128 bits")
    return halves.view(np.int64)


def _select(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    wanted = frozenset(columns)
    return pa.schema([field for field in schema if field.name in wanted], metadata=schema.metadata)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
