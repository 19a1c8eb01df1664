"""Each lock passes the lock suite on each storage that supports it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyhudi.storage import Storage, open_storage
from pyhudi.storage.locks import CombinedLock, FileSystemLock, InProcessLock, LockSettings, StorageLock, open_lock
from pyhudi.storage.memory import forget_memory
from tests.conformance.lock_suite import LockSuite, MakeLock
from tests.conformance.moto_server import s3_options


@pytest.fixture
def memory() -> Iterator[Storage]:
    name = uuid.uuid4().hex
    yield open_storage(f"memory://{name}")
    forget_memory(name)


class TestInProcessLock(LockSuite):
    @pytest.fixture
    def make_lock(self) -> MakeLock:
        key = uuid.uuid4().hex
        return lambda env: InProcessLock(key, env)


class TestStorageLockInMemory(LockSuite):
    @pytest.fixture
    def make_lock(self, memory: Storage) -> MakeLock:
        return lambda env: StorageLock(memory, env, label=None)


class TestStorageLockOnDisk(LockSuite):
    @pytest.fixture
    def make_lock(self, tmp_path: Path) -> MakeLock:
        storage = open_storage(tmp_path)
        return lambda env: StorageLock(storage, env, label=None)


class TestStorageLockInS3(LockSuite):
    interrupted_every = 7

    @pytest.fixture
    def make_lock(self, s3_endpoint: str) -> MakeLock:
        storage = open_storage(f"s3://tables/{uuid.uuid4().hex}", s3_options(s3_endpoint))
        return lambda env: StorageLock(storage, env, label=None)


class TestFileSystemLock(LockSuite):
    is_fair = False

    @pytest.fixture
    def make_lock(self, tmp_path: Path) -> MakeLock:
        storage = open_storage(tmp_path / ".hoodie")
        return lambda env: FileSystemLock(storage, env)


class TestCombinedLock(LockSuite):
    @pytest.fixture
    def make_lock(self, memory: Storage) -> MakeLock:
        key = uuid.uuid4().hex
        return lambda env: CombinedLock(InProcessLock(key, env), StorageLock(memory, env, label=None), env=env)


class TestDefaultLock(LockSuite):
    @pytest.fixture
    def make_lock(self, tmp_path: Path) -> MakeLock:
        storage = open_storage(tmp_path)
        return lambda env: open_lock(LockSettings(), storage, env)
