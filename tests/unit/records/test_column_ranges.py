"""Pruning by columns of ranges equals pruning range by range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import Internal
from pyhudi.records.column_ranges import RangeColumn, may_match
from pyhudi.records.column_statistics import ColumnRange, batch_ranges
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import Compare, Expr, In, Operand
from pyhudi.records.filters.range_pruning import prune_ranges
from tests.support.predicate_batches import BATCHES, EXPRS, SCHEMA, VALUES, batch_of
from tests.support.range_columns import range_column


@given(EXPRS, st.lists(BATCHES, min_size=1, max_size=5), st.data())
def test_many_files_at_once_are_as_one_by_one(expr: Expr, files: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    bound = bind(expr, SCHEMA)
    names = sorted(VALUES)
    ranges = [batch_ranges(batch_of(rows), names) for rows in files]
    for found in ranges:
        for name in names:
            # What is not known may be anything.
            if data.draw(st.integers(0, 5)) == 0:
                found[name] = ColumnRange(null_count=found[name].null_count, value_count=found[name].value_count)
            if data.draw(st.integers(0, 5)) == 0:
                found[name] = ColumnRange(found[name].min, found[name].max)
    left_out = data.draw(st.sampled_from([*names, ""]))
    left = [name for name in names if name != left_out]
    columns: dict[Operand, RangeColumn] = {n: range_column([f[n] for f in ranges], SCHEMA.field(n).type) for n in left}
    expected = [prune_ranges(bound, {name: f[name] for name in left}) for f in ranges]
    assert may_match(bound, columns, len(files)).tolist() == expected


def test_long_lists_are_taken_for_the_range_that_they_span() -> None:
    ranges = [ColumnRange(low, low + 5, 0, 6) for low in (-10, 0, 199, 205)]
    columns: dict[Operand, RangeColumn] = {"n": range_column(ranges, pa.int32())}
    some = bind(In("n", tuple(range(0, 202, 2))), SCHEMA)
    assert may_match(some, columns, 4).tolist() == [False, True, True, False]
    cities = [ColumnRange(text, text, 0, 1) for text in ("a", "b0050", "z")]
    listed = bind(In("city", tuple(f"b{n:04d}" for n in range(100))), SCHEMA)
    assert may_match(listed, {"city": range_column(cities, pa.string())}, 3).tolist() == [False, True, False]
    odd = bind(In("city", (*(f"b{n:04d}" for n in range(100)), "😀")), SCHEMA)
    assert may_match(odd, {"city": range_column(cities, pa.string())}, 3).all()


def test_no_files_and_no_columns() -> None:
    bound = bind(Compare("n", "=", 1), SCHEMA)
    assert may_match(bound, {}, 3).tolist() == [True, True, True]
    assert may_match(bound, {"n": range_column([], pa.int32())}, 0).dtype == np.bool_
    with pytest.raises(Internal):
        may_match(Compare("n", "=", 1), {"n": range_column([ColumnRange(1, 1)], pa.int32())}, 1)
    with pytest.raises(Internal):
        RangeColumn(pa.array([1]), pa.array([1]), pa.array([], pa.int64()), pa.array([1]))
