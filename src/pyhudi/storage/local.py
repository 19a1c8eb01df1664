"""Local file system storage (also mounted file systems), compatible with the files that Hudi writes and expects.

Writing a file:
1. The bytes are written to `.pyhudi-<process>-<uuid>.tmp` in the same folder.  Hudi treats such a name neither as a
   data file nor as a timeline file, and listings skip it.
2. A checksum sidecar `.<name>.crc` that a Hadoop writer left for an older file of that name is deleted.  A missing
   sidecar disables the check and a stale one makes Hudi fail, so it is deleted before the new content appears.
3. `put` and `open_output` rename the temporary file over the name.  `put_if_absent` creates a hard link, which fails if
   the name exists, then deletes the temporary name.  An empty document needs none of this: exclusive creation is
   atomic.
4. Documents are synced to disk, file and folder; see `Sync` for data files.  Leases, heartbeats and empty `.requested`
   files are not synced: the sync of the inflight file's folder also covers the name of the requested file, before any
   data file is written.

`put_if_matches` is a compare-and-swap that no suspended process can block:
1. Stage: the synced temporary file is renamed into `.pyhudi-<hash of the name>.cas/`, under its unique name.
2. Fence: every other file staged there is deleted.
3. Compare: the document is read; a different tag ends the call.
4. Publish: the staged file is renamed over the document.  If another call has deleted it, the rename fails, nothing is
   published, and the call starts again.

Two calls A and B cannot both replace the same content. Both list the folder after they have staged, so one of them, say
A, lists after both have staged. If B has not published by then, A deletes its file and B's rename fails. If B has
published, A reads afterwards, finds B's content and ends. `put_if_absent` also fences before it creates a name, so a
call that compared before the document was deleted does not replace its successor. A plain `put` or `delete` between
steps 3 and 4 is not detected.

An advisory lock (flock) on the folder reduces mutual fencing. Correctness does not depend on it: a call that cannot
obtain it within a time limit, because its holder is suspended, proceeds without it. The system releases it when its
process dies.

Where hard links are not supported (some network and FUSE mounts), `put_if_absent` creates the name exclusively and
writes into it: still at most one winner, but a reader may see a part of the document briefly, and permanently after a
crash.

Sidecars are neither written nor verified, and folders that become empty are not deleted.

Changes do not leave the root through symbolic links (symbolic_links.py). Deleting a linked folder removes the link.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat as stat_module
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import PurePath
from types import TracebackType

import pyarrow as pa

from pyhudi.errors import HudiError, InvalidRequest, StorageFull, StorageUnavailable, TableState, Unsupported
from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec, check_file_path, check_path, check_range
from pyhudi.storage.deadlines import check_lease_left
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.folder_lock import locked_folder
from pyhudi.storage.symbolic_links import check_links, parse_link_roots
from pyhudi.storage.sync_policy import Sync, is_document, is_of_process, is_scratch
from pyhudi.storage.temporary_names import is_temporary, is_temporary_orphaned, temporary_file_missing_error, temporary_name
from pyhudi.storage.uris import Location, UriMixin

_CLOCK = SystemEnvironment()

# Without the lock, calls may fence each other; random pauses let one of them succeed.
_REPLACE_ATTEMPTS = 30
_LONGEST_REPLACE_PAUSE_MS = 100

# From this duration on, the time of a file says too little about when its name appeared.
_SLOW_LINK_MS = 1_000

_REQUESTED_SUFFIX = ".requested"

_STAGING_PREFIX = ".pyhudi-"
_STAGING_SUFFIX = ".cas"

# Errors of open() for a path that is not a file; as in an object store, a folder does not count.
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

# Errors of link() where the file system does not support hard links.
_NO_LINKS = frozenset({errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_CALLER_MUST_CHANGE = {
    errno.EACCES: "permission denied by the owner or mode of the path; grant this user access or choose another path",
    errno.EPERM: "permission denied by the owner or mode of the path; grant this user access or choose another path",
    errno.EROFS: "the file system is mounted read-only; remount it or choose another path",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.EISDIR: "the path is a folder; choose another path",
    errno.EEXIST: "a part of the path is a file; choose another path",
    errno.ENAMETOOLONG: "the path is too long for the file system; shorten the table's or the partition's path",
    errno.EINVAL: "the file system rejects the name",
    errno.EILSEQ: "the file system rejects the name",
    errno.ELOOP: "the path contains a loop of symbolic links",
}


class LocalStorage(UriMixin):
    """A folder of the local file system; it need not exist before the first write.

    Args:
        location: Of scheme "file".
        sync: What is synced to disk.
        link_roots: Folders outside of the root into which symbolic links may lead; None reads through every link.
        within: Root of the storage of which this is a child; None if it is not a child.
    """

    __slots__ = ("_link_roots", "_root", "_sync", "_within")

    def __init__(
        self,
        location: Location,
        sync: Sync = Sync.ALL,
        link_roots: tuple[str, ...] | None = None,
        within: str | None = None,
    ) -> None:
        if location.scheme != "file":
            raise InvalidRequest(f"{location.uri} is not a path of the local file system")
        super().__init__(location)
        self._root = location.file_path
        self._sync = sync
        self._link_roots = link_roots
        self._within = self._root if within is None or not PurePath(self._root).is_relative_to(within) else within

    @property
    def has_folders(self) -> bool:
        return True

    def spec(self) -> StorageSpec:
        options = [] if self._sync is Sync.ALL else [("sync", self._sync.value)]
        if self._link_roots is not None:
            options.append(("link_roots", os.pathsep.join(self._link_roots)))
        if self._within != self._root:
            options.append(("within", self._within))
        return StorageSpec(self.uri, tuple(options))

    def child(self, path: str) -> LocalStorage:
        return LocalStorage(self._location.child(check_path(path)), self._sync, self._link_roots, self._within)

    def read(self, path: str) -> bytes | None:
        with _translated("read", self._to_read(check_file_path(path))) as full:
            try:
                with open(full, "rb") as file:
                    return file.read()
            except _NO_FILE:
                return None

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        check_range(path, offset, length)
        with _reading(self._to_read(check_file_path(path))) as full, open(full, "rb") as file:
            # The allocation must depend on the file, not on a length decoded from a corrupt file.
            size_bytes = os.fstat(file.fileno()).st_size
            file.seek(min(offset, size_bytes))
            return file.read(max(0, min(length, size_bytes - offset)))

    def stat(self, path: str) -> FileInfo | None:
        with _translated("get the status of", self._to_read(check_file_path(path))) as full:
            try:
                status = os.stat(full)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return _file_info(path, status) if stat_module.S_ISREG(status.st_mode) else None

    def list(self, folder: str) -> Listing:
        files: list[FileInfo] = []
        folders: list[str] = []
        prefix = f"{folder}/" if folder else ""
        with _translated("list", self._to_read(check_path(folder))) as full:
            try:
                entries = os.scandir(full)
            except (FileNotFoundError, NotADirectoryError):
                return Listing()
            with entries:
                for entry in entries:
                    if entry.is_dir():
                        if _is_text(entry.name) and not _is_staging_folder(entry.name):
                            folders.append(prefix + entry.name)
                    elif _is_listed(entry.name):
                        try:
                            files.append(_file_info(prefix + entry.name, entry.stat()))
                        except FileNotFoundError:
                            # A file that was deleted after the folder was read is not listed.
                            continue
        return Listing(tuple(sorted(files, key=lambda info: info.path)), tuple(sorted(folders)))

    def names(self, folder: str) -> tuple[str, ...]:
        with _translated("list", self._to_read(check_path(folder))) as full:
            try:
                entries = os.scandir(full)
            except (FileNotFoundError, NotADirectoryError):
                return ()
            with entries:
                # Only links and special files need a second look.
                files = [
                    entry.name
                    for entry in entries
                    if entry.is_file(follow_symlinks=False) or (not entry.is_dir() and os.path.exists(entry.path))
                ]
        # The timeline is listed repeatedly, and nearly all of its names are such.
        return tuple(sorted([name for name in files if (name[0] != "." and name.isascii()) or _is_listed(name)]))

    def walk(self, folder: str) -> Iterator[FileInfo]:
        pending = [check_path(folder)]
        while pending:
            listing = self.list(pending.pop())
            yield from listing.files
            pending.extend(listing.folders)

    def is_duplicate_symlink(self, folder: str, marker: str) -> bool:
        full = self.full_path(check_path(folder))
        if not os.path.islink(full):
            return False
        root, real = PurePath(os.path.realpath(self.full_path(""))), PurePath(os.path.realpath(full))
        if real.is_relative_to(root) or root.is_relative_to(real):
            return True
        return any(os.path.lexists(above / marker) for above in (real, *real.parents))

    def put(self, path: str, data: bytes) -> None:
        with _translated("write", self._to_change(check_file_path(path))) as full:
            self._put(full, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with _translated("write", self._to_change(check_file_path(path))) as full:
            if os.path.lexists(full):
                return False
            _fence(full)
            _unlink_sidecar(full)
            if not data:
                check_lease_left(full)
                return self._create_exclusively(full, data)
            temporary = self._write_temporary(os.path.dirname(full), data)
            begun_ms = _CLOCK.monotonic_ms()
            try:
                check_lease_left(full)
                os.link(temporary, full)
            except OSError as error:
                try:
                    link_count = os.stat(temporary).st_nlink
                except FileNotFoundError:
                    raise temporary_file_missing_error(full) from error
                # A network file system may have created the link and lost the response: the link count decides.
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
            if _CLOCK.monotonic_ms() - begun_ms >= _SLOW_LINK_MS:
                # The order in which files of the timeline appeared is that of their times (`operations.commit.late_commit`).
                os.utime(full)
            self._sync_folder(os.path.dirname(full))
            return True

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        data = self.read(path)
        return None if data is None else (data, _tag(data))

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        if sys.platform == "win32":
            raise Unsupported("put_if_matches needs flock, which Windows lacks: choose another lock provider")
        full = self._to_change(check_file_path(path))
        with _translated("write", full):
            for attempt in range(_REPLACE_ATTEMPTS):
                if not self._matches(path, tag):
                    return None
                # A missing file means that another call has fenced this one.
                with contextlib.suppress(FileNotFoundError):
                    return _tag(data) if self._replace_if_matches(path, data, tag) else None
                _CLOCK.sleep_ms(_CLOCK.token_bytes(1)[0] * min(1 << attempt, _LONGEST_REPLACE_PAUSE_MS) // 256)
        raise StorageUnavailable(
            f"cannot write {full}: concurrent replacements by other processes overtook {_REPLACE_ATTEMPTS} attempts. Try again"
        )

    def delete(self, paths: Iterable[str]) -> None:
        folders: set[str] = set()
        for path in paths:
            with _translated("delete", self._to_change(check_file_path(path))) as full:
                _unlink_sidecar(full)
                if _unlink(full):
                    folders.add(os.path.dirname(full))
        for folder in sorted(folders):
            self._sync_deletions(folder)

    def delete_folder(self, path: str) -> None:
        with _translated("delete", self._to_change(check_path(path))) as full:
            if os.path.islink(full):
                if path:
                    _unlink(full)
                return
            # A writer may add a file while the folder is emptied; two more rounds delete late files.
            for is_last in (False, False, True):
                try:
                    _remove_tree(full)
                    self._sync_deletions(os.path.dirname(full), full)
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
        with _translated("make the folder", self._to_change(check_path(path), follows=True)) as full:
            self._make_folders(full)

    def open_input(self, path: str) -> pa.NativeFile:
        with _reading(self._to_read(check_file_path(path))) as full:
            # For a folder Arrow raises an error without an error number.
            if os.path.isdir(full):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), full)
            return pa.OSFile(full, "rb")

    def open_output(self, path: str) -> _LocalOutput:
        return _LocalOutput(self, self._to_change(check_file_path(path)))

    def set_modified(self, path: str, modified_ms: int) -> bool:
        with _translated("change", self._to_change(check_file_path(path), follows=True)) as full:
            os.utime(full, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        return True

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        removed_count = 0
        full = self._to_change(check_path(folder), follows=True)
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with _translated("sweep", full), absent, os.scandir(full) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if is_temporary(entry.name) and is_temporary_orphaned(
                        entry.name, entry.stat().st_mtime_ns // 1_000_000, before_ms
                    ):
                        os.unlink(entry.path)
                        removed_count += 1
        return removed_count

    def full_path(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def _to_read(self, path: str) -> str:
        """Return the full path of what is read."""
        full = self.full_path(path)
        if self._link_roots is not None:
            check_links("read", full, full, self._within, self._link_roots)
        return full

    def _to_change(self, path: str, *, follows: bool = False) -> str:
        """Return the full path of what is changed. follows: the call follows a link at the path itself."""
        full = self.full_path(path)
        followed = full if follows else os.path.dirname(full)
        check_links("change", full, followed, self._within, self._link_roots)
        return full

    def _put(self, full: str, data: bytes) -> None:
        temporary = self._write_temporary(os.path.dirname(full), data)
        try:
            _unlink_sidecar(full)
            check_lease_left(full)
            _replace(temporary, full)
        except BaseException:
            _unlink(temporary)
            raise
        self._sync_name(full)

    def _matches(self, path: str, tag: str) -> bool:
        current = self.read(path)
        return current is not None and _tag(current) == tag

    def _replace_if_matches(self, path: str, data: bytes, tag: str) -> bool:
        """One attempt of `put_if_matches`; False if the content differs. Raises FileNotFoundError if another call fenced it."""
        full = self.full_path(path)
        folder = os.path.dirname(full)
        # Synced before other calls wait for this one.
        temporary = self._write_temporary(folder, data)
        staging = _staging_folder(full)
        staged = os.path.join(staging, os.path.basename(temporary))
        unpublished = temporary
        try:
            with locked_folder(folder):
                try:
                    os.rename(temporary, staged)
                except FileNotFoundError:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(staging)
                    os.rename(temporary, staged)
                unpublished = staged
                _fence(full, staged)
                if not self._matches(path, tag):
                    return False
                _unlink_sidecar(full)
                check_lease_left(full)
                os.replace(staged, full)
                unpublished = ""
        finally:
            if unpublished:
                _unlink(unpublished)
            # Other calls may have staged files there. That of the lease, which is replaced often, stays.
            if not is_of_process(folder):
                with contextlib.suppress(OSError):
                    os.rmdir(staging)
        self._sync_name(full)
        return True

    def _create_exclusively(self, full: str, data: bytes) -> bool:
        try:
            self._write_new(full, data)
        except FileExistsError:
            return False
        if data or not full.endswith(_REQUESTED_SUFFIX):
            self._sync_folder(os.path.dirname(full))
        return True

    def _write_temporary(self, folder: str, data: bytes) -> str:
        temporary = _temporary_path(folder)
        self._write_new(temporary, data)
        return temporary

    def _write_new(self, full: str, data: bytes) -> None:
        """Create a new file and its folders, and write it; delete it on an error."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(full, flags, 0o666)
        except FileNotFoundError:
            self._make_folders(os.path.dirname(full))
            descriptor = os.open(full, flags, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                # The folder, which is synced next, is all that an empty file consists of.
                if data and self._sync is not Sync.NONE and not is_of_process(os.path.dirname(full)):
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
            # Another writer may create the same folder concurrently; isdir detects a file of that name.
            try:
                os.mkdir(folder)
            except FileExistsError:
                if not os.path.isdir(folder):
                    raise
            self._sync_folder(os.path.dirname(folder))

    def _sync_name(self, full: str) -> None:
        """Sync the folder of a replaced document."""
        folder = os.path.dirname(full)
        if not is_of_process(folder):
            self._sync_folder(folder)

    def _sync_deletions(self, folder: str, deleted: str = "") -> None:
        """Sync a folder from which files, or the folder `deleted`, were deleted, if a power failure must not undo that."""
        if self._sync is Sync.ALL and not is_scratch(deleted or folder):
            # A folder that another process has deleted since is as good as synced with its own parent.
            with _translated("sync", folder), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._sync_folder(folder)

    def _sync_folder(self, full: str) -> None:
        if self._sync is Sync.NONE or sys.platform == "win32":
            return
        descriptor = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems cannot sync a folder, and do not need it.
            if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)


