"""Fenced storage rejects every change after its lock is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import pyhudi
from pyhudi.errors import StorageUnavailable
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage
from pyhudi.storage.fenced_storage import FencedStorage
from pyhudi.storage.locks import LEASE_PATH, StorageLock


def write_file(storage: Storage, path: str) -> None:
    with storage.open_output(path) as sink:
        sink.write(b"new")


def replace_it(storage: Storage, path: str) -> None:
    found = storage.read_versioned(path)
    assert found is not None
    storage.put_if_matches(path, b"new", found[1])


CHANGES: dict[str, Callable[[Storage], object]] = {
    "put": lambda storage: storage.put("a/old", b"new"),
    "put_if_absent": lambda storage: storage.put_if_absent("a/new", b"new"),
    "put_if_matches": lambda storage: replace_it(storage, "a/old"),
    "delete": lambda storage: storage.delete(["a/old"]),
    "delete_folder": lambda storage: storage.delete_folder("a"),
    "make_folder": lambda storage: storage.make_folder("b"),
    "open_output": lambda storage: write_file(storage, "a/old"),
    "set_modified": lambda storage: storage.set_modified("a/old", 1),
    "sweep_unfinished": lambda storage: storage.sweep_unfinished("a", 1 << 60),
    "of a child": lambda storage: storage.child("a").put("old", b"new"),
}


def suspend_past_the_lease(inner: Storage, env: ReplayEnvironment) -> None:
    """The holder sleeps; another one takes the lock and gives it back."""
    env.stall_ms(3_600_000)
    with StorageLock(inner, env).held():
        pass


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_lost_lease_changes_nothing(change: Callable[[Storage], object]) -> None:
    inner, env = open_storage("memory://leased-changes"), ReplayEnvironment(1)
    inner.put("a/old", b"old")
    lock = StorageLock(inner, env)
    with lock.held():
        storage = FencedStorage(inner, lock)
        suspend_past_the_lease(inner, env)
        with pytest.raises(StorageUnavailable, match="was lost"):
            change(storage)
    assert [(info.path, inner.read(info.path)) for info in inner.walk("") if info.path != LEASE_PATH] == [("a/old", b"old")]


def test_plan_stored_after_lease_expiry_is_removed() -> None:
    env = ReplayEnvironment(2)
    below = open_storage("memory://leased-plans")
    inner = FaultyStorage(below, listener=lambda *_: suspend_past_the_lease(below, env))
    lock = StorageLock(below, env)
    with lock.held(), pytest.raises(StorageUnavailable, match="was lost"):
        FencedStorage(inner, lock).put_if_absent("t/1.compaction.requested", b"plan")
    assert below.read("t/1.compaction.requested") is None


def test_lock_is_acquired_through_one_function() -> None:
    """Other ways to acquire it would publish without a check."""
    root = Path(pyhudi.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if re.search(r"lock\.held\(", path.read_text("utf-8"))}
    assert found == {"table/table_context.py"}
