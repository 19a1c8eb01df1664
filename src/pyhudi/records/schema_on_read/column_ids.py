"""Columns that go by ids: which column of a file a column of the table is, whatever both are called.

A table whose columns were renamed, dropped, added again or given other types while its files stayed as they were has a history
of schemas with ids (`format.schema_history`).  A file is read by the schema that held when it was written:

    id in the file's schema, under any name     that column, cast to the type asked for
    id not in the file's schema                 null, also where the file has another column of that name
    column of the file whose id nobody asks for left out

The same holds for the fields of structs, also those in lists and maps.

Type changes that a file may be behind by are those of Hudi: whole numbers and floating point to wider numbers, decimals and
text; decimals to wider ones and text; dates and text to each other; text to decimals; text and bytes to each other.  A float
becomes a double by way of its text, and what becomes a decimal is rounded half up from its text.

Source: docs/formats/reading.md, "Columns by ids".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.avro_to_arrow import TIMESTAMP
from pyhudi.format.schema_history import ArrayType, ColumnType, MapType, SchemaField, StructType, VersionedSchema
from pyhudi.records.java_strings import is_binary_like, is_string_like, value_text
from pyhudi.records.schema_cast import unshared_items

ELEMENT, KEY, VALUE = "element", "key", "value"
"""What the entries of lists and maps are called in dotted names."""


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Where a column that is asked for stands in a file.

    name: in the file, at the same level; has_same_type: no cast is needed, at any depth.  below: by name asked for, the origins
    of the fields of a struct, or of the one entry of a list or map; None where everything below goes by the names that it has.
    """

    name: str
    has_same_type: bool
    below: Mapping[str, ColumnOrigin] | None = None


@dataclass(frozen=True, slots=True)
class ColumnIds:
    """What a reader knows of the ids: the columns that it asks for, and those of each file by the time when it was written.

    asked: the table's columns, meta columns among them.  starts, schemas: aligned, ascending; each schema holds from the request
    time of an instant until the next begins; the first one, of "", from the beginning.  An id stands for one column alone.
    """

    requested: VersionedSchema
    starts: tuple[str, ...]
    schemas: tuple[VersionedSchema, ...]

    def at(self, instant_time: str) -> VersionedSchema:
        """The schema by which the files of an instant were written."""
        return self.schemas[bisect_right(self.starts, instant_time) - 1]

    def at_time(self, instant_time: str) -> ColumnIds:
        """The same, with the columns of that time asked for."""
        return replace(self, requested=self.at(instant_time))

    def origins(self, instant_time: str) -> Mapping[str, ColumnOrigin] | None:
        """Where the top-level columns asked for stand in files of an instant, those that are there; None where every column
        stands under its own name and no other column does.
        """
        return _origins(self.at(instant_time).columns, self.requested.columns)

    def positions(self, instant_time: str) -> Mapping[str, ColumnOrigin]:
        """As `origins`, also where every column stands under its own name."""
        plain = {name: ColumnOrigin(name, True) for name in _names(self.at(instant_time)) & _names(self.requested)}
        return self.origins(instant_time) or plain

    def relocated(self, instant_time: str, names: Iterable[str]) -> frozenset[str]:
        """Those of top-level columns that files of an instant do not have under their names, as they are; one that is not asked
        for is a column that comes, which no file has yet.
        """
        return self.moved(instant_time).intersection(names) | frozenset(names) - _names(self.requested)

    def moved(self, instant_time: str | None = None) -> frozenset[str]:
        """The top-level columns asked for that stand under other names or types in files of an instant, at any depth; or that do
        not stand there, while another column has their name.  None: of any instant.
        """
        schemas = set(self.schemas) if instant_time is None else {self.at(instant_time)}
        return frozenset(column.name for schema in schemas for column in self.requested.columns if _has_moved(schema, column))


def _names(schema: VersionedSchema) -> frozenset[str]:
    return frozenset(column.name for column in schema.columns)


def _has_moved(schema: VersionedSchema, requested_column: SchemaField) -> bool:
    found = next((column for column in schema.columns if column.column_id == requested_column.column_id), None)
    if found is None:
        return any(column.name == requested_column.name for column in schema.columns)
    return found.name != requested_column.name or not _same_layout(found.type, requested_column.type)


