"""List the partitions of a table and their files.

`FileListing` is the interface. `DirectoryListing` implements it by listing directories, `MetadataListing` (in
`metadata_table.reader.metadata_listing`) by reading the metadata table.

A table's tree is its folder with everything below, except `.hoodie` and nested tables: a folder with a `.hoodie` of its
own is another table, including all files below it.  Partitions exist at any depth, also nested in one another.

Source: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from pyhudi.errors import InvalidRequest
from pyhudi.format.paths import META_FOLDER, PARTITION_METADATA_FILE, PROPERTIES_FILE, file_name, join_path, split_path
from pyhudi.storage.base import FileInfo, Listing, Storage
from pyhudi.storage.thread_pool import in_threads


class FileListing(Protocol):
    """Partitions and files of a table snapshot."""

    def partitions(self) -> tuple[str, ...]:
        """Return all partition paths, sorted; ('',) for an unpartitioned table that holds data."""
        ...

    def files(self, partitions: Iterable[str]) -> dict[str, tuple[FileInfo, ...]]:
        """Return the files of each requested partition; an unknown partition has none. Paths are relative to the table."""
        ...

    def group_files(self, groups: Mapping[str, Collection[str]]) -> dict[str, tuple[FileInfo, ...]]:
        """As `files`, limited to the given file groups: partition -> file ids."""
        ...


class DirectoryListing:
    """List directories of the storage.  A folder with a partition metadata file is a partition."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, tuple[FileInfo, ...]] = {}
        self._partitions: tuple[str, ...] | None = None

    def partitions(self) -> tuple[str, ...]:
        """Return all partition paths, sorted.  Lists each folder of the table once, several in parallel."""
        if self._partitions is None:
            files = {folder: listing.files for folder, listing in table_folders(self._storage) if _is_partition(listing)}
            self._known.update(files)
            self._partitions = tuple(sorted(files))
        return self._partitions

    def files(self, partitions: Iterable[str]) -> dict[str, tuple[FileInfo, ...]]:
        """Return the files of each partition; folders already listed are not listed again."""
        wanted = list(dict.fromkeys(partitions))
        missing = [partition for partition in wanted if partition not in self._known]
        for partition, listing in zip(missing, in_threads(self._storage.list, missing), strict=True):
            self._known[partition] = listing.files
        return {partition: self._known[partition] for partition in wanted}

    def group_files(self, groups: Mapping[str, Collection[str]]) -> dict[str, tuple[FileInfo, ...]]:
        """As `files`, without files whose name begins with another file id."""
        files = self.files(groups)
        return {
            partition: tuple(info for info in files[partition] if info.name.lstrip(".").partition("_")[0] in ids)
            for partition, ids in groups.items()
        }


def table_folders(storage: Storage) -> Iterator[tuple[str, Listing]]:
    """Yield every folder of a table's tree with its entries, parents first; several are listed in parallel.

    A symbolic link is followed unless its target is already part of this table or another one: such files belong to
    that location, and must be neither counted twice nor changed through the link.
    """

    def look(folder: str) -> Listing | None:
        if folder and storage.is_duplicate_symlink(folder, META_FOLDER):
            return None
        listing = storage.list(folder)
        return None if folder and join_path(folder, META_FOLDER) in listing.folders else listing

    level = [""]
    while level:
        below: list[str] = []
        for folder, listing in zip(level, in_threads(look, level), strict=True):
            if listing is not None:
                yield folder, listing
                below.extend(path for path in listing.folders if file_name(path) != META_FOLDER)
        level = below


def check_no_nested_table(storage: Storage, partitions: Iterable[str]) -> None:
    """Raise InvalidRequest if a partition would be located in the folder of another table."""
    folders = sorted({"/".join(parts[: n + 1]) for parts in map(split_path, partitions) for n in range(len(parts))})
    marks = in_threads(lambda folder: storage.stat(join_path(folder, PROPERTIES_FILE)), folders)
    for folder, mark in zip(folders, marks, strict=True):
        if mark is not None:
            raise InvalidRequest(
                f"rows of partition {folder!r} would lie in {storage.absolute(folder)}, the folder of another Hudi table: "
                "move that table, or leave these rows out"
            )


def _is_partition(listing: Listing) -> bool:
    return any(file_name(info.path).startswith(PARTITION_METADATA_FILE) for info in listing.files)
