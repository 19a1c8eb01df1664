"""The crash points of an operation cover every state that its crashes can leave."""

from __future__ import annotations

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.operations.services.compact import CompactSettings, run_compaction
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import Fault, FaultPoint
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, crash_points, killed


def compact(world: World, context: TableContext) -> None:
    run_compaction(context, LocalEngine(1), CompactSettings.of(parse_options(world.options)))


def files_left_by(world: World, fault: Fault) -> dict[str, bytes]:
    """Every file that a compaction which died at the fault leaves, without the location that it names."""
    run = killed(world, compact, fault)
    storage = open_storage(run.uri)
    contents = {info.path: storage.read(info.path) or b"" for info in storage.walk("")}
    return {path: content.replace(run.uri.encode(), b"memory://") for path, content in contents.items()}


def test_crash_points_cover_crashes_before_during_and_after_every_call() -> None:
    world = World("mor", {"hoodie.compact.inline": False, "hoodie.table.services.enabled": False})
    world.upsert({f"k{number}": number for number in range(4)})
    world.upsert({"k1": 11, "k2": 12})
    whole = world.copy()
    context, storage = whole.context()
    compact(whole, context)
    every = [Fault(call, moment) for call in range(1, storage.write_count + 1) for moment in FaultPoint]
    points = crash_points(storage.calls)
    assert len(points) < len(every) / 2
    left = [files_left_by(world, fault) for fault in points]
    for fault in every:
        assert files_left_by(world, fault) in left, fault
    # And hardly any of them leaves what another leaves.
    assert sum(left.count(one) == 1 for one in left) >= storage.write_count
