"""Upgrade and downgrade, killed at every writing call: the rows are there, and the next attempt ends what was begun."""

from __future__ import annotations

import pytest

from pyhudi.engines.local import LocalEngine
from pyhudi.errors import TableState
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, METADATA_FOLDER
from pyhudi.format.versions import TableVersion
from pyhudi.operations.admin.upgrade import run_downgrade, run_upgrade
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.options import parse_options
from pyhudi.table.config import load_table_config
from pyhudi.table.context import TableContext
from tests.simulation.pairs import Stop
from tests.simulation.tables import Act, World, killed_everywhere

ENGINE = LocalEngine(1)
OPTIONS = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False}


def settings(world: World) -> CompactSettings:
    return CompactSettings.of(parse_options(world.options))


def down(world: World, context: TableContext) -> None:
    run_downgrade(context, ENGINE, settings(world))


def up(world: World, context: TableContext) -> None:
    run_upgrade(context, ENGINE, settings(world), "zstd")


@pytest.mark.parametrize("direction", ["down", "up"])
@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_killed_everywhere(kind: str, direction: str) -> None:
    world = World(kind, OPTIONS)
    for number in range(3):
        world.upsert({f"k{key}": number * 100 + key for key in range(number % 2, 6)})
    act = down
    if direction == "up":
        down(world, world.context()[0])
        act = up

    def goes_on(run: World) -> None:
        assert run.scanned() == run.rows
        act(run, run.context()[0])
        assert run.scanned() == run.rows
        if act is down:
            up(run, run.context()[0])
        run.upsert({"k1": -1})
        assert run.scanned() == run.rows

    assert killed_everywhere(world, act, goes_on) > 10


INDEXED = {**OPTIONS, "hoodie.metadata.enable": True, "hoodie.metadata.index.partition.stats.enable": False}


def to_nine(world: World, context: TableContext) -> None:
    run_upgrade(context, ENGINE, settings(world), "zstd", TableVersion.NINE)


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        ("cow", to_nine),
        ("mor", down),
        pytest.param("mor", to_nine, marks=pytest.mark.wide),
        pytest.param("cow", down, marks=pytest.mark.wide),
    ],
)
def test_versions_8_and_9_killed_everywhere(kind: str, act: Act) -> None:
    """With indexes, of which the way down drops those of a later layout, and the way up keeps all."""
    world = World(kind, INDEXED)
    for number in range(2):
        world.upsert({f"k{key}": number * 100 + key for key in range(number % 2, 4)})
    if act is down:
        to_nine(world, world.context()[0])
        storage = world.table.context.storage
        definitions = (storage.read(INDEX_DEFINITIONS_FILE) or b"").replace(b'"V1"', b'"V2"')
        storage.put(INDEX_DEFINITIONS_FILE, definitions)
    version = TableVersion.EIGHT if act is down else TableVersion.NINE

    def goes_on(run: World) -> None:
        assert run.scanned() == run.rows
        if run.table.config.version is not version:
            act(run, run.context()[0])
        elif act is to_nine:
            # What died after the table had its version is ended by the same call, and nothing depends on it.
            act(run, run.context()[0])
        context = run.table.context
        assert context.config.version is version
        assert load_table_config(context.storage.child(METADATA_FOLDER)).version is version
        kept = {"files"} if act is down else {"files", "column_stats"}
        assert set(context.config.metadata_partitions) == kept
        assert run.scanned() == run.rows
        run.upsert({"k1": -1})
        assert run.scanned() == run.rows
        assert run.table.validate().ok, str(run.table.validate())

    assert killed_everywhere(world, act, goes_on) >= 6


def test_leftovers_of_a_downgrade_are_not_the_timeline_of_an_upgrade() -> None:
    """Where version 6 has leftovers, version 8 has its timeline."""
    world = World("cow", {})
    world.upsert({"k0": 0, "k1": 1})
    world.table.downgrade()
    probe, late = Stop(), world.table
    late._open.context = probe.context(late.context)
    late.downgrade()
    stop, late = Stop(probe.steps.index("lock") + 1, lambda: world.table.upgrade()), world.table
    late._open.context = stop.context(late.context)
    late.downgrade()
    assert world.scanned() == world.rows
    assert world.table.validate().ok


def test_the_later_of_two_upgrades_is_refused() -> None:
    """What it takes for leftovers is the timeline by then."""
    world = World("cow", OPTIONS)
    world.upsert({"k0": 0, "k1": 1})
    world.table.downgrade()
    found = world.copy()
    probe, first = Stop(), found.table
    first._open.context = probe.context(first.context)
    first.upgrade()
    for at in (number for number, step in enumerate(probe.steps, 1) if step == "lock"):
        run = world.copy()
        stop, late = Stop(at, run.table.upgrade), run.table
        late._open.context = stop.context(late.context)
        try:
            late.upgrade()
        except TableState as error:
            assert "meanwhile" in str(error)
        assert run.scanned() == run.rows
        assert run.table.validate().ok
