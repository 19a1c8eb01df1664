"""Resolution of named types in the Avro schema text of a table: each reference is replaced by the type it names.

Specification: Avro 1.11, "Names".
"""

from __future__ import annotations

from typing import Any

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.avro.nodes import PRIMITIVES
from pyhudi.format.json_document import parse_json

Json = dict[str, Any]

MAX_SCHEMA_DEPTH = 100
MAX_FIXED_BYTES = 1 << 20
_MOST_TYPES = 100_000
"""Limit on expanded types. A schema of a few kilobytes can double a named type repeatedly and expand beyond any memory."""


def resolve_avro(text: str) -> dict[str, Any]:
    """Return the Avro record of a schema text, with each reference resolved and each named type with its namespace.

    Raises:
        CorruptData: The text is not an Avro record.
        Unsupported: Recursive records, or more than 100,000 types after every reference is expanded.
    """
    document = parse_json(text, "the schema is")
    try:
        resolved = _resolve(document, "", {}, (), "")
        count, depth = _measure(resolved, {})
    except RecursionError as error:
        raise Unsupported(f"the schema is nested too deeply: more than {MAX_SCHEMA_DEPTH} levels") from error
    if not isinstance(resolved, dict) or resolved.get("type") != "record":
        raise CorruptData("the schema is not an Avro record", expected="record", found=text[:80])
    if depth > MAX_SCHEMA_DEPTH:
        raise Unsupported(f"the schema is nested too deeply: {depth} levels, and at most {MAX_SCHEMA_DEPTH} are supported")
    if count > _MOST_TYPES:
        raise Unsupported(f"an Avro schema of more than {_MOST_TYPES} types after its references are expanded")
    return resolved


def is_avro_name(name: str) -> bool:
    """Return whether Hudi's schema allows a field name."""
    # Java's rule, which is wider than that of the Avro specification: any Unicode letter or digit.
    return bool(name) and (name[0].isalpha() or name[0] == "_") and all(c.isalpha() or c.isdecimal() or c == "_" for c in name)


def _measure(node: Any, cache: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the types of a resolved schema with every reference expanded, and its depth; equal references share an object."""
    if isinstance(node, list):
        return _total([_measure(branch, cache) for branch in node])
    if not isinstance(node, dict):
        return 1, 1
    if id(node) not in cache:
        below = [node.get("items"), node.get("values"), *(field["type"] for field in node.get("fields") or ())]
        count, depth = _total([_measure(part, cache) for part in below if part is not None])
        cache[id(node)] = count + 1, depth + 1
    return cache[id(node)]


def _total(measures: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(count for count, _ in measures), max((depth for _, depth in measures), default=0)


def _resolve(node: Any, namespace: str, names: dict[str, Any], open_: tuple[str, ...], path: str) -> Any:
    """Return a schema with each reference replaced by its type and each named type with its namespace."""
    if isinstance(node, list):
        return [_resolve(branch, namespace, names, open_, path) for branch in node]
    if isinstance(node, str):
        if node in PRIMITIVES:
            return node
        full = node if "." in node or not namespace else f"{namespace}.{node}"
        if full in open_:
            raise Unsupported(f"column {path!r}: the recursive Avro record {full} is not supported")
        if full in names:
            return names[full]
        if node in names:
            return names[node]
        raise CorruptData(f"the schema references an undefined type at {path!r}", found=node)
    if not isinstance(node, dict):
        raise CorruptData(f"the schema has no type at {path!r}", found=node)
    kind = node.get("type")
    if isinstance(kind, (dict, list)):
        return _resolve(kind, namespace, names, open_, path)
    if kind in ("record", "error", "fixed", "enum"):
        return _resolve_named(node, str(kind), namespace, names, open_, path)
    if kind == "array":
        return {**node, "items": _resolve(_required(node, "items", path), namespace, names, open_, path + "[]")}
    if kind == "map":
        return {**node, "values": _resolve(_required(node, "values", path), namespace, names, open_, path + "{}")}
    if isinstance(kind, str):
        return node if kind in PRIMITIVES else _resolve(kind, namespace, names, open_, path)
    raise CorruptData(f"the schema has no type at {path!r}", found=kind)


def _resolve_named(node: Json, kind: str, outer: str, names: dict[str, Any], open_: tuple[str, ...], path: str) -> Json:
    name = _required(node, "name", path)
    if not isinstance(name, str):
        raise CorruptData(f"the schema has a type without a name at {path!r}", found=name)
    namespace = node.get("namespace", outer)
    if "." in name:
        namespace, _, name = name.rpartition(".")
    namespace = namespace or ""
    full = f"{namespace}.{name}" if namespace else name
    result = {"type": "record" if kind == "error" else kind, "name": name, "namespace": namespace}
    result.update({key: value for key, value in node.items() if key not in result})
    if kind == "fixed" and (not isinstance(node.get("size"), int) or node["size"] < 0):
        raise CorruptData(f"the fixed type {full} has no size", found=node.get("size"))
    if kind == "fixed" and node["size"] > MAX_FIXED_BYTES:
        # A null of such a type takes as much memory as a value.
        raise Unsupported(f"the fixed type {full} of {node['size']} bytes exceeds the limit of {MAX_FIXED_BYTES} bytes")
    symbols = node.get("symbols")
    if kind == "enum" and not (isinstance(symbols, list) and all(isinstance(symbol, str) for symbol in symbols)):
        raise CorruptData(f"the enum {full} has no symbols", found=symbols)
    if kind in ("record", "error"):
        fields = _required(node, "fields", path)
        if not isinstance(fields, list):
            raise CorruptData(f"the record {full} has no fields", found=fields)
        resolved = []
        for field in fields:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise CorruptData(f"the record {full} has a field without a name", found=field)
            below = f"{path}.{field['name']}" if path else field["name"]
            type_ = _resolve(_required(field, "type", below), namespace, names, (*open_, full), below)
            resolved.append({**field, "type": type_})
        result["fields"] = resolved
    names[full] = result
    return result


def _required(node: Json, key: str, path: str) -> Any:
    if key not in node:
        raise CorruptData(f"the schema has no {key!r} at {path!r}", found=node.get("type"))
    return node[key]
