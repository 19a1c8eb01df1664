"""Lock providers, which exclude concurrent writers of one table.

lock_provider       the interface of every lock
in_process          threads of one process
lease               common base of locks that expire
  storage_lease     all processes that access the table's storage: PyHudi's default
  lock_audit        the record of its acquisitions, and its switch
file_system_lock    the lock file of Hudi's FileSystemBasedLockProvider
zookeeper, dynamodb, hive_metastore     locks on servers
fifo_queue          waiting writers in order of arrival
retained_lock       a lock that a writer retains from its read to its commit
  hold_notices      the notice about it for waiting writers
lock_registry       options, provider selection, combined locks
refused_lock        the lock of a table whose stored lock the caller did not configure
"""

from __future__ import annotations

from pyhudi.options.lock_options import LOCK_WAIT
from pyhudi.storage.locks.file_system_lock import FILE_LOCK_NAME, FileSystemLock, FileSystemLockSettings
from pyhudi.storage.locks.hold_notices import HOLD_NOTICE_PATH, MAX_HOLD_MS
from pyhudi.storage.locks.in_process import InProcessLock
from pyhudi.storage.locks.lock_audit import (
    AUDIT_FOLDER,
    AUDIT_SUFFIX,
    AUDIT_SWITCH_PATH,
    AuditedHold,
    is_audit_enabled,
    set_audit_enabled,
)
from pyhudi.storage.locks.lock_provider import LockHold, LockLost, LockProvider
from pyhudi.storage.locks.lock_registry import (
    CombinedLock,
    LockFactory,
    LockSettings,
    open_lock,
    register_lock_provider,
    unconfigured_lock_options,
)
from pyhudi.storage.locks.refused_lock import RefusedLock
from pyhudi.storage.locks.retained_lock import RetainedLock
from pyhudi.storage.locks.storage_lease import LEASE_PATH, QUEUE_FOLDER, StorageLock, StorageLockSettings

__all__ = [
    "AUDIT_FOLDER",
    "AUDIT_SUFFIX",
    "AUDIT_SWITCH_PATH",
    "AuditedHold",
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
    "LockHold",
    "LockLost",
    "LockProvider",
    "LockSettings",
    "StorageLock",
    "StorageLockSettings",
    "RefusedLock",
    "RetainedLock",
    "is_audit_enabled",
    "open_lock",
    "register_lock_provider",
    "set_audit_enabled",
    "unconfigured_lock_options",
]
