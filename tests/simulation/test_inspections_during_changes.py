"""`validate`, `repair` and `doctor` report no false findings on a table that changes at the same time.

Another process acts before a storage call: before the first and last of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pytest

from pyhudi.api.doctor import Severity as Pressing
from pyhudi.api.doctor import diagnose
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.operations.admin.repair import RepairSettings, run_repair
from pyhudi.operations.admin.validate import ValidationSeverity, run_validate
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, kind_of
from tests.support.paused_write import PausedWrite
from tests.support.shares import chosen

OPTIONS = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.metadata.index.partition.stats.enable": False,
    "hoodie.table.services.enabled": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline.max.delta.commits": 1,
    "pyhudi.threads": 1,
}
ENGINE = LocalEngine(1)
Look = Callable[[TableContext, World], list[str]]
Act = Callable[[World], Callable[[], object]]


def validated(context: TableContext, world: World) -> list[str]:
    return [str(found) for found in run_validate(context, ENGINE).findings if found.severity is not ValidationSeverity.WARNING]


def repaired(context: TableContext, world: World, *, dry_run: bool = True) -> list[str]:
    settings = RepairSettings.of(parse_options(world.options))
    return [str(step) for step in run_repair(context, ENGINE, settings, dry_run=dry_run).steps]


def diagnosed(context: TableContext, world: World) -> list[str]:
    table = world.table
    table._open.context = context  # a copy of a table on another storage
    return [str(one) for one in diagnose(table, {}).findings if one.check == "state" and one.severity is Pressing.ERROR]


def writes(world: World) -> Callable[[], object]:
    """A write that begins and ends, with a partition that is new."""
    return partial(world.upsert, {"k0": 7, "k5": 5})


def completes(world: World) -> Callable[[], object]:
    """A write that has all its files, and publishes them."""
    return _paused(world, "commit").finish


def begins(world: World) -> Callable[[], object]:
    """A write that has its files, and is under way for long."""
    return partial(_paused, world, "commit")


def _paused(world: World, before: str) -> PausedWrite:
    world.environment.advance_ms(1000)
    settings = WriteSettings.of(parse_options(world.options), WriteOperation.UPSERT)
    data = world.table.scan(["id", "part", "ts", "value"]).to_arrow()
    write: Callable[[TableContext], WriteResult] = lambda context: run_write(context, ENGINE, data, settings)  # noqa: E731
    return PausedWrite(world.table.context, write, before=before)


def compacts(world: World) -> Callable[[], object]:
    return lambda: (world.table.compact(), world.table.clean(dry_run=True))


def clusters(world: World) -> Callable[[], object]:
    return lambda: (world.table.cluster(), world.table.clean(dry_run=True))


def rollback_of_last_write(world: World) -> Callable[[], object]:
    return lambda: world.table.rollback(world.table.timeline().completed_writes()[-1].request_time)


def drops(world: World) -> Callable[[], object]:
    def act() -> None:
        world.table.index.drop("record_index")
        world.table.index.create("bloom_filters")

    return act


@cache
def _world(kind: str) -> World:
    world = World(kind, {**OPTIONS, "hoodie.metadata.record.index.enable": True, **_ONE_GROUP})
    world.upsert({"k0": 0, "k2": 2})
    world.upsert({"k0": 1})
    world.upsert({"k2": 3})
    return world


_ONE_GROUP = {"hoodie.metadata.record.index.min.filegroup.count": 1}


@pytest.mark.sample(5)
@pytest.mark.crash_points
@pytest.mark.parametrize(
    ("kind", "act", "look"),
    [
        ("cow", writes, validated),
        ("mor", completes, validated),
        ("cow", begins, validated),
        ("mor", compacts, validated),
        ("cow", clusters, validated),
        ("cow", rollback_of_last_write, validated),
        ("cow", drops, validated),
        ("mor", completes, repaired),
        ("cow", rollback_of_last_write, repaired),
        ("mor", completes, diagnosed),
    ],
)
def test_work_of_another_process_is_not_reported(kind: str, act: Act, look: Look) -> None:
    ground = _world(kind)
    calls: list[StorageCall] = []
    inspected(ground.copy(), look, lambda number, call: calls.append(call))
    assert len(calls) >= 5
    for number in chosen(range(1, len(calls) + 1), lambda number: kind_of(calls[number - 1])):
        world = ground.copy()
        acting = act(world)

        def watch(at: int, call: StorageCall, number: int = number, acting: Callable[[], object] = acting) -> None:
            if at == number:
                acting()

        found = inspected(world, look, watch)
        assert found == [], f"before call {number}, {calls[number - 1]}: {found}"


@pytest.mark.parametrize(
    ("look", "says"), [(validated, "is missing"), (repaired, "its file listing differs from the directories in 1 files")]
)
def test_damage_is_found_during_other_changes(look: Look, says: str) -> None:
    """At any call: each inspection returns the new state, and nothing else."""
    world = _world("cow").copy()
    lost = max(path for path in world.files() if path.startswith("a/") and path.endswith(".parquet"))
    open_storage(world.uri).delete([lost])
    last = [1, 2, 3]

    def watch(number: int, call: StorageCall) -> None:
        if number % 9 == 0 and last:
            last.pop()
            world.upsert({"k1": number})

    found = inspected(world, look, watch)
    assert not last
    assert any(says in one and lost in one for one in found), found
    assert all(lost in one for one in found), found


def inspected(world: World, look: Look, watch: Callable[[int, StorageCall], object]) -> list[str]:
    def watching(number: int, call: StorageCall) -> None:
        watch(number, call)

    context = world.table.context
    storage = FaultyStorage(context.storage, listener=watching)
    return look(replace(context, storage=storage), world)
