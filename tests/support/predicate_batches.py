"""Expressions and batches for property tests of filters."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from pyhudi.records.filters.filter_ast import And, Compare, Constant, Expr, In, IsNull, Like, Not, Or

TIMESTAMP = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("city", pa.string()), ("fare", pa.float64()), ("n", pa.int32()), ("big", pa.int64()), ("day", pa.date32()),
        ("t", TIMESTAMP), ("x", pa.decimal128(6, 2)), ("b", pa.bool_()), ("f", pa.float32()), ("y", pa.binary()),
        ("s", pa.struct([("a", pa.int64()), ("date", pa.string())])), ("l", pa.list_(pa.int32())),
    ]
)  # fmt: skip
STRINGS = st.sampled_from(["", "a", "ab", "b", "é", "\ufffd", "\uffee", "😀", "a😀", "a\ufffd", "a_b", "a%"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "city": STRINGS,
    "fare": st.sampled_from([-1.5, -0.0, 0.0, 0.1, 2.0, math.nan, math.inf]) | st.floats(),
    "n": st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1]),
    "day": st.integers(-2, 2),
    "t": st.integers(-3, 3),
    "x": st.integers(-300, 300).map(lambda n: Decimal(n).scaleb(-2)),
    "b": st.booleans(),
    "f": st.floats(width=32) | st.sampled_from([0.0, math.inf, -math.inf]),
}
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    **VALUES,
    "fare": st.sampled_from(
        [-1.5, -0.0, 0.0, 0.1, 2, math.inf, math.nan, Decimal("0.1"), 10**400, Decimal("-1e400"), Decimal("1e-400")]
    ),
    "n": st.integers(-4, 4) | st.sampled_from([1.5, -0.5, 2**31, -(2**40), Decimal("2.0"), math.inf, -math.inf, math.nan]),
    "day": st.integers(-3, 3).map(lambda d: date.fromordinal(date(1970, 1, 1).toordinal() + d)) | st.just("1970-01-01 12:00"),
    "t": st.integers(0, 3).map(lambda us: datetime(1970, 1, 1, microsecond=us)) | st.just("1969-12-31 23:59:59.999998Z"),
    "x": st.sampled_from([Decimal("1.5"), Decimal("1.505"), 1, -2, 0.25, 10**9, Decimal("1E+5000"), Decimal("1E-5000")]),
    "f": st.sampled_from([0.1, 0, -0.0, 1e39, -1e39, 1e-50, 2.5, math.nan, math.inf]),
}  # fmt: skip
NAMES = st.sampled_from(sorted(VALUES))


def leaves() -> st.SearchStrategy[Expr]:
    ops = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    compares = NAMES.flatmap(lambda name: st.builds(Compare, st.just(name), ops, LITERALS[name]))
    ins = NAMES.flatmap(lambda name: st.builds(In, st.just(name), st.lists(LITERALS[name], max_size=3).map(tuple), st.booleans()))
    likes = st.builds(Like, st.just("city"), st.lists(st.sampled_from([*"ab%_é😀\ufffd", "\\%", "\\_"]), max_size=4).map("".join))
    return st.one_of(
        compares, ins, likes, st.builds(IsNull, NAMES), st.sampled_from([Constant(True), Constant(False), Constant(None)])
    )


def grow(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    parts = st.lists(children, min_size=1, max_size=3).map(tuple)
    return st.one_of(st.builds(And, parts), st.builds(Or, parts), st.builds(Not, children))


EXPRS = st.recursive(leaves(), grow, max_leaves=6)
BATCHES = st.lists(st.fixed_dictionaries({name: values | st.none() for name, values in VALUES.items()}), max_size=4)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    def column(name: str) -> pa.Array:
        type_ = SCHEMA.field(name).type
        values = [row[name] for row in rows]
        physical = pa.int32() if name == "day" else pa.int64() if name == "t" else type_
        return pa.array(values, physical).cast(type_)

    return pa.record_batch({name: column(name) for name in VALUES})
