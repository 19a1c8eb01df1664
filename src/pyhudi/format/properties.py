r"""hoodie.properties and its kind: the text that Java's Properties writes, and the checksum of a table's.

    file     = (comment | pair)*          ISO-8859-1, lines end with \n, \r or \r\n
    comment  = blanks ("#" | "!") anything
    pair     = key separator value        separator: blanks, "=" or ":", with blanks around
    escapes    \t \n \r \f, \uXXXX (UTF-16 units), and a backslash before any other character, which stands for itself;
               a backslash at the end of a line joins the next one to it, without its leading blanks

Keys come back in the order of the text; of a key that stands twice the last value counts.  On writing, the order is that of
the mapping.

The checksum that Hudi keeps among the pairs covers the database and the table name and nothing else.  So the pairs of a table's
file that PyHudi writes stand between two equal comments:

    #pyhudi.pairs.crc32=1b2c3d4e      CRC-32 of all lines that are not comments

Other readers know nothing of them, and Java's Properties leaves them out when another writer changes the file.  The line that
says the format of base files is not in the sum: a reader refuses every format but the one that it expects.

Source: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.byte_cursor import checked_text

REDACTED = "****"

_SECRET = re.compile(
    r"secret|password|passwd|token|credential|(access|account|private|encryption|customer|sas)[._-]?key"
    r"|connection[._-]?string|(^|[._-])(pass|pwd|sas)($|[._-])",
    re.IGNORECASE,
)
_BLANKS = " \t\f"
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}
_SEAL = "pyhudi.pairs.crc32="
_UNSUMMED = re.compile(rb"^(#[^\n]*|hoodie\.table\.base\.file\.format=[A-Za-z]*)(\n|\Z)", re.MULTILINE)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def redact_secret(key: str, value: str) -> str:
    """The value of a property or an option as messages, listings and logs show it: hidden where the name tells of a secret."""
    return REDACTED if value and _SECRET.search(key) else value


def parse_properties(data: bytes) -> dict[str, str]:
    r"""The pairs of a properties file, values as they stand (blanks at their end included).

    Raises CorruptData for a broken \uXXXX or for UTF-16 units that make no character.
    """
    pairs: dict[str, str] = {}
    for line, offset in _logical_lines(data.decode("latin-1")):
        key_end, value_start = _split(line)
        key = _unescape(line[:key_end], offset)
        pairs[key] = _unescape(line[value_start:], offset)
    return pairs


def format_properties(values: Mapping[str, str], comments: Sequence[str] = ()) -> bytes:
    """The file of `values`, below one line for each comment.

    Raises InvalidRequest for a comment of several lines, and for half a character in a key or value.
    """
    lines = []
    for comment in comments:
        if "\n" in comment or "\r" in comment:
            raise InvalidRequest(f"A comment of a properties file is one line: {comment!r}")
        lines.append("#" + _escape_wide(comment))
    for key, value in values.items():
        checked_text(key, "the property")
        checked_text(value, f"the value of property {key},")
    lines += [f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}" for key, value in values.items()]
    return "".join(line + "\n" for line in lines).encode("latin-1")


def format_checksummed_properties(values: Mapping[str, str], comments: Sequence[str]) -> bytes:
    """As `format_properties`, with the checksum of the pairs before and after them."""
    pairs = format_properties(values)
    seal = f"#{_SEAL}{_sum_of_pairs(pairs)}\n".encode()
    return format_properties({}, comments) + seal + pairs + seal


def check_checksum(data: bytes) -> None:
    """Raises CorruptData when the pairs of a file are not those that its checksum is of; a file that has none passes."""
    places = {data.find(_SEAL.encode()), data.rfind(_SEAL.encode())}
    if places == {-1}:
        return
    expected = {data[place + len(_SEAL) :][:8].decode("latin-1") for place in places}
    if len(places) == 1 or expected != {_sum_of_pairs(data)}:
        raise CorruptData(
            "the pairs are not those that were written here; whoever changed them by hand, and means it, deletes the lines "
            f"that begin with #{_SEAL}",
            expected=" and ".join(sorted(expected)),
            found=_sum_of_pairs(data),
        )


def _sum_of_pairs(data: bytes) -> str:
    return f"{zlib.crc32(_UNSUMMED.sub(b'', data)):08x}"


def table_checksum(database: str, name: str) -> int:
    """The value of `hoodie.table.checksum`: unsigned CRC-32 of `database.name`; database: empty when the table has none."""
    return zlib.crc32(checked_text(f"{database}.{name}", "the table's name").encode())


def format_saved_comments(epoch_ms: int) -> tuple[str, str]:
    """The two comments above a new hoodie.properties.  epoch_ms: milliseconds since 1970 UTC."""
    return (f"Properties saved on {_iso(epoch_ms)}", format_java_date(epoch_ms))


def format_updated_comments(epoch_ms: int) -> tuple[str, str]:
    """The two comments above a changed hoodie.properties.  epoch_ms: milliseconds since 1970 UTC."""
    return (f"Updated at {_iso(epoch_ms)}", format_java_date(epoch_ms))


def format_java_date(epoch_ms: int) -> str:
    """The moment as Java's Date prints it in UTC: `Sat Nov 21 04:46:52 UTC 2026`.  English whatever the locale."""
    at = _moment(epoch_ms)
    return (
        f"{_DAYS[at.weekday()]} {_MONTHS[at.month - 1]} {at.day:02d} {at.hour:02d}:{at.minute:02d}:{at.second:02d} UTC {at.year}"
    )


