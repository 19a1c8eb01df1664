"""The Spark engine passes the engine suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyhudi.engines.spark.engine import SparkEngine
from tests.conformance.engine_suite import EngineSuite, ToData
from tests.support.spark_key_lookup import go

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestSparkEngine(EngineSuite):
    @pytest.fixture(params=["few keys", "driver", pytest.param("tasks", marks=pytest.mark.wide)])
    def engine(self, spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkEngine:
        go(monkeypatch, request.param)
        if request.param != "few keys":
            monkeypatch.setattr("pyhudi.engines.spark.engine.rows_for_driver", lambda rows, _: rows.collect())
        return SparkEngine(spark)

    @pytest.fixture
    def data(self, spark: SparkSession) -> ToData:
        return lambda table: spark.createDataFrame(table)
