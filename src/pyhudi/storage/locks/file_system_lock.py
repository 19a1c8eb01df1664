"""The empty file of real Hudi's FileSystemBasedLockProvider: who creates it holds the lock, who deletes it gives it back.

What this does not do: real Hudi deletes the file of another holder when it closes a lock that it never had.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import HudiError, Internal, StorageUnavailable, Unsupported
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.hdfs.hdfs_options import HDFS_SCHEMES
from pyhudi.storage.locks.lock_provider import LockProvider, LockWait
from pyhudi.storage.uris import parse_uri

FILE_LOCK_NAME = "lock"

_EXPIRY = Option(
    "hoodie.write.lock.filesystem.expire", int, "0", "minutes after which a file system lock is taken for left behind; 0: never"
)

_LOG = logging.getLogger("pyhudi.storage.locks")


@dataclass(frozen=True, slots=True)
class FileSystemLockSettings:
    """path: folder of the lock file, None for the table's `.hoodie`; expire_ms: 0 for never."""

    path: Annotated[
        str | None,
        Option("hoodie.write.lock.filesystem.path", str, None, "folder of the file system lock; unset: the table's .hoodie"),
    ] = None
    expire_ms: Annotated[int, _EXPIRY] = 0

    @classmethod
    def of(cls, options: Options) -> FileSystemLockSettings:
        """From checked options."""
        return read_settings(cls, options, expire_ms=options.integer(_EXPIRY) * 60_000)


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
        if parse_uri(storage.uri).scheme not in ("file", "memory", *HDFS_SCHEMES):
            raise Unsupported(
                f"{storage.uri}: FileSystemBasedLockProvider works on file systems only; use StorageBasedLockProvider there"
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

    def after_fork(self) -> None:
        self._created_ms = None

    @property
    def _where(self) -> str:
        return self._storage.absolute(self._name)

    def _is_left_behind(self, created_ms: int) -> bool:
        return self._expire_ms > 0 and self._env.now_ms() - created_ms > self._expire_ms
