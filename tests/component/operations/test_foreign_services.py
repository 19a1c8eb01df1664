"""A table service of Hudi has no heartbeat: new files of its instant show that it is running."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InstantNotFound, TableState
from pyhudi.features import procedures
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.actions.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.actions.restore_metadata import RestorePlan
from pyhudi.format.actions.rollback_metadata import InstantInfo, RollbackPlan
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.planned_commit import PlannedCommit
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.services import clean
from pyhudi.table.timeline.timeline_store import TimelineStore

QUIET = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False}
INLINE = {**QUIET, "hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
AN_HOUR = 3600


def rows(**values: str) -> pa.Table:
    return pa.table({"id": list(values), "v": list(values.values())})


def planned(path: Path, *, options: dict[str, object]) -> tuple[hp.Table, str]:
    """Return a table, and its pending compaction."""
    table = hp.Table.create(str(path), name="t", record_key="id", table_type="mor", options=QUIET)
    for value in ("1", "2"):
        table.upsert(rows(a=value))
    plan = table.schedule_compaction().planned
    assert plan is not None
    return hp.Table(str(path), options={**QUIET, **options}), plan


def started_by_hudi(table: hp.Table, plan: str, action: Action = Action.COMPACTION) -> None:
    table.context.timeline.start(Instant(plan, action, State.REQUESTED))


def age(path: Path, instant: str, seconds: int = AN_HOUR) -> None:
    """Make all files of an instant older."""
    for file in path.rglob("*"):
        if instant in str(file):
            modified = file.stat().st_mtime - seconds
            os.utime(file, (modified, modified))


def state_of(table: hp.Table, plan: str) -> State:
    return next(i for i in table.timeline().instants if i.request_time == plan).state


def test_compaction_that_hudi_started_is_left_to_it_until_it_shows_no_activity(tmp_path: Path) -> None:
    table, plan = planned(tmp_path / "t", options={})
    started_by_hudi(table, plan)
    assert "Hudi started it" in table.compact().remaining[plan]
    with pytest.raises(TableState, match="Hudi started it"):
        table.unschedule_compaction(plan)
    assert not table.repair(dry_run=False).steps
    assert not [i for i in table.timeline().instants if i.action is Action.ROLLBACK]
    age(tmp_path, plan)
    assert [run.instant for run in table.compact().runs] == [plan]
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["2"]


@pytest.mark.parametrize(
    "sign",
    [f".hoodie/.temp/{{plan}}/{'f' * 36}-0_0-1-0_{{plan}}.parquet.marker.MERGE", f"{'f' * 36}-0_0-1-0_{{plan}}.parquet"],
    ids=["marker", "data file"],
)
def test_new_file_of_its_instant_shows_that_a_service_is_running(tmp_path: Path, sign: str) -> None:
    table, plan = planned(tmp_path / "t", options={})
    started_by_hudi(table, plan)
    age(tmp_path, plan)
    table.context.storage.put(sign.format(plan=plan), b"x")
    assert not table.compact().runs
    age(tmp_path, plan)
    assert [run.instant for run in table.compact().runs] == [plan]


def test_inline_service_leaves_a_plan_that_hudi_started(tmp_path: Path) -> None:
    """Even if it counts as dead; a plan that was not started is run."""
    table, plan = planned(tmp_path / "t", options={**INLINE, "pyhudi.service.expiry.ms": 0})
    started_by_hudi(table, plan)
    assert "Hudi has started it" in table.upsert(rows(a="3")).services["compact"]
    assert state_of(table, plan) is State.INFLIGHT
    table.compact()
    assert state_of(table, plan) is State.COMPLETED
    waiting = table.schedule_compaction().planned
    if waiting is not None:
        table.upsert(rows(a="4"))
        assert state_of(table, waiting) is State.COMPLETED


def test_log_compaction_that_hudi_started_is_left_to_it(tmp_path: Path) -> None:
    options = {**QUIET, "hoodie.log.compaction.blocks.threshold": 2}
    table = hp.Table.create(str(tmp_path / "t"), name="t", record_key="id", table_type="mor", options=options)
    for value in ("1", "2", "3", "4"):
        table.upsert(rows(a=value))
    plan = table.schedule_log_compaction().planned
    assert plan is not None
    started_by_hudi(table, plan, Action.LOGCOMPACTION)
    assert "Hudi started it" in table.log_compact().remaining[plan]
    assert state_of(table, plan) is State.INFLIGHT


@pytest.mark.parametrize("expiry_ms", [0, 1_200_000])
def test_option_defines_after_which_time_a_service_counts_as_dead(tmp_path: Path, expiry_ms: int) -> None:
    table, plan = planned(tmp_path / "t", options={"pyhudi.service.expiry.ms": expiry_ms})
    started_by_hudi(table, plan)
    assert [run.instant for run in table.compact().runs] == ([plan] if expiry_ms == 0 else [])


def pending_delta_commit(table: hp.Table, time: str) -> Callable[[], bool]:
    """Begin a delta commit of the metadata table as Hudi 1.1 does during a write; return whether it is pending."""
    store = table.context.storage.child(".hoodie/metadata")
    names = [f".hoodie/timeline/{time}.deltacommit.{state}" for state in ("requested", "inflight")]
    for name in names:
        store.put(name, b"")
    return lambda: all(store.stat(name) is not None for name in names)


def test_open_delta_commit_of_the_metadata_table_stays_while_its_write_is_pending(tmp_path: Path) -> None:
    table = hp.Table.create(str(tmp_path / "t"), name="t", record_key="id", options=QUIET)
    time = str(int(table.upsert(rows(a="1")).instant or "") + 1)
    workload = CommitMetadata(partition_to_write_stats={"p": (WriteStat(file_id="f", num_update_writes=1),)})
    table.context.timeline.start(table.context.timeline.request(time, Action.COMMIT), workload.encode())
    table.context.storage.put(f".hoodie/.heartbeat/{time}", b"")
    is_pending = pending_delta_commit(table, time)
    for value in "234":
        table.upsert(rows(b=value))
    assert is_pending()
    table.context.storage.delete([f".hoodie/.heartbeat/{time}"])
    # Its writer is dead, so the write and its delta commit are rolled back together.
    table.upsert(rows(b="5"))
    assert not is_pending()
    assert table.validate().ok


def test_delta_commit_of_the_metadata_table_without_a_pending_write_is_rolled_back(tmp_path: Path) -> None:
    table = hp.Table.create(str(tmp_path / "t"), name="t", record_key="id", options=QUIET)
    is_pending = pending_delta_commit(table, str(int(table.upsert(rows(a="1")).instant or "") + 1))
    table.upsert(rows(a="2"))
    assert not is_pending()


def test_rollback_that_hudi_began_is_left_to_it_until_it_shows_no_activity(tmp_path: Path) -> None:
    table = hp.Table.create(str(tmp_path / "t"), name="t", record_key="id", options=QUIET)
    first = int(table.upsert(rows(a="1")).instant or "")
    write, rollback = str(first + 1), str(first + 2)
    table.context.timeline.request(write, Action.COMMIT)
    plan = RollbackPlan(InstantInfo(write, "commit"))
    path = table.context.timeline.path(Instant(rollback, Action.ROLLBACK, State.REQUESTED))
    table.context.storage.put(path, plan.encode(b"0" * 16))
    table.upsert(rows(a="2"))
    with pytest.raises(InstantNotFound, match="is being rolled back by a process of Hudi"):
        table.rollback(write)
    assert {state_of(table, write), state_of(table, rollback)} == {State.REQUESTED}
    age(tmp_path, rollback)
    assert table.upsert(rows(a="3")).rolled_back == (write,)
    assert state_of(table, rollback) is State.COMPLETED


def test_rollback_that_pyhudi_began_is_completed_by_the_next_writer(tmp_path: Path) -> None:
    table = hp.Table.create(str(tmp_path / "t"), name="t", record_key="id", options=QUIET)
    first = int(table.upsert(rows(a="1")).instant or "")
    write, rollback = str(first + 1), str(first + 2)
    table.context.timeline.request(write, Action.COMMIT)
    table.context.timeline.request(rollback, Action.ROLLBACK, RollbackPlan(InstantInfo(write, "commit")).encode(b"0" * 16))
    assert table.upsert(rows(a="2")).rolled_back == (write,)


def restorable(path: Path) -> tuple[hp.Table, str]:
    """Return a table whose only row has the value 2, and the instant of value 1."""
    table = hp.Table.create(str(path), name="t", record_key="id", options=QUIET)
    first = table.upsert(rows(a="1")).instant
    table.upsert(rows(a="2"))
    assert first is not None
    table.savepoint(first)
    return table, first


def by_method(table: hp.Table, target: str, *, force: bool) -> None:
    table.restore(target, force=force)


def by_procedure(table: hp.Table, target: str, *, force: bool) -> None:
    procedures.call("rollback_to_savepoint", path=table.uri, instant_time=target, force=force)


def by_sql(table: hp.Table, target: str, *, force: bool) -> None:
    hp.sql(f"CALL rollback_to_savepoint(path => '{table.uri}', instant_time => '{target}', force => {str(force).lower()})")


@pytest.mark.parametrize("restore", [by_method, by_procedure, by_sql])
def test_restore_during_a_live_write_of_hudi_is_refused(tmp_path: Path, restore: Callable[..., None]) -> None:
    """Hudi starts the heartbeat before its write is on the timeline."""
    table, target = restorable(tmp_path / "t")
    beat = ".hoodie/.heartbeat/20990101000000000"
    table.context.storage.put(beat, b"")
    with pytest.raises(TableState, match="a process of Hudi may be running write 20990101000000000"):
        restore(table, target, force=False)
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["2"] and not table.timeline().pending()
    restore(table, target, force=True)
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["1"]


def test_restore_continues_when_the_writer_of_hudi_has_died(tmp_path: Path) -> None:
    table, target = restorable(tmp_path / "t")
    table.context.storage.put(".hoodie/.heartbeat/20990101000000000", b"")
    age(tmp_path, "20990101000000000")
    table.restore(target)
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["1"]


def test_restore_during_a_service_of_hudi_is_refused_until_that_shows_no_activity(tmp_path: Path) -> None:
    table, plan = planned(tmp_path / "t", options={})
    first = table.timeline().completed_writes()[0].request_time
    started_by_hudi(table, plan)
    with pytest.raises(TableState, match=f"may be running compaction {plan}"):
        table.restore(first)
    age(tmp_path, plan)
    table.restore(first)
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["1"]


def test_restore_of_hudi_is_left_to_it_until_the_timeline_shows_no_activity(tmp_path: Path) -> None:
    table, target = restorable(tmp_path / "t")
    undone = table.timeline().completed_writes()[-1].request_time
    restore = str(int(undone) + 1000)
    plan = RestorePlan((InstantInfo(undone, "commit"),), savepoint_to_restore_timestamp=target)
    store = table.context.timeline
    requested = Instant(restore, Action.RESTORE, State.REQUESTED)
    table.context.storage.put(store.path(requested), plan.encode(b"0" * 16))
    store.start(requested)
    with pytest.raises(TableState, match="did not finish"):
        table.upsert(rows(b="1"))
    age(tmp_path, restore)
    # It rolls back instants one by one, and writes plans for that.
    with pytest.raises(TableState, match="did not finish"):
        table.upsert(rows(b="1"))
    for file in (tmp_path / "t" / ".hoodie" / "timeline").iterdir():
        os.utime(file, (1e9, 1e9))
    table.upsert(rows(b="1"))
    assert sorted(table.scan(["v"]).to_arrow()["v"].to_pylist()) == ["1", "1"]
    assert not table.timeline().pending()


def test_requested_restore_of_a_dead_process_does_not_block_writers(tmp_path: Path) -> None:
    """Its heartbeat has ended, and its requested file reached the store afterwards: it has changed nothing."""
    table, target = restorable(tmp_path / "t")
    undone = table.timeline().completed_writes()[-1].request_time
    plan = RestorePlan((InstantInfo(undone, "commit"),), savepoint_to_restore_timestamp=target)
    table.context.timeline.request(str(int(undone) + 1000), Action.RESTORE, plan.encode(b"0" * 16))
    table.upsert(rows(b="1"))
    assert not table.timeline().pending()


def test_restore_whose_plan_is_incomplete_blocks_writers_until_the_timeline_shows_no_activity(tmp_path: Path) -> None:
    """Hudi may be writing the plan."""
    table, _ = restorable(tmp_path / "t")
    restore = str(int(table.timeline().completed_writes()[-1].request_time) + 1000)
    table.context.timeline.request(restore, Action.RESTORE, b"")
    with pytest.raises(TableState, match="did not finish"):
        table.upsert(rows(b="1"))
    for file in (tmp_path / "t" / ".hoodie" / "timeline").iterdir():
        os.utime(file, (1e9, 1e9))
    table.upsert(rows(b="1"))
    assert sorted(table.scan(["v"]).to_arrow()["v"].to_pylist()) == ["1", "2"]
    assert not table.timeline().pending()


CLEAN_ALWAYS = {**QUIET, "hoodie.clean.automatic": True, "hoodie.clean.commits.retained": 1}


def completed_by_hudi(store: TimelineStore, clean: str) -> None:
    """Complete a clean without deleting its files: this test needs the instant only."""
    time = str(int(clean) + 1)
    store.complete(
        Instant(clean, Action.CLEAN, State.INFLIGHT), Action.CLEAN, time, CleanMetadata(clean, 0, 0, "", "", {}).encode(b"0" * 16)
    )


@pytest.mark.parametrize("completes", [False, True])
def test_clean_that_hudi_takes_over_when_it_is_requested_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, completes: bool
) -> None:
    """A clean of Hudi executes the plans of other processes as soon as it finds them."""
    table = hp.Table.create(str(tmp_path / "t"), name="t", record_key="id", options=CLEAN_ALWAYS)
    for value in ("1", "2"):
        table.upsert(rows(a=value))
    request = TimelineStore.request

    def start_in_hudi(store: TimelineStore, request_time: str, action: Action, content: bytes = b"") -> Instant:
        requested = request(store, request_time, action, content)
        if action is Action.CLEAN:
            store.start(requested, content)
            if completes:
                completed_by_hudi(store, request_time)
        return requested

    with monkeypatch.context() as patch:
        patch.setattr(TimelineStore, "request", start_in_hudi)
        result = table.upsert(rows(a="3"))
    assert result.services["clean"].startswith("not due: another process concurrently cleaned")
    (clean,) = [i for i in table.timeline().instants if i.action is Action.CLEAN]
    assert clean.state is (State.COMPLETED if completes else State.INFLIGHT)
    assert not table.context.storage.names(".hoodie/.heartbeat")
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["3"]


def test_clean_that_hudi_completes_while_it_runs_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = hp.Table.create(str(tmp_path / "t"), name="t", record_key="id", options=CLEAN_ALWAYS)
    for value in ("1", "2"):
        table.upsert(rows(a=value))
    monkeypatch.setattr(clean, "_FILES_UNDER_LOCK", 0)
    delete = clean._delete_files

    def complete_in_hudi(*arguments: Any) -> Any:
        (pending,) = table.timeline().pending(Action.CLEAN)
        completed_by_hudi(table.context.timeline, pending.request_time)
        return delete(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(clean, "_delete_files", complete_in_hudi)
        result = table.upsert(rows(a="3"))
    assert result.services["clean"] == "not due: another process completed it"
    assert not table.timeline().pending()
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["3"]


@pytest.mark.parametrize("includes_write", [True, False], ids=["it removes the write", "it began before the write"])
def test_write_that_meets_a_restore_of_hudi_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, includes_write: bool
) -> None:
    """A write that the restore will roll back stays pending: the restore fails where it is missing."""
    table, target = restorable(tmp_path / "t")
    store, commit, met = table.context.timeline, Transaction.commit, list[str]()

    def during_a_restore(self: Transaction, planned: PlannedCommit) -> Instant:
        if not met:
            met.append(self.instant_time)
            undone = (InstantInfo(self.instant_time, "commit"),) if includes_write else ()
            restore = Instant(str(int(self.instant_time) + 1), Action.RESTORE, State.REQUESTED)
            plan = RestorePlan(undone, savepoint_to_restore_timestamp=target)
            table.context.storage.put(store.path(restore), plan.encode(b"0" * 16))
            store.start(restore)
        return commit(self, planned)

    monkeypatch.setattr(Transaction, "commit", during_a_restore)
    with pytest.raises(TableState, match="did not finish"):
        table.upsert(rows(b="1"))
    assert [i.request_time for i in table.timeline().pending_writes()] == (met if includes_write else [])
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["2"]
