"""Concurrent writers lose nothing, duplicate nothing, and report conflicts to the loser.

First exact interleavings, where a second writer runs at one storage call of the first; then threads and processes.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow import incoming
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InstantNotFound, InvalidRequest, TableState, WriteConflict
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action
from pyhudi.format.names import MarkerType
from pyhudi.operations.changes.arrow_changes import run_merge, run_update
from pyhudi.operations.changes.statement import Clause, ClauseAction, ClauseRows, MergeStatement
from pyhudi.operations.commit.action_attempt import rollback_own_attempt
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.planned_commit import PlannedCommit
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.rollback import RollbackResult, rollback_failed_writes
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.delete_where import run_delete_where
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.markers import Markers
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.tag_location import TagHits, TagTask, run_tag
from pyhudi.tasks.write_tasks import WriteStatus
from tests.simulation.interleavings import OPTIONS, Interrupted, meeting, rows, values
from tests.simulation.tables import World


@pytest.fixture
def world() -> World:
    world = World("cow", OPTIONS)
    world.upsert({f"k{number}": number for number in range(4)})
    return world


def upsert(world: World, context: TableContext, data: pa.Table, retries: int = 3) -> WriteResult:
    options = {**world.options, "hoodie.write.num.retries.on.conflict.failures": retries}
    return run_write(context, LocalEngine(1), data, WriteSettings.of(parse_options(options), WriteOperation.UPSERT))


def test_concurrent_writes_of_a_file_group_are_retried(world: World) -> None:
    context = meeting(world, lambda: world.table.upsert(rows(world, k0=50)))
    result = upsert(world, context, rows(world, k2=70))
    assert result.conflict_retries == 1
    assert values(world) == {"k0": 50, "k1": 1, "k2": 70, "k3": 3}
    assert not world.table.timeline().pending()


def test_without_retries_the_conflict_names_the_instants(world: World) -> None:
    files = world.files()
    winner: list[WriteResult] = []
    context = meeting(world, lambda: winner.append(world.table.upsert(rows(world, k0=50))))
    with pytest.raises(WriteConflict) as caught:
        upsert(world, context, rows(world, k2=70), retries=0)
    assert caught.value.instants == (winner[0].instant,)
    assert str(winner[0].instant) in str(caught.value)
    assert values(world) == {"k0": 50, "k1": 1, "k2": 2, "k3": 3}
    assert not world.table.timeline().pending()
    assert all(str(winner[0].instant) in path for path in world.files() - files)


def test_another_file_group_is_no_conflict(world: World) -> None:
    context = meeting(world, lambda: world.table.upsert(rows(world, "b", k1=51)))
    assert upsert(world, context, rows(world, k0=50)).conflict_retries == 0
    assert values(world) == {"k0": 50, "k1": 51, "k2": 2, "k3": 3}


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_new_key_of_two_writers_is_stored_once(index: str) -> None:
    world = World("cow", {**OPTIONS, "hoodie.index.type": index})
    part = "b" if index.startswith("GLOBAL") else "a"
    context = meeting(world, lambda: world.table.upsert(rows(world, part, k0=50)))
    result = upsert(world, context, rows(world, k0=60))
    assert result.conflict_retries == 1
    assert values(world) == {"k0": 60}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE", "BLOOM"])
def test_retry_looks_up_keys_only_in_changed_files(kind: str, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(kind, {**OPTIONS, "hoodie.index.type": index})
    world.upsert({f"k{number}": number for number in range(4)})
    files = {path[0]: path for path in world.files() if path.endswith(".parquet")}
    looked_up: list[list[str]] = []

    def record(task: TagTask, key_sets: Sequence[pa.Array]) -> list[TagHits]:
        looked_up[-1] += [place.base.path for place in task.candidates]
        return run_tag(task, key_sets)

    def overwrite() -> None:
        with monkeypatch.context() as ended:
            ended.setattr(incoming, "run_tag", run_tag)
            world.table.insert_overwrite(rows(world, "a", k0=50, k8=58))
        looked_up.append([])

    monkeypatch.setattr(incoming, "run_tag", record)
    looked_up.append([])
    both = pa.concat_tables([rows(world, "a", k0=60, k2=62), rows(world, "b", k1=61)])
    result = upsert(world, meeting(world, overwrite), both)
    assert result.conflict_retries == 1
    assert sorted(looked_up[0]) == sorted(files.values())
    assert len(looked_up[1]) == 1
    assert looked_up[1][0].startswith("a/")
    assert (result.rows_inserted, result.rows_updated) == (1, 2)
    assert values(world) == {"k0": 60, "k2": 62, "k8": 58, "k1": 61, "k3": 3}


FITS = {"hoodie.parquet.small.file.limit": 1 << 20}
"""New records go into the file groups that are there."""
OPENS = {"hoodie.parquet.small.file.limit": 0}
"""New records go into file groups of their own."""


def changed_by(world: World, operation: WriteOperation, **options: object) -> WriteSettings:
    return WriteSettings.of(parse_options({**world.options, **options}), operation)


@pytest.mark.sample(15)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "RECORD_INDEX", "INMEMORY"])
@pytest.mark.parametrize(("theirs", "mine"), [(FITS, OPENS), (OPENS, FITS), (OPENS, OPENS)])
def test_new_key_in_different_file_groups_is_stored_once(
    kind: str, index: str, theirs: dict[str, object], mine: dict[str, object]
) -> None:
    world = World(kind, {**OPTIONS, "hoodie.index.type": index, "hoodie.metadata.enable": index == "RECORD_INDEX"})
    world.upsert({"k0": 0})
    context = meeting(world, lambda: world.table.upsert(rows(world, k4=50), options=theirs))
    settings = changed_by(world, WriteOperation.UPSERT, **mine)
    assert run_write(context, LocalEngine(1), rows(world, k4=60), settings).conflict_retries == 1
    assert values(world) == {"k0": 0, "k4": 60}


@pytest.mark.parametrize("operation", [WriteOperation.INSERT, WriteOperation.UPSERT])
@pytest.mark.parametrize("policy", ["none", "drop"])
def test_insert_of_a_new_key_conflicts_with_a_lookup_of_it(world: World, operation: WriteOperation, policy: str) -> None:
    """The other write inserts into an existing file group; ours has looked the key up, to change or to skip it."""
    key = "hoodie.datasource.insert.dup.policy"
    context = meeting(world, lambda: world.table.insert(rows(world, k4=50), options={**FITS, key: policy}))
    result = run_write(context, LocalEngine(1), rows(world, k4=60), changed_by(world, operation, **OPENS, **{key: "drop"}))
    assert result.conflict_retries == 1
    expected = 60 if operation is WriteOperation.UPSERT else 50
    assert values(world) == {"k0": 0, "k1": 1, "k2": 2, "k3": 3, "k4": expected}


def test_delete_of_a_missing_key_conflicts_with_its_insert(world: World) -> None:
    context = meeting(world, lambda: world.table.upsert(rows(world, k4=50), options=OPENS))
    data = rows(world, k0=0, k4=0).select(["id", "part", "ts"])
    assert run_write(context, LocalEngine(1), data, changed_by(world, WriteOperation.DELETE)).conflict_retries == 1
    assert values(world) == {"k1": 1, "k2": 2, "k3": 3}


def test_insert_that_skips_a_key_conflicts_with_its_delete(world: World) -> None:
    gone = rows(world, k0=0).select(["id", "part", "ts"])
    context = meeting(world, lambda: world.table.delete(gone))
    settings = changed_by(world, WriteOperation.INSERT, **OPENS, **{"hoodie.datasource.insert.dup.policy": "drop"})
    assert run_write(context, LocalEngine(1), rows(world, k0=60, k4=60), settings).conflict_retries == 1
    assert values(world) == {"k0": 60, "k1": 1, "k2": 2, "k3": 3, "k4": 60}


def test_overwrite_removes_a_key_inserted_concurrently(world: World) -> None:
    context = meeting(world, lambda: world.table.upsert(rows(world, k4=50), options=OPENS))
    settings = changed_by(world, WriteOperation.INSERT_OVERWRITE)
    assert run_write(context, LocalEngine(1), rows(world, k4=60), settings).conflict_retries == 1
    assert values(world) == {"k1": 1, "k3": 3, "k4": 60}


@pytest.mark.parametrize("ends", ["dropped", "carried out"])
def test_a_new_key_when_a_clustering_ends_in_between(ends: str) -> None:
    """While it is pending its file groups take no new records, so ours opens one; afterwards theirs takes one that is there."""
    world = World("cow", {**OPTIONS, **FITS})
    world.upsert({"k0": 0, "k2": 2})
    planned = world.table.schedule_clustering(order_by="value").instant
    assert planned is not None

    def end() -> None:
        if ends == "dropped":
            world.table.unschedule_clustering(planned)
        else:
            world.table.cluster(planned)
        world.table.upsert(rows(world, k4=50))

    assert upsert(world, meeting(world, end), rows(world, k4=60)).conflict_retries == 1
    assert values(world) == {"k0": 0, "k2": 2, "k4": 60}


def test_new_keys_of_another_partition_and_changed_ones_are_no_conflict(world: World) -> None:
    def others() -> None:
        world.table.upsert(rows(world, "b", k7=7), options=FITS)
        world.table.upsert(rows(world, k0=50))

    assert (
        run_write(
            meeting(world, others), LocalEngine(1), rows(world, k4=60), changed_by(world, WriteOperation.UPSERT, **OPENS)
        ).conflict_retries
        == 0
    )
    assert values(world) == {"k0": 50, "k1": 1, "k2": 2, "k3": 3, "k4": 60, "k7": 7}


def test_new_file_groups_of_another_partition_are_no_conflict() -> None:
    world = World("cow", OPTIONS)
    context = meeting(world, lambda: world.table.upsert(rows(world, "b", k1=51)))
    assert upsert(world, context, rows(world, k0=50)).conflict_retries == 0
    assert values(world) == {"k0": 50, "k1": 51}


def test_plain_inserts_do_not_conflict(world: World) -> None:
    context = meeting(world, lambda: world.table.bulk_insert(rows(world, k8=8)))
    settings = WriteSettings.of(parse_options({**world.options, "hoodie.parquet.small.file.limit": 0}), WriteOperation.INSERT)
    assert run_write(context, LocalEngine(1), rows(world, k6=6), settings).conflict_retries == 0
    assert values(world) == {"k0": 0, "k1": 1, "k2": 2, "k3": 3, "k6": 6, "k8": 8}


def test_write_to_a_concurrently_overwritten_partition(world: World) -> None:
    context = meeting(world, lambda: world.table.insert_overwrite(rows(world, k4=4)))
    assert upsert(world, context, rows(world, k0=50)).conflict_retries == 1
    assert values(world) == {"k0": 50, "k1": 1, "k3": 3, "k4": 4}


def test_delete_partition_includes_concurrent_commits(world: World) -> None:
    settings = WriteSettings.of(parse_options(world.options), WriteOperation.DELETE_PARTITION)
    context = meeting(world, lambda: world.table.upsert(rows(world, k0=50)))
    assert run_delete_partitions(context, ["a"], settings).conflict_retries == 1
    assert values(world) == {"k1": 1, "k3": 3}


def test_delete_by_filter_is_evaluated_again_after_a_conflict(world: World) -> None:
    settings = WriteSettings.of(parse_options(world.options), WriteOperation.DELETE)
    # The row that was found no longer matches when it is to be deleted, and another one does.
    context = meeting(world, lambda: world.table.upsert(rows(world, k0=50, k2=-9)))
    result = run_delete_where(context, LocalEngine(1), "value < 1", settings)
    assert result.conflict_retries == 1
    assert values(world) == {"k0": 50, "k1": 1, "k3": 3}


def changing(world: World, retries: int = 3) -> WriteSettings:
    options = {**world.options, "hoodie.write.num.retries.on.conflict.failures": retries}
    return WriteSettings.of(parse_options(options), WriteOperation.UPSERT)


def test_update_reads_concurrent_commits(world: World) -> None:
    context = meeting(world, lambda: world.table.upsert(rows(world, k0=50, k2=-9)))
    result = run_update(context, LocalEngine(1), {"value": 7}, "value < 1", changing(world))
    assert result.conflict_retries == 1
    assert values(world) == {"k0": 50, "k1": 1, "k2": 7, "k3": 3}


def test_an_update_that_may_not_be_planned_again_is_a_conflict(world: World) -> None:
    context = meeting(world, lambda: world.table.upsert(rows(world, k0=50)))
    with pytest.raises(WriteConflict):
        run_update(context, LocalEngine(1), {"value": 7}, "value < 1", changing(world, retries=0))
    assert values(world) == {"k0": 50, "k1": 1, "k2": 2, "k3": 3}


def test_merge_reads_concurrent_commits(world: World) -> None:
    """Its condition is evaluated again for the current row, and a key that was not found is a row by then."""
    context = meeting(world, lambda: world.table.upsert(rows(world, k0=50, k7=7)))
    clauses = (
        Clause(ClauseAction.UPDATE, {"value": "source.value"}, "target.value < 1"),
        Clause(ClauseAction.INSERT, rows=ClauseRows.OF_SOURCE),
    )
    result = run_merge(
        context, LocalEngine(1), MergeStatement(rows(world, k0=60, k7=70, k8=80), ("id",), clauses), changing(world)
    )
    assert result.conflict_retries == 1
    assert values(world) == {"k0": 50, "k1": 1, "k2": 2, "k3": 3, "k7": 7, "k8": 80}


def test_a_merge_that_inserts_a_key_which_another_writer_inserted_is_a_conflict(world: World) -> None:
    context = meeting(world, lambda: world.table.upsert(rows(world, k7=7)))
    with pytest.raises(WriteConflict):
        run_merge(
            context,
            LocalEngine(1),
            MergeStatement(rows(world, k7=70), ("id",), (Clause(ClauseAction.INSERT, rows=ClauseRows.OF_SOURCE),)),
            changing(world, retries=0),
        )
    assert values(world)["k7"] == 7


def test_a_column_that_another_writer_adds_is_kept(world: World) -> None:
    wider = rows(world, "b", k1=51).append_column("extra", pa.array([7]))
    context = meeting(world, lambda: world.table.upsert(wider))
    upsert(world, context, rows(world, k0=50))
    found = world.table.scan(["id", "value", "extra"]).to_arrow().to_pylist()
    assert {row["id"]: (row["value"], row["extra"]) for row in found} == {
        "k0": (50, None),
        "k1": (51, 7),
        "k2": (2, None),
        "k3": (3, None),
    }


def test_a_column_added_to_the_same_file_group_is_not_written_over(world: World) -> None:
    wider = rows(world, k2=52).append_column("extra", pa.array([7]))
    context = meeting(world, lambda: world.table.upsert(wider))
    with pytest.raises(InvalidRequest, match="extra"):
        upsert(world, context, rows(world, k0=50))
    found = world.table.scan(["id", "extra"], "id = 'k2'").to_arrow().to_pylist()
    assert found == [{"id": "k2", "extra": 7}]


def test_two_writers_change_the_columns(world: World) -> None:
    context = meeting(world, lambda: world.table.upsert(rows(world, "b", k1=51).append_column("extra", pa.array([7]))))
    with pytest.raises(WriteConflict, match="columns"):
        upsert(world, context, rows(world, k0=50).append_column("more", pa.array([8])), retries=0)
    assert world.table.schema().names == ["id", "part", "ts", "value", "extra"]


def test_a_write_does_not_build_on_what_was_rolled_back(world: World) -> None:
    instant = world.upsert({"k0": 40})
    # A write that others build on is not rolled back.
    context = meeting(world, lambda: world.table.rollback(instant))
    with pytest.raises(TableState, match="build on it"):
        upsert(world, context, rows(world, k2=70))
    assert values(world) == {"k0": 40, "k1": 1, "k2": 2, "k3": 3}
    # One that has read it and has not begun is found out when it commits.
    context = world.table.context
    seen = load_snapshot(context)
    world.table.rollback(instant)
    settings = WriteSettings.of(parse_options(world.options), WriteOperation.UPSERT)
    with pytest.raises(WriteConflict, match="rolled back") as caught:
        run_write(context, LocalEngine(1), rows(world, k2=70), settings, base_snapshot=seen)
    assert caught.value.instants == (instant,)
    assert values(world) == {"k0": 0, "k1": 1, "k2": 2, "k3": 3}


def test_active_write_is_not_rolled_back(world: World) -> None:
    def attempt() -> None:
        own = world.table.timeline().pending()[0].request_time
        with pytest.raises(TableState, match="is alive"):
            world.table.rollback(own)
        assert world.table.upsert(rows(world, "b", k1=51)).rolled_back == ()

    assert upsert(world, meeting(world, attempt), rows(world, k0=50)).conflict_retries == 0
    assert values(world) == {"k0": 50, "k1": 51, "k2": 2, "k3": 3}


class SlowEngine(LocalEngine):
    """Calls `then` once, when it has written data files."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__(1)
        self._then: Callable[[], object] | None = then

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        results = super().map(function, tasks)
        wrote = any(isinstance(result, tuple) and result and isinstance(result[0], WriteStatus) for result in results)
        if wrote and self._then is not None:
            then, self._then = self._then, None
            then()
        return results


