from __future__ import annotations

import uuid

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.storage import open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.memory import MemoryStorage, forget_memory


def test_memory_storage_of_one_name_is_shared_until_cleared() -> None:
    name = uuid.uuid4().hex
    open_storage(f"memory://{name}/t").put("f", b"1")
    assert open_storage(f"memory://{name}").read("t/f") == b"1"
    assert open_storage(f"memory://{name}x").read("t/f") is None
    forget_memory(name)
    assert open_storage(f"memory://{name}").read("t/f") is None
    forget_memory(name)
    forget_memory(name)


def test_times_come_from_the_environment() -> None:
    env = ReplayEnvironment(1, 5_000)
    storage = MemoryStorage(f"memory://{uuid.uuid4().hex}", env)
    storage.put("f", b"")
    env.sleep_ms(100)
    storage.child("d").put("g", b"")
    assert {info.path: info.modified_ms for info in storage.walk("")} == {"f": 5_000, "d/g": 5_100}


def test_version_tag_distinguishes_equal_contents() -> None:
    storage = MemoryStorage(f"memory://{uuid.uuid4().hex}")
    storage.put("f", b"same")
    found = storage.read_versioned("f")
    assert found is not None
    storage.put("f", b"same")
    assert not storage.put_if_matches("f", b"other", found[1])


def test_invalid_memory_storage_arguments_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        open_storage("memory://x", {"sync": "all"})
    with pytest.raises(InvalidRequest):
        MemoryStorage("/a/path")
