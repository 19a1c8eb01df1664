"""HDFS storage over WebHDFS (also HttpFS): no Java, no native library.

    hdfs://namenode[:8020]/path     hdfs://nameservice/path     webhdfs://namenode[:9870]/path

How each guarantee is implemented; the NameNode executes its operations sequentially:

1. A file in HDFS is visible while it is being written. So everything is written to `.pyhudi-<process>-<uuid>.tmp` in
   the same folder and renamed: over an existing file (`put`, `open_output`), or only if the name is free
   (`put_if_absent`). Both are atomic.
2. HDFS has no conditional replacement. `put_if_matches` composes three atomic operations. The tag is the inode's id,
   and each replacement creates a new inode. (a) The new content is written to a temporary file. (b) Its name is set as
   the extended attribute `user.pyhudi.claim.1` of the file, which fails if the attribute exists: one writer owns the
   claim. (c) The owner of the claim renames over the file if its inode still matches the tag. A claim is valid while
   its temporary file exists. A writer that finds another claim waits for it, then deletes that temporary file, so that
   its rename must fail, and claims the next number. This is atomic among calls of `put_if_matches`, and against
   `put_if_absent`. A plain `put` or `delete` of the same path at the same time is not detected.
3. A rename whose response is lost is verified: it happened if the temporary file is missing and the name has its
   content.
4. When a call returns, its data is on the DataNodes that replicate it, in their memory or on their disks, as for files
   that Hadoop's own clients have closed.

Options: `hdfs_options`.

Limits: Kerberos, delegation tokens and TLS are refused. Symbolic links (which HDFS disables) are not followed. Names
with a colon, which HDFS rejects, are InvalidRequest.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

import pyarrow as pa

from pyhudi.errors import HudiError, InvalidRequest, StorageFull, StorageUnavailable, TableState, Unsupported
from pyhudi.format.paths import file_name, join_path, parent_folder
from pyhudi.options import lock_options
from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec, check_file_path, check_path, check_range
from pyhudi.storage.hdfs.hdfs_options import hdfs_settings
from pyhudi.storage.hdfs.webhdfs_client import FileStatus, HdfsClient, is_absence
from pyhudi.storage.hdfs.webhdfs_http import NoResponse, RemoteError, Upload
from pyhudi.storage.range_file import TAIL_BYTES, RangeReader, UploadSink
from pyhudi.storage.temporary_names import (
    is_owner_dead,
    is_temporary,
    is_temporary_orphaned,
    temporary_file_missing_error,
    temporary_name,
)
from pyhudi.storage.uris import Location, UriMixin, files_below

# Translation of HDFS exceptions.

_REFUSED_BY = frozenset({"AccessControlException", "SecurityException", "AuthorizationException"})
_FULL = frozenset(
    {"DSQuotaExceededException", "NSQuotaExceededException", "QuotaExceededException", "QuotaByStorageTypeExceededException"}
)
_WRONG_NAME = frozenset({"InvalidPathException", "IllegalArgumentException", "PathComponentTooLongException"})


def hdfs_error(error: NoResponse | RemoteError, operation: str, uri: str) -> HudiError:
    """Translate an exception of the client.

    Args:
        error: Exception of the client.
        operation: "read", "write", "delete", "list".
        uri: URI of the file or folder.

    Returns:
        PyHudi's error for it.
    """
    if isinstance(error, NoResponse):
        return StorageUnavailable(
            f"cannot {operation} {uri}: no answer from HDFS ({error}); "
            "the storage option http_address names the NameNode's HTTP server"
        )
    if error.status == 401:
        return Unsupported(
            f"cannot {operation} {uri}: the NameNode requires Kerberos or a token, which is not supported. "
            "Use a cluster with hadoop.security.authentication=simple, or such an HttpFS"
        )
    if error.kind in _REFUSED_BY:
        return InvalidRequest(f"cannot {operation} {uri}: HDFS denies access to this user (storage option user): {error}")
    if error.kind in _FULL:
        return StorageFull(f"cannot {operation} {uri}: {error}: free some space or raise the quota")
    if error.kind in _WRONG_NAME:
        return InvalidRequest(f"cannot {operation} {uri}: HDFS rejects the name: {error}")
    if error.kind in ("FileAlreadyExistsException", "PathIsNotEmptyDirectoryException", "ParentNotDirectoryException"):
        return InvalidRequest(
            f"cannot {operation} {uri}: the path, or a part of it, is a file instead of a folder or the reverse: {error}"
        )
    if error.kind == "FileNotFoundException":
        return TableState(f"{uri}: no such file")
    return StorageUnavailable(f"cannot {operation} {uri}: {error.kind or 'HDFS'}: {error}")


_WRITE_ATTEMPTS = 3
_RENAME_ATTEMPTS = 5

# From this duration on, the time of a renamed file says too little about when it appeared.
_SLOW_RENAME_S = 1.0

# Numbered extended attributes of a file; a NameNode allows 32 per file.
_CLAIM = "user.pyhudi.claim."
_CLAIMS_AT_MOST = 24
# How long to wait for the claim of another writer.  A rename takes milliseconds, but its process may be suspended.
_CLAIM_EXPIRY_S = 3.0
_CLAIM_PAUSE_S = 0.02


class HdfsStorage(UriMixin):
    """A folder in HDFS; it need not exist before the first write."""

    __slots__ = ("_client", "_options", "_root")

    def __init__(self, location: Location, options: tuple[tuple[str, str], ...], client: HdfsClient) -> None:
        super().__init__(location)
        self._options = options
        self._client = client
        self._root = f"/{location.path}" if location.path else ""

    @property
    def has_folders(self) -> bool:
        return True

    def spec(self) -> StorageSpec:
        return StorageSpec(self.uri, self._options)

    def child(self, path: str) -> HdfsStorage:
        return HdfsStorage(self._location.child(check_path(path)), self._options, self._client)

    def read(self, path: str) -> bytes | None:
        full = self._full(check_file_path(path))
        with self._translated("read", path):
            try:
                return self._client.read(full)
            except RemoteError as error:
                if is_absence(error):
                    return None
                raise

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        check_range(path, offset, length)
        size_bytes = self._require(path).size_bytes
        # The cost of a request must depend on the file, not on a length decoded from a corrupt file.
        length = min(length, size_bytes - offset)
        if length <= 0:
            return b""
        with self._translated("read", path):
            return self._client.read(self._full(path), offset, length)

    def stat(self, path: str) -> FileInfo | None:
        status = self._status(path)
        return None if status is None else FileInfo(path, status.size_bytes, status.modified_ms)

    def list(self, folder: str) -> Listing:
        with self._translated("list", folder):
            children = self._client.children(self._full(check_path(folder)) or "/") or []
        files = [
            FileInfo(join_path(folder, child.name), child.size_bytes, child.modified_ms)
            for child in children
            if child.is_file and not is_temporary(child.name)
        ]
        folders = [join_path(folder, child.name) for child in children if not child.is_file]
        return Listing(tuple(sorted(files, key=lambda info: info.path)), tuple(sorted(folders)))

    def names(self, folder: str) -> tuple[str, ...]:
        return tuple(info.name for info in self.list(folder).files)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        return files_below(folder, self.list)

    def is_duplicate_symlink(self, folder: str, marker: str) -> bool:
        check_path(folder)
        return False

    def put(self, path: str, data: bytes) -> None:
        if not self._write(path, data, lambda temporary: self._rename(temporary, path, data, replace=True)):
            raise temporary_file_missing_error(self.absolute(path))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        # A writer that waits for a file to disappear polls often; avoid writing a temporary file each time.
        with self._translated("get the status of", path):
            if self._client.status(self._full(check_file_path(path))) is not None:
                return False
        return self._write(path, data, lambda temporary: self._rename(temporary, path, data, replace=False))

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        tag = self._tag(path)
        while tag is not None:
            data, later = self.read(path), self._tag(path)
            # The content belongs to the tag if the tag is the same before and after the read.
            if data is not None and later == tag:
                return data, tag
            tag = later
        return None

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        if self._tag(check_file_path(path)) != tag:
            return None
        written: str | None = None

        def claim(temporary: str) -> bool:
            nonlocal written
            # A rename does not change the tag of the file.  After the rename the name may already refer to another
            # writer's file.
            written = self._tag(temporary)
            return self._claim(path, temporary, tag) and self._rename(temporary, path, data, replace=True)

        return written if self._write(path, data, claim) else None

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._translated("delete", path):
                self._client.delete(self._full(check_file_path(path)))

    def delete_folder(self, path: str) -> None:
        with self._translated("delete", path):
            self._client.delete(self._full(check_path(path)) or "/", recursive=True)

    def make_folder(self, path: str) -> None:
        with self._translated("make the folder", path):
            self._client.make_folder(self._full(check_path(path)) or "/")

    def open_input(self, path: str) -> pa.NativeFile:
        check_file_path(path)
        return pa.PythonFile(RangeReader(_HdfsRanges(self, path)), mode="r")

    def open_output(self, path: str) -> _HdfsOutput:
        return _HdfsOutput(self, check_file_path(path))

    def set_modified(self, path: str, modified_ms: int) -> bool:
        self._require(path)
        with self._translated("change", path):
            self._client.set_modified(self._full(path), modified_ms)
        return True

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        with self._translated("sweep", folder):
            full = self._full(check_path(folder))
            unfinished = [child for child in self._client.children(full or "/") or [] if is_temporary(child.name)]
            orphans = [child for child in unfinished if is_temporary_orphaned(child.name, child.modified_ms, before_ms)]
            for child in orphans:
                self._client.delete(f"{full}/{child.name}")
        return len(orphans)

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _status(self, path: str) -> FileStatus | None:
        with self._translated("get the status of", path):
            status = self._client.status(self._full(check_file_path(path)))
        return status if status is not None and status.is_file else None

    def _require(self, path: str) -> FileStatus:
        status = self._status(path)
        if status is None:
            raise TableState(f"{self.absolute(path)}: no such file")
        return status

    def _tag(self, path: str) -> str | None:
        status = self._status(path)
        # The id alone suffices unless the file is appended to; a grown file is a different version.
        return None if status is None else f"{status.file_id}.{status.size_bytes}.{status.modified_ms}"

    def _write(self, path: str, data: bytes, publish: Callable[[str], bool]) -> bool:
        """Write a temporary file and publish it; the temporary file is removed in any case."""
        temporary, is_published = self._write_temporary(path, data), False
        try:
            is_published = publish(temporary)
            return is_published
        finally:
            if not is_published:
                self._drop(temporary)

    def _write_temporary(self, path: str, data: bytes) -> str:
        for attempt in range(_WRITE_ATTEMPTS):
            # Each attempt has its own name: an attempt whose response was lost may still be writing.
            temporary = self._temporary(check_file_path(path))
            try:
                with self._translated("write", path):
                    self._client.create(self._full(temporary), data)
                return temporary
            except BaseException as error:
                self._drop(temporary)
                if not isinstance(error.__cause__, NoResponse) or attempt + 1 == _WRITE_ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _temporary(self, path: str) -> str:
        return join_path(parent_folder(path), temporary_name())

    def _drop(self, temporary: str) -> None:
        # A remaining file is never listed, and deleted by a later sweep.
        with contextlib.suppress(NoResponse, RemoteError):
            self._client.delete(self._full(temporary))

    def _rename(self, temporary: str, path: str, data: bytes | None, *, replace: bool) -> bool:
        """Rename a temporary file to its final name.

        data: Content of the file; None to skip its comparison. Returns False, without a change, if the name exists or
        the temporary file was removed. Raises WriteConflict for a removed file with replace=False, because False would
        mean that the name exists.
        """
        lost_response: NoResponse | None = None
        begun_s = time.monotonic()
        for attempt in range(_RENAME_ATTEMPTS):
            with self._translated("write", path):
                try:
                    self._client.rename(self._full(temporary), self._full(path), replace=replace)
                    self._touch_if_late(path, begun_s)
                    return True
                except RemoteError as error:
                    # HDFS checks the source first: if the target is the obstacle, the temporary file has not moved.
                    if not replace and error.kind == "FileAlreadyExistsException":
                        return False
                    if not is_absence(error):
                        raise
                    if lost_response is None:
                        if not replace:
                            raise temporary_file_missing_error(self.absolute(path)) from error
                        return False
                except NoResponse as error:
                    lost_response = error
                if self._client.status(self._full(temporary)) is None:
                    self._touch_if_late(path, begun_s)
                    return self._is_stored(path, data, lost_response)
            time.sleep(_CLAIM_PAUSE_S * 2**attempt)
        raise StorageUnavailable(f"cannot write {self.absolute(path)}: the NameNode does not respond: {lost_response}")

    def _touch_if_late(self, path: str, begun_s: float) -> None:
        """Set the modification time of a file whose rename was slow to the time of the NameNode: a rename retains it.

        The order in which files of the timeline appeared is that of their times (`operations.commit.late_commit`).
        """
        if time.monotonic() - begun_s < _SLOW_RENAME_S or self._client.status(self._full(path)) is None:
            return
        probe = self._temporary(path)
        try:
            self._client.create(self._full(probe), b"")
            status = self._client.status(self._full(probe))
            if status is not None:
                self._client.set_modified(self._full(path), status.modified_ms)
        finally:
            self._drop(probe)

    def _is_stored(self, path: str, data: bytes | None, lost_response: NoResponse | None) -> bool:
        content = self.stat(path) if data is None else self.read(path)
        if content is None:
            raise StorageUnavailable(f"cannot write {self.absolute(path)}: no response, and the file is missing: {lost_response}")
        return data is None or content == data

    def _claim(self, path: str, temporary: str, tag: str) -> bool:
        """Obtain the exclusive right to replace the file with that tag; False if another writer has replaced it."""
        full, name = self._full(path), file_name(temporary)
        for number in range(1, _CLAIMS_AT_MOST + 1):
            with self._translated("write", path):
                try:
                    self._client.set_attribute(full, f"{_CLAIM}{number}", name)
                except RemoteError as error:
                    if is_absence(error):
                        return False
                    if "xattr" not in str(error).lower():
                        raise
                    if "already exists" not in str(error):
                        raise Unsupported(
                            f"{self.absolute(path)}: HDFS rejects extended attributes ({error}), which atomic replacement needs. "
                            f"Set dfs.namenode.xattrs.enabled, or choose another lock ({lock_options.PROVIDER})"
                        ) from error
                except NoResponse:
                    pass
                other = self._client.attribute(full, f"{_CLAIM}{number}")
            if other == name:
                return self._tag(path) == tag
            if other is not None:
                self._wait_until_removed(path, join_path(parent_folder(path), other))
            if self._tag(path) != tag:
                return False
        raise StorageUnavailable(
            f"{self.absolute(path)}: {_CLAIMS_AT_MOST} writers started to replace it and none finished. "
            "Delete it when no writer is running"
        )

    def _wait_until_removed(self, path: str, other: str) -> None:
        """Wait until the temporary file of another claim disappears, or delete it after a timeout."""
        deadline = time.monotonic() + _CLAIM_EXPIRY_S
        with self._translated("write", path):
            while self._client.status(self._full(other)) is not None:
                if time.monotonic() > deadline or is_owner_dead(file_name(other)):
                    self._client.delete(self._full(other))
                    return
                time.sleep(_CLAIM_PAUSE_S)

    @contextlib.contextmanager
    def _translated(self, operation: str, path: str) -> Iterator[None]:
        """Translate exceptions of the client into PyHudi's errors."""
        try:
            yield
        except (NoResponse, RemoteError) as error:
            raise hdfs_error(error, operation, self._location.child(path).uri) from error


