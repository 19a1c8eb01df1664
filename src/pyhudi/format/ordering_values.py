"""Values that carry their type with them: the wrapper records of deletes and of column statistics.

Source: storage format, "Wrapped Avro values".  The field is an Avro union of null and records with one field `value`:

    branch  record                  Avro value        Arrow child
    0       null                                      null
    1       BooleanWrapper          boolean           bool
    2       IntWrapper              int               int32
    3       LongWrapper             long              int64
    4       FloatWrapper            float             float32
    5       DoubleWrapper           double            float64
    6       BytesWrapper            bytes             binary
    7       StringWrapper           string            string
    8       DateWrapper             int, days         date32
    9       DecimalWrapper          bytes, (30, 15)   decimal128(30, 15)
    10      TimeMicrosWrapper       long              time64[us]
    11      TimestampMicrosWrapper  long              timestamp[us, UTC]
    12      LocalDateWrapper        int, days         date32; in column statistics alone

A column of them is the Arrow dense union WRAPPED, whose type codes are the branches.

In a delete, IntWrapper(0) stands for "no ordering value": the delete applies to whatever it meets.  In a table that is
ordered by an int column, the value 0 means the same.  What this does not do: compare (records.ordering).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro_columns import (
    BinaryNode,
    BooleanNode,
    DecimalNode,
    FloatNode,
    Node,
    NumberNode,
    Rows,
    expand,
    octet_column,
    valid_mask,
)
from pyhudi.format.coding import Cursor


class Wrapper(IntEnum):
    """The branches of the union."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    DATE = 8
    DECIMAL = 9
    TIME_MICROS = 10
    TIMESTAMP_MICROS = 11
    LOCAL_DATE = 12


DELETE_BRANCHES: Final = 12
"""How many branches the union of a delete has: LocalDateWrapper came later, and to column statistics alone."""

STATISTICS_BRANCHES: Final = 13

DECIMAL: Final = pa.decimal128(30, 15)
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_CHILDREN: Final[tuple[pa.DataType, ...]] = (
    pa.null(),
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.binary(),
    pa.string(),
    pa.date32(),
    DECIMAL,
    pa.time64("us"),
    _TIMESTAMP,
    pa.date32(),
)
_NAMES: Final = tuple(wrapper.name.lower() for wrapper in Wrapper)

WRAPPED: Final = pa.dense_union(
    [pa.field(name, kind) for name, kind in zip(_NAMES, _CHILDREN, strict=True)], type_codes=list(range(len(_NAMES)))
)
"""The Arrow type of a column of wrapped values; all 13 children are there, also where a union has fewer branches."""


def wrap(values: pa.Array, wrapper: Wrapper) -> pa.UnionArray:
    """A WRAPPED column with every value on one branch, and nulls on branch NULL.

    values: the branch's Arrow type.  Raises InvalidRequest for another type.
    """
    kind = _CHILDREN[wrapper]
    if values.type != kind:
        raise InvalidRequest(f"{wrapper.name} wraps {kind}, not {values.type}")
    branches = np.where(valid_mask(values), np.int8(wrapper), np.int8(Wrapper.NULL))
    return _union(branches, {wrapper: values.drop_null(), Wrapper.NULL: pa.nulls(values.null_count)})


def no_ordering(count: int) -> pa.UnionArray:
    """`count` times IntWrapper(0), for deletes that apply to whatever they meet."""
    return wrap(pa.array(np.zeros(count, np.int32)), Wrapper.INT)


def mixed_values(branches: npt.NDArray[np.int8], values: Sequence[Any]) -> pa.UnionArray:
    """A WRAPPED column of Python values, each on its own branch; for small columns."""
    columns: dict[int, pa.Array] = {}
    for branch in np.unique(branches).tolist():
        columns[branch] = pa.array([values[row] for row in np.nonzero(branches == branch)[0].tolist()], _CHILDREN[branch])
    return _union(branches, columns)


