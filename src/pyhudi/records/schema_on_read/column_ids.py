"""Column ids (schema on read): map columns of the table to columns of a file, independent of their names.

A table whose columns were renamed, dropped, re-created or retyped without rewriting its files has a schema history with
column ids (`format.schema_history`). A file is read by the schema that was valid when it was written:

    id in the file's schema, under any name     that column, cast to the requested type
    id not in the file's schema                 null, even if the file has another column of that name, or the default of a
                                                column that may not be null
    column of the file with no requested id     skipped

The same applies to fields of structs, also in lists and maps.

Type promotions between a file and the table are those of Hudi. Integers and floating point become wider numbers,
decimals and strings; decimals become wider decimals and strings; dates and strings become each other; strings become
decimals; strings and bytes become each other. A float becomes a double through its string form. Decimals are rounded
half up from the string form.

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
from pyhudi.format.avro_to_arrow import TIMESTAMP, column_default
from pyhudi.format.schema_history import ArrayType, ColumnType, MapType, SchemaField, StructType, VersionedSchema
from pyhudi.records.decimal_casts import text_to_decimals
from pyhudi.records.java_strings import is_binary_like, is_string_like
from pyhudi.records.schema_cast import unshared_items

ELEMENT, KEY, VALUE = "element", "key", "value"
"""Names of the entries of lists and maps in dotted names."""


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Location of a requested column in a file.

    Attributes:
        name: Name in the file, at the same level.
        has_same_type: True if no cast is needed, at any depth.
        below: By requested name, the origins of the fields of a struct, or of the entry of a list or map; None if all
            names below are unchanged.
    """

    name: str
    has_same_type: bool
    below: Mapping[str, ColumnOrigin] | None = None


@dataclass(frozen=True, slots=True)
class ColumnIds:
    """Schema history of a reader: the requested columns, and the columns of each file by the time it was written.

    Within the history an id identifies one column.

    Attributes:
        requested: Columns of the table, meta columns included.
        starts: Request times from which the schemas are valid, ascending; the first is "", the beginning.
        schemas: Schemas, aligned with `starts`; each is valid until the next begins.
    """

    requested: VersionedSchema
    starts: tuple[str, ...]
    schemas: tuple[VersionedSchema, ...]

    def at(self, instant_time: str) -> VersionedSchema:
        """Return the schema with which the files of an instant were written."""
        return self.schemas[bisect_right(self.starts, instant_time) - 1]

    def at_time(self, instant_time: str) -> ColumnIds:
        """Return the same history with the columns of that time requested."""
        return replace(self, requested=self.at(instant_time))

    def origins(self, instant_time: str) -> Mapping[str, ColumnOrigin] | None:
        """Return the origins of the requested top-level columns that files of an instant have.

        None if every column has its own name in the files and no other column has it.
        """
        return _origins(self.at(instant_time).columns, self.requested.columns)

    def positions(self, instant_time: str) -> Mapping[str, ColumnOrigin]:
        """Return the origins as `origins` does, also if no name differs."""
        plain = {name: ColumnOrigin(name, True) for name in _names(self.at(instant_time)) & _names(self.requested)}
        return self.origins(instant_time) or plain

    def relocated(self, instant_time: str, names: Iterable[str]) -> frozenset[str]:
        """Return the columns of `names` that files of an instant do not store unchanged under their names.

        A column that is not requested is a new one, which no file has yet.
        """
        return self.moved(instant_time).intersection(names) | frozenset(names) - _names(self.requested)

    def moved(self, instant_time: str | None = None) -> frozenset[str]:
        """Return the requested top-level columns that files of an instant store under another name or type, at any depth.

        Includes columns that the files lack while another column has their name. None: files of any instant.
        """
        schemas = set(self.schemas) if instant_time is None else {self.at(instant_time)}
        return frozenset(column.name for schema in schemas for column in self.requested.columns if _has_moved(schema, column))


def _names(schema: VersionedSchema) -> frozenset[str]:
    return frozenset(column.name for column in schema.columns)


def _has_moved(schema: VersionedSchema, requested_column: SchemaField) -> bool:
    stored_column = next((column for column in schema.columns if column.column_id == requested_column.column_id), None)
    if stored_column is None:
        return any(column.name == requested_column.name for column in schema.columns)
    return stored_column.name != requested_column.name or not _same_layout(stored_column.type, requested_column.type)


