"""Incremental readers that resume after restores and rollbacks learn that their rows were removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, TableState
from pyhudi.format.instants import Action, format_instant_time
from pyhudi.operations.read import stream_queries
from pyhudi.operations.read.stream_queries import next_position
from pyhudi.planning.stream_batches import BatchLimits
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.table.table_context import TableContext

QUIET = {
    "hoodie.metadata.enable": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.table.cdc.enabled": True,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
    "hoodie.clean.commits.retained": 2,
}


def rows(**values: int) -> pa.Table:
    return pa.table({"id": list(values), "ts": pa.array(values.values(), pa.int64())})


def made(path: Path, version: int = 8, kind: str = "mor") -> Table:
    options = {**QUIET, "hoodie.write.table.version": version}
    return Table.create(str(path), record_key="id", ordering="ts", table_type=kind, options=options)


def upserted(table: Table, **values: int) -> tuple[str, str]:
    """Instant and completion time."""
    done = table.upsert(rows(**values))
    assert done.instant is not None and done.completion_time is not None
    return done.instant, done.completion_time


def refused(table: Table, position: str) -> bool:
    """Whether no reader continues from there."""
    readers: list[Callable[[], Any]] = [
        lambda: table.incremental(after=position).to_arrow(),
        lambda: table.changes(after=position).to_arrow(),
        lambda: next_position(table.context, position, BatchLimits()),
    ]
    answers = []
    for read in readers:
        try:
            read()
            answers.append(False)
        except TableState as error:
            assert "has since rolled back" in str(error) and position in str(error)
            answers.append(True)
    assert len(set(answers)) == 1
    return answers[0]


@pytest.mark.parametrize("version", [8, 9])
def test_resuming_after_a_restored_commit_is_refused(tmp_path: Path, version: int) -> None:
    table = made(tmp_path / "t", version)
    (_, zero), (first, one), (_, two) = upserted(table, a=1), upserted(table, b=2), upserted(table, a=3, c=3)
    assert not refused(table, two)
    table.restore(first)
    assert refused(table, two)
    assert [refused(table, position) for position in ("earliest", zero, one)] == [False, False, False]
    _, after = upserted(table, d=4)
    assert refused(table, two) and not refused(table, after)
    assert table.incremental(after=one).to_arrow()["id"].to_pylist() == ["d"]
    # A range that includes its start is one of times, for any caller.
    if version == 8:
        assert table.incremental(two).to_arrow()["id"].to_pylist() == ["d"]


def test_resuming_after_a_rolled_back_commit_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    (_, one), (second, two) = upserted(table, a=1), upserted(table, a=2)
    table.rollback(second)
    with pytest.raises(TableState, match="has since rolled back"):
        next_position(table.context, two, BatchLimits())
    assert not refused(table, one)
    # A rollback of a write that failed while a reader recorded the time looks the same.
    assert table.incremental(after=two).to_arrow().num_rows == 0


@pytest.mark.parametrize("call", range(2, 9))
def test_stream_during_a_failed_rollback_or_restore(tmp_path: Path, call: int) -> None:
    """Readers of the commit get an error as soon as the commit is missing, not only at the end of its rollback."""
    for name in ("rollback", "restore"):
        env = ReplayEnvironment(call)
        uri = made(tmp_path / name).uri
        table = Table(uri, options=QUIET, environment=env)
        (first, one), (second, two) = upserted(table, a=1), upserted(table, a=2)
        dying = Table(uri, options=QUIET, environment=env)
        dying._open.context = replace(dying.context, storage=FaultyStorage(dying.context.storage, Fault(call, FaultPoint.AFTER)))
        try:
            dying.rollback(second) if name == "rollback" else dying.restore(first)
        except SimulatedCrash:
            pass
        there = any(instant.completion_time == two for instant in table.timeline().completed_writes())
        if there:
            next_position(table.context, two, BatchLimits())
        else:
            with pytest.raises(TableState, match="has since rolled back"):
                next_position(table.context, two, BatchLimits())
        next_position(table.context, one, BatchLimits())


def test_resuming_at_a_time_during_a_failed_write(tmp_path: Path) -> None:
    env = ReplayEnvironment(1)
    uri = made(tmp_path / "t").uri
    dying = Table(uri, options=QUIET, environment=env)
    dying._open.context = replace(dying.context, storage=FaultyStorage(dying.context.storage, Fault(6, FaultPoint.BEFORE)))
    with pytest.raises(SimulatedCrash):
        dying.upsert(rows(a=2))
    env.sleep_ms(1000)
    noted = format_instant_time(env.now_ms(), dying.context.timeline.zone)
    env.sleep_ms(1000)
    table = Table(uri, options=QUIET, environment=env)
    upserted(table, b=3)
    assert table.timeline().completed(Action.ROLLBACK)
    assert table.incremental(after=noted).to_arrow()["id"].to_pylist() == ["b"]


def test_restore_removes_the_rollback_that_recorded_the_commit(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    (first, one), (second, two) = upserted(table, a=1), upserted(table, a=2)
    table.rollback(second)
    upserted(table, b=3)
    table.restore(first)
    assert refused(table, two) and not refused(table, one)


def test_rollback_of_an_uncommitted_write_does_not_stop_readers(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    _, one = upserted(table, a=1)
    dying = Table(table.uri, options=QUIET)
    dying._open.context = replace(dying.context, storage=FaultyStorage(dying.context.storage, Fault(6, FaultPoint.BEFORE)))
    with pytest.raises(SimulatedCrash):
        dying.upsert(rows(a=2))
    table = Table(table.uri, options=QUIET)
    assert table.timeline().pending()
    # Its end rolls back the rest.
    _, two = upserted(table, b=3)
    assert not table.timeline().pending() and table.timeline().completed(Action.ROLLBACK)
    assert not refused(table, one) and not refused(table, two)


def test_archived_restores_and_commits(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    positions = [upserted(table, a=number) for number in range(3)]
    table.restore(positions[1][0])
    for number in range(12):
        upserted(table, b=number)
    table.compact()
    table.clean(dry_run=False)
    assert table.archive().instants
    assert positions[2][1] < str(table.timeline().start)
    with pytest.raises(TableState, match="has since rolled back"):
        table.incremental(after=positions[2][1])
    assert table.incremental(after=positions[1][1]).to_arrow()["id"].to_pylist() == ["b"]


def test_stream_reloads_after_a_concurrent_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    (_, zero), (first, one), _ = upserted(table, a=1), upserted(table, b=2), upserted(table, a=3, c=3)
    looked: list[Snapshot] = []

    def loaded(context: TableContext) -> Snapshot:
        looked.append(load_snapshot(context))
        if len(looked) == 1:
            table.restore(first)
        return looked[-1]

    monkeypatch.setattr(stream_queries, "load_snapshot", loaded)
    assert next_position(table.context, zero, BatchLimits()) == one
    assert len(looked) == 2


def test_a_damaged_restore_is_named(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    (first, _), (_, two) = upserted(table, a=1), upserted(table, a=2)
    table.restore(first)
    store = table.context.timeline
    path = store.path(store.load().completed(Action.RESTORE)[0])
    table.context.storage.put(path, b"Obj")
    with pytest.raises(CorruptData) as caught:
        table.incremental(after=two)
    assert str(caught.value.path).endswith(path)
