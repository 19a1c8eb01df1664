from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import Internal, InvalidRequest, Unsupported
from pyhudi.records.column_statistics import ColumnRange, batch_ranges, stored_value
from pyhudi.records.filters.arrow_expressions import arrow_scalar, row_filter, to_arrow
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import And, Compare, Constant, ConstantUnlessNull, Expr, In, IsNull, Like, Not, Or
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.filter_visitor import columns, key_literals
from pyhudi.records.filters.range_pruning import prune_ranges, prune_values
from pyhudi.records.filters.spark_sql import to_spark_sql
from tests.support.predicate_batches import BATCHES, EXPRS, SCHEMA, TIMESTAMP, VALUES, batch_of

FLAG = Compare("b", "=", True)


# --- parsing


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("n = 1", Compare("n", "=", 1)),
        ("n == -1", Compare("n", "=", -1)),
        ("n != 1.5", Compare("n", "<>", Decimal("1.5"))),
        ("n > -9999999999999999999999999999.9999999999", Compare("n", ">", Decimal("-9999999999999999999999999999.9999999999"))),
        ("n <> 1e3", Compare("n", "<>", 1000.0)),
        ("5 < n", Compare("n", ">", 5)),
        ("city = 'it''s'", Compare("city", "=", "it's")),
        ("`a b`.\"c\"\"d\" >= 0", Compare('a b.c"d', ">=", 0)),
        ("s.a <= +2", Compare("s.a", "<=", 2)),
        ("day = date '2024-05-06'", Compare("day", "=", date(2024, 5, 6))),
        ("t = TIMESTAMP '2024-05-06 09:00:00+02:00'", Compare("t", "=", datetime(2024, 5, 6, 7, tzinfo=UTC))),
        ("s.date = '1'", Compare("s.date", "=", "1")),
        ("date = '1'", Compare("date", "=", "1")),
        ("y = X'6162'", Compare("y", "=", b"ab")),
        ("n in (1, 2, null)", In("n", (1, 2), True)),
        ("n NOT IN (1)", Not(In("n", (1,)))),
        ("n between 1 and 5 and b", And((And((Compare("n", ">=", 1), Compare("n", "<=", 5))), Compare("b", "=", True)))),
        ("n not between 1 and 5", Not(And((Compare("n", ">=", 1), Compare("n", "<=", 5))))),
        ("city like 'a%'", Like("city", "a%")),
        ("city not like 'a%'", Not(Like("city", "a%"))),
        ("city starts with 'a_%\\'", Like("city", "a\\_\\%\\\\%")),
        ("n is null", IsNull("n")),
        ("n IS NOT NULL", Not(IsNull("n"))),
        ("n = null", Constant(None)),
        ("b", Compare("b", "=", True)),
        ("not b", Not(Compare("b", "=", True))),
        ("not not b", Compare("b", "=", True)),
        ("b = false", Compare("b", "=", False)),
        ("true", Constant(True)),
        ("b or b and not b or b", Or((FLAG, And((FLAG, Not(FLAG))), FLAG))),
        ("(b or b) and b", And((Or((FLAG, FLAG)), FLAG))),
        ("été = 1", Compare("été", "=", 1)),
    ],
)  # fmt: skip
def test_text_is_parsed(text: str, tree: Expr) -> None:
    assert parse_filter(text) == tree
    assert parse_filter(f"  \n({text}) ") == tree


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "n =", "= 1", "n = = 1", "n 1", "n in 1", "n in ()", "n in (1", "n in (a)", "n between 1", "n between 1 or 2",
        "city like n", "city like 5", "n is 5", "(n = 1", "n = 1)", "n = 1 and", "not", "n not", "n not = 1", "'a", "n = 'a",
        "`n = 1",
        "n = 1 2", "1 = 1", "'a'", "5", "n = - 'b'", "lower(city", "lower(city) = 'a' x", "n + (b = 1) > 1", "cast(n int) = 1",
        "y = X'123'", "day = date '2024-13-01'", "t = timestamp 'noon'", "n ; 1",
        "a. = 1",
        "n = 1" + "0" * 2000, "(" * 200 + "b" + ")" * 200,
    ],
)  # fmt: skip
def test_text_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_filter(text)


