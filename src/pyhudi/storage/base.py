"""The `Storage` protocol: file access that every storage backend implements, and its value types.

A `Storage` is a folder (its root) on a local disk, in memory or in an object store. Every path is relative to that
root, written with '/', without a leading or trailing '/', without empty, '.' or '..' parts; '' is the root itself.
Paths that a storage returns (`FileInfo.path`, `Listing.folders`) are relative to the same root, never to the folder
that was listed.

Guarantees of every storage, checked by `tests/conformance/storage_suite.py`:

1. Atomic replacement. A reader sees the old content of a file or the new one, never a part (`put`, `put_if_absent`,
   `put_if_matches`, `open_output`). The implementations document their exceptions.
2. Read-after-write consistency. The next call of any process reads and lists what one call has written.
3. Absence is a value: `read`, `stat` and `read_versioned` return None, `list` and `walk` return nothing, `delete`
   ignores it.
4. Errors are those of `pyhudi.errors`. InvalidRequest: a path, option or permission that the caller must change.
   TableState: a required file is missing. StorageUnavailable: the store did not answer. After StorageUnavailable from a
   writing call the effect may have happened, so check before repeating the step. WriteConflict from a writing call: a
   sweep deleted its temporary file, and nothing was stored.
5. Every method is thread-safe. The results of `open_input` and `open_output` belong to one thread.

Not provided: caching, knowledge of Hudi's files. Repetitions and time limits of calls: `storage.deadlines`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from pyhudi.errors import InvalidRequest, StorageUnavailable
from pyhudi.format.paths import file_name, split_path
from pyhudi.storage.environment import Environment


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file that exists.

    Attributes:
        path: Relative to the storage's root.
        size_bytes: Size in bytes.
        modified_ms: Modification time in epoch milliseconds, by the store's clock.
    """

    path: str
    size_bytes: int
    modified_ms: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return file_name(self.path)


