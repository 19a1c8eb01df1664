"""Small batches are collected to the driver once; larger ones are measured and stay on the executors."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.engines.spark.engine import rows_for_driver
from pyhudi.engines.spark.incoming import FrameIncoming
from pyhudi.engines.spark.type_conversion import to_arrow_schema
from tests.conformance.engine_suite import REQUEST
from tests.support.spark_key_lookup import go

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
}


@pytest.mark.parametrize(
    "way", ["driver", "many keys", *(pytest.param(way, marks=pytest.mark.wide) for way in ("tasks", "few keys"))]
)
def test_rows_are_computed_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Keys of random numbers and of Spark's counter: a second evaluation would look for others than it writes."""
    go(monkeypatch, way)
    computed = str(tmp_path / "computed")

    def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open(computed, "a") as lines:
                lines.write(f"{batch.num_rows}\n")
            yield batch

    rows = (
        spark.range(0, 40, 1, 2)
        .mapInArrow(noted, "id long")
        .selectExpr("cast(rand() as string) id", "cast(monotonically_increasing_id() % 3 as string) part")
    )
    rows = rows.selectExpr("id", "part", "id as the_same", "part as same_part")
    result = hs.write(rows, str(tmp_path / "t"), options=OPTIONS)
    assert (result.rows_in, result.rows_inserted) == (40, 40)
    found = hp.Table(str(tmp_path / "t")).scan(["*"]).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == 40
    assert all(row["id"] == row["the_same"] == row["_hoodie_record_key"] for row in found)
    assert all(row["part"] == row["same_part"] == row["_hoodie_partition_path"] for row in found)
    assert sum(map(int, Path(computed).read_text().split())) == 40


def test_batch_over_the_budget_is_not_collected(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take = FrameIncoming.collect

    def noted(self: FrameIncoming) -> pa.Table:
        rows = take(self)
        taken.append(rows.nbytes)
        return rows

    monkeypatch.setattr(FrameIncoming, "collect", noted)
    rows = spark.range(0, 3000, 1, 2).selectExpr("cast(id as string) id", "cast(id % 2 as string) part", "id n")
    hs.write(rows, str(tmp_path / "t"), options={**OPTIONS, "pyhudi.spark.driver.batch.bytes": "20000"})
    assert taken == []
    hs.write(rows.where("n < 300"), str(tmp_path / "t"), options={**OPTIONS, "pyhudi.spark.driver.batch.bytes": "20000"})
    assert len(taken) == 1 and taken[0] <= 20_000
    hs.write(rows.where("n < 3"), str(tmp_path / "t"), options={**OPTIONS, "pyhudi.spark.driver.batch.bytes": "0"})
    assert len(taken) == 1
    assert hs.read(spark, str(tmp_path / "t")).selectExpr("count(*) c", "sum(n) s").collect() == [(3000, 2999 * 1500)]


def test_estimated_bytes_match_collected_bytes(spark: SparkSession) -> None:
    """As many as Arrow then has, within a factor: of text, nested values, nulls, and columns of fixed width."""
    values = {
        "id": [f"key-{n}" * (n % 9 + 1) for n in range(900)],
        "part": ["p"] * 900,
        "ts": list(range(900)),
        "v": [None if n % 2 else n for n in range(900)],
        "price": [decimal.Decimal(n) for n in range(900)],
        "blob": [b"x" * (n % 300) for n in range(900)],
        "tags": [[f"t{n}"] * (n % 5) for n in range(900)],
        "inner": [{"a": n, "b": str(n) * 10} for n in range(900)],
        "flag": [None] * 900,
    }
    types = {"v": pa.int64(), "flag": pa.bool_()}
    rows = pa.table({name: pa.array(column, types.get(name)) for name, column in values.items()})
    request = replace(REQUEST, data_schema=rows.schema, memory_budget_bytes=1 << 20)
    incoming = FrameIncoming(spark, spark.createDataFrame(rows), request)
    try:
        count, told = incoming.measured()
        taken = incoming.collect()
    finally:
        incoming.release()
    assert (count, taken.num_rows) == (900, 900)
    assert 0.7 < told / taken.nbytes < 1.5


def test_a_small_upsert_is_one_query(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    hp.Table.create(path, options=OPTIONS).insert(pa.table({"id": ["a", "b"], "part": ["p", "q"], "v": [1, 1]}))
    rows = spark.createDataFrame([("a", "p", 2), ("c", "q", 2)], "id string, part string, v long")
    context = spark.sparkContext
    context.setJobGroup("small", "a small upsert")
    try:
        result = hs.write(rows, path, options=OPTIONS)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None resets it
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert len(context.statusTracker().getJobIdsForGroup("small")) == 1


@pytest.mark.parametrize(
    ("limit", "rows", "width", "measures"),
    [
        (20_000, 60, 5, False),
        (20_000, 60, 200, True),
        (20_000, 190, 5, True),
        (20_000_000, 4096, 5, False),
        (20_000_000, 4200, 5, True),
    ],
)
def test_very_few_rows_are_collected_without_estimate(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limit: int, rows: int, width: int, *, measures: bool
) -> None:
    """For every source they are the same, in their order: of several partitions, of which some are empty."""
    measured: list[tuple[int, int]] = []
    measure = FrameIncoming.measured

    def noted(self: FrameIncoming) -> tuple[int, int]:
        measured.append(measure(self))
        return measured[-1]

    monkeypatch.setattr(FrameIncoming, "measured", noted)
    inner = f"named_struct('a', id, 'b', repeat('x', {width})) inner" if rows < 100 else "id inner"
    frame = (
        spark.range(0, rows, 1, 5).where("id % 5 < 3 OR id > 40").selectExpr("cast(id as string) id", "'p' part", "id n", inner)
    )
    request = replace(
        REQUEST,
        data_schema=to_arrow_schema(frame.schema),
        combine=False,
        memory_budget_bytes=1 << 20,
        driver_batch_bytes=limit,
    )
    incoming = FrameIncoming(spark, frame, request)
    try:
        taken = rows_for_driver(incoming, request)
    finally:
        incoming.release()
    assert taken is not None and bool(measured) == measures
    assert taken.select(["id", "n", "inner"]).to_pylist() == [
        {"id": row["id"], "n": row["n"], "inner": row["inner"].asDict() if rows < 100 else row["inner"]}
        for row in frame.collect()
    ]


@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.parser.quotedRegexColumnNames",
        "spark.sql.parser.escapedStringLiterals",
        "spark.sql.ansi.doubleQuotedIdentifiers",
    ],
)
def test_settings_of_how_sql_is_read_do_not_matter(spark: SparkSession, tmp_path: Path, setting: str) -> None:
    """Keys and paths are made by SQL text: names and values that need quotes are what they are in every session."""
    before = spark.conf.get(setting)
    spark.conf.set(setting, "true")
    try:
        rows = spark.createDataFrame([("a'b", "it's \\ 1", 1), ("", "p", 2)], "id string, part string, v long")
        options = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id,v",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.partitionpath.urlencode": "true",
        }
        hs.write(rows, str(tmp_path / "t"), options=options)
    finally:
        spark.conf.set(setting, str(before))
    found = hp.Table(str(tmp_path / "t")).scan(["_hoodie_record_key", "_hoodie_partition_path"]).to_arrow().to_pylist()
    assert sorted((row["_hoodie_record_key"], row["_hoodie_partition_path"]) for row in found) == [
        ("id:__empty__,v:2", "p"),
        ("id:a'b,v:1", "it%27s %5C 1"),
    ]
