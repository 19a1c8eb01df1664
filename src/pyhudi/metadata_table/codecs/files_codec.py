"""Codec of the `files` partition: the file listing of each table partition. Format: docs/formats/metadata-table.md, files.

    record key            type  payload
    __all_partitions__    1     map partition path -> (0, is deleted)
    partition path        2     map file name -> (size in bytes, is deleted)

A table without partitions uses the name `.` for its root. A record holds only the changes of its commit. Records of one
key, starting with the base file, are merged per file:

    newer / older          none           alive                          deleted
    alive, size n         alive n        alive, the larger of the sizes  alive n
    deleted               deleted        none                            deleted

A deletion is retained while an older record may still contain the file. Deletions that remain after the merge have no
effect. Live files have a size above 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.metadata_table.codecs.metadata_schema import MetadataRecordType, Payload
from pyhudi.metadata_table.codecs.payload_codec import decode_payload, encode_payload, payload_field, payload_type

ALL_PARTITIONS = "__all_partitions__"
"""The key of the record that lists the partitions."""

ROOT = "."
"""Name of the empty partition path (table without partitions) in keys and lists."""

FILES_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("is_deleted", pa.bool_(), nullable=False),
    ]
)
"""One row per file of a record; `partition` is the record's key."""


def decode_files(keys: pa.BinaryArray, values: pa.BinaryArray, schema: str) -> pa.RecordBatch:
    """Decode the records of an HFile into FILES_SCHEMA, in record order.

    Args:
        keys: Binary, no nulls.
        values: Binary, no nulls.
        schema: Avro schema text that the values were written with.

    Raises:
        CorruptData, Unsupported: As `decode_payload`.
    """
    return decode_files_by_record(keys, values, schema)[0]


def decode_files_by_record(
    keys: pa.BinaryArray, values: pa.BinaryArray, schema: str
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """As `decode_files`, and for each row the index of its record, from 0."""
    _, payloads = decode_payload(values, schema, Payload.FILES)
    # A null map has no entries, so the offsets alone assign entries to records.
    offsets = payloads.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    records = np.repeat(np.arange(len(keys)), np.diff(offsets))
    entries = payloads.items.slice(first, count)
    try:
        partitions = keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptData("a key of the files partition is not UTF-8") from error
    files = pa.RecordBatch.from_arrays(
        [
            partitions.take(pa.array(records)),
            payloads.keys.slice(first, count),
            payload_field(entries, "size", pa.int64()),
            payload_field(entries, "isDeleted", pa.bool_(), False),
        ],
        schema=FILES_SCHEMA,
    )
    return files, records


def encode_files(files: pa.RecordBatch, keys: Sequence[str] = ()) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Encode files as records of the `files` partition.

    Args:
        files: FILES_SCHEMA in any order; the rows of ALL_PARTITIONS are partition paths.
        keys: Keys that get a record even without files, such as the partition list of an empty table.

    Returns:
        Keys, ascending by bytes, and values.

    Raises:
        InvalidRequest: A file occurs twice, or a live file has a size of 0 or less.
    """
    sizes, is_deleted = (files.column(name).to_numpy(zero_copy_only=False) for name in ("size_bytes", "is_deleted"))
    is_file = pc.not_equal(files.column("partition"), ALL_PARTITIONS).to_numpy(zero_copy_only=False)
    without_size = is_file & ~is_deleted & (sizes <= 0)
    if without_size.any():
        row = files.filter(pa.array(without_size)).slice(0, 1).to_pylist()[0]
        raise InvalidRequest(f"the file {row['name']} in partition {row['partition']!r} has the invalid size {row['size_bytes']}")
    files = files.take(pc.sort_indices(files, sort_keys=[("partition", "ascending"), ("name", "ascending")]))
    partitions, names = files.column("partition"), files.column("name")
    continues = np.zeros(len(names), np.bool_)
    if len(names) > 1:
        continues[1:] = pc.equal(partitions[1:], partitions[:-1]).to_numpy(zero_copy_only=False)
        repeats = continues[1:] & pc.equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
        if repeats.any():
            at = int(np.argmax(repeats))
            raise InvalidRequest(f"the file {names[at]} occurs twice in partition {partitions[at].as_py()!r}")
    starts = np.flatnonzero(~continues)
    record_keys, counts = partitions.take(pa.array(starts)), np.diff(starts, append=len(names))
    without_files = sorted(set(keys).difference(record_keys.to_pylist()))
    if without_files:
        record_keys = pa.concat_arrays([record_keys, pa.array(without_files, pa.string())])
        order = pc.sort_indices(record_keys)
        record_keys, counts = record_keys.take(order), np.append(counts, np.zeros(len(without_files), np.int64))[order.to_numpy()]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    maps_type = payload_type(Payload.FILES)
    sizes_and_flags = [files.column("size_bytes"), files.column("is_deleted")]
    entries = pa.StructArray.from_arrays(sizes_and_flags, fields=list(maps_type.item_type))
    maps = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, entries, type=maps_type)
    partition_list = pc.index(record_keys, ALL_PARTITIONS).as_py()
    exceptions = {} if partition_list < 0 else {partition_list: MetadataRecordType.PARTITION_LIST}
    return record_keys, encode_payload(MetadataRecordType.FILE_LIST, maps, exceptions=exceptions)


def live_files(files: pa.RecordBatch, order: pa.Array) -> pa.RecordBatch:
    """Return the files that exist after all records are merged: FILES_SCHEMA, sorted by partition and name, none deleted.

    A file that a record restores after its deletion takes its size from that record.

    Args:
        files: FILES_SCHEMA.
        order: Rank of the record of each row, any integers; greater is newer, the base file comes first.
    """
    table = pa.table({name: files.column(name) for name in FILES_SCHEMA.names} | {"order": order})
    keys = [("partition", "ascending"), ("name", "ascending"), ("order", "ascending")]
    table = table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()
    count = table.num_rows
    if count == 0:
        return pa.RecordBatch.from_pylist([], FILES_SCHEMA)
    partitions, names = table.column("partition").chunk(0), table.column("name").chunk(0)
    starts_file = np.ones(count, dtype=np.bool_)
    is_same_file = pc.and_(pc.equal(partitions[1:], partitions[:-1]), pc.equal(names[1:], names[:-1]))
    starts_file[1:] = ~is_same_file.to_numpy(zero_copy_only=False)
    deleted = table.column("is_deleted").to_numpy()
    sizes = table.column("size_bytes").to_numpy()
    # A run covers a file between two deletions. The file's size is the largest in the last run, unless that run ends in
    # a deletion.
    run_begins = starts_file | deleted
    run_begins[1:] |= deleted[:-1]
    starts = np.flatnonzero(run_begins)
    largest = np.maximum.reduceat(sizes, starts)
    ends = np.append(starts[1:], count) - 1
    is_last = np.append(starts_file[1:], True)[ends]
    is_live = is_last & ~deleted[ends]
    rows = pa.array(ends[is_live])
    return pa.RecordBatch.from_arrays(
        [partitions.take(rows), names.take(rows), pa.array(largest[is_live]), pa.array(np.zeros(len(rows), dtype=np.bool_))],
        schema=FILES_SCHEMA,
    )
