"""Convert filters to Spark SQL conditions whose meaning does not depend on the session's time zone or ANSI mode.

Spark's timestamp functions use the session's time zone. So this module generates expressions that do not depend on it:
microseconds since the epoch, days, and the JSON formats, which accept a time zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pyhudi.errors import Internal
from pyhudi.records.arithmetic import as_decimal, common_type
from pyhudi.records.casts import canonical_type
from pyhudi.records.column_statistics import stored_value
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import (
    And,
    ColumnRef,
    Compare,
    Constant,
    ConstantUnlessNull,
    Expr,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
)
from pyhudi.records.filters.filter_functions import ARITHMETIC, COMPARISONS, argument_types
from pyhudi.records.filters.filter_visitor import join_in_pairs


def to_spark_sql(expr: Expr, schema: pa.Schema) -> str:
    """Convert a filter to an equivalent Spark SQL condition on the same columns, for any session time zone."""
    return _spark(bind(expr, schema))


_LONGEST_CHAIN = 16
_LEAST_LONG = "(-9223372036854775807L - 1L)"


def _spark(expr: Expr) -> str:
    if isinstance(expr, (And, Or)):
        connective = " AND " if isinstance(expr, And) else " OR "
        groups = [
            connective.join(map(_spark, expr.parts[at : at + _LONGEST_CHAIN])) for at in range(0, len(expr.parts), _LONGEST_CHAIN)
        ]
        return join_in_pairs([f"({group})" for group in groups], lambda left, right: f"({left}{connective}{right})")
    if isinstance(expr, Not):
        return f"(NOT {_spark(expr.part)})"
    if isinstance(expr, Constant):
        return {True: "TRUE", False: "FALSE", None: "CAST(NULL AS BOOLEAN)"}[expr.value]
    name = _spark_operand(expr.column)  # type: ignore[attr-defined]
    if isinstance(expr, IsNull):
        return f"({name} IS NULL)"
    if isinstance(expr, ConstantUnlessNull):
        return (
            f"(({name} IS NOT NULL) OR CAST(NULL AS BOOLEAN))"
            if expr.outcome
            else f"(({name} IS NULL) AND CAST(NULL AS BOOLEAN))"
        )
    if isinstance(expr, Compare):
        return _spark_comparison(name, expr)
    if isinstance(expr, In):
        has_zero = _is_zero(expr)
        values = [_spark_literal(value, expr.type) for value in expr.values if not (has_zero and value == 0.0)]
        values += ["NULL"] if expr.has_null else []
        in_list = f"({name} IN ({', '.join(values)}))" if values else _spark(ConstantUnlessNull(expr.column, False))
        return f"({in_list} OR {_spark_comparison(name, Compare(expr.column, '=', 0.0, expr.type))})" if has_zero else in_list
    if isinstance(expr, Like):
        return f"({name} LIKE {_spark_text(expr.pattern)})"
    raise Internal(f"unknown filter node {type(expr).__name__}")


def _spark_operand(operand: Operand) -> str:
    return spark_expression(operand) if isinstance(operand, FunctionCall) else _spark_column(operand)


def _spark_column(name: str) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))


def _spark_comparison(name: str, expr: Compare) -> str:
    """Convert a comparison. Spark compares zeros as equal, but not in Parquet dictionary filters, nor in long IN lists.

    So a zero is converted to a range, with the sign that widens it.
    """
    if expr.type is not None and pa.types.is_floating(expr.type) and expr.value == 0.0:
        low, high = (_spark_literal(zero, expr.type) for zero in (-0.0, 0.0))
        if expr.op in ("=", "<>"):
            first, connective, second = (">=", "AND", "<=") if expr.op == "=" else ("<", "OR", ">")
            return f"(({name} {first} {low}) {connective} ({name} {second} {high}))"
        return f"({name} {expr.op} {low if expr.op in ('<', '>=') else high})"
    return f"({name} {expr.op} {_spark_literal(expr.value, expr.type)})"


def _is_zero(expr: In) -> bool:
    return expr.type is not None and pa.types.is_floating(expr.type) and 0.0 in expr.values


def _spark_literal(value: Any, type_: pa.DataType | None) -> str:
    types = pa.types
    if type_ is None:
        raise Internal("the filter is not bound to a schema")
    if types.is_timestamp(type_):
        return f"timestamp_micros({_spark_long(value)})"
    if types.is_date32(type_):
        return f"date_from_unix_date({value})"
    if types.is_decimal(type_):
        return f"CAST('{value:f}' AS DECIMAL({type_.precision}, {type_.scale}))"
    if types.is_floating(type_):
        text = repr(value) if value == value else "NaN"
        return f"CAST('{text}' AS {'FLOAT' if types.is_float32(type_) else 'DOUBLE'})"
    if types.is_boolean(type_):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return _spark_text(value)
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return _spark_long(value) if types.is_int64(type_) else str(value)


def _spark_long(value: Any) -> str:
    # The smallest long cannot be written as a literal: its digits alone are out of range.
    return f"{value}L" if value != -(1 << 63) else _LEAST_LONG


def _spark_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# ---------------------------------------------------------------------------------------------------------------------
# Functions

_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000


def spark_expression(call: FunctionCall) -> str:
    """Convert a bound call to a Spark SQL expression."""
    function, texts, types_ = call.function, [_spark_argument(argument) for argument in call.arguments], argument_types(call)
    if function in COMPARISONS:
        compared_type = common_type(*map(canonical_type, types_))
        left, right = (_widened(text, type_, compared_type) for text, type_ in zip(texts, types_, strict=True))
        return f"({left} {function} {right})"
    result = call.result_type
    if function in ARITHMETIC:
        is_decimal = pa.types.is_decimal(result)
        left, right = (
            _widened(text, type_, as_decimal(type_) if is_decimal else result) for text, type_ in zip(texts, types_, strict=True)
        )
        return f"{_OPERATORS[function]}({left}, {right})"
    if function == "abs":
        if pa.types.is_integer(result):
            minimum = _widened(str(-(1 << result.bit_width - 1)) if result.bit_width < 64 else _LEAST_LONG, None, result)
            return f"(CASE WHEN {texts[0]} <> {minimum} THEN abs({texts[0]}) END)"
        return f"abs({texts[0]})"
    return _spark_function(function, texts, types_)


def _spark_argument(argument: ColumnRef | Literal | FunctionCall) -> str:
    if isinstance(argument, Literal):
        value = stored_value(pa.scalar(argument.value, argument.type))
        return _spark_literal(value, argument.type)
    return spark_expression(argument) if isinstance(argument, FunctionCall) else _spark_column(argument.name)


_OPERATORS = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}


def _widened(text: str, source: pa.DataType | None, target: pa.DataType) -> str:
    """Cast a value to a wider type."""
    if source == target:
        return text
    types = pa.types
    names = {pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT", pa.float32(): "FLOAT"}
    name = f"DECIMAL({target.precision}, {target.scale})" if types.is_decimal(target) else names.get(target, "DOUBLE")
    return text if types.is_string(target) else f"CAST({text} AS {name})"


def _spark_function(function: str, texts: list[str], types_: Sequence[pa.DataType]) -> str:
    value, kind, arguments = texts[0], types_[0], texts[1:]
    if function in _OF_DAYS:
        return f"{function}({_days(value, kind)})"
    if function in _OF_TIMES:
        return _time_of_day(function, value, kind)
    if function in ("date_add", "date_sub"):
        return f"{function}({_days(value, kind)}, {arguments[0]})"
    if function == "date_format":
        return _formatted(value, kind, arguments[0])
    if function == "from_unixtime":
        # Seconds that overflow microseconds are not a time.
        limit = ((1 << 63) - 1) // _SECOND
        timestamp = f"(CASE WHEN {value} BETWEEN -{limit}L AND {limit}L THEN timestamp_seconds({value}) END)"
        return _formatted(timestamp, _ZONED, arguments[0] if arguments else "'yyyy-MM-dd HH:mm:ss'")
    if function == "unix_timestamp":
        return f"({_micros(value, kind, arguments, 'yyyy-MM-dd HH:mm:ss')} div {_SECOND}L)"
    if function == "cast bigint" and _is_time(kind):
        return f"({_floored(f'unix_micros({value})', _SECOND)} div {_SECOND}L)"
    if function in ("to_date", "cast date"):
        if _is_text(kind):
            timestamp = f"try_to_timestamp({value}, {arguments[0]})" if arguments else value
            return f"try_cast({timestamp} AS DATE)"
        return _days(value, kind)
    if function in ("to_timestamp", "cast timestamp"):
        return value if pa.types.is_timestamp(kind) else f"timestamp_micros({_micros(value, kind, arguments, None)})"
    if function.startswith("cast "):
        return f"try_cast({value} AS {function.removeprefix('cast ').upper()})"
    return f"{function}({', '.join(texts)})"


_OF_DAYS = ("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear")
_OF_TIMES = {"hour": (_DAY, _HOUR), "minute": (_HOUR, _MINUTE), "second": (_MINUTE, _SECOND)}
_ZONED = pa.timestamp("us", "UTC")


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


def _time_of_day(function: str, value: str, kind: pa.DataType) -> str:
    if not _is_time(kind):
        return f"{function}(CAST({value} AS TIMESTAMP_NTZ))"
    around, unit = _OF_TIMES[function]
    return f"CAST(pmod(unix_micros({value}), {around}L) div {unit}L AS INT)"


def _formatted(value: str, kind: pa.DataType, pattern: str) -> str:
    zoned = _is_time(kind)
    option = "timestampFormat" if zoned else "timestampNTZFormat"
    timestamp = value if zoned else f"CAST({value} AS TIMESTAMP_NTZ)"
    options = f"map('{option}', {pattern}, 'timeZone', 'UTC')"
    return f"get_json_object(to_json(named_struct('t', {timestamp}), {options}), '$.t')"


def _micros(value: str, kind: pa.DataType, pattern: list[str], otherwise: str | None) -> str:
    """Convert a string, date or timestamp to microseconds since the epoch."""
    if _is_text(kind):
        options = f"map('timestampFormat', {pattern[0] if pattern else _spark_text(otherwise or '')}, 'timeZone', 'UTC')"
        return f"unix_micros(from_json(to_json(named_struct('t', {value})), 't TIMESTAMP', {options}).t)"
    if pa.types.is_date32(kind):
        return f"(CAST(unix_date({value}) AS BIGINT) * {_DAY}L)"
    if not _is_time(kind):
        # The wall clock difference to the epoch is the same in every time zone.
        days, time = f"CAST({value} AS DATE)", f"date_trunc('DAY', {value})"
        return f"(CAST(unix_date({days}) AS BIGINT) * {_DAY}L + timestampdiff(MICROSECOND, {time}, {value}))"
    return f"unix_micros({value})"
