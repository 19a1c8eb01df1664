"""Compiled Avro readers with schema resolution: writer and reader schema become `read(data, offset) -> (value, offset)`.

Fields resolve by name: unknown fields are skipped, and missing fields get their default or null. Unions may be in
another order, numbers may be narrower, and record names are ignored.

Specification: Avro 1.11, "Binary Encoding" and "Schema Resolution".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pyhudi.errors import CorruptData
from pyhudi.format.avro.json_values import field_default, field_slots, record_builder
from pyhudi.format.avro.nodes import NULL, Array, Branch, Enumeration, Fixed, Map, Node, Record, Union, branch_name, is_ambiguous

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]


def run_reader(read: Read, data: bytes, at: int, base: int | None = 0) -> tuple[Any, int]:
    """Return the value at an offset, and the offset after it.

    Args:
        read: A compiled reader.
        at: Offset of the value.
        base: Offset of `data` in the file, for the error; None if unknown.

    Raises:
        CorruptData: Invalid bytes.
    """
    try:
        return read(data, at)
    except IndexError as error:
        offset = None if base is None else base + len(data)
        raise CorruptData("an Avro value is truncated", offset=offset) from error
    except _DecodeError as error:
        raise CorruptData(error.message, offset=None if base is None else base + error.at, found=error.found) from error


class _DecodeError(Exception):
    """Corruption at an offset of a block; converted to CorruptData where the block's own offset is known."""

    def __init__(self, message: str, at: int, found: object = None) -> None:
        super().__init__(message)
        self.message, self.at, self.found = message, at, found


def node_reader(source: Node, target: Node, cache: dict[tuple[int, int], Read]) -> Read:
    """Return the compiled reader of a pair of nodes. cache: compiled readers of this schema, by node ids."""
    key = (id(source), id(target))
    read = cache.get(key)
    if read is None:
        read = cache[key] = _new_reader(source, target, cache)
    return read


def _new_reader(source: Node, target: Node, cache: dict[tuple[int, int], Read]) -> Read:
    if source is target and isinstance(source, Union):
        return _same_union_reader(source, cache)
    if isinstance(source, Union):
        return _union_reader(source, target, cache)
    if isinstance(target, Union):
        for branch in target.branches:
            if _fits(source, branch):
                return node_reader(source, branch, cache)
        raise _mismatch(source, target)
    if not _fits(source, target):
        raise _mismatch(source, target)
    if isinstance(source, Record) and isinstance(target, Record):
        return _record_reader(source, target, cache)
    if isinstance(source, Array) and isinstance(target, Array):
        return _array_reader(node_reader(source.items, target.items, cache))
    if isinstance(source, Map) and isinstance(target, Map):
        return _map_reader(node_reader(source.values, target.values, cache))
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
            raise _DecodeError("a variable-length integer is longer than 10 bytes", at)
    if value >> 64:
        raise _DecodeError("a variable-length integer exceeds 64 bits", at)
    return (value >> 1) ^ -(value & 1), at


def _read_long_as_float(data: bytes, at: int) -> tuple[float, int]:
    value, at = _read_long(data, at)
    return float(value), at


def _read_null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise _DecodeError("a boolean is neither 0 nor 1", at, byte)
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
        raise _DecodeError("a text is longer than its data", at, end - at)
    try:
        return data[at:end].decode(), end
    except UnicodeDecodeError:
        raise _DecodeError("a text is not UTF-8", at) from None


def _slice(data: bytes, at: int, end: int) -> bytes:
    if not at <= end <= len(data):
        raise _DecodeError("a value is longer than its data", at, end - at)
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
            raise _DecodeError(f"invalid symbol of the enum {source.name}", at, index)
        return symbols[index], end

    return read


