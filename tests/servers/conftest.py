"""Servers of lock providers: each is started by the first test that needs it, once in a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pyhudi.storage.locks.zookeeper import end_sessions
from tests.conformance.moto_server import running_s3_server
from tests.conformance.servers import Server, running_dynamodb_local, running_hbase, running_metastore, running_zookeeper


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
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """DynamoDB as Amazon's own server for tests serves it."""
    pytest.importorskip("boto3")
    with running_dynamodb_local(tmp_path_factory.mktemp("dynamodb")) as server:
        yield f"http://{server.address}"


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("thriftpy2")
    with running_metastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@dataclass
class Hbase:
    """HBase as its Thrift server gives it.  zookeeper: the port at which other clients begin."""

    address: str
    zookeeper: int
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def table(self, *, versions: int = 3) -> str:
        """The name of a new table that may be an index."""
        import thriftpy2
        from thriftpy2.rpc import make_client

        messages = thriftpy2.load(str(Path(__file__).with_name("hbase_admin.thrift")), "hbase_admin_thrift")
        host, port = self.address.split(":")
        client = make_client(messages.THBaseService, host, int(port), timeout=600_000)
        name = f"index_{next(self._numbers)}"
        families = [messages.TColumnFamilyDescriptor(name=b"_s", maxVersions=versions)]
        table = messages.TTableDescriptor(tableName=messages.TTableName(qualifier=name.encode()), columns=families)
        client.createTable(table, [])
        client.close()
        return name

    def options(self, table: str, **more: Any) -> dict[str, Any]:
        """The options of a write."""
        uris = f"thrift://{self.address}"
        named = {"hoodie.index.hbase.table": table, "pyhudi.index.hbase.thrift.uris": uris}
        return {"hoodie.index.type": "HBASE", **named, **more}


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hbase]:
    pytest.importorskip("thriftpy2")
    with running_hbase(tmp_path_factory.mktemp("hbase")) as (server, zookeeper):
        yield Hbase(server.address, zookeeper)
