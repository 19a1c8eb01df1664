"""Base class of locks that expire without renewal: acquire, renew, verify and release a lease.

1. `acquire` tries until the lock is held or the time limit is reached.
2. While it is held, a periodic task renews it, only if it is still ours.
3. `check` verifies that it is still ours. It queries the server if the last proof is too old, or if the connection to
   the server may have been interrupted. Call it just before publishing.
4. `release` releases it, if it is still ours. The lease of a dead process expires; no cleanup is needed.
5. An exception at any line of these leaves no lease that is renewed without a holder: they release what they may have
   acquired, and where a second one prevents that, the periodic task or the next acquisition does (`acquisition`).

A lease begins when its request is sent, so the holder never overestimates it. The holder measures it with a monotonic
clock that includes suspended time. A forked child holds none of its parent's leases.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from functools import partial

from pyhudi.errors import HudiError, Internal, InvalidRequest, StorageFull, StorageUnavailable, get_logger
from pyhudi.storage.deadlines import within_lease
from pyhudi.storage.environment import Environment, Repetition
from pyhudi.storage.locks.acquisition import Acquisition
from pyhudi.storage.locks.lock_provider import LockProvider, LockWait

_LOG = get_logger("pyhudi.storage.locks")

# How often a lock without renewals looks whether its holder still runs.
_WATCH_MS = 5_000

# Time limit of a renewal or release when less is left of the lease.
_RELEASE_MS = 5_000

# How long a recovery waits for a renewal in progress.
_UNLOCK_WAIT_S = 5


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
        self._has_lost_response = False
        self._trust_ms = validity_ms * 2 // 3 if trusted_ms is None else trusted_ms
        # Lower bound of the lease's end, by the monotonic clock; None while the lock is not held.
        self._safe_until_ms: int | None = None
        self._lost: str | None = None
        # The acquisition in progress or held; None while the lock is free for another one.
        self._acquisition: Acquisition | None = None
        self._renewal: Repetition | None = None
        # Protects the lease between the holder and the renewal thread, so that no renewal follows a release. Reentrant, so
        # that a release can follow an interruption of its own thread.
        self._mutex = threading.RLock()

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
        self.recover()
        if self._acquisition is not None:
            raise Internal(f"{self._where}: this lock is held already")
        acquisition = Acquisition()
        wait = LockWait(self._env, self._wait_ms if timeout_ms is None else timeout_ms, table=self.table)
        self._has_lost_response = False
        try:
            self._acquisition = acquisition
            if self._renew_ms is None:
                self._renewal = self._env.every_ms(_WATCH_MS, partial(self._tend, acquisition))
            self._begin_to_wait()
            requested_ms = self._wait_until_acquired(wait)
            self._end_wait(acquired=True, outcome_unknown=self._has_lost_response)
            self._safe_until_ms = requested_ms + self._validity_ms
            if self._renew_ms is not None:
                self._renewal = self._env.every_ms(self._renew_ms, partial(self._tend, acquisition))
        except BaseException as error:
            # Any other exception may come after the request that acquires the lock.
            self._undo(acquisition, in_doubt=self._has_lost_response or not isinstance(error, HudiError))
            raise

    def _wait_until_acquired(self, wait: LockWait) -> int:
        """Try until the lock is held; return when the request was sent that acquired it."""
        while True:
            requested_ms = self._env.monotonic_ms()
            try:
                obstacle = self._try_acquire()
            except StorageFull:
                raise
            except StorageUnavailable as error:
                obstacle, self._has_lost_response = str(error), True
            if obstacle is None:
                return requested_ms
            if wait.expired:
                raise StorageUnavailable(f"{self._where}: the table's lock was not free ({wait}): {obstacle}")
            self._pause(wait)

    @property
    def current_hold(self) -> object:
        return self._acquisition

    def left_ms(self) -> int:
        return 0 if self._safe_until_ms is None or self._lost is not None else self._left_ms()

    def release(self) -> bool:
        acquisition = self._acquisition
        if acquisition is None:
            return False
        try:
            return self._release_and_reset(acquisition)
        except BaseException:
            self._release_and_reset(acquisition)
            raise

    def _release_and_reset(self, acquisition: Acquisition) -> bool:
        acquisition.end()
        obstacle, is_proven = None, False
        with self._mutex:
            if self._acquisition is not acquisition:
                return False
            if self._safe_until_ms is not None:
                try:
                    with within_lease(lambda: max(self.left_ms(), _RELEASE_MS)):
                        obstacle = self._release_lease()
                    # It was ours until the release, also where the lease had expired and no other writer had acquired it.
                    is_proven = obstacle is None
                except HudiError as error:
                    # Without an answer, the time that is left proves it.
                    obstacle, is_proven = str(error), self.left_ms() > 0
            self._reset()
        if obstacle is not None:
            _LOG.warning("%s: the lock could not be released: %s", self._where, obstacle)
        return is_proven

    def _undo(self, acquisition: Acquisition, *, in_doubt: bool) -> None:
        """Release what an acquisition that did not complete may have acquired."""
        acquisition.end()
        with self._mutex:
            if self._acquisition is acquisition:
                self._end_wait(acquired=False, outcome_unknown=in_doubt)
                self._reset()

    def _reset(self) -> None:
        """Make the lock free for another acquisition; the last step of a release."""
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None
        self._safe_until_ms, self._lost = None, None
        self._clear_lease()
        # An interrupted thread may have left it locked.
        self._mutex = threading.RLock()
        acquisition, self._acquisition = self._acquisition, None
        if acquisition is not None:
            acquisition.forget_call()

    def recover(self) -> None:
        acquisition = self._acquisition
        if acquisition is None or not acquisition.is_abandoned:
            return
        # In a thread of its own, which no signal interrupts.
        thread = threading.Thread(target=self._undo_quietly, args=(acquisition,), name="pyhudi-lock-recovery", daemon=True)
        thread.start()
        thread.join()

    def _undo_quietly(self, acquisition: Acquisition) -> bool:
        """Release an abandoned acquisition; False if a release of its own thread may be in progress."""
        mutex = self._mutex
        is_locked = mutex.acquire(timeout=_UNLOCK_WAIT_S if acquisition.has_lost_call else 0)
        if not is_locked:
            if not acquisition.has_lost_call:
                return False
            # The interrupted thread never unlocks it.
            self._mutex = threading.RLock()
        try:
            if self._acquisition is acquisition:
                _LOG.warning("%s: the call that acquired the lock was interrupted; it is released now", self._where)
                self._undo(acquisition, in_doubt=True)
        except BaseException as error:
            _LOG.warning("%s: the lock could not be released: %r", self._where, error)
        finally:
            if is_locked:
                mutex.release()
        return True

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
                with within_lease(lambda: max(self.left_ms(), _RELEASE_MS)):
                    self._lost = self._extend()
                if self._lost is None:
                    self._safe_until_ms = requested_ms + self._validity_ms
            if self._lost is not None:
                raise StorageUnavailable(f"{self._where}: the table's lock was lost: {self._lost}")

    def after_fork(self) -> None:
        self._safe_until_ms, self._lost, self._renewal, self._acquisition = None, None, None, None
        self._mutex = threading.RLock()
        self._clear_lease()

    def _release_quietly(self) -> str | None:
        try:
            return self._release_lease()
        except HudiError as error:
            return str(error)

    def _tend(self, acquisition: Acquisition) -> bool:
        """Renew the lease, or release it where its holder no longer runs.  False ends the repetition."""
        if self._acquisition is not acquisition:
            return False
        if acquisition.is_abandoned:
            return not self._undo_quietly(acquisition)
        if self._renew_ms is None:
            return True
        # Errors in this thread have no caller to receive them.  The holder learns of them from `check`, which queries
        # again.
        try:
            self.renew()
        except HudiError as error:
            _LOG.warning("%s", error)
        except BaseException as error:
            _LOG.warning("%s: the lock is no longer renewed: %r", self._where, error)
            return False
        return True
