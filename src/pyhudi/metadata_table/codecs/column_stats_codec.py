"""Codec of the `column_stats` and `partition_stats` partitions: column ranges per file and per partition.
Format: docs/formats/metadata-table.md, column_stats and partition_stats.

    key                              type  file_name       content
    column + partition + file        3     the file        a column in one base or log file
    column + partition               6     the partition   a column in all files of a partition; its bounds are tight

Expression indexes store both types, for the results of a function. Value counts include nulls, except in expression indexes.

Records of layout 2 store the type of their column (`valueType`) and plain numbers and bytes as bounds. The decoder
returns them in the form of layout 1, with additional wrappers where layout 1 has none (see `value_wrappers.py`).

Merge of two records of one key: the newer one wins if it is a deletion, follows a deletion, or is tight. Otherwise
bounds widen and counts add up.
"""

from __future__ import annotations

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
"""One row per record. min, max: see `value_wrappers.py`; both have the kind NULL if every value is null. value_type,
type_info: the column's type in layout 2; null in layout 1.
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
    """Decode record values into COLUMN_STATS_SCHEMA, one row per value.

    Args:
        values: Binary, no nulls.
        schema: Avro schema text that the values were written with.

    Returns:
        The statistics, and the record type of each row: 3 for a file, 6 for a partition.

    Raises:
        CorruptData, Unsupported: As `decode_payload`.
    """
    types, payloads = decode_payload(values, schema, Payload.COLUMN_STATS)
    if payloads.null_count:
        raise CorruptData("a column statistics record of the metadata table has no payload")
    columns = [payload_field(payloads, name, kind, default) for name, kind, default in _FIELDS]
    if payloads.type.get_field_index(_VALUE_TYPE) >= 0:
        columns = _apply_value_types(columns, payloads.field(payloads.type.get_field_index(_VALUE_TYPE)))
    else:
        columns += [pa.nulls(len(payloads), pa.int32()), pa.nulls(len(payloads), pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMN_STATS_SCHEMA), types


def _apply_value_types(columns: list[pa.Array], value_types: pa.StructArray) -> list[pa.Array]:
    """Set the wrappers of the bounds according to their value types."""
    fields = [value_types.field(name) for name in ("typeOrdinal", "additionalInfo")]
    ordinals, infos = (pc.if_else(value_types.is_valid(), column, None) for column in fields)
    if value_types.null_count == len(value_types):
        return [*columns, ordinals, infos]
    unknown_type = pc.greater(ordinals, max(ValueType))
    if pc.any(unknown_type, min_count=0).as_py():
        raise Unsupported(
            f"cannot read column statistics of value type {pc.max(ordinals).as_py()}: known types are 0 to {max(ValueType).value}"
        )
    positions = {field[0]: position for position, field in enumerate(_FIELDS)}
    for name in ("minValue", "maxValue"):
        bounds = columns[positions[name]]
        kinds = wrappers_for_types(bounds.field("kind"), ordinals, infos)
        columns[positions[name]] = pa.StructArray.from_arrays([kinds, bounds.field("value")], fields=list(WRAPPED))
    # A log file that holds only deletes has unknown statistics, including its value count.
    without_values = pc.fill_null(pc.equal(ordinals, int(ValueType.NULL)), False)
    for name in ("valueCount", "nullCount"):
        columns[positions[name]] = pc.if_else(without_values, pa.scalar(None, pa.int64()), columns[positions[name]])
    return [*columns, ordinals, infos]


def encode_column_stats(stats: pa.RecordBatch, kind: MetadataRecordType, *, typed: bool = False) -> pa.BinaryArray:
    """Encode each row as a record value.

    Args:
        stats: COLUMN_STATS_SCHEMA.
        kind: COLUMN_STATS or PARTITION_STATS.
        typed: Write TYPED_SCHEMA (layout 2), which stores the column type of each row.

    Raises:
        InvalidRequest: A row has only one of its two bounds. Readers would take the missing one for "all values are
            null".
    """
    if kind not in (MetadataRecordType.COLUMN_STATS, MetadataRecordType.PARTITION_STATS):
        raise InvalidRequest(f"column statistics are not records of type {kind.name}")
    kinds = [stats.column(name).field("kind") for name in ("min", "max")]
    one_sided = pc.not_equal(pc.equal(kinds[0], int(Wrapper.NULL)), pc.equal(kinds[1], int(Wrapper.NULL)))
    if pc.any(one_sided).as_py():
        row = stats.filter(one_sided).slice(0, 1).to_pylist()[0]
        raise InvalidRequest(f"the statistics of column {row['column_name']} in {row['file_name']} have only one of min and max")
    schema = TYPED_SCHEMA if typed else RECORD_SCHEMA
    payload = payload_type(Payload.COLUMN_STATS, schema)
    columns = stats.columns[: len(_FIELDS)]
    if typed:
        columns = _to_stored_form(columns, stats.column("value_type"), stats.column("type_info"), payload)
    return encode_payload(kind, pa.StructArray.from_arrays(columns, fields=list(payload)), schema)


def _to_stored_form(columns: list[pa.Array], ordinals: pa.Array, infos: pa.Array, payload: pa.StructType) -> list[pa.Array]:
    """Return the columns with bounds on the union branches that store them, and the value types."""
    positions = {field[0]: position for position, field in enumerate(_FIELDS)}
    for name in ("minValue", "maxValue"):
        bounds = columns[positions[name]]
        columns[positions[name]] = pa.StructArray.from_arrays(
            [wrappers_for_storage(bounds.field("kind")), bounds.field("value")], fields=list(WRAPPED)
        )
    without_values = pc.fill_null(pc.equal(ordinals, int(ValueType.NULL)), False)
    for name in ("valueCount", "nullCount"):
        columns[positions[name]] = pc.if_else(without_values, pa.scalar(0, pa.int64()), columns[positions[name]])
    type_ = payload.field(payload.get_field_index(_VALUE_TYPE)).type
    missing = ordinals.is_null()
    types = pa.StructArray.from_arrays([ordinals.fill_null(0), infos], fields=list(type_), mask=missing)
    return [*columns, types]