@pytest.mark.parametrize("text", ["soundex(city) = 'a'", "s.f(1) = 2", "cast(n as interval) = 1", "-f(n) = 1"])
def test_unsupported_predicate_is_rejected(text: str) -> None:
    with pytest.raises(Unsupported):
        parse_filter(text)


WORDS = [*"ab'`\"().,=<>!-1x%é ", "and ", "or ", "not ", "in ", "null", "like ", "date "]


@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join))
def test_any_text_gives_a_tree_or_an_invalid_request(text: str) -> None:
    try:
        parse_filter(text)
    except (InvalidRequest, Unsupported):
        pass


def test_long_chains_are_no_nesting() -> None:
    assert len(parse_filter(" or ".join(f"n = {value}" for value in range(5000))).parts) == 5000  # type: ignore[attr-defined]


def test_tuples_are_parsed() -> None:
    assert parse_filter([("city", "=", "sf")]) == Compare("city", "=", "sf")
    assert parse_filter(("n", "<", 1)) == Compare("n", "<", 1)
    assert parse_filter([("n", "!=", 1), ("city", "not in", ["a", None])]) == And(
        (Compare("n", "<>", 1), Not(In("city", ("a",), True)))
    )
    assert parse_filter([[("n", "==", 1)], [("b", "is", None), ("b", "is not", None)]]) == Or(
        (Compare("n", "=", 1), And((IsNull("b"), Not(IsNull("b")))))
    )
    assert parse_filter([("city", "like", "a%"), ("city", "NOT  LIKE", "b%")]) == And(
        (Like("city", "a%"), Not(Like("city", "b%")))
    )
    assert parse_filter([]) == Constant(True)
    assert parse_filter([("n", "=", pa.scalar(5))]) == Compare("n", "=", 5)
    assert parse_filter(Compare("n", "=", 5)) == Compare("n", "=", 5)


@pytest.mark.parametrize(
    "condition",
    [("n", "~", 1), ("n", "=", None), ("n", "in", "abc"), ("n", "in", 5), ("n",), (1, "=", 2), ("n", "is", 5), "n = 1"],
)
def test_tuples_that_cannot_be_read_are_refused(condition: Any) -> None:
    with pytest.raises(InvalidRequest):
        parse_filter([condition])


# --- binding


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("n = 1.0", Compare("n", "=", 1, pa.int32())),
        ("n = 1.5", ConstantUnlessNull("n", False)),
        ("n <> 1.5", ConstantUnlessNull("n", True)),
        ("n < 1.5", Compare("n", "<", 2, pa.int32())),
        ("n <= 1.5", Compare("n", "<=", 1, pa.int32())),
        ("n > -1.5", Compare("n", ">", -2, pa.int32())),
        ("n >= -1.5", Compare("n", ">=", -1, pa.int32())),
        ("n < 3000000000", ConstantUnlessNull("n", True)),
        ("n >= 3000000000", ConstantUnlessNull("n", False)),
        ("n > -3000000000", ConstantUnlessNull("n", True)),
        ("n <= 1e400", ConstantUnlessNull("n", True)),
        ("n = 1e400", ConstantUnlessNull("n", False)),
        ("n <> 1e400", ConstantUnlessNull("n", True)),
        ("n > 2147483647", ConstantUnlessNull("n", False)),
        ("n >= 2147483647", Compare("n", ">=", 2147483647, pa.int32())),
        ("n < -2147483648", ConstantUnlessNull("n", False)),
        ("n <= -2147483648", Compare("n", "<=", -2147483648, pa.int32())),
        ("x = 1.5", Compare("x", "=", Decimal("1.50"), pa.decimal128(6, 2))),
        ("x < 1.555", Compare("x", "<", Decimal("1.56"), pa.decimal128(6, 2))),
        ("x < 100000", ConstantUnlessNull("x", True)),
        ("day < '2024-05-06 12:00'", Compare("day", "<", 19850, pa.date32())),
        ("day = '2024-05-06'", Compare("day", "=", 19849, pa.date32())),
        ("t = date '1970-01-02'", Compare("t", "=", 86_400_000_000, TIMESTAMP)),
        ("f = 0.1", Compare("f", "=", 0.10000000149011612, pa.float32())),
        ("fare = 1", Compare("fare", "=", 1.0, pa.float64())),
        ("fare = 1e999", ConstantUnlessNull("fare", False)),
        ("fare <> -1e-999", ConstantUnlessNull("fare", True)),
        ("fare < 1e999", Compare("fare", "<", math.inf, pa.float64())),
        ("fare > 1e999", Compare("fare", ">=", math.inf, pa.float64())),
        ("fare <= -1e999", Compare("fare", "<=", -math.inf, pa.float64())),
        ("fare >= 1e-999", Compare("fare", ">", 0.0, pa.float64())),
        ("fare > -1e-999", Compare("fare", ">=", 0.0, pa.float64())),
        ("fare in (1e999, 1)", In("fare", (1.0,), False, pa.float64())),
        ("fare = 0e999", Compare("fare", "=", 0.0, pa.float64())),
        ("fare >= 'Infinity'", Compare("fare", ">=", math.inf, pa.float64())),
        ("f > 3.5e38", Compare("f", ">=", math.inf, pa.float32())),
        ("f < 1e-50", Compare("f", "<=", 0.0, pa.float32())),
        ("n in (1, 1.5, 2, 1.0, 9e20)", In("n", (1, 2), False, pa.int32())),
    ],
)
def test_literals_become_values_of_the_column(text: str, bound: Expr) -> None:
    assert bind(parse_filter(text), SCHEMA) == bound
    assert bind(bound, SCHEMA) == bound


