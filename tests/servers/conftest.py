"""Servers of lock providers: each is started by the first test that needs it, once in a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyhudi.storage.locks.zookeeper import end_sessions
from tests.conformance.moto_server import running_s3_server
from tests.conformance.servers import Server, running_metastore, running_zookeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("kazoo")
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
        end_sessions()


@pytest.fixture(scope="session")
def aws_endpoint() -> Iterator[str]:
    """DynamoDB as moto serves it."""
    pytest.importorskip("boto3")
    with running_s3_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("thriftpy2")
    with running_metastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server
