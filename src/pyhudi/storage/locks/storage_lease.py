"""The lease in an object of the table's storage, as real Hudi's StorageBasedLockProvider: PyHudi's default.

The object `.hoodie/.locks/table_lock.json` has real Hudi's layout, `{"expired":false,"validUntil":<epoch ms>,"owner":"<id>"}`:

1. No object: create it with `put_if_absent`.  An object that is free: replace it with `put_if_matches`.  Otherwise wait and look
   again.  The store lets exactly one writer win; `storage.locks.fifo_queue` says who tries first.  An object is free that is
   expired; whose
   owner was a process of this machine that has ended; whose `validUntil` lies more than a margin in the past, unless that process
   lives; or that has not changed before the waiter's eyes for as long as its owner's leases last, whatever any clock says.
2. A renewal moves `validUntil` ahead, again with `put_if_matches`, and only where the owner is still us.
3. The release sets `expired`, if the lease is still ours: what was written last has a tag, so the object need not be read before.
   On a full disk, where nothing can be written, it deletes the object instead, while much of the lease is left.

`validUntil` is the wall clock's, as in real Hudi; it stays safe as long as the clocks of machines differ by less than the margin.
A clock that is set while its process waits or holds is noticed by the steady one beside it: who waits counts on by the
steady one, so that it takes no lease for over that is not, and who renews goes by the later of the two, so that nobody takes
its lease for over.
Each acquisition has an id of its own, so an answer that was lost is found out by reading the object: our id in it means the write
landed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Annotated

from pyhudi.errors import StorageFull, StorageUnavailable
from pyhudi.format.paths import LOCK_FOLDER
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.fifo_queue import FifoQueue
from pyhudi.storage.locks.hold_notices import json_fields
from pyhudi.storage.locks.lease import LeaseLock
from pyhudi.storage.locks.lock_provider import LockWait
from pyhudi.storage.process_identity import Process

LEASE_PATH = f"{LOCK_FOLDER}/table_lock.json"
QUEUE_FOLDER = f"{LOCK_FOLDER}/waiting"

# Real Hudi takes a lease over half a second after it ran out; both sides must wait the same time.
LEASE_MARGIN_MS = 500

_PAUSE_PER_PLACE_MS = 50

# The lock lies free for a part like this of the time that it was held, until the next one sees it.
_LOOKS_OF_THE_NEXT = 10

# A renewal or release that another request of ours overtook is tried again; a store that goes on so is not answering.
_WRITE_ATTEMPTS = 3

_VALIDITY = Option("hoodie.write.lock.storage.validity.timeout.secs", int, "30", "seconds that a lease is good for", at_least=1)
_RENEWAL = Option(
    "hoodie.write.lock.storage.heartbeat.poll.secs",
    int,
    "5",
    "seconds between two renewals of a lease",
    aliases=("hoodie.write.lock.storage.renew.interval.secs",),
    at_least=1,
)


@dataclass(frozen=True, slots=True)
class StorageLockSettings:
    """validity_ms, renew_ms: of the lease; it is shorter than writers wait, so that a death fails nobody."""

    validity_ms: Annotated[int, _VALIDITY] = 30_000
    renew_ms: Annotated[int, _RENEWAL] = 5_000

    @classmethod
    def of(cls, options: Options) -> StorageLockSettings:
        """From checked options."""
        return read_settings(
            cls, options, validity_ms=options.integer(_VALIDITY) * 1000, renew_ms=options.integer(_RENEWAL) * 1000
        )


class StorageLock(LeaseLock):
    """A lease in an object of the table's storage; the module's head tells how.

    label: stands before the random part of the owner's id, for people who read the object; None for the process that takes the
    lock, after which others of its machine can ask.
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
        # The id of the acquisition under way, or of the one that holds.
        self._owner = ""
        # How many come before us, as of the last attempt.
        self._ahead = 0
        self._lease: _Lease | None = None
        # Of the object as we wrote it last; None where that is not known.
        self._tag: str | None = None
        # What stands in the lock object while we wait, and since when.
        self._watched: tuple[bytes, int] = (b"", 0)
        # The wall clock and the steady one when we began to wait.
        self._began_ms = (0, 0)

    @property
    def owner(self) -> str | None:
        """The id of the present acquisition; None when the lock is not held."""
        return None if self._lease is None else self._lease.owner

    @property
    def _where(self) -> str:
        return self._storage.absolute(self._path)

    def _begin_to_wait(self) -> None:
        name = f"{Process.current().text}:{self._validity_ms}:" if self._label is None else self._label
        self._owner = f"{name}{self._env.uuid4()}"
        self._queue = FifoQueue(self._storage, self._env, QUEUE_FOLDER)
        self._watched = (b"", 0)
        self._tag = None
        self._began_ms = (self._env.now_ms(), self._env.monotonic_ms())

    def _steady_wall_ms(self) -> int:
        """The wall clock if nobody had set it since we began to wait."""
        wall_ms, steady_ms = self._began_ms
        return wall_ms + self._env.monotonic_ms() - steady_ms

    def _pause(self, wait: LockWait) -> None:
        self._queue.wait()
        if self._ahead:
            wait.pause(None, self._ahead * _PAUSE_PER_PLACE_MS)
            return
        # Whoever is next looks often, or the lock lies free while everybody sleeps; it is one alone, so that costs little.
        since_ms = self._watched[1]
        idle_ms = self._env.monotonic_ms() - since_ms
        wait.pause(since_ms, max(_PAUSE_PER_PLACE_MS, idle_ms // _LOOKS_OF_THE_NEXT))

    def _end_wait(self, *, acquired: bool, outcome_unknown: bool) -> None:
        if outcome_unknown and not acquired:
            # A request without an answer may have taken the lease all the same; nobody would hold it.
            self._lease = _Lease(self._owner, 0)
            self._give_back_quietly()
            self._lease = None
        self._queue.leave()

    def _left_ms(self) -> int:
        # The sooner of two clocks: others go by the wall's, and the steady one tells how long this process has slept.
        wall_ms = 0 if self._lease is None else self._lease.valid_until - self._env.now_ms()
        return min(wall_ms, super()._left_ms())

    def _try_to_take(self) -> str | None:
        self._ahead = 0
        self._ahead = self._queue.waiting_ahead()
        if self._ahead:
            return f"{self._ahead} others wait for it"
        # The time is read before the request goes out: a lease that seems shorter than it is, is safe.
        now_ms, steady_ms = self._steady_wall_ms(), self._env.monotonic_ms()
        wanted = _Lease(self._owner, max(self._env.now_ms(), self._steady_wall_ms()) + self._validity_ms)
        found = self._storage.read_versioned(self._path)
        if found is not None and found[0] != self._watched[0]:
            self._watched = (found[0], steady_ms)
        tag: str | None = None
        if found is None:
            taken = self._storage.put_if_absent(self._path, wanted.encode())
        else:
            current = _Lease.decode(found[0])
            if current is None:
                return "the lock object is unreadable; delete it when no writer is running"
            unchanged_ms = steady_ms - self._watched[1]
            if current.owner != self._owner and not current.is_free(now_ms, unchanged_ms, self._margin_ms):
                return f"{current.owner} holds it, until {current.valid_until} (epoch ms) if it is not renewed"
            tag = self._storage.put_if_matches(self._path, wanted.encode(), found[1])
            taken = tag is not None
        if not taken:
            return "another writer was faster"
        self._lease, self._tag = wanted, tag
        return None

    def _extend(self) -> str | None:
        assert self._lease is not None, "the lock is held"
        return self._replace(self._lease, expired=False)

    def _give_back(self) -> str | None:
        assert self._lease is not None, "the lock is held"
        try:
            return self._replace(self._lease, expired=True)
        except StorageFull:
            # Deleting needs no room.  It compares nothing either, and stands on the lease: nobody else writes the object then.
            if self._safe_until_ms is None or self._left_ms() < self._validity_ms // 3:
                raise
            self._storage.delete([self._path])
            return None

    def _forget(self) -> None:
        self._lease, self._tag = None, None

    def _replace(self, lease: _Lease, *, expired: bool) -> str | None:
        """Write our lease anew, if it is still ours; None on success, otherwise why it is not."""
        tag, self._tag = self._tag, None
        if expired and tag is not None:
            wanted = replace(lease, expired=True)
            if self._storage.put_if_matches(self._path, wanted.encode(), tag) is not None:
                self._lease = wanted
                return None
        for _ in range(_WRITE_ATTEMPTS):
            now_ms = max(self._env.now_ms(), self._steady_wall_ms())
            found = self._storage.read_versioned(self._path)
            current = None if found is None else _Lease.decode(found[0])
            if found is None or current is None:
                return "its object is gone or unreadable"
            if current.owner != lease.owner:
                return f"{current.owner} took it over after the lease of {lease.owner} had run out"
            if current.expired:
                return "its object is marked as expired"
            wanted = _Lease(lease.owner, current.valid_until if expired else now_ms + self._validity_ms, expired)
            tag = self._storage.put_if_matches(self._path, wanted.encode(), found[1])
            if tag is not None:
                self._lease, self._tag = wanted, tag
                return None
        raise StorageUnavailable(f"{self._where}: the lock object changes faster than it can be replaced")


@dataclass(frozen=True, slots=True)
class _Lease:
    """What the lock object says.  valid_until: epoch milliseconds."""

    owner: str
    valid_until: int
    expired: bool = False

    def is_free(self, now_ms: int, unchanged_ms: int, margin_ms: int) -> bool:
        """unchanged_ms: for how long whoever asks has seen it as it is."""
        if self.expired:
            return True
        ran_out = self.valid_until + margin_ms < now_ms
        name, _, rest = self.owner.partition(":")
        validity, _, _ = rest.partition(":")
        process = Process.parse(name)
        if process is None or not validity.isdecimal():
            return ran_out
        lives = process.is_running()
        if lives is None:
            return ran_out or unchanged_ms > int(validity) + margin_ms
        # Of a process of this machine the clock says nothing that asking does not say better: somebody may just have set it.
        return not lives or unchanged_ms > int(validity) + margin_ms

    def encode(self) -> bytes:
        document = {"expired": self.expired, "validUntil": self.valid_until, "owner": self.owner}
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> _Lease | None:
        """The lease; None when the bytes are none."""
        document = json_fields(data)
        owner, valid_until, expired = (document.get(name) for name in ("owner", "validUntil", "expired"))
        if not isinstance(owner, str) or type(valid_until) is not int or not isinstance(expired, bool):
            return None
        return cls(owner, valid_until, expired)
