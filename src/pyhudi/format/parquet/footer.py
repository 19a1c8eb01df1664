"""Parquet footer: validation before Arrow reads it, and removal of misleading column statistics.

A footer is a Thrift struct in the compact protocol. The path to column bounds:

    FileMetaData   2 schema: list of SchemaElement    4 row groups: list of RowGroup
    SchemaElement  6 converted type    10 logical type
    RowGroup       1 columns: list of ColumnChunk
    ColumnChunk    3 ColumnMetaData
    ColumnMetaData 3 path: list of text    12 Statistics    13 encodings of the pages: whether all have a dictionary
    Statistics     1, 5 largest value   2, 6 smallest value   7, 8 whether these are exact

All other bytes are copied unchanged. A file ends with the footer, its length as four bytes little-endian, and `PAR1`.
Readers start from there, so a second footer after the first replaces it.

Specification: parquet-format, parquet.thrift and "File format"; Thrift, "Compact protocol encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyhudi.errors import CorruptData
from pyhudi.format.byte_cursor import ByteCursor, encode_zigzag
from pyhudi.format.expansion import MAX_EXPANDED_BYTES, MAX_RATIO
from pyhudi.format.parquet.thrift_compact import (
    BINARY,
    DEPTH_LIMIT,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    decode_fields,
    each,
    each_field,
    edited,
    encode_struct,
    list_head,
    skip,
)

MAGIC = b"PAR1"

_ROW_GROUPS, _COLUMNS, _META_DATA, _PATH, _STATISTICS, _ENCODINGS = 4, 1, 3, 3, 12, 13
_SCHEMA, _CONVERTED, _LOGICAL = 2, 6, 10
# The converted types ENUM and UTF8; the union of logical types with its member STRING, an empty struct.
_ENUM, _UTF8, _STRING = encode_zigzag(4), encode_zigzag(0), b"\x1c\x00\x00"
_BOUNDS = frozenset({1, 2, 5, 6, 7, 8})


def closing_without(closing: bytes, bounds: Collection[str], dictionaries: Collection[str] = ()) -> bytes:
    """Return the end of a Parquet file (footer, length, magic) without some statistics, in every row group.

    Args:
        closing: The end of the file; bytes before the footer are allowed.
        bounds: Columns that lose their bounds (dotted paths of leaves).
        dictionaries: Columns that lose the statement that dictionaries hold all their values.

    Raises:
        CorruptData: `closing` is not the end of a Parquet file.
    """
    if len(closing) < 8 or closing[-4:] != MAGIC:
        raise CorruptData("a Parquet file does not end with its magic", expected=MAGIC, found=closing[-4:])
    (size,) = struct.unpack("<I", closing[-8:-4])
    if size > len(closing) - 8:
        raise CorruptData("a Parquet footer is longer than its file", expected=len(closing) - 8, found=size)

    footer = closing[-8 - size : -8]
    names = tuple(path.rpartition(".")[2].encode() for path in {*bounds, *dictionaries})
    parts, copied = [], 0
    for start, end in _column_metadata(footer):
        metadata = footer[start:end]
        # Most chunks are of other columns, and decoding their fields takes time.
        if any(name in metadata for name in names):
            parts += [footer[copied:start], _without_statistics(metadata, bounds, dictionaries)]
            copied = end
    footer = b"".join((*parts, footer[copied:]))
    return footer + struct.pack("<I", len(footer)) + MAGIC


def _column_metadata(footer: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of the ColumnMetaData of each column chunk, in one pass over the footer."""
    cursor = ByteCursor(footer)
    for _ in _fields(cursor, _ROW_GROUPS):
        for _ in range(list_head(cursor)[0]):
            for _ in _fields(cursor, _COLUMNS):
                for _ in range(list_head(cursor)[0]):
                    for kind in _fields(cursor, _META_DATA):
                        start = cursor.offset
                        skip(cursor, kind, 0)
                        yield start, cursor.offset
    cursor.expect_end("a struct of a Parquet footer")


def _fields(cursor: ByteCursor, wanted: int) -> Iterator[int]:
    """Yield the type of a field of the struct at the cursor, which the caller reads, and skip the other fields."""
    for number, kind in each_field(cursor):
        if number == wanted:
            yield kind
        else:
            skip(cursor, kind, 0)


