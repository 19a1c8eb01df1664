"""Avro record schema of the metadata table. Format: docs/formats/metadata-table.md, HoodieMetadataRecord.

All records of all partitions share this schema: five meta fields, a key, a type, and one payload field per index type.
A record fills exactly one payload.

    field                  payload                       types
    filesystemMetadata     map name -> size, isDeleted   1 partition list, 2 file list
    BloomFilterMetadata    a file's Bloom filter         4
    ColumnStatsMetadata    a column's range              3 in a file, 6 in a partition
    recordIndexMetadata    location of a record key      5
    SecondaryIndexMetadata isDeleted                     7

Values are stored without a header. The schema in the base file's file info or in the log block's header decodes them,
because later Hudi versions append fields and union branches. This module defines the schema that PyHudi writes, which
equals that of Hudi 1.0.2 except for comments.
"""

from __future__ import annotations

import json
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Any

from pyhudi.format.avro_wrappers import DECIMAL, Wrapper


class MetadataRecordType(IntEnum):
    """Type of a record of the metadata table."""

    PARTITION_LIST = 1
    FILE_LIST = 2
    COLUMN_STATS = 3
    BLOOM_FILTER = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


class Payload(StrEnum):
    """Name of the record field that holds the payload."""

    FILES = "filesystemMetadata"
    BLOOM_FILTER = "BloomFilterMetadata"
    COLUMN_STATS = "ColumnStatsMetadata"
    RECORD_INDEX = "recordIndexMetadata"
    SECONDARY_INDEX = "SecondaryIndexMetadata"


PAYLOAD_BY_TYPE = {
    MetadataRecordType.PARTITION_LIST: Payload.FILES,
    MetadataRecordType.FILE_LIST: Payload.FILES,
    MetadataRecordType.COLUMN_STATS: Payload.COLUMN_STATS,
    MetadataRecordType.BLOOM_FILTER: Payload.BLOOM_FILTER,
    MetadataRecordType.RECORD_INDEX: Payload.RECORD_INDEX,
    MetadataRecordType.PARTITION_STATS: Payload.COLUMN_STATS,
    MetadataRecordType.SECONDARY_INDEX: Payload.SECONDARY_INDEX,
}


_STRING = {"type": "string", "avro.java.string": "String"}