def _same_layout(stored_type: ColumnType, requested_type: ColumnType) -> bool:
    """Whether names find the same columns in both, with the same types."""
    if isinstance(stored_type, StructType) and isinstance(requested_type, StructType):
        by_name = {column.name: column for column in stored_type.columns}
        by_id = {column.column_id: column for column in stored_type.columns}
        return all(
            by_name.get(column.name) is by_id.get(column.column_id)
            and (column.name not in by_name or _same_layout(by_name[column.name].type, column.type))
            for column in requested_type.columns
        )
    if isinstance(stored_type, ArrayType) and isinstance(requested_type, ArrayType):
        return _same_layout(stored_type.element, requested_type.element)
    if isinstance(stored_type, MapType) and isinstance(requested_type, MapType):
        return _same_layout(stored_type.value, requested_type.value)
    return stored_type == requested_type


def _origins(
    stored_columns: Sequence[SchemaField], requested_columns: Sequence[SchemaField]
) -> Mapping[str, ColumnOrigin] | None:
    by_id = {column.column_id: column for column in stored_columns}
    names = {column.name for column in stored_columns}
    found: dict[str, ColumnOrigin] = {}
    plain = True
    for column in requested_columns:
        other = by_id.get(column.column_id)
        if other is None:
            plain = plain and column.name not in names
            continue
        origin = ColumnOrigin(other.name, _same_layout(other.type, column.type), _below(other.type, column.type))
        found[column.name] = origin
        plain = plain and origin.name == column.name and origin.has_same_type
    return None if plain else found


def _below(stored_type: ColumnType, requested_type: ColumnType) -> Mapping[str, ColumnOrigin] | None:
    if isinstance(stored_type, StructType) and isinstance(requested_type, StructType):
        return _origins(stored_type.columns, requested_type.columns)
    if isinstance(stored_type, ArrayType) and isinstance(requested_type, ArrayType):
        return _entry(ELEMENT, stored_type.element, requested_type.element)
    if isinstance(stored_type, MapType) and isinstance(requested_type, MapType):
        return _entry(VALUE, stored_type.value, requested_type.value)
    return None


def _entry(name: str, stored_type: ColumnType, requested_type: ColumnType) -> Mapping[str, ColumnOrigin] | None:
    if _same_layout(stored_type, requested_type):
        return None
    return {name: ColumnOrigin(name, False, _below(stored_type, requested_type))}


# Rows of files


def names_in_file(origins: Mapping[str, ColumnOrigin] | None, names: Iterable[str]) -> list[str]:
    """What columns asked for are called in the file: those that its schema has, in their order."""
    if origins is None:
        return list(names)
    return [origins[name].name for name in names if name in origins]


def by_ids(rows: pa.Table, origins: Mapping[str, ColumnOrigin] | None, requested_schema: pa.Schema) -> pa.Table:
    """Rows of a file under the names asked for, ready to be conformed.

    rows: columns of the file; asked: columns of the table.  The result has those of them that the file has, in the order of
    `asked`, with the types of the file but for the casts that `conform` does not know.
    Raises InvalidRequest for values that the type asked for does not hold.
    """
    if origins is None:
        return rows
    held = set(rows.column_names)
    chosen = [field for field in requested_schema if field.name in origins and origins[field.name].name in held]
    if not chosen:
        return rows.select([])
    columns = []
    for field in chosen:
        origin = origins[field.name]
        column = rows.column(origin.name)
        if not origin.has_same_type:
            chunks = [_traced(chunk, origin, field.type) for chunk in column.chunks]
            column = pa.chunked_array(chunks) if chunks else pa.chunked_array([], field.type)
        columns.append(column)
    return pa.table(columns, names=[field.name for field in chosen])


def _traced(array: pa.Array, origin: ColumnOrigin, type_: pa.DataType) -> pa.Array:
    if origin.has_same_type:
        return array
    types = pa.types
    if types.is_struct(type_) and types.is_struct(array.type):
        return _traced_struct(array, origin.below, type_)
    below = origin.below or {}
    if types.is_list(type_) and types.is_list(array.type):
        array = unshared_items(array)
        end = array.offsets[-1].as_py() if len(array) else 0
        items = _traced(array.values.slice(0, end), below[ELEMENT], type_.value_type)
        kind = pa.list_(pa.field("element", items.type, True))
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children=[items])
    if types.is_map(type_) and types.is_map(array.type):
        array = unshared_items(array)
        end = array.offsets[-1].as_py() if len(array) else 0
        items = _traced(array.items.slice(0, end), below[VALUE], type_.item_type)
        kind = pa.map_(array.type.key_field, pa.field("value", items.type, True))
        entries = pa.StructArray.from_arrays([array.keys.slice(0, end), items], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children=[entries])
    return retype(array, type_)


