"""Apache Hudi for the interop tests: one process per run, started by the first request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyhudi.storage.locks.zookeeper import end_sessions
from tests.conformance.servers import Server, running_zookeeper
from tests.interop.oracle import RELEASE, ROOT, ApacheHudi, missing
from tests.support.needs import unavailable


@pytest.fixture
def hudi(apache_hudi: ApacheHudi) -> Iterator[ApacheHudi]:
    """The real Apache Hudi 1.0.2, with the settings of a new session; see tests/interop/oracle.py."""
    yield apache_hudi
    # What a test has SET must not reach the next one.
    apache_hudi.sql("RESET")


@pytest.fixture
def newer_hudi(real_newer_hudi: ApacheHudi) -> Iterator[ApacheHudi]:
    """The real Apache Hudi 1.1.1, whose own table version is 9, as `hudi`."""
    yield real_newer_hudi
    real_newer_hudi.sql("RESET")


@pytest.fixture
def newest_hudi(real_newest_hudi: ApacheHudi) -> Iterator[ApacheHudi]:
    """Apache Hudi 1.2.0, whose own table version is 9, as `hudi`."""
    yield real_newest_hudi
    real_newest_hudi.sql("RESET")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for locks that both take."""
    pytest.importorskip("kazoo")
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
        end_sessions()


@pytest.fixture(scope="session")
def apache_hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheHudi]:
    """The one process of the run. Its log is artifacts/interop/hudi.log."""
    yield from _process(tmp_path_factory, RELEASE, "hudi")


@pytest.fixture(scope="session")
def real_newer_hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheHudi]:
    """The one process of release 1.1.1, started by the first test that uses it."""
    yield from _process(tmp_path_factory, "1.1.1", "newer-hudi")


@pytest.fixture(scope="session")
def real_newest_hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheHudi]:
    """The one process of release 1.2.0, started by the first test that uses it."""
    yield from _process(tmp_path_factory, "1.2.0", "newest-hudi")


def _process(tmp_path_factory: pytest.TempPathFactory, release: str, name: str) -> Iterator[ApacheHudi]:
    lack = missing(release)
    if lack is not None:
        unavailable("interop", lack)
    log = ROOT / "artifacts" / "interop" / f"{name}.log"
    log.unlink(missing_ok=True)
    real = ApacheHudi(tmp_path_factory.mktemp(f"real-{name}"), log, release)
    yield real
    real.close()
