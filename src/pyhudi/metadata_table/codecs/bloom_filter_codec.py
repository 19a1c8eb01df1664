"""Codec of the `bloom_filters` partition: the Bloom filter of each base file. Format: docs/formats/metadata-table.md,
bloom_filters.

Key: partition + file. Type 4. The filter bytes equal the text in the Parquet footer. Log files have no filter. A newer
record replaces an older one. Expression indexes of type bloom_filters store the same, for the text of a function's
results.
"""

from __future__ import annotations

import pyarrow as pa

from pyhudi.errors import CorruptData
from pyhudi.metadata_table.codecs.metadata_schema import MetadataRecordType, Payload
from pyhudi.metadata_table.codecs.payload_codec import decode_payload, encode_payload, payload_field, payload_type

BLOOM_FILTER_SCHEMA = pa.schema(
    [
        pa.field("type_code", pa.string(), nullable=False),
        pa.field("instant_time", pa.string(), nullable=False),
        pa.field("bloom_filter", pa.binary(), nullable=False),
        pa.field("is_deleted", pa.bool_(), nullable=False),
    ]
)
"""type_code: SIMPLE or DYNAMIC_V0; bloom_filter: the filter's text in UTF-8."""


def decode_bloom_filters(values: pa.BinaryArray, schema: str) -> pa.RecordBatch:
    """Decode record values into BLOOM_FILTER_SCHEMA, one row per value.

    Raises:
        CorruptData, Unsupported: As `decode_payload`.
    """
    _, payloads = decode_payload(values, schema, Payload.BLOOM_FILTER)
    if payloads.null_count:
        raise CorruptData("a Bloom filter record of the metadata table has no payload")
    columns = [
        payload_field(payloads, "type", pa.string()),
        payload_field(payloads, "timestamp", pa.string()),
        payload_field(payloads, "bloomFilter", pa.binary()),
        payload_field(payloads, "isDeleted", pa.bool_(), False),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BLOOM_FILTER_SCHEMA)


def encode_bloom_filters(filters: pa.RecordBatch) -> pa.BinaryArray:
    """Encode each row as a record value.

    Args:
        filters: BLOOM_FILTER_SCHEMA.
    """
    payload = payload_type(Payload.BLOOM_FILTER)
    return encode_payload(MetadataRecordType.BLOOM_FILTER, pa.StructArray.from_arrays(filters.columns, fields=list(payload)))
