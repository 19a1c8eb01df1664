"""Regular expressions of Java, as the engine of Arrow's kernels (RE2) reads them.

What means the same in both is taken over or written anew; what RE2 has not (backreferences, looking ahead), and what the two
read in different ways, is refused.
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
    """A Java pattern for RE2, its groups named g1, g2, ...; and how many there are.  Raises Unsupported."""
    refused = Unsupported(f"the regular expression {pattern!r}")
    out, groups, place, depth = [], 0, 0, 0
    while place < len(pattern):
        char = pattern[place]
        if char == "\\":
            following = pattern[place + 1 : place + 2]
            if not following or following in "123456789kGRXhHvVZQEN":
                raise refused
            if following in _ESCAPED_SPACE:
                if depth and following == "S":
                    raise refused
                out.append(_ESCAPED_SPACE[following] if depth else f"[{_ESCAPED_SPACE[following]}]")
            else:
                out.append(char + following)
            place += 2
            continue
        if depth:
            if char == "[" or pattern.startswith("&&", place):
                raise refused
            depth -= char == "]"
            out.append(char)
        elif char == "[":
            depth += 1
            out.append(char)
            for literal in ("^", "]"):
                if pattern.startswith(literal, place + 1):
                    if literal == "]":
                        raise refused
                    out.append(literal)
                    place += 1
        elif char == "(":
            if pattern.startswith("(?", place):
                if not pattern.startswith("(?:", place):
                    raise refused
                out.append(char)
            else:
                groups += 1
                out.append(f"(?P<g{groups}>")
        elif (char == "$" and place + 1 < len(pattern)) or (char in "*+?}" and pattern[place + 1 : place + 2] == "+"):
            raise refused
        else:
            out.append(_OUTSIDE.get(char, char))
        place += 1
    return "".join(out), groups


def matched(run: Callable[[], pa.Array]) -> pa.Array:
    """What a kernel gives that is asked for a translated pattern.  Raises Unsupported for a pattern that RE2 refuses."""
    try:
        return run()
    except pa.ArrowInvalid as error:
        raise Unsupported(f"a regular expression that needs backtracking, or is none: {error}") from error


def is_found(pattern: str, text: str) -> bool:
    """Whether a Java pattern is found anywhere in a text, as by `Matcher.find`.  Raises Unsupported."""
    regex, _ = translated(pattern)
    return bool(matched(lambda: pc.match_substring_regex(pa.array([text], pa.string()), regex))[0].as_py())