@pytest.mark.parametrize(("begun", "marked"), [(True, True), (True, False), (False, False)])
def test_writer_with_expired_heartbeat_retries_and_leaves_no_files(world: World, begun: bool, marked: bool) -> None:
    inner = world.table.context.storage

    def take_over() -> None:
        own = world.table.timeline().pending()[0].request_time
        world.environment.stall_ms(500_000)
        assert world.table.upsert(rows(world, "b", k1=51)).rolled_back == (own,)
        if begun:
            # The writer lives after all, and goes on.
            late = f"a/late-0_0-0-0_{own}.parquet"
            if marked:
                Markers(inner, own).create(late, MarkerType.CREATE)
            inner.put(late, b"")

    settings = WriteSettings.of(parse_options(world.options), WriteOperation.UPSERT)
    context = world.table.context if begun else meeting(world, take_over)
    engine = SlowEngine(take_over) if begun else LocalEngine(1)
    assert run_write(context, engine, rows(world, k0=50), settings).conflict_retries == 1
    assert values(world) == {"k0": 50, "k1": 51, "k2": 2, "k3": 3}
    assert not world.table.timeline().pending()
    assert not inner.list(".hoodie/.temp").folders
    assert not inner.list(".hoodie/.heartbeat").files
    done = {i.request_time for i in world.table.timeline().completed()}
    assert all(any(time in path for time in done) for path in world.files() if path.endswith(".parquet"))


