"""Lock among the threads of one process."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pyhudi.errors import Internal, StorageUnavailable
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.acquisition import Acquisition
from pyhudi.storage.locks.lock_provider import LockProvider, LockWait

_LAST_THREAD_PAUSE_MS = 100


class InProcessLock(LockProvider):
    """Lock among the threads of this process.  key: the protected resource; equal keys are one lock.

    The lock is its queue: the first place holds it. Changes of the queue are atomic, so no exception leaves it in between.
    A place whose call has ended without leaving is removed by the next one, which calls `recovery` of its lock.
    """

    def __init__(self, key: str, env: Environment, *, wait_ms: int = 60_000) -> None:
        self._key = key
        self._env = env
        self._wait_ms = wait_ms
        # Called after the place of an interrupted acquisition of this object was taken over.
        self.recovery: Callable[[], None] | None = None
        # The places of this object, by thread.
        self._places: dict[int, _Place] = {}
        with _shared_mutex:
            self._shared = _shared_locks.setdefault(key, _SharedLock())

    def acquire(self, timeout_ms: int | None = None) -> None:
        wait = LockWait(self._env, self._wait_ms if timeout_ms is None else timeout_ms, _LAST_THREAD_PAUSE_MS, self.table)
        # FIFO: a thread that has just released the lock queues behind the waiting ones.
        place = _Place(Acquisition(), self.recovery)
        try:
            self._shared.waiting.append(place)
            while not self._shared.is_first(place):
                if not wait.pause():
                    raise StorageUnavailable(f"{self._key}: another thread of this process holds the lock ({wait})")
            self._places[threading.get_ident()] = place
        except BaseException:
            self._leave(place)
            raise

    @property
    def current_hold(self) -> object:
        return next((place for place in list(self._places.values()) if self._shared.is_held_by(place)), None)

    def release(self) -> bool:
        try:
            if not self._release_place():
                raise Internal(f"{self._key}: the lock is not held")
            return True
        except BaseException:
            self.release_if_held()
            raise

    def release_if_held(self) -> None:
        if self.is_held_by_this_thread:
            self._release_place()

    @property
    def is_held_by_this_thread(self) -> bool:
        """Whether the calling thread holds the lock through this object."""
        place = self._places.get(threading.get_ident())
        return place is not None and self._shared.is_held_by(place)

    def _release_place(self) -> bool:
        """Release the place of this thread, or that of another one for which this thread releases it."""
        thread = threading.get_ident()
        if thread not in self._places:
            holders = (other for other, place in list(self._places.items()) if self._shared.is_held_by(place))
            thread = next(holders, thread)
        place = self._places.get(thread)
        if place is None:
            return False
        self._leave(place)
        self._places.pop(thread, None)
        return True

    def _leave(self, place: _Place) -> None:
        place.acquisition.end()
        with contextlib.suppress(ValueError):
            self._shared.waiting.remove(place)
        place.acquisition.forget_call()

    def check(self) -> None:
        if not self._shared.waiting:
            raise Internal(f"{self._key}: the lock is not held")

    def after_fork(self) -> None:
        self._places = {}
        self._shared.reset()

    def renew(self) -> None:
        self.check()


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """A place in the queue, compared by identity."""

    acquisition: Acquisition
    recovery: Callable[[], None] | None


class _SharedLock:
    """One lock of the process, alive while it is referenced. waiting: places in order of arrival; the first one holds it."""

    __slots__ = ("__weakref__", "waiting")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.waiting: deque[_Place] = deque()

    def is_first(self, place: _Place) -> bool:
        """Whether a place holds the lock; it takes over from the places before it if all of them are abandoned."""
        earlier = list(itertools.takewhile(lambda other: other is not place, list(self.waiting)))
        if any(not other.acquisition.is_abandoned for other in earlier):
            return False
        for other in earlier:
            if other.recovery is not None:
                other.recovery()
            # It may have left by itself.
            with contextlib.suppress(ValueError):
                self.waiting.remove(other)
        return self.is_held_by(place)

    def is_held_by(self, place: _Place | None) -> bool:
        """Whether a place is the first one."""
        return next(iter(list(self.waiting)), None) is place


_shared_locks: weakref.WeakValueDictionary[str, _SharedLock] = weakref.WeakValueDictionary()
_shared_mutex = threading.Lock()


def _after_fork() -> None:
    global _shared_mutex
    _shared_mutex = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
