"""Functions of expression indexes give the results of Spark 3.5."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.sql_functions import IndexExpression, filter_texts

UTC_US = pa.timestamp("us", "UTC")


def evaluate(function: str, values: list[Any], kind: pa.DataType, zone: str = "UTC", **options: str) -> list[Any]:
    expression = IndexExpression(function, tuple(options.items()), zone)
    found = expression.evaluate(pa.array(values, kind))
    assert expression.result_type(kind) == found.type
    return found.to_pylist()


NOON = datetime(2024, 2, 29, 13, 5, tzinfo=UTC)
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)


@pytest.mark.parametrize(
    ("function", "options", "kind", "value", "expected"),
    [
        ("identity", {}, pa.int64(), 5, 5),
        ("year", {}, UTC_US, MOMENT, 2023),
        ("month", {}, pa.date32(), date(2024, 2, 29), 2),
        ("day", {}, pa.date32(), date(2024, 2, 29), 29),
        ("hour", {}, UTC_US, MOMENT, 22),
        ("hour", {}, pa.date32(), date(2024, 2, 29), 0),
        ("date_format", {"format": "yyyy-MM-dd'T'HH:mm:ss.SSS"}, UTC_US, MOMENT, "2023-11-14T22:13:20.123"),
        ("date_format", {"format": "EEE d MMM yy, h a"}, UTC_US, MOMENT, "Tue 14 Nov 23, 10 PM"),
        ("date_format", {"format": "EEEE MMMM D"}, pa.date32(), date(2024, 3, 1), "Friday March 61"),
        ("from_unixtime", {}, pa.int64(), -1, "1969-12-31 23:59:59"),
        ("from_unixtime", {"format": "yyyy-MM-dd"}, pa.int64(), 1_700_000_000, "2023-11-14"),
        ("unix_timestamp", {}, pa.string(), "1970-01-02 00:00:01", 86_401),
        ("unix_timestamp", {"format": "dd/MM/yyyy"}, pa.string(), "03/01/1970", 172_800),
        ("unix_timestamp", {}, UTC_US, datetime(1969, 12, 31, 23, 59, 59, 5, UTC), 0),
        ("unix_timestamp", {}, UTC_US, datetime(1969, 12, 31, 23, 59, 58, 5, UTC), -1),
        ("unix_timestamp", {}, pa.string(), "2023-02-29 00:00:00", None),
        ("to_date", {}, pa.string(), " 2024-2-29 and more", date(2024, 2, 29)),
        ("to_date", {}, pa.string(), "2024", date(2024, 1, 1)),
        ("to_date", {}, pa.string(), "not a date", None),
        ("to_date", {"format": "yyyyMMdd"}, pa.string(), "20240229", date(2024, 2, 29)),
        ("to_date", {"format": "yyyyMMdd"}, pa.string(), "20230229", None),
        (
            "to_timestamp",
            {"format": "yyyy-MM-dd HH:mm"},
            pa.string(),
            "2024-02-29 13:05",
            datetime(2024, 2, 29, 13, 5, tzinfo=UTC),
        ),
        ("date_add", {"days": "1"}, pa.date32(), date(2024, 2, 29), date(2024, 3, 1)),
        ("date_sub", {"days": "1"}, UTC_US, MOMENT, date(2023, 11, 13)),
        ("upper", {}, pa.string(), "straße é", "STRASSE É"),
        ("lower", {}, pa.string(), "ΟΔΟΣ ÉA", "οδος éa"),
        ("length", {}, pa.string(), "😀é", 2),
        ("substring", {"pos": "2", "len": "2"}, pa.string(), "abcde", "bc"),
        ("substring", {"pos": "0", "len": "2"}, pa.string(), "abcde", "ab"),
        ("substring", {"pos": "-2", "len": "5"}, pa.string(), "abcde", "de"),
        ("substring", {"pos": "-7", "len": "3"}, pa.string(), "abcde", "a"),
        ("trim", {}, pa.string(), " a\t ", "a\t"),
        ("ltrim", {"trimString": "ab"}, pa.string(), "abxab", "xab"),
        ("rtrim", {"trimString": "ab"}, pa.string(), "abxab", "abx"),
        ("regexp_replace", {"pattern": r"(\d+)", "replacement": "<$1>"}, pa.string(), "a12-3", "a<12>-<3>"),
        ("regexp_extract", {"pattern": r"(\d+)-(\w+)", "idx": "2"}, pa.string(), "x12-ab", "ab"),
        ("regexp_extract", {"pattern": r"(\d+)-(\w+)", "idx": "0"}, pa.string(), "x12-ab", "12-ab"),
        ("regexp_extract", {"pattern": r"(\d+)", "idx": "1"}, pa.string(), "none", ""),
    ],
)
def test_values(function: str, options: dict[str, str], kind: pa.DataType, value: object, expected: object) -> None:
    assert evaluate(function, [None, value, None], kind, **options) == [None, expected, None]


def test_zones() -> None:
    assert evaluate("hour", [MOMENT], UTC_US, "America/New_York") == [17]
    assert evaluate("to_date", [MOMENT], UTC_US, "Asia/Tokyo") == [date(2023, 11, 15)]
    found = evaluate("to_timestamp", ["2024-07-01"], pa.string(), "Europe/Oslo", format="yyyy-MM-dd")
    assert found == [datetime(2024, 6, 30, 22, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("function", "options"),
    [
        ("regexp_replace", {"pattern": "(?=a)", "replacement": ""}),
        ("regexp_extract", {"pattern": r"(a)\1", "idx": "1"}),
        ("regexp_extract", {"pattern": "a++", "idx": "0"}),
        ("regexp_replace", {"pattern": "(", "replacement": ""}),
        ("to_date", {"format": "MMM yyyy"}),
        ("to_date", {"format": "HH:mm"}),
    ],
)
def test_unsupported_function_is_rejected(function: str, options: dict[str, str]) -> None:
    with pytest.raises(Unsupported):
        evaluate(function, ["a"], pa.string(), **options)


def test_wrong_requests() -> None:
    with pytest.raises(Unsupported, match="split"):
        IndexExpression("split", (("pattern", ","),))
    with pytest.raises(InvalidRequest, match=r"function substring has the options pos, len, but options pos are set"):
        IndexExpression("substring", (("pos", "1"),))
    with pytest.raises(InvalidRequest, match="'minute' is not supported in expression indexes"):
        IndexExpression("minute").check_indexable()
    with pytest.raises(InvalidRequest, match="not a whole number"):
        evaluate("date_add", [date(2024, 1, 1)], pa.date32(), days="1.5")
    with pytest.raises(InvalidRequest, match="has 1 groups"):
        evaluate("regexp_extract", ["a"], pa.string(), pattern="(a)", idx="2")
    with pytest.raises(Unsupported):
        filter_texts(pa.array([1.5]))


@given(st.lists(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), max_size=20))
def test_formatting_and_parsing_are_inverse(moments: list[datetime]) -> None:
    whole = [moment.replace(microsecond=0, tzinfo=UTC) for moment in moments]
    pattern = "yyyy-MM-dd HH:mm:ss"
    texts = evaluate("date_format", whole, UTC_US, format=pattern)
    assert texts == [f"{m.year:04d}-{m:%m-%d %H:%M:%S}" for m in whole]
    assert evaluate("to_timestamp", texts, pa.string(), format=pattern) == whole
    assert evaluate("to_date", texts, pa.string(), format=pattern) == [moment.date() for moment in whole]


@given(st.lists(st.text(max_size=8) | st.none(), max_size=20))
def test_text_is_python_s(values: list[str | None]) -> None:
    assert evaluate("upper", values, pa.string()) == [None if v is None else v.upper() for v in values]
    assert evaluate("length", values, pa.string()) == [None if v is None else len(v) for v in values]