@pytest.mark.parametrize(
    "filter_",
    [
        "n = 'a'", "n = true", "city = 5", "b = 1", "b = 'true'", "fare = '5'", "day = 5", "t = 5", "y = 'ab'", "l = 1", "s = 1",
        "n like 'a'", "l in (1)", "city like 'a\\'", "day = '2024-02-30'", [("day", "=", math.nan)],
        "x = 'a'", "fare = 'nan'", "n = 'NaN'",
    ],
)  # fmt: skip
def test_literals_of_another_kind_are_refused(filter_: Any) -> None:
    with pytest.raises(InvalidRequest):
        to_arrow(parse_filter(filter_), SCHEMA)


def test_a_missing_column_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match="did you mean 'city'"):
        bind(parse_filter("citi is null"), SCHEMA)


def test_columns_and_key_literals() -> None:
    expr = bind(parse_filter("(n in (1,2,3) or n = 4) and n in (2,4,9.5) and city = 'sf' and s.a is null"), SCHEMA)
    assert columns(expr) == ("n", "city", "s.a")
    assert key_literals(expr, "n") == [2, 4]
    assert key_literals(expr, "city") == ["sf"]
    assert key_literals(expr, "s.a") is None
    assert key_literals(bind(parse_filter("n = 1 or city = 'a'"), SCHEMA), "n") is None
    assert key_literals(bind(parse_filter("n = 1.5"), SCHEMA), "n") == []
    assert key_literals(parse_filter("not n = 1"), "n") is None
    assert [math.copysign(1, value) for value in key_literals(bind(parse_filter("fare = 0"), SCHEMA), "fare") or []] == [1, -1]


# --- meaning: rows, values and ranges against a plain evaluator


def evaluate(expr: Expr, row: dict[str, Any]) -> bool | None:
    """SQL's logic, one row at a time, on the literals as they were given."""
    if isinstance(expr, Constant):
        return expr.value
    if isinstance(expr, Not):
        inner = evaluate(expr.part, row)
        return None if inner is None else not inner
    if isinstance(expr, (And, Or)):
        results = [evaluate(part, row) for part in expr.parts]
        decisive = isinstance(expr, Or)
        return decisive if decisive in results else None if None in results else not decisive
    value = row[expr.column]  # type: ignore[attr-defined]
    if isinstance(expr, IsNull):
        return value is None
    if value is None:
        return None
    if isinstance(expr, Compare):
        return compare(str(expr.column), expr.op, value, expr.value)
    if isinstance(expr, In):
        found = any(compare(str(expr.column), "=", value, literal) for literal in expr.values)
        return True if found else None if expr.has_null else False
    assert isinstance(expr, Like)
    body = re.sub(r"\\(.)|(%)|(_)|(.)", lambda m: re.escape(m[1] or m[4] or "") or (".*" if m[2] else "."), expr.pattern)
    return re.fullmatch(body, value, re.DOTALL) is not None


