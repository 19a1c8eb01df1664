"""Task attempts that outlive the job of their write leave no files.

A late attempt here is a second, speculative attempt that is suspended before its first file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.tagged import GroupRows, WriteGroup
from pyhudi.engines.spark import driver_batch, worker_tasks
from pyhudi.errors import EngineFailed, WriteConflict
from pyhudi.format.names import WriteToken, parse_data_file_instant
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.storage import liveness, open_storage
from pyhudi.storage.base import Storage
from pyhudi.tasks.task_attempts import remove_if_write_ended
from pyhudi.tasks.write_tasks import WriteStatus

LATE = WriteToken(7, 8, 9)
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1}


def rows(*names: str, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(names), "city": ["x"] * len(names), "ts": [ts] * len(names)})


@pytest.fixture(params=["cow", "mor", "buckets"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    buckets = request.param == "buckets"
    made = Table.create(
        tmp_path / "t",
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="cow" if request.param == "cow" else "mor",
        options={**(BUCKETS if buckets else {}), "hoodie.metadata.enable": False, "hoodie.table.cdc.enabled": not buckets},
    )
    made.upsert(rows("a"))
    return made


def folder_of(table: Table) -> Path:
    return Path(table.context.storage.uri.removeprefix("file:"))


def data_files(table: Table) -> list[str]:
    folder = folder_of(table) / "x"
    return sorted(each.name for each in folder.iterdir() if parse_data_file_instant(each.name))


class Late:
    """The second attempt at the one task of the next write.  fails: the first one does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
        self._own = WriteGroup.__call__
        self._fails = fails
        self._open: AbstractContextManager[None] | None = None
        late = self

        def work(self: WriteGroup, group: GroupRows) -> tuple[WriteStatus, ...]:
            return late.begins(self, group)

        monkeypatch.setattr(WriteGroup, "__call__", work)
        monkeypatch.setattr(LocalEngine, "may_leave_attempts", True)

    def begins(self, work: WriteGroup, group: GroupRows) -> tuple[WriteStatus, ...]:
        if self._open is None:
            spec = work.writer.spec
            self._work, self._group = work, group
            self._open = remove_if_write_ended(open_storage(spec.storage), spec.instant_time, LATE)
            self._open.__enter__()
            if self._fails:
                raise EngineFailed("another task failed")
        return self._own(work, group)

    def writes(self) -> None:
        change = self._work.writer.change
        change(self._group.target, LATE, self._group.load_rows())

    def ends(self) -> None:
        assert self._open is not None
        self._open.__exit__(None, None, None)

    def is_removed(self) -> None:
        self.writes()
        with pytest.raises(WriteConflict, match="while one of its tasks was writing"):
            self.ends()


def check_only_committed_files(table: Table, before: list[str], *names: str) -> None:
    """Only the files of before and of commits, regardless of other changes of the table."""
    assert data_files(table) == before
    assert not list(folder_of(table).glob(".hoodie/.temp/*/**/*.marker.*"))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(names)


def test_attempt_that_writes_after_the_rollback(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    before = data_files(table)
    late = Late(monkeypatch, fails=True)
    with pytest.raises(EngineFailed):
        table.upsert(rows("a", "b", ts=2))
    late.is_removed()
    check_only_committed_files(table, before, "a")


def test_attempt_that_ends_during_the_rollback(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollback has looked at the markers by then, and the heartbeat is still there."""
    before = data_files(table)
    late = Late(monkeypatch, fails=True)

    def forget(storage: Storage, request_time: str) -> None:
        monkeypatch.setattr(liveness, "remove_heartbeat", own)
        late.writes()
        late.ends()
        own(storage, request_time)

    own = liveness.remove_heartbeat
    monkeypatch.setattr(liveness, "remove_heartbeat", forget)
    with pytest.raises(EngineFailed):
        table.upsert(rows("a", "b", ts=2))
    check_only_committed_files(table, before, "a")


def test_attempt_that_ends_during_a_restore(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore finds the files of a dead write by a listing; what comes after that, its attempt removes."""
    before, first = data_files(table), table.timeline().completed()[0].request_time
    late = Late(monkeypatch, fails=True)
    monkeypatch.setattr(Transaction, "can_roll_back", lambda *_: False)
    with pytest.raises(EngineFailed):
        table.upsert(rows("a", "b", ts=2))
    monkeypatch.undo()
    table.savepoint(first)
    table.restore(first)
    late.is_removed()
    check_only_committed_files(table, before, "a")


def test_attempt_that_ends_during_the_commit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file would be visible at once, in addition to that of the accepted attempt."""
    late = Late(monkeypatch, fails=False)
    own = Transaction._complete

    def complete(*given: object) -> None:
        late.writes()
        late.ends()
        own(*given)  # type: ignore[arg-type]  # what the transaction hands over

    monkeypatch.setattr(Transaction, "_complete", complete)
    table.upsert(rows("a", "b", ts=2))
    check_only_committed_files(table, [name for name in data_files(table) if str(LATE) not in name], "a", "b")


def test_attempt_that_ends_after_the_commit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch, fails=False)
    table.upsert(rows("a", "b", ts=2))
    after = data_files(table)
    late.is_removed()
    check_only_committed_files(table, after, "a", "b")


@pytest.mark.parametrize("fails", [True, False])
def test_attempt_killed_after_writing(table: Table, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Its marker names its file for the next writer; without one the file would be visible once its instant is archived."""
    late = Late(monkeypatch, fails=fails)
    try:
        table.upsert(rows("a", "b", ts=2))
    except EngineFailed:
        assert fails
    after = data_files(table)
    late.writes()
    monkeypatch.undo()
    assert data_files(table) != after
    table.upsert(rows("c", ts=3))
    assert not any(str(LATE) in name for name in data_files(table))
    check_only_committed_files(table, data_files(table), *("ac" if fails else "abc"))


def test_attempt_whose_storage_is_unreachable_raises_the_original_error(table: Table) -> None:
    class UnreachableStorage:
        uri = "memory://away"

        def stat(self, path: str) -> None:
            raise EngineFailed("the store is away")

    with pytest.raises(ValueError, match="a bad row") as failed, remove_if_write_ended(UnreachableStorage(), "1", LATE):  # type: ignore[arg-type]
        raise ValueError("a bad row")
    assert "the store is away" in failed.value.__notes__[0]


@pytest.mark.parametrize("way", ["job", "task"])
def test_worker_tasks_remove_files_of_late_attempts(table: Table, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Both ways in which rows of a write reach tasks of Spark."""
    before = data_files(table)
    late = Late(monkeypatch, fails=True)
    with pytest.raises(EngineFailed):
        table.upsert(rows("a", "b", ts=2))
    writer, group = late._work.writer, late._group
    monkeypatch.setattr(WriteGroup, "__call__", late._own)
    for module in (worker_tasks, driver_batch):
        monkeypatch.setattr(module, "task_token", lambda: LATE)
    if way == "task":
        with pytest.raises(WriteConflict, match="while one of its tasks was writing"):
            driver_batch._each(WriteGroup(writer, lambda _: LATE), [group])
    else:
        job = worker_tasks.WriteGroups(writer, group.load_rows().schema, {0: group.target}, None, 1 << 30)

        def batches() -> Iterator[pa.RecordBatch]:
            yield from group.load_rows().append_column(worker_tasks.GROUP, pa.array([0] * 2, pa.int32())).to_batches()

        with pytest.raises(WriteConflict, match="while one of its tasks was writing"):
            list(worker_tasks.AttemptGuard(job, writer.spec)(batches()))
    check_only_committed_files(table, before, "a")
