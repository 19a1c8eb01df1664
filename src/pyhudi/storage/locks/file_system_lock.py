"""Lock file of Hudi's FileSystemBasedLockProvider: creating the empty file acquires the lock, deleting it releases the lock.

Hudi also deletes the file of another holder when it closes a lock that it did not acquire; PyHudi does not.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import HudiError, Internal, StorageUnavailable, Unsupported
from pyhudi.options import lock_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.hdfs.hdfs_options import HDFS_SCHEMES
from pyhudi.storage.locks.lock_provider import LockProvider, LockWait
from pyhudi.storage.uris import parse_uri

FILE_LOCK_NAME = "lock"


_LOG = logging.getLogger("pyhudi.storage.locks")


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


class FileSystemLock(LockProvider):
    """The empty lock file of Hudi's FileSystemBasedLockProvider, for tables shared with Hudi writers.

    storage: of the folder that contains the file, `<table>/.hoodie` unless configured otherwise.
    expire_ms: age by modification time at which a lock counts as abandoned and is deleted; 0 for never.

    Hudi's protocol has no owner, so it has two gaps that no reader of the file can close. Between seeing an expired
    file and deleting it, another writer may have acquired the lock; and Hudi deletes the file at release without
    checking it. `check` compares the file's modification time with that of its creation by this process, and detects a
    file of another writer. A holder cannot renew it: set the expiry well above the longest commit.
    """

    def __init__(
        self, storage: Storage, env: Environment, *, expire_ms: int = 0, wait_ms: int = 60_000, name: str = FILE_LOCK_NAME
    ) -> None:
        if parse_uri(storage.uri).scheme not in ("file", "memory", *HDFS_SCHEMES):
            raise Unsupported(
                f"{storage.uri}: FileSystemBasedLockProvider supports file systems only; use StorageBasedLockProvider"
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
        wait = LockWait(self._env, self._wait_ms if timeout_ms is None else timeout_ms, table=self.table)
        while not self._storage.put_if_absent(self._name, b""):
            current = self._storage.stat(self._name)
            if current is not None and self._is_left_behind(current.modified_ms):
                self._storage.delete([self._name])
            elif not wait.pause():
                age = "" if current is None else f", created at {current.modified_ms} (epoch ms)"
                raise StorageUnavailable(
                    f"{self._where}: another writer holds the lock file{age} ({wait}); delete it if that writer has ended"
                )
        created = self._storage.stat(self._name)
        if created is None:
            raise StorageUnavailable(f"{self._where}: another writer deleted the lock file. Try again")
        self._created_ms = created.modified_ms

    def release(self) -> None:
        created_ms, self._created_ms = self._created_ms, None
        if created_ms is None:
            return
        try:
            current = self._storage.stat(self._name)
            if current is not None and current.modified_ms == created_ms:
                self._storage.delete([self._name])
                return
            _LOG.warning("%s: the lock file belongs to another writer, so it is not deleted", self._where)
        except HudiError as error:
            _LOG.warning("%s: the lock file could not be deleted: %s", self._where, error)

    def check(self) -> None:
        if self._created_ms is None:
            raise Internal(f"{self._where}: the lock is not held")
        current = self._storage.stat(self._name)
        if current is None or current.modified_ms != self._created_ms:
            raise StorageUnavailable(f"{self._where}: the table's lock was lost: its file is missing or another writer's")
        if self._is_left_behind(self._created_ms):
            raise StorageUnavailable(f"{self._where}: the table's lock was held longer than it may be, {self._expire_ms} ms")

    def renew(self) -> None:
        self.check()

    def after_fork(self) -> None:
        self._created_ms = None

    @property
    def _where(self) -> str:
        return self._storage.absolute(self._name)

    def _is_left_behind(self, created_ms: int) -> bool:
        return self._expire_ms > 0 and self._env.now_ms() - created_ms > self._expire_ms
