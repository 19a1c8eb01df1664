"""Compilation of a resolved Avro schema to the nodes of the columnar codec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from pyhudi.errors import Unsupported
from pyhudi.format.avro_columns.column_nodes import (
    BinaryNode,
    BooleanNode,
    DecimalNode,
    EnumNode,
    FixedNode,
    FloatNode,
    Node,
    NullableNode,
    NumberNode,
    RecordNode,
    ReorderedNode,
    VectorNode,
)
from pyhudi.format.avro_columns.sequences import MapNode, SequenceNode
from pyhudi.format.hudi_types import is_vector


def compile_node(schema: Any, arrow: pa.DataType) -> Node:
    """Return the node of a type.

    Args:
        schema: Resolved Avro.
        arrow: Its type from `avro_to_arrow`.
    """
    if isinstance(schema, list):
        if len(schema) == 1:
            raise Unsupported("an Avro union of one type is not supported")
        if len(schema) != 2 or "null" not in schema:
            raise Unsupported("an Avro union of several types is not supported")
        value_branch = 0 if schema[1] == "null" else 1
        return NullableNode(compile_node(schema[value_branch], arrow), value_branch)
    kind = schema if isinstance(schema, str) else schema["type"]
    make = _MAKERS.get(kind)
    if make is None:
        raise Unsupported(f"the Avro type {kind} is not supported")
    return make(schema if isinstance(schema, dict) else {"type": kind}, arrow)


def _make_number(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    bits = 32 if schema["type"] == "int" else 64
    logical = schema.get("logicalType")
    factor = 1000 if pa.types.is_timestamp(arrow) and logical in ("timestamp-millis", "local-timestamp-millis") else 1
    below = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000}.get(arrow, 0)
    return NumberNode(arrow, bits, factor, below)


def _make_binary(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    return DecimalNode(arrow, None) if pa.types.is_decimal(arrow) else BinaryNode(arrow)


def _make_fixed(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    if pa.types.is_decimal(arrow):
        if not 1 <= schema["size"] <= _MAX_DECIMAL_BYTES:
            raise Unsupported(f"a decimal of {schema['size']} bytes is not supported")
        return DecimalNode(arrow, schema["size"])
    return VectorNode(arrow) if is_vector(arrow) else FixedNode(arrow)


def _make_record(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    # Only the fields of a VARIANT may have another order.
    stored = pa.struct([arrow.field(field["name"]) for field in schema["fields"]])
    children = [compile_node(field["type"], child.type) for field, child in zip(schema["fields"], stored.fields, strict=True)]
    node = RecordNode(stored, tuple(children))
    return node if stored == arrow else ReorderedNode(arrow, node)


def _make_array(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    return SequenceNode(arrow, compile_node(schema["items"], arrow.value_type), item_nullable=arrow.value_field.nullable)


def _make_map(schema: dict[str, Any], arrow: pa.DataType) -> Node:
    entry = pa.struct([arrow.key_field, arrow.item_field])
    return MapNode(
        arrow, RecordNode(entry, (BinaryNode(pa.string()), compile_node(schema["values"], arrow.item_type))), item_nullable=False
    )


_MAX_DECIMAL_BYTES: Final = 64
_MAKERS: Final[dict[str, Callable[[dict[str, Any], pa.DataType], Node]]] = {
    "boolean": lambda schema, arrow: BooleanNode(),
    "int": _make_number,
    "long": _make_number,
    "float": lambda schema, arrow: FloatNode(arrow),
    "double": lambda schema, arrow: FloatNode(arrow),
    "bytes": _make_binary,
    "string": _make_binary,
    "enum": lambda schema, arrow: EnumNode(schema["symbols"]),
    "fixed": _make_fixed,
    "record": _make_record,
    "array": _make_array,
    "map": _make_map,
}
