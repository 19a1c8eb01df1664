"""The scenarios in Apache Hudi."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.oracle import ApacheHudi
from tests.scenarios import SCENARIOS
from tests.scenarios.scenario import Scenario
from tests.support.drivers.apache_hudi import HudiSql
from tests.support.drivers.driver import check, pairs


@pytest.mark.sample(6)
@pytest.mark.parametrize(("driver", "scenario"), pairs((HudiSql,), SCENARIOS))
def test_scenario(driver: type[HudiSql], scenario: Scenario, hudi: ApacheHudi, tmp_path: Path) -> None:
    check(driver(tmp_path, hudi), scenario)
