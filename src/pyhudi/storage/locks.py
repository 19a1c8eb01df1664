"""Locks that keep the writers of one table apart.

    LockProvider          what all of them promise
      InProcessLock       threads of one process
      StorageLock         all processes that reach the table's storage: a lease in a JSON object; PyHudi's default
      FileSystemLock      the same file that real Hudi's FileSystemBasedLockProvider uses
      CombinedLock        several, taken in order and released in reverse

The lease of `StorageLock` is the object `.hoodie/.locks/table_lock.json` with real Hudi's layout,
`{"expired":false,"validUntil":<epoch ms>,"owner":"<id>"}`:

1. No object: create it with `put_if_absent`.  An object that is free: replace it with `put_if_matches`.  Otherwise wait and look
   again.  The store lets exactly one writer win; `storage.queues` says who tries first.  An object is free that is expired; whose
   owner was a process of this machine that has ended; whose `validUntil` lies more than a margin in the past, unless that process
   lives; or that has not changed before the waiter's eyes for as long as its owner's leases last, whatever any clock says.
2. While it is held, a repeated task moves `validUntil` ahead, again with `put_if_matches`, and only where the owner is still us.
3. `check` says whether the lease is still ours, renewing it when little of it is left.  Whoever is about to publish asks first.
4. `release` sets `expired`, if the lease is still ours.  A process that dies lets it run out; nobody has to clean up.

Waits and the holder's own view of its lease go by a clock that nobody sets.  `validUntil` is the wall clock's, as in real
Hudi; it stays safe as long as the clocks of machines differ by less than the margin.  A child of fork holds none of its parent's
locks.  Each acquisition has an id of its own, so an answer that was
lost is found out by reading the object: our id in it means the write landed.

What this does not do: no ZooKeeper, DynamoDB or Hive metastore.  `register_lock_provider` is the door for them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Self

from pyhudi.errors import HudiError, Internal, InvalidRequest, StorageFull, StorageUnavailable, Unsupported
from pyhudi.settings import Option, Options, read_settings
from pyhudi.storage.base import Storage
from pyhudi.storage.clock import Environment, Repetition
from pyhudi.storage.opening import open_storage
from pyhudi.storage.processes import Process
from pyhudi.storage.queues import WaitingQueue
from pyhudi.storage.uris import parse_uri

LOCK_FOLDER = ".hoodie/.locks"
LEASE_PATH = f"{LOCK_FOLDER}/table_lock.json"
QUEUE_FOLDER = f"{LOCK_FOLDER}/waiting"
FILE_LOCK_NAME = "lock"

# Real Hudi takes a lease over half a second after it ran out; both sides must wait the same time.
LEASE_MARGIN_MS = 500

_FIRST_PAUSE_MS = 20
_LAST_PAUSE_MS = 1000
_LAST_THREAD_PAUSE_MS = 100
_PAUSE_PER_PLACE_MS = 50

# A renewal or release that another request of ours overtook is tried again; a store that goes on so is not answering.
_WRITE_ATTEMPTS = 3

_LOG = logging.getLogger("pyhudi.storage.locks")


class LockProvider(ABC):
    """An exclusive lock.  Not reentrant: whoever holds it and asks again waits for itself until the time is out."""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        lock = super().__new__(cls)
        _providers.add(lock)
        return lock

    def forget_parent(self) -> None:
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


class InProcessLock(LockProvider):
    """A lock among the threads of this process.  key: what it guards; equal keys are one lock."""

    def __init__(self, key: str, env: Environment, *, wait_ms: int = 60_000) -> None:
        self._key = key
        self._env = env
        self._wait_ms = wait_ms
        with _shared_mutex:
            self._shared = _shared_locks.setdefault(key, _SharedLock())

    def acquire(self, timeout_ms: int | None = None) -> None:
        wait = _Wait(self._env, self._wait_ms if timeout_ms is None else timeout_ms, _LAST_THREAD_PAUSE_MS)
        # First come, first served: whoever has just given it back stands behind those who wait.
        place = object()
        self._shared.waiting.append(place)
        try:
            while self._shared.waiting[0] is not place or not self._shared.lock.acquire(blocking=False):
                if not wait.pause():
                    raise StorageUnavailable(f"{self._key}: another thread of this process holds its lock ({wait})")
        finally:
            with contextlib.suppress(ValueError):
                self._shared.waiting.remove(place)

    def release(self) -> None:
        try:
            self._shared.lock.release()
        except RuntimeError as error:
            raise Internal(f"{self._key}: its lock is not held") from error

    def check(self) -> None:
        if not self._shared.lock.locked():
            raise Internal(f"{self._key}: its lock is not held")

    def forget_parent(self) -> None:
        self._shared.reset()

    def renew(self) -> None:
        self.check()


class StorageLock(LockProvider):
    """A lease in an object of the table's storage; the module's head tells how.

    One object of this class is one holder: threads that share it need an `InProcessLock` around it, as `open_lock` gives.
    validity_ms: how long a lease lasts without renewal; renew_ms: how often it is renewed, less than half of that;
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
        if not 0 < 2 * renew_ms <= validity_ms:
            raise InvalidRequest(
                f"a lease of {validity_ms} ms cannot be renewed each {renew_ms} ms: renew at least twice as often as it lasts"
            )
        self._storage = storage
        self._env = env
        self._path = path
        self._validity_ms = validity_ms
        self._renew_ms = renew_ms
        self._margin_ms = margin_ms
        self._wait_ms = wait_ms
        self._label = label
        self._lease: _Lease | None = None
        # By the steady clock: until when our lease lasts at the least.
        self._safe_until_ms = 0
        # What stands in the lock object while we wait, and since when.
        self._watched: tuple[bytes, int] = (b"", 0)
        self._lost: str | None = None
        self._renewal: Repetition | None = None
        # Guards the lease between the holder and the thread that renews it, so that no renewal follows a release.
        self._mutex = threading.Lock()

    @property
    def owner(self) -> str | None:
        """The id of the present acquisition; None when the lock is not held."""
        return None if self._lease is None else self._lease.owner

    def acquire(self, timeout_ms: int | None = None) -> None:
        if self._lease is not None:
            raise Internal(f"{self._where}: this lock is held already")
        owner = f"{self._name()}{self._env.uuid4()}"
        wait = _Wait(self._env, self._wait_ms if timeout_ms is None else timeout_ms)
        queue = WaitingQueue(self._storage, self._env, QUEUE_FOLDER)
        self._watched = (b"", 0)
        silent = False
        try:
            while True:
                ahead = 0
                try:
                    ahead = queue.ahead()
                    obstacle = f"{ahead} others wait for it" if ahead else self._try_to_take(owner)
                except StorageFull:
                    raise
                except StorageUnavailable as error:
                    obstacle, silent = str(error), True
                if obstacle is None:
                    break
                if wait.is_over:
                    if silent:
                        # A request without an answer may have taken the lease all the same; nobody would hold it.
                        self._give_back(_Lease(owner, 0))
                    raise StorageUnavailable(f"{self._where}: the table's lock was not free ({wait}): {obstacle}")
                queue.wait()
                # Whoever is next looks often, or the lock lies free while everybody sleeps.
                wait.pause(None if ahead else self._watched[1], ahead * _PAUSE_PER_PLACE_MS or None)
        finally:
            queue.leave()
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
            lease, self._lease, self._lost = self._lease, None, None
            obstacle = None if lease is None else self._give_back(lease)
        if obstacle is not None:
            _LOG.warning("%s: the lock could not be given back and runs out by itself: %s", self._where, obstacle)

    def check(self) -> None:
        lease = self._lease
        if lease is not None and self._lost is None:
            # The sooner of two clocks: others go by the wall's, and the steady one tells how long this process has slept.
            left_ms = min(lease.valid_until - self._env.now_ms(), self._safe_until_ms - self._env.monotonic_ms())
            if left_ms >= self._validity_ms // 3:
                return
        self.renew()

    def forget_parent(self) -> None:
        self._lease, self._lost, self._renewal = None, None, None
        self._mutex = threading.Lock()

    def renew(self) -> None:
        with self._mutex:
            if self._lease is None:
                raise Internal(f"{self._where}: the lock is not held")
            if self._lost is None:
                # A lease that ran out while nobody took it is still ours when this replaces it: the store compares.
                self._lost = self._replace_own(self._lease, expired=False)
            if self._lost is not None:
                raise StorageUnavailable(f"{self._where}: the table's lock was lost: {self._lost}")

    @property
    def _where(self) -> str:
        return self._storage.absolute(self._path)

    def _name(self) -> str:
        """What stands before the random part of an owner's id."""
        return f"{Process.current().text}:{self._validity_ms}:" if self._label is None else self._label

    def _try_to_take(self, owner: str) -> str | None:
        """One attempt; None when the lock is ours, otherwise what stands in the way."""
        # The time is read before the request goes out: a lease that seems shorter than it is, is safe.
        now_ms, steady_ms = self._env.now_ms(), self._env.monotonic_ms()
        wanted = _Lease(owner, now_ms + self._validity_ms)
        found = self._storage.read_versioned(self._path)
        if found is not None and found[0] != self._watched[0]:
            self._watched = (found[0], steady_ms)
        if found is None:
            taken = self._storage.put_if_absent(self._path, wanted.encode())
        else:
            current = _Lease.decode(found[0])
            if current is None:
                return "the lock object is unreadable; delete it when no writer is running"
            unchanged_ms = steady_ms - self._watched[1]
            if current.owner != owner and not current.is_free(now_ms, unchanged_ms, self._margin_ms):
                return f"{current.owner} holds it, until {current.valid_until} (epoch ms) if it is not renewed"
            taken = self._storage.put_if_matches(self._path, wanted.encode(), found[1])
        if not taken:
            return "another writer was faster"
        self._lease, self._safe_until_ms = wanted, steady_ms + self._validity_ms
        return None

    def _replace_own(self, lease: _Lease, *, expired: bool) -> str | None:
        """Write our lease anew, if it is still ours; None on success, otherwise why it is not.  Needs the mutex."""
        for _ in range(_WRITE_ATTEMPTS):
            now_ms, steady_ms = self._env.now_ms(), self._env.monotonic_ms()
            found = self._storage.read_versioned(self._path)
            current = None if found is None else _Lease.decode(found[0])
            if found is None or current is None:
                return "its object is gone or unreadable"
            if current.owner != lease.owner:
                return f"{current.owner} took it over after the lease of {lease.owner} had run out"
            if current.expired:
                return "its object is marked as expired"
            wanted = _Lease(lease.owner, current.valid_until if expired else now_ms + self._validity_ms, expired)
            if self._storage.put_if_matches(self._path, wanted.encode(), found[1]):
                if not expired:
                    self._lease, self._safe_until_ms = wanted, steady_ms + self._validity_ms
                return None
        raise StorageUnavailable(f"{self._where}: the lock object changes faster than it can be replaced")

    def _give_back(self, lease: _Lease) -> str | None:
        """Mark our lease as expired, if it stands in the store; None on success, otherwise why not."""
        try:
            return self._replace_own(lease, expired=True)
        except HudiError as error:
            return str(error)

    def _renew_quietly(self) -> None:
        # Nobody stands above this to hear an error.  The holder hears it from `check`, which asks the store again.
        try:
            self.renew()
        except HudiError as error:
            _LOG.warning("%s", error)
        except BaseException as error:
            _LOG.warning("%s: the lock is no longer renewed: %r", self._where, error)
            if self._renewal is not None:
                self._renewal.stop()


