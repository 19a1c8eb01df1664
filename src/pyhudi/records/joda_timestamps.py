"""Joda-Time patterns: parse strings to instants and format instants, for the timestamp-based key generator.

A pattern consists of runs of one letter per field, literals in single quotes, and other characters, which represent
themselves (two quotes are one):

    y Y   year              yyyy 2024, yy 24 (printing only)        H   hour 0-23        k   hour 1-24
    M     month             M 5, MM 05, MMM May, MMMM May           K   hour 0-11        h   hour 1-12
    d     day of month                                              m   minute           s   second
    D     day of year                                               S   fraction of a second, as many digits as letters
    E     day of week       E Mon, EEEE Monday                      a   AM or PM
    Z     offset            Z +0900, ZZ +09:00 (parsing also accepts the letter Z)

A number is printed with at least as many digits as letters. When parsed it may have fewer digits, and ends after two
digits (three for D), except that a year may have nine digits unless another number follows it immediately.

Names are English. Not supported: the letters G C x w e z, ZZZ, and parsing yy, whose century depends on the current date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from pyhudi.errors import InvalidRequest, Unsupported

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NUMBERS = frozenset("yYDdHhKkmsS")
_SUPPORTED = _NUMBERS | frozenset("MEaZ")
# Interval in which the text of each letter is constant; a pattern changes as often as its finest letter.
_GRANULARITY_MS = {
    **dict.fromkeys("yYMdDE", 86_400_000),
    "a": 43_200_000,
    **dict.fromkeys("HhKk", 3_600_000),
    "m": 60_000,
    "s": 1_000,
    "S": 1,
    "Z": 900_000,
}
MIN_INSTANT_MS = -62_135_510_400_000
MAX_INSTANT_MS = 253_402_214_400_000
"""Instants whose wall clock is within the years 1 to 9999 in every time zone, with a margin of a day."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_zone(name: str) -> tzinfo:
    """Return the time zone of an identifier: `UTC`, `Z`, `GMT`, `Asia/Tokyo`, `+09:00`, `GMT+9`.

    Raises:
        InvalidRequest: Unknown identifier.
    """
    offset = re.fullmatch(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d{2}))?", name)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes > 18 * 60:
            raise InvalidRequest(f"unknown time zone {name!r}")
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    if name in ("Z", "GMT", "UTC", "UCT"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequest(f"unknown time zone {name!r}") from error


@dataclass(frozen=True, slots=True)
class _PatternToken:
    """A field (letter and count) or, with letter "", a literal."""

    letter: str
    count: int
    literal: str = ""

    @property
    def is_number(self) -> bool:
        return self.letter in _NUMBERS or (self.letter == "M" and self.count <= 2)


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A parsed Joda-Time pattern. Create it with `parse_pattern`.

    Attributes:
        text: The pattern.
        tokens: Fields and literals.
    """

    text: str
    tokens: tuple[_PatternToken, ...]

    @property
    def granularity_ms(self) -> int:
        """Step in milliseconds within which all local times of a time zone are printed alike."""
        return min((_GRANULARITY_MS[token.letter] for token in self.tokens if token.letter), default=86_400_000)

    @property
    def level_count(self) -> int:
        """Number of folder levels of a printed text: its slashes plus one."""
        return 1 + sum(token.literal.count("/") for token in self.tokens)

    @property
    def has_offset(self) -> bool:
        """True if the text contains the offset of its time zone."""
        return any(token.letter == "Z" for token in self.tokens)

    def format(self, epoch_ms: int, zone: tzinfo) -> str:
        """Format an instant in a time zone.

        Raises:
            InvalidRequest: The instant is outside the years 1 to 9999.
        """
        try:
            local = (_EPOCH + timedelta(milliseconds=epoch_ms)).astimezone(zone)
        except (OverflowError, ValueError) as error:
            raise InvalidRequest(
                f"{epoch_ms} milliseconds since the epoch is not in the years 1 to 9999: check the unit of the time column"
            ) from error
        return "".join(_format_token(token, local) if token.letter else token.literal for token in self.tokens)

    def parse(self, text: str, zone: tzinfo) -> int:
        """Parse a string to milliseconds since the epoch; an offset in the string overrides `zone`.

        The whole string must match. Fields that the pattern lacks are those of 1970-01-01T00:00:00, or of 2000 if it
        has a month or a day and no year. A local time that occurs twice in the time zone is the earlier one.

        Raises:
            InvalidRequest: The string does not match, or is a local time that the time zone skips.
        """
        values: dict[str, int] = {}
        position = 0
        for index, token in enumerate(self.tokens):
            next_token = self.tokens[index + 1] if index + 1 < len(self.tokens) else None
            end = _parse_token(token, text, position, values, followed_by_number=next_token is not None and next_token.is_number)
            if end is None:
                raise InvalidRequest(f"the time {text!r} does not match the pattern {self.text!r} at character {position}")
            position = end
        if position != len(text):
            raise InvalidRequest(
                f"the time {text!r} has more characters than the pattern {self.text!r} matches, from character {position} on"
            )
        try:
            return _instant_ms(values, zone)
        except (ValueError, OverflowError) as error:
            raise InvalidRequest(f"the time {text!r} is not a point in time under the pattern {self.text!r}: {error}") from error


def parse_pattern(text: str) -> TimePattern:
    """Parse a Joda-Time pattern.

    Raises:
        InvalidRequest: The pattern is empty.
        Unsupported: A pattern letter that is not supported.
    """
    if not text:
        raise InvalidRequest("the time pattern is empty")
    tokens: list[_PatternToken] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char.isascii() and char.isalpha():
            end = position
            while end < len(text) and text[end] == char:
                end += 1
            if char not in _SUPPORTED or (char == "Z" and end - position > 2):
                raise Unsupported(f"the letters {text[position:end]!r} of the time pattern {text!r} are not supported")
            tokens.append(_PatternToken(char, end - position))
            position = end
            continue
        literal = ""
        while position < len(text) and not (text[position].isascii() and text[position].isalpha()):
            if text[position] != "'":
                literal += text[position]
                position += 1
                continue
            if text.startswith("''", position):
                literal += "'"
                position += 2
                continue
            quoted, position = _quoted(text, position)
            literal += quoted
        tokens.append(_PatternToken("", 0, literal))
    return TimePattern(text, tuple(tokens))


def local_ms(epoch_ms: np.ndarray, zone: tzinfo) -> np.ndarray:
    """Return the wall clock of each instant in a time zone, as milliseconds since 1970-01-01T00:00 of that wall clock (int64).

    The zone's offset is looked up once per distinct day, and more finely only on days on which it changes.

    Raises:
        InvalidRequest: An instant is outside the years 1 to 9999.
    """
    if len(epoch_ms) and not (epoch_ms.min() >= MIN_INSTANT_MS and epoch_ms.max() <= MAX_INSTANT_MS):
        raise InvalidRequest("an instant is not in the years 1 to 9999: check the unit of the time column")
    result = epoch_ms.copy()
    pending = np.arange(len(epoch_ms))
    for step in (86_400_000, 900_000, 1):
        starts, inverse = np.unique(epoch_ms[pending] // step, return_inverse=True)
        offsets = np.array([_offset_ms(int(start) * step, zone) for start in starts], dtype=np.int64)
        ends = offsets if step == 1 else np.array([_offset_ms(int(start + 1) * step, zone) for start in starts], dtype=np.int64)
        is_constant = (offsets == ends)[inverse]
        result[pending[is_constant]] += offsets[inverse[is_constant]]
        pending = pending[~is_constant]
        if not len(pending):
            break
    return result


def _offset_ms(epoch_ms: int, zone: tzinfo) -> int:
    epoch_ms = min(max(epoch_ms, MIN_INSTANT_MS), MAX_INSTANT_MS)
    offset = (_EPOCH + timedelta(milliseconds=epoch_ms)).astimezone(zone).utcoffset() or timedelta()
    return offset // timedelta(milliseconds=1)


def _quoted(text: str, start: int) -> tuple[str, int]:
    result = ""
    position = start + 1
    while position < len(text):
        if text.startswith("''", position):
            result += "'"
            position += 2
        elif text[position] == "'":
            return result, position + 1
        else:
            result += text[position]
            position += 1
    # Joda accepts a quote that is not closed until the end of the pattern.
    return result, position


def _format_token(token: _PatternToken, local: datetime) -> str:
    letter, count = token.letter, token.count
    if letter in "yY":
        return f"{local.year % 100:02d}" if count == 2 else f"{local.year:0{count}d}"
    if letter == "M" and count > 2:
        name = _MONTHS[local.month - 1]
        return name if count > 3 else name[:3]
    if letter == "E":
        name = _DAYS[local.weekday()]
        return name if count > 3 else name[:3]
    if letter == "a":
        return "AM" if local.hour < 12 else "PM"
    if letter == "S":
        # Fractions are truncated, not rounded: the instant has milliseconds, further digits are zeros.
        return f"{local.microsecond // 1000:03d}"[:count].ljust(count, "0")
    if letter == "Z":
        return _format_offset(local, ":" if count == 2 else "")
    return f"{_number(letter, local):0{count}d}"


def _number(symbol: str, local: datetime) -> int:
    if symbol == "M":
        return local.month
    if symbol == "d":
        return local.day
    if symbol == "D":
        return local.timetuple().tm_yday
    if symbol == "H":
        return local.hour
    if symbol == "k":
        return local.hour or 24
    if symbol == "K":
        return local.hour % 12
    if symbol == "h":
        return local.hour % 12 or 12
    return local.minute if symbol == "m" else local.second


def _format_offset(local: datetime, separator: str) -> str:
    offset = local.utcoffset() or timedelta()
    seconds = int(offset.total_seconds())
    sign = "-" if seconds < 0 else "+"
    minutes, seconds_left = divmod(abs(seconds), 60)
    text = f"{sign}{minutes // 60:02d}{separator}{minutes % 60:02d}"
    return f"{text}{separator}{seconds_left:02d}" if seconds_left else text


def _parse_token(token: _PatternToken, text: str, start: int, values: dict[str, int], *, followed_by_number: bool) -> int | None:
    letter = token.letter
    if not letter:
        # Joda compares literals case-insensitively.
        end = start + len(token.literal)
        return end if text[start:end].lower() == token.literal.lower() else None
    if letter == "M" and token.count > 2:
        return _parse_name(text, start, _MONTHS, "M", values)
    if letter == "E":
        return _parse_name(text, start, _DAYS, "E", values)
    if letter == "a":
        return _parse_name(text, start, ("AM", "PM"), "a", values)
    if letter == "Z":
        return _parse_offset(text, start, values)
    if letter in "yY" and token.count == 2:
        raise Unsupported(
            "a pattern with a year of two digits (yy) cannot be parsed: its century depends on today's date; use yyyy"
        )
    if letter == "S":
        digits = re.compile(rf"[0-9]{{1,{token.count}}}").match(text, start)
        if digits:
            values["S"] = int(digits[0].ljust(3, "0")[:3])
        return digits.end() if digits else None
    width = (token.count if followed_by_number else 9) if letter in "yY" else 3 if letter == "D" else 2
    sign = "[+-]?" if letter in "yY" else ""
    digits = re.compile(rf"{sign}[0-9]{{1,{width}}}").match(text, start)
    if digits:
        values["y" if letter == "Y" else letter] = int(digits[0])
    return digits.end() if digits else None


def _parse_name(text: str, start: int, names: tuple[str, ...], key: str, values: dict[str, int]) -> int | None:
    for length in (None, 3):
        for index, name in enumerate(names):
            prefix = name[:length]
            if text[start : start + len(prefix)].lower() == prefix.lower():
                values[key] = index + 1
                return start + len(prefix)
    return None


def _parse_offset(text: str, start: int, values: dict[str, int]) -> int | None:
    match = re.compile(r"[Zz]|([+-])([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?").match(text, start)
    if match is None:
        return None
    seconds = int(match[2] or 0) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    values["Z"] = -seconds if match[1] == "-" else seconds
    return match.end()


def _instant_ms(values: dict[str, int], zone: tzinfo) -> int:
    # Joda's default year is a leap year, so that February 29 can be parsed without a year.
    year = values.get("y", 2000 if values.keys() & {"M", "d", "D"} else 1970)
    if "D" in values:
        day = date(year, 1, 1) + timedelta(days=values["D"] - 1)
        if day.year != year:
            raise ValueError(f"day {values['D']} is not in the year {year}")
    else:
        day = date(year, values.get("M", 1), values.get("d", 1))
    if "E" in values:
        # Joda moves the date within its week, which begins on Monday, to the parsed day of week.
        day += timedelta(days=values["E"] - 1 - day.weekday())
    local = datetime(
        day.year, day.month, day.day, _hour(values), values.get("m", 0), values.get("s", 0), values.get("S", 0) * 1000
    )
    if "Z" in values:
        zone = timezone(timedelta(seconds=values["Z"]))
    instant = local.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) != local:
        raise ValueError(f"{local} is skipped in the time zone {zone}")
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def _hour(values: dict[str, int]) -> int:
    for letter, low, high in (("H", 0, 23), ("k", 1, 24), ("K", 0, 11), ("h", 1, 12)):
        if letter in values and not low <= values[letter] <= high:
            raise ValueError(f"hour {values[letter]} is not in {low} to {high}")
    if "H" in values:
        return values["H"]
    if "k" in values:
        return values["k"] % 24
    half = values.get("K", values.get("h", 0) % 12)
    return half + 12 if values.get("a", 1) == 2 else half
