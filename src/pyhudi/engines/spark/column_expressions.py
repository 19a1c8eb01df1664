"""Values and conditions of Spark callers (SQL text, Columns, literals) as Columns, and what can be inferred from them.

A value is cast to the type of its target column as in Spark's INSERT (`storeAssignmentPolicy=ANSI`): between numeric
types, anything to text, dates and times to each other. As in Hudi's UPDATE, a boolean becomes 1 or 0, and text becomes a
number, boolean, date or time as in ANSI mode. A value that its column cannot hold is refused, regardless of the
session's ANSI mode.

Spark defines the meaning of SQL text. Two things are parsed from it to prune files: the columns that an `on` condition
equates, and a filter that is implied by a condition. If the meaning in Spark is not certain, nothing is inferred.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from string import Formatter
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyhudi.engines.spark.jobs import REFUSAL
from pyhudi.engines.spark.type_conversion import (
    Column,
    DataFrame,
    column,
    quote_spark_name,
    to_spark_schema,
    typed_literal,
    with_names_of,
)
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.hudi_types import VARIANT_TYPE, record_type
from pyhudi.operations.changes.statement import Computed
from pyhudi.records.filters.build import join_conditions
from pyhudi.records.filters.filter_ast import And, Expr
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.pushdown import COMPARED_DIFFERENTLY, exact_filter
from pyhudi.records.plain_values import Literal, plain_value
from pyhudi.records.sql_quoting import quote_name


def expression(value: Any) -> Column:
    """Text is Spark SQL, a Column is used directly, anything else is a literal; nanoseconds are truncated."""
    if isinstance(value, Column):
        return value
    if isinstance(value, Computed):
        return F.expr(value.expression)
    if isinstance(value, str):
        return F.expr(str(plain_value(value, "a value")))
    return F.lit(plain_value(value.value if isinstance(value, Literal) else value, "a value"))


def side(alias: str | None, name: str) -> Column:
    """A column of one side of a join, or of a frame without an alias."""
    return column(name) if alias is None else F.col(f"{_quoted_part(alias)}.{_quoted_part(name)}")


def refused(bad: Column, reason: Column, value: Column) -> Column:
    """The value; if `bad` is true, the job fails with InvalidRequest and the text `reason`."""
    return F.when(bad, F.raise_error(F.concat(F.lit(REFUSAL), reason))).otherwise(value)


def message(template: str, **values: Column) -> Column:
    """A message with values of rows in the place of {name} and {name!r}; a null is the text null."""
    parts: list[Column] = []
    for text, name, _, conversion in Formatter().parse(template):
        quote = F.lit("'" if conversion == "r" else "")
        value = [] if name is None else [quote, F.coalesce(values[name].cast("string"), F.lit("null")), quote]
        parts += [F.lit(text), *value]
    return F.concat(*parts)


def stored_as(
    value: Column, input_type: T.DataType, target_type: T.DataType, name: str, *, exactly: bool = False, by_name: bool = False
) -> Column:
    """A value cast to the type of its column; see the module's docstring.

    Args:
        target_type: Type of the column.
        name: Name of the column.
        exactly: Also refuse numbers that the cast would round or truncate.
        by_name: Fields of structs are matched by name, not by position.

    Raises:
        InvalidRequest: The column does not accept the type.
    """
    if _equal_types(input_type, target_type):
        return value
    if isinstance(input_type, T.NullType):
        return value.cast(target_type)
    if isinstance(input_type, T.StringType) and _is_cast_from_text(target_type):
        parsed = F.trim(value).try_cast(target_type)
        why = F.concat(F.lit(f"column {name!r} of type {target_type.simpleString()} cannot hold "), value)
        return refused(value.isNotNull() & parsed.isNull(), why, parsed)
    if isinstance(input_type, T.BooleanType) and isinstance(target_type, T.NumericType):
        return value.cast(target_type)
    if not exactly and isinstance(target_type, (T.StructType, T.ArrayType, T.MapType)) and type(input_type) is type(target_type):
        return _nested_as(value, input_type, target_type, name, by_name=by_name)
    if not _is_storable(input_type, target_type):
        raise InvalidRequest(
            f"column {name!r} is {target_type.simpleString()} and does not accept a value of type {input_type.simpleString()}: "
            "cast it in the expression"
        )
    if not isinstance(target_type, T.NumericType):
        return value.cast(target_type)
    if exactly and isinstance(input_type, T.FloatType) and isinstance(target_type, T.DoubleType):
        # Via the shortest text, as in any other write: 0.1 as a float becomes 0.1, not 0.10000000149011612.
        return value.cast("string").cast(target_type)
    stored = value.try_cast(target_type)
    is_lossy = stored.isNull() | ~stored.try_cast(input_type).eqNullSafe(value) if exactly else stored.isNull()
    why = F.concat(F.lit(f"column {name!r} of type {target_type.simpleString()} cannot hold "), value.cast("string"))
    return refused(value.isNotNull() & is_lossy, why, stored)


def _nested_as(value: Column, input_type: T.DataType, target_type: T.DataType, name: str, *, by_name: bool) -> Column:
    """A nested value stored part by part."""
    named = with_names_of(input_type, target_type, name, by_name=by_name)
    value, stored = value.cast(named), partial(stored_as, by_name=by_name)
    if isinstance(named, T.StructType) and isinstance(target_type, T.StructType):
        parts = [
            stored(value.getField(child.name), named[child.name].dataType, child.dataType, f"{name}.{child.name}").alias(
                child.name
            )
            for child in target_type.fields
        ]
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(named, T.ArrayType) and isinstance(target_type, T.ArrayType):
        before, after = named.elementType, target_type.elementType
        return F.transform(value, lambda item: stored(item, before, after, name + "[]"))
    assert isinstance(named, T.MapType) and isinstance(target_type, T.MapType), "the types are of one kind"
    keys, values = (named.keyType, target_type.keyType), (named.valueType, target_type.valueType)
    if not _equal_types(*keys):
        value = F.transform_keys(value, lambda key, _: stored(key, *keys, name + "{key}"))
    return F.transform_values(value, lambda _, item: stored(item, *values, name + "{}"))


def _is_storable(input_type: T.DataType, target_type: T.DataType) -> bool:
    """Whether Spark stores values of one type in columns of the other."""
    if isinstance(input_type, T.NumericType) and isinstance(target_type, T.NumericType):
        return True
    if isinstance(target_type, T.StringType):
        return isinstance(input_type, T.AtomicType)
    times = (T.DateType, T.TimestampType, T.TimestampNTZType)
    return isinstance(input_type, times) and isinstance(target_type, times)


def _is_cast_from_text(target_type: T.DataType) -> bool:
    kinds = (T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType)
    return isinstance(target_type, kinds)


def _equal_types(input_type: T.DataType, target_type: T.DataType) -> bool:
    """Whether two types differ only in nullability."""
    if isinstance(input_type, T.ArrayType) and isinstance(target_type, T.ArrayType):
        return _equal_types(input_type.elementType, target_type.elementType)
    if isinstance(input_type, T.MapType) and isinstance(target_type, T.MapType):
        return _equal_types(input_type.keyType, target_type.keyType) and _equal_types(input_type.valueType, target_type.valueType)
    if isinstance(input_type, T.StructType) and isinstance(target_type, T.StructType):
        return input_type.names == target_type.names and all(
            _equal_types(left.dataType, right.dataType) for left, right in zip(input_type.fields, target_type.fields, strict=True)
        )
    return input_type == target_type


def stored_frame(
    frame: DataFrame,
    names: Sequence[str],
    columns: pa.Schema,
    fixed: Mapping[str, pa.Scalar],
    exact: Collection[str],
    *,
    by_name: bool,
) -> DataFrame:
    """Rows as a table stores them: columns of a frame, by position those of `names`, cast as in Spark's INSERT.

    Args:
        columns: Columns of the table.
        fixed: Constant values of some columns; other missing columns are null.
        exact: Columns whose values must not be rounded or truncated.
        by_name: Fields of structs are matched by name, not by position.

    Raises:
        InvalidRequest: A struct has other fields than the table's, or, when the frame is computed, a value does not fit
            its column.
        AnalysisException: A type cannot be cast.
    """
    stored_schema = to_spark_schema(pa.schema([_with_nullable_parts(field) for field in columns]))
    nullable = T.StructType([T.StructField(f.name, f.dataType, True) for f in stored_schema.fields if f.name not in fixed])
    renamed = frame.toDF(*names)
    targets = {field.name: field.dataType for field in nullable.fields}
    # `DataFrame.to` matches the fields of structs by name, and drops fields without a match.
    aligned = {
        field.name: with_names_of(field.dataType, targets[field.name], field.name, by_name=by_name)
        for field in renamed.schema.fields
    }
    casts = {f.name: column(f.name).cast(aligned[f.name]) for f in renamed.schema.fields if f.dataType != aligned[f.name]}
    casts |= {
        field.name: stored_as(column(field.name), field.dataType, targets[field.name], field.name, exactly=field.name in exact)
        for field in renamed.schema.fields
        if isinstance(field.dataType, T.NumericType) and isinstance(targets[field.name], T.NumericType)
    }
    rows = (renamed.withColumns(casts) if casts else renamed).to(nullable)
    values = {f.name: typed_literal(fixed[f.name]).cast(f.dataType) for f in stored_schema.fields if f.name in fixed}
    return rows.withColumns(values).select(*map(quote_name, columns.names)) if values else rows


def _with_nullable_parts(field: pa.Field) -> pa.Field:
    """Return a record of Hudi 1.2 with nullable parts, as SQL makes them: the write checks its values."""
    if record_type(field) is None or field.type == VARIANT_TYPE:
        return field
    return field.with_type(pa.struct([part.with_nullable(True).with_type(_nullable_parts(part.type)) for part in field.type]))


def _nullable_parts(type_: pa.DataType) -> pa.DataType:
    return pa.struct([part.with_nullable(True) for part in type_]) if pa.types.is_struct(type_) else type_


# ---------------------------------------------------------------------------------------------------------------------
# Match conditions


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """The condition of a merge.

    Attributes:
        condition: The condition as a Column.
        pairs: (column of the table, column of the source) that the condition equates.
        is_equality_only: Whether the condition consists only of these equalities.
    """

    condition: Column
    pairs: tuple[tuple[str, str], ...]
    is_equality_only: bool

    @classmethod
    def names(cls, names: tuple[str, ...], target: str, source: str) -> MatchCondition:
        """Equality of columns with the same names."""
        condition = F.lit(True)
        for name in names:
            condition = condition & (side(target, name) == side(source, name))
        return cls(condition, tuple((name, name) for name in names), True)

    @classmethod
    def text(cls, text: str, target: str, source: str) -> MatchCondition:
        """A condition over both aliases."""
        pairs: list[tuple[str, str]] = []
        parts = conjuncts(text)
        for part in parts:
            equation = _EQUATION.fullmatch(part)
            if equation is None:
                continue
            left, right = [(_plain(equation[n]).casefold(), _plain(equation[n + 1])) for n in (1, 3)]
            if (left[0], right[0]) == (target.casefold(), source.casefold()):
                pairs.append((left[1], right[1]))
            elif (right[0], left[0]) == (target.casefold(), source.casefold()):
                pairs.append((right[1], left[1]))
        return cls(F.expr(text), tuple(pairs), len(pairs) == len(parts))


_NAME = r"(`[^`]+`|[A-Za-z_]\w*)"
_EQUATION = re.compile(rf"{_NAME}\s*\.\s*{_NAME}\s*==?\s*{_NAME}\s*\.\s*{_NAME}")


def copied_column(value: Any, alias: str) -> str | None:
    """The column of a side if the value is nothing but that column."""
    text = value.expression if isinstance(value, Computed) else value
    if not isinstance(text, str):
        return None
    copy = _COPY.fullmatch(text.strip())
    return _plain(copy[2]) if copy is not None and _plain(copy[1]).casefold() == alias.casefold() else None


_COPY = re.compile(rf"{_NAME}\s*\.\s*{_NAME}")


def is_column(text: str) -> bool:
    """Return True for SQL that is nothing but the name of a column."""
    plain = _COPY.fullmatch(text.strip()) or _ONE_NAME.fullmatch(text.strip())
    return plain is not None and text.strip().upper() not in ("TRUE", "FALSE", "NULL")


_ONE_NAME = re.compile(_NAME)


def _plain(name: str) -> str:
    return name.strip("`")


def _quoted_part(name: str) -> str:
    return quote_spark_name(name) if "." not in name else "`" + name.replace("`", "``") + "`"


# ---------------------------------------------------------------------------------------------------------------------
# File pruning by conditions


def files_condition(where: Any, alias: str | None, table: pa.Schema) -> Expr | None:
    """A filter that is true for every row for which the condition is true in Spark; None if nothing can be inferred."""
    if not isinstance(where, str) or COMPARED_DIFFERENTLY.search(where):
        return None
    filters: list[Expr] = []
    for part in conjuncts(where):
        try:
            known = exact_filter(parse_filter(part), table, alias=alias)
        except (InvalidRequest, Unsupported):
            continue
        if known is not None:
            filters.append(known)
    return join_conditions(And, filters) if filters else None


def conjuncts(text: str) -> list[str]:
    """The conditions that a text joins by AND; the whole text if it cannot be split with certainty."""
    parts: list[str] = []
    depth, begin = 0, 0
    for token in _TOKEN.finditer(text):
        word = token[0].upper()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word.startswith(("--", "/*")) or (depth == 0 and word in _NOT_BETWEEN_ANDS):
            return [text.strip()]
        if depth == 0 and word == "AND":
            parts.append(text[begin : token.start()].strip())
            begin = token.end()
    return [*parts, text[begin:].strip()]


_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\w+|--|/\*|\|\||.", re.DOTALL)
_NOT_BETWEEN_ANDS = frozenset({"OR", "||", "CASE", "BETWEEN", "\\"})
"""With these, the text between two ANDs need not be a condition of its own."""