class FileSystemLock(LockProvider):
    """The empty file that real Hudi's FileSystemBasedLockProvider creates, for sharing a table with its writers.

    storage: of the folder that holds the file, `<table>/.hoodie` unless configured otherwise.
    expire_ms: age by modification time at which a lock counts as left behind and is deleted; 0 for never.

    Real Hudi's protocol has no owner, so it has two gaps that no reader of the file can close: between seeing an expired file
    and deleting it somebody else may have taken the lock, and real Hudi deletes the file at release without looking.  `check`
    compares the file's time with that of our own creation and tells when somebody else's file stands there.
    A holder cannot renew it: set the expiry well above the longest commit.
    """

    def __init__(
        self, storage: Storage, env: Environment, *, expire_ms: int = 0, wait_ms: int = 60_000, name: str = FILE_LOCK_NAME
    ) -> None:
        if parse_uri(storage.uri).scheme not in ("file", "memory"):
            raise Unsupported(
                f"{storage.uri}: FileSystemBasedLockProvider works on file systems only; use {_STORAGE_PROVIDER} there"
            )
        self._storage = storage
        self._env = env
        self._expire_ms = expire_ms
        self._wait_ms = wait_ms
        self._name = name
        self._created_ms: int | None = None

    def acquire(self, timeout_ms: int | None = None) -> None:
        if self._created_ms is not None:
            raise Internal(f"{self._where}: this lock is held already")
        wait = _Wait(self._env, self._wait_ms if timeout_ms is None else timeout_ms)
        while not self._storage.put_if_absent(self._name, b""):
            found = self._storage.stat(self._name)
            if found is not None and self._is_left_behind(found.modified_ms):
                self._storage.delete([self._name])
            elif not wait.pause():
                age = "" if found is None else f", created at {found.modified_ms} (epoch ms)"
                raise StorageUnavailable(
                    f"{self._where}: another writer holds the lock file{age} ({wait}); delete it if that writer is dead"
                )
        created = self._storage.stat(self._name)
        if created is None:
            raise StorageUnavailable(f"{self._where}: the lock file was deleted by somebody else; try again")
        self._created_ms = created.modified_ms

    def release(self) -> None:
        created_ms, self._created_ms = self._created_ms, None
        if created_ms is None:
            return
        try:
            found = self._storage.stat(self._name)
            if found is not None and found.modified_ms == created_ms:
                self._storage.delete([self._name])
                return
            _LOG.warning("%s: the lock file is not ours any more, so it is left alone", self._where)
        except HudiError as error:
            _LOG.warning("%s: the lock file could not be deleted: %s", self._where, error)

    def check(self) -> None:
        if self._created_ms is None:
            raise Internal(f"{self._where}: the lock is not held")
        found = self._storage.stat(self._name)
        if found is None or found.modified_ms != self._created_ms:
            raise StorageUnavailable(f"{self._where}: the table's lock was lost: its file is gone or somebody else's")
        if self._is_left_behind(self._created_ms):
            raise StorageUnavailable(f"{self._where}: the table's lock was held for longer than it may, {self._expire_ms} ms")

    def renew(self) -> None:
        self.check()

    def forget_parent(self) -> None:
        self._created_ms = None

    @property
    def _where(self) -> str:
        return self._storage.absolute(self._name)

    def _is_left_behind(self, created_ms: int) -> bool:
        return self._expire_ms > 0 and self._env.now_ms() - created_ms > self._expire_ms