def _without_statistics(metadata: bytes, bounds: Collection[str], dictionaries: Collection[str]) -> bytes:
    fields = decode_fields(metadata)
    path = _path_text(next((field.value for field in fields if field.number == _PATH), b""))
    if path in dictionaries:
        metadata = encode_struct([field for field in fields if field.number != _ENCODINGS])
    return edited(metadata, _STATISTICS, _unbounded) if path in bounds else metadata


def closing_with_text(closing: bytes) -> bytes:
    """Return the end of a Parquet file with enum columns declared as string, because Arrow reads enums as bytes."""

    def plain(element: bytes) -> bytes:
        fields = decode_fields(element)
        if not any(field.number == _CONVERTED and field.value == _ENUM for field in fields):
            return element
        texts = {_CONVERTED: _UTF8, _LOGICAL: _STRING}
        return encode_struct([replace(field, value=texts.get(field.number, field.value)) for field in fields])

    size = len(closing) - 8
    footer = edited(closing[:size], _SCHEMA, lambda elements: each(elements, plain))
    return footer + struct.pack("<I", len(footer)) + MAGIC


def _unbounded(statistics: bytes) -> bytes:
    return encode_struct([field for field in decode_fields(statistics) if field.number not in _BOUNDS])


def _path_text(data: bytes) -> str:
    cursor = ByteCursor(data)
    count, _ = list_head(cursor) if data else (0, 0)
    return ".".join(cursor.text(cursor.varint()) for _ in range(count))


# Validation of a footer before Arrow reads it -------------------------------------------------------------------------

# Field types in addition to those of the protocol: a binary that is UTF-8, and lists.
_TEXT, _NUMBERS, _LONGS, _TEXTS = range(STRUCT + 1, STRUCT + 5)
_ITEMS = {_NUMBERS: I32, _LONGS: I64, _TEXTS: BINARY}
_LIMITS = {I16: 1 << 15, I32: 1 << 31, I64: 1 << 63}


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """A struct of the format.

    Attributes:
        name: Name in parquet.thrift.
        fields: Number -> name and type: a primitive, the shape of a struct, or a list with one shape, that of its
            items.
        needed: Required names.
    """

    name: str
    fields: Mapping[int, tuple[str, int | _Shape | list[_Shape]]]
    needed: frozenset[str]


def _shape(name: str, needed: str, /, **fields: tuple[int, int | _Shape | list[_Shape]]) -> _Shape:
    return _Shape(name, {number: (field, kind) for field, (number, kind) in fields.items()}, frozenset(needed.split()))


_STATISTICS_SHAPE = _shape(
    "Statistics",
    "",
    max=(1, BINARY),
    min=(2, BINARY),
    null_count=(3, I64),
    distinct_count=(4, I64),
    max_value=(5, BINARY),
    min_value=(6, BINARY),
    is_max_exact=(7, TRUE),
    is_min_exact=(8, TRUE),
)
_SIZES = _shape("SizeStatistics", "", text_bytes=(1, I64), repetition_levels=(2, _LONGS), definition_levels=(3, _LONGS))
_ENCODED = _shape("PageEncodingStats", "page_type encoding count", page_type=(1, I32), encoding=(2, I32), count=(3, I32))
_PAIR = _shape("KeyValue", "key", key=(1, BINARY), value=(2, BINARY))
_COLUMN = _shape(
    "ColumnMetaData",
    "type encodings path codec num_values total_uncompressed_size total_compressed_size data_page_offset",
    type=(1, I32),
    encodings=(2, _NUMBERS),
    path=(3, _TEXTS),
    codec=(4, I32),
    num_values=(5, I64),
    total_uncompressed_size=(6, I64),
    total_compressed_size=(7, I64),
    pairs=(8, [_PAIR]),
    data_page_offset=(9, I64),
    index_page_offset=(10, I64),
    dictionary_page_offset=(11, I64),
    statistics=(12, _STATISTICS_SHAPE),
    encoding_stats=(13, [_ENCODED]),
    bloom_filter_offset=(14, I64),
    bloom_filter_length=(15, I32),
    sizes=(16, _SIZES),
)
_CHUNK = _shape(
    "ColumnChunk",
    "file_offset metadata",
    file_path=(1, _TEXT),
    file_offset=(2, I64),
    metadata=(3, _COLUMN),
    offset_index_offset=(4, I64),
    offset_index_length=(5, I32),
    column_index_offset=(6, I64),
    column_index_length=(7, I32),
    crypto=(8, _shape("ColumnCryptoMetaData", "")),
)
_SORTED = _shape("SortingColumn", "column", column=(1, I32), descending=(2, TRUE), nulls_first=(3, TRUE))
_GROUP = _shape(
    "RowGroup",
    "columns total_byte_size num_rows",
    columns=(1, [_CHUNK]),
    total_byte_size=(2, I64),
    num_rows=(3, I64),
    sorting=(4, [_SORTED]),
    file_offset=(5, I64),
    total_compressed_size=(6, I64),
    ordinal=(7, I16),
)
_ELEMENT = _shape(
    "SchemaElement",
    "name",
    type=(1, I32),
    type_length=(2, I32),
    repetition=(3, I32),
    name=(4, _TEXT),
    num_children=(5, I32),
    converted_type=(6, I32),
    scale=(7, I32),
    precision=(8, I32),
    field_id=(9, I32),
    logical_type=(10, _shape("LogicalType", "")),
)
_FILE = _shape(
    "FileMetaData",
    "version schema num_rows row_groups",
    version=(1, I32),
    schema=(2, [_ELEMENT]),
    num_rows=(3, I64),
    row_groups=(4, [_GROUP]),
    pairs=(5, [_PAIR]),
    created_by=(6, _TEXT),
)
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
_BYTE_ARRAY, _FIXED = 6, 7
_REQUIRED, _REPEATED = 0, 2
_MAX_CONVERTED = 21
# Maximum expansion of one byte of a column, by codec, doubled or more: none, Snappy (64 of 3), gzip (1,032), LZO,
# Brotli (16 MiB of a few), LZ4 (255), Zstandard (128 KiB of 4), LZ4 raw.
_MAX_DECOMPRESSION_RATIOS = (64, 64, 1 << 11, 1 << 11, 1 << 23, 1 << 9, 1 << 16, 1 << 9)
_SMALL = 1 << 20
# Arrow calls itself for each level.
_MAX_SCHEMA_DEPTH = 100

