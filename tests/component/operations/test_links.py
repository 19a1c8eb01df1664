"""Symbolic links inside a table: reads follow them, changes do not leave the table's folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import pyhudi as hp
from pyhudi.errors import HudiError, InvalidRequest, StorageUnavailable, TableState
from pyhudi.storage.local import LocalStorage

Content = dict[str, bytes]


def content(folder: Path) -> Content:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def linked(tmp_path: Path, folder: str, **options: str) -> tuple[hp.Table, Path]:
    """A table of which one folder is a link to a folder outside of it, and that folder."""
    table = hp.Table.create(
        tmp_path / "t", record_key="id", partition_by="c", options={"hoodie.clean.commits.retained": 1, **options}
    )
    for number in range(3):
        table.upsert([{"id": "1", "c": "a", "v": number}, {"id": "2", "c": "b", "v": number}])
    outside = tmp_path / "outside"
    (tmp_path / "t" / folder).rename(outside)
    os.symlink(outside, tmp_path / "t" / folder)
    (outside / "private.txt").write_text("private")
    return hp.Table(table.uri), outside


CHANGES: dict[str, Callable[[hp.Table], object]] = {
    "upsert": lambda table: table.upsert([{"id": "1", "c": "a", "v": 9}]),
    "insert overwrite": lambda table: table.insert_overwrite([{"id": "7", "c": "a", "v": 9}]),
    "delete": lambda table: table.delete(where="c = 'a'"),
    "clean": lambda table: table.clean(),
    "restore": lambda table: table.restore(table.timeline().instants[2].request_time),
    "drop metadata table": lambda table: table.drop_metadata_table(),
    "repair": lambda table: table.repair(),
}


@pytest.mark.parametrize("folder", ["a", ".hoodie/metadata", ".hoodie/timeline", ".hoodie"])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_do_not_leave_the_table_through_a_link(tmp_path: Path, folder: str, change: str) -> None:
    table, outside = linked(tmp_path, folder)
    before = content(outside)
    assert sorted(row["v"] for row in table.scan().to_arrow().to_pylist()) == [2, 2]
    try:
        CHANGES[change](table)
    except HudiError as error:
        assert folder == "a" or "link_roots" in str(error)
    assert content(outside) == before


@pytest.mark.parametrize("folder", ["a", ".hoodie/metadata", ".hoodie/timeline", ".hoodie"])
def test_drop_removes_links_and_not_their_targets(tmp_path: Path, folder: str) -> None:
    table, outside = linked(tmp_path, folder)
    before = content(outside)
    try:
        table.drop()
    except InvalidRequest as error:
        assert folder == ".hoodie" and "link_roots" in str(error)
    else:
        assert not (tmp_path / "t").exists()
    assert content(outside) == before


def test_link_roots_admit_a_linked_partition(tmp_path: Path) -> None:
    table, outside = linked(tmp_path, "a")
    with pytest.raises(InvalidRequest, match=r"cannot change .*symbolic link that leads out of .*link_roots="):
        table.upsert([{"id": "1", "c": "a", "v": 9}])
    allowed = hp.Table(table.uri, storage_options={"link_roots": str(tmp_path)})
    allowed.upsert([{"id": "1", "c": "a", "v": 9}])
    allowed.clean()
    assert sorted(row["v"] for row in allowed.scan().to_arrow().to_pylist()) == [2, 9]
    assert (outside / "private.txt").exists()
    for roots in ("", str(tmp_path / "t" / "b")):
        with pytest.raises(InvalidRequest, match="cannot read"):
            hp.Table(table.uri, storage_options={"link_roots": roots}).scan().to_arrow()
    with pytest.raises(InvalidRequest, match="'x' is not an absolute path"):
        hp.Table(table.uri, storage_options={"link_roots": "x"})


def test_drop_that_failed_half_way_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", partition_by="c")
    table.upsert([{"id": "1", "c": "a"}, {"id": "2", "c": "b"}])
    delete_folder = LocalStorage.delete_folder

    def fail(storage: LocalStorage, path: str) -> None:
        if path == "b":
            raise StorageUnavailable("the store did not answer")
        delete_folder(storage, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete_folder", fail)
        with pytest.raises(StorageUnavailable) as caught:
            table.drop()
    assert "has no rows left, but some of its files exist: drop it again" in caught.value.__notes__[0]
    with pytest.raises(TableState, match="has no commit yet"):
        hp.Table(table.uri).count()
    hp.Table(table.uri).drop()
    assert not hp.Table.exists(table.uri)
    assert not (tmp_path / "t").exists()
