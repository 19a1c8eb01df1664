"""Lock among the threads of one process."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque

from pyhudi.errors import Internal, StorageUnavailable
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.lock_provider import LockProvider, LockWait

_LAST_THREAD_PAUSE_MS = 100


class InProcessLock(LockProvider):
    """Lock among the threads of this process.  key: the protected resource; equal keys are one lock."""

    def __init__(self, key: str, env: Environment, *, wait_ms: int = 60_000) -> None:
        self._key = key
        self._env = env
        self._wait_ms = wait_ms
        with _shared_mutex:
            self._shared = _shared_locks.setdefault(key, _SharedLock())

    def acquire(self, timeout_ms: int | None = None) -> None:
        wait = LockWait(self._env, self._wait_ms if timeout_ms is None else timeout_ms, _LAST_THREAD_PAUSE_MS, self.table)
        # FIFO: a thread that has just released the lock queues behind the waiting ones.
        place = object()
        self._shared.waiting.append(place)
        try:
            while self._shared.waiting[0] is not place or not self._shared.lock.acquire(blocking=False):
                if not wait.pause():
                    raise StorageUnavailable(f"{self._key}: another thread of this process holds the lock ({wait})")
        finally:
            with contextlib.suppress(ValueError):
                self._shared.waiting.remove(place)

    def release(self) -> None:
        try:
            self._shared.lock.release()
        except RuntimeError as error:
            raise Internal(f"{self._key}: the lock is not held") from error

    def check(self) -> None:
        if not self._shared.lock.locked():
            raise Internal(f"{self._key}: the lock is not held")

    def after_fork(self) -> None:
        self._shared.reset()

    def renew(self) -> None:
        self.check()


class _SharedLock:
    """One lock of the process, alive while it is referenced. waiting: places of the waiting threads in order of arrival."""

    __slots__ = ("__weakref__", "lock", "waiting")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[object] = deque()


_shared_locks: weakref.WeakValueDictionary[str, _SharedLock] = weakref.WeakValueDictionary()
_shared_mutex = threading.Lock()


def _after_fork() -> None:
    global _shared_mutex
    _shared_mutex = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
