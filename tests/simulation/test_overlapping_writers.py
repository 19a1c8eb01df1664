"""Indexes after writers with overlapping times never miss a file's rows.

An index merges by request time, and commits complete in any order. Each writer runs in two steps, before and after its
inflight file, so all orders occur; services run between them. Every filter then returns the rows of an unpruned read,
and `validate` agrees.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import HudiError, TableState
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.metadata_table.codecs.metadata_partitions import PARTITION_STATS
from pyhudi.metadata_table.file_tasks import LogTask, MetadataFile, run_metadata_log
from pyhudi.metadata_table.metadata_records import partition_stats_records
from pyhudi.metadata_table.reader.index_lookups import find_partition_ranges
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.delete_where import run_delete_where
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.records.column_statistics import ColumnRange
from pyhudi.table.table_context import TableContext
from tests.simulation.overlapping import GROUPS, OPTIONS, begin, rows
from tests.simulation.tables import World
from tests.support.paused_write import PausedWrite

ENGINE = LocalEngine(1)

FILTERS: dict[str, Callable[[int | None], bool]] = {
    "value >= 1000000": lambda value: value is not None and value >= 1_000_000,
    "value < 0": lambda value: value is not None and value < 0,
    "value = 7": lambda value: value == 7,
    "value > 50 and value < 2000000": lambda value: value is not None and 50 < value < 2_000_000,
    "value is null": lambda value: value is None,
    "value is not null": lambda value: value is not None,
}


def write(world: World, operation: WriteOperation, data: pa.Table) -> Callable[[TableContext], object]:
    settings = WriteSettings.of(parse_options(world.options), operation)
    return lambda context: run_write(context, ENGINE, data, settings)


@cache
def _world_with_commits(kind: str, options: tuple[tuple[str, object], ...]) -> World:
    world = World(kind, {**OPTIONS, **dict(options)})
    for part, groups in GROUPS.items():
        for value, keys in enumerate(groups):
            world.table.bulk_insert(rows(world, keys, part, value * 10))
    return world


def world_with_commits(kind: str, **options: object) -> World:
    """A table of two partitions with the file groups of GROUPS."""
    return _world_with_commits(kind, tuple(sorted(options.items()))).copy()


def check(world: World) -> None:
    every = world.table.scan(["id", "value"], options={"hoodie.metadata.enable": False}).to_arrow().to_pylist()
    assert world.table.scan(["id"]).count() == len(every)
    for text, keep in FILTERS.items():
        found = world.table.scan(["id"], text).to_arrow()["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in every if keep(row["value"])), text
    result = world.table.validate()
    assert result.ok, str(result)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_write_that_begins_first_and_ends_last_is_read(kind: str) -> None:
    world = world_with_commits(kind)
    first = begin(world, write(world, WriteOperation.UPSERT, rows(world, GROUPS["a"][0], "a", 1_000_000)))
    second = begin(world, write(world, WriteOperation.UPSERT, rows(world, GROUPS["a"][1], "a", 5)))
    second.finish()
    first.finish()
    check(world)
    world.table.delete(where="value >= 1000000")
    assert set(world.scanned()) == {"k1", "k3", "k4", "k5", "k6", "k8"}


def write_tight_ranges(world: World, partition: str, column: str, found: ColumnRange) -> None:
    """Add to the last delta commit of the metadata table the records that another writer of Hudi would have added."""
    table = world.table
    store = MetadataStore.open(table.context.reloaded())
    last = table.timeline().last_completed_write()
    assert last is not None
    schema = with_meta_fields(table.schema())
    records = partition_stats_records({partition: {column: found}}, [column], schema)
    file_id = store.groups.of(PARTITION_STATS)[0].file_id
    run_metadata_log(LogTask(MetadataFile(store.storage.spec(), PARTITION_STATS, file_id, last.request_time, "9-9-9"), records))


def stored_ranges(world: World, column: str) -> dict[str, ColumnRange]:
    table = world.table
    metadata = MetadataTable(table.context.reloaded(), table.timeline())
    return find_partition_ranges(metadata, column, table.schema().field(column).type)


def test_tight_bounds_of_another_writer_are_rewritten() -> None:
    world = world_with_commits("cow")
    first = begin(world, write(world, WriteOperation.UPSERT, rows(world, GROUPS["a"][0], "a", 1_000_000)))
    begin(world, write(world, WriteOperation.UPSERT, rows(world, GROUPS["a"][1], "a", 5))).finish()
    write_tight_ranges(world, "a", "value", ColumnRange(5, 20, 0, 6))
    assert stored_ranges(world, "value")["a"].max == 20
    first.finish()
    assert world.table.scan(["id"], "value >= 1000000").count() == 2
    check(world)
    # The next write has the last word again.
    world.table.upsert(rows(world, GROUPS["a"][0], "a", 6))
    assert stored_ranges(world, "value")["a"].max == 20
    check(world)


def test_partition_emptied_concurrently() -> None:
    world = world_with_commits("cow")
    first = begin(world, write(world, WriteOperation.BULK_INSERT, rows(world, ["new"], "a", 1_000_000)))
    settings = WriteSettings.of(parse_options(world.options), WriteOperation.DELETE_PARTITION)
    begin(world, lambda context: run_delete_partitions(context, ["a"], settings)).finish()
    first.finish()
    assert stored_ranges(world, "value")["a"].max == 1_000_000
    check(world)


def test_statistics_have_one_type_after_a_concurrent_type_change() -> None:
    world = world_with_commits("cow")
    narrow = pa.table({"id": ["n"], "part": ["a"], "ts": [1], "value": pa.array([1]), "small": pa.array([3], pa.int32())})
    world.table.bulk_insert(narrow)
    data = rows(world, GROUPS["a"][0], "a", 1_000_000).append_column("small", pa.array([4, 4], pa.int32()))
    first = begin(world, write(world, WriteOperation.UPSERT, data))
    wide = rows(world, GROUPS["a"][1], "a", 5).append_column("small", pa.array([2**40] * 2))
    begin(world, write(world, WriteOperation.UPSERT, wide)).finish()
    assert PARTITION_STATS not in world.table.config.metadata_partitions
    try:
        first.finish()
    except HudiError:
        pass
    check(world)
    world.table.upsert(wide)
    assert stored_ranges(world, "small")["a"].max == 2**40
    check(world)


def test_insert_of_keys_inserted_and_deleted_concurrently() -> None:
    """Plain inserts look no keys up and conflict with no writer."""
    world = world_with_commits("cow", **{"hoodie.metadata.record.index.enable": True})
    first = begin(world, write(world, WriteOperation.BULK_INSERT, rows(world, ["new", "other"], "a", 7)))
    world.table.upsert(rows(world, ["new"], "a", 5))
    world.table.delete(rows(world, ["new"], "a", 5))
    first.finish()
    assert world.table.scan(["value"], "id = 'new'").to_arrow().to_pydict() == {"value": [7]}
    check(world)


def test_inserts_of_different_keys_do_not_conflict() -> None:
    world = world_with_commits("cow", **{"hoodie.metadata.record.index.enable": True})
    first = begin(world, write(world, WriteOperation.BULK_INSERT, rows(world, ["new"], "a", 7)))
    world.table.bulk_insert(rows(world, ["other"], "a", 5))
    world.table.delete(rows(world, ["k1"], "b", 5))
    begun = world.table.timeline().pending()[0].request_time
    first.finish()
    assert world.table.timeline().is_completed(begun)
    check(world)


@pytest.mark.parametrize(
    "chosen",
    [
        ("value,ts", "ts", "value,ts"),
        pytest.param(("ts", "value", "ts,value"), marks=pytest.mark.wide),
        ("value", "", "ts", "value"),
    ],
)
def test_writers_that_choose_other_columns_for_statistics(chosen: tuple[str, ...]) -> None:
    world = world_with_commits("cow")
    for number, names in enumerate(chosen):
        more = {"hoodie.metadata.index.column.stats.column.list": names} if names else {}
        key, part = (GROUPS["b"][0][0], "b") if number == len(chosen) - 1 else (GROUPS["a"][0][0], "a")
        world.table.upsert(rows(world, [key], part, 1_000_000 if number else 5), options=more)
        check(world)
    world.table.upsert(rows(world, [GROUPS["b"][1][0]], "b", 3_000_000))
    check(world)
    assert PARTITION_STATS in world.table.config.metadata_partitions


SERVICES: dict[str, Callable[[World], object]] = {
    "clean": lambda world: world.table.clean(dry_run=True),
    "cluster": lambda world: world.table.cluster(),
    "schedule clustering": lambda world: world.table.schedule_clustering(),
    "compact": lambda world: world.table.compact(),
    "schedule compaction": lambda world: world.table.schedule_compaction(),
}


def some_write(world: World, chance: random.Random, name: str) -> tuple[str, Callable[[TableContext], object]]:
    part = chance.choice("ab")
    value = chance.choice([-5, 5, 7, 100, 1_000_000, 3_000_000, None])
    keys = chance.choice(GROUPS[part])
    new = [f"{name}{number}" for number in range(2)]
    method = chance.choice(["upsert", "upsert", "upsert", "insert", "delete", "delete where", "overwrite", "delete partition"])
    said = f"{method} {part} {keys} {value}"
    if method == "upsert":
        return said, write(world, WriteOperation.UPSERT, rows(world, keys, part, value))
    if method == "insert":
        return said, write(world, WriteOperation.BULK_INSERT, rows(world, new, part, value))
    if method == "delete":
        return said, write(world, WriteOperation.DELETE, rows(world, keys, part, value))
    if method == "overwrite":
        return said, write(world, WriteOperation.INSERT_OVERWRITE, rows(world, new, part, value))
    settings = WriteSettings.of(parse_options(world.options), WriteOperation.DELETE)
    if method == "delete where":
        text = chance.choice(list(FILTERS))
        return f"{method} {text}", lambda context: run_delete_where(context, ENGINE, text, settings)
    settings = replace(settings, operation=WriteOperation.DELETE_PARTITION)
    return said, lambda context: run_delete_partitions(context, [part], settings)


def run_random_order(kind: str, seed: int, **options: object) -> list[str]:
    """Writers and services in an order drawn by chance; what was done."""
    chance = random.Random(seed)
    world = world_with_commits(kind, **options)
    services = [name for name in SERVICES if kind == "mor" or "compact" not in name]
    steps: list[str] = []
    running: list[tuple[str, PausedWrite]] = []
    waiting = chance.choice([2, 3, 4])
    try:
        while waiting or running:
            step = chance.choice(["begin", "begin", "end", "end", "service"])
            if step == "begin" and waiting:
                waiting -= 1
                said, act = some_write(world, chance, f"n{waiting}_")
                steps.append(f"begin {said}")
                running.append((said, begin(world, act)))
            elif step == "end" and running:
                said, writer = running.pop(chance.randrange(len(running)))
                steps.append(f"end {said}")
                try:
                    writer.finish()
                except TableState:
                    # A pending clustering is about to replace what it would change.
                    steps[-1] += ": refused"
                check(world)
            elif step == "service":
                steps.append(chance.choice(services))
                SERVICES[steps[-1]](world)
        check(world)
        steps.append("cluster, delete where")
        world.table.cluster()
        world.table.delete(where="value >= 1000000")
        assert not world.table.scan(["id"], "value >= 1000000", options={"hoodie.metadata.enable": False}).count()
        check(world)
    except BaseException as error:
        error.add_note("\n".join(steps))
        raise
    return steps


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("seed", "kind"),
    [(1, "cow"), (0, "mor"), *(pytest.param(*other, marks=pytest.mark.wide) for other in ((0, "cow"), (1, "mor")))],
)
def test_any_order_of_begins_and_ends(kind: str, seed: int) -> None:
    run_random_order(kind, seed, **{"hoodie.metadata.record.index.enable": seed % 2 == 1})
