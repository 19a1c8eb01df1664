"""The scenarios through the entry points on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scenarios import SCENARIOS
from tests.scenarios.scenario import Scenario
from tests.support.drivers.driver import check, pairs
from tests.support.drivers.on_spark import SparkDriver, SparkPython, SparkSql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.sample(8)
@pytest.mark.parametrize(("driver", "scenario"), pairs((SparkPython, SparkSql), SCENARIOS))
def test_scenario(driver: type[SparkDriver], scenario: Scenario, spark: SparkSession, tmp_path: Path) -> None:
    check(driver(tmp_path, spark), scenario)
