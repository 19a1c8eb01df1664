"""Changes of columns by id: the effect of `ALTER TABLE` on a schema with column ids.

A column is identified by its dotted path: `fare`, `address.city`, `stops.element.name` in a list of structs,
`prices.value.net` in a map. Of the entries of lists and maps themselves (`stops.element`), only the type can be changed.

    add       new ids after the highest assigned id, those of nested fields after the column's own; always nullable,
              placed after its siblings or one of them, or first in its struct
    drop      its id is never assigned again
    rename    the same id with another name, at the same level
    retype    the same id with another plain type, if Hudi has a cast from the old one
    move      the same columns in another order
    comment   the description of a column
    nulls     a column that may not be null becomes nullable

The caller checks whether a column is a key, partition, ordering or other column that must not change.

Source: docs/formats/reading.md, "Columns by ids".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TypeAlias

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.avro_to_arrow import COMMENT
from pyhudi.format.meta_columns import is_meta_field
from pyhudi.format.schema_history import ArrayType, ColumnType, MapType, SchemaField, StructType, VersionedSchema
from pyhudi.records.schema_on_read.column_ids import (
    ELEMENT,
    KEY,
    VALUE,
    assign_new_columns,
    is_promotion_allowed,
    type_from_name,
    type_name,
)
from pyhudi.records.type_normalization import normalize_types


@dataclass(frozen=True, slots=True)
class Add:
    """Add a column.

    Attributes:
        path: Dotted path.
        type: Type of the column.
        comment: Description.
        after: Sibling to place it after; None for the last position.
        first: Place it first in its struct.
    """

    path: str
    type: pa.DataType
    comment: str | None = None
    after: str | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop a column with all its fields."""

    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Rename a column.

    Attributes:
        path: Dotted path.
        name: New name, without the path of the parent.
    """

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Retype:
    """Change the type of a column."""

    path: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Move:
    """Move a column after a sibling; to the first position of its struct if `after` is None."""

    path: str
    after: str | None


@dataclass(frozen=True, slots=True)
class Comment:
    """Set the description of a column; None removes it."""

    path: str
    text: str | None


@dataclass(frozen=True, slots=True)
class AllowNulls:
    """Make a column nullable."""

    path: str


ColumnChange: TypeAlias = Add | Drop | Rename | Retype | Move | Comment | AllowNulls


@dataclass(frozen=True, slots=True)
class ChangedColumns:
    """Columns after a change.

    Attributes:
        schema: Schema with ids.
        arrow: The same columns, with the types that files are written with.
    """

    schema: VersionedSchema
    arrow: pa.Schema


def changed_columns(stored_schema: VersionedSchema, arrow: pa.Schema, change: ColumnChange, version_id: int) -> ChangedColumns:
    """Apply a change to a schema.

    Args:
        stored_schema: Schema with ids and meta columns; its max_column_id is the highest assigned id.
        arrow: The same columns in the same order.
        change: Change to apply.
        version_id: Version of the new schema.

    Raises:
        InvalidRequest: The change has no effect or is not allowed.
        Unsupported: Hudi or PyHudi does not support the change.
    """
    types = dict(_plain_types(stored_schema.columns, list(arrow)))
    highest = stored_schema.max_column_id
    if isinstance(change, Add):
        field = normalize_types(pa.schema([pa.field(change.path.rpartition(".")[2], change.type)])).field(0)
        (column,), highest = assign_new_columns([field], highest + 1)
        types |= dict(_plain_types([column], [field]))
        column = replace(column, doc=change.comment)
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _with_new(siblings, column, change))
    elif isinstance(change, Drop):
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _without(siblings, name, change.path))
    elif isinstance(change, Rename):
        normalize_types(pa.schema([pa.field(change.name, pa.string())]))
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _renamed(siblings, name, change))
    elif isinstance(change, Retype):
        type_ = normalize_types(pa.schema([pa.field("value", change.type)])).field(0).type
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _retyped(siblings, name, type_, change.path))
        types = {**types, _find_path(columns, change.path).column_id: type_}
    elif isinstance(change, Move):
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _moved(siblings, name, change))
    elif isinstance(change, AllowNulls):
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _nullable(siblings, name, change.path))
    else:
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _commented(siblings, name, change.text))
    if columns == stored_schema.columns:
        raise InvalidRequest(f"column {change.path!r} already has this definition: nothing would change")
    fields = [_arrow_field(column, types) for column in columns]
    return ChangedColumns(VersionedSchema(version_id, highest, columns), pa.schema(fields))


_Edit = Callable[[tuple[SchemaField, ...], str], tuple[SchemaField, ...]]


def _edited(columns: Sequence[SchemaField], path: str, edit: _Edit) -> tuple[SchemaField, ...]:
    """Apply an edit to the sibling columns that contain the last part of a path."""
    first, *rest = path.split(".")
    if is_meta_field(first):
        raise InvalidRequest(f"column {path!r} is a meta column and cannot be changed")
    return _edited_columns(tuple(columns), (first, *rest), edit, path)


def _edited_columns(columns: tuple[SchemaField, ...], parts: tuple[str, ...], edit: _Edit, path: str) -> tuple[SchemaField, ...]:
    if len(parts) == 1:
        edited = edit(columns, parts[0])
        if all(is_meta_field(column.name) for column in edited):
            raise InvalidRequest(f"column {path!r} is the last column of its parent: drop the parent")
        return edited
    parent = _find(columns, parts[0], path)
    edited_parent = replace(parent, type=_edited_type(parent.type, parts[1:], edit, path))
    return tuple(edited_parent if column is parent else column for column in columns)


def _edited_type(type_: ColumnType, parts: tuple[str, ...], edit: _Edit, path: str) -> ColumnType:
    if isinstance(type_, StructType):
        return StructType(_edited_columns(type_.columns, parts, edit, path))
    entry = ELEMENT if isinstance(type_, ArrayType) else VALUE if isinstance(type_, MapType) else None
    if entry is None:
        raise InvalidRequest(f"column {path!r}: the column before {parts[0]!r} has no fields")
    if isinstance(type_, MapType) and parts[0] == KEY:
        raise InvalidRequest(f"column {path!r}: the keys of a map cannot be changed")
    if parts[0] != entry:
        raise InvalidRequest(f"column {path!r}: the entries of this column are named {entry!r}, not {parts[0]!r}")
    if isinstance(type_, ArrayType):
        entries = SchemaField(type_.element_id, ELEMENT, type_.element_optional, type_.element)
        return replace(type_, element=_edited_entries(entries, parts, edit, path))
    assert isinstance(type_, MapType), "it has entries, and is no list"
    entries = SchemaField(type_.value_id, VALUE, type_.value_optional, type_.value)
    return replace(type_, value=_edited_entries(entries, parts, edit, path))


def _edited_entries(entries: SchemaField, parts: tuple[str, ...], edit: _Edit, path: str) -> ColumnType:
    """Apply an edit to the entries of a list or map, or below them; return their type."""
    if len(parts) > 1:
        return _edited_type(entries.type, parts[1:], edit, path)
    edited = edit((entries,), parts[0])
    if not edited or edited != tuple(replace(entries, type=column.type) for column in edited):
        raise Unsupported(f"column {path!r}: of the entries of lists and maps only the type can be changed, and their fields")
    return edited[0].type


def _find(columns: Sequence[SchemaField], name: str, path: str) -> SchemaField:
    for column in columns:
        if column.name == name:
            return column
    known = [column.name for column in columns if not is_meta_field(column.name)]
    suggestions = [other for other in known if other.lower() == name.lower()] or get_close_matches(name, known, 1)
    hint = f"did you mean {suggestions[0]!r}?" if suggestions else f"there are: {', '.join(known)}"
    raise InvalidRequest(f"there is no column {path!r}; {hint}")


def _find_path(columns: Sequence[SchemaField], path: str) -> SchemaField:
    columns_found: list[SchemaField] = []

    def look(siblings: tuple[SchemaField, ...], name: str) -> tuple[SchemaField, ...]:
        columns_found.append(_find(siblings, name, path))
        return siblings

    _edited(columns, path, look)
    return columns_found[0]


def _check_free(columns: Iterable[SchemaField], name: str, path: str) -> None:
    """Check that the name is unused; SQL ignores case."""
    same_names = [column.name for column in columns if column.name.lower() == name.lower()]
    if same_names:
        raise InvalidRequest(f"column {path!r}: there is a column {same_names[0]!r} already")
    if is_meta_field(name):
        raise InvalidRequest(f"column {path!r}: {name} is reserved for a meta column")


def _with_new(siblings: tuple[SchemaField, ...], column: SchemaField, change: Add) -> tuple[SchemaField, ...]:
    _check_free(siblings, column.name, change.path)
    if change.first and ("." not in change.path or change.after is not None):
        raise _first_position(change.path) if change.after is None else InvalidRequest("set either `first` or `after`")
    last = 0 if change.first else len(siblings)
    position = last if change.after is None else _place_after(siblings, change.after, change.path)
    return (*siblings[:position], column, *siblings[position:])


def _without(siblings: tuple[SchemaField, ...], name: str, path: str) -> tuple[SchemaField, ...]:
    dropped = _find(siblings, name, path)
    return tuple(column for column in siblings if column is not dropped)


def _renamed(siblings: tuple[SchemaField, ...], name: str, change: Rename) -> tuple[SchemaField, ...]:
    renamed = _find(siblings, name, change.path)
    _check_free((column for column in siblings if column is not renamed), change.name, change.path)
    return tuple(replace(column, name=change.name) if column is renamed else column for column in siblings)


def _retyped(siblings: tuple[SchemaField, ...], name: str, type_: pa.DataType, path: str) -> tuple[SchemaField, ...]:
    column_ = _find(siblings, name, path)
    if not isinstance(column_.type, str) or pa.types.is_nested(type_):
        raise InvalidRequest(f"column {path!r}: the type of a struct, list or map cannot be changed; change its fields")
    word = type_name(type_)
    if column_.type != word and not is_promotion_allowed(column_.type, word):
        raise InvalidRequest(
            f"column {path!r} of type {column_.type} cannot be changed to {word}: integers and floating point can be widened, or "
            "changed to decimals or strings; decimals and dates to strings; strings to dates, decimals or bytes; bytes to strings"
        )
    return tuple(replace(column, type=word) if column is column_ else column for column in siblings)


def _moved(siblings: tuple[SchemaField, ...], name: str, change: Move) -> tuple[SchemaField, ...]:
    moved_column = _find(siblings, name, change.path)
    if change.after is None and "." not in change.path:
        raise _first_position(change.path)
    others = tuple(column for column in siblings if column is not moved_column)
    position = 0 if change.after is None else _place_after(others, change.after, change.path)
    return (*others[:position], moved_column, *others[position:])


def _first_position(path: str) -> Unsupported:
    return Unsupported(f"column {path!r} at the first position of the table is not supported, as in Hudi: set `after`")


def _place_after(siblings: tuple[SchemaField, ...], after: str, path: str) -> int:
    if is_meta_field(after):
        raise InvalidRequest(f"column {path!r} cannot be placed after {after}, a meta column")
    return siblings.index(_find(siblings, after, after)) + 1


def _commented(siblings: tuple[SchemaField, ...], name: str, text: str | None) -> tuple[SchemaField, ...]:
    column_ = _find(siblings, name, name)
    return tuple(replace(column, doc=text) if column is column_ else column for column in siblings)


def _nullable(siblings: tuple[SchemaField, ...], name: str, path: str) -> tuple[SchemaField, ...]:
    column_ = _find(siblings, name, path)
    return tuple(replace(column, optional=True) if column is column_ else column for column in siblings)


# The same columns in Arrow


def arrow_from_ids(schema: VersionedSchema) -> pa.Schema:
    """Convert a schema with ids to Arrow, meta columns included, if there is no other source of its types.

    Raises:
        Unsupported: An ambiguous type name.
    """
    types = {column_id: type_from_name(word) for column_id, word in _type_names(StructType(schema.columns), 0)}
    return pa.schema([_arrow_field(column, types) for column in schema.columns])


def _type_names(stored_type: ColumnType, column_id: int) -> Iterable[tuple[int, str]]:
    if isinstance(stored_type, StructType):
        for column in stored_type.columns:
            yield from _type_names(column.type, column.column_id)
    elif isinstance(stored_type, ArrayType):
        yield from _type_names(stored_type.element, stored_type.element_id)
    elif isinstance(stored_type, MapType):
        yield from _type_names(stored_type.value, stored_type.value_id)
    else:
        yield column_id, stored_type


def _plain_types(columns: Sequence[SchemaField], fields: Sequence[pa.Field]) -> Iterable[tuple[int, pa.DataType]]:
    """Yield the Arrow types of plain columns by id; type names of a schema with ids do not determine all of them."""
    for column, field in zip(columns, fields, strict=True):
        yield from _plain_types_of(column.column_id, column.type, field.type)


def _plain_types_of(column_id: int, stored_type: ColumnType, type_: pa.DataType) -> Iterable[tuple[int, pa.DataType]]:
    if isinstance(stored_type, StructType):
        yield from _plain_types(stored_type.columns, list(type_.fields))
    elif isinstance(stored_type, ArrayType):
        yield from _plain_types_of(stored_type.element_id, stored_type.element, type_.value_type)
    elif isinstance(stored_type, MapType):
        yield from _plain_types_of(stored_type.value_id, stored_type.value, type_.item_type)
    else:
        yield column_id, type_


def _arrow_field(column: SchemaField, types: Mapping[int, pa.DataType]) -> pa.Field:
    metadata = {COMMENT: column.doc} if column.doc else None
    return pa.field(column.name, _arrow_type(column.column_id, column.type, types), column.optional, metadata=metadata)


def _arrow_type(column_id: int, stored_type: ColumnType, types: Mapping[int, pa.DataType]) -> pa.DataType:
    if isinstance(stored_type, StructType):
        return pa.struct([_arrow_field(column, types) for column in stored_type.columns])
    if isinstance(stored_type, ArrayType):
        return pa.list_(
            pa.field("element", _arrow_type(stored_type.element_id, stored_type.element, types), stored_type.element_optional)
        )
    if isinstance(stored_type, MapType):
        value = pa.field("value", _arrow_type(stored_type.value_id, stored_type.value, types), stored_type.value_optional)
        return pa.map_(pa.field("key", pa.string(), False), value)
    return types[column_id]
