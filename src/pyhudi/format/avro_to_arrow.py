"""Conversion of table schemas from Avro to Arrow.

Avro has more types than `arrow_to_avro` writes. Enums (string), uuid strings, bytes decimals, fixed, millisecond
timestamps, times and local timestamps are read as well.

Limits: the defaults of nullable fields are dropped (a column missing from a file reads as null, regardless of its default).
Recursive records and unions of several types are rejected. Columns are identified by name only.
Specification: docs/formats/base-file.md, "Types".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.avro_resolve import Json, is_avro_name, resolve_avro
from pyhudi.format.hudi_types import HUDI_TYPE, VARIANT_TYPE, hudi_type_name, is_vector, record_from_avro, vector_from_avro
from pyhudi.format.json_document import parse_json
from pyhudi.format.meta_columns import is_meta_field

TIMESTAMP = pa.timestamp("us", "UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
COMMENT = b"comment"
DEFAULT = b"default"
"""Metadata key of a non-nullable field with a default: the value, as JSON, that the field has in files older than the field."""
ARROW_TYPES: tuple[tuple[pa.DataType, str], ...] = (
    (pa.bool_(), "boolean"),
    (pa.int32(), "int"),
    (pa.int64(), "long"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.string(), "string"),
    (pa.binary(), "bytes"),
)
UNIT, MILLIS = b"unit", b"millis"
"""Metadata entry of a field that holds timestamps which the table's files count in milliseconds."""
UNSUPPORTED = b"unsupported"
"""Metadata key of a field whose values are not decoded: the reason. Its Arrow type is that of the stored bytes."""
_AVRO_PRIMITIVES = {name: type_ for type_, name in ARROW_TYPES}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): LOCAL_TIMESTAMP,
    ("string", "uuid"): pa.string(),
}


@lru_cache(maxsize=64)
def avro_to_arrow(text: str) -> pa.Schema:
    """Return the Arrow schema of a table's Avro JSON text, in column order, with meta columns if present; cached by text.

    A union with null, in either order, is a nullable field; T alone is a non-nullable one. An enum becomes string, a
    uuid string, a vector a fixed size list, a millisecond timestamp microseconds, a local timestamp one without a zone,
    a time time32 or time64, fixed bytes fixed_size_binary, an array's item `element`. A doc becomes the field's
    metadata entry `comment`, a type of Hudi 1.2 the entry `hudi_type`, and a unit of milliseconds the entry `unit`. The
    default of a non-nullable field becomes the entry
    `default` (see `column_default`). A column with a logical type whose values PyHudi does not decode has the
    type of the stored bytes, and fails `check_supported`.

    Specification: docs/formats/base-file.md, "Types".

    Raises:
        CorruptData: The text is not an Avro record, or has an invalid field name.
        Unsupported: Recursive records, unions of several types, or logical types without an Arrow equivalent.
    """
    schema = pa.schema(record_fields(resolve_avro(text)))
    _check_names(schema)
    return schema


def _check_names(fields: Iterable[pa.Field]) -> None:
    for field in fields:
        type_ = field.type
        if not is_avro_name(field.name):
            raise CorruptData(f"the schema has the invalid column name {field.name!r}, with which Hudi reads no table")
        if pa.types.is_map(type_):
            _check_names([type_.item_field])
        elif pa.types.is_nested(type_):
            _check_names(type_.field(index) for index in range(type_.num_fields))


def without_meta_columns(text: str) -> str:
    """Return a table's Avro JSON text without meta columns (commits that evolve the schema by column ids include them)."""
    record = parse_json(text, "the schema is")
    fields = [field for field in record["fields"] if not is_meta_field(field["name"])]
    return json.dumps({**record, "fields": fields}, separators=(",", ":"), ensure_ascii=False)


def record_fields(record: Json) -> list[pa.Field]:
    """Return the Arrow fields of a resolved Avro record."""
    return [arrow_field(field) for field in record["fields"]]


def arrow_field(field: Json) -> pa.Field:
    """Return the Arrow field of a resolved Avro field.

    Raises:
        Unsupported: As `avro_to_arrow`, with the field's name.
    """
    try:
        type_, nullable = arrow_type(field["type"])
    except Unsupported as error:
        raise Unsupported(f"column {field['name']!r}: {error.args[0]}") from error
    doc = field.get("doc")
    metadata: dict[bytes, bytes] = {COMMENT: doc.encode()} if isinstance(doc, str) and doc else {}
    metadata.update(_unit(field["type"]) or {})
    reason = None if is_vector(type_) else _unsupported_reason(field["type"])
    if reason is not None:
        metadata[UNSUPPORTED] = reason.encode()
    name = hudi_type_name(type_) if is_vector(type_) else _record_name(field["type"])
    if name is not None:
        metadata[HUDI_TYPE] = name.encode()
    if not nullable and field.get("default") is not None:
        metadata[DEFAULT] = json.dumps(_in_microseconds(field["default"], field["type"])).encode()
    return pa.field(field["name"], type_, nullable, metadata=metadata or None)


def _unit(node: Any) -> dict[bytes, bytes] | None:
    """Return the metadata entry of timestamps in milliseconds; None for other types."""
    if isinstance(node, list):
        node = next((branch for branch in node if branch != "null"), None)
    return {UNIT: MILLIS} if _is_millis(node) else None


def _is_millis(node: Any) -> bool:
    return isinstance(node, dict) and str(node.get("logicalType")).endswith("timestamp-millis") and node["type"] == "long"


