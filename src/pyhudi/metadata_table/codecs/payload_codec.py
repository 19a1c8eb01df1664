"""Codec between record values of the metadata table and one payload column. Format: docs/formats/metadata-table.md,
HoodieMetadataRecord.

Decoding follows the writer's schema for all records at once, field by field. It skips the fields around the payload;
any other payload must be null. The result has the writer's field names and types. Repeated values, common in a record
index, are decoded once.

A union of wrappers (the bounds of a column) becomes WRAPPED: the wrapper kind and the Avro bytes of its single field.
`value_wrappers.py` decodes these bytes with the column's type.

Encoding leaves the meta fields null and the key empty, as Hudi's log blocks do: readers take the key from the HFile.

    5 x 00 | 00 key | type | one byte per payload field: 02 and the payload for the filled one, 00 for the others
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from pyhudi.errors import CorruptData, Internal, Unsupported
from pyhudi.format.avro import nodes as avro
from pyhudi.format.avro.schema import parse_schema
from pyhudi.format.avro_columns import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    PAD_BYTES,
    BinaryNode,
    BooleanNode,
    FloatNode,
    MapNode,
    Node,
    NullableNode,
    NumberNode,
    RecordNode,
    RowCursors,
    Source,
    binary_parts,
    join,
)
from pyhudi.format.avro_wrappers import Wrapper
from pyhudi.format.byte_cursor import ByteCursor, encode_zigzag
from pyhudi.metadata_table.codecs.metadata_schema import (
    PAYLOAD_BY_TYPE,
    RECORD_SCHEMA,
    WRAPPER_BY_RECORD,
    MetadataRecordType,
    Payload,
)

WRAPPED = pa.struct([pa.field("kind", pa.uint8(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
"""A bound of a column: its Wrapper, and the Avro bytes of the value (empty if the kind is NULL)."""

UNKNOWN_WRAPPER = 255
"""Kind of a wrapper that PyHudi does not know, from a later Hudi version."""


def decode_payload(values: pa.BinaryArray, schema: str, payload: Payload) -> tuple[pa.Int32Array, pa.Array]:
    """Decode the record types and one payload field; the payload is null for records in which it is null.

    Args:
        values: Binary, no nulls.
        schema: Avro schema text that the values were written with.
        payload: The payload field to decode.

    Returns:
        The types, and the payloads with the writer's names: a struct, or a map for FILES.

    Raises:
        CorruptData: Values violate the schema or have another payload.
        Unsupported: The payload has an unknown form in the schema.
    """
    types, payloads, indices = decode_distinct(values, schema, payload)
    return (types, payloads) if indices is None else (types.take(indices), payloads.take(indices))


def decode_distinct(
    values: pa.BinaryArray, schema: str, payload: Payload
) -> tuple[pa.Int32Array, pa.Array, pa.Int32Array | None]:
    """As `decode_payload`, but only the distinct values, and the index of each value among them (None if all are distinct)."""
    layout = _layout(schema, payload)
    dictionary = values.dictionary_encode()
    distinct: pa.BinaryArray = dictionary.dictionary
    pieces = [layout.decode(piece) for piece in _chunks(distinct)] or [layout.decode(distinct)]
    types = pa.concat_arrays([piece[0] for piece in pieces])
    payloads = pa.concat_arrays([piece[1] for piece in pieces])
    return types, payloads, None if len(distinct) == len(values) else dictionary.indices


def encode_payload(
    kind: MetadataRecordType,
    payloads: pa.Array,
    schema: str = RECORD_SCHEMA,
    exceptions: Mapping[int, MetadataRecordType] | None = None,
) -> pa.BinaryArray:
    """Encode payloads as values of records.

    Args:
        kind: Type of the records.
        payloads: No nulls, of the type `payload_type` returns.
        schema: One of the schemas of `metadata_schema`.
        exceptions: Other types with the same payload, by index of the record.
    """
    payload = PAYLOAD_BY_TYPE[kind]
    layout = _layout(schema, payload)
    if payloads.type != layout.node.arrow or payloads.null_count:
        raise Internal(
            f"cannot encode a payload of type {payloads.type} with {payloads.null_count} nulls: "
            f"{layout.node.arrow} without nulls is required"
        )
    count = len(payloads)
    before, after = _envelope(kind)
    heads = _repeated(before, count)
    for index, other in (exceptions or {}).items():
        heads = pa.concat_arrays([heads.slice(0, index), pa.array([_envelope(other)[0]]), heads.slice(index + 1)])
    parts = [heads, *layout.node.inner.encode(payloads), _repeated(after, count)]
    values: pa.BinaryArray = join(parts, count)
    return values


def payload_type(payload: Payload, schema: str = RECORD_SCHEMA) -> pa.DataType:
    """Return the Arrow type of a payload in one of the schemas of `metadata_schema`."""
    return _layout(schema, payload).node.arrow


def payload_field(payloads: pa.StructArray, name: str, kind: pa.DataType, default: object = None) -> pa.Array:
    """Return one field of decoded payloads. `default` replaces nulls, and fills all rows if the writer's schema lacks the field.

    Raises:
        Unsupported: The stored type differs from `kind`, or the field is missing and has no default.
    """
    index = payloads.type.get_field_index(name)
    if index < 0:
        if default is None:
            raise Unsupported(f"a schema of the metadata table lacks the field {name}")
        return pa.repeat(pa.scalar(default, kind), len(payloads))
    column = payloads.field(index)
    if column.type != kind:
        raise Unsupported(f"the metadata table's field {name} has type {column.type}; {kind} is required")
    return column if default is None else column.fill_null(default)


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """A writer's schema compiled for one payload. steps: the fields in order, (field name, node)."""

    steps: tuple[tuple[str, Node], ...]
    payload: str
    node: NullableNode

    def decode(self, values: pa.BinaryArray) -> tuple[pa.Array, pa.Array]:
        bounds, octets = binary_parts(values)
        source = Source(octets.data, 0)
        rows = RowCursors(source, bounds[:-1] + PAD_BYTES, bounds[1:] + PAD_BYTES)
        types = payloads = pa.nulls(0)
        for name, node in self.steps:
            if name == "type":
                types = node.decode(rows)
            elif name == self.payload:
                payloads = node.decode(rows)
            else:
                node.skip(rows)
        rows.expect_ends()
        return types, payloads


