"""Schema nodes of the columnar codec, one class per type except arrays and maps: decode, skip and encode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.avro_columns.buffers import (
    Bools,
    Longs,
    expand,
    fixed_column,
    fixed_values,
    flat,
    gather_column,
    octet_column,
    text_lengths,
    valid_mask,
    varints,
)
from pyhudi.format.avro_columns.rows import RowCursors
from pyhudi.format.byte_cursor import ByteCursor
from pyhudi.format.hudi_types import bytes_to_vectors, vector_size_bytes, vectors_to_bytes


class Node(ABC):
    """A type of the schema.

    Attributes:
        arrow: Its Arrow type.
        min_bytes: Size of its smallest value.
        stride: Size of every value, if all are equal (a nullable node: of every value that is not null).
    """

    __slots__ = ("arrow", "min_bytes", "stride")

    def __init__(self, arrow: pa.DataType, min_bytes: int, stride: int | None = None) -> None:
        self.arrow = arrow
        self.min_bytes = min_bytes
        self.stride = stride

    @abstractmethod
    def decode(self, rows: RowCursors) -> pa.Array:
        """Read the value of each row."""

    @abstractmethod
    def walk(self, cursor: ByteCursor) -> None:
        """Skip one value."""

    @abstractmethod
    def encode(self, array: pa.Array) -> list[pa.Array]:
        """Return binary arrays whose concatenation is the values; `array` has the node's type and no nulls."""

    def skip(self, rows: RowCursors) -> None:
        """Skip the value of each row."""
        self.decode(rows)

    def encode_nullable(self, array: pa.Array, value_branch: int, null: int) -> list[pa.Array]:
        """Encode as `encode`, with the byte `value_branch` before each value; a null is only the byte `null`."""
        if not array.null_count:
            return [octet_column(np.full(len(array), value_branch, np.uint8)), *self.encode(array)]
        valid = valid_mask(array)
        codes = np.where(valid, np.uint8(value_branch), np.uint8(null))
        return [octet_column(codes), *(expand(part, valid) for part in self.encode(array.drop_null()))]