_Struct = dict[str, Any]


def check_footer(footer: bytes, offset: int) -> None:
    """Validate a footer, because Arrow terminates the process on some invalid ones.

    Every enum, length and list is checked, and required fields must exist. The leaves of the schema match the column
    chunks; pages precede the footer. The uncompressed size of a column is bounded by the maximum expansion of its codec
    (64 times for Snappy, 2**16 for Zstandard, 2**23 for Brotli) plus one MiB, and above 1 GiB by 200 times its stored
    size, so that a small file cannot allocate all memory. Fields that known writers get wrong are not checked: the
    offsets and compressed sizes of row groups. Cost: 13,000 microseconds of processor time for 20 columns and 10 row
    groups.

    Args:
        footer: Without its length and magic.
        offset: Its position in the file.

    Raises:
        CorruptData: The footer is invalid.
    """
    walk = _StructReader(footer, offset)
    file = walk.struct(_FILE, 0)
    leaves = _leaves(walk, file["schema"])
    rows = 0
    for group in file["row_groups"]:
        _check_group(walk, group, leaves, offset)
        rows += group["num_rows"]
    walk.expect(file["num_rows"] == rows, "invalid number of rows of its row groups", expected=file["num_rows"], found=rows)


@dataclass(frozen=True, slots=True)
class _SchemaLeaf:
    """A leaf column of the schema.

    Attributes:
        path: Names from the root.
        type: Physical type.
        width: Bytes of a value, 0 for variable length.
        repetition: Maximum repetition level, 0 for a column that is never repeated.
        definition: Maximum definition level, 0 for a column that is never null.
    """

    path: list[str]
    type: int
    width: int
    repetition: int
    definition: int


