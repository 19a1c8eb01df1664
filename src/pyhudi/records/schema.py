"""Table schemas: Arrow to Avro and back, evolution on write, and fitting batches to a schema.

Hudi stores a table's schema as Avro JSON; PyHudi works on Arrow.  The mapping (storage format, Types):

    Arrow                        Avro
    bool                         boolean
    int32, int64                 int, long
    float32, float64             float, double
    string, binary               string, bytes
    date32                       int, date
    timestamp[us, UTC]           long, timestamp-micros
    decimal128(p, s)             fixed named `fixed` in namespace `<record>.<field>`, the fewest bytes for p, decimal
    list<T>                      array
    map<string, T>               map
    struct                       record named after its field, in the namespace of its parent's full name

A nullable field is the union ["null", T] with default null when it is a field of a record, without a default as item of
an array or value of a map.  A field that is not nullable is T.  These Arrow types are the canonical ones: `normalise`
brings a user's schema to them, `evolve` works out the table's next schema, `conform` brings batches to it.

Avro has more than this mapping writes.  `avro_to_arrow` also reads enums (string), uuid strings, bytes decimals, fixed,
millisecond timestamps, times and local timestamps.  So that such a schema survives a commit of ours, `arrow_to_avro`
takes the text that the table has now and keeps whatever part of it still says the same.

What is not done: defaults other than null are not carried, recursive records and unions of several types are refused,
and columns are known by name alone (the id-based schema of `hoodie.schema.on.read.enable` is another module's).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, Internal, InvalidRequest, Unsupported
from pyhudi.format.json_document import parse_json
from pyhudi.records.text import floats_through_text, is_binary_like, is_string_like, timestamp_micros, value_text

META_FIELDS: tuple[str, ...] = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
"""The meta columns that open every data file, in file order; each a nullable string."""

OPERATION_FIELD = "_hoodie_operation"
"""The sixth meta column, present only with `hoodie.allow.operation.metadata.field`; a nullable string."""

_TIMESTAMP = pa.timestamp("us", "UTC")
_COMMENT = b"comment"
_Data = TypeVar("_Data", pa.Schema, pa.RecordBatch, pa.Table)
_Json = dict[str, Any]
_PRIMITIVES: tuple[tuple[pa.DataType, str], ...] = (
    (pa.bool_(), "boolean"),
    (pa.int32(), "int"),
    (pa.int64(), "long"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.string(), "string"),
    (pa.binary(), "bytes"),
)
_AVRO_PRIMITIVES = {name: type_ for type_, name in _PRIMITIVES}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): _TIMESTAMP,
    ("long", "timestamp-micros"): _TIMESTAMP,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
_INTEGER_BITS = {"int32": 32, "int64": 64}
_MODE_OPTION = "set pyhudi.schema.mode"
# What a table's column may become, by the type of the incoming column: only what both the writer rules and the checks of
# reading back agree on.  Everything here is readable from the old files by `conform`.
_WIDENINGS: Mapping[str, tuple[str, ...]] = {
    "int32": ("int64", "float", "double", "string"),
    "int64": ("float", "double", "string"),
    "float": ("double", "string"),
    "double": ("string",),
}
# Of these the ones in which each value stays what it is.
_LOSSLESS: Mapping[str, tuple[str, ...]] = {"int32": ("int64", "double"), "float": ("double",)}


# ---------------------------------------------------------------------------------------------------------------------
# Names, columns, meta columns


def sanitized_name(table_name: str) -> str:
    """The table's name as Avro takes it: each character that Avro does not allow becomes two underscores.

    Source: storage format, Avro schema naming.
    """
    if not table_name:
        raise InvalidRequest("the table name is empty")
    first = table_name[0] if re.match(r"[A-Za-z_]", table_name) else "__"
    return first + re.sub(r"[^A-Za-z0-9_]", "__", table_name[1:])


def is_meta_field(name: str) -> bool:
    """Whether the column is one of Hudi's own."""
    return name in META_FIELDS or name == OPERATION_FIELD


def with_meta_fields(schema: pa.Schema, *, operation_field: bool = False) -> pa.Schema:
    """The schema of a data file: the meta columns as nullable strings, then the data columns in their order.

    Meta columns that the schema holds already move to the front.  operation_field: also `_hoodie_operation`, the sixth.
    """
    names = (*META_FIELDS, OPERATION_FIELD) if operation_field else META_FIELDS
    meta = [pa.field(name, pa.string()) for name in names]
    return pa.schema([*meta, *(field for field in schema if not is_meta_field(field.name))])


def without_meta_fields(data: _Data) -> _Data:
    """The schema, batch or table without Hudi's own columns, which a user's data holds when it was read from a table."""
    schema = data if isinstance(data, pa.Schema) else data.schema
    kept = [index for index, name in enumerate(schema.names) if not is_meta_field(name)]
    if len(kept) == len(schema.names):
        return data
    if isinstance(data, pa.Schema):
        return pa.schema([data.field(index) for index in kept], metadata=data.metadata)
    return data.select(kept)


def field_at(schema: pa.Schema, name: str) -> pa.Field:
    """The field of a dotted name (`city`, `address.city`); nullable when it or a struct around it is.

    Raises InvalidRequest with the nearest name when there is none, and when a part on the way is no struct.
    """
    parts = name.split(".")
    fields: Sequence[pa.Field] = list(schema)
    nullable = False
    for depth, part in enumerate(parts):
        found = [field for field in fields if field.name == part]
        if len(found) != 1:
            raise InvalidRequest(_unknown_column(name, schema))
        nullable = nullable or found[0].nullable
        if depth == len(parts) - 1:
            break
        if not pa.types.is_struct(found[0].type):
            raise InvalidRequest(f"column {'.'.join(parts[: depth + 1])!r} is no struct: {name!r} cannot be found in it")
        fields = list(found[0].type.fields)
    return found[0].with_name(name).with_nullable(nullable)


