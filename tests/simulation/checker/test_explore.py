"""Five hundred fixed random schedules, two thousand in the wide tier.

`python -m tests.simulation.checker.explore` runs other seeds.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.checker.explore import explore_one, shrink
from tests.simulation.checker.kept import excused
from tests.simulation.checker.quick import quickly
from tests.simulation.checker.worlds import WORLDS
from tests.support.needs import WIDE

TIMES = int(os.environ.get("PYHUDI_SCHEDULES", "1"))
"""How many times as many schedules are run."""

PLAIN = 115 if WIDE else 25
WITH_METADATA = 8 if WIDE else 3
NOT_WAITING = 25 if WIDE else 12
BLOCKS = 2


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.full) for block in range(1, BLOCKS))])
@pytest.mark.parametrize("world", WORLDS)
def test_explore(world: str, block: int) -> None:
    count = TIMES * (WITH_METADATA if WORLDS[world].has_metadata else PLAIN if WORLDS[world].waits else NOT_WAITING)
    with quickly():
        for seed in range(block * count, (block + 1) * count):
            found = explore_one(seed, [world])
            if found.verdict.good or excused(found.verdict):
                continue
            small = shrink(found, runs=100)
            pytest.fail("\n".join((f"seed {seed}", repr(small.schedule), *small.verdict.outcomes, *small.verdict.faults)))