def _block_count(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items in the next block of an array or map, which takes at least as many bytes."""
    count, end = _read_long(data, at)
    if count < 0:
        count = -count
        end = _read_long(data, end)[1]
    if count > len(data) - end:
        raise _DecodeError("an array or map has more items than bytes", at, count)
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


def _same_union_reader(node: Union, cache: dict[tuple[int, int], Read]) -> Read:
    """Read a union without resolution, as Branch if the Python type would be ambiguous."""
    if not is_ambiguous(node):
        return _union_reader(node, node, cache)
    branches = tuple((branch_name(branch), node_reader(branch, branch, cache)) for branch in node.branches)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, end = _read_long(data, at)
        if not 0 <= index < len(branches):
            raise _DecodeError("invalid branch of a union", at, index)
        name, read_one = branches[index]
        value, end = read_one(data, end)
        return (None if name == "null" else Branch(name, value)), end

    return read


def _union_reader(source: Union, target: Node, cache: dict[tuple[int, int], Read]) -> Read:
    reads = tuple(_branch_reader(branch, target, cache) for branch in source.branches)
    if len(source.branches) == 2 and NULL in source.branches and isinstance(target, Union):
        null_at = source.branches.index(NULL)
        return _optional_reader(source.branches[1 - null_at], reads[1 - null_at], null_at, target.null)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, end = _read_long(data, at)
        if not 0 <= index < len(reads):
            raise _DecodeError("invalid branch of a union", at, index)
        return reads[index](data, end)

    return read


def _branch_reader(branch: Node, target: Node, cache: dict[tuple[int, int], Read]) -> Read:
    """Read one branch; a type that the target does not have is an error only when it occurs."""
    if branch is NULL and isinstance(target, Union) and NULL in target.branches:
        null = target.null
        return (lambda data, at: ({}, at)) if null is dict else (lambda data, at: (null, at))
    candidates = target.branches if isinstance(target, Union) else (target,)
    if not any(_fits(branch, candidate) for candidate in candidates):

        def refuse(data: bytes, at: int) -> tuple[Any, int]:
            raise _DecodeError("a value is of a type that its field does not have", at, branch.kind)

        return refuse
    return node_reader(branch, target, cache)


def _optional_reader(branch: Node, read_value: Read, null_at: int, null: Any) -> Read:
    null_byte, value_byte = (0, 2) if null_at == 0 else (2, 0)
    if read_value is _read_long:
        # Fast path: most fields of a write stat are optional longs of one byte.
        def read_optional_long(data: bytes, at: int) -> tuple[Any, int]:
            head = data[at]
            if head == value_byte:
                byte = data[at + 1]
                if byte < 0x80:
                    return (byte >> 1) ^ -(byte & 1), at + 2
                return _read_long(data, at + 1)
            if head == null_byte:
                return null, at + 1
            raise _DecodeError("invalid branch of a union", at, head)

        return read_optional_long

    def read_optional(data: bytes, at: int) -> tuple[Any, int]:
        head = data[at]
        if head == value_byte:
            return read_value(data, at + 1)
        if head == null_byte:
            return {} if null is dict else null, at + 1
        raise _DecodeError("invalid branch of a union", at, head)

    return read_optional


def _record_reader(source: Record, target: Record, cache: dict[tuple[int, int], Read]) -> Read:
    written = {item.name for item in source.fields}
    target_fields = {item.name: item for item in target.fields}
    slots, template = field_slots(target)
    absent = [item for item in target.fields if item.name not in written]
    for item in absent:
        template[slots[item.name]] = field_default(item, target.name)
    new_maps = tuple(index for index, value in enumerate(template) if isinstance(value, dict))
    steps: list[tuple[int, Read]] = []
    for item in source.fields:
        target_field = target_fields.get(item.name)
        if target_field is None:
            # An unknown field is read into a slot after the last one, and dropped with it.
            steps.append((len(template), node_reader(item.node, item.node, cache)))
        else:
            steps.append((slots[item.name], node_reader(item.node, target_field.node, cache)))
    build = record_builder(target)
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
