"""Change data on Spark is ordered across the partitions of a DataFrame and within them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyhudi import spark as hs
from pyhudi.engines.spark import data_source, jobs
from tests.support.replay import (
    INDEXES,
    KEYS,
    MODES,
    OPERATIONS,
    PARTITIONS,
    SCHEMA,
    ChangingTable,
    apply_changes,
    changing_table,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

CDC = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.query.incremental.format": "cdc",
}
READ = {**CDC, "hoodie.datasource.read.begin.instanttime": "000"}
ORDERED = {**READ, "pyhudi.columns": "op,ts_ms,before,after,completion_time"}


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    hs.enable(spark, alias=None)
    # Each source of changes is a partition of its own.
    monkeypatch.setattr(data_source, "_PARTITION_BYTES", 1)
    return spark


def dicts(rows: list[Row]) -> list[dict[str, Any]]:
    return [row.asDict() for row in rows]


READERS: dict[str, Callable[[DataFrame], list[dict[str, Any]]]] = {
    "collect": lambda frame: dicts(frame.collect()),
    "arrow": lambda frame: frame.toArrow().to_pylist(),
    "iterator": lambda frame: dicts(list(frame.toLocalIterator())),
    "filtered": lambda frame: dicts(frame.where("op is not null").select("*").collect()),
}


def drawn(seed: int, folder: Path) -> ChangingTable:
    """A random table."""
    chance = random.Random(seed)
    made = (("cow", "mor")[seed % 2], chance.choice(MODES), chance.choice(INDEXES), chance.random() < 0.5)
    steps = [
        (chance.choice(OPERATIONS), "".join(chance.sample(KEYS, chance.randint(1, 5))), chance.choice(PARTITIONS))
        for _ in range(6)
    ]
    return changing_table(made, steps, str(folder / f"t{seed}"))


@pytest.mark.parametrize("seed", range(4))
def test_rows_applied_in_order_lead_to_the_rows_of_the_table(session: SparkSession, tmp_path: Path, seed: int) -> None:
    """Over all seeds, each way to read is combined with each reader."""
    world = drawn(seed, tmp_path)
    reads = (
        hs.read(session, world.uri, options=READ),
        session.read.format("pyhudi").options(**READ).load(world.uri),
        world.table.changes().to_spark(session),
    )
    for number, read in enumerate(reads, seed):
        name = list(READERS)[number % len(READERS)]
        assert apply_changes({}, READERS[name](read)) == world.rows, name


def test_a_shuffled_frame_is_sorted_by_completion_time_and_operation(session: SparkSession, tmp_path: Path) -> None:
    world = drawn(0, tmp_path)
    for read in (hs.read(session, world.uri, options=ORDERED), session.read.format("pyhudi").options(**ORDERED).load(world.uri)):
        mixed = read.repartition(3, "op")
        assert apply_changes({}, dicts(mixed.orderBy("completion_time", "op").collect())) == world.rows


@pytest.mark.parametrize("limit", [{}, {"pyhudi.stream.max.instants": "2"}])
def test_batches_of_a_stream(session: SparkSession, tmp_path: Path, limit: dict[str, str]) -> None:
    if limit:
        pytest.importorskip("pyspark.sql.streaming.datasource")
    world = drawn(1, tmp_path)
    found: list[dict[str, Any]] = []
    query = (
        session.readStream.format("pyhudi")
        .options(**CDC, **limit)
        .load(world.uri)
        .writeStream.foreachBatch(lambda frame, _: found.extend(dicts(frame.collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(1200)
    finally:
        query.stop()
    assert apply_changes({}, found) == world.rows


@pytest.mark.parametrize(("kind", "driver_bytes"), [("cow", 0), ("mor", 0), ("cow", 1 << 20)])
def test_writes_on_spark(session: SparkSession, tmp_path: Path, kind: str, driver_bytes: int) -> None:
    """Records that move in both directions, and overwrites, written by tasks of Spark and by the driver."""
    world = ChangingTable(kind, "DATA_BEFORE_AFTER", "GLOBAL_SIMPLE", small_files=True, uri=str(tmp_path / "t"))
    options = {**world.options, "pyhudi.spark.driver.batch.bytes": driver_bytes}

    def write(operation: str, **parts: str) -> None:
        batch = world.batch("".join(parts), "x").set_column(2, SCHEMA.field("part"), pa.array(list(parts.values())))
        given = {**options, "hoodie.datasource.write.operation": operation}
        hs.write(session.createDataFrame(batch), world.uri, options=given)
        world.remember()

    write("upsert", a="x", b="x", c="y", d="y", e="z")
    write("upsert", a="y", c="x", e="x", f="z")
    write("insert_overwrite", a="y", d="y")
    write("insert_overwrite_table", a="x", d="z")
    assert apply_changes({}, dicts(hs.read(session, world.uri, options=READ).collect())) == world.rows
    assert len(world.rows) == 2


@pytest.mark.parametrize(("closure", "most"), [(1 << 20, 4096), (0, 4096), (0, 3)])
def test_rows_of_tasks_are_in_the_order_of_the_tasks(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, closure: int, most: int
) -> None:
    monkeypatch.setattr(jobs, "_CLOSURE_BYTES", closure)
    monkeypatch.setattr(jobs, "_MOST_SPARK_TASKS", most)
    frame = jobs.task_rows(session, numbered, [f"task {number}" for number in range(20)], "number long, task string")
    expected = [(number, f"task {number}") for number in range(20) for _ in range(2)]
    assert [tuple(row) for row in frame.collect()] == expected
    assert frame.rdd.getNumPartitions() == min(most, 20)


def numbered(number: int, task: str) -> Iterator[pa.RecordBatch]:
    for _ in range(2):
        yield pa.RecordBatch.from_pydict({"number": [number], "task": [task]})
