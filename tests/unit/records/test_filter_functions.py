"""Functions in filters: parsed, bound, evaluated, never pruned wrongly. tests/spark compares results with Spark."""

from __future__ import annotations

import pickle
import random
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.column_ranges import RangeColumn, may_match
from pyhudi.records.column_statistics import batch_ranges, stored_value
from pyhudi.records.filters.arrow_expressions import computed_column, row_filter, to_arrow
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import And, ColumnRef, Compare, Expr, FunctionCall, In, IsNull, Like, Literal, Not
from pyhudi.records.filters.filter_functions import as_index_expression
from pyhudi.records.filters.filter_parser import parse_filter, parse_value
from pyhudi.records.filters.filter_visitor import calls, columns, key_literals
from pyhudi.records.filters.monotonic_functions import derived_column
from pyhudi.records.filters.range_pruning import prune_ranges, prune_values
from tests.support.filter_functions import COMPARED, SCHEMA, TERMS, ZONED, rows
from tests.support.range_columns import range_column

ROWS = rows(120)
NUMBERED = ROWS.append_column("place", pa.array(range(120)))


def lower(name: str) -> FunctionCall:
    return FunctionCall("lower", (ColumnRef(name),))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("lower(s) = 'a'", Compare(lower("s"), "=", "a")),
        ("LCASE( st.a ) in ('a', NULL)", In(lower("st.a"), ("a",), True)),
        ("lower(s) is not null", Not(IsNull(lower("s")))),
        ("'a' <> lower(s)", Compare(lower("s"), "<>", "a")),
        ("lower(s) not like 'a%'", Not(Like(lower("s"), "a%"))),
        ("n < big", Compare(FunctionCall("<", (ColumnRef("n"), ColumnRef("big"))), "=", True)),
        ("n + 1 > 2", Compare(FunctionCall("+", (ColumnRef("n"), Literal(1, pa.int32()))), ">", 2)),
        ("2 * 3 + n > 1 - 2", Compare(FunctionCall("+", (Literal(6, pa.int32()), ColumnRef("n"))), ">", -1)),
        (
            "n - 1 - 2 = 0",
            Compare(
                FunctionCall("-", (FunctionCall("-", (ColumnRef("n"), Literal(1, pa.int32()))), Literal(2, pa.int32()))), "=", 0
            ),
        ),
        ("(n) = (((1)))", Compare("n", "=", 1)),
        ("(n = 1) and (s = 'a')", And((Compare("n", "=", 1), Compare("s", "=", "a")))),
        ("s = upper('a' )", Compare("s", "=", "A")),
        ("day > date_add(date '2024-02-28', 2)", Compare("day", ">", date(2024, 3, 1))),
        ("t = to_timestamp('2024-05-06', 'yyyy-MM-dd')", Compare("t", "=", datetime(2024, 5, 6, tzinfo=UTC))),
        ("n = lower(null)", parse_filter("n = null")),
        ("substr(s, 2) = 'a'", parse_filter("substring(s, 2, 999999999) = 'a'")),
        ("cast(n as integer) = 1", Compare(FunctionCall("cast int", (ColumnRef("n"),)), "=", 1)),
        ("year = 1 and year(t) = 1", And((Compare("year", "=", 1), Compare(FunctionCall("year", (ColumnRef("t"),)), "=", 1)))),
    ],
)
def test_text_is_parsed(text: str, tree: Expr) -> None:
    assert parse_filter(text) == tree
    assert pickle.loads(pickle.dumps(tree)) == tree


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("soundex(s) = 'a'", Unsupported, "function soundex is not supported; supported are: abs"),
        ("lower(n) = 'a'", InvalidRequest, r"lower\(n\): .*text"),
        ("year(s) = 1", InvalidRequest, "dates or timestamps"),
        ("lower(nowhere) = 'a'", InvalidRequest, "no column 'nowhere'"),
        ('s = "a"', InvalidRequest, "no column 'a'.*single quotes"),
        ("n < s", InvalidRequest, "no common type"),
        ("n + s > 1", InvalidRequest, "takes numbers, not string"),
        ("year(t, 1) = 1", InvalidRequest, "at most 1 argument"),
        ("abs(n, 1) = 1", InvalidRequest, "takes 1 argument"),
        ("year() = 1", InvalidRequest, "argument"),
        ("x / 2 > 1", Unsupported, "division of decimals"),
        ("date_format(t, s) = 'a'", Unsupported, "must be literals"),
        ("date_format(t, 'G') = 'a'", Unsupported, "date pattern"),
        ("cast(t as string) = 'a'", Unsupported, "a cast from timestamp"),
        ("lower(s) > 5", InvalidRequest, r"lower\(s\) of type string cannot be compared with 5"),
        ("st < st", InvalidRequest, "cannot be compared"),
    ],
)
def test_invalid_function_argument_is_rejected(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bind(parse_filter(text), SCHEMA)


def test_tuples_and_assignments_have_no_functions() -> None:
    assert parse_filter([("lower(s)", "=", "a")]) == Compare("lower(s)", "=", "a")
    with pytest.raises(Unsupported, match="only a literal or a column"):
        parse_value("lower(s)")
    with pytest.raises(Unsupported, match="apply the filter to rows"):
        to_arrow(parse_filter("lower(s) = 'a'"), SCHEMA)


def test_columns_and_key_literals_of_a_filter() -> None:
    bound = bind(parse_filter("lower(st.a) in ('a', 'b') and n + big > 1"), SCHEMA)
    assert columns(bound) == ("st.a", "n", "big")
    assert key_literals(bound, calls(bound)[0]) == ["a", "b"]
    assert key_literals(bound, "st.a") is None


@pytest.mark.parametrize(
    "text", ["n < 3 and lower(s) = 'a'", *[f"{term} is null" for term, _ in TERMS[::9]], "n * 2 > big or fare = fare"]
)
def test_rows_are_kept_where_all_is_true(text: str) -> None:
    bound = bind(parse_filter(text), SCHEMA)
    kept = row_filter(bound, SCHEMA).select(NUMBERED)
    assert kept.schema == NUMBERED.schema
    one_by_one = [place for place in range(120) if row_filter(bound, SCHEMA).select(ROWS.slice(place, 1)).num_rows]
    assert kept["place"].to_pylist() == one_by_one


def test_many_conditions_are_run_in_parts() -> None:
    text = " or ".join(f"n + 1 = {number}" for number in range(1500))
    bound = bind(parse_filter(text), SCHEMA)
    small = parse_filter(" or ".join(f"n = {number}" for number in range(-1, 1499)))
    assert row_filter(bound, SCHEMA).select(NUMBERED)["place"] == row_filter(small, SCHEMA).select(NUMBERED)["place"]


def literal_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, datetime):
        return f"timestamp '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else f"{value}"


