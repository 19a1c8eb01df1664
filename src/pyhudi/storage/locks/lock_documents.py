"""The JSON objects that stand in files of locks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def fields_of(data: bytes) -> Mapping[str, Any]:
    """The fields of a JSON object; none where the bytes are no such thing."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