class CombinedLock(LockProvider):
    """Several locks as one: taken in the order given, within one time limit, and released in reverse."""

    def __init__(self, first: LockProvider, *others: LockProvider, env: Environment, wait_ms: int = 60_000) -> None:
        self._locks = (first, *others)
        self._env = env
        self._wait_ms = wait_ms

    def acquire(self, timeout_ms: int | None = None) -> None:
        deadline_ms = self._env.monotonic_ms() + (self._wait_ms if timeout_ms is None else timeout_ms)
        taken: list[LockProvider] = []
        try:
            for lock in self._locks:
                lock.acquire(max(0, deadline_ms - self._env.monotonic_ms()))
                taken.append(lock)
        except BaseException:
            for lock in reversed(taken):
                lock.release()
            raise

    def release(self) -> None:
        with contextlib.ExitStack() as stack:
            for lock in self._locks:
                stack.callback(lock.release)

    def check(self) -> None:
        for lock in self._locks:
            lock.check()

    def renew(self) -> None:
        for lock in self._locks:
            lock.renew()


LOCK_WAIT = Option("hoodie.write.lock.wait_time_ms", int, "60000", "milliseconds to wait for the lock")
_EXPIRY = Option(
    "hoodie.write.lock.filesystem.expire", int, "0", "minutes after which a file system lock is taken for left behind; 0: never"
)
_VALIDITY = Option("hoodie.write.lock.storage.validity.timeout.secs", int, "30", "seconds that a lease is good for")
_RENEWAL = Option("hoodie.write.lock.storage.heartbeat.poll.secs", int, "5", "seconds between two renewals of a lease")


