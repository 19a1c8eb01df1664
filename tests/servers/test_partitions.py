"""Network partitions between a writer and its lock server that outlast the lease.

The server ends the ZooKeeper session or the metastore lock, and other writers proceed. The partitioned writer publishes
nothing, and its write is rolled back by itself or by the next writer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import pytest

from pyhudi import Table
from pyhudi.errors import HudiError
from pyhudi.storage.environment import Environment, ReplayEnvironment
from pyhudi.storage.factory import open_storage
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.locks import dynamodb, hive_metastore
from pyhudi.storage.locks.dynamodb import DynamoDbLock, DynamoDbSettings
from pyhudi.storage.locks.hive_metastore import HiveLock, HiveLockSettings
from pyhudi.storage.locks.lease import LeaseLock
from pyhudi.storage.locks.storage_lease import StorageLock
from pyhudi.storage.locks.zookeeper import ZookeeperLock
from tests.conformance.moto_server import make_bucket, s3_options
from tests.conformance.servers import Server
from tests.servers.relay import Relay, relay_to
from tests.servers.zookeeper_locks import _PATIENT_S, lock_at
from tests.simulation.fair_lock_options import OPTIONS
from tests.simulation.tables import World

AWAY_MS = 120_000
# The clock of a writer does not advance while it waits for missing responses: each attempt at the lock costs such a wait.
_WAIT_MS = 1_000
# The clock of the others goes on: they outwait a lease.
_PATIENT_MS = 300_000


@dataclass(frozen=True)
class Provider:
    """A provider and its server.

    make: its lock for a writer that reaches the server at a URL and waits for so long. lapse: called while the holder is
    connected, returns a function after which the server considers it dead; leases by the clock expire by themselves.
    """

    url: str
    make: Callable[[Environment, str, int], LeaseLock]
    expire_session: Callable[[LeaseLock], Callable[[], None]] = lambda lock: lambda: None


def dynamo_db(request: pytest.FixtureRequest) -> Provider:
    endpoint = request.getfixturevalue("aws_endpoint")
    key = uuid.uuid4().hex

    def make(env: Environment, url: str, wait_ms: int) -> LeaseLock:
        settings = DynamoDbSettings("locks", endpoint_url=url, access_key="test", secret_key="test")
        return DynamoDbLock(env, settings, key, wait_ms=wait_ms)

    return Provider(endpoint, make)


def lease_on_s3(request: pytest.FixtureRequest) -> Provider:
    endpoint = request.getfixturevalue("aws_endpoint")
    bucket = f"locks-{uuid.uuid4().hex}"
    make_bucket(endpoint, bucket)

    def make(env: Environment, url: str, wait_ms: int) -> LeaseLock:
        # A disconnected client gets an error at the first attempt.
        storage = open_storage(f"s3://{bucket}/t", {**s3_options(url), "max_retries": "0"})
        return StorageLock(storage, env, wait_ms=wait_ms)

    return Provider(endpoint, make)


def zookeeper_node(request: pytest.FixtureRequest) -> Provider:
    from kazoo.client import KazooClient

    server: Server = request.getfixturevalue("zookeeper")
    path = f"/{uuid.uuid4().hex}"

    def make(env: Environment, url: str, wait_ms: int) -> LeaseLock:
        return lock_at(urlsplit(url).netloc, path, env, wait_ms=wait_ms)

    def expire_session(lock: LeaseLock) -> Callable[[], None]:
        assert isinstance(lock, ZookeeperLock)
        # kazoo reports it as long as it is connected.
        client_id = lock._session._client.client_id

        def end() -> None:
            # Who takes a session over and closes it ends it.
            double = KazooClient(server.address, client_id=client_id, timeout=_PATIENT_S)
            double.start(_PATIENT_S)
            double.stop()
            double.close()

        return end

    return Provider(f"http://{server.address}", make, expire_session)


def lock_of_hive(request: pytest.FixtureRequest) -> Provider:
    server: Server = request.getfixturevalue("metastore")
    table = f"t{uuid.uuid4().hex}"

    def make(env: Environment, url: str, wait_ms: int) -> LeaseLock:
        return HiveLock(env, HiveLockSettings((f"thrift://{urlsplit(url).netloc}",), "lakes", table), wait_ms=wait_ms)

    def expire_session(lock: LeaseLock) -> Callable[[], None]:
        assert isinstance(lock, HiveLock)
        other = make(ReplayEnvironment(2), f"http://{server.address}", 0)
        assert isinstance(other, HiveLock)
        other._lock_id = lock._lock_id

        def end() -> None:
            other._release_lease()

        return end

    return Provider(f"http://{server.address}", make, expire_session)


class CutOffWriter:
    """A writer whose network is cut at its call number `at` while it holds the lock.  mends: before it goes on."""

    def __init__(self, world: World, relay: Relay, provider: Provider, at: int, *, reconnects: bool) -> None:
        self.world, self._relay, self._at, self._mends = world, relay, at, reconnects
        self.clock = ReplayEnvironment(9, world.environment.now_ms())
        self._provider = provider
        self.lock = provider.make(self.clock, f"http://127.0.0.1:{relay.port}", _WAIT_MS)
        self.calls = 0
        self.table = world.table
        storage = FaultyStorage(self.table.context.storage, listener=self._watch)
        self.table._open.context = replace(self.table.context, storage=storage, lock=self.lock, env=self.clock)

    def _watch(self, number: int, call: StorageCall) -> None:
        if self.lock._safe_until_ms is None:
            return
        self.calls += 1
        if self.calls != self._at:
            return
        expire_session = self._provider.expire_session(self.lock)
        self._relay.cut()
        expire_session()
        if isinstance(self.lock, ZookeeperLock) and not self._mends:
            # Only where no answer can come.
            self.lock._session._answer_timeout_s = 0.3
        self.clock.stall_ms(AWAY_MS)
        self.world.environment.advance_ms(AWAY_MS)
        other = self.other()
        other.upsert(other.scan().to_arrow().slice(0, 1))
        if self._mends:
            self._relay.mend()

    def other(self) -> Table:
        """The table as a process opens it that is on the server's side of the cut."""
        lock = self._provider.make(self.world.environment, self._provider.url, _PATIENT_MS)
        table = Table(
            self.world.uri,
            options={**self.world.options, "hoodie.write.lock.wait_time_ms": _PATIENT_MS},
            environment=self.world.environment,
        )
        table._open.context = replace(table.context, lock=lock)
        return table


