"""The functions of expression indexes, column at a time, as Spark evaluates them.

    identity                                the value itself
    year, month, day, hour                  of a date or timestamp, int
    date_format(format)                     of a date or timestamp, text
    from_unixtime(format)                   of seconds since the epoch, text
    unix_timestamp(format)                  of text, a date or a timestamp, seconds since the epoch
    to_date(format), to_timestamp(format)   of text; of a date or timestamp without a format
    date_add(days), date_sub(days)          of a date
    upper, lower, length                    of text
    substring(pos, len)                     of text; pos counts from 1, from the end when negative
    trim, ltrim, rtrim (trimString)         of text
    regexp_replace(pattern, replacement), regexp_extract(pattern, idx)   of text

Null gives null, and so does text that is not a date.  Timestamps with a zone are taken apart in the zone of the expression, which
has to be that of the queries, as in Spark, where it is the session's.

Patterns of dates are Java's; the letters y M d H h m s S a E D are known, others are refused.  Regular expressions are Java's as
far as they mean the same without backtracking: what looks around, refers back or is possessive is refused.  Unlike real Hudi,
columns of other types than those above are refused, not cast.

`split` is known and refused: its result is a list, of which there are neither ranges nor filters.

Source: docs/formats/metadata-table.md, expression index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.java_patterns import matched, translated
from pyhudi.records.text import value_text

IDENTITY = "identity"

_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # function: options that it needs, options that it may have
    IDENTITY: ((), ()),
    "year": ((), ()),
    "month": ((), ()),
    "day": ((), ()),
    "hour": ((), ()),
    "date_format": (("format",), ()),
    "from_unixtime": ((), ("format",)),
    "unix_timestamp": ((), ("format",)),
    "to_date": ((), ("format",)),
    "to_timestamp": ((), ("format",)),
    "date_add": (("days",), ()),
    "date_sub": (("days",), ()),
    "upper": ((), ()),
    "lower": ((), ()),
    "length": ((), ()),
    "substring": (("pos", "len"), ()),
    "trim": ((), ("trimString",)),
    "ltrim": ((), ("trimString",)),
    "rtrim": ((), ("trimString",)),
    "regexp_replace": (("pattern", "replacement"), ()),
    "regexp_extract": (("pattern", "idx"), ()),
}

_NUMBER_OPTIONS = frozenset({"days", "pos", "len", "idx"})
_FIELDS_OF_TIMES = ("year", "month", "day", "hour")

OPTION_NAMES = frozenset(name for pair in _OPTIONS.values() for names in pair for name in names)
"""Every option that some function has."""

_SECONDS_FORMAT = "yyyy-MM-dd HH:mm:ss"
_DEFAULTS = {
    "from_unixtime": {"format": _SECONDS_FORMAT},
    "unix_timestamp": {"format": _SECONDS_FORMAT},
    "trim": {"trimString": " "},
    "ltrim": {"trimString": " "},
    "rtrim": {"trimString": " "},
}
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
_MICROS = 1_000_000
_DAY_MICROS = 86_400 * _MICROS


@dataclass(frozen=True, slots=True)
class IndexExpression:
    """A function with its options.  zone: the IANA name of the zone in which timestamps are taken apart."""

    function: str
    options: tuple[tuple[str, str], ...] = ()
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.function == "split":
            raise Unsupported("an expression index over split: lists have neither ranges nor filters")
        known = _OPTIONS.get(self.function)
        if known is None:
            raise InvalidRequest(f"no expression index has the function {self.function!r}; there are: {', '.join(_OPTIONS)}")
        given = {name for name, _ in self.options}
        missing = [name for name in known[0] if name not in given]
        strange = sorted(given.difference(*known))
        if missing or strange:
            takes = ", ".join((*known[0], *(f"[{name}]" for name in known[1]))) or "none"
            raise InvalidRequest(f"the options of {self.function} are {takes}; it got {', '.join(sorted(given)) or 'none'}")

    def option(self, name: str) -> str | None:
        """The value of an option; None when it is not set."""
        return dict(self.options).get(name)

    def result_type(self, column: pa.DataType) -> pa.DataType:
        """The type of the results for a column of this type.  Raises as `evaluate` does."""
        return self.evaluate(pa.array([], column)).type

    def evaluate(self, values: pa.Array) -> pa.Array:
        """The result for each value, in order.

        Raises InvalidRequest when the function does not take values of this type or an option is not a value of its kind,
        Unsupported for patterns that are not understood.
        """
        result: pa.Array = _FUNCTIONS[self.function](self, values)
        return result

    def normalised(self) -> IndexExpression:
        """The expression of the same results with every option written out, in one way."""
        found = dict(self.options)
        for name in found.keys() & _NUMBER_OPTIONS:
            found[name] = str(self.number(name))
        for name, value in _DEFAULTS.get(self.function, {}).items():
            found.setdefault(name, value)
        return replace(self, options=tuple(sorted(found.items())))

    def depends_on_zone(self, column: pa.DataType) -> bool:
        """Whether results for a column of this type are others in another zone."""
        if self.function == "from_unixtime":
            return True
        if pa.types.is_timestamp(column) and column.tz is not None:
            return self.function in (*_FIELDS_OF_TIMES, "date_format", "to_date", "date_add", "date_sub")
        return self.function == "unix_timestamp" or (self.function == "to_timestamp" and not pa.types.is_timestamp(column))

    def number(self, name: str) -> int:
        """An option that is a whole number."""
        text = self.option(name) or ""
        if re.fullmatch(r"[+-]?[0-9]{1,9}", text) is None:
            raise InvalidRequest(f"option {name}={text!r} of {self.function} is not a whole number")
        return int(text)


def _fails(expression: IndexExpression, values: pa.Array, wanted: str) -> InvalidRequest:
    return InvalidRequest(f"an expression index over {expression.function} needs a column of {wanted}, this one is {values.type}")


def _text(expression: IndexExpression, values: pa.Array) -> pa.StringArray:
    if not pa.types.is_string(values.type):
        raise _fails(expression, values, "text")
    return values


def _local(expression: IndexExpression, values: pa.Array) -> pa.Array:
    """Dates and timestamps as timestamp[us] without a zone: what clocks show."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.timestamp("us"))
    if not pa.types.is_timestamp(kind):
        raise _fails(expression, values, "dates or timestamps")
    if kind.tz is None:
        return values.cast(pa.timestamp("us"), safe=False)
    return pc.local_timestamp(values.cast(pa.timestamp("us", expression.zone), safe=False))


