"""Committed files that are missing or have another size: no rebuild hides them; a repair accepts their loss on request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app
from pyhudi.errors import CorruptData, HudiError, TableState
from pyhudi.format.actions.commit_metadata import LOST_FILES_KEY
from pyhudi.table.snapshot import read_commit

WITHOUT_SERVICES: dict[str, Any] = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}
KEYS = [f"k{number}" for number in range(10)]


def rows(ts: int) -> pa.Table:
    return pa.table({"id": KEYS, "p": [f"p{number % 2}" for number in range(10)], "ts": [ts] * 10})


def create(path: Path, kind: str, **options: object) -> hp.Table:
    given = WITHOUT_SERVICES | {"hoodie.metadata.record.index.enable": True} | options
    table = hp.Table.create(path, record_key="id", partition_by="p", ordering="ts", table_type=kind, options=given)
    table = hp.Table(path, options=given)
    table.upsert(rows(1))
    table.upsert(rows(2))
    return table


def newest_file(path: Path) -> Path:
    """The file of partition p0 with the newest rows: a log file in merge on read."""
    files = [file for file in (path / "p0").iterdir() if file.suffix == ".parquet" or ".log." in file.name]
    return max(files, key=lambda file: file.stat().st_mtime_ns)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _extend(file: Path) -> None:
    file.write_bytes(file.read_bytes() + bytes(100))


DAMAGES: dict[str, Callable[[Path], None]] = {"missing": Path.unlink, "empty": _empty, "shorter": _cut, "longer": _extend}

REBUILDS: dict[str, Callable[[hp.Table], object]] = {
    "repair": lambda table: table.repair(),
    "repair of the metadata table": lambda table: table.repair(["metadata-table"]),
    "rebuild": lambda table: table.index.rebuild(),
    "rebuild of one index": lambda table: table.index.rebuild("record_index"),
    "new index": lambda table: table.index.create("bloom_filters"),
    "new index during writes": lambda table: table.index.run(table.index.schedule("bloom_filters")),
    "drop": lambda table: table.drop_metadata_table(),
    "write without metadata table": lambda table: table.upsert(
        pa.table({"id": ["new"], "p": ["p1"], "ts": [1]}), options={"hoodie.metadata.enable": False}
    ),
}


def read(path: Path) -> object:
    """The rows of all keys, or the kind of the error."""
    try:
        return sorted(hp.Table(path).scan().to_arrow()["ts"].to_pylist())
    except HudiError as error:
        return type(error)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_no_rebuild_hides_a_lost_file(tmp_path: Path, kind: str, damage: Callable[[Path], None]) -> None:
    create(tmp_path / "t", kind)
    lost = newest_file(tmp_path / "t")
    damage(lost)
    assert hp.Table(tmp_path / "t").repair(["lost-files"], dry_run=True).steps[0].path == f"p0/{lost.name}"
    for rebuild in REBUILDS.values():
        with pytest.raises(CorruptData, match=r"(?s)missing or damaged \(1, 5 rows.*accept_loss=True.*--accept-loss") as error:
            rebuild(hp.Table(tmp_path / "t"))
        assert lost.name in str(error.value)
        # A reader that knows the recorded size of a log file ignores what follows.
        assert read(tmp_path / "t") in (CorruptData, TableState, [2] * 10)
    assert any("accept_loss" in remedy for remedy in hp.Table(tmp_path / "t").validate().remedies)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_repair_accepts_a_loss_on_request_and_records_it(tmp_path: Path, kind: str, damage: Callable[[Path], None]) -> None:
    table = create(tmp_path / "t", kind)
    indexes = hp.Table(tmp_path / "t").config.metadata_partitions
    lost = newest_file(tmp_path / "t")
    damage(lost)
    result = hp.Table(tmp_path / "t").repair(accept_loss=True)
    assert [(step.kind.value, step.path, "5 rows" in step.finding) for step in result.steps] == [
        ("lost-files", f"p0/{lost.name}", True)
    ]
    # Partition p0 has its previous rows.
    assert read(tmp_path / "t") == [1] * 5 + [2] * 5 and not lost.exists()
    table = hp.Table(tmp_path / "t")
    assert table.config.metadata_partitions == indexes
    assert table.validate(keys=True).ok and table.repair().steps == ()
    newest = table.timeline().completed_writes()[-1]
    extra = read_commit(table.context.timeline, newest).extra_metadata
    (recorded,) = json.loads(extra[LOST_FILES_KEY]).items()
    assert recorded[0] == f"p0/{lost.name}" and recorded[1]["rows"] == 5
    table.upsert(rows(3))
    assert read(tmp_path / "t") == [3] * 10


def test_a_lost_folder_is_listed_by_the_command_line(tmp_path: Path) -> None:
    create(tmp_path / "t", "cow")
    shutil.rmtree(tmp_path / "t" / "p0")
    call = CliRunner().invoke
    assert call(app, ["repair", str(tmp_path / "t")]).exit_code == 4
    refused = call(app, ["repair", str(tmp_path / "t"), "--yes"])
    assert "5 rows" in str(refused.exception)
    assert read(tmp_path / "t") is TableState
    accepted = call(app, ["repair", str(tmp_path / "t"), "--yes", "--accept-loss"])
    assert accepted.exit_code == 0 and "p0" in accepted.output
    assert read(tmp_path / "t") == [2] * 5


def test_lost_files_of_archived_commits_are_found_without_a_metadata_table(tmp_path: Path) -> None:
    keeps = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table = create(tmp_path / "t", "cow", **keeps)
    lost = newest_file(tmp_path / "t")
    for number in range(6):
        table.upsert(pa.table({"id": ["k1"], "p": ["p1"], "ts": [number + 3]}))
    table.archive()
    assert lost.stem.rsplit("_", 1)[1] not in {i.request_time for i in hp.Table(tmp_path / "t").timeline().instants}
    lost.unlink()
    for file in (tmp_path / "t" / ".hoodie" / "metadata" / "files").glob("*.hfile"):
        file.write_bytes(b"")
    with pytest.raises(CorruptData, match=r"(?s)missing or damaged \(1, 5 rows"):
        hp.Table(tmp_path / "t").repair()


def test_files_in_a_folder_without_partition_metadata_are_no_loss(tmp_path: Path) -> None:
    create(tmp_path / "t", "cow")
    (tmp_path / "t" / "p0" / ".hoodie_partition_metadata").unlink()
    with pytest.raises(TableState, match=r"Table\.repair\(\['partition-metadata'\]\)"):
        hp.Table(tmp_path / "t").index.rebuild()
    assert [step.kind.value for step in hp.Table(tmp_path / "t").repair().steps] == ["partition-metadata"]
    assert read(tmp_path / "t") == [2] * 10


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_whose_files_are_all_lost_reads_as_empty_once_that_is_accepted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = create(path, kind)
    for partition in ("p0", "p1"):
        shutil.rmtree(path / partition)
    assert read(path) is TableState
    table.repair(accept_loss=True)
    assert read(path) == []
    hp.Table(path).upsert(rows(3))
    assert read(path) == [3] * 10 and hp.Table(path).validate().ok


def test_duplicate_keys_are_reported_as_unchecked_if_a_file_is_damaged(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "cow")
    _empty(newest_file(tmp_path / "t"))
    result = table.validate(keys=True)
    assert [(found.severity, found.path) for found in result.findings if found.check == "keys"] == [("unchecked", "")]


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_replaced_files_that_a_clean_deleted_and_that_are_back(tmp_path: Path, kind: str, metadata: bool) -> None:
    """The replacing commit and the clean are archived, so a listing of directories has the replaced rows again."""
    path = tmp_path / "t"
    options = {
        "hoodie.metadata.enable": metadata,
        "hoodie.clean.commits.retained": 1,
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
    }
    table = hp.Table.create(path, record_key="id", ordering="ts", table_type=kind, options=options)
    table.upsert([{"id": "a", "ts": 1}, {"id": "b", "ts": 1}])
    replaced = {file: file.read_bytes() for file in path.glob("*.parquet")}
    table.insert_overwrite([{"id": "a", "ts": 2}])
    for ts in range(3, 12):
        table.upsert([{"id": "a", "ts": ts}])
    assert not any(file.exists() for file in replaced)
    for file, data in replaced.items():
        file.write_bytes(data)

    table = hp.Table(path, options=options)
    result = table.validate()
    assert not result.ok and any("deleted files that are back" in remedy for remedy in result.remedies)
    if metadata:
        for rebuild in (lambda: table.index.rebuild(), lambda: table.drop_metadata_table()):
            with pytest.raises(TableState, match=r"Table.repair\(\['orphans'\]\) deletes them"):
                rebuild()
    table.repair()
    for listed in (True, False):
        assert hp.Table(path, options={"hoodie.metadata.enable": listed}).scan().to_arrow()["ts"].to_pylist() == [11]
    assert hp.Table(path).validate().ok
