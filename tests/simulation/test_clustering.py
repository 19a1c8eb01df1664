"""Clustering, killed at every writing call: no row is lost or doubled, and the next process completes it."""

from __future__ import annotations

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import TableState
from pyhudi.format.instants import Action, State
from pyhudi.operations.services.cluster import (
    ClusterSettings,
    drop_clustering,
    drop_orphaned_clustering,
    execute_clustering,
    plan_and_run_clustering,
    run_clusterings,
    schedule_clustering,
)
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import Fault, FaultPoint
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import Act, World, every_file_counts, killed, killed_everywhere

OPTIONS = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.clustering.plan.strategy.sort.columns": "value",
    "hoodie.clustering.async.max.commits": 1,
}
ENGINE = LocalEngine(1)


def settings(world: World) -> ClusterSettings:
    return ClusterSettings.of(parse_options(world.options))


def world_with_commits(kind: str, **options: object) -> World:
    world = World(kind, {**OPTIONS, **options})
    for number in range(3):
        world.upsert({f"k{key}": number * 100 + key for key in range(number * 2, number * 2 + 4)})
    return world


def cluster(run: World, context: TableContext) -> object:
    return run_clusterings(context, ENGINE, settings(run))


def check_next_writers(run: World) -> None:
    """The rows are there; a clustering of another process finds nothing in its way, and then a writer does not either."""
    assert run.scanned() == run.rows
    cluster(run, run.context()[0])
    assert run.scanned() == run.rows
    assert not run.table.timeline().pending(Action.CLUSTERING, Action.ROLLBACK)
    run.upsert({"k1": 1001, "k9": 9})
    assert run.scanned() == run.rows
    assert not run.table.timeline().pending()
    every_file_counts(run)


@pytest.mark.crash_points
@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.wide)])
def test_clustering(kind: str) -> None:
    assert killed_everywhere(world_with_commits(kind), cluster, check_next_writers) >= 8


@pytest.mark.crash_points
def test_crash_while_scheduling_clustering() -> None:
    def schedule(run: World, context: TableContext) -> object:
        return schedule_clustering(context, ENGINE, settings(run))

    assert killed_everywhere(world_with_commits("cow"), schedule, check_next_writers) >= 1


@pytest.mark.crash_points
def test_clustering_executes_during_inserts() -> None:
    world = world_with_commits("cow")
    planned = schedule_clustering(world.table.context, ENGINE, settings(world)).instant
    assert planned is not None
    world.upsert({"k21": 77, "k22": 78})

    def execute(run: World, context: TableContext) -> object:
        return execute_clustering(context, ENGINE, planned, settings(run))

    assert killed_everywhere(world, execute, check_next_writers) >= 6


@pytest.mark.crash_points
def test_crash_during_the_rollback_of_a_failed_clustering() -> None:
    world = world_with_commits("cow")
    context, storage = world.copy().context()
    cluster(world, context)
    outputs = [n for n, call in enumerate((c for c in storage.calls if c.writes), 1) if call.operation == "open_output"]
    dead = killed(world, cluster, Fault(outputs[0], FaultPoint.AFTER))
    assert [i.state for i in dead.table.timeline().pending(Action.CLUSTERING)] == [State.INFLIGHT]
    assert killed_everywhere(dead, cluster, check_next_writers) >= 8


@pytest.mark.crash_points
def test_dropping_a_plan_started_by_a_crashed_executor() -> None:
    world = world_with_commits("cow")
    context, storage = world.copy().context()
    cluster(world, context)
    outputs = [n for n, call in enumerate((c for c in storage.calls if c.writes), 1) if call.operation == "open_output"]
    dead = killed(world, cluster, Fault(outputs[0], FaultPoint.AFTER))
    planned = dead.table.timeline().pending(Action.CLUSTERING)[0].request_time

    def drop(run: World, context: TableContext) -> object:
        return drop_clustering(context, settings(run).commit, planned)

    def check(run: World) -> None:
        assert run.scanned() == run.rows
        drop(run, run.context()[0])
        assert not run.table.timeline().pending(Action.CLUSTERING)
        check_next_writers(run)

    assert killed_everywhere(dead, drop, check) >= 5


