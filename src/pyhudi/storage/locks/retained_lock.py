"""A lock that is kept from one taking to the next: who has lost too often reads, writes and commits as if there were no others.

1. `hold` takes the lock below, and leaves a notice in the table's storage that says for how long it may be held.
2. Until `end`, each taking proves only that the lock is still ours, and giving it back keeps it.  The lock below renews itself as
   ever; one that was lost ends the turn, and the next taking waits for it like everybody's.
3. `end` removes the notice and gives the lock back.  From then on this is the lock below.

    .hoodie/.locks/turn.json      {"owner":"<process>","turn":"<id>","longest_ms":<how long it may be held>}

Who waits for the lock and runs into its limit reads the notice (`notices.longer_for`), and waits on for as long as it says, once
for each turn.  So a turn fails nobody whose wait was made for short commits.  The notice proves nothing and keeps nobody apart:
one that a dead process left makes nobody of its machine wait, and others who would have given up for as long as it says, once.

Source: docs/concurrency-control.md, "Exclusive writes".
"""

from __future__ import annotations

from contextlib import suppress

from pyhudi.errors import HudiError, Internal
from pyhudi.storage.base import Storage
from pyhudi.storage.locks.hold_notices import HOLD_NOTICE_PATH, HoldNotice
from pyhudi.storage.locks.lock_provider import LockProvider


class RetainedLock(LockProvider):
    """`inner`, which may be kept.  storage: of the table.  For one thread at a time.

    Pickled, or in a child of fork, it is kept by nobody.
    """

    def __init__(self, inner: LockProvider, storage: Storage) -> None:
        self._inner = inner
        self._storage = storage
        self._kept = False
        self._lost = False
        self._taken = False

    @property
    def is_held(self) -> bool:
        """Whether the turn is on."""
        return self._kept

    def hold(self, timeout_ms: int | None, hold_id: str, longest_ms: int) -> None:
        """Begin the turn `hold_id`, an id.  timeout_ms: as in `acquire`.  longest_ms: how long it may be on.

        Raises as `acquire`, and as a store that cannot be written.
        """
        self._inner.acquire(timeout_ms)
        self._kept, self._lost, self._taken = True, False, False
        try:
            self._inner.check()
            self._storage.put(HOLD_NOTICE_PATH, HoldNotice.for_this_process(hold_id, longest_ms).encode())
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End the turn, if it is on.  Never raises for a store that fails: the notice counts no more when the lock is free."""
        if not self._kept:
            return
        self._kept = False
        try:
            # Where the lock was lost the notice may be that of the next turn.
            with suppress(HudiError):
                self._inner.check()
                self._storage.delete([HOLD_NOTICE_PATH])
        finally:
            self._inner.release()

    def acquire(self, timeout_ms: int | None = None) -> None:
        if not self._kept:
            self._inner.acquire(timeout_ms)
            return
        if self._taken:
            raise Internal(f"the lock of {self._storage.uri} is taken already, within its turn")
        try:
            self._inner.check()
        except HudiError:
            self.end()
            raise
        self._taken = True

    def release(self) -> None:
        if not self._kept:
            self._inner.release()
            return
        self._taken = False
        if self._lost:
            self.end()

    def check(self) -> None:
        try:
            self._inner.check()
        except HudiError:
            self._lost = True
            raise

    def renew(self) -> None:
        try:
            self._inner.renew()
        except HudiError:
            self._lost = True
            raise

    def after_fork(self) -> None:
        self._kept, self._lost, self._taken = False, False, False