class _LocalOutput:
    """The context manager of `open_output`: temporary file, then rename."""

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
                    self._temporary = ""
        finally:
            if self._temporary:
                _unlink(self._temporary)
        # A full disk is first reported inside the block, by Arrow's writer.  Errors of Arrow itself have no error
        # number.
        if isinstance(error, OSError) and error.errno is not None:
            raise _translate(error, "write", self._full) from error

    def _publish(self) -> None:
        sync = self._storage._sync
        synced = sync is Sync.ALL or (sync is Sync.DOCUMENTS and is_document(self._full))
        if synced:
            with open(self._temporary, "rb") as file:
                os.fsync(file.fileno())
        _unlink_sidecar(self._full)
        _replace(self._temporary, self._full)
        if synced:
            self._storage._sync_folder(os.path.dirname(self._full))


def open_local(location: Location, options: dict[str, str]) -> Storage:
    """Return the storage of a `file:` URI.

    Raises InvalidRequest for options other than `sync` (a value of `Sync`) and `link_roots`, and for a relative folder in
    the latter. The specs of children also contain `within`.
    """
    unknown = sorted(set(options) - {"sync", "link_roots", "within"})
    if unknown:
        raise InvalidRequest(
            f"{location.uri} is local: storage option {unknown[0]!r} is not supported, only 'sync' and 'link_roots' are"
        )
    sync = options.get("sync", Sync.ALL.value)
    if sync not in tuple(Sync):
        raise InvalidRequest(f"storage option sync={sync!r}: choose one of {', '.join(Sync)}")
    return LocalStorage(location, Sync(sync), parse_link_roots(options.get("link_roots")), options.get("within"))


