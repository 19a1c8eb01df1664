"""Derive statistics of function results from the statistics of a column, for monotonic functions.

    monotonic                     year, to_date, date_add, n + 1, formats such as yyyy-MM-dd, string prefixes: the
                                  bounds of the results are the results for the bounds
    monotonic within a time unit  month within a year, day within a month, hour within a day: the same, if both bounds
                                  are in one unit
    others                        unknown

Times are evaluated in UTC, where clocks are never set back. Bounds wider than the values give results wider than theirs.
"""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.records.filters.filter_ast import ColumnRef, FunctionCall, Literal
from pyhudi.records.filters.filter_functions import FUNCTIONS, index_expression, run_function

Bounds: TypeAlias = tuple[pa.Array, pa.Array]
"""Minimum and maximum of many files or partitions, null if unknown."""


def derived_column(call: FunctionCall) -> ColumnRef | None:
    """Return the column from whose statistics those of a bound call can be derived; None if they cannot."""
    not_literal = [argument for argument in call.arguments if not isinstance(argument, Literal)]
    if len(not_literal) != 1 or not _is_monotonic(call):
        return None
    inner = not_literal[0]
    return inner if isinstance(inner, ColumnRef) else derived_column(inner)


def derived_bounds(call: FunctionCall, low: pa.Array, high: pa.Array) -> Bounds:
    """Derive the bounds of a call's results from those of its `derived_column`, which have the column's type."""
    argument_index = next(number for number, argument in enumerate(call.arguments) if not isinstance(argument, Literal))
    inner = call.arguments[argument_index]
    if isinstance(inner, FunctionCall):
        low, high = derived_bounds(inner, low, high)

    def results(values: pa.Array) -> pa.Array:
        return run_function(
            call, [values if number == argument_index else None for number in range(len(call.arguments))], len(values)
        )

    least, greatest = results(low), results(high)
    is_known = pc.fill_null(pc.less_equal(least, greatest), False)
    function = FUNCTIONS[call.function]
    unit = function.monotonic_within
    if unit is not None:
        is_known = pc.and_(is_known, pc.fill_null(_same_unit(unit, low, high), False))
    pattern = index_expression(call).normalized().option("format") if pa.types.is_string(least.type) else None
    if pattern is not None:
        for texts in (least, greatest):
            # Years from 0 to 9999 have as many digits as the pattern; others do not sort as strings.
            has_pattern_width = pc.and_(pc.equal(pc.utf8_length(texts), len(pattern)), pc.invert(pc.starts_with(texts, "-")))
            is_known = pc.and_(is_known, pc.fill_null(has_pattern_width, False))
    unknown = pa.scalar(None, least.type)
    return pc.if_else(is_known, least, unknown), pc.if_else(is_known, greatest, unknown)


def _is_monotonic(call: FunctionCall) -> bool:
    first = call.arguments[0]
    if isinstance(first, Literal):
        # c + x is increasing, c - x is not.
        return call.function == "+" and _is_exact(call)
    if call.function in ("+", "-"):
        return _is_exact(call)
    function = FUNCTIONS[call.function]
    if callable(function.is_monotonic):
        return function.is_monotonic(index_expression(call))
    type_ = first.type
    is_time = type_ is not None and (pa.types.is_date32(type_) or pa.types.is_timestamp(type_))
    return is_time and (function.is_monotonic or function.monotonic_within is not None)


def _is_exact(call: FunctionCall) -> bool:
    type_ = call.type
    return type_ is not None and (pa.types.is_integer(type_) or pa.types.is_decimal(type_))


def _same_unit(unit: str, low: pa.Array, high: pa.Array) -> pa.BooleanArray:
    """Return where both times of a pair are in the same year, month, day and so on."""
    first, last = (pc.floor_temporal(side.cast(pa.timestamp("us"), safe=False), unit=unit) for side in (low, high))
    return pc.equal(first, last)
