"""Index definitions of the metadata table: the document `.hoodie/.index_defs/index.json`.

    { "indexDefinitions" : { <name> : { indexName, indexType, indexFunction, sourceFields [...], indexOptions {...} } } }

    name                type                         function      source fields            options
    column_stats        column_stats                 column_stats  columns with statistics  none
    secondary_index_x   secondary_index              identity      the column               none
    expr_index_x        column_stats, bloom_filters  its name      the column               expr, and what the function takes

Since release 1.1 a definition also has a `version`, "V1" or "V2": the layout of its records. Without one it is V1.

The name is that of the index's partition in the metadata table. Readers take the columns available for data skipping
from the `column_stats` entry, and fail on filtered queries if a table has column statistics without such an entry.
Readers open the document only if the table property hoodie.table.index.defs.path names it. Unknown fields are
preserved.

Specification: docs/formats/metadata-table.md, index definitions.
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
    """One index definition.

    Attributes:
        name: Partition of the metadata table.
        kind: Index type.
        function: Index function.
        source_fields: Indexed columns.
        options: In the order of the document.
        other: Fields of later versions, as JSON strings.
    """

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
        """Layout of the index's records, 1 or 2. Raises Unsupported for a later one."""
        text = dict(self.other).get(_VERSION)
        if text is None:
            return 1
        if text not in _LAYOUTS:
            raise Unsupported(f"unsupported layout {text} of index {self.name!r}: supported are {', '.join(_LAYOUTS)}")
        return _LAYOUTS[text]

    @property
    def by_partition(self) -> bool:
        """True if a record key is unique within a partition of the table only, and is looked up there."""
        return self.option(_PARTITIONED) == "true"

    @property
    def names_layout(self) -> bool:
        """True if the definition declares its layout, as release 1.1 and later require."""
        return _VERSION in dict(self.other)

    def with_declared_layout(self) -> IndexDefinition:
        """Return the same definition with its layout declared."""
        return self if self.names_layout else replace(self, other=(*self.other, (_VERSION, f'"V{self.layout}"')))

    def option(self, name: str) -> str | None:
        """Return the value of an option; None if it is not set."""
        return dict(self.options).get(name)


def check_declares_layout(definition: IndexDefinition) -> None:
    """Raise CorruptData for a definition that declares no layout, because its records could have any."""
    if not definition.names_layout:
        raise CorruptData(
            f"the definition of index {definition.name!r} has no version, which a table of version 9 needs",
            expected='"version" : "V1" or "V2"',
        )


def column_stats_definition(columns: Iterable[str], layout: int | None = None) -> IndexDefinition:
    """Return the definition of column statistics.

    Args:
        columns: The columns, in the order of the document.
        layout: Layout of the records; None if definitions do not declare it.
    """
    return IndexDefinition("column_stats", "column_stats", "column_stats", tuple(columns), other=declared_layout(layout))


def record_index_definition(*, by_partition: bool = False) -> IndexDefinition:
    """Return the definition of a record index, for tables whose definitions declare their layouts.

    Args:
        by_partition: Record keys are unique within a partition of the table only.
    """
    option = (_PARTITIONED, "true" if by_partition else "false")
    return IndexDefinition("record_index", "record_index", "", (), (option,), declared_layout(1))


def declared_layout(layout: int | None) -> tuple[tuple[str, str], ...]:
    """Return the entry of `IndexDefinition.other` that declares the layout."""
    return () if layout is None else ((_VERSION, f'"V{layout}"'),)


def parse_index_definitions(data: bytes) -> dict[str, IndexDefinition]:
    """Return the definitions by name, in the order of the document.

    Raises:
        CorruptData: The document is invalid.
    """
    document = parse_json(data, "the index definitions are")
    entries = document.get("indexDefinitions") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise CorruptData("the index definitions have no indexDefinitions")
    return {name: _parse_definition(name, entry) for name, entry in entries.items()}


def format_index_definitions(definitions: Iterable[IndexDefinition]) -> bytes:
    """Return the document in the layout of the Java writer.

    Raises:
        InvalidRequest: Two definitions share a name.
    """
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
        raise CorruptData(f"the definition of index {name!r} has invalid fields or options")
    return IndexDefinition(
        name,
        kind,
        function or "",
        tuple(fields),
        tuple((key, value if isinstance(value, str) else json.dumps(value)) for key, value in options.items()),
        tuple((key, json.dumps(value)) for key, value in entry.items() if key not in _KNOWN),
    )


def _format(value: Any, indent: str) -> str:
    """Format JSON with one field a line, a blank on both sides of the colon, and arrays on one line."""
    if isinstance(value, Mapping):
        if not value:
            return "{ }"
        inner = indent + "  "
        lines = (f"{inner}{json.dumps(key, ensure_ascii=False)} : {_format(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        return "[ " + ", ".join(_format(item, indent) for item in value) + " ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)
