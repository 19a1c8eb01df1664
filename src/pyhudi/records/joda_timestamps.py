"""Joda-Time patterns: strings to instants and instants to strings, for the timestamp based key generator.

A pattern is a run of one letter per field, text in single quotes, and any other character as itself (two quotes are one):

    y Y   year              yyyy 2024, yy 24 (printing only)        H   hour 0-23        k   hour 1-24
    M     month             M 5, MM 05, MMM May, MMMM May           K   hour 0-11        h   hour 1-12
    d     day of month                                              m   minute           s   second
    D     day of year                                               S   fraction of a second, as many digits as letters
    E     day of week       E Mon, EEEE Monday                      a   AM or PM
    Z     offset            Z +0900, ZZ +09:00 (parsing also takes the letter Z)

A number has at least as many digits as letters when printed; when parsed it may have fewer, and it stops after two digits
(three for D), except that a year goes on for nine unless another number follows it at once.

Texts are English.  Not done, and refused with Unsupported: the letters G C x w e z, ZZZ, and parsing yy, whose century depends
on the day of the run.
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
# The time for which the text of each letter stays the same; a pattern changes as often as its finest letter.
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
"""The instants that have a wall clock in every zone: a day inside the years 1 to 9999."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_zone(name: str) -> tzinfo:
    """The zone of an identifier: `UTC`, `Z`, `GMT`, `Asia/Tokyo`, `+09:00`, `GMT+9`.  Raises InvalidRequest when unknown."""
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
    """A field (letter, how often) or, with letter "", a literal."""

    letter: str
    count: int
    literal: str = ""

    @property
    def is_number(self) -> bool:
        return self.letter in _NUMBERS or (self.letter == "M" and self.count <= 2)


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A Joda-Time pattern, ready to print and parse.  Build it with `parse_pattern`."""

    text: str
    tokens: tuple[_PatternToken, ...]

    @property
    def granularity_ms(self) -> int:
        """Two instants of one zone whose local time falls into the same step of this many milliseconds print alike."""
        return min((_GRANULARITY_MS[token.letter] for token in self.tokens if token.letter), default=86_400_000)

    @property
    def level_count(self) -> int:
        """Folder levels that a printed text spans: slashes in it, and one."""
        return 1 + sum(token.literal.count("/") for token in self.tokens)

    @property
    def has_offset(self) -> bool:
        """Whether the text says the offset of its zone."""
        return any(token.letter == "Z" for token in self.tokens)

    def format(self, epoch_ms: int, zone: tzinfo) -> str:
        """The text of an instant in a zone.  Raises InvalidRequest for instants outside the years 1 to 9999."""
        try:
            local = (_EPOCH + timedelta(milliseconds=epoch_ms)).astimezone(zone)
        except (OverflowError, ValueError) as error:
            raise InvalidRequest(
                f"{epoch_ms} milliseconds since the epoch is not in the years 1 to 9999: check the unit of the time column"
            ) from error
        return "".join(_format_token(token, local) if token.letter else token.literal for token in self.tokens)

    def parse(self, text: str, zone: tzinfo) -> int:
        """Milliseconds since the epoch of a text; its own offset counts, else `zone`.

        The whole text must match.  Fields that the pattern lacks are those of 1970-01-01T00:00:00, or of 2000 when it has
        a month or a day and no year.  A local time that the zone has twice is the earlier one.
        Raises InvalidRequest when the text does not match, and for a local time that the zone skips.
        """
        values: dict[str, int] = {}
        position = 0
        for index, token in enumerate(self.tokens):
            following = self.tokens[index + 1] if index + 1 < len(self.tokens) else None
            end = _parse_token(token, text, position, values, followed_by_number=following is not None and following.is_number)
            if end is None:
                raise InvalidRequest(f"the time {text!r} does not match the pattern {self.text!r} at character {position}")
            position = end
        if position != len(text):
            raise InvalidRequest(f"the time {text!r} goes on after the pattern {self.text!r} ends, at character {position}")
        try:
            return _instant_ms(values, zone)
        except (ValueError, OverflowError) as error:
            raise InvalidRequest(f"the time {text!r} is not a point in time under the pattern {self.text!r}: {error}") from error


def parse_pattern(text: str) -> TimePattern:
    """The pattern that a text describes.  Raises Unsupported for letters that are not built, InvalidRequest when empty."""
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
    """The wall clock of each instant in a zone, as milliseconds since 1970-01-01T00:00 of that wall clock (int64).

    The zone is asked once per day that occurs, and more finely only on days on which its offset changes.
    Raises InvalidRequest for instants outside the years 1 to 9999.
    """
    if len(epoch_ms) and not (epoch_ms.min() >= MIN_INSTANT_MS and epoch_ms.max() <= MAX_INSTANT_MS):
        raise InvalidRequest("an instant is not in the years 1 to 9999: check the unit of the time column")
    result = epoch_ms.copy()
    pending = np.arange(len(epoch_ms))
    for step in (86_400_000, 900_000, 1):
        starts, inverse = np.unique(epoch_ms[pending] // step, return_inverse=True)
        offsets = np.array([_offset_ms(int(start) * step, zone) for start in starts], dtype=np.int64)
        ends = offsets if step == 1 else np.array([_offset_ms(int(start + 1) * step, zone) for start in starts], dtype=np.int64)
        steady = (offsets == ends)[inverse]
        result[pending[steady]] += offsets[inverse[steady]]
        pending = pending[~steady]
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
    # Joda takes a quote that is not closed to the end of the pattern.
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
        # Fractions are cut, not rounded: the instant has milliseconds, further digits are zeros.
        return f"{local.microsecond // 1000:03d}"[:count].ljust(count, "0")
    if letter == "Z":
        return _format_offset(local, ":" if count == 2 else "")
    return f"{_number(letter, local):0{count}d}"


def _number(letter: str, local: datetime) -> int:
    if letter == "M":
        return local.month
    if letter == "d":
        return local.day
    if letter == "D":
        return local.timetuple().tm_yday
    if letter == "H":
        return local.hour
    if letter == "k":
        return local.hour or 24
    if letter == "K":
        return local.hour % 12
    if letter == "h":
        return local.hour % 12 or 12
    return local.minute if letter == "m" else local.second


def _format_offset(local: datetime, separator: str) -> str:
    offset = local.utcoffset() or timedelta()
    seconds = int(offset.total_seconds())
    sign = "-" if seconds < 0 else "+"
    minutes, rest = divmod(abs(seconds), 60)
    text = f"{sign}{minutes // 60:02d}{separator}{minutes % 60:02d}"
    return f"{text}{separator}{rest:02d}" if rest else text


def _parse_token(token: _PatternToken, text: str, start: int, values: dict[str, int], *, followed_by_number: bool) -> int | None:
    letter = token.letter
    if not letter:
        # Joda compares literals without regard to case.
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
        found = re.compile(rf"[0-9]{{1,{token.count}}}").match(text, start)
        if found:
            values["S"] = int(found[0].ljust(3, "0")[:3])
        return found.end() if found else None
    width = (token.count if followed_by_number else 9) if letter in "yY" else 3 if letter == "D" else 2
    sign = "[+-]?" if letter in "yY" else ""
    found = re.compile(rf"{sign}[0-9]{{1,{width}}}").match(text, start)
    if found:
        values["y" if letter == "Y" else letter] = int(found[0])
    return found.end() if found else None


def _parse_name(text: str, start: int, names: tuple[str, ...], key: str, values: dict[str, int]) -> int | None:
    for length in (None, 3):
        for index, name in enumerate(names):
            part = name[:length]
            if text[start : start + len(part)].lower() == part.lower():
                values[key] = index + 1
                return start + len(part)
    return None


def _parse_offset(text: str, start: int, values: dict[str, int]) -> int | None:
    found = re.compile(r"[Zz]|([+-])([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?").match(text, start)
    if found is None:
        return None
    seconds = int(found[2] or 0) * 3600 + int(found[3] or 0) * 60 + int(found[4] or 0)
    values["Z"] = -seconds if found[1] == "-" else seconds
    return found.end()


def _instant_ms(values: dict[str, int], zone: tzinfo) -> int:
    # Joda's default year is a leap year, so that the 29th of February can be parsed without one.
    year = values.get("y", 2000 if values.keys() & {"M", "d", "D"} else 1970)
    if "D" in values:
        day = date(year, 1, 1) + timedelta(days=values["D"] - 1)
        if day.year != year:
            raise ValueError(f"day {values['D']} is not in the year {year}")
    else:
        day = date(year, values.get("M", 1), values.get("d", 1))
    if "E" in values:
        # Joda moves the date within its week, which begins on Monday, to the day that is named.
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