class _StructReader:
    """Reads structs, from the start of a footer to its end."""

    def __init__(self, data: bytes, base: int) -> None:
        self._data = data
        self._base = base
        self._at = 0

    def expect(self, contains: object, description: str, *, expected: object = None, found: object = None) -> None:
        """Raise CorruptData unless `contains` is true."""
        if not contains:
            raise CorruptData(
                f"invalid Parquet footer: {description}", offset=self._base + self._at, expected=expected, found=found
            )

    def struct(self, shape: _Shape, depth: int) -> _Struct:
        """Return the fields of a struct that its shape names; others are skipped."""
        self.expect(depth <= DEPTH_LIMIT, "nested too deeply", expected=DEPTH_LIMIT)
        data, fields = self._data, shape.fields
        values: _Struct = {}
        number = 0
        try:
            while head := data[self._at]:
                self._at += 1
                number = number + (head >> 4) if head >> 4 else self._signed()
                kind = head & 15
                known = fields.get(number)
                if known is None:
                    self._pass(kind, depth)
                    continue
                name, field_type = known
                if field_type == kind and kind in _LIMITS:
                    value = self._signed()
                    if not -_LIMITS[kind] <= value < _LIMITS[kind]:
                        self.expect(False, f"{name} of {shape.name}", found=value)
                    values[name] = value
                else:
                    values[name] = self._value(field_type, kind, shape.name, depth)
            self._at += 1
        except IndexError:
            self.expect(False, f"{shape.name} is truncated")
        if not shape.needed <= values.keys():
            self.expect(False, f"{shape.name} is missing {', '.join(sorted(shape.needed - values.keys()))}")
        return values

    def _value(self, shape: int | _Shape | list[_Shape], kind: int, name: str, depth: int) -> Any:
        if isinstance(shape, _Shape):
            self._check(kind == STRUCT, name, kind)
            return self.struct(shape, depth + 1)
        if isinstance(shape, list):
            count = self._list(kind, STRUCT, name)
            return [self.struct(shape[0], depth + 1) for _ in range(count)]
        if shape in _ITEMS:
            count = self._list(kind, _ITEMS[shape], name)
            return [self._text(name) if shape == _TEXTS else self._signed() for _ in range(count)]
        if shape == TRUE:
            self._check(kind in (TRUE, FALSE), name, kind)
            return kind == TRUE
        self._check(kind == (BINARY if shape == _TEXT else shape), name, kind)
        return self._text(name) if shape == _TEXT else self._bytes()

    def _check(self, contains: object, name: str, kind: int) -> None:
        self.expect(contains, f"a field of {name} of another type", found=kind)

    def _list(self, kind: int, item: int, name: str) -> int:
        self._check(kind == LIST, name, kind)
        head = self._data[self._at]
        self._at += 1
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        self._check(head & 15 == item or not count, name, head & 15)
        # Each item has at least one byte.
        remaining = len(self._data) - self._at
        self.expect(count <= remaining, f"the length of a list of {name}", expected=remaining, found=count)
        return count

    def _bytes(self) -> bytes:
        size = self._unsigned()
        start = self._at
        remaining = len(self._data) - start
        self.expect(size <= remaining, "the length of a text", expected=remaining, found=size)
        self._at = start + size
        return self._data[start : self._at]

    def _text(self, name: str) -> str:
        try:
            return self._bytes().decode()
        except UnicodeDecodeError:
            raise CorruptData(f"invalid Parquet footer: a text of {name} is not UTF-8", offset=self._base + self._at) from None

    def _unsigned(self) -> int:
        data = self._data
        byte = data[self._at]
        self._at += 1
        if byte < 128:
            return byte
        value, shift = byte & 127, 7
        while True:
            byte = data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            self.expect(shift < 70, "an integer of more than 64 bits")

    def _signed(self) -> int:
        value = self._data[self._at]
        if value < 128:
            self._at += 1
        else:
            value = self._unsigned()
        return value >> 1 ^ -(value & 1)

    def _pass(self, kind: int, depth: int) -> None:
        cursor = ByteCursor(self._data, self._at, base=self._base)
        skip(cursor, kind, depth)
        self._at = cursor.offset


def _leaves(walk: _StructReader, schema: Sequence[_Struct]) -> list[_SchemaLeaf]:
    """Return the leaf columns of a schema, which is a tree in depth-first order."""
    walk.expect(bool(schema), "a schema without a root")
    leaves: list[_SchemaLeaf] = []
    # Open groups: number of remaining children, path, repetition and definition levels.
    opened: list[tuple[int, list[str], int, int]] = []
    for place, element in enumerate(schema):
        name, children, type_ = element["name"], element.get("num_children", 0), element.get("type")
        repetition, converted = element.get("repetition", 0), element.get("converted_type", 0)
        walk.expect(0 <= repetition <= _REPEATED, f"the repetition of {name}", found=repetition)
        walk.expect(0 <= converted <= _MAX_CONVERTED, f"the converted type of {name}", found=converted)
        walk.expect(children >= 0, f"the children of {name}", found=children)
        path, repeated, defined = [], 0, 0
        if place:
            walk.expect(bool(opened), "a schema with elements after its tree", found=name)
            remaining, above, repeated, defined = opened.pop()
            if remaining > 1:
                opened.append((remaining - 1, above, repeated, defined))
            path = [*above, name]
            walk.expect(len(path) <= _MAX_SCHEMA_DEPTH, "a schema nested too deeply", expected=_MAX_SCHEMA_DEPTH)
            repeated += repetition == _REPEATED
            defined += repetition != _REQUIRED
        if place and type_ is not None:
            width = element.get("type_length", 0) if type_ == _FIXED else _WIDTHS.get(type_, 0)
            walk.expect(not children and (type_ in _WIDTHS or type_ in (_BYTE_ARRAY, _FIXED)), f"the type of {name}", found=type_)
            walk.expect(width > 0 or type_ == _BYTE_ARRAY, f"the width of {name}", found=width)
            leaves.append(_SchemaLeaf(path, type_, width, repeated, defined))
        elif children:
            opened.append((children, path, repeated, defined))
    walk.expect(not opened, "a schema that is truncated inside its tree")
    return leaves


