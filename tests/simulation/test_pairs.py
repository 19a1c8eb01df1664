"""Ordered pairs of actions on the same and on different file groups end as pair_outcomes.py and the docs state.

The table holds the rows of a serial order of the committed actions, and `validate` finds no errors. The wide tier runs
every pair.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.simulation.pair_outcomes import DIFFERENT, SAME, table_of
from tests.simulation.pairs import ACTIONS, BY_NAME, Action, Ending, Point, can_differ, meet, problems_of, verdict_of

PAGE = Path(__file__).parents[2] / "docs" / "concurrency-control.md"
NAMES = [action.name for action in ACTIONS]


def expected(first: Action, second: Action, *, same: bool) -> str:
    return (SAME if same else DIFFERENT)[first.name].split()[NAMES.index(second.name)]


def shown(pairs: Iterable[tuple[Action, Action]], every: int) -> list[ParameterSet]:
    """Of some pairs those with an upsert, of an action with itself, and one in `every` of the others.

    Each action is first and second; the rest are wide.
    """
    found = []
    for first, second in pairs:
        turn = NAMES.index(first.name) + NAMES.index(second.name)
        is_shown = first is second or UPSERT in (first, second) or turn % every == 0
        marks = () if is_shown else pytest.mark.wide
        found.append(pytest.param(first, second, marks=marks, id=f"{first.name}-{second.name}"))
    return found


UPSERT = BY_NAME["upsert"]


@pytest.mark.sample(40)
@pytest.mark.parametrize(("first", "second"), shown(product(ACTIONS, ACTIONS), 4))
def test_pair_on_the_same_file_groups(first: Action, second: Action) -> None:
    verdict, wrong = verdict_of("mor", first, second, same=True)
    assert not wrong
    assert verdict == expected(first, second, same=True)


@pytest.mark.sample(25)
@pytest.mark.parametrize(("first", "second"), shown((pair for pair in product(ACTIONS, ACTIONS) if can_differ(*pair)), 4))
def test_pair_on_different_file_groups(first: Action, second: Action) -> None:
    verdict, wrong = verdict_of("mor", first, second, same=False)
    assert not wrong
    assert verdict == expected(first, second, same=False)


CLEAN_OF_FEW_FILES = replace(
    BY_NAME["clean"], name="clean of few files", act=lambda table, meeting, place, who: table.clean(dry_run=False)
)


@pytest.mark.sample(5)
@pytest.mark.parametrize("other", ACTIONS, ids=NAMES)
def test_a_clean_of_few_files(other: Action) -> None:
    assert meet("mor", CLEAN_OF_FEW_FILES, other, Point.PLANNED, same=True) is None
    before = meet("mor", CLEAN_OF_FEW_FILES, other, Point.WRITTEN, same=True)
    during = meet("mor", other, CLEAN_OF_FEW_FILES, Point.WRITTEN, same=True)
    assert before is not None and during is not None
    assert [*problems_of(before), *problems_of(during)] == []


WRITES = [BY_NAME[name] for name in ("upsert", "delete", "insert_overwrite", "delete_partitions", "clustering")]


@pytest.mark.parametrize(("first", "second"), shown(product(WRITES, WRITES), 3))
def test_copy_on_write_pairs_have_equal_results(first: Action, second: Action) -> None:
    met = meet("cow", first, second, Point.WRITTEN, same=True)
    assert met is not None
    assert not problems_of(met)
    assert verdict_of("cow", first, second, same=True)[0] == expected(first, second, same=True)


@pytest.mark.sample(15)
@pytest.mark.parametrize("change", ["downgrade to 6", "upgrade to 9", "downgrade to 8"])
@pytest.mark.parametrize("first", ACTIONS, ids=NAMES)
def test_operation_planned_before_a_version_change(first: Action, change: str) -> None:
    """A plan for a version is not executed on another version.

    Between 6 and 8 the timeline moves: nothing is acknowledged that readers do not see.
    """
    met = meet("mor", first, BY_NAME[change], Point.LOADED, same=True)
    assert met is not None
    assert not problems_of(met)
    if (first.name, change) == ("downgrade to 8", "upgrade to 9"):
        assert (met.first, met.second) == (Ending.LANDS, Ending.NOTHING)
        return
    assert met.second is Ending.LANDS
    assert met.first in (Ending.STATE, Ending.REFUSED, Ending.NOTHING), met


def test_documented_pair_results_equal_the_simulation() -> None:
    page = PAGE.read_text().splitlines()
    for outcomes in (SAME, DIFFERENT):
        lines = table_of(outcomes)
        start = page.index(lines[2]) - 2 if lines[2] in page else -1
        assert page[start : start + len(lines)] == lines, "put in:\n" + "\n".join(lines)


def test_every_pair_of_actions_has_a_documented_result() -> None:
    assert list(SAME) == NAMES
    for outcomes in (SAME, DIFFERENT):
        assert all(len(row.split()) == len(NAMES) for row in outcomes.values())
