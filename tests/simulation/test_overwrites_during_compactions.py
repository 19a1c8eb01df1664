"""Overwrites and deleted partitions of file groups with a planned, running or crashed compaction.

The write succeeds. Replaced rows do not return after the compaction, a clean, an archival or a crash at any call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from _pytest.mark.structures import ParameterSet

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import TableState, WriteConflict
from pyhudi.format.instants import Action, State
from pyhudi.operations.commit.results import CompactionRun
from pyhudi.operations.services.compact import (
    CompactSettings,
    run_compaction,
    run_log_compaction,
    schedule_compaction,
    schedule_log_compaction,
)
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import Fault, FaultPoint
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, every_file_counts, killed, killed_everywhere, partition_of

QUIET: Mapping[str, object] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.log.compaction.blocks.threshold": 2,
}
INDEXED: Mapping[str, object] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.index.partition.stats.enable": True,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.index.bloom.filter.enable": True,
}
VERSIONS: Mapping[str, object] = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
COMMITS: Mapping[str, object] = {"hoodie.clean.commits.retained": 1}
KEPT: Mapping[str, object] = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
OPERATIONS = ("insert_overwrite", "insert_overwrite_table", "delete_partitions")


def settings(world: World) -> CompactSettings:
    return CompactSettings.of(parse_options(world.options))


def world_with_commits(**options: object) -> World:
    """A file group with logs in each of two partitions."""
    world = World("mor", {**QUIET, **options})
    world.upsert({f"k{key}": key for key in range(6)})
    world.upsert({f"k{key}": 10 + key for key in range(0, 6, 2)})
    world.upsert({f"k{key}": 20 + key for key in range(1, 4)})
    world.upsert({"k3": 43, "k5": 45})
    return world


def plan(world: World) -> str:
    planned = schedule_compaction(world.table.context, settings(world)).planned
    assert planned is not None
    # Logs that belong to the slice that the compaction makes.
    world.upsert({"k0": 30, "k1": 31})
    return planned


def batch(world: World, *numbers: int) -> pa.Table:
    keys = [f"k{number}" for number in numbers]
    stamps = pa.array([world.environment.now_ms()] * len(keys), pa.int64())
    values = pa.array([900 + number for number in numbers], pa.int64())
    return pa.table({"id": keys, "part": [partition_of(key) for key in keys], "ts": stamps, "value": values})


def after(method: str, rows: Mapping[str, int]) -> dict[str, int]:
    """The rows after partition a, or the table, was replaced."""
    if method == "insert_overwrite_table":
        return {"k0": 900, "k7": 907}
    others = {key: value for key, value in rows.items() if partition_of(key) == "b"}
    return {**others, **({"k0": 900, "k8": 908} if method == "insert_overwrite" else {})}


def act(world: World, context: TableContext, method: str) -> object:
    """What replaces partition a, or the table."""
    world.environment.advance_ms(1000)
    given, engine = parse_options(world.options), LocalEngine(1)
    if method == "delete_partitions":
        return run_delete_partitions(context, ["a"], WriteSettings.of(given, WriteOperation.DELETE_PARTITION), engine)
    numbers = (0, 8) if method == "insert_overwrite" else (0, 7)
    return run_write(context, engine, batch(world, *numbers), WriteSettings.of(given, WriteOperation(method)))


def replace_rows(world: World, method: str) -> str:
    """Returns the instant."""
    act(world, world.table.context, method)
    world.rows = after(method, world.rows)
    newest = world.table.timeline().last_completed_write()
    assert newest is not None and newest.action is Action.REPLACECOMMIT
    return newest.request_time


def check(world: World) -> None:
    """The rows are there, by listings and indexes, and the table is whole."""
    assert world.scanned() == world.rows
    report = world.table.validate()
    assert report.ok, str(report)
    for key in ("k0", "k1", "k2", "k7", "k8"):
        found = world.table.scan(["value"], filter=f"id = '{key}'").to_arrow()["value"].to_pylist()
        assert found == [world.rows[key]] if key in world.rows else not found, key


def run_other_processes(world: World) -> None:
    """A writer, a compaction, a clean and an archival of other processes, again and again."""
    for number in range(3):
        world.upsert({"k1": 1000 + number, "k8": 2000 + number, "k9": 3000 + number})
        world.table.compact()
        world.table.clean(dry_run=False, options=COMMITS)
        world.table.archive(options=KEPT)
        check(world)
    assert not world.table.timeline().pending()
    every_file_counts(world)


@pytest.fixture(params=[False, True], ids=["listed", "indexed"])
def world(request: pytest.FixtureRequest) -> World:
    return world_with_commits(**(INDEXED if request.param else {}))


def _pairs(policies: Mapping[str, Mapping[str, object] | None]) -> list[ParameterSet]:
    """Tables without and with indexes, operations and policies of a clean: two of them in every combination; the rest is wide."""
    return [
        pytest.param(
            is_indexed,
            method,
            policy,
            marks=() if (number + turn + is_indexed) % 2 == 0 else pytest.mark.wide,
            id=f"{method}-{name}-{'indexed' if is_indexed else 'listed'}",
        )
        for is_indexed in (False, True)
        for number, method in enumerate(OPERATIONS)
        for turn, (name, policy) in enumerate(policies.items())
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", OPERATIONS)
def test_overwrite_with_a_planned_compaction(world: World, method: str) -> None:
    planned = plan(world)
    replacing = replace_rows(world, method)
    check(world)
    done = world.table.compact(planned)
    assert isinstance(done.runs[0], CompactionRun)
    assert done.runs[0].file_groups == done.runs[0].files_written == (0 if method == "insert_overwrite_table" else 1)
    check(world)
    world.table.clean(dry_run=False, options=VERSIONS)
    world.table.archive(options={**KEPT, **VERSIONS})
    check(world)
    assert world.scanned(as_of=replacing) == world.rows
    run_other_processes(world)


BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
OTHERS: Mapping[str, Mapping[str, object]] = {
    "buckets": BUCKETS,
    "rings": {**BUCKETS, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
    "non-blocking": {**BUCKETS, "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"},
    "version 9": {**INDEXED, "hoodie.write.table.version": 9},
    "no meta columns": {"hoodie.populate.meta.fields": False},
}


# Writers that do not wait for each other overwrite nothing, whether or not a compaction is planned.
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "method"),
    [(name, method) for name in OTHERS for method in OPERATIONS if name != "non-blocking" or method == "delete_partitions"],
)
def test_overwrite_with_a_planned_compaction_in_other_table_layouts(name: str, method: str) -> None:
    world = world_with_commits(**OTHERS[name])
    planned = plan(world)
    replace_rows(world, method)
    check(world)
    assert world.table.compact(planned).runs
    check(world)
    run_other_processes(world)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("world", "method", "policy"), _pairs({"versions": VERSIONS, "commits": COMMITS}), indirect=["world"])
def test_overwrite_clean_and_archival_before_the_plan_runs(world: World, method: str, policy: Mapping[str, object]) -> None:
    planned = plan(world)
    replace_rows(world, method)
    for number in range(4):
        world.upsert({"k9": number})
        world.table.clean(dry_run=False, options=policy)
        world.table.archive(options={**KEPT, **policy})
        check(world)
    assert world.table.compact(planned).runs
    check(world)
    run_other_processes(world)


class Between(LocalEngine):
    """An engine that does something once, when the tasks of an action have written their files."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__(1)
        self._then: Callable[[], object] | None = then

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        done = super().map(function, tasks)
        then, self._then = self._then, None
        if then is not None:
            then()
        return done


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("world", "method", "clean"), _pairs({"": None, "versions": VERSIONS, "commits": COMMITS}), indirect=["world"]
)
def test_overwrite_during_a_running_compaction(world: World, method: str, clean: Mapping[str, object] | None) -> None:
    """It has written files for the file groups that are replaced.  Where a clean has come before it completes, an archival must
    not take the replacement from the timeline: the files would count again.
    """
    planned = plan(world)

    def act_concurrently() -> None:
        replace_rows(world, method)
        if clean is not None:
            world.table.clean(dry_run=False, options=clean)
            world.table.archive(options={**KEPT, **clean})

    run_compaction(world.table.context, Between(act_concurrently), settings(world), planned)
    check(world)
    assert not world.table.timeline().pending(Action.COMPACTION)
    for number in range(3):
        world.upsert({"k9": number})
        world.table.compact()
        world.table.archive(options={**KEPT, **(clean or COMMITS)})
        check(world)
    run_other_processes(world)


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", OPERATIONS)
def test_a_compaction_that_completes_while_rows_are_replaced(world: World, method: str) -> None:
    planned = plan(world)
    context, given = world.table.context, parse_options(world.options)
    engine = Between(lambda: world.table.compact(planned))
    if method == "delete_partitions":
        run_delete_partitions(context, ["a"], WriteSettings.of(given, WriteOperation.DELETE_PARTITION), engine)
        world.table.run_services(["compact"])
    else:
        numbers = (0, 8) if method == "insert_overwrite" else (0, 7)
        run_write(context, engine, batch(world, *numbers), WriteSettings.of(given, WriteOperation(method)))
    world.rows = after(method, world.rows)
    check(world)
    run_other_processes(world)


