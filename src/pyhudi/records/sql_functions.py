"""SQL functions of one column with Spark's semantics, vectorized: for filters, SQL expressions and expression indexes.

`COLUMN_FUNCTIONS` declares each of them once. `records.filters.filter_functions` adds operators and casts.

    identity                                the value itself
    year, quarter, month, day, hour, ...    of a date or timestamp, int
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.java_date_formats import MICROS, cast_dates, format_times, micros_from_timestamps, parse_times
from pyhudi.records.java_patterns import matched, translated
from pyhudi.records.java_strings import value_text
from pyhudi.records.spark_functions import (
    SECONDS_FORMAT,
    Renderer,
    render_call,
    render_date_format,
    render_date_function,
    render_from_unixtime,
    render_time_field,
    render_to_date,
    render_to_timestamp,
    render_unix_timestamp,
)

IDENTITY = "identity"
_WHOLE_SUBSTRING = 999_999_999


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFunction:
    """A function of SQL.

    Attributes:
        render: Returns the Spark SQL of a call.
        aliases: Further names.
        is_monotonic: The results for dates and timestamps are in the order of the values; a function of the expression
            for one that depends on its options, and that also applies to other types.
        monotonic_within: Unit of time within which the results are in the order of the values.
    """

    render: Renderer = render_call
    aliases: tuple[str, ...] = ()
    is_monotonic: bool | Callable[[IndexExpression], bool] = False
    monotonic_within: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionOption:
    """An option of an expression index, and a literal argument after the first in a filter.

    Attributes:
        name: Name of the option.
        is_required: An expression index has to set it.
        is_number: Its value is a whole number.
        default: Value in an expression index that does not set it.
        omitted: Value in a filter that omits the argument, if it is not optional.
        is_argument: False if filters do not accept it.
    """

    name: str
    is_required: bool = False
    is_number: bool = False
    default: str | None = None
    omitted: int | None = None
    is_argument: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFunction(SqlFunction):
    """A function of one column with literal options.

    Attributes:
        evaluate: Evaluates an expression on the values of its column.
        options: Options, in the order of the arguments.
        is_indexable: Hudi supports expression indexes over it.
        depends_on_zone: Returns True if results for a column type depend on the time zone.
    """

    evaluate: Callable[[IndexExpression, pa.Array], pa.Array]
    options: tuple[FunctionOption, ...] = ()
    is_indexable: bool = True
    depends_on_zone: Callable[[pa.DataType], bool] = lambda _: False


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
        if self.function not in COLUMN_FUNCTIONS:
            raise _not_indexable(self.function)
        declared = COLUMN_FUNCTIONS[self.function].options
        names = {name for name, _ in self.options}
        missing = [option.name for option in declared if option.is_required and option.name not in names]
        unknown = sorted(names.difference(option.name for option in declared))
        if missing or unknown:
            accepted = ", ".join(option.name if option.is_required else f"[{option.name}]" for option in declared) or "none"
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
        return COLUMN_FUNCTIONS[self.function].evaluate(self, values)

    def normalized(self) -> IndexExpression:
        """Return an equivalent expression with all options set, in canonical form."""
        options = dict(self.options)
        for option in COLUMN_FUNCTIONS[self.function].options:
            if option.is_number and option.name in options:
                options[option.name] = str(self.number(option.name))
            if option.default is not None:
                options.setdefault(option.name, option.default)
        return replace(self, options=tuple(sorted(options.items())))

    def depends_on_zone(self, column: pa.DataType) -> bool:
        """Return True if results for a column of this type depend on the time zone."""
        return COLUMN_FUNCTIONS[self.function].depends_on_zone(column)

    def check_indexable(self) -> None:
        """Check that expression indexes support the function. Raises InvalidRequest."""
        if not COLUMN_FUNCTIONS[self.function].is_indexable:
            raise _not_indexable(self.function)

    def number(self, name: str) -> int:
        """Return the value of an integer option."""
        text = self.option(name) or ""
        if re.fullmatch(r"[+-]?[0-9]{1,9}", text) is None:
            raise InvalidRequest(f"option {name}={text!r} of {self.function} is not a whole number")
        return int(text)


def _not_indexable(function: str) -> InvalidRequest:
    known = ", ".join(name for name, declared in COLUMN_FUNCTIONS.items() if declared.is_indexable)
    return InvalidRequest(f"function {function!r} is not supported in expression indexes; supported are: {known}")


def _wrong_column_type(expression: IndexExpression, values: pa.Array, expected: str) -> InvalidRequest:
    return InvalidRequest(f"{expression.function} requires a column of {expected}, not of type {values.type}")


def _text(expression: IndexExpression, values: pa.Array) -> pa.StringArray:
    if not pa.types.is_string(values.type):
        raise _wrong_column_type(expression, values, "text")
    return values


def _local(expression: IndexExpression, values: pa.Array) -> pa.Array:
    """Convert dates and timestamps to wall clock times: timestamp[us] without a time zone."""
    type_ = values.type
    if pa.types.is_date32(type_):
        return values.cast(pa.timestamp("us"))
    if not pa.types.is_timestamp(type_):
        raise _wrong_column_type(expression, values, "dates or timestamps")
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
        raise _wrong_column_type(expression, values, "whole numbers")
    seconds = values.cast(pa.int64())
    # Spark cannot format seconds that overflow microseconds either.
    limit = np.iinfo(np.int64).max // MICROS
    seconds = pc.if_else(pc.less_equal(pc.abs(seconds), limit), seconds, pa.scalar(None, pa.int64()))
    instants = pc.multiply(seconds, MICROS).cast(pa.timestamp("us", "UTC"))
    return format_times(_local(expression, instants), expression.option("format") or SECONDS_FORMAT)


def _unix_timestamp(expression: IndexExpression, values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        instants = _instant(expression, parse_times(values, expression.option("format") or SECONDS_FORMAT))
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
            raise Unsupported("to_timestamp of strings requires a format")
        return _instant(expression, parse_times(values, pattern))
    return _instant(expression, _local(expression, values))


def _date_shift(sign: int) -> Callable[[IndexExpression, pa.Array], pa.Array]:
    def shift(expression: IndexExpression, values: pa.Array) -> pa.Array:
        if pa.types.is_string(values.type):
            raise _wrong_column_type(expression, values, "dates or timestamps")
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


_SORTED_PATTERN = re.compile(
    r"yyyy([^A-Za-z'\[\]{}#]*MM([^A-Za-z'\[\]{}#]*dd([^A-Za-z'\[\]{}#]*HH([^A-Za-z'\[\]{}#]*mm([^A-Za-z'\[\]{}#]*ss)?)?)?)?)?"
)
"""Patterns whose formatted times sort like the times."""


def _has_sorted_pattern(expression: IndexExpression) -> bool:
    return _SORTED_PATTERN.fullmatch(expression.option("format") or SECONDS_FORMAT) is not None


def _is_prefix(expression: IndexExpression) -> bool:
    return expression.number("pos") in (0, 1)


def _is_instant(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.tz is not None)


def _time_function(
    evaluate: Callable[[IndexExpression, pa.Array], pa.Array],
    render: Renderer,
    *options: FunctionOption,
    aliases: tuple[str, ...] = (),
    is_monotonic: bool | Callable[[IndexExpression], bool] = True,
    depends_on_zone: Callable[[pa.DataType], bool] = _is_instant,
) -> ColumnFunction:
    return ColumnFunction(
        evaluate=evaluate,
        render=render,
        options=options,
        aliases=aliases,
        is_monotonic=is_monotonic,
        depends_on_zone=depends_on_zone,
    )


def _field(
    function: Callable[[pa.Array], pa.Array],
    within: str | None,
    *,
    is_indexable: bool = False,
    render: Renderer = render_date_function,
    aliases: tuple[str, ...] = (),
) -> ColumnFunction:
    field = _time_function(_field_of(function), render, aliases=aliases, is_monotonic=False)
    return replace(field, monotonic_within=within, is_indexable=is_indexable)


def _text_function(
    evaluate: Callable[[IndexExpression, pa.Array], pa.Array], *options: FunctionOption, aliases: tuple[str, ...] = ()
) -> ColumnFunction:
    return ColumnFunction(evaluate=evaluate, options=options, aliases=aliases)


def _trim_function(trim: Callable[..., pa.Array]) -> ColumnFunction:
    return _text_function(_trim(trim), FunctionOption("trimString", default=" ", is_argument=False))


_FORMAT = FunctionOption("format")
_FORMAT_OF_SECONDS = FunctionOption("format", default=SECONDS_FORMAT)
_DAYS = FunctionOption("days", is_required=True, is_number=True)

COLUMN_FUNCTIONS: Mapping[str, ColumnFunction] = {
    IDENTITY: ColumnFunction(evaluate=_identity),
    "year": replace(_field(pc.year, None, is_indexable=True), is_monotonic=True),
    "month": _field(pc.month, "year", is_indexable=True),
    "day": _field(pc.day, "month", is_indexable=True, aliases=("dayofmonth",)),
    "hour": _field(pc.hour, "day", is_indexable=True, render=render_time_field),
    "minute": _field(pc.minute, "hour", render=render_time_field),
    "second": _field(pc.second, "minute", render=render_time_field),
    "quarter": _field(pc.quarter, "year"),
    "dayofweek": _field(lambda times: pc.day_of_week(times, count_from_zero=False, week_start=7), None),
    "weekday": _field(pc.day_of_week, None),
    "dayofyear": _field(pc.day_of_year, "year"),
    "weekofyear": _field(pc.iso_week, None),
    "date_format": _time_function(
        _date_format, render_date_format, replace(_FORMAT, is_required=True), is_monotonic=_has_sorted_pattern
    ),
    "from_unixtime": _time_function(
        _from_unixtime,
        render_from_unixtime,
        _FORMAT_OF_SECONDS,
        is_monotonic=_has_sorted_pattern,
        depends_on_zone=lambda _: True,
    ),
    "unix_timestamp": _time_function(
        _unix_timestamp, render_unix_timestamp, _FORMAT_OF_SECONDS, depends_on_zone=lambda type_: not _is_instant(type_)
    ),
    "to_date": _time_function(_to_date, render_to_date, _FORMAT, aliases=("date",)),
    "to_timestamp": _time_function(
        _to_timestamp, render_to_timestamp, _FORMAT, depends_on_zone=lambda type_: not pa.types.is_timestamp(type_)
    ),
    "date_add": _time_function(_date_shift(1), render_date_function, _DAYS, aliases=("dateadd",)),
    "date_sub": _time_function(_date_shift(-1), render_date_function, _DAYS),
    "upper": _text_function(_upper, aliases=("ucase",)),
    "lower": _text_function(_lower, aliases=("lcase",)),
    "length": _text_function(_length, aliases=("char_length", "character_length")),
    "substring": replace(
        _text_function(
            _substring,
            FunctionOption("pos", is_required=True, is_number=True),
            FunctionOption("len", is_required=True, is_number=True, omitted=_WHOLE_SUBSTRING),
            aliases=("substr",),
        ),
        is_monotonic=_is_prefix,
    ),
    "trim": _trim_function(pc.utf8_trim),
    "ltrim": _trim_function(pc.utf8_ltrim),
    "rtrim": _trim_function(pc.utf8_rtrim),
    "regexp_replace": _text_function(
        _regexp_replace, FunctionOption("pattern", is_required=True), FunctionOption("replacement", is_required=True)
    ),
    "regexp_extract": _text_function(
        _regexp_extract,
        FunctionOption("pattern", is_required=True),
        FunctionOption("idx", is_required=True, is_number=True, omitted=1),
    ),
}
"""Functions by name."""

OPTION_NAMES = frozenset(option.name for function in COLUMN_FUNCTIONS.values() for option in function.options)
"""Options of all functions."""


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
