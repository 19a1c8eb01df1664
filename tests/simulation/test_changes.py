"""Writers of change data, killed at every call: the changes add up to the rows, and no change log is left behind."""

from __future__ import annotations

import json

import pytest

from pyhudi.storage.fault_injection import FaultOutcome, SimulatedCrash
from pyhudi.table.snapshot import read_commit
from tests.simulation.crashing_writes import ACTS, OPTIONS, check_next_writer, faults_of, faulty, through
from tests.simulation.tables import World


def rows_from_changes(world: World) -> dict[str, int]:
    """The rows after all changes, each of which has to fit those before it."""
    rows: dict[str, int] = {}
    for change in world.table.changes().to_arrow().to_pylist():
        before, after = (json.loads(text) if text else {} for text in (change["before"], change["after"]))
        assert rows.pop((before or after)["id"], None) == before.get("value"), change
        if after:
            rows[after["id"]] = after["value"]
    return rows


def reported(world: World) -> set[str]:
    table = world.table
    commits = [read_commit(table.context.timeline, instant) for instant in table.timeline().completed_writes()]
    return {path for metadata in commits for stat in metadata.write_stats for path in stat.cdc_stats or ()}


@pytest.fixture(scope="module")
def world_with_commits() -> World:
    world = World("cow", {**OPTIONS, "hoodie.table.cdc.enabled": True})
    world.upsert({f"k{number}": number for number in range(6)})
    world.upsert({f"k{number}": 10 + number for number in range(0, 6, 2)})
    return world


@pytest.mark.crash_points
@pytest.mark.parametrize("name", ["upsert", "delete"])
def test_a_killed_writer(world_with_commits: World, name: str) -> None:
    act, change = ACTS[name]
    whole = world_with_commits.copy()
    storage = faulty(whole)
    act(whole, through(whole, storage))
    assert rows_from_changes(whole) == change(world_with_commits.rows) and reported(whole) > reported(world_with_commits)
    for fault in faults_of(storage, FaultOutcome.CRASH):
        run = world_with_commits.copy()
        known = len(run.table.timeline().completed_writes())
        with pytest.raises(SimulatedCrash):
            act(run, through(run, faulty(run, fault)))
        landed = len(run.table.timeline().completed_writes()) > known
        run.rows = change(run.rows) if landed else run.rows
        try:
            assert rows_from_changes(run) == run.rows
            check_next_writer(run)
            assert rows_from_changes(run) == run.rows
            assert {path for path in run.files() if path.endswith(".cdc")} == reported(run)
        except BaseException as failure:
            failure.add_note(f"after {fault}")
            raise
