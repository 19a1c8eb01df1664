"""Operations concurrent with a process that archives, cleans, rolls back or rebuilds files which they listed but did not read
yet. The other process acts before one storage call: before the first and last of each kind, in the wide tier before
every call. The operation reloads the table and succeeds without a warning of damage.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import pytest

from pyhudi import Table
from pyhudi.errors import HudiError, TableState
from pyhudi.metadata_table.writer import metadata_services
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from tests.simulation.tables import World, kind_of
from tests.support.shares import chosen

OPTIONS = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.metadata.index.partition.stats.enable": False,
    "hoodie.metadata.compact.max.delta.commits": 2,
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.compact.inline": False,
    "hoodie.log.compaction.blocks.threshold": 2,
    "hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy",
    "pyhudi.threads": 1,
}

Call = Callable[[Table, World], object]
Act = Callable[[World], object]


def scans(table: Table, world: World) -> object:
    return table.scan(["id", "value"]).to_arrow()


def filters(table: Table, world: World) -> object:
    return table.scan(["id", "value"], "id = 'k1'").to_arrow()


def upserts(table: Table, world: World) -> object:
    data = world.table.scan(["id", "part", "ts", "value"], "id = 'k3'").to_arrow()
    return table.upsert(data)


def cleans(table: Table, world: World) -> object:
    return table.clean(dry_run=False)


def log_compacts(table: Table, world: World) -> object:
    return table.schedule_log_compaction()


def shows(table: Table, world: World) -> object:
    return table.inspect.commits(), table.inspect.file_slices()


def writes_on(world: World) -> None:
    """Enough commits that the timelines of the table and of its metadata table are compacted, cleaned and archived."""
    for number in range(4):
        world.upsert({"k0": 100 + number, "k1": 200 + number})


def rolls_back(world: World) -> None:
    # A later write that is under way forbids it.
    with suppress(TableState):
        world.table.rollback(world.table.timeline().completed_writes()[-1].request_time)


def drops_indexes(world: World) -> None:
    world.table.drop_metadata_table()


def cleans_and_archives(world: World) -> None:
    world.table.clean(dry_run=False)
    world.table.archive()


@cache
def prepared_world(kind: str, *, kept: bool) -> World:
    options = {"hoodie.clean.automatic": kept, "hoodie.archive.automatic": kept}
    world = World(kind, {**OPTIONS, **options})
    world.upsert({f"k{number}": number for number in range(6)})
    for number in range(6):
        world.upsert({"k0": 10 + number, "k1": 20 + number})
    return world


def watched(world: World, watch: Callable[[int, StorageCall], object]) -> Table:
    def watching(number: int, call: StorageCall) -> None:
        watch(number, call)

    table = world.table
    table._open = table._open.at(table.context)
    object.__setattr__(table._open.context, "storage", FaultyStorage(table.context.storage, listener=watching))
    return table


def is_locked(table: Table) -> bool:
    try:
        table.context.lock.check()
    except HudiError:
        return False
    return True


@pytest.mark.sample(5)
@pytest.mark.crash_points
@pytest.mark.parametrize(
    ("kind", "operation", "act"),
    [
        ("cow", scans, writes_on),
        ("cow", filters, writes_on),
        ("mor", filters, drops_indexes),
        ("cow", upserts, writes_on),
        ("mor", upserts, rolls_back),
        ("mor", upserts, drops_indexes),
        ("cow", cleans, cleans_and_archives),
        ("mor", log_compacts, writes_on),
        ("cow", shows, rolls_back),
    ],
)
def test_operation_reloads_after_concurrent_archival(
    kind: str, operation: Call, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else cleans and archival of the metadata table keep more than twenty commits.
    monkeypatch.setattr(metadata_services, "_MIN_RETAINED", 1)
    calls: list[tuple[int, StorageCall]] = []
    kept = operation is not cleans
    first = prepared_world(kind, kept=kept).copy()

    def note(number: int, call: StorageCall) -> None:
        # A query that reads rows when its files go has an error of its own; a write plans again.
        if not is_locked(table) and ("/.hoodie/" in call.path or operation is upserts):
            calls.append((number, call))

    table = watched(first, note)
    operation(table, first)
    assert len(calls) >= 5
    for at, call in chosen(calls, lambda numbered: kind_of(numbered[1])):
        world = prepared_world(kind, kept=kept).copy()

        def watch(number: int, call: StorageCall, at: int = at, world: World = world) -> None:
            if number == at:
                act(world)

        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                operation(watched(world, watch), world)
            except Exception as error:
                error.add_note(f"before call {at}, {call}")
                raise
        report = world.table.validate()
        assert report.ok, (at, call, str(report))
