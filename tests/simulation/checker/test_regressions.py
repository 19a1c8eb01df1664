"""Schedules of fixed defects pass, and those of known defects still fail."""

from __future__ import annotations

import re

import pytest

from tests.simulation.checker.quick import quickly
from tests.simulation.checker.recorded_schedules import KEPT
from tests.simulation.checker.run import replay


@pytest.mark.parametrize("name", KEPT)
def test_recorded_schedules_stay_correct(name: str) -> None:
    kept = KEPT[name]
    with quickly():
        verdict = replay(kept.schedule)
    shown = "\n".join((repr(kept.schedule), *verdict.outcomes, *verdict.faults))
    if kept.known is None:
        assert verdict.good, shown
        return
    assert not verdict.good, f"this passes now: remove its reason from tests/simulation/checker/recorded_schedules.py\n{shown}"
    assert any(re.search(kept.fails, fault) for fault in verdict.faults), shown
