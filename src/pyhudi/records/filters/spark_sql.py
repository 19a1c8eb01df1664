"""Convert filters to Spark SQL conditions whose meaning does not depend on the session's time zone or ANSI mode.

Spark's timestamp functions use the session's time zone. So this module generates expressions that do not depend on it:
microseconds since the epoch, days, and the JSON formats, which accept a time zone (`records.spark_functions`).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyhudi.errors import Internal
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
from pyhudi.records.filters.filter_functions import FUNCTIONS, argument_types
from pyhudi.records.filters.filter_visitor import join_in_pairs
from pyhudi.records.spark_functions import LEAST_LONG
from pyhudi.records.sql_quoting import quote_name, quote_text


def to_spark_sql(expr: Expr, schema: pa.Schema) -> str:
    """Convert a filter to an equivalent Spark SQL condition on the same columns, for any session time zone."""
    return _spark(bind(expr, schema))


_LONGEST_CHAIN = 16


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
        return f"({name} LIKE {quote_text(expr.pattern)})"
    raise Internal(f"unknown filter node {type(expr).__name__}")


def _spark_operand(operand: Operand) -> str:
    return spark_expression(operand) if isinstance(operand, FunctionCall) else _spark_column(operand)


def _spark_column(name: str) -> str:
    return ".".join(map(quote_name, name.split(".")))


def _spark_comparison(name: str, expr: Compare) -> str:
    """Convert a comparison. Spark compares zeros as equal, but not in Parquet dictionary filters, nor in long IN lists."""
    # So a zero is converted to a range, with the sign that widens it.
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
        return quote_text(value)
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return _spark_long(value) if types.is_int64(type_) else str(value)


def _spark_long(value: Any) -> str:
    # The smallest long cannot be written as a literal: its digits alone are out of range.
    return f"{value}L" if value != -(1 << 63) else LEAST_LONG


def spark_expression(call: FunctionCall) -> str:
    """Convert a bound call to a Spark SQL expression."""
    texts = [_spark_argument(argument) for argument in call.arguments]
    return FUNCTIONS[call.function].render(call.function, texts, argument_types(call), call.result_type)


def _spark_argument(argument: ColumnRef | Literal | FunctionCall) -> str:
    if isinstance(argument, Literal):
        value = stored_value(pa.scalar(argument.value, argument.type))
        return _spark_literal(value, argument.type)
    return spark_expression(argument) if isinstance(argument, FunctionCall) else _spark_column(argument.name)
