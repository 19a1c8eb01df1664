"""Compaction, log compaction and merge-on-read writes, killed at every writing call; processes that run the same plan."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InstantNotFound, TableState, WriteConflict
from pyhudi.format.instants import Action, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import rollback_failed_writes, rollback_instant
from pyhudi.operations.services.compact import (
    CompactSettings,
    run_compaction,
    run_log_compaction,
    schedule_compaction,
    schedule_log_compaction,
    unschedule,
)
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import Fault, FaultPoint
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import Act, World, every_file_counts, killed, killed_everywhere, partition_of

OPTIONS = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.log.compaction.blocks.threshold": 2,
}
ENGINE = LocalEngine(1)


def settings(world: World) -> CompactSettings:
    return CompactSettings.of(parse_options(world.options))


def compact(world: World, context: TableContext) -> object:
    return run_compaction(context, ENGINE, settings(world))


def log_compact(world: World, context: TableContext) -> object:
    return run_log_compaction(context, ENGINE, settings(world))


def world_with_commits(writes: int = 4, /, **options: object) -> World:
    world = World("mor", {**OPTIONS, **options})
    for number in range(writes):
        world.upsert({f"k{key}": number * 100 + key for key in range(number % 2, 6)})
    remove(world, "k0", "k3")
    return world


def remove(world: World, *keys: str) -> None:
    world.environment.advance_ms(1000)
    world.table.delete(pa.table({"id": list(keys), "part": [partition_of(key) for key in keys]}))
    world.rows = {key: value for key, value in world.rows.items() if key not in keys}


def check_next_writers(run: World) -> None:
    """The rows are there; a writer and a compactor of another process find nothing in their way, and leave nothing behind."""
    assert run.scanned() == run.rows
    run.upsert({"k1": 1001, "k9": 9})
    assert run.scanned() == run.rows
    compact(run, run.context()[0])
    assert run.scanned() == run.rows
    optimized = run.table.read_optimized(["id", "value"]).to_arrow()
    assert dict(zip(optimized["id"].to_pylist(), optimized["value"].to_pylist(), strict=True)) == run.rows
    assert not run.table.timeline().pending(Action.COMPACTION, Action.DELTACOMMIT, Action.ROLLBACK)
    every_file_counts(run)


@pytest.mark.crash_points
def test_compaction() -> None:
    assert killed_everywhere(world_with_commits(), compact, check_next_writers) >= 10


@pytest.mark.crash_points
def test_crash_while_scheduling_compaction() -> None:
    def schedule(run: World, context: TableContext) -> object:
        return schedule_compaction(context, settings(run))

    assert killed_everywhere(world_with_commits(), schedule, check_next_writers) >= 1


@pytest.mark.crash_points
def test_compaction_executes_during_writes() -> None:
    world = world_with_commits()
    planned = schedule_compaction(world.table.context, settings(world)).planned
    assert planned is not None
    world.upsert({"k2": 77, "k8": 8})
    remove(world, "k5")

    def execute(run: World, context: TableContext) -> object:
        return run_compaction(context, ENGINE, settings(run), planned)

    assert killed_everywhere(world, execute, check_next_writers) >= 8


@pytest.mark.crash_points
def test_log_compaction() -> None:
    def check(run: World) -> None:
        assert run.scanned() == run.rows
        run.upsert({"k2": 5})
        assert run.scanned() == run.rows
        log_compact(run, run.context()[0])
        assert run.scanned() == run.rows
        assert not run.table.timeline().pending()
        check_next_writers(run)

    assert killed_everywhere(world_with_commits(), log_compact, check) >= 10


@pytest.mark.crash_points
def test_upsert_and_delete() -> None:
    world = world_with_commits(2)
    data = pa.table({"id": ["k1", "k2", "k9"], "part": ["b", "a", "b"], "ts": [1 << 50] * 3, "value": [1, 2, 9]})

    def upsert(run: World, context: TableContext) -> object:
        return run_write(context, ENGINE, data, WriteSettings.of(parse_options(run.options), WriteOperation.UPSERT))

    def delete(run: World, context: TableContext) -> object:
        return run_write(
            context, ENGINE, data.select(["id", "part"]), WriteSettings.of(parse_options(run.options), WriteOperation.DELETE)
        )

    def either(after: dict[str, int]) -> Callable[[World], None]:
        def check(run: World) -> None:
            found = run.scanned()
            assert found in (run.rows, after)
            run.rows = found
            rollback_failed_writes(run.table.context, CommitSettings.of(parse_options(run.options)))
            assert run.scanned() == found
            every_file_counts(run)
            compact(run, run.context()[0])
            assert run.scanned() == found

        return check

    assert killed_everywhere(world, upsert, either({**world.rows, "k1": 1, "k2": 2, "k9": 9})) >= 8
    gone = {key: value for key, value in world.rows.items() if key not in ("k1", "k2", "k9")}
    assert killed_everywhere(world, delete, either(gone)) >= 8


@pytest.mark.crash_points
def test_crash_during_the_rollback_of_a_failed_compaction() -> None:
    world = world_with_commits()
    context, storage = world.copy().context()
    run_compaction(context, ENGINE, settings(world))
    outputs = [n for n, call in enumerate((c for c in storage.calls if c.writes), 1) if call.operation == "open_output"]
    dead = killed(world, compact, Fault(outputs[0], FaultPoint.AFTER))
    assert [i.state for i in dead.table.timeline().pending(Action.COMPACTION)] == [State.INFLIGHT]
    assert killed_everywhere(dead, compact, check_next_writers) >= 12


@pytest.mark.crash_points
def test_rollback_of_a_completed_delta_commit_and_of_a_completed_compaction() -> None:
    world = world_with_commits()
    before = dict(world.rows)
    instant = world.upsert({"k1": -1, "k7": -7})
    world.rows = before

    def undo(instant: str) -> Act:
        def act(run: World, context: TableContext) -> object:
            target = context.timeline.load().find(instant, Action.DELTACOMMIT, Action.COMMIT)
            return rollback_instant(context, target, settings(run).commit)

        return act

    def undone(run: World) -> None:
        if run.scanned() != before:
            assert run.scanned() == {**before, "k1": -1, "k7": -7}
            undo(instant)(run, run.context()[0])
        check_next_writers(run)

    assert killed_everywhere(world, undo(instant), undone) >= 6

    world = world_with_commits()
    done = run_compaction(world.table.context, ENGINE, settings(world)).instant
    assert done is not None
    assert killed_everywhere(world, undo(done), check_next_writers) >= 6
    undo(done)(world, world.table.context)
    assert not any(i.request_time == done for i in world.table.timeline().instants)


def test_a_delta_commit_that_a_plan_needs_is_not_rolled_back() -> None:
    world = world_with_commits()
    newest = world.table.timeline().completed_writes()[-1]
    planned = schedule_compaction(world.table.context, settings(world)).planned
    assert planned is not None
    with pytest.raises(TableState, match="is planned to rewrite its files"):
        world.table.rollback(newest.request_time)
    world.table.unschedule_compaction(planned)
    world.table.rollback(newest.request_time)
    with pytest.raises(InstantNotFound):
        world.table.compact(planned)


def test_compaction_whose_input_files_are_cleaned_is_not_rolled_back() -> None:
    world = world_with_commits()
    done = world.table.compact().instant
    assert done is not None
    world.upsert({"k1": 5})
    newest = world.table.timeline().completed_writes()[-1].request_time
    world.table.rollback(newest)
    options = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    world.table.clean(dry_run=False, options=options)
    world.rows.update(world.scanned())
    with pytest.raises(TableState, match="was cleaned"):
        world.table.rollback(done)
    assert world.scanned() == world.rows


def test_a_plan_has_one_executor() -> None:
    world = world_with_commits()
    planned = schedule_compaction(world.table.context, settings(world)).planned
    assert planned is not None
    met: list[str] = []

    class InterferingEngine(LocalEngine):
        def map(self, function, tasks):  # type: ignore[no-untyped-def]
            todo = list(tasks)
            with pytest.raises(TableState, match="another process is running it"):
                run_compaction(world.table.context, ENGINE, settings(world), planned)
            left = run_compaction(world.table.context, ENGINE, settings(world)).remaining
            (only,) = left
            assert only == planned
            with pytest.raises(TableState, match="another process is running it; stop that process first"):
                unschedule(world.table.context, settings(world), only)
            met.append(only)
            return super().map(function, todo)

    run_compaction(world.table.context, InterferingEngine(1), settings(world), planned)
    assert met == [planned]
    assert world.scanned() == world.rows
    check_next_writers(world)


def two_plans(world: World) -> list[str]:
    """A plan for each of the two partitions."""
    plans = []
    for partition in "ab":
        by_partition = {
            "hoodie.compaction.strategy": "PartitionRegexBasedCompactionStrategy",
            "hoodie.compaction.partition.path.regex": partition,
        }
        chosen = CompactSettings.of(parse_options({**world.options, **by_partition}))
        planned = schedule_compaction(world.table.context, chosen).planned
        assert planned is not None
        plans.append(planned)
    return plans


def test_compactors_on_different_plans_at_once() -> None:
    world = world_with_commits()
    first, second = two_plans(world)
    done: list[tuple[str, ...]] = []

    class InterferingEngine(LocalEngine):
        def map(self, function, tasks):  # type: ignore[no-untyped-def]
            todo = list(tasks)
            if not done:
                other = run_compaction(world.table.context, ENGINE, settings(world), schedule=False)
                done.append(tuple(run.instant for run in other.runs))
                assert list(other.remaining) == [first]
            return super().map(function, todo)

    run_compaction(world.table.context, InterferingEngine(1), settings(world), first)
    assert done == [(second,)]
    assert {i.request_time for i in world.table.timeline().completed(Action.COMMIT)} == {first, second}
    assert world.scanned() == world.rows
    check_next_writers(world)


def test_each_plan_is_taken_by_one_of_many_compactors() -> None:
    world = world_with_commits()
    plans = two_plans(world)
    together = threading.Barrier(4)

    def act(_: int) -> list[str]:
        context = world.table.context
        together.wait()
        return [run.instant for run in run_compaction(context, LocalEngine(1), settings(world), schedule=False).runs]

    with ThreadPoolExecutor(4) as pool:
        taken = [instant for instants in pool.map(act, range(4)) for instant in instants]
    assert sorted(taken) == plans
    assert not world.table.timeline().pending()
    assert world.scanned() == world.rows
    every_file_counts(world)
    check_next_writers(world)


def test_failed_compaction_task_returns_the_plan_to_requested() -> None:
    world = world_with_commits()

    class Failing(LocalEngine):
        def map(self, function, tasks):  # type: ignore[no-untyped-def]
            super().map(function, list(tasks)[:1])
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        run_compaction(world.table.context, Failing(1), settings(world))
    assert [i.state for i in world.table.timeline().pending(Action.COMPACTION)] == [State.REQUESTED]
    every_file_counts(world)
    check_next_writers(world)

    world = world_with_commits()
    with pytest.raises(OSError, match="no space"):
        schedule_and_fail = Failing(1)
        planned = schedule_log_compaction(world.table.context, ENGINE, settings(world)).planned
        run_log_compaction(world.table.context, schedule_and_fail, settings(world), planned)
    assert not world.table.timeline().pending()
    check_next_writers(world)


def test_a_log_that_completes_after_the_plan_joins_the_new_slice() -> None:
    world = world_with_commits()
    planned = schedule_compaction(world.table.context, settings(world)).planned
    world.upsert({"k2": 12345})
    rows = world.scanned()
    assert rows == world.rows
    world.table.compact(planned)
    assert world.scanned() == rows
    snapshot_slices = [s for found in _slices(world).values() for s in found]
    assert {(s.base_instant == planned, len(s.logs)) for s in snapshot_slices} == {(True, 1), (True, 0)}
    world.table.compact()
    assert world.scanned() == rows


def _slices(world: World):  # type: ignore[no-untyped-def]
    from pyhudi.table.snapshot import load_snapshot

    return load_snapshot(world.table.context).slices()


def test_log_compaction_overtaken_by_a_compaction_is_dropped() -> None:
    world = world_with_commits()
    planned = schedule_log_compaction(world.table.context, ENGINE, settings(world)).planned
    assert planned is not None
    world.upsert({"k2": 5, "k1": 6})
    world.table.compact()
    other = world.copy()
    with pytest.raises(WriteConflict, match="superseded by"):
        run_log_compaction(world.table.context, ENGINE, settings(world), planned)
    left = run_log_compaction(other.table.context, ENGINE, settings(other)).remaining
    assert "superseded by" in left[planned]
    assert not other.table.timeline().pending()
    assert not world.table.timeline().pending()
    assert world.scanned() == world.rows
    every_file_counts(world)


def test_no_log_compaction_is_planned_during_a_write() -> None:
    world = world_with_commits()
    context = world.table.context
    time = context.timeline.load().latest_time()
    context.timeline.request(str(int(time) + 1), Action.DELTACOMMIT)
    result = schedule_log_compaction(context, ENGINE, settings(world))
    assert result.planned is None
    assert "is pending" in result.reason


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"])
@pytest.mark.parametrize("log_format", ["avro", "parquet", "hfile"])
def test_repeated_log_compactions_keep_what_was_deleted(mode: str, log_format: str) -> None:
    world = world_with_commits(**{"hoodie.write.record.merge.mode": mode, "hoodie.logfile.data.block.format": log_format})
    for number in range(5):
        world.upsert({"k1": number, f"k{number + 1}": number})
        remove(world, "k1")
        world.table.log_compact()
        assert world.scanned() == world.rows
    # Nothing was added, and the one block that replaces all is no work.
    again = world.table.log_compact()
    assert again.planned is None
    assert world.scanned() == world.rows
    check_next_writers(world)


def test_write_concurrent_with_a_compaction_plan_is_retried() -> None:
    """Its log file carries an older time than the plan and would join the new slice, on rows that it has not seen."""
    world = world_with_commits()
    plans: list[str | None] = []

    class Planning(LocalEngine):
        def map(self, function, tasks):  # type: ignore[no-untyped-def]
            todo = list(tasks)
            done = super().map(function, todo)
            if not plans and any(i.state is State.INFLIGHT for i in world.table.timeline().pending(Action.DELTACOMMIT)):
                plans.append(schedule_compaction(world.table.context, settings(world)).planned)
            return done

    data = pa.table({"id": ["k1", "k2"], "part": ["b", "a"], "ts": [1 << 50] * 2, "value": [-1, -2]})
    write = WriteSettings.of(parse_options(world.options), WriteOperation.UPSERT)
    result = run_write(world.table.context, Planning(1), data, write)
    assert result.conflict_retries == 1
    world.rows.update({"k1": -1, "k2": -2})
    assert world.scanned() == world.rows
    assert result.instant is not None
    assert plans[0] is not None
    assert result.instant > plans[0]
    every_file_counts(world)
    world.table.compact(plans[0])
    assert world.scanned() == world.rows


@pytest.mark.crash_points
def test_crashed_compaction_does_not_block_overwrites() -> None:
    def compact(run: World, context: TableContext) -> object:
        return run_compaction(context, ENGINE, settings(run))

    def overwrites(run: World) -> None:
        assert run.scanned() == run.rows
        run.delete_partition("a")
        assert run.scanned() == run.rows
        assert not run.table.timeline().pending(Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)
        run.upsert({"k1": 1001, "k2": 1002})
        assert run.scanned() == run.rows

    world = World("mor", {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False})
    for number in range(3):
        world.upsert({f"k{key}": number * 100 + key for key in range(4)})
    assert killed_everywhere(world, compact, overwrites) >= 5


def test_failed_compaction_is_rolled_back_under_every_failed_writes_policy() -> None:
    made = World("mor", {**OPTIONS, "hoodie.clean.failed.writes.policy": "NEVER"})
    made.upsert({"k0": 0, "k2": 2})
    made.upsert({"k0": 1})
    plan = str(made.table.schedule_compaction().planned)

    def run_plan(world: World, context: TableContext) -> object:
        return run_compaction(context, ENGINE, settings(world), plan)

    whole = made.copy()
    context, storage = whole.context()
    run_plan(whole, context)
    for call in range(2, storage.write_count - 2):
        run = killed(made, run_plan, Fault(call, FaultPoint.BEFORE))
        run.environment.advance_ms(3_600_000)
        run.table.compact(plan)
        every_file_counts(run)
        assert run.scanned() == run.rows
        assert run.table.validate().ok
