"""Writers with a metadata table, killed at every kind of changing call, in the wide tier at every call.

Readers through the metadata table see the old or the new rows. After the next write the metadata table is correct.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.metadata_table.writer.metadata_services import compact_metadata_table
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import rollback_instant
from pyhudi.operations.services.async_indexing import IndexRequest, IndexSettings
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.operations.services.compact import CompactSettings, run_compaction
from pyhudi.operations.services.index_admin import create_index, index_request, list_indexes, run_index, schedule_index
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import SimulatedCrash
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import Rows, World, crash_points, durable_state, partition_of, sampled
from tests.support.metadata_truth import assert_metadata_is_true

OPTIONS = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.index.bloom.filter.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.index.column.stats.file.group.count": 1,
    "hoodie.metadata.index.bloom.filter.file.group.count": 1,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.table.services.enabled": False,
    "hoodie.clean.commits.retained": 1,
}
ENGINE = LocalEngine(1)
Act = Callable[[World, TableContext], Rows]
"""Does something to the world's table, or dies; the rows that it has afterwards when it does not die."""


@pytest.fixture(autouse=True)
def no_damage() -> Iterator[None]:
    """A reader that finds the metadata table damaged reports it; here nothing may be damaged."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def write(world: World, context: TableContext, operation: WriteOperation, rows: Rows) -> None:
    world.environment.advance_ms(1000)
    keys = sorted(rows)
    data = pa.table(
        {
            "id": keys,
            "part": [partition_of(key) for key in keys],
            "ts": pa.array([world.environment.now_ms()] * len(keys), pa.int64()),
            "value": pa.array([rows[key] for key in keys], pa.int64()),
        }
    )
    run_write(context, ENGINE, data, WriteSettings.of(parse_options(world.options), operation))


UPSERTED = {"k1": 101, "k8": 108}


def upsert(world: World, context: TableContext) -> Rows:
    write(world, context, WriteOperation.UPSERT, UPSERTED)
    return {**world.rows, **UPSERTED}


def delete(world: World, context: TableContext) -> Rows:
    write(world, context, WriteOperation.DELETE, {"k0": 0, "k3": 0})
    return {key: value for key, value in world.rows.items() if key not in ("k0", "k3")}


def overwrite(world: World, context: TableContext) -> Rows:
    write(world, context, WriteOperation.INSERT_OVERWRITE, {"k7": 207})
    return {**{key: value for key, value in world.rows.items() if partition_of(key) != "b"}, "k7": 207}


def drop_partition(world: World, context: TableContext) -> Rows:
    settings = WriteSettings.of(parse_options(world.options), WriteOperation.DELETE_PARTITION)
    run_delete_partitions(context, ["b"], settings, ENGINE)
    return {key: value for key, value in world.rows.items() if partition_of(key) != "b"}


def clean(world: World, context: TableContext) -> Rows:
    run_clean(context, CleanSettings.of(parse_options(world.options)))
    return world.rows


def compact(world: World, context: TableContext) -> Rows:
    run_compaction(context, ENGINE, CompactSettings.of(parse_options(world.options)))
    return world.rows


def compact_metadata(world: World, context: TableContext) -> Rows:
    options = parse_options(world.options)
    compact_metadata_table(context, ENGINE, MetadataSettings.of(options), CommitSettings.of(options), if_due=False)
    return world.rows


def roll_back(world: World, context: TableContext) -> Rows:
    last = world.table.timeline().last_completed_write()
    assert last is not None
    rollback_instant(context, last, CommitSettings.of(parse_options(world.options)))
    return world.states[max(time for time in world.states if time < last.request_time)]


def restore(world: World, context: TableContext) -> Rows:
    target = min(world.states)
    run_restore(context, CommitSettings.of(parse_options(world.options)), target)
    return world.states[target]


def world_with_commits(kind: str, writes: int = 3) -> World:
    world = World(kind, OPTIONS)
    for number in range(writes):
        world.upsert({f"k{key}": number * 100 + key for key in range(number, 6)})
    return world


def killed_everywhere(world: World, act: Act) -> int:
    whole = world.copy()
    context, storage = whole.context()
    after = act(whole, context)
    faults = crash_points(storage.calls)
    assert whole.scanned() == after
    assert_metadata_is_true(whole.table)
    states = {durable_state(whole)}
    whole.rows = after
    whole.upsert({"k2": 902})
    assert whole.scanned() == whole.rows
    assert_metadata_is_true(whole.table)
    for fault in sampled(faults, storage.calls):
        run = world.copy()
        context, faulty = run.context(fault)
        try:
            act(run, context)
        except SimulatedCrash:
            pass
        state = durable_state(run)
        if state in states:
            continue
        states.add(state)
        try:
            _check_after_crash(run, world.rows, after, act)
        except BaseException as error:
            error.add_note(f"after {fault}: {faulty.calls[-1]}")
            raise
    return len(faults)


def _check_after_crash(run: World, before: Rows, after: Rows, act: Act) -> None:
    found = run.scanned() if run.table.timeline().completed_writes() else {}
    if act is restore:
        # Readers may not look at a table whose restore died; it is run again.
        act(run, run.context()[0])
        found = run.scanned()
    assert found in (before, after), found
    run.rows = found
    run.upsert({"k2": 902})
    assert run.scanned() == run.rows or (act is roll_back and run.scanned() == {**after, "k2": 902})
    assert_metadata_is_true(run.table)
    for instant in {info.instant for info in run.table.index.list() if info.instant is not None}:
        run.table.index.run(instant)
        assert_metadata_is_true(run.table)


@pytest.mark.crash_points
@pytest.mark.parametrize(
    ("kind", "act"),
    [
        ("cow", upsert),
        ("mor", delete),
        ("cow", overwrite),
        # The same upsert is killed below, in a table with more indexes.
        pytest.param("mor", upsert, marks=pytest.mark.wide),
        pytest.param("cow", delete, marks=pytest.mark.wide),
        pytest.param("mor", overwrite, marks=pytest.mark.wide),
    ],
)
def test_writes(kind: str, act: Act) -> None:
    assert killed_everywhere(world_with_commits(kind), act) > 20


@pytest.mark.crash_points
def test_the_first_write_builds_the_metadata_table() -> None:
    assert killed_everywhere(World("cow", OPTIONS), _first) > 40


def _first(world: World, context: TableContext) -> Rows:
    write(world, context, WriteOperation.UPSERT, UPSERTED)
    return dict(UPSERTED)


def create_secondary(world: World, context: TableContext) -> Rows:
    return _create(world, context, index_request("secondary_index", ("value",)))


def create_expression(world: World, context: TableContext) -> Rows:
    return _create(world, context, index_request("column_stats", ("part",), function="upper"))


def create_together(world: World, context: TableContext) -> Rows:
    settings = _index_settings(world)
    wanted = (index_request("secondary_index", ("value",)), index_request("column_stats", ("part",), function="upper"))
    if {request.partition for request in wanted} <= set(context.reloaded().config.metadata_partitions):
        return world.rows
    planned = {info.instant for info in list_indexes(context.reloaded()) if info.instant is not None}
    instant = planned.pop() if planned else schedule_index(context, ENGINE, settings, *wanted)
    run_index(context, ENGINE, settings, instant)
    return world.rows


def _index_settings(world: World) -> IndexSettings:
    options = parse_options(world.options)
    return IndexSettings(CommitSettings.of(options), MetadataSettings.of(options), 1000)


def _create(world: World, context: TableContext, request: IndexRequest) -> Rows:
    if request.partition not in context.reloaded().config.metadata_partitions:
        create_index(context, ENGINE, _index_settings(world), request)
    return world.rows


def indexed(kind: str) -> World:
    world = world_with_commits(kind)
    create_secondary(world, world.table.context)
    create_expression(world, world.table.context)
    return world


@pytest.mark.crash_points
@pytest.mark.parametrize("act", [upsert, roll_back])
def test_writes_of_tables_with_indexes_of_values(act: Act) -> None:
    assert killed_everywhere(indexed("mor" if act is upsert else "cow"), act) > 20


@pytest.mark.crash_points
@pytest.mark.parametrize("act", [create_secondary, create_expression, pytest.param(create_together, marks=pytest.mark.wide)])
def test_indexing(act: Act) -> None:
    def create_again(world: World, context: TableContext) -> Rows:
        act(world, context)
        return act(world, world.table.context)

    assert killed_everywhere(world_with_commits("cow"), create_again) > 10


@pytest.mark.crash_points
@pytest.mark.parametrize(
    "act", [drop_partition, clean, compact_metadata, restore, pytest.param(roll_back, marks=pytest.mark.wide)]
)
def test_services_of_copy_on_write_tables(act: Act) -> None:
    assert killed_everywhere(world_with_commits("cow"), act) > 5


@pytest.mark.crash_points
@pytest.mark.parametrize("act", [compact, roll_back])
def test_services_of_merge_on_read_tables(act: Act) -> None:
    assert killed_everywhere(world_with_commits("mor"), act) > 5


@pytest.mark.crash_points
@pytest.mark.parametrize("act", [clean, roll_back])
def test_leftovers_of_a_crashed_process_are_not_damage(act: Act) -> None:
    world = world_with_commits("cow")
    whole = world.copy()
    context, storage = whole.context()
    act(whole, context)
    for fault in sampled(crash_points(storage.calls), storage.calls):
        run = world.copy()
        with pytest.raises(SimulatedCrash):
            act(run, run.context(fault)[0])
        result = run.table.validate()
        assert result.ok, f"after {fault}: {result}"


@pytest.mark.crash_points
@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_rollback_after_a_failed_metadata_table_compaction(kind: str) -> None:
    """What the compaction was about to read goes with the write."""
    world = world_with_commits(kind)
    whole = world.copy()
    context, storage = whole.context()
    compact_metadata(whole, context)
    for fault in sampled(crash_points(storage.calls), storage.calls):
        run = world.copy()
        with pytest.raises(SimulatedCrash):
            compact_metadata(run, run.context(fault)[0])
        run.rows = roll_back(run, run.context()[0])
        assert run.scanned() == run.rows
        run.upsert({"k2": 902})
        compact_metadata(run, run.context()[0])
        assert run.scanned() == run.rows
        assert_metadata_is_true(run.table)
