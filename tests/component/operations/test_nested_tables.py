"""Partitions at any depth belong to a table; nested tables and symbolic links do not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Table
from pyhudi.features import procedures

QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def new_table(where: Path, *parts: str, table_type: str = "cow", first_id: int = 0) -> Table:
    """A table of two commits, one row in each partition, so that cleaning finds something."""
    table = Table.create(
        str(where), record_key="id", partition_by="part" if parts != ("",) else None, ordering="ts", table_type=table_type
    )
    ids = list(range(first_id, first_id + len(parts)))
    for ts in (1, 2):
        table.upsert(pa.table({"id": ids, "part": list(parts), "ts": [ts] * len(ids)}), options=QUIET)
    return table


def rows(table: Table) -> list[tuple[object, ...]]:
    read = Table(table.uri).scan(["id", "part", "ts"]).to_arrow()
    return sorted(zip(*(column.to_pylist() for column in read.columns), strict=True))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _every_commit_but_the_last(table: Table) -> None:
    table.clean(
        dry_run=False, options={"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    )


OPERATIONS: dict[str, Callable[[Table], object]] = {
    "repair": lambda table: table.repair(dry_run=False),
    "a procedure's repair": lambda table: procedures.call("repair_add_partition_meta", path=table.uri, dry_run=False),
    "a rebuilt metadata table": lambda table: table.index.rebuild(),
    "clean": _every_commit_but_the_last,
    "a write and its rollback": lambda table: (
        table.upsert(pa.table({"id": [0], "part": [PARTS[0]], "ts": [3]}), options=QUIET),
        table.rollback(table.timeline().completed_writes()[-1].request_time),
    ),
    "a lost metadata table": lambda table: table.drop_metadata_table(),
    "clean without a metadata table": _every_commit_but_the_last,
    "restore": lambda table: table.restore(table.timeline().completed_writes()[-1].request_time),
}
"""In this order: the first ones find a metadata table, the last ones directories alone."""

PARTS: tuple[str, ...] = ("p", "p/q", "p/q/r", "x/2020", "x")


def _other_table(tmp_path: Path, *parts: str) -> Path:
    return Path(new_table(tmp_path / "elsewhere" / "other", *parts, first_id=100).uri.removeprefix("file:"))


def _below(tmp_path: Path) -> Path:
    return Path(new_table(tmp_path / "t" / "below" / "other", "p", first_id=100).uri.removeprefix("file:"))


def _below_without_partitions(tmp_path: Path) -> Path:
    return Path(new_table(tmp_path / "t" / "other", "", first_id=100).uri.removeprefix("file:"))


def _in_a_partition(tmp_path: Path) -> Path:
    return Path(new_table(tmp_path / "t" / "p" / "other", "p", first_id=100).uri.removeprefix("file:"))


def _linked_table(tmp_path: Path) -> Path:
    other = _other_table(tmp_path, "p")
    (tmp_path / "t").mkdir(exist_ok=True)
    os.symlink(other, tmp_path / "t" / "link")
    return other


def _behind_a_link_above_it(tmp_path: Path) -> Path:
    other = _other_table(tmp_path, "p")
    (tmp_path / "t").mkdir(exist_ok=True)
    os.symlink(other.parent, tmp_path / "t" / "link")
    return other


def _behind_a_link_into_it(tmp_path: Path) -> Path:
    other = _other_table(tmp_path, "p")
    (tmp_path / "t").mkdir(exist_ok=True)
    os.symlink(other / "p", tmp_path / "t" / "link")
    return other


PLACES = [
    _below,
    _below_without_partitions,
    _in_a_partition,
    _linked_table,
    _behind_a_link_above_it,
    _behind_a_link_into_it,
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("place", "older"),
    [
        # Which of the two was there first: once below the table, once behind a link.
        pytest.param(
            place,
            older,
            id=f"{place.__name__.strip('_').replace('_', ' ')}-{'made before' if older else 'made later'}",
            marks=pytest.mark.wide if older and place not in (_in_a_partition, _linked_table) else (),
        )
        for place in PLACES
        for older in (False, True)
    ],
)
def test_another_table_is_neither_touched_nor_counted(tmp_path: Path, place: Callable[[Path], Path], older: bool) -> None:
    other = place(tmp_path) if older else None
    table = new_table(tmp_path / "t", "p", "q")
    other = other or place(tmp_path)
    before, theirs = rows(table), content(other)
    for name, operation in OPERATIONS.items():
        operation(table)
        assert content(other) == theirs, name
        assert rows(table) == before, name
        assert Table(table.uri).validate().ok, name
        assert table.repair(dry_run=True).steps == (), name


@pytest.mark.parametrize("target", ["p", ".", ".."])
def test_a_link_back_into_the_table_shows_nothing_twice(tmp_path: Path, target: str) -> None:
    table = new_table(tmp_path / "t", "p", "q")
    before = rows(table)
    os.symlink(Path("..") / target if target != "p" else "p", tmp_path / "t" / ("link" if target == "p" else "q/link"))
    table.drop_metadata_table()
    assert rows(table) == before
    assert table.repair(dry_run=True).steps == ()


def test_a_partition_that_was_moved_elsewhere_and_linked_is_read(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "p", "q")
    before = rows(table)
    (tmp_path / "t" / "p").rename(tmp_path / "moved")
    os.symlink(tmp_path / "moved", tmp_path / "t" / "p")
    table.drop_metadata_table()
    assert rows(table) == before


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_partitions_below_partitions_keep_their_rows(tmp_path: Path, table_type: str) -> None:
    table = new_table(tmp_path / "t", *PARTS, table_type=table_type)
    before = rows(table)
    assert len(before) == 5
    for name, operation in OPERATIONS.items():
        operation(table)
        assert rows(table) == before, name
        assert table.partitions() == tuple(sorted(PARTS)), name
        assert Table(table.uri).validate().ok, name
        assert table.repair(dry_run=True).steps == (), name


def test_emptied_parent_partition_keeps_nested_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "a", "a/b", "x/2020")
    table.delete_partitions("a", options=QUIET)
    _every_commit_but_the_last(table)
    assert [row[0] for row in rows(table)] == [1, 2]
    table.drop_metadata_table()
    assert [row[0] for row in rows(table)] == [1, 2]
    _every_commit_but_the_last(table)
    assert [row[0] for row in rows(table)] == [1, 2]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("parts", "taken"), [(("p",), "other"), (("p",), "other/p"), (("",), "other"), (("p",), "other/new")])
def test_no_partition_is_made_in_the_folder_of_another_table(tmp_path: Path, parts: tuple[str, ...], taken: str) -> None:
    table = new_table(tmp_path / "t", "p", "q")
    other = tmp_path / "t" / "other"
    new_table(other, *parts, first_id=100)
    before, theirs = rows(table), content(other)
    moved = pa.table({"id": [0, 7], "part": ["p", taken], "ts": [9, 9]})
    for write in (table.insert, table.bulk_insert, table.upsert, table.insert_overwrite):
        with pytest.raises(InvalidRequest, match="another Hudi table"):
            write(moved)
        assert content(other) == theirs and rows(table) == before
        assert not table.timeline().pending()
