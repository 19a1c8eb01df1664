"""SQL LIKE patterns: % matches any text, _ one character, and a backslash escapes the next character."""

from __future__ import annotations

import re

from pyhudi.errors import InvalidRequest


def split_like_pattern(pattern: str) -> list[tuple[str, bool]]:
    """Split a pattern into (character, False) for literals and (%, True), (_, True) for wildcards."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            if position + 1 == len(pattern):
                raise InvalidRequest(f"the pattern {pattern!r} ends in a backslash")
            pieces.append((pattern[position + 1], False))
            position += 2
            continue
        pieces.append((char, char in "%_"))
        position += 1
    return pieces


def like_prefix(pattern: str) -> tuple[str, bool]:
    """Return the text before the first wildcard, and whether there is no wildcard."""
    text = ""
    for char, wild in split_like_pattern(pattern):
        if wild:
            return text, False
        text += char
    return text, True


def is_prefix_pattern(pattern: str) -> bool:
    """Return True if the pattern is literal text followed by one %."""
    wilds = [char for char, wild in split_like_pattern(pattern) if wild]
    pieces = split_like_pattern(pattern)
    return wilds == ["%"] and pieces[-1] == ("%", True)


def like_regex(pattern: str) -> str:
    """Convert a pattern to an RE2 regular expression that matches the whole text."""
    body = "".join({"%": ".*", "_": "."}[char] if wild else _quoted(char) for char, wild in split_like_pattern(pattern))
    return f"(?s)^{body}\\z"


def _quoted(char: str) -> str:
    # RE2 and Python agree on a backslash before ASCII punctuation; other characters are literals.
    return "\\" + char if char.isascii() and not char.isalnum() and char.isprintable() and char != " " else char


def like_matches(pattern: str, text: str) -> bool:
    """Return True if a text matches the pattern."""
    body = "".join({"%": ".*", "_": "."}[char] if wild else re.escape(char) for char, wild in split_like_pattern(pattern))
    return re.fullmatch(body, text, re.DOTALL) is not None
