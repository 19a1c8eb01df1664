"""Filters as conditions of Spark SQL, whatever the session's time zone is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyhudi.errors import Internal
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.tree import Always, And, Compare, Constant, Expr, In, IsNull, Like, Not, Or
from pyhudi.records.filters.walk import join_in_pairs


def to_spark_sql(expr: Expr, schema: pa.Schema) -> str:
    """A Spark SQL condition of the same meaning, for the same columns, whatever the session's time zone is."""
    return _spark(bind(expr, schema))


_LONGEST_CHAIN = 16


def _spark(expr: Expr) -> str:
    if isinstance(expr, (And, Or)):
        word = " AND " if isinstance(expr, And) else " OR "
        groups = [
            word.join(map(_spark, expr.parts[at : at + _LONGEST_CHAIN])) for at in range(0, len(expr.parts), _LONGEST_CHAIN)
        ]
        return join_in_pairs([f"({group})" for group in groups], lambda left, right: f"({left}{word}{right})")
    if isinstance(expr, Not):
        return f"(NOT {_spark(expr.part)})"
    if isinstance(expr, Constant):
        return {True: "TRUE", False: "FALSE", None: "CAST(NULL AS BOOLEAN)"}[expr.value]
    name = ".".join("`" + part.replace("`", "``") + "`" for part in expr.column.split("."))  # type: ignore[attr-defined]
    if isinstance(expr, IsNull):
        return f"({name} IS NULL)"
    if isinstance(expr, Always):
        return (
            f"(({name} IS NOT NULL) OR CAST(NULL AS BOOLEAN))"
            if expr.outcome
            else f"(({name} IS NULL) AND CAST(NULL AS BOOLEAN))"
        )
    if isinstance(expr, Compare):
        return _spark_comparison(name, expr)
    if isinstance(expr, In):
        zero = _is_zero(expr)
        values = [_spark_literal(value, expr.type) for value in expr.values if not (zero and value == 0.0)]
        values += ["NULL"] if expr.has_null else []
        listed = f"({name} IN ({', '.join(values)}))" if values else _spark(Always(expr.column, False))
        return f"({listed} OR {_spark_comparison(name, Compare(expr.column, '=', 0.0, expr.type))})" if zero else listed
    if isinstance(expr, Like):
        return f"({name} LIKE {_spark_text(expr.pattern)})"
    raise Internal(f"unknown filter node {type(expr).__name__}")


def _spark_comparison(name: str, expr: Compare) -> str:
    """Spark takes both zeros for one, but not where it asks the dictionary of a Parquet file, nor in a long IN list.

    So zeros are named as the ends of a range, each with the sign that is further out.
    """
    if expr.type is not None and pa.types.is_floating(expr.type) and expr.value == 0.0:
        low, high = (_spark_literal(zero, expr.type) for zero in (-0.0, 0.0))
        if expr.op in ("=", "<>"):
            first, word, second = (">=", "AND", "<=") if expr.op == "=" else ("<", "OR", ">")
            return f"(({name} {first} {low}) {word} ({name} {second} {high}))"
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
    return f"{value}L" if value != -(1 << 63) else "(-9223372036854775807L - 1L)"


def _spark_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
