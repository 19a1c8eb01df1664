"""Upgrade and downgrade, killed at every writing call: rows are kept, and the next attempt completes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import TableState, WriteConflict
from pyhudi.format.instants import Action
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, LOCK_FOLDER, METADATA_FOLDER
from pyhudi.format.table_versions import TableVersion
from pyhudi.operations.admin.upgrade import run_downgrade, run_upgrade
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import Fault, FaultPoint, SimulatedCrash
from pyhudi.table.table_config import load_table_config
from pyhudi.table.table_context import TableContext
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


@pytest.mark.crash_points
@pytest.mark.parametrize("direction", ["down", "up"])
@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_upgrade_killed_at_every_call(kind: str, direction: str) -> None:
    world = World(kind, OPTIONS)
    for number in range(3):
        world.upsert({f"k{key}": number * 100 + key for key in range(number % 2, 6)})
    act = down
    if direction == "up":
        down(world, world.context()[0])
        act = up

    def check_next_writers(run: World) -> None:
        assert run.scanned() == run.rows
        act(run, run.context()[0])
        assert run.scanned() == run.rows
        if act is down:
            up(run, run.context()[0])
        run.upsert({"k1": -1})
        assert run.scanned() == run.rows

    assert killed_everywhere(world, act, check_next_writers) > 10


INDEXED = {**OPTIONS, "hoodie.metadata.enable": True, "hoodie.metadata.index.partition.stats.enable": False}


def to_nine(world: World, context: TableContext) -> None:
    run_upgrade(context, ENGINE, settings(world), "zstd", TableVersion.NINE)


@pytest.mark.crash_points
@pytest.mark.parametrize(
    ("kind", "act"),
    [
        ("cow", to_nine),
        ("mor", down),
        pytest.param("mor", to_nine, marks=pytest.mark.wide),
        pytest.param("cow", down, marks=pytest.mark.wide),
    ],
)
def test_upgrade_8_to_9_and_downgrade_killed_at_every_call(kind: str, act: Act) -> None:
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

    def check_next_writers(run: World) -> None:
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

    assert killed_everywhere(world, act, check_next_writers) >= 6


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


def test_second_of_two_concurrent_upgrades_is_refused() -> None:
    """What it would delete as leftovers is the timeline of the first upgrade by then."""
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
            assert "was upgraded or downgraded" in str(error)
        assert run.scanned() == run.rows
        assert run.table.validate().ok


SERVED = {**INDEXED, "hoodie.log.compaction.blocks.threshold": 2, "hoodie.parquet.small.file.limit": 0}
HALF_DONE = ("compaction", "log compaction", "clustering", "index build", "write", "rollback", "restore")
# Remains of dead processes are completed or rolled back; plans are executed or dropped; others have to end before.
REFUSED = {"restore", "index build"}


def of_version(kind: str, options: Mapping[str, object], version: TableVersion) -> World:
    """A new table, whose writers leave it to the table which version it has."""
    world = World(kind, {**options, "hoodie.write.table.version": int(version)})
    del world.options["hoodie.write.table.version"]
    return world


def interrupted_table(kind: str, what: str, version: TableVersion) -> World:
    """A table of a version in the middle of something: planned, or died half way."""
    world = of_version(kind, SERVED, version)
    for number in range(3):
        world.upsert({f"k{key}": number * 100 + key for key in range(number % 2, 4)})
    table, before = world.table, dict(world.rows)
    kept = table.timeline().completed_writes()[0].request_time
    if what == "restore":
        table.savepoint(kept)
    if what in ("compaction", "log compaction", "clustering"):
        planned = {
            "compaction": lambda: table.schedule_compaction().planned,
            "log compaction": lambda: table.schedule_log_compaction().planned,
            "clustering": lambda: table.schedule_clustering().instant,
        }
        assert planned[what]()
        return world
    if what == "index build":
        table.index.schedule("bloom_filters")
        return world
    acts: dict[str, Callable[[Table], object]] = {
        "write": lambda table: table.upsert(pa.table({"id": ["k0"], "part": ["a"], "ts": [1 << 50], "value": [-9]})),
        "rollback": lambda table: table.rollback(table.timeline().completed_writes()[-1].request_time),
        "restore": lambda table: table.restore(kept),
    }
    whole = world.copy()
    context, storage = whole.context()
    done = whole.table
    done._open.context = context
    acts[what](done)
    calls = [call for call in storage.calls if call.writes]
    # In the middle of what it does to files: a write before its commit, a rollback and a restore after the first deletion.
    at = next(n for n, call in enumerate(calls, 1) if call.path.endswith(".inflight") and "/metadata/" not in call.path)
    context, _ = world.context(Fault(at + 1, FaultPoint.AFTER))
    table._open.context = context
    with pytest.raises(SimulatedCrash):
        acts[what](table)
    world.rows = before if what == "write" else whole.scanned()
    world.environment.advance_ms(10_000_000)
    return world


@pytest.mark.parametrize("version", [TableVersion.EIGHT, TableVersion.NINE])
@pytest.mark.parametrize("what", HALF_DONE)
@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_versions_change_in_the_middle_of_services(kind: str, what: str, version: TableVersion) -> None:
    """Either the operation is refused and the table unchanged, or the table has the other version; no action is half done."""
    if kind == "cow" and "compaction" in what:
        pytest.skip("there is none in a table without logs")
    world = interrupted_table(kind, what, version)
    other = TableVersion.NINE if version is TableVersion.EIGHT else TableVersion.EIGHT
    change = world.table.upgrade if other > version else world.table.downgrade
    try:
        change(int(other))
    except TableState as error:
        assert what in REFUSED or (what == "clustering" and kind == "mor"), error
        assert world.table.config.version is version
        if what == "restore":
            world.table.restore(world.table.timeline().completed_writes()[0].request_time)
        elif what == "clustering":
            world.table.cluster(world.table.timeline().pending(Action.CLUSTERING)[0].request_time)
        else:
            for pending in world.table.timeline().pending(Action.INDEXING):
                world.table.index.run(pending.request_time)
        change(int(other))
    assert world.table.config.version is other
    assert world.scanned() == world.rows
    # A plan of before is executed afterwards; until then writes to its groups are refused.
    for pending in world.table.timeline().pending(Action.CLUSTERING):
        world.table.cluster(pending.request_time)
        assert world.scanned() == world.rows
    world.upsert({"k1": -1})
    world.table.run_services()
    assert world.scanned() == world.rows
    report = world.table.validate()
    assert report.ok, str(report)


def first_write(table: Table) -> str:
    return table.timeline().completed_writes()[0].request_time


def last_write(table: Table) -> str:
    return table.timeline().completed_writes()[-1].request_time


KEPT_SHORT = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
OPERATIONS: dict[str, Callable[[Table], object]] = {
    "rollback": lambda table: table.rollback(last_write(table)),
    "restore": lambda table: table.restore(first_write(table)),
    "savepoint": lambda table: table.savepoint(last_write(table)),
    "delete savepoint": lambda table: table.delete_savepoint(first_write(table)),
    "archive": lambda table: table.archive(options=KEPT_SHORT),
    "clean": lambda table: table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1}),
    "compaction": lambda table: table.compact(),
    "clustering": lambda table: table.cluster(),
    "dropped plan": lambda table: table.unschedule_clustering(table.timeline().pending(Action.CLUSTERING)[0].request_time),
    "alter": lambda table: table.alter.add("more", pa.int64()),
}


@pytest.mark.parametrize("version", [TableVersion.EIGHT, pytest.param(TableVersion.NINE, marks=pytest.mark.wide)])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_starts_on_a_table_of_another_version(operation: str, version: TableVersion) -> None:
    """Every action that waits for the lock finds the version that it was planned for, or leaves the table unchanged."""
    world = of_version("cow" if operation in ("archive", "clean", "dropped plan") else "mor", SERVED, version)
    for number in range(4):
        world.upsert({"k0": number, "k1": number})
    if operation in ("restore", "delete savepoint"):
        world.table.savepoint(first_write(world.table))
    if operation == "dropped plan":
        assert world.table.schedule_clustering().instant
    other = TableVersion.NINE if version is TableVersion.EIGHT else TableVersion.EIGHT
    probe, first = Stop(), world.copy().table
    first._open.context = probe.context(first.context)
    OPERATIONS[operation](first)
    at = next(number for number, step in enumerate(probe.steps, 1) if step == "lock")
    run = world.copy()
    changed: list[dict[str, bytes | None]] = []

    def change() -> None:
        (run.table.upgrade if other > version else run.table.downgrade)(int(other))
        changed.append(contents(run))

    late = run.table
    late._open.context = Stop(at, change).context(late.context)
    with pytest.raises(TableState, match=f"to version {int(other)} by another process"):
        OPERATIONS[operation](late)
    assert contents(run) == changed[0]
    assert run.scanned() == run.rows


def contents(world: World) -> dict[str, bytes | None]:
    """Every file but those of locks."""
    storage = open_storage(world.uri)
    return {info.path: storage.read(info.path) for info in storage.walk("") if not info.path.startswith(f"{LOCK_FOLDER}/")}


@pytest.mark.parametrize("version", [TableVersion.EIGHT, TableVersion.NINE])
@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_writer_of_the_old_version_commits_before_the_upgrade_or_not_at_all(kind: str, version: TableVersion) -> None:
    world = of_version(kind, INDEXED, version)
    world.upsert({"k0": 0, "k1": 1})
    other = TableVersion.NINE if version is TableVersion.EIGHT else TableVersion.EIGHT
    news = pa.table({"id": ["k0"], "part": ["a"], "ts": [1 << 50], "value": [-9]})

    def change(run: World) -> None:
        table = run.table
        with suppress(TableState):
            (table.upgrade if other > version else table.downgrade)(int(other))

    probe, first = Stop(), world.copy().table
    first._open.context = probe.context(first.context)
    first.upsert(news)
    refused = 0
    for at in (number for number, step in enumerate(probe.steps, 1) if step == "lock"):
        run = world.copy()
        stop, late = Stop(at, partial(change, run)), run.table
        late._open.context = stop.context(late.context)
        landed = True
        try:
            late.upsert(news)
        except (TableState, WriteConflict):
            landed = False
            refused += 1
        assert run.scanned() == ({**run.rows, "k0": -9} if landed else run.rows)
        assert landed is (run.table.config.version is version)
        run.rows = run.scanned()
        run.upsert({"k1": 5})
        assert run.scanned() == run.rows
        report = run.table.validate()
        assert report.ok, str(report)
    assert refused
