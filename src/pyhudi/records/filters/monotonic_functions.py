"""Ranges of what functions make of a column, from the ranges of the column.

    grows with its argument       year, to_date, date_add, n + 1, formats such as yyyy-MM-dd, the first characters of text:
                                  the bounds of the results are the results for the bounds
    grows within a unit of time   month within a year, day within a month, hour within a day: the same, where both bounds lie in
                                  one unit
    others                        nothing is known

Times are taken apart in UTC, where clocks are never set back.  Bounds that lie further out than the values give results that do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.records.expression_functions import IndexExpression
from pyhudi.records.filters.filter_ast import ColumnRef, FunctionCall, Literal
from pyhudi.records.filters.filter_functions import run_function

Bounds: TypeAlias = tuple[pa.Array, pa.Array]
"""The least and the greatest values of many files or partitions, null where they are not known."""


def derived_column(call: FunctionCall) -> ColumnRef | None:
    """The column from whose range that of a bound call follows; None where it does not."""
    varying = [argument for argument in call.arguments if not isinstance(argument, Literal)]
    if len(varying) != 1 or not _grows(call):
        return None
    inner = varying[0]
    return inner if isinstance(inner, ColumnRef) else derived_column(inner)


def derived_bounds(call: FunctionCall, low: pa.Array, high: pa.Array) -> Bounds:
    """The bounds of a call's results.  call: with a `derived_column`, whose bounds are given; its type is that of the column."""
    place = next(number for number, argument in enumerate(call.arguments) if not isinstance(argument, Literal))
    inner = call.arguments[place]
    if isinstance(inner, FunctionCall):
        low, high = derived_bounds(inner, low, high)

    def results(values: pa.Array) -> pa.Array:
        return run_function(call, [values if number == place else None for number in range(len(call.arguments))], len(values))

    least, greatest = results(low), results(high)
    known = pc.fill_null(pc.less_equal(least, greatest), False)
    unit = _WITHIN.get(call.function)
    if unit is not None:
        known = pc.and_(known, pc.fill_null(_same(unit, low, high), False))
    if call.function in _FORMATS:
        width = len(_pattern(call))
        for texts in (least, greatest):
            # The years from 0 to 9999 have as many digits as the pattern; others do not sort as text.
            whole = pc.and_(pc.equal(pc.utf8_length(texts), width), pc.invert(pc.starts_with(texts, "-")))
            known = pc.and_(known, pc.fill_null(whole, False))
    nothing = pa.scalar(None, least.type)
    return pc.if_else(known, least, nothing), pc.if_else(known, greatest, nothing)


_GROWING = frozenset({"year", "to_date", "to_timestamp", "unix_timestamp", "date_add", "date_sub", "cast date", "cast timestamp"})
_FORMATS = frozenset({"date_format", "from_unixtime"})
_WITHIN: Mapping[str, str] = {
    "quarter": "year",
    "month": "year",
    "dayofyear": "year",
    "day": "month",
    "hour": "day",
    "minute": "hour",
    "second": "minute",
}
"""Functions that grow within a unit of time."""

_SORTED_PATTERN = re.compile(
    r"yyyy([^A-Za-z'\[\]{}#]*MM([^A-Za-z'\[\]{}#]*dd([^A-Za-z'\[\]{}#]*HH([^A-Za-z'\[\]{}#]*mm([^A-Za-z'\[\]{}#]*ss)?)?)?)?)?"
)
"""Patterns whose texts sort as the times do."""


def _grows(call: FunctionCall) -> bool:
    first = call.arguments[0]
    if isinstance(first, Literal):
        # c + x grows, c - x does not.
        return call.function == "+" and _is_exact(call)
    if call.function in ("+", "-"):
        return _is_exact(call)
    if call.function == "substring":
        position = call.arguments[1]
        return isinstance(position, Literal) and position.value in (0, 1)
    if call.function in _FORMATS:
        return _SORTED_PATTERN.fullmatch(_pattern(call)) is not None
    kind = first.type
    is_time = kind is not None and (pa.types.is_date32(kind) or pa.types.is_timestamp(kind))
    return is_time and (call.function in _GROWING or call.function in _WITHIN)


def _is_exact(call: FunctionCall) -> bool:
    kind = call.type
    return kind is not None and (pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _pattern(call: FunctionCall) -> str:
    given: Any = call.arguments[1] if len(call.arguments) > 1 else None
    return given.value if isinstance(given, Literal) else IndexExpression("from_unixtime").normalised().options[0][1]


def _same(unit: str, low: pa.Array, high: pa.Array) -> pa.BooleanArray:
    """Whether both times of a pair lie in the same year, month, day..."""
    first, last = (pc.floor_temporal(side.cast(pa.timestamp("us"), safe=False), unit=unit) for side in (low, high))
    return pc.equal(first, last)
