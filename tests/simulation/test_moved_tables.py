"""Tables moved or copied with pending plans: plans name the old location and are executed at the new one."""

from __future__ import annotations

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.format.instants import Action
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import rollback_failed_writes
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.operations.services.cluster import ClusterSettings, schedule_clustering
from pyhudi.operations.services.compact import CompactSettings, schedule_compaction
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.memory import MemoryStorage
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import Act, World, every_file_counts, killed_everywhere

OPTIONS = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.clustering.plan.strategy.sort.columns": "value",
}
ENGINE = LocalEngine(1)


def clean(run: World, context: TableContext) -> object:
    return run_clean(context, CleanSettings.of(parse_options(run.options)))


def cluster(run: World, context: TableContext) -> object:
    return schedule_clustering(context, ENGINE, ClusterSettings.of(parse_options(run.options)))


def compact(run: World, context: TableContext) -> object:
    return schedule_compaction(context, CompactSettings.of(parse_options(run.options)))


def roll_back_failed(run: World, context: TableContext) -> object:
    return rollback_failed_writes(context, CommitSettings.of(parse_options(run.options)))


def check_moved_copy(run: World) -> None:
    there = open_storage(run.uri)
    before = {info.path: info.size_bytes for info in there.walk("")}
    copy = run.copy()
    moved = f"memory://another-place-{run.uri.rpartition('-')[2]}/deeper/down"
    MemoryStorage(moved, copy.environment)
    target = open_storage(moved)
    for path in before:
        target.put(path, there.read(path) or b"")
    copy.uri = moved
    assert copy.scanned() == copy.rows
    copy.table.clean(dry_run=False)
    copy.table.run_services(["compact", "cluster"])
    assert copy.scanned() == copy.rows
    copy.upsert({"k1": 1001, "k9": 9})
    assert copy.scanned() == copy.rows
    assert not copy.table.timeline().pending(Action.CLEAN, Action.ROLLBACK, Action.COMMIT, Action.DELTACOMMIT)
    every_file_counts(copy)
    assert {info.path: info.size_bytes for info in there.walk("")} == before, "the original changed"


@pytest.mark.crash_points
@pytest.mark.parametrize(
    ("act", "kind"),
    [(clean, "cow"), (clean, "mor"), (cluster, "cow"), (cluster, "mor"), (compact, "mor"), (roll_back_failed, "mor")],
)
def test_moved_table_is_read_and_written(act: Act, kind: str) -> None:
    world = World(kind, OPTIONS)
    for number in range(3):
        world.upsert({f"k{key}": number * 100 + key for key in range(number, number + 4)})
    if act is roll_back_failed:
        # Its completed file goes, as before the last step of a commit; data files and no heartbeat are there.
        last = world.table.timeline().completed_writes()[-1]
        before_last = world.states[sorted(world.states)[-2]]
        storage = open_storage(world.uri)
        markers = [
            f".hoodie/.temp/{last.request_time}/{path}.marker.CREATE" for path in world.files() if last.request_time in path
        ]
        for marker in markers:
            storage.put(marker, b"")
        storage.delete([world.table.context.timeline.path(last)])
        world.rows = dict(before_last)
    assert killed_everywhere(world, act, check_moved_copy) >= 1
