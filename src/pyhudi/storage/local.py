"""Storage on the local file system (or one mounted there), as real Hudi leaves and expects it.

Writing a file:
1. The bytes go to `.pyhudi-<process>-<uuid>.tmp` in the same folder.  Real Hudi takes such a name for neither a data file nor a
   timeline file, and listings here never show it.
2. A checksum sidecar `.<name>.crc` that a Hadoop writer left beside an older file of that name is deleted.  A missing sidecar
   means no check, a stale one makes real Hudi fail, so it goes before the new content comes.
3. `put` and `open_output` rename the temporary file over the name.  `put_if_absent` links it to the name, which fails when
   the name exists, then drops the temporary name.  An empty document needs none of this: exclusive creation is whole at once.
4. Documents are synced to disk, file and folder; see `Sync` for data files.

`put_if_matches` reads, compares and renames while it holds an advisory lock (flock) on the folder.  That makes it atomic among
calls of `put_if_matches`, and against `put_if_absent`, which never replaces anything; a plain `put` or `delete` of the same
path at the same moment is not seen.  The system releases the lock when its process dies.

Where links are not supported (some network and FUSE mounts), `put_if_absent` creates the name exclusively and writes into it:
still at most one winner, but a reader may see a part of the document for a moment, and after a crash for good.

What this does not do: it writes no sidecars, checks none, and removes no folder that became empty.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat as stat_module
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import PurePath
from types import TracebackType

import pyarrow as pa

from pyhudi.errors import HudiError, InvalidRequest, StorageFull, StorageUnavailable, TableState, Unsupported
from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec, check_file_path, check_path, check_range
from pyhudi.storage.located import Located
from pyhudi.storage.temporaries import is_abandoned, is_temporary, removed_meanwhile, temporary_name
from pyhudi.storage.uris import Location

if sys.platform != "win32":
    import fcntl

# What open() says when the path is not a file; as in an object store, a folder is none.
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

# What link() says where the file system has no links.
_NO_LINKS = frozenset({errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_CALLER_MUST_CHANGE = {
    errno.EACCES: "the owner or the mode of the path forbids it; grant this user access or choose another path",
    errno.EPERM: "the owner or the mode of the path forbids it; grant this user access or choose another path",
    errno.EROFS: "the file system is mounted read-only; remount it or choose another path",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.EISDIR: "the path is a folder; choose another path",
    errno.EEXIST: "a part of the path is a file; choose another path",
    errno.ENAMETOOLONG: "the path is too long for the file system; shorten the table's or the partition's path",
    errno.EINVAL: "the file system does not take the name",
    errno.EILSEQ: "the file system does not take the name",
    errno.ELOOP: "the path runs through a loop of symbolic links",
}


class Sync(StrEnum):
    """What is forced to the disk before a call returns.  The storage option `sync`; tests and scratch tables use NONE.

    DOCUMENTS: what `put`, `put_if_absent` and `put_if_matches` write, which is all of a timeline.  After a power failure the
    timeline is whole, data files of the last seconds may not be, as with real Hudi.
    """

    DOCUMENTS = "documents"
    ALL = "all"
    NONE = "none"


class LocalStorage(Located):
    """A folder of the local file system; it need not exist before something is written.

    location: of scheme "file".
    """

    __slots__ = ("_root", "_sync")

    def __init__(self, location: Location, sync: Sync = Sync.DOCUMENTS) -> None:
        if location.scheme != "file":
            raise InvalidRequest(f"{location.uri} is not on the local file system")
        super().__init__(location)
        self._root = location.file_path
        self._sync = sync

    @property
    def has_folders(self) -> bool:
        return True

    def spec(self) -> StorageSpec:
        options = () if self._sync is Sync.DOCUMENTS else (("sync", self._sync.value),)
        return StorageSpec(self.uri, options)

    def child(self, path: str) -> LocalStorage:
        return LocalStorage(self._location.child(check_path(path)), self._sync)

    def read(self, path: str) -> bytes | None:
        with _translated("read", self._full(check_file_path(path))) as full:
            try:
                with open(full, "rb") as file:
                    return file.read()
            except _NO_FILE:
                return None

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        check_range(path, offset, length)
        with _reading(self._full(check_file_path(path))) as full, open(full, "rb") as file:
            # What a request allocates must depend on the file, not on a length that a broken file holds.
            size_bytes = os.fstat(file.fileno()).st_size
            file.seek(min(offset, size_bytes))
            return file.read(max(0, min(length, size_bytes - offset)))

    def stat(self, path: str) -> FileInfo | None:
        with _translated("look at", self._full(check_file_path(path))) as full:
            try:
                status = os.stat(full)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return _file_info(path, status) if stat_module.S_ISREG(status.st_mode) else None

    def list(self, folder: str) -> Listing:
        files: list[FileInfo] = []
        folders: list[str] = []
        prefix = f"{folder}/" if folder else ""
        with _translated("list", self._full(check_path(folder))) as full:
            try:
                entries = os.scandir(full)
            except (FileNotFoundError, NotADirectoryError):
                return Listing()
            with entries:
                for entry in entries:
                    if not _is_text(entry.name):
                        # No part of a table is named so, and no other store could hold it.
                        continue
                    if entry.is_dir():
                        folders.append(prefix + entry.name)
                    elif not _is_hidden(entry.name):
                        # A file that was deleted since the folder was read is simply not listed.
                        with contextlib.suppress(FileNotFoundError):
                            files.append(_file_info(prefix + entry.name, entry.stat()))
        return Listing(tuple(sorted(files, key=lambda info: info.path)), tuple(sorted(folders)))

    def walk(self, folder: str) -> Iterator[FileInfo]:
        pending = [check_path(folder)]
        while pending:
            listing = self.list(pending.pop())
            yield from listing.files
            pending.extend(listing.folders)

    def is_second_way(self, folder: str, mark: str) -> bool:
        full = self._full(check_path(folder))
        if not os.path.islink(full):
            return False
        root, real = PurePath(os.path.realpath(self._full(""))), PurePath(os.path.realpath(full))
        if real.is_relative_to(root) or root.is_relative_to(real):
            return True
        return any(os.path.lexists(above / mark) for above in (real, *real.parents))

    def put(self, path: str, data: bytes) -> None:
        with _translated("write", self._full(check_file_path(path))) as full:
            self._put(full, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with _translated("write", self._full(check_file_path(path))) as full:
            if os.path.lexists(full):
                return False
            _unlink_sidecar(full)
            if not data:
                return self._create_exclusively(full, data)
            temporary = self._write_temporary(os.path.dirname(full), data)
            try:
                os.link(temporary, full)
            except OSError as error:
                try:
                    link_count = os.stat(temporary).st_nlink
                except FileNotFoundError:
                    raise removed_meanwhile(full) from error
                # A network file system may have made the link and lost the answer: the link count knows.
                if link_count == 2:
                    pass
                elif error.errno == errno.EEXIST:
                    return False
                elif error.errno in _NO_LINKS:
                    return self._create_exclusively(full, data)
                else:
                    raise
            finally:
                _unlink(temporary)
            self._sync_folder(os.path.dirname(full))
            return True

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        data = self.read(path)
        return None if data is None else (data, _tag(data))

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        full = self._full(check_file_path(path))
        with _translated("write", full), _locked_folder(os.path.dirname(full)) as is_there:
            current = self.read(path) if is_there else None
            if current is None or _tag(current) != tag:
                return None
            self._put(full, data)
            return _tag(data)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with _translated("delete", self._full(check_file_path(path))) as full:
                _unlink_sidecar(full)
                _unlink(full)

    def delete_folder(self, path: str) -> None:
        with _translated("delete", self._full(check_path(path))) as full:
            # A writer may add a file while the folder is emptied; two more rounds take what came late.
            for is_last in (False, False, True):
                try:
                    shutil.rmtree(full)
                    return
                except FileNotFoundError:
                    if not os.path.lexists(full):
                        return
                    if is_last:
                        raise
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY or is_last:
                        raise

    def make_folder(self, path: str) -> None:
        with _translated("make the folder", self._full(check_path(path))) as full:
            self._make_folders(full)

    def open_input(self, path: str) -> pa.NativeFile:
        with _reading(self._full(check_file_path(path))) as full:
            # Arrow says of a folder only that it expected a file, without an error number.
            if os.path.isdir(full):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), full)
            return pa.OSFile(full, "rb")

    def open_output(self, path: str) -> _LocalOutput:
        return _LocalOutput(self, self._full(check_file_path(path)))

    def set_modified(self, path: str, modified_ms: int) -> bool:
        with _translated("change", self._full(check_file_path(path))) as full:
            os.utime(full, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        return True

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        removed_count = 0
        full = self._full(check_path(folder))
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with _translated("sweep", full), absent, os.scandir(full) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if is_temporary(entry.name) and is_abandoned(entry.name, entry.stat().st_mtime_ns // 1_000_000, before_ms):
                        os.unlink(entry.path)
                        removed_count += 1
        return removed_count

    def _full(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def _put(self, full: str, data: bytes) -> None:
        temporary = self._write_temporary(os.path.dirname(full), data)
        try:
            _unlink_sidecar(full)
            _replace(temporary, full)
        except BaseException:
            _unlink(temporary)
            raise
        self._sync_folder(os.path.dirname(full))

    def _create_exclusively(self, full: str, data: bytes) -> bool:
        try:
            self._write_new(full, data)
        except FileExistsError:
            return False
        self._sync_folder(os.path.dirname(full))
        return True

    def _write_temporary(self, folder: str, data: bytes) -> str:
        temporary = _temporary_path(folder)
        self._write_new(temporary, data)
        return temporary

    def _write_new(self, full: str, data: bytes) -> None:
        """Create a file that does not exist, with its folder, and write it; what was begun is removed on an error."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(full, flags, 0o666)
        except FileNotFoundError:
            self._make_folders(os.path.dirname(full))
            descriptor = os.open(full, flags, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if self._sync is not Sync.NONE:
                    file.flush()
                    os.fsync(file.fileno())
        except BaseException:
            _unlink(full)
            raise

    def _make_folders(self, full: str) -> None:
        missing: list[str] = []
        while not os.path.isdir(full):
            missing.append(full)
            full, last = os.path.dirname(full), full
            if full == last:
                break
        for folder in reversed(missing):
            # Another writer may make the same folder now; a file of that name is found by isdir.
            try:
                os.mkdir(folder)
            except FileExistsError:
                if not os.path.isdir(folder):
                    raise
            self._sync_folder(os.path.dirname(folder))

    def _sync_folder(self, full: str) -> None:
        if self._sync is Sync.NONE or sys.platform == "win32":
            return
        descriptor = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems have no way to sync a folder, which then needs none.
            if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)


