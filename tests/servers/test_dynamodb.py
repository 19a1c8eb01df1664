"""The DynamoDB lock on moto's server and on DynamoDB Local."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pyhudi.errors import StorageUnavailable
from pyhudi.storage.environment import Environment, ReplayEnvironment
from pyhudi.storage.locks import dynamodb
from pyhudi.storage.locks.dynamodb import DynamoDbLock, DynamoDbSettings
from tests.conformance.lock_suite import LockSuite, MakeLock

Item = dict[str, dict[str, str]]


@pytest.fixture(params=["aws_endpoint", pytest.param("dynamodb_local", marks=pytest.mark.wide)], ids=["moto", "local"])
def endpoint(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def settings(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> DynamoDbSettings:
    # The server answers late where the processor is withheld from it.
    monkeypatch.setattr(dynamodb, "_ANSWER_TIMEOUT_S", 1_200)
    return DynamoDbSettings("locks", endpoint_url=endpoint, access_key="test", secret_key="test")


@pytest.fixture
def env() -> ReplayEnvironment:
    return ReplayEnvironment(8)


@pytest.fixture
def make(settings: DynamoDbSettings) -> Callable[[Environment], DynamoDbLock]:
    key = uuid.uuid4().hex
    return lambda env: DynamoDbLock(env, settings, key)


class TestDynamoDbLock(LockSuite):
    is_fair = False

    @pytest.fixture
    def make_lock(self, make: MakeLock) -> MakeLock:
        return make


def item(lock: DynamoDbLock) -> dict[str, str] | None:
    return lock._item()


def test_lock_item_has_the_format_of_the_aws_lock_client(make: Any, env: ReplayEnvironment) -> None:
    lock = make(env)
    with lock.held():
        first = item(lock)
        assert first is not None
        assert set(first) == {"key", "ownerName", "leaseDuration", "recordVersionNumber"}
        assert first["leaseDuration"] == "30000"
        env.sleep_ms(10_001)
        renewed = item(lock)
        assert renewed is not None
        assert renewed["recordVersionNumber"] != first["recordVersionNumber"]
        assert renewed["ownerName"] == first["ownerName"]
    assert item(lock) is None


def test_lease_of_a_crashed_holder_expires(make: Any, env: ReplayEnvironment) -> None:
    dead, waiter = make(env), make(env)
    dead.acquire()
    dead._renewal.stop()
    begun_ms = env.monotonic_ms()
    waiter.acquire()
    assert 30_000 < env.monotonic_ms() - begun_ms < 32_000
    with pytest.raises(StorageUnavailable, match=r"the table's lock was lost: \S+ took it over"):
        dead.check()
    dead.release()
    waiter.check()
    waiter.release()


def test_an_item_that_another_client_released_is_free(make: Any, env: ReplayEnvironment, settings: DynamoDbSettings) -> None:
    lock = make(env)
    with lock.held():
        left = item(lock)
    assert left is not None
    lock._request("put_item", Item={name: {"S": text} for name, text in {**left, "isReleased": "1"}.items()})
    with lock.held(0):
        lock.check()


@pytest.mark.parametrize("operation", ["put_item", "update_item", "delete_item"])
def test_acquire_with_a_lost_response(make: Any, env: ReplayEnvironment, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    lock = make(env)
    asked = lock._request
    lost: list[str] = []

    def losing(name: str, **arguments: object) -> Any:
        answer = asked(name, **arguments)
        if name == operation and not lost:
            lost.append(name)
            raise StorageUnavailable("no answer")
        return answer

    monkeypatch.setattr(lock, "_request", losing)
    with lock.held():
        env.sleep_ms(25_000)
        lock.check()
        lock.renew()
    assert lost == [operation]
    monkeypatch.undo()
    assert item(lock) is None


def test_timed_out_acquire_with_a_lost_response_leaves_no_item(
    make: Any, env: ReplayEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = make(env)
    asked = lock._request

    def losing(name: str, **arguments: object) -> Any:
        answer = asked(name, **arguments)
        if name == "put_item":
            raise StorageUnavailable("no answer")
        return answer

    monkeypatch.setattr(lock, "_request", losing)
    with pytest.raises(StorageUnavailable, match="no answer"):
        lock.acquire(0)
    assert item(lock) is None


def test_unreachable_server_is_reported(env: ReplayEnvironment) -> None:
    settings = DynamoDbSettings("locks", endpoint_url="http://127.0.0.1:1", access_key="test", secret_key="test")
    with pytest.raises(StorageUnavailable, match="DynamoDB did not answer get_item"):
        DynamoDbLock(env, settings, "t").acquire(0)
