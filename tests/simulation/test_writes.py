"""Writers that crash, or get no answer, at every call.

Readers see the new rows exactly when the commit is on the timeline, otherwise the old rows. The next writer is not
blocked and removes what the crashed one left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import CommitUnknown, StorageUnavailable
from pyhudi.format.instants import Action
from pyhudi.format.names import parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.fault_injection import FaultOutcome, SimulatedCrash
from pyhudi.storage.memory import MemoryStorage
from tests.simulation.crashing_writes import ACTS, OPTIONS, UPSERTED, check_next_writer, data, faults_of, faulty, through
from tests.simulation.tables import World


@pytest.fixture(scope="module")
def world_with_commits() -> World:
    world = World("cow", OPTIONS)
    world.upsert({f"k{number}": number for number in range(6)})
    world.upsert({f"k{number}": 10 + number for number in range(0, 6, 2)})
    return world


EACH_OUTCOME = pytest.mark.parametrize(
    "outcome",
    [
        FaultOutcome.CRASH,
        FaultOutcome.LOST_RESPONSE,
        # test_slow_stores.py has them at calls of each action, with another writer in between.
        *(
            pytest.param(outcome, marks=pytest.mark.wide)
            for outcome in FaultOutcome
            if outcome not in (FaultOutcome.CRASH, FaultOutcome.LOST_RESPONSE)
        ),
    ],
)


@pytest.mark.crash_points
@EACH_OUTCOME
@pytest.mark.parametrize("name", ACTS)
def test_write(world_with_commits: World, name: str, outcome: FaultOutcome) -> None:
    act, change = ACTS[name]
    whole = world_with_commits.copy()
    storage = faulty(whole)
    act(whole, through(whole, storage))
    assert whole.scanned() == change(world_with_commits.rows)
    faults = faults_of(storage, outcome)
    assert storage.write_count >= 10
    for fault in faults:
        run = world_with_commits.copy()
        known = len(run.table.timeline().completed_writes())
        storage = faulty(run, fault)
        error: BaseException | None = None
        try:
            act(run, through(run, storage))
        except (SimulatedCrash, StorageUnavailable, CommitUnknown) as caught:
            error = caught
        try:
            assert storage.triggered
            landed = len(run.table.timeline().completed_writes()) > known
            if outcome is FaultOutcome.CRASH:
                assert isinstance(error, SimulatedCrash)
            elif not isinstance(error, CommitUnknown):
                assert landed == (error is None)
            run.rows = change(run.rows) if landed else run.rows
            assert run.scanned() == run.rows
            check_next_writer(run)
        except BaseException as failure:
            failure.add_note(f"after {fault}, which gave {error!r}")
            raise


@pytest.mark.crash_points
@EACH_OUTCOME
def test_rollback(world_with_commits: World, outcome: FaultOutcome) -> None:
    world = world_with_commits.copy()
    instant = world.upsert(UPSERTED)
    before = dict(world_with_commits.rows)
    whole = world.copy()
    storage = faulty(whole)
    through(whole, storage).rollback(instant)
    assert whole.scanned() == before
    for fault in faults_of(storage, outcome):
        run = world.copy()
        storage = faulty(run, fault)
        error: BaseException | None = None
        try:
            through(run, storage).rollback(instant)
        except (SimulatedCrash, StorageUnavailable) as caught:
            error = caught
        try:
            assert storage.triggered
            timeline = run.table.timeline()
            begun = bool(timeline.pending(Action.ROLLBACK) or timeline.completed(Action.ROLLBACK))
            undone = instant not in {i.request_time for i in timeline.completed_writes()}
            assert begun or not undone
            assert run.scanned() == (before if undone else world.rows)
            # A rollback that was begun is completed by the next writer.
            run.rows = dict(before if begun else world.rows)
            check_next_writer(run)
            assert (instant in {i.request_time for i in run.table.timeline().completed_writes()}) == (not begun)
        except BaseException as failure:
            failure.add_note(f"after {fault}, which gave {error!r}")
            raise


@pytest.mark.crash_points
def test_crash_during_create_leaves_a_complete_table_or_none() -> None:
    def create(world: World, storage_options: dict[str, str]) -> Table:
        return Table.create(
            world.uri,
            record_key="id",
            partition_by="part",
            ordering="ts",
            storage_options=storage_options,
            options=world.options,
            environment=world.environment,
        )

    def empty() -> World:
        world = World("cow", OPTIONS)
        open_storage(world.uri).delete_folder("")
        return world

    whole = empty()
    storage = faulty(whole)
    create(whole, dict(storage.spec().options))
    for fault in faults_of(storage, FaultOutcome.CRASH):
        run = empty()
        storage = faulty(run, fault)
        with pytest.raises(SimulatedCrash):
            create(run, dict(storage.spec().options))
        if not Table.exists(run.uri):
            create(run, {})
        run.upsert({"k1": 1})
        assert run.scanned() == {"k1": 1}


class SilentStorage:
    """A store that never answers when a completed file is written.  landing: what was sent arrives all the same."""

    def __init__(self, inner: Storage, landing: bool) -> None:
        self._inner = inner
        self._landing = landing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if not path.endswith(".commit"):
            return self._inner.put_if_absent(path, data)
        if self._landing:
            self._inner.put_if_absent(path, data)
        raise StorageUnavailable(f"{path}: no answer")


@pytest.mark.parametrize("landing", [True, False])
def test_commit_whose_response_is_lost_permanently(world_with_commits: World, landing: bool) -> None:
    world = world_with_commits.copy()
    context = replace(world.table.context, storage=SilentStorage(MemoryStorage(world.uri), landing))
    settings = WriteSettings.of(parse_options(world.options), WriteOperation.UPSERT)
    files = world.files()
    if landing:
        # The writer takes the lock again and finds its commit.
        assert run_write(context, LocalEngine(1), data(world, UPSERTED), settings).instant
        world.rows = {**world.rows, **UPSERTED}
        assert world.scanned() == world.rows
        check_next_writer(world)
        return
    with pytest.raises(CommitUnknown, match="delete nothing") as caught:
        run_write(context, LocalEngine(1), data(world, UPSERTED), settings)
    instant = caught.value.instant
    assert instant is not None
    # Nothing of it was removed.
    assert {path for path in world.files() - files if instant in path}
    assert instant not in {i.request_time for i in world.table.timeline().completed_writes()}
    assert world.scanned() == world.rows
    # A sent request may still land, so no process changes it before the writer has been silent for long enough.
    world.upsert({"k50": 50})
    assert [i.request_time for i in world.table.timeline().pending()] == [instant]
    world.environment.stall_ms(200_000)
    check_next_writer(world)


@pytest.mark.crash_points
def test_a_write_of_several_log_files() -> None:
    """A death between two versions of a file group's log leaves neither rows nor files of it."""
    sizes = {"hoodie.logfile.data.block.max.size": 1, "hoodie.logfile.max.size": 1, "hoodie.compact.inline": False}
    world = World("mor", {**OPTIONS, **sizes})
    world.upsert({f"k{number}": number for number in range(6)})
    updated = {f"k{number}": 50 + number for number in range(6)}
    whole = world.copy()
    storage = faulty(whole)
    assert through(whole, storage).upsert(data(whole, updated)).log_files > 2, "more than one to a file group"
    for fault in faults_of(storage, FaultOutcome.CRASH):
        run = world.copy()
        with pytest.raises(SimulatedCrash):
            through(run, faulty(run, fault)).upsert(data(run, updated))
        landed = len(run.table.timeline().completed_writes()) == 2
        run.rows = {**run.rows, **updated} if landed else run.rows
        assert run.scanned() == run.rows, fault
        check_next_writer(run)
        written = [log.instant_time for path in run.files() if (log := parse_log_file(file_name(path)))]
        assert all(run.table.timeline().is_completed(instant) for instant in written), fault