def _same_layout(stored_type: ColumnType, requested_type: ColumnType) -> bool:
    """Return True if names identify the same columns in both types, with equal types."""
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
    result: dict[str, ColumnOrigin] = {}
    is_unchanged = True
    for column in requested_columns:
        stored_column = by_id.get(column.column_id)
        if stored_column is None:
            is_unchanged = is_unchanged and column.name not in names
            continue
        origin = ColumnOrigin(
            stored_column.name, _same_layout(stored_column.type, column.type), _nested_origins(stored_column.type, column.type)
        )
        result[column.name] = origin
        is_unchanged = is_unchanged and origin.name == column.name and origin.has_same_type
    return None if is_unchanged else result


def _nested_origins(stored_type: ColumnType, requested_type: ColumnType) -> Mapping[str, ColumnOrigin] | None:
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
    return {name: ColumnOrigin(name, False, _nested_origins(stored_type, requested_type))}


# Rows of files


def names_in_file(origins: Mapping[str, ColumnOrigin] | None, names: Iterable[str]) -> list[str]:
    """Return the names in the file of the requested columns that its schema has, in order."""
    if origins is None:
        return list(names)
    return [origins[name].name for name in names if name in origins]


def by_ids(rows: pa.Table, origins: Mapping[str, ColumnOrigin] | None, requested_schema: pa.Schema) -> pa.Table:
    """Return rows of a file under the requested names, ready for `conform`.

    Args:
        rows: Columns of the file.
        origins: Result of `ColumnIds.origins`.
        requested_schema: Columns of the table.

    Returns:
        The requested columns that the file has, in the order of `requested_schema`, with the types of the file, except
        for casts that `conform` does not support.

    Raises:
        InvalidRequest: A value that the requested type cannot represent.
    """
    if origins is None:
        return rows
    stored_names = set(rows.column_names)
    stored_fields = [field for field in requested_schema if field.name in origins and origins[field.name].name in stored_names]
    if not stored_fields:
        return rows.select([])
    columns, fields = [], []
    for field in stored_fields:
        origin = origins[field.name]
        column = rows.column(origin.name)
        if not origin.has_same_type:
            chunks = [_cast_by_origin(chunk, origin, field.type) for chunk in column.chunks]
            column = pa.chunked_array(chunks) if chunks else pa.chunked_array([], field.type)
        columns.append(column)
        # Its metadata has the unit in which the file declares times.
        fields.append(rows.schema.field(origin.name).with_name(field.name).with_type(column.type).with_nullable(True))
    return pa.table(columns, schema=pa.schema(fields))


def _cast_by_origin(array: pa.Array, origin: ColumnOrigin, type_: pa.DataType) -> pa.Array:
    if origin.has_same_type:
        return array
    types = pa.types
    if types.is_struct(type_) and types.is_struct(array.type):
        return _cast_struct_by_origin(array, origin.below, type_)
    entry_origins = origin.below or {}
    if types.is_list(type_) and types.is_list(array.type):
        array = unshared_items(array)
        end = array.offsets[-1].as_py() if len(array) else 0
        items = _cast_by_origin(array.values.slice(0, end), entry_origins[ELEMENT], type_.value_type)
        result_type = pa.list_(pa.field("element", items.type, True))
    elif types.is_map(type_) and types.is_map(array.type):
        array = unshared_items(array)
        end = array.offsets[-1].as_py() if len(array) else 0
        items = _cast_by_origin(array.items.slice(0, end), entry_origins[VALUE], type_.item_type)
        result_type = pa.map_(array.type.key_field, pa.field("value", items.type, True))
        items = pa.StructArray.from_arrays(
            [array.keys.slice(0, end), items], fields=[result_type.key_field, result_type.item_field]
        )
    else:
        return retype(array, type_)
    return pa.Array.from_buffers(result_type, len(array), array.buffers()[:2], array.null_count, array.offset, children=[items])


def _cast_struct_by_origin(
    array: pa.StructArray, below: Mapping[str, ColumnOrigin] | None, type_: pa.StructType
) -> pa.StructArray:
    index_by_name = {field.name: index for index, field in enumerate(array.type.fields)}
    children, fields = [], []
    for field in type_.fields:
        origin = ColumnOrigin(field.name, True) if below is None else below.get(field.name)
        index = None if origin is None else index_by_name.get(origin.name)
        if origin is None or index is None:
            default = column_default(field)
            child = pa.nulls(len(array), field.type) if default is None else pa.repeat(default, len(array))
        else:
            child = _cast_by_origin(array.field(index), origin, field.type)
        children.append(child)
        fields.append(pa.field(field.name, child.type))
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null() if array.null_count else None)