def conditions(chance: random.Random) -> list[str]:
    """Conditions of every term with values that rows have."""
    found = []
    for term, _ in TERMS:
        (call,) = calls(bind(parse_filter(f"{term} is null"), SCHEMA))
        results = computed_column(call, ROWS)
        if pa.types.is_floating(results.type) or pa.types.is_date(results.type) or pa.types.is_timestamp(results.type):
            results = results.filter(pa.array([is_plain(value) for value in results]))
        values = [value for value in results.to_pylist() if value is not None]
        for operator in chance.sample(["=", "<", "<=", ">", ">=", "<>"], 1):
            found.append(f"{term} {operator} {literal_of(chance.choice(values))}")
        found.append(f"{term} in ({', '.join(literal_of(value) for value in chance.sample(values, 2))})")
        found.append(f"{term} is {chance.choice(['', 'not '])}null")
    return [*found, *COMPARED, *(f"not ({text})" for text in COMPARED)]


def is_plain(value: pa.Scalar) -> bool:
    """Whether filters and Python can write a value."""
    stored = stored_value(value)
    if pa.types.is_floating(value.type):
        return isinstance(stored, float) and abs(stored) < 1e15
    days = stored if isinstance(stored, int) and pa.types.is_date32(value.type) else (stored or 0) // 86_400_000_000  # type: ignore[operator]
    return stored is not None and -700_000 < days < 2_900_000


