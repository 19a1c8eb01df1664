"""The `files` partition: which files each partition of the table has.  Source: docs/formats/metadata-table.md, files.

    record key            type  payload
    __all_partitions__    1     map partition path -> (0, is deleted)
    partition path        2     map file name -> (size in bytes, is deleted)

The table's root, when it has no partitions, is named `.`.  A record holds only what its commit changed: records of one key, from
the base file on, are merged file by file:

    newer / older          none           alive                          deleted
    alive, size n         alive n        alive, the larger of the sizes  alive n
    deleted               deleted        none                            deleted

A deletion is kept while the file that it deletes may still stand in an older record; deletions that are left at the end say
nothing.  Live files have a size above 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
"""How the empty partition path, of a table without partitions, is named in keys and lists."""

FILES_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("is_deleted", pa.bool_(), nullable=False),
    ]
)
"""One row for each file of a record; `partition` is the record's key."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a record says of a file.  A deleted file has size 0."""

    size_bytes: int
    is_deleted: bool = False


def decode_files(keys: pa.BinaryArray, values: pa.BinaryArray, schema: str) -> pa.RecordBatch:
    """The files in the records of an HFile: FILES_SCHEMA, record by record in the given order.

    keys, values: binary, no nulls; schema: the Avro schema text that wrote the values.
    Raises CorruptData and Unsupported as `decode_payload` does.
    """
    return decode_files_by_record(keys, values, schema)[0]


def decode_files_by_record(
    keys: pa.BinaryArray, values: pa.BinaryArray, schema: str
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """As `decode_files`, and for each row the number of its record, from 0."""
    _, payloads = decode_payload(values, schema, Payload.FILES)
    # A null map spans nothing, so the offsets alone say which record has which entries.
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
    """Keys, ascending by bytes, and values of the records that say this.

    files: FILES_SCHEMA in any order; the rows of ALL_PARTITIONS are partition paths.  keys: those that get a record even if they
    have no files, as the list of partitions has in an empty table.
    Raises InvalidRequest for a file that comes twice, and for a live file whose size is not above 0.
    """
    wrong = pc.and_(pc.not_equal(files.column("partition"), ALL_PARTITIONS), pc.invert(files.column("is_deleted")))
    wrong = pc.and_(wrong, pc.less_equal(files.column("size_bytes"), 0))
    if pc.any(wrong).as_py():
        row = files.filter(wrong).slice(0, 1).to_pylist()[0]
        raise InvalidRequest(f"the file {row['name']} in partition {row['partition']!r} has size {row['size_bytes']}")
    files = files.take(pc.sort_indices(files, sort_keys=[("partition", "ascending"), ("name", "ascending")]))
    partitions, names = files.column("partition"), files.column("name")
    if len(names) > 1:
        repeats = pc.and_(pc.equal(partitions[1:], partitions[:-1]), pc.equal(names[1:], names[:-1]))
        row = pc.index(repeats, True).as_py()
        if row >= 0:
            raise InvalidRequest(f"the file {names[row]} comes twice in partition {partitions[row].as_py()!r}")
    record_keys = pc.unique(pa.concat_arrays([partitions, pa.array(keys, pa.string())]))
    record_keys = record_keys.take(pc.sort_indices(record_keys))
    counts = np.bincount(pc.index_in(partitions, value_set=record_keys).to_numpy(), minlength=len(record_keys))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    maps_type = payload_type(Payload.FILES)
    sizes_and_flags = [files.column("size_bytes"), files.column("is_deleted")]
    entries = pa.StructArray.from_arrays(sizes_and_flags, fields=list(maps_type.item_type))
    maps = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, entries, type=maps_type)
    at = pc.index(record_keys, ALL_PARTITIONS).as_py()
    if at < 0:
        return record_keys, encode_payload(MetadataRecordType.FILE_LIST, maps)
    pieces = [
        encode_payload(MetadataRecordType.FILE_LIST, maps.slice(0, at)),
        encode_payload(MetadataRecordType.PARTITION_LIST, maps.slice(at, 1)),
        encode_payload(MetadataRecordType.FILE_LIST, maps.slice(at + 1)),
    ]
    return record_keys, pa.concat_arrays(pieces)


def merge_file_lists(older: Mapping[str, FileEntry], newer: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """What two records of one key say together, by the table at the head of this module."""
    merged = dict(older)
    for name, entry in newer.items():
        before = older.get(name)
        if not entry.is_deleted:
            size = entry.size_bytes if before is None else max(before.size_bytes, entry.size_bytes)
            merged[name] = FileEntry(size)
        elif before is None or before.is_deleted:
            merged[name] = FileEntry(0, True)
        else:
            del merged[name]
    return merged


def live_files(files: pa.RecordBatch, order: pa.Array) -> pa.RecordBatch:
    """The files that exist after all records are merged: FILES_SCHEMA, by partition and name, none of them deleted.

    files: FILES_SCHEMA; order: of each row the rank of its record, base file first (any integers): greater is newer.
    A file that a record brought back after it was deleted has a size of its own again.
    """
    table = pa.table({name: files.column(name) for name in FILES_SCHEMA.names} | {"order": order})
    keys = [("partition", "ascending"), ("name", "ascending"), ("order", "ascending")]
    table = table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()
    count = table.num_rows
    if count == 0:
        return _no_files()
    partitions, names = table.column("partition").chunk(0), table.column("name").chunk(0)
    begins = np.ones(count, dtype=np.bool_)
    same = pc.and_(pc.equal(partitions[1:], partitions[:-1]), pc.equal(names[1:], names[:-1]))
    begins[1:] = ~same.to_numpy(zero_copy_only=False)
    deleted = table.column("is_deleted").to_numpy()
    sizes = table.column("size_bytes").to_numpy()
    # A run is a file between its deletions: its size is the largest in the last run, if that does not end deleted.
    run_begins = begins | deleted
    run_begins[1:] |= deleted[:-1]
    starts = np.flatnonzero(run_begins)
    largest = np.maximum.reduceat(sizes, starts)
    ends = np.append(starts[1:], count) - 1
    is_last = np.append(begins[1:], True)[ends]
    kept = is_last & ~deleted[ends]
    rows = pa.array(ends[kept])
    return pa.RecordBatch.from_arrays(
        [partitions.take(rows), names.take(rows), pa.array(largest[kept]), pa.array(np.zeros(len(rows), dtype=np.bool_))],
        schema=FILES_SCHEMA,
    )


def _no_files() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in FILES_SCHEMA], schema=FILES_SCHEMA)