def test_commit_completed_during_its_rollback_check_is_kept(world: World) -> None:
    """Between the look at the timeline and the look at the heartbeat the write completes and drops its heartbeat."""
    context = world.table.context
    settings = CommitSettings.of(parse_options(world.options))
    transaction = Transaction.begin(context, Action.COMMIT, settings)
    transaction.start()

    def land() -> None:
        transaction.commit(PlannedCommit(CommitMetadata(operation_type="UPSERT", extra_metadata={"schema": ""})))

    storage = Interrupted(context.storage, lambda operation, path: ".heartbeat" in path, land)
    assert rollback_failed_writes(replace(context, storage=storage), settings) == ()
    assert transaction.instant_time in {i.request_time for i in world.table.timeline().completed_writes()}
    assert values(world) == world.rows


def test_write_of_unknown_outcome_keeps_its_files_until_its_rollback_is_recorded(world: World) -> None:
    """It failed when its completed file was sent, and that is there; another write builds on it by now."""
    context = world.table.context
    settings = CommitSettings.of(parse_options(world.options))
    transaction = Transaction.begin(context, Action.COMMIT, settings)
    transaction.start()
    transaction.commit(PlannedCommit(CommitMetadata(operation_type="UPSERT", extra_metadata={"schema": ""})))
    own = f"a/x-0_0-0-0_{transaction.instant_time}.parquet"
    Markers(context.storage, transaction.instant_time).create(own, MarkerType.CREATE)
    context.storage.put(own, b"rows")
    assert transaction.publishing
    later = Transaction.begin(context, Action.COMMIT, settings)
    with pytest.raises(TableState, match="later writes build on it"):
        rollback_own_attempt(transaction)
    assert context.storage.read(own) == b"rows"
    later.stop_heartbeat()