@pytest.fixture(params=[dynamo_db, lease_on_s3, zookeeper_node, lock_of_hive], ids=["dynamodb", "s3", "zookeeper", "hive"])
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Provider:
    # The server answers late where the processor is withheld from it.
    monkeypatch.setattr(dynamodb, "_ANSWER_TIMEOUT_S", 1_200)
    monkeypatch.setattr(hive_metastore, "_ANSWER_TIMEOUT_MS", 1_200_000)
    made: Provider = request.param(request)
    return made


@pytest.fixture
def relay(provider: Provider) -> Iterator[Relay]:
    with relay_to(provider.url) as found:
        yield found


@pytest.mark.parametrize("reconnects", [True, False], ids=["mended", "cut"])
@pytest.mark.parametrize("at", ["begins", "commits"])
def test_writer_cut_off_from_its_lock_server_publishes_nothing(
    provider: Provider, relay: Relay, at: str, reconnects: bool
) -> None:
    made = World("cow", {**OPTIONS, "hoodie.write.lock.wait_time_ms": _WAIT_MS})
    made.upsert({"k0": 0, "k1": 1})
    whole = CutOffWriter(made.copy(), relay, provider, 0, reconnects=reconnects)
    whole.table.upsert(whole.world.table.scan().to_arrow().slice(1, 1))
    number = 1 if at == "begins" else whole.calls - 1
    cut = CutOffWriter(made.copy(), relay, provider, number, reconnects=reconnects)
    before = cut.world.scanned()
    with pytest.raises(HudiError) as told:
        cut.table.upsert(cut.world.table.scan().to_arrow().slice(1, 1))
    assert cut.calls >= number
    timeline = cut.world.table.timeline()
    assert len(timeline.completed_writes()) == 2, f"the first write and that of the other: {told.value}"
    assert cut.world.scanned() == before
    relay.mend()
    last = cut.other()
    last.upsert(last.scan().to_arrow())
    assert cut.world.table.timeline().pending() == ()
    assert cut.world.scanned() == before
    assert cut.world.table.validate().ok