def _instant(expression: IndexExpression, local: pa.Array) -> pa.Array:
    """What clocks show as timestamp[us, UTC]."""
    zoned = pc.assume_timezone(local, expression.zone, ambiguous="earliest", nonexistent="latest")
    return zoned.cast(pa.timestamp("us", "UTC"))


def _field_of(function: Callable[[pa.Array], pa.Array]) -> Callable[[IndexExpression, pa.Array], pa.Array]:
    return lambda expression, values: function(_local(expression, values)).cast(pa.int32())


def _date_format(expression: IndexExpression, values: pa.Array) -> pa.Array:
    return _formatted(_local(expression, values), expression.option("format") or "")


def _from_unixtime(expression: IndexExpression, values: pa.Array) -> pa.Array:
    if not pa.types.is_integer(values.type):
        raise _fails(expression, values, "whole numbers")
    seconds = values.cast(pa.int64())
    # Seconds that microseconds cannot hold are not a time that Spark could print either.
    limit = np.iinfo(np.int64).max // _MICROS
    seconds = pc.if_else(pc.less_equal(pc.abs(seconds), limit), seconds, pa.scalar(None, pa.int64()))
    moments = pc.multiply(seconds, _MICROS).cast(pa.timestamp("us", "UTC"))
    return _formatted(_local(expression, moments), expression.option("format") or _SECONDS_FORMAT)


