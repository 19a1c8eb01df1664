"""JSON documents as values, and values as JSON in the layout of the real Hudi.

JSON can write half a character (a lone surrogate), which no text of a table is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyhudi.errors import CorruptData


def parse_json(data: bytes | bytearray | memoryview | str, description: str) -> Any:
    """The value of a JSON text.  description: the document, for the error, as `the index definitions are`.

    Raises CorruptData when it is not JSON, is nested too deeply, or holds half a character.
    """
    try:
        value = json.loads(bytes(data) if isinstance(data, memoryview) else data)
        # Every half that stands in a value was written as an escape.
        has_escapes = "\\u" in data if isinstance(data, str) else b"\\u" in bytes(data)
        if has_escapes:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"{description} not JSON: {error}") from error
    return value


def jackson_text(value: Any, depth: int = 0) -> str:
    """JSON as Jackson's pretty printer lays it out: a field a line, the entries of a list beside each other."""
    if isinstance(value, Mapping):
        inner = "  " * (depth + 1)
        fields = ",\n".join(f"{inner}{json.dumps(name)} : {jackson_text(field, depth + 1)}" for name, field in value.items())
        return "{\n" + fields + "\n" + "  " * depth + "}"
    if isinstance(value, list):
        return f"[ {', '.join(jackson_text(entry, depth) for entry in value)} ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)
