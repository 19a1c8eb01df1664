"""Functions in filters, and rows to run them on; tests/spark compares the results with Spark."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

ZONED = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("f", pa.float32()),
        ("fare", pa.float64()),
        ("x", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("r", pa.string()),
        ("day", pa.date32()),
        ("t", ZONED),
        ("local", pa.timestamp("us")),
        ("st", pa.struct([("a", pa.string()), ("t", ZONED)])),
    ]
)

_TEXTS = ["", " ", "a", "Ab ", "  aB", "ß", "STRASSE", "ΟΔΟΣ", "ΟΔΟΣ Α", "İ", "é😀x", "a12-3b", "12", " -7 ", "+5", "-0", "1.5"]
_TEXTS += ["2147483648", "9223372036854775808", "00000000000000000000000012", "2024-02-29", "2024-2-9", "2023-02-29", "x2024"]
_TEXTS += ["2024-03-10 02:30:00", "2024-11-03 01:30:00", "1969-12-31 23:59:59", " 2024-02-29 ", "2024", "\t3\n", "%_\\'\""]
_NUMBERS = [0, 1, -1, 2, 3, -5, 7, 100, (1 << 31) - 1, -(1 << 31)]
_LONGS = [*_NUMBERS, 1 << 31, 1_700_000_000, -86_401, (1 << 63) - 1, -(1 << 63), 1 << 53, 9_223_372_036_854, 253_402_300_799]
_FLOATS = [0.0, -0.0, 1.5, -2.5, 0.1, 1e10, -1e10, 1e300, 9.3e18, -9.3e18, math.inf, -math.inf, math.nan, 2147483647.5]
_SECONDS = [0, -1, 1_710_055_800, 1_710_052_200, 1_730_611_800, 1_700_000_000, -62_135_596_800 + 86_400, 253_402_214_400]


def rows(count: int = 300, seed: int = 5) -> pa.Table:
    """Rows with the ends of types, nulls, NaN, times when clocks are set in New York, and times before the epoch."""
    chance = random.Random(seed)

    def some(values: list[Any]) -> Any:
        return None if chance.random() < 0.08 else chance.choice(values)

    def random_time() -> datetime:
        seconds = chance.choice(_SECONDS) if chance.random() < 0.5 else chance.randrange(-5_000_000_000, 5_000_000_000)
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=chance.choice([0, 1, 999_999, 123_456]))

    made = []
    for _ in range(count):
        at, then = random_time(), random_time()
        made.append(
            {
                "n": some(_NUMBERS),
                "big": some(_LONGS),
                "f": some([value for value in _FLOATS if abs(value) < 1e30 or not math.isfinite(value)]),
                "fare": some(_FLOATS),
                "x": some([Decimal("0.00"), Decimal("1.50"), Decimal("-99999999.99"), Decimal("100.00"), Decimal("2.00")]),
                "s": some(_TEXTS),
                "r": some(_TEXTS),
                "day": some([at.date(), date(2024, 2, 29), date(1969, 12, 31), date(2024, 12, 30)]),
                "t": some([at]),
                "local": some([then.replace(tzinfo=None)]),
                "st": some([{"a": some(_TEXTS), "t": some([then])}]),
            }
        )
    return pa.Table.from_pylist(made, SCHEMA)


TERMS: list[tuple[str, str | None]] = [
    # ours, and Spark's words for it where they are others
    *[(f"{name}({column})", None) for name in ("year", "quarter", "month", "day", "hour") for column in ("t", "day", "local")],
    *[(f"{name}(t)", None) for name in ("minute", "second", "dayofweek", "weekday", "dayofyear", "weekofyear")],
    *[(f"{name}(day)", None) for name in ("minute", "dayofweek", "weekday", "dayofyear", "weekofyear")],
    ("year(st.t)", None),
    ("date_format(t, 'yyyy-MM-dd HH:mm:ss.SSS')", None),
    ("date_format(t, 'EEE d MMM yy, h a')", None),
    ("date_format(t, 'yyyyMMdd')", None),
    ("date_format(local, 'yyyy-MM-dd''T''HH')", "date_format(local, \"yyyy-MM-dd'T'HH\")"),
    ("date_format(day, 'yyyy-MM')", None),
    ("from_unixtime(n)", None),
    ("from_unixtime(n, 'yyyy-MM-dd')", None),
    ("unix_timestamp(t)", None),
    ("unix_timestamp(day)", None),
    ("unix_timestamp(s)", "unix_timestamp(try_to_timestamp(s, 'yyyy-MM-dd HH:mm:ss'))"),
    ("to_date(t)", None),
    ("to_date(s)", "try_cast(s AS date)"),
    ("to_date(s, 'yyyy-MM-dd')", "to_date(try_to_timestamp(s, 'yyyy-MM-dd'))"),
    ("to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')", "try_to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')"),
    ("to_timestamp(day)", None),
    ("date_add(day, 31)", None),
    ("date_sub(t, 1)", None),
    ("upper(s)", None),
    ("lower(s)", None),
    ("lower(st.a)", None),
    ("length(s)", None),
    ("trim(s)", None),
    ("ltrim(s)", None),
    ("rtrim(s)", None),
    ("substring(s, 2, 2)", None),
    ("substring(s, -2)", None),
    ("substr(s, 0, 3)", None),
    ("regexp_replace(s, '([0-9]+)', '<$1>')", None),
    ("regexp_extract(s, '([0-9]+)-([0-9]+)', 2)", None),
    ("n + 1", "try_add(n, 1)"),
    ("big - n", "try_subtract(big, n)"),
    ("big * n", "try_multiply(big, n)"),
    ("n * 100", "try_multiply(n, 100)"),
    ("n / 2", "try_divide(n, 2)"),
    ("big / n", "try_divide(big, n)"),
    ("big % n", "try_mod(big, n)"),
    ("fare % 2", "try_mod(fare, 2)"),
    ("fare + n", "fare + n"),
    ("f * 2.5", "f * 2.5"),
    ("f + f", None),
    ("fare / f", "try_divide(fare, f)"),
    ("x + 1.5", None),
    ("x * n", None),
    ("x - big", None),
    ("-n", "try_subtract(0, n)"),
    ("abs(n)", "CASE WHEN n > -2147483648 THEN abs(n) END"),
    ("abs(fare)", None),
    ("abs(x)", None),
    ("cast(s as int)", "try_cast(s as int)"),
    ("cast(s as bigint)", "try_cast(s as bigint)"),
    ("cast(big as int)", "try_cast(big as int)"),
    ("cast(fare as bigint)", "try_cast(fare as bigint)"),
    ("cast(fare as int)", "try_cast(fare as int)"),
    ("cast(n as double)", None),
    ("cast(big as float)", None),
    ("cast(fare as float)", None),
    ("cast(big as string)", None),
    ("cast(t as date)", None),
    ("cast(s as date)", "try_cast(s as date)"),
    ("cast(t as bigint)", None),
    ("cast(day as timestamp)", None),
    ("year(date_add(to_date(t), 31))", None),
]
"""Functions, with the results that they have in a session in UTC."""

COMPARED = ["n < big", "n = fare", "fare > f", "f >= f", "fare = fare", "x < n", "x <= big", "x > fare", "s < r", "s = st.a"]
COMPARED += ["t < st.t", "to_date(t) <= day", "lower(s) <> lower(r)", "hour(t) = hour(st.t)"]