def wrap_ordering(values: pa.Array) -> pa.UnionArray:
    """The ordering values of deletes as real Hudi writes and reads them, by the type of the ordering column.

    int types and dates become IntWrapper (a date in days, the only form of it that real Hudi can compare), long and
    timestamp LongWrapper (microseconds), float, double, string and boolean their own.  A null becomes IntWrapper(0).
    Raises Unsupported for decimals, which real Hudi cannot read back, and for types that have no order.
    """
    types = pa.types
    kind = values.type
    if types.is_int8(kind) or types.is_int16(kind) or types.is_int32(kind) or types.is_date32(kind):
        wrapper, stored = Wrapper.INT, values.cast(pa.int32())
    elif types.is_int64(kind):
        wrapper, stored = Wrapper.LONG, values
    elif types.is_timestamp(kind):
        wrapper, stored = Wrapper.LONG, values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif types.is_float32(kind):
        wrapper, stored = Wrapper.FLOAT, values
    elif types.is_float64(kind):
        wrapper, stored = Wrapper.DOUBLE, values
    elif types.is_string(kind) or types.is_large_string(kind):
        wrapper, stored = Wrapper.STRING, values.cast(pa.string())
    elif types.is_boolean(kind):
        wrapper, stored = Wrapper.BOOLEAN, values
    else:
        raise Unsupported(
            f"a delete cannot carry an ordering value of type {kind}: write it as a row with _hoodie_is_deleted set, "
            "or order the table by another column"
        )
    if wrapper is Wrapper.INT or not stored.null_count:
        return wrap(stored.fill_null(0) if stored.null_count else stored, wrapper)
    branches = np.where(valid_mask(stored), np.int8(wrapper), np.int8(Wrapper.INT))
    zeros = pa.array(np.zeros(stored.null_count, np.int32))
    return _union(branches, {wrapper: stored.drop_null(), Wrapper.INT: zeros})


