"""Lock that can be retained between acquisitions, so that a writer that lost too many conflicts reads, writes and
commits exclusively.

1. `hold` acquires the inner lock, and stores a notice with the maximum duration of the hold in the table's storage.
2. Until `end`, `acquire` only verifies that the lock is still ours, and `release` retains it. The inner lock renews
   itself as usual. A lost lock ends the hold, and the next acquisition waits like that of any writer.
3. `end` deletes the notice and releases the lock. From then on this behaves as the inner lock.

    `.hoodie/.locks/turn.json`      `{"owner":"<process>","turn":"<id>","longest_ms":<how long it may be held>}`

A waiting writer that reaches its time limit reads the notice (`hold_notices.longer_for`), and extends its wait by that
duration, once per hold. So a hold does not fail writers whose timeout fits short commits. The notice has no role in
exclusion. The notice of a dead process is ignored on the same machine, and costs other machines one extended wait.

Source: docs/concurrency-control.md, "Exclusive writes".
"""

from __future__ import annotations

from contextlib import suppress

from pyhudi.errors import HudiError, Internal
from pyhudi.storage.base import Storage
from pyhudi.storage.locks.hold_notices import HOLD_NOTICE_PATH, HoldNotice
from pyhudi.storage.locks.lock_provider import LockProvider


class RetainedLock(LockProvider):
    """`inner`, which can be retained.  storage: of the table.  Used by one thread at a time.

    A pickled or forked copy holds nothing.
    """

    def __init__(self, inner: LockProvider, storage: Storage) -> None:
        self._inner = inner
        self._storage = storage
        self._inner_hold: object = None
        self._kept = False
        self._lost = False
        self._taken = False

    @property
    def is_held(self) -> bool:
        """Whether a hold is active."""
        return self._kept

    def hold(self, timeout_ms: int | None, hold_id: str, longest_ms: int) -> None:
        """Start a hold.  Raises as `acquire`, and for a store that cannot be written.

        Args:
            timeout_ms: As in `acquire`.
            hold_id: Unique id of the hold.
            longest_ms: Maximum duration of the hold in milliseconds.
        """
        try:
            self._inner.acquire(timeout_ms)
            self._inner_hold = self._inner.current_hold
            self._kept, self._lost, self._taken = True, False, False
            self._inner.check()
            self._storage.put(HOLD_NOTICE_PATH, HoldNotice.for_this_process(hold_id, longest_ms).encode())
        except BaseException as error:
            if self._kept:
                self.end()
            elif not isinstance(error, HudiError):
                # An interruption may come after the lock was acquired.
                self._inner.release_if_held()
            raise

    def end(self) -> None:
        """End the hold, if one is active.  Storage errors are not raised: the notice is ignored once the lock is free."""
        if not self._kept:
            return
        if self._inner.current_hold is not self._inner_hold:
            # An interrupted call had released it already.
            self._kept = False
            return
        try:
            # If the lock was lost, the notice may be that of the next hold.
            with suppress(HudiError):
                self._inner.check()
                self._storage.delete([HOLD_NOTICE_PATH])
        finally:
            self._inner.release()
            self._kept = False

    def acquire(self, timeout_ms: int | None = None) -> None:
        if not self._kept:
            self._inner.acquire(timeout_ms)
            return
        if self._taken:
            raise Internal(f"the lock of {self._storage.uri} is acquired already within its exclusive write")
        try:
            self._inner.check()
        except HudiError:
            self.end()
            raise
        self._taken = True

    def release(self) -> bool | None:
        if not self._kept:
            return self._inner.release()
        self._taken = False
        if not self._lost:
            with suppress(HudiError):
                # Held until now, and on.
                self.check()
                return True
        self.end()
        return False

    @property
    def current_hold(self) -> object:
        return self._inner.current_hold

    def release_if_held(self) -> None:
        if self._kept:
            self.release()
        else:
            self._inner.release_if_held()

    def recover(self) -> None:
        self._inner.recover()

    def check(self) -> None:
        try:
            self._inner.check()
        except HudiError:
            self._lost = True
            raise

    def left_ms(self) -> int:
        return self._inner.left_ms()

    def renew(self) -> None:
        try:
            self._inner.renew()
        except HudiError:
            self._lost = True
            raise

    def after_fork(self) -> None:
        self._kept, self._lost, self._taken = False, False, False
