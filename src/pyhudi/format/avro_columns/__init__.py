"""Columnar Avro codec: Avro records <-> Arrow columns, a whole column at a time.

Log blocks store rows as Avro, where a field is found only by parsing the fields before it. Decoding row by row into
Python objects costs microseconds a row; here no Python code runs per row.

Decoding. The caller knows the bounds of each record (log blocks and HFiles store lengths). An array of positions, one
per record, traverses the schema: each step reads one field of all records with a few numpy operations and advances
every position past it.

    varint          eight bytes per record in one gather; continuation bits give the length, three shifts close the gaps
    string, bytes   the content itself becomes an Arrow array in which ranges and the gaps between them alternate, and
                    Arrow's `take` copies the ranges
    ["null", T]     T for the records on that branch, expanded to all rows by validity and offsets
    array, map      the first item of all records, then the second of those that have one, ...; when only few records
                    remain, their items are located one by one and then decoded together. Items of a fixed size are
                    decoded at once

Encoding. Each column becomes binary columns: short ones for branches, lengths and numbers, and the strings unchanged.
Arrow's element-wise join concatenates them to records.

Types: null unions of two branches in either order, boolean, int, long, float, double, bytes, string, enum, fixed,
record, array, map; decimal (bytes and fixed), date, times, timestamps (local ones too), uuid. Arrow types are those of
`format.avro_to_arrow`. Not supported: other unions, recursive records, schema resolution (rows are returned in the
writer's schema), and items without bytes.

Specification: Avro 1.11, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro_columns.buffers import (
    Longs,
    big_endian_ints,
    binary_parts,
    expand,
    fixed_values,
    join,
    octet_column,
    part_sizes,
    valid_mask,
    varints,
)
from pyhudi.format.avro_columns.column_nodes import (
    BinaryNode,
    BooleanNode,
    DecimalNode,
    EnumNode,
    FixedNode,
    FloatNode,
    Node,
    NullableNode,
    NumberNode,
    RecordNode,
)
from pyhudi.format.avro_columns.column_schema import compile_node
from pyhudi.format.avro_columns.rows import PAD_BYTES, RowCursors, Source
from pyhudi.format.avro_columns.sequences import MapNode, SequenceNode
from pyhudi.format.avro_resolve import resolve_avro
from pyhudi.format.avro_to_arrow import avro_to_arrow

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_ROWS",
    "AvroRecords",
    "avro_records",
    "supports",
    "PAD_BYTES",
    "RowCursors",
    "Source",
    "Node",
    "BinaryNode",
    "BooleanNode",
    "DecimalNode",
    "EnumNode",
    "FixedNode",
    "FloatNode",
    "MapNode",
    "NullableNode",
    "NumberNode",
    "RecordNode",
    "SequenceNode",
    "compile_node",
    "Longs",
    "big_endian_ints",
    "binary_parts",
    "expand",
    "fixed_values",
    "join",
    "octet_column",
    "part_sizes",
    "valid_mask",
    "varints",
]

CHUNK_ROWS: Final = 16_384
"""Rows to decode or encode in one call: enough to amortize calls, few enough that their arrays stay in the cache."""

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Encoded bytes to decode in one call, which bounds the memory of arrays of many small items."""


@dataclass(frozen=True, slots=True)
class AvroRecords:
    """Codec of one record schema. Construct it with `avro_records`."""

    schema: pa.Schema
    _root: RecordNode

    def decode(
        self, data: bytes | memoryview, starts: Longs, ends: Longs, columns: Sequence[str] | None = None, base: int = 0
    ) -> pa.RecordBatch:
        """Decode the records at `data[starts[i]:ends[i]]`, one row each, in that order.

        Args:
            data: Encoded records.
            starts: int64, ascending.
            ends: int64; ranges do not overlap. At most about CHUNK_ROWS and CHUNK_BYTES per call is fastest.
            columns: Top-level columns to return, in the order of the schema; None means all.
            base: Added to offsets in errors.

        Returns:
            A batch with the columns of `schema`.

        Raises:
            CorruptData: A record breaks its schema or does not end at its bound.
        """
        if not len(starts):
            return _empty(_select(self.schema, columns))
        first, last = int(starts[0]), int(ends[-1])
        view = memoryview(data).cast("B")
        ordered = bool((starts <= ends).all()) and bool((starts[1:] >= ends[:-1]).all())
        if first < 0 or last > len(view) or not ordered:
            raise CorruptData("records are not contiguous and ascending", offset=base, found=(first, last))
        source = Source(view[first:last], base + first)
        shift = PAD_BYTES - first
        rows = RowCursors(source, starts + shift, ends + shift)
        arrays = self._root.decode_columns(rows, None if columns is None else frozenset(columns))
        rows.expect_ends()
        return pa.RecordBatch.from_arrays(arrays, schema=_select(self.schema, columns))

    def decode_values(self, values: pa.Array, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Decode as `decode` a binary array without nulls that has one record in each value."""
        offsets, data = binary_parts(values)
        return self.decode(data.data, offsets[:-1], offsets[1:], columns)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Return a binary array with one encoded record for each row.

        Args:
            batch: The columns of `schema` by position, with its types (except nested names).

        Raises:
            InvalidRequest: Other types, or nulls where the schema has none.
        """
        return join(self.encode_parts(batch), batch.num_rows)

    def encode_parts(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return binary arrays whose row-wise concatenation is the records, for callers that prepend something to each."""
        if batch.num_columns != len(self.schema):
            raise InvalidRequest(f"{batch.num_columns} columns do not match a schema of {len(self.schema)}")
        return self._root.encode_columns(batch.columns, batch.num_rows)


@lru_cache(maxsize=256)
def avro_records(text: str) -> AvroRecords:
    """Return the codec of a record schema, cached by text.

    Raises:
        CorruptData: The text is not an Avro record.
        Unsupported: A schema that this package does not support, see above.
    """
    schema = avro_to_arrow(text)
    root = compile_node(resolve_avro(text), pa.struct(list(schema)))
    assert isinstance(root, RecordNode)
    return AvroRecords(schema, root)


def supports(text: str) -> bool:
    """Return whether `avro_records` supports the schema."""
    try:
        avro_records(text)
    except Unsupported:
        return False
    return True


def _select(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    requested = frozenset(columns)
    return pa.schema([field for field in schema if field.name in requested], metadata=schema.metadata)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
