"""The row comparison of the interop tests detects every relevant difference."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.rows import assert_same_rows, without_meta

NAN = float("nan")
NESTED = pa.struct([("a", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.decimal128(10, 2)))])


def nested(*values: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, NESTED)})


def test_order_of_rows_and_columns_is_free() -> None:
    left = pa.table({"id": [1, 2, 2], "name": ["a", "b", "c"]})
    right = pa.table({"name": ["c", "b", "a"], "id": [2, 2, 1]})
    assert_same_rows(left, right)


def test_nested_values() -> None:
    one = {"a": [1.0, NAN, None], "m": [("k", Decimal("1.50")), ("l", None)]}
    turned = {"a": [1.0, NAN, None], "m": [("l", None), ("k", Decimal("1.50"))]}
    assert_same_rows(nested(one, None), nested(turned, None))
    with pytest.raises(AssertionError, match="surplus"):
        assert_same_rows(nested(one), nested({**one, "a": [NAN, 1.0, None]}))
    with pytest.raises(AssertionError, match="surplus"):
        assert_same_rows(nested(one), nested({**one, "a": None}))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array(["a", None]), pa.array(["a", None], pa.large_string())),
        (pa.array(["a", None]), pa.array(["a", None]).dictionary_encode()),
        (pa.array([[1]]), pa.array([[1]], pa.large_list(pa.field("element", pa.int64(), nullable=False)))),
        (pa.array([NAN, 1.0]), pa.array([1.0, NAN])),
        (pa.array([0], pa.timestamp("us", "UTC")), pa.array([0], pa.timestamp("us", "Europe/Berlin"))),
    ],
)
def test_spellings_that_do_not_matter(left: pa.Array, right: pa.Array) -> None:
    assert_same_rows(pa.table({"v": left}), pa.table({"v": right}))


@pytest.mark.parametrize(
    ("left", "right", "word"),
    [
        (pa.array([1, 2]), pa.array([1, 3]), "surplus"),
        (pa.array([1, 1, 2]), pa.array([1, 2, 2]), "surplus"),
        (pa.array([1]), pa.array([1, 1]), "missing"),
        (pa.array([0.0]), pa.array([-0.0]), "surplus"),
        (pa.array([1]), pa.array([1], pa.int32()), "types"),
        (pa.array([Decimal("1.0")]), pa.array([Decimal("1.00")]), "types"),
        (pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("us", "UTC")), "types"),
        (pa.array([""]), pa.array([None], pa.string()), "surplus"),
        (pa.array([[]], pa.list_(pa.int64())), pa.array([None], pa.list_(pa.int64())), "surplus"),
    ],
)
def test_differences_that_matter(left: pa.Array, right: pa.Array, word: str) -> None:
    with pytest.raises(AssertionError, match=word):
        assert_same_rows(pa.table({"v": left}), pa.table({"v": right}))


def test_columns_must_agree_unless_ignored() -> None:
    left, right = pa.table({"id": [1], "extra": [2]}), pa.table({"id": [1], "other": [3]})
    with pytest.raises(AssertionError, match=r"only actual has \['extra'\], only expected has \['other'\]"):
        assert_same_rows(left, right)
    assert_same_rows(left, right, ignoring=["extra", "other", "absent"])


def test_a_difference_names_row_and_column() -> None:
    left = pa.table({"_hoodie_record_key": ["a", "b"], "v": [1, 2]})
    right = pa.table({"_hoodie_record_key": ["a", "b"], "v": [1, 9]})
    with pytest.raises(AssertionError, match=r"'_hoodie_record_key': 'b'.*: v: 2 expected 9"):
        assert_same_rows(left, right)


def test_times_are_compared_as_instants() -> None:
    when = datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC)
    left = pa.table({"t": pa.array([when], pa.timestamp("us", "UTC"))})
    assert_same_rows(left, pa.table({"t": pa.array([when], pa.timestamp("us", "America/New_York"))}))


def test_meta_columns_can_be_left_out() -> None:
    table = pa.table({"_hoodie_commit_time": ["1"], "_hoodie_record_key": ["k"], "id": [1]})
    assert without_meta(table).column_names == ["id"]
