"""The Spark engine against the suite of engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyhudi.engines.spark.engine import SparkEngine
from tests.conformance.engine_suite import EngineSuite, ToData

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestSparkEngine(EngineSuite):
    @pytest.fixture
    def engine(self, spark: SparkSession) -> SparkEngine:
        return SparkEngine(spark)

    @pytest.fixture
    def data(self, spark: SparkSession) -> ToData:
        return lambda table: spark.createDataFrame(table)