def _record_name(node: Any) -> str | None:
    if isinstance(node, list):
        node = next((branch for branch in node if branch != "null"), None)
    return record_from_avro(node) if isinstance(node, dict) else None


def check_supported(fields: Iterable[pa.Field], what: str) -> None:
    """Check that the values of some columns can be decoded.

    Args:
        fields: Fields from `avro_to_arrow`.
        what: Subject of the error, such as "the table at X cannot be written".

    Raises:
        Unsupported: A column has a logical type whose values PyHudi does not decode; names the column and the type.
    """
    for field in fields:
        reason = (field.metadata or {}).get(UNSUPPORTED)
        if reason is not None:
            raise Unsupported(f"{what}: column {field.name!r}: {reason.decode()}. The other columns can be read")


def _unsupported_reason(node: Any) -> str | None:
    """Return why values of a resolved Avro type cannot be decoded, at any depth; None if they can."""
    if isinstance(node, list):
        return next(filter(None, map(_unsupported_reason, node)), None)
    if not isinstance(node, dict):
        return None
    if node.get("logicalType") in _NOT_PLAIN and record_from_avro(node) is None:
        return f"the logical type {node['logicalType']} (Hudi 1.2) is not supported in this form"
    below = [node.get("items"), node.get("values"), *(field["type"] for field in node.get("fields") or ())]
    return _unsupported_reason([part for part in below if part is not None]) if any(below) else None


def default_text(field: pa.Field) -> str | None:
    """Return the default of a non-nullable field as Avro's JSON of its type; None for other fields."""
    text = (field.metadata or {}).get(DEFAULT)
    if text is None:
        return None
    if pa.types.is_string(field.type) and not text.startswith(b'"'):
        # The column's type was changed to string after it got the default.
        return json.dumps(text.decode())
    return str(text, "utf-8")


def column_default(field: pa.Field) -> pa.Scalar | None:
    """Return the value that rows of files written before the field was added have in it, in the field's type.

    Returns:
        None if the field has no default or is nullable.

    Raises:
        Unsupported: The default contains types that Avro's JSON encodes differently.
    """
    text = default_text(field)
    if text is None:
        return None
    value, type_ = json.loads(text), field.type
    types = pa.types
    try:
        if types.is_binary(type_) or types.is_fixed_size_binary(type_):
            return pa.scalar(value.encode("latin-1"), type_)
        if types.is_decimal(type_):
            unscaled = int.from_bytes(value.encode("latin-1"), "big", signed=True)
            return pa.scalar(Decimal(unscaled).scaleb(-type_.scale, Context(prec=38)), type_)
        if types.is_temporal(type_):
            return pa.scalar(value, pa.int32() if type_.bit_width == 32 else pa.int64()).cast(type_)
        return pa.scalar(list(value.items()) if types.is_map(type_) else value, type_)
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise Unsupported(f"the default {value!r} of column {field.name!r} of type {type_} cannot be read: {error}") from error


def _in_microseconds(default: Any, node: Any) -> Any:
    return default * 1000 if _is_millis(node) and isinstance(default, int) else default


_NOT_PLAIN = ("vector", "blob", "variant")


def arrow_type(node: Any) -> tuple[pa.DataType, bool]:
    """Return the Arrow type of a resolved Avro type, and whether it is nullable."""
    if isinstance(node, list):
        non_null = [branch for branch in node if branch != "null"]
        if len(non_null) != 1:
            kinds = ", ".join(str(b.get("type") if isinstance(b, dict) else b) for b in node)
            raise Unsupported(f"a union of [{kinds}] is not supported: only unions of null and one type are")
        return arrow_type(non_null[0])[0], len(non_null) < len(node)
    if isinstance(node, str):
        if node == "null":
            raise Unsupported("a field of type null is not supported")
        return _AVRO_PRIMITIVES[node], False
    kind, logical = node["type"], node.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal_type(node), False
    if kind == "record":
        fields = record_fields(node)
        if record_from_avro(node) == "VARIANT":
            fields.sort(key=lambda field: VARIANT_TYPE.get_field_index(field.name))
        return pa.struct(fields), False
    if kind == "array":
        type_, nullable = arrow_type(node["items"])
        return pa.list_(pa.field("element", type_, nullable, metadata=_unit(node["items"]))), False
    if kind == "map":
        type_, nullable = arrow_type(node["values"])
        item = pa.field("value", type_, nullable, metadata=_unit(node["values"]))
        return pa.map_(pa.field("key", pa.string(), False), item), False
    if kind == "enum":
        return pa.string(), False
    if logical == "vector" and (vector := vector_from_avro(node)) is not None:
        return vector, False
    if kind == "fixed":
        return pa.binary(node["size"]), False
    if kind == "null":
        raise Unsupported("a field of type null is not supported")
    if logical is None:
        return _AVRO_PRIMITIVES[kind], False
    # Avro: a reader ignores a logical type that it does not know and uses the underlying type.
    return _LOGICAL.get((kind, str(logical)), _AVRO_PRIMITIVES[kind]), False


def _decimal_type(node: Json) -> pa.DataType:
    precision, scale = node.get("precision"), node.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or precision < 1 or not 0 <= scale <= precision:
        raise CorruptData(
            "invalid decimal: it needs a precision of at least 1 and a scale of at most the precision", found=(precision, scale)
        )
    if precision > 38:
        raise Unsupported(f"a decimal of precision {precision} is not supported: the maximum is 38")
    return pa.decimal128(precision, scale)