class BooleanNode(Node):
    """boolean."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(pa.bool_(), 1, 1)

    def decode(self, rows: RowCursors) -> pa.Array:
        octets = rows.octet()
        rows.fail(octets > 1, "a boolean is neither 0 nor 1")
        return pa.Array.from_buffers(pa.bool_(), len(octets), [None, pa.py_buffer(np.packbits(octets, bitorder="little"))], 0)

    def walk(self, cursor: ByteCursor) -> None:
        cursor.skip(1)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [octet_column(array.cast(pa.uint8()).to_numpy(zero_copy_only=False))]


class NumberNode(Node):
    """int, long and types stored as one.

    Attributes:
        factor: Multiplier of stored numbers: Arrow uses microseconds where the schema may use milliseconds.
        below: Upper bound of values, which are then not negative, for the times of a day; 0 means none.
    """

    __slots__ = ("below", "bits", "factor")

    def __init__(self, arrow: pa.DataType, bits: int, factor: int = 1, below: int = 0) -> None:
        super().__init__(arrow, 1)
        self.bits = bits
        self.factor = factor
        self.below = below

    def decode(self, rows: RowCursors) -> pa.Array:
        values = rows.varint()
        if self.bits == 32:
            rows.fail((values < -(2**31)) | (values >= 2**31), "an int exceeds 32 bits")
        if self.below:
            rows.fail((values < 0) | (values >= self.below), "a time of day is out of range")
        if self.factor != 1:
            limit = (2**63 - 1) // self.factor
            rows.fail((values > limit) | (values < -limit), "a timestamp exceeds the range of microseconds")
            values = values * self.factor
        stored = values.astype(np.int32) if self.arrow.bit_width == 32 else values
        return pa.Array.from_buffers(self.arrow, len(stored), [None, pa.py_buffer(stored)], 0)

    def skip(self, rows: RowCursors) -> None:
        rows.varint()

    def walk(self, cursor: ByteCursor) -> None:
        cursor.zigzag()

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [varints(self._numbers(array))]

    def encode_nullable(self, array: pa.Array, value_branch: int, null: int) -> list[pa.Array]:
        valid = valid_mask(array) if array.null_count else None
        return [varints(self._numbers(array), value_branch, null, valid)]

    def _numbers(self, array: pa.Array) -> Longs:
        width = np.int32 if self.arrow.bit_width == 32 else np.int64
        numbers = fixed_values(array, width).astype(np.int64, copy=False)
        return numbers // self.factor if self.factor != 1 else numbers


class SizedNode(Node):
    """A type whose values have the same fixed size in Arrow and in Avro."""

    __slots__ = ()

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__(arrow, arrow.bit_width // 8, arrow.bit_width // 8)

    def skip(self, rows: RowCursors) -> None:
        rows.skip(self.min_bytes)

    def walk(self, cursor: ByteCursor) -> None:
        cursor.skip(self.min_bytes)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [fixed_column(fixed_values(array, np.uint8, self.min_bytes))]


class FloatNode(SizedNode):
    """float and double."""

    __slots__ = ()

    def decode(self, rows: RowCursors) -> pa.Array:
        words = rows.read_word(self.min_bytes)
        stored: npt.NDArray[Any] = words if self.min_bytes == 8 else words.astype(np.uint32)
        return pa.Array.from_buffers(self.arrow, len(stored), [None, pa.py_buffer(stored)], 0)


class BinaryNode(Node):
    """string and bytes; strings must be UTF-8."""

    __slots__ = ()

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__(arrow, 1)

    def decode(self, rows: RowCursors) -> pa.Array:
        values = rows.ranges(rows.sizes())
        if self.arrow == values.type:
            return values
        try:
            return values.cast(self.arrow)
        except pa.ArrowInvalid as error:
            raise CorruptData("a string is not UTF-8", offset=rows.source.base) from error

    def skip(self, rows: RowCursors) -> None:
        rows.skip(rows.sizes())

    def walk(self, cursor: ByteCursor) -> None:
        cursor.skip(cursor.zigzag())

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [varints(text_lengths(array)), array.view(pa.binary())]

    def encode_nullable(self, array: pa.Array, value_branch: int, null: int) -> list[pa.Array]:
        valid = valid_mask(array) if array.null_count else None
        return [varints(text_lengths(array), value_branch, null, valid), array.view(pa.binary())]


class EnumNode(Node):
    """An enum, which is a string in Arrow."""

    __slots__ = ("symbols",)

    def __init__(self, symbols: Sequence[str]) -> None:
        super().__init__(pa.string(), 1)
        self.symbols = pa.array(symbols, pa.string())

    def decode(self, rows: RowCursors) -> pa.Array:
        numbers = rows.varint()
        rows.fail((numbers < 0) | (numbers >= len(self.symbols)), "invalid symbol of an enum")
        return self.symbols.take(pa.array(numbers))

    def walk(self, cursor: ByteCursor) -> None:
        cursor.zigzag()

    def encode(self, array: pa.Array) -> list[pa.Array]:
        numbers = pc.index_in(array, self.symbols)
        if numbers.null_count:
            wrong = array.filter(numbers.is_null())[0].as_py()
            raise InvalidRequest(f"{wrong!r} is not a symbol of the enum {self.symbols.to_pylist()}")
        return [varints(numbers.to_numpy().astype(np.int64))]


class FixedNode(SizedNode):
    """fixed without a logical type."""

    __slots__ = ()

    def decode(self, rows: RowCursors) -> pa.Array:
        values = rows.ranges(np.full(len(rows), self.min_bytes, np.int64))
        return pa.Array.from_buffers(self.arrow, len(rows), [None, values.buffers()[2] or pa.py_buffer(b"")], 0)


class VectorNode(Node):
    """A vector: fixed with its elements."""

    __slots__ = ("_fixed",)

    def __init__(self, arrow: pa.DataType) -> None:
        size = vector_size_bytes(arrow)
        super().__init__(arrow, size, size)
        self._fixed = FixedNode(pa.binary(size))

    def decode(self, rows: RowCursors) -> pa.Array:
        return bytes_to_vectors(self._fixed.decode(rows), self.arrow)

    def skip(self, rows: RowCursors) -> None:
        self._fixed.skip(rows)

    def walk(self, cursor: ByteCursor) -> None:
        self._fixed.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return self._fixed.encode(vectors_to_bytes(array))


class DecimalNode(Node):
    """A decimal, big-endian two's complement. size: bytes of a fixed; None for bytes, which have a length prefix."""

    __slots__ = ("size",)

    def __init__(self, arrow: pa.DataType, size: int | None) -> None:
        super().__init__(arrow, 1 if size is None else size, size)
        self.size = size

    def decode(self, rows: RowCursors) -> pa.Array:
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

    def walk(self, cursor: ByteCursor) -> None:
        cursor.skip(cursor.zigzag() if self.size is None else self.size)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        octets = fixed_values(array, np.uint8, 16)[:, ::-1]
        sign = np.where(octets[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
        if self.size is None:
            # A leading byte is redundant if it repeats the sign bit of the next one.
            needless = (octets[:, :-1] == sign) & ((octets[:, 1:] >= 0x80) == (sign > 0))
            skipped = np.minimum.accumulate(needless, axis=1).sum(axis=1)
            flat = np.ascontiguousarray(octets)
            starts = np.arange(len(array), dtype=np.int64) * 16
            return [varints(16 - skipped), gather_column(flat, starts + skipped, starts + 16)]
        if self.size >= 16:
            wide = np.concatenate([np.repeat(sign, self.size - 16, axis=1), octets], axis=1)
            return [fixed_column(wide)]
        cut = 16 - self.size
        fits = (octets[:, :cut] == sign).all(axis=1) & ((octets[:, cut] >= 0x80) == (sign[:, 0] > 0))
        if not bool(fits.all()):
            raise InvalidRequest(f"a decimal does not fit the {self.size} bytes of its type")
        return [fixed_column(octets[:, cut:])]


class NullableNode(Node):
    """A union of null and one type; the two branches are encoded as one byte each."""

    __slots__ = ("inner", "live", "null")

    def __init__(self, inner: Node, value_branch: int) -> None:
        super().__init__(inner.arrow, 1, None if inner.stride is None else inner.stride + 1)
        self.inner = inner
        self.live = 2 * value_branch
        self.null = 2 - 2 * value_branch

    def decode(self, rows: RowCursors) -> pa.Array:
        valid, index, non_null = self._branches(rows)
        if index is None:
            return self.inner.decode(rows)
        if not len(index):
            return pa.nulls(len(rows), self.arrow)
        array = self.inner.decode(non_null)
        rows.advance(index, non_null)
        return expand(array, valid)

    def skip(self, rows: RowCursors) -> None:
        _, index, non_null = self._branches(rows)
        if len(non_null):
            self.inner.skip(non_null)
        if index is not None:
            rows.advance(index, non_null)

    def walk(self, cursor: ByteCursor) -> None:
        branch = cursor.zigzag()
        if branch not in (0, 1):
            raise cursor.corrupt("invalid branch of a union", found=branch)
        if branch * 2 == self.live:
            self.inner.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return self.inner.encode_nullable(array, self.live, self.null)

    def _branches(self, rows: RowCursors) -> tuple[Bools, npt.NDArray[np.int64] | None, RowCursors]:
        """Return which rows are not null, their numbers (None if all are), and their cursors."""
        codes = rows.octet()
        rows.fail((codes != 0) & (codes != 2), "invalid branch of a union")
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

    def decode(self, rows: RowCursors) -> pa.Array:
        count = len(rows)
        arrays = self.decode_columns(rows, None)
        if not arrays:
            return pa.Array.from_buffers(self.arrow, count, [None], 0, children=[])
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow.fields))

    def decode_columns(self, rows: RowCursors, column_names: frozenset[str] | None) -> list[pa.Array]:
        """Decode the fields of every row, or the requested ones; the others are skipped."""
        arrays = []
        for name, child in zip(self.names, self.children, strict=True):
            if column_names is None or name in column_names:
                arrays.append(child.decode(rows))
            else:
                child.skip(rows)
        return arrays

    def skip(self, rows: RowCursors) -> None:
        self.decode_columns(rows, frozenset())

    def walk(self, cursor: ByteCursor) -> None:
        for child in self.children:
            child.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        # `field` ignores the offset of a sliced struct, `flatten` does not.
        return self.encode_columns(array.flatten(), len(array))

    def encode_columns(self, arrays: Sequence[pa.Array], count: int) -> list[pa.Array]:
        """Return the parts of all fields."""
        parts: list[pa.Array] = []
        for field, child, array in zip(self.arrow.fields, self.children, arrays, strict=True):
            if array.type != child.arrow:
                raise InvalidRequest(f"column {field.name!r} has type {array.type}, but its schema has {child.arrow}")
            if array.null_count and not field.nullable:
                raise InvalidRequest(f"column {field.name!r} is not nullable, but {array.null_count} of {count} rows are null")
            parts += child.encode(array)
        return parts


