"""Schedules of fixed defects pass, and those of known defects still fail."""

from __future__ import annotations

import re

import pytest

from tests.simulation.checker.quick import quickly
from tests.simulation.checker.recorded_schedules import RECORDED_SCHEDULES
from tests.simulation.checker.run import replay


@pytest.mark.parametrize("name", RECORDED_SCHEDULES)
def test_recorded_schedules_stay_correct(name: str) -> None:
    recorded = RECORDED_SCHEDULES[name]
    with quickly():
        verdict = replay(recorded.schedule)
    shown = "\n".join((repr(recorded.schedule), *verdict.outcomes, *verdict.faults))
    if recorded.known is None:
        assert verdict.good, shown
        return
    assert not verdict.good, f"this passes now: remove its reason from tests/simulation/checker/recorded_schedules.py\n{shown}"
    assert any(re.search(recorded.fails, fault) for fault in verdict.faults), shown
