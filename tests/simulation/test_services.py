"""Clean, archive, savepoint and restore, killed at every writing call: the table reads as before, and the next run
completes them.
"""

from __future__ import annotations

import pytest

from pyhudi.errors import TableState
from pyhudi.format.instants import Action
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.admin.savepoint import run_delete_savepoint, run_savepoint
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.services.archive import ArchiveSettings, run_archive
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.options.supported import parse_options
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, killed_everywhere

OPTIONS = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
    "hoodie.timeline.compaction.batch.size": 2,
    "hoodie.parquet.small.file.limit": 0,
}
KINDS = ("cow", pytest.param("mor"))


def clean(world: World, context: TableContext) -> object:
    return run_clean(context, CleanSettings.of(parse_options(world.options)))


def archive(world: World, context: TableContext) -> object:
    return run_archive(context, ArchiveSettings.of(parse_options(world.options)))


def commit_settings(world: World) -> CommitSettings:
    return CommitSettings.of(parse_options(world.options))


def world_with_commits(kind: str, writes: int = 8, delete: bool = True) -> World:
    world = World(kind, OPTIONS)
    for number in range(writes):
        if delete and number == 3:
            world.delete_partition("b")
        world.upsert({f"k{key}": number * 100 + key for key in range(number % 2, 6)})
    return world


def known_instants(world: World) -> set[tuple[str, str]]:
    """Every completed instant, active or archived."""
    store = world.table.context.timeline
    active = {(i.request_time, i.action.value) for i in store.load().completed()}
    return active | {(row.instant_time, row.action) for row in store.history.rows()}


@pytest.mark.crash_points
@pytest.mark.parametrize("kind", KINDS)
def test_clean(kind: str) -> None:
    world = world_with_commits(kind)
    before = world.files()
    finished = world.copy()
    clean(finished, finished.context()[0])
    expected = finished.files()
    assert expected < before

    def check(run: World) -> None:
        assert run.scanned() == run.rows
        clean(run, run.context()[0])
        assert run.scanned() == run.rows
        assert run.files() == expected
        assert not run.table.timeline().pending()
        run.upsert({"k0": -1})
        assert run.scanned() == run.rows

    assert killed_everywhere(world, clean, check) >= 4


@pytest.mark.crash_points
@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.wide)])
def test_archive(kind: str) -> None:
    world = world_with_commits(kind, 14, delete=False)
    for _ in range(2):
        clean(world, world.context()[0])
        archive(world, world.context()[0])
        for number in range(3):
            world.upsert({"k1": number})
    clean(world, world.context()[0])
    instants = known_instants(world)

    def check(run: World) -> None:
        assert run.scanned() == run.rows
        assert known_instants(run) == instants
        timeline = run.table.timeline()
        writes = [i.request_time for i in timeline.completed_writes()]
        # What is left has no gap: every completed write from the first one on is active.
        every = sorted(time for time, action in instants if action in ("commit", "deltacommit", "replacecommit"))
        assert writes == every[-len(writes) :]
        for time in every:
            assert timeline.completion_time(time) is not None
        run.upsert({"k5": 77})
        run.upsert({"k5": 78})
        archive(run, run.context()[0])
        assert run.scanned() == run.rows
        assert len(run.table.timeline().completed_writes()) <= 5
        assert instants <= known_instants(run)

    assert killed_everywhere(world, archive, check) >= 7


@pytest.mark.crash_points
@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.wide)])
def test_savepoint_and_its_deletion(kind: str) -> None:
    world = world_with_commits(kind, 5, delete=False)
    instant = max(world.states)

    def save(run: World, context: TableContext) -> object:
        return run_savepoint(context, commit_settings(run), instant=instant)

    def check_saved(run: World) -> None:
        assert run.scanned() == run.rows
        if not run.table.timeline().completed(Action.SAVEPOINT):
            save(run, run.context()[0])
        run.upsert({"k0": 1})
        for number in range(6):
            run.upsert({f"k{key}": number for key in range(6)})
        clean(run, run.context()[0])
        assert run.scanned(as_of=instant) == run.states[instant]

    assert killed_everywhere(world, save, check_saved) >= 2
    save(world, world.context()[0])

    def drop(run: World, context: TableContext) -> object:
        run_delete_savepoint(context, commit_settings(run), instant)
        return None

    def check_dropped(run: World) -> None:
        if any(i.action is Action.SAVEPOINT for i in run.table.timeline().instants):
            drop(run, run.context()[0])
        assert not any(i.action is Action.SAVEPOINT for i in run.table.timeline().instants)
        assert run.scanned() == run.rows

    assert killed_everywhere(world, drop, check_dropped) >= 2


@pytest.mark.crash_points
@pytest.mark.parametrize(
    ("kind", "saved"),
    [
        ("mor", True),
        ("cow", False),
        pytest.param("cow", True, marks=pytest.mark.wide),
        pytest.param("mor", False, marks=pytest.mark.wide),
    ],
)
def test_restore(kind: str, saved: bool) -> None:
    world = world_with_commits(kind, 4, delete=False)
    target = max(world.states)
    files = world.files()
    if saved:
        world.table.savepoint(target)
    world.upsert({"k2": 5})
    world.delete_partition("a")
    world.upsert({"k7": 5, "k0": 9})
    if saved:
        clean(world, world.context()[0])
    world.rows = dict(world.states[target])

    def restore(run: World, context: TableContext) -> object:
        return run_restore(context, commit_settings(run), target)

    def check(run: World) -> None:
        if run.table.timeline().pending(Action.RESTORE):
            with pytest.raises(TableState, match="did not finish"):
                run_restore(run.context()[0], commit_settings(run), min(run.states))
        if not run.table.timeline().completed(Action.RESTORE):
            restore(run, run.context()[0])
        assert run.scanned() == run.rows == run.states[target]
        if not saved:
            assert run.files() == files
        timeline = run.table.timeline()
        assert timeline.completed_writes()[-1].request_time == target
        assert not timeline.pending()
        run.upsert({"k0": 1, "k9": 4})
        assert run.scanned() == run.rows

    assert killed_everywhere(world, restore, check) >= 7


def test_rows_as_of_a_savepoint_survive_archival_beyond_it() -> None:
    options = {
        **OPTIONS,
        "hoodie.archive.beyond.savepoint": True,
        "hoodie.clean.automatic": True,
        "hoodie.archive.automatic": True,
    }
    world = World("cow", options)
    for number in range(4):
        world.upsert({f"k{key}": number for key in range(6)})
    saved = max(world.states)
    world.table.savepoint()
    for number in range(12):
        world.upsert({f"k{key}": number + 50 for key in range(6)})
        assert world.scanned() == world.rows
    timeline = world.table.timeline()
    assert saved in {i.request_time for i in timeline.completed_writes()}
    assert timeline.start is not None and timeline.start > saved
    assert world.scanned(as_of=saved) == world.states[saved]
    with pytest.raises(TableState, match="archived"):
        world.table.restore(saved)
