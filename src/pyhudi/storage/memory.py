"""In-memory storage of this process, `memory://name/path`: a test double, and tables without a disk.

A name identifies one store per process, created when it is first opened and retained until `forget_memory(name)`. It
behaves like an object store: folders are prefixes of names, empty folders do not exist, and whole objects are replaced.
`modified_ms` comes from the environment that the store was created with, so tests can advance time.

Nothing leaves the process: a spec that is opened in another process refers to an empty store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.paths import join_path
from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec, check_file_path, check_path, check_range
from pyhudi.storage.environment import Environment, SystemEnvironment
from pyhudi.storage.uris import Location, UriMixin, parse_uri


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    modified_ms: int
    version: int


@dataclass(slots=True)
class _Contents:
    """One named store.  The mutex guards the other fields."""

    environment: Environment
    objects: dict[str, _Object] = field(default_factory=dict)
    version: int = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)


_stores: dict[str, _Contents] = {}
_stores_mutex = threading.Lock()


class MemoryStorage(UriMixin):
    """A prefix of a named in-memory store.

    uri: `memory://name` or `memory://name/path`. environment: source of modification times, used only by the call that
    creates the store.
    """

    __slots__ = ("_contents",)

    def __init__(self, uri: str = "memory://", environment: Environment | None = None) -> None:
        super().__init__(parse_uri(uri))
        if self._location.scheme != "memory":
            raise InvalidRequest(f"{uri} is not of the form memory://name/path")
        with _stores_mutex:
            self._contents = _stores.setdefault(
                self._location.authority, _Contents(environment if environment is not None else SystemEnvironment())
            )

    @property
    def has_folders(self) -> bool:
        return False

    def spec(self) -> StorageSpec:
        return StorageSpec(self.uri)

    def child(self, path: str) -> MemoryStorage:
        return MemoryStorage(self._location.child(check_path(path)).uri)

    def read(self, path: str) -> bytes | None:
        stored = self._find(path)
        return None if stored is None else stored.data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        check_range(path, offset, length)
        return self._get(path).data[offset : offset + length]

    def stat(self, path: str) -> FileInfo | None:
        stored = self._find(path)
        return None if stored is None else FileInfo(path, len(stored.data), stored.modified_ms)

    def list(self, folder: str) -> Listing:
        files: list[FileInfo] = []
        folders: set[str] = set()
        root = f"{self._location.path}/" if self._location.path else ""
        prefix = f"{root}{check_path(folder)}/" if folder else root
        for key, stored in self._below(prefix):
            end = key.find("/", len(prefix))
            if end >= 0:
                folders.add(key[len(root) : end])
            else:
                files.append(FileInfo(key[len(root) :], len(stored.data), stored.modified_ms))
        return Listing(tuple(sorted(files, key=lambda info: info.path)), tuple(sorted(folders)))

    def names(self, folder: str) -> tuple[str, ...]:
        return tuple(info.name for info in self.list(folder).files)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        root = f"{self._location.path}/" if self._location.path else ""
        prefix = f"{root}{check_path(folder)}/" if folder else root
        for key, stored in self._below(prefix):
            yield FileInfo(key[len(root) :], len(stored.data), stored.modified_ms)

    def is_duplicate_symlink(self, folder: str, marker: str) -> bool:
        check_path(folder)
        return False

    def put(self, path: str, data: bytes) -> None:
        key = self._key(path)
        with self._contents.mutex:
            self._store(key, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        key = self._key(path)
        with self._contents.mutex:
            if key in self._contents.objects:
                return False
            self._store(key, data)
            return True

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        stored = self._find(path)
        return None if stored is None else (stored.data, str(stored.version))

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        key = self._key(path)
        with self._contents.mutex:
            current = self._contents.objects.get(key)
            if current is None or str(current.version) != tag:
                return None
            self._store(key, data)
            return str(self._contents.version)

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        with self._contents.mutex:
            for key in keys:
                self._contents.objects.pop(key, None)

    def delete_folder(self, path: str) -> None:
        self.delete([info.path for info in self.walk(path)])

    def make_folder(self, path: str) -> None:
        check_path(path)

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._get(path).data)

    def open_output(self, path: str) -> _MemoryOutput:
        self._key(path)
        return _MemoryOutput(self, path)

    def set_modified(self, path: str, modified_ms: int) -> bool:
        stored, key = self._get(path), self._key(path)
        with self._contents.mutex:
            self._contents.objects[key] = _Object(stored.data, modified_ms, stored.version)
        return True

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        check_path(folder)
        return 0

    def _key(self, path: str) -> str:
        return join_path(self._location.path, check_file_path(path))

    def _below(self, prefix: str) -> tuple[tuple[str, _Object], ...]:
        with self._contents.mutex:
            return tuple((key, stored) for key, stored in self._contents.objects.items() if key.startswith(prefix))

    def _find(self, path: str) -> _Object | None:
        key = self._key(path)
        with self._contents.mutex:
            return self._contents.objects.get(key)

    def _get(self, path: str) -> _Object:
        stored = self._find(path)
        if stored is None:
            raise TableState(f"{self.absolute(path)}: no such file")
        return stored

    def _store(self, key: str, data: bytes) -> None:
        contents = self._contents
        contents.version += 1
        contents.objects[key] = _Object(bytes(data), contents.environment.now_ms(), contents.version)


class _MemoryOutput:
    """The context manager of `open_output`: a growing buffer, then a put."""

    def __init__(self, storage: MemoryStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._sink = pa.BufferOutputStream()

    def __enter__(self) -> pa.NativeFile:
        return self._sink

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        data = self._sink.getvalue()
        if kind is None:
            self._storage.put(self._path, data.to_pybytes())


def open_memory(location: Location, options: dict[str, str]) -> Storage:
    """The storage of a `memory://` URI.  Raises InvalidRequest for any option, because there are none."""
    if options:
        raise InvalidRequest(f"{location.uri} takes no storage options, found {min(options)!r}: remove it")
    return MemoryStorage(location.uri)


def forget_memory(name: str) -> None:
    """Drop the named store with its content.  Open storages retain theirs, separate from those opened later."""
    with _stores_mutex:
        _stores.pop(name, None)
