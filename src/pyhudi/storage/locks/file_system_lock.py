"""Lock file of Hudi's FileSystemBasedLockProvider: creating the file acquires the lock, deleting it releases the lock.

Hudi also deletes the file of another holder when it closes a lock that it did not acquire; PyHudi does not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import Unsupported
from pyhudi.options import lock_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.hdfs.hdfs_options import HDFS_SCHEMES
from pyhudi.storage.locks.lease import LeaseLock
from pyhudi.storage.process_identity import Process
from pyhudi.storage.uris import parse_uri

FILE_LOCK_NAME = "lock"

_NO_EXPIRY_MS = 60_000


@dataclass(frozen=True, slots=True)
class FileSystemLockSettings:
    """Options of the file system lock.

    Attributes:
        path: Folder of the lock file; None for the table's `.hoodie`.
        expire_ms: Age in milliseconds after which a lock is considered abandoned; 0 for never.
    """

    path: Annotated[str | None, lock_options.FILESYSTEM_PATH] = None
    expire_ms: Annotated[int, lock_options.FILESYSTEM_EXPIRE] = 0

    @classmethod
    def of(cls, options: Options) -> FileSystemLockSettings:
        """Create the settings from validated options."""
        return read_settings(cls, options, expire_ms=options.integer(lock_options.FILESYSTEM_EXPIRE) * 60_000)


class FileSystemLock(LeaseLock):
    """The lock file of Hudi's FileSystemBasedLockProvider, for tables shared with Hudi writers.

    storage: of the folder that contains the file, `<table>/.hoodie` unless configured otherwise.
    expire_ms: age by modification time at which a lock counts as abandoned and is deleted; 0 for never.

    Hudi's protocol has no owner, so it has two gaps that no reader of the file can close. Between seeing an expired
    file and deleting it, another writer may have acquired the lock; and Hudi deletes the file at release without
    checking it. PyHudi writes an id of the acquisition into the file, which Hudi only shows in messages: by it `check`
    detects a file of another writer, and a release deletes no other one. A holder cannot renew it: set the expiry well
    above the longest commit.
    """

    def __init__(
        self, storage: Storage, env: Environment, *, expire_ms: int = 0, wait_ms: int = 60_000, name: str = FILE_LOCK_NAME
    ) -> None:
        if parse_uri(storage.uri).scheme not in ("file", "memory", *HDFS_SCHEMES):
            raise Unsupported(
                f"{storage.uri}: FileSystemBasedLockProvider supports file systems only; use StorageBasedLockProvider"
            )
        # The file is read at each check.
        super().__init__(env, validity_ms=expire_ms or _NO_EXPIRY_MS, wait_ms=wait_ms, trusted_ms=-1)
        self._storage = storage
        self._expire_ms = expire_ms
        self._name = name
        # Content of the file, of the current acquisition or hold, and when its creation began.
        self._content = b""
        self._begun_ms = 0

    @property
    def _where(self) -> str:
        return self._storage.absolute(self._name)

    def _begin_to_wait(self) -> None:
        owner = f"{Process.current().text}:{self._env.uuid4()}"
        self._content = json.dumps({"owner": owner}, separators=(",", ":")).encode()

    def _left_ms(self) -> int:
        left_ms = super()._left_ms()
        # The file's age counts, which no renewal changes.
        return min(left_ms, self._begun_ms + self._expire_ms - self._env.monotonic_ms()) if self._expire_ms > 0 else left_ms

    def _try_acquire(self) -> str | None:
        if self._has_lost_response and self._storage.read(self._name) == self._content:
            return None
        self._begun_ms = self._env.monotonic_ms()
        while not self._storage.put_if_absent(self._name, self._content):
            current = self._storage.stat(self._name)
            if current is None or not self._is_left_behind(current.modified_ms):
                age = "" if current is None else f", created at {current.modified_ms} (epoch ms)"
                return f"another writer holds the lock file{age}; delete it if that writer has ended"
            self._storage.delete([self._name])
        return None

    def _extend(self) -> str | None:
        if self._storage.read(self._name) != self._content:
            return "its file is missing or another writer's"
        if self._expire_ms > 0:
            current = self._storage.stat(self._name)
            if current is None or self._is_left_behind(current.modified_ms):
                return f"it was held longer than it may be, {self._expire_ms} ms"
        return None

    def _release_lease(self) -> str | None:
        if self._content == b"" or self._storage.read(self._name) != self._content:
            return "the lock file is missing or belongs to another writer, so it is not deleted"
        self._storage.delete([self._name])
        return None

    def _end_wait(self, *, acquired: bool, outcome_unknown: bool) -> None:
        if outcome_unknown and not acquired:
            self._release_quietly()

    def _clear_lease(self) -> None:
        return

    def _is_left_behind(self, created_ms: int) -> bool:
        return self._expire_ms > 0 and self._env.now_ms() - created_ms > self._expire_ms
