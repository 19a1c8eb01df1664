"""Avro schemas: conversion of JSON text to nodes and back.

A schema built in code is rendered as the compact JSON that Avro for Java writes: every string has `avro.java.string`,
only the root has a namespace, and a record is defined at its first occurrence and referenced by name afterwards.

Not supported: logical types (the underlying value is returned), aliases, recursive schemas.

Specification: Avro 1.11, "Schema Declaration".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.avro.nodes import (
    NO_DEFAULT,
    NULL,
    PRIMITIVES,
    STRING,
    Array,
    AvroField,
    Enumeration,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
)
from pyhudi.format.avro.writers import Write, node_writer
from pyhudi.format.json_document import parse_json


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A schema: its tree and its JSON text. Two schemas are equal only if they are the same object."""

    root: Node
    text: str
    _write: list[Write] = field(default_factory=list, repr=False)

    @property
    def writer(self) -> Write:
        """The compiled writer of values of this schema."""
        if not self._write:
            self._write.append(node_writer(self.root, {}))
        return self._write[0]


def schema_from_record(root: Record, namespace: str = "org.apache.hudi.avro.model") -> Schema:
    """Return the schema of a record built in code, with the JSON text that Avro for Java writes for it."""
    return Schema(root, json.dumps(_render(root, set(), namespace), separators=(",", ":"), ensure_ascii=False))


@lru_cache(maxsize=256)
def parse_schema(text: str) -> Schema:
    """Parse the JSON text of a schema.

    Raises:
        CorruptData: The text is not a schema.
        Unsupported: A recursive schema, or more than 100,000 types after references are expanded, because values of
            such a schema can exceed any memory.
    """
    document = parse_json(text, "an Avro schema is")
    try:
        root = _parse(document, "", {}, 0)
        count, depth = _measure(root, {})
    except RecursionError as error:
        raise CorruptData("an Avro schema is nested too deeply", expected=_MAX_DEPTH) from error
    if depth > _MAX_DEPTH:
        raise CorruptData("an Avro schema is nested too deeply", expected=_MAX_DEPTH, found=depth)
    if count > _MOST_TYPES:
        raise Unsupported(f"Avro schemas of more than {_MOST_TYPES} types after their references are expanded are not supported.")
    return Schema(root, text)


_MAX_DEPTH: Final = 100
_MOST_TYPES: Final = 100_000


def _measure(node: Node, cache: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the number of types with every reference expanded, and the depth."""
    if id(node) not in cache:
        below: tuple[Node, ...] = ()
        if isinstance(node, Union):
            below = node.branches
        elif isinstance(node, Array):
            below = (node.items,)
        elif isinstance(node, Map):
            below = (node.values,)
        elif isinstance(node, Record):
            below = tuple(item.node for item in node.fields)
        measures = [_measure(part, cache) for part in below]
        depth = 1 + max((depth for _, depth in measures), default=0)
        cache[id(node)] = 1 + sum(count for count, _ in measures), depth
    return cache[id(node)]


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
        raise CorruptData("unknown type in an Avro schema", found=str(definition)[:100])
    kind = definition.get("type")
    if kind == "array":
        items = _parse(definition.get("items"), namespace, names, depth + 1)
        if not _has_width(items, {}):
            # The encoded count of such items costs no bytes, so a few corrupt bytes could allocate any number of them.
            raise Unsupported("Avro arrays whose items take no bytes are not supported.")
        return Array(items)
    if kind == "map":
        return Map(_parse(definition.get("values"), namespace, names, depth + 1))
    if kind in ("record", "error", "enum", "fixed"):
        return _parse_named(definition, kind, namespace, names, depth)
    return _parse(kind, namespace, names, depth + 1)


def _parse_name(name: str, namespace: str, names: dict[str, Node | None]) -> Node:
    primitive = PRIMITIVES.get(name)
    if primitive is not None:
        return primitive
    for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
        if full in names:
            definition = names[full]
            if definition is None:
                raise Unsupported(f"The Avro record {name[:100]!r} contains itself; recursive schemas are not supported.")
            return definition
    raise CorruptData("an Avro schema names an unknown type", found=name[:100])


def _parse_named(definition: dict[str, Any], kind: str, namespace: str, names: dict[str, Node | None], depth: int) -> Node:
    name = definition.get("name")
    if not isinstance(name, str) or not name:
        raise CorruptData("a named type of an Avro schema has no name")
    own_namespace = definition.get("namespace", namespace)
    if "." in name:
        own_namespace, _, name = name.rpartition(".")
    if not isinstance(own_namespace, str):
        raise CorruptData("a namespace of an Avro schema is not text")
    full = f"{own_namespace}.{name}" if own_namespace else name
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
        node = Record(name, _parse_fields(definition.get("fields"), own_namespace, names, depth))
    names[full] = node
    return node


def _parse_fields(definitions: Any, namespace: str, names: dict[str, Node | None], depth: int) -> tuple[AvroField, ...]:
    if not isinstance(definitions, list):
        raise CorruptData("a record of an Avro schema has no fields")
    parsed = []
    for definition in definitions:
        if not isinstance(definition, dict) or not isinstance(definition.get("name"), str):
            raise CorruptData("a field of an Avro schema has no name")
        node = _parse(definition.get("type"), namespace, names, depth + 1)
        parsed.append(AvroField(definition["name"], node, definition.get("default", NO_DEFAULT)))
    if len({item.name for item in parsed}) != len(parsed):
        raise CorruptData("a record of an Avro schema has two fields of one name")
    return tuple(parsed)


def _has_width(node: Node, cache: dict[int, bool]) -> bool:
    if isinstance(node, Primitive):
        return node is not NULL
    if isinstance(node, Fixed):
        return node.size_bytes > 0
    if not isinstance(node, Record):
        return True
    if id(node) not in cache:
        cache[id(node)] = any(_has_width(item.node, cache) for item in node.fields)
    return cache[id(node)]


def _render(node: Node, visited: set[str], namespace: str = "") -> Any:
    rendered: dict[str, Any]
    if isinstance(node, Primitive):
        return {"type": "string", "avro.java.string": "String"} if node is STRING else node.kind
    if isinstance(node, Union):
        return [_render(branch, visited) for branch in node.branches]
    if isinstance(node, Array):
        rendered = {"type": "array", "items": _render(node.items, visited)}
        return rendered if node.default is NO_DEFAULT else rendered | {"default": node.default}
    if isinstance(node, Map):
        rendered = {"type": "map", "values": _render(node.values, visited), "avro.java.string": "String"}
        return rendered if node.default is NO_DEFAULT else rendered | {"default": node.default}
    if node.name in visited:
        return node.name
    visited.add(node.name)
    if isinstance(node, Fixed):
        return {"type": "fixed", "name": node.name, "size": node.size_bytes}
    if isinstance(node, Enumeration):
        return {"type": "enum", "name": node.name, "symbols": list(node.symbols)}
    head = {"type": "record", "name": node.name} | ({"namespace": namespace} if namespace else {})
    return head | {"fields": [_render_field(item, visited) for item in node.fields]}


def _render_field(item: AvroField, visited: set[str]) -> dict[str, Any]:
    rendered = {"name": item.name, "type": _render(item.node, visited)}
    return rendered if item.default is NO_DEFAULT else rendered | {"default": item.default}
