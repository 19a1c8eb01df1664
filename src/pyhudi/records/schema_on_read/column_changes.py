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
from pyhudi.format.schema_history import ArrayType, Column, ColumnType, MapType, RecordType, VersionedSchema
from pyhudi.records.schema_on_read.column_ids import ELEMENT, KEY, VALUE, may_become, new_columns, type_of_word, type_word
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


def changed_columns(held: VersionedSchema, arrow: pa.Schema, change: ColumnChange, version_id: int) -> ChangedColumns:
    """The columns after a change.

    held, arrow: the same columns, in the same order, with meta columns; held.max_column_id is the highest id ever given.
    Raises InvalidRequest for a change that says nothing new or that the columns do not allow, Unsupported for one that Hudi, or
    PyHudi, does not know.
    """
    types = dict(_plain_types(held.columns, list(arrow)))
    highest = held.max_column_id
    if isinstance(change, Add):
        field = normalise(pa.schema([pa.field(change.path.rpartition(".")[2], change.type)])).field(0)
        (column,), highest = new_columns([field], highest + 1)
        types |= dict(_plain_types([column], [field]))
        column = replace(column, doc=change.comment)
        columns = _edited(held.columns, change.path, lambda siblings, name: _with_new(siblings, column, change))
    elif isinstance(change, Drop):
        columns = _edited(held.columns, change.path, lambda siblings, name: _without(siblings, name, change.path))
    elif isinstance(change, Rename):
        normalise(pa.schema([pa.field(change.name, pa.string())]))
        columns = _edited(held.columns, change.path, lambda siblings, name: _renamed(siblings, name, change))
    elif isinstance(change, Retype):
        type_ = normalise(pa.schema([pa.field("value", change.type)])).field(0).type
        columns = _edited(held.columns, change.path, lambda siblings, name: _retyped(siblings, name, type_, change.path))
        types = {**types, _find_path(columns, change.path).column_id: type_}
    elif isinstance(change, Move):
        columns = _edited(held.columns, change.path, lambda siblings, name: _moved(siblings, name, change))
    else:
        columns = _edited(held.columns, change.path, lambda siblings, name: _commented(siblings, name, change.text))
    if columns == held.columns:
        raise InvalidRequest(f"column {change.path!r} is so already; nothing would change")
    fields = [_arrow_field(column, types) for column in columns]
    return ChangedColumns(VersionedSchema(version_id, highest, columns), pa.schema(fields))


_Edit = Callable[[tuple[Column, ...], str], tuple[Column, ...]]


def _edited(columns: Sequence[Column], path: str, edit: _Edit) -> tuple[Column, ...]:
    """The columns, with those edited among which the last part of a path stands."""
    first, *rest = path.split(".")
    if is_meta_field(first):
        raise InvalidRequest(f"column {path!r} is one of Hudi's own, which do not change")
    return _edited_columns(tuple(columns), (first, *rest), edit, path)


def _edited_columns(columns: tuple[Column, ...], parts: tuple[str, ...], edit: _Edit, path: str) -> tuple[Column, ...]:
    if len(parts) == 1:
        return edit(columns, parts[0])
    found = _find(columns, parts[0], path)
    below = replace(found, type=_edited_type(found.type, parts[1:], edit, path))
    return tuple(below if column is found else column for column in columns)


def _edited_type(type_: ColumnType, parts: tuple[str, ...], edit: _Edit, path: str) -> ColumnType:
    if isinstance(type_, RecordType):
        return RecordType(_edited_columns(type_.columns, parts, edit, path))
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


def _find(columns: Sequence[Column], name: str, path: str) -> Column:
    for column in columns:
        if column.name == name:
            return column
    known = [column.name for column in columns if not is_meta_field(column.name)]
    near = [other for other in known if other.lower() == name.lower()] or get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
    raise InvalidRequest(f"there is no column {path!r}; {hint}")


def _find_path(columns: Sequence[Column], path: str) -> Column:
    found: list[Column] = []

    def look(siblings: tuple[Column, ...], name: str) -> tuple[Column, ...]:
        found.append(_find(siblings, name, path))
        return siblings

    _edited(columns, path, look)
    return found[0]


def _check_free(columns: Iterable[Column], name: str, path: str) -> None:
    """SQL cannot tell names apart that differ in case alone."""
    taken = [column.name for column in columns if column.name.lower() == name.lower()]
    if taken:
        raise InvalidRequest(f"column {path!r}: there is a column {taken[0]!r} already")
    if is_meta_field(name):
        raise InvalidRequest(f"column {path!r}: {name} is a name of Hudi's own")


def _with_new(siblings: tuple[Column, ...], column: Column, change: Add) -> tuple[Column, ...]:
    _check_free(siblings, column.name, change.path)
    place = len(siblings) if change.after is None else _place_after(siblings, change.after, change.path)
    return (*siblings[:place], column, *siblings[place:])


