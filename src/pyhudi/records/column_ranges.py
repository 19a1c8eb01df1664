"""Data skipping over many files at once: the rules of `filters.range_pruning.prune_ranges`, vectorized over columns of
statistics.

A `RangeColumn` contains the statistics of one column in many files. `may_match` returns for each file whether a row of
it may match a filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal
from pyhudi.records.filters.arrow_expressions import arrow_scalar
from pyhudi.records.filters.binding import MAX_LISTED
from pyhudi.records.filters.filter_ast import Compare, ConstantUnlessNull, Expr, In, IsNull, Like, Operand
from pyhudi.records.filters.filter_visitor import NEGATED
from pyhudi.records.filters.like_patterns import like_prefix
from pyhudi.records.filters.monotonic_functions import derived_bounds, derived_column
from pyhudi.records.filters.range_pruning import ANY, FALSE, TRUE, UNKNOWN, orders_agree, outcomes, rank

Bits = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RangeColumn:
    """Statistics of one column in many files. As in `ColumnRange`, missing bounds imply nothing about the values.

    Attributes:
        low: Lower bounds, of the column's type; null if unknown.
        high: Upper bounds, of the column's type; null if unknown.
        null_count: Number of nulls, int64; null if unknown.
        value_count: Number of values, nulls included, int64; null if unknown.
    """

    low: pa.Array
    high: pa.Array
    null_count: pa.Int64Array
    value_count: pa.Int64Array

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(array.nbytes for array in (self.low, self.high, self.null_count, self.value_count))

    def __post_init__(self) -> None:
        if len({len(self.low), len(self.high), len(self.null_count), len(self.value_count)}) != 1:
            raise Internal("the arrays of a range column differ in length")


def may_match(expr: Expr, columns: Mapping[Operand, RangeColumn], count: int) -> Flags:
    """Return for each of `count` files whether a row of it may match the filter.

    Args:
        expr: Bound filter.
        columns: Statistics by dotted column name, or by function call if its results have statistics of their own.
            Operands without statistics may have any value.
        count: Number of files.
    """
    no_outcome = np.zeros(count, dtype=np.uint8)
    flags: Flags = outcomes(expr, lambda leaf: _leaf_outcomes(leaf, columns, count), no_outcome) & TRUE > 0
    return flags


def _range_of(operand: Operand, columns: Mapping[Operand, RangeColumn]) -> RangeColumn | None:
    """Return the statistics of an operand; those of a call without statistics are derived from its column."""
    known = columns.get(operand)
    if known is not None or isinstance(operand, str):
        return known
    column = derived_column(operand)
    source = None if column is None else columns.get(column.name)
    if column is None or source is None or source.low.type != column.type:
        return None
    low, high = derived_bounds(operand, source.low, source.high)
    # If the function of a bound is null, so may be values between the bounds.
    nulls = pc.if_else(low.is_valid(), source.null_count, pa.scalar(None, pa.int64()))
    return RangeColumn(low, high, nulls, source.value_count)


def _leaf_outcomes(leaf: Expr, columns: Mapping[Operand, RangeColumn], count: int) -> Bits:
    column = _range_of(leaf.column, columns)  # type: ignore[attr-defined]
    if column is None:
        return np.full(count, ANY, dtype=np.uint8)
    bounded = _flags(pc.and_(column.low.is_valid(), column.high.is_valid()))
    nulls = _flags(pc.fill_null(pc.greater(column.null_count, 0), True))
    result = _bits(nulls, UNKNOWN)
    if isinstance(leaf, IsNull):
        all_null = _flags(pc.fill_null(pc.equal(column.null_count, column.value_count), False))
        return _bits(nulls, TRUE) | _bits(~(bounded & all_null), FALSE)
    if isinstance(leaf, ConstantUnlessNull):
        return result | np.uint8(TRUE if leaf.outcome else FALSE)
    if isinstance(leaf, Compare):
        known = _compared(leaf.op, leaf.value, column, leaf.type)
        unknown = TRUE | FALSE
    elif isinstance(leaf, In):
        known = _listed(leaf, column, count)
        unknown = TRUE | FALSE | (UNKNOWN if leaf.has_null else 0)
    elif isinstance(leaf, Like):
        known = _bits(_may_start(like_prefix(leaf.pattern)[0], column), TRUE) | np.uint8(FALSE)
        unknown = TRUE | FALSE
    else:
        raise Internal(f"unknown filter node {type(leaf).__name__}")
    return result | np.where(bounded, known, np.uint8(unknown)).astype(np.uint8)


def _listed(leaf: In, column: RangeColumn, count: int) -> Bits:
    miss = np.uint8(UNKNOWN if leaf.has_null else FALSE)
    if len(leaf.values) > MAX_LISTED:
        if all(not isinstance(value, str) or orders_agree(value) for value in leaf.values):
            least, greatest = min(leaf.values, key=rank), max(leaf.values, key=rank)
            inside: Bits = _compared(">=", least, column, leaf.type) & _compared("<=", greatest, column, leaf.type)
            return (inside & np.uint8(TRUE)) | miss
        return np.full(count, np.uint8(TRUE) | miss, dtype=np.uint8)
    may_match = np.zeros(count, dtype=np.uint8)
    must_match = np.zeros(count, dtype=np.bool_)
    for value in leaf.values:
        outcome = _compared("=", value, column, leaf.type)
        may_match |= outcome & np.uint8(TRUE)
        must_match |= outcome == TRUE
    return may_match | np.where(must_match, np.uint8(0), miss).astype(np.uint8)


def _compared(op: str, literal: Any, column: RangeColumn, type_: pa.DataType | None) -> Bits:
    """Compare a literal with ranges, as `range_pruning` does; results for null bounds are ignored."""
    count = len(column.low)
    if type_ is None:
        raise Internal("the filter is not bound to a schema")
    if isinstance(literal, str) and not orders_agree(literal):
        return np.full(count, TRUE | FALSE, dtype=np.uint8)
    scalar = arrow_scalar(literal, type_)
    low, high = column.low, column.high
    # NaN is above every number; as a lower bound it implies nothing.
    low_nan, high_nan = _nan_flags(low), _nan_flags(high)
    if literal != literal:
        below, above, can_equal = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_), high_nan
    else:
        below = low_nan | _flags(pc.fill_null(pc.less(low, scalar), False))
        above = high_nan | _flags(pc.fill_null(pc.greater(high, scalar), False))
        reaches = low_nan | _flags(pc.fill_null(pc.less_equal(low, scalar), False))
        can_equal = reaches & (high_nan | _flags(pc.fill_null(pc.greater_equal(high, scalar), False)))
    true_when = {"=": can_equal, "<>": below | above, "<": below, "<=": below | can_equal, ">": above, ">=": above | can_equal}
    return _bits(true_when[op], TRUE) | _bits(true_when[NEGATED[op]], FALSE)


def _nan_flags(bounds: pa.Array) -> Flags:
    if not pa.types.is_floating(bounds.type):
        return np.zeros(len(bounds), dtype=np.bool_)
    return _flags(pc.fill_null(pc.is_nan(bounds), False))


def _may_start(prefix: str, column: RangeColumn) -> Flags:
    if not pa.types.is_string(column.low.type) or not orders_agree(prefix):
        return np.ones(len(column.low), dtype=np.bool_)
    starts = pc.utf8_slice_codeunits(column.low, 0, len(prefix)) if prefix else pa.repeat("", len(column.low))
    return _flags(pc.fill_null(pc.and_(pc.less_equal(starts, prefix), pc.greater_equal(column.high, prefix)), True))


def _flags(array: pa.Array) -> Flags:
    flags: Flags = array.to_numpy(zero_copy_only=False)
    return flags


def _bits(flags: Flags, bit: int) -> Bits:
    return np.where(flags, np.uint8(bit), np.uint8(0)).astype(np.uint8)