def _traced_struct(array: pa.StructArray, below: Mapping[str, ColumnOrigin] | None, type_: pa.StructType) -> pa.StructArray:
    held = {field.name: index for index, field in enumerate(array.type.fields)}
    children, fields = [], []
    for field in type_.fields:
        origin = ColumnOrigin(field.name, True) if below is None else below.get(field.name)
        index = None if origin is None else held.get(origin.name)
        if origin is None or index is None:
            child = pa.nulls(len(array), field.type)
        else:
            child = _traced(array.field(index), origin, field.type)
        children.append(child)
        fields.append(pa.field(field.name, child.type))
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null() if array.null_count else None)


def retype(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Values of a column that was given another type, where `conform` does not cast as Hudi does then; others as they are.

    Raises InvalidRequest for values that the type does not hold.
    """
    types = pa.types
    source = array.type
    try:
        if types.is_decimal128(type_) and (types.is_floating(source) or is_string_like(source)):
            return _rounded(array, type_)
        if types.is_string(type_) and is_binary_like(source):
            return pc.cast(array, pa.string())
        if is_binary_like(type_) and is_string_like(source):
            return pc.cast(pc.cast(array, pa.binary()), type_)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"a value of a column that was {source} cannot become {type_}: {error}") from error
    return array


def _rounded(array: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    """Text of numbers as decimals of so many places, rounded half up.

    The text of a double has 17 digits at most, so of what is not nothing at the last place, no digit is lost.
    """
    texts = array if is_string_like(array.type) else value_text(array)
    scale = type_.scale
    if pa.types.is_floating(array.type):
        tiny = pc.less(pc.abs(array), 10.0 ** -(scale + 2))
        texts = pc.if_else(tiny, "0", texts)
    exact = pc.cast(texts, pa.decimal256(76, min(scale + 20, 76)))
    return pc.cast(pc.round(exact, ndigits=scale, round_mode="half_towards_infinity"), type_)


# Making and comparing schemas with ids


def numbered(schema: pa.Schema, version_id: int = 0) -> VersionedSchema:
    """Ids for a schema that has none.  schema: with meta columns, as tables of Hudi number those, too.

    The fields of a record get ids in their order first, then what is below each of them.
    """
    return reconciled(VersionedSchema(version_id, -1, ()), schema, version_id)


def reconciled(
    stored_schema: VersionedSchema, schema: pa.Schema, version_id: int, first_id: int | None = None
) -> VersionedSchema:
    """The ids of a schema that follows one with ids by names: columns of the same name keep theirs, the others get new ones.

    So does a column whose type the values of its former one do not become: it is another column.
    schema: with meta columns.  first_id: the first new one; the one after the highest ever given when None.
    """
    counter = _Counter(stored_schema.max_column_id + 1 if first_id is None else first_id)
    columns = _match_columns(stored_schema.columns, list(schema), counter)
    return VersionedSchema(version_id, max(stored_schema.max_column_id, counter.next - 1), columns)


def assign_new_columns(fields: Sequence[pa.Field], first_id: int) -> tuple[tuple[SchemaField, ...], int]:
    """Columns that no schema had before, and the highest id that they were given.  first_id: where these begin."""
    counter = _Counter(first_id)
    columns = _match_columns((), fields, counter)
    return columns, counter.next - 1


@dataclass(slots=True)
class _Counter:
    next: int

    def next_id(self) -> int:
        self.next += 1
        return self.next - 1


def _match_columns(
    stored_columns: Sequence[SchemaField], fields: Sequence[pa.Field], counter: _Counter
) -> tuple[SchemaField, ...]:
    types = {field.name: field.type for field in fields}
    by_name = {
        column.name: column for column in stored_columns if column.name in types and _becomes(column.type, types[column.name])
    }
    ids = [by_name[field.name].column_id if field.name in by_name else counter.next_id() for field in fields]
    columns = []
    for field, column_id in zip(fields, ids, strict=True):
        known = by_name.get(field.name)
        comment = (field.metadata or {}).get(b"comment")
        doc = known.doc if comment is None and known is not None else None if comment is None else comment.decode()
        type_ = _match_type(None if known is None else known.type, field.type, counter)
        columns.append(SchemaField(column_id, field.name, field.nullable, type_, doc))
    return tuple(columns)


def _match_type(stored_type: ColumnType | None, type_: pa.DataType, counter: _Counter) -> ColumnType:
    types = pa.types
    if types.is_struct(type_):
        return StructType(
            _match_columns(stored_type.columns if isinstance(stored_type, StructType) else (), list(type_.fields), counter)
        )
    if types.is_list(type_):
        array = stored_type if isinstance(stored_type, ArrayType) else None
        element_id = counter.next_id() if array is None else array.element_id
        element = _match_type(None if array is None else array.element, type_.value_type, counter)
        return ArrayType(element_id, element, type_.value_field.nullable)
    if types.is_map(type_):
        known = stored_type if isinstance(stored_type, MapType) else None
        key_id, value_id = (counter.next_id(), counter.next_id()) if known is None else (known.key_id, known.value_id)
        value = _match_type(None if known is None else known.value, type_.item_type, counter)
        return MapType(key_id, "string", value_id, value, type_.item_field.nullable)
    word = type_name(type_)
    return stored_type if isinstance(stored_type, str) and stored_type in _SAME_AS.get(word, ()) else word


def _becomes(stored_type: ColumnType, type_: pa.DataType) -> bool:
    """Whether a column of a type may have the other from now on; what is below nested ones is asked apart."""
    types = pa.types
    if isinstance(stored_type, StructType):
        return types.is_struct(type_)
    if isinstance(stored_type, ArrayType):
        return types.is_list(type_)
    if isinstance(stored_type, MapType):
        return types.is_map(type_)
    return not types.is_nested(type_) and is_promotion_allowed(stored_type, type_name(type_))


def is_promotion_allowed(stored_type: str, word: str) -> bool:
    """Whether Hudi lets a column of one plain type have another.  Source: docs/formats/reading.md, "Columns by ids"."""
    if stored_type == word or stored_type in _SAME_AS.get(word, ()):
        return True
    old, new = (_DECIMAL.fullmatch(text) for text in (stored_type, word))
    if old is not None and new is not None:
        (precision, scale), (wider, longer) = map(int, old.groups()), map(int, new.groups())
        return longer >= scale and wider - longer >= precision - scale
    return (word if new is None else "decimal") in _FOLLOWED_BY.get(stored_type if old is None else "decimal", ())


_DECIMAL = re.compile(r"decimal\(([0-9]+), ([0-9]+)\)")
_SAME_AS: Mapping[str, tuple[str, ...]] = {"string": ("uuid",)}
_FOLLOWED_BY: Mapping[str, tuple[str, ...]] = {
    "int": ("long", "float", "double", "decimal", "string"),
    "long": ("float", "double", "decimal", "string"),
    "float": ("double", "decimal", "string"),
    "double": ("decimal", "string"),
    "decimal": ("string",),
    "date": ("string",),
    "string": ("date", "decimal", "binary"),
    "binary": ("string",),
}


def type_name(type_: pa.DataType) -> str:
    """What a schema with ids calls a plain type.  Raises Unsupported for one that it has no word for."""
    types = pa.types
    if types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    if types.is_fixed_size_binary(type_):
        return f"fixed[{type_.byte_width}]"
    if types.is_timestamp(type_):
        return "timestamp"
    if types.is_time(type_):
        return "time"
    word = _WORDS.get(type_)
    if word is None:
        raise Unsupported(f"a column of type {type_} in a table whose columns go by ids")
    return word


_WORDS: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.binary(): "binary",
}


def type_from_name(word: str) -> pa.DataType:
    """The plain type that a word of a schema with ids stands for; a timestamp is that of new tables.

    Raises Unsupported for a word that stands for more than one type.
    """
    found = {name: type_ for type_, name in _WORDS.items()}.get(word)
    numbers = [int(number) for number in re.findall("[0-9]+", word)]
    if found is None and word.startswith("decimal"):
        found = pa.decimal128(*numbers)
    if found is None and word.startswith("fixed"):
        found = pa.binary(*numbers)
    if found is None and word == "timestamp":
        found = TIMESTAMP
    if found is None:
        raise Unsupported(f"a column of type {word} in a table whose columns go by ids, where no file tells which type that is")
    return found


def same_columns(left: VersionedSchema, right: VersionedSchema) -> bool:
    """Whether both have the same columns under the same names, with the same types; in any order."""
    return dict(_paths(StructType(left.columns), "")) == dict(_paths(StructType(right.columns), "")) and _same_layout(
        StructType(left.columns), StructType(right.columns)
    )


def identified(schemas: Sequence[VersionedSchema]) -> tuple[VersionedSchema, ...]:
    """A history, oldest first, in which an id stands for one column alone.

    The real Hudi counts anew from the columns that are left, so what was dropped last and what is added next may get one id.  An
    id that a schema has and the one before it has not is a column of its own, which gets a new id where that was given before.
    Ids from `FIRST_UNKNOWN` on are those of columns that a write by names brought; a column of the same name in the next schema
    is that one.
    """
    result: list[VersionedSchema] = []
    given: set[int] = set()
    before: dict[int, int] = {}
    unknown: dict[str, int] = {}
    fresh = _Counter(_FIRST_AGAIN)
    for schema in schemas:
        own: dict[int, int] = {}
        for path, column_id in _paths(StructType(schema.columns), ""):
            if column_id in before:
                own[column_id] = before[column_id]
            elif path in unknown:
                own[column_id] = unknown[path]
            else:
                own[column_id] = fresh.next_id() if column_id in given else column_id
        given.update(own)
        before = own
        unknown = {path: own[i] for path, i in _paths(StructType(schema.columns), "") if FIRST_UNKNOWN <= own[i] < _FIRST_AGAIN}
        changed = any(key != value for key, value in own.items())
        result.append(replace(schema, columns=_with_ids(schema.columns, own)) if changed else schema)
    return tuple(result)


def is_successor(before: VersionedSchema, after: VersionedSchema) -> bool:
    """Whether a schema is another one after a change by ids, by the ids that the other one has: what has its name in both has its
    id in both, and nothing else but one of these differs: columns came, columns are gone, or columns have another name.

    Not so where the columns were numbered anew meanwhile, but in ways that come to the same.
    Ids of columns that a write by names brought are nobody's, so such a column may have any that is new.
    """
    old, new = dict(_paths(StructType(before.columns), "")), dict(_paths(StructType(after.columns), ""))
    given = set(old.values())
    for path in old.keys() & new.keys():
        if old[path] != new[path] and (old[path] < FIRST_UNKNOWN or new[path] in given):
            return False
    gone, came = {old[path] for path in old.keys() - new.keys()}, {new[path] for path in new.keys() - old.keys()}
    return not came or gone == came or not (gone or came & given)


def resolve_columns(
    schemas: Sequence[tuple[int, VersionedSchema]], own_schema: VersionedSchema, highest: int
) -> tuple[VersionedSchema, ...]:
    """Those schemas that writes by names left, with ids for the columns that these brought.

    schemas: version and schema, oldest first, with `own_schema` to follow.  A column that the next one has, too, has its id;
    others get new ones.  highest: the highest id ever given.
    """
    counter = _Counter(highest + 1)
    found: list[VersionedSchema] = []
    later = dict(_paths(StructType(own_schema.columns), ""))
    for version, schema in reversed(schemas):
        paths = dict(_paths(StructType(schema.columns), ""))
        known = {column_id for column_id in paths.values() if column_id < FIRST_UNKNOWN}
        if len(known) < len(paths):
            ids = {column_id: column_id for column_id in known}
            for path, column_id in paths.items():
                if column_id not in ids:
                    ids[column_id] = later[path] if path in later and later[path] not in known else counter.next_id()
            found.append(VersionedSchema(version, max(counter.next - 1, highest), _with_ids(schema.columns, ids)))
            paths = {path: ids[column_id] for path, column_id in paths.items()}
        later = paths
    return tuple(found)


FIRST_UNKNOWN = 1 << 40
_FIRST_AGAIN = 1 << 41


def _paths(type_: ColumnType, path: str) -> Iterator[tuple[str, int]]:
    """The dotted name of each column, and its id."""
    if isinstance(type_, StructType):
        for column in type_.columns:
            yield path + column.name, column.column_id
            yield from _paths(column.type, f"{path}{column.name}.")
    elif isinstance(type_, ArrayType):
        yield path + ELEMENT, type_.element_id
        yield from _paths(type_.element, f"{path}{ELEMENT}.")
    elif isinstance(type_, MapType):
        yield from ((path + KEY, type_.key_id), (path + VALUE, type_.value_id))
        yield from _paths(type_.value, f"{path}{VALUE}.")


def _with_ids(columns: Sequence[SchemaField], ids: Mapping[int, int]) -> tuple[SchemaField, ...]:
    return tuple(replace(column, column_id=ids[column.column_id], type=_type_with(column.type, ids)) for column in columns)


def _type_with(type_: ColumnType, ids: Mapping[int, int]) -> ColumnType:
    if isinstance(type_, StructType):
        return StructType(_with_ids(type_.columns, ids))
    if isinstance(type_, ArrayType):
        return replace(type_, element_id=ids[type_.element_id], element=_type_with(type_.element, ids))
    if isinstance(type_, MapType):
        return replace(type_, key_id=ids[type_.key_id], value_id=ids[type_.value_id], value=_type_with(type_.value, ids))
    return type_
