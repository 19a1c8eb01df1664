"""Assignments of updates and merges: the value that each column gets.

    string      a literal in filter syntax (`'done'`, `1.5`, `DATE '2024-05-06'`, `NULL`), or a column of the source
                rows (`fare`, `source.fare`)
    others      Python values

A literal is converted to its column's type exactly, or rejected. Not supported: functions, arithmetic, fields of structs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.dotted_columns import column_at, field_at
from pyhudi.records.filters.filter_ast import ColumnRef
from pyhudi.records.filters.filter_parser import COMPUTED, parse_value
from pyhudi.records.plain_values import plain_value
from pyhudi.records.python_values import fit, python_array
from pyhudi.records.record_merge import combine_to_array
from pyhudi.records.schema_cast import conform, refuse_rounding
from pyhudi.records.schema_evolution import SchemaMode, evolve, typed_nulls
from pyhudi.records.store_assignment import store_column
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
    values: Any,
    table: pa.Schema,
    other_schema: pa.Schema,
    exact: Collection[str] = (),
    *,
    truncate_nanoseconds: bool = False,
) -> tuple[Assignment, ...]:
    """Parse the caller's assignments.

    Args:
        values: Mapping of column names to values.
        table: Columns that may be assigned.
        other_schema: Columns that may be copied.
        exact: Record key, partition and ordering fields, whose values must not be rounded.
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
    return tuple(_assignment(name, value, table, other_schema, exact) for name, value in values.items())


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


def assigned_columns(assignments: tuple[Assignment, ...], other_schema: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return the copied columns that the table lacks or stores as nested types, under the names that they are assigned to.

    Values of other columns are cast to the table's types.
    """
    copied = [(a.column, a.value.name) for a in assignments if isinstance(a.value, ColumnRef)]
    known = {field.name for field in table if not pa.types.is_nested(field.type)}
    fields = [field_at(other_schema, source).with_name(column) for column, source in copied]
    return pa.schema([table.field(f.name).with_nullable(f.nullable) if f.name in known else f for f in fields])


def assign(
    assignments: tuple[Assignment, ...],
    other_rows: pa.Table,
    rows: pa.Table | None,
    schema: pa.Schema,
    exact: Collection[str],
) -> pa.RecordBatch:
    """Build rows in the columns of a schema: assigned values, else values of `rows`, else null.

    Args:
        assignments: The assigned values.
        other_rows: Rows that they are copied from.
        rows: Rows of the table; None for rows to insert.
        schema: Columns of the table.
        exact: Record key, partition and ordering fields, whose values must not be rounded.

    Raises:
        InvalidRequest: A value does not fit its column.
    """
    columns: dict[str, pa.Array] = {}
    if rows is not None:
        columns = {name: combine_to_array(column) for name, column in zip(rows.column_names, rows.columns, strict=True)}
    columns.update((assignment.column, assignment.values(other_rows)) for assignment in assignments)
    for field in schema:
        if field.name in columns and not pa.types.is_nested(field.type):
            columns[field.name] = store_column(columns[field.name], field, exact=field.name in exact)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    refuse_rounding(batch, schema)
    return conform(batch, schema)


def _assignment(name: str, value: Any, table: pa.Schema, other_schema: pa.Schema, exact: Collection[str]) -> Assignment:
    type_ = field_at(table, name).type
    if "." in name:
        raise Unsupported(f"cannot assign {name!r}, a field of a struct: assign the whole column {name.split('.')[0]!r}")
    is_text = isinstance(value, str)
    if not isinstance(value, pa.Scalar):
        value = plain_value(value, f"column {name!r}")
    if is_text:
        value = parse_value(value)
        if isinstance(value, ColumnRef):
            try:
                field_at(other_schema, value.name)
            except InvalidRequest as error:
                raise InvalidRequest(f"the value of column {name!r}: {error} (string literals need single quotes)") from error
            return Assignment(name, value)
    return Assignment(name, _literal(name, value, type_, exact=name in exact))


def _literal(name: str, value: Any, type_: pa.DataType, *, exact: bool = False) -> pa.Scalar:
    if value is None:
        return pa.scalar(None, type_)
    package = type(value).__module__.partition(".")[0]
    if (package, type(value).__name__) in (("polars", "Expr"), ("pyarrow", "Expression")):
        raise Unsupported(f"column {name!r}: a {package} expression cannot be assigned, only a literal or a column: {COMPUTED}")
    column = pa.field(name, type_)
    try:
        array = pa.repeat(value, 1) if isinstance(value, pa.Scalar) else pa.array(python_array(name, [value], type_))
        stored = _nested_value(array, column) if pa.types.is_nested(type_) else store_column(array, column, exact=exact)
        return stored[0]
    except InvalidRequest as error:
        raise InvalidRequest(
            f"column {name!r} of type {type_} cannot hold {value!r:.80} ({type(value).__name__}): {error}"
        ) from error


def _nested_value(array: pa.Array, column: pa.Field) -> pa.Array:
    """Cast a Python value to a nested type. Raises InvalidRequest for other fields than those of the type."""
    array = fit(array, column.type, column.name, may_widen=True)
    table = pa.schema([column])
    incoming = typed_nulls(pa.schema([column.with_type(array.type)]), table)
    evolve(table, incoming, SchemaMode.STRICT)
    return conform(pa.RecordBatch.from_arrays([array], [column.name]), table).column(0)