class ReorderedNode(Node):
    """A record whose fields have another order in Arrow."""

    __slots__ = ("inner",)

    def __init__(self, arrow: pa.DataType, inner: RecordNode) -> None:
        super().__init__(arrow, inner.min_bytes, inner.stride)
        self.inner = inner

    def decode(self, rows: RowCursors) -> pa.Array:
        return _reordered(self.inner.decode(rows), self.arrow)

    def skip(self, rows: RowCursors) -> None:
        self.inner.skip(rows)

    def walk(self, cursor: ByteCursor) -> None:
        self.inner.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return self.inner.encode(_reordered(array, self.inner.arrow))


def _reordered(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return a struct without nulls with its fields in the order of a type."""
    children = dict(zip((field.name for field in array.type.fields), array.flatten(), strict=True))
    return pa.StructArray.from_arrays([children[field.name] for field in type_.fields], fields=list(type_.fields))


def _decode_decimals(rows: RowCursors, start: Longs, sizes: Longs) -> npt.NDArray[np.int64]:
    """Decode two's complement numbers of `sizes` bytes as the two little-endian halves of 16 bytes."""
    words = rows.source.words
    end = start + sizes
    negative = rows.source.octets[start] >= 0x80
    fill = np.where(negative, np.uint64(2**64 - 1), np.uint64(0))
    halves = np.empty((len(sizes), 2), np.uint64)
    for half in (0, 1):
        bits = words[end - 8 * (half + 1)].byteswap()
        inside = np.clip(sizes - 8 * half, 0, 8)
        # The bytes before the number belong to other data: the sign replaces them. A shift by 64 is undefined.
        shift = (np.minimum(8 * inside, 63)).astype(np.uint64)
        outside = np.where(inside == 8, np.uint64(0), np.uint64(2**64 - 1) << shift)
        halves[:, half] = (bits & ~outside) | (fill & outside)
    wide = np.nonzero(sizes > 16)[0]
    if len(wide):
        # Longer numbers are valid if the bytes beyond 16 only repeat the sign.
        bad = np.zeros(len(sizes), np.bool_)
        sign = np.where(negative, np.uint8(0xFF), np.uint8(0))
        owners, numbers = flat(sizes[wide] - 16)
        wrong = rows.source.octets[start[wide][owners] + numbers] != sign[wide][owners]
        bad[wide[owners[wrong]]] = True
        bad |= (halves[:, 1].view(np.int64) < 0) != negative
        rows.fail(bad, "a decimal exceeds 128 bits")
    return halves.view(np.int64)
