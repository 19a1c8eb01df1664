"""Avro as Hudi uses it: schemas, single values, and container files that hold one record.

A schema is a tree of nodes.  It is parsed from JSON, or built with `record`, `optional`, `array_of` and `map_of` and then
rendered to the compact JSON that Avro for Java writes: every string carries `avro.java.string`, the namespace stands on the
root alone, a record is defined where it first occurs and named after that.

Each pair of schemas (the one that wrote, the one we want) is compiled once into nested functions `read(data, offset) ->
(value, offset)`, and each schema into `write(out, value)`; the compiled form is kept.  Resolution goes by field name: fields
we do not know are passed over, fields that are missing take their default or null, unions may come in another order, numbers
may be narrower, names of records do not matter.

    container = "Obj" 1  header map  sync(16)  (count  size  records  sync(16))*
    header map: `avro.schema`, and `avro.codec` when it is not null
    sealed:      sync = "pyhudi", CRC-32 of all but the markers (big-endian), six bytes of the writer's

A sync marker may be any bytes, so a sealed container is read by everybody, and by us only when it is what was written.

Python values: null None, boolean bool, int and long int, float and double float, string and enum str, bytes and fixed bytes,
array tuple, map dict, record dict, or the class that its node is bound to.  A union with several records or several
other types of one Python type gives and takes `Branch`.

What it does not do: logical types (the plain value comes back), aliases, recursive schemas, other codecs than deflate, and
columns of rows: that is the work of the log blocks.

Source: storage format, "Timeline files"; Avro specification 1.11.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.coding import Cursor, encode_varint, encode_zigzag
from pyhudi.format.json_document import parse_json

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
DEFAULT_SYNC: Final = bytes(SYNC_BYTES)
_SEAL: Final = b"pyhudi"
MAX_INFLATED_BYTES: Final = 1 << 30
_MOST_INFLATED_PER_BYTE: Final = 200
_ALWAYS_INFLATED_BYTES: Final = 16 << 20

Made = TypeVar("Made")

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
Write: TypeAlias = Callable[[bytearray, Any], None]


class _NoDefault:
    """Marks a field that has no default."""


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """null, boolean, int, long, float, double, bytes or string."""

    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """Bytes of one size."""

    name: str
    size_bytes: int
    kind: str = "fixed"


@dataclass(frozen=True, slots=True, eq=False)
class Enumeration:
    """One of the symbols, written as its number."""

    name: str
    symbols: tuple[str, ...]
    kind: str = "enum"


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """default: what the node itself, not its field, names as default: it means nothing, but Hudi's schemas have some."""

    items: Node
    default: Any = NO_DEFAULT
    kind: str = "array"


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """default: as an array's."""

    values: Node
    default: Any = NO_DEFAULT
    kind: str = "map"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """null: what a null branch is decoded to, None unless a document says otherwise; `dict` for a new empty map each time."""

    branches: tuple[Node, ...]
    null: Any = None
    kind: str = "union"


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a record.  default: as JSON has it."""

    name: str
    node: Node
    default: Any = NO_DEFAULT


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """made_of: the dataclass of its values, or None for dicts; attributes: its attribute for each field, in field order."""

    name: str
    fields: tuple[Field, ...]
    made_of: type | None = None
    attributes: tuple[str, ...] = ()
    kind: str = "record"


Node: TypeAlias = Primitive | Fixed | Enumeration | Array | Map | Union | Record

NULL: Final = Primitive("null")
BOOLEAN: Final = Primitive("boolean")
INT: Final = Primitive("int")
LONG: Final = Primitive("long")
FLOAT: Final = Primitive("float")
DOUBLE: Final = Primitive("double")
BYTES: Final = Primitive("bytes")
STRING: Final = Primitive("string")
_PRIMITIVES: Final = {node.kind: node for node in (NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING)}


@dataclass(frozen=True, slots=True)
class Branch:
    """A value of a union, with the name of its branch: a record's simple name, or the type's."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A schema: its tree and its JSON text.  Two schemas are equal only when they are one object."""

    root: Node
    text: str
    _write: list[Write] = field(default_factory=list, repr=False)

    @property
    def writer(self) -> Write:
        """The compiled form that writes values of this schema."""
        if not self._write:
            self._write.append(_writer(self.root, {}))
        return self._write[0]


def optional(node: Node, *, null: Any = None) -> Field:
    """A field without its name yet: `["null", node]`, default null.

    null: what null and an absent field are decoded to; `dict` for a new empty map each time.
    """
    return Field("", Union((NULL, node), null), None)


def required(node: Node, default: Any = NO_DEFAULT) -> Field:
    """A field without its name yet that is never null."""
    return Field("", node, default)


def nullable(node: Node) -> Field:
    """A field without its name yet: `["null", node]`, without a default."""
    return Field("", Union((NULL, node)))