_WRAPPERS: tuple[tuple[Wrapper, str, Any], ...] = (
    (Wrapper.BOOLEAN, "BooleanWrapper", "boolean"),
    (Wrapper.INT, "IntWrapper", "int"),
    (Wrapper.LONG, "LongWrapper", "long"),
    (Wrapper.FLOAT, "FloatWrapper", "float"),
    (Wrapper.DOUBLE, "DoubleWrapper", "double"),
    (Wrapper.BYTES, "BytesWrapper", "bytes"),
    (Wrapper.STRING, "StringWrapper", _STRING),
    (Wrapper.DATE, "DateWrapper", "int"),
    (
        Wrapper.DECIMAL,
        "DecimalWrapper",
        {"type": "bytes", "logicalType": "decimal", "precision": DECIMAL.precision, "scale": DECIMAL.scale},
    ),
    (Wrapper.TIME_MICROS, "TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    (Wrapper.TIMESTAMP_MICROS, "TimestampMicrosWrapper", "long"),
    (Wrapper.LOCAL_DATE, "LocalDateWrapper", "int"),
)

WRAPPER_BY_RECORD = {name: kind for kind, name, _ in _WRAPPERS}


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _field(name: str, kind: Any, **default: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **default}


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


_META_FIELDS = tuple(
    _optional(f"_hoodie_{name}", "string")
    for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
)

_FILE_INFO = _record("HoodieMetadataFileInfo", _field("size", "long"), _field("isDeleted", "boolean"))

_BLOOM_FILTER = _record(
    "HoodieMetadataBloomFilter",
    _field("type", _STRING),
    _field("timestamp", _STRING),
    _field("bloomFilter", "bytes"),
    _field("isDeleted", "boolean"),
)

_WRAPPER_RECORDS = tuple(_record(name, _field("value", kind)) for _, name, kind in _WRAPPERS)
_ITEMS = {"type": "array", "items": ["null", *(name for _, name, _ in _WRAPPERS)]}
_TUPLE_RECORD = _record("ArrayWrapper", _optional("wrappedValues", _ITEMS))


def _column_stats(bounds: tuple[dict[str, Any], ...], *more: dict[str, Any]) -> dict[str, Any]:
    """bounds: the records of their union; `maxValue` refers to them by name."""
    return _record(
        "HoodieMetadataColumnStats",
        _optional("fileName", _STRING),
        _optional("columnName", _STRING),
        _field("minValue", ["null", *bounds], default=None),
        _field("maxValue", ["null", *(bound["name"] for bound in bounds)], default=None),
        _optional("valueCount", "long"),
        _optional("nullCount", "long"),
        _optional("totalSize", "long"),
        _optional("totalUncompressedSize", "long"),
        _field("isDeleted", "boolean"),
        _field("isTightBound", "boolean", default=False),
        *more,
    )


_COLUMN_STATS = _column_stats(_WRAPPER_RECORDS)
_VALUE_TYPE = _record("HoodieValueTypeInfo", _field("typeOrdinal", "int"), _optional("additionalInfo", _STRING))
_TYPED_COLUMN_STATS = _column_stats((*_WRAPPER_RECORDS, _TUPLE_RECORD), _optional("valueType", _VALUE_TYPE))

_RECORD_INDEX = _record(
    "HoodieRecordIndexInfo",
    _optional("partitionName", _STRING),
    _optional("fileIdHighBits", "long"),
    _optional("fileIdLowBits", "long"),
    _optional("fileIndex", "int"),
    _optional("fileId", _STRING),
    _optional("instantTime", "long"),
    _field("fileIdEncoding", "int", default=0),
    _optional("position", "long"),
)


def _fields(statistics: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return (
        _field("key", _STRING),
        _field("type", "int"),
        _field(Payload.FILES.value, ["null", {"type": "map", "values": _FILE_INFO, "avro.java.string": "String"}]),
        _optional(Payload.BLOOM_FILTER.value, _BLOOM_FILTER),
        _optional(Payload.COLUMN_STATS.value, statistics),
        _optional(Payload.RECORD_INDEX.value, _RECORD_INDEX),
        _optional(Payload.SECONDARY_INDEX.value, _record("HoodieSecondaryIndexInfo", _field("isDeleted", "boolean"))),
    )


_FIELDS = _fields(_COLUMN_STATS)


def _text(fields: tuple[dict[str, Any], ...]) -> str:
    schema = {
        "type": "record",
        "name": "HoodieMetadataRecord",
        "namespace": "org.apache.hudi.avro.model",
        "fields": list(fields),
    }
    return json.dumps(schema, separators=(",", ":"))


RECORD_SCHEMA = _text(_META_FIELDS + _FIELDS)
"""The schema of values, for a base file's file info (`schema`) and a log block's header (SCHEMA)."""

TYPED_SCHEMA = _text(_META_FIELDS + _fields(_TYPED_COLUMN_STATS))
"""The schema of Hudi 1.1 and later, in which statistics store the type of their column (layout 2)."""

COMMIT_SCHEMA = _text(_FIELDS)
"""The schema without the meta fields, as in the extra metadata (`schema`) of metadata table commits."""


@lru_cache(maxsize=64)
def has_standard_layout(schema: str, standard_schema: str = RECORD_SCHEMA) -> bool:
    """Return True if values of this Avro schema have the same bytes as PyHudi's: same fields and types in the same order.

    Documentation, defaults and attributes do not affect the bytes. Returns False for text that is not JSON.
    """
    try:
        return bool(_shape(json.loads(schema)) == _shape(json.loads(standard_schema)))
    except (ValueError, RecursionError, KeyError, TypeError):
        return False


def _shape(node: Any) -> Any:
    """Reduce a type to the parts that affect its bytes; names lose their namespaces."""
    if isinstance(node, str):
        return node.rpartition(".")[2]
    if isinstance(node, list):
        return [_shape(branch) for branch in node]
    kind = node["type"]
    if kind == "record":
        return ["record", _shape(node["name"]), [[field["name"], _shape(field["type"])] for field in node["fields"]]]
    if kind == "map":
        return ["map", _shape(node["values"])]
    if kind == "array":
        return ["array", _shape(node["items"])]
    if kind in ("fixed", "enum"):
        return [kind, _shape(node["name"]), node.get("size"), node.get("symbols")]
    return _shape(kind)
