"""Columns by dotted name (`city`, `address.city`): their fields and their values."""

from __future__ import annotations

from difflib import get_close_matches
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest


def field_at(schema: pa.Schema, name: str) -> pa.Field:
    """The field of a dotted name (`city`, `address.city`); nullable when it or a struct around it is.

    Raises InvalidRequest with the nearest name when there is none, and when a part on the way is not a struct.
    """
    first, *rest = name.split(".")
    # Arrow looks names up in a table of its own: a schema may have thousands of columns, each of which is asked for by name.
    place = schema.get_field_index(first)
    if place < 0:
        raise InvalidRequest(_unknown_column(name, schema))
    found = schema.field(place)
    if not rest:
        return found
    nullable = found.nullable
    for depth, part in enumerate(rest, 1):
        if not pa.types.is_struct(found.type):
            raise InvalidRequest(f"column {'.'.join(name.split('.')[:depth])!r} is not a struct: {name!r} cannot be found in it")
        place = found.type.get_field_index(part)
        if place < 0:
            raise InvalidRequest(_unknown_column(name, schema))
        found = found.type.field(place)
        nullable = nullable or found.nullable
    return found.with_name(name).with_nullable(nullable)


@overload
def column_at(rows: pa.RecordBatch, name: str) -> pa.Array: ...
@overload
def column_at(rows: pa.Table, name: str) -> pa.ChunkedArray: ...
def column_at(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """The values of a dotted name, null where a struct on the way is; dictionaries are decoded.

    Raises InvalidRequest with the nearest name when there is no such column.
    """
    field_at(rows.schema, name)
    first, *rest = name.split(".")
    column = rows.column(rows.schema.get_field_index(first))
    if rest:
        column = pc.struct_field(column, rest)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _unknown_column(name: str, schema: pa.Schema) -> str:
    known = [dotted for field in schema for dotted in _dotted_names(field, field.name)]
    folded = [other for other in known if other.lower() == name.lower()]
    near = folded or get_close_matches(name, known, 1)
    hint = (
        f"did you mean {near[0]!r}?"
        if near
        else "the columns are " + ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    )
    return f"there is no column {name!r}; {hint}"


def _dotted_names(field: pa.Field, path: str) -> list[str]:
    below = field.type.fields if pa.types.is_struct(field.type) else []
    return [path, *(dotted for child in below for dotted in _dotted_names(child, f"{path}.{child.name}"))]