def compare(name: str, op: str, value: Any, literal: Any) -> bool:
    if name in ("day", "t"):
        moment: Any = datetime.fromisoformat(literal) if isinstance(literal, str) else literal
        if not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day)
        elapsed = moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        literal = (elapsed.days * 86_400 + elapsed.seconds) * 10**6 + elapsed.microseconds
        value = value * 86_400 * 10**6 if name == "day" else value
    if name in ("fare", "f"):
        near = math.copysign(math.inf, literal) if abs(literal) > 1e308 else float(literal)
        near = pa.scalar(near).cast(pa.float32(), safe=False).as_py() if name == "f" else near
        # A number is rounded to the type's nearest, but to no infinity, and to no zero.
        literal = near if math.isinf(near) <= (abs(literal) == math.inf) and (near != 0) == (literal != 0) else literal
    if name != "city":
        # NaN equals itself, and is above every number.
        value, literal = ((1, 0) if number != number else (0, number) for number in (value, literal))
    results: dict[str, bool] = {
        "=": value == literal, "<>": value != literal, "<": value < literal,
        "<=": value <= literal, ">": value > literal, ">=": value >= literal,
    }  # fmt: skip
    return results[op]


@settings(max_examples=400)
@given(EXPRS, BATCHES)
def test_filters_mean_the_same_on_rows_values_and_ranges(expr: Expr, rows: list[dict[str, Any]]) -> None:
    batch = batch_of(rows)
    bound = bind(expr, SCHEMA)
    expected = [evaluate(expr, row) is True for row in rows]
    kept = pa.Table.from_batches([batch.append_column("row", pa.array(range(len(rows)), pa.int64()))]).filter(
        to_arrow(expr, SCHEMA)
    )
    assert kept["row"].to_pylist() == [index for index, match in enumerate(expected) if match]
    for row, match in zip(rows, expected, strict=True):
        assert prune_values(bound, row) == match
        assert prune_values(bound, {name: value for name, value in row.items() if name < "f"}) or not match
        for name in VALUES:
            literals = key_literals(bound, name)
            assert not match or literals is None or any(same(row[name], literal) for literal in literals)
    if any(expected):
        exact = batch_ranges(batch, tuple(VALUES))
        assert prune_ranges(bound, exact)
        assert prune_ranges(bound, {"n": exact["n"], "city": utf16_range([row["city"] for row in rows])})
        assert prune_ranges(bound, {name: ColumnRange(null_count=len(rows), value_count=len(rows)) for name in VALUES})
    to_spark_sql(expr, SCHEMA)


def same(left: Any, right: Any) -> bool:
    return bool(left == right or (left != left and right != right))


def utf16_range(values: list[str | None]) -> ColumnRange:
    texts = sorted((value for value in values if value is not None), key=lambda text: text.encode("utf-16-be"))
    counts = {"null_count": len(values) - len(texts), "value_count": len(values)}
    return ColumnRange(texts[0], texts[-1], **counts) if texts else ColumnRange(**counts)


