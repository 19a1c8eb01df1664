"""The scenarios through the entry points that need no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios import SCENARIOS
from tests.scenarios.scenario import Scenario
from tests.support.drivers.driver import Driver, check, pairs
from tests.support.drivers.embedded import CommandLine, EmbeddedSql, PythonExpressions, PythonTable, PythonWrite

_DRIVERS = (PythonTable, PythonExpressions, PythonWrite, EmbeddedSql, CommandLine)


@pytest.mark.parametrize(("driver", "scenario"), pairs(_DRIVERS, SCENARIOS))
def test_scenario(driver: type[Driver], scenario: Scenario, tmp_path: Path) -> None:
    check(driver(tmp_path), scenario)
