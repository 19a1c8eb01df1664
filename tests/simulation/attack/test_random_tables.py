"""Random tables and random operations: `python -m tests.simulation.attack.random_tables.explore` explores other seeds."""

from __future__ import annotations

import random

import pytest

from tests.simulation.attack.random_tables.drawn import draw_table
from tests.simulation.attack.random_tables.explore import THEMES, carry_out, plan_of, report, shrink
from tests.simulation.attack.random_tables.rules import RULES
from tests.simulation.checker.quick import quickly
from tests.support.needs import WIDE


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(1000, 1040 if WIDE else 1003))
def test_tables_are_their_dictionaries(seed: int) -> None:
    with quickly():
        plan = plan_of(seed, 25 if WIDE else 8)
        failure = carry_out(plan)
        assert failure is None, report(*shrink(plan, failure))


MET = [(theme, seed) for seed in range(2000, 2005) for theme in (None, *sorted(THEMES))]


@pytest.mark.parametrize(("theme", "seed"), [MET[0], *(pytest.param(*each, marks=pytest.mark.wide) for each in MET[1:])])
def test_tables_that_others_meet_in_the_midst_of_a_step(theme: str | None, seed: int) -> None:
    with quickly():
        plan = plan_of(seed, 20 if WIDE else 8, 0.5, theme)
        failure = carry_out(plan)
        assert failure is None, report(*shrink(plan, failure))


def test_every_property_is_drawn() -> None:
    drawn = [draw_table(random.Random(seed)) for seed in range(400)]
    for name in ("kind", "version", "keyed", "partitioned", "ordered", "soft", "moves", "has_cdc", "has_metadata"):
        assert len({getattr(each, name) for each in drawn}) == 2, name
    assert {each.index for each in drawn} == {
        *("SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM", "RECORD_INDEX", "RECORD_LEVEL_INDEX", "BUCKET", "INMEMORY"),
    }
    assert {each.merges for each in drawn} == set(RULES)
