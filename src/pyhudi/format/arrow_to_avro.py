"""Conversion of table schemas from Arrow to Avro.

Hudi stores a table's schema as Avro JSON; PyHudi works on Arrow. The mapping (storage format, Types):

    Arrow                        Avro
    bool                         boolean
    int32, int64                 int, long
    float32, float64             float, double
    string, binary               string, bytes
    date32                       int, date
    timestamp[us, UTC]           long, timestamp-micros
    timestamp[us]                long, local-timestamp-micros
    decimal128(p, s)             fixed named `fixed` in namespace `<record>.<field>`, the fewest bytes for p, decimal
    fixed_size_list<T not null>  fixed named `vector_<T>_<dimension>`, vector
    list<T>                      array
    map<string, T>               map
    struct                       record named after its field, in the namespace of its parent's full name

A nullable field is the union ["null", T]. As a field of a record it has the default null; as an array item or a map
value it has no default. A non-nullable field is T. These Arrow types are the canonical ones, to which
`records.type_normalization` converts a user's schema.

`avro_to_arrow` reads more types than this module writes. `arrow_to_avro` therefore takes the table's current schema
text and preserves every part of it that still describes the same type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.avro_resolve import Json, is_avro_name, resolve_avro
from pyhudi.format.avro_to_arrow import (
    ARROW_TYPES,
    COMMENT,
    LOCAL_TIMESTAMP,
    TIMESTAMP,
    arrow_field,
    arrow_type,
    default_text,
    record_fields,
)
from pyhudi.format.hudi_types import is_vector, record_to_avro, vector_to_avro
from pyhudi.format.meta_columns import is_meta_field


def sanitized_name(table_name: str) -> str:
    """Return the table name as an Avro name: each character that Avro does not allow becomes two underscores.

    Specification: docs/formats/base-file.md, "Types".
    """
    if not table_name:
        raise InvalidRequest("the table name is empty")
    first = table_name[0] if re.match(r"[A-Za-z_]", table_name) else "__"
    return first + re.sub(r"[^A-Za-z0-9_]", "__", table_name[1:])


def arrow_to_avro(schema: pa.Schema, table_name: str, previous: str | None = None) -> str:
    """Return the Avro JSON text of a table schema, compact, with keys in the order in which Hudi prints them.

    A field's metadata entry `comment` becomes its doc. A table without columns is allowed.
    Specification: docs/formats/base-file.md, "Types".

    Args:
        schema: Canonical Arrow types (see `normalize_types`). Meta columns, if present, get the empty doc that Hudi gives
            them.
        table_name: Names the record and its namespace.
        previous: The table's current schema text. It is returned unchanged if it describes `schema`. Otherwise each
            column whose type did not change keeps its text, so that fixed types keep the names by which log blocks
            resolve them.

    Raises:
        InvalidRequest: A name that Avro forbids, or a type that Hudi cannot store.
    """
    record: Json | None = None
    if previous is not None:
        record = resolve_avro(previous)
        if _same_fields(schema, record_fields(record)):
            return previous
    name = sanitized_name(table_name)
    printed = _record_json(list(schema), name + "_record", "hoodie." + name, record, "")
    return json.dumps(_with_references(printed, "", {}), separators=(",", ":"), ensure_ascii=False)


def minimal_decimal_size(precision: int) -> int:
    """Return the bytes of the smallest two's complement integer for all decimals of this precision (1 to 38)."""
    size = 1
    while 10**precision > 1 << (8 * size - 1):
        size += 1
    return size


def _record_json(fields: Sequence[pa.Field], name: str, namespace: str, previous: Json | None, path: str) -> Json:
    if previous is not None:
        name, namespace = previous["name"], previous["namespace"]
    known = {field["name"]: field for field in previous["fields"]} if previous is not None else {}
    inner = f"{namespace}.{name}" if namespace else name
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [_field_json(field, inner, known.get(field.name), f"{path}{field.name}") for field in fields],
    }


def _field_json(field: pa.Field, namespace: str, previous: Json | None, path: str) -> Json:
    check_name(field.name, path)
    if previous is not None and _is_described(field, arrow_field(previous)):
        return previous
    type_ = _type_json(
        field.type, field.name, namespace, record_to_avro(field) if previous is None else _branch(previous["type"]), path
    )
    result: Json = {"name": field.name, "type": ["null", type_] if field.nullable else type_}
    doc = _doc(field)
    if doc is not None:
        result["doc"] = doc
    default = None if field.nullable else default_text(field)
    if field.nullable or default is not None:
        result["default"] = None if default is None else json.loads(default)
    return result


def _doc(field: pa.Field) -> str | None:
    if is_meta_field(field.name):
        return ""
    comment = (field.metadata or {}).get(COMMENT)
    return comment.decode() if comment is not None else None


