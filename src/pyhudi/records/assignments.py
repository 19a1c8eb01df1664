"""Assignments: what an update or a merge puts into columns of the table.

    text        a literal as filters write it (`'done'`, `1.5`, `DATE '2024-05-06'`, `NULL`), or a column of the rows beside
                which it stands (`fare`, `source.fare`)
    others      values of Python, as they are

A literal becomes a value of its column's type exactly, or is refused.  What is not done: functions, arithmetic, fields inside of
a struct.
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
from pyhudi.records.schema_cast import conform, refuse_rounding


@dataclass(frozen=True, slots=True)
class Assignment:
    """One column of the table and what it gets: the values of a column beside it, or one value in every row."""

    column: str
    value: ColumnRef | pa.Scalar

    def values(self, other_rows: pa.Table) -> pa.Array:
        """The values for each of the rows."""
        if isinstance(self.value, ColumnRef):
            found = column_at(other_rows, self.value.name)
            return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
        return pa.repeat(self.value, other_rows.num_rows)


def parse_assignments(values: Any, table: pa.Schema, other_schema: pa.Schema) -> tuple[Assignment, ...]:
    """What a caller assigns.  table: the columns that may be assigned; beside: those that may be copied.

    Raises InvalidRequest for columns that are not there and for values that a column cannot hold, Unsupported for other
    expressions than literals and columns, and for fields inside of a struct.
    """
    if not isinstance(values, Mapping) or not values:
        raise InvalidRequest(
            f"columns are assigned as a mapping of their names to values, such as {{'fare': 1.5}}, not {values!r}"
        )
    return tuple(_assignment(name, value, table, other_schema) for name, value in values.items())


def assigned_columns(assignments: tuple[Assignment, ...], other_schema: pa.Schema) -> pa.Schema:
    """The columns that are copied, under the names of those that they are assigned to."""
    copied = [(a.column, a.value.name) for a in assignments if isinstance(a.value, ColumnRef)]
    return pa.schema([field_at(other_schema, source).with_name(column) for column, source in copied])


def assign(assignments: tuple[Assignment, ...], other_rows: pa.Table, rows: pa.Table | None, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the columns of a schema: what is assigned, else what `rows` hold, else null.

    Raises InvalidRequest for values that do not fit their columns.
    """
    columns: dict[str, pa.Array] = {}
    if rows is not None:
        columns = {name: _one_array(column) for name, column in zip(rows.column_names, rows.columns, strict=True)}
    columns.update((assignment.column, assignment.values(other_rows)) for assignment in assignments)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    refuse_rounding(batch, schema)
    return conform(batch, schema)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _assignment(name: str, value: Any, table: pa.Schema, other_schema: pa.Schema) -> Assignment:
    type_ = field_at(table, name).type
    if "." in name:
        raise Unsupported(f"assigning {name!r}, a field inside of a struct: assign the whole column {name.split('.')[0]!r}")
    if isinstance(value, str):
        value = parse_value(value)
        if isinstance(value, ColumnRef):
            try:
                field_at(other_schema, value.name)
            except InvalidRequest as error:
                raise InvalidRequest(f"the value of column {name!r}: {error} (text stands in single quotes)") from error
            return Assignment(name, value)
    return Assignment(name, _literal(name, value.as_py() if isinstance(value, pa.Scalar) else value, type_))


def _literal(name: str, value: Any, type_: pa.DataType) -> pa.Scalar:
    if value is None:
        return pa.scalar(None, type_)
    package = type(value).__module__.partition(".")[0]
    if (package, type(value).__name__) in (("polars", "Expr"), ("pyarrow", "Expression")):
        raise Unsupported(f"column {name!r}: an expression of {package} is given; only a literal or a column can be: {COMPUTED}")
    problem = InvalidRequest(f"column {name!r} of type {type_} cannot hold {value!r} ({type(value).__name__})")
    if pa.types.is_nested(type_):
        raise problem
    # A comparison is bound to a column's type exactly or not at all, and so is what is put into the column.
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
    """The value as the column holds it, None where it does not."""
    if pa.types.is_floating(type_):
        number = bind_to_family(name, value, type_)
        if number == 0 and not isinstance(value, str):
            # To a comparison one zero stands for both; a column holds either.
            number = math.copysign(0.0, value)
        return number if _held(value, number) else None
    bound = bind(Compare(name, "=", value), pa.schema([pa.field(name, type_)]))
    return bound.value if isinstance(bound, Compare) else None


def _held(value: Any, bound: Any) -> bool:
    """Whether floating point holds a number: a whole one as it is, a fraction as near as it comes, and none as infinity."""
    if isinstance(value, int):
        return bool(bound == value)
    # A decimal beyond the doubles is no infinity, which `isinf` would make of it.
    return not math.isinf(bound) or isinstance(value, str) or value in (math.inf, -math.inf)