def _temporary_path(folder: str) -> str:
    return os.path.join(folder, temporary_name())


@lru_cache(maxsize=1 << 14)
def _is_listed(name: str) -> bool:
    """Return True for files that listings contain. The timeline is listed repeatedly."""
    return _is_text(name) and not (name.startswith(".") and (name.endswith(".crc") or is_temporary(name)))


def _is_text(name: str) -> bool:
    """Return True if a name is valid UTF-8; Python represents other bytes as lone surrogates.

    Hudi writes no other names, and no other store could contain them.
    """
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _replace(temporary: str, full: str) -> None:
    try:
        os.replace(temporary, full)
    except FileNotFoundError as error:
        raise temporary_file_missing_error(full) from error


def _unlink_sidecar(full: str) -> None:
    folder, name = os.path.split(full)
    _unlink(os.path.join(folder, f".{name}.crc"))


def _unlink(full: str) -> bool:
    """Delete a file; return whether it existed."""
    try:
        os.unlink(full)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _remove_tree(full: str) -> None:
    """Delete a folder with its contents, however deep it is: unlike `shutil.rmtree` without recursion."""
    if os.path.islink(full):
        raise NotADirectoryError(errno.ENOTDIR, "a symbolic link", full)
    pending, folders = [full], list[str]()
    while pending:
        folders.append(pending.pop())
        with os.scandir(folders[-1]) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    _unlink(entry.path)
    # Each folder follows the one that contains it.
    for folder in reversed(folders):
        os.rmdir(folder)


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file_info(path: str, status: os.stat_result) -> FileInfo:
    return FileInfo(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _staging_folder(full: str) -> str:
    """Folder in which calls of `put_if_matches` stage the next content of a document."""
    folder, name = os.path.split(full)
    return os.path.join(folder, f"{_STAGING_PREFIX}{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}{_STAGING_SUFFIX}")


def _is_staging_folder(name: str) -> bool:
    return name.startswith(_STAGING_PREFIX) and name.endswith(_STAGING_SUFFIX)


def _fence(full: str, own: str | None = None) -> None:
    """Delete what other calls have staged for a document, so that they cannot publish it."""
    with contextlib.suppress(FileNotFoundError), os.scandir(_staging_folder(full)) as entries:
        for entry in entries:
            if entry.path != own:
                _unlink(entry.path)


class _translated:
    """Context manager that translates OSErrors and returns the full path.  A class for speed: every call uses it."""

    __slots__ = ("_full", "_operation")

    def __init__(self, operation: str, full: str) -> None:
        self._operation = operation
        self._full = full

    def __enter__(self) -> str:
        return self._full

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise _translate(error, self._operation, self._full) from error


@contextlib.contextmanager
def _reading(full: str) -> Iterator[str]:
    """Context manager for reading a file that translates OSErrors and returns the full path."""
    with _translated("read", full):
        try:
            yield full
        except _NO_FILE as error:
            raise TableState(f"{full}: no such file") from error


def _translate(error: OSError, operation: str, full: str) -> HudiError:
    if error.errno == errno.ENOENT:
        return TableState(f"{full}: no such file")
    advice = _CALLER_MUST_CHANGE.get(error.errno or 0)
    reason = error.strerror or str(error)
    if advice is not None:
        return InvalidRequest(f"cannot {operation} {full}: {reason}: {advice}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(f"cannot {operation} {full}: {reason}: free some space or raise the quota")
    return StorageUnavailable(f"cannot {operation} {full}: {reason}")
