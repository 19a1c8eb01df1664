"""Smoke tests of writes on Spark: each operation gives the rows that a dictionary gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from tests.support.rows import assert_same_rows
from tests.support.spark_trips import FIRST, rows_of, stored, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.sample(1)
def test_upsert_inserts_updates_and_obeys_event_time(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    created = written(spark, tmp_path / "t", FIRST)
    assert (created.rows_inserted, created.rows_updated, created.file_groups_new) == (100, 0, 2)
    newer = [(f"id{n}", "sf" if n % 2 else "ny", n + 1000, -1.0) for n in range(0, 20)]
    older = [(f"id{n}", "sf" if n % 2 else "ny", -5, -2.0) for n in range(20, 30)]
    fresh = [("new1", "sf", 1, 1.0), ("new2", "la", 1, 1.0)]
    result = written(spark, tmp_path / "t", [*newer, *older, *fresh])
    assert (result.rows_inserted, result.rows_updated) == (2, 20)
    expected = {row[0]: row for row in FIRST} | {row[0]: row for row in newer} | {row[0]: row for row in fresh}
    assert rows_of(spark, tmp_path / "t") == sorted(expected.values())
    embedded = hp.Table(str(tmp_path / "t")).scan().to_arrow()
    assert_same_rows(hs.read(spark, str(tmp_path / "t")).select("id", "city", "ts", "fare").toArrow(), embedded, ignoring=())
    assert hp.Table(str(tmp_path / "t")).partitions() == ("la", "ny", "sf")


@pytest.mark.sample(1)
def test_delete_by_keys_and_by_rows(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    stored(tmp_path / "t", FIRST)
    result = written(spark, tmp_path / "t", FIRST[:7], "delete")
    assert result.rows_deleted == 7
    table = hp.Table(str(tmp_path / "t"))
    # Rows that name no partition are looked for everywhere; unknown keys are content.
    result = table.delete(keys=spark.createDataFrame([("id8",), ("id9",), ("nobody",)], "id string"))
    assert result.rows_deleted == 2
    assert rows_of(spark, tmp_path / "t") == sorted(row for row in FIRST if row[0] not in {f"id{n}" for n in (*range(7), 8, 9)})


@pytest.mark.sample(1)
def test_merge_on_read_appends_updates_and_deletes(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    options = {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.parquet.small.file.limit": "0"}
    stored(tmp_path / "t", FIRST, **options)
    newer = [(f"id{n}", "sf" if n % 2 else "ny", n + 1000, -1.0) for n in range(10)]
    older = [(f"id{n}", "sf" if n % 2 else "ny", -5, -2.0) for n in range(20, 24)]
    result = written(spark, tmp_path / "t", [*newer, newer[0], *older, ("new", "sf", 1, 1.0)], **options)
    assert (result.log_files, result.file_groups_rewritten, result.rows_inserted) == (2, 0, 1)
    deleted = written(spark, tmp_path / "t", FIRST[30:32], "delete", **options)
    assert (deleted.log_files, deleted.file_groups_rewritten) == (2, 0)
    expected = {row[0]: row for row in FIRST} | {row[0]: row for row in newer} | {"new": ("new", "sf", 1, 1.0)}
    left = sorted(row for row in expected.values() if row[0] not in ("id30", "id31"))
    assert rows_of(spark, tmp_path / "t") == left
    assert_same_rows(hs.read(spark, str(tmp_path / "t")).toArrow(), hp.Table(str(tmp_path / "t")).scan(["*"]).to_arrow())
    found = hs.read(spark, str(tmp_path / "t"), columns=["id"], filter="fare = -1 AND city = 'ny'")
    assert sorted(row["id"] for row in found.collect()) == ["id0", "id2", "id4", "id6", "id8"]
    optimized = hs.read(spark, str(tmp_path / "t"), options={"hoodie.datasource.query.type": "read_optimized"})
    assert optimized.where("fare < 0").count() == 0
    moved = written(spark, tmp_path / "t", [("id3", "la", 5000, 9.0)], **options, **{"hoodie.index.type": "GLOBAL_SIMPLE"})
    assert moved.rows_inserted == 1
    assert [row for row in rows_of(spark, tmp_path / "t") if row[0] == "id3"] == [("id3", "la", 5000, 9.0)]


def test_bulk_insert_combines_when_enabled(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", "sf", 1, 1.0), ("a", "sf", 3, 3.0), ("a", "sf", 2, 2.0), ("b", "ny", 1, 1.0)]
    written(spark, tmp_path / "t", rows, "bulk_insert", **{"hoodie.combine.before.insert": "true"})
    assert rows_of(spark, tmp_path / "t") == [("a", "sf", 3, 3.0), ("b", "ny", 1, 1.0)]


def test_overwrites(spark: SparkSession, tmp_path: Path) -> None:
    stored(tmp_path / "t", FIRST)
    result = written(spark, tmp_path / "t", [("only", "sf", 1, 1.0)], "insert_overwrite")
    assert result.file_groups_replaced == 1
    assert rows_of(spark, tmp_path / "t") == sorted([("only", "sf", 1, 1.0), *(row for row in FIRST if row[1] == "ny")])
    written(spark, tmp_path / "t", [("last", "la", 1, 1.0)], "insert_overwrite_table")
    assert rows_of(spark, tmp_path / "t") == [("last", "la", 1, 1.0)]


def test_commits_have_the_entries_of_the_caller(spark: SparkSession, tmp_path: Path) -> None:
    path, entries = str(tmp_path / "t"), {"job": "daily"}
    stored(tmp_path / "t", FIRST[:3])
    rows = spark.createDataFrame([("id1", "ny", 2000, 4.0)], "id string, city string, ts long, fare double")
    hs.write(rows, path, commit_metadata=entries)
    hs.update(spark, path, {"fare": "fare + 1"}, commit_metadata=entries)
    hs.merge(spark, path, rows, ["id", "city"], commit_metadata=entries).when_matched_delete().execute()
    hs.sql(spark, f"UPDATE hudi.`{path}` SET fare = 0", commit_metadata=entries)
    hs.delete(spark, path, "fare = 0", commit_metadata=entries)
    shown = hp.Table(path).inspect.commits().to_pylist()
    assert [dict(row["metadata"]) for row in shown][:5] == [entries] * 5
