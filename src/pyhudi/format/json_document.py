"""JSON documents: parsing, and formatting in Hudi's layout (Jackson's pretty printer).

JSON escapes can encode a lone surrogate, which is not valid text in a table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyhudi.errors import CorruptData


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
    return value


def jackson_text(value: Any, depth: int = 0) -> str:
    """Format JSON as Jackson's pretty printer: one field a line, list entries on one line."""
    if isinstance(value, Mapping):
        inner = "  " * (depth + 1)
        fields = ",\n".join(f"{inner}{json.dumps(name)} : {jackson_text(field, depth + 1)}" for name, field in value.items())
        return "{\n" + fields + "\n" + "  " * depth + "}"
    if isinstance(value, list):
        return f"[ {', '.join(jackson_text(entry, depth) for entry in value)} ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)