def _logical_lines(text: str) -> list[tuple[str, int]]:
    """Lines that hold a pair: joined where a backslash ends one, without leading blanks; with the offset of the first."""
    lines: list[tuple[str, int]] = []
    pending: list[str] = []
    pending_offset = offset = 0
    for raw in _natural_lines(text):
        start, offset = offset, offset + len(raw)
        line = raw.rstrip("\r\n").lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            pending_offset = start
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            # An empty continuation still continues, which is why the list keeps empty parts.
            pending.append(line[:-1])
            continue
        pending.append(line)
        lines.append(("".join(pending), pending_offset))
        pending = []
    if pending:
        lines.append(("".join(pending), pending_offset))
    return lines


def _natural_lines(text: str) -> list[str]:
    # str.splitlines would also break at form feeds and other separators, which Java does not.
    lines: list[str] = []
    for part in text.split("\n"):
        pieces = part.split("\r")
        lines += [piece + "\r" for piece in pieces[:-1]]
        lines.append(pieces[-1] + "\n")
    return _with_pairs_joined(lines)


def _with_pairs_joined(lines: list[str]) -> list[str]:
    r"""Lines where a \r that a \n follows no longer stands alone."""
    joined: list[str] = []
    for line in lines:
        if line == "\n" and joined and joined[-1].endswith("\r"):
            joined[-1] += "\n"
        else:
            joined.append(line)
    return joined


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and where the value starts."""
    at, size = 0, len(line)
    while at < size and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    key_end = min(at, size)
    at = key_end
    while at < size and line[at] in _BLANKS:
        at += 1
    if at < size and line[at] in "=:":
        at += 1
        while at < size and line[at] in _BLANKS:
            at += 1
    return key_end, at


def _unescape(text: str, offset: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at, size, has_units = 0, len(text), False
    while True:
        found = text.find("\\", at)
        if found < 0 or found + 1 >= size:
            out.append(text[at : size if found < 0 else found])
            break
        out.append(text[at:found])
        escape = text[found + 1]
        at = found + 2
        if escape != "u":
            out.append(_PLAIN.get(escape, escape))
            continue
        digits = text[at : at + 4]
        if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise CorruptData("a \\uXXXX of a properties file has no four digits", offset=offset, found=digits)
        out.append(chr(int(digits, 16)))
        has_units = True
        at += 4
    value = "".join(out)
    if not has_units:
        return value
    try:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise CorruptData("a \\uXXXX of a properties file is half a character", offset=offset) from error


def _escape(text: str, *, is_key: bool) -> str:
    out = []
    for index, char in enumerate(text):
        if char == " ":
            out.append("\\ " if is_key or index == 0 else " ")
        elif char in _ESCAPED:
            out.append(_ESCAPED[char])
        elif " " < char <= "~":
            out.append(char)
        else:
            out.append(_units(char))
    return "".join(out)


def _escape_wide(text: str) -> str:
    return "".join(char if char <= "\xff" else _units(char) for char in text)


def _units(char: str) -> str:
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at]:02X}{data[at + 1]:02X}" for at in range(0, len(data), 2))


def _moment(epoch_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms)


def _iso(epoch_ms: int) -> str:
    at = _moment(epoch_ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