@pytest.mark.crash_points
@pytest.mark.parametrize("method", OPERATIONS)
def test_overwrite_with_a_failed_compaction(method: str) -> None:
    """At each call of the compaction; its remains block no process, and the next one executes the plan."""
    made = world_with_commits()
    planned = plan(made)

    def compact(run: World, context: TableContext) -> object:
        return run_compaction(context, LocalEngine(1), settings(run), planned)

    def overwritten(run: World) -> None:
        assert run.scanned() == run.rows
        replace_rows(run, method)
        assert run.scanned() == run.rows
        run.environment.advance_ms(3_600_000)
        run.table.compact()
        assert run.scanned() == run.rows
        assert not run.table.timeline().pending(Action.COMPACTION)
        every_file_counts(run)

    assert killed_everywhere(made, compact, overwritten) >= 8


@pytest.mark.crash_points
@pytest.mark.parametrize("method", OPERATIONS)
def test_crash_of_an_overwrite_with_a_planned_compaction(method: str) -> None:
    made = world_with_commits()
    plan(made)
    replaced = after(method, made.rows)

    def either(run: World) -> None:
        found = run.scanned()
        assert found in (run.rows, replaced)
        run.rows = found
        run.environment.advance_ms(3_600_000)
        run.upsert({"k9": 9})
        run.table.compact()
        assert run.scanned() == run.rows
        assert not run.table.timeline().pending()
        every_file_counts(run)

    assert killed_everywhere(made, lambda run, context: act(run, context, method), either) >= 3