def array_of(items: Node, default: Any = NO_DEFAULT) -> Array:
    """An array.  default: what the node itself names as default."""
    return Array(items, default)


def map_of(values: Node, default: Any = NO_DEFAULT) -> Map:
    """A map.  default: what the node itself names as default."""
    return Map(values, default)


def version_field(default: int) -> Field:
    """`["int", "null"]` with a default: how Hudi's documents carry their version."""
    return Field("", Union((INT, NULL)), default)


def record(name: str, made_of: type, **by_name: Field) -> Record:
    """A record of the dataclass `made_of`; its attributes are the field names in snake case, in any order."""
    named = tuple(Field(key, item.node, item.default) for key, item in by_name.items())
    return Record(name, named, made_of, tuple(_snake_case(key) for key in by_name))


def schema_of(root: Record, namespace: str = "org.apache.hudi.avro.model") -> Schema:
    """The schema of a record that was built here, with the JSON text that Avro for Java writes for it."""
    return Schema(root, json.dumps(_render(root, set(), namespace), separators=(",", ":"), ensure_ascii=False))


@lru_cache(maxsize=256)
def parse_schema(text: str) -> Schema:
    """The schema of a JSON text.  Raises CorruptData for a text that is none, Unsupported for a recursive one and for one of
    more than 100,000 types, each counted wherever it stands: values of such a schema can be larger than any memory.
    """
    root = _parse(parse_json(text, "an Avro schema is"), "", {}, 0)
    if _type_count(root, {}) > _MOST_TYPES:
        raise Unsupported(f"An Avro schema of more than {_MOST_TYPES} types, each counted wherever it stands, is not read.")
    return Schema(root, text)


def encode_datum(schema: Schema, value: Any) -> bytes:
    """One value without any header.  Raises InvalidRequest when the value does not fit the schema."""
    out = bytearray()
    try:
        schema.writer(out, value)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError, struct.error) as error:
        raise InvalidRequest(f"A value does not fit its Avro schema: {error}") from error
    return bytes(out)


def decode_datum(schema: Schema, data: bytes | bytearray | memoryview, target: Schema | None = None) -> Any:
    """The one value that fills `data`, written with `schema`, in the shape of `target` (None: of `schema`).

    Raises CorruptData for bytes that are no such value, or for schemas that do not fit together.
    """
    read = _resolved(schema, target)
    whole = bytes(data)
    value, end = _run(read, whole, 0)
    if end != len(whole):
        raise CorruptData("bytes follow an Avro value", offset=end, expected=end, found=len(whole))
    return value


def encode_container(schema: Schema, value: Any, sync: bytes = DEFAULT_SYNC) -> bytes:
    """A container file of one record, codec null, with `avro.schema` alone in its header.

    sync: 16 bytes, random in files that are meant to be split.  Raises InvalidRequest as `encode_datum`.
    """
    if len(sync) != SYNC_BYTES:
        raise InvalidRequest(f"A sync marker has {SYNC_BYTES} bytes, not {len(sync)}.")
    datum = encode_datum(schema, value)
    text = schema.text.encode()
    header = b"\x02" + _encode_bytes(b"avro.schema") + _encode_bytes(text) + b"\x00"
    return b"".join((MAGIC, header, sync, b"\x02", encode_zigzag(len(datum)), datum, sync))


def seal_container(data: bytes) -> bytes:
    """A container of one block with the sync marker that holds its checksum; other bytes as they are."""
    if not data.startswith(MAGIC):
        return data
    cursor = Cursor(data)
    cursor.expect(MAGIC, "the magic of an Avro container")
    _read_header(cursor)
    start = cursor.offset
    sync = bytes(cursor.take(SYNC_BYTES))
    if sync.startswith(_SEAL) or data.count(sync) != 2 or not data.endswith(sync):
        return data
    head, body = data[:start], data[start + SYNC_BYTES : -SYNC_BYTES]
    sealed = _SEAL + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "big") + sync[: SYNC_BYTES - len(_SEAL) - 4]
    return b"".join((head, sealed, body, sealed))


def _check_seal(data: bytes | bytearray | memoryview, start: int, sync: bytes) -> None:
    """Raises CorruptData for a sealed container that is not what was written.  start: where the first marker stands."""
    if not sync.startswith(_SEAL):
        return
    view = memoryview(data)
    expected = int.from_bytes(sync[len(_SEAL) :][:4], "big")
    found = zlib.crc32(view[start + SYNC_BYTES : -SYNC_BYTES], zlib.crc32(view[:start]))
    if found != expected:
        raise CorruptData("checksum of an Avro container", offset=start, expected=expected, found=found)


