"""Names and texts in statements of Spark SQL, and of the statements that PyHudi parses."""

from __future__ import annotations


def quote_name(name: str) -> str:
    """Quote one name, with any characters; dots are part of it."""
    return f"`{name.replace('`', '``')}`"


def quote_text(text: str) -> str:
    """Write a text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
