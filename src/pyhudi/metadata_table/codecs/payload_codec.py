"""Values of the metadata table <-> one payload column.  Source: docs/formats/metadata-table.md, HoodieMetadataRecord.

Decoding walks the schema that wrote the values, all records together, one field after the other.  The fields before and after the
payload are passed over; another payload than the one asked for must be null.  The result has the writer's own field names and
types: `conform` brings them to ours.  Values that repeat, as those of a record index mostly do, are decoded once.

A union of wrappers (the bounds of a column) becomes WRAPPED: which wrapper, and the Avro bytes of its one field, to be read by
`wrapped.py` when the column's type is known.

Encoding leaves the meta fields null and the key empty, as real log blocks have it: readers take the key from the HFile.

    5 x 00 | 00 key | type | one byte for each payload field: 02 and the payload for the one that is there, 00 for the others
"""

from __future__ import annotations

from collections.abc import Iterator
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
"""A bound of a column: its Wrapper, and the Avro bytes of the value (none when the kind is NULL)."""

UNKNOWN_WRAPPER = 255
"""Stands for a wrapper that a later version of Hudi added."""


def decode_payload(values: pa.BinaryArray, schema: str, payload: Payload) -> tuple[pa.Int32Array, pa.Array]:
    """The types of the records, and what one payload field holds: null for records in which it is null.

    values: binary, no nulls; schema: the Avro schema text that wrote them.  The payload is a struct, or for FILES a map, with the
    writer's names.  Raises CorruptData for values that break the schema or have another payload, Unsupported for a schema in
    which the payload has a form that we do not know.
    """
    types, payloads, places = decode_distinct(values, schema, payload)
    return (types, payloads) if places is None else (types.take(places), payloads.take(places))


def decode_distinct(
    values: pa.BinaryArray, schema: str, payload: Payload
) -> tuple[pa.Int32Array, pa.Array, pa.Int32Array | None]:
    """As `decode_payload`, each distinct value once; and for each value its place among them, None when all are distinct."""
    layout = _layout(schema, payload)
    once = values.dictionary_encode()
    distinct: pa.BinaryArray = once.dictionary
    pieces = [layout.decode(piece) for piece in _pieces(distinct)] or [layout.decode(distinct)]
    types = pa.concat_arrays([piece[0] for piece in pieces])
    payloads = pa.concat_arrays([piece[1] for piece in pieces])
    return types, payloads, None if len(distinct) == len(values) else once.indices


def encode_payload(kind: MetadataRecordType, payloads: pa.Array, schema: str = RECORD_SCHEMA) -> pa.BinaryArray:
    """The values of records of one type.  payloads: without nulls, in the form that `payload_type` names; schema: one of ours."""
    payload = PAYLOAD_BY_TYPE[kind]
    layout = _layout(schema, payload)
    if payloads.type != layout.node.arrow or payloads.null_count:
        raise Internal(f"payload of type {payloads.type}, {payloads.null_count} null, where {layout.node.arrow} is wanted")
    count = len(payloads)
    before, after = _envelope(kind)
    parts = [_repeated(before, count), *layout.node.inner.encode(payloads), _repeated(after, count)]
    values: pa.BinaryArray = join(parts, count)
    return values


def payload_type(payload: Payload, schema: str = RECORD_SCHEMA) -> pa.DataType:
    """The Arrow type of a payload in a schema of ours."""
    return _layout(schema, payload).node.arrow


def payload_field(payloads: pa.StructArray, name: str, kind: pa.DataType, default: object = None) -> pa.Array:
    """One field of decoded payloads; `default` in all rows when the writer's schema has no such field, and in place of nulls.

    Raises Unsupported when the writer stored it as another type than `kind`, or when it is not there and has no default.
    """
    index = payloads.type.get_field_index(name)
    if index < 0:
        if default is None:
            raise Unsupported(f"a schema of the metadata table without the field {name}")
        return pa.repeat(pa.scalar(default, kind), len(payloads))
    column = payloads.field(index)
    if column.type != kind:
        raise Unsupported(f"the metadata table's field {name} is {column.type}, not {kind}")
    return column if default is None else column.fill_null(default)


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """A writer's schema as seen for one payload.  steps: the fields in order, (field name, node)."""

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
    """A payload that the records of this partition must not have."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__(pa.null(), 1, 1)
        self._name = name

    def decode(self, rows: RowCursors) -> pa.Array:
        rows.fail(rows.source.octets[rows.at] != 0, f"a record of another kind: it holds {self._name}")
        rows.skip(1)
        return pa.nulls(len(rows))

    def walk(self, cursor: ByteCursor) -> None:
        raise Internal("payloads are not items of an array")

    def encode(self, array: pa.Array) -> list[pa.Array]:
        raise Internal("an absent payload is not encoded")


class _WrappedNode(Node):
    """The union of null and wrapper records.  branches: for each the kind and the node of its value, None if not known."""

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
    wanted: NullableNode | None = None
    for field in root.fields:
        if field.name == payload:
            node = _compile(field.node)
            if not isinstance(node, NullableNode) or node.live != 2:
                raise Unsupported(f"a schema of the metadata table in which {payload} has another form")
            wanted = node
            steps.append((field.name, node))
        elif isinstance(field.node, avro.Union) and _live_branch(field.node) not in _PRIMITIVES:
            if field.node.branches[0] is not avro.NULL:
                raise Unsupported(f"a schema of the metadata table in which {field.name} has another form")
            steps.append((field.name, _AbsentNode(field.name)))
        else:
            steps.append((field.name, _compile(field.node)))
    if wanted is None or "type" not in dict(steps):
        raise Unsupported(f"a schema of the metadata table without {payload}")
    return _Layout(tuple(steps), payload.value, wanted)


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
    """What stands before and after the payload of a record."""
    fields = list(Payload)
    place = fields.index(PAYLOAD_BY_TYPE[kind])
    head = bytes(6) + encode_zigzag(kind) + bytes(place) + b"\x02"
    return head, bytes(len(fields) - place - 1)


def _repeated(data: bytes, count: int) -> pa.BinaryArray:
    return pa.repeat(pa.scalar(data, pa.binary()), count)


def _pieces(values: pa.BinaryArray) -> Iterator[pa.BinaryArray]:
    """The values in pieces that are decoded fast."""
    bounds, _ = binary_parts(values)
    start = 0
    while start < len(values):
        end = int(np.searchsorted(bounds, bounds[start] + CHUNK_BYTES, side="right")) - 1
        end = min(max(end, start + 1), start + CHUNK_ROWS, len(values))
        yield values.slice(start, end - start)
        start = end