def decode_container(data: bytes | bytearray | memoryview, target: Schema | None = None) -> tuple[Schema, tuple[Any, ...]]:
    """The schema that stands in a container file, and its records in the shape of `target` (None: of that schema).

    Raises CorruptData for broken bytes or a schema that does not fit `target`, Unsupported for a codec other than deflate.
    """
    cursor = Cursor(data)
    cursor.expect(MAGIC, "the magic of an Avro container")
    header = _read_header(cursor)
    start = cursor.offset
    sync = bytes(cursor.take(SYNC_BYTES))
    _check_seal(data, start, sync)
    if b"avro.schema" not in header:
        raise cursor.corrupt("an Avro container has no schema")
    codec = header.get(b"avro.codec", b"null").decode("latin-1")
    if codec not in ("null", "deflate"):
        raise Unsupported(f"Avro containers with the codec {codec[:40]!r} are not read.")
    try:
        schema = parse_schema(header[b"avro.schema"].decode("utf-8"))
    except UnicodeDecodeError as error:
        raise cursor.corrupt("the schema of an Avro container is not UTF-8") from error
    read = _resolved(schema, target)
    records: list[Any] = []
    while cursor.remaining:
        count, size_bytes = cursor.zigzag(), cursor.zigzag()
        start = cursor.offset
        block = bytes(cursor.take(size_bytes))
        if codec == "deflate":
            block = _inflate(block, start)
        if not 0 <= count <= len(block):
            raise cursor.corrupt("an Avro block has more records than bytes", expected=len(block), found=count)
        at = 0
        base = start if codec == "null" else None
        for _ in range(count):
            value, at = _run(read, block, at, base)
            records.append(value)
        if at != len(block):
            raise CorruptData("bytes follow the records of an Avro block", offset=start, expected=at, found=len(block))
        cursor.expect(sync, "the sync marker of an Avro block")
    return schema, tuple(records)


def decode_document(target: Schema, data: bytes | bytearray | memoryview, made_of: type[Made]) -> Made:
    """The one record of a container file, in the shape of `target`, whose root is bound to `made_of`.

    Raises as `decode_container`.
    """
    records = decode_container(data, target)[1]
    if len(records) != 1:
        raise CorruptData("a document holds one record", expected=1, found=len(records))
    return made(records[0], made_of)


def made(value: Any, made_of: type[Made]) -> Made:
    """`value`, which must be a `made_of`: it is, unless a schema is bound to another class.  Raises CorruptData."""
    if not isinstance(value, made_of):
        raise CorruptData("an Avro document is of another kind", expected=made_of.__name__, found=type(value).__name__)
    return value


def from_json(target: Schema, value: Any) -> Any:
    """A value that was parsed from JSON (numbers, texts, lists, dicts), in the shape of `target`, fields by name.

    Unions stand without their branch's name, as Jackson writes them.  Raises CorruptData where it does not fit.
    """
    try:
        return _from_json(target.root, value)
    except RecursionError as error:
        raise CorruptData("a JSON document is nested too deeply") from error


# Schemas: JSON text to nodes and back.

_MAX_DEPTH: Final = 64
_MOST_TYPES: Final = 100_000


def _type_count(node: Node, known: dict[int, int]) -> int:
    if id(node) not in known:
        below: tuple[Node, ...] = ()
        if isinstance(node, Union):
            below = node.branches
        elif isinstance(node, Array):
            below = (node.items,)
        elif isinstance(node, Map):
            below = (node.values,)
        elif isinstance(node, Record):
            below = tuple(item.node for item in node.fields)
        known[id(node)] = 1 + sum(_type_count(part, known) for part in below)
    return known[id(node)]


def _parse(definition: Any, namespace: str, names: dict[str, Node | None], depth: int) -> Node:
    if depth > _MAX_DEPTH:
        raise CorruptData("an Avro schema is nested too deeply", expected=_MAX_DEPTH)
    if isinstance(definition, str):
        return _parse_name(definition, namespace, names)
    if isinstance(definition, list):
        branches = tuple(_parse(item, namespace, names, depth + 1) for item in definition)
        if not branches or any(isinstance(branch, Union) for branch in branches):
            raise CorruptData("a union of an Avro schema is empty or holds a union")
        return Union(branches)
    if not isinstance(definition, dict):
        raise CorruptData("an Avro schema has a type that is none", found=str(definition)[:100])
    kind = definition.get("type")
    if kind == "array":
        items = _parse(definition.get("items"), namespace, names, depth + 1)
        if not _has_width(items, {}):
            # A count of such items costs no bytes, so a few damaged bytes could ask for any number of them.
            raise Unsupported("Avro arrays of items that take no bytes are not read.")
        return Array(items)
    if kind == "map":
        return Map(_parse(definition.get("values"), namespace, names, depth + 1))
    if kind in ("record", "error", "enum", "fixed"):
        return _parse_named(definition, kind, namespace, names, depth)
    return _parse(kind, namespace, names, depth + 1)


def _parse_name(name: str, namespace: str, names: dict[str, Node | None]) -> Node:
    primitive = _PRIMITIVES.get(name)
    if primitive is not None:
        return primitive
    for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
        if full in names:
            found = names[full]
            if found is None:
                raise Unsupported(f"The Avro record {name[:100]!r} contains itself; recursive schemas are not read.")
            return found
    raise CorruptData("an Avro schema names an unknown type", found=name[:100])


