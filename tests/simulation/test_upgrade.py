"""Upgrade and downgrade, killed at every writing call: the rows are there, and the next attempt ends what was begun."""

from __future__ import annotations

import pytest

from pyhudi.engines.local import LocalEngine
from pyhudi.operations.admin.upgrade import run_downgrade, run_upgrade
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.options import parse_options
from pyhudi.table.context import TableContext
from tests.simulation.tables import World, killed_everywhere

ENGINE = LocalEngine(1)
OPTIONS = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False}
KINDS = ("cow", pytest.param("mor", marks=pytest.mark.slow))


def settings(world: World) -> CompactSettings:
    return CompactSettings.of(parse_options(world.options))


def down(world: World, context: TableContext) -> None:
    run_downgrade(context, ENGINE, settings(world))


def up(world: World, context: TableContext) -> None:
    run_upgrade(context, ENGINE, settings(world), "zstd")


@pytest.mark.parametrize("direction", ["down", "up"])
@pytest.mark.parametrize("kind", KINDS)
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
