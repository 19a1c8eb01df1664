r"""Java properties files (hoodie.properties), and the checksum of a table's properties.

    file     = (comment | pair)*          ISO-8859-1, lines end with \n, \r or \r\n
    comment  = blanks ("#" | "!") anything
    pair     = key separator value        separator: blanks, "=" or ":", with blanks around
    escapes    \t \n \r \f, \uXXXX (UTF-16 units), and a backslash before any other character, which represents itself;
               a backslash at the end of a line joins the next line to it, without its leading blanks

Parsing preserves the order of keys; of a repeated key the last value counts. Formatting uses the order of the mapping.

Hudi's own checksum among the pairs covers only the database and the table name. PyHudi therefore writes the pairs of a
table's file between two equal comments:

    #pyhudi.pairs.crc32=1b2c3d4e      CRC-32 of all lines that are not comments

Other readers ignore them, and Java's Properties drops them when another writer changes the file. The line with the base
file format is excluded from the sum: a reader rejects every format except the one that it expects.

Specification: docs/formats/timeline.md, "Other files of a table".
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
    r"secret|password|passwd|token|credential|(access|account|private|encryption|customer|master|sas|api)[._-]?key"
    r"|connection[._-]?string|custom[._-]headers|callback\.http\.url|(^|[._-])(pass|pwd|sas)($|[._-])",
    re.IGNORECASE,
)
_BLANKS = " \t\f"
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}
_TO_ESCAPE = re.compile(r"[^ -~]|[\\=:#!]")
_SEAL = "pyhudi.pairs.crc32="
_WITHOUT_CHECKSUM = re.compile(rb"^(#[^\n]*|hoodie\.table\.base\.file\.format=[A-Za-z]*)(\n|\Z)", re.MULTILINE)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def split_list(text: str | None) -> tuple[str, ...]:
    """Return the parts of a value with commas between them, without blanks around them; () for None."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def redact_secret(key: str, value: str) -> str:
    """Return the value of a property or option for messages, listings and logs: redacted if its name is that of a secret."""
    return REDACTED if value and _SECRET.search(key) else value


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Return the pairs of a properties file; trailing blanks of values are preserved.

    Raises:
        CorruptData: An invalid \uXXXX, or UTF-16 units that form no character.
    """
    pairs: dict[str, str] = {}
    for line, offset in _logical_lines(data.decode("latin-1")):
        key_end, value_start = _split(line)
        key = _unescape(line[:key_end], offset)
        pairs[key] = _unescape(line[value_start:], offset)
    return pairs


def format_properties(values: Mapping[str, str], comments: Sequence[str] = ()) -> bytes:
    """Return the file of `values`, below one line for each comment.

    Raises:
        InvalidRequest: A comment of several lines, or a lone surrogate in a key or value.
    """
    lines = []
    for comment in comments:
        if "\n" in comment or "\r" in comment:
            raise InvalidRequest(f"a comment of a properties file must be one line: {comment!r}")
        lines.append("#" + _escape_wide(comment))
    for key, value in values.items():
        checked_text(key, "the property")
        checked_text(value, f"the value of property {key},")
    lines += [f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}" for key, value in values.items()]
    return "".join(line + "\n" for line in lines).encode("latin-1")


def format_checksummed_properties(values: Mapping[str, str], comments: Sequence[str]) -> bytes:
    """Return the file as `format_properties`, with the checksum of the pairs before and after them."""
    pairs = format_properties(values)
    seal = f"#{_SEAL}{_sum_of_pairs(pairs)}\n".encode()
    return format_properties({}, comments) + seal + pairs + seal


def check_checksum(data: bytes) -> None:
    """Raise CorruptData if the pairs of a file do not match its checksum; a file without one passes."""
    places = {data.find(_SEAL.encode()), data.rfind(_SEAL.encode())}
    if places == {-1}:
        return
    expected = {data[place + len(_SEAL) :][:8].decode("latin-1") for place in places}
    if len(places) == 1 or expected != {_sum_of_pairs(data)}:
        raise CorruptData(
            "the pairs do not match their checksum; if the change by hand is intended, delete the lines "
            f"that begin with #{_SEAL}",
            expected=" and ".join(sorted(expected)),
            found=_sum_of_pairs(data),
        )


def _sum_of_pairs(data: bytes) -> str:
    return f"{zlib.crc32(_WITHOUT_CHECKSUM.sub(b'', data)):08x}"


def table_checksum(database: str, name: str) -> int:
    """Return the value of `hoodie.table.checksum`: unsigned CRC-32 of `database.name`.

    Args:
        database: Empty if the table has none.
        name: The table name.
    """
    return zlib.crc32(checked_text(f"{database}.{name}", "the table name").encode())


def format_saved_comments(epoch_ms: int) -> tuple[str, str]:
    """Return the two comments above a new hoodie.properties. epoch_ms: milliseconds since 1970 UTC."""
    return (f"Properties saved on {_iso(epoch_ms)}", format_java_date(epoch_ms))


def format_updated_comments(epoch_ms: int) -> tuple[str, str]:
    """Return the two comments above a changed hoodie.properties. epoch_ms: milliseconds since 1970 UTC."""
    return (f"Updated at {_iso(epoch_ms)}", format_java_date(epoch_ms))


def format_java_date(epoch_ms: int) -> str:
    """Return a timestamp as Java's Date prints it in UTC: `Sat Nov 21 04:46:52 UTC 2026`. Always English."""
    at = _utc_datetime(epoch_ms)
    return (
        f"{_DAYS[at.weekday()]} {_MONTHS[at.month - 1]} {at.day:02d} {at.hour:02d}:{at.minute:02d}:{at.second:02d} UTC {at.year}"
    )


def _logical_lines(text: str) -> list[tuple[str, int]]:
    """Return the lines with pairs and their offsets, joined at trailing backslashes, without leading blanks."""
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
            # An empty continuation still continues the line, so the list keeps empty parts.
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
    r"""Join each line that ends in \r to a following \n."""
    joined: list[str] = []
    for line in lines:
        if line == "\n" and joined and joined[-1].endswith("\r"):
            joined[-1] += "\n"
        else:
            joined.append(line)
    return joined


def _split(line: str) -> tuple[int, int]:
    """Return where the key ends and where the value starts."""
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
        backslash = text.find("\\", at)
        if backslash < 0 or backslash + 1 >= size:
            out.append(text[at : size if backslash < 0 else backslash])
            break
        out.append(text[at:backslash])
        escape = text[backslash + 1]
        at = backslash + 2
        if escape != "u":
            out.append(_PLAIN.get(escape, escape))
            continue
        digits = text[at : at + 4]
        if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise CorruptData("an invalid \\uXXXX escape in a properties file", offset=offset, found=digits)
        out.append(chr(int(digits, 16)))
        has_units = True
        at += 4
    value = "".join(out)
    if not has_units:
        return value
    try:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise CorruptData("a lone surrogate \\uXXXX in a properties file", offset=offset) from error


def _escape(text: str, *, is_key: bool) -> str:
    escaped = _TO_ESCAPE.sub(lambda match: _ESCAPED.get(match[0]) or _units(match[0]), text)
    if is_key:
        return escaped.replace(" ", "\\ ")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escape_wide(text: str) -> str:
    return "".join(char if char <= "\xff" else _units(char) for char in text)


def _units(char: str) -> str:
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at]:02X}{data[at + 1]:02X}" for at in range(0, len(data), 2))


def _utc_datetime(epoch_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms)


def _iso(epoch_ms: int) -> str:
    at = _utc_datetime(epoch_ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
