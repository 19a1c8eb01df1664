"""Contents of data blocks <-> Arrow batches.

    AVRO, CDC   int 3 | int record count | per record: int size, one Avro record of the block's schema
    PARQUET     a whole Parquet file with the columns of the block's schema
    HFILE       a whole HFile; each value is one Avro record of the block's schema, the key is its record key

Rows keep the order of the block, to which the RECORD_POSITIONS header refers. Batches have the columns of the block's
schema (header SCHEMA), or the requested ones, with the Arrow types of `avro_to_arrow`.

Not done here: conversion of the block's schema to the table's (`records.schema_cast`), and the bytes of HFiles
(`format.hfile`): the caller passes the function that lists their entries.

Specification: docs/formats/log-file.md, data blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro_columns import CHUNK_BYTES, CHUNK_ROWS, Longs, avro_records, big_endian_ints, join, part_sizes
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.byte_cursor import ByteCursor
from pyhudi.format.hudi_types import vector_columns_entry
from pyhudi.format.log.framing import MAX_BLOCK_BYTES, BlockType
from pyhudi.format.parquet.avro_hints import file_schema
from pyhudi.format.parquet.parquet_file import ParquetWriter, open_parquet
from pyhudi.format.timestamp_units import in_declared_units
from pyhudi.records.schema_cast import conform

CONTENT_VERSION: Final = 3

HFileEntries = Callable[[bytes], Iterable[pa.RecordBatch]]
"""Lists the entries of an HFile's bytes in file order: batches with the binary columns key and value."""


