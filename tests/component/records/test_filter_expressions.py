"""PyArrow and Polars expressions as filters select the rows that the library selects."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.filters.arrow_expressions import row_filter
from pyhudi.records.filters.filter_ast import And, Compare, Constant, In, IsNull, Like, Not, Or
from pyhudi.records.filters.filter_parser import parse_filter

MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
ROWS = pa.table(
    {
        "n": pa.array([1, 2, None, 4, -5], pa.int32()),
        "fare": pa.array([0.5, None, 2.5, 100.0, -0.0]),
        "city": pa.array(["sf", "s%", None, 'it\'s "x"\n, y)', ""]),
        "b": pa.array([True, False, None, True, False]),
        "day": pa.array([date(2024, 5, 6), None, date(2024, 5, 7), date(1969, 1, 1), date(2024, 5, 8)]),
        "t": pa.array([MOMENT, None, MOMENT.replace(microsecond=0), MOMENT, MOMENT], pa.timestamp("us", "UTC")),
        "x": pa.array([Decimal("1.50"), None, Decimal("2.00"), Decimal("0.01"), Decimal("9.99")], pa.decimal128(6, 2)),
        "y": pa.array([b"a", b"", None, b"\xff", b"b"]),
        "s": pa.array([{"a": 1}, {"a": None}, None, {"a": 3}, {"a": 4}], pa.struct([("a", pa.int64())])),
    }
)
N, CITY = pc.field("n"), pc.field("city")
PN, PCITY = pl.col("n"), pl.col("city")

ARROW = [
    N > 3, N >= 2, N < 2, N <= 2, N == 2, N != 2, pc.scalar(3) > N, ~(N > 3), (N > 1) & (CITY != "sf"), (N > 1) | (CITY == "sf"),
    ~((N > 1) & pc.field("b")), pc.field("b"), ~pc.field("b"), N.is_null(), ~N.is_null(), N.is_valid(), N.isin([1, 4]),
    N.isin([1, None]), ~N.isin([1, None]), ~N.isin([1, 4]), N.isin([]), ~N.isin([]), CITY.isin(["sf", "it's \"x\"\n, y)"]),
    CITY == "it's \"x\"\n, y)", pc.starts_with(CITY, "s%"), pc.match_like(CITY, "s_"), pc.field("day") > date(2024, 5, 6),
    pc.field("t") == MOMENT, pc.field("x") >= Decimal("2.00"), pc.field("y") == b"\xff", pc.field("s", "a") > 1,
    pc.field("fare") == 0.0, pc.scalar(None) == N, pc.scalar(True), pc.scalar(False), pc.scalar(True) & (N > 1),
    N + 1 > 2, pc.subtract(N, 1) < pc.multiply(N, 2), pc.abs(N) == 5, pc.field("fare") < N, pc.utf8_lower(CITY) == "sf",
    pc.utf8_upper(CITY).isin(["SF"]),
    pc.utf8_length(CITY) > 1, pc.utf8_slice_codeunits(CITY, 1, 2) == "f", pc.year(pc.field("day")) == 2024,
    pc.hour(pc.field("t")) < 8, pc.day_of_week(pc.field("t")) == 0, pc.iso_week(pc.field("day")) >= 19,
    N.cast(pa.float64()) <= pc.field("fare"),
    ~(pc.utf8_lower(CITY) == "sf"), pc.utf8_lower(CITY).is_null(), pc.field("t").cast(pa.date32()) == date(2024, 5, 6),
    pc.is_in(N, value_set=pa.array([1, None]), skip_nulls=True), ~pc.is_in(N, value_set=pa.array([1, None]), skip_nulls=True),
]  # fmt: skip
POLARS = [
    PN > 3, PN >= 2, PN < 2, PN <= 2, PN == 2, PN != 2, PN < 3, ~(PN > 3), (PN > 1) & (PCITY != "sf"), (PN > 1) | (PCITY == "sf"),
    ~((PN > 1) & pl.col("b")), pl.col("b"), ~pl.col("b"), PN.is_null(), PN.is_not_null(), PN.is_in([1, 4]), ~PN.is_in([1, 4]),
    PN.is_in([1, None]), ~PN.is_in([1, None]), PN.is_in(pl.Series([1, 4]).implode()), PN.is_in([]), PCITY.is_in(["sf", ""]),
    PN.is_between(1, 2), PN.is_between(1, 2, closed="left"), PN.is_between(1, 2, closed="right"),
    PN.is_between(1, 2, closed="none"), ~PN.is_between(1, 2), PCITY.str.starts_with("s%"), PCITY == "it's \"x\"\n, y)",
    pl.col("day") > date(2024, 5, 6), pl.col("t") == MOMENT, pl.col("x") >= Decimal("2.00"), pl.col("y") == b"\xff",
    PN + 1 > 2, PN - 1 < PN * 2, 2 - PN > 1, PN.abs() == 5, pl.col("fare") < PN, PCITY.str.to_lowercase() == "sf", -PN < 3,
    PCITY.str.to_uppercase().is_in(["SF"]), PCITY.str.len_chars() > 1, pl.col("day").dt.year() == 2024, pl.col("t").dt.hour() < 8,
    pl.col("day").dt.week() >= 19, PN.cast(pl.Float64) <= pl.col("fare"), PN / 2 > 0.5, ~(PCITY.str.to_lowercase() == "sf"),
    pl.col("t").dt.date() == date(2024, 5, 6), PCITY.str.to_lowercase().is_null(), PCITY.str.to_lowercase().str.starts_with("s"),
    pl.col("s").struct.field("a") > 1, pl.col("fare") == 0.0, pl.lit(None) == PN, pl.lit(True) & (PN > 1),
]  # fmt: skip


def numbers(rows: pa.Table) -> list[Any]:
    return rows["fare"].to_pylist()


@pytest.mark.parametrize("expression", ARROW, ids=lambda one: " ".join(str(one).split()))
def test_an_expression_of_pyarrow_keeps_the_rows_that_pyarrow_keeps(expression: pc.Expression) -> None:
    assert numbers(row_filter(parse_filter(expression), ROWS.schema).select(ROWS)) == numbers(ROWS.filter(expression))


@pytest.mark.parametrize("expression", POLARS, ids=str)
def test_an_expression_of_polars_keeps_the_rows_that_polars_keeps(expression: pl.Expr) -> None:
    expected = pl.DataFrame(ROWS).filter(expression)
    assert numbers(row_filter(parse_filter(expression), ROWS.schema).select(ROWS)) == expected["fare"].to_list()


def test_expressions_become_the_tree_that_text_becomes() -> None:
    assert parse_filter((N > 1) & (N < 5) & (CITY == "a")) == parse_filter("n > 1 and n < 5 and city = 'a'")
    assert parse_filter((PN > 1) & (PN < 5) & (PCITY == "a")) == parse_filter("n > 1 and n < 5 and city = 'a'")
    assert parse_filter(pc.starts_with(CITY, "a_")) == parse_filter(PCITY.str.starts_with("a_")) == Like("city", "a\\_%")
    assert parse_filter(N.isin([1, None])) == Or((IsNull("n"), In("n", (1,))))
    assert parse_filter(N.isin([1])) == And((Not(IsNull("n")), In("n", (1,))))
    assert parse_filter(PN.is_in([1, None])) == In("n", (1,))
    assert parse_filter(pc.field("b")) == parse_filter(pl.col("b")) == Compare("b", "=", True)
    assert parse_filter(pc.scalar(None)) == parse_filter(pl.lit(None)) == Constant(None)


def test_long_chains_of_expressions_are_one_level() -> None:
    arrow, polars = N == 0, PN == 0
    for number in range(1, 300):
        arrow, polars = arrow | (number == N), polars | (number == PN)
    assert parse_filter(arrow) == parse_filter(polars) == parse_filter(" or ".join(f"n = {number}" for number in range(300)))
    for _ in range(110):
        arrow, polars = ~(arrow & (N == 1)), ~(polars & (PN == 1))
    for deep in (arrow, polars):
        with pytest.raises(InvalidRequest, match="nested more than 100 levels"):
            parse_filter(deep)


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        (pc.divide(N, 2) > 2, "the function divide"),
        (pc.utf8_trim_whitespace(CITY) == "a", "the function utf8_trim_whitespace"),
        (N.cast(pa.int64()) > 2, "the function cast"),
        (pc.day_of_week(pc.field("t"), week_start=3) == 1, "day_of_week"),
        (pc.utf8_slice_codeunits(CITY, -2, -1) == "a", "utf8_slice_codeunits"),
        (pc.field(0) > 1, "name columns"),
        (pc.and_(N > 1, N < 2), "the function and_ is not"),
        ((N > 1) == True, "comparing a condition"),  # noqa: E712
        (N.is_null(nan_is_null=True), "nan_is_null"),
        (pc.starts_with(CITY, "a", ignore_case=True), "ignore_case"),
        ((N > 1).is_null(), "is_null of anything but a column"),
        (PN / 0 > 2, "division by 0"),
        (PN % 2 == 1, "%"),
        (PN.cast(pl.Int64) > 2, "cast"),
        (pl.col("n", "fare") > 1, "name one column"),
        (pl.all() > 1, "name one column"),
        (pl.len() > 1, "len"),
        (PN.is_in(pl.col("fare")), "not literals"),
        (PN.eq_missing(1), "eq_missing|<==>|==v"),
        ((PN > 1).alias("z"), "alias"),
        (pl.lit(pl.Series([1, 2])) < PN, "comparing with 2 values"),
        ((PN > 1).is_null(), "is_null of anything but a column"),
        (PN.sum() > 1, "sum"),
        (PN.is_in([1, 2], nulls_equal=True), "is_in"),
    ],
    ids=str,
)
def test_unsupported_polars_expression_is_rejected_by_name(expression: Any, named: str) -> None:
    with pytest.raises(Unsupported, match="the filter ") as refused:
        parse_filter(expression)
    assert refused.match(named)


@pytest.mark.parametrize(
    ("filter_", "message"),
    [
        (pc.scalar(1), "1 is not a condition"),
        (pl.lit("x"), "'x' is not a condition"),
        (pc.field("t") > pa.scalar(1, pa.timestamp("ns")), "nanosec"),
        (pl.col("t") > pl.lit(1).cast(pl.Datetime("ns")), "cast|strict"),
        (pl.Series([1]).dtype, "a filter must be SQL text"),
        (5, "a filter must be SQL text"),
    ],
    ids=str,
)
def test_invalid_filter_is_rejected(filter_: Any, message: str) -> None:
    with pytest.raises((InvalidRequest, Unsupported), match=message):
        parse_filter(filter_)


def test_operations_accept_expressions_wherever_they_accept_filters() -> None:
    table = Table.create("memory://expressions", record_key="fare")
    rows = ROWS.select(["n", "city", "fare"]).filter(N.is_valid() & pc.field("fare").is_valid())
    table.insert(rows)
    for three, fewer in ((N > 3, N == 4), (PN > 3, PN == 4)):
        assert numbers(table.scan(filter=three).to_arrow()) == [100.0]
        assert numbers(table.incremental("earliest", filter=three).to_arrow()) == [100.0]
        table.delete(where=fewer)
        assert table.scan(filter=three).to_arrow().num_rows == 0
        table.insert(rows.filter(N == 4))
