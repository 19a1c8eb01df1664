"""A deleted timeline is rebuilt from file names; every table type reads, writes and validates afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import CorruptData, TableState
from pyhudi.format.instants import Action
from pyhudi.format.paths import REBUILD_MARKER_FILE
from pyhudi.format.schema_history import decode_schema_history, encode_schema_history
from pyhudi.storage.memory import forget_memory

_names = itertools.count()
QUIET = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False}


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"remake-{next(_names)}"
    yield f"memory://{name}"
    forget_memory(name)


def create(uri: str, kind: str = "cow", /, **options: Any) -> hp.Table:
    merged = {**QUIET, **options}
    return hp.Table.create(uri, record_key="id", partition_by="part", ordering="ts", table_type=kind, options=merged)


def rows(*keys: int, ts: int = 1, **more: object) -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{key}", "part": "ab"[key % 2], "ts": ts, **more} for key in keys])


def found(table: hp.Table) -> list[dict[str, object]]:
    return sorted(hp.Table(table.uri).scan().to_arrow().to_pylist(), key=lambda row: str(row["id"]))


def lose_timeline(table: hp.Table, *, mirror: bool = True) -> None:
    """Delete the folder, as a user would. mirror: the metadata table remains, from which much can be inferred."""
    if not mirror:
        table.drop_metadata_table()
    storage = table.context.storage
    storage.delete_folder(".hoodie/timeline")


def check_repaired(table: hp.Table, before: list[dict[str, object]]) -> hp.Table:
    """A dry run reports and changes nothing; the repair does what it reported; then nothing is found, and writes succeed."""
    storage = table.context.storage
    listed = sorted(info.path for info in storage.walk(""))
    told = hp.Table(table.uri).repair(dry_run=True)
    assert told.dry_run and {step.kind.value for step in told.steps} == {"timeline"}
    assert sorted(info.path for info in storage.walk("")) == listed
    done = hp.Table(table.uri).repair(dry_run=False)
    assert [step for step in done.steps if step.kind.value == "timeline"] == list(told.steps)
    again = hp.Table(table.uri, options=QUIET)
    assert again.repair(dry_run=True).steps == ()
    assert found(again) == before
    verdict = again.validate(keys=True)
    assert verdict.ok and not verdict.findings, verdict
    return again


@pytest.mark.sample(2)
@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rebuilt_timeline_contains_all_writes(uri: str, kind: str, mirror: bool) -> None:
    table = create(uri, kind)
    table.bulk_insert(rows(*range(8)))
    middle = table.upsert(rows(2, 3, 9, ts=2))
    table.delete(["k5"])
    table.upsert(rows(1, ts=3, note="new column"))
    if kind == "mor":
        table.compact()
        table.upsert(rows(4, 8, ts=4, note="later"))
    before, writes = found(table), table.timeline().completed_writes()
    was = sorted(row["id"] for row in table.scan(as_of=middle.instant).to_arrow().to_pylist())
    indexes = hp.Table(uri).config.metadata_partitions
    lose_timeline(table, mirror=mirror)
    again = check_repaired(table, before)
    made = again.timeline().completed_writes()
    assert [(i.request_time, i.action) for i in made] == [(i.request_time, i.action) for i in writes]
    assert sorted(row["id"] for row in again.scan(as_of=middle.instant).to_arrow().to_pylist()) == was
    assert hp.Table(uri).config.metadata_partitions == (indexes if mirror else ())
    if mirror:
        # Each was written to the metadata table immediately before it completed.
        assert all((ours.completion_time or "") <= (was.completion_time or "") for ours, was in zip(made, writes, strict=True))
    again.upsert(rows(0, 3, 20, ts=9, note="after"))
    assert {row["id"]: row["ts"] for row in found(again)} == {
        **{row["id"]: row["ts"] for row in before}, "k0": 9, "k3": 9, "k20": 9
    }  # fmt: skip
    if kind == "mor":
        again.compact()
    again.clean(dry_run=False)
    again.archive()
    assert again.validate(keys=True).ok


def test_on_a_disk_where_a_missing_folder_is_no_empty_one(tmp_path: Path) -> None:
    table = create(str(tmp_path / "t"))
    table.upsert(rows(0, 2))
    before = found(table)
    lose_timeline(table)
    with pytest.raises(TableState, match="timeline folder"):
        table.scan().to_arrow()
    check_repaired(table, before)


def test_file_groups_that_a_clustering_replaced_stay_so(uri: str) -> None:
    """Their rows are in the groups that replaced theirs, which only a clustering does."""
    table = create(uri)
    table.bulk_insert(rows(*range(8)))
    table.insert(rows(*range(10, 14)))
    table.cluster(options={"hoodie.clustering.plan.strategy.sort.columns": "ts"})
    table.upsert(rows(3, 12, ts=5))
    before = found(table)
    (replace,) = table.timeline().completed(Action.REPLACECOMMIT)
    lose_timeline(table)
    again = check_repaired(table, before)
    assert [i.request_time for i in again.timeline().completed(Action.REPLACECOMMIT)] == [replace.request_time]


def test_instants_missing_from_the_metadata_table_stay_uncompleted(uri: str) -> None:
    """The next repair names its files before it deletes them."""
    table = create(uri)
    table.bulk_insert(rows(0, 2))
    storage = table.context.storage
    base = next(info for info in storage.walk("a") if info.name.endswith(".parquet"))
    stray = f"a/{base.name.rsplit('_', 1)[0]}_20991231000000000.parquet"
    storage.put(stray, storage.read(base.path) or b"")
    before = found(table)
    lose_timeline(table)
    done = hp.Table(uri).repair(dry_run=False)
    assert any("20991231000000000 never completed" in step.finding for step in done.steps)
    assert found(table) == before and storage.stat(stray) is not None
    assert [step.path for step in hp.Table(uri).repair(dry_run=False).steps] == [stray]
    assert storage.stat(stray) is None and found(table) == before


def test_unreadable_files_are_reported(uri: str) -> None:
    table = create(uri, **{"hoodie.metadata.enable": False})
    table.bulk_insert(rows(0, 2))
    before = found(table)
    late = table.upsert(rows(0, ts=2))
    storage = table.context.storage
    (torn,) = [info for info in storage.walk("a") if info.name.endswith(f"_{late.instant}.parquet")]
    storage.put(torn.path, (storage.read(torn.path) or b"")[:-20])
    lose_timeline(table)
    with pytest.raises(CorruptData, match=f"(?s)accept_loss.*{torn.path}: committed by {late.instant}, cannot be read"):
        hp.Table(uri).repair(["timeline"])
    done = hp.Table(uri).repair(["timeline"], accept_loss=True)
    assert [step.path for step in done.steps if "cannot be read" in step.finding] == [torn.path]
    assert found(table) == before and storage.stat(torn.path) is None
    assert hp.Table(uri).repair().steps == ()


def test_files_that_only_the_metadata_table_lists_are_lost(uri: str) -> None:
    table = create(uri)
    table.bulk_insert(rows(0, 1))
    storage = table.context.storage
    (lost,) = [info.path for info in storage.walk("a") if info.name.endswith(".parquet")]
    storage.delete([lost])
    lose_timeline(table)
    with pytest.raises(CorruptData, match=f"(?s)accept_loss.*{lost}: .*is missing"):
        hp.Table(uri).repair()
    assert [step.path for step in hp.Table(uri).repair(accept_loss=True).steps if step.kind == "lost-files"] == [lost]
    newest = hp.Table(uri).inspect.commits().to_pylist()
    assert newest and hp.Table(uri).validate().ok


def test_instant_with_markers_counts_and_can_be_rolled_back(uri: str) -> None:
    table = create(uri, **{"hoodie.metadata.enable": False})
    table.bulk_insert(rows(0, 2))
    before = found(table)
    late = table.upsert(rows(0, ts=2))
    table.context.storage.put(f".hoodie/.temp/{late.instant}/a/x.parquet.marker.MERGE", b"")
    lose_timeline(table)
    done = hp.Table(uri).repair(dry_run=False)
    assert any(f"Table.rollback({late.instant!r})" in step.remedy for step in done.steps)
    assert [row["ts"] for row in found(table)] == [2, 1]
    hp.Table(uri).rollback(str(late.instant))
    assert found(table) == before


def test_table_without_files_or_with_a_timeline_is_not_changed(uri: str) -> None:
    table = create(uri)
    assert table.repair(dry_run=True).steps == ()
    table.upsert(rows(1))
    assert table.repair(dry_run=True).steps == ()


def test_orphans_wait_for_the_timeline(uri: str) -> None:
    """While one is rebuilt, files of later instants are no orphans."""
    table = create(uri)
    table.bulk_insert(rows(0, 2))
    table.upsert(rows(0, ts=2))
    storage, store = table.context.storage, table.context.timeline
    storage.put(REBUILD_MARKER_FILE, b'{"completions": {}, "indexes": []}')
    last = table.timeline().completed_writes()[-1]
    store.remove_pending(last.request_time, Action.COMMIT)
    store.remove_completed(last)
    assert table.repair(["orphans"], dry_run=True).steps == ()


def test_change_data_is_unchanged(uri: str) -> None:
    table = create(uri, **{"hoodie.table.cdc.enabled": True})
    table.bulk_insert(rows(0, 2))
    table.upsert(rows(0, ts=2))
    table.upsert(rows(2, 4, ts=3))
    changes, before = change_rows(table), found(table)
    assert len(changes) == 5
    lose_timeline(table)
    check_repaired(table, before)
    assert change_rows(table) == changes


def change_rows(table: hp.Table) -> list[dict[str, object]]:
    return sorted(hp.Table(table.uri).changes().to_arrow().select(["op", "before", "after"]).to_pylist(), key=str)


@pytest.mark.parametrize(("kind", "mirror"), [("cow", False), ("mor", True), pytest.param("mor", False, marks=pytest.mark.wide)])
def test_column_ids_are_recovered(uri: str, kind: str, mirror: bool) -> None:
    """Renamed, dropped and added again, changed in type: old files are read by the ids of the history."""
    table = create(uri, kind)
    table.bulk_insert(rows(0, 1, 2, x=1, y="old"))
    table.alter.rename("x", "z")
    table.upsert(rows(1, 3, ts=2, z=2, y="old"))
    table.alter.drop("y")
    table.alter.add("y", pa.int64())
    table.alter.retype("z", pa.float64())
    table.upsert(rows(2, 4, ts=3, z=4.5, y=7))
    table.delete(["k4"])
    if kind == "mor":
        table.compact()
    table.upsert(rows(5, ts=4, z=5.0, y=8))
    table.alter.comment("ts", "of the event")
    before, writes = found(table), table.timeline().completed_writes()
    assert {row["id"]: (row["z"], row["y"]) for row in before} == {
        "k0": (1, None), "k1": (2, None), "k2": (4.5, 7), "k3": (2, None), "k5": (5, 8)
    }  # fmt: skip
    columns = hp.Table(uri).schema()
    lose_timeline(table, mirror=mirror)
    again = check_repaired(table, before)
    made = again.timeline().completed_writes()
    assert [(i.request_time, i.action) for i in made] == [(i.request_time, i.action) for i in writes]
    assert again.schema().equals(columns, check_metadata=True)
    again.alter.rename("z", "x")
    again.upsert(rows(0, 6, ts=9, x=6.0, y=9))
    assert {row["id"]: (row["x"], row["y"]) for row in found(again)} == {
        "k0": (6, 9), "k1": (2, None), "k2": (4.5, 7), "k3": (2, None), "k5": (5, 8), "k6": (6, 9)
    }  # fmt: skip
    assert again.validate(keys=True).ok


def test_a_change_of_columns_that_never_completed_is_left_out_where_that_is_known(uri: str) -> None:
    table = create(uri)
    table.bulk_insert(rows(0, 1, x=1))
    table.alter.rename("x", "z")
    table.upsert(rows(1, ts=2, z=2))
    before = found(table)
    storage = table.context.storage
    history = max(storage.list(".hoodie/.schema").files, key=lambda info: (info.name.endswith(".schemacommit"), info.name))
    late = "20991231000000000"
    schemas = decode_schema_history(storage.read(history.path) or b"")
    storage.put(
        f".hoodie/.schema/{late}_{late}.schemacommit",
        encode_schema_history([replace(schemas[0], version_id=int(late)), *schemas]),
    )
    lose_timeline(table)
    done = hp.Table(uri).repair(dry_run=False)
    assert any(f"{late} never completed" in step.finding for step in done.steps)
    assert found(table) == before
    assert late not in {i.request_time for i in hp.Table(uri).timeline().instants}
