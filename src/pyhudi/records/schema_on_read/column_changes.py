"""Changes of a table's columns that go by ids: what `ALTER TABLE` makes of a schema with ids.

A column is named by its dotted path: `fare`, `address.city`, `stops.element.name` in a list of structs, `prices.value.net` in a
map.  The entries of lists and maps themselves are not changed.

    add       new ids after the highest that was ever given, those below the column after its own; always optional, behind its
              siblings or one of them
    drop      an id that nobody gives again
    rename    the same id under another name, at the same level
    retype    the same id with another plain type, where Hudi has a cast from the old one
    move      the same columns in another order
    comment   what is said of a column

What may not be touched because records are found, placed or merged by it, is not told here.

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
from pyhudi.records.type_normalization import normalise


@dataclass(frozen=True, slots=True)
class Add:
    """A new column.  after: the sibling behind which it stands; None for the last place."""

    path: str
    type: pa.DataType
    comment: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """A column goes, with all below it."""

    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A column gets another name.  name: without the path before it."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Retype:
    """A column gets another type."""

    path: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Move:
    """A column goes behind a sibling; to the first place of its struct when None."""

    path: str
    after: str | None


@dataclass(frozen=True, slots=True)
class Comment:
    """What is said of a column; None for nothing."""

    path: str
    text: str | None


ColumnChange: TypeAlias = Add | Drop | Rename | Retype | Move | Comment


@dataclass(frozen=True, slots=True)
class ChangedColumns:
    """Columns after a change.  schema: with ids; arrow: the same, with the types that files are written with."""

    schema: VersionedSchema
    arrow: pa.Schema


def changed_columns(stored_schema: VersionedSchema, arrow: pa.Schema, change: ColumnChange, version_id: int) -> ChangedColumns:
    """The columns after a change.

    held, arrow: the same columns, in the same order, with meta columns; held.max_column_id is the highest id ever given.
    Raises InvalidRequest for a change that says nothing new or that the columns do not allow, Unsupported for one that Hudi, or
    PyHudi, does not know.
    """
    types = dict(_plain_types(stored_schema.columns, list(arrow)))
    highest = stored_schema.max_column_id
    if isinstance(change, Add):
        field = normalise(pa.schema([pa.field(change.path.rpartition(".")[2], change.type)])).field(0)
        (column,), highest = assign_new_columns([field], highest + 1)
        types |= dict(_plain_types([column], [field]))
        column = replace(column, doc=change.comment)
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _with_new(siblings, column, change))
    elif isinstance(change, Drop):
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _without(siblings, name, change.path))
    elif isinstance(change, Rename):
        normalise(pa.schema([pa.field(change.name, pa.string())]))
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _renamed(siblings, name, change))
    elif isinstance(change, Retype):
        type_ = normalise(pa.schema([pa.field("value", change.type)])).field(0).type
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _retyped(siblings, name, type_, change.path))
        types = {**types, _find_path(columns, change.path).column_id: type_}
    elif isinstance(change, Move):
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _moved(siblings, name, change))
    else:
        columns = _edited(stored_schema.columns, change.path, lambda siblings, name: _commented(siblings, name, change.text))
    if columns == stored_schema.columns:
        raise InvalidRequest(f"column {change.path!r} is so already; nothing would change")
    fields = [_arrow_field(column, types) for column in columns]
    return ChangedColumns(VersionedSchema(version_id, highest, columns), pa.schema(fields))


_Edit = Callable[[tuple[SchemaField, ...], str], tuple[SchemaField, ...]]


def _edited(columns: Sequence[SchemaField], path: str, edit: _Edit) -> tuple[SchemaField, ...]:
    """The columns, with those edited among which the last part of a path stands."""
    first, *rest = path.split(".")
    if is_meta_field(first):
        raise InvalidRequest(f"column {path!r} is one of Hudi's own, which do not change")
    return _edited_columns(tuple(columns), (first, *rest), edit, path)


def _edited_columns(columns: tuple[SchemaField, ...], parts: tuple[str, ...], edit: _Edit, path: str) -> tuple[SchemaField, ...]:
    if len(parts) == 1:
        return edit(columns, parts[0])
    found = _find(columns, parts[0], path)
    below = replace(found, type=_edited_type(found.type, parts[1:], edit, path))
    return tuple(below if column is found else column for column in columns)


def _edited_type(type_: ColumnType, parts: tuple[str, ...], edit: _Edit, path: str) -> ColumnType:
    if isinstance(type_, StructType):
        return StructType(_edited_columns(type_.columns, parts, edit, path))
    entry = ELEMENT if isinstance(type_, ArrayType) else VALUE if isinstance(type_, MapType) else None
    if entry is None:
        raise InvalidRequest(f"column {path!r}: what stands before {parts[0]!r} has nothing below it")
    if isinstance(type_, MapType) and parts[0] == KEY:
        raise InvalidRequest(f"column {path!r}: the keys of a map do not change")
    if parts[0] != entry:
        raise InvalidRequest(f"column {path!r}: the entries of this column are called {entry!r}, not {parts[0]!r}")
    if len(parts) == 1:
        raise Unsupported(f"column {path!r}: the entries of lists and maps do not change themselves, only columns below them")
    if isinstance(type_, ArrayType):
        return replace(type_, element=_edited_type(type_.element, parts[1:], edit, path))
    assert isinstance(type_, MapType), "it has entries, and is no list"
    return replace(type_, value=_edited_type(type_.value, parts[1:], edit, path))


def _find(columns: Sequence[SchemaField], name: str, path: str) -> SchemaField:
    for column in columns:
        if column.name == name:
            return column
    known = [column.name for column in columns if not is_meta_field(column.name)]
    near = [other for other in known if other.lower() == name.lower()] or get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
    raise InvalidRequest(f"there is no column {path!r}; {hint}")


def _find_path(columns: Sequence[SchemaField], path: str) -> SchemaField:
    found: list[SchemaField] = []

    def look(siblings: tuple[SchemaField, ...], name: str) -> tuple[SchemaField, ...]:
        found.append(_find(siblings, name, path))
        return siblings

    _edited(columns, path, look)
    return found[0]


def _check_free(columns: Iterable[SchemaField], name: str, path: str) -> None:
    """SQL cannot tell names apart that differ in case alone."""
    taken = [column.name for column in columns if column.name.lower() == name.lower()]
    if taken:
        raise InvalidRequest(f"column {path!r}: there is a column {taken[0]!r} already")
    if is_meta_field(name):
        raise InvalidRequest(f"column {path!r}: {name} is a name of Hudi's own")


def _with_new(siblings: tuple[SchemaField, ...], column: SchemaField, change: Add) -> tuple[SchemaField, ...]:
    _check_free(siblings, column.name, change.path)
    place = len(siblings) if change.after is None else _place_after(siblings, change.after, change.path)
    return (*siblings[:place], column, *siblings[place:])


def _without(siblings: tuple[SchemaField, ...], name: str, path: str) -> tuple[SchemaField, ...]:
    gone = _find(siblings, name, path)
    left = tuple(column for column in siblings if column is not gone)
    if all(is_meta_field(column.name) for column in left):
        raise InvalidRequest(f"column {path!r} is the last one of its kind: drop what it is a part of")
    return left


def _renamed(siblings: tuple[SchemaField, ...], name: str, change: Rename) -> tuple[SchemaField, ...]:
    found = _find(siblings, name, change.path)
    _check_free((column for column in siblings if column is not found), change.name, change.path)
    return tuple(replace(column, name=change.name) if column is found else column for column in siblings)


def _retyped(siblings: tuple[SchemaField, ...], name: str, type_: pa.DataType, path: str) -> tuple[SchemaField, ...]:
    found = _find(siblings, name, path)
    if not isinstance(found.type, str) or pa.types.is_nested(type_):
        raise InvalidRequest(f"column {path!r}: structs, lists and maps do not change their type; change the columns below them")
    word = type_name(type_)
    if found.type != word and not is_promotion_allowed(found.type, word):
        raise InvalidRequest(
            f"column {path!r} is {found.type} and cannot become {word}: whole and floating numbers become wider ones, decimals "
            "and text; decimals and dates text; text dates, decimals and bytes; bytes text"
        )
    return tuple(replace(column, type=word) if column is found else column for column in siblings)


def _moved(siblings: tuple[SchemaField, ...], name: str, change: Move) -> tuple[SchemaField, ...]:
    found = _find(siblings, name, change.path)
    if change.after is None and "." not in change.path:
        raise Unsupported(f"column {change.path!r} to the first place of the table: the real Hudi refuses it; name `after`")
    left = tuple(column for column in siblings if column is not found)
    place = 0 if change.after is None else _place_after(left, change.after, change.path)
    return (*left[:place], found, *left[place:])


def _place_after(siblings: tuple[SchemaField, ...], after: str, path: str) -> int:
    if is_meta_field(after):
        raise InvalidRequest(f"column {path!r} cannot stand behind {after}, one of Hudi's own")
    return siblings.index(_find(siblings, after, after)) + 1


def _commented(siblings: tuple[SchemaField, ...], name: str, text: str | None) -> tuple[SchemaField, ...]:
    found = _find(siblings, name, name)
    return tuple(replace(column, doc=text) if column is found else column for column in siblings)


# The same columns in Arrow


def arrow_from_ids(schema: VersionedSchema) -> pa.Schema:
    """A schema with ids in Arrow, where nothing else tells its types, with the meta columns that it has.

    Raises Unsupported for a word that stands for more than one type.
    """
    types = {column_id: type_from_name(word) for column_id, word in _words(StructType(schema.columns), 0)}
    return pa.schema([_arrow_field(column, types) for column in schema.columns])


def _words(stored_type: ColumnType, column_id: int) -> Iterable[tuple[int, str]]:
    if isinstance(stored_type, StructType):
        for column in stored_type.columns:
            yield from _words(column.type, column.column_id)
    elif isinstance(stored_type, ArrayType):
        yield from _words(stored_type.element, stored_type.element_id)
    elif isinstance(stored_type, MapType):
        yield from _words(stored_type.value, stored_type.value_id)
    else:
        yield column_id, stored_type


def _plain_types(columns: Sequence[SchemaField], fields: Sequence[pa.Field]) -> Iterable[tuple[int, pa.DataType]]:
    """The Arrow types of columns that nothing stands below, by id: words of a schema with ids do not say all of them."""
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
