"""Repair completes crashed cleans, restores, and repairs that were rebuilding the timeline."""

from __future__ import annotations

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import TableState
from pyhudi.format.instants import Action
from pyhudi.operations.admin.repair import RepairKind, RepairSettings, run_repair
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import Fault, FaultPoint
from pyhudi.storage.liveness import WriterHeartbeat
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, killed, killed_everywhere


@pytest.mark.crash_points
@pytest.mark.parametrize("writes_on", [False, True])
@pytest.mark.parametrize(("kind", "metadata"), [("cow", False), pytest.param("mor", True, marks=pytest.mark.wide)])
def test_failed_repair_is_continued(kind: str, metadata: bool, writes_on: bool) -> None:
    """Also if a writer that ignores the repair commits before the next repair."""
    quiet = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False, "hoodie.metadata.enable": metadata}
    world = World(kind, {**quiet, "hoodie.metadata.index.column.stats.enable": False})
    world.upsert({"k0": 0, "k1": 1})
    if kind == "cow":
        world.table.cluster(options={"hoodie.clustering.plan.strategy.sort.columns": "ts"})
    world.upsert({"k0": 2})
    world.table.context.storage.delete_folder(".hoodie/timeline")

    def repair(run: World, context: TableContext) -> None:
        settings = RepairSettings.of(parse_options(run.options), [RepairKind.TIMELINE])
        run_repair(context, LocalEngine(1), settings, dry_run=False)

    def check(run: World) -> None:
        run.environment.advance_ms(3_600_000)
        expected = dict(world.rows)
        begun = any(info.name == "timeline.remaking" for info in run.table.context.storage.walk(".hoodie/.aux"))
        if begun:
            assert run.table.repair(["orphans"], dry_run=True).steps == ()
        if writes_on and begun:
            run.upsert({"k9": 9})
            expected["k9"] = 9
        run.table.repair(dry_run=False)
        assert {row["id"]: row["value"] for row in run.table.scan().to_arrow().to_pylist()} == expected
        assert run.table.scan().to_arrow().num_rows == len(expected)
        assert run.table.repair(dry_run=True).steps == ()
        verdict = run.table.validate(keys=True)
        assert verdict.ok and not verdict.findings, verdict
        assert run.table.config.has_metadata_table is metadata

    assert killed_everywhere(world, repair, check) >= 8


@pytest.mark.crash_points
@pytest.mark.parametrize("by", ["repair", "write", "clean", "compaction"])
@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.wide)])
def test_failed_restore_is_finished(kind: str, by: str) -> None:
    """By the next writer or service too: its heartbeat shows that its process has died."""
    world = World(kind, {"hoodie.clean.automatic": False, "hoodie.compact.inline": False})
    target = world.upsert({"k0": 0, "k1": 1})
    world.upsert({"k0": 2})
    after = dict(world.rows)

    def restore(run: World, context: TableContext) -> None:
        run_restore(context, CommitSettings.of(parse_options(run.options)), target)

    def check(run: World) -> None:
        begun = bool(run.table.timeline().pending(Action.RESTORE))
        done = bool(run.table.timeline().completed(Action.RESTORE))
        run.rows = dict(run.states[target] if begun or done else after)
        assert [step.finding for step in run.table.repair(["pending"], dry_run=True).steps] == ["a restore failed"] * begun
        if by == "write":
            run.upsert({"k1": 7})
        elif by == "clean":
            run.table.clean(dry_run=False)
        elif by == "compaction" and kind == "mor":
            run.table.compact()
        run.table.repair(dry_run=False)
        assert run.scanned() == run.rows
        assert not run.table.timeline().pending() and run.table.repair(dry_run=True).steps == ()

    assert killed_everywhere(world, restore, check) >= 5


def test_restore_of_a_live_process_blocks_writers() -> None:
    world = World("cow", {"hoodie.clean.automatic": False})
    target = world.upsert({"k0": 0, "k1": 1})
    world.upsert({"k0": 2})

    def restore(run: World, context: TableContext) -> None:
        run_restore(context, CommitSettings.of(parse_options(run.options)), target)

    run = killed(world, restore, Fault(3, FaultPoint.AFTER))
    context, settings = run.table.context, CommitSettings.of(parse_options(run.options))
    (pending,) = run.table.timeline().pending(Action.RESTORE)
    heartbeat = WriterHeartbeat(context.storage, context.env, pending.request_time, settings.heartbeats)
    heartbeat.start()
    for begin in (lambda: run.upsert({"k5": 5}), lambda: run.table.clean(dry_run=False), lambda: run.table.cluster()):
        with pytest.raises(TableState, match="did not finish"):
            begin()
    heartbeat.stop(delete=False)
    run.rows = dict(run.states[target])
    run.upsert({"k5": 5})
    assert run.scanned() == run.rows and not run.table.timeline().pending()


@pytest.mark.crash_points
@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.wide)])
def test_failed_clean_is_finished(kind: str) -> None:
    world = World(kind, {"hoodie.clean.automatic": False, "hoodie.clean.commits.retained": 1, "hoodie.compact.inline": False})
    for value in range(4):
        world.upsert({"k0": value, "k1": value})
        if kind == "mor":
            world.table.compact()

    def clean(run: World, context: TableContext) -> None:
        run_clean(context, CleanSettings.of(parse_options(run.options)))

    def check(run: World) -> None:
        begun = bool(run.table.timeline().pending(Action.CLEAN))
        done = bool(run.table.timeline().completed(Action.CLEAN))
        run.environment.advance_ms(3_600_000)
        assert [step.finding for step in run.table.repair(dry_run=True).steps] == ["a clean failed"] * begun
        run.table.repair(dry_run=False)
        assert bool(run.table.timeline().completed(Action.CLEAN)) == (begun or done)
        assert run.scanned() == run.rows
        assert not run.table.timeline().pending() and run.table.validate().ok

    assert killed_everywhere(world, clean, check) >= 3
