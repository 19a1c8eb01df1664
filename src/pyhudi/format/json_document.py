"""JSON documents as values.  JSON can write half a character (a lone surrogate), which no text of a table is."""

from __future__ import annotations

import json
from typing import Any

from pyhudi.errors import CorruptData


def parse_json(data: bytes | bytearray | memoryview | str, what: str) -> Any:
    """The value of a JSON text.  what: the document, for the error, as `the index definitions are`.

    Raises CorruptData when it is not JSON, is nested too deeply, or holds half a character.
    """
    try:
        value = json.loads(bytes(data) if isinstance(data, memoryview) else data)
        # Every half that stands in a value was written as an escape.
        has_escapes = "\\u" in data if isinstance(data, str) else b"\\u" in bytes(data)
        if has_escapes:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"{what} not JSON: {error}") from error
    return value
