"""Interface of every lock, waiting with backoff, and handling of forks and pickling."""

from __future__ import annotations

import contextlib
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pyhudi.errors import HudiError, StorageUnavailable
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.hold_notices import longer_for

# What is left of a lock that does not expire.
_NO_EXPIRY_MS = 1 << 50

_FIRST_PAUSE_MS = 20
_LAST_PAUSE_MS = 1000


class LockLost(StorageUnavailable):
    """The lock was not held, or not provably, until the end of a step that changed the table."""


class LockHold:
    """One `with` block of a lock.

    Attributes:
        is_proven: After the block: the lock was held without interruption from its beginning to its end.
    """

    __slots__ = ("is_proven",)

    def __init__(self) -> None:
        self.is_proven = False


class LockProvider(ABC):
    """An exclusive lock.  Not reentrant: a second acquisition by its holder waits until the time limit.

    A pickled lock is re-created from its constructor arguments, and arrives unheld. table: storage of the protected
    table, where a waiting writer reads the hold notice (see `hold_notices`) at its time limit; None to ignore notices.
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
        """Reset the lock in a forked child, which does not hold its parent's locks.  Called for each lock in the child."""
        return

    def check_usable(self) -> None:
        """Raise InvalidRequest for a lock that nothing may be written under; called before a write does anything."""
        return

    @abstractmethod
    def acquire(self, timeout_ms: int | None = None) -> None:
        """Acquire the lock.

        Args:
            timeout_ms: Maximum wait in milliseconds; None for the provider's default, 0 to try once.

        Raises:
            StorageUnavailable: The lock was not free in time; the message contains the holder if known.
        """

    @abstractmethod
    def release(self) -> bool | None:
        """Release the lock.

        A lock that was lost is not touched, and storage errors are not raised: the work is done, and the lock expires by itself.

        Returns:
            False if it is not certain that the lock was held without interruption until now: what was published under
            it may be late.  A provider that returns nothing is trusted.
        """

    @abstractmethod
    def check(self) -> None:
        """Verify that the lock is held now and for some time; call it just before publishing.

        Raises:
            StorageUnavailable: The lock was lost or the store does not answer.  Nothing may be published.
        """

    @abstractmethod
    def renew(self) -> None:
        """Renew the lock if it can expire.  Raises as `check` does."""

    def left_ms(self) -> int:
        """Milliseconds for which the lock stays held without another request; no change under it may take longer."""
        return _NO_EXPIRY_MS

    def recover(self) -> None:
        """Release what an interrupted call of this process left of this lock.  Storage errors are not raised.

        Called by the next acquisition, and only while no other thread can use this object.
        """
        return

    def release_if_held(self) -> None:
        """Release the lock if the calling thread holds it, which an exception may leave unknown."""
        self.release()

    @property
    def current_hold(self) -> object:
        """Identity of the current hold of this object; None while it is not held."""
        return self

    @contextlib.contextmanager
    def held(self, timeout_ms: int | None = None) -> Iterator[LockHold]:
        """Hold the lock during a `with` block; the value records whether it was held until the end."""
        block = LockHold()
        hold = None
        is_released = False
        try:
            try:
                self.acquire(timeout_ms)
                hold = self.current_hold
                yield block
            finally:
                # The block of an interrupted `with` statement may end when the memory is collected, during another hold.
                if hold is not None and self.current_hold is hold:
                    block.is_proven = self.release() is not False
                    is_released = True
        except BaseException as error:
            # An interruption may come at any line above, as between the acquisition and the block.
            may_be_held = not isinstance(error, HudiError) if hold is None else self.current_hold is hold
            if may_be_held and not is_released:
                self.release_if_held()
            raise


class LockWait:
    """Backoff with a deadline.  longest_ms: maximum of one pause.

    table: as in `LockProvider`. A hold notice at the deadline extends it, once per hold, by the time that the hold may
    last, but not for a single attempt.
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
            f"waited {self._timeout_ms} ms, and {self._for_turns_ms} ms more for exclusive writes of other writers; the lock is "
            "still held"
        )

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self._left_ms() <= 0

    def pause(self, since_ms: int | None = None, longest_ms: int | None = None) -> bool:
        """Sleep; return False without sleeping if the deadline has passed.

        Args:
            since_ms: Time of the last change by the monotonic clock; None for the start of the wait.  Pauses grow with
                the time since.
            longest_ms: Maximum of this pause.
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
    # The parent's threads that hold or acquire locks do not exist in the child.
    for lock in list(_providers):
        lock.after_fork()


os.register_at_fork(after_in_child=_after_fork)
