"""Scenarios of all subjects."""

from __future__ import annotations

from tests.scenarios import store_assignment
from tests.scenarios.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = (*store_assignment.SCENARIOS,)
