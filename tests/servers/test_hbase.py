"""The HBase index on a server: writes of the suite on both engines, crashes, rollbacks, Apache Hudi."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, StorageUnavailable, Unsupported
from pyhudi.features.hbase_index.hbase_client import Entry, open_hbase
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.fault_injection import Fault, FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.storage.locks.in_process import InProcessLock
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.hbase_lookup import HbaseSettings
from tests.interop.conftest import apache_hudi as apache_hudi
from tests.interop.oracle import ApacheHudi
from tests.servers.conftest import Hbase
from tests.support.paused_write import PausedWrite
from tests.support.spark_key_lookup import go
from tests.support.spark_session import spark as spark
from tests.support.write_index_suite import Checked, Index, Values, row, run_during_compactions, run_script, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# HBase is fetched for wide runs only (`make setup-servers`).
pytestmark = pytest.mark.wide

MOVES = "hoodie.hbase.index.update.partition.path"


def index_in(hbase: Hbase, *, moves: bool = True, versions: int = 3, **more: Any) -> Index:
    """An index in a table of its own."""
    options = hbase.options(hbase.table(versions=versions), **{MOVES: moves, **more})
    return Index(options, "hbase", is_global=True, moves=moves)


def entries(checked: Checked, *keys: str) -> list[Entry | None]:
    with open_hbase(HbaseSettings.of(parse_options(checked.index.options))) as table:
        return list(table.get(keys))


def checked_table(tmp_path: Path, index: Index, kind: str = "cow", **options: Any) -> Checked:
    checked = Checked.create(tmp_path / "t", kind, index, lambda rows: rows, **options)
    checked.upsert(*(row(key, f"p{key % 2}", 1) for key in range(8)))
    return checked


def write_again(checked: Checked) -> None:
    """Every key that a test has used, deleted ones too: each exists once afterwards."""
    checked.upsert(*(row(key, f"p{key % 2}", 50) for key in range(12)))
    checked.upsert(*(row(key, f"p{(key + 1) % 2}", 51) for key in range(12)))
    checked.validate()


# -- the writes of the suite ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "moves"), [("cow", True), ("mor", True), ("cow", False), ("mor", False)])
def test_operations_keep_hbase_index_and_rows_consistent(hbase: Hbase, tmp_path: Path, kind: str, moves: bool) -> None:
    run_script(Checked.create(tmp_path / "t", kind, index_in(hbase, moves=moves), lambda rows: rows))


@pytest.mark.parametrize(("kind", "many"), [("cow", True), ("mor", False), ("mor", True)])
def test_operations_on_spark_keep_hbase_index_and_rows_consistent(
    hbase: Hbase, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, many: bool
) -> None:
    go(monkeypatch, "many keys" if many else "few keys")
    run_script(Checked.create(tmp_path / "t", kind, index_in(hbase), spark.createDataFrame))


def test_compactions_during_writes(hbase: Hbase, tmp_path: Path) -> None:
    options = {"hoodie.compact.inline": False}
    run_during_compactions(Checked.create(tmp_path / "t", "mor", index_in(hbase), lambda rows: rows, **options))


def test_small_batches_with_an_additional_record_index(hbase: Hbase, tmp_path: Path) -> None:
    batches: dict[str, Any] = {"hoodie.index.hbase.get.batch.size": 3, "hoodie.index.hbase.put.batch.size": 2}
    index = index_in(hbase, **batches, **{"hoodie.metadata.record.index.enable": True})
    run_script(Checked.create(tmp_path / "t", "mor", index, lambda rows: rows))


# -- what it does not know, or is not believed ------------------------------------------------------------------------------


def _written(context: TableContext, checked: Checked, rows: pa.Table, operation: str = "upsert") -> object:
    settings = WriteSettings.of(parse_options(checked.index.options), WriteOperation(operation))
    return run_write(context, LocalEngine(1), rows, settings)


def _dies(checked: Checked, rows: pa.Table, operation: str, fault: Fault | None) -> FaultyStorage:
    context = checked.table.context
    storage = FaultyStorage(context.storage, fault)
    lock = InProcessLock(checked.table.uri, SystemEnvironment())
    try:
        _written(replace(context, storage=storage, lock=lock), checked, rows, operation)
    except SimulatedCrash:
        assert fault is not None
    return storage


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize(("kind", "versions", "sync"), [("cow", 1, False), ("mor", 3, True), ("cow", 1, True)])
def test_crash_at_any_call_loses_no_key(
    hbase: Hbase, tmp_path: Path, kind: str, versions: int, sync: bool, operation: str
) -> None:
    """An upsert that inserts, updates and moves, or a delete: after a crash at any point, the next writes find every key."""
    changed: list[Values] = [row(0, "p1", 2), row(1, "p1", 2), row(9, "p0", 2), row(10, "p1", 2)]
    data = table_of(tuple(changed)) if operation == "upsert" else pa.table({"id": ["k0", "k1"], "part": ["p0", "p1"]})
    more: dict[str, Any] = {"hoodie.index.hbase.rollback.sync": sync}

    def begun(name: str) -> Checked:
        return checked_table(tmp_path / name, index_in(hbase, versions=versions, **more), kind)

    calls = _dies(begun("counted"), data, operation, None).write_count
    step = max(1, calls // 12)
    for number in range(1, calls + 1, step):
        checked = begun(str(number))
        _dies(checked, data, operation, Fault(number))
        shown = {(r["_hoodie_partition_path"], r["id"]) for r in checked.table.scan(["*"]).to_arrow().to_pylist()}
        landed = ("p1", "k9") in shown or ("p0", "k9") in shown if operation == "upsert" else ("p0", "k0") not in shown
        if landed and operation == "upsert":
            for one in changed:
                checked.rows = {name: r for name, r in checked.rows.items() if name[1] != one["id"]}
                checked.rows[one["part"], one["id"]] = one
        elif landed:
            checked.rows = {name: r for name, r in checked.rows.items() if name[1] not in ("k0", "k1")}
        checked.check()
        write_again(checked)
        shutil.rmtree(tmp_path / str(number))


@pytest.mark.parametrize("versions", [1, 3])
@pytest.mark.parametrize("sync", [False, True])
def test_rollback_of_a_completed_commit(hbase: Hbase, tmp_path: Path, versions: int, sync: bool) -> None:
    """The keys that it moved, inserted and deleted are found in their former places again."""
    more: dict[str, Any] = {"hoodie.index.hbase.rollback.sync": sync}
    checked = checked_table(tmp_path, index_in(hbase, versions=versions, **more))
    before = dict(checked.rows)
    moved = checked.upsert(row(0, "p1", 2), row(9, "p0", 2))
    assert moved.instant is not None
    checked.table.rollback(moved.instant)
    checked.rows = dict(before)
    checked.check()
    (old,) = entries(checked, "k0")
    if sync and versions > 1:
        # The former content was restored.
        assert old is not None and old.partition == "p0"
    deleted = checked.delete(("p0", "k2"), ("p1", "k3"))
    assert deleted.instant is not None
    checked.table.rollback(deleted.instant)
    checked.rows = dict(before)
    write_again(checked)


def test_a_restore(hbase: Hbase, tmp_path: Path) -> None:
    checked = checked_table(tmp_path, index_in(hbase))
    before = dict(checked.rows)
    point = checked.table.savepoint()
    checked.upsert(row(0, "p1", 2), row(9, "p0", 2))
    checked.delete(("p0", "k2"))
    checked.table.restore(point.instant)
    checked.rows = before
    write_again(checked)


def test_clustering_with_and_without_index_update(hbase: Hbase, tmp_path: Path) -> None:
    checked = checked_table(tmp_path, index_in(hbase))
    (before,) = entries(checked, "k0")
    assert checked.table.cluster().file_groups_written == 2
    (after,) = entries(checked, "k0")
    assert before is not None and after is not None and after.file_id != before.file_id
    checked.upsert(row(0, "p0", 2), row(1, "p0", 2))
    hp.Table(checked.table.uri).cluster(options={"hoodie.index.type": "SIMPLE"})
    # Its entries name file groups that are no more.
    write_again(checked)


def test_writes_at_the_same_time(hbase: Hbase, tmp_path: Path) -> None:
    """The write that loses has written to the index first, over the entries of the other one."""
    checked = checked_table(tmp_path, index_in(hbase))
    late = row(20, "p0", 2)
    paused = PausedWrite(checked.table.context, lambda context: _written(context, checked, table_of((late,))))
    checked.upsert(row(20, "p1", 3))
    paused.finish()
    # By then the key existed, in p1: the row that was planned again moved it, and lost to the newer one.
    checked.check()
    write_again(checked)


def test_archived_instants_are_validated_by_the_archived_timeline(hbase: Hbase, tmp_path: Path) -> None:
    """A write that died, whose rollback has left the timeline, is not taken for one that completed."""
    few = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    index = index_in(hbase)
    checked = checked_table(tmp_path, replace(index, options={**index.options, **few}))
    moved = table_of((row(0, "p1", 2),))

    def at_its_end(_: int, call: StorageCall) -> Fault | None:
        return Fault(1) if call.writes and call.path.endswith(".commit") and "/.hoodie/metadata/" not in call.path else None

    storage = FaultyStorage(checked.table.context.storage, listener=at_its_end)
    lock = InProcessLock(checked.table.uri, SystemEnvironment())
    with pytest.raises(SimulatedCrash):
        _written(replace(checked.table.context, storage=storage, lock=lock), checked, moved)
    (told,) = entries(checked, "k0")
    died = None if told is None else told.commit
    for ts in range(3, 14):
        checked.upsert(row(5, "p1", ts))
    assert died is not None
    checked.upsert(row(0, "p0", 60), row(2, "p0", 60))
    checked.validate()


# -- refusals ---------------------------------------------------------------------------------------------------------------


def test_refused_before_anything_is_written(hbase: Hbase, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = hp.Table.create(uri, record_key="id", partition_by="part", ordering="ts")
    rows = table_of((row(1, "p0", 1),))
    given = hbase.options("nothing_of_this_name")
    with pytest.raises(InvalidRequest, match=r"HBase has no such table; make it first, `create 'nothing_of_this_name', '_s'`"):
        table.upsert(rows, options=given)
    nobody = {**given, "pyhudi.index.hbase.thrift.uris": "thrift://127.0.0.1:1"}
    with pytest.raises(StorageUnavailable, match="no Thrift server of HBase can be reached"):
        table.upsert(rows, options=nobody)
    with pytest.raises(Unsupported, match="needs the metadata table"):
        table.upsert(rows, options={**given, "hoodie.metadata.enable": False})
    newer = hp.Table.create(str(tmp_path / "n"), record_key="id", ordering="ts", options={"hoodie.write.table.version": 9})
    with pytest.raises(Unsupported, match="has version 9, for which Hudi has no HBase index"):
        newer.upsert(rows, options=given)
    assert not table.timeline().instants and not newer.timeline().instants


def test_write_that_cannot_update_hbase_does_not_commit(hbase: Hbase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = checked_table(tmp_path, index_in(hbase))
    from pyhudi.features.hbase_index import hbase_tasks

    def fails(*_: object) -> int:
        raise StorageUnavailable("HBase went away")

    monkeypatch.setattr("pyhudi.features.hbase_index.hbase_commits.run_prepare_hbase", fails)
    with pytest.raises(StorageUnavailable, match="went away"):
        checked.table.upsert(table_of((row(30, "p0", 2),)))
    checked.check()
    monkeypatch.setattr("pyhudi.features.hbase_index.hbase_commits.run_prepare_hbase", hbase_tasks.run_prepare_hbase)
    # After the commit nothing fails it any more, and the entries that stay marked are not believed.
    monkeypatch.setattr("pyhudi.features.hbase_index.hbase_commits.run_finish_hbase", fails)
    checked.delete(("p0", "k0"))
    monkeypatch.undo()
    write_again(checked)


# -- Apache Hudi ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_and_pyhudi_alternate_with_an_hbase_index(hbase: Hbase, apache_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    """Each finds the keys of the other by the index, and by it alone: under it a key that it lacks would be inserted twice."""
    inline: dict[str, Any] = {"hoodie.compact.inline": False}
    checked = checked_table(tmp_path, index_in(hbase), kind, **inline)
    theirs: dict[str, Any] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.compact.inline": False,
        "hoodie.index.hbase.zkquorum": "127.0.0.1",
        "hoodie.index.hbase.zkport": hbase.zookeeper,
        "hoodie.index.hbase.zknode.path": "/hbase",
        **{key: value for key, value in checked.index.options.items() if not key.startswith("pyhudi.")},
    }

    def real(*rows: Values, operation: str = "upsert") -> None:
        options = {**theirs, "hoodie.datasource.write.operation": operation}
        apache_hudi.write(table_of(rows), checked.table.uri, **options)
        for one in rows:
            checked.rows = {name: r for name, r in checked.rows.items() if name[1] != one["id"]}
            if operation == "upsert":
                checked.rows[one["part"], one["id"]] = one
        both()

    def both() -> None:
        checked.check()
        stored = apache_hudi.read(checked.table.uri, columns=["id", "part", "ts"]).to_pylist()
        assert sorted(map(str, stored)) == sorted(map(str, checked.rows.values()))

    real(row(0, "p0", 2), row(1, "p0", 2), row(8, "p1", 2))
    checked.upsert(row(8, "p1", 3), row(1, "p1", 3), row(9, "p0", 3))
    both()
    real(row(9, "p1", 4), row(2, "p0", 4))
    checked.delete_anywhere("k2", "k9")
    both()
    # A deleted key of ours is new to it, and one that it deleted is new to us.
    real(row(2, "p1", 5))
    real(row(3, "p1", 5), operation="delete")
    checked.upsert(row(3, "p0", 6), row(2, "p1", 6))
    both()
    checked.table.cluster() if kind == "cow" else checked.table.compact()
    real(row(3, "p1", 7), row(4, "p0", 7))
    write_again(checked)
    both()