def _item_json(field: pa.Field, name: str, namespace: str, previous: Any, path: str) -> Any:
    if previous is not None and _is_described(field, pa.field(field.name, *arrow_type(previous))):
        return previous
    type_ = _type_json(field.type, name, namespace, _branch(previous) if previous is not None else None, path)
    return ["null", type_] if field.nullable else type_


def _type_json(type_: pa.DataType, name: str, namespace: str, previous: Any, path: str) -> Any:
    if previous is not None and _is_described(pa.field(name, type_, False), pa.field(name, *arrow_type(previous))):
        return previous
    kind = previous["type"] if isinstance(previous, dict) else None
    for primitive, text in ARROW_TYPES:
        if type_ == primitive:
            return text
    if pa.types.is_date32(type_):
        return {"type": "int", "logicalType": "date"}
    if type_ == TIMESTAMP:
        return {"type": "long", "logicalType": "timestamp-micros"}
    if type_ == LOCAL_TIMESTAMP:
        return {"type": "long", "logicalType": "local-timestamp-micros"}
    if type_ == pa.time64("us"):
        return {"type": "long", "logicalType": "time-micros"}
    if type_ == pa.time32("ms"):
        return {"type": "int", "logicalType": "time-millis"}
    if pa.types.is_decimal128(type_):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": minimal_decimal_size(type_.precision),
            "logicalType": "decimal",
            "precision": type_.precision,
            "scale": type_.scale,
        }
    if is_vector(type_):
        return vector_to_avro(type_)
    if pa.types.is_fixed_size_binary(type_):
        return {"type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}", "size": type_.byte_width}
    if pa.types.is_list(type_):
        items = previous["items"] if kind == "array" else None
        return {"type": "array", "items": _item_json(type_.value_field, name, namespace, items, path + "[]")}
    if pa.types.is_map(type_) and pa.types.is_string(type_.key_type):
        values = previous["values"] if kind == "map" else None
        return {"type": "map", "values": _item_json(type_.item_field, name, namespace, values, path + "{}")}
    if pa.types.is_struct(type_):
        return _record_json(list(type_.fields), name, namespace, previous if kind == "record" else None, path + ".")
    raise InvalidRequest(f"column {path!r} has type {type_}, which Hudi cannot store: call normalize_types on the schema first")


def check_name(name: str, path: str) -> None:
    """Validate a column name.

    Args:
        name: The name of the field itself.
        path: The column's dotted name, for the error.

    Raises:
        InvalidRequest: Hudi's schema does not allow the name.
    """
    if not is_avro_name(name):
        raise InvalidRequest(
            f"invalid column name {path!r}: Hudi's schema allows letters, digits and underscores in a name, "
            "and no leading digit; rename the column"
        )


def _with_references(node: Any, namespace: str, visited: dict[str, Json]) -> Any:
    """Define each named type once and reference it afterwards; omit a namespace equal to the enclosing one."""
    if isinstance(node, list):
        return [_with_references(branch, namespace, visited) for branch in node]
    if not isinstance(node, dict):
        return node
    kind = node["type"]
    if kind in ("record", "fixed", "enum"):
        full = f"{node['namespace']}.{node['name']}" if node["namespace"] else node["name"]
        if full in visited:
            if visited[full] != node:
                raise InvalidRequest(f"the Avro name {full} denotes two different types in one schema: rename a column")
            return full
        visited[full] = node
        result = {key: value for key, value in node.items() if key != "namespace" or value != namespace}
        if kind == "record":
            result["fields"] = [
                {**field, "type": _with_references(field["type"], node["namespace"], visited)} for field in node["fields"]
            ]
        return result
    if kind == "array":
        return {**node, "items": _with_references(node["items"], namespace, visited)}
    if kind == "map":
        return {**node, "values": _with_references(node["values"], namespace, visited)}
    return node


def _is_described(field: pa.Field, stated: pa.Field) -> bool:
    """Whether the stated field has the type of the field, and its comments, where it has any."""
    # Metadata is compared separately: the list of a Parquet file names its items differently, which is no difference in
    # type.
    if field.type != stated.type or field.nullable != stated.nullable:
        return False
    comment = (field.metadata or {}).get(COMMENT)
    if comment is not None and comment != (stated.metadata or {}).get(COMMENT):
        return False
    return all(map(_is_described, _children(field.type), _children(stated.type)))


def _children(type_: pa.DataType) -> list[pa.Field]:
    """The fields of a type; those of a map without the struct around them, whose field names vary."""
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    return [type_.field(at) for at in range(type_.num_fields)]


def _branch(node: Any) -> Any:
    """Return the non-null type of a union with null, or the type itself."""
    return next((branch for branch in node if branch != "null"), None) if isinstance(node, list) else node


def _same_fields(schema: pa.Schema, stated: Sequence[pa.Field]) -> bool:
    return len(schema) == len(stated) and all(f.equals(s) and _is_described(f, s) for f, s in zip(schema, stated, strict=True))
