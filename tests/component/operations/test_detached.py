"""Bulk inserts that are started, executed and committed by three different processes, as Spark data sources do."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import WriteConflict
from pyhudi.format.names import WriteToken
from pyhudi.operations.write import distributed_bulk_insert
from pyhudi.operations.write.distributed_bulk_insert import DetachedWrite, supports_detached
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.heartbeats import heartbeat_path
from pyhudi.tasks.incoming_layout import as_batch
from pyhudi.tasks.incoming_rows import incoming_rows
from pyhudi.tasks.write_file_group import create_files
from pyhudi.tasks.write_tasks import CreateTask, WriteStatus

ENGINE = LocalEngine(1)
COLUMNS = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])


def rows(*names: str, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(names), "city": ["x"] * len(names), "ts": [ts] * len(names)}, schema=COLUMNS)


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    options = {"hoodie.metadata.record.index.enable": True} if request.param == "mor" else {}
    made = Table.create(
        tmp_path / "t",
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=request.param,
        options=options,
    )
    made.insert(rows("a"))
    return made


def settings(**more: object) -> WriteSettings:
    options = {key.replace("__", "."): value for key, value in more.items()}
    return WriteSettings.of(parse_options(options), WriteOperation.BULK_INSERT)


def begin(table: Table, columns: pa.Schema = COLUMNS, given: WriteSettings | None = None) -> DetachedWrite:
    """A write in the hands of another process."""
    begun = DetachedWrite.begin(table.context.reloaded(), ENGINE, columns, given or settings())
    found: DetachedWrite = pickle.loads(pickle.dumps(begun))
    return found


def attempt(begun: DetachedWrite, data: pa.Table, number: int) -> list[WriteStatus]:
    """What one attempt of a task writes."""
    with begun.attempt(WriteToken(0, 1, number)):
        return files_of(begun, data, number)


def files_of(begun: DetachedWrite, data: pa.Table, number: int) -> list[WriteStatus]:
    ready = incoming_rows(begun.request, as_batch(data))
    return list(create_files(begun.spec, CreateTask("x", begun.context.env.uuid4(), WriteToken(0, 1, number)), [ready]))


def names(table: Table) -> list[str]:
    found = Table(table.uri)
    assert found.validate().ok
    return sorted(found.scan().to_arrow()["id"].to_pylist())


def folder_of_table(table: Table) -> Path:
    return Path(table.uri.removeprefix("file:"))


def leftover_files(table: Table) -> list[str]:
    """What a write that is over has to have removed."""
    root = folder_of_table(table)
    return sorted(
        str(one)
        for folder in (".temp", ".heartbeat", ".staged")
        for one in (root / ".hoodie" / folder).rglob("*")
        if one.is_file()
    )


def base_files(table: Table) -> int:
    return len(list((folder_of_table(table) / "x").glob("*.parquet")))


def test_files_of_the_accepted_task_attempt_are_committed_and_others_deleted(table: Table) -> None:
    before = base_files(table)
    begun = begin(table)
    attempt(begun, rows("b"), 0)
    taken = attempt(begun, rows("b"), 1)
    assert names(table) == ["a"]
    result = begun.complete(ENGINE, taken)
    assert (result.operation, result.rows_inserted, result.instant) == ("bulk_insert", 1, begun.instant_time)
    assert names(table) == ["a", "b"] and leftover_files(table) == [] and base_files(table) == before + 1
    table.upsert(rows("b", ts=2))
    assert names(table) == ["a", "b"]


def test_rolled_back_write_leaves_the_table_unchanged(table: Table) -> None:
    before = base_files(table)
    begun = begin(table)
    attempt(begun, rows("b"), 0)
    begun.roll_back(ENGINE)
    assert names(table) == ["a"] and leftover_files(table) == [] and base_files(table) == before
    with pytest.raises(WriteConflict, match="has no heartbeat file"):
        attempt(begun, rows("b"), 1)
    assert leftover_files(table) == []
    table.insert(rows("c"))
    assert names(table) == ["a", "c"]


@pytest.mark.parametrize("in_time", [True, False])
def test_running_task_of_a_rolled_back_write_removes_its_files(
    table: Table, monkeypatch: pytest.MonkeyPatch, in_time: bool
) -> None:
    """It is waited for; then it removes its own files, because a file of a removed instant may become visible later."""
    before = base_files(table)
    begun = begin(table)
    late = begun.attempt(WriteToken(0, 1, 3))
    late.__enter__()

    def ends(*_: object) -> None:
        monkeypatch.undo()
        files_of(begun, rows("b"), 3)
        with pytest.raises(WriteConflict, match="while one of its tasks was writing"):
            late.__exit__(None, None, None)

    if in_time:
        monkeypatch.setattr(SystemEnvironment, "sleep_ms", ends)
    else:
        monkeypatch.setattr(distributed_bulk_insert, "_MAX_ATTEMPT_WAIT_MS", 0)
    begun.roll_back(ENGINE)
    if not in_time:
        ends()
    assert base_files(table) == before and leftover_files(table) == [] and names(table) == ["a"]


def test_an_attempt_that_ends_after_the_commit_removes_what_it_wrote(table: Table) -> None:
    before = base_files(table)
    begun = begin(table)
    late = begun.attempt(WriteToken(0, 1, 3))
    late.__enter__()
    begun.complete(ENGINE, attempt(begun, rows("b"), 0))
    files_of(begun, rows("b"), 3)
    with pytest.raises(WriteConflict, match="while one of its tasks was writing"):
        late.__exit__(None, None, None)
    assert base_files(table) == before + 1 and leftover_files(table) == [] and names(table) == ["a", "b"]


def test_write_without_rows_commits_nothing_when_empty_commits_are_disabled(table: Table) -> None:
    given = settings(hoodie__allow__empty__commit=False)
    assert begin(table, given=given).complete(ENGINE, []).instant is None
    assert len(table.timeline().completed_writes()) == 1 and leftover_files(table) == []
    assert begin(table).complete(ENGINE, []).instant is not None
    assert len(table.timeline().completed_writes()) == 2 and names(table) == ["a"]


def test_the_write_lives_while_tasks_beat_and_is_rolled_back_when_none_does(table: Table) -> None:
    begun = begin(table)
    beat = folder_of_table(table) / heartbeat_path(begun.instant_time)
    os.utime(beat, (0, 0))
    with begun.attempt(WriteToken(0, 1, 7)):
        assert table.upsert(rows("a", ts=2)).rolled_back == ()
    taken = attempt(begun, rows("b"), 0)
    os.utime(beat, (0, 0))
    assert table.upsert(rows("a", ts=3)).rolled_back == (begun.instant_time,)
    with pytest.raises(WriteConflict, match="has no heartbeat file"):
        attempt(begun, rows("c"), 0)
    with pytest.raises(WriteConflict, match="rolled back by another writer"):
        begun.complete(ENGINE, taken)
    assert names(table) == ["a"] and leftover_files(table) == []
    begun.roll_back(ENGINE)
    assert names(table) == ["a"] and leftover_files(table) == []


@pytest.mark.sample(1)
def test_writers_and_services_between_its_processes(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(*_: object) -> None:
        raise AssertionError("others wait for writes of Apache Hudi, not for these")

    monkeypatch.setattr(SystemEnvironment, "sleep_ms", waits)
    begun, concurrent = begin(table), begin(table)
    table.upsert(rows("a", "c", ts=2))
    table.clean(dry_run=False)
    if not table.config.is_cow:
        table.compact()
    taken = attempt(begun, rows("b"), 0)
    other = attempt(concurrent, rows("d"), 0)
    table.archive()
    concurrent.complete(ENGINE, other)
    begun.complete(ENGINE, taken)
    assert names(table) == ["a", "b", "c", "d"] and leftover_files(table) == []


def test_schema_changed_by_another_writer_during_the_write(table: Table) -> None:
    wider = pa.schema([*COLUMNS, ("tip", pa.int64())])
    begun = begin(table, wider)
    table.upsert(rows("a", ts=2).append_column("more", pa.array([1])))
    taken = attempt(begun, rows("b").append_column("tip", pa.array([5])), 0)
    with pytest.raises(WriteConflict, match="changed them concurrently"):
        begun.complete(ENGINE, taken)
    assert names(table) == ["a"] and leftover_files(table) == []


def test_index_started_during_the_write_fails_the_write(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks wrote nothing for the index: the write fails, and the index matches the table."""
    if not table.config.is_cow:
        table.index.drop("record_index")
    begun = begin(table)
    taken = attempt(begun, rows("b"), 0)

    def completes(*_: object) -> None:
        monkeypatch.undo()
        with pytest.raises(WriteConflict, match="index"):
            begun.complete(ENGINE, taken)

    monkeypatch.setattr(SystemEnvironment, "sleep_ms", completes)
    table.index.create("record_index")
    assert begun.instant_time not in str(table.timeline().instants)
    assert names(table) == ["a"] and leftover_files(table) == []
    table.insert(rows("c"))
    assert Table(table.uri).lookup(["a", "b", "c"]).to_arrow()["id"].to_pylist() == ["a", "c"]


@pytest.mark.parametrize(
    ("operation", "options", "wanted"),
    [
        (WriteOperation.BULK_INSERT, {}, True),
        (WriteOperation.BULK_INSERT, {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}, False),
        (WriteOperation.BULK_INSERT, {"hoodie.bulkinsert.shuffle.parallelism": 3}, False),
        (WriteOperation.BULK_INSERT, {"hoodie.combine.before.insert": True}, False),
        (WriteOperation.BULK_INSERT, {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}, False),
        (WriteOperation.INSERT, {}, False),
        (WriteOperation.UPSERT, {}, False),
        (WriteOperation.INSERT_OVERWRITE, {}, False),
    ],
)
def test_operations_that_use_the_distributed_path(operation: WriteOperation, options: dict[str, object], wanted: bool) -> None:
    assert supports_detached(WriteSettings.of(parse_options(options), operation)) is wanted
