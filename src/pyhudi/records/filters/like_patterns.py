"""Patterns of LIKE: % is any text, _ one character, and a backslash takes the next character as it is."""

from __future__ import annotations

import re

from pyhudi.errors import InvalidRequest


def split_like_pattern(pattern: str) -> list[tuple[str, bool]]:
    """The pattern as (text, False) for literal characters and (%, True), (_, True) for wildcards."""
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
    """The text before the first wildcard, and whether there is none."""
    text = ""
    for char, wild in split_like_pattern(pattern):
        if wild:
            return text, False
        text += char
    return text, True


def is_prefix_pattern(pattern: str) -> bool:
    """Whether the pattern is literal text with one % behind it."""
    wilds = [char for char, wild in split_like_pattern(pattern) if wild]
    pieces = split_like_pattern(pattern)
    return wilds == ["%"] and pieces[-1] == ("%", True)


def like_regex(pattern: str) -> str:
    """The pattern as a regular expression of RE2 that matches the whole text."""
    body = "".join({"%": ".*", "_": "."}[char] if wild else _quoted(char) for char, wild in split_like_pattern(pattern))
    return f"(?s)^{body}\\z"


def _quoted(char: str) -> str:
    # RE2 and Python agree on a backslash before ASCII punctuation; letters and other characters stand for themselves.
    return "\\" + char if char.isascii() and not char.isalnum() and char.isprintable() and char != " " else char


def like_matches(pattern: str, text: str) -> bool:
    """Whether a text matches the pattern."""
    body = "".join({"%": ".*", "_": "."}[char] if wild else re.escape(char) for char, wild in split_like_pattern(pattern))
    return re.fullmatch(body, text, re.DOTALL) is not None
