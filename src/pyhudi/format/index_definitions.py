"""Definitions of indexes: the document `.hoodie/.index_defs/index.json`.
Source: docs/formats/metadata-table.md, index definitions.

    { "indexDefinitions" : { <name> : { indexName, indexType, indexFunction, sourceFields [...], indexOptions {...} } } }

    name                type                         function      source fields            options
    column_stats        column_stats                 column_stats  columns with statistics  none
    secondary_index_x   secondary_index              identity      the column               none
    expr_index_x        column_stats, bloom_filters  its name      the column               expr, and what the function takes

Since release 1.1 a definition has a `version` too, "V1" or "V2": the layout of its records.  Without one it is V1.

The name is that of the index's partition in the metadata table.  Readers take the columns that they may prune by from the
`column_stats` entry, and fail on filtered queries when a table has column statistics and no such entry.  Readers look at the
document only when the table's property hoodie.table.index.defs.path names it.  Fields that we do not know are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.json_document import parse_json

_VERSION = "version"
_PARTITIONED = "isPartitioned"
_LAYOUTS = {'"V1"': 1, '"V2"': 2}
_KNOWN = ("indexName", "indexType", "indexFunction", "sourceFields", "indexOptions")


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One index.  options: in the order of the document; other: fields of later versions as JSON strings."""

    name: str
    kind: str
    function: str
    source_fields: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()
    other: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.name or not self.kind:
            raise InvalidRequest(f"an index definition needs a name and a type: {self!r}")

    @property
    def layout(self) -> int:
        """The layout of the index's records, 1 or 2.  Raises Unsupported for a later one."""
        text = dict(self.other).get(_VERSION)
        if text is None:
            return 1
        if text not in _LAYOUTS:
            raise Unsupported(f"layout {text} of index {self.name!r}; known are {', '.join(_LAYOUTS)}")
        return _LAYOUTS[text]

    @property
    def by_partition(self) -> bool:
        """Whether a key of the index is unique within a partition of the table, and looked up there."""
        return self.option(_PARTITIONED) == "true"

    @property
    def names_layout(self) -> bool:
        """Whether the definition names the layout, as release 1.1 and later have it."""
        return _VERSION in dict(self.other)

    def with_declared_layout(self) -> IndexDefinition:
        """The same definition, which says its layout."""
        return self if self.names_layout else replace(self, other=(*self.other, (_VERSION, f'"V{self.layout}"')))

    def option(self, name: str) -> str | None:
        """The value of an option; None when it is not set."""
        return dict(self.options).get(name)


def check_declares_layout(definition: IndexDefinition) -> None:
    """Raises CorruptData for a definition that names no layout: its records could be of any."""
    if not definition.names_layout:
        raise CorruptData(
            f"the definition of index {definition.name!r} has no version, which a table of version 9 needs",
            expected='"version" : "V1" or "V2"',
        )


def column_stats_definition(columns: Iterable[str], layout: int | None = None) -> IndexDefinition:
    """The definition of the column statistics over these columns, in the order that the document shall have.

    layout: of the records, None where definitions do not name it.
    """
    return IndexDefinition("column_stats", "column_stats", "column_stats", tuple(columns), other=declared_layout(layout))


def record_index_definition(*, by_partition: bool = False) -> IndexDefinition:
    """The definition of a record index, which tables have whose definitions name their layouts.  by_partition: of an index in
    which a key is unique within a partition of the table.
    """
    option = (_PARTITIONED, "true" if by_partition else "false")
    return IndexDefinition("record_index", "record_index", "", (), (option,), declared_layout(1))


def declared_layout(layout: int | None) -> tuple[tuple[str, str], ...]:
    """The layout as a definition names it among its other fields."""
    return () if layout is None else ((_VERSION, f'"V{layout}"'),)


def parse_index_definitions(data: bytes) -> dict[str, IndexDefinition]:
    """The definitions by name, in the order of the document.  Raises CorruptData when it is not such a document."""
    document = parse_json(data, "the index definitions are")
    entries = document.get("indexDefinitions") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise CorruptData("the index definitions have no indexDefinitions")
    return {name: _parse_definition(name, entry) for name, entry in entries.items()}


def format_index_definitions(definitions: Iterable[IndexDefinition]) -> bytes:
    """The document, laid out as the Java writer does.  Raises InvalidRequest when two definitions have one name."""
    entries: dict[str, Any] = {}
    for definition in definitions:
        if definition.name in entries:
            raise InvalidRequest(f"two index definitions are named {definition.name!r}")
        entries[definition.name] = {
            "indexName": definition.name,
            "indexType": definition.kind,
            "indexFunction": definition.function,
            "sourceFields": list(definition.source_fields),
            "indexOptions": dict(definition.options),
            **{name: json.loads(text) for name, text in definition.other},
        }
    return _format({"indexDefinitions": entries}, "").encode()


def _parse_definition(name: str, entry: Any) -> IndexDefinition:
    if not isinstance(entry, dict):
        raise CorruptData(f"the definition of index {name!r} is not an object")
    kind, function = entry.get("indexType"), entry.get("indexFunction")
    fields, options = entry.get("sourceFields") or [], entry.get("indexOptions") or {}
    if not name or not isinstance(kind, str) or not kind or not isinstance(function, str | None):
        raise CorruptData(f"the definition of index {name!r} has no type or function")
    if not isinstance(fields, list) or not all(isinstance(field, str) for field in fields) or not isinstance(options, dict):
        raise CorruptData(f"the definition of index {name!r} has no proper fields or options")
    return IndexDefinition(
        name,
        kind,
        function or "",
        tuple(fields),
        tuple((key, value if isinstance(value, str) else json.dumps(value)) for key, value in options.items()),
        tuple((key, json.dumps(value)) for key, value in entry.items() if key not in _KNOWN),
    )


def _format(value: Any, indent: str) -> str:
    """JSON with a line for each field, a blank on both sides of the colon, and arrays on one line."""
    if isinstance(value, Mapping):
        if not value:
            return "{ }"
        inner = indent + "  "
        lines = (f"{inner}{json.dumps(key, ensure_ascii=False)} : {_format(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        return "[ " + ", ".join(_format(item, indent) for item in value) + " ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)
