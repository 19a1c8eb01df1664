"""Ordering values, which decide which of two versions of a record is newer.

    no ordering field     all versions are equally new
    one                   its value
    several               a struct of their values, compared field by field

A null is smaller than every value. With `null_is_zero`, a null counts as 0 in integer columns of at most 32 bits, which
is what Hudi's Integer 0 can be compared with; in other columns it is the smallest value. Floats compare as in Java: NaN
is the largest and equals itself, -0.0 is smaller than 0.0.

Source: docs/formats/reading.md, "Merging" and "Table version 9".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest

Ints = npt.NDArray[np.int64]
BoolMask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Ordering:
    """Ordering fields of a table, most significant first.

    Attributes:
        fields: Dotted names of the columns; empty if versions are not ordered.
        null_is_zero: True if a null counts as 0 in integer columns of at most 32 bits.
    """

    fields: tuple[str, ...] = ()
    null_is_zero: bool = False

    @classmethod
    def by(cls, field: str | None) -> Ordering:
        """Create the ordering by one field, or by none."""
        return cls(() if field is None else (field,))

    def __bool__(self) -> bool:
        return bool(self.fields)

    @property
    def heads(self) -> tuple[str, ...]:
        """Top-level columns that contain the fields."""
        return tuple(dict.fromkeys(field.split(".")[0] for field in self.fields))

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the ordering value of each row. Must not be called without ordering fields.

        Raises:
            InvalidRequest: A field is not a column.
        """
        columns = [self._fill_nulls(ordering_values(rows, field)) for field in self.fields]
        return columns[0] if len(columns) == 1 else _tuples(columns)

    def normalize_delete_values(self, values: pa.Array) -> pa.ChunkedArray:
        """Convert ordering values of delete records to the form of `values`; null remains null."""
        column = pa.chunked_array([values])
        if len(self.fields) < 2:
            return column
        parts = [self._fill_nulls(pc.struct_field(column, index)) for index in range(len(self.fields))]
        return _tuples(parts, pc.is_null(column))

    def are_zero(self, rows: pa.Table) -> BoolMask:
        """Return where a row's ordering value is Hudi's Integer 0, its placeholder for no value.

        All rows without ordering fields, none with several.
        """
        if not self.fields:
            return np.ones(rows.num_rows, dtype=np.bool_)
        column = ordering_values(rows, self.fields[0])
        if len(self.fields) > 1:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        zero = pc.is_null(column)
        if _is_integer(column.type):
            zero = pc.or_(zero, pc.fill_null(pc.equal(column, pa.scalar(0, column.type)), False))
        return _mask(zero)

    def _fill_nulls(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if self.null_is_zero and column.null_count and _is_integer(column.type):
            return pc.fill_null(column, pa.scalar(0, column.type))
        return column


NO_ORDERING = Ordering()


def ordering_values(rows: pa.Table, field: str) -> pa.ChunkedArray:
    """Return one ordering column, following a dotted path into structs.

    Raises:
        InvalidRequest: There is no such column.
    """
    head, *rest = field.split(".")
    if head not in rows.column_names:
        raise InvalidRequest(f"ordering field {field!r} is not a column; columns: {', '.join(rows.column_names)}")
    column = rows.column(head)
    for name in rest:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            raise InvalidRequest(f"ordering field {field!r} is not a column: {name!r} is not a field of the struct before it")
        column = pc.struct_field(column, name)
    return column


def newer_or_equal(older: pa.ChunkedArray, newer: pa.ChunkedArray) -> BoolMask:
    """Return where the newer ordering value is not smaller. A null is smaller than a value, and equal to a null."""
    if pa.types.is_struct(older.type):
        return _newer_or_equal_tuples(older, newer)
    not_smaller = pc.greater_equal(_comparable(newer), _comparable(older))
    return _mask(pc.if_else(pc.is_null(older), True, pc.fill_null(not_smaller, False)))


def delete_applies(ordering: Ordering, stored: pa.Table, deleting: pa.Table) -> BoolMask:
    """Return where the row that deletes a stored row has no smaller ordering value. A null value deletes any row.

    Args:
        ordering: Ordering fields, at least one.
        stored: Stored rows.
        deleting: The row that deletes each of them, with the ordering columns in the same types.
    """
    older, newer = ordering.values(stored), ordering.values(deleting)
    return newer_or_equal(older, newer) | _mask(pc.is_null(newer))


def ordering_ranks(values: pa.ChunkedArray) -> Ints:
    """Return order-preserving integer ranks: equal values have equal ranks, null has the smallest."""
    if pa.types.is_struct(values.type):
        ranks = np.zeros(len(values), dtype=np.int64)
        for index in range(values.type.num_fields):
            field_ranks = ordering_ranks(pc.struct_field(values, index))
            # Dense ranks at each step keep the product with the next field's ranks small.
            ranks = np.unique(ranks * (int(field_ranks.max(initial=0)) + 1) + field_ranks, return_inverse=True)[1].astype(
                np.int64, copy=False
            )
        return ranks
    column = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    encoded = column.dictionary_encode()
    smallest_first = np.asarray(pc.sort_indices(encoded.dictionary), dtype=np.int64)
    rank_of = np.zeros(len(smallest_first) + 1, dtype=np.int64)
    rank_of[smallest_first] = np.arange(1, len(smallest_first) + 1)
    # Nulls use the last slot, whose rank is 0.
    return rank_of[np.asarray(pc.fill_null(encoded.indices, len(smallest_first)), dtype=np.int64)]


def _newer_or_equal_tuples(older: pa.ChunkedArray, newer: pa.ChunkedArray) -> BoolMask:
    result = np.ones(len(older), dtype=np.bool_)
    equal = np.ones(len(older), dtype=np.bool_)
    for index in range(older.type.num_fields):
        first, second = pc.struct_field(older, index), pc.struct_field(newer, index)
        not_smaller, not_larger = newer_or_equal(first, second), newer_or_equal(second, first)
        result = np.where(equal, not_smaller, result)
        equal &= not_smaller & not_larger
    return result


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return the values; for floats, integers in their total order."""
    if not pa.types.is_floating(values.type):
        return values
    numbers: npt.NDArray[np.float64] = pc.cast(values, pa.float64()).to_numpy()
    bits = numbers.view(np.int64)
    largest = np.iinfo(np.int64).max
    ranks = np.where(np.isnan(numbers), largest, bits ^ ((bits >> 63) & largest))
    return pa.array(ranks, mask=np.asarray(values.is_null()))


def _tuples(columns: list[pa.ChunkedArray], missing: pa.ChunkedArray | None = None) -> pa.ChunkedArray:
    arrays = [column.combine_chunks() for column in columns]
    names = [str(index) for index in range(len(arrays))]
    mask = None if missing is None else missing.combine_chunks()
    return pa.chunked_array([pa.StructArray.from_arrays(arrays, names=names, mask=mask)])


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int8(kind) or pa.types.is_int16(kind) or pa.types.is_int32(kind))


def _mask(flags: pa.ChunkedArray | pa.Array) -> BoolMask:
    return np.asarray(flags.combine_chunks() if isinstance(flags, pa.ChunkedArray) else flags, dtype=np.bool_)
