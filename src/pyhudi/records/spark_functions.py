"""Spark SQL of function calls whose meaning does not depend on the session's time zone or ANSI mode.

A renderer gets the name of a function, the SQL and the types of its arguments, and the type of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from pyhudi.records.arithmetic import as_decimal, canonical_type, common_type

Types: TypeAlias = Sequence[pa.DataType]
Renderer: TypeAlias = Callable[[str, Sequence[str], Types, pa.DataType], str]

LEAST_LONG = "(-9223372036854775807L - 1L)"
"""The smallest long, which cannot be written as a literal."""
SECONDS_FORMAT = "yyyy-MM-dd HH:mm:ss"
"""Default format of from_unixtime and unix_timestamp."""

_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
_OPERATORS = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
_OF_TIMES = {"hour": (_DAY, _HOUR), "minute": (_HOUR, _MINUTE), "second": (_MINUTE, _SECOND)}
_ZONED = pa.timestamp("us", "UTC")


def render_call(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render a function that Spark has under the same name."""
    return f"{function}({', '.join(texts)})"


def render_comparison(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render a comparison in the common type of its sides."""
    compared = common_type(*map(canonical_type, types))
    left, right = (_widened(text, type_, compared) for text, type_ in zip(texts, types, strict=True))
    return f"({left} {function} {right})"


def render_arithmetic(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render an arithmetic operator in the type of its result."""
    is_decimal = pa.types.is_decimal(result)
    left, right = (
        _widened(text, type_, as_decimal(type_) if is_decimal else result) for text, type_ in zip(texts, types, strict=True)
    )
    return f"{_OPERATORS[function]}({left}, {right})"


def render_absolute(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render abs, with null for the minimum of an integer type."""
    if not pa.types.is_integer(result):
        return f"abs({texts[0]})"
    minimum = _widened(str(-(1 << result.bit_width - 1)) if result.bit_width < 64 else LEAST_LONG, None, result)
    return f"(CASE WHEN {texts[0]} <> {minimum} THEN abs({texts[0]}) END)"


def render_cast(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render `cast <type>`."""
    target = function.removeprefix("cast ")
    if target == "bigint" and _is_time(types[0]):
        return f"({_floored(f'unix_micros({texts[0]})', _SECOND)} div {_SECOND}L)"
    if target in ("date", "timestamp"):
        return (render_to_date if target == "date" else render_to_timestamp)(function, texts, types, result)
    return f"try_cast({texts[0]} AS {target.upper()})"


def render_variant(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render variant_get, with null for a part that is no value of the type."""
    return f"try_{function}({', '.join(texts)})"


def render_date_function(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render a call whose first argument is converted to a date."""
    return render_call(function, [_days(texts[0], types[0]), *texts[1:]], types, result)


def render_time_field(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render hour, minute or second."""
    if not _is_time(types[0]):
        return f"{function}(CAST({texts[0]} AS TIMESTAMP_NTZ))"
    around, unit = _OF_TIMES[function]
    return f"CAST(pmod(unix_micros({texts[0]}), {around}L) div {unit}L AS INT)"


def render_date_format(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render date_format."""
    return _formatted(texts[0], types[0], texts[1])


def render_from_unixtime(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render from_unixtime. Seconds that overflow microseconds are not a time."""
    seconds, limit = texts[0], ((1 << 63) - 1) // _SECOND
    timestamp = f"(CASE WHEN {seconds} BETWEEN -{limit}L AND {limit}L THEN timestamp_seconds({seconds}) END)"
    return _formatted(timestamp, _ZONED, texts[1] if len(texts) > 1 else _quoted(SECONDS_FORMAT))


def render_unix_timestamp(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render unix_timestamp."""
    return f"({_micros(texts[0], types[0], texts[1] if len(texts) > 1 else _quoted(SECONDS_FORMAT))} div {_SECOND}L)"


def render_to_date(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render to_date and the cast to a date."""
    if not _is_text(types[0]):
        return _days(texts[0], types[0])
    timestamp = f"try_to_timestamp({texts[0]}, {texts[1]})" if len(texts) > 1 else texts[0]
    return f"try_cast({timestamp} AS DATE)"


def render_to_timestamp(function: str, texts: Sequence[str], types: Types, result: pa.DataType) -> str:
    """Render to_timestamp and the cast to a timestamp."""
    if pa.types.is_timestamp(types[0]):
        return texts[0]
    return f"timestamp_micros({_micros(texts[0], types[0], texts[1] if len(texts) > 1 else _quoted(''))})"


def _widened(text: str, source: pa.DataType | None, target: pa.DataType) -> str:
    """Cast a value to a wider type."""
    if source == target:
        return text
    types = pa.types
    names = {pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT", pa.float32(): "FLOAT"}
    name = f"DECIMAL({target.precision}, {target.scale})" if types.is_decimal(target) else names.get(target, "DOUBLE")
    return text if types.is_string(target) else f"CAST({text} AS {name})"


def _quoted(text: str) -> str:
    return f"'{text}'"


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(canonical_type(kind)))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _floored(micros: str, unit: int) -> str:
    return f"({micros} - pmod({micros}, {unit}L))"


def _days(value: str, kind: pa.DataType) -> str:
    """Convert a date or timestamp to a date."""
    if _is_time(kind):
        return f"date_from_unix_date(CAST({_floored(f'unix_micros({value})', _DAY)} div {_DAY}L AS INT))"
    return value if pa.types.is_date32(kind) else f"CAST({value} AS DATE)"


def _formatted(value: str, kind: pa.DataType, pattern: str) -> str:
    zoned = _is_time(kind)
    option = "timestampFormat" if zoned else "timestampNTZFormat"
    timestamp = value if zoned else f"CAST({value} AS TIMESTAMP_NTZ)"
    options = f"map('{option}', {pattern}, 'timeZone', 'UTC')"
    return f"get_json_object(to_json(named_struct('t', {timestamp}), {options}), '$.t')"


def _micros(value: str, kind: pa.DataType, pattern: str) -> str:
    """Convert a string, date or timestamp to microseconds since the epoch."""
    if _is_text(kind):
        options = f"map('timestampFormat', {pattern}, 'timeZone', 'UTC')"
        return f"unix_micros(from_json(to_json(named_struct('t', {value})), 't TIMESTAMP', {options}).t)"
    if pa.types.is_date32(kind):
        return f"(CAST(unix_date({value}) AS BIGINT) * {_DAY}L)"
    if not _is_time(kind):
        # The wall clock difference to the epoch is the same in every time zone.
        days, time = f"CAST({value} AS DATE)", f"date_trunc('DAY', {value})"
        return f"(CAST(unix_date({days}) AS BIGINT) * {_DAY}L + timestampdiff(MICROSECOND, {time}, {value}))"
    return f"unix_micros({value})"
