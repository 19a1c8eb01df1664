"""The embedded engine passes the engine suite; tests/spark/test_engine.py runs it on Spark."""

from __future__ import annotations

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from tests.conformance.engine_suite import EngineSuite, ToData


class TestLocalEngine(EngineSuite):
    @pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
    def engine(self, request: pytest.FixtureRequest) -> LocalEngine:
        return LocalEngine(threads=request.param)

    @pytest.fixture
    def data(self) -> ToData:
        return lambda table: table
