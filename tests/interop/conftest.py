"""The real Hudi for the interop tests: one process for the whole run, started by the first request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.oracle import ROOT, RealHudi, missing
from tests.needs import unavailable


@pytest.fixture(scope="session")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHudi]:
    """The real Apache Hudi 1.0.2; see tests/interop/oracle.py. Its log is artifacts/interop/hudi.log."""
    lack = missing()
    if lack is not None:
        unavailable("interop", lack)
    log = ROOT / "artifacts" / "interop" / "hudi.log"
    log.unlink(missing_ok=True)
    real = RealHudi(tmp_path_factory.mktemp("real-hudi"), log)
    yield real
    real.close()
