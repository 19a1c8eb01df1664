"""Copy of encoded row groups from Parquet files into a new one, without decoding their pages.

A row group of the new file consists of the column chunks of a row group of a source: their bytes are copied, after the
checksums of their pages were verified, and only positions in the footer change:

    RowGroup        5 position    6 compressed size    7 number in the file
    ColumnChunk     2 position    4, 5 offset index    6, 7 column index
    ColumnMetaData  9 first data page    10 index page    11 dictionary page    14, 15 Bloom filter
    OffsetIndex     1 list of PageLocation, each with 1 position

Chunks of some columns can be replaced: a file in memory with as many rows provides their chunks, which are copied in
the same way. Page indexes are copied if every chunk of the row group has one, because readers require all or none.

Specification: parquet-format, parquet.thrift, "PageIndex" and "BloomFilter".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData
from pyhudi.format.byte_cursor import ByteCursor
from pyhudi.format.parquet.footer import MAGIC
from pyhudi.format.parquet.parquet_file import EMPTY_SEAL, parse_footer, read_raw_footer, sealed
from pyhudi.format.parquet.thrift_compact import (
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    ThriftField,
    decode_fields,
    decode_structs,
    each,
    edited,
    encode_struct,
    list_field,
    number_field,
    read_numbers,
    text_field,
)
from pyhudi.format.parquet.verify_pages import verified_chunk

_VERSION, _SCHEMA, _ROWS, _GROUPS, _PAIRS, _CREATED_BY, _ORDERS = range(1, 8)
_NAME, _CHILDREN, _ELEMENT_ID = 4, 5, 9
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _SORTING, _GROUP_PLACE, _GROUP_PACKED, _ORDINAL = range(1, 8)
_CHUNK_PLACE, _METADATA, _OFFSET_INDEX, _OFFSET_LENGTH, _COLUMN_INDEX, _COLUMN_LENGTH = range(2, 8)
_INDEX_FIELDS: Final = frozenset({_OFFSET_INDEX, _OFFSET_LENGTH, _COLUMN_INDEX, _COLUMN_LENGTH})
_PAGE_PLACES: Final = frozenset({9, 10, 11})
_BLOOM, _BLOOM_LENGTH = 14, 15
_BLOOM_HEADER_BYTES: Final = 64
_MAX_ORDINAL: Final = (1 << 15) - 1
_END: Final = struct.Struct("<I")


@dataclass(frozen=True, eq=False)
class CopySource:
    """The footer of a file whose row groups are to be copied.

    Attributes:
        footer: Its bytes, without length and magic.
        metadata: The same, parsed.
    """

    footer: bytes = field(repr=False)
    metadata: pq.FileMetaData

    @classmethod
    def read(cls, source: pa.NativeFile) -> CopySource:
        """Read and verify a footer. Raises as `open_parquet`."""
        footer = read_raw_footer(source)
        return cls(footer[: -_END.size - len(MAGIC)], parse_footer(footer))

    @cached_property
    def fields(self) -> Mapping[int, bytes]:
        """Encoded fields of the footer, by number."""
        return {item.number: item.value for item in decode_fields(self.footer)}

    @cached_property
    def columns(self) -> Mapping[str, tuple[bytes, ...]]:
        """Top-level columns and the encoded elements of each, in depth-first order and without field ids."""
        _, *elements = decode_structs(self.fields[_SCHEMA])
        columns: dict[str, tuple[bytes, ...]] = {}
        name, inner = "", 0
        for element in elements:
            fields = [item for item in element if item.number != _ELEMENT_ID]
            if not inner:
                text = ByteCursor(next(item.value for item in fields if item.number == _NAME))
                name, inner = text.text(text.varint()), 1
            inner += _numbers(fields).get(_CHILDREN, 0) - 1
            columns[name] = (*columns.get(name, ()), encode_struct(fields))
        return columns

    @property
    def order_of_values(self) -> bytes | None:
        """The encoded order of values of each column, to which the bounds in the footer refer; None if undefined."""
        return self.fields.get(_ORDERS)

    @cached_property
    def groups(self) -> Sequence[Mapping[int, ThriftField]]:
        """Fields of each row group, by number."""
        return [{item.number: item for item in group} for group in decode_structs(self.fields[_GROUPS])]

    @property
    def key_values(self) -> dict[str, str]:
        """Key-values of the footer."""
        return {key.decode(): value.decode("utf-8", "replace") for key, value in (self.metadata.metadata or {}).items()}


@dataclass(frozen=True)
class _Chunk:
    """A column chunk in a file. fields: of its ColumnChunk."""

    file: pa.NativeFile
    fields: list[ThriftField]
    metadata: pq.ColumnChunkMetaData

    @cached_property
    def numbers(self) -> Mapping[int, int]:
        """Integers of the chunk, without those of its metadata."""
        return _numbers(self.fields)

    @cached_property
    def inner(self) -> list[ThriftField]:
        """Fields of its metadata."""
        return decode_fields(next(item.value for item in self.fields if item.number == _METADATA))

    @property
    def has_indexes(self) -> bool:
        return self.numbers.keys() >= _INDEX_FIELDS


class RowGroupCopier:
    """Writes a Parquet file of copied row groups to a sink, which the caller opens and closes.

    Args:
        sink: At position 0.
        like: A source whose schema is that of the new file.
    """

    def __init__(self, sink: pa.NativeFile, like: CopySource) -> None:
        self._sink = sink
        self._like = like
        self._groups: list[bytes] = []
        self._rows = 0
        self._created: dict[str, None] = {}
        self._at = 0
        self._write(MAGIC)

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._at

    @property
    def row_count(self) -> int:
        """Rows copied so far."""
        return self._rows

    def copy(self, file: pa.NativeFile, source: CopySource, number: int, replaced: Callable[[int], bytes] | None = None) -> None:
        """Copy a row group, unless it has no rows.

        Args:
            file: The file of `source`.
            source: Its schema is that of the new file, except for the columns that `replaced` provides.
            number: Row group in the source.
            replaced: From a number of rows, returns a Parquet file of one row group with the columns that are not
                copied.

        Raises:
            CorruptData: A page fails its checksum, or bytes do not match the footer.
        """
        rows = source.metadata.row_group(number).num_rows
        if not rows:
            return
        group = source.groups[number]
        chunks = _chunks(file, source, number)
        if replaced is not None:
            other = pa.BufferReader(replaced(rows))
            chunks.update(_chunks(other, CopySource.read(other), 0))
        ordered = [chunks[self._like.metadata.schema.column(leaf).path] for leaf in range(self._like.metadata.num_columns)]
        start = self._at
        placed = [self._copy_pages(chunk) for chunk in ordered]
        packed = self._at - start
        blooms = [self._copy_bloom_filter(chunk) for chunk in ordered]
        if all(chunk.has_indexes for chunk in ordered):
            columns = [self._with_indexes(*parts) for parts in zip(ordered, placed, blooms, strict=True)]
        else:
            columns = [_encode_chunk(place, pages, bloom, []) for (place, pages), bloom in zip(placed, blooms, strict=True)]
        fields = [
            list_field(_COLUMNS, STRUCT, columns),
            number_field(_GROUP_BYTES, sum(chunk.metadata.total_uncompressed_size for chunk in ordered), I64),
            number_field(_GROUP_ROWS, rows, I64),
            *([group[_SORTING]] if _SORTING in group and replaced is None else []),
            number_field(_GROUP_PLACE, start, I64),
            number_field(_GROUP_PACKED, packed, I64),
            *([number_field(_ORDINAL, len(self._groups), I16)] if len(self._groups) <= _MAX_ORDINAL else []),
        ]
        self._groups.append(encode_struct(fields))
        self._rows += rows
        self._created[source.metadata.created_by or ""] = None

    def close(self, key_values: Mapping[str, str], *, is_ordered: bool, created_by: str) -> pq.FileMetaData:
        """Write the footer, and return it.

        Args:
            key_values: Of the footer.
            is_ordered: All sources define the order of values.
            created_by: The writer, if row groups come from several ones.
        """
        creators = list(self._created) or [self._like.metadata.created_by or ""]
        like = self._like.fields
        pairs = [encode_struct([text_field(1, key), text_field(2, value)]) for key, value in {**key_values, **EMPTY_SEAL}.items()]
        fields = [
            ThriftField(_VERSION, I32, like[_VERSION]),
            ThriftField(_SCHEMA, LIST, like[_SCHEMA]),
            number_field(_ROWS, self._rows, I64),
            list_field(_GROUPS, STRUCT, self._groups),
            list_field(_PAIRS, STRUCT, pairs),
            text_field(_CREATED_BY, creators[0] if len(creators) == 1 and creators[0] else created_by),
        ]
        if is_ordered:
            fields.append(ThriftField(_ORDERS, LIST, like[_ORDERS]))
        footer = encode_struct(fields)
        footer = sealed(footer + _END.pack(len(footer)) + MAGIC, self._at)
        self._write(footer)
        return parse_footer(footer)

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self._at += len(data)

    def _copy_pages(self, chunk: _Chunk) -> tuple[int, list[ThriftField]]:
        """Copy the pages of a chunk. Returns their position, and the fields of the chunk's metadata."""
        data, numbers = verified_chunk(chunk.file, chunk.metadata), _numbers(chunk.inner)
        moved = self._at - min(numbers[9], numbers.get(11) or numbers[9])
        place = self._at
        self._write(data)
        fields = []
        for item in chunk.inner:
            if item.number in _PAGE_PLACES and numbers[item.number]:
                item = number_field(item.number, numbers[item.number] + moved, I64)
            if item.number not in (_BLOOM, _BLOOM_LENGTH):
                fields.append(item)
        return place, fields

    def _copy_bloom_filter(self, chunk: _Chunk) -> tuple[int, int] | None:
        """Copy the Bloom filter of a chunk. Returns its position and length; None if there is none."""
        numbers = _numbers(chunk.inner)
        start = numbers.get(_BLOOM)
        if start is None:
            return None
        head = _read(chunk.file, start, min(_BLOOM_HEADER_BYTES, chunk.file.size() - start))
        header, content = read_numbers(head, 0, start)
        size = header.get(1)
        remaining = chunk.file.size() - start - content
        if not isinstance(size, int) or not 0 <= size <= remaining:
            raise CorruptData("invalid size of a Bloom filter", offset=start, expected=remaining, found=str(size))
        place = self._at
        self._write(_read(chunk.file, start, content + size))
        return place, content + size

    def _with_indexes(self, chunk: _Chunk, placed: tuple[int, list[ThriftField]], bloom: tuple[int, int] | None) -> bytes:
        """Copy the page indexes of a chunk; return the encoded chunk."""
        numbers = chunk.numbers
        before = chunk.metadata.dictionary_page_offset or chunk.metadata.data_page_offset
        moved = placed[0] - min(before, chunk.metadata.data_page_offset)
        offsets = bytes(_read(chunk.file, numbers[_OFFSET_INDEX], numbers[_OFFSET_LENGTH]))
        offsets = edited(offsets, 1, lambda locations: each(locations, lambda location: _moved(location, moved)))
        columns = bytes(_read(chunk.file, numbers[_COLUMN_INDEX], numbers[_COLUMN_LENGTH]))
        indexes = []
        for number, data in ((_OFFSET_INDEX, offsets), (_COLUMN_INDEX, columns)):
            indexes += [number_field(number, self._at, I64), number_field(number + 1, len(data), I32)]
            self._write(data)
        return _encode_chunk(*placed, bloom, indexes)


