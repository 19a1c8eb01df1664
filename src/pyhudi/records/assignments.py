"""Assignments of updates and merges: the value that each column gets.

    string      a literal in filter syntax (`'done'`, `1.5`, `DATE '2024-05-06'`, `NULL`), or a column of the source
                rows (`fare`, `source.fare`)
    others      Python values

A literal is converted to its column's type exactly, or rejected. Not supported: functions, arithmetic, fields of structs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.dotted_columns import column_at, field_at
from pyhudi.records.filters.arrow_expressions import arrow_scalar
from pyhudi.records.filters.binding import bind, bind_to_family
from pyhudi.records.filters.filter_ast import ColumnRef, Compare
from pyhudi.records.filters.filter_parser import COMPUTED, parse_value
from pyhudi.records.record_merge import combine_to_array
from pyhudi.records.schema_cast import conform, refuse_rounding
from pyhudi.records.timestamp_coercion import check_literal_nanoseconds


@dataclass(frozen=True, slots=True)
class Assignment:
    """One column of the table and its new value: a column of the source rows, or one value for every row.

    Attributes:
        column: Column of the table.
        value: Column of the source rows, or a value.
    """

    column: str
    value: ColumnRef | pa.Scalar

    def values(self, other_rows: pa.Table) -> pa.Array:
        """Return the value for each row."""
        if isinstance(self.value, ColumnRef):
            source_column = column_at(other_rows, self.value.name)
            return source_column.combine_chunks() if source_column.num_chunks != 1 else source_column.chunk(0)
        return pa.repeat(self.value, other_rows.num_rows)


def parse_assignments(
    values: Any, table: pa.Schema, other_schema: pa.Schema, *, truncate_nanoseconds: bool = False
) -> tuple[Assignment, ...]:
    """Parse the caller's assignments.

    Args:
        values: Mapping of column names to values.
        table: Columns that may be assigned.
        other_schema: Columns that may be copied.
        truncate_nanoseconds: Truncate timestamps to microseconds; rejected otherwise.

    Raises:
        InvalidRequest: A missing column, or a value that a column cannot store.
        Unsupported: Other expressions than literals and columns, and fields of a struct.
    """
    if not isinstance(values, Mapping) or not values:
        raise InvalidRequest(f"assignments must be a mapping of column names to values, such as {{'fare': 1.5}}, not {values!r}")
    if not truncate_nanoseconds:
        for name, value in values.items():
            check_literal_nanoseconds(value, name)
    return tuple(_assignment(name, value, table, other_schema) for name, value in values.items())


def parse_literal(text: str, column: pa.Field) -> pa.Scalar:
    """Parse the default of a column, a literal in filter syntax, in the type of the column.

    Raises:
        InvalidRequest: Syntax error, a column name, or a value that the column cannot store.
        Unsupported: Functions, arithmetic, subqueries and conditions.
    """
    return _literal(column.name, literal_value(text), column.type)


def literal_value(text: str) -> Any:
    """Parse a literal in filter syntax, without the type of a column. Raises as `parse_literal`."""
    value = parse_value(text)
    if isinstance(value, ColumnRef):
        raise InvalidRequest(f"{text!r} is no literal (text needs single quotes)")
    return value


def assigned_columns(assignments: tuple[Assignment, ...], other_schema: pa.Schema) -> pa.Schema:
    """Return the fields of the copied columns, under the names of the columns they are assigned to."""
    copied = [(a.column, a.value.name) for a in assignments if isinstance(a.value, ColumnRef)]
    return pa.schema([field_at(other_schema, source).with_name(column) for column, source in copied])


def assign(assignments: tuple[Assignment, ...], other_rows: pa.Table, rows: pa.Table | None, schema: pa.Schema) -> pa.RecordBatch:
    """Build rows in the columns of a schema: assigned values, else values of `rows`, else null.

    Raises:
        InvalidRequest: A value does not fit its column.
    """
    columns: dict[str, pa.Array] = {}
    if rows is not None:
        columns = {name: combine_to_array(column) for name, column in zip(rows.column_names, rows.columns, strict=True)}
    columns.update((assignment.column, assignment.values(other_rows)) for assignment in assignments)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    refuse_rounding(batch, schema)
    return conform(batch, schema)


def _assignment(name: str, value: Any, table: pa.Schema, other_schema: pa.Schema) -> Assignment:
    type_ = field_at(table, name).type
    if "." in name:
        raise Unsupported(f"cannot assign {name!r}, a field of a struct: assign the whole column {name.split('.')[0]!r}")
    if isinstance(value, str):
        value = parse_value(value)
        if isinstance(value, ColumnRef):
            try:
                field_at(other_schema, value.name)
            except InvalidRequest as error:
                raise InvalidRequest(f"the value of column {name!r}: {error} (string literals need single quotes)") from error
            return Assignment(name, value)
    return Assignment(name, _literal(name, _python_value(value), type_))


def _python_value(value: Any) -> Any:
    if isinstance(value, pa.Scalar) and pa.types.is_timestamp(value.type):
        return value.cast(pa.timestamp("us", value.type.tz), safe=False).as_py()
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _literal(name: str, value: Any, type_: pa.DataType) -> pa.Scalar:
    if value is None:
        return pa.scalar(None, type_)
    package = type(value).__module__.partition(".")[0]
    if (package, type(value).__name__) in (("polars", "Expr"), ("pyarrow", "Expression")):
        raise Unsupported(f"column {name!r}: a {package} expression cannot be assigned, only a literal or a column: {COMPUTED}")
    problem = InvalidRequest(f"column {name!r} of type {type_} cannot hold {value!r} ({type(value).__name__})")
    if pa.types.is_nested(type_):
        raise problem
    # A comparison is bound to a column's type exactly or not at all; assigned values follow the same rule.
    try:
        bound = _bound(name, value, type_)
    except InvalidRequest as error:
        raise problem from error
    if bound is None:
        raise problem
    try:
        return arrow_scalar(bound, type_)
    except pa.ArrowException as error:
        raise problem from error


def _bound(name: str, value: Any, type_: pa.DataType) -> Any:
    """Return the value in the column's type; None if it cannot be represented."""
    if pa.types.is_floating(type_):
        number = bind_to_family(name, value, type_)
        if number == 0 and not isinstance(value, str):
            # A comparison does not distinguish the zeros; a column does.
            number = math.copysign(0.0, value)
        return number if _is_representable(value, number) else None
    bound = bind(Compare(name, "=", value), pa.schema([pa.field(name, type_)]))
    return bound.value if isinstance(bound, Compare) else None


def _is_representable(value: Any, bound: Any) -> bool:
    """Return True if floating point represents a number: an integer exactly, a fraction rounded, and none as infinity."""
    if isinstance(value, int):
        return bool(bound == value)
    # `isinf` would convert a decimal beyond the range of doubles to infinity.
    return not math.isinf(bound) or isinstance(value, str) or value in (math.inf, -math.inf)
