"""Limit on what stored bytes may expand to, by decompression or by references, so that a small file cannot fill memory."""

from __future__ import annotations

from typing import Final

MAX_EXPANDED_BYTES: Final = 1 << 30
_ALWAYS_ALLOWED_BYTES: Final = 16 << 20
# Documents and index blocks compress to a tenth; an expansion by hundreds is a decompression bomb.
MAX_RATIO: Final = 200


def expansion_limit(stored_bytes: int) -> int:
    """Return the largest number of bytes that `stored_bytes` may expand to: 200 times, at least 16 MiB, at most 1 GiB."""
    return min(MAX_EXPANDED_BYTES, max(_ALWAYS_ALLOWED_BYTES, MAX_RATIO * stored_bytes))
