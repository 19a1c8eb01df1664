"""Smoke tests of reads on Spark: columns, filters, time travel, incremental queries, and `format("pyhudi")`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.engines.spark import read_dataframe as spark_read
from tests.support.rows import assert_same_rows
from tests.support.spark_trips import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Any]]:
    """A table of three commits with its results: 60 rows, 10 of them updated, 2 deleted."""
    path = str(tmp_path_factory.mktemp("read") / "t")
    frame = spark.range(60).selectExpr(
        "concat('id', id) AS id",
        "element_at(array('sf', 'ny', 'la'), cast(id % 3 AS int) + 1) AS city",
        "id AS ts",
        "cast(id AS double) AS fare",
    )
    results = [hs.write(frame, path, options=OPTIONS)]
    results.append(
        hs.write(frame.where("ts < 10").selectExpr("id", "city", "ts + 100 AS ts", "-1D AS fare"), path, options=OPTIONS)
    )
    results.append(hs.write(frame.where("ts >= 58"), path, options={**OPTIONS, "hoodie.datasource.write.operation": "delete"}))
    return path, results


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    """Filters of Python sources reach their readers; the session is left as it was."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def files_read(frame: DataFrame) -> int:
    return len(frame.inputFiles())


def test_all_rows_and_columns(spark: SparkSession, table: tuple[str, list[Any]]) -> None:
    found = hs.read(spark, table[0])
    assert_same_rows(found.toArrow(), hp.Table(table[0]).scan(["*"]).to_arrow())
    assert found.count() == 58
    assert hp.Table(table[0]).scan(["id"]).to_spark(spark).columns == ["id"]
    assert hp.Table(table[0]).scan(["id"], limit=2).to_spark(spark).count() == 2


def test_filters_prune_partitions_before_the_scan(spark: SparkSession, table: tuple[str, list[Any]]) -> None:
    assert files_read(hs.read(spark, table[0])) == 3
    pruned = hs.read(spark, table[0], columns=["id", "fare"], filter="city = 'sf' AND fare < 0")
    assert files_read(pruned) == 1
    assert pruned.columns == ["id", "fare"]
    assert sorted(row["id"] for row in pruned.collect()) == ["id0", "id3", "id6", "id9"]
    by_option = hs.read(spark, table[0], options={"pyhudi.columns": "id,fare", "pyhudi.filter": "city = 'sf' AND fare < 0"})
    assert_same_rows(by_option.toArrow(), pruned.toArrow())
    assert hs.read(spark, table[0], filter="city = 'nowhere'").count() == 0


def test_time_travel(spark: SparkSession, table: tuple[str, list[Any]]) -> None:
    path, results = table
    first = hs.read(spark, path, options={"as.of.instant": results[0].instant})
    assert (first.count(), first.where("fare < 0").count()) == (60, 0)
    second = hs.read(spark, path, options={"as.of.instant": results[1].instant})
    assert (second.count(), second.where("fare < 0").count()) == (60, 10)


def test_incremental(spark: SparkSession, table: tuple[str, list[Any]]) -> None:
    path, results = table
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": results[1].completion_time,
        "hoodie.datasource.read.end.instanttime": results[1].completion_time,
    }
    changed = hs.read(spark, path, options=options)
    assert sorted(row["id"] for row in changed.collect()) == sorted(f"id{n}" for n in range(10))


def test_read_optimized_is_the_snapshot_of_a_copy_on_write_table(spark: SparkSession, table: tuple[str, list[Any]]) -> None:
    assert hs.read(spark, table[0], options={"hoodie.datasource.query.type": "read_optimized"}).count() == 58


def test_tasks_read_what_the_native_scan_reads(
    spark: SparkSession, table: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    native = hs.read(spark, table[0], columns=["fare", "id"], filter="fare > 20")
    # Spark would take any path with a slash for a pattern, so every file goes through tasks.
    monkeypatch.setattr(spark_read, "_GLOB_CHARACTERS", frozenset("/"))
    tasks = hs.read(spark, table[0], columns=["fare", "id"], filter="fare > 20")
    assert_same_rows(tasks.toArrow(), native.toArrow())
    assert tasks.count() == native.count() == 37


def test_the_source_needs_no_registration(spark: SparkSession, table: tuple[str, list[Any]]) -> None:
    found = spark.read.format("pyhudi").load(table[0])
    assert_same_rows(found.toArrow(), hs.read(spark, table[0]).toArrow())
    assert found.count() == 58


def test_the_source_reads_the_columns_of_a_given_schema(spark: SparkSession, table: tuple[str, list[Any]]) -> None:
    found = spark.read.format("pyhudi").schema("fare double, id string").load(table[0])
    assert_same_rows(found.toArrow(), hs.read(spark, table[0], columns=["fare", "id"]).toArrow())
    assert spark.read.format("pyhudi").option("pyhudi.columns", "id").load(table[0]).columns == ["id"]


def test_the_source_in_sql(spark: SparkSession, table: tuple[str, list[Any]]) -> None:
    spark.read.format("pyhudi").load(table[0]).createOrReplaceTempView("trips_view")
    try:
        assert spark.sql("SELECT count(*) AS n FROM trips_view WHERE fare < 0").collect()[0]["n"] == 10
    finally:
        spark.catalog.dropTempView("trips_view")


def test_the_alias(spark: SparkSession, table: tuple[str, list[Any]]) -> None:
    hs.enable(spark, alias=["hudi_by_another_name", "org.apache.hudi"])
    for name in ("hudi_by_another_name", "org.apache.hudi"):
        assert spark.read.format(name).load(table[0]).count() == 58


def test_a_frame_of_the_source_gives_its_rows_under_any_condition(
    spark: SparkSession, table: tuple[str, list[Any]], pushdown: None
) -> None:
    """Spark would use a reader that accepted one pushed condition for the others."""
    frame = spark.read.format("pyhudi").load(table[0])
    assert frame.where("city = 'sf'").count() == 20
    assert frame.count() == 58
    assert frame.where("city = 'sf'").unionAll(frame.where("city = 'ny'")).count() == 39
