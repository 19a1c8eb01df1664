from __future__ import annotations

import uuid

import pytest

from pyhudi.errors import StorageUnavailable, WriteConflict
from pyhudi.storage import Storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultOutcome, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.storage.heartbeats import (
    Heartbeat,
    HeartbeatSettings,
    delete_heartbeat,
    heartbeat_expired,
    last_heartbeat_ms,
    list_heartbeats,
)
from pyhudi.storage.memory import MemoryStorage

T = "20261121044645518"
SETTINGS = HeartbeatSettings(interval_ms=1_000, tolerable_misses=2)


@pytest.fixture
def env() -> ReplayEnvironment:
    return ReplayEnvironment(5, 10_000)


@pytest.fixture
def storage(env: ReplayEnvironment) -> Storage:
    return MemoryStorage(f"memory://{uuid.uuid4().hex}", env)


def test_heartbeat_repeats_until_stopped(storage: Storage, env: ReplayEnvironment) -> None:
    heartbeat = Heartbeat(storage, env, T, SETTINGS)
    heartbeat.start()
    assert storage.read(f".hoodie/.heartbeat/{T}") == b""
    env.sleep_ms(3_500)
    assert last_heartbeat_ms(storage, T) == 13_000
    assert list_heartbeats(storage) == (T,)
    heartbeat.check()
    heartbeat.stop()
    env.sleep_ms(5_000)
    assert last_heartbeat_ms(storage, T) is None
    assert list_heartbeats(storage) == ()


def test_stop_can_keep_the_heartbeat_file(storage: Storage, env: ReplayEnvironment) -> None:
    heartbeat = Heartbeat(storage, env, T, SETTINGS)
    heartbeat.start()
    heartbeat.stop(delete=False)
    env.sleep_ms(5_000)
    assert last_heartbeat_ms(storage, T) == 10_000
    delete_heartbeat(storage, T)
    delete_heartbeat(storage, T)
    assert list_heartbeats(storage) == ()


@pytest.mark.parametrize(("age_ms", "expired"), [(0, False), (2_000, False), (2_001, True)])
def test_when_it_has_expired(storage: Storage, env: ReplayEnvironment, age_ms: int, expired: bool) -> None:
    storage.put(f".hoodie/.heartbeat/{T}", b"")
    assert heartbeat_expired(storage, T, env.now_ms() + age_ms, SETTINGS) is expired


def test_no_file_is_expired(storage: Storage) -> None:
    assert heartbeat_expired(storage, T, 0, SETTINGS)


def test_defaults_are_those_of_hudi() -> None:
    assert HeartbeatSettings().expiry_ms == 120_000


def test_a_writer_that_slept_too_long_must_not_publish(storage: Storage, env: ReplayEnvironment) -> None:
    heartbeat = Heartbeat(storage, env, T, SETTINGS)
    with pytest.raises(WriteConflict, match=T):
        heartbeat.check()
    heartbeat.start()
    env.stall_ms(2_000)
    heartbeat.check()
    env.stall_ms(1)
    with pytest.raises(WriteConflict) as caught:
        heartbeat.check()
    assert caught.value.instants == (T,)


def test_a_beat_that_fails_is_made_up_for_by_the_next(storage: Storage, env: ReplayEnvironment) -> None:
    heartbeat = Heartbeat(FaultyStorage(storage, Fault(2, FaultPoint.BEFORE, FaultOutcome.LOST_RESPONSE)), env, T, SETTINGS)
    heartbeat.start()
    env.sleep_ms(1_500)
    assert last_heartbeat_ms(storage, T) == 10_000
    env.sleep_ms(1_000)
    assert last_heartbeat_ms(storage, T) == 12_000


def test_the_first_beat_must_succeed(storage: Storage, env: ReplayEnvironment) -> None:
    heartbeat = Heartbeat(FaultyStorage(storage, Fault(1, FaultPoint.BEFORE, FaultOutcome.LOST_RESPONSE)), env, T, SETTINGS)
    with pytest.raises(StorageUnavailable):
        heartbeat.start()


def test_a_dead_process_beats_no_more(storage: Storage, env: ReplayEnvironment) -> None:
    faulty = FaultyStorage(storage, Fault(2, FaultPoint.BEFORE))
    Heartbeat(faulty, env, T, SETTINGS).start()
    with pytest.raises(SimulatedCrash):
        faulty.put("x", b"")
    env.sleep_ms(10_000)
    assert heartbeat_expired(storage, T, env.now_ms(), SETTINGS)
