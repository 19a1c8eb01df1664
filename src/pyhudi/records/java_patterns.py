"""Translate Java regular expressions to RE2, the engine of Arrow's kernels.

Elements with equal meaning are kept or rewritten. Elements that RE2 lacks (backreferences, lookaround), and those that
the two engines interpret differently, are rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Unsupported

_OUTSIDE = {".": "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]", "$": "(?:\\n?\\z)"}
_ESCAPED_SPACE = {"s": " \\t\\n\\x0B\\f\\r", "S": "^ \\t\\n\\x0B\\f\\r"}


@lru_cache(maxsize=64)
def translated(pattern: str) -> tuple[str, int]:
    """Translate a Java pattern to RE2, with groups named g1, g2, ...; returns the pattern and the number of groups.

    Raises:
        Unsupported: The pattern cannot be translated.
    """
    refused = Unsupported(f"regular expression {pattern!r} is not supported")
    out, groups, index, depth = [], 0, 0, 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            following = pattern[index + 1 : index + 2]
            if not following or following in "123456789kGRXhHvVZQEN":
                raise refused
            if following in _ESCAPED_SPACE:
                if depth and following == "S":
                    raise refused
                out.append(_ESCAPED_SPACE[following] if depth else f"[{_ESCAPED_SPACE[following]}]")
            else:
                out.append(char + following)
            index += 2
            continue
        if depth:
            if char == "[" or pattern.startswith("&&", index):
                raise refused
            depth -= char == "]"
            out.append(char)
        elif char == "[":
            depth += 1
            out.append(char)
            for literal in ("^", "]"):
                if pattern.startswith(literal, index + 1):
                    if literal == "]":
                        raise refused
                    out.append(literal)
                    index += 1
        elif char == "(":
            if pattern.startswith("(?", index):
                if not pattern.startswith("(?:", index):
                    raise refused
                out.append(char)
            else:
                groups += 1
                out.append(f"(?P<g{groups}>")
        elif (char == "$" and index + 1 < len(pattern)) or (char in "*+?}" and pattern[index + 1 : index + 2] == "+"):
            raise refused
        else:
            out.append(_OUTSIDE.get(char, char))
        index += 1
    return "".join(out), groups


def matched(run: Callable[[], pa.Array]) -> pa.Array:
    """Run a kernel with a translated pattern.

    Raises:
        Unsupported: RE2 rejects the pattern.
    """
    try:
        return run()
    except pa.ArrowInvalid as error:
        raise Unsupported(f"regular expression is invalid or needs backtracking: {error}") from error


def is_found(pattern: str, text: str) -> bool:
    """Return True if a Java pattern matches anywhere in a string, as `Matcher.find` does.

    Raises:
        Unsupported: The pattern cannot be translated.
    """
    regex, _ = translated(pattern)
    return bool(matched(lambda: pc.match_substring_regex(pa.array([text], pa.string()), regex))[0].as_py())
