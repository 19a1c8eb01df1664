"""Files that a query counts and that are not there any more: the error that says what to do."""

from __future__ import annotations

from collections.abc import Callable

from pyhudi.errors import TableState
from pyhudi.storage.base import Storage


def gone(storage: Storage, path: str) -> TableState:
    """The error of a file that is not there."""
    return TableState(
        f"{storage.absolute(path)} is gone: where a clean removed it since this query began, run the query again, and let cleans "
        "keep what queries take that long (hoodie.clean.commits.retained, or a savepoint); else `Table.validate()` says what is "
        "missing, and a rollback or a restore goes back to files that are there"
    )


def ranges_of(storage: Storage, path: str) -> Callable[[int, int], bytes]:
    """`read_range` of a file.  Raises `gone` where it is."""

    def read(offset: int, length: int) -> bytes:
        try:
            return storage.read_range(path, offset, length)
        except TableState as error:
            raise gone(storage, path) from error

    return read
