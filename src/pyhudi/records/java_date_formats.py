"""Format and parse timestamps by Java date patterns with Spark's semantics, vectorized over columns.

Supported pattern letters: y M d H h m s S a E D; others raise Unsupported.

Source: docs/formats/metadata-table.md, expression index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)

MICROS = 1_000_000


@lru_cache(maxsize=64)
def _tokens(pattern: str) -> tuple[tuple[str, str], ...]:
    """Split a date pattern into (letter, run of the letter) and ('', literal text)."""
    tokens: list[tuple[str, str]] = []
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'", pattern):
        piece = match.group(0)
        if piece == "'" or piece[0] in "[]{}#":
            raise Unsupported(f"date pattern {pattern!r} is not supported")
        if piece.startswith("'"):
            tokens.append(("", (match.group(1) or "'").replace("''", "'")))
        elif piece[0].isalpha():
            tokens.append((piece[0], piece))
        else:
            tokens.append(("", piece))
    return tuple(tokens)


def format_times(local: pa.Array, pattern: str) -> pa.StringArray:
    """Format timestamp[us] without a time zone as strings.

    Args:
        local: Timestamps.
        pattern: Java date pattern.

    Raises:
        InvalidRequest: The pattern is empty.
        Unsupported: A pattern letter that is not supported.
    """
    if not pattern:
        raise InvalidRequest("the date pattern is empty")
    parts = [_format_token(local, letter, run, pattern) for letter, run in _tokens(pattern)]
    return pc.binary_join_element_wise(*parts, "") if parts else local.cast(pa.string())


def _format_token(local: pa.Array, letter: str, run: str, pattern: str) -> pa.Array | pa.Scalar:
    width = len(run)
    if not letter:
        return pa.scalar(run, pa.string())
    if letter == "y" and width == 2:
        return _padded(_modulo(pc.year(local), 100), 2)
    if letter in _NUMBERS and width <= _NUMBERS[letter][1]:
        return _padded(_NUMBERS[letter][0](local), width)
    if letter == "M" and width in (3, 4):
        return _format_name(_MONTHS, width, pc.subtract(pc.month(local), 1))
    if letter == "E" and width <= 4:
        return _format_name(_WEEKDAYS, width, pc.day_of_week(local))
    if letter == "a" and width == 1:
        return pc.if_else(pc.less(pc.hour(local), 12), "AM", "PM")
    if letter == "S" and width <= 9:
        fraction = _padded(_modulo(micros_from_timestamps(local), MICROS), 6)
        return pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, 9, "0"), 0, width)
    raise Unsupported(f"{run!r} in date pattern {pattern!r} is not supported")


_NUMBERS: dict[str, tuple[Callable[[pa.Array], pa.Array], int]] = {
    "y": (pc.year, 4),
    "M": (pc.month, 2),
    "d": (pc.day, 2),
    "H": (pc.hour, 2),
    "h": (lambda local: pc.add(_modulo(pc.add(pc.hour(local), 11), 12), 1), 2),
    "m": (pc.minute, 2),
    "s": (pc.second, 2),
    "D": (pc.day_of_year, 3),
}


def _padded(numbers: pa.Array, width: int) -> pa.StringArray:
    return pc.utf8_lpad(numbers.cast(pa.int64()).cast(pa.string()), width, "0")


def _format_name(names: Sequence[str], width: int, positions: pa.Array) -> pa.StringArray:
    return pa.array([name if width == 4 else name[:3] for name in names]).take(positions)


_FIELDS = {"yyyy": r"[0-9]{4}", "MM": "[0-9]{2}", "dd": "[0-9]{2}", "HH": "[0-9]{2}", "mm": "[0-9]{2}", "ss": "[0-9]{2}"} | {
    letter: "[0-9]{1,2}" for letter in "MdHms"
}


def parse_times(texts: pa.StringArray, pattern: str) -> pa.Array:
    """Parse strings as timestamp[us] without a time zone; null if a string does not match the pattern or is not a time.

    Args:
        pattern: Java date pattern.

    Raises:
        Unsupported: The pattern lacks yyyy, or has an element that is not supported.
    """
    expression, letters = "", []
    for letter, run in _tokens(pattern):
        if not letter:
            expression += re.escape(run)
        elif letter == "S" and len(run) <= 6 and "S" not in letters:
            expression += f"(?P<S>[0-9]{{{len(run)}}})"
            letters.append("S")
        elif run in _FIELDS and letter not in letters:
            expression += f"(?P<{letter}>{_FIELDS[run]})"
            letters.append(letter)
        else:
            raise Unsupported(f"{run!r} in date pattern {pattern!r} is not supported")
    if "y" not in letters:
        raise Unsupported(f"date pattern {pattern!r} without yyyy is not supported")
    groups = pc.extract_regex(texts, f"^{expression}$")
    numbers = {letter: pc.struct_field(groups, letter) for letter in letters}
    if "S" in numbers:
        numbers["S"] = pc.utf8_rpad(numbers["S"], 6, "0")
    return _timestamps_from_digits(numbers, len(texts))


def cast_dates(texts: pa.StringArray) -> pa.Array:
    """Cast strings to dates as Spark does, as timestamp[us] at midnight."""
    regex = r"^\s*(?P<y>[0-9]{4,7})(?:-(?P<M>[0-9]{1,2})(?:-(?P<d>[0-9]{1,2})(?:[ T].*)?)?)?\s*$"
    groups = pc.extract_regex(texts, regex)
    parts = {letter: pc.struct_field(groups, letter) for letter in "yMd"}
    for letter in "Md":
        parts[letter] = pc.if_else(pc.equal(parts[letter], ""), "1", parts[letter])
    return _timestamps_from_digits(parts, len(texts))


def _timestamps_from_digits(parts: dict[str, pa.StringArray], count: int) -> pa.Array:
    """Combine the digits of each field into timestamp[us]; null if they are not a time."""
    is_present = np.asarray(parts["y"].is_valid(), dtype=np.bool_)

    def field_values(letter: str, default: int) -> npt.NDArray[np.int64]:
        digits = parts.get(letter)
        if digits is None:
            return np.full(count, default, dtype=np.int64)
        return np.asarray(pc.fill_null(digits, str(default)).cast(pa.int64()), dtype=np.int64)

    year, month, day = field_values("y", 1970), field_values("M", 1), field_values("d", 1)
    hour, minute, second, micros = field_values("H", 0), field_values("m", 0), field_values("s", 0), field_values("S", 0)
    valid = is_present & (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 60)
    # Years that microseconds can represent.
    valid &= (year >= 1) & (year <= 200_000)
    month, year = np.where(valid, month, 1), np.where(valid, year, 1970)
    first = _days_before(year, month)
    next_month = _days_before(np.where(month == 12, year + 1, year), np.where(month == 12, 1, month + 1))
    valid &= first + day <= next_month
    seconds = (first + day - 1) * 86_400 + hour * 3600 + minute * 60 + second
    return pa.array(np.where(valid, seconds * MICROS + micros, 0), mask=~valid).cast(pa.timestamp("us"))


def _days_before(year: npt.NDArray[np.int64], month: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the days from 1970-01-01 to the first of a month of the Gregorian calendar."""
    shifted = year - (month <= 2)
    era, of_era = shifted // 400, shifted % 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5
    days: npt.NDArray[np.int64] = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days


def micros_from_timestamps(timestamps: pa.Array) -> pa.Int64Array:
    """Return the microseconds since the epoch of timestamps; finer digits are truncated."""
    return timestamps.cast(pa.timestamp("us", timestamps.type.tz), safe=False).view(pa.int64())


def _modulo(numbers: pa.Array, divisor: int) -> pa.Array:
    """Return the non-negative remainder."""
    values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    return pa.array(values % divisor, mask=np.asarray(numbers.is_null(), dtype=np.bool_))
