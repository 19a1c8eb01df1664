"""Random tables and random operations: `python -m tests.simulation.attack.random_tables.explore` explores other seeds."""

from __future__ import annotations

import random

import pytest

from tests.simulation.attack.random_tables.explore import THEMES, Plan, plan_of, report, run_plan, shrink
from tests.simulation.attack.random_tables.rules import RULES
from tests.simulation.attack.random_tables.table_generator import draw_table, seeds_of_pairs
from tests.simulation.checker.quick import quickly
from tests.support.needs import WIDE

# The smoke tier has the first six, in which half of the pairs of properties meet.
PAIRED = seeds_of_pairs(range(1000, 1300), 60 if WIDE else 20)


@pytest.mark.parametrize("seed", [*PAIRED[:4], *(pytest.param(seed, marks=pytest.mark.full) for seed in PAIRED[4:])])
def test_random_tables_equal_their_model(seed: int) -> None:
    passes(plan_of(seed, 25 if WIDE else 16))


MET = [(theme, seed) for seed in range(2000, 2005) for theme in (None, *sorted(THEMES))]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("theme", "seed"), [pytest.param(*each, marks=[pytest.mark.wide] * (each[1] > 2000)) for each in MET])
def test_random_tables_with_concurrent_steps_equal_their_model(theme: str | None, seed: int) -> None:
    passes(plan_of(seed, 20 if WIDE else 14, 0.5, theme))


def passes(plan: Plan) -> None:
    with quickly():
        failure = run_plan(plan)
        assert failure is None, report(*shrink(plan, failure))


def test_every_table_property_is_generated() -> None:
    drawn = [draw_table(random.Random(seed)) for seed in range(400)]
    for name in ("kind", "version", "keyed", "partitioned", "ordered", "soft", "moves", "has_cdc", "has_metadata"):
        assert len({getattr(each, name) for each in drawn}) == 2, name
    assert {each.index for each in drawn} == {
        *("SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM", "RECORD_INDEX", "RECORD_LEVEL_INDEX", "BUCKET", "INMEMORY"),
    }
    assert {each.merges for each in drawn} == set(RULES)
