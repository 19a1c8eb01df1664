"""Parquet column types that depend on the table's Avro schema in addition to the Arrow type.

    timestamp-millis, local-timestamp-millis    INT64 of milliseconds, as the schema declares; microseconds in memory
    enum                                        BINARY of one of the symbols; strings in memory
    vector                                      FIXED_LEN_BYTE_ARRAY; fixed size lists in memory

`timestamp_units` reads files of releases that did not follow this.

Specification: docs/formats/base-file.md, "Types".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.avro_resolve import resolve_avro
from pyhudi.format.hudi_types import is_vector, vector_size_bytes

_MILLIS = ("timestamp-millis", "local-timestamp-millis")


@lru_cache(maxsize=32)
def needs_no_hints(avro: str) -> bool:
    """Return whether no column needs this module, as in almost every table."""
    return '-millis"' not in avro and '"enum"' not in avro


def file_schema(schema: pa.Schema, avro: str) -> pa.Schema:
    """Return the columns as a file stores them.

    Args:
        schema: Their types in memory.
        avro: Avro schema with all of them.
    """
    if any(is_vector(field.type) for field in schema):
        schema = pa.schema([_vector_as_bytes(field) for field in schema], schema.metadata)
    if needs_no_hints(avro):
        return schema
    nodes = {field["name"]: field["type"] for field in resolve_avro(avro)["fields"]}
    return pa.schema([field.with_type(_file_type(field.type, nodes[field.name])) for field in schema], schema.metadata)


def check_values(rows: pa.Table, avro: str) -> None:
    """Raise InvalidRequest, with the column's name, for values that the table cannot store, at any depth.

    These are strings that are not a symbol of their enum, and timestamps finer than stored milliseconds.
    """
    if needs_no_hints(avro):
        return
    nodes = {field["name"]: field["type"] for field in resolve_avro(avro)["fields"]}
    for name in rows.column_names:
        for chunk in rows.column(name).chunks:
            _check(chunk, nodes[name], name)


def _check(array: pa.Array, node: Any, path: str) -> None:
    node = _branch(node)
    kind = node["type"] if isinstance(node, dict) else node
    if kind == "enum":
        row = pc.index(pc.is_in(array, pa.array([*node["symbols"], None], array.type)), value=False).as_py()
        if row >= 0:
            raise InvalidRequest(
                f"column {path!r}: row {row} (counted from 0) is {array[row].as_py()!r}, which is not a symbol of its enum "
                f"({', '.join(node['symbols'])})"
            )
    elif isinstance(node, dict) and node.get("logicalType") in _MILLIS:
        milliseconds = pc.floor_temporal(array, unit="millisecond")
        wrong = pc.index(pc.not_equal(array, milliseconds), True).as_py()
        if wrong >= 0:
            raise InvalidRequest(
                f"column {path!r}: {array[wrong].as_py()} is not a whole number of milliseconds, the unit of the column; "
                "round the column"
            )
    elif kind == "record":
        for field in node["fields"]:
            _check(pc.struct_field(array, field["name"]), field["type"], f"{path}.{field['name']}")
    elif kind == "array":
        _check(array.flatten(), node["items"], path + "[]")
    elif kind == "map":
        _check(array.items, node["values"], path + "{}")


def _branch(node: Any) -> Any:
    return next((branch for branch in node if branch != "null"), "null") if isinstance(node, list) else node


def _vector_as_bytes(field: pa.Field) -> pa.Field:
    return field.with_type(pa.binary(vector_size_bytes(field.type))) if is_vector(field.type) else field


def _file_type(type_: pa.DataType, node: Any) -> pa.DataType:
    node = _branch(node)
    if not isinstance(node, dict):
        return type_
    if node.get("logicalType") in _MILLIS and pa.types.is_timestamp(type_):
        return pa.timestamp("ms", type_.tz)
    if pa.types.is_struct(type_):
        below = {field["name"]: field["type"] for field in node["fields"]}
        return pa.struct([field.with_type(_file_type(field.type, below[field.name])) for field in type_.fields])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_file_type(type_.value_type, node["items"])))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_field, type_.item_field.with_type(_file_type(type_.item_type, node["values"])))
    return type_
