"""What every lock must do.  A test class inherits `LockSuite` and gives `make_lock(env)`, a new holder of the same lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from pyhudi.errors import StorageUnavailable
from pyhudi.storage.clock import Environment, ReplayEnvironment, SystemEnvironment
from pyhudi.storage.locks import LockProvider

MakeLock = Callable[[Environment], LockProvider]


class LockSuite:
    def test_one_holder_at_a_time(self, make_lock: MakeLock) -> None:
        env = ReplayEnvironment(1)
        first, second = make_lock(env), make_lock(env)
        first.acquire(0)
        with pytest.raises(StorageUnavailable):
            second.acquire(0)
        first.release()
        second.acquire(0)
        second.check()
        second.release()

    def test_waiting_ends_at_the_time_limit(self, make_lock: MakeLock) -> None:
        env = ReplayEnvironment(2)
        first, second = make_lock(env), make_lock(env)
        first.acquire()
        before_ms = env.now_ms()
        with pytest.raises(StorageUnavailable, match="1234"):
            second.acquire(1234)
        assert env.now_ms() - before_ms == 1234
        first.check()
        first.release()

    def test_a_lock_can_be_taken_again_and_again(self, make_lock: MakeLock) -> None:
        lock = make_lock(ReplayEnvironment(3))
        for _ in range(3):
            with lock.held():
                lock.check()
                lock.renew()

    def test_the_with_block_gives_the_lock_back_when_it_raises(self, make_lock: MakeLock) -> None:
        env = ReplayEnvironment(4)
        lock = make_lock(env)
        with pytest.raises(ValueError, match="inside"), lock.held():
            raise ValueError("inside")
        make_lock(env).acquire(0)

    def test_threads_under_contention_never_overlap(self, make_lock: MakeLock) -> None:
        env = SystemEnvironment()
        inside = 0
        counter = 0
        trouble: list[str] = []

        def work() -> None:
            nonlocal inside, counter
            lock = make_lock(env)
            for _ in range(4):
                try:
                    with lock.held(60_000):
                        inside += 1
                        if inside != 1:
                            trouble.append(f"{inside} threads inside")
                        seen = counter
                        time.sleep(0.002)
                        counter = seen + 1
                        lock.check()
                        inside -= 1
                except BaseException as error:
                    trouble.append(repr(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert trouble == []
        assert counter == 16
