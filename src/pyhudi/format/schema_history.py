"""Schema on read (InternalSchema): versioned schemas with column ids, and their history in `.hoodie/.schema`.

    schemacommit    {"schemas": [schema, ...]}              newest first, the whole history each time
    schema          {"max_column_id", "version_id", "type": "record", "fields": [column, ...]}
    column          {"id", "name", "optional", "type", "doc"}                  doc may be missing
    type            a word ("int", "decimal(10, 2)", "fixed[16]", ...), or
                    {"type": "record", "fields": [column, ...]}
                    {"type": "array", "element_id", "element", "element_optional"}
                    {"type": "map", "key_id", "key", "value_id", "value", "value_optional"}

A column keeps its id through renames and moves, so a file is read by the ids of the schema it was written with.
`version_id` is the request time of the instant that created the schema, as a number; 0 is the schema before the first
change. The same text of one schema is stored in the extra metadata of commits under `latest_schema`.

Decoding validates each schema: ids are unique and at most its max_column_id, names are unique within a record, and
types are known. Not done here: conversion of types to Arrow, or schema changes.
Specification: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from pyhudi.errors import CorruptData
from pyhudi.format.avro_resolve import is_avro_name
from pyhudi.format.json_document import parse_json

MAX_DEPTH = 64
_WORDS = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|string|uuid|binary|fixed\[[0-9]{1,9}\]|decimal\([0-9]{1,2}, [0-9]{1,2}\)"
)


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A column.

    Attributes:
        column_id: Unique in the schema.
        name: Name without its parents.
        optional: True if nullable.
        type: Its type.
        doc: None if the file has none.
    """

    column_id: int
    name: str
    optional: bool
    type: ColumnType
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class StructType:
    """Struct type: its fields, in order."""

    columns: tuple[SchemaField, ...]


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list."""

    element_id: int
    element: ColumnType
    element_optional: bool


@dataclass(frozen=True, slots=True)
class MapType:
    """A map; its keys are never null."""

    key_id: int
    key: ColumnType
    value_id: int
    value: ColumnType
    value_optional: bool


ColumnType: TypeAlias = str | StructType | ArrayType | MapType


@dataclass(frozen=True, slots=True)
class VersionedSchema:
    """One schema.

    Attributes:
        version_id: Request time of the instant that created it; 0 before the first change.
        max_column_id: Highest id ever assigned, so that no id is reused.
        columns: Top-level columns.
    """

    version_id: int
    max_column_id: int
    columns: tuple[SchemaField, ...]


def decode_schema_history(data: bytes) -> tuple[VersionedSchema, ...]:
    """Decode the schemas of a completed schemacommit, newest first. Raises CorruptData."""
    return _decode_cached(data) if len(data) <= _MAX_CACHED_BYTES else _decode_history(data)


def _decode_history(data: bytes) -> tuple[VersionedSchema, ...]:
    document = _load(data)
    schemas = document.get("schemas") if isinstance(document, dict) else None
    if not isinstance(schemas, list):
        raise CorruptData("a schema history has no list of schemas")
    return tuple(_schema(schema) for schema in schemas)


# Each load of a table reads all its history files, and each file repeats the schemas of those before it.
_MAX_CACHED_BYTES = 1 << 16
_decode_cached = lru_cache(maxsize=64)(_decode_history)


def decode_schema(text: str) -> VersionedSchema:
    """Decode one schema, as stored in a commit under `latest_schema`. Raises CorruptData."""
    return _schema(_load(text))


def encode_schema(schema: VersionedSchema) -> str:
    """Encode one schema, as stored in a commit under `latest_schema`."""
    return json.dumps(_document(schema), separators=(",", ":"), ensure_ascii=False)


def encode_schema_history(schemas: Iterable[VersionedSchema]) -> bytes:
    """Encode the content of a completed schemacommit. schemas: newest first."""
    return f'{{"schemas":[{",".join(map(encode_schema, schemas))}]}}'.encode()


def _document(schema: VersionedSchema) -> dict[str, Any]:
    numbers = {"max_column_id": schema.max_column_id, "version_id": schema.version_id}
    return {**numbers, **_type_document(StructType(schema.columns))}


def _type_document(kind: ColumnType) -> Any:
    if isinstance(kind, str):
        return kind
    if isinstance(kind, StructType):
        return {"type": "record", "fields": [_column_document(column) for column in kind.columns]}
    if isinstance(kind, ArrayType):
        element = {"element_id": kind.element_id, "element": _type_document(kind.element)}
        return {"type": "array", **element, "element_optional": kind.element_optional}
    key = {"key_id": kind.key_id, "key": _type_document(kind.key)}
    value = {"value_id": kind.value_id, "value": _type_document(kind.value), "value_optional": kind.value_optional}
    return {"type": "map", **key, **value}


def _column_document(column: SchemaField) -> dict[str, Any]:
    head = {"id": column.column_id, "name": column.name, "optional": column.optional, "type": _type_document(column.type)}
    return head if column.doc is None else {**head, "doc": column.doc}


def all_ids(kind: ColumnType) -> Iterator[int]:
    """Yield all ids of a type, including those of list elements and map entries."""
    if isinstance(kind, StructType):
        for column in kind.columns:
            yield column.column_id
            yield from all_ids(column.type)
    elif isinstance(kind, ArrayType):
        yield kind.element_id
        yield from all_ids(kind.element)
    elif isinstance(kind, MapType):
        yield from (kind.key_id, kind.value_id)
        yield from (*all_ids(kind.key), *all_ids(kind.value))


def _load(data: bytes | str) -> Any:
    return parse_json(data, "a schema history is")


def _schema(document: Any) -> VersionedSchema:
    kind = _type(document, 0)
    if not isinstance(kind, StructType):
        raise CorruptData("a schema with column ids is not a record")
    schema = VersionedSchema(_int(document, "version_id"), _int(document, "max_column_id"), kind.columns)
    ids = list(all_ids(kind))
    if len(set(ids)) < len(ids):
        raise CorruptData("a schema with column ids has a duplicate id", found=Counter(ids).most_common(1)[0][0])
    if ids and not 0 <= min(ids) <= max(ids) <= schema.max_column_id:
        raise CorruptData("a schema has a column id out of range", expected=f"0 to {schema.max_column_id}", found=max(ids))
    return schema


def _type(document: Any, depth: int) -> ColumnType:
    if depth > MAX_DEPTH:
        raise CorruptData("a schema with column ids is nested too deeply", expected=MAX_DEPTH)
    if isinstance(document, str):
        if not _WORDS.fullmatch(document):
            raise CorruptData("a schema with column ids has an unknown type", found=document[:100])
        return document
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "record":
        columns = document.get("fields")
        if not isinstance(columns, list):
            raise CorruptData("a record of a schema with column ids has no fields")
        columns_of_type = tuple(_column(column, depth + 1) for column in columns)
        if len({column.name for column in columns_of_type}) < len(columns_of_type):
            raise CorruptData("a record of a schema with column ids has a duplicate name")
        return StructType(columns_of_type)
    if kind == "array":
        element = _type(document.get("element"), depth + 1)
        return ArrayType(_int(document, "element_id"), element, _bool(document, "element_optional"))
    if kind == "map":
        key, value = _type(document.get("key"), depth + 1), _type(document.get("value"), depth + 1)
        return MapType(_int(document, "key_id"), key, _int(document, "value_id"), value, _bool(document, "value_optional"))
    raise CorruptData("a schema with column ids has an unknown type", found=str(kind)[:100])


def _column(document: Any, depth: int) -> SchemaField:
    name, doc = (document.get("name"), document.get("doc")) if isinstance(document, dict) else (None, None)
    if not isinstance(name, str) or not (doc is None or isinstance(doc, str)):
        raise CorruptData("a column of a schema has no name", found=str(name)[:100])
    if not is_avro_name(name):
        raise CorruptData(f"a schema with column ids has the invalid column name {name[:100]!r}")
    return SchemaField(_int(document, "id"), name, _bool(document, "optional"), _type(document.get("type"), depth), doc)


def _int(document: Any, key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptData("a schema with column ids is missing a number", expected=key, found=str(value)[:100])
    return value


def _bool(document: Any, key: str) -> bool:
    value = document.get(key)
    if not isinstance(value, bool):
        raise CorruptData("a schema with column ids is missing a flag", expected=key, found=str(value)[:100])
    return value