@dataclass(frozen=True, slots=True)
class LockSettings:
    """Which lock a table's writers use.

    provider: real Hudi's class name, None for PyHudi's default; wait_ms: how long `acquire` waits unless told otherwise;
    file_system_path: folder of the lock file, None for the table's `.hoodie`; file_system_expire_ms: 0 for never;
    validity_ms, renew_ms: of the lease in the table's storage; shorter than `wait_ms`, so that a death fails nobody.
    """

    provider: Annotated[
        str | None,
        Option(
            "hoodie.write.lock.provider", str, None, "class of the lock that writers share; unset: a lease in the table's storage"
        ),
    ] = None
    wait_ms: Annotated[int, LOCK_WAIT] = 60_000
    file_system_path: Annotated[
        str | None,
        Option("hoodie.write.lock.filesystem.path", str, None, "folder of the file system lock; unset: the table's .hoodie"),
    ] = None
    file_system_expire_ms: Annotated[int, _EXPIRY] = 0
    validity_ms: Annotated[int, _VALIDITY] = 30_000
    renew_ms: Annotated[int, _RENEWAL] = 5_000

    @classmethod
    def of(cls, options: Options) -> LockSettings:
        """From checked options."""
        return read_settings(
            cls,
            options,
            file_system_expire_ms=options.integer(_EXPIRY) * 60_000,
            validity_ms=options.integer(_VALIDITY) * 1000,
            renew_ms=options.integer(_RENEWAL) * 1000,
        )