def test_no_commit_completes_after_its_rollback_is_recorded(world: World) -> None:
    context = world.table.context
    settings = CommitSettings.of(parse_options(world.options))
    transaction = Transaction.begin(context, Action.COMMIT, settings)
    transaction.start()
    Markers(context.storage, transaction.instant_time).create("a/x-0_0-0-0_1.parquet", MarkerType.CREATE)
    transaction.stop_heartbeat()

    def publish() -> None:
        with pytest.raises(WriteConflict, match="rolled back"):
            transaction.commit(PlannedCommit(CommitMetadata(operation_type="UPSERT", extra_metadata={"schema": ""})))

    def has_begun(operation: str, path: str) -> bool:
        return operation == "delete"

    storage = Interrupted(context.storage, has_begun, publish)
    done = rollback_failed_writes(replace(context, storage=storage), settings)
    assert [result.rolled_back for result in done] == [transaction.instant_time]
    with pytest.raises(InstantNotFound):
        world.table.rollback(transaction.instant_time)


def test_two_processes_finish_one_rollback(world: World) -> None:
    context = world.table.context
    settings = CommitSettings.of(parse_options(world.options))
    # The other one comes when the rollback has begun, and when all of it is done but for saying so.
    for when in ("delete", "sweep"):
        transaction = Transaction.begin(context, Action.COMMIT, settings)
        transaction.start()
        Markers(context.storage, transaction.instant_time).create("a/x-0_0-0-0_1.parquet", MarkerType.CREATE)
        transaction.stop_heartbeat()
        others: list[tuple[RollbackResult, ...]] = []

        def is_time(operation: str, path: str, when: str = when) -> bool:
            return operation == when

        def finish(found: list[tuple[RollbackResult, ...]] = others) -> None:
            found.append(rollback_failed_writes(context, settings))

        storage = Interrupted(context.storage, is_time, finish)
        mine = rollback_failed_writes(replace(context, storage=storage), settings)
        assert [result.rolled_back for result in (*mine, *others[0])] == [transaction.instant_time] * 2
        assert not world.table.timeline().pending()
    published = [i for i in world.table.timeline().instants if i.action is Action.ROLLBACK]
    files = [info.name for info in context.storage.list(".hoodie/timeline").files if info.name.endswith(".rollback")]
    assert len(published) == len(files) == 2