def writes_on(run: World) -> None:
    """The next writer changes the groups of the clustering, without help of another process."""
    assert run.scanned() == run.rows
    run.upsert({"k1": 1001, "k2": 1002, "k9": 9})
    assert run.scanned() == run.rows
    assert not run.table.timeline().pending()
    assert run.table.cluster().instant is not None
    assert run.scanned() == run.rows
    every_file_counts(run)


def cluster_now(run: World, context: TableContext) -> object:
    return plan_and_run_clustering(context, ENGINE, settings(run))


@pytest.mark.crash_points
@pytest.mark.parametrize(
    ("kind", "act"),
    [
        ("mor", cluster),
        ("cow", cluster_now),
        pytest.param("cow", cluster, marks=pytest.mark.wide),
        pytest.param("mor", cluster_now, marks=pytest.mark.wide),
    ],
)
def test_crash_of_a_clustering_stops_no_writer(kind: str, act: Act) -> None:
    assert killed_everywhere(world_with_commits(kind), act, writes_on) >= 8


@pytest.mark.crash_points
def test_crash_while_resolving_a_clustering_stops_no_writer() -> None:
    world = world_with_commits("cow")
    context, storage = world.copy().context()
    cluster(world, context)
    outputs = [n for n, call in enumerate((c for c in storage.calls if c.writes), 1) if call.operation == "open_output"]
    dead = killed(world, cluster, Fault(outputs[0], FaultPoint.AFTER))
    instant = dead.table.timeline().pending(Action.CLUSTERING)[0]

    def settle(run: World, context: TableContext) -> object:
        return drop_orphaned_clustering(context, settings(run).commit, instant)

    assert killed_everywhere(dead, settle, writes_on) >= 5


def test_unstarted_clustering_plan_blocks_writes_and_is_named() -> None:
    world = world_with_commits("cow")
    planned = world.table.schedule_clustering().instant
    with pytest.raises(TableState, match=f"pending clustering {planned} is about to replace.*unschedule_clustering"):
        world.upsert({"k1": 1001})


def test_a_write_that_a_pending_clustering_reads_is_not_rolled_back() -> None:
    world = world_with_commits("mor")
    last = world.upsert({"k1": 1001})
    planned = world.table.schedule_clustering().instant
    assert planned is not None
    with pytest.raises(TableState, match=rf"clustering {planned} .* unschedule_clustering"):
        world.table.rollback(last)
    world.table.unschedule_clustering(planned)
    world.table.rollback(last)


def test_restore_removes_clusterings_of_removed_commits() -> None:
    world = world_with_commits("cow")
    target = sorted(world.states)[-2]
    world.table.schedule_clustering()
    world.table.restore(target)
    world.rows = world.states[target]
    writes_on(world)


@pytest.mark.parametrize("who", ["writer", "repair", "plan"])
def test_unexecutable_clustering_is_rolled_back(who: str) -> None:
    """As others leave it: a rollback took away what the plan reads."""
    world = world_with_commits("cow")
    last = sorted(world.states)[-1]
    planned = world.table.schedule_clustering().instant
    storage, path = world.table.context.storage, f".hoodie/timeline/{planned}.clustering.requested"
    plan = storage.read(path)
    assert planned is not None
    assert plan is not None
    world.table.unschedule_clustering(planned)
    world.table.rollback(last)
    storage.put(path, plan)
    world.rows = world.states[sorted(world.states)[-2]]
    found = [finding.detail for finding in world.table.validate().findings if finding.path == path]
    assert len(found) == 1
    assert "can never run" in found[0]
    if who == "repair":
        assert [step.finding.startswith("a clustering can never run") for step in world.table.repair(dry_run=True).steps] == [
            True
        ]
        world.table.repair(dry_run=False)
        assert not world.table.timeline().pending()
    elif who == "plan":
        assert world.table.cluster().instant is not None
    writes_on(world)


def test_clustering_without_heartbeat_is_waited_for() -> None:
    """As Apache Hudi carries it out under its policy for one writer."""
    world = world_with_commits("cow")
    planned = world.table.schedule_clustering().instant
    assert planned is not None
    world.table.context.timeline.start(world.table.timeline().find(planned, Action.CLUSTERING))
    with pytest.raises(TableState, match=f"pending clustering {planned}"):
        world.upsert({"k1": 1001})
    world.environment.stall_ms(20 * 60_000)
    writes_on(world)
