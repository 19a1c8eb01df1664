"""Storage wrapper that verifies lock ownership before every write (fencing).

A process that was suspended past its lease resumes with a stale state. Anything that it stores from that state (a plan,
a delta commit of the metadata table, properties, the removal of an instant) could undo the changes of other writers.
Code that holds the table lock uses this storage: each of its writing calls raises StorageUnavailable when the lease has
expired.

After creating a `.requested` plan file the lock is verified again, because the process may be suspended within the
call. A plan that was published after the lease expired is deleted before another process can execute it.

The spec of this storage opens the wrapped storage. Tasks on workers write files that become visible only with their
instant, and publishing the instant is fenced. Between a check and the end of its call there is no fence, in no store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

import pyarrow as pa

from pyhudi.errors import HudiError
from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec
from pyhudi.storage.locks import LockProvider

_PLAN_SUFFIX = ".requested"


class FencedStorage:
    """`inner` while `lock` is held: reads are delegated, writes verify the lock first."""

    __slots__ = ("_inner", "_lock")

    def __init__(self, inner: Storage, lock: LockProvider) -> None:
        self._inner = inner
        self._lock = lock

    def __repr__(self) -> str:
        return f"FencedStorage({self._inner!r})"

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def has_folders(self) -> bool:
        return self._inner.has_folders

    def spec(self) -> StorageSpec:
        return self._inner.spec()

    def child(self, path: str) -> FencedStorage:
        return FencedStorage(self._inner.child(path), self._lock)

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
        self._lock.check()
        self._inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._lock.check()
        landed = self._inner.put_if_absent(path, data)
        if landed and path.endswith(_PLAN_SUFFIX):
            try:
                self._lock.check()
            except HudiError:
                self._inner.delete([path])
                raise
        return landed

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        self._lock.check()
        return self._inner.put_if_matches(path, data, tag)

    def delete(self, paths: Iterable[str]) -> None:
        self._lock.check()
        self._inner.delete(paths)

    def delete_folder(self, path: str) -> None:
        self._lock.check()
        self._inner.delete_folder(path)

    def make_folder(self, path: str) -> None:
        self._lock.check()
        self._inner.make_folder(path)

    def open_output(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        self._lock.check()
        return self._inner.open_output(path)

    def set_modified(self, path: str, modified_ms: int) -> bool:
        self._lock.check()
        return self._inner.set_modified(path, modified_ms)

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        self._lock.check()
        return self._inner.sweep_unfinished(folder, before_ms)
