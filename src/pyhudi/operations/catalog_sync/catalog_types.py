"""Catalog types of columns: Hive types, and the JSON schema that a catalog stores for Spark.

    Arrow                   Hive                         Spark
    boolean                 boolean                      boolean
    int8, int16, int32      int                          integer
    int64                   bigint                       long
    float, double           float, double                float, double
    string                  string                       string
    binary, fixed size      binary                       binary
    decimal(p, s)           decimal(p,s)                 decimal(p,s)
    date                    date                         date
    timestamp               bigint, or timestamp         timestamp, timestamp_ntz without a zone
    time                    int (ms), bigint             integer, long
    list, map, struct       array<>, map<>, struct<>     array, map, struct

Hive timestamps are optional: by default Hudi's input formats return long values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa

from pyhudi.errors import Unsupported

_HIVE = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date32, "date"),
    (pa.types.is_time32, "int"),
    (pa.types.is_time64, "bigint"),
)
_SPARK = {"int": "integer", "bigint": "long"}


def hive_type(type_: pa.DataType, *, timestamps: bool) -> str:
    """Return the Hive type of a column. ``timestamps`` selects Hive's timestamp type. Raises Unsupported for types
    without equivalent.
    """
    if pa.types.is_timestamp(type_):
        return "timestamp" if timestamps else "bigint"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"array<{hive_type(type_.value_type, timestamps=timestamps)}>"
    if pa.types.is_map(type_):
        item = hive_type(type_.item_type, timestamps=timestamps)
        return f"map<{hive_type(type_.key_type, timestamps=timestamps)},{item}>"
    if pa.types.is_struct(type_):
        # Hive does not accept '-' in field names of a type.
        inner = (f"{field.name.lower().replace('-', '_')}:{hive_type(field.type, timestamps=timestamps)}" for field in type_)
        return f"struct<{','.join(inner)}>"
    for matches, name in _HIVE:
        if matches(type_):
            return name
    raise Unsupported(f"a column of type {type_} has no equivalent in Hive, so the table cannot be registered in a catalog")


def spark_schema(fields: Iterable[pa.Field]) -> str:
    """Return Spark's schema JSON as Hudi writes it into catalogs."""
    return _struct(fields)


def _struct(fields: Iterable[pa.Field]) -> str:
    parts = (
        f'{{"name":{json.dumps(field.name, ensure_ascii=False)},"type":{_spark_type(field.type)},'
        f'"nullable":{_truth(field.nullable)},"metadata":{{}}}}'
        for field in fields
    )
    return f'{{"type":"struct","fields":[{",".join(parts)}]}}'


def _spark_type(type_: pa.DataType) -> str:
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        nulls = _truth(type_.value_field.nullable)
        return f'{{"type":"array", "elementType":{_spark_type(type_.value_type)},"containsNull":{nulls}}}'
    if pa.types.is_map(type_):
        nulls = _truth(type_.item_field.nullable)
        key, item = _spark_type(type_.key_type), _spark_type(type_.item_type)
        return f'{{"type":"map", "keyType":{key},"valueType":{item},"valueContainsNull":{nulls}}}'
    if pa.types.is_struct(type_):
        return _struct(type_)
    if pa.types.is_timestamp(type_):
        return '"timestamp_ntz"' if type_.tz is None else '"timestamp"'
    name = hive_type(type_, timestamps=True)
    return f'"{_SPARK.get(name, name)}"'


def _truth(value: object) -> str:
    return "true" if value else "false"
