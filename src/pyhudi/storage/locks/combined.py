"""Several locks as one."""

from __future__ import annotations

import contextlib

from pyhudi.storage.clock import Environment
from pyhudi.storage.locks.provider import LockProvider


class CombinedLock(LockProvider):
    """Several locks as one: taken in the order given, within one time limit, and released in reverse."""

    def __init__(self, first: LockProvider, *others: LockProvider, env: Environment, wait_ms: int = 60_000) -> None:
        self._locks = (first, *others)
        self._env = env
        self._wait_ms = wait_ms

    def acquire(self, timeout_ms: int | None = None) -> None:
        deadline_ms = self._env.monotonic_ms() + (self._wait_ms if timeout_ms is None else timeout_ms)
        taken: list[LockProvider] = []
        try:
            for lock in self._locks:
                lock.acquire(max(0, deadline_ms - self._env.monotonic_ms()))
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
