"""Consistent-hashing resizes and concurrent writes, killed at every writing call: no row is lost or doubled, each key
is in its bucket, and the next process completes the resize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import WriteConflict
from pyhudi.format.instants import Action
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.commit.rollback import rollback_instant
from pyhudi.operations.services.cluster import (
    ClusterSettings,
    drop_clustering,
    execute_clustering,
    run_clusterings,
    schedule_clustering,
)
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.snapshot import double_written_logs
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import Rows, World, killed_everywhere, partition_of

OPTIONS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.bucket.index.max.num.buckets": 2,
    "hoodie.parquet.max.file.size": 100,
    "hoodie.bucket.index.merge.threshold": 0.0,
    "hoodie.clustering.updates.strategy": "SparkConsistentBucketDuplicateUpdateStrategy",
    "hoodie.clustering.async.max.commits": 1,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.parquet.bloom.filter.enabled": False,
    "pyhudi.threads": 1,
}
ENGINE = LocalEngine(1)
WRITTEN = {"k0": 200, "k2": 202, "k20": 220}


def settings(world: World) -> ClusterSettings:
    return ClusterSettings.of(parse_options(world.options))


def world_with_commits() -> World:
    world = World("mor", OPTIONS)
    world.upsert({f"k{key}": key for key in range(0, 8, 2)})
    return world


def pending() -> tuple[World, str]:
    """A resize that waits, and a concurrent write."""
    world = world_with_commits()
    planned = schedule_clustering(world.table.context, ENGINE, settings(world)).instant
    assert planned is not None
    world.upsert({"k2": 102, "k10": 110})
    return world, planned


def resize(run: World, context: TableContext) -> object:
    return run_clusterings(context, ENGINE, settings(run))


def write(run: World, context: TableContext, rows: Rows = WRITTEN) -> None:
    keys = sorted(rows)
    data = {"id": keys, "part": [partition_of(key) for key in keys]}
    stamp = pa.array([run.environment.now_ms()] * len(keys), pa.int64())
    table = pa.table({**data, "ts": stamp, "value": pa.array([rows[key] for key in keys], pa.int64())})
    run_write(context, ENGINE, table, WriteSettings.of(parse_options(run.options), WriteOperation.UPSERT))


def check_next_writers(run: World) -> None:
    """The rows are there; a writer, a resize and another writer are not blocked, and leave no unreferenced file."""
    assert run.scanned() == run.rows
    run.upsert({"k4": 1004, "k30": 30})
    assert run.scanned() == run.rows
    resize(run, run.context()[0])
    assert run.scanned() == run.rows
    assert not run.table.timeline().pending()
    run.upsert({"k6": 1006})
    assert run.scanned() == run.rows
    report = run.table.validate(keys=True)
    assert not report.findings, str(report)


@pytest.mark.crash_points
def test_a_resize() -> None:
    assert killed_everywhere(world_with_commits(), resize, check_next_writers) >= 8


@pytest.mark.crash_points
def test_crash_of_a_resize_during_writes() -> None:
    world, planned = pending()

    def execute(run: World, context: TableContext) -> object:
        return execute_clustering(context, ENGINE, planned, settings(run))

    assert killed_everywhere(world, execute, check_next_writers) >= 7


@pytest.mark.crash_points
def test_crash_of_a_write_during_a_resize() -> None:
    world, _ = pending()
    before, after = dict(world.rows), {**world.rows, **WRITTEN}

    def check(run: World) -> None:
        run.rows = run.scanned()
        assert run.rows in (before, after)
        check_next_writers(run)

    assert killed_everywhere(world, write, check) >= 6


@pytest.mark.crash_points
def test_a_resize_that_is_dropped() -> None:
    world, planned = pending()

    def drop(run: World, context: TableContext) -> object:
        return drop_clustering(context, settings(run).commit, planned)

    assert killed_everywhere(world, drop, check_next_writers) >= 5


@pytest.mark.crash_points
def test_crash_of_the_rollback_of_a_write_during_a_resize() -> None:
    world, _ = pending()
    before = dict(world.rows)
    world.upsert(WRITTEN)
    undone = world.table.timeline().last_completed_write()
    assert undone is not None
    after = dict(world.rows)

    def roll_back(run: World, context: TableContext) -> object:
        return rollback_instant(context, undone, settings(run).commit)

    def check(run: World) -> None:
        begun = run.table.timeline().pending(Action.ROLLBACK)
        run.rows = run.scanned()
        assert run.rows in (before, after)
        if begun:
            # The next writer ends it before anything else.
            run.rows = dict(before)
            run.upsert({"k4": 4})
        check_next_writers(run)

    assert killed_everywhere(world, roll_back, check) >= 5


@pytest.mark.crash_points
@pytest.mark.parametrize("keeps_copies", [True, False], ids=["to a write during the resize", "to before the resize"])
def test_crash_of_a_restore_of_writes_during_a_resize(keeps_copies: bool) -> None:
    """Readers see no state without the copies of a write that is still there, and no copy outlives the restore."""
    world = world_with_commits()
    before = max(world.states)
    planned = schedule_clustering(world.table.context, ENGINE, settings(world)).instant
    assert planned is not None
    world.upsert({"k2": 102})
    target = max(world.states) if keeps_copies else before
    world.upsert({"k2": 202, "k10": 110, "k1": 101})
    execute_clustering(world.table.context, ENGINE, planned, settings(world))
    timeline = world.table.timeline()
    undone = [i for i in timeline.completed_writes() if i.request_time > max(target, planned)]
    copies = {path for i in undone for path in double_written_logs(world.table.context.timeline, timeline, i)}
    assert copies <= set(world.files()) and copies
    states = list(world.states.values())
    world.rows = dict(world.states[target])

    def restore(run: World, context: TableContext) -> object:
        return run_restore(context, settings(run).commit, target)

    def check(run: World) -> None:
        if not run.table.timeline().completed(Action.RESTORE):
            assert run.scanned() in states
            restore(run, run.context()[0])
        assert run.scanned() == run.rows
        assert not copies.intersection(run.files())
        assert not run.table.timeline().pending(Action.RESTORE)

    assert killed_everywhere(world, restore, check) >= 7


class SuspendedEngine(LocalEngine):
    """Suspends after writing its files, until other processes have considered it dead and completed its work."""

    def __init__(self, act_concurrently: Callable[[], object]) -> None:
        super().__init__(1)
        self._act_concurrently = [act_concurrently]

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        done = super().map(function, tasks)
        while self._act_concurrently:
            self._act_concurrently.pop()()
        return done


def test_resumed_resize_attempt_keeps_double_written_logs() -> None:
    """Copies have the time of the resize, and are of writes: those remain, and the resize that others completed shows them."""
    world, planned = pending()

    def take_over() -> None:
        world.environment.stall_ms(500_000)
        assert execute_clustering(world.context()[0], ENGINE, planned, settings(world)).completion_time

    with pytest.raises(WriteConflict, match="had no heartbeat"):
        execute_clustering(world.context()[0], SuspendedEngine(take_over), planned, settings(world))
    check_next_writers(world)
