"""Compiled Avro writers: each node of a schema becomes a function `write(out, value)` that appends a value's bytes.

A value that does not fit raises ValueError, TypeError, AttributeError, KeyError, OverflowError or struct.error, which
`encode_datum` converts to InvalidRequest.

Specification: Avro 1.11, "Binary Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias

from pyhudi.format.avro.nodes import (
    NO_DEFAULT,
    NULL,
    Array,
    Branch,
    Enumeration,
    Fixed,
    Map,
    Node,
    Record,
    Union,
    branch_name,
    python_type_name,
)
from pyhudi.format.byte_cursor import encode_varint, encode_zigzag

Write: TypeAlias = Callable[[bytearray, Any], None]

_SMALL_LONGS: Final = tuple(encode_zigzag(value) for value in range(2048))
_SMALL_LONG_COUNT: Final = len(_SMALL_LONGS)


def _encode_long(value: int) -> bytes:
    if 0 <= value < _SMALL_LONG_COUNT:
        return _SMALL_LONGS[value]
    return encode_varint((value << 1) ^ (value >> 63))


def encode_bytes(data: bytes) -> bytes:
    """Return bytes with their length prefix."""
    return _encode_long(len(data)) + data


def node_writer(node: Node, cache: dict[int, Write]) -> Write:
    """Return the compiled writer of a node. cache: compiled writers of this schema, by node id."""
    write = cache.get(id(node))
    if write is None:
        write = cache[id(node)] = _new_writer(node, cache)
    return write


def _new_writer(node: Node, cache: dict[int, Write]) -> Write:
    if isinstance(node, Union):
        return _union_writer(node, cache)
    if isinstance(node, Array):
        return _array_writer(node_writer(node.items, cache))
    if isinstance(node, Map):
        return _map_writer(node_writer(node.values, cache))
    if isinstance(node, Record):
        return _record_writer(node, cache)
    if isinstance(node, Fixed):
        return _fixed_writer(node)
    if isinstance(node, Enumeration):
        return _enum_writer(node)
    return _PRIMITIVE_WRITERS[node.kind]


def _write_null(out: bytearray, value: Any) -> None:
    if value is not None:
        raise ValueError(f"expected null, not {value!r:.100}")


def _write_boolean(out: bytearray, value: Any) -> None:
    if value is True:
        out.append(1)
    elif value is False:
        out.append(0)
    else:
        raise ValueError(f"expected a boolean, not {value!r:.100}")


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
    out += encode_bytes(bytes(memoryview(value)))


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
                raise ValueError("expected an array, not a text")
            out += _encode_long(len(value))
            for element in value:
                item(out, element)
        out.append(0)

    return write


def _map_writer(item: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value:
            out += _encode_long(len(value))
            for key, map_value in value.items():
                _write_string(out, key)
                item(out, map_value)
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


def _record_writer(node: Record, cache: dict[int, Write]) -> Write:
    writes = tuple(node_writer(item.node, cache) for item in node.fields)
    if node.value_class is not None:
        return _dataclass_writer(node.value_class, node.attributes, writes)
    items = tuple((item.name, item.default, write) for item, write in zip(node.fields, writes, strict=True))

    def write_dict(out: bytearray, value: Any) -> None:
        for name, default, write in items:
            field_value = value.get(name, default)
            if field_value is NO_DEFAULT:
                raise ValueError(f"the field {name} of {node.name} is missing")
            write(out, field_value)

    return write_dict


def _dataclass_writer(value_class: type, attributes: tuple[str, ...], writes: tuple[Write, ...]) -> Write:
    if len(attributes) == 1:
        only, write_only = attributes[0], writes[0]
        return lambda out, value: write_only(out, getattr(value, only))
    values_of = attrgetter(*attributes)

    def write(out: bytearray, value: Any) -> None:
        if type(value) is not value_class:
            raise ValueError(f"expected a {value_class.__name__}, not {value!r:.100}")
        for write_field, field_value in zip(writes, values_of(value), strict=True):
            write_field(out, field_value)

    return write


def _union_writer(node: Union, cache: dict[int, Write]) -> Write:
    writes = tuple(node_writer(branch, cache) for branch in node.branches)
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

    names = {branch_name(branch): index for index, branch in enumerate(node.branches)}

    def write(out: bytearray, value: Any) -> None:
        index = names[value.name] if isinstance(value, Branch) else _branch_of(node, value)
        out += heads[index]
        writes[index](out, value.value if isinstance(value, Branch) else value)

    return write


def _branch_of(node: Union, value: Any) -> int:
    kind = {type(None): "null", list: "tuple", bytearray: "bytes", memoryview: "bytes"}.get(type(value), type(value).__name__)
    matching = [index for index, branch in enumerate(node.branches) if python_type_name(branch) == kind]
    if len(matching) != 1:
        raise ValueError(f"a {kind} is ambiguous in its union; use a Branch")
    return matching[0]
