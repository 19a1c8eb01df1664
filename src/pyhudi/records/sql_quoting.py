"""Names and texts in SQL statements: of Spark and of PyHudi's parser, and of the SQL standard (DuckDB, databases)."""

from __future__ import annotations


def quote_name(name: str) -> str:
    """Quote one name, with any characters; dots are part of it."""
    return f"`{name.replace('`', '``')}`"


def quote_text(text: str) -> str:
    """Write a text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_identifier(name: str) -> str:
    """Quote one name as in the SQL standard."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Write a text as a literal of the SQL standard, where a backslash is an ordinary character."""
    return "'" + text.replace("'", "''") + "'"
