"""Lease in an object of the table's storage, compatible with Hudi's StorageBasedLockProvider: PyHudi's default lock.

The object `.hoodie/.locks/table_lock.json` has Hudi's layout,
`{"expired":false,"validUntil":<epoch ms>,"owner":"<id>"}`:

1. No object: create it with `put_if_absent`.  A free object: replace it with `put_if_matches`.  Otherwise wait and read
   it again.  The store lets exactly one writer win; `storage.locks.fifo_queue` determines who tries first.  An object is
   free if one holds: it is marked as expired; its owner was a process of this machine that has ended; its `validUntil`
   is more than a margin in the past, unless that process is alive; it has not changed for the duration of its owner's
   leases, as observed by this process, regardless of clocks.  An object without content or cut short, which a power
   failure may leave, is free if it has not changed for the duration of a lease of this process.
2. A renewal advances `validUntil`, again with `put_if_matches`, and only if the owner is still us.
3. The release sets `expired`, if the lease is still ours.  The tag of the last write is known, so the object need not
   be read.  On a full disk, where nothing can be written, it deletes the object instead, while much of the lease
   remains.

`validUntil` uses the wall clock, as in Hudi. It is safe while the clocks of machines differ by less than the margin. A
change of the wall clock during a wait or hold is detected with the monotonic clock. A waiting process continues to
count by the monotonic clock, so that it does not consider a valid lease expired. A renewal uses the later of the two
clocks, so that other writers do not consider its lease expired.

Each acquisition has a unique id.  After a lost response, our id in the object proves that the write succeeded.

The listing of `.hoodie/.locks` before an attempt shows whether processes wait, and whether there may be an audit
(`storage.locks.lock_audit`). So a table without both costs one listing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Annotated

from pyhudi.errors import StorageFull, StorageUnavailable
from pyhudi.format.paths import LOCK_FOLDER
from pyhudi.format.stored_numbers import parse_digits
from pyhudi.options import lock_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.storage.base import Listing, Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.fifo_queue import FifoQueue
from pyhudi.storage.locks.hold_notices import json_fields
from pyhudi.storage.locks.lease import LeaseLock
from pyhudi.storage.locks.lock_audit import AuditState, LockAudit, end_audit_of_dead, start_audit
from pyhudi.storage.locks.lock_provider import LockWait
from pyhudi.storage.process_identity import Process

LEASE_PATH = f"{LOCK_FOLDER}/table_lock.json"
QUEUE_FOLDER = f"{LOCK_FOLDER}/waiting"

# Hudi takes over a lease half a second after it expired; both sides must wait equally long.
LEASE_MARGIN_MS = 500

_PAUSE_PER_PLACE_MS = 50

# A released lock stays free for about this fraction of the time that it was held, until the next process sees it.
_CHECKS_OF_NEXT_IN_QUEUE = 10

# A renewal or release that another request of ours overtook is retried; a store that repeats this is not usable.
_WRITE_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class StorageLockSettings:
    """Options of the storage lease.  validity_ms, renew_ms: its duration and renewal interval in milliseconds.

    The duration is shorter than writers wait, so that a dead writer does not make others time out.
    """

    validity_ms: Annotated[int, lock_options.STORAGE_VALIDITY_TIMEOUT_SECS] = 30_000
    renew_ms: Annotated[int, lock_options.STORAGE_HEARTBEAT_POLL_SECS] = 5_000

    @classmethod
    def of(cls, options: Options) -> StorageLockSettings:
        """Create the settings from validated options."""
        return read_settings(
            cls,
            options,
            validity_ms=options.integer(lock_options.STORAGE_VALIDITY_TIMEOUT_SECS) * 1000,
            renew_ms=options.integer(lock_options.STORAGE_HEARTBEAT_POLL_SECS) * 1000,
        )


class StorageLock(LeaseLock):
    """Lease in an object of the table's storage; the module's docstring describes the protocol.

    label: prefix of the owner's id, for people who read the object; None for the process identity, by which other
    processes of the machine check its liveness.
    """

    def __init__(
        self,
        storage: Storage,
        env: Environment,
        *,
        path: str = LEASE_PATH,
        validity_ms: int = 60_000,
        renew_ms: int = 10_000,
        margin_ms: int = LEASE_MARGIN_MS,
        wait_ms: int = 60_000,
        label: str | None = "",
    ) -> None:
        super().__init__(env, validity_ms=validity_ms, renew_ms=renew_ms, wait_ms=wait_ms)
        self._storage = storage
        self._path = path
        self._margin_ms = margin_ms
        self._label = label
        self._queue = FifoQueue(storage, env, QUEUE_FOLDER)
        # Id of the current acquisition or hold.
        self._owner = ""
        # Number of waiting processes ahead at the last attempt.
        self._ahead = 0
        self._lease: _Lease | None = None
        # Tag of the object that was written last; None if unknown.
        self._tag: str | None = None
        self._audit: LockAudit | None = None
        # Id of a hold of this object that ended, and whose release got no answer.
        self._unreleased: str | None = None
        # Content of the lock object when it was not free, and when it was first observed. No two leases have equal content,
        # so a process that tries once in a while observes how long one is unchanged.
        self._watched: tuple[bytes | None, int] = (None, 0)
        # The wall clock and the monotonic clock at the start of the wait.
        self._began_ms = (0, 0)

    @property
    def owner(self) -> str | None:
        """The id of the current acquisition; None if the lock is not held."""
        return None if self._lease is None else self._lease.owner

    @property
    def _where(self) -> str:
        return self._storage.absolute(self._path)

    def _begin_to_wait(self) -> None:
        name = f"{Process.current().text}:{self._validity_ms}:" if self._label is None else self._label
        self._owner = f"{name}{self._env.uuid4()}"
        self._queue = FifoQueue(self._storage, self._env, QUEUE_FOLDER)
        self._tag = None
        if not (self._watched[0] or b"").strip(b"\0"):
            # Unlike a lease, which has a unique id, an empty object may be another one.
            self._watched = (None, 0)
        self._began_ms = (self._env.now_ms(), self._env.monotonic_ms())

    def _steady_wall_ms(self) -> int:
        """The wall clock, without changes of it since the start of the wait."""
        wall_ms, steady_ms = self._began_ms
        return wall_ms + self._env.monotonic_ms() - steady_ms

    def _pause(self, wait: LockWait) -> None:
        self._queue.wait()
        if self._ahead:
            wait.pause(None, self._ahead * _PAUSE_PER_PLACE_MS)
            return
        # The next process polls often, or the lock would stay free while all sleep; only one process does, so it is
        # cheap.
        since_ms = self._watched[1]
        idle_ms = self._env.monotonic_ms() - since_ms
        wait.pause(since_ms, max(_PAUSE_PER_PLACE_MS, idle_ms // _CHECKS_OF_NEXT_IN_QUEUE))

    def _end_wait(self, *, acquired: bool, outcome_unknown: bool) -> None:
        if outcome_unknown and not acquired:
            # A request without a response may have acquired the lease; it would have no holder.
            self._lease = _Lease(self._owner, 0)
            self._release_quietly()
            self._lease = None
        self._queue.leave()

    def _left_ms(self) -> int:
        # The earlier of two clocks: other processes use the wall clock, and the monotonic one includes suspended time.
        wall_ms = 0 if self._lease is None else self._lease.valid_until - self._env.now_ms()
        return min(wall_ms, super()._left_ms())

    def _try_acquire(self) -> str | None:
        self._ahead = 0
        lock_files = self._storage.list(LOCK_FOLDER)
        self._ahead = self._queue.waiting_ahead(is_empty=QUEUE_FOLDER not in lock_files.folders)
        if self._ahead:
            return f"{self._ahead} other writers wait for it"
        # The time is read before the request is sent, so the lease is never overestimated.
        now_ms, steady_ms = self._steady_wall_ms(), self._env.monotonic_ms()
        new_lease = _Lease(self._owner, max(self._env.now_ms(), self._steady_wall_ms()) + self._validity_ms)
        stored = self._storage.read_versioned(self._path)
        if stored is not None and stored[0] != self._watched[0]:
            self._watched = (stored[0], steady_ms)
        tag: str | None = None
        current: _Lease | None = None
        if stored is None:
            acquired = self._storage.put_if_absent(self._path, new_lease.encode())
        else:
            current = _Lease.decode(stored[0])
            unchanged_ms = steady_ms - self._watched[1]
            if current is None:
                # A power failure may leave an object without content, or cut short, whose owner no longer runs.
                if _is_json(stored[0]) or unchanged_ms <= self._validity_ms + self._margin_ms:
                    return "the lock object is unreadable; delete it when no writer is running"
            elif not self._is_own(current) and not current.is_free(now_ms, unchanged_ms, self._margin_ms):
                return f"{current.owner} holds it, until {current.valid_until} (epoch ms) if it is not renewed"
            tag = self._storage.put_if_matches(self._path, new_lease.encode(), stored[1])
            acquired = tag is not None
        if not acquired:
            return "another writer was faster"
        self._lease, self._tag, self._unreleased = new_lease, tag, None
        self._audit = self._start_audit(lock_files, new_lease, current)
        return None

    def _is_own(self, lease: _Lease) -> bool:
        """Whether a lease is that of this acquisition or of an earlier hold of this object, which has ended."""
        return lease.owner in (self._owner, self._unreleased)

    def _start_audit(self, lock_files: Listing, lease: _Lease, previous: _Lease | None) -> LockAudit | None:
        now_ms = self._env.now_ms()
        audit = start_audit(self._storage, lock_files, lease.owner, now_ms, lease.valid_until)
        if audit is None or previous is None or previous.expired or previous.owner == lease.owner:
            return audit
        if now_ms < previous.valid_until:
            end_audit_of_dead(self._storage, previous.owner, now_ms, previous.valid_until)
        return audit

    def _extend(self) -> str | None:
        assert self._lease is not None, "the lock is held"
        now_ms = self._env.now_ms()
        obstacle = self._replace(self._lease, expired=False)
        if obstacle is None and self._audit is not None:
            self._audit.record(AuditState.RENEW, now_ms, self._lease.valid_until)
        return obstacle

    def _release_lease(self) -> str | None:
        assert self._lease is not None, "the lock is held"
        now_ms = self._env.now_ms()
        self._unreleased = self._lease.owner
        obstacle = self._free_lease(self._lease)
        self._unreleased = None
        if obstacle is None and self._audit is not None:
            self._audit.record(AuditState.END, now_ms, self._lease.valid_until)
        return obstacle

    def _free_lease(self, lease: _Lease) -> str | None:
        try:
            return self._replace(lease, expired=True)
        except StorageFull:
            # Deleting needs no space.  It is unconditional, but safe within the lease: no other process writes the
            # object then.
            if self._safe_until_ms is None or self._left_ms() < self._validity_ms // 3:
                raise
            self._storage.delete([self._path])
            return None

    def _clear_lease(self) -> None:
        self._lease, self._tag, self._audit = None, None, None

    def _replace(self, lease: _Lease, *, expired: bool) -> str | None:
        """Rewrite our lease, if it is still ours; None on success, otherwise why it is not."""
        tag, self._tag = self._tag, None
        if expired and tag is not None:
            new_lease = replace(lease, expired=True)
            if self._storage.put_if_matches(self._path, new_lease.encode(), tag) is not None:
                self._lease = new_lease
                return None
        for _ in range(_WRITE_ATTEMPTS):
            now_ms = max(self._env.now_ms(), self._steady_wall_ms())
            stored = self._storage.read_versioned(self._path)
            current = None if stored is None else _Lease.decode(stored[0])
            if stored is None or current is None:
                return "its object is missing or unreadable"
            if current.owner != lease.owner:
                return f"{current.owner} took it over after the lease of {lease.owner} had expired"
            if current.expired:
                return "its object is marked as expired"
            new_lease = _Lease(lease.owner, current.valid_until if expired else now_ms + self._validity_ms, expired)
            tag = self._storage.put_if_matches(self._path, new_lease.encode(), stored[1])
            if tag is not None:
                self._lease, self._tag = new_lease, tag
                return None
        raise StorageUnavailable(f"{self._where}: the lock object changes faster than it can be replaced")


def _is_json(data: bytes) -> bool:
    """Return True for a whole JSON document, such as a lease of another layout. A part of one is not."""
    try:
        json.loads(data)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Lease:
    """Content of the lock object.  valid_until: epoch milliseconds."""

    owner: str
    valid_until: int
    expired: bool = False

    def is_free(self, now_ms: int, unchanged_ms: int, margin_ms: int) -> bool:
        """unchanged_ms: how long the caller has observed the object unchanged."""
        if self.expired:
            return True
        ran_out = self.valid_until + margin_ms < now_ms
        name, _, rest = self.owner.partition(":")
        validity = parse_digits(rest.partition(":")[0])
        process = Process.parse(name)
        if process is None or validity is None:
            return ran_out
        lives = process.is_running()
        if lives is None:
            return ran_out or unchanged_ms > validity + margin_ms
        # For a process of this machine, its liveness is more reliable than the clock, which may have been changed.
        return not lives or unchanged_ms > validity + margin_ms

    def encode(self) -> bytes:
        document = {"expired": self.expired, "validUntil": self.valid_until, "owner": self.owner}
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> _Lease | None:
        """Decode a lease; None if the bytes are malformed."""
        document = json_fields(data)
        owner, valid_until, expired = (document.get(name) for name in ("owner", "validUntil", "expired"))
        if not isinstance(owner, str) or type(valid_until) is not int or not isinstance(expired, bool):
            return None
        return cls(owner, valid_until, expired)
