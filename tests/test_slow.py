"""How the list of tests that `make check` leaves out is made."""

from __future__ import annotations

from tests.slow import renewed, slowest

SECONDS = {"a": 3.0, "b": 1.0, "c": 2.0, "d": 0.5}


def test_the_longest_go_until_the_others_fit() -> None:
    assert slowest(SECONDS, 2.0) == ["a", "c"]
    assert slowest(SECONDS, 7.0) == []


def test_a_run_of_all_makes_the_list_anew_and_one_of_the_quick_adds_to_it() -> None:
    assert renewed(frozenset({"a", "gone"}), SECONDS, 4.0) == ["a"]
    assert renewed(frozenset({"long", "longer"}), SECONDS, 4.0) == ["a", "long", "longer"]
