"""Parameters of a statement: `?`, `$name` and Spark's `:name` are replaced by literals of the values.

Markers in quotes, comments and types (`STRUCT<x: INT>`) are no parameters. The literals have the type of their value in
Spark SQL, on both engines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, cast

from pyhudi.errors import InvalidRequest
from pyhudi.records.plain_values import plain_value, plain_values
from pyhudi.records.sql_quoting import quote_text
from pyhudi.sql_engine.literals import describe_position, without_quoted

_PART = re.compile(
    r"""
      (?P<type>\b(?:struct|array|map)\s*<)
    | (?P<end>>)
    | (?P<position>\?)
    | (?P<colon>::|:(?P<named>[A-Za-z_]\w*)?)
    | \$(?P<dollar>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MOST_DIGITS = 38


def bind(statement: str, params: Sequence[Any] | Mapping[str, Any] | None) -> str:
    """Return the statement with literals in place of its parameters.

    Args:
        statement: The statement.
        params: Values of `?` in order, or values by name; None leaves the statement unchanged.

    Raises:
        InvalidRequest: A parameter has no value, a value has no parameter, or no literal.
    """
    if params is None:
        return statement
    if isinstance(params, (str, bytes)) or not isinstance(cast(object, params), (Sequence, Mapping)):
        raise InvalidRequest(f"params is {params!r}: pass a list of values for ?, or a dictionary for :name")
    values: Mapping[Any, Any] = params if isinstance(params, Mapping) else dict(enumerate(params))
    pieces, done, count = [], 0, 0
    for start, end, name in _markers(statement):
        marker, key = statement[start:end], count if name is None else name
        if isinstance(params, Mapping) == (name is None):
            given, needed = ("a dictionary", "a list") if name is None else ("a list", "a dictionary")
            raise InvalidRequest(
                f"{describe_position(statement, start)}: params is {given}, and the parameter {marker} needs {needed}"
            )
        if key not in values:
            known = f"{len(values)} values" if name is None else f"values for {', '.join(map(str, values)) or 'no name'}"
            raise InvalidRequest(f"{describe_position(statement, start)}: parameter {marker} has no value: params has {known}")
        pieces += [statement[done:start], _literal(values[key], marker if name is not None else f"parameter {count + 1}")]
        done, count = end, count + 1
    if not isinstance(params, Mapping) and count != len(values):
        raise InvalidRequest(f"params has {len(values)} values, and the statement has {count} parameters ?")
    return "".join([*pieces, statement[done:]])


def _markers(statement: str) -> Iterator[tuple[int, int, str | None]]:
    """Start, end and name of each parameter; no name for `?`."""
    depth = 0
    for part in _PART.finditer(without_quoted(statement)):
        if part["type"]:
            depth += 1
        elif part["end"]:
            depth -= depth > 0
        elif depth == 0 and (part["position"] or part["named"] or part["dollar"]):
            yield part.start(), part.end(), part["named"] or part["dollar"]


def _literal(value: Any, what: str) -> str:
    """A value in Spark SQL. A blank precedes a minus sign, so that two of them make no comment."""
    items = plain_values(value)
    if items is not None:
        value = items.to_pylist()
    value = plain_value(value, what)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, int) and len(str(abs(value))) <= _MOST_DIGITS:
        return f" {value}" if value < 0 else str(value)
    if isinstance(value, float):
        return f"CAST({quote_text(_double(value))} AS DOUBLE)"
    if isinstance(value, Decimal) and value.is_finite():
        return _decimal(value, what)
    if isinstance(value, datetime):
        return f"TIMESTAMP {quote_text(value.isoformat(' '))}"
    if isinstance(value, date):
        return f"DATE {quote_text(value.isoformat())}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"X'{bytes(value).hex()}'"
    if isinstance(value, (list, tuple)):
        return f"array({', '.join(_literal(item, what) for item in value)})"
    raise InvalidRequest(
        f"{what} is {type(value).__name__} {value!r}, which has no literal in SQL: pass a number, text, boolean, date, time, "
        "bytes, or a list of them"
    )


def _double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal, what: str) -> str:
    text = format(value, "f")
    fraction = len(text.partition(".")[2])
    digits = max(len(text.lstrip("-").replace(".", "").lstrip("0")), fraction, 1)
    if digits > _MOST_DIGITS:
        raise InvalidRequest(f"{what} is {value}, which has more than {_MOST_DIGITS} digits")
    return f"CAST({quote_text(text)} AS DECIMAL({digits}, {fraction}))"