def retype(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast values of a retyped column where Hudi's cast differs from that of `conform`; other values are unchanged.

    Raises:
        InvalidRequest: A value that the type cannot represent.
    """
    types = pa.types
    source = array.type
    try:
        if types.is_decimal128(type_) and (types.is_floating(source) or is_string_like(source)):
            return text_to_decimals(array, type_)
        if types.is_string(type_) and is_binary_like(source):
            return pc.cast(array, pa.string())
        if is_binary_like(type_) and is_string_like(source):
            return pc.cast(pc.cast(array, pa.binary()), type_)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"a value of type {source} cannot be cast to {type_}: {error}") from error
    return array


# Creation and comparison of schemas with ids


def numbered(schema: pa.Schema, version_id: int = 0) -> VersionedSchema:
    """Assign ids to a schema without ids. Like in Hudi, meta columns get ids too, so `schema` includes them.

    The fields of a record get ids in order first, then the fields below each of them.
    """
    return reconciled(VersionedSchema(version_id, -1, ()), schema, version_id)


def reconciled(
    stored_schema: VersionedSchema, schema: pa.Schema, version_id: int, first_id: int | None = None
) -> VersionedSchema:
    """Assign ids to a schema by matching names with a schema with ids; columns without a match get new ids.

    A column also gets a new id if its type cannot be promoted from the stored one: it is another column.

    Args:
        stored_schema: Schema with ids.
        schema: Schema with meta columns.
        version_id: Version of the result.
        first_id: First new id; None: the one after the highest assigned id.
    """
    counter = _Counter(stored_schema.max_column_id + 1 if first_id is None else first_id)
    columns = _match_columns(stored_schema.columns, list(schema), counter)
    return VersionedSchema(version_id, max(stored_schema.max_column_id, counter.next - 1), columns)


def assign_new_columns(fields: Sequence[pa.Field], first_id: int) -> tuple[tuple[SchemaField, ...], int]:
    """Assign ids from `first_id` on to new columns; returns the columns and the highest assigned id."""
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
        column.name: column
        for column in stored_columns
        if column.name in types and _may_change_to(column.type, types[column.name])
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


def _may_change_to(stored_type: ColumnType, type_: pa.DataType) -> bool:
    """Whether a column may change to the type; nested types only need the same kind, their fields are checked separately."""
    types = pa.types
    if isinstance(stored_type, StructType):
        return types.is_struct(type_)
    if isinstance(stored_type, ArrayType):
        return types.is_list(type_)
    if isinstance(stored_type, MapType):
        return types.is_map(type_)
    return not types.is_nested(type_) and is_promotion_allowed(stored_type, type_name(type_))


def is_promotion_allowed(stored_type: str, type_name: str) -> bool:
    """Return True if Hudi allows a column of one plain type to change to another.

    Source: docs/formats/reading.md, "Columns by ids".
    """
    if stored_type == type_name or stored_type in _SAME_AS.get(type_name, ()):
        return True
    stored_decimal, new_decimal = (_DECIMAL.fullmatch(text) for text in (stored_type, type_name))
    if stored_decimal is not None and new_decimal is not None:
        (precision, scale), (wider, longer) = map(int, stored_decimal.groups()), map(int, new_decimal.groups())
        return longer >= scale and wider - longer >= precision - scale
    return (type_name if new_decimal is None else "decimal") in _ALLOWED_TYPE_CHANGES.get(
        stored_type if stored_decimal is None else "decimal", ()
    )


_DECIMAL = re.compile(r"decimal\(([0-9]{1,9}), ?([0-9]{1,9})\)")
_FIXED = re.compile(r"fixed\[([0-9]{1,9})\]")
_MOST_DIGITS = 38
_SAME_AS: Mapping[str, tuple[str, ...]] = {"string": ("uuid",)}
_ALLOWED_TYPE_CHANGES: Mapping[str, tuple[str, ...]] = {
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
    """Return the name of a plain type in a schema with ids.

    Raises:
        Unsupported: The type has no name.
    """
    types = pa.types
    if types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    if types.is_fixed_size_binary(type_):
        return f"fixed[{type_.byte_width}]"
    if types.is_timestamp(type_):
        return "timestamp"
    if types.is_time(type_):
        return "time"
    word = _TYPE_NAMES.get(type_)
    if word is None:
        raise Unsupported(f"columns of type {type_} are not supported in a table with column ids")
    return word


_TYPE_NAMES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.binary(): "binary",
}


def type_from_name(type_name: str) -> pa.DataType:
    """Return the plain type of a type name in a schema with ids; a timestamp gets the type of new tables.

    Raises:
        Unsupported: The name is ambiguous.
    """
    known_type = {name: type_ for type_, name in _TYPE_NAMES.items()}.get(type_name)
    decimal, fixed = _DECIMAL.fullmatch(type_name), _FIXED.fullmatch(type_name)
    if decimal is not None and int(decimal[2]) <= int(decimal[1]) and 0 < int(decimal[1]) <= _MOST_DIGITS:
        known_type = pa.decimal128(int(decimal[1]), int(decimal[2]))
    elif fixed is not None:
        known_type = pa.binary(int(fixed[1]))
    elif type_name == "timestamp":
        known_type = TIMESTAMP
    if known_type is None:
        raise Unsupported(
            f"columns of type {type_name} are not supported in a table with column ids if no file defines their exact type"
        )
    return known_type


def same_columns(left: VersionedSchema, right: VersionedSchema) -> bool:
    """Return True if both schemas have the same columns with equal names, ids and types, in any order."""
    return dict(_paths(StructType(left.columns), "")) == dict(_paths(StructType(right.columns), "")) and _same_layout(
        StructType(left.columns), StructType(right.columns)
    )


def identified(schemas: Sequence[VersionedSchema]) -> tuple[VersionedSchema, ...]:
    """Return a history, oldest first, in which an id identifies one column.

    Hudi assigns new ids after the highest id of the remaining columns, so the last dropped column and the next added
    one may get the same id. An id that a schema has and its predecessor lacks is a new column; it gets a new id if the
    id was assigned before. Ids from `FIRST_UNKNOWN` on belong to columns that a write by name added; a column of the
    same name in the next schema is the same column.
    """
    result: list[VersionedSchema] = []
    assigned_ids: set[int] = set()
    previous_ids: dict[int, int] = {}
    unidentified: dict[str, int] = {}
    new_id_counter = _Counter(_FIRST_REASSIGNED_ID)
    for schema in schemas:
        new_ids: dict[int, int] = {}
        for path, column_id in _paths(StructType(schema.columns), ""):
            if column_id in previous_ids:
                new_ids[column_id] = previous_ids[column_id]
            elif path in unidentified:
                new_ids[column_id] = unidentified[path]
            else:
                new_ids[column_id] = new_id_counter.next_id() if column_id in assigned_ids else column_id
        assigned_ids.update(new_ids)
        previous_ids = new_ids
        unidentified = {
            path: new_ids[i]
            for path, i in _paths(StructType(schema.columns), "")
            if FIRST_UNKNOWN <= new_ids[i] < _FIRST_REASSIGNED_ID
        }
        changed = any(key != value for key, value in new_ids.items())
        result.append(replace(schema, columns=_with_ids(schema.columns, new_ids)) if changed else schema)
    return tuple(result)


def is_successor(before: VersionedSchema, after: VersionedSchema) -> bool:
    """Return True if `after` results from one change by id of `before`: a column was added, dropped or renamed, and all
    other columns keep name and id.

    Renumbered columns make it False, except where the ids are equivalent. Columns that a write by name added have
    provisional ids, so they may get any new id.
    """
    old, new = dict(_paths(StructType(before.columns), "")), dict(_paths(StructType(after.columns), ""))
    old_ids = set(old.values())
    for path in old.keys() & new.keys():
        if old[path] != new[path] and (old[path] < FIRST_UNKNOWN or new[path] in old_ids):
            return False
    dropped, added = {old[path] for path in old.keys() - new.keys()}, {new[path] for path in new.keys() - old.keys()}
    return not added or dropped == added or not (dropped or added & old_ids)


def resolve_columns(
    schemas: Sequence[tuple[int, VersionedSchema]], own_schema: VersionedSchema, highest: int
) -> tuple[VersionedSchema, ...]:
    """Assign ids to the columns that writes by name added, and return the changed schemas.

    Args:
        schemas: Version and schema, oldest first, to be followed by `own_schema`. A column that the next schema has too
            gets its id; others get new ids.
        own_schema: Schema that follows.
        highest: Highest assigned id.
    """
    counter = _Counter(highest + 1)
    resolved: list[VersionedSchema] = []
    later = dict(_paths(StructType(own_schema.columns), ""))
    for version, schema in reversed(schemas):
        paths = dict(_paths(StructType(schema.columns), ""))
        known = {column_id for column_id in paths.values() if column_id < FIRST_UNKNOWN}
        if len(known) < len(paths):
            ids = {column_id: column_id for column_id in known}
            for path, column_id in paths.items():
                if column_id not in ids:
                    ids[column_id] = later[path] if path in later and later[path] not in known else counter.next_id()
            resolved.append(VersionedSchema(version, max(counter.next - 1, highest), _with_ids(schema.columns, ids)))
            paths = {path: ids[column_id] for path, column_id in paths.items()}
        later = paths
    return tuple(resolved)


FIRST_UNKNOWN = 1 << 40
_FIRST_REASSIGNED_ID = 1 << 41


def _paths(type_: ColumnType, path: str) -> Iterator[tuple[str, int]]:
    """Yield the dotted name and the id of each column."""
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