@pytest.mark.crash_points
@pytest.mark.parametrize("method", OPERATIONS)
def test_crash_of_a_compaction_of_replaced_file_groups(method: str) -> None:
    made = world_with_commits()
    planned = plan(made)
    replace_rows(made, method)

    def compact(run: World, context: TableContext) -> object:
        return run_compaction(context, LocalEngine(1), settings(run), planned)

    def completed(run: World) -> None:
        assert run.scanned() == run.rows
        run.environment.advance_ms(3_600_000)
        run.table.compact()
        assert run.scanned() == run.rows
        assert not run.table.timeline().pending(Action.COMPACTION)

    assert killed_everywhere(made, compact, completed) >= 3


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", OPERATIONS)
def test_rolled_back_overwrite_restores_every_row(world: World, method: str) -> None:
    """The compaction has written nothing for the groups that were replaced then; their logs are still there."""
    planned = plan(world)
    before = dict(world.rows)
    replacing = replace_rows(world, method)
    world.table.compact(planned)
    world.table.rollback(replacing)
    world.rows = before
    check(world)
    run_other_processes(world)


def test_a_restore_and_a_time_travel_to_before_the_replacement(world: World) -> None:
    plan(world)
    before = dict(world.rows)
    kept = world.table.savepoint().instant
    replace_rows(world, "insert_overwrite")
    world.table.compact()
    assert world.scanned(as_of=kept) == before
    world.table.clean(dry_run=False, options=VERSIONS)
    assert world.scanned(as_of=kept) == before
    world.table.restore(kept)
    world.rows = before
    check(world)


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", OPERATIONS)
def test_a_plan_that_is_dropped_afterwards(world: World, method: str) -> None:
    planned = plan(world)
    replace_rows(world, method)
    world.table.clean(dry_run=False, options=VERSIONS)
    world.table.unschedule_compaction(planned)
    for number in range(4):
        world.upsert({"k9": number})
        world.table.archive(options={**KEPT, **VERSIONS})
        check(world)
    run_other_processes(world)


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", OPERATIONS)
def test_a_planned_log_compaction(world: World, method: str) -> None:
    planned = schedule_log_compaction(world.table.context, LocalEngine(1), settings(world)).planned
    assert planned is not None
    replace_rows(world, method)
    check(world)
    done = world.table.log_compact(planned)
    assert done.runs[0].file_groups == (0 if method == "insert_overwrite_table" else 1)
    check(world)
    run_other_processes(world)


