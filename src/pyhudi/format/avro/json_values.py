"""Conversion of parsed JSON to values of an Avro schema: archived documents, and field defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from pyhudi.errors import CorruptData
from pyhudi.format.avro.nodes import BOOLEAN, NO_DEFAULT, NULL, Array, AvroField, Map, Node, Record, Union
from pyhudi.format.avro.schema import Schema


def from_json(target: Schema, value: Any) -> Any:
    """Convert parsed JSON (numbers, strings, lists, dicts) to the shape of `target`, fields by name.

    Unions have no branch name, as Jackson writes them. Raises CorruptData if the value does not fit.
    """
    try:
        return _value_from_json(target.root, value)
    except RecursionError as error:
        raise CorruptData("a JSON document is nested too deeply") from error


def field_slots(node: Record) -> tuple[dict[str, int], list[Any]]:
    """Return the slot of each field in the argument of `record_builder`, and that argument with the defaults of missing
    fields.
    """
    if node.value_class is None:
        return {item.name: index for index, item in enumerate(node.fields)}, [None] * len(node.fields)
    init_fields = [item for item in fields(node.value_class) if item.init]
    places = {item.name: index for index, item in enumerate(init_fields)}
    slots = {item.name: places[attribute] for item, attribute in zip(node.fields, node.attributes, strict=True)}
    return slots, [item.default for item in init_fields]


def record_builder(node: Record) -> Callable[[list[Any]], Any]:
    """Return the function that builds a record from its field values, in the order of `field_slots`."""
    made_of = node.value_class
    if made_of is None:
        names = tuple(item.name for item in node.fields)
        return lambda values: dict(zip(names, values, strict=True))
    return lambda values: made_of(*values)


def field_default(item: AvroField, record_name: str) -> Any:
    """Return the value of a field that the writer's schema lacks. Raises CorruptData without a default or null."""
    node = item.node
    if isinstance(node, Union):
        if item.default is NO_DEFAULT or item.default is None:
            return _null_of(node)
        node = node.branches[0]
    if item.default is NO_DEFAULT:
        raise CorruptData(f"an Avro schema is missing a field of {record_name}", expected=item.name)
    return _value_from_json(node, item.default)


def _null_of(node: Union) -> Any:
    return {} if node.null is dict else node.null


def _value_from_json(node: Node, value: Any) -> Any:
    if isinstance(node, Union):
        if value is None and NULL in node.branches:
            return _null_of(node)
        branches = [branch for branch in node.branches if branch is not NULL]
        if len(branches) != 1:
            raise CorruptData("the branch of a union in a JSON document is ambiguous")
        return _value_from_json(branches[0], value)
    if isinstance(node, Record) and isinstance(value, Mapping):
        slots, values = field_slots(node)
        for item in node.fields:
            exists = item.name in value
            values[slots[item.name]] = _value_from_json(item.node, value[item.name]) if exists else field_default(item, node.name)
        return record_builder(node)(values)
    if isinstance(node, Array) and isinstance(value, list):
        return tuple(_value_from_json(node.items, element) for element in value)
    if isinstance(node, Map) and isinstance(value, Mapping):
        return {key: _value_from_json(node.values, element) for key, element in value.items()}
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
