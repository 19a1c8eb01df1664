"""What every kind of storage has that is a folder, or a prefix, below a URI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from pyhudi.storage.base import FileInfo, Listing, check_path
from pyhudi.storage.uris import Location

_LISTINGS_AT_ONCE = 8


class Located:
    """Names of a storage and of what lies in it.  location: of the storage."""

    __slots__ = ("_location",)

    def __init__(self, location: Location) -> None:
        self._location = location

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def uri(self) -> str:
        return self._location.uri

    def absolute(self, path: str) -> str:
        return self._location.child(check_path(path)).uri


def files_below(folder: str, list_folder: Callable[[str], Listing]) -> Iterator[FileInfo]:
    """Every file below a folder, level by level, where each listing is a request: several are under way at once."""
    level: tuple[str, ...] = (check_path(folder),)
    with ThreadPoolExecutor(_LISTINGS_AT_ONCE, "pyhudi-list") as pool:
        while level:
            listings = list(pool.map(list_folder, level))
            for listing in listings:
                yield from listing.files
            level = tuple(path for listing in listings for path in listing.folders)
