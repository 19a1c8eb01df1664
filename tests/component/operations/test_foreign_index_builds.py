"""Writes while Hudi builds an index: their keys are in it, and no instant that Hudi waits for disappears."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import HudiError, TableState, WriteConflict
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.actions.index_plan import IndexPartitionInfo, IndexPlan
from pyhudi.format.instants import Action, Instant, State
from pyhudi.metadata_table.writer.metadata_store import set_partitions
from pyhudi.operations.commit import foreign_index_builds
from pyhudi.operations.commit.planned_commit import PlannedCommit
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.storage.heartbeats import heartbeat_path

QUIET = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False}
BUILD = "29990101000000000"
INDEX = "record_index"
A_DAY = 86_400


def rows(part: str = "p", **values: str) -> pa.Table:
    return pa.table({"id": list(values), "part": [part] * len(values), "v": list(values.values())})


class Build:
    """An index build of Hudi whose steps the test takes; the partition's file groups exist from the beginning."""

    def __init__(self, path: Path, kind: str) -> None:
        options = {**QUIET, "hoodie.metadata.record.index.min.filegroup.count": 1}
        table = hp.Table.create(str(path), name="t", record_key="id", partition_by="part", table_type=kind, options=options)
        table.upsert(rows(a="1", b="1"))
        table.index.create(INDEX)
        self.path, self.table = path, hp.Table(str(path), options=options)
        self.record((), ())
        self.table = hp.Table(str(path), options=options)

    def record(self, ready: tuple[str, ...], inflight: tuple[str, ...]) -> None:
        """Store the partitions in the properties, in addition to that of the file listing."""
        context = self.table.context
        with context.locked() as locked:
            locked = locked.reloaded()
            rest = tuple(p for p in locked.config.metadata_partitions if p != INDEX)
            set_partitions(locked, (*rest, *ready), inflight)

    def request(self) -> None:
        plan = IndexPlan(1, (IndexPartitionInfo(1, INDEX, ""),)).encode(bytes(range(16)))
        context = self.table.context
        # Timelines of PyHudi add a checksum to what they store, and Hudi does not.
        context.storage.put(context.timeline.path(Instant(BUILD, Action.INDEXING, State.REQUESTED)), plan)

    def start(self) -> None:
        self.request()
        self.table.context.timeline.start(Instant(BUILD, Action.INDEXING, State.REQUESTED))

    def pending(self) -> set[str]:
        """Writes that Hudi waits for."""
        return {i.request_time for i in self.table.timeline().pending() if i.action.is_write}

    def finish(self) -> None:
        self.table.context.timeline.remove_pending(BUILD, Action.INDEXING)
        self.record((INDEX,), ())

    def completed(self) -> set[str]:
        return {i.request_time for i in hp.Table(str(self.path)).timeline().instants if i.state is State.COMPLETED}

    def rollbacks(self) -> list[Instant]:
        return [i for i in hp.Table(str(self.path)).timeline().instants if i.action is Action.ROLLBACK]

    def values(self) -> dict[str, str]:
        return {row["id"]: row["v"] for row in hp.Table(str(self.path)).scan(["id", "v"]).to_arrow().to_pylist()}


@pytest.fixture(params=["cow", "mor"])
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Build:
    return Build(tmp_path / "t", request.param)


def at_first_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call `act` when the next write is about to commit."""
    original, acts = Transaction.commit, [act]

    def commit(self: Transaction, planned: PlannedCommit) -> Instant:
        if acts:
            acts.pop()()
        return original(self, planned)

    monkeypatch.setattr(Transaction, "commit", commit)


def while_waiting(monkeypatch: pytest.MonkeyPatch, build: Build, act: Callable[[], object]) -> None:
    """Call `act` once while a write waits, and do not sleep."""
    acts = [act]

    def sleep_ms(_: Any, __: int) -> None:
        if acts:
            acts.pop()()

    monkeypatch.setattr(type(build.table.context.env), "sleep_ms", sleep_ms)


WRITES: dict[str, Callable[[hp.Table], object]] = {
    "upsert": lambda table: table.upsert(rows(a="2", n="2")),
    "insert": lambda table: table.insert(rows(n="2")),
    "bulk_insert": lambda table: table.bulk_insert(rows(n="2")),
    "delete": lambda table: table.delete(pa.table({"id": ["a"], "part": ["p"]})),
    "delete where": lambda table: table.delete(where="id = 'a'"),
    "insert_overwrite": lambda table: table.insert_overwrite(rows(n="2")),
    "insert_overwrite_table": lambda table: table.insert_overwrite_table(rows("q", n="2")),
    "delete_partitions": lambda table: table.delete_partitions(["p"]),
    "update": lambda table: table.update({"v": "'2'"}, where="id = 'a'"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_write_waits_for_the_partition_and_is_in_the_index(
    build: Build, write: Callable[[hp.Table], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build begins during the write, and has recorded its partition only when the write waits for that."""
    awaited: set[str] = set()
    recorded: list[str] = []

    def begin() -> None:
        build.start()
        awaited.update(build.pending())

    def record() -> None:
        build.record((), (INDEX,))
        recorded.append(INDEX)

    at_first_commit(monkeypatch, begin)
    while_waiting(monkeypatch, build, record)
    write(build.table)
    assert recorded
    assert awaited and awaited <= build.completed()
    assert not build.rollbacks()
    build.finish()
    report = hp.Table(str(build.path)).validate(keys=True)
    assert report.ok, report