def _parse_named(definition: dict[str, Any], kind: str, namespace: str, names: dict[str, Node | None], depth: int) -> Node:
    name = definition.get("name")
    if not isinstance(name, str) or not name:
        raise CorruptData("a named type of an Avro schema has no name")
    own = definition.get("namespace", namespace)
    if "." in name:
        own, _, name = name.rpartition(".")
    if not isinstance(own, str):
        raise CorruptData("a namespace of an Avro schema is no text")
    full = f"{own}.{name}" if own else name
    if full in names:
        raise CorruptData("an Avro schema defines a name twice", found=full[:100])
    node: Node
    if kind == "fixed":
        size_bytes = definition.get("size")
        if not isinstance(size_bytes, int) or size_bytes < 0:
            raise CorruptData("a fixed type of an Avro schema has no size", found=str(size_bytes)[:100])
        node = Fixed(name, size_bytes)
    elif kind == "enum":
        symbols = definition.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise CorruptData("an enum of an Avro schema has no symbols")
        node = Enumeration(name, tuple(symbols))
    else:
        names[full] = None
        node = Record(name, _parse_fields(definition.get("fields"), own, names, depth))
    names[full] = node
    return node


def _parse_fields(definitions: Any, namespace: str, names: dict[str, Node | None], depth: int) -> tuple[Field, ...]:
    if not isinstance(definitions, list):
        raise CorruptData("a record of an Avro schema has no fields")
    parsed = []
    for definition in definitions:
        if not isinstance(definition, dict) or not isinstance(definition.get("name"), str):
            raise CorruptData("a field of an Avro schema has no name")
        node = _parse(definition.get("type"), namespace, names, depth + 1)
        parsed.append(Field(definition["name"], node, definition.get("default", NO_DEFAULT)))
    if len({item.name for item in parsed}) != len(parsed):
        raise CorruptData("a record of an Avro schema has two fields of one name")
    return tuple(parsed)


def _has_width(node: Node, known: dict[int, bool]) -> bool:
    if isinstance(node, Primitive):
        return node is not NULL
    if isinstance(node, Fixed):
        return node.size_bytes > 0
    if not isinstance(node, Record):
        return True
    if id(node) not in known:
        known[id(node)] = any(_has_width(item.node, known) for item in node.fields)
    return known[id(node)]


def _render(node: Node, seen: set[str], namespace: str = "") -> Any:
    rendered: dict[str, Any]
    if isinstance(node, Primitive):
        return {"type": "string", "avro.java.string": "String"} if node is STRING else node.kind
    if isinstance(node, Union):
        return [_render(branch, seen) for branch in node.branches]
    if isinstance(node, Array):
        rendered = {"type": "array", "items": _render(node.items, seen)}
        return rendered if node.default is NO_DEFAULT else rendered | {"default": node.default}
    if isinstance(node, Map):
        rendered = {"type": "map", "values": _render(node.values, seen), "avro.java.string": "String"}
        return rendered if node.default is NO_DEFAULT else rendered | {"default": node.default}
    if node.name in seen:
        return node.name
    seen.add(node.name)
    if isinstance(node, Fixed):
        return {"type": "fixed", "name": node.name, "size": node.size_bytes}
    if isinstance(node, Enumeration):
        return {"type": "enum", "name": node.name, "symbols": list(node.symbols)}
    head = {"type": "record", "name": node.name} | ({"namespace": namespace} if namespace else {})
    return head | {"fields": [_render_field(item, seen) for item in node.fields]}


def _render_field(item: Field, seen: set[str]) -> dict[str, Any]:
    rendered = {"name": item.name, "type": _render(item.node, seen)}
    return rendered if item.default is NO_DEFAULT else rendered | {"default": item.default}


def _snake_case(name: str) -> str:
    out = "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
    return out.lstrip("_")


# Writing.

_SMALL_LONGS: Final = tuple(encode_zigzag(value) for value in range(2048))
_SMALL_LONG_COUNT: Final = len(_SMALL_LONGS)


def _encode_long(value: int) -> bytes:
    if 0 <= value < _SMALL_LONG_COUNT:
        return _SMALL_LONGS[value]
    return encode_varint((value << 1) ^ (value >> 63))


def _encode_bytes(data: bytes) -> bytes:
    return _encode_long(len(data)) + data


def _writer(node: Node, known: dict[int, Write]) -> Write:
    write = known.get(id(node))
    if write is None:
        write = known[id(node)] = _new_writer(node, known)
    return write


def _new_writer(node: Node, known: dict[int, Write]) -> Write:
    if isinstance(node, Union):
        return _union_writer(node, known)
    if isinstance(node, Array):
        return _array_writer(_writer(node.items, known))
    if isinstance(node, Map):
        return _map_writer(_writer(node.values, known))
    if isinstance(node, Record):
        return _record_writer(node, known)
    if isinstance(node, Fixed):
        return _fixed_writer(node)
    if isinstance(node, Enumeration):
        return _enum_writer(node)
    return _PRIMITIVE_WRITERS[node.kind]


