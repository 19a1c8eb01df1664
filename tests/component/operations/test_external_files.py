"""Tables whose base files another table format wrote, as Apache XTable and Delta UniForm register them in commits."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.table.external_files import list_external_files
from tests.support.external_files import AT, COMMITS, FIRST, LATEST, OFF, SECOND, registered, time_of
from tests.support.rows import without_meta

READS: dict[str, Callable[[Table], pa.Table]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "without options": lambda table: Table(table.uri).scan().to_arrow(),
    "lookup": lambda table: table.lookup(pa.table({"id": pa.array([*range(9)], pa.int32())})).to_arrow(),
    "read optimized": lambda table: table.read_optimized().to_arrow(),
    "time travel": lambda table: table.scan(as_of="2099-01-01").to_arrow(),
    "dataset": lambda table: table.scan().to_dataset().to_table(),
    "duckdb": lambda table: table.scan().to_duckdb(duckdb.connect()).to_arrow_table(),
    "polars": lambda table: hp.scan_polars(table.uri, options=OFF).collect().to_arrow(),
    "sql": lambda table: without_meta(hp.sql("SELECT * FROM t", tables={"t": table})),
}


def days(read: pa.Table) -> dict[int, int]:
    rows = read.to_pylist()
    assert {row["at"].replace(tzinfo=None) for row in rows} <= {AT}
    assert all(row["day"].replace(day=1) == date(2026, 11, 1) for row in rows)
    found = {row["id"]: row["day"].day for row in rows}
    assert len(found) == len(rows), "each row once"
    return found


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("way", sorted(READS))
def test_snapshot_queries_read_the_files_of_commits(way: str, version: int, tmp_path: Path) -> None:
    table = registered(tmp_path, version, COMMITS)
    pq.write_table(pa.table({"id": [99]}), tmp_path / FIRST / "not-registered.parquet")
    assert days(READS[way](table)) == LATEST


@pytest.mark.parametrize("version", [6, 8])
def test_filters_counts_and_earlier_states(version: int, tmp_path: Path) -> None:
    table = registered(tmp_path, version, COMMITS)
    assert table.count() == 4 and table.count(filter="id > 3") == 2
    assert days(table.scan(filter="day = '2026-11-02'").to_arrow()) == {4: 2}
    assert days(table.scan(filter="id >= 2 AND day < '2026-11-02'").to_arrow()) == {2: 1, 5: 1}
    assert days(table.scan(as_of=time_of(0)).to_arrow()) == {1: 1, 2: 1, 3: 1}


def test_files_of_archived_commits(tmp_path: Path) -> None:
    commits = [{"add": {f"{SECOND}/{number}.parquet": [number]}, "action": "commit"} for number in range(6)]
    table = registered(tmp_path, 8, commits)
    assert days(table.scan().to_arrow()) == {number: 2 for number in range(6)}
    table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1})
    assert len(list((tmp_path / ".hoodie" / "timeline").glob("*.commit"))) < len(commits)
    assert days(Table(tmp_path, options=OFF).scan().to_arrow()) == {number: 2 for number in range(6)}


def test_files_that_archived_commits_replaced() -> None:
    def commit(number: int, added: str, *replaced: str) -> tuple[str, CommitMetadata]:
        stat = {"fileId": added, "path": f"p/{added}_{time_of(number)}_hudiext", "partitionPath": "p", "fileSizeInBytes": 7}
        text = json.dumps({"partitionToWriteStats": {"p": [stat]}, "partitionToReplaceFileIds": {"p": list(replaced)}})
        return time_of(number), CommitMetadata.decode(text.encode())

    listing = list_external_files("t", [commit(0, "a"), commit(1, "b", "a")], [commit(2, "c", "b")])
    expected = {f"p/b_{time_of(1)}_hudiext", f"p/c_{time_of(2)}_hudiext"}
    assert listing.partitions() == ("p",)
    assert {info.path for info in listing.files(["p"])["p"]} == expected, "states of active commits remain"
    assert [info.name for info in listing.group_files({"p": ["c"]})["p"]] == [f"c_{time_of(2)}_hudiext"]


@pytest.mark.parametrize("version", [6, 8])
def test_commits_without_files_are_an_empty_table(version: int, tmp_path: Path) -> None:
    table = registered(tmp_path, version, [{}])
    assert table.scan().to_arrow().num_rows == table.count() == 0


@pytest.mark.parametrize("version", [6, 8])
def test_lost_and_damaged_files_are_errors(version: int, tmp_path: Path) -> None:
    table = registered(tmp_path, version, COMMITS)
    file = tmp_path / FIRST / "2.parquet"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CorruptData, match=r"2\.parquet"):
        table.scan().to_arrow()
    file.unlink()
    for read in (lambda: table.scan().to_arrow(), table.count):
        with pytest.raises(TableState, match=r"2\.parquet"):
            read()


def test_metadata_tables_list_no_such_files(tmp_path: Path) -> None:
    registered(tmp_path, 8, COMMITS, ("hoodie.table.metadata.partitions=files",))
    with pytest.raises(Unsupported, match=r"only by snapshot queries with hoodie\.metadata\.enable=false"):
        Table(tmp_path).scan().to_arrow()
    assert days(Table(tmp_path, options=OFF).scan().to_arrow()) == LATEST


@pytest.mark.parametrize(
    ("commit", "message"),
    [
        ({"add": {f"{FIRST}/part_1.parquet": [3]}}, "again, a file of another table format that was replaced"),
        ({"add": {f"{FIRST}/a_fg%3Db.parquet": [3]}}, "not the name of such a file"),
    ],
)
def test_ambiguous_commits_are_refused(commit: dict[str, Any], message: str, tmp_path: Path) -> None:
    table = registered(tmp_path, 6, [*COMMITS, commit])
    with pytest.raises(Unsupported, match=message):
        table.scan().to_arrow()


def test_files_of_hudi_next_to_others_are_refused(tmp_path: Path) -> None:
    table = registered(tmp_path, 6, COMMITS)
    (newest,) = (tmp_path / ".hoodie").glob(f"{time_of(1)}.replacecommit")
    name = f"a-0_0-0-0_{time_of(1)}.parquet"
    newest.write_text(newest.read_text().replace(f"2.parquet_{time_of(1)}_hudiext", name))
    with pytest.raises(Unsupported, match="not the name of such a file"):
        table.scan().to_arrow()


ROW = pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([AT]), "day": pa.array([date(2026, 11, 1)])})
CHANGES: dict[str, Callable[[Table], object]] = {
    "insert": lambda table: table.insert(ROW),
    "upsert": lambda table: table.upsert(ROW),
    "overwrite": lambda table: table.insert_overwrite_table(ROW),
    "delete": lambda table: table.delete(where="id = 1"),
    "update": lambda table: table.update({"at": AT}, where="id = 1"),
    "merge": lambda table: table.merge(ROW, on="id").when_matched_update({"at": AT}).execute(),
    "delete partitions": lambda table: table.delete_partitions([FIRST]),
    "sql": lambda table: hp.sql("INSERT INTO t VALUES (1, now(), DATE '2026-11-01')", tables={"t": table}),
    "cluster": lambda table: table.cluster(),
    "savepoint": lambda table: table.savepoint(time_of(1)),
    "rollback": lambda table: table.rollback(time_of(1)),
    "restore": lambda table: table.restore(time_of(0)),
    "upgrade": lambda table: table.upgrade(to=9),
    "downgrade": lambda table: table.downgrade(to=6),
    "index": lambda table: table.index.create("column_stats"),
    "validate": lambda table: table.validate(),
    "files": lambda table: table.inspect.files(),
}


def completed(path: Path) -> list[Path]:
    """Completed instants and data files."""
    return sorted([*(path / ".hoodie" / "timeline").glob("*commit"), *path.glob("*/*.parquet")])


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_changes_are_refused(change: str, tmp_path: Path) -> None:
    table = registered(tmp_path, 8, COMMITS)
    before = completed(tmp_path)
    with pytest.raises(Unsupported, match="files of another table format"):
        CHANGES[change](table)
    assert days(table.scan().to_arrow()) == LATEST
    assert completed(tmp_path) == before


def test_other_versions_are_not_changed(tmp_path: Path) -> None:
    table = registered(tmp_path, 6, COMMITS)
    with pytest.raises(Unsupported, match="files of another table format"):
        table.upgrade()
    assert days(table.scan().to_arrow()) == LATEST
