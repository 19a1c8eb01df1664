"""Each storage passes the storage suite. tests/component/storage/object_store/test_object_storage.py covers GCS and
Azure.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage
from pyhudi.storage.fenced_storage import FencedStorage
from pyhudi.storage.locks import StorageLock
from pyhudi.storage.memory import forget_memory
from tests.conformance.moto_server import s3_options
from tests.conformance.storage_suite import StorageSuite


class TestLocalStorage(StorageSuite):
    @pytest.fixture(params=["documents", "all", "none"])
    def storage(self, tmp_path: Path, request: pytest.FixtureRequest) -> Storage:
        return open_storage(tmp_path / "a table %20 ü", {"sync": request.param})


class TestMemoryStorage(StorageSuite):
    @pytest.fixture
    def storage(self) -> Iterator[Storage]:
        name = uuid.uuid4().hex
        yield open_storage(f"memory://{name}/t")
        forget_memory(name)


class TestS3Storage(StorageSuite):
    @pytest.fixture
    def storage(self, s3_endpoint: str) -> Storage:
        return open_storage(f"s3a://tables/{uuid.uuid4().hex}/a table %20 ü", s3_options(s3_endpoint))


class TestFaultyStorageWithoutFaults(StorageSuite):
    @pytest.fixture
    def storage(self) -> Iterator[Storage]:
        name = uuid.uuid4().hex
        yield FaultyStorage(open_storage(f"memory://{name}/t"))
        forget_memory(name)


class TestFencedStorageWithItsLease(StorageSuite):
    @pytest.fixture
    def storage(self) -> Iterator[Storage]:
        name = uuid.uuid4().hex
        inner = open_storage(f"memory://{name}/t")
        lock = StorageLock(open_storage(f"memory://{name}/locks"), ReplayEnvironment(1))
        with lock.held():
            yield FencedStorage(inner, lock)
        forget_memory(name)
