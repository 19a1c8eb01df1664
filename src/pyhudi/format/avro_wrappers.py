"""Avro wrapper records (IntWrapper, StringWrapper, ...): typed values in delete records and in column statistics.

The field is an Avro union of null and records with one field `value`:

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
    12      LocalDateWrapper        int, days         date32; in column statistics, and in tuples
    13      ArrayWrapper            array of these    list of the union of the 13 above: a tuple of values

An Arrow column of them is the dense union WRAPPED, whose type codes are the numbers above. Branch 12 differs by
context: it is ArrayWrapper in the union of a delete, and LocalDateWrapper in column statistics and tuple items.
`WrappedNode.branches` therefore lists the Wrapper at each branch of the stored union.

In a delete, IntWrapper(0) means "no ordering value": the delete applies to every record of its key. In a table ordered
by an int column, the value 0 means the same; a tuple never does. Not done here: comparison of ordering values
(`records.ordering`).

Specification: docs/formats/log-file.md, "Ordering values".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
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
    RowCursors,
    SequenceNode,
    expand,
    octet_column,
    valid_mask,
)
from pyhudi.format.byte_cursor import ByteCursor


class Wrapper(IntEnum):
    """Branches of the union."""

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
    ARRAY = 13


STATISTICS_BRANCHES: Final = tuple(Wrapper)[: Wrapper.ARRAY]
"""Union of a bound of column statistics, and of a tuple item."""

DELETE_BRANCHES: Final = (*STATISTICS_BRANCHES[: Wrapper.LOCAL_DATE], Wrapper.ARRAY)
"""Union of a delete's ordering value. Before release 1.1 it had no last branch (ArrayWrapper)."""

DECIMAL: Final = pa.decimal128(30, 15)
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_SCALARS: Final[tuple[pa.DataType, ...]] = (
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

_ITEM: Final = pa.dense_union(
    [pa.field(name, kind) for name, kind in zip(_NAMES, _SCALARS, strict=False)], type_codes=list(range(len(_SCALARS)))
)
_CHILDREN: Final = (*_SCALARS, pa.list_(_ITEM))

WRAPPED: Final = pa.dense_union(
    [pa.field(name, kind) for name, kind in zip(_NAMES, _CHILDREN, strict=True)], type_codes=list(range(len(_NAMES)))
)
"""Arrow type of a column of wrapped values; it has all 14 children even where the stored union has fewer branches."""


def wrap_ordering_values(values: pa.Array, wrapper: Wrapper) -> pa.UnionArray:
    """Return a WRAPPED column with every value on one branch, and nulls on branch NULL.

    Args:
        values: Values of the branch's Arrow type.
        wrapper: The branch.

    Raises:
        InvalidRequest: `values` has another type.
    """
    kind = _CHILDREN[wrapper]
    if values.type != kind:
        raise InvalidRequest(f"{wrapper.name} wraps {kind}, not {values.type}")
    branches = np.where(valid_mask(values), np.int8(wrapper), np.int8(Wrapper.NULL))
    return _union(branches, {wrapper: values.drop_null(), Wrapper.NULL: pa.nulls(values.null_count)})


def no_ordering(count: int) -> pa.UnionArray:
    """Return `count` times IntWrapper(0), for deletes that apply to every record of their key."""
    return wrap_ordering_values(pa.array(np.zeros(count, np.int32)), Wrapper.INT)


def mixed_values(branches: npt.NDArray[np.int8], values: Sequence[Any]) -> pa.UnionArray:
    """Return a WRAPPED column of Python values, each on its own branch; intended for small columns."""
    columns: dict[int, pa.Array] = {}
    for branch in np.unique(branches).tolist():
        columns[branch] = pa.array([values[row] for row in np.nonzero(branches == branch)[0].tolist()], _CHILDREN[branch])
    return _union(branches, columns)


def wrap_ordering(values: pa.Array, *, decimals: bool = False) -> pa.UnionArray:
    """Wrap the ordering values of deletes as Hudi writes and reads them.

    For several ordering fields, see `wrap_tuples`. Int types and dates become IntWrapper (a date in days, the only form
    of a date that Hudi can compare). Long and timestamp become LongWrapper (microseconds). Float, double, string and
    boolean become their own wrappers. A null becomes IntWrapper(0).

    Args:
        values: The ordering column.
        decimals: Wrap decimals as DecimalWrapper, which Hudi reads since release 1.1.

    Raises:
        Unsupported: A decimal without `decimals`, or a type without an order.
    """
    if pa.types.is_struct(values.type):
        return wrap_tuples(values)
    if decimals and pa.types.is_decimal(values.type):
        return _or_zero(Wrapper.DECIMAL, values.cast(DECIMAL).drop_null(), valid_mask(values))
    wrapper, stored = _wrapper_of(values)
    if wrapper is Wrapper.INT or not stored.null_count:
        return wrap_ordering_values(stored.fill_null(0) if stored.null_count else stored, wrapper)
    return _or_zero(wrapper, stored.drop_null(), valid_mask(stored))


def _or_zero(wrapper: Wrapper, values: pa.Array, is_present: npt.NDArray[np.bool_]) -> pa.UnionArray:
    """Return a WRAPPED column of `values` where `is_present`, and IntWrapper(0) elsewhere."""
    branches = np.where(is_present, np.int8(wrapper), np.int8(Wrapper.INT))
    return _union(branches, {wrapper: values, Wrapper.INT: pa.array(np.zeros(int((~is_present).sum()), np.int32))})


def _wrapper_of(values: pa.Array) -> tuple[Wrapper, pa.Array]:
    """Return the wrapper for an ordering column, and its values in the wrapper's type."""
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
            f"a delete cannot store an ordering value of type {kind}: write it as a row with _hoodie_is_deleted set, "
            "or order the table by another column"
        )
    return wrapper, stored


