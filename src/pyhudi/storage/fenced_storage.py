"""Storage wrapper that verifies lock ownership before every write (fencing).

A process that was suspended past its lease resumes with a stale state. Anything that it stores from that state (a plan,
a delta commit of the metadata table, properties, the removal of an instant) could undo the changes of other writers.
Code that holds the table lock uses this storage: each of its writing calls raises StorageUnavailable when the lease has
expired.

A change is neither sent nor awaited longer than what is left of the lease (`deadlines.within_lease`). `has_changed` records
that there was one: the caller then needs the proof that the lock was held until its release (`LockProvider.release`).

After creating a `.requested` plan file the lock is verified again, because the process may be suspended within the
call. A plan that was published after the lease expired is deleted before another process can execute it.

The spec of this storage opens the wrapped storage. Tasks on workers write files that become visible only with their
instant, and publishing the instant is fenced. Between a check and the end of its call there is no fence, in no store: a
change that takes effect later is found by that proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa

from pyhudi.errors import HudiError
from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec
from pyhudi.storage.deadlines import within_lease
from pyhudi.storage.locks import LockProvider

_PLAN_SUFFIX = ".requested"


class FencedStorage:
    """`inner` while `lock` is held: reads are delegated, writes verify the lock first."""

    __slots__ = ("_changes", "_inner", "_lock")

    def __init__(self, inner: Storage, lock: LockProvider, _changes: _Changes | None = None) -> None:
        self._inner = inner
        self._lock = lock
        self._changes = _Changes() if _changes is None else _changes

    def __repr__(self) -> str:
        return f"FencedStorage({self._inner!r})"

    @property
    def has_changed(self) -> bool:
        """Whether a change was sent, by this storage or one of its children."""
        return self._changes.were_sent

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def has_folders(self) -> bool:
        return self._inner.has_folders

    def spec(self) -> StorageSpec:
        return self._inner.spec()

    def child(self, path: str) -> FencedStorage:
        return FencedStorage(self._inner.child(path), self._lock, self._changes)

    def absolute(self, path: str) -> str:
        return self._inner.absolute(path)

    def read(self, path: str) -> bytes | None:
        return self._inner.read(path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._inner.read_range(path, offset, length)

    def stat(self, path: str) -> FileInfo | None:
        return self._inner.stat(path)

    def list(self, folder: str) -> Listing:
        return self._inner.list(folder)

    def names(self, folder: str) -> tuple[str, ...]:
        return self._inner.names(folder)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        return self._inner.walk(folder)

    def is_duplicate_symlink(self, folder: str, marker: str) -> bool:
        return self._inner.is_duplicate_symlink(folder, marker)

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        return self._inner.read_versioned(path)

    def open_input(self, path: str) -> pa.NativeFile:
        return self._inner.open_input(path)

    def put(self, path: str, data: bytes) -> None:
        with self._fenced():
            self._inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._fenced():
            landed = self._inner.put_if_absent(path, data)
        if landed and path.endswith(_PLAN_SUFFIX):
            try:
                self._lock.check()
            except HudiError:
                self._inner.delete([path])
                raise
        return landed

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        with self._fenced():
            return self._inner.put_if_matches(path, data, tag)

    def delete(self, paths: Iterable[str]) -> None:
        with self._fenced():
            self._inner.delete(paths)

    def delete_folder(self, path: str) -> None:
        with self._fenced():
            self._inner.delete_folder(path)

    def make_folder(self, path: str) -> None:
        with self._fenced():
            self._inner.make_folder(path)

    def open_output(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        # A file in several parts may take longer than the lease: it is renewed concurrently, and no reader sees the file
        # before its instant.
        self._lock.check()
        self._changes.were_sent = True
        return self._inner.open_output(path)

    def set_modified(self, path: str, modified_ms: int) -> bool:
        with self._fenced():
            return self._inner.set_modified(path, modified_ms)

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        with self._fenced():
            return self._inner.sweep_unfinished(folder, before_ms)

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        """Verify the lock, and limit the call of the block to what is left of it."""
        self._lock.check()
        self._changes.were_sent = True
        with within_lease(self._lock.left_ms):
            yield


class _Changes:
    """Whether storages of one locked section sent a change."""

    __slots__ = ("were_sent",)

    def __init__(self) -> None:
        self.were_sent = False
