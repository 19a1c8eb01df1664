"""Values of columns that a caller writes as literals, in the types of the columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.filters.filter_ast import ColumnRef
from pyhudi.records.filters.filter_parser import COMPUTED, parse_value
from pyhudi.records.plain_values import plain_value
from pyhudi.records.python_values import fit, python_array
from pyhudi.records.schema_cast import conform
from pyhudi.records.schema_evolution import SchemaMode, evolve, typed_nulls
from pyhudi.records.store_assignment import store_column


def parse_literal(text: str, column: pa.Field) -> pa.Scalar:
    """Parse the default of a column, a literal in filter syntax, in the type of the column.

    Raises:
        InvalidRequest: Syntax error, a column name, or a value that the column cannot store.
        Unsupported: Functions, arithmetic, subqueries and conditions.
    """
    return column_literal(column, literal_value(text))


def literal_value(text: str) -> Any:
    """Parse a literal in filter syntax, without the type of a column. Raises as `parse_literal`."""
    value = parse_value(text)
    if isinstance(value, ColumnRef):
        raise InvalidRequest(f"{text!r} is no literal (text needs single quotes)")
    return value


def column_literal(column: pa.Field, value: Any, *, exact: bool = False) -> pa.Scalar:
    """Convert a Python value to the type of its column.

    Args:
        column: The column.
        value: The value: of Python, NumPy, pandas or PyArrow.
        exact: The value must not be rounded.

    Raises:
        InvalidRequest: The column cannot store the value.
        Unsupported: An expression of Polars or pyarrow.
    """
    name, type_ = column.name, column.type
    if not isinstance(value, pa.Scalar):
        value = plain_value(value, f"column {name!r}")
    if value is None:
        return pa.scalar(None, type_)
    package = type(value).__module__.partition(".")[0]
    if (package, type(value).__name__) in (("polars", "Expr"), ("pyarrow", "Expression")):
        raise Unsupported(f"column {name!r}: a {package} expression cannot be assigned, only a literal or a column: {COMPUTED}")
    nullable = pa.field(name, type_)
    try:
        array = pa.repeat(value, 1) if isinstance(value, pa.Scalar) else pa.array(python_array(name, [value], type_))
        nested = pa.types.is_nested(type_)
        return (_nested_value(array, nullable) if nested else store_column(array, nullable, exact=exact))[0]
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