# Threads and processes


def together(count: int, act: Callable[[int], None]) -> None:
    """Run `act(0)`, ... in threads that start together; raises what one of them raised."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            act(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


LIVE = {
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.fpp": 0.01,
    "hoodie.clean.automatic": False,
    "hoodie.write.num.retries.on.conflict.failures": 100,
    "pyhudi.threads": 1,
}


def scan_values(table: Table) -> dict[str, int]:
    found = table.scan(["id", "v"]).to_arrow()
    pairs = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert len(pairs) == found.num_rows, "a key stands there twice"
    return pairs


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL"])
def test_threads_upsert_one_table(tmp_path: Path, mode: str) -> None:
    options = {**LIVE, "hoodie.write.concurrency.mode": mode}
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", options=options)
    instants: list[str | None] = []

    def act(number: int) -> None:
        own = Table(tmp_path / "t", options=options) if number % 2 else table
        for turn in range(3):
            data = pa.table(
                {"id": [f"own-{number}-{turn}", "shared"], "ts": [number * 10 + turn] * 2, "v": [number * 10 + turn] * 2}
            )
            instants.append(own.upsert(data).instant)

    together(4, act)
    assert len(set(instants)) == len(instants) == 12
    expected = {f"own-{number}-{turn}": number * 10 + turn for number in range(4) for turn in range(3)}
    assert scan_values(table) == {**expected, "shared": 32}
    assert not table.timeline().pending()


def test_failed_commit_names_the_conflict(tmp_path: Path) -> None:
    options = {**LIVE, "hoodie.write.num.retries.on.conflict.failures": 0}
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", options=options)
    table.upsert(pa.table({"id": ["a"], "ts": [0], "v": [0]}))
    landed: list[str] = []
    lost: list[WriteConflict] = []

    def act(number: int) -> None:
        for turn in range(3):
            key = f"{number}-{turn}"
            try:
                table.upsert(pa.table({"id": [key], "ts": [1], "v": [number]}))
                landed.append(key)
            except WriteConflict as conflict:
                lost.append(conflict)

    together(4, act)
    assert len(landed) + len(lost) == 12
    assert set(scan_values(table)) == {"a", *landed}
    completed = {i.request_time for i in table.timeline().completed_writes()}
    assert all(set(conflict.instants) & completed for conflict in lost)
    # The losers cleaned up after themselves.
    times = {path.name.rsplit("_", 1)[1].split(".")[0] for path in (tmp_path / "t").glob("*.parquet")}
    assert times <= completed


_WRITER = """
import sys
import pyarrow as pa
from pyhudi import Table
path, number = sys.argv[1], int(sys.argv[2])
table = Table(path, options={"hoodie.write.num.retries.on.conflict.failures": 100, "pyhudi.threads": 1,
    "hoodie.index.bloom.num_entries": 100, "hoodie.index.bloom.fpp": 0.01, "hoodie.clean.automatic": False})
