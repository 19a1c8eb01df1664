"""Look up fields and values of columns by dotted name (`city`, `address.city`)."""

from __future__ import annotations

from difflib import get_close_matches
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest


def field_at(schema: pa.Schema, name: str) -> pa.Field:
    """Return the field of a dotted name (`city`, `address.city`); nullable if it or a parent struct is.

    Raises:
        InvalidRequest: No such column (names the closest match), or a parent is not a struct.
    """
    first, *rest = name.split(".")
    # Arrow has an index of names: a schema may have thousands of columns, each looked up by name.
    index = schema.get_field_index(first)
    if index < 0:
        raise InvalidRequest(_unknown_column(name, schema))
    field = schema.field(index)
    if not rest:
        return field
    nullable = field.nullable
    for depth, part in enumerate(rest, 1):
        if not pa.types.is_struct(field.type):
            raise InvalidRequest(f"column {'.'.join(name.split('.')[:depth])!r} is not a struct: {name!r} cannot be found in it")
        index = field.type.get_field_index(part)
        if index < 0:
            raise InvalidRequest(_unknown_column(name, schema))
        field = field.type.field(index)
        nullable = nullable or field.nullable
    return field.with_name(name).with_nullable(nullable)


@overload
def column_at(rows: pa.RecordBatch, name: str) -> pa.Array: ...
@overload
def column_at(rows: pa.Table, name: str) -> pa.ChunkedArray: ...
def column_at(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """Return the values of a dotted name, null where a parent struct is; dictionaries are decoded.

    Raises:
        InvalidRequest: No such column (names the closest match).
    """
    field_at(rows.schema, name)
    first, *rest = name.split(".")
    column = rows.column(rows.schema.get_field_index(first))
    if rest:
        column = pc.struct_field(column, rest)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _unknown_column(name: str, schema: pa.Schema) -> str:
    known = [dotted for field in schema for dotted in _dotted_names(field, field.name)]
    same_ignoring_case = [other for other in known if other.lower() == name.lower()]
    suggestions = same_ignoring_case or get_close_matches(name, known, 1)
    hint = (
        f"did you mean {suggestions[0]!r}?"
        if suggestions
        else "the columns are " + ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    )
    return f"there is no column {name!r}; {hint}"


def _dotted_names(field: pa.Field, path: str) -> list[str]:
    children = field.type.fields if pa.types.is_struct(field.type) else []
    return [path, *(dotted for child in children for dotted in _dotted_names(child, f"{path}.{child.name}"))]