def _check_group(walk: _StructReader, group: _Struct, columns: Sequence[_SchemaLeaf], end: int) -> None:
    rows, chunks = group["num_rows"], group["columns"]
    walk.expect(rows >= 0, "the rows of a row group", found=rows)
    walk.expect(len(chunks) == len(columns), "the columns of a row group", expected=len(columns), found=len(chunks))
    largest = 0
    for chunk, leaf in zip(chunks, columns, strict=True):
        column, name = chunk["metadata"], ".".join(leaf.path)
        walk.expect(
            "crypto" not in chunk and "file_path" not in chunk, f"{name} is encrypted or in another file, which is not supported"
        )
        walk.expect(column["path"] == leaf.path, "the path of a column", expected=name, found=".".join(column["path"]))
        walk.expect(column["type"] == leaf.type, f"the type of {name}", expected=leaf.type, found=column["type"])
        codec, values = column["codec"], column["num_values"]
        walk.expect(0 <= codec < len(_MAX_DECOMPRESSION_RATIOS), f"the codec of {name}", found=codec)
        walk.expect(values >= 0 if leaf.repetition else values == rows, f"the values of {name}", expected=rows, found=values)
        packed, unpacked = column["total_compressed_size"], column["total_uncompressed_size"]
        start = min(column["data_page_offset"], column.get("dictionary_page_offset") or column["data_page_offset"])
        walk.expect(packed >= 0 and 0 <= start <= end - packed, f"the pages of {name}", expected=end, found=(start, packed))
        bound = min(packed * _MAX_DECOMPRESSION_RATIOS[codec] + _SMALL, max(MAX_EXPANDED_BYTES, MAX_RATIO * packed))
        walk.expect(0 <= unpacked <= bound, f"the unpacked bytes of {name}", expected=bound, found=unpacked)
        largest += bound
        for place, size in _SEPARATE_TEXTS:
            parent = column if place.startswith("bloom") else chunk
            if place in parent:
                at, length = parent[place], parent.get(size, 0)
                walk.expect(at >= 0 <= length and at + length <= end, f"{place} of {name}", expected=end, found=(at, length))
        _check_statistics(walk, column.get("statistics", {}), leaf, name)
        _check_sizes(walk, column.get("sizes", {}), leaf, name)
    size = group["total_byte_size"]
    walk.expect(0 <= size <= largest + end, "the size of a row group", expected=largest + end, found=size)


_SEPARATE_TEXTS = (
    ("offset_index_offset", "offset_index_length"),
    ("column_index_offset", "column_index_length"),
    ("bloom_filter_offset", "bloom_filter_length"),
)


def _check_statistics(walk: _StructReader, statistics: _Struct, leaf: _SchemaLeaf, name: str) -> None:
    for bound in ("max", "min", "max_value", "min_value"):
        value = statistics.get(bound)
        if value and leaf.type != _BYTE_ARRAY:
            walk.expect(len(value) == leaf.width, f"the length of a bound of {name}", expected=leaf.width, found=len(value))


def _check_sizes(walk: _StructReader, sizes: _Struct, leaf: _SchemaLeaf, name: str) -> None:
    walk.expect("text_bytes" not in sizes or leaf.type == _BYTE_ARRAY, f"bytes of text in {name}", found=leaf.type)
    for levels, deepest in (("repetition_levels", leaf.repetition), ("definition_levels", leaf.definition)):
        counts = sizes.get(levels)
        walk.expect(not counts or len(counts) == deepest + 1, f"the {levels} of {name}", expected=deepest + 1, found=counts)