@pytest.mark.parametrize(
    ("text", "ranges", "may_match"),
    [
        ("n = 5", {"n": ColumnRange(1, 4, 0, 9)}, False),
        ("n = 4", {"n": ColumnRange(1, 4, 0, 9)}, True),
        ("n > 4 or n < 1", {"n": ColumnRange(1, 4, 0, 9)}, False),
        ("not (n <= 4)", {"n": ColumnRange(1, 4, 0, 9)}, False),
        ("n <> 3", {"n": ColumnRange(3, 3, 1, 9)}, False),
        ("n in (0, 5)", {"n": ColumnRange(1, 4, 0, 9)}, False),
        ("n not in (3, 4)", {"n": ColumnRange(3, 3, 0, 9)}, False),
        ("n is null", {"n": ColumnRange(1, 4, 0, 9)}, False),
        ("n is null", {"n": ColumnRange(1, 4, None, 9)}, True),
        ("n is not null", {"n": ColumnRange(None, None, 9, 9)}, True),
        ("fare > 10", {"fare": ColumnRange(1.0, 5.0, 0, 9)}, False),
        ("not (fare <= 10)", {"fare": ColumnRange(1.0, 5.0, 0, 9)}, False),
        ("not (fare <= 10)", {"fare": ColumnRange(1.0, math.nan, 0, 9)}, True),
        ("fare = 'NaN'", {"fare": ColumnRange(1.0, 5.0, 0, 9)}, False),
        ("fare = 'NaN'", {"fare": ColumnRange(1.0, math.nan, 0, 9)}, True),
        ("fare <> 'NaN'", {"fare": ColumnRange(1.0, math.nan, 0, 9)}, True),
        ("fare > 10", {"fare": ColumnRange(1.0, math.nan, 0, 9)}, True),
        ("city = 'm'", {"city": ColumnRange("a", "c", 0, 9)}, False),
        ("city like 'm%'", {"city": ColumnRange("a", "c", 0, 9)}, False),
        ("city like 'b%'", {"city": ColumnRange("a", "c", 0, 9)}, True),
        ("city like '%b'", {"city": ColumnRange("c", "d", 0, 9)}, True),
        ("city = '😀'", {"city": ColumnRange("a", "\uffff", 0, 9)}, True),
        ("n = 5 and big = 1", {"n": ColumnRange(1, 4, 0, 9)}, False),
        ("n = 5 or big = 1", {"n": ColumnRange(1, 4, 0, 9)}, True),
        ("n = 5", {}, True),
        ("b", {"b": ColumnRange(False, False, 0, 9)}, False),
        ("day >= '1970-01-03'", {"day": ColumnRange(0, 1, 0, 9)}, False),
        ("x < 1.01", {"x": ColumnRange(Decimal("1.01"), Decimal("2"), 0, 9)}, False),
        ("s.a = 1", {"s.a": ColumnRange(2, 3, 0, 9)}, False),
    ],
)
def test_files_are_pruned(text: str, ranges: dict[str, ColumnRange], may_match: bool) -> None:
    assert prune_ranges(bind(parse_filter(text), SCHEMA), ranges) is may_match


def test_partitions_are_pruned_by_scalars() -> None:
    expr = bind(parse_filter("day = '2024-05-06' and city <> 'x'"), SCHEMA)
    assert prune_values(expr, {"day": pa.scalar(date(2024, 5, 6)), "city": pa.scalar("a")})
    assert prune_values(expr, {"day": pa.scalar(date(2024, 5, 6))})
    assert not prune_values(expr, {"day": pa.scalar(date(2024, 5, 7))})
    assert not prune_values(expr, {"day": pa.scalar(date(2024, 5, 6)), "city": pa.scalar(None, pa.string())})


def test_an_unbound_filter_prunes_nothing_by_mistake() -> None:
    with pytest.raises(Internal):
        prune_ranges(parse_filter("n = 5"), {"n": ColumnRange(1, 4, 0, 9)})
    with pytest.raises(Internal):
        prune_values(parse_filter("n = 5"), {"n": 4})


def test_arrow_scalars_of_stored_values() -> None:
    for value, type_ in (
        (19849, pa.date32()),
        (5, TIMESTAMP),
        (Decimal("1.50"), pa.decimal128(6, 2)),
        ("a", pa.string()),
        (1, pa.int32()),
    ):
        scalar = arrow_scalar(value, type_)
        assert scalar.type == type_ and stored_value(scalar) == value


def test_nested_columns_are_filtered() -> None:
    table = pa.table({"s": pa.array([{"a": 1}, None, {"a": 3}])})
    assert table.filter(to_arrow(parse_filter("s.a > 1"), table.schema)).num_rows == 1
    assert table.filter(to_arrow(parse_filter("s.a is null"), table.schema)).num_rows == 1


