"""A process is suspended past its lease at each kind of call under the lock, in the wide tier at every call, while
another one writes. It publishes nothing from an outdated state: all rows exist by files and by every index, and
later writers and services proceed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import HudiError, TableState
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import MarkerType
from pyhudi.metadata_table.writer.initialize_partitions import ensure_metadata_table
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.admin.savepoint import run_savepoint
from pyhudi.operations.changes.arrow_changes import run_update
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import rollback_failed_attempt, rollback_instant
from pyhudi.operations.services.archive import ArchiveSettings, run_archive
from pyhudi.operations.services.async_indexing import IndexSettings
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.operations.services.cluster import ClusterSettings, schedule_clustering
from pyhudi.operations.services.compact import CompactSettings, schedule_compaction, schedule_log_compaction
from pyhudi.operations.services.index_admin import drop_index, index_request, rebuild_index, schedule_index
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.locks import StorageLock
from pyhudi.storage.markers import Markers
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, kind_of
from tests.support.hudi_dead_writes import SERVICES_ARE_DEAD
from tests.support.needs import WIDE
from tests.support.shares import chosen

PLAIN = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.clustering.plan.strategy.sort.columns": "value",
    "hoodie.log.compaction.blocks.threshold": 2,
}
INDEXED = {**PLAIN, "hoodie.metadata.enable": True}
ENGINE = LocalEngine(1)
AWAY_MS = 3_600_000
MEANWHILE = {"k0": 5000, "k1": 5001, "k7": 5007}
Act = Callable[[TableContext, Options], object]


class Suspension:
    """Suspends the holder of a lock at one of its steps.  at: None only counts the steps.

    A step is a read while the lock is held, a proof that it is, and the storing of a plan.  What happens between a proof and the
    end of another writing call no store can detect.
    """

    def __init__(self, world: World, at: int | None = None) -> None:
        self.world = world
        self.at = at
        self.steps: list[str] = []
        self._last = ""
        self.over = False
        self.clock = ReplayEnvironment(9, world.environment.now_ms())
        context = world.table.context
        self.storage = FaultyStorage(context.storage, listener=self._watch)
        self.lock = _WatchedLock(context.storage, self.clock)
        self.lock.step = self._step
        self.context = replace(context, storage=self.storage, lock=self.lock, env=self.clock)

    def _watch(self, number: int, call: StorageCall) -> None:
        kind = kind_of(call)
        if self.lock.owner is not None and (not call.writes or call.path.endswith(".requested")):
            self._step(kind)
        self._last = kind

    def _step(self, kind: str = "proof") -> None:
        self.steps.append(f"{kind} after {self._last}" if kind == "proof" else kind)
        if len(self.steps) != self.at:
            return
        self.over = True
        # Time passes for the others; the suspended process has missed all of it, and renewed nothing.
        self.world.environment.advance_ms(AWAY_MS)
        with suppress(TableState):
            self.world.upsert(MEANWHILE)
        self.clock.stall_ms(self.world.environment.now_ms() - self.clock.now_ms())


class _WatchedLock(StorageLock):
    step: Callable[[], None]

    def check(self) -> None:
        self.step()
        super().check()


def check(run: World, taken_back: World) -> None:
    """The rows are there, with the last write or, if that may have been rolled back, without; and all processes continue."""
    found = run.scanned()
    if found != run.rows:
        assert found == {**taken_back.states["before last"], **(MEANWHILE if run.rows != taken_back.rows else {})}
        run.rows = found
    for value in (*MEANWHILE.values(), 303):
        rows = run.table.scan(["id"], filter=f"value = {value}").to_arrow()
        assert rows.num_rows == list(run.rows.values()).count(value)
    if run.table.timeline().pending(Action.RESTORE):
        return
    run.table.clean(dry_run=False)
    run.table.run_services(["compact", "log_compact", "cluster"])
    run.upsert({"k1": 6001, "k8": 6008})
    assert run.scanned() == run.rows
    assert run.table.validate().ok, str(run.table.validate())


def everywhere(world: World, act: Act, every: int) -> int:
    """Suspend `act` at the steps, or each `every`th, that it makes while it holds the lock: at the first and the last of a kind,
    at each when WIDE.  Returns how many steps there are.
    """
    whole = Suspension(world.copy())
    act(whole.context, parse_options(world.options))
    for step in chosen(range(1, len(whole.steps) + 1, every), lambda number: whole.steps[number - 1]):
        run = world.copy()
        suspension, failure = Suspension(run, step), None
        try:
            act(suspension.context, parse_options(run.options))
        except HudiError as error:
            failure = error
        assert suspension.over, failure
        try:
            check(run, world)
        except BaseException as error:
            call = suspension.storage.calls[-1]
            error.add_note(f"suspended at step {step} of {len(whole.steps)}; it ended with {failure!r} after {call}")
            raise
    return len(whole.steps)


def world_with_commits(kind: str, options: dict[str, object]) -> World:
    world = World(kind, options)
    for number in range(4):
        world.states["before last"] = dict(world.rows)
        world.upsert({f"k{key}": number * 100 + key for key in range(number, number + 4)})
    return world


def compaction(context: TableContext, options: Options) -> object:
    return schedule_compaction(context, CompactSettings.of(options))


def log_compaction(context: TableContext, options: Options) -> object:
    return schedule_log_compaction(context, ENGINE, CompactSettings.of(options))


def clustering(context: TableContext, options: Options) -> object:
    return schedule_clustering(context, ENGINE, ClusterSettings.of(options))


def indexing(context: TableContext, options: Options) -> object:
    settings = IndexSettings(CommitSettings.of(options), MetadataSettings.of(options), 0)
    return schedule_index(context, ENGINE, settings, index_request("record_index"))


def index_rebuilding(context: TableContext, options: Options) -> object:
    settings = IndexSettings(CommitSettings.of(options), MetadataSettings.of(options), 0)
    return rebuild_index(context, ENGINE, settings, "column_stats")


def index_dropping(context: TableContext, options: Options) -> None:
    drop_index(context, "column_stats", 1000)


def clean(context: TableContext, options: Options) -> object:
    return run_clean(context, CleanSettings.of(options))


def archive(context: TableContext, options: Options) -> object:
    return run_archive(context, ArchiveSettings.of(options))


def rollback(context: TableContext, options: Options) -> object:
    last = context.timeline.load().last_completed_write()
    assert last is not None
    return rollback_instant(context, last, CommitSettings.of(options))


def restore(context: TableContext, options: Options) -> object:
    return run_restore(context, CommitSettings.of(options), context.timeline.load().completed_writes()[-2].request_time)


def savepoint(context: TableContext, options: Options) -> object:
    return run_savepoint(context, CommitSettings.of(options))


def metadata_table(context: TableContext, options: Options) -> object:
    schema = load_snapshot(context).schema
    assert schema is not None
    settings = MetadataSettings.of(parse_options(INDEXED))
    return ensure_metadata_table(context, ENGINE, settings, 1000, schema.arrow, schema.arrow)


def update_exclusively(context: TableContext, options: Options) -> object:
    """Reads a row and writes it as it was, all under the lock."""
    in_turn = options.merged({"pyhudi.write.exclusive.after.conflicts": "0"}, {})
    return run_update(context, ENGINE, {"value": 306}, "value = 306", WriteSettings.of(in_turn, WriteOperation.UPSERT))


SOME = 1 if WIDE else 3
"""Of the many steps of tables with indexes; those of tables without show each rule of the lease."""


@pytest.mark.sample(8)
@pytest.mark.crash_points
@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("act", "kind", "options", "every"),
    [
        (compaction, "mor", PLAIN, 1),
        (log_compaction, "mor", PLAIN, 1),
        (clustering, "cow", PLAIN, 1),
        (clean, "cow", PLAIN, 1),
        (archive, "cow", PLAIN, 1),
        (rollback, "cow", PLAIN, 1),
        (restore, "cow", PLAIN, 1),
        (savepoint, "cow", PLAIN, 1),
        (metadata_table, "cow", PLAIN, 1),
        (update_exclusively, "cow", PLAIN, SOME),
        (update_exclusively, "mor", PLAIN, 3 * SOME),
        pytest.param(indexing, "cow", INDEXED, 3 * SOME),
        pytest.param(index_rebuilding, "cow", INDEXED, 7 * SOME),
        pytest.param(index_dropping, "cow", INDEXED, 3 * SOME),
        pytest.param(clean, "cow", INDEXED, 3 * SOME),
        pytest.param(rollback, "mor", INDEXED, 7 * SOME),
    ],
)
def test_suspended_past_the_lease(act: Act, kind: str, options: dict[str, object], every: int) -> None:
    assert everywhere(world_with_commits(kind, options), act, every) >= 3


@pytest.mark.parametrize("kind", ["compaction", "clustering"])
def test_resumed_rollback_does_not_remove_a_repeated_action(kind: str) -> None:
    """It was to roll back a dead attempt; concurrently another process did so and executed the plan, under the same instant."""
    world = world_with_commits("mor", {**PLAIN, **SERVICES_ARE_DEAD})
    if kind == "compaction":
        planned = world.table.schedule_compaction().planned
        action = Action.COMPACTION
    else:
        planned = world.table.schedule_clustering().instant
        action = Action.CLUSTERING
    assert planned is not None
    world.table.context.timeline.start(Instant(planned, action, State.REQUESTED))
    storage = world.table.context.storage
    of_group = next(info.path for info in storage.walk("a") if info.name.endswith(".parquet"))
    # What the dead attempt left is deleted without the lock, so there others may come in between.
    left = f"{of_group.rsplit('_', 2)[0]}_9-9-9_{planned}.parquet"
    Markers(storage, planned).create(left, MarkerType.CREATE)
    storage.put(left, b"half a file")

    def run_plan(run: World) -> None:
        run.table.compact(planned) if kind == "compaction" else run.table.cluster(planned)

    call = 0
    while True:
        call += 1
        run = world.copy()
        context = run.table.context
        lock = StorageLock(context.storage, run.environment)
        done: list[int] = []

        def watch(
            number: int, _: StorageCall, at: int = call, run: World = run, lock: StorageLock = lock, done: list[int] = done
        ) -> None:
            if number >= at and lock.owner is None and not done:
                done.append(number)
                with suppress(TableState):
                    run_plan(run)

        context = replace(context, storage=FaultyStorage(context.storage, listener=watch), lock=lock)
        rollback_failed_attempt(context, planned, action, CommitSettings.of(parse_options(run.options)))
        if not done:
            break
        with suppress(TableState):
            run_plan(run)
        assert planned in {i.request_time for i in run.table.timeline().completed_writes()}
        assert run.scanned() == run.rows
    assert call > 3
