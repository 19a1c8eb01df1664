"""What every lock promises, how one waits for it, and what becomes of it when a process forks or a lock travels."""

from __future__ import annotations

import contextlib
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.hold_notices import longer_for

_FIRST_PAUSE_MS = 20
_LAST_PAUSE_MS = 1000


class LockProvider(ABC):
    """An exclusive lock.  Not reentrant: whoever holds it and asks again waits for itself until the time is out.

    Pickled, it is what it was made of: it arrives as a lock that nobody holds yet.
    table: the storage of the table that it guards, where who waits too long asks whether a turn is on (see `turn`); None where
    nobody is asked.
    """

    table: Storage | None = None

    _made_of: tuple[tuple[object, ...], Mapping[str, object]]

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        lock = super().__new__(cls)
        lock._made_of = (args, kwargs)
        _providers.add(lock)
        return lock

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), *self._made_of, self.table)

    def after_fork(self) -> None:
        """This process was forked off: what its parent holds is not held here.  Called for each lock in the child."""
        return

    @abstractmethod
    def acquire(self, timeout_ms: int | None = None) -> None:
        """Take the lock.  timeout_ms: how long to wait at most, None for the provider's own time, 0 to try once.

        Raises StorageUnavailable when the lock is not free in time, naming the holder where it is known.
        """

    @abstractmethod
    def release(self) -> None:
        """Give the lock back.  Never touches a lock that was lost meanwhile, and never raises for a store that fails:
        the work is done, and the lock runs out by itself.
        """

    @abstractmethod
    def check(self) -> None:
        """Return when the lock is ours now and for some time; call it just before publishing.

        Raises StorageUnavailable when it was lost or the store does not say: nothing may be published then.
        """

    @abstractmethod
    def renew(self) -> None:
        """Extend the lock where it can run out.  Raises as `check` does."""

    @contextlib.contextmanager
    def held(self, timeout_ms: int | None = None) -> Iterator[None]:
        """Hold the lock during a `with` block."""
        self.acquire(timeout_ms)
        try:
            yield
        finally:
            self.release()


class LockWait:
    """Pauses that grow with the wait and end at a deadline.  longest_ms: of one pause.

    table: as of `LockProvider`.  A turn that is on at the deadline moves it, once, by as long as the turn may be on; not for one
    who tries only once.
    """

    def __init__(self, env: Environment, timeout_ms: int, longest_ms: int = _LAST_PAUSE_MS, table: Storage | None = None) -> None:
        self._env = env
        self._timeout_ms = timeout_ms
        self._begun_ms = env.monotonic_ms()
        self._longest_ms = longest_ms
        self._table = table
        self._for_turns_ms = 0
        self._turns: set[str] = set()

    def __str__(self) -> str:
        if not self._turns:
            return f"waited {self._timeout_ms} ms"
        return (
            f"waited {self._timeout_ms} ms, and {self._for_turns_ms} ms more, as long as writers that had lost too often might "
            "keep it; they or others hold it still"
        )

    @property
    def expired(self) -> bool:
        """Whether the time is out."""
        return self._left_ms() <= 0

    def pause(self, since_ms: int | None = None, longest_ms: int | None = None) -> bool:
        """Sleep a while; False, without sleeping, when the time is out.

        since_ms: since when nothing has happened, by the steady clock; None for since the wait began.  A pause grows with it, to
        `longest_ms` at the most.
        """
        left_ms = self._left_ms()
        if left_ms <= 0:
            return False
        idle_ms = self._env.monotonic_ms() - max(self._begun_ms, since_ms or 0)
        self._env.sleep_ms(min(max(_FIRST_PAUSE_MS, idle_ms // 2), longest_ms or self._longest_ms, self._longest_ms, left_ms))
        return True

    def _left_ms(self) -> int:
        waited_ms = self._env.monotonic_ms() - self._begun_ms
        left_ms = self._timeout_ms + self._for_turns_ms - waited_ms
        if left_ms > 0 or self._table is None or self._timeout_ms <= 0:
            return left_ms
        notice = longer_for(self._table)
        if notice is None or notice.hold_id in self._turns:
            return left_ms
        self._turns.add(notice.hold_id)
        self._for_turns_ms = waited_ms + notice.longest_ms - self._timeout_ms
        return notice.longest_ms


_providers: weakref.WeakSet[LockProvider] = weakref.WeakSet()


def _remade(
    kind: type[LockProvider], args: tuple[object, ...], kwargs: Mapping[str, object], table: Storage | None
) -> LockProvider:
    lock = kind(*args, **kwargs)
    lock.table = table
    return lock


def _after_fork() -> None:
    # The threads that hold locks of the parent, or were just taking one, are not in the child.
    for lock in list(_providers):
        lock.after_fork()


os.register_at_fork(after_in_child=_after_fork)