@dataclass(frozen=True, slots=True)
class Listing:
    """The direct children of a folder, each tuple in ascending order of path.

    Attributes:
        files: Files of the folder.
        folders: Paths of subfolders, without a trailing '/'.
    """

    files: tuple[FileInfo, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """Picklable description of a storage, to open it in another thread, process or machine.

    Attributes:
        uri: URI of the root.
        options: Storage options.  They may hold credentials, so `repr` hides them.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class Storage(Protocol):
    """A folder tree.  The module's docstring lists the guarantees of every method."""

    @property
    def uri(self) -> str:
        """The root as Hudi writes it, in the scheme of the user's URI: `file:/data/t`, `s3a://bucket/t`."""
        ...

    @property
    def has_folders(self) -> bool:
        """True if folders are objects of their own: they can be empty, are listed, and must be created explicitly."""
        ...

    def spec(self) -> StorageSpec:
        """The value from which `open_storage` opens this storage on a worker. A memory:// storage opens only in the process."""
        ...

    def child(self, path: str) -> Storage:
        """The storage whose root is the folder `path`, which need not exist."""
        ...

    def absolute(self, path: str) -> str:
        """The URI of `path`, without percent-encoding, as Hadoop's Path prints it."""
        ...

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """The bytes from `offset`, at most `length`: fewer at the end of the file, none beyond it.

        Raises:
            TableState: No such file.
        """
        ...

    def stat(self, path: str) -> FileInfo | None:
        """Size and modification time of a file; None if `path` does not exist or is a folder."""
        ...

    def list(self, folder: str) -> Listing:
        """The direct children of `folder`; nothing if it does not exist."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """The names of the files in `list(folder)`, in the same order. Cheaper where sizes cost a call for each file."""
        ...

    def walk(self, folder: str) -> Iterator[FileInfo]:
        """All files below `folder`, in no particular order. Files created or deleted concurrently may be included or not."""
        ...

    def is_duplicate_symlink(self, folder: str, marker: str) -> bool:
        """Return True if `folder` is a symbolic link to data that is reachable without it.

        Its target is inside the root, contains the root, has an entry named `marker`, or is below a folder that has
        one. False if `folder` is not a link, and in stores without links.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a small document, replacing an existing one. Creates missing folders. The document is durable on return."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a small document atomically if the path does not exist.  Of concurrent calls exactly one returns True.

        Returns:
            True if the document was created; it is durable.  False if the path exists; it is unchanged.
        """
        ...

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        """Content of a file and the tag for `put_if_matches`; None if it does not exist. A tag identifies content, not a time."""
        ...

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        """Replace a file if its content still matches `tag` (compare-and-swap).

        Returns:
            The tag of the new content for the next replacement, never empty.  None if the tag does not match; nothing
            changed.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; missing ones are ignored.  Not atomic: after an error some may be deleted."""
        ...

    def delete_folder(self, path: str) -> None:
        """Delete a folder recursively ('' for the whole storage); a missing one is ignored.  Not atomic."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents.  No-op in stores without folders."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a seekable file for Arrow's readers; the caller closes it.

        Raises:
            TableState: No such file.
        """
        ...

    def open_output(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """Open a sink for Arrow's writers; memory is bounded where the store has files.

        The complete file appears when the `with` block ends without an error, and replaces an existing one. If the
        block raises, no file appears and the written data is discarded.
        """
        ...

    def set_modified(self, path: str, modified_ms: int) -> bool:
        """Set the modification time of a file.  Returns False, without a change, if the store does not allow it.

        Raises:
            TableState: No such file.
        """
        ...

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        """Delete orphaned temporary files of dead writers in `folder` itself.

        Temporary files of running processes on this machine are retained. Those of other machines are deleted if their
        last change is older than `before_ms`. Listings never include temporary files.

        Returns:
            The number of deleted files.  0 in object stores, where lifecycle rules of the bucket expire unfinished
            uploads.
        """
        ...


def check_path(path: str) -> str:
    """Return `path` if it obeys the rules of this module.

    Raises:
        InvalidRequest: The path is absolute, or has an empty, '.' or '..' part or a NUL character.
    """
    if path and any(part in ("", ".", "..") for part in split_path(path)):
        raise InvalidRequest(f"storage path {path!r} must be relative and have no empty, '.' or '..' part")
    if "\x00" in path:
        raise InvalidRequest(f"storage path {path!r} contains a NUL character")
    return path


def check_file_path(path: str) -> str:
    """Like `check_path`, and reject the root, which cannot be a file."""
    if not path:
        raise InvalidRequest("file path is empty: a path of a file is required")
    return check_path(path)


def check_range(path: str, offset: int, length: int) -> None:
    """Raise InvalidRequest unless offset and length are both at least 0."""
    if offset < 0 or length < 0:
        raise InvalidRequest(f"{path}: a range needs offset >= 0 and length >= 0, found {offset} and {length}")


def put_if_absent_confirmed(
    storage: Storage,
    path: str,
    data: bytes,
    environment: Environment,
    *,
    attempts: int = 4,
    pause_ms: int = 200,
    longest_ms: int = 60_000,
) -> bool:
    """`put_if_absent` of a unique document, retried until its outcome is known.

    Args:
        storage: Storage to write to.
        path: Path of the document.
        data: Unique to the caller (it contains an id or random bytes).  Only then does reading it back prove that the
            call succeeded.
        environment: Provides the sleep.
        attempts: Maximum number of attempts, at least 1.
        pause_ms: Pause in milliseconds before the second attempt; it doubles with each attempt.
        longest_ms: Time in milliseconds after which no attempt begins.

    Returns:
        True if the path contains `data`, False if it contains something else.

    Raises:
        StorageUnavailable: The store did not answer within `attempts` or `longest_ms`; the outcome is unknown.
    """
    begun_ms = environment.monotonic_ms()
    for attempt in range(1, attempts + 1):
        try:
            # The name may exist because of an earlier attempt of this call whose response was lost.
            return storage.put_if_absent(path, data) or storage.read(path) == data
        except StorageUnavailable:
            if attempt == attempts or environment.monotonic_ms() - begun_ms >= longest_ms:
                raise
        environment.sleep_ms(pause_ms << (attempt - 1))
    raise InvalidRequest(f"attempts must be at least 1, found {attempts}")
