"""About 480 fixed random schedules, 3,200 in the wide tier.  The smoke tier runs one in ten of them.

`python -m tests.simulation.checker.explore` runs other seeds.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.checker.explore import explore_one, shrink
from tests.simulation.checker.quick import quickly
from tests.simulation.checker.recorded_schedules import is_known
from tests.simulation.checker.worlds import WORLDS
from tests.support.needs import WIDE
from tests.support.shares import EACH_SHARE, Share

TIMES = int(os.environ.get("PYHUDI_SCHEDULES", "1"))
"""How many times as many schedules are run."""

PLAIN = 230 if WIDE else 30
WITH_METADATA = 16 if WIDE else 6
NOT_WAITING = 50 if WIDE else 16


@EACH_SHARE
@pytest.mark.parametrize("world", WORLDS)
def test_explore(world: str, share: Share) -> None:
    count = TIMES * (WITH_METADATA if WORLDS[world].has_metadata else PLAIN if WORLDS[world].waits else NOT_WAITING)
    first = -(-count // 10)
    with quickly():
        for seed in range(first) if share is Share.SMOKE else range(first, count):
            found = explore_one(seed, [world])
            if found.verdict.good or is_known(found.verdict):
                continue
            small = shrink(found, runs=100)
            pytest.fail("\n".join((f"seed {seed}", repr(small.schedule), *small.verdict.outcomes, *small.verdict.faults)))