def test_plan_of_hudi_that_was_just_requested_is_waited_for(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build.request()
    recorded: list[str] = []

    def record() -> None:
        build.record((), (INDEX,))
        recorded.append(INDEX)

    while_waiting(monkeypatch, build, record)
    build.table.upsert(rows(n="2"))
    assert recorded


def test_plan_that_waits_to_be_started_delays_no_write(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build.request()
    age(build, 60)
    while_waiting(monkeypatch, build, lambda: pytest.fail("the write waits"))
    build.table.upsert(rows(n="2"))
    assert build.values()["n"] == "2"


def test_build_without_activity_delays_no_write(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build.start()
    age(build, A_DAY)
    while_waiting(monkeypatch, build, lambda: pytest.fail("the write waits"))
    build.table.upsert(rows(n="2"))
    assert build.values()["n"] == "2"


def test_write_ends_with_the_remedy_if_the_partition_is_not_recorded(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build.start()
    monkeypatch.setattr(foreign_index_builds, "_LONGEST_WAIT_MS", 0)
    with pytest.raises(TableState, match=rf"Table\.index\.abort\('{BUILD}'\)"):
        build.table.upsert(rows(n="2"))
    assert "n" not in build.values()
    build.table.index.abort(BUILD)
    build.table.upsert(rows(n="3"))
    assert build.values()["n"] == "3"


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_write_that_loses_a_conflict_leaves_an_instant_without_rows(
    build: Build, write: Callable[[hp.Table], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited: set[str] = set()

    def lose() -> None:
        build.record((), (INDEX,))
        build.start()
        awaited.update(build.pending())
        raise WriteConflict("lost")

    at_first_commit(monkeypatch, lose)
    while_waiting(monkeypatch, build, lambda: None)
    write(build.table)
    assert awaited and awaited <= build.completed()
    assert not build.rollbacks() and not build.pending()
    timeline = build.table.context.timeline
    lost = next(i for i in timeline.load().completed_writes() if i.request_time in awaited)
    metadata = CommitMetadata.decode(timeline.read(lost) or b"")
    assert not metadata.partition_to_write_stats and not metadata.partition_to_replace_file_ids
    assert not [file for file in build.path.rglob(f"*{lost.request_time}*.parquet")]
    build.finish()
    report = hp.Table(str(build.path)).validate(keys=True)
    assert report.ok, report


def test_write_that_fails_leaves_an_instant_without_rows(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.values()

    def fail() -> None:
        build.start()
        raise TableState("failed")

    at_first_commit(monkeypatch, fail)
    with pytest.raises(TableState, match="failed"):
        build.table.upsert(rows(a="2", n="2"))
    assert not build.pending() and not build.rollbacks()
    assert build.values() == before
    assert build.table.validate().ok


def test_failed_write_is_removed_during_a_build_of_pyhudi(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    completed = build.completed()

    def lose() -> None:
        build.start()
        build.table.context.storage.put(heartbeat_path(BUILD), b'{"tasks": true}')
        raise HudiError("lost")

    at_first_commit(monkeypatch, lose)
    with pytest.raises(HudiError, match="lost"):
        build.table.upsert(rows(n="2"))
    assert not build.pending() and build.completed() == completed


def age(build: Build, seconds: int) -> None:
    for file in (build.path / ".hoodie/timeline").glob(f"{BUILD}*"):
        modified = file.stat().st_mtime - seconds
        os.utime(file, (modified, modified))