def _write_null(out: bytearray, value: Any) -> None:
    if value is not None:
        raise ValueError(f"null was expected, not {value!r:.100}")


def _write_boolean(out: bytearray, value: Any) -> None:
    if value is True:
        out.append(1)
    elif value is False:
        out.append(0)
    else:
        raise ValueError(f"a boolean was expected, not {value!r:.100}")


def _write_int(out: bytearray, value: Any) -> None:
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{value} does not fit an int")
    out += _encode_long(value)


def _write_long(out: bytearray, value: Any) -> None:
    out += _SMALL_LONGS[value] if 0 <= value < _SMALL_LONG_COUNT else _encode_long(value)


def _write_float(out: bytearray, value: Any) -> None:
    out += struct.pack("<f", value)


def _write_double(out: bytearray, value: Any) -> None:
    out += struct.pack("<d", value)


def _write_bytes(out: bytearray, value: Any) -> None:
    out += _encode_bytes(bytes(memoryview(value)))


def _write_string(out: bytearray, value: Any) -> None:
    data = value.encode()
    size = len(data)
    out += _SMALL_LONGS[size] if size < _SMALL_LONG_COUNT else _encode_long(size)
    out += data


_PRIMITIVE_WRITERS: Final[dict[str, Write]] = {
    "null": _write_null,
    "boolean": _write_boolean,
    "int": _write_int,
    "long": _write_long,
    "float": _write_float,
    "double": _write_double,
    "bytes": _write_bytes,
    "string": _write_string,
}


