"""The partitioned record index of Hudi 1.1 stays correct after every write and service; keys are unique per partition."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.metadata_table.indexes import record_index
from pyhudi.metadata_table.reader.index_lookups import find_records
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.storage.locks import InProcessLock
from pyhudi.storage.memory import forget_memory
from tests.support.golden_tables import open_golden

SCHEMA = pa.schema({"id": pa.string(), "part": pa.string(), "ts": pa.int64(), "v": pa.string()})
INDEX = {"hoodie.index.type": "RECORD_LEVEL_INDEX"}
OPTIONS: dict[str, Any] = {
    **INDEX,
    "hoodie.write.table.version": 9,
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.compact.inline": False,
    "hoodie.metadata.index.column.stats.enable": False,
    "pyhudi.threads": 1,
}
Rows = set[tuple[str, str, str]]
_names = itertools.count()


def rows(*given: tuple[str, str, int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA)


def found(table: Table) -> Rows:
    """Locations of the records; the index has the same ones within each partition."""
    report = table.validate()
    assert report.ok, str(report)
    stored = table.scan().to_arrow().to_pylist()
    metadata = MetadataTable(table.context.reloaded(), table.timeline())
    if "record_index" in metadata.partitions:
        places = find_records(metadata, pa.array(sorted({row["id"] for row in stored}), pa.string())).to_pylist()
        assert {(place["partition"], place["key"]) for place in places} == {(row["part"], row["id"]) for row in stored}
        assert len(places) == len(stored)
    return {(row["id"], row["part"], row["v"]) for row in stored}


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"sections-{next(_names)}"
    yield f"memory://{name}"
    forget_memory(name)


def made(uri: str | Path, kind: str = "cow", more: Mapping[str, Any] = MappingProxyType({})) -> Table:
    return Table.create(
        str(uri), name="t", record_key="id", partition_by="part", ordering="ts", table_type=kind, options={**OPTIONS, **more}
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_operation_and_service(uri: str, kind: str) -> None:
    table = made(uri, kind)
    table.upsert(rows(("a", "x", 1, "xa"), ("b", "x", 1, "xb"), ("a", "y-_z", 1, "ya")))
    assert found(table) == {("a", "x", "xa"), ("b", "x", "xb"), ("a", "y-_z", "ya")}
    result = table.upsert(rows(("a", "x", 2, "xa2"), ("b", "new", 2, "nb"), ("b", "y-_z", 2, "yb")))
    assert result.index_source == "record_index"
    table.delete(pa.table({"id": ["a"], "part": ["x"]}))
    assert found(table) == {("b", "x", "xb"), ("a", "y-_z", "ya"), ("b", "new", "nb"), ("b", "y-_z", "yb")}
    table.delete(["b"])
    assert found(table) == {("a", "y-_z", "ya")}
    table.bulk_insert(rows(("c", "x", 3, "xc"), ("d", "e=f", 3, "fd")))
    table.insert_overwrite(rows(("z", "y-_z", 3, "yz")))
    undone = table.upsert(rows(("c", "x", 4, "gone"), ("c", "gone", 4, "gone")))
    table.rollback(str(undone.instant))
    assert found(table) == {("z", "y-_z", "yz"), ("c", "x", "xc"), ("d", "e=f", "fd")}
    table.delete_partitions(["x"])
    table.upsert(rows(("c", "x", 5, "again"), ("c", "gone", 5, "there")))
    if kind == "mor":
        table.compact()
    table.cluster()
    table.upsert(rows(("c", "x", 6, "xc6")))
    assert found(table) == {("z", "y-_z", "yz"), ("c", "x", "xc6"), ("d", "e=f", "fd"), ("c", "gone", "there")}
    table.insert_overwrite_table(rows(("q", "x", 7, "q")))
    assert found(table) == {("q", "x", "q")}


def test_metadata_table_is_compacted_and_the_index_rebuilt(uri: str) -> None:
    table = made(uri, more={"hoodie.metadata.compact.max.delta.commits": 2})
    for number in range(4):
        table.upsert(rows((f"k{number}", "x", 1, "x"), ("k", f"p {number % 2}", number, f"{number}")))
    expected = {*((f"k{number}", "x", "x") for number in range(4)), ("k", "p 0", "2"), ("k", "p 1", "3")}
    assert found(table) == expected
    assert table.index.rebuild("record_index") == ("record_index",)
    table.upsert(rows(("k", "p 0", 9, "9"), ("k", "later", 1, "1")))
    assert found(table) == {*expected - {("k", "p 0", "2")}, ("k", "p 0", "9"), ("k", "later", "1")}
    table.savepoint()
    kept = table.timeline().last_completed_write()
    assert kept is not None
    table.upsert(rows(("k", "p 0", 10, "10")))
    table.restore(kept.request_time)
    # The metadata table was removed by the restore; the remaining definition has the type of the index.
    table.upsert(rows(("k", "p 0", 11, "11")))
    assert ("k", "p 0", "11") in found(table)
    assert table.upsert(rows(("k", "p 0", 12, "12"))).index_source == "record_index"


def test_tables_of_release_1_1_are_written(tmp_path: Path) -> None:
    table = Table(open_golden("mor_v9_partitioned_index", tmp_path).path, options={**INDEX, "hoodie.compact.inline": "false"})
    before = table.scan().to_arrow()
    row = before.slice(0, 1)
    moved = row.set_column(row.schema.get_field_index("city"), "city", pa.array(["a new one"]))
    table.upsert(pa.concat_tables([row, moved]))
    assert table.scan().count() == before.num_rows + 1
    report = table.validate()
    assert report.ok, str(report)


def test_unsupported_combinations_are_refused(uri: str, tmp_path: Path) -> None:
    table = made(uri)
    first = rows(("a", "x", 1, "xa"), ("a", "y", 1, "ya"))
    table.upsert(first)
    with pytest.raises(InvalidRequest, match=r"the record index .* is partitioned, but the options require a global one"):
        table.upsert(first, options={"hoodie.index.type": "RECORD_INDEX"})
    with pytest.raises(InvalidRequest, match="a table has one of them"):
        table.upsert(first, options={"hoodie.metadata.record.index.enable": "true"})
    with pytest.raises(InvalidRequest, match=r"RECORD_LEVEL_INDEX requires the record index"):
        table.upsert(first, options={"hoodie.metadata.record.level.index.enable": "false"})
    with pytest.raises(Unsupported, match=r"partition 'v1\.0' .* whose file names cannot hold it"):
        table.upsert(rows(("a", "v1.0", 1, "dot")))
    with pytest.raises(Unsupported, match="is partitioned"):
        table.downgrade()
    # The option of the other kind drops nothing.
    table.upsert(first, options={"hoodie.index.type": "SIMPLE", "hoodie.metadata.record.index.enable": "false"})
    assert found(table) == {("a", "x", "xa"), ("a", "y", "ya")}
    table.upsert(first, options={"hoodie.index.type": "SIMPLE", "hoodie.metadata.record.level.index.enable": "false"})
    assert "record_index" not in table.config.metadata_partitions
    with pytest.raises(Unsupported, match=r"a partitioned record index .* of version 8"):
        made(tmp_path / "eight", more={"hoodie.write.table.version": 8}).upsert(first)


def test_secondary_index_with_a_partitioned_record_index_is_refused(uri: str) -> None:
    table = made(uri)
    table.upsert(rows(("a", "x", 1, "xa")))
    with pytest.raises(Unsupported, match="identifies records by keys of the whole table, which a partitioned record_index"):
        table.index.create("secondary_index", "v")


def _writes(context: Any, data: pa.Table, **more: Any) -> None:
    settings = WriteSettings.of(parse_options({**OPTIONS, **more}), WriteOperation.UPSERT)
    run_write(context, LocalEngine(1), data, settings)


MANY_WRITERS: dict[str, Any] = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}


def _of_the_index(call: StorageCall) -> bool:
    return call.writes and ("/metadata/record_index/" in call.path or "/metadata/.hoodie/timeline/" in call.path)


def test_index_section_of_a_failed_write_is_used_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write dies at each call by which it makes a section; another one goes on there, and then the first is rolled back."""
    monkeypatch.setattr(record_index, "_groups_of_section", lambda _: 3)
    table_with_commits = made(tmp_path / "t", more=MANY_WRITERS)
    table_with_commits.upsert(rows(("a", "x", 1, "xa")))
    dead, next_ = rows(("n", "new", 2, "dead")), rows(("n", "new", 3, "alive"), ("m", "new", 3, "alive"))

    def faulty(table: Table, fault: Fault | None) -> tuple[Any, FaultyStorage]:
        storage = FaultyStorage(table.context.storage, fault)
        lock = InProcessLock(f"{table.uri}-{fault}", SystemEnvironment())
        return replace(table.context, storage=storage, lock=lock), storage

    def copied(name: str) -> Table:
        shutil.copytree(tmp_path / "t", tmp_path / name)
        return Table(tmp_path / name, options={**OPTIONS, **MANY_WRITERS})

    context, whole = faulty(copied("whole"), None)
    _writes(context, dead, **MANY_WRITERS)
    calls = [(number, call) for number, call in enumerate((c for c in whole.calls if c.writes), 1) if _of_the_index(call)]
    assert len(calls) >= 4, whole.calls
    for number, call in calls:
        table = copied(f"t{number}")
        context, _ = faulty(table, Fault(number, FaultPoint.AFTER))
        with pytest.raises(SimulatedCrash):
            _writes(context, dead, **MANY_WRITERS)
        table.upsert(next_)
        for pending in table.timeline().pending_writes():
            table.rollback(pending.request_time)
        assert found(table) == {("a", "x", "xa"), ("n", "new", "alive"), ("m", "new", "alive")}, call
        table.upsert(rows(("n", "new", 4, "again")))
        assert found(table) == {("a", "x", "xa"), ("n", "new", "again"), ("m", "new", "alive")}, call


def test_missing_index_of_one_partition_is_reported(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(("a", "x", 1, "xa"), ("a", "y", 1, "ya")))
    for path in (tmp_path / "t" / ".hoodie" / "metadata" / "record_index").glob(".record-index-y-*"):
        path.unlink()
    assert "1 keys are missing" in str(table.validate())