LockFactory = Callable[[LockSettings, Storage, Environment], LockProvider]


def open_lock(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    """The lock of the table whose root is `storage`.  Touches no file.

    Threads of this process are always kept apart first; then by what the provider names, or by a lease in the table's storage.
    Raises Unsupported for a provider that nobody registered.
    """
    threads = InProcessLock(parse_uri(storage.uri).key, env, wait_ms=settings.wait_ms)
    provider = _STORAGE_PROVIDER if settings.provider is None else settings.provider
    if provider == _IN_PROCESS_PROVIDER:
        return threads
    factory = _factories.get(provider)
    if factory is None:
        available = ", ".join(sorted((_IN_PROCESS_PROVIDER, *_factories)))
        raise Unsupported(f"lock provider {provider} is not available; these are: {available}")
    return CombinedLock(threads, factory(settings, storage, env), env=env, wait_ms=settings.wait_ms)


def register_lock_provider(class_name: str, factory: LockFactory) -> None:
    """Make `open_lock` use `factory` for a provider class name.  The factory touches no file and returns an unheld lock."""
    _factories[class_name] = factory


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
        lives = process.lives()
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
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict):
            return None
        owner, valid_until, expired = (document.get(name) for name in ("owner", "validUntil", "expired"))
        if not isinstance(owner, str) or type(valid_until) is not int or not isinstance(expired, bool):
            return None
        return cls(owner, valid_until, expired)


class _SharedLock:
    """One lock of the process, alive while somebody refers to it.  waiting: the places of those who wait, first come first."""

    __slots__ = ("__weakref__", "lock", "waiting")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[object] = deque()


_shared_locks: weakref.WeakValueDictionary[str, _SharedLock] = weakref.WeakValueDictionary()
_shared_mutex = threading.Lock()
_providers: weakref.WeakSet[LockProvider] = weakref.WeakSet()


def _after_fork() -> None:
    # The threads that hold locks of the parent, or were just taking one, are not in the child.
    global _shared_mutex
    _shared_mutex = threading.Lock()
    for lock in list(_providers):
        lock.forget_parent()


os.register_at_fork(after_in_child=_after_fork)


class _Wait:
    """Pauses that grow with the wait and end at a deadline.  longest_ms: of one pause."""

    def __init__(self, env: Environment, timeout_ms: int, longest_ms: int = _LAST_PAUSE_MS) -> None:
        self._env = env
        self._timeout_ms = timeout_ms
        self._begun_ms = env.monotonic_ms()
        self._longest_ms = longest_ms

    def __str__(self) -> str:
        return f"waited {self._timeout_ms} ms"

    @property
    def is_over(self) -> bool:
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
        return self._begun_ms + self._timeout_ms - self._env.monotonic_ms()


def _open_file_system_lock(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    path = settings.file_system_path
    folder = storage.child(".hoodie") if path is None else open_storage(path)
    return FileSystemLock(folder, env, expire_ms=settings.file_system_expire_ms, wait_ms=settings.wait_ms)


def _open_storage_lock(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    return StorageLock(
        storage,
        env,
        validity_ms=settings.validity_ms,
        renew_ms=settings.renew_ms,
        wait_ms=settings.wait_ms,
        label=None,
    )


_IN_PROCESS_PROVIDER = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
_STORAGE_PROVIDER = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
_factories: dict[str, LockFactory] = {
    "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider": _open_file_system_lock,
    _STORAGE_PROVIDER: _open_storage_lock,
}