class _AbsentNode(Node):
    """A payload that records of this partition must not have."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__(pa.null(), 1, 1)
        self._name = name

    def decode(self, rows: RowCursors) -> pa.Array:
        rows.fail(rows.source.octets[rows.at] != 0, f"a record of another partition type: it holds {self._name}")
        rows.skip(1)
        return pa.nulls(len(rows))

    def walk(self, cursor: ByteCursor) -> None:
        raise Internal("payloads are not items of an array")

    def encode(self, array: pa.Array) -> list[pa.Array]:
        raise Internal("an absent payload is not encoded")


class _WrappedNode(Node):
    """The union of null and wrapper records. branches: the kind and the value node of each; None if unknown."""

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[tuple[int, Node | None], ...]) -> None:
        super().__init__(WRAPPED, 1)
        self._branches = branches

    def decode(self, rows: RowCursors) -> pa.Array:
        numbers = rows.varint()
        rows.fail((numbers < 0) | (numbers >= len(self._branches)), "a union has no such branch")
        starts = rows.at.copy()
        for number in np.unique(numbers).tolist():
            node = self._branches[number][1]
            if node is None:
                raise Unsupported("a column bound of a kind that only later versions of Hudi write")
            index = np.flatnonzero(numbers == number)
            part = rows.subset(index)
            node.skip(part)
            rows.advance(index, part)
        values = RowCursors(rows.source, starts, rows.end).ranges(rows.at - starts)
        kinds = np.array([kind for kind, _ in self._branches], dtype=np.uint8)[numbers]
        return pa.StructArray.from_arrays([pa.array(kinds), values], fields=list(WRAPPED))

    def walk(self, cursor: ByteCursor) -> None:
        raise Internal("column bounds are not items of an array")

    def encode(self, array: pa.Array) -> list[pa.Array]:
        kinds, values = array.flatten()
        branches = pa.array([encode_zigzag(kind) for kind in Wrapper], pa.binary())
        return [branches.take(kinds), values]


class _NoneNode(Node):
    """null: no bytes."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(pa.null(), 0, 0)

    def decode(self, rows: RowCursors) -> pa.Array:
        return pa.nulls(len(rows))

    def walk(self, cursor: ByteCursor) -> None:
        pass

    def encode(self, array: pa.Array) -> list[pa.Array]:
        return []