class _LocalOutput:
    """The `with` block of `open_output`: temporary file, then rename."""

    def __init__(self, storage: LocalStorage, full: str) -> None:
        self._storage = storage
        self._full = full
        self._temporary = ""
        self._sink: pa.NativeFile | None = None

    def __enter__(self) -> pa.NativeFile:
        folder = os.path.dirname(self._full)
        self._temporary = _temporary_path(folder)
        with _translated("write", self._full):
            try:
                self._sink = pa.OSFile(self._temporary, "wb")
            except FileNotFoundError:
                self._storage._make_folders(folder)
                self._sink = pa.OSFile(self._temporary, "wb")
        return self._sink

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._sink is not None
        try:
            with _translated("write", self._full):
                self._sink.close()
                if kind is None:
                    self._publish()
        finally:
            _unlink(self._temporary)
        # A full disk is first heard inside the block, from Arrow's writer.  Arrow's own complaints carry no error number.
        if isinstance(error, OSError) and error.errno is not None:
            raise _translate(error, "write", self._full) from error

    def _publish(self) -> None:
        synced = self._storage._sync is Sync.ALL
        if synced:
            with open(self._temporary, "rb") as file:
                os.fsync(file.fileno())
        _unlink_sidecar(self._full)
        _replace(self._temporary, self._full)
        if synced:
            self._storage._sync_folder(os.path.dirname(self._full))


