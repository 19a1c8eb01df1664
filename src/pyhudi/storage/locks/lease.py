"""Base class of locks that expire without renewal: acquire, renew, verify and release a lease.

1. `acquire` tries until the lock is held or the time limit is reached.
2. While it is held, a periodic task renews it, only if it is still ours.
3. `check` verifies that it is still ours. It queries the server if the last proof is too old, or if the connection to
   the server may have been interrupted. Call it just before publishing.
4. `release` releases it, if it is still ours. The lease of a dead process expires; no cleanup is needed.

A lease begins when its request is sent, so the holder never overestimates it. The holder measures it with a monotonic
clock that includes suspended time. A forked child holds none of its parent's leases.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod

from pyhudi.errors import HudiError, Internal, InvalidRequest, StorageFull, StorageUnavailable
from pyhudi.storage.environment import Environment, Repetition
from pyhudi.storage.locks.lock_provider import LockProvider, LockWait

_LOG = logging.getLogger("pyhudi.storage.locks")


class LeaseLock(LockProvider):
    """A lock that expires.  One object is one holder: threads that share it need an `InProcessLock` around it, as
    `open_lock` provides.

    validity_ms: duration of a lease without renewal. renew_ms: interval of renewals, at most half of that, or None if
    the client of the server renews it. trusted_ms: how long a proof is trusted before the server is queried again;
    default: two thirds of the lease. Subclasses implement the abstract methods; they are called by one thread at a time.
    """

    def __init__(
        self, env: Environment, *, validity_ms: int, wait_ms: int, renew_ms: int | None = None, trusted_ms: int | None = None
    ) -> None:
        if renew_ms is not None and not 0 < 2 * renew_ms <= validity_ms:
            raise InvalidRequest(
                f"a lease of {validity_ms} ms cannot be renewed every {renew_ms} ms: renew at least twice as often as it lasts"
            )
        self._env = env
        self._validity_ms = validity_ms
        self._renew_ms = renew_ms
        self._wait_ms = wait_ms
        self._trust_ms = validity_ms * 2 // 3 if trusted_ms is None else trusted_ms
        # Lower bound of the lease's end, by the monotonic clock; None while the lock is not held.
        self._safe_until_ms: int | None = None
        self._lost: str | None = None
        self._renewal: Repetition | None = None
        # Protects the lease between the holder and the renewal thread, so that no renewal follows a release.
        self._mutex = threading.Lock()

    @property
    @abstractmethod
    def _where(self) -> str:
        """Location of this lock, for messages."""

    @abstractmethod
    def _try_acquire(self) -> str | None:
        """One attempt to acquire; None if the lock is held, otherwise the obstacle.

        Raises StorageUnavailable if the server does not answer; the lock may be held nevertheless.
        """

    @abstractmethod
    def _extend(self) -> str | None:
        """Renew the lease if it is still ours; None on success, otherwise why it is lost permanently.

        Raises StorageUnavailable if the server does not answer.
        """

    @abstractmethod
    def _release_lease(self) -> str | None:
        """Release the lock if it is ours; None on success, otherwise why not.  Raises as `_extend`."""

    @abstractmethod
    def _clear_lease(self) -> None:
        """Reset the state of the lease without a request."""

    def _begin_to_wait(self) -> None:
        """Called before the first attempt."""
        return

    def _pause(self, wait: LockWait) -> None:
        """Sleep between two attempts."""
        wait.pause()

    def _end_wait(self, *, acquired: bool, outcome_unknown: bool) -> None:
        """Called after the last attempt of an acquisition.  outcome_unknown: a response is missing."""
        return

    def _left_ms(self) -> int:
        """Lower bound of the lease's remaining time; 0 if unknown."""
        assert self._safe_until_ms is not None, "the lock is held"
        return self._safe_until_ms - self._env.monotonic_ms()

    def acquire(self, timeout_ms: int | None = None) -> None:
        if self._safe_until_ms is not None:
            raise Internal(f"{self._where}: this lock is held already")
        wait = LockWait(self._env, self._wait_ms if timeout_ms is None else timeout_ms, table=self.table)
        acquired = in_doubt = False
        self._begin_to_wait()
        try:
            while True:
                requested_ms = self._env.monotonic_ms()
                try:
                    obstacle = self._try_acquire()
                except StorageFull:
                    raise
                except StorageUnavailable as error:
                    obstacle, in_doubt = str(error), True
                except BaseException:
                    # An interruption may come after the request that acquires the lock.
                    in_doubt = True
                    raise
                if obstacle is None:
                    acquired = True
                    break
                if wait.expired:
                    raise StorageUnavailable(f"{self._where}: the table's lock was not free ({wait}): {obstacle}")
                self._pause(wait)
        finally:
            self._end_wait(acquired=acquired, outcome_unknown=in_doubt)
        self._safe_until_ms = requested_ms + self._validity_ms
        if self._renew_ms is None:
            return
        try:
            self._renewal = self._env.every_ms(self._renew_ms, self._renew_quietly)
        except BaseException:
            # Without a renewal thread the lease would expire while it is in use.
            self.release()
            raise

    def release(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None
        with self._mutex:
            try:
                obstacle = self._release_quietly() if self._safe_until_ms is not None else None
            finally:
                self._safe_until_ms, self._lost = None, None
                self._clear_lease()
        if obstacle is not None:
            _LOG.warning("%s: the lock could not be released and will expire: %s", self._where, obstacle)

    def check(self) -> None:
        if self._safe_until_ms is None or self._lost is not None or self._left_ms() < self._validity_ms - self._trust_ms:
            self.renew()

    def renew(self) -> None:
        with self._mutex:
            if self._safe_until_ms is None:
                raise Internal(f"{self._where}: the lock is not held")
            if self._lost is None:
                requested_ms = self._env.monotonic_ms()
                # An expired lease that no other writer has acquired is still ours if this succeeds.
                self._lost = self._extend()
                if self._lost is None:
                    self._safe_until_ms = requested_ms + self._validity_ms
            if self._lost is not None:
                raise StorageUnavailable(f"{self._where}: the table's lock was lost: {self._lost}")

    def after_fork(self) -> None:
        self._safe_until_ms, self._lost, self._renewal = None, None, None
        self._mutex = threading.Lock()
        self._clear_lease()

    def _release_quietly(self) -> str | None:
        try:
            return self._release_lease()
        except HudiError as error:
            return str(error)

    def _renew_quietly(self) -> None:
        # Errors in this thread have no caller to receive them.  The holder learns of them from `check`, which queries
        # again.
        try:
            self.renew()
        except HudiError as error:
            _LOG.warning("%s", error)
        except BaseException as error:
            _LOG.warning("%s: the lock is no longer renewed: %r", self._where, error)
            if self._renewal is not None:
                self._renewal.stop()