@lru_cache(maxsize=64)
def _layout(schema: str, payload: Payload) -> _Layout:
    root = parse_schema(schema).root
    if not isinstance(root, avro.Record):
        raise CorruptData("the schema of the metadata table is not a record", found=root.kind)
    steps: list[tuple[str, Node]] = []
    payload_node: NullableNode | None = None
    for field in root.fields:
        if field.name == payload:
            node = _compile(field.node)
            if not isinstance(node, NullableNode) or node.live != 2:
                raise Unsupported(f"a schema of the metadata table has an unknown form of {payload}")
            payload_node = node
            steps.append((field.name, node))
        elif isinstance(field.node, avro.Union) and _live_branch(field.node) not in _PRIMITIVES:
            if field.node.branches[0] is not avro.NULL:
                raise Unsupported(f"a schema of the metadata table has an unknown form of {field.name}")
            steps.append((field.name, _AbsentNode(field.name)))
        else:
            steps.append((field.name, _compile(field.node)))
    if payload_node is None or "type" not in dict(steps):
        raise Unsupported(f"a schema of the metadata table lacks {payload}")
    return _Layout(tuple(steps), payload.value, payload_node)


_PRIMITIVES = (avro.BOOLEAN, avro.INT, avro.LONG, avro.FLOAT, avro.DOUBLE, avro.BYTES, avro.STRING)


def _live_branch(node: avro.Union) -> avro.Node | None:
    """The other branch of a union of null and one type."""
    others = [branch for branch in node.branches if branch is not avro.NULL]
    return others[0] if len(others) == 1 and len(node.branches) == 2 else None


def _compile(node: avro.Node) -> Node:
    if node is avro.BOOLEAN:
        return BooleanNode()
    if node is avro.INT:
        return NumberNode(pa.int32(), 32)
    if node is avro.LONG:
        return NumberNode(pa.int64(), 64)
    if node is avro.FLOAT:
        return FloatNode(pa.float32())
    if node is avro.DOUBLE:
        return FloatNode(pa.float64())
    if node is avro.STRING:
        return BinaryNode(pa.string())
    if node is avro.BYTES:
        return BinaryNode(pa.binary())
    if isinstance(node, avro.Record):
        children = tuple(_compile(field.node) for field in node.fields)
        fields = [
            pa.field(field.name, child.arrow, nullable=isinstance(child, NullableNode))
            for field, child in zip(node.fields, children, strict=True)
        ]
        return RecordNode(pa.struct(fields), children)
    if isinstance(node, avro.Map):
        item = _compile(node.values)
        arrow = pa.map_(pa.string(), pa.field("value", item.arrow, nullable=False))
        entry = pa.struct([arrow.key_field, arrow.item_field])
        return MapNode(arrow, RecordNode(entry, (BinaryNode(pa.string()), item)), item_nullable=False)
    if isinstance(node, avro.Union):
        live = _live_branch(node)
        if live is not None:
            return NullableNode(_compile(live), node.branches.index(live))
        return _WrappedNode(tuple(_wrapper(branch) for branch in node.branches))
    raise Unsupported(f"the metadata table's schema holds the Avro type {node.kind}")


def _wrapper(branch: avro.Node) -> tuple[int, Node | None]:
    """The kind of a branch of a union of wrappers, and the node of the value."""
    if branch is avro.NULL:
        return Wrapper.NULL, _NoneNode()
    if isinstance(branch, avro.Record) and len(branch.fields) == 1 and branch.fields[0].node in _PRIMITIVES:
        return WRAPPER_BY_RECORD.get(branch.name.rpartition(".")[2], UNKNOWN_WRAPPER), _compile(branch.fields[0].node)
    return UNKNOWN_WRAPPER, None


@lru_cache(maxsize=16)
def _envelope(kind: MetadataRecordType) -> tuple[bytes, bytes]:
    """The bytes before and after the payload of a record."""
    fields = list(Payload)
    index = fields.index(PAYLOAD_BY_TYPE[kind])
    head = bytes(6) + encode_zigzag(kind) + bytes(index) + b"\x02"
    return head, bytes(len(fields) - index - 1)


def _repeated(data: bytes, count: int) -> pa.BinaryArray:
    return pa.repeat(pa.scalar(data, pa.binary()), count)


def _chunks(values: pa.BinaryArray) -> Iterator[pa.BinaryArray]:
    """Split the values into chunks of bounded size."""
    bounds, _ = binary_parts(values)
    start = 0
    while start < len(values):
        end = int(np.searchsorted(bounds, bounds[start] + CHUNK_BYTES, side="right")) - 1
        end = min(max(end, start + 1), start + CHUNK_ROWS, len(values))
        yield values.slice(start, end - start)
        start = end