def _encode_chunk(
    place: int, metadata: Sequence[ThriftField], bloom: tuple[int, int] | None, indexes: Sequence[ThriftField]
) -> bytes:
    fields = list(metadata)
    if bloom is not None:
        fields += [number_field(_BLOOM, bloom[0], I64), number_field(_BLOOM_LENGTH, bloom[1], I32)]
        fields.sort(key=lambda item: item.number)
    return encode_struct(
        [number_field(_CHUNK_PLACE, place, I64), ThriftField(_METADATA, STRUCT, encode_struct(fields)), *indexes]
    )


def _chunks(file: pa.NativeFile, source: CopySource, number: int) -> dict[str, _Chunk]:
    """The column chunks of a row group, by the path of their column."""
    columns, group = decode_structs(source.groups[number][_COLUMNS].value), source.metadata.row_group(number)
    found = [_Chunk(file, fields, group.column(leaf)) for leaf, fields in enumerate(columns)]
    return {chunk.metadata.path_in_schema: chunk for chunk in found}


def _moved(location: bytes, moved: int) -> bytes:
    """A page location at another position."""
    fields = decode_fields(location)
    place = _numbers(fields)[1] + moved
    return encode_struct([number_field(1, place, I64) if item.number == 1 else item for item in fields])


def _numbers(fields: Sequence[ThriftField]) -> dict[int, int]:
    return {item.number: ByteCursor(item.value).zigzag() for item in fields if item.kind in (I32, I64)}


def _read(file: pa.NativeFile, start: int, size: int) -> memoryview:
    file.seek(start)
    data = memoryview(file.read_buffer(size)).cast("B")
    if len(data) != size:
        raise CorruptData("an index of a Parquet file is truncated", offset=start, expected=size, found=len(data))
    return data
