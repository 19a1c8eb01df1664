"""Files of a table as trees of fields: dictionaries and lists of texts, numbers, bytes, booleans and nulls.

A file has one document or several: a Parquet file has rows, texts of the footer, and the numbers of the footer. A text of a field
may be a document itself (JSON), and so may bytes (Avro); `fields` goes into them.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.format.avro.container import decode_container, decode_datum, encode_container, encode_datum
from pyhudi.format.avro.nodes import Branch
from pyhudi.format.avro.schema import parse_schema
from pyhudi.format.byte_cursor import ByteCursor, encode_varint
from pyhudi.format.hfile import encode_hfile, open_hfile_bytes
from pyhudi.format.hfile.hfile_writer import HFileOptions
from pyhudi.format.hfile.trailer import TRAILER_BYTES
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock, encode_block, scan_blocks
from pyhudi.format.parquet.thrift_compact import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    ThriftField,
    decode_fields,
    encode_struct,
    list_head,
)
from pyhudi.format.parquet.thrift_compact import skip as skip_thrift
from pyhudi.format.properties import format_properties, parse_properties
from pyhudi.format.protobuf import decode_fields as decode_protobuf
from pyhudi.format.protobuf import encode_bytes, encode_number
from pyhudi.metadata_table.codecs.metadata_schema import RECORD_SCHEMA

Tree = Any
Step = str | int
JSON, AVRO = "(json)", "(avro)"
"""Steps into a text or into bytes that are a document themselves."""
ROWS = 3
"""So many rows, records or cells of a file are fields."""


@dataclass(frozen=True)
class Document:
    """One view of a file. kind: names the fields in reports. encode: returns the file with another tree."""

    kind: str
    tree: Tree
    encode: Callable[[Tree], bytes]


@dataclass(frozen=True)
class Field:
    """A field of a document, by the steps from its root. is_key: the last step is a key of a map, which is the field."""

    steps: tuple[Step, ...]
    value: Any
    is_key: bool = False

    @property
    def name(self) -> str:
        """Fields with equal names differ in their place in a list only."""
        return ".".join("*" if isinstance(step, int) else step for step in self.steps) + ("(key)" if self.is_key else "")


def fields(tree: Tree, steps: tuple[Step, ...] = ()) -> Iterator[Field]:
    """The fields of a tree, the lists and maps included."""
    if isinstance(tree, dict):
        yield Field(steps, tree)
        for key, value in tree.items():
            yield Field((*steps, key), key, is_key=True)
            yield from fields(value, (*steps, key))
    elif isinstance(tree, list | tuple):
        yield Field(steps, tree)
        for number, value in enumerate(tree):
            yield from fields(value, (*steps, number))
    elif isinstance(tree, Branch):
        yield from fields(tree.value, (*steps, tree.name))
    else:
        yield Field(steps, tree)
        if isinstance(tree, str) and tree[:1] in ("{", "["):
            try:
                yield from fields(json.loads(tree), (*steps, JSON))
            except ValueError:
                return
        elif isinstance(tree, bytes) and tree.startswith(b"Obj\x01"):
            yield from fields(decode_container(tree)[1][0], (*steps, AVRO))


def changed(tree: Tree, field: Field, value: Any) -> Tree:
    """The tree with another value of a field, or another key."""
    return _changed(tree, field.steps, value, field.is_key)


def _changed(tree: Tree, steps: tuple[Step, ...], value: Any, is_key: bool) -> Tree:
    if not steps:
        return value
    step, *rest = steps
    if step == JSON and isinstance(tree, str):
        return json.dumps(_changed(json.loads(tree), tuple(rest), value, is_key))
    if step == AVRO and isinstance(tree, bytes):
        schema, records = decode_container(tree)
        return encode_container(schema, _changed(records[0], tuple(rest), value, is_key))
    if is_key and not rest:
        return {(value if key == step else key): item for key, item in tree.items()}
    if isinstance(tree, Branch):
        return Branch(tree.name, _changed(tree.value, tuple(rest), value, is_key))
    if isinstance(tree, dict):
        return {key: _changed(item, tuple(rest), value, is_key) if key == step else item for key, item in tree.items()}
    return [_changed(item, tuple(rest), value, is_key) if number == step else item for number, item in enumerate(tree)]


def substituted(tree: Tree, old: str, new: str) -> Tree:
    """The tree with `new` in place of `old`, where that is a text, a key or a part of a path."""
    if isinstance(tree, dict):
        return {substituted(key, old, new): substituted(value, old, new) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [substituted(value, old, new) for value in tree]
    if isinstance(tree, Branch):
        return Branch(tree.name, substituted(tree.value, old, new))
    if isinstance(tree, str) and old in tree:
        return "/".join(new if part == old else part for part in tree.split("/"))
    return tree


def documents(path: str, data: bytes) -> list[Document]:
    """The views of one file; none for a file without content."""
    name = PurePosixPath(path).name
    origin = "metadata table: " if path.startswith(".hoodie/metadata/") else ""
    if not data:
        return []
    if name in ("hoodie.properties", ".hoodie_partition_metadata") or name.endswith(".properties"):
        return [Document(origin + name, parse_properties(data), format_properties)]
    if data.startswith(b"Obj\x01"):
        schema, records = decode_container(data)
        return [Document(origin + _action(name), records[0], lambda tree: encode_container(schema, tree))]
    if name.endswith(".parquet"):
        return _parquet(origin + ("history" if "history" in path else "parquet"), data)
    if ".log." in name:
        return [_log(origin + "log", data)]
    if name.endswith(".hfile"):
        return _hfile(origin, data)
    try:
        tree = json.loads(data)
    except ValueError:
        return [Document(origin + _action(name), data.decode("latin-1").split("\n"), _joined)]
    return [Document(origin + _action(name), tree, lambda tree: json.dumps(tree).encode())]


def _action(name: str) -> str:
    """The name of a file without its instant."""
    return name.partition(".")[2] if name[:1].isdigit() else name.rstrip("0123456789")


def _joined(lines: Tree) -> bytes:
    return "\n".join(str(line) for line in lines).encode(errors="surrogateescape")


def _parquet(kind: str, data: bytes) -> list[Document]:
    table = pq.read_table(io.BytesIO(data))
    metadata = {key.decode(): value.decode() for key, value in (pq.read_metadata(io.BytesIO(data)).metadata or {}).items()}
    metadata.pop("ARROW:schema", None)

    def encode(rows: Any, texts: dict[str, str]) -> bytes:
        out = io.BytesIO()
        changed_table = table
        if rows is not None:
            first = pa.Table.from_pylist(list(rows), schema=table.schema)
            changed_table = pa.concat_tables([first, table.slice(ROWS)])
        with pq.ParquetWriter(out, changed_table.schema.remove_metadata(), store_schema=False) as writer:
            writer.write_table(changed_table.replace_schema_metadata(None))
            writer.add_key_value_metadata(texts)
        return out.getvalue()

    size = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - size
    footer = _thrift_tree(data[start:-8])

    def encode_footer(tree: Tree) -> bytes:
        changed_footer = _thrift_bytes(tree)
        return data[:start] + changed_footer + len(changed_footer).to_bytes(4, "little") + b"PAR1"

    rows = table.slice(0, ROWS).to_pylist()
    return [
        Document(f"{kind} rows", rows, lambda tree: encode(tree, metadata)),
        Document(f"{kind} texts", metadata, lambda tree: encode(None, tree)),
        Document(f"{kind} footer", footer, encode_footer),
    ]


def _thrift_tree(data: bytes) -> Tree:
    """A struct as {"<field> <type>": value}; lists of structs, numbers and nested structs are trees, the rest is bytes."""
    tree: dict[str, Tree] = {}
    for item in decode_fields(data):
        tree[f"{item.number} {item.kind}"] = _thrift_value(item.kind, item.value)
    return tree


def _thrift_value(kind: int, value: bytes) -> Tree:
    if kind in (I16, I32, I64):
        return ByteCursor(value).zigzag()
    if kind == STRUCT:
        return _thrift_tree(value)
    if kind == BINARY:
        cursor = ByteCursor(value)
        return bytes(cursor.read(cursor.varint())).decode("latin-1")
    if kind == LIST:
        cursor = ByteCursor(value)
        count, item_kind = list_head(cursor)
        items = []
        for _ in range(count):
            start = cursor.offset
            skip_thrift(cursor, item_kind, 0, in_list=True)
            items.append(_thrift_value(item_kind, value[start : cursor.offset]))
        return {"item type": item_kind, "count": count, "items": items}
    return value


def _thrift_bytes(tree: Tree) -> bytes:
    encoded = []
    for key, value in tree.items():
        number, kind = (int(part) for part in key.split(" "))
        encoded.append(ThriftField(number, kind, _thrift_value_bytes(kind, value)))
    return encode_struct(encoded)


def _thrift_value_bytes(kind: int, value: Tree) -> bytes:
    if kind in (I16, I32, I64):
        return encode_varint((value << 1 ^ value >> 63) & (1 << 64) - 1)
    if kind == STRUCT:
        return _thrift_bytes(value)
    if kind == BINARY:
        text = value.encode("utf-8" if max(value, default="") > "\xff" else "latin-1")
        return encode_varint(len(text)) + bytes(text)
    if kind == LIST:
        head = bytes([0xF0 | value["item type"]]) + encode_varint(value["count"] & (1 << 64) - 1)
        return head + b"".join(_thrift_value_bytes(value["item type"], item) for item in value["items"])
    return bytes(value)


def _log(kind: str, data: bytes) -> Document:
    """The blocks, with their headers, and the records of data blocks; the checks that PyHudi adds are dropped."""
    blocks = [block for block in scan_blocks(lambda at, size: data[at : at + size], len(data)) if isinstance(block, LogBlock)]
    tree = []
    for block in blocks:
        content = data[block.content_offset : block.content_offset + block.content_size_bytes]
        headers = {key.name: text for key, text in block.headers}
        tree.append(
            {
                "type": block.kind.value,
                "headers": headers,
                "content": _block_tree(block, content),
                "frame": dict.fromkeys(_LENGTHS, 0),
            }
        )

    def encode(changed_tree: Tree) -> bytes:
        out = []
        for block, item in zip(blocks, changed_tree, strict=False):
            headers = {HeaderKey[key]: text for key, text in item["headers"].items()}
            kind = BlockType(item["type"])
            out.append(_with_lengths(item["frame"], encode_block(kind, headers, _block_bytes(block, item["content"]))))
        return b"".join(out)

    return Document(kind, tree, encode)


_LENGTHS = {"size": (6, ">q"), "version": (14, ">i"), "header count": (22, ">i"), "total size": (-8, ">q")}
"""Numbers of the frame of a block: place and form."""


def _with_lengths(added: dict[str, int], block: bytes) -> bytes:
    """A block with something added to the numbers of its frame."""
    data = bytearray(block)
    for name, (place, form) in _LENGTHS.items():
        at, bits = place % len(data), 8 * struct.calcsize(form)
        number = (struct.unpack_from(form, data, at)[0] + added[name]) % (1 << bits)
        struct.pack_into(form, data, at, number - (1 << bits) if number >= 1 << bits - 1 else number)
    return bytes(data)


def _block_tree(block: LogBlock, content: bytes) -> Tree:
    if block.kind is BlockType.AVRO and block.schema:
        schema = parse_schema(block.schema)
        version, count = struct.unpack_from(">ii", content)
        records: list[Tree] = []
        at = 8
        for _ in range(count):
            (size,) = struct.unpack_from(">i", content, at)
            record = content[at + 4 : at + 4 + size]
            records.append({"size": size, "record": decode_datum(schema, record) if len(records) < ROWS else record})
            at += 4 + size
        return {"version": version, "count": count, "records": records}
    if block.kind is BlockType.DELETE:
        version, size = struct.unpack_from(">ii", content)
        return {"version": version, "size": size, "deletes": content[8:].decode("latin-1")}
    if block.kind is BlockType.HFILE:
        return _cells(content, block.schema or RECORD_SCHEMA)
    return content


def _block_bytes(block: LogBlock, tree: Tree) -> bytes:
    if block.kind is BlockType.AVRO and block.schema:
        schema = parse_schema(block.schema)
        out: bytes = struct.pack(">ii", tree["version"], tree["count"])
        for item in tree["records"]:
            record = item["record"] if isinstance(item["record"], bytes) else encode_datum(schema, item["record"])
            out += struct.pack(">i", item["size"] if item["size"] < 0 or item["size"] > 1 << 16 else len(record)) + record
        return out
    if block.kind is BlockType.DELETE:
        return bytes(struct.pack(">ii", tree["version"], tree["size"]) + tree["deletes"].encode("latin-1", "replace"))
    if block.kind is BlockType.HFILE:
        return _cell_bytes(tree, block.schema or RECORD_SCHEMA)
    return bytes(tree)


def _cells(data: bytes, schema: str | None) -> Tree:
    """Keys and values. schema: that of the values, which are documents of their own without it."""
    parsed = None if schema is None else parse_schema(schema)
    cells: list[Tree] = []
    for batch in open_hfile_bytes(data).scan():
        for row in batch.to_pylist():
            value = row["value"]
            if parsed is not None and value and len(cells) < ROWS:
                value = decode_datum(parsed, value)
            cells.append({"key": row["key"].decode("latin-1"), "value": value})
    return cells


def _cell_bytes(tree: Tree, schema: str | None) -> bytes:
    parsed = None if schema is None else parse_schema(schema)
    cells: dict[bytes, bytes] = {}
    for cell in tree:
        value = cell["value"]
        if parsed is not None and not isinstance(value, bytes):
            value = encode_datum(parsed, value)
        cells[cell["key"].encode("latin-1", "replace")] = value
    keys = sorted(cells)
    return encode_hfile([(pa.array(keys, pa.binary()), pa.array([cells[key] for key in keys], pa.binary()))], HFileOptions())


def _hfile(origin: str, data: bytes) -> list[Document]:
    """The cells, and the numbers of the trailer."""
    view = data[-TRAILER_BYTES:]
    cursor = ByteCursor(view, 8)
    message = bytes(cursor.read(cursor.varint()))
    trailer = [
        (number, value if isinstance(value, int) else bytes(value)) for number, value in decode_protobuf(ByteCursor(message))
    ]
    numbers = {f"{number} {place}": value for place, (number, value) in enumerate(trailer)}

    def encode_trailer(tree: Tree) -> bytes:
        parts = []
        for key, value in tree.items():
            number = int(key.split(" ")[0])
            if isinstance(value, str):
                value = value.encode()
            parts.append(encode_number(number, value) if isinstance(value, int) else encode_bytes(number, value))
        body = b"".join(parts)
        start = view[:8] + encode_varint(len(body)) + body
        return data[:-TRAILER_BYTES] + start + bytes(TRAILER_BYTES - len(start) - 4) + view[-4:]

    schema = RECORD_SCHEMA if origin else None
    return [
        Document(f"{origin}hfile trailer", numbers, encode_trailer),
        Document(f"{origin}hfile", _cells(data, schema), lambda tree: _cell_bytes(tree, schema)),
    ]