for turn in range(3):
    data = pa.table({"id": [f"own-{number}-{turn}", "shared"], "ts": [number * 10 + turn] * 2, "v": [number * 10 + turn] * 2})
    print(table.upsert(data).instant)
"""


@pytest.mark.full
def test_processes_upsert_one_table(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", options=LIVE)
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "t")]
    writers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for n in range(3)]
    instants: list[str] = []
    for writer in writers:
        out, err = writer.communicate(timeout=1200)
        assert writer.returncode == 0, err
        instants += out.split()
    assert len(set(instants)) == len(instants) == 9
    expected = {f"own-{number}-{turn}": number * 10 + turn for number in range(3) for turn in range(3)}
    assert scan_values(table) == {**expected, "shared": 22}
    assert not table.timeline().pending()


def test_write_of_a_killed_process_is_rolled_back_at_once(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", options=LIVE)
    table.upsert(pa.table({"id": ["a"], "ts": [1], "v": [1]}))
    program = _WRITER.replace(
        "print(table",
        "import os; from pyhudi.operations.commit.transaction import Transaction; "
        "Transaction.commit = lambda *a, **k: os.kill(os.getpid(), 9)\n    print(table",
    )
    # Not waited for until the table was written again: a dead child that is still listed counts as dead.
    writer = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "t"), "5"])
    while not any(i.state.name == "INFLIGHT" for i in table.timeline().instants) or not _is_zombie(writer.pid):
        assert writer.returncode is None
    result = table.upsert(pa.table({"id": ["b"], "ts": [1], "v": [2]}))
    assert len(result.rolled_back) == 1
    assert scan_values(table) == {"a": 1, "b": 2}
    assert writer.wait() == -9


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def test_a_total_stays_constant(tmp_path: Path) -> None:
    """Each thread moves money between its own two accounts; all accounts are in one file group, so all of them conflict."""
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", options=LIVE)
    accounts = [f"{side}{number}" for number in range(3) for side in "xy"]
    table.upsert(pa.table({"id": accounts, "ts": [0] * 6, "v": [100] * 6}))
    done = threading.Event()
    totals: list[int] = []

    def transfers(number: int) -> Iterator[pa.Table]:
        for turn in range(1, 5):
            yield pa.table({"id": [f"x{number}", f"y{number}"], "ts": [turn] * 2, "v": [100 - turn * 7, 100 + turn * 7]})

    running = [3]

    def act(number: int) -> None:
        if number == 3:
            while not done.is_set():
                totals.append(sum(scan_values(table).values()))
            return
        try:
            for data in transfers(number):
                table.upsert(data)
        finally:
            running[0] -= 1
            if running[0] == 0:
                done.set()

    together(4, act)
    assert set(totals) == {600}
    assert scan_values(table) == {
        f"{side}{number}": 100 + sign * 28 for number in range(3) for side, sign in (("x", -1), ("y", 1))
    }