def wrap_tuples(values: pa.StructArray) -> pa.UnionArray:
    """Wrap the ordering values of deletes as ArrayWrapper, for a table with several ordering fields.

    Args:
        values: One struct per delete. A null item becomes IntWrapper(0), as in Hudi 1.1. A null struct becomes
            IntWrapper(0) in place of the tuple.

    Raises:
        Unsupported: A type without an order.
    """
    present_tuples = values.drop_null()
    fields = [_item_of(column) for column in present_tuples.flatten()]
    count, width = len(present_tuples), len(fields)
    branches = np.full((count, width), np.int8(Wrapper.INT))
    parts: dict[int, list[pa.Array]] = {}
    positions: dict[int, list[npt.NDArray[np.int64]]] = {}

    def append_values(branch: int, column: pa.Array, at: npt.NDArray[np.int64]) -> None:
        parts.setdefault(branch, []).append(column)
        positions.setdefault(branch, []).append(at)

    for position, (wrapper, column) in enumerate(fields):
        valid = valid_mask(column)
        rows = np.arange(count, dtype=np.int64) * width + position
        branches[valid, position] = np.int8(wrapper)
        append_values(int(wrapper), column.drop_null(), rows[valid])
        if not valid.all():
            append_values(int(Wrapper.INT), pa.array(np.zeros(column.null_count, np.int32)), rows[~valid])
    columns = {
        branch: pa.concat_arrays(arrays).take(pa.array(np.argsort(np.concatenate(positions[branch]), kind="stable")))
        for branch, arrays in parts.items()
    }
    items = _union(branches.reshape(-1), columns, _ITEM)
    tuples = pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), items)
    return _or_zero(Wrapper.ARRAY, tuples, valid_mask(values))


def _item_of(values: pa.Array) -> tuple[Wrapper, pa.Array]:
    """Return the wrapper for one position of tuples, and its values in the wrapper's type."""
    if pa.types.is_date32(values.type):
        return Wrapper.LOCAL_DATE, values
    if pa.types.is_decimal(values.type):
        return Wrapper.DECIMAL, values.cast(DECIMAL)
    return _wrapper_of(values)


