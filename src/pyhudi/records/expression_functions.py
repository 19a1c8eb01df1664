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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.java_date_formats import MICROS, cast_dates, format_times, micros_from_timestamps, parse_times
from pyhudi.records.java_patterns import matched, translated
from pyhudi.records.java_strings import value_text

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


def _fails(expression: IndexExpression, values: pa.Array, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"an expression index over {expression.function} needs a column of {expected}, this one is {values.type}"
    )


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
    return format_times(_local(expression, values), expression.option("format") or "")


def _from_unixtime(expression: IndexExpression, values: pa.Array) -> pa.Array:
    if not pa.types.is_integer(values.type):
        raise _fails(expression, values, "whole numbers")
    seconds = values.cast(pa.int64())
    # Seconds that microseconds cannot hold are not a time that Spark could print either.
    limit = np.iinfo(np.int64).max // MICROS
    seconds = pc.if_else(pc.less_equal(pc.abs(seconds), limit), seconds, pa.scalar(None, pa.int64()))
    moments = pc.multiply(seconds, MICROS).cast(pa.timestamp("us", "UTC"))
    return format_times(_local(expression, moments), expression.option("format") or _SECONDS_FORMAT)


def _unix_timestamp(expression: IndexExpression, values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        moments = _instant(expression, parse_times(values, expression.option("format") or _SECONDS_FORMAT))
    elif pa.types.is_timestamp(values.type) and values.type.tz is not None:
        moments = values
    else:
        moments = _instant(expression, _local(expression, values))
    # Towards zero, as Spark divides here; its cast of a timestamp to a number rounds down.
    micros = micros_from_timestamps(moments)
    return pc.divide(micros, pa.scalar(MICROS, pa.int64()))


def _to_date(expression: IndexExpression, values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        pattern = expression.option("format")
        local = cast_dates(values) if pattern is None else parse_times(values, pattern)
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
        return _instant(expression, parse_times(values, pattern))
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