def _array_writer(item: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value:
            if isinstance(value, str):
                raise ValueError("an array was expected, not a text")
            out += _encode_long(len(value))
            for one in value:
                item(out, one)
        out.append(0)

    return write


def _map_writer(item: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value:
            out += _encode_long(len(value))
            for key, one in value.items():
                _write_string(out, key)
                item(out, one)
        out.append(0)

    return write


def _fixed_writer(node: Fixed) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if len(value) != node.size_bytes:
            raise ValueError(f"{node.name} has {node.size_bytes} bytes, not {len(value)}")
        out += value

    return write


def _enum_writer(node: Enumeration) -> Write:
    numbers = {symbol: _encode_long(index) for index, symbol in enumerate(node.symbols)}

    def write(out: bytearray, value: Any) -> None:
        out += numbers[value]

    return write


def _record_writer(node: Record, known: dict[int, Write]) -> Write:
    writes = tuple(_writer(item.node, known) for item in node.fields)
    if node.made_of is not None:
        return _dataclass_writer(node.made_of, node.attributes, writes)
    items = tuple((item.name, item.default, write) for item, write in zip(node.fields, writes, strict=True))

    def write_dict(out: bytearray, value: Any) -> None:
        for name, default, write in items:
            one = value.get(name, default)
            if one is NO_DEFAULT:
                raise ValueError(f"the field {name} of {node.name} is missing")
            write(out, one)

    return write_dict


def _dataclass_writer(made_of: type, attributes: tuple[str, ...], writes: tuple[Write, ...]) -> Write:
    if len(attributes) == 1:
        only, write_only = attributes[0], writes[0]
        return lambda out, value: write_only(out, getattr(value, only))
    values_of = attrgetter(*attributes)

    def write(out: bytearray, value: Any) -> None:
        if type(value) is not made_of:
            raise ValueError(f"a {made_of.__name__} was expected, not {value!r:.100}")
        for write_one, one in zip(writes, values_of(value), strict=True):
            write_one(out, one)

    return write


def _union_writer(node: Union, known: dict[int, Write]) -> Write:
    writes = tuple(_writer(branch, known) for branch in node.branches)
    heads = tuple(_encode_long(index) for index in range(len(writes)))
    if len(writes) == 2 and NULL in node.branches:
        null_head = heads[node.branches.index(NULL)]
        at = 1 - node.branches.index(NULL)
        head, write_one = heads[at], writes[at]

        def write_optional(out: bytearray, value: Any) -> None:
            if value is None:
                out += null_head
            else:
                out += head
                write_one(out, value)

        return write_optional

    names = {_branch_name(branch): index for index, branch in enumerate(node.branches)}

    def write(out: bytearray, value: Any) -> None:
        index = names[value.name] if isinstance(value, Branch) else _branch_of(node, value)
        out += heads[index]
        writes[index](out, value.value if isinstance(value, Branch) else value)

    return write


def _branch_name(node: Node) -> str:
    return node.name if isinstance(node, Record | Fixed | Enumeration) else node.kind


def _python_kind(node: Node) -> str:
    """Which Python type a node's values have, so that a union knows whether the type tells its branches apart."""
    if isinstance(node, Record):
        return node.made_of.__name__ if node.made_of else "dict"
    return {"int": "int", "long": "int", "float": "float", "double": "float", "string": "str", "enum": "str"}.get(
        node.kind, {"fixed": "bytes", "array": "tuple", "map": "dict", "boolean": "bool"}.get(node.kind, node.kind)
    )


def _is_ambiguous(node: Union) -> bool:
    kinds = [_python_kind(branch) for branch in node.branches]
    return len(set(kinds)) != len(kinds)


def _branch_of(node: Union, value: Any) -> int:
    kind = {type(None): "null", list: "tuple", bytearray: "bytes", memoryview: "bytes"}.get(type(value), type(value).__name__)
    found = [index for index, branch in enumerate(node.branches) if _python_kind(branch) == kind]
    if len(found) != 1:
        raise ValueError(f"a {kind} does not tell its branch of a union; give a Branch")
    return found[0]


# Reading.


def _run(read: Read, data: bytes, at: int, base: int | None = 0) -> tuple[Any, int]:
    try:
        return read(data, at)
    except IndexError as error:
        offset = None if base is None else base + len(data)
        raise CorruptData("an Avro value has no end", offset=offset) from error
    except _Damage as error:
        raise CorruptData(error.message, offset=None if base is None else base + error.at, found=error.found) from error


class _Damage(Exception):
    """Damage at an offset of a block; it becomes CorruptData where the block's own offset is known."""

    def __init__(self, message: str, at: int, found: object = None) -> None:
        super().__init__(message)
        self.message, self.at, self.found = message, at, found


@lru_cache(maxsize=256)
def _resolved(schema: Schema, target: Schema | None) -> Read:
    return _reader(schema.root, schema.root if target is None else target.root, {})


def _reader(source: Node, target: Node, known: dict[tuple[int, int], Read]) -> Read:
    key = (id(source), id(target))
    read = known.get(key)
    if read is None:
        read = known[key] = _new_reader(source, target, known)
    return read


def _new_reader(source: Node, target: Node, known: dict[tuple[int, int], Read]) -> Read:
    if source is target and isinstance(source, Union):
        return _same_union_reader(source, known)
    if isinstance(source, Union):
        return _union_reader(source, target, known)
    if isinstance(target, Union):
        for branch in target.branches:
            if _fits(source, branch):
                return _reader(source, branch, known)
        raise _mismatch(source, target)
    if not _fits(source, target):
        raise _mismatch(source, target)
    if isinstance(source, Record) and isinstance(target, Record):
        return _record_reader(source, target, known)
    if isinstance(source, Array) and isinstance(target, Array):
        return _array_reader(_reader(source.items, target.items, known))
    if isinstance(source, Map) and isinstance(target, Map):
        return _map_reader(_reader(source.values, target.values, known))
    if isinstance(source, Fixed):
        return _fixed_reader(source, target)
    if isinstance(source, Enumeration):
        return _enum_reader(source)
    if source.kind in ("int", "long") and target.kind in ("float", "double"):
        return _read_long_as_float
    if source.kind == "bytes" and target.kind == "string":
        return _read_string
    if source.kind == "string" and target.kind == "bytes":
        return _read_bytes
    return _PRIMITIVE_READERS[source.kind]


_PROMOTIONS: Final = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "int", "float", "double"),
    "float": ("float", "double"),
    "double": ("double", "float"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
    "enum": ("enum", "string"),
}


def _fits(source: Node, target: Node) -> bool:
    return target.kind in _PROMOTIONS.get(source.kind, (source.kind,))


def _mismatch(source: Node, target: Node) -> CorruptData:
    return CorruptData("a field of an Avro schema has another type", expected=target.kind, found=source.kind)


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise _Damage("a variable-length number is longer than 10 bytes", at)
    if value >> 64:
        raise _Damage("a variable-length number needs more than 64 bits", at)
    return (value >> 1) ^ -(value & 1), at


def _read_long_as_float(data: bytes, at: int) -> tuple[float, int]:
    value, at = _read_long(data, at)
    return float(value), at


def _read_null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise _Damage("a boolean is neither 0 nor 1", at, byte)
    return byte == 1, at + 1


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    value: float = struct.unpack("<f", _slice(data, at, at + 4))[0]
    return value, at + 4


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    value: float = struct.unpack("<d", _slice(data, at, at + 8))[0]
    return value, at + 8


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    end = at + size
    return _slice(data, at, end), end


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    byte = data[at]
    if byte < 0x80 and not byte & 1:
        at += 1
        end = at + (byte >> 1)
    else:
        size, at = _read_long(data, at)
        end = at + size
    if not at <= end <= len(data):
        raise _Damage("a text is longer than its data", at, end - at)
    try:
        return data[at:end].decode(), end
    except UnicodeDecodeError:
        raise _Damage("a text is not UTF-8", at) from None


def _slice(data: bytes, at: int, end: int) -> bytes:
    if not at <= end <= len(data):
        raise _Damage("a value is longer than its data", at, end - at)
    return data[at:end]


_PRIMITIVE_READERS: Final[dict[str, Read]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_long,
    "long": _read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}


def _fixed_reader(source: Fixed, target: Node) -> Read:
    size_bytes = source.size_bytes
    if isinstance(target, Fixed) and target.size_bytes != size_bytes:
        raise CorruptData(f"the fixed type {source.name} has another size", expected=target.size_bytes, found=size_bytes)
    return lambda data, at: (_slice(data, at, at + size_bytes), at + size_bytes)


def _enum_reader(source: Enumeration) -> Read:
    symbols = source.symbols

    def read(data: bytes, at: int) -> tuple[str, int]:
        index, end = _read_long(data, at)
        if not 0 <= index < len(symbols):
            raise _Damage(f"the enum {source.name} has no such symbol", at, index)
        return symbols[index], end

    return read


def _block_count(data: bytes, at: int) -> tuple[int, int]:
    """The number of items in the next block of an array or map, which takes at least as many bytes."""
    count, end = _read_long(data, at)
    if count < 0:
        count = -count
        end = _read_long(data, end)[1]
    if count > len(data) - end:
        raise _Damage("an array or map has more items than bytes", at, count)
    return count, end


def _array_reader(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        values: list[Any] = []
        while True:
            count, at = _block_count(data, at)
            if not count:
                return tuple(values), at
            for _ in range(count):
                value, at = item(data, at)
                values.append(value)

    return read


def _map_reader(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        while True:
            count, at = _block_count(data, at)
            if not count:
                return values, at
            for _ in range(count):
                key, at = _read_string(data, at)
                values[key], at = item(data, at)

    return read


def _same_union_reader(node: Union, known: dict[tuple[int, int], Read]) -> Read:
    """A union read as it is: with Branch where the Python type would not tell the branch."""
    if not _is_ambiguous(node):
        return _union_reader(node, node, known)
    branches = tuple((_branch_name(branch), _reader(branch, branch, known)) for branch in node.branches)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, end = _read_long(data, at)
        if not 0 <= index < len(branches):
            raise _Damage("a union has no such branch", at, index)
        name, read_one = branches[index]
        value, end = read_one(data, end)
        return (None if name == "null" else Branch(name, value)), end

    return read


def _union_reader(source: Union, target: Node, known: dict[tuple[int, int], Read]) -> Read:
    reads = tuple(_branch_reader(branch, target, known) for branch in source.branches)
    if len(source.branches) == 2 and NULL in source.branches and isinstance(target, Union):
        null_at = source.branches.index(NULL)
        return _optional_reader(source.branches[1 - null_at], reads[1 - null_at], null_at, target.null)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, end = _read_long(data, at)
        if not 0 <= index < len(reads):
            raise _Damage("a union has no such branch", at, index)
        return reads[index](data, end)

    return read


def _branch_reader(branch: Node, target: Node, known: dict[tuple[int, int], Read]) -> Read:
    """Reads one branch; what the target cannot hold is damage only where it occurs."""
    if branch is NULL and isinstance(target, Union) and NULL in target.branches:
        null = target.null
        return (lambda data, at: ({}, at)) if null is dict else (lambda data, at: (null, at))
    candidates = target.branches if isinstance(target, Union) else (target,)
    if not any(_fits(branch, candidate) for candidate in candidates):

        def refuse(data: bytes, at: int) -> tuple[Any, int]:
            raise _Damage("a value is of a type that its field does not have", at, branch.kind)

        return refuse
    return _reader(branch, target, known)


def _optional_reader(branch: Node, read_one: Read, null_at: int, null: Any) -> Read:
    null_byte, value_byte = (0, 2) if null_at == 0 else (2, 0)
    if read_one is _read_long:
        # Most fields of a write stat are optional longs of one byte, so these take the short way.
        def read_optional_long(data: bytes, at: int) -> tuple[Any, int]:
            head = data[at]
            if head == value_byte:
                byte = data[at + 1]
                if byte < 0x80:
                    return (byte >> 1) ^ -(byte & 1), at + 2
                return _read_long(data, at + 1)
            if head == null_byte:
                return null, at + 1
            raise _Damage("a union has no such branch", at, head)

        return read_optional_long

    def read_optional(data: bytes, at: int) -> tuple[Any, int]:
        head = data[at]
        if head == value_byte:
            return read_one(data, at + 1)
        if head == null_byte:
            return {} if null is dict else null, at + 1
        raise _Damage("a union has no such branch", at, head)

    return read_optional


def _record_reader(source: Record, target: Record, known: dict[tuple[int, int], Read]) -> Read:
    written = {item.name for item in source.fields}
    wanted = {item.name: item for item in target.fields}
    slots, template = _slots(target)
    absent = [item for item in target.fields if item.name not in written]
    for item in absent:
        template[slots[item.name]] = _default(item, target.name)
    new_maps = tuple(index for index, value in enumerate(template) if isinstance(value, dict))
    steps: list[tuple[int, Read]] = []
    for item in source.fields:
        found = wanted.get(item.name)
        if found is None:
            # A field we do not know is read into a slot past the end, and dropped with it.
            steps.append((len(template), _reader(item.node, item.node, known)))
        else:
            steps.append((slots[item.name], _reader(item.node, found.node, known)))
    build = _builder(target)
    reads = tuple(read for _, read in steps)

    def read_in_order(data: bytes, at: int) -> tuple[Any, int]:
        values = []
        for read_one in reads:
            value, at = read_one(data, at)
            values.append(value)
        return build(values), at

    def read_by_slot(data: bytes, at: int) -> tuple[Any, int]:
        values = [*template, None]
        for slot in new_maps:
            values[slot] = dict(template[slot])
        for slot, read_one in steps:
            values[slot], at = read_one(data, at)
        values.pop()
        return build(values), at

    return read_in_order if [slot for slot, _ in steps] == list(range(len(template))) else read_by_slot


def _slots(node: Record) -> tuple[dict[str, int], list[Any]]:
    """Where the value of each field goes in what `_builder` takes, and that list with the values no field gives."""
    if node.made_of is None:
        return {item.name: index for index, item in enumerate(node.fields)}, [None] * len(node.fields)
    init_fields = [item for item in fields(node.made_of) if item.init]
    places = {item.name: index for index, item in enumerate(init_fields)}
    slots = {item.name: places[attribute] for item, attribute in zip(node.fields, node.attributes, strict=True)}
    return slots, [item.default for item in init_fields]


def _builder(node: Record) -> Callable[[list[Any]], Any]:
    made_of = node.made_of
    if made_of is None:
        names = tuple(item.name for item in node.fields)
        return lambda values: dict(zip(names, values, strict=True))
    return lambda values: made_of(*values)


def _default(item: Field, record_name: str) -> Any:
    node = item.node
    if isinstance(node, Union):
        if item.default is NO_DEFAULT or item.default is None:
            return _null_of(node)
        node = node.branches[0]
    if item.default is NO_DEFAULT:
        raise CorruptData(f"an Avro schema lacks a field of {record_name}", expected=item.name)
    return _from_json(node, item.default)


def _null_of(node: Union) -> Any:
    return {} if node.null is dict else node.null


def _from_json(node: Node, value: Any) -> Any:
    if isinstance(node, Union):
        if value is None and NULL in node.branches:
            return _null_of(node)
        branches = [branch for branch in node.branches if branch is not NULL]
        if len(branches) != 1:
            raise CorruptData("a JSON document does not tell which branch of a union it has")
        return _from_json(branches[0], value)
    if isinstance(node, Record) and isinstance(value, Mapping):
        slots, values = _slots(node)
        for item in node.fields:
            present = item.name in value
            values[slots[item.name]] = _from_json(item.node, value[item.name]) if present else _default(item, node.name)
        return _builder(node)(values)
    if isinstance(node, Array) and isinstance(value, list):
        return tuple(_from_json(node.items, one) for one in value)
    if isinstance(node, Map) and isinstance(value, Mapping):
        return {key: _from_json(node.values, one) for key, one in value.items()}
    if node.kind in ("float", "double") and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, _JSON_TYPES.get(node.kind, ())) or (isinstance(value, bool) and node is not BOOLEAN):
        raise CorruptData("a JSON document has a value of another type", expected=node.kind, found=type(value).__name__)
    return value


_JSON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "string": (str,),
    "enum": (str,),
}


# The container's frame.


def _read_header(cursor: Cursor) -> dict[bytes, bytes]:
    header: dict[bytes, bytes] = {}
    while True:
        count = cursor.zigzag()
        if count == 0:
            return header
        if count < 0:
            count = -count
            cursor.zigzag()
        if count > cursor.remaining:
            raise cursor.corrupt("the header of an Avro container has more entries than bytes", found=count)
        for _ in range(count):
            key = bytes(cursor.take(cursor.zigzag()))
            header[key] = bytes(cursor.take(cursor.zigzag()))


def _inflate(block: bytes, offset: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    # Documents deflate to a tenth; what grows by hundreds is made to fill the memory.
    limit = min(MAX_INFLATED_BYTES, max(_ALWAYS_INFLATED_BYTES, _MOST_INFLATED_PER_BYTE * len(block)))
    try:
        plain = inflater.decompress(block, limit)
    except zlib.error as error:
        raise CorruptData(f"an Avro block is not deflated: {error}", offset=offset) from error
    if inflater.unconsumed_tail:
        raise Unsupported(f"an Avro block of {len(block)} bytes that inflates to more than {limit} is not read")
    if not inflater.eof:
        raise CorruptData("a deflated Avro block has no end", offset=offset)
    return plain