def open_local(location: Location, options: dict[str, str]) -> Storage:
    """The storage of a `file:` URI.  options: `sync` alone, one of the values of `Sync`; others are InvalidRequest."""
    unknown = sorted(set(options) - {"sync"})
    if unknown:
        raise InvalidRequest(f"{location.uri} is local: storage option {unknown[0]!r} has no meaning there, only 'sync' has")
    sync = options.get("sync", Sync.DOCUMENTS.value)
    if sync not in tuple(Sync):
        raise InvalidRequest(f"storage option sync={sync!r}: choose one of {', '.join(Sync)}")
    return LocalStorage(location, Sync(sync))


def _temporary_path(folder: str) -> str:
    return os.path.join(folder, temporary_name())


def _is_text(name: str) -> bool:
    """Whether a file's name is UTF-8: Python marks bytes that are none by halves of characters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_hidden(name: str) -> bool:
    return name.startswith(".") and (name.endswith(".crc") or is_temporary(name))


def _replace(temporary: str, full: str) -> None:
    try:
        os.replace(temporary, full)
    except FileNotFoundError as error:
        raise removed_meanwhile(full) from error


def _unlink_sidecar(full: str) -> None:
    folder, name = os.path.split(full)
    _unlink(os.path.join(folder, f".{name}.crc"))


def _unlink(full: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(full)


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file_info(path: str, status: os.stat_result) -> FileInfo:
    return FileInfo(path, status.st_size, status.st_mtime_ns // 1_000_000)


@contextlib.contextmanager
def _locked_folder(full: str) -> Iterator[bool]:
    """Hold the folder's advisory lock; False when there is no such folder."""
    if sys.platform == "win32":
        raise Unsupported("put_if_matches needs flock, which Windows has not: choose another lock provider")
    try:
        descriptor = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise Unsupported(f"{full}: the file system has no flock ({error}): choose another lock provider") from error
        yield True
    finally:
        os.close(descriptor)


class _translated:
    """Turns the OSErrors of a block into PyHudi's; gives the full path.  A class, because it stands on every call's path."""

    __slots__ = ("_full", "_verb")

    def __init__(self, verb: str, full: str) -> None:
        self._verb = verb
        self._full = full

    def __enter__(self) -> str:
        return self._full

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise _translate(error, self._verb, self._full) from error


@contextlib.contextmanager
def _reading(full: str) -> Iterator[str]:
    """Turns the OSErrors of a block that reads a file into PyHudi's; gives the full path."""
    with _translated("read", full):
        try:
            yield full
        except _NO_FILE as error:
            raise TableState(f"{full}: no such file") from error


def _translate(error: OSError, verb: str, full: str) -> HudiError:
    if error.errno == errno.ENOENT:
        return TableState(f"{full}: no such file")
    advice = _CALLER_MUST_CHANGE.get(error.errno or 0)
    reason = error.strerror or str(error)
    if advice is not None:
        return InvalidRequest(f"cannot {verb} {full}: {reason}: {advice}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(f"cannot {verb} {full}: {reason}: free some space or raise the quota")
    return StorageUnavailable(f"cannot {verb} {full}: {reason}")
