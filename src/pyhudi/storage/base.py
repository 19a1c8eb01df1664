"""The one door to files: what every storage promises, and the values that pass through it.

A `Storage` is a folder (its root) on a local disk, in memory or in an object store.  Every path is relative to that root,
written with '/', without a leading or trailing '/', without empty, '.' or '..' parts; '' is the root itself.  Paths that a
storage returns (`FileInfo.path`, `Listing.folders`) are relative to the same root, never to the folder that was listed.

What all of them promise, and `tests/conformance/storage_suite.py` checks:

1. A reader sees the old content of a file or the new one, whole, never a part (`put`, `put_if_absent`, `put_if_matches`,
   `open_output`).  The exceptions, and how they are told, stand with the implementations.
2. What one call has written, the next call of any process reads and lists.
3. Absence is a value: `read`, `stat` and `read_versioned` give None, `list` and `walk` give nothing, `delete` goes on.
4. Errors are those of `pyhudi.errors`: InvalidRequest for a path, option or permission that the caller must change,
   TableState for a file that must exist and does not, StorageUnavailable for a store that did not answer.  After
   StorageUnavailable from a writing call the effect may have happened all the same: look before the step is repeated.
   WriteConflict from a writing call says that a sweep deleted its temporary file, and that nothing was stored.
5. Every method may be called from several threads at once.  What `open_input` and `open_output` give belongs to one.

What this does not do: no caching, no retries beyond those of the store's own client, no knowledge of Hudi's files.
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
    """A file that exists.  path: relative to the storage's root; modified_ms: epoch milliseconds by the store's clock."""

    path: str
    size_bytes: int
    modified_ms: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return file_name(self.path)


@dataclass(frozen=True, slots=True)
class Listing:
    """The direct children of a folder, each tuple in ascending order of path.  folders: paths without a trailing '/'."""

    files: tuple[FileInfo, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """How to open a storage again, in another thread, process or machine.  Plain and picklable.

    options may hold credentials, so their values stay out of `repr`.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class Storage(Protocol):
    """A folder tree.  The module's head says what holds for every method; here stands what each adds."""

    @property
    def uri(self) -> str:
        """The root as real Hudi writes it, in the scheme that the user gave: `file:/data/t`, `s3a://bucket/t`."""
        ...

    @property
    def has_folders(self) -> bool:
        """True when an empty folder exists, is listed, and has to be made by somebody."""
        ...

    def spec(self) -> StorageSpec:
        """The value from which `open_storage` opens this storage on a worker.  memory:// only within the process."""
        ...

    def child(self, path: str) -> Storage:
        """The storage whose root is the folder `path`, which need not exist."""
        ...

    def absolute(self, path: str) -> str:
        """The URI of `path`, without percent-encoding, as Hadoop's Path prints it."""
        ...

    def read(self, path: str) -> bytes | None:
        """The whole file; None when there is none."""
        ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """The bytes from `offset`, at most `length` of them: fewer at the file's end, none beyond it.

        Raises TableState when there is no such file.
        """
        ...

    def stat(self, path: str) -> FileInfo | None:
        """The file's size and time; None when there is no file of that path (a folder is none)."""
        ...

    def list(self, folder: str) -> Listing:
        """The direct children of `folder`; nothing when it does not exist."""
        ...

    def walk(self, folder: str) -> Iterator[FileInfo]:
        """All files below `folder`, in no promised order.  A file that comes or goes meanwhile may be given or not."""
        ...

    def is_duplicate_symlink(self, folder: str, marker: str) -> bool:
        """Whether `folder` is a symbolic link to what has a place without it: something inside the root or around it, or a folder
        that has an entry named `marker` or lies below one that has.  False for whatever is not a link, and where there are none.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a small document, replacing what is there.  Missing folders are made.  On return it is durable."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a small document if nothing has that path; of many at once exactly one gets True.

        False: the path exists and is unchanged.  On True the document is durable.
        """
        ...

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        """The whole file and a tag for `put_if_matches`; None when there is none.  A tag names content, not a moment."""
        ...

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        """Replace a file if it still has the content that `tag` was given for; None, and no change, when not.

        Returns the tag of what was written, for the next replacement; it is never empty.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files; one that is absent is not an error.  Not atomic: after an error some may be gone."""
        ...

    def delete_folder(self, path: str) -> None:
        """Remove a folder with everything below it ('' for the whole storage); an absent one is not an error.  Not atomic."""
        ...

    def make_folder(self, path: str) -> None:
        """Make a folder with its parents, where folders exist; otherwise nothing happens."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """A seekable file for Arrow's readers; close it.  Raises TableState when there is no such file."""
        ...

    def open_output(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """A sink for Arrow's writers, in bounded memory where the store has files.

        The file appears, whole, when the `with` block ends cleanly, and replaces what has the path.  When the block
        raises, nothing appears and what was written is dropped.
        """
        ...

    def set_modified(self, path: str, modified_ms: int) -> bool:
        """Give a file another modification time; False where the store decides that by itself, and nothing changes.

        Raises TableState when there is no such file.
        """
        ...

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        """Remove what dead writers left in `folder` itself; returns how many files that was.

        A process of this machine is asked whether it runs, and what it writes stays while it does.  Of other machines only the
        age tells: their files go when they were last changed before `before_ms`.

        Such leftovers are never listed.  Object stores keep them as unfinished uploads, for which buckets have lifecycle
        rules: there the answer is 0.
        """
        ...


def check_path(path: str) -> str:
    """The path itself, when it obeys the rules of this module; InvalidRequest otherwise."""
    if path and any(part in ("", ".", "..") for part in split_path(path)):
        raise InvalidRequest(f"storage path {path!r} must be relative and have no empty, '.' or '..' part")
    if "\x00" in path:
        raise InvalidRequest(f"storage path {path!r} holds a NUL character")
    return path


def check_file_path(path: str) -> str:
    """As `check_path`, and not the root, which cannot be a file."""
    if not path:
        raise InvalidRequest("a file path is asked for, found ''")
    return check_path(path)


def check_range(path: str, offset: int, length: int) -> None:
    """Raise InvalidRequest unless offset and length are both at least 0."""
    if offset < 0 or length < 0:
        raise InvalidRequest(f"{path}: a range needs offset >= 0 and length >= 0, found {offset} and {length}")


def put_if_absent_confirmed(
    storage: Storage, path: str, data: bytes, environment: Environment, *, attempts: int = 4, pause_ms: int = 200
) -> bool:
    """`put_if_absent` for a document that no other writer could have written, settled when an answer is lost.

    data must be unique to the caller (an id or random bytes in it): only then does finding it prove that the call landed.
    pause_ms: before the second attempt, doubling from then on.
    Returns True when the path holds `data`, False when it holds something else.
    Raises StorageUnavailable when after `attempts` (1 or more) the store still has not said: then nothing is known.
    """
    for attempt in range(1, attempts + 1):
        try:
            # A name that is taken may have been taken for us, by an attempt whose answer was lost.
            return storage.put_if_absent(path, data) or storage.read(path) == data
        except StorageUnavailable:
            if attempt == attempts:
                raise
        environment.sleep_ms(pause_ms << (attempt - 1))
    raise InvalidRequest(f"attempts must be at least 1, found {attempts}")
