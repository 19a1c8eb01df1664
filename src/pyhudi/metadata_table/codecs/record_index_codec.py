"""Codec of the `record_index` partition: the file group of each record key. Format: docs/formats/metadata-table.md, record_index.

Key: the record key. Type 5.

    field                          encoding 0: a file id that is a UUID, or a UUID, `-` and a number    encoding 1: any
                                   other
    partitionName                  partition path, empty if the table has none                          same
    fileIdHighBits, fileIdLowBits  the halves of the UUID, signed                                       -1, -1
    fileIndex                      the number; -1 without one                                           -1
    fileId                         empty                                                                the file id
    instantTime                    milliseconds since the epoch at which the record was inserted        same
    fileIdEncoding, position       0, null                                                              1, null

Many keys share few locations, so encoder and decoder process distinct locations and values only once.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.metadata_table.codecs.metadata_schema import MetadataRecordType, Payload
from pyhudi.metadata_table.codecs.payload_codec import decode_distinct, encode_payload, payload_field, payload_type

LOCATION_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("instant_ms", pa.int64(), nullable=False),
    ]
)
"""The location of a record. instant_ms: the instant that inserted it, milliseconds since the epoch."""

_UUID_FILE_ID = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:-(0|[1-9][0-9]{0,8}))?")
_NO_INDEX = -1
_AS_UUID, _AS_TEXT = 0, 1
_HEX_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), dtype=np.uint8).reshape(256, 2)
# Positions of the 32 digits of a UUID among its 36 characters.
_DIGIT_PLACES = np.array([place for place in range(36) if place not in (8, 13, 18, 23)])


def encode_locations(locations: pa.RecordBatch) -> pa.BinaryArray:
    """Encode record locations as record values, in row order.

    Args:
        locations: LOCATION_SCHEMA.

    Raises:
        InvalidRequest: A column has nulls.
    """
    if any(column.null_count for column in locations.columns):
        raise InvalidRequest("cannot encode a record location with nulls: partition, file id and instant are required")
    distinct, indices = _distinct(locations)
    file_ids = distinct.column("file_id").dictionary_encode()
    parts = _split_file_ids(file_ids.dictionary)
    fields = {
        "partitionName": distinct.column("partition"),
        **{name: part.take(file_ids.indices) for name, part in parts.items()},
        "instantTime": distinct.column("instant_ms"),
        "position": pa.nulls(distinct.num_rows, pa.int64()),
    }
    kind = payload_type(Payload.RECORD_INDEX)
    payloads = pa.StructArray.from_arrays([fields[field.name] for field in kind], fields=list(kind))
    values: pa.BinaryArray = encode_payload(MetadataRecordType.RECORD_INDEX, payloads).take(indices)
    return values


def decode_locations(values: pa.BinaryArray, schema: str) -> pa.RecordBatch:
    """Decode record values into LOCATION_SCHEMA, one row per value.

    Args:
        values: Binary, no nulls.
        schema: Avro schema text that the values were written with.

    Raises:
        CorruptData, Unsupported: As `decode_payload`; Unsupported also for an unknown encoding of file ids.
    """
    locations, indices = decode_distinct_locations(values, schema)
    return locations if indices is None else locations.take(indices)


def decode_distinct_locations(values: pa.BinaryArray, schema: str) -> tuple[pa.RecordBatch, pa.Int32Array | None]:
    """As `decode_locations`, but only the distinct ones, and the index of each value among them (None: all are distinct)."""
    _, payloads, indices = decode_distinct(values, schema, Payload.RECORD_INDEX)
    if payloads.null_count:
        raise CorruptData("a record index entry of the metadata table has no payload")
    encodings = payload_field(payloads, "fileIdEncoding", pa.int32(), _AS_UUID)
    if pc.any(pc.greater(encodings, _AS_TEXT)).as_py() or pc.any(pc.less(encodings, _AS_UUID)).as_py():
        raise Unsupported("the record index has an unknown file id encoding")
    as_uuid = _format_file_ids(
        payload_field(payloads, "fileIdHighBits", pa.int64(), 0),
        payload_field(payloads, "fileIdLowBits", pa.int64(), 0),
        payload_field(payloads, "fileIndex", pa.int32(), _NO_INDEX),
    )
    as_text = payload_field(payloads, "fileId", pa.string(), "")
    columns = [
        payload_field(payloads, "partitionName", pa.string(), ""),
        pc.if_else(pc.equal(encodings, _AS_UUID), as_uuid, as_text),
        payload_field(payloads, "instantTime", pa.int64()),
    ]
    if columns[2].null_count:
        raise CorruptData("a record index entry of the metadata table has no instant")
    return pa.RecordBatch.from_arrays(columns, schema=LOCATION_SCHEMA), indices


def _distinct(locations: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """The distinct rows, and the index of each row among them."""
    codes = np.zeros(locations.num_rows, dtype=np.int64)
    for column in locations.columns:
        encoded = column.dictionary_encode()
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
        # Make codes dense again to bound the product with the next column's codes.
        dense = pa.array(codes).dictionary_encode()
        codes = dense.indices.to_numpy().astype(np.int64)
    firsts = np.full(int(codes.max(initial=-1)) + 1, locations.num_rows, dtype=np.int64)
    np.minimum.at(firsts, codes, np.arange(len(codes)))
    return locations.take(pa.array(firsts)), pa.array(codes)


def _split_file_ids(file_ids: pa.StringArray) -> dict[str, pa.Array]:
    """The stored fields of file ids, by name."""
    parts = [_split_file_id(file_id) for file_id in file_ids.to_pylist()]
    return {
        "fileIdHighBits": pa.array([part[0] for part in parts], pa.int64()),
        "fileIdLowBits": pa.array([part[1] for part in parts], pa.int64()),
        "fileIndex": pa.array([part[2] for part in parts], pa.int32()),
        "fileId": pa.array([part[3] for part in parts], pa.string()),
        "fileIdEncoding": pa.array([_AS_TEXT if part[3] else _AS_UUID for part in parts], pa.int32()),
    }


def _split_file_id(file_id: str) -> tuple[int, int, int, str]:
    """High half, low half, index and text of a file id in stored form."""
    match = _UUID_FILE_ID.fullmatch(file_id)
    if match is None:
        if not file_id:
            raise InvalidRequest("cannot encode a record location: the file id is empty")
        return -1, -1, _NO_INDEX, file_id
    octets = bytes.fromhex(match[1].replace("-", ""))
    high, low = (int.from_bytes(half, "big", signed=True) for half in (octets[:8], octets[8:]))
    return high, low, int(match[2]) if match[2] is not None else _NO_INDEX, ""


def _format_file_ids(high: pa.Int64Array, low: pa.Int64Array, index: pa.Int32Array) -> pa.StringArray:
    count = len(high)
    halves = np.stack([high.to_numpy(), low.to_numpy()], axis=1).astype(">i8")
    characters = np.full((count, 36), ord("-"), dtype=np.uint8)
    characters[:, _DIGIT_PLACES] = _HEX_DIGITS[halves.view(np.uint8).reshape(count, 16)].reshape(count, 32)
    offsets = np.arange(0, 36 * count + 1, 36, dtype=np.int32)
    uuids = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(characters)])
    with_index = pc.binary_join_element_wise(uuids, index.cast(pa.string()), "-")
    formatted: pa.StringArray = pc.if_else(pc.equal(index, _NO_INDEX), uuids, with_index)
    return formatted
