"""Locks that keep the writers of one table apart.

provider            what all of them promise
in_process          threads of one process
lease               what those share that run out
  storage_lease     all processes that reach the table's storage: PyHudi's default
file_system         the file of real Hudi's FileSystemBasedLockProvider
combined            several, taken in order and released in reverse
turn                one that a writer keeps from its read to its commit
  notices           what that writer tells those who wait
documents           the JSON objects in files of locks
registry            which one: options, and a row for each provider
"""

from __future__ import annotations

from pyhudi.storage.locks.file_system_lock import FILE_LOCK_NAME, FileSystemLock, FileSystemLockSettings
from pyhudi.storage.locks.hold_notices import HOLD_NOTICE_PATH, MAX_HOLD_MS
from pyhudi.storage.locks.in_process import InProcessLock
from pyhudi.storage.locks.lock_provider import LockProvider
from pyhudi.storage.locks.lock_registry import (
    LOCK_WAIT,
    CombinedLock,
    LockFactory,
    LockSettings,
    open_lock,
    register_lock_provider,
)
from pyhudi.storage.locks.retained_lock import RetainedLock
from pyhudi.storage.locks.storage_lease import LEASE_PATH, QUEUE_FOLDER, StorageLock, StorageLockSettings

__all__ = [
    "FILE_LOCK_NAME",
    "LEASE_PATH",
    "LOCK_WAIT",
    "MAX_HOLD_MS",
    "QUEUE_FOLDER",
    "HOLD_NOTICE_PATH",
    "CombinedLock",
    "FileSystemLock",
    "FileSystemLockSettings",
    "InProcessLock",
    "LockFactory",
    "LockProvider",
    "LockSettings",
    "StorageLock",
    "StorageLockSettings",
    "RetainedLock",
    "open_lock",
    "register_lock_provider",
]