def unwrap_ordering(wrapped: pa.UnionArray, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Unwrap the ordering values of deletes of a table ordered by one column.

    Args:
        wrapped: A WRAPPED column.
        kind: Type of the ordering column.

    Returns:
        Two arrays in the order of `wrapped`: the values, of type `kind`, null where missing; and a boolean that is True
        where the delete has no ordering value (IntWrapper(0) or null) and applies to every record of its key.

    Raises:
        Unsupported: A value of a type that the ordering column cannot hold.
    """
    branches, offsets = _codes(wrapped), _offsets(wrapped)
    absent = _absent(wrapped)
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


def unwrap_tuples(wrapped: pa.UnionArray, kinds: Sequence[pa.DataType]) -> tuple[pa.StructArray, pa.Array]:
    """Unwrap the ordering values of deletes of a table ordered by several columns; see `unwrap_ordering`.

    Returns:
        Structs of the values, and a boolean that is True where the delete has no ordering value. An item is null where
        the tuple has null or IntWrapper(0).

    Raises:
        CorruptData: A tuple of another length.
        Unsupported: A value that is not a tuple, or an item of an unsuitable type.
    """
    branches, offsets = _codes(wrapped), _offsets(wrapped)
    tuples = branches == Wrapper.ARRAY
    absent = _absent(wrapped)
    single = np.flatnonzero(~tuples & ~absent)
    if len(single):
        raise CorruptData(
            "the ordering value of a delete is not a tuple, but the table has several ordering fields",
            expected=f"ArrayWrapper of {len(kinds)} values",
            found=Wrapper(int(branches[single[0]])).name,
        )
    lists = wrapped.field(int(Wrapper.ARRAY)).take(pa.array(offsets[tuples]))
    lengths = np.asarray(pc.list_value_length(lists))
    wrong = np.flatnonzero(lengths != len(kinds))
    if len(wrong):
        raise CorruptData(
            "the ordering value of a delete (ArrayWrapper) and the table's ordering fields differ in number",
            expected=len(kinds),
            found=int(lengths[wrong[0]]),
        )
    items = lists.flatten()
    places = np.zeros(len(wrapped), np.int64)
    places[tuples] = np.arange(len(lists))
    take = pa.array(places, mask=absent)
    columns = []
    for number, kind in enumerate(kinds):
        values, _ = unwrap_ordering(items.take(pa.array(np.arange(number, len(items), len(kinds)))), kind)
        columns.append(values.take(take))
    names = [str(number) for number in range(len(kinds))]
    return pa.StructArray.from_arrays(columns, names=names, mask=pa.array(absent)), pa.array(absent)


class WrappedNode(Node):
    """The union as a node of the columnar Avro codec.

    Attributes:
        branches: The Wrapper at each branch of the stored union; Wrapper.ARRAY only at the last.
        arrow: WRAPPED, or the same type without tuples.
    """

    __slots__ = ("_nodes", "branches")

    def __init__(self, branches: tuple[Wrapper, ...], arrow: pa.DataType = WRAPPED) -> None:
        super().__init__(arrow, 1)
        with_tuples = branches[-1] is Wrapper.ARRAY
        self.branches = branches
        self._nodes = (*_NODES[: len(branches) - with_tuples], *((_tuple_node(),) if with_tuples else ()))

    def decode(self, rows: RowCursors) -> pa.Array:
        codes = rows.octet()
        rows.fail((codes >= 2 * len(self.branches)) | (codes & 1 != 0), "invalid branch of a union")
        stored = codes >> 1
        branches = np.array(self.branches, np.int8)[stored]
        columns: dict[int, pa.Array] = {}
        for branch in np.unique(stored).tolist():
            index = np.nonzero(stored == branch)[0]
            node = self._nodes[branch]
            if node is None:
                columns[self.branches[branch]] = pa.nulls(len(index))
                continue
            branch_rows = rows.subset(index)
            columns[self.branches[branch]] = node.decode(branch_rows)
            rows.advance(index, branch_rows)
        return _union(branches, columns, self.arrow)

    def walk(self, cursor: ByteCursor) -> None:
        branch = cursor.zigzag()
        if not 0 <= branch < len(self.branches):
            raise cursor.corrupt("invalid branch of a union", found=branch)
        node = self._nodes[branch]
        if node is not None:
            node.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        branches, offsets = _codes(array), _offsets(array)
        stored = np.full(len(Wrapper), -1, np.int64)
        stored[list(self.branches)] = np.arange(len(self.branches))
        used = np.unique(branches)
        strange = used[stored[used] < 0]
        if len(strange):
            raise InvalidRequest(f"wrapped values of {Wrapper(strange[0]).name}, which is not a branch of the union")
        parts = [octet_column((stored[branches] * 2).astype(np.uint8))]
        for branch in used.tolist():
            node = self._nodes[stored[branch]]
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


def _tuple_node() -> Node:
    """Return the node of ArrayWrapper's one field: a nullable array in which null is corruption."""
    return _TupleNode(SequenceNode(pa.list_(_ITEM), WrappedNode(STATISTICS_BRANCHES, _ITEM), item_nullable=False))


class _TupleNode(Node):
    """`["null", array]`, where null is invalid because a delete cannot have such a value."""

    __slots__ = ("_items",)

    def __init__(self, items: SequenceNode) -> None:
        super().__init__(items.arrow, 2)
        self._items = items

    def decode(self, rows: RowCursors) -> pa.Array:
        rows.fail(rows.octet() != _NON_NULL, "a tuple of ordering values (ArrayWrapper) without values")
        return self._items.decode(rows)

    def walk(self, cursor: ByteCursor) -> None:
        branch = cursor.zigzag()
        if branch != 1:
            raise cursor.corrupt("a tuple of ordering values (ArrayWrapper) without values", found=branch)
        self._items.walk(cursor)

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return [octet_column(np.full(len(array), _NON_NULL, np.uint8)), *self._items.encode(array)]


_NON_NULL: Final = 2
"""The byte that encodes the second branch of a union."""


def _union(branches: npt.NDArray[np.int8], columns: dict[int, pa.Array], kind: pa.DataType = WRAPPED) -> pa.UnionArray:
    """Build the dense union whose row i is on branch `branches[i]`; `columns` has each branch's values in row order."""
    offsets = np.zeros(len(branches), np.int32)
    for branch, values in columns.items():
        offsets[branches == branch] = np.arange(len(values), dtype=np.int32)
    codes = list(range(kind.num_fields))
    children = [columns[branch] if branch in columns else _empty(branch) for branch in codes]
    return pa.UnionArray.from_dense(pa.array(branches, pa.int8()), pa.array(offsets), children, list(_NAMES[: len(codes)]), codes)


@lru_cache(maxsize=len(_CHILDREN))
def _empty(branch: int) -> pa.Array:
    """Return an empty array of a branch's type."""
    kind = _CHILDREN[branch]
    if not pa.types.is_list(kind):
        return pa.array([], kind)
    nothing = pa.py_buffer(np.zeros(1, np.int32))
    return pa.Array.from_buffers(kind, 0, [None, nothing], children=[_union(np.zeros(0, np.int8), {}, kind.value_type)])


def _absent(wrapped: pa.UnionArray) -> npt.NDArray[np.bool_]:
    """Return where there is no ordering value: null, or IntWrapper(0)."""
    branches, offsets = _codes(wrapped), _offsets(wrapped)
    absent: npt.NDArray[np.bool_] = branches == Wrapper.NULL
    ints = branches == Wrapper.INT
    if ints.any():
        int_values = np.asarray(wrapped.field(int(Wrapper.INT)).take(pa.array(offsets[ints])))
        absent[np.nonzero(ints)[0][int_values == 0]] = True
    return absent


def _codes(wrapped: pa.UnionArray) -> npt.NDArray[np.int8]:
    if not len(wrapped):
        return np.zeros(0, np.int8)
    return np.frombuffer(wrapped.buffers()[1], np.int8)[wrapped.offset : wrapped.offset + len(wrapped)]


def _offsets(wrapped: pa.UnionArray) -> npt.NDArray[np.int32]:
    if not len(wrapped):
        return np.zeros(0, np.int32)
    # The `offsets` property of pyarrow ignores the offset of a sliced array.
    return np.frombuffer(wrapped.buffers()[2], np.int32)[wrapped.offset : wrapped.offset + len(wrapped)]


def _stored_as(values: pa.Array, wrapper: Wrapper, kind: pa.DataType) -> pa.Array:
    """Convert values of one branch to the type of the ordering column."""
    types = pa.types
    if wrapper is Wrapper.ARRAY:
        raise CorruptData(
            "the ordering value of a delete (ArrayWrapper) is a tuple, but the table has one ordering field",
            expected=1,
            found=int(pc.list_value_length(values)[0].as_py()),
        )
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
        raise Unsupported(f"a delete has an ordering value of type {wrapper.name}, but the ordering column has type {kind}")
    try:
        return pc.cast(values, kind)
    except pa.ArrowInvalid as error:
        raise CorruptData(f"the ordering value of a delete cannot be converted to {kind}: {error}") from error