def test_no_matching_row_is_pruned_away() -> None:
    """Files of one to three rows, so that ranges are narrow: by each file's ranges, by all of them at once, and by values."""
    chance = random.Random(11)
    names = [name for name in SCHEMA.names if name not in ("st", "f", "fare")]
    starts = list(range(0, 110, 2))
    files = [NUMBERED.slice(start, chance.randrange(1, 4)) for start in starts]
    ranges = [batch_ranges(file.combine_chunks().to_batches()[0], names) for file in files]
    wide: dict[Any, RangeColumn] = {n: range_column([r[n] for r in ranges], SCHEMA.field(n).type) for n in names}
    passed_over = 0
    for text in conditions(chance):
        bound = bind(parse_filter(text), SCHEMA)
        matching = set(row_filter(bound, SCHEMA).select(NUMBERED)["place"].to_pylist())
        kept = may_match(bound, wide, len(files)).tolist()
        for file, is_kept in zip(files, kept, strict=True):
            assert is_kept or matching.isdisjoint(file["place"].to_pylist()), text
        assert [prune_ranges(bound, found) for found in ranges[::9]] == kept[::9], text
        if any(derived_column(call) is not None for call in calls(bound)):
            passed_over += kept.count(False)
        for place in (0, 21, 50):
            row = {name: ROWS.column(name)[place] for name in columns(bound) if "." not in name}
            assert len(row) < len(columns(bound)) or prune_values(bound, row) == (place in matching), text
    assert passed_over > 300


@pytest.mark.parametrize(
    ("text", "low", "high", "kept"),
    [
        ("year(t) = 2024", datetime(2024, 1, 1), datetime(2024, 12, 31), True),
        ("year(t) = 2024", datetime(2025, 1, 1), datetime(2025, 12, 31), False),
        ("to_date(t) < date '2024-05-06'", datetime(2024, 5, 6), datetime(2024, 5, 7), False),
        ("date_format(t, 'yyyy-MM') = '2024-05'", datetime(2024, 4, 1), datetime(2024, 4, 30), False),
        ("date_format(t, 'yyyy-MM') = '2024-05'", datetime(2024, 4, 1), datetime(2024, 5, 30), True),
        ("date_format(t, 'MM-yyyy') = '05-2024'", datetime(2024, 4, 1), datetime(2024, 4, 30), True),
        ("hour(t) = 7", datetime(2024, 5, 6, 8), datetime(2024, 5, 6, 9), False),
        ("hour(t) = 7", datetime(2024, 5, 6, 8), datetime(2024, 5, 7, 1), True),
        ("month(t) = 2", datetime(2024, 5, 6), datetime(2024, 7, 7), False),
        ("month(t) = 2", datetime(2024, 5, 6), datetime(2025, 1, 7), True),
        ("day(t) = 2", datetime(2024, 5, 3), datetime(2024, 5, 7), False),
        ("year(date_add(to_date(t), 31)) = 2024", datetime(2024, 12, 6), datetime(2025, 1, 7), False),
        ("year(t) = 2024 or hour(t) = 7", datetime(2025, 5, 6, 8), datetime(2025, 5, 6, 9), False),
        ("not (year(t) = 2025)", datetime(2025, 5, 6, 8), datetime(2025, 5, 6, 9), False),
    ],
)
def test_ranges_of_columns_prune_for_functions(text: str, low: datetime, high: datetime, kept: bool) -> None:
    bound = bind(parse_filter(text), SCHEMA)
    batch = pa.RecordBatch.from_pydict({"t": pa.array([low, high], ZONED)})
    assert prune_ranges(bound, batch_ranges(batch, ["t"])) is kept


def test_an_index_of_the_same_function_is_known_by_its_options() -> None:
    def expression(text: str) -> Any:
        return as_index_expression(calls(bind(parse_filter(text), SCHEMA))[0])

    column, found = expression("from_unixtime(n) = 'a'")
    assert column == "n"
    assert found == expression("from_unixtime(n, 'yyyy-MM-dd HH:mm:ss') = 'a'")[1]
    assert found != expression("from_unixtime(n, 'yyyy-MM-dd') = 'a'")[1]
    assert expression("abs(n) = 1") is None
    assert expression("lower(upper(s)) = 'a'") is None