@pytest.mark.parametrize("method", OPERATIONS)
def test_a_log_compaction_that_is_under_way_is_dropped(method: str) -> None:
    world = world_with_commits()
    planned = schedule_log_compaction(world.table.context, LocalEngine(1), settings(world)).planned
    with pytest.raises(WriteConflict, match="superseded"):
        run_log_compaction(world.table.context, Between(lambda: replace_rows(world, method)), settings(world), planned)
    check(world)
    run_other_processes(world)


@pytest.mark.parametrize("method", OPERATIONS)
def test_a_planned_clustering_holds_its_file_groups(method: str) -> None:
    """Hudi lets overwrites pass there, and the clustering brings the replaced rows back (tests/interop)."""
    world = world_with_commits()
    planned = world.table.schedule_clustering().instant
    with pytest.raises(TableState, match=f"pending clustering {planned} is about to replace"):
        replace_rows(world, method)
    check(world)


def test_change_query_returns_deletes_of_replaced_file_groups() -> None:
    world = world_with_commits(**{"hoodie.table.cdc.enabled": True})
    planned = plan(world)
    replacing = replace_rows(world, "insert_overwrite")

    def changes_of_overwrite() -> list[tuple[str, str]]:
        found = world.table.changes(columns=["op", "before", "after"], filter=f"ts_ms = '{replacing}'", typed=True).to_arrow()
        return [(row["op"], (row["before"] or row["after"])["id"]) for row in found.to_pylist()]

    expected = [("d", "k0"), ("d", "k2"), ("d", "k4"), ("i", "k0"), ("i", "k8")]
    assert sorted(changes_of_overwrite()) == expected
    world.table.compact(planned)
    assert sorted(changes_of_overwrite()) == expected
    assert [op for op, _ in changes_of_overwrite()] == ["d"] * 3 + ["i"] * 2


def test_rows_of_another_type_wait_for_the_plan() -> None:
    """Hudi would carry the plan out, and could not read the old rows as those of the new columns."""
    world = world_with_commits()
    planned = plan(world)
    texts = batch(world, 0, 1).set_column(3, "value", pa.array(["x", "y"]))
    given = {**world.options, "pyhudi.schema.mode": "evolve"}
    anew = WriteSettings.of(parse_options(given), WriteOperation.INSERT).overwriting()
    with pytest.raises(TableState, match=f"compaction {planned} is planned for rows of the old type"):
        run_write(world.table.context, LocalEngine(1), texts, anew)
    world.table.compact(planned)
    run_write(world.table.context, LocalEngine(1), texts, anew)
    assert sorted(world.table.scan(["value"]).to_arrow()["value"].to_pylist()) == ["x", "y"]


def test_failed_compaction_is_recognized() -> None:
    """The world in which the deaths above happen: an attempt that is inflight when the rows are replaced."""
    made = world_with_commits()
    planned = plan(made)

    def compact(run: World, context: TableContext) -> object:
        return run_compaction(context, LocalEngine(1), settings(run), planned)

    context, storage = made.copy().context()
    run_compaction(context, LocalEngine(1), settings(made), planned)
    outputs = [n for n, call in enumerate((c for c in storage.calls if c.writes), 1) if call.operation == "open_output"]
    dead = killed(made, compact, Fault(outputs[-1], FaultPoint.AFTER))
    assert [i.state for i in dead.table.timeline().pending(Action.COMPACTION)] == [State.INFLIGHT]
    replace_rows(dead, "insert_overwrite")
    dead.environment.advance_ms(3_600_000)
    assert Table(dead.uri, options=dead.options, environment=dead.environment).compact().runs[0].file_groups == 1
    check(dead)
