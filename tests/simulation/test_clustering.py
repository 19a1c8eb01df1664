"""Clusterings, killed at every call that writes: no row is lost or doubled, and the next process ends what was begun."""

from __future__ import annotations

import pytest

from pyhudi.engines.local import LocalEngine
from pyhudi.format.instants import Action, State
from pyhudi.operations.cluster import (
    ClusteringOptions,
    drop_clustering,
    execute_clustering,
    run_clusterings,
    schedule_clustering,
)
from pyhudi.options import parse_options
from pyhudi.storage.faults import Fault, Moment
from pyhudi.table.context import TableContext
from tests.simulation.tables import World, every_file_counts, killed, killed_everywhere

OPTIONS = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.clustering.plan.strategy.sort.columns": "value",
    "hoodie.clustering.async.max.commits": 1,
}
ENGINE = LocalEngine(1)
KINDS = ("cow", pytest.param("mor", marks=pytest.mark.slow))


def settings(world: World) -> ClusteringOptions:
    return ClusteringOptions.of(parse_options(world.options))


def grown(kind: str, **options: object) -> World:
    world = World(kind, {**OPTIONS, **options})
    for number in range(3):
        world.upsert({f"k{key}": number * 100 + key for key in range(number * 2, number * 2 + 4)})
    return world


def cluster(run: World, context: TableContext) -> object:
    return run_clusterings(context, ENGINE, settings(run))


def goes_on(run: World) -> None:
    """The rows are there; a clustering of another process finds nothing in its way, and then a writer does not either."""
    assert run.scanned() == run.rows
    cluster(run, run.context()[0])
    assert run.scanned() == run.rows
    assert not run.table.timeline().pending(Action.CLUSTERING, Action.ROLLBACK)
    run.upsert({"k1": 1001, "k9": 9})
    assert run.scanned() == run.rows
    assert not run.table.timeline().pending()
    every_file_counts(run)


@pytest.mark.parametrize("kind", KINDS)
def test_clustering(kind: str) -> None:
    assert killed_everywhere(grown(kind), cluster, goes_on) >= 8


def test_planning_alone() -> None:
    def schedule(run: World, context: TableContext) -> object:
        return schedule_clustering(context, ENGINE, settings(run))

    assert killed_everywhere(grown("cow"), schedule, goes_on) >= 1


def test_carrying_out_while_inserts_go_on() -> None:
    world = grown("cow")
    planned = schedule_clustering(world.table.context, ENGINE, settings(world)).instant
    assert planned is not None
    world.upsert({"k21": 77, "k22": 78})

    def execute(run: World, context: TableContext) -> object:
        return execute_clustering(context, ENGINE, planned, settings(run))

    assert killed_everywhere(world, execute, goes_on) >= 6


@pytest.mark.slow
def test_the_end_of_a_dead_attempt_dies_as_well() -> None:
    world = grown("cow")
    context, storage = world.copy().context()
    cluster(world, context)
    outputs = [n for n, call in enumerate((c for c in storage.calls if c.writes), 1) if call.operation == "open_output"]
    dead = killed(world, cluster, Fault(outputs[0], Moment.AFTER))
    assert [i.state for i in dead.table.timeline().pending(Action.CLUSTERING)] == [State.INFLIGHT]
    assert killed_everywhere(dead, cluster, goes_on) >= 8


@pytest.mark.slow
def test_dropping_a_plan_that_a_dead_executor_had_begun() -> None:
    world = grown("cow")
    context, storage = world.copy().context()
    cluster(world, context)
    outputs = [n for n, call in enumerate((c for c in storage.calls if c.writes), 1) if call.operation == "open_output"]
    dead = killed(world, cluster, Fault(outputs[0], Moment.AFTER))
    planned = dead.table.timeline().pending(Action.CLUSTERING)[0].request_time

    def drop(run: World, context: TableContext) -> object:
        return drop_clustering(context, settings(run).commit, planned)

    def check(run: World) -> None:
        assert run.scanned() == run.rows
        drop(run, run.context()[0])
        assert not run.table.timeline().pending(Action.CLUSTERING)
        goes_on(run)

    assert killed_everywhere(dead, drop, check) >= 5
