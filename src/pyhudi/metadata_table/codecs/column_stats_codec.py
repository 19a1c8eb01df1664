"""The `column_stats` and `partition_stats` partitions: ranges of columns in files and in partitions.
Source: docs/formats/metadata-table.md, column_stats and partition_stats.

    key                              type  file_name       says
    column + partition + file        3     the file        a column in one base or log file
    column + partition               6     the partition   a column in all files of a partition; its bounds are tight

Expression indexes hold both kinds, of the results of a function.  Counts of values include nulls, except in expression indexes.

Records of the second layout name the type of their column (`valueType`) and hold bounds as plain numbers and bytes; they come out
of here as those of the first, with kinds of their own where that has none (see `wrapped.py`).

Two records of one key: the newer one counts when it is a deletion, follows one, or is tight; else bounds widen and counts add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro_wrappers import Wrapper
from pyhudi.metadata_table.codecs.metadata_schema import RECORD_SCHEMA, TYPED_SCHEMA, MetadataRecordType, Payload
from pyhudi.metadata_table.codecs.payload_codec import WRAPPED, decode_payload, encode_payload, payload_field, payload_type
from pyhudi.metadata_table.codecs.value_wrappers import ValueType, wrappers_for_storage, wrappers_for_types

COLUMN_STATS_SCHEMA = pa.schema(
    [
        pa.field("file_name", pa.string(), nullable=False),
        pa.field("column_name", pa.string(), nullable=False),
        pa.field("min", WRAPPED, nullable=False),
        pa.field("max", WRAPPED, nullable=False),
        pa.field("value_count", pa.int64()),
        pa.field("null_count", pa.int64()),
        pa.field("total_size_bytes", pa.int64()),
        pa.field("total_uncompressed_size_bytes", pa.int64()),
        pa.field("is_deleted", pa.bool_(), nullable=False),
        pa.field("is_tight", pa.bool_(), nullable=False),
        pa.field("value_type", pa.int32()),
        pa.field("type_info", pa.string()),
    ]
)
"""One row for each record.  min, max: see `wrapped.py`; both of the kind NULL when there is no value but null.  value_type,
type_info: what the second layout names of the column's type; null in the first.
"""

_VALUE_TYPE = "valueType"
_FIELDS = (
    ("fileName", pa.string(), ""),
    ("columnName", pa.string(), ""),
    ("minValue", WRAPPED, None),
    ("maxValue", WRAPPED, None),
    ("valueCount", pa.int64(), None),
    ("nullCount", pa.int64(), None),
    ("totalSize", pa.int64(), None),
    ("totalUncompressedSize", pa.int64(), None),
    ("isDeleted", pa.bool_(), False),
    ("isTightBound", pa.bool_(), False),
)


def decode_column_stats(values: pa.BinaryArray, schema: str) -> tuple[pa.RecordBatch, pa.Int32Array]:
    """COLUMN_STATS_SCHEMA, one row for each value, and the type of each: 3 of a file, 6 of a partition.

    values: binary, no nulls; schema: the Avro schema text that wrote them.
    Raises CorruptData and Unsupported as `decode_payload` does.
    """
    types, payloads = decode_payload(values, schema, Payload.COLUMN_STATS)
    if payloads.null_count:
        raise CorruptData("a record of column statistics says nothing")
    columns = [payload_field(payloads, name, kind, default) for name, kind, default in _FIELDS]
    if payloads.type.get_field_index(_VALUE_TYPE) >= 0:
        columns = _typed(columns, payloads.field(payloads.type.get_field_index(_VALUE_TYPE)))
    else:
        columns += [pa.nulls(len(payloads), pa.int32()), pa.nulls(len(payloads), pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMN_STATS_SCHEMA), types


def _typed(columns: list[pa.Array], value_types: pa.StructArray) -> list[pa.Array]:
    """The columns with the kinds of bounds that the value types mean."""
    fields = [value_types.field(name) for name in ("typeOrdinal", "additionalInfo")]
    ordinals, infos = (pc.if_else(value_types.is_valid(), column, None) for column in fields)
    if value_types.null_count == len(value_types):
        return [*columns, ordinals, infos]
    wrong = pc.greater(ordinals, max(ValueType))
    if pc.any(wrong, min_count=0).as_py():
        raise Unsupported(f"column statistics of value type {pc.max(ordinals).as_py()}, known: 0 to {max(ValueType).value}")
    named = {field[0]: place for place, field in enumerate(_FIELDS)}
    for name in ("minValue", "maxValue"):
        bounds = columns[named[name]]
        kinds = wrappers_for_types(bounds.field("kind"), ordinals, infos)
        columns[named[name]] = pa.StructArray.from_arrays([kinds, bounds.field("value")], fields=list(WRAPPED))
    # Of a log file of deletes alone nothing is known, not even that it has no values to count.
    unknown = pc.fill_null(pc.equal(ordinals, int(ValueType.NULL)), False)
    for name in ("valueCount", "nullCount"):
        columns[named[name]] = pc.if_else(unknown, pa.scalar(None, pa.int64()), columns[named[name]])
    return [*columns, ordinals, infos]


def encode_column_stats(stats: pa.RecordBatch, kind: MetadataRecordType, *, typed: bool = False) -> pa.BinaryArray:
    """The value of each row.  stats: COLUMN_STATS_SCHEMA; kind: COLUMN_STATS or PARTITION_STATS; typed: by TYPED_SCHEMA, which
    can tell the types that the rows name.

    Raises InvalidRequest when a row has one bound without the other: readers would take the other for "all null".
    """
    if kind not in (MetadataRecordType.COLUMN_STATS, MetadataRecordType.PARTITION_STATS):
        raise InvalidRequest(f"column statistics are not records of type {kind.name}")
    kinds = [stats.column(name).field("kind") for name in ("min", "max")]
    one_sided = pc.not_equal(pc.equal(kinds[0], int(Wrapper.NULL)), pc.equal(kinds[1], int(Wrapper.NULL)))
    if pc.any(one_sided).as_py():
        row = stats.filter(one_sided).slice(0, 1).to_pylist()[0]
        raise InvalidRequest(f"the statistics of column {row['column_name']} in {row['file_name']} have one bound only")
    schema = TYPED_SCHEMA if typed else RECORD_SCHEMA
    payload = payload_type(Payload.COLUMN_STATS, schema)
    columns = stats.columns[: len(_FIELDS)]
    if typed:
        columns = _stored(columns, stats.column("value_type"), stats.column("type_info"), payload)
    return encode_payload(kind, pa.StructArray.from_arrays(columns, fields=list(payload)), schema)


def _stored(columns: list[pa.Array], ordinals: pa.Array, infos: pa.Array, payload: pa.StructType) -> list[pa.Array]:
    """The columns with bounds on the branches that they are stored on, and what they name of their types."""
    named = {field[0]: place for place, field in enumerate(_FIELDS)}
    for name in ("minValue", "maxValue"):
        bounds = columns[named[name]]
        columns[named[name]] = pa.StructArray.from_arrays(
            [wrappers_for_storage(bounds.field("kind")), bounds.field("value")], fields=list(WRAPPED)
        )
    unknown = pc.fill_null(pc.equal(ordinals, int(ValueType.NULL)), False)
    for name in ("valueCount", "nullCount"):
        columns[named[name]] = pc.if_else(unknown, pa.scalar(0, pa.int64()), columns[named[name]])
    type_ = payload.field(payload.get_field_index(_VALUE_TYPE)).type
    missing = ordinals.is_null()
    types = pa.StructArray.from_arrays([ordinals.fill_null(0), infos], fields=list(type_), mask=missing)
    return [*columns, types]


@dataclass(frozen=True, slots=True)
class ColumnStatsRecord:
    """What a record says, with bounds as Python values that can be compared: both None when there is no value but null."""

    file_name: str
    column_name: str
    min: Any
    max: Any
    value_count: int | None
    null_count: int | None
    total_size_bytes: int | None
    total_uncompressed_size_bytes: int | None
    is_deleted: bool = False
    is_tight: bool = False


def merge_column_stats(older: ColumnStatsRecord, newer: ColumnStatsRecord) -> ColumnStatsRecord:
    """What two records of one key say together.  Raises CorruptData when they are about different columns."""
    if older.column_name != newer.column_name:
        raise CorruptData("two columns have one key in the statistics", expected=older.column_name, found=newer.column_name)
    if older.is_deleted or newer.is_deleted or newer.is_tight:
        return newer
    return ColumnStatsRecord(
        newer.file_name,
        newer.column_name,
        min((bound for bound in (older.min, newer.min) if bound is not None), default=None),
        max((bound for bound in (older.max, newer.max) if bound is not None), default=None),
        _added(older.value_count, newer.value_count),
        _added(older.null_count, newer.null_count),
        _added(older.total_size_bytes, newer.total_size_bytes),
        _added(older.total_uncompressed_size_bytes, newer.total_uncompressed_size_bytes),
    )


def _added(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)
