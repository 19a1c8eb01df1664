"""Runs of equal codes, and rows sorted by code."""

from __future__ import annotations

import numpy as np
import pytest

from pyhudi.records.row_grouping import group_rows, run_starts, runs


@pytest.mark.parametrize(
    ("codes", "found"),
    [([], []), ([7], [(0, 1)]), ([1, 1, 1], [(0, 3)]), ([1, 1, 0, 2, 2, 1], [(0, 2), (2, 3), (3, 5), (5, 6)])],
)
def test_runs(codes: list[int], found: list[tuple[int, int]]) -> None:
    array = np.array(codes, dtype=np.int64)
    assert list(runs(array)) == found
    assert run_starts(array).tolist() == [start for start, _ in found]


def test_rows_by_code_keep_their_order_and_codes_without_rows_have_no_place() -> None:
    order, bounds = group_rows(np.array([2, 0, 2, 0], dtype=np.int64), 4)
    assert order.tolist() == [1, 3, 0, 2]
    assert bounds.tolist() == [0, 2, 2, 4, 4]
    order, bounds = group_rows(np.zeros(0, dtype=np.int64), 0)
    assert (order.tolist(), bounds.tolist()) == ([], [0])