def _without(siblings: tuple[Column, ...], name: str, path: str) -> tuple[Column, ...]:
    gone = _find(siblings, name, path)
    left = tuple(column for column in siblings if column is not gone)
    if all(is_meta_field(column.name) for column in left):
        raise InvalidRequest(f"column {path!r} is the last one of its kind: drop what it is a part of")
    return left


def _renamed(siblings: tuple[Column, ...], name: str, change: Rename) -> tuple[Column, ...]:
    found = _find(siblings, name, change.path)
    _check_free((column for column in siblings if column is not found), change.name, change.path)
    return tuple(replace(column, name=change.name) if column is found else column for column in siblings)


def _retyped(siblings: tuple[Column, ...], name: str, type_: pa.DataType, path: str) -> tuple[Column, ...]:
    found = _find(siblings, name, path)
    if not isinstance(found.type, str) or pa.types.is_nested(type_):
        raise InvalidRequest(f"column {path!r}: structs, lists and maps do not change their type; change the columns below them")
    word = type_word(type_)
    if found.type != word and not may_become(found.type, word):
        raise InvalidRequest(
            f"column {path!r} is {found.type} and cannot become {word}: whole and floating numbers become wider ones, decimals "
            "and text; decimals and dates text; text dates, decimals and bytes; bytes text"
        )
    return tuple(replace(column, type=word) if column is found else column for column in siblings)


def _moved(siblings: tuple[Column, ...], name: str, change: Move) -> tuple[Column, ...]:
    found = _find(siblings, name, change.path)
    if change.after is None and "." not in change.path:
        raise Unsupported(f"column {change.path!r} to the first place of the table: the real Hudi refuses it; name `after`")
    left = tuple(column for column in siblings if column is not found)
    place = 0 if change.after is None else _place_after(left, change.after, change.path)
    return (*left[:place], found, *left[place:])


def _place_after(siblings: tuple[Column, ...], after: str, path: str) -> int:
    if is_meta_field(after):
        raise InvalidRequest(f"column {path!r} cannot stand behind {after}, one of Hudi's own")
    return siblings.index(_find(siblings, after, after)) + 1


def _commented(siblings: tuple[Column, ...], name: str, text: str | None) -> tuple[Column, ...]:
    found = _find(siblings, name, name)
    return tuple(replace(column, doc=text) if column is found else column for column in siblings)


# The same columns in Arrow


def arrow_of(schema: VersionedSchema) -> pa.Schema:
    """A schema with ids in Arrow, where nothing else tells its types, with the meta columns that it has.

    Raises Unsupported for a word that stands for more than one type.
    """
    types = {column_id: type_of_word(word) for column_id, word in _words(RecordType(schema.columns), 0)}
    return pa.schema([_arrow_field(column, types) for column in schema.columns])


def _words(held: ColumnType, column_id: int) -> Iterable[tuple[int, str]]:
    if isinstance(held, RecordType):
        for column in held.columns:
            yield from _words(column.type, column.column_id)
    elif isinstance(held, ArrayType):
        yield from _words(held.element, held.element_id)
    elif isinstance(held, MapType):
        yield from _words(held.value, held.value_id)
    else:
        yield column_id, held


def _plain_types(columns: Sequence[Column], fields: Sequence[pa.Field]) -> Iterable[tuple[int, pa.DataType]]:
    """The Arrow types of columns that nothing stands below, by id: words of a schema with ids do not say all of them."""
    for column, field in zip(columns, fields, strict=True):
        yield from _plain_types_of(column.column_id, column.type, field.type)


def _plain_types_of(column_id: int, held: ColumnType, type_: pa.DataType) -> Iterable[tuple[int, pa.DataType]]:
    if isinstance(held, RecordType):
        yield from _plain_types(held.columns, list(type_.fields))
    elif isinstance(held, ArrayType):
        yield from _plain_types_of(held.element_id, held.element, type_.value_type)
    elif isinstance(held, MapType):
        yield from _plain_types_of(held.value_id, held.value, type_.item_type)
    else:
        yield column_id, type_


def _arrow_field(column: Column, types: Mapping[int, pa.DataType]) -> pa.Field:
    metadata = {COMMENT: column.doc} if column.doc else None
    return pa.field(column.name, _arrow_type(column.column_id, column.type, types), column.optional, metadata=metadata)


def _arrow_type(column_id: int, held: ColumnType, types: Mapping[int, pa.DataType]) -> pa.DataType:
    if isinstance(held, RecordType):
        return pa.struct([_arrow_field(column, types) for column in held.columns])
    if isinstance(held, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(held.element_id, held.element, types), held.element_optional))
    if isinstance(held, MapType):
        value = pa.field("value", _arrow_type(held.value_id, held.value, types), held.value_optional)
        return pa.map_(pa.field("key", pa.string(), False), value)
    return types[column_id]