class _HdfsRanges:
    """The bytes of one file, for a `RangeReader`."""

    def __init__(self, storage: HdfsStorage, path: str) -> None:
        self._storage = storage
        self._path = path

    def open(self) -> tuple[int, bytes]:
        size_bytes = self._storage._require(self._path).size_bytes
        start = max(0, size_bytes - TAIL_BYTES)
        return size_bytes, self.fetch(start, size_bytes - start) if size_bytes else b""

    def fetch(self, start: int, length: int) -> bytes:
        storage, path = self._storage, self._path
        with storage._translated("read", path):
            data = storage._client.read(storage._full(path), start, length)
        if len(data) != length:
            raise StorageUnavailable(f"{storage.absolute(path)}: requested {length} bytes at {start}, received {len(data)}")
        return data


class _HdfsOutput:
    """The context manager of `open_output`: a temporary file, then a rename."""

    def __init__(self, storage: HdfsStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._temporary = storage._temporary(path)
        self._is_published = False
        self._upload: Upload | None = None
        self._sink: pa.NativeFile | None = None

    def __enter__(self) -> pa.NativeFile:
        storage, path = self._storage, self._path
        with storage._translated("write", path):
            self._upload = storage._client.begin(storage._full(self._temporary))
        self._sink = pa.PythonFile(UploadSink(self._send), mode="w")
        return self._sink

    def _send(self, block: memoryview) -> None:
        assert self._upload is not None
        with self._storage._translated("write", self._path):
            self._upload.write(block)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._sink is not None and self._upload is not None
        storage, path, upload = self._storage, self._path, self._upload
        self._sink.close()
        try:
            if kind is not None:
                upload.discard()
                return
            with storage._translated("write", path):
                upload.close()
            if not storage._rename(self._temporary, path, None, replace=True):
                raise temporary_file_missing_error(storage.absolute(path))
            self._is_published = True
        finally:
            if not self._is_published:
                storage._drop(self._temporary)


def open_hdfs(location: Location, options: dict[str, str]) -> Storage:
    """The storage of an `hdfs` or `webhdfs` URI.  Sends no request.

    Raises:
        InvalidRequest: Unknown option.
        Unsupported: An option requires Kerberos or TLS.
    """
    settings = hdfs_settings(location, options)
    client = HdfsClient(
        settings.addresses,
        settings.user,
        dict(settings.new_files),
        limits=settings.limits,
        connect_timeout_s=settings.connect_timeout_s,
    )
    # A worker may run as another user, and without the Hadoop configuration of this process.
    spec_options = {**options, "user": settings.user}
    if location.scheme == "hdfs":
        spec_options["http_address"] = ",".join(settings.addresses)
    return HdfsStorage(location, tuple(sorted(spec_options.items())), client)
