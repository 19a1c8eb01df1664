"""Scenarios of all subjects."""

from __future__ import annotations

from tests.scenarios import inserts, missing_columns, parameters, row_changes, statements, store_assignment, write_modes
from tests.scenarios.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = (
    *inserts.SCENARIOS,
    *missing_columns.SCENARIOS,
    *parameters.SCENARIOS,
    *row_changes.SCENARIOS,
    *statements.SCENARIOS,
    *store_assignment.SCENARIOS,
    *write_modes.SCENARIOS,
)
