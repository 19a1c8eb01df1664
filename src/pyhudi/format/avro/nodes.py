"""Nodes of an Avro schema tree, and functions that build them.

A tree is parsed from JSON (schema.py), or built with `record`, `optional`, `array_node` and `map_node`.

Python values: null None, boolean bool, int and long int, float and double float, string and enum str, bytes and fixed
bytes, array tuple, map dict, record dict, or the class that its node is bound to. A union with several records or
several other types of one Python type uses `Branch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias


class _NoDefault:
    """Marks a field without a default."""


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """null, boolean, int, long, float, double, bytes or string."""

    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """Bytes of fixed size."""

    name: str
    size_bytes: int
    kind: str = "fixed"


@dataclass(frozen=True, slots=True, eq=False)
class Enumeration:
    """One of the symbols, encoded as its number."""

    name: str
    symbols: tuple[str, ...]
    kind: str = "enum"


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """An array.

    Attributes:
        default: Default of the node itself, not its field. It has no meaning, but occurs in Hudi's schemas.
    """

    items: Node
    default: Any = NO_DEFAULT
    kind: str = "array"


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """A map; `default` as for an array."""

    values: Node
    default: Any = NO_DEFAULT
    kind: str = "map"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """A union.

    Attributes:
        null: Decoded value of a null branch, None unless a document defines it; `dict` for a new empty map each time.
    """

    branches: tuple[Node, ...]
    null: Any = None
    kind: str = "union"


@dataclass(frozen=True, slots=True, eq=False)
class AvroField:
    """A field of a record; `default` is parsed JSON."""

    name: str
    node: Node
    default: Any = NO_DEFAULT


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A record.

    Attributes:
        name: Its name.
        fields: Fields in order.
        value_class: The dataclass of its values; None for dicts.
        attributes: Attribute of each field, in field order.
    """

    name: str
    fields: tuple[AvroField, ...]
    value_class: type | None = None
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
PRIMITIVES: Final = {node.kind: node for node in (NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING)}


@dataclass(frozen=True, slots=True)
class Branch:
    """A value of a union, with the name of its branch: a record's simple name, or the type's."""

    name: str
    value: Any


def optional(node: Node, *, null: Any = None) -> AvroField:
    """Return a field without its name: `["null", node]`, default null.

    Args:
        node: The non-null type.
        null: Decoded value of null and of an absent field; `dict` for a new empty map each time.
    """
    return AvroField("", Union((NULL, node), null), None)


def required(node: Node, default: Any = NO_DEFAULT) -> AvroField:
    """Return a field without its name that is never null."""
    return AvroField("", node, default)


def nullable(node: Node) -> AvroField:
    """Return a field without its name: `["null", node]`, without a default."""
    return AvroField("", Union((NULL, node)))


def array_node(items: Node, default: Any = NO_DEFAULT) -> Array:
    """Return an array. default: the default of the node itself."""
    return Array(items, default)


def map_node(values: Node, default: Any = NO_DEFAULT) -> Map:
    """Return a map. default: the default of the node itself."""
    return Map(values, default)


def version_field(default: int) -> AvroField:
    """Return `["int", "null"]` with a default: the version field of Hudi's documents."""
    return AvroField("", Union((INT, NULL)), default)


def record(name: str, value_class: type, **by_name: AvroField) -> Record:
    """Return a record of the dataclass `value_class`; its attributes are the field names in snake case, in any order."""
    named = tuple(AvroField(key, item.node, item.default) for key, item in by_name.items())
    return Record(name, named, value_class, tuple(_snake_case(key) for key in by_name))


def _snake_case(name: str) -> str:
    out = "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
    return out.lstrip("_")


def branch_name(node: Node) -> str:
    """Return the name of a union's branch: a named type's simple name, or the type."""
    return node.name if isinstance(node, Record | Fixed | Enumeration) else node.kind


def python_type_name(node: Node) -> str:
    """Return the Python type of a node's values, to determine whether a union's branches are distinct by type."""
    if isinstance(node, Record):
        return node.value_class.__name__ if node.value_class else "dict"
    return {"int": "int", "long": "int", "float": "float", "double": "float", "string": "str", "enum": "str"}.get(
        node.kind, {"fixed": "bytes", "array": "tuple", "map": "dict", "boolean": "bool"}.get(node.kind, node.kind)
    )


def is_ambiguous(node: Union) -> bool:
    """Return whether two branches of a union have values of one Python type, so that `Branch` must name the branch."""
    kinds = [python_type_name(branch) for branch in node.branches]
    return len(set(kinds)) != len(kinds)
