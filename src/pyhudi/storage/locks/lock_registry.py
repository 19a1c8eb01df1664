"""Lock selection: the settings, and one factory for each of Hudi's lock provider class names.

A new provider is a module of its own, a row in `_FACTORIES`, and a field of `LockSettings` if it has options.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pyhudi.errors import HudiError, InvalidRequest, Unsupported
from pyhudi.format.paths import META_FOLDER
from pyhudi.options import lock_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.lock_options import LOCK_WAIT
from pyhudi.records.hashing import path_hash
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.factory import open_storage
from pyhudi.storage.locks.dynamodb import DynamoDbLock, DynamoDbSettings
from pyhudi.storage.locks.file_system_lock import FileSystemLock, FileSystemLockSettings
from pyhudi.storage.locks.hive_metastore import HiveLock, HiveLockSettings
from pyhudi.storage.locks.in_process import InProcessLock
from pyhudi.storage.locks.lock_provider import LockProvider
from pyhudi.storage.locks.storage_lease import StorageLock, StorageLockSettings
from pyhudi.storage.locks.zookeeper import ZookeeperLock, ZookeeperSettings, node_path
from pyhudi.storage.uris import parse_uri

# Several locks as one.


class CombinedLock(LockProvider):
    """Several locks as one: acquired in order within one time limit, and released in reverse.

    If another writer's exclusive write extended the wait for one of them (see `hold_notices`), the time limit of the
    following ones restarts.
    """

    def __init__(self, first: LockProvider, *others: LockProvider, env: Environment, wait_ms: int = 60_000) -> None:
        self._locks = (first, *others)
        if isinstance(first, InProcessLock):
            first.recovery = self._recover_others
        self._env = env
        self._wait_ms = wait_ms

    def acquire(self, timeout_ms: int | None = None) -> None:
        wait_ms = self._wait_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._env.monotonic_ms() + wait_ms
        acquired: list[LockProvider] = []
        pending: LockProvider | None = None
        try:
            for lock in self._locks:
                pending = lock
                left_ms = deadline_ms - self._env.monotonic_ms()
                lock.acquire(left_ms if left_ms > 0 else wait_ms)
                acquired.append(lock)
                if lock is self._locks[0]:
                    self._recover_others()
        except BaseException as error:
            # An interruption may come after the lock was acquired.
            if pending is not None and pending not in acquired and not isinstance(error, HudiError):
                acquired.append(pending)
            for lock in reversed(acquired):
                lock.release_if_held()
            raise

    @property
    def current_hold(self) -> object:
        return self._locks[0].current_hold

    def release(self) -> bool:
        failures: list[Exception] = []
        proven: list[bool] = []
        try:
            for lock in reversed(self._locks):
                try:
                    proven.append(lock.release() is not False)
                except Exception as error:
                    failures.append(error)
        except BaseException:
            # An interruption: the locks that are still held, the first one last.
            self.release_if_held()
            raise
        if failures:
            raise failures[0]
        return all(proven)

    def release_if_held(self) -> None:
        first = self._locks[0]
        if not isinstance(first, InProcessLock) or first.is_held_by_this_thread:
            with contextlib.ExitStack() as stack:
                for lock in self._locks:
                    stack.callback(lock.release)

    def recover(self) -> None:
        for lock in self._locks:
            lock.recover()

    def _recover_others(self) -> None:
        for lock in self._locks[1:]:
            lock.recover()

    def check(self) -> None:
        for lock in self._locks:
            lock.check()

    def left_ms(self) -> int:
        return min(lock.left_ms() for lock in self._locks)

    def renew(self) -> None:
        for lock in self._locks:
            lock.renew()


@dataclass(frozen=True, slots=True)
class LockSettings:
    """The lock of a table's writers.

    Attributes:
        provider: Hudi's class name; None for PyHudi's default.
        table_name: Default name of the lock for some providers.
        wait_ms: Default timeout of `acquire` in milliseconds.
        storage: Options of the storage lease.
        file_system: Options of the file system lock.
        zookeeper: Options of the ZooKeeper lock.
        dynamodb: Options of the DynamoDB lock.
        hive: Options of the Hive metastore lock.
    """

    provider: Annotated[str | None, lock_options.PROVIDER] = None
    table_name: str = ""
    wait_ms: Annotated[int, LOCK_WAIT] = 60_000
    storage: StorageLockSettings = field(default_factory=StorageLockSettings)
    file_system: FileSystemLockSettings = field(default_factory=FileSystemLockSettings)
    zookeeper: ZookeeperSettings = field(default_factory=ZookeeperSettings)
    dynamodb: DynamoDbSettings = field(default_factory=DynamoDbSettings)
    hive: HiveLockSettings = field(default_factory=HiveLockSettings)

    @classmethod
    def of(cls, options: Options, table_name: str = "") -> LockSettings:
        """Create the settings from validated options."""
        return read_settings(cls, options, table_name=table_name)

    @property
    def uses_table_name(self) -> bool:
        """Whether the lock is named after the table, because no key is configured."""
        keys = {_ZOOKEEPER_PROVIDER: self.zookeeper.lock_key, _DYNAMODB_PROVIDER: self.dynamodb.partition_key}
        return self.provider in keys and not keys[self.provider]


LockFactory = Callable[[LockSettings, Storage, Environment], LockProvider]


def open_lock(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    """Create the lock of the table whose root is `storage`.  Accesses no file and no server.

    It excludes other threads of this process first, then other processes by the provider or by a lease in the table's storage.

    Raises:
        Unsupported: The provider is not registered.
        InvalidRequest: A required option or package is missing.
    """
    threads = InProcessLock(parse_uri(storage.uri).key, env, wait_ms=settings.wait_ms)
    threads.table = storage
    provider = _STORAGE_PROVIDER if settings.provider is None else settings.provider
    _check_servers(settings, provider)
    if provider == _IN_PROCESS_PROVIDER:
        return threads
    factory = _FACTORIES.get(provider)
    if factory is None:
        available = ", ".join(sorted((_IN_PROCESS_PROVIDER, *_FACTORIES)))
        raise Unsupported(f"lock provider {provider} is not available. Available: {available}")
    among_processes = factory(settings, storage, env)
    among_processes.table = storage
    return CombinedLock(threads, among_processes, env=env, wait_ms=settings.wait_ms)


def unconfigured_lock_options(options: Options, stored: Mapping[str, str]) -> dict[str, str]:
    """Return the stored options that decide where writers lock, and that the options do not set.

    An explicit provider decides which lock is used; stored options of other providers are then irrelevant.
    """
    missing = {
        option.key: stored[option.key]
        for option in lock_options.LOCK_LOCATION
        if option.key in stored and options.explicit(option) is None
    }
    provider = options.explicit(lock_options.PROVIDER)
    if provider is None:
        return {} if set(missing.items()) <= {(lock_options.PROVIDER.key, _STORAGE_PROVIDER)} else missing
    return {key: value for key, value in missing.items() if key.split(".")[3] in provider.lower()}


def register_lock_provider(class_name: str, factory: LockFactory) -> None:
    """Register `factory` for a provider class name.  The factory accesses no file and returns an unheld lock."""
    _FACTORIES[class_name] = factory


def _check_servers(settings: LockSettings, provider: str) -> None:
    """Raise InvalidRequest if an option selects a server that the provider does not use: other writers may lock there."""
    named = (
        (lock_options.ZOOKEEPER_URL.key, settings.zookeeper.url, "Zookeeper"),
        (lock_options.DYNAMODB_TABLE.key, settings.dynamodb.table, "DynamoDB"),
        (lock_options.HIVEMETASTORE_URIS.key, ",".join(settings.hive.uris), "HiveMetastore"),
    )
    for option, value, word in named:
        if value and provider.startswith(_HUDI) and f".{word}" not in provider:
            fitting = " or ".join(name for name in _FACTORIES if f".{word}" in name)
            raise InvalidRequest(
                f"option {option}={value} selects where writers lock, but the lock provider is {provider}; "
                f"set {lock_options.PROVIDER} to {fitting}, or leave the option out"
            )


def _implicit_name(storage: Storage) -> str:
    """Hudi's name of a lock that is derived from the table's base path."""
    # Hudi hashes the path as its writers spell it, except for s3a; for local files this is the bare path.
    location = parse_uri(storage.uri)
    return path_hash(location.file_path if location.scheme == "file" else location.uri.replace("s3a://", "s3://", 1))


def _file_system(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    path = settings.file_system.path
    folder = storage.child(META_FOLDER) if path is None else _lock_folder(storage, path)
    return FileSystemLock(folder, env, expire_ms=settings.file_system.expire_ms, wait_ms=settings.wait_ms)


def _lock_folder(storage: Storage, path: str) -> Storage:
    """The folder of an option; on the table's own server it is opened with the table's storage options."""
    table_location, lock_location = parse_uri(storage.uri), parse_uri(path)
    same_server = (table_location.scheme, table_location.authority) == (lock_location.scheme, lock_location.authority)
    return open_storage(path, dict(storage.spec().options) if same_server else None)


def _in_storage(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    lease = settings.storage
    return StorageLock(storage, env, validity_ms=lease.validity_ms, renew_ms=lease.renew_ms, wait_ms=settings.wait_ms, label=None)


def _zookeeper(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    return ZookeeperLock(env, settings.zookeeper, settings.zookeeper.path(settings.table_name), wait_ms=settings.wait_ms)


def _zookeeper_implicit(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    path = node_path("tmp", _implicit_name(storage), "lock_key")
    return ZookeeperLock(env, settings.zookeeper, path, wait_ms=settings.wait_ms)


def _dynamodb(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    key = settings.dynamodb.partition_key or settings.table_name
    return DynamoDbLock(env, settings.dynamodb, key, wait_ms=settings.wait_ms)


def _dynamodb_implicit(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    return DynamoDbLock(env, settings.dynamodb, _implicit_name(storage), wait_ms=settings.wait_ms)


def _hive(settings: LockSettings, storage: Storage, env: Environment) -> LockProvider:
    return HiveLock(env, settings.hive, wait_ms=settings.wait_ms)


_HUDI = "org.apache.hudi."
_IN_PROCESS_PROVIDER = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
_STORAGE_PROVIDER = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
_ZOOKEEPER_PROVIDER = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
_DYNAMODB_PROVIDER = "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"
_FACTORIES: dict[str, LockFactory] = {
    "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider": _file_system,
    _STORAGE_PROVIDER: _in_storage,
    _ZOOKEEPER_PROVIDER: _zookeeper,
    "org.apache.hudi.client.transaction.lock.ZookeeperBasedImplicitBasePathLockProvider": _zookeeper_implicit,
    _DYNAMODB_PROVIDER: _dynamodb,
    "org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider": _dynamodb_implicit,
    "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider": _hive,
}
