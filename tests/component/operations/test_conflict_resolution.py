"""`hoodie.write.lock.conflict.resolution.strategy`: what happens between a write and a table service of its file groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.tagged import WriteGroup
from pyhudi.errors import TableState, Unsupported, WriteConflict
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.timeline.timeline_store import TimelineStore

KEY = "hoodie.write.lock.conflict.resolution.strategy"
PACKAGE = "org.apache.hudi.client.transaction."
SIMPLE = "SimpleConcurrentFileWritesConflictResolutionStrategy"
PREFER_WRITER = "PreferWriterConflictResolutionStrategy"
OPTIONS: dict[str, object] = {
    "hoodie.write.num.retries.on.conflict.failures": 0,
    "hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.table.services.enabled": False,
}


def rows(ts: int, *ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [ts] * len(ids)})


def create(path: Path, kind: str, strategy: str) -> Table:
    table = Table.create(path, record_key="id", ordering="ts", table_type=kind, options={**OPTIONS, KEY: strategy})
    for number, key in enumerate("abc"):
        table.upsert(rows(1, key), options={"hoodie.metadata.enable": number % 2 == 0})
    return table


class PausedUpsert(LocalEngine):
    """An upsert in another thread that waits before it writes data files: its inflight file exists."""

    def __init__(self, table: Table, data: pa.Table, strategy: str) -> None:
        super().__init__(1)
        self._reached, self._may_go_on = threading.Event(), threading.Event()
        settings = WriteSettings.of(parse_options({**OPTIONS, KEY: strategy}), WriteOperation.UPSERT)
        self._future = ThreadPoolExecutor(1).submit(run_write, table.context.reloaded(), self, data, settings)
        assert self._reached.wait(600)

    def run_tasks(self, function: Callable[[Any], Any], tasks: Iterable[Any], size_bytes: Sequence[int]) -> list[Any]:
        # Keys are looked up before the inflight file is written.
        if isinstance(function, WriteGroup):
            self._reached.set()
            assert self._may_go_on.wait(600)
        return super().run_tasks(function, tasks, size_bytes)

    def finish(self) -> None:
        """Let the write go on to its end. Raises what it raises."""
        self._may_go_on.set()
        self._future.result()


def values(table: Table) -> dict[str, int]:
    found = table.scan().to_arrow()
    return dict(zip(found.column("id").to_pylist(), found.column("ts").to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("strategy", [SIMPLE, PREFER_WRITER, PACKAGE + PREFER_WRITER])
def test_write_conflicts_with_a_clustering_planned_after_it(tmp_path: Path, kind: str, strategy: str) -> None:
    table = create(tmp_path / "t", kind, strategy)
    write = PausedUpsert(table, rows(5, "a"), strategy)
    planned = table.schedule_clustering().instant
    assert planned is not None
    if strategy == SIMPLE:
        with pytest.raises(WriteConflict, match=planned):
            write.finish()
        assert values(table) == {"a": 1, "b": 1, "c": 1}
        return
    write.finish()
    with pytest.raises(WriteConflict, match="were changed since it was planned"):
        table.cluster(planned)
    assert values(table) == {"a": 5, "b": 1, "c": 1}
    assert table.validate().ok


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("strategy", [SIMPLE, PREFER_WRITER])
def test_clustering_conflicts_with_a_pending_write(tmp_path: Path, kind: str, strategy: str) -> None:
    table = create(tmp_path / "t", kind, strategy)
    planned = table.schedule_clustering().instant
    assert planned is not None
    write = PausedUpsert(table, rows(5, "a"), strategy)
    if strategy == PREFER_WRITER:
        with pytest.raises(WriteConflict, match="changes file groups that other instants changed"):
            table.cluster(planned)
        write.finish()
        assert values(table) == {"a": 5, "b": 1, "c": 1}
    else:
        table.cluster(planned)
        with pytest.raises(WriteConflict):
            write.finish()
        assert values(table) == {"a": 1, "b": 1, "c": 1}
    assert table.validate().ok


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("strategy", [SIMPLE, PREFER_WRITER])
def test_write_conflicts_with_a_plan_that_hudi_starts_during_the_write(tmp_path: Path, kind: str, strategy: str) -> None:
    """Hudi would replace the file groups without the write: it starts plans without the lock and without heartbeat."""
    table = create(tmp_path / "t", kind, strategy)
    planned = table.schedule_clustering().instant
    assert planned is not None
    write = PausedUpsert(table, rows(5, "a"), strategy)
    table.context.timeline.start(Instant(planned, Action.CLUSTERING, State.REQUESTED))
    if strategy == PREFER_WRITER:
        write.finish()
        assert values(table) == {"a": 5, "b": 1, "c": 1}
        return
    with pytest.raises(WriteConflict, match=planned):
        write.finish()
    assert values(table) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(TableState, match="of another engine is replacing"):
        table.upsert(rows(5, "a"), options={**OPTIONS, KEY: strategy})
    table.upsert(rows(5, "z"), options={**OPTIONS, KEY: strategy})
    assert [str(i.request_time) for i in table.timeline().pending()] == [planned]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("strategy", [SIMPLE, PREFER_WRITER])
def test_write_drops_the_plan_that_it_makes_impossible(tmp_path: Path, kind: str, strategy: str) -> None:
    table = create(tmp_path / "t", kind, strategy)
    planned = table.schedule_clustering().instant
    assert planned is not None
    options = {**OPTIONS, KEY: strategy}
    table.upsert(rows(5, "z"), options=options)
    assert [i.request_time for i in table.timeline().pending()] == [planned]
    table.upsert(rows(5, "a"), options=options)
    assert [i.request_time for i in table.timeline().pending()] == ([] if strategy == SIMPLE else [planned])
    if strategy == SIMPLE:
        assert table.cluster().instant is not None
    assert values(table) == {"a": 5, "b": 1, "c": 1, "z": 5}
    assert table.validate().ok


def test_write_restores_a_plan_that_hudi_starts_while_the_write_drops_it(tmp_path: Path, monkeypatch: Any) -> None:
    table = create(tmp_path / "t", "cow", SIMPLE)
    planned = table.schedule_clustering().instant
    assert planned is not None
    requested = Instant(planned, Action.CLUSTERING, State.REQUESTED)
    plan = table.context.timeline.read(requested)
    remove = TimelineStore.remove_pending

    def start_and_remove(store: TimelineStore, request_time: str, action: Action, *states: State) -> None:
        if request_time == planned:
            store.start(requested)
        remove(store, request_time, action, *states)

    with monkeypatch.context() as patch:
        patch.setattr(TimelineStore, "remove_pending", start_and_remove)
        with pytest.raises(WriteConflict, match="was started concurrently"):
            table.upsert(rows(5, "a"), options={**OPTIONS, KEY: SIMPLE})
    assert table.context.timeline.read(requested) == plan
    assert values(table) == {"a": 1, "b": 1, "c": 1}


def test_clustering_ignores_pending_writes_to_other_file_groups(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "cow", PREFER_WRITER)
    planned = table.schedule_clustering().instant
    assert planned is not None
    # New keys go to a new file group.
    write = PausedUpsert(table, rows(5, "z"), PREFER_WRITER)
    table.cluster(planned)
    write.finish()
    assert values(table) == {"a": 1, "b": 1, "c": 1, "z": 5}


def test_clustering_ignores_pending_writes_with_expired_heartbeat(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "cow", PREFER_WRITER)
    planned = table.schedule_clustering().instant
    assert planned is not None
    write = PausedUpsert(table, rows(5, "a"), PREFER_WRITER)
    for heartbeat in (tmp_path / "t" / ".hoodie" / ".heartbeat").iterdir():
        heartbeat.unlink()
    table.cluster(planned)
    with pytest.raises(WriteConflict):
        write.finish()
    assert values(table) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(
    "name", ["BucketIndexConcurrentFileWritesConflictResolutionStrategy", "com.example.Own", "org.apache.hudi.Own"]
)
def test_other_classes_are_refused_by_name(tmp_path: Path, name: str) -> None:
    table = Table.create(tmp_path / "t", record_key="id")
    with pytest.raises(Unsupported, match=f"{KEY}={name} is not supported"):
        table.upsert(rows(1, "a"), options={KEY: name})
