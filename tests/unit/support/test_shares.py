from __future__ import annotations

import pytest

from tests.support.needs import WIDE
from tests.support.shares import Share, chosen, taking


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
def test_the_shares_are_disjoint_and_hold_both_ends_of_each_kind(count: int) -> None:
    with taking(Share.SMOKE):
        smoke = chosen(range(count), lambda number: number % 3)
    with taking(Share.OTHERS):
        others = chosen(range(count), lambda number: number % 3)
    assert smoke == sorted({0, count // 2, count - 1} & set(range(count)))
    assert not set(smoke) & set(others)
    ends = {*range(min(3, count)), *range(max(0, count - 3), count)}
    assert {*smoke, *others} == (set(range(count)) if WIDE else ends | set(smoke))


def test_a_loop_outside_of_a_test_with_shares_fails() -> None:
    with pytest.raises(AssertionError, match="crash_points"):
        chosen([1], lambda number: number)
