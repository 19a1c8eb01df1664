from __future__ import annotations

import itertools

import pytest

from pyhudi.storage import Storage, open_storage
from pyhudi.storage.base import Listing
from pyhudi.table.listing import DirectoryListing

META = ".hoodie_partition_metadata"
_names = itertools.count()


class Counting:
    """Counts the listings of each folder."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.listed: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def list(self, folder: str) -> Listing:
        self.listed.append(folder)
        return self._inner.list(folder)


def table(*paths: str) -> Counting:
    storage = open_storage(f"memory://listing-{next(_names)}")
    for path in (".hoodie/hoodie.properties", ".hoodie/timeline/001.inflight", *paths):
        storage.put(path, b"")
    return Counting(storage)


def test_a_partition_is_a_folder_with_partition_metadata() -> None:
    storage = table(
        f"a/{META}",
        "a/f1",
        "a/below/f2",
        f"a/below/deeper/{META}",
        f"b/c/{META}.parquet",
        "b/c/f3",
        "other/f4",
        f".hidden/{META}",
        f"d/.hoodie/x/{META}",
    )
    listing = DirectoryListing(storage)  # type: ignore[arg-type]
    assert listing.partitions() == (".hidden", "a", "a/below/deeper", "b/c")
    found = listing.files(["a", "b/c", "nowhere"])
    assert {p: [info.name for info in files] for p, files in found.items()} == {
        "a": [META, "f1"],
        "b/c": [f"{META}.parquet", "f3"],
        "nowhere": [],
    }
    assert found["a"][1].path == "a/f1"
    # What was listed is remembered.
    assert sorted(storage.listed) == ["", ".hidden", "a", "a/below", "a/below/deeper", "b", "b/c", "d", "nowhere", "other"]


def test_a_table_without_partitions() -> None:
    assert DirectoryListing(table()).partitions() == ()  # type: ignore[arg-type]
    storage = table(META, "f1", "a/f2")
    assert DirectoryListing(storage).partitions() == ("",)  # type: ignore[arg-type]
    assert [info.name for info in DirectoryListing(storage).files([""])[""]] == [META, "f1"]  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [["a"], ["a", "b", "a"]])
def test_only_requested_partitions_are_listed(asked: list[str]) -> None:
    storage = table(f"a/{META}", f"b/{META}", f"c/{META}")
    assert list(DirectoryListing(storage).files(asked)) == list(dict.fromkeys(asked))  # type: ignore[arg-type]
    assert sorted(storage.listed) == sorted(set(asked))


def test_the_files_of_some_groups() -> None:
    storage = table(f"a/{META}", "a/g1_0-0-0_001.parquet", "a/.g1_002.log.1_0-0-0", "a/g2_0-0-0_001.parquet")
    found = DirectoryListing(storage).group_files({"a": {"g1"}})  # type: ignore[arg-type]
    assert [info.name for info in found["a"]] == [".g1_002.log.1_0-0-0", "g1_0-0-0_001.parquet"]
