"""JSON documents: parsing, and formatting in Hudi's layout (Jackson's pretty printer).

JSON escapes can encode a lone surrogate, which is not valid text in a table. Values are nested at most MAX_JSON_DEPTH deep,
so that recursive code does not exceed the stack; one level of a schema takes up to four levels of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyhudi.errors import CorruptData

MAX_JSON_DEPTH = 400


def parse_json(data: bytes | bytearray | memoryview | str, description: str) -> Any:
    """Return the value of a JSON text.

    Args:
        data: The text.
        description: Subject of the error message, such as `the index definitions are`.

    Raises:
        CorruptData: It is not JSON, is nested too deeply, or contains a lone surrogate.
    """
    try:
        value = json.loads(bytes(data) if isinstance(data, memoryview) else data)
        # A lone surrogate in a value can only come from an escape.
        has_escapes = "\\u" in data if isinstance(data, str) else b"\\u" in bytes(data)
        if has_escapes:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"{description} not JSON: {error}") from error
    # An object or list needs a character of its own, so most documents are too small to be nested deeply.
    if _opening_count(data) > MAX_JSON_DEPTH and _is_deeper(value, MAX_JSON_DEPTH):
        raise CorruptData(f"{description} nested more than {MAX_JSON_DEPTH} levels deep")
    return value


def _opening_count(data: bytes | bytearray | memoryview | str) -> int:
    if isinstance(data, str):
        return data.count("{") + data.count("[")
    content = bytes(data) if isinstance(data, memoryview) else data
    return content.count(b"{") + content.count(b"[")


def _is_deeper(value: Any, depth: int) -> bool:
    """Return whether a value has lists and objects at more than `depth` levels."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(depth):
        below = [part for node in level for part in (node.values() if type(node) is dict else node)]
        level = [part for part in below if type(part) is dict or type(part) is list]
        if not level:
            return False
    return True


def jackson_text(value: Any, depth: int = 0) -> str:
    """Format JSON as Jackson's pretty printer: one field a line, list entries on one line."""
    if isinstance(value, Mapping):
        inner = "  " * (depth + 1)
        fields = ",\n".join(f"{inner}{json.dumps(name)} : {jackson_text(field, depth + 1)}" for name, field in value.items())
        return "{\n" + fields + "\n" + "  " * depth + "}"
    if isinstance(value, list):
        return f"[ {', '.join(jackson_text(entry, depth) for entry in value)} ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)