def _unix_timestamp(expression: IndexExpression, values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        moments = _instant(expression, _parsed(values, expression.option("format") or _SECONDS_FORMAT))
    elif pa.types.is_timestamp(values.type) and values.type.tz is not None:
        moments = values
    else:
        moments = _instant(expression, _local(expression, values))
    # Towards zero, as Spark divides here; its cast of a timestamp to a number rounds down.
    micros = _micros(moments)
    return pc.divide(micros, pa.scalar(_MICROS, pa.int64()))


def _to_date(expression: IndexExpression, values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        pattern = expression.option("format")
        local = _cast_dates(values) if pattern is None else _parsed(values, pattern)
    else:
        local = _local(expression, values)
    return pc.floor_temporal(local, unit="day").cast(pa.date32())


def _to_timestamp(expression: IndexExpression, values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        return values
    if pa.types.is_string(values.type):
        pattern = expression.option("format")
        if pattern is None:
            raise Unsupported("an expression index over to_timestamp of text without a format")
        return _instant(expression, _parsed(values, pattern))
    return _instant(expression, _local(expression, values))


def _shifted(sign: int) -> Callable[[IndexExpression, pa.Array], pa.Array]:
    def shift(expression: IndexExpression, values: pa.Array) -> pa.Array:
        if pa.types.is_string(values.type):
            raise _fails(expression, values, "dates or timestamps")
        days = pc.floor_temporal(_local(expression, values), unit="day").cast(pa.date32()).view(pa.int32())
        return pc.add(days, sign * expression.number("days")).cast(pa.int32()).view(pa.date32())

    return shift


def _identity(expression: IndexExpression, values: pa.Array) -> pa.Array:
    return values


def _upper(expression: IndexExpression, values: pa.Array) -> pa.Array:
    texts = _text(expression, values)
    if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
        return pc.ascii_upper(texts)
    # Arrow maps one character to one; Java maps some to several.
    for single, several in _longer_upper():
        texts = pc.replace_substring(texts, single, several)
    return pc.utf8_upper(texts)


def _lower(expression: IndexExpression, values: pa.Array) -> pa.Array:
    texts = _text(expression, values)
    if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
        return pc.ascii_lower(texts)
    # A sigma at the end of a word has a form of its own, and a dotted capital I keeps its dot.
    texts = pc.replace_substring_regex(texts, r"(\pL\pM*)Σ(\PL|$)", r"\1ς\2")
    return pc.utf8_lower(pc.replace_substring(texts, "İ", "i̇"))


def _length(expression: IndexExpression, values: pa.Array) -> pa.Array:
    return pc.utf8_length(_text(expression, values)).cast(pa.int32())


def _substring(expression: IndexExpression, values: pa.Array) -> pa.Array:
    texts = _text(expression, values)
    position, count = expression.number("pos"), expression.number("len")
    if count <= 0:
        return pc.if_else(texts.is_valid(), "", texts)
    if position > 0:
        return pc.utf8_slice_codeunits(texts, position - 1, position - 1 + count)
    if position == 0:
        return pc.utf8_slice_codeunits(texts, 0, count)
    # Counted from the end; what lies before the beginning counts, and is not there.
    stop = position + count
    tail = pc.utf8_slice_codeunits(texts, position, stop) if stop < 0 else pc.utf8_slice_codeunits(texts, position)
    return tail if stop >= 0 or position >= -1 else _clipped(texts, position, count, tail)


def _clipped(texts: pa.StringArray, position: int, count: int, tail: pa.StringArray) -> pa.StringArray:
    short = pc.less(pc.add(pc.utf8_length(texts), position + count), 0)
    return pc.if_else(short, "", tail)


def _trim(trim: Callable[..., pa.Array]) -> Callable[[IndexExpression, pa.Array], pa.Array]:
    def run(expression: IndexExpression, values: pa.Array) -> pa.Array:
        return trim(_text(expression, values), characters=expression.option("trimString") or " ")

    return run


def _regexp_replace(expression: IndexExpression, values: pa.Array) -> pa.Array:
    pattern, groups = translated(expression.option("pattern") or "")
    return matched(
        lambda: pc.replace_substring_regex(
            _text(expression, values), pattern, _replacement(expression.option("replacement") or "", groups)
        )
    )


def _regexp_extract(expression: IndexExpression, values: pa.Array) -> pa.Array:
    texts = _text(expression, values)
    pattern, groups = translated(expression.option("pattern") or "")
    number = expression.number("idx")
    if not 0 <= number <= groups:
        raise InvalidRequest(f"option idx={number} of regexp_extract: the pattern has {groups} groups")
    found = matched(lambda: pc.extract_regex(texts, f"(?P<g0>{pattern})"))
    # extract_regex is null where nothing matches; Spark gives an empty text there.
    return pc.if_else(texts.is_valid(), pc.fill_null(pc.struct_field(found, f"g{number}"), ""), texts)


_FUNCTIONS: dict[str, Callable[[IndexExpression, pa.Array], pa.Array]] = {
    IDENTITY: _identity,
    "year": _field_of(pc.year),
    "month": _field_of(pc.month),
    "day": _field_of(pc.day),
    "hour": _field_of(pc.hour),
    "date_format": _date_format,
    "from_unixtime": _from_unixtime,
    "unix_timestamp": _unix_timestamp,
    "to_date": _to_date,
    "to_timestamp": _to_timestamp,
    "date_add": _shifted(1),
    "date_sub": _shifted(-1),
    "upper": _upper,
    "lower": _lower,
    "length": _length,
    "substring": _substring,
    "trim": _trim(pc.utf8_trim),
    "ltrim": _trim(pc.utf8_ltrim),
    "rtrim": _trim(pc.utf8_rtrim),
    "regexp_replace": _regexp_replace,
    "regexp_extract": _regexp_extract,
}


# Dates as text


@lru_cache(maxsize=64)
def _tokens(pattern: str) -> tuple[tuple[str, str], ...]:
    """The pieces of a date pattern: (letter, the run of it), or ('', literal text)."""
    tokens: list[tuple[str, str]] = []
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'", pattern):
        piece = match.group(0)
        if piece == "'" or piece[0] in "[]{}#":
            raise Unsupported(f"the date pattern {pattern!r}")
        if piece.startswith("'"):
            tokens.append(("", (match.group(1) or "'").replace("''", "'")))
        elif piece[0].isalpha():
            tokens.append((piece[0], piece))
        else:
            tokens.append(("", piece))
    return tuple(tokens)


def _formatted(local: pa.Array, pattern: str) -> pa.StringArray:
    """timestamp[us] without a zone as text."""
    if not pattern:
        raise InvalidRequest("a date pattern that is empty")
    parts = [_piece(local, letter, run, pattern) for letter, run in _tokens(pattern)]
    return pc.binary_join_element_wise(*parts, "") if parts else local.cast(pa.string())


def _piece(local: pa.Array, letter: str, run: str, pattern: str) -> pa.Array | pa.Scalar:
    width = len(run)
    if not letter:
        return pa.scalar(run, pa.string())
    if letter == "y" and width == 2:
        return _padded(_modulo(pc.year(local), 100), 2)
    if letter in _NUMBERS and width <= _NUMBERS[letter][1]:
        return _padded(_NUMBERS[letter][0](local), width)
    if letter == "M" and width in (3, 4):
        return _named(_MONTHS, width, pc.subtract(pc.month(local), 1))
    if letter == "E" and width <= 4:
        return _named(_WEEKDAYS, width, pc.day_of_week(local))
    if letter == "a" and width == 1:
        return pc.if_else(pc.less(pc.hour(local), 12), "AM", "PM")
    if letter == "S" and width <= 9:
        fraction = _padded(_modulo(_micros(local), _MICROS), 6)
        return pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, 9, "0"), 0, width)
    raise Unsupported(f"{run!r} in the date pattern {pattern!r}")


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


def _named(names: Sequence[str], width: int, places: pa.Array) -> pa.StringArray:
    return pa.array([name if width == 4 else name[:3] for name in names]).take(places)


_FIELDS = {"yyyy": r"[0-9]{4}", "MM": "[0-9]{2}", "dd": "[0-9]{2}", "HH": "[0-9]{2}", "mm": "[0-9]{2}", "ss": "[0-9]{2}"} | {
    letter: "[0-9]{1,2}" for letter in "MdHms"
}


def _parsed(texts: pa.StringArray, pattern: str) -> pa.Array:
    """Text as timestamp[us] without a zone; null where it does not follow the pattern or is not a time."""
    expression, seen = "", []
    for letter, run in _tokens(pattern):
        if not letter:
            expression += re.escape(run)
        elif letter == "S" and len(run) <= 6 and "S" not in seen:
            expression += f"(?P<S>[0-9]{{{len(run)}}})"
            seen.append("S")
        elif run in _FIELDS and letter not in seen:
            expression += f"(?P<{letter}>{_FIELDS[run]})"
            seen.append(letter)
        else:
            raise Unsupported(f"{run!r} in the date pattern {pattern!r}")
    if "y" not in seen:
        raise Unsupported(f"the date pattern {pattern!r} without yyyy")
    found = pc.extract_regex(texts, f"^{expression}$")
    numbers = {letter: pc.struct_field(found, letter) for letter in seen}
    if "S" in numbers:
        numbers["S"] = pc.utf8_rpad(numbers["S"], 6, "0")
    return _assembled(numbers, len(texts))


def _cast_dates(texts: pa.StringArray) -> pa.Array:
    """Text as Spark casts it to dates, as timestamp[us] at midnight."""
    form = r"^\s*(?P<y>[0-9]{4,7})(?:-(?P<M>[0-9]{1,2})(?:-(?P<d>[0-9]{1,2})(?:[ T].*)?)?)?\s*$"
    found = pc.extract_regex(texts, form)
    parts = {letter: pc.struct_field(found, letter) for letter in "yMd"}
    for letter in "Md":
        parts[letter] = pc.if_else(pc.equal(parts[letter], ""), "1", parts[letter])
    return _assembled(parts, len(texts))


def _assembled(parts: dict[str, pa.StringArray], count: int) -> pa.Array:
    """Digits of each field, all null together, as timestamp[us]; null where they are not a time."""
    is_there = np.asarray(parts["y"].is_valid(), dtype=np.bool_)

    def of(letter: str, default: int) -> npt.NDArray[np.int64]:
        digits = parts.get(letter)
        if digits is None:
            return np.full(count, default, dtype=np.int64)
        return np.asarray(pc.fill_null(digits, str(default)).cast(pa.int64()), dtype=np.int64)

    year, month, day = of("y", 1970), of("M", 1), of("d", 1)
    hour, minute, second, micros = of("H", 0), of("m", 0), of("s", 0), of("S", 0)
    valid = is_there & (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 60)
    # Years that microseconds can hold.
    valid &= (year >= 1) & (year <= 200_000)
    month, year = np.where(valid, month, 1), np.where(valid, year, 1970)
    first = _days_before(year, month)
    following = _days_before(np.where(month == 12, year + 1, year), np.where(month == 12, 1, month + 1))
    valid &= first + day <= following
    seconds = (first + day - 1) * 86_400 + hour * 3600 + minute * 60 + second
    return pa.array(np.where(valid, seconds * _MICROS + micros, 0), mask=~valid).cast(pa.timestamp("us"))


def _days_before(year: npt.NDArray[np.int64], month: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Days from 1970-01-01 to the first of a month of the Gregorian calendar."""
    shifted = year - (month <= 2)
    era, of_era = shifted // 400, shifted % 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5
    days: npt.NDArray[np.int64] = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days


def _micros(moments: pa.Array) -> pa.Int64Array:
    return moments.cast(pa.timestamp("us", moments.type.tz), safe=False).view(pa.int64())


def _modulo(numbers: pa.Array, divisor: int) -> pa.Array:
    """The remainder that is never negative."""
    values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    return pa.array(values % divisor, mask=np.asarray(numbers.is_null(), dtype=np.bool_))


# Text


@lru_cache(maxsize=1)
def _longer_upper() -> tuple[tuple[str, str], ...]:
    """Characters whose upper case is several characters."""
    return tuple((chr(code), chr(code).upper()) for code in range(0x80, 0x10000) if len(chr(code).upper()) > 1)


def _replacement(text: str, groups: int) -> str:
    """A Java replacement for RE2."""
    out, place = [], 0
    while place < len(text):
        char = text[place]
        following = text[place + 1 : place + 2]
        if char == "\\":
            if not following:
                raise InvalidRequest(f"option replacement={text!r} ends with a backslash")
            out.append("\\\\" if following == "\\" else following)
            place += 2
        elif char == "$":
            if not following.isdigit() or int(following) > groups or text[place + 2 : place + 3].isdigit():
                raise Unsupported(f"the replacement {text!r}")
            out.append(f"\\{following}")
            place += 2
        else:
            out.append(char)
            place += 1
    return "".join(out)


def filter_texts(results: pa.Array) -> pa.StringArray:
    """Results as a Bloom filter holds them, nulls left out.

    Raises Unsupported for types whose text differs between versions of Spark and Java, such as floating point and timestamps.
    """
    kind = results.type
    types = pa.types
    if not (types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_date32(kind)):
        raise Unsupported(f"a Bloom filter over results of type {kind}")
    return value_text(results.drop_null())
