"""The real Hudi for the interop tests: one process for the whole run, started by the first request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.oracle import ROOT, RealHudi, missing
from tests.needs import unavailable


@pytest.fixture
def hudi(real_hudi: RealHudi) -> Iterator[RealHudi]:
    """The real Apache Hudi 1.0.2, with the settings of a new session; see tests/interop/oracle.py."""
    yield real_hudi
    # What a test has SET must not reach the next one.
    real_hudi.sql("RESET")


@pytest.fixture(scope="session")
def real_hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHudi]:
    """The one process of the run. Its log is artifacts/interop/hudi.log."""
    lack = missing()
    if lack is not None:
        unavailable("interop", lack)
    log = ROOT / "artifacts" / "interop" / "hudi.log"
    log.unlink(missing_ok=True)
    real = RealHudi(tmp_path_factory.mktemp("real-hudi"), log)
    yield real
    real.close()
