"""Requirements of every lock.

A test class inherits `LockSuite` and supplies `make_lock(env)`, a new holder of the same lock.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pyhudi.errors import HudiError, StorageUnavailable
from pyhudi.storage import locks
from pyhudi.storage.environment import Environment, ReplayEnvironment, SystemEnvironment
from pyhudi.storage.locks import LockProvider
from tests.support.interruptions import count_steps, interrupt

MakeLock = Callable[[Environment], LockProvider]


_LOCK_FILES = ("storage/environment.py", *(f"storage/locks/{path.name}" for path in Path(locks.__file__).parent.glob("*.py")))


class LockSuite:
    # Whether those who wait are served in the order in which they came.
    is_fair = True
    # Every which line is interrupted.
    interrupted_every = 1

    def test_an_interruption_at_any_line_leaves_the_lock_free(self, make_lock: MakeLock) -> None:
        env = SystemEnvironment()

        def hold(lock: LockProvider) -> None:
            with lock.held(0):
                lock.check()
                lock.renew()

        hold(make_lock(env))
        last = count_steps(lambda: hold(make_lock(env)), _LOCK_FILES)
        assert last > 50
        for step in range(1, last + 1, self.interrupted_every):
            lock, places = make_lock(env), list[str]()
            interrupt(partial(hold, lock), _LOCK_FILES, step, where=places)
            for next_one in (make_lock(env), lock):
                try:
                    next_one.acquire(0)
                except HudiError as error:
                    raise AssertionError(f"interrupted at {places}") from error
                next_one.release()

    def test_waiting_writer_acquires_before_a_later_one(self, make_lock: MakeLock) -> None:
        if not self.is_fair:
            pytest.skip("this lock has no queue of waiting writers")
        env = ReplayEnvironment(5)
        holder, waiter, newcomer = make_lock(env), make_lock(env), make_lock(env)
        holder.acquire(0)

        def release_and_acquire() -> None:
            repetition.stop()
            holder.release()
            for late in (holder, newcomer):
                with pytest.raises(StorageUnavailable):
                    late.acquire(0)

        repetition = env.every_ms(3_000, release_and_acquire)
        waiter.acquire(20_000)
        waiter.release()
        newcomer.acquire(0)
        newcomer.release()

    def test_a_wait_ends_in_time_though_the_clock_is_set(self, make_lock: MakeLock) -> None:
        for step_ms in (-3_600_000, 3_600_000):
            env = ReplayEnvironment(6)
            holder, waiter = make_lock(env), make_lock(env)
            holder.acquire(0)
            before_ms = env.monotonic_ms()
            repetition = env.every_ms(1_000, partial(env.step_ms, step_ms))
            env.every_ms(1_001, repetition.stop)
            with pytest.raises(StorageUnavailable):
                waiter.acquire(5_000)
            assert env.monotonic_ms() - before_ms == 5_000
            holder.release()

    def test_forked_process_neither_holds_nor_releases_the_lock(self, make_lock: MakeLock) -> None:
        env = SystemEnvironment()
        lock = make_lock(env)
        with lock.held(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    lock.check()
                except HudiError:
                    with contextlib.suppress(HudiError):
                        lock.release()
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
            lock.check()
        lock.acquire()
        lock.release()

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

    def test_lock_is_acquired_repeatedly(self, make_lock: MakeLock) -> None:
        lock = make_lock(ReplayEnvironment(3))
        for _ in range(3):
            with lock.held():
                lock.check()
                lock.renew()

    def test_the_release_proves_that_the_lock_was_held(self, make_lock: MakeLock) -> None:
        lock = make_lock(ReplayEnvironment(7))
        lock.acquire(0)
        assert lock.left_ms() > 0
        assert lock.release() is not False
        with lock.held(0) as hold:
            assert not hold.is_proven
        assert hold.is_proven

    def test_lock_is_released_when_the_with_block_raises(self, make_lock: MakeLock) -> None:
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
                    with lock.held(1_200_000):
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
