"""Several locks as one."""

from __future__ import annotations

import contextlib

from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.lock_provider import LockProvider


class CombinedLock(LockProvider):
    """Several locks as one: taken in the order given, within one time limit, and released in reverse.

    Where a turn of another writer made the wait for one of them longer (see `turn`), the time of those that follow begins anew.
    """

    def __init__(self, first: LockProvider, *others: LockProvider, env: Environment, wait_ms: int = 60_000) -> None:
        self._locks = (first, *others)
        self._env = env
        self._wait_ms = wait_ms

    def acquire(self, timeout_ms: int | None = None) -> None:
        wait_ms = self._wait_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._env.monotonic_ms() + wait_ms
        taken: list[LockProvider] = []
        try:
            for lock in self._locks:
                left_ms = deadline_ms - self._env.monotonic_ms()
                lock.acquire(left_ms if left_ms > 0 else wait_ms)
                taken.append(lock)
        except BaseException:
            for lock in reversed(taken):
                lock.release()
            raise

    def release(self) -> None:
        with contextlib.ExitStack() as stack:
            for lock in self._locks:
                stack.callback(lock.release)

    def check(self) -> None:
        for lock in self._locks:
            lock.check()

    def renew(self) -> None:
        for lock in self._locks:
            lock.renew()
