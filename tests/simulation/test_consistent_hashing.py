"""Writes that create consistent-hashing metadata, killed at every writing call: the current metadata names the file
groups that hold the rows, and the next writer finds its keys.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.format.instants import Action
from pyhudi.operations.commit.rollback import rollback_failed_writes, rollback_instant
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import Rows, World, every_file_counts, killed_everywhere, partition_of

OPTIONS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "pyhudi.threads": 1,
}
WRITTEN = {"k1": 201, "k3": 203, "k11": 211}


def world_with_commits() -> World:
    world = World("mor", OPTIONS)
    world.upsert({f"k{key}": key for key in range(6)})
    return world


def write(operation: WriteOperation, rows: Rows, run: World, context: TableContext) -> None:
    keys = sorted(rows)
    data = {"id": keys, "part": [partition_of(key) for key in keys]}
    stamp = pa.array([run.environment.now_ms()] * len(keys), pa.int64())
    table = pa.table({**data, "ts": stamp, "value": pa.array([rows[key] for key in keys], pa.int64())})
    run_write(context, LocalEngine(1), table, WriteSettings.of(parse_options(run.options), operation))


def settled(run: World, after: Rows) -> None:
    """The old rows or the new ones, exactly as the timeline records; the next writer finds each key."""
    found = run.scanned()
    assert found in (run.rows, after)
    run.rows = found
    run.upsert({"k1": 1001, "k2": 1002, "k9": 9})
    assert run.scanned() == run.rows
    assert not run.table.timeline().pending()
    every_file_counts(run)
    report = run.table.validate(keys=True)
    assert report.ok, str(report)


@pytest.mark.crash_points
@pytest.mark.parametrize("operation", [WriteOperation.UPSERT, pytest.param(WriteOperation.BULK_INSERT)])
def test_the_first_write_of_a_partition(operation: WriteOperation) -> None:
    world = World("mor", OPTIONS)
    world.upsert({"k0": 1})
    after = {**world.rows, **WRITTEN}
    assert killed_everywhere(world, lambda run, context: write(operation, WRITTEN, run, context), lambda run: settled(run, after))


@pytest.mark.crash_points
def test_an_overwrite() -> None:
    world = world_with_commits()
    after = {**{key: value for key, value in world.rows.items() if partition_of(key) != "b"}, **WRITTEN}
    act = WriteOperation.INSERT_OVERWRITE
    assert killed_everywhere(world, lambda run, context: write(act, WRITTEN, run, context), lambda run: settled(run, after))


@pytest.mark.crash_points
def test_a_partition_that_is_deleted() -> None:
    world = world_with_commits()
    after = {key: value for key, value in world.rows.items() if partition_of(key) != "b"}

    def delete(run: World, context: TableContext) -> None:
        settings = WriteSettings.of(parse_options(run.options), WriteOperation.DELETE_PARTITION)
        run_delete_partitions(context, ["b"], settings)

    assert killed_everywhere(world, delete, lambda run: settled(run, after))


@pytest.mark.crash_points
def test_the_rollback_of_an_overwrite() -> None:
    world = world_with_commits()
    before = dict(world.rows)
    context, _ = world.context()
    write(WriteOperation.INSERT_OVERWRITE, WRITTEN, world, context)
    undone = world.table.timeline().last_completed_write()
    assert undone is not None
    world.rows = world.scanned()

    def roll_back(run: World, context: TableContext) -> None:
        settings = WriteSettings.of(parse_options(run.options), WriteOperation.UPSERT)
        rollback_instant(context, undone, settings.commit)

    def check(run: World) -> None:
        if run.table.timeline().pending(Action.ROLLBACK):
            # The next writer ends it before anything else.
            rollback_failed_writes(run.context()[0], WriteSettings.of(parse_options(run.options), WriteOperation.UPSERT).commit)
            assert run.scanned() == before
        settled(run, before)

    assert killed_everywhere(world, roll_back, check)
