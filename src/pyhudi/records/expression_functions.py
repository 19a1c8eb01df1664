"""Functions of expression indexes with Spark's semantics, vectorized over columns.

    identity                                the value itself
    year, month, day, hour                  of a date or timestamp, int
    date_format(format)                     of a date or timestamp, string
    from_unixtime(format)                   of seconds since the epoch, string
    unix_timestamp(format)                  of a string, date or timestamp, seconds since the epoch
    to_date(format), to_timestamp(format)   of a string; of a date or timestamp without a format
    date_add(days), date_sub(days)          of a date
    upper, lower, length                    of a string
    substring(pos, len)                     of a string; pos counts from 1, from the end if negative
    trim, ltrim, rtrim (trimString)         of a string
    regexp_replace(pattern, replacement), regexp_extract(pattern, idx)   of a string

The result is null for null and for strings that are not dates. Timestamps with a time zone are evaluated in the time
zone of the expression. It must equal that of the queries, which in Spark is the session's.

Date patterns are Java's; the letters y M d H h m s S a E D are supported. Regular expressions are Java's, as far as
they mean the same without backtracking: lookaround, backreferences and possessive quantifiers are rejected. Unlike
Hudi, columns of other types than those above are rejected, not cast.

`split` is rejected: its result is a list, for which there are no statistics and no filters.

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
    # function: required options, optional ones
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
"""Options of all functions."""

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
    """A function with its options.

    Attributes:
        function: Name of the function.
        options: Names and values of the options.
        zone: IANA name of the time zone in which timestamps are evaluated.
    """

    function: str
    options: tuple[tuple[str, str], ...] = ()
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.function == "split":
            raise Unsupported("expression indexes over split are not supported: lists have neither statistics nor filters")
        known = _OPTIONS.get(self.function)
        if known is None:
            raise InvalidRequest(
                f"function {self.function!r} is not supported in expression indexes; supported are: {', '.join(_OPTIONS)}"
            )
        names = {name for name, _ in self.options}
        missing = [name for name in known[0] if name not in names]
        unknown = sorted(names.difference(*known))
        if missing or unknown:
            accepted = ", ".join((*known[0], *(f"[{name}]" for name in known[1]))) or "none"
            raise InvalidRequest(
                f"function {self.function} has the options {accepted}, but options {', '.join(sorted(names)) or 'none'} are set"
            )

    def option(self, name: str) -> str | None:
        """Return the value of an option; None if it is not set."""
        return dict(self.options).get(name)

    def result_type(self, column: pa.DataType) -> pa.DataType:
        """Return the result type for a column of this type. Raises as `evaluate`."""
        return self.evaluate(pa.array([], column)).type

    def evaluate(self, values: pa.Array) -> pa.Array:
        """Evaluate the function for each value.

        Raises:
            InvalidRequest: The function does not support values of this type, or an option has an invalid value.
            Unsupported: A pattern that is not supported.
        """
        result: pa.Array = _FUNCTIONS[self.function](self, values)
        return result

    def normalised(self) -> IndexExpression:
        """Return an equivalent expression with all options set, in canonical form."""
        options = dict(self.options)
        for name in options.keys() & _NUMBER_OPTIONS:
            options[name] = str(self.number(name))
        for name, value in _DEFAULTS.get(self.function, {}).items():
            options.setdefault(name, value)
        return replace(self, options=tuple(sorted(options.items())))

    def depends_on_zone(self, column: pa.DataType) -> bool:
        """Return True if results for a column of this type depend on the time zone."""
        if self.function == "from_unixtime":
            return True
        if pa.types.is_timestamp(column) and column.tz is not None:
            return self.function in (*_FIELDS_OF_TIMES, "date_format", "to_date", "date_add", "date_sub")
        return self.function == "unix_timestamp" or (self.function == "to_timestamp" and not pa.types.is_timestamp(column))

    def number(self, name: str) -> int:
        """Return the value of an integer option."""
        text = self.option(name) or ""
        if re.fullmatch(r"[+-]?[0-9]{1,9}", text) is None:
            raise InvalidRequest(f"option {name}={text!r} of {self.function} is not a whole number")
        return int(text)


def _fails(expression: IndexExpression, values: pa.Array, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"an expression index over {expression.function} requires a column of {expected}, not of type {values.type}"
    )


def _text(expression: IndexExpression, values: pa.Array) -> pa.StringArray:
    if not pa.types.is_string(values.type):
        raise _fails(expression, values, "text")
    return values


def _local(expression: IndexExpression, values: pa.Array) -> pa.Array:
    """Convert dates and timestamps to wall clock times: timestamp[us] without a time zone."""
    type_ = values.type
    if pa.types.is_date32(type_):
        return values.cast(pa.timestamp("us"))
    if not pa.types.is_timestamp(type_):
        raise _fails(expression, values, "dates or timestamps")
    if type_.tz is None:
        return values.cast(pa.timestamp("us"), safe=False)
    return pc.local_timestamp(values.cast(pa.timestamp("us", expression.zone), safe=False))


def _instant(expression: IndexExpression, local: pa.Array) -> pa.Array:
    """Convert wall clock times to timestamp[us, UTC]."""
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
    # Spark cannot format seconds that overflow microseconds either.
    limit = np.iinfo(np.int64).max // MICROS
    seconds = pc.if_else(pc.less_equal(pc.abs(seconds), limit), seconds, pa.scalar(None, pa.int64()))
    instants = pc.multiply(seconds, MICROS).cast(pa.timestamp("us", "UTC"))
    return format_times(_local(expression, instants), expression.option("format") or _SECONDS_FORMAT)


def _unix_timestamp(expression: IndexExpression, values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        instants = _instant(expression, parse_times(values, expression.option("format") or _SECONDS_FORMAT))
    elif pa.types.is_timestamp(values.type) and values.type.tz is not None:
        instants = values
    else:
        instants = _instant(expression, _local(expression, values))
    # Rounds towards zero, as Spark does here; its cast of a timestamp to a number rounds down.
    micros = micros_from_timestamps(instants)
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
            raise Unsupported("an expression index over to_timestamp of strings requires option format")
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
    # A sigma at the end of a word has a special lower case, and a dotted capital I keeps its dot.
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
    # Counted from the end; positions before the beginning count, but have no characters.
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
    groups_of_rows = matched(lambda: pc.extract_regex(texts, f"(?P<g0>{pattern})"))
    # extract_regex returns null without a match; Spark returns the empty string.
    return pc.if_else(texts.is_valid(), pc.fill_null(pc.struct_field(groups_of_rows, f"g{number}"), ""), texts)


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
    """Return the characters whose upper case is several characters."""
    return tuple((chr(code), chr(code).upper()) for code in range(0x80, 0x10000) if len(chr(code).upper()) > 1)


def _replacement(text: str, groups: int) -> str:
    """Translate a Java replacement string to RE2."""
    out, index = [], 0
    while index < len(text):
        char = text[index]
        following = text[index + 1 : index + 2]
        if char == "\\":
            if not following:
                raise InvalidRequest(f"option replacement={text!r} ends with a backslash")
            out.append("\\\\" if following == "\\" else following)
            index += 2
        elif char == "$":
            if not following.isdigit() or int(following) > groups or text[index + 2 : index + 3].isdigit():
                raise Unsupported(f"replacement {text!r} is not supported")
            out.append(f"\\{following}")
            index += 2
        else:
            out.append(char)
            index += 1
    return "".join(out)


def filter_texts(results: pa.Array) -> pa.StringArray:
    """Return results as a Bloom filter contains them, without nulls.

    Raises:
        Unsupported: Types whose string form differs between versions of Spark and Java, such as floating point and
            timestamps.
    """
    type_ = results.type
    types = pa.types
    if not (types.is_string(type_) or types.is_integer(type_) or types.is_boolean(type_) or types.is_date32(type_)):
        raise Unsupported(f"a Bloom filter over results of type {type_} is not supported")
    return value_text(results.drop_null())