def test_comparisons_stay_comparisons_for_arrow() -> None:
    expression = to_arrow(parse_filter("not (n < 5 or city = 'a')"), SCHEMA)
    assert expression.equals((pc.field("n") >= pa.scalar(5, pa.int32())) & (pc.field("city") != pa.scalar("a")))


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("n >= 5", "(`n` >= 5)"),
        ("big = -9223372036854775808", "(`big` = (-9223372036854775807L - 1L))"),
        ("city in ('it''s', 'a\\b', null)", "(`city` IN ('it\\'s', 'a\\\\b', NULL))"),
        ("fare > 1", "(`fare` > CAST('1.0' AS DOUBLE))"),
        ("fare >= 'NaN'", "(`fare` = CAST('NaN' AS DOUBLE))"),
        ("fare = -0.0", "((`fare` >= CAST('-0.0' AS DOUBLE)) AND (`fare` <= CAST('0.0' AS DOUBLE)))"),
        ("fare >= 0", "(`fare` >= CAST('-0.0' AS DOUBLE))"),
        ("f <= 0.5", "(`f` <= CAST('0.5' AS FLOAT))"),
        ("x = 1", "(`x` = CAST('1.00' AS DECIMAL(6, 2)))"),
        ("day = '2024-05-06' or not b", "((`day` = date_from_unix_date(19849)) OR (NOT (`b` = TRUE)))"),
        ("t < '1970-01-01 00:00:01'", "(`t` < timestamp_micros(1000000L))"),
        ("s.a is not null", "(NOT (`s`.`a` IS NULL))"),
        ("y = X'ab'", "(`y` = X'AB')"),
        ("city like 'a\\_%'", "(`city` LIKE 'a\\\\_%')"),
        ("n = 1.5", "((`n` IS NULL) AND CAST(NULL AS BOOLEAN))"),
        ("n = null", "CAST(NULL AS BOOLEAN)"),
    ],
)
def test_spark_gets_the_same_meaning(text: str, sql: str) -> None:
    assert to_spark_sql(parse_filter(text), SCHEMA) == sql


def test_trees_combine() -> None:
    n, b = parse_filter("n = 1"), parse_filter("b")
    assert n & b == And((n, b))
    assert n | ~b == Or((n, Not(b)))


@pytest.mark.parametrize("operator", ["=", "<>", "<"])
@pytest.mark.sample(1)
def test_thousands_of_parts(operator: str) -> None:
    """Neither Arrow nor Spark nor Python walks down a chain; a list of equal values is one test."""
    schema = pa.schema([("v", pa.int64()), ("w", pa.int64())])
    rows = pa.table({"v": [1, 5, 20_000, None], "w": [1, 2, 3, 4]}, schema)
    count = 9000
    word = " and " if operator == "<>" else " or "
    text = word.join(f"v {operator} {n}" for n in range(count)) + f"{word}w = 3"
    found = row_filter(parse_filter(text), schema).select(rows)
    kept = {"=": [1, 2, 3], "<>": [3], "<": [1, 2, 3]}[operator]
    assert found.column("w").to_pylist() == kept
    sql = to_spark_sql(parse_filter(text), schema)
    depth = deepest = 0
    for char in sql:
        depth += {"(": 1, ")": -1}.get(char, 0)
        deepest = max(deepest, depth)
    assert deepest < 40
    assert bool(prune_values(bind(parse_filter(text), schema), {"v": 5, "w": 1})) is (operator != "<>")


def test_filters_that_are_built_from_thousands() -> None:
    schema = pa.schema([("v", pa.int64())])
    chain = parse_filter("v > 0")
    for number in range(9000):
        chain = chain | parse_filter(f"v = {number}")
    assert row_filter(parse_filter(chain), schema).select(pa.table({"v": [3, -3]})).num_rows == 1
    for _ in range(9000):
        chain = ~(chain & parse_filter("v = 1"))
    with pytest.raises(InvalidRequest, match="levels deep"):
        parse_filter(chain)
