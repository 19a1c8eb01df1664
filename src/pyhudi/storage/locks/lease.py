"""What the locks share that run out when nobody renews them: taking, renewing, proving and giving back a lease.

1. `acquire` tries until the lock is ours or the time is out.
2. While it is held, a repeated task extends it, and only where it is still ours.
3. `check` says whether it is still ours, and asks the server when the last proof is too old, or when the connection to the server
   is not known to stand.  Whoever is about to publish asks first.
4. `release` gives it back, if it is still ours.  A process that dies lets it run out; nobody has to clean up.

A lease begins when the request for it goes out: one that seems shorter than it is, is safe.  The holder's own view goes by a
clock that nobody sets and that goes on while the process sleeps.  A child of fork holds none of its parent's leases.
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
    """A lock that runs out.  One object is one holder: threads that share it need an `InProcessLock` around it, as `open_lock`
    gives.

    validity_ms: how long a lease lasts without renewal; renew_ms: how often it is renewed, at least twice within that, or None
    where the client of the server sees to it; trusted_ms: for how long a proof is believed before the server is asked again, two
    thirds of the lease unless told otherwise.
    The methods with one underscore are what a kind of lock has to say; all are called by one thread at a time.
    """

    def __init__(
        self, env: Environment, *, validity_ms: int, wait_ms: int, renew_ms: int | None = None, trusted_ms: int | None = None
    ) -> None:
        if renew_ms is not None and not 0 < 2 * renew_ms <= validity_ms:
            raise InvalidRequest(
                f"a lease of {validity_ms} ms cannot be renewed each {renew_ms} ms: renew at least twice as often as it lasts"
            )
        self._env = env
        self._validity_ms = validity_ms
        self._renew_ms = renew_ms
        self._wait_ms = wait_ms
        self._trust_ms = validity_ms * 2 // 3 if trusted_ms is None else trusted_ms
        # By the steady clock: until when our lease lasts at the least; None while the lock is not held.
        self._safe_until_ms: int | None = None
        self._lost: str | None = None
        self._renewal: Repetition | None = None
        # Guards the lease between the holder and the thread that renews it, so that no renewal follows a release.
        self._mutex = threading.Lock()

    @property
    @abstractmethod
    def _where(self) -> str:
        """What people call this lock."""

    @abstractmethod
    def _try_to_take(self) -> str | None:
        """One attempt; None when the lock is ours, otherwise what stands in the way.

        Raises StorageUnavailable when the server does not say; the lock may be ours all the same then.
        """

    @abstractmethod
    def _extend(self) -> str | None:
        """Make the lease last anew, if it is still ours; None on success, otherwise why it is lost, for good.

        Raises StorageUnavailable when the server does not say.
        """

    @abstractmethod
    def _give_back(self) -> str | None:
        """Make the lock free, if it is ours; None on success, otherwise why not.  Raises as `_extend`."""

    @abstractmethod
    def _forget(self) -> None:
        """Know of no lease any more, and ask nobody about it."""

    def _begin_to_wait(self) -> None:
        """Called before the first attempt."""
        return

    def _pause(self, wait: LockWait) -> None:
        """Sleep between two attempts."""
        wait.pause()

    def _end_wait(self, *, acquired: bool, outcome_unknown: bool) -> None:
        """Called after the last attempt of an acquisition.  outcome_unknown: an answer is missing."""
        return

    def _left_ms(self) -> int:
        """How long the lease lasts yet, at the least; 0 when that is not known."""
        assert self._safe_until_ms is not None, "the lock is held"
        return self._safe_until_ms - self._env.monotonic_ms()

    def acquire(self, timeout_ms: int | None = None) -> None:
        if self._safe_until_ms is not None:
            raise Internal(f"{self._where}: this lock is held already")
        wait = LockWait(self._env, self._wait_ms if timeout_ms is None else timeout_ms, table=self.table)
        taken = in_doubt = False
        self._begin_to_wait()
        try:
            while True:
                asked_ms = self._env.monotonic_ms()
                try:
                    obstacle = self._try_to_take()
                except StorageFull:
                    raise
                except StorageUnavailable as error:
                    obstacle, in_doubt = str(error), True
                if obstacle is None:
                    taken = True
                    break
                if wait.expired:
                    raise StorageUnavailable(f"{self._where}: the table's lock was not free ({wait}): {obstacle}")
                self._pause(wait)
        finally:
            self._end_wait(acquired=taken, outcome_unknown=in_doubt)
        self._safe_until_ms = asked_ms + self._validity_ms
        if self._renew_ms is None:
            return
        try:
            self._renewal = self._env.every_ms(self._renew_ms, self._renew_quietly)
        except BaseException:
            # No thread to renew it, no lease: it would run out under the holder's feet.
            self.release()
            raise

    def release(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None
        with self._mutex:
            try:
                obstacle = self._give_back_quietly() if self._safe_until_ms is not None else None
            finally:
                self._safe_until_ms, self._lost = None, None
                self._forget()
        if obstacle is not None:
            _LOG.warning("%s: the lock could not be given back and runs out by itself: %s", self._where, obstacle)

    def check(self) -> None:
        if self._safe_until_ms is None or self._lost is not None or self._left_ms() < self._validity_ms - self._trust_ms:
            self.renew()

    def renew(self) -> None:
        with self._mutex:
            if self._safe_until_ms is None:
                raise Internal(f"{self._where}: the lock is not held")
            if self._lost is None:
                asked_ms = self._env.monotonic_ms()
                # A lease that ran out while nobody took it is still ours when this succeeds.
                self._lost = self._extend()
                if self._lost is None:
                    self._safe_until_ms = asked_ms + self._validity_ms
            if self._lost is not None:
                raise StorageUnavailable(f"{self._where}: the table's lock was lost: {self._lost}")

    def after_fork(self) -> None:
        self._safe_until_ms, self._lost, self._renewal = None, None, None
        self._mutex = threading.Lock()
        self._forget()

    def _give_back_quietly(self) -> str | None:
        try:
            return self._give_back()
        except HudiError as error:
            return str(error)

    def _renew_quietly(self) -> None:
        # Nobody stands above this to hear an error.  The holder hears it from `check`, which asks again.
        try:
            self.renew()
        except HudiError as error:
            _LOG.warning("%s", error)
        except BaseException as error:
            _LOG.warning("%s: the lock is no longer renewed: %r", self._where, error)
            if self._renewal is not None:
                self._renewal.stop()