def unwrap_ordering(wrapped: pa.UnionArray, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """What the deletes of a table ordered by a column of type `kind` carry: (values, absent), in the order of `wrapped`.

    values: of type `kind`, null where there is none; absent: bool, True where the delete applies to whatever it meets,
    which IntWrapper(0) and null say.  Raises Unsupported when a value is of a type that cannot stand in such a column.
    """
    branches, offsets = _codes(wrapped), _offsets(wrapped)
    absent = branches == Wrapper.NULL
    ints = branches == Wrapper.INT
    if ints.any():
        held = np.asarray(wrapped.field(int(Wrapper.INT)).take(pa.array(offsets[ints])))
        absent[np.nonzero(ints)[0][held == 0]] = True
    pieces: list[pa.Array] = []
    rows: list[npt.NDArray[np.int64]] = []
    for branch in np.unique(branches[~absent]):
        index = np.nonzero((branches == branch) & ~absent)[0]
        pieces.append(_stored_as(wrapped.field(int(branch)).take(pa.array(offsets[index])), Wrapper(int(branch)), kind))
        rows.append(index)
    if not pieces:
        return pa.nulls(len(wrapped), kind), pa.array(absent)
    places = np.zeros(len(wrapped), np.int64)
    order = np.concatenate(rows)
    places[order] = np.arange(len(order))
    return pa.concat_arrays(pieces).take(pa.array(places, mask=absent)), pa.array(absent)


class WrappedNode(Node):
    """The union as a node of the columnar Avro codec.  branches: how many there are."""

    __slots__ = ("branches",)

    def __init__(self, branches: int) -> None:
        super().__init__(WRAPPED, 1)
        self.branches = branches

    def decode(self, rows: Rows) -> pa.Array:
        codes = rows.octet()
        rows.fail((codes >= 2 * self.branches) | (codes & 1 != 0), "a union has no such branch")
        branches = (codes >> 1).astype(np.int8)
        columns: dict[int, pa.Array] = {}
        for branch in np.unique(branches).tolist():
            index = np.nonzero(branches == branch)[0]
            node = _NODES[branch]
            if node is None:
                columns[branch] = pa.nulls(len(index))
                continue
            some = rows.subset(index)
            columns[branch] = node.decode(some)
            rows.advance(index, some)
        return _union(branches, columns)

    def walk(self, cursor: Cursor) -> None:
        branch = cursor.zigzag()
        if not 0 <= branch < self.branches:
            raise cursor.corrupt("a union has no such branch", found=branch)
        node = _NODES[branch]
        if node is not None:
            node.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        branches, offsets = _codes(array), _offsets(array)
        used = np.unique(branches)
        if len(used) and not 0 <= used[0] <= used[-1] < self.branches:
            raise InvalidRequest(f"wrapped values on branch {used[-1]}, the union has {self.branches}")
        parts = [octet_column((branches * 2).astype(np.uint8))]
        for branch in used.tolist():
            node = _NODES[branch]
            if node is None:
                continue
            here = branches == branch
            values = array.field(branch).take(pa.array(offsets[here]))
            if values.null_count:
                raise InvalidRequest(f"a {Wrapper(branch).name} wrapper without a value")
            parts += (expand(part, here) for part in node.encode(values))
        return parts


_NODES: Final[tuple[Node | None, ...]] = (
    None,
    BooleanNode(),
    NumberNode(pa.int32(), 32),
    NumberNode(pa.int64(), 64),
    FloatNode(pa.float32()),
    FloatNode(pa.float64()),
    BinaryNode(pa.binary()),
    BinaryNode(pa.string()),
    NumberNode(pa.date32(), 32),
    DecimalNode(DECIMAL, None),
    NumberNode(pa.time64("us"), 64, below=86_400_000_000),
    NumberNode(_TIMESTAMP, 64),
    NumberNode(pa.date32(), 32),
)


def _union(branches: npt.NDArray[np.int8], columns: dict[int, pa.Array]) -> pa.UnionArray:
    """The column whose row i is on branch `branches[i]`; columns: the values of each branch, in the order of their rows."""
    offsets = np.zeros(len(branches), np.int32)
    for branch, values in columns.items():
        offsets[branches == branch] = np.arange(len(values), dtype=np.int32)
    children = [columns.get(branch, pa.array([], kind)) for branch, kind in enumerate(_CHILDREN)]
    return pa.UnionArray.from_dense(
        pa.array(branches, pa.int8()), pa.array(offsets), children, list(_NAMES), list(range(len(_NAMES)))
    )


def _codes(wrapped: pa.UnionArray) -> npt.NDArray[np.int8]:
    if not len(wrapped):
        return np.zeros(0, np.int8)
    return np.frombuffer(wrapped.buffers()[1], np.int8)[wrapped.offset : wrapped.offset + len(wrapped)]


def _offsets(wrapped: pa.UnionArray) -> npt.NDArray[np.int32]:
    if not len(wrapped):
        return np.zeros(0, np.int32)
    # The property of that name forgets that the array is a slice.
    return np.frombuffer(wrapped.buffers()[2], np.int32)[wrapped.offset : wrapped.offset + len(wrapped)]


def _stored_as(values: pa.Array, wrapper: Wrapper, kind: pa.DataType) -> pa.Array:
    """Values of one branch as values of the ordering column."""
    types = pa.types
    fits = {
        Wrapper.BOOLEAN: types.is_boolean(kind),
        Wrapper.INT: types.is_integer(kind) or types.is_date32(kind),
        Wrapper.LONG: types.is_int64(kind) or types.is_timestamp(kind) or types.is_time64(kind),
        Wrapper.FLOAT: types.is_floating(kind),
        Wrapper.DOUBLE: types.is_float64(kind),
        Wrapper.BYTES: types.is_binary(kind),
        Wrapper.STRING: types.is_string(kind) or types.is_large_string(kind),
        Wrapper.DATE: types.is_date32(kind),
        Wrapper.DECIMAL: types.is_decimal(kind),
        Wrapper.TIME_MICROS: types.is_time64(kind),
        Wrapper.TIMESTAMP_MICROS: types.is_timestamp(kind),
        Wrapper.LOCAL_DATE: types.is_date32(kind),
    }
    if not fits[wrapper]:
        raise Unsupported(f"a delete carries a {wrapper.name} value, the table is ordered by a column of type {kind}")
    try:
        return pc.cast(values, kind)
    except pa.ArrowInvalid as error:
        raise CorruptData(f"the ordering value of a delete does not fit {kind}: {error}") from error
