"""A clean and a concurrent service plan do not remove each other's files, in either order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanFileInfo
from pyhudi.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from pyhudi.format.instants import Action
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.table.pending_plans import load_planned_files
from tests.simulation.non_blocking import OPTIONS, rows
from tests.simulation.tables import World

ONE_VERSION: dict[str, object] = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.clean.fileversions.retained": 1,
}
PLANS: dict[str, Callable[[World], object]] = {
    "log compaction": lambda world: world.table.schedule_log_compaction(),
    "compaction": lambda world: world.table.schedule_compaction(),
}
TOKEN = bytes(16)


def planned_files(world: World) -> set[str]:
    table = world.table
    return set(load_planned_files(table.context.timeline, table.timeline().pending()))


def clean(world: World) -> list[str]:
    """The files that a clean by versions deletes."""
    result = world.table.clean(dry_run=False, options=ONE_VERSION)
    return [path for paths in result.files.values() for path in paths]


@pytest.mark.parametrize("retries", [False, True])
def test_files_of_a_planned_log_compaction_stay_where_their_groups_were_replaced(retries: bool) -> None:
    world = World("mor", OPTIONS)
    for time in (1, 2):
        world.table.upsert(rows([("k0", time), ("k1", time)]))
    assert world.table.schedule_log_compaction().planned
    read = planned_files(world)
    assert read
    world.table.cluster()
    if retries:
        # A full clean examines what an incremental one skips.
        world.table.upsert(rows([("k0", 3)]))
    assert not read.intersection(clean(world))
    assert read <= world.files()
    assert world.table.validate().ok
    # The replaced groups need no merged block: the plan completes and writes nothing.
    result = world.table.log_compact()
    assert [run.bytes_written for run in result.runs] == [0]
    assert not result.remaining
    assert not world.table.timeline().pending()
    assert world.scanned() == {"k0": 3 if retries else 2, "k1": 2}
    # No reader needs them any more.
    world.table.upsert(rows([("k1", 4)]))
    clean(world)
    assert not read & world.files()


@pytest.mark.parametrize("service", PLANS)
def test_a_plan_that_comes_between_the_plan_and_the_request_of_a_clean(service: str) -> None:
    """As another kind of writer makes it, which may name any file."""
    world = World("mor", OPTIONS)
    for time in (1, 2):
        world.table.upsert(rows([("k0", time)]))
        world.table.compact()
    context = world.table.context
    old = min(path for path in world.files() if path.endswith(".parquet"))
    action = Action.COMPACTION if service == "compaction" else Action.LOGCOMPACTION
    partition, name = old.split("/")
    operation = CompactionOperation(name.split("_")[2].split(".")[0], (), name, name.split("_")[0], partition, {})

    def watch(_: int, call: StorageCall) -> None:
        if call.operation == "list" and call.path.endswith(f"/{partition}"):
            world.environment.advance_ms(1000)
            plan = CompactionPlan(operations=(operation,)).encode(TOKEN)
            context.timeline.request(str(int(world.table.timeline().latest_time()) + 1), action, plan)

    settings = CleanSettings.of(parse_options({**world.options, **ONE_VERSION}))
    result = run_clean(replace(context, storage=FaultyStorage(context.storage, listener=watch)), settings)
    assert result.instant is None
    assert "planned a service" in result.reason
    assert old in world.files()
    assert not world.table.timeline().pending(Action.CLEAN)


@pytest.mark.parametrize("service", PLANS)
def test_no_plan_is_made_that_reads_what_a_pending_clean_deletes(service: str) -> None:
    world = World("mor", OPTIONS)
    for time in (1, 2):
        world.table.upsert(rows([("k0", time)]))
    log = min(path for path in world.files() if ".log.1_" in path and not path.endswith(".cdc"))
    storage = open_storage(world.uri)
    deleted = {log.split("/")[0]: (CleanFileInfo(storage.absolute(log), False),)}
    plan = CleanerPlan(None, "", policy="KEEP_LATEST_FILE_VERSIONS", file_paths_to_be_deleted_per_partition=deleted)
    context = world.table.context
    cleaning = str(int(world.table.timeline().latest_time()) + 1)
    context.timeline.request(cleaning, Action.CLEAN, plan.encode(TOKEN))
    result = PLANS[service](world)
    assert getattr(result, "planned", None) is None
    assert f"clean {cleaning} is about to delete {log}" in getattr(result, "reason", "")
    assert not world.table.timeline().pending(Action.COMPACTION, Action.LOGCOMPACTION)
    context.timeline.remove_pending(cleaning, Action.CLEAN)
    assert getattr(PLANS[service](world), "planned", None)
    assert log in planned_files(world)
