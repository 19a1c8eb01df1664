"""Avro records <-> Arrow columns, a whole column at a time.  Source: Avro specification 1.11, "Binary Encoding".

Log blocks hold rows as Avro, where a field is found only by walking over the fields before it.  Going row by row through
Python objects costs microseconds a row; here no Python runs per row.

Decoding.  Where each record begins and ends is known to the caller (log blocks and HFiles store lengths).  An array of
positions, one per record, walks through the schema: each step reads one field of all records with a few numpy operations
and moves every position behind it.

    varint          eight bytes per record in one gather; continuation bits give the length, three shifts close the gaps
    string, bytes   the content itself becomes an Arrow array in which wanted ranges and the gaps between them alternate,
                    and Arrow's `take` copies the wanted ones
    ["null", T]     T for the records on that branch, spread over the rows again by validity and offsets
    array, map      the first item of all records, then the second of those that have one, ...; when only few records are
                    left, their items are found one by one and then read together.  Items of a fixed size are read at once

Encoding.  Each column becomes binary columns: short ones for branches, lengths and numbers, and the strings as they are.
Arrow's element-wise join makes the records of them.

Types: null unions of two branches in either order, boolean, int, long, float, double, bytes, string, enum, fixed, record,
array, map; decimal (bytes and fixed), date, times, timestamps (local ones too), uuid.  Arrow types are those of
`format.avro_to_arrow`.  What is not done: other unions, recursive records, schema resolution (rows come in the
schema that wrote them), and items without bytes.
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
"""Rows to decode or encode in one call: so many that calls cost little, so few that their arrays stay in the cache."""

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Encoded bytes to decode in one call; it bounds the memory that arrays of many small items take."""


@dataclass(frozen=True, slots=True)
class AvroRecords:
    """The codec of one record schema.  Made by `avro_records`."""

    schema: pa.Schema
    _root: RecordNode

    def decode(
        self, data: bytes | memoryview, starts: Longs, ends: Longs, columns: Sequence[str] | None = None, base: int = 0
    ) -> pa.RecordBatch:
        """The records at `data[starts[i]:ends[i]]`, one row each, in that order.

        starts, ends: int64, not falling, without overlap.  At most about CHUNK_ROWS and CHUNK_BYTES in one call is what
        makes it fast.  columns: the top-level columns to return, in the order of the schema; None means all.
        base: what to add to offsets in errors.
        Returns a batch with the columns of `schema`.  Raises CorruptData when a record breaks its schema or does not end
        where it should.
        """
        if not len(starts):
            return _empty(_select(self.schema, columns))
        first, last = int(starts[0]), int(ends[-1])
        view = memoryview(data).cast("B")
        ordered = bool((starts <= ends).all()) and bool((starts[1:] >= ends[:-1]).all())
        if first < 0 or last > len(view) or not ordered:
            raise CorruptData("records do not lie one after the other", offset=base, found=(first, last))
        source = Source(view[first:last], base + first)
        shift = PAD_BYTES - first
        rows = RowCursors(source, starts + shift, ends + shift)
        arrays = self._root.decode_columns(rows, None if columns is None else frozenset(columns))
        rows.expect_ends()
        return pa.RecordBatch.from_arrays(arrays, schema=_select(self.schema, columns))

    def decode_values(self, values: pa.Array, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """As `decode`, of a binary array without nulls that holds one record in each value."""
        offsets, data = binary_parts(values)
        return self.decode(data.data, offsets[:-1], offsets[1:], columns)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """A binary array with one encoded record for each row.

        batch: the columns of `schema` by position, with its types (nested names aside).  Raises InvalidRequest for other
        types, and for nulls where the schema has no null.
        """
        return join(self.encode_parts(batch), batch.num_rows)

    def encode_parts(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Binary arrays which, joined row by row, are the records; for callers that put something before each."""
        if batch.num_columns != len(self.schema):
            raise InvalidRequest(f"{batch.num_columns} columns do not fit a schema of {len(self.schema)}")
        return self._root.encode_columns(batch.columns, batch.num_rows)


@lru_cache(maxsize=256)
def avro_records(text: str) -> AvroRecords:
    """The codec of a record schema, kept for the next call with the same text.

    Raises CorruptData when the text is not an Avro record, Unsupported for what the head of this module leaves out.
    """
    schema = avro_to_arrow(text)
    root = compile_node(resolve_avro(text), pa.struct(list(schema)))
    assert isinstance(root, RecordNode)
    return AvroRecords(schema, root)


def supports(text: str) -> bool:
    """Whether `avro_records` takes the schema."""
    try:
        avro_records(text)
    except Unsupported:
        return False
    return True


def _select(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    wanted = frozenset(columns)
    return pa.schema([field for field in schema if field.name in wanted], metadata=schema.metadata)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
