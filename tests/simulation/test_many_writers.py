"""The simulation of very many writers is a function of its seed, its lock is exclusive, and the time under the lock
does not grow with the number of commits.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.many_writers.extrapolation import estimate
from benchmarks.many_writers.run import Setting, simulate
from benchmarks.many_writers.world import VirtualTime, WriterEnvironment
from pyhudi.storage.locks import StorageLock

SMALL = Setting(8, seconds=20, work_ms=1000)


def test_a_run_is_a_function_of_its_seed() -> None:
    one, other = simulate(SMALL), simulate(SMALL)
    assert one.commits > 10
    assert (one.commits, one.waits_ms, one.requests) == (other.commits, other.waits_ms, other.requests)
    assert one.gave_up == 0


def lock_holds(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """From when to when the lock was held, each time, in order."""
    holds: list[tuple[float, float]] = []
    take, give_back = StorageLock.acquire, StorageLock.release
    begun: dict[int, float] = {}

    def acquire(lock: StorageLock, timeout_ms: int | None = None) -> None:
        take(lock, timeout_ms)
        begun[id(lock)] = lock._env.now_ms()

    def release(lock: StorageLock) -> None:
        if id(lock) in begun:
            holds.append((begun.pop(id(lock)), lock._env.now_ms()))
        give_back(lock)

    monkeypatch.setattr(StorageLock, "acquire", acquire)
    monkeypatch.setattr(StorageLock, "release", release)
    simulate(setting)
    return sorted(holds)


def test_lock_holds_do_not_overlap_and_stay_short(monkeypatch: pytest.MonkeyPatch) -> None:
    holds = lock_holds(SMALL, monkeypatch)
    assert all(before[1] <= after[0] for before, after in pairwise(holds))
    # 200 ms represent the other work; the rest is a dozen requests of 30 ms, regardless of concurrent commits.
    assert max(end - start for start, end in holds) < 900


def test_lock_hold_is_no_longer_with_many_waiters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits while a dozen others commit, and reads what they did while it waits."""
    holds = lock_holds(Setting(24, seconds=35, work_ms=1000), monkeypatch)
    assert max(end - start for start, end in holds) < 650


def test_one_object_is_written_as_often_as_its_store_allows() -> None:
    slow = simulate(Setting(4, seconds=30, work_ms=1000, object_writes_per_second=1.0))
    assert 0 < slow.per_second < 0.3


@pytest.mark.parametrize("setting", [Setting(1, seconds=120), Setting(16, seconds=40, work_ms=1000, latency_ms=15)])
def test_estimate_equals_the_simulation(setting: Setting) -> None:
    found, reckoned = simulate(setting), estimate(setting)
    # Until all wait, the first commits are quicker or not there yet.
    assert found.per_second == pytest.approx(reckoned.per_second, rel=0.2)


def test_requests_above_the_storage_limit_take_longer() -> None:
    few, many = estimate(Setting(500)), estimate(Setting(5_000))
    assert few.request_ms == Setting(1).latency_ms
    assert many.request_ms > 10 * few.request_ms
    assert many.per_second < few.per_second / 10


def test_threads_run_in_the_order_of_their_virtual_times() -> None:
    time, said = VirtualTime(0, 1000), list[tuple[float, str]]()

    def walker(name: str, pause_ms: int) -> None:
        env = WriterEnvironment(time, name)
        env.every_ms(250, lambda: said.append((time.now_ms, f"{name} again")))
        while True:
            env.sleep_ms(pause_ms)
            said.append((time.now_ms, name))

    time.run([lambda: walker("a", 300), lambda: walker("b", 400)])
    assert said == sorted(said, key=lambda each: each[0])
    assert [moment for moment, name in said if name == "a"] == [300, 600, 900]
    assert [moment for moment, name in said if name == "b again"] == [250, 500, 750]