def decode_content(
    kind: BlockType,
    schema: str,
    content: bytes | memoryview,
    columns: Sequence[str] | None = None,
    hfile_entries: HFileEntries | None = None,
    key_field: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data block, in their order, decoded lazily.

    Args:
        kind: AVRO, CDC, PARQUET or HFILE.
        schema: The block's Avro schema.
        content: The block's content.
        columns: Top-level columns to return, in the order of the schema; None for all.
        hfile_entries: For HFILE only, see `decode_hfile`.
        key_field: For HFILE only, see `decode_hfile`.

    Raises:
        CorruptData: Invalid bytes.
        Unsupported: A block type or version that is not supported.
    """
    if kind in (BlockType.AVRO, BlockType.CDC):
        return decode_avro(schema, content, columns)
    if kind is BlockType.PARQUET:
        return decode_parquet(schema, content, columns)
    if kind is BlockType.HFILE and hfile_entries is not None:
        return decode_hfile(schema, content, hfile_entries, columns, key_field)
    raise Unsupported(f"a {kind.name} block has no rows to decode")


def encode_avro(schema: str, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Encode the content of an AVRO or CDC block.

    Args:
        schema: The Avro schema for the block's SCHEMA header.
        batches: Its columns, in canonical types.

    Raises:
        InvalidRequest: Batches that do not match the schema, or more than the 2 GiB that a block can hold.
    """
    codec = avro_records(schema)
    pieces: list[pa.Buffer | bytes] = []
    count = size = 0
    for batch in batches:
        for start, rows in _slices(batch):
            part = batch.slice(start, rows)
            parts = codec.encode_parts(part)
            joined = join([big_endian_ints(part_sizes(parts, part.num_rows)), *parts], part.num_rows)
            pieces.append(joined.buffers()[2])
            count += part.num_rows
            size += pieces[-1].size if isinstance(pieces[-1], pa.Buffer) else len(pieces[-1])
            if size > MAX_BLOCK_BYTES:
                raise InvalidRequest(f"more than {MAX_BLOCK_BYTES} bytes of rows for one log block")
    return b"".join([_HEAD.pack(CONTENT_VERSION, count), *pieces])


def decode_avro(schema: str, content: bytes | memoryview, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the content of an AVRO or CDC block; see `decode_content`."""
    codec = avro_records(schema)
    view = memoryview(content).cast("B")
    for starts, ends in _record_ranges(view):
        yield codec.decode(view, starts, ends, columns)


def encode_parquet(schema: str, batches: Iterable[pa.RecordBatch], compression: str = "gzip") -> bytes:
    """Encode the content of a PARQUET block: a Parquet file that Hudi can read.

    Args:
        schema: As for `encode_avro`.
        batches: As for `encode_avro`; they are cast to the schema's Arrow types.
        compression: A codec name of Parquet.
    """
    columns = _without_metadata(avro_to_arrow(schema))
    target = file_schema(columns, schema)
    sink = pa.BufferOutputStream()
    # Decimals stay fixed-length bytes: Hudi's Avro reader interprets integer ones as unscaled values of scale 0.
    writer = ParquetWriter(sink, target, compression=compression)
    for batch in batches:
        writer.write_batch(conform(batch, target))
    writer.close({"parquet.avro.schema": schema, **vector_columns_entry(columns)})
    return bytes(sink.getvalue())


def decode_parquet(schema: str, content: bytes | memoryview, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the content of a PARQUET block; see `decode_content`."""
    target = avro_to_arrow(schema)
    if columns is not None:
        requested = frozenset(columns)
        target = pa.schema([field for field in target if field.name in requested])
    try:
        file = open_parquet(pa.BufferReader(content))
        stored_names = [name for name in target.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=CHUNK_ROWS * 4, columns=stored_names):
            for part in in_declared_units(pa.Table.from_batches([batch]), target).to_batches():
                yield conform(part, target)
    except pa.ArrowNotImplementedError as error:
        raise Unsupported(f"a Parquet block uses a feature that Arrow does not support: {error}") from error
    except InvalidRequest as error:
        raise CorruptData(f"a Parquet block does not match its schema: {error}") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptData(f"a Parquet block cannot be read: {error}") from error


def decode_hfile(
    schema: str,
    content: bytes | memoryview,
    entries: HFileEntries,
    columns: Sequence[str] | None = None,
    key_field: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the content of an HFILE block, in the order of their keys; see `decode_content`.

    Args:
        schema: The block's Avro schema.
        content: The block's content.
        entries: Lists the entries of an HFile.
        columns: As for `decode_content`.
        key_field: A string column that Hudi leaves empty because it is the key of the HFile; empty and null values are
            filled from the key.
    """
    codec = avro_records(schema)
    for batch in entries(bytes(content)):
        for start, rows in _slices(batch):
            part = batch.slice(start, rows)
            decoded = codec.decode_values(part.column("value"), columns)
            yield decoded if key_field is None else _fill_keys(decoded, key_field, part.column("key"))


_HEAD: Final = struct.Struct(">ii")
_INT: Final = struct.Struct(">i")


def _record_ranges(view: memoryview) -> Iterator[tuple[Longs, Longs]]:
    """Yield the bounds of the records of an Avro content, in chunks."""
    cursor = ByteCursor(view)
    version, count = cursor.i32(), cursor.i32()
    if version < 0:
        raise CorruptData("invalid version of a data block", offset=0, expected=CONTENT_VERSION, found=version)
    if not 1 <= version <= CONTENT_VERSION:
        raise Unsupported(f"version {version} of a data block is not supported: versions 1 to {CONTENT_VERSION} are")
    if not 0 <= count <= cursor.remaining // _INT.size:
        raise CorruptData("invalid number of records in a data block", offset=4, found=count)
    end = len(view)
    at = cursor.offset
    unpack, size_bytes = _INT.unpack_from, _INT.size
    while count:
        first = at
        ends: list[int] = []
        # Each size gives the position of the next one, so this loop follows the chain: 0.1 microseconds for a record, a
        # fraction of the cost of decoding it. A vectorized search for sizes would touch every byte.
        for _ in range(min(count, CHUNK_ROWS)):
            if end - at < size_bytes:
                raise CorruptData("a data block is truncated inside its records", offset=at)
            (size,) = unpack(view, at)
            at += size_bytes
            if not 0 <= size <= end - at:
                raise CorruptData(
                    "a record extends past the end of its block", offset=at - size_bytes, expected=end - at, found=size
                )
            at += size
            ends.append(at)
            if at - first >= CHUNK_BYTES:
                break
        count -= len(ends)
        bounds = np.array([first, *ends], np.int64)
        yield bounds[:-1] + size_bytes, bounds[1:]
    if at != end:
        raise CorruptData("trailing bytes after the records of a block", offset=at, expected=at, found=end)


def _slices(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Cut a batch into slices of bounded rows and, on average, bounded bytes: (first row, rows)."""
    if not batch.num_rows:
        return
    average = max(1, batch.nbytes // batch.num_rows)
    rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES * 4 // average))
    for start in range(0, batch.num_rows, rows):
        yield start, min(rows, batch.num_rows - start)


def _fill_keys(batch: pa.RecordBatch, name: str, keys: pa.Array) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return batch
    column = batch.column(index)
    try:
        filled = pc.if_else(pc.fill_null(pc.equal(column, ""), True), keys.cast(pa.string()), column)
    except pa.ArrowInvalid as error:
        raise CorruptData("the key of an HFile entry is not UTF-8") from error
    return batch.set_column(index, batch.schema.field(index), filled)


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in schema])