def column_at(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The values of a dotted name, null where a struct on the way is; dictionaries are decoded.

    Raises InvalidRequest with the nearest name when there is no such column.
    """
    field_at(batch.schema, name)
    first, *rest = name.split(".")
    array = batch.column(batch.schema.get_field_index(first))
    if rest:
        array = pc.struct_field(array, rest)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


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


# ---------------------------------------------------------------------------------------------------------------------
# Arrow to Avro


def arrow_to_avro(schema: pa.Schema, table_name: str, previous: str | None = None) -> str:
    """The Avro JSON text of a table's schema, compact, keys in the order in which Hudi prints them.

    schema: canonical Arrow types (see `normalise`); meta columns, when present, carry the empty doc that Hudi gives them.
    A field's metadata entry `comment` becomes its doc.  table_name: names the record and its namespace.
    previous: the text that the table has now.  It is returned as it is when it says the same as `schema`; otherwise every
    column whose type it already states keeps that statement, so that fixed types keep the names by which log blocks find
    them.  A table without columns is allowed.
    Raises InvalidRequest for names Avro forbids and types that Hudi cannot hold.
    Source: storage format, Types and Avro schema naming.
    """
    record: _Json | None = None
    if previous is not None:
        record = resolve_avro(previous)
        if _same_fields(schema, _record_fields(record)):
            return previous
    name = sanitized_name(table_name)
    printed = _record_json(list(schema), name + "_record", "hoodie." + name, record, "")
    return json.dumps(_with_references(printed, "", {}), separators=(",", ":"), ensure_ascii=False)


def minimal_decimal_size(precision: int) -> int:
    """Bytes of the smallest two's complement number that holds every decimal of this precision (1 to 38)."""
    size = 1
    while 10**precision > 1 << (8 * size - 1):
        size += 1
    return size


def _record_json(fields: Sequence[pa.Field], name: str, namespace: str, previous: _Json | None, path: str) -> _Json:
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


def _field_json(field: pa.Field, namespace: str, previous: _Json | None, path: str) -> _Json:
    _check_name(field.name, path)
    if previous is not None and _field_matches(field, previous):
        return previous
    type_ = _type_json(field.type, field.name, namespace, _branch(previous["type"]) if previous is not None else None, path)
    result: _Json = {"name": field.name, "type": ["null", type_] if field.nullable else type_}
    doc = _doc(field)
    if doc is not None:
        result["doc"] = doc
    if field.nullable:
        result["default"] = None
    return result


def _doc(field: pa.Field) -> str | None:
    if is_meta_field(field.name):
        return ""
    comment = (field.metadata or {}).get(_COMMENT)
    return comment.decode() if comment is not None else None


def _item_json(field: pa.Field, name: str, namespace: str, previous: Any, path: str) -> Any:
    if previous is not None and _arrow_type(previous) == (field.type, field.nullable):
        return previous
    type_ = _type_json(field.type, name, namespace, _branch(previous) if previous is not None else None, path)
    return ["null", type_] if field.nullable else type_


def _type_json(type_: pa.DataType, name: str, namespace: str, previous: Any, path: str) -> Any:
    if previous is not None and _arrow_type(previous) == (type_, False):
        return previous
    kind = previous["type"] if isinstance(previous, dict) else None
    for primitive, text in _PRIMITIVES:
        if type_ == primitive:
            return text
    if pa.types.is_date32(type_):
        return {"type": "int", "logicalType": "date"}
    if type_ == _TIMESTAMP:
        return {"type": "long", "logicalType": "timestamp-micros"}
    if type_ == pa.timestamp("us"):
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
    raise InvalidRequest(f"column {path!r} has type {type_}, which Hudi cannot hold as it is: call normalise on the schema first")


def _check_name(name: str, path: str) -> None:
    # Java's rule, which is wider than the Avro specification: any letter or digit of Unicode.
    good = name and (name[0].isalpha() or name[0] == "_") and all(c.isalpha() or c.isdecimal() or c == "_" for c in name)
    if not good:
        raise InvalidRequest(
            f"column {path!r} cannot be stored: Hudi's schema allows letters, digits and underscores in a name, "
            "and no digit in front; rename the column"
        )


def _with_references(node: Any, namespace: str, seen: dict[str, _Json]) -> Any:
    """Print each named type once and refer to it by full name afterwards; leave out a namespace that is the enclosing one."""
    if isinstance(node, list):
        return [_with_references(branch, namespace, seen) for branch in node]
    if not isinstance(node, dict):
        return node
    kind = node["type"]
    if kind in ("record", "fixed", "enum"):
        full = f"{node['namespace']}.{node['name']}" if node["namespace"] else node["name"]
        if full in seen:
            if seen[full] != node:
                raise InvalidRequest(f"the Avro name {full} stands for two different types in one schema: rename a column")
            return full
        seen[full] = node
        result = {key: value for key, value in node.items() if key != "namespace" or value != namespace}
        if kind == "record":
            result["fields"] = [
                {**field, "type": _with_references(field["type"], node["namespace"], seen)} for field in node["fields"]
            ]
        return result
    if kind == "array":
        return {**node, "items": _with_references(node["items"], namespace, seen)}
    if kind == "map":
        return {**node, "values": _with_references(node["values"], namespace, seen)}
    return node


# ---------------------------------------------------------------------------------------------------------------------
# Avro to Arrow


def avro_to_arrow(text: str) -> pa.Schema:
    """The Arrow schema of a table's Avro JSON text; columns keep their order, meta columns included when present.

    A union with null, in either order, makes a nullable field; T alone one that is not.  An enum becomes string, a uuid
    string, a millisecond timestamp microseconds, a local timestamp one without a zone, a time time32 or time64, fixed
    bytes fixed_size_binary, an array's item `element`.  A doc becomes the field's metadata entry `comment`.
    Raises CorruptData when the text is no Avro record, Unsupported for recursive records, unions of several types and
    logical types on which Arrow has nothing to say.  Source: storage format, Types and Avro schema naming.
    """
    return pa.schema(_record_fields(resolve_avro(text)))


_MOST_TYPES = 100_000
"""A schema may name a type over and over, each one twice that before it: a few kilobytes that stand for more than any memory."""


def resolve_avro(text: str) -> dict[str, Any]:
    """The Avro record of a schema text, each reference replaced by what it names and each named type with its namespace.

    Raises CorruptData when the text is no Avro record, Unsupported for recursive records and for more than 100,000 types, each
    counted wherever it stands.
    """
    document = parse_json(text, "the schema is")
    try:
        resolved = _resolve(document, "", {}, (), "")
        count = _type_count(resolved, {})
    except RecursionError as error:
        raise Unsupported("the schema is nested too deeply") from error
    if not isinstance(resolved, dict) or resolved.get("type") != "record":
        raise CorruptData("the schema is not an Avro record", expected="record", found=text[:80])
    if count > _MOST_TYPES:
        raise Unsupported(f"an Avro schema of more than {_MOST_TYPES} types, each counted wherever it stands")
    return resolved


def _type_count(node: Any, known: dict[int, int]) -> int:
    """How many types a resolved schema has when each reference is written out; what several refer to is one object here."""
    if isinstance(node, list):
        return sum(_type_count(branch, known) for branch in node)
    if not isinstance(node, dict):
        return 1
    if id(node) not in known:
        below = [node.get("items"), node.get("values"), *(field["type"] for field in node.get("fields") or ())]
        known[id(node)] = 1 + sum(_type_count(part, known) for part in below if part is not None)
    return known[id(node)]


def _resolve(node: Any, namespace: str, names: dict[str, Any], open_: tuple[str, ...], path: str) -> Any:
    """A schema with every reference replaced by what it names and every named type carrying its namespace."""
    if isinstance(node, list):
        return [_resolve(branch, namespace, names, open_, path) for branch in node]
    if isinstance(node, str):
        if node in _AVRO_PRIMITIVES or node == "null":
            return node
        full = node if "." in node or not namespace else f"{namespace}.{node}"
        if full in open_:
            raise Unsupported(f"column {path!r}: the recursive Avro record {full} is not supported")
        if full in names:
            return names[full]
        if node in names:
            return names[node]
        raise CorruptData(f"the schema refers to a type that it does not define, at {path!r}", found=node)
    if not isinstance(node, dict):
        raise CorruptData(f"the schema has no type at {path!r}", found=node)
    kind = node.get("type")
    if isinstance(kind, (dict, list)):
        return _resolve(kind, namespace, names, open_, path)
    if kind in ("record", "error", "fixed", "enum"):
        return _resolve_named(node, str(kind), namespace, names, open_, path)
    if kind == "array":
        return {**node, "items": _resolve(_required(node, "items", path), namespace, names, open_, path + "[]")}
    if kind == "map":
        return {**node, "values": _resolve(_required(node, "values", path), namespace, names, open_, path + "{}")}
    if isinstance(kind, str):
        return node if kind in _AVRO_PRIMITIVES or kind == "null" else _resolve(kind, namespace, names, open_, path)
    raise CorruptData(f"the schema has no type at {path!r}", found=kind)


def _resolve_named(node: _Json, kind: str, outer: str, names: dict[str, Any], open_: tuple[str, ...], path: str) -> _Json:
    name = _required(node, "name", path)
    if not isinstance(name, str):
        raise CorruptData(f"the schema has a type without a name at {path!r}", found=name)
    namespace = node.get("namespace", outer)
    if "." in name:
        namespace, _, name = name.rpartition(".")
    namespace = namespace or ""
    full = f"{namespace}.{name}" if namespace else name
    result = {"type": "record" if kind == "error" else kind, "name": name, "namespace": namespace}
    result.update({key: value for key, value in node.items() if key not in result})
    if kind == "fixed" and (not isinstance(node.get("size"), int) or node["size"] < 0):
        raise CorruptData(f"the fixed type {full} has no size", found=node.get("size"))
    symbols = node.get("symbols")
    if kind == "enum" and not (isinstance(symbols, list) and all(isinstance(symbol, str) for symbol in symbols)):
        raise CorruptData(f"the enum {full} has no symbols", found=symbols)
    if kind in ("record", "error"):
        fields = _required(node, "fields", path)
        if not isinstance(fields, list):
            raise CorruptData(f"the record {full} has no fields", found=fields)
        resolved = []
        for field in fields:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise CorruptData(f"the record {full} has a field without a name", found=field)
            below = f"{path}.{field['name']}" if path else field["name"]
            type_ = _resolve(_required(field, "type", below), namespace, names, (*open_, full), below)
            resolved.append({**field, "type": type_})
        result["fields"] = resolved
    names[full] = result
    return result


def _required(node: _Json, key: str, path: str) -> Any:
    if key not in node:
        raise CorruptData(f"the schema has no {key!r} at {path!r}", found=node.get("type"))
    return node[key]


def _record_fields(record: _Json) -> list[pa.Field]:
    return [_avro_field(field) for field in record["fields"]]


def _avro_field(field: _Json) -> pa.Field:
    try:
        type_, nullable = _arrow_type(field["type"])
    except Unsupported as error:
        raise Unsupported(f"column {field['name']!r}: {error.args[0]}") from error
    doc = field.get("doc")
    comment = {_COMMENT: doc} if isinstance(doc, str) and doc else None
    return pa.field(field["name"], type_, nullable, metadata=comment)


def _arrow_type(node: Any) -> tuple[pa.DataType, bool]:
    if isinstance(node, list):
        others = [branch for branch in node if branch != "null"]
        if len(others) != 1:
            kinds = ", ".join(str(b.get("type") if isinstance(b, dict) else b) for b in node)
            raise Unsupported(f"a union of [{kinds}] is not supported: only null and one type")
        return _arrow_type(others[0])[0], len(others) < len(node)
    if isinstance(node, str):
        if node == "null":
            raise Unsupported("a field of type null holds no data")
        return _AVRO_PRIMITIVES[node], False
    kind, logical = node["type"], node.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal_type(node), False
    if kind == "record":
        return pa.struct(_record_fields(node)), False
    if kind == "array":
        type_, nullable = _arrow_type(node["items"])
        return pa.list_(pa.field("element", type_, nullable)), False
    if kind == "map":
        type_, nullable = _arrow_type(node["values"])
        return pa.map_(pa.field("key", pa.string(), False), pa.field("value", type_, nullable)), False
    if kind == "enum":
        return pa.string(), False
    if kind == "fixed":
        return pa.binary(node["size"]), False
    if kind == "null":
        raise Unsupported("a field of type null holds no data")
    if logical is None:
        return _AVRO_PRIMITIVES[kind], False
    # Avro says that a reader ignores a logical type which it does not know and takes the plain type below it.
    return _LOGICAL.get((kind, str(logical)), _AVRO_PRIMITIVES[kind]), False


def _decimal_type(node: _Json) -> pa.DataType:
    precision, scale = node.get("precision"), node.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or precision < 1 or not 0 <= scale <= precision:
        raise CorruptData("a decimal needs a precision of at least 1 and a scale up to it", found=(precision, scale))
    if precision > 38:
        raise Unsupported(f"a decimal of precision {precision} is not supported: 38 is the most")
    return pa.decimal128(precision, scale)


def _field_matches(field: pa.Field, previous: _Json) -> bool:
    # Metadata is compared by hand: the list of a Parquet file calls its items by another name, which says nothing.
    stated = _avro_field(previous)
    comment = (field.metadata or {}).get(_COMMENT)
    return bool(
        field.type == stated.type
        and field.nullable == stated.nullable
        and (comment is None or comment == (stated.metadata or {}).get(_COMMENT))
    )


def _branch(node: Any) -> Any:
    """The type beside null of a union, or the type itself."""
    return next((branch for branch in node if branch != "null"), None) if isinstance(node, list) else node


def _same_fields(schema: pa.Schema, stated: Sequence[pa.Field]) -> bool:
    if len(schema) != len(stated):
        return False
    comments = [((f.metadata or {}).get(_COMMENT), (s.metadata or {}).get(_COMMENT)) for f, s in zip(schema, stated, strict=True)]
    same_docs = all(ours is None or ours == theirs for ours, theirs in comments)
    return same_docs and all(f.equals(s) for f, s in zip(schema, stated, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Normalising what users hand in


def normalise(schema: pa.Schema) -> pa.Schema:
    """The same columns in the canonical types, or one InvalidRequest that names every column Hudi cannot hold.

    large, view, dictionary and run-end layouts become the plain ones; lists of fixed size lists; int8, int16, uint8 and
    uint16 int32, uint32 int64; float16 float32; decimal32 and decimal64 decimal128; date64 date32; fixed_size_binary
    binary; every timestamp microseconds in UTC.  A timestamp without a zone is taken as an instant in UTC: Hudi has no
    local timestamps, and refuses Spark's timestamp_ntz.
    Refused: uint64, decimal256, null, time, duration, interval, union, extension types but JSON, structs without fields,
    maps whose keys are no strings, and two columns of one struct or table whose names are equal up to case.
    Nullability and the field metadata entry `comment` are kept; all other metadata is dropped.
    """
    problems: list[str] = []
    fields = _normal_fields(list(schema), "", problems)
    if problems:
        raise InvalidRequest("Hudi cannot hold these columns:\n  " + "\n  ".join(problems))
    return pa.schema(fields)


def _normal_fields(fields: Sequence[pa.Field], path: str, problems: list[str]) -> list[pa.Field]:
    seen: dict[str, str] = {}
    for field in fields:
        other = seen.get(field.name.lower())
        if other == field.name:
            problems.append(f"{path}{field.name}: there are two columns of this name")
        elif other is not None:
            problems.append(f"{path}{field.name}: its name differs from {path}{other} in case alone, which SQL cannot tell apart")
        seen.setdefault(field.name.lower(), field.name)
    return [_normal_field(field, path, problems) for field in fields]


def _normal_field(field: pa.Field, path: str, problems: list[str]) -> pa.Field:
    here = path + field.name
    try:
        _check_name(field.name, here)
    except InvalidRequest:
        problems.append(f"{here}: a name may hold letters, digits and underscores, and not begin with a digit: rename it")
    comment = (field.metadata or {}).get(_COMMENT)
    metadata = {_COMMENT: comment} if comment else None
    return pa.field(field.name, _normal_type(field.type, here, problems), field.nullable, metadata=metadata)


def _normal_type(type_: pa.DataType, path: str, problems: list[str]) -> pa.DataType:
    types = pa.types
    simple = _normal_scalar(type_)
    if simple is not None:
        return simple
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return _normal_type(type_.value_type, path, problems)
    if _is_list_like(type_):
        value = type_.value_field
        return pa.list_(pa.field("element", _normal_type(value.type, path + "[]", problems), value.nullable))
    if types.is_map(type_):
        key = _normal_type(type_.key_type, path + "{key}", problems)
        if not types.is_string(key):
            problems.append(f"{path}: the keys of a map must be strings, these are {type_.key_type}: use an array of structs")
        value = _normal_type(type_.item_type, path + "{}", problems)
        return pa.map_(pa.field("key", pa.string(), False), pa.field("value", value, type_.item_field.nullable))
    if types.is_struct(type_):
        if type_.num_fields == 0:
            problems.append(f"{path}: a struct needs at least one field")
        return pa.struct(_normal_fields(list(type_.fields), path + ".", problems))
    if isinstance(type_, pa.BaseExtensionType) and type_.extension_name == "arrow.json":
        return pa.string()
    problems.append(f"{path}: type {type_}: {_refusal(type_)}")
    return type_


def _normal_scalar(type_: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if any(type_ == known for known, _ in _PRIMITIVES):
        return type_
    if is_string_like(type_):
        return pa.string()
    if is_binary_like(type_):
        return pa.binary()
    if types.is_timestamp(type_):
        return _TIMESTAMP
    if types.is_date(type_):
        return pa.date32()
    if types.is_int8(type_) or types.is_int16(type_) or types.is_uint8(type_) or types.is_uint16(type_):
        return pa.int32()
    if types.is_uint32(type_):
        return pa.int64()
    if types.is_float16(type_):
        return pa.float32()
    if types.is_decimal(type_) and not types.is_decimal256(type_) and 0 <= type_.scale <= type_.precision:
        return pa.decimal128(type_.precision, type_.scale)
    return None


def _is_list_like(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(type_)
        or types.is_large_list(type_)
        or types.is_fixed_size_list(type_)
        or types.is_list_view(type_)
        or types.is_large_list_view(type_)
    )


def _refusal(type_: pa.DataType) -> str:
    types = pa.types
    if types.is_null(type_):
        return "a column of nulls alone has no type: cast it to the type that it should have"
    if types.is_uint64(type_):
        return "Hudi has no unsigned numbers: cast to int64 if the values fit, else to decimal128(20, 0)"
    if types.is_decimal256(type_):
        return "a decimal has at most 38 digits: cast to decimal128"
    if types.is_decimal(type_):
        return "the scale of a decimal must lie between 0 and its precision: cast it"
    if types.is_time(type_):
        return "Hudi has no time of day that Spark reads: cast to int64 microseconds or to string"
    if types.is_duration(type_) or types.is_interval(type_):
        return "Hudi has no durations: cast to int64"
    if isinstance(type_, pa.BaseExtensionType):
        return f"cast it to its storage type {type_.storage_type}"
    return "Hudi has no such type"


# ---------------------------------------------------------------------------------------------------------------------
# Evolution


class SchemaMode(StrEnum):
    """What a batch may change of a table's columns.

    STRICT: nothing.  WIDEN: it may bring new columns, and types that hold every value of the table's and every value exactly.
    EVOLVE: as Hudi does by itself, also whole numbers to floating point, which rounds the large ones, and numbers to text.
    """

    STRICT = "strict"
    WIDEN = "widen"
    EVOLVE = "evolve"


@dataclass(frozen=True, slots=True)
class _Difference:
    column: str
    table: str
    incoming: str
    problem: str


@dataclass(frozen=True, slots=True)
class _Evolution:
    """What a write may do to the columns, and what it may not that its batch asks for (`problems`, collected)."""

    mode: SchemaMode
    fixed: Mapping[str, str]
    null_for_missing: bool
    allow_drop: bool
    problems: list[_Difference]


def evolve(
    table: pa.Schema | None,
    incoming: pa.Schema,
    mode: SchemaMode = SchemaMode.WIDEN,
    *,
    fixed: Mapping[str, str] | None = None,
    null_for_missing: bool = False,
    allow_drop: bool = False,
) -> pa.Schema:
    """The table's schema after a write of `incoming`: what the commit states and what batches are conformed to.

    table: canonical, None for a new table; incoming: any, it is normalised first; both without meta columns.  fixed: columns
    whose type no batch changes, by dotted name, and what each is to the table.
    - The table's column order wins; new columns come at the end, nullable, at every level of nesting; not under STRICT.
    - A wider incoming number widens the table: int to long and double, float to double; under EVOLVE also int to float and
      string, long to float, double and string, float and double to string; under STRICT none.  A narrower one, and text for a
      decimal or date column, is cast to the table's type.
    - A column is nullable when it is so on either side; under STRICT as it was.
    - A column that the table has and `incoming` lacks is an error, unless null_for_missing (it stays, the written rows get
      null) or allow_drop (it leaves the schema).  With both, null_for_missing wins, because it keeps data.
    - A name that differs in case is not the table's column; it is refused even as a new one.
    Anything else is one InvalidRequest that lists each column, both types and the option that would allow it.  Timestamp to
    long, binary to string and back, and changes of a decimal's precision or scale in the table are always refused: Hudi's
    readers misread files on either side of such a change.
    Source: write path, Writer schema; reading, Schema.
    """
    incoming = normalise(incoming)
    if table is None:
        return incoming
    rules = _Evolution(mode, fixed or {}, null_for_missing, allow_drop, [])
    fields = _evolve_fields(list(table), list(incoming), "", rules)
    if rules.problems:
        raise InvalidRequest(_difference_text(rules.problems))
    return pa.schema(fields)


def typed_nulls(incoming: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The incoming columns; those that hold nulls alone have the type of the table's column."""
    return pa.schema(
        [
            field.with_type(table.field(field.name).type) if pa.types.is_null(field.type) and field.name in table.names else field
            for field in incoming
        ],
        metadata=incoming.metadata,
    )


def schema_changes(before: pa.Schema, after: pa.Schema) -> tuple[str, ...]:
    """What differs between two states of a table's columns, one short text for each column."""
    return tuple(_changes_of(list(before), list(after), ""))


def _changes_of(before: Sequence[pa.Field], after: Sequence[pa.Field], path: str) -> Iterator[str]:
    known = {field.name: field for field in before}
    for field in after:
        here = path + field.name
        old = known.pop(field.name, None)
        if old is None:
            yield f"{here} {field.type} is new"
        elif pa.types.is_struct(old.type) and pa.types.is_struct(field.type):
            yield from _changes_of(list(old.type.fields), list(field.type.fields), here + ".")
        elif not same_type(old.type, field.type):
            yield f"{here} was {old.type} and is {field.type}"
        if old is not None and field.nullable and not old.nullable:
            yield f"{here} may be null"
    yield from (f"{path}{name} is dropped" for name in known)


def _evolve_fields(table: Sequence[pa.Field], incoming: Sequence[pa.Field], path: str, rules: _Evolution) -> list[pa.Field]:
    arriving = {field.name: field for field in incoming}
    names = {field.name for field in table}
    folded = {field.name.lower(): field.name for field in table}
    result: list[pa.Field] = []
    for field in table:
        here = path + field.name
        other = arriving.get(field.name)
        if other is not None:
            type_ = _evolve_type(field.type, other.type, here, rules)
            result.append(field.with_type(type_).with_nullable(_either_nullable(field, other, rules)))
        elif rules.null_for_missing:
            result.append(field.with_nullable(True))
        elif not rules.allow_drop:
            rules.problems.append(
                _Difference(
                    here,
                    str(field.type),
                    "missing",
                    "set hoodie.write.set.null.for.missing.columns=true to write nulls, or "
                    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop=true to drop it from the table",
                )
            )
    for field in incoming:
        if field.name in names:
            continue
        twin = folded.get(field.name.lower())
        problem = None
        if twin is not None:
            problem = f"the table calls it {path}{twin}: names are case sensitive"
        elif rules.mode is SchemaMode.STRICT:
            problem = f"a new column is not taken by schema mode strict: leave it out, or {_MODE_OPTION}=widen to add it"
        if problem is not None:
            rules.problems.append(_Difference(path + field.name, "missing", str(field.type), problem))
        result.append(field.with_nullable(True))
    return result


def _either_nullable(ours: pa.Field, theirs: pa.Field, rules: _Evolution) -> bool:
    return bool(ours.nullable or (theirs.nullable and rules.mode is not SchemaMode.STRICT))


def _evolve_type(table: pa.DataType, incoming: pa.DataType, path: str, rules: _Evolution) -> pa.DataType:
    types = pa.types
    if table == incoming:
        return table
    if types.is_struct(table) and types.is_struct(incoming):
        return pa.struct(_evolve_fields(list(table.fields), list(incoming.fields), path + ".", rules))
    if types.is_list(table) and types.is_list(incoming):
        ours, theirs = table.value_field, incoming.value_field
        type_ = _evolve_type(ours.type, theirs.type, path + "[]", rules)
        return pa.list_(pa.field("element", type_, _either_nullable(ours, theirs, rules)))
    if types.is_map(table) and types.is_map(incoming):
        ours, theirs = table.item_field, incoming.item_field
        type_ = _evolve_type(ours.type, theirs.type, path + "{}", rules)
        return pa.map_(pa.field("key", pa.string(), False), pa.field("value", type_, _either_nullable(ours, theirs, rules)))
    if _casts_to_table(incoming, table):
        return table
    # Text never widens a decimal or date column: those were the cases above.
    if str(incoming) not in _WIDENINGS.get(str(table), ()):
        problem = _why_not(table, incoming)
    elif path in rules.fixed:
        problem = f"it is {rules.fixed[path]}, whose type no batch changes: cast the column to the table's type"
        problem += whole_number_hint(table, incoming)
    elif rules.mode is SchemaMode.EVOLVE or (rules.mode is SchemaMode.WIDEN and str(incoming) in _LOSSLESS.get(str(table), ())):
        return incoming
    elif rules.mode is SchemaMode.STRICT:
        problem = f"another type is not taken by schema mode strict: cast the column, or {_MODE_OPTION}=widen or evolve"
    else:
        cast = "cast the column to the table's type" + whole_number_hint(table, incoming)
        problem = f"that would change what the table holds: {cast}, or {_MODE_OPTION}=evolve"
    rules.problems.append(_Difference(path, str(table), str(incoming), problem))
    return table


def whole_number_hint(table: pa.DataType, incoming: pa.DataType) -> str:
    """How whole numbers with missing values, which pandas holds as floating point, become whole again; "" for other types."""
    if not (pa.types.is_integer(table) and pa.types.is_floating(incoming)):
        return ""
    return f' (in pandas a missing value makes whole numbers float64: astype("{str(table).capitalize()}") keeps them)'


def _casts_to_table(incoming: pa.DataType, table: pa.DataType) -> bool:
    types = pa.types
    if str(table) in _WIDENINGS.get(str(incoming), ()):
        return True
    if types.is_string(table):
        return bool(types.is_date32(incoming) or types.is_decimal128(incoming))
    if types.is_string(incoming):
        return bool(types.is_date32(table) or types.is_decimal128(table))
    if types.is_decimal128(table) and types.is_decimal128(incoming):
        whole_digits = table.precision - table.scale
        return bool(incoming.scale <= table.scale and incoming.precision - incoming.scale <= whole_digits)
    if types.is_decimal128(table):
        return str(incoming) in _INTEGER_BITS
    return bool(types.is_fixed_size_binary(table) and types.is_binary(incoming))


def _why_not(table: pa.DataType, incoming: pa.DataType) -> str:
    types = pa.types
    if types.is_timestamp(table) or types.is_timestamp(incoming):
        return "a timestamp and another type cannot follow one another in a table: cast the column to the table's type"
    if types.is_decimal(table) and types.is_decimal(incoming):
        return "a decimal of the table cannot change precision or scale: cast the column to the table's type"
    return "not castable: cast the column to the table's type"


def _difference_text(problems: Sequence[_Difference]) -> str:
    rows = [("column", "table", "incoming", "problem")]
    rows += [(p.column, p.table, p.incoming, p.problem) for p in problems]
    widths = [max(len(row[index]) for row in rows) for index in range(3)]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[3] for row in rows
    ]
    return "the incoming columns do not fit the table:\n" + "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
# Fitting batches


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The batch in the target's columns, order and types; rows keep their order.

    batch: from a user (any layout that `normalise` takes) or from a file that was written under an older schema; target:
    canonical.  Columns are found by exact name; a column that the target lacks is left out; one that the batch lacks is
    null.  Numbers that become text take Java's forms, float becomes double by way of its text (0.1f becomes 0.1), text for
    a date or decimal column is parsed, finer timestamps are rounded down.  Nested types are conformed field by field.
    A batch that fits already is returned without copying.
    Raises InvalidRequest when a value cannot be cast without loss, and when a target column that is not nullable is missing
    or holds a null.  Source: write path, Writer schema; reading, Schema.
    """
    if batch.schema.equals(target) and not any(_has_required_part(field) for field in target):
        return batch
    positions = {name: index for index, name in enumerate(batch.schema.names)}
    columns: list[pa.Array] = []
    for field in target:
        position = positions.get(field.name)
        if position is None:
            if not field.nullable:
                raise InvalidRequest(f"column {field.name!r} is missing and may not be null")
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        columns.append(_conform_array(batch.column(position), field, field.name, None))
    if not columns:
        # A batch without columns still has rows.
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=target)


def refuse_rounding(batch: pa.RecordBatch, target: pa.Schema) -> None:
    """Refuse whole numbers that the target's floating point columns, at any depth, cannot hold as they are.

    Old files are read with rounding, as Java widens; what a caller brings is never changed.  Raises InvalidRequest.
    """
    for field in target:
        if field.name in batch.schema.names:
            _refuse_rounding(batch.column(field.name), field.type, field.name)


def _refuse_rounding(array: pa.Array, type_: pa.DataType, path: str) -> None:
    types = pa.types
    source = array.type
    if types.is_dictionary(source):
        _refuse_rounding(array.dictionary, type_, path)
    elif types.is_struct(type_) and types.is_struct(source):
        for child in type_.fields:
            if source.get_field_index(child.name) >= 0:
                _refuse_rounding(pc.struct_field(array, child.name), child.type, f"{path}.{child.name}")
    elif types.is_list(type_) and _is_list_like(source):
        _refuse_rounding(array.flatten(), type_.value_type, path + "[]")
    elif types.is_map(type_) and types.is_map(source):
        _refuse_rounding(array.items, type_.item_type, path + "{}")
    elif types.is_floating(type_) and types.is_integer(source) and source.bit_width > _WHOLE_BITS[type_.bit_width]:
        rounded = pc.cast(pc.cast(array, type_, safe=False), source, safe=False)
        wrong = pc.index(pc.not_equal(rounded, array), True).as_py()
        if wrong >= 0:
            raise InvalidRequest(
                f"column {path!r}: {array[wrong].as_py()} cannot be held by {type_}, which would round it; "
                "cast the column before writing"
            )


_WHOLE_BITS = {32: 24, 64: 53}
"""Bits of the whole numbers that a floating point type of so many bits holds, without gaps."""


def conform_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`conform` for a table; chunks stay as they are."""
    if rows.schema.equals(schema):
        return rows
    if not rows.num_rows:
        return schema.empty_table()
    return pa.Table.from_batches([conform(batch, schema) for batch in rows.to_batches()], schema)


def relabel(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows under a schema that differs from theirs in nullability alone, at any depth; values are not copied.

    schema: the columns of `rows` in their order.  In a struct that is null its required fields are not marked as null, which
    Arrow's own casts and its Parquet writer would refuse.
    Raises Internal for other differences, InvalidRequest where a part that may not be null is null and what is around it is
    there.
    """
    if rows.schema.equals(schema) and not any(_has_required_part(field) for field in schema):
        return rows
    if rows.column_names != schema.names:
        raise Internal(f"columns {', '.join(rows.column_names)} cannot be seen as {', '.join(schema.names)}")
    columns = [relabel_column(column, field) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def relabel_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """One column as `relabel` sees it."""
    return pa.chunked_array([relabel_array(chunk, field) for chunk in column.chunks], field.type)


def relabel_array(array: pa.Array, field: pa.Field) -> pa.Array:
    """Values as `relabel` sees them."""
    if not same_type(array.type, field.type):
        raise Internal(f"column {field.name!r} of type {array.type} cannot be seen as {field.type}")
    return _conform_array(array, field, field.name, None)


def same_type(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two types hold the same values in the same layout; nullability and the names of list and map entries may differ."""
    types = pa.types
    if types.is_struct(left) and types.is_struct(right):
        return left.num_fields == right.num_fields and all(
            a.name == b.name and same_type(a.type, b.type) for a, b in zip(left.fields, right.fields, strict=True)
        )
    if types.is_list(left) and types.is_list(right):
        return same_type(left.value_type, right.value_type)
    if types.is_map(left) and types.is_map(right):
        return same_type(left.key_type, right.key_type) and same_type(left.item_type, right.item_type)
    return bool(left == right)


def _has_required_part(field: pa.Field) -> bool:
    """Whether a part of the field may not be null, so that data of the same types must still be looked at."""
    if not field.nullable:
        return True
    type_ = field.type
    if pa.types.is_struct(type_):
        return any(_has_required_part(child) for child in type_.fields)
    if pa.types.is_list(type_):
        return _has_required_part(type_.value_field)
    return pa.types.is_map(type_) and _has_required_part(type_.item_field)


def _conform_array(array: pa.Array, field: pa.Field, path: str, parent_valid: pa.Array | None) -> pa.Array:
    if not field.nullable and array.null_count:
        missing = array.is_null() if parent_valid is None else pc.and_(array.is_null(), parent_valid)
        row = pc.index(missing, True).as_py()
        if row >= 0:
            raise InvalidRequest(f"column {path!r} may not be null, and is at row {row} (counted from 0)")
    type_ = field.type
    fitting = array.type == type_ and not _has_required_child(type_)
    result = array if fitting else _cast(array, type_, path, parent_valid)
    return result if field.nullable or not result.null_count else _unmarked(result)


def _unmarked(array: pa.Array) -> pa.Array:
    """The array without its marks of nulls, each of which stands where something around it is null.

    Parquet's writer and Arrow's casts look at such marks without looking at what is around them.
    """
    type_ = array.type
    if pa.types.is_struct(type_):
        return pa.StructArray.from_arrays([array.field(i) for i in range(type_.num_fields)], fields=list(type_.fields))
    below = [array.values] if pa.types.is_list(type_) or pa.types.is_map(type_) else []
    _, *buffers = array.buffers()[: type_.num_buffers]
    return pa.Array.from_buffers(type_, len(array), [None, *buffers], 0, array.offset, children=below)


def _has_required_child(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_)) and _has_required_part(pa.field("", type_))


def _cast(array: pa.Array, type_: pa.DataType, path: str, parent_valid: pa.Array | None) -> pa.Array:
    types = pa.types
    source = array.type
    if types.is_dictionary(source):
        if types.is_string_view(source.value_type):
            # Arrow does not take views by index.
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string()))
        return _cast(array.dictionary_decode(), type_, path, parent_valid)
    if types.is_run_end_encoded(source):
        return _cast(pc.run_end_decode(array), type_, path, parent_valid)
    if isinstance(source, pa.BaseExtensionType):
        return _cast(array.storage, type_, path, parent_valid)
    if types.is_struct(type_) and types.is_struct(source):
        return _cast_struct(array, type_, path, parent_valid)
    if types.is_list(type_) and _is_list_like(source):
        return _cast_list(array, type_, path)
    if types.is_map(type_) and types.is_map(source):
        return _cast_map(array, type_, path)
    if source == type_:
        return array
    if types.is_null(source):
        return pa.nulls(len(array), type_)
    try:
        return _cast_scalar(array, type_, path)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"column {path!r} cannot become {type_}: {error}") from error
    except pa.ArrowNotImplementedError as error:
        raise _not_castable(path, source, type_) from error


def _cast_scalar(array: pa.Array, type_: pa.DataType, path: str) -> pa.Array:
    types = pa.types
    source = array.type
    if types.is_string(type_):
        if is_string_like(source):
            return pc.cast(array, type_)
        if types.is_integer(source) or types.is_floating(source) or types.is_date32(source) or types.is_decimal(source):
            return value_text(pc.cast(array, pa.float32()) if types.is_float16(source) else array)
        raise _not_castable(path, source, type_)
    if is_string_like(source):
        if types.is_date32(type_) or types.is_decimal128(type_):
            return pc.cast(array, type_)
        raise _not_castable(path, source, type_)
    if types.is_timestamp(type_) and types.is_timestamp(source):
        return pc.cast(timestamp_micros(array), type_)
    if types.is_float64(type_) and types.is_float32(source):
        return floats_through_text(array)
    if types.is_floating(type_) and types.is_integer(source):
        # Java's widening of long to float or double rounds to the nearest; it never fails.
        return pc.cast(array, type_, safe=False)
    families = (types.is_integer, types.is_floating, types.is_decimal, is_binary_like, types.is_date, types.is_time)
    if any(family(source) and family(type_) for family in families) or (types.is_integer(source) and types.is_decimal(type_)):
        return pc.cast(_decimal_ready(array, type_), type_)
    raise _not_castable(path, source, type_)


def _decimal_ready(array: pa.Array, type_: pa.DataType) -> pa.Array:
    # Arrow wants room for every value of the integer type in the decimal; the values themselves are what has to fit.
    if pa.types.is_integer(array.type) and pa.types.is_decimal(type_):
        return pc.cast(array, pa.decimal128(38, type_.scale)) if type_.scale <= 19 else pc.cast(array, pa.string())
    return array


def _not_castable(path: str, source: pa.DataType, type_: pa.DataType) -> InvalidRequest:
    return InvalidRequest(f"column {path!r} of type {source} cannot become {type_}: cast it before writing")


def _cast_struct(array: pa.StructArray, type_: pa.StructType, path: str, parent_valid: pa.Array | None) -> pa.Array:
    positions = {array.type.field(index).name: index for index in range(array.type.num_fields)}
    valid = array.is_valid() if array.null_count else None
    # A field may not be null only where everything around it is there.
    inside = valid if parent_valid is None else parent_valid if valid is None else pc.and_(valid, parent_valid)
    children: list[pa.Array] = []
    for child in type_.fields:
        here = f"{path}.{child.name}"
        position = positions.get(child.name)
        if position is None:
            if not child.nullable and (valid is None or pc.any(valid).as_py()) and len(array):
                raise InvalidRequest(f"column {here!r} is missing and may not be null")
            children.append(pa.nulls(len(array), child.type))
            continue
        children.append(_conform_array(array.field(position), child, here, inside))
    mask = pc.invert(valid) if valid is not None else None
    return pa.StructArray.from_arrays(children, fields=list(type_.fields), mask=mask)


def _cast_list(array: pa.Array, type_: pa.ListType, path: str) -> pa.Array:
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        array = _viewed_list(array)
    if not pa.types.is_list(array.type):
        array = pc.cast(array, pa.list_(array.type.value_field))
    array = _own_items(array)
    values = array.values.slice(0, array.offsets[-1].as_py() if len(array) else 0)
    values = _conform_array(values, type_.value_field, path + "[]", None)
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(type_, len(array), buffers, array.null_count, array.offset, children=[values])


def _viewed_list(array: pa.Array) -> pa.ListArray:
    """A list view as a list.  Arrow's own cast makes offsets of too few bytes, behind which anything may stand."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise InvalidRequest(f"a batch with {offsets[-1]} list items: give smaller ones")
    kind = pa.list_(array.type.value_field)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pc.list_flatten(array), type=kind, mask=mask)


def _own_items(array: pa.ListArray | pa.MapArray) -> pa.ListArray | pa.MapArray:
    """The lists or maps with no items but their own: others need no casting, and may hold what these do not."""
    if array.offset or (len(array.offsets) and array.offsets[0].as_py()):
        array = pa.concat_arrays([array, array.slice(0, 0)])
    if array.null_count and np.diff(np.asarray(array.offsets))[np.asarray(array.is_null(), dtype=np.bool_)].any():
        # Arrow allows items in a list that is null.
        array = array.take(pa.array(np.arange(len(array))))
    return array


def _cast_map(array: pa.MapArray, type_: pa.MapType, path: str) -> pa.Array:
    array = _own_items(array)
    end = array.offsets[-1].as_py() if len(array) else 0
    keys = _conform_array(array.keys.slice(0, end), type_.key_field, path + "{key}", None)
    items = _conform_array(array.items.slice(0, end), type_.item_field, path + "{}", None)
    entries = pa.StructArray.from_arrays([keys, items], fields=[type_.key_field, type_.item_field])
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(type_, len(array), buffers, array.null_count, array.offset, children=[entries])
