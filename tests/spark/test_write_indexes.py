"""Write indexes on Spark: rows on the driver, few keys (located on the driver) and many (by jobs)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_key_lookup import go
from tests.support.write_index_suite import FILE_INDEXES, INDEXES, RINGS, Checked, row, run_during_compactions, run_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("name", "table_type", "way"),
    [
        ("record index, moving", "mor", "tasks"),
        pytest.param("record index, moving", "mor", "few keys", marks=pytest.mark.wide),
        ("bucket", "cow", "driver"),
        pytest.param("bucket", "cow", "few keys", marks=pytest.mark.wide),
        pytest.param("global simple", "cow", "tasks", marks=pytest.mark.wide),
    ],
)
def test_operations_on_spark_keep_index_and_rows_consistent(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, table_type: str, way: str
) -> None:
    go(monkeypatch, way)
    run_script(Checked.create(tmp_path / "t", table_type, (INDEXES | FILE_INDEXES)[name], spark.createDataFrame))


def test_operations_on_spark_with_consistent_hashing_keep_index_and_rows_consistent(spark: SparkSession, tmp_path: Path) -> None:
    run_script(Checked.create(tmp_path / "t", "mor", RINGS, spark.createDataFrame))


def test_buckets_are_resized_during_writes(spark: SparkSession, tmp_path: Path) -> None:
    options = {
        "hoodie.clustering.updates.strategy": "SparkConsistentBucketDuplicateUpdateStrategy",
        "hoodie.bucket.index.max.num.buckets": 8,
        "hoodie.bucket.index.merge.threshold": 0.0,
        "hoodie.parquet.max.file.size": 100,
        "hoodie.compact.inline": False,
    }
    checked = Checked.create(tmp_path / "t", "mor", RINGS, spark.createDataFrame, **options)
    checked.ground().upsert(*(row(key, f"p{key % 2}", 1) for key in range(12)))
    planned = checked.table.schedule_clustering(spark=spark).instant
    assert planned is not None
    checked.upsert(*(row(key, f"p{key % 2}", 2) for key in range(6, 15)))
    checked.delete(("p0", "k2"), ("p1", "k7"))
    assert checked.table.cluster(planned, spark=spark).file_groups_written >= 4
    checked.upsert(*(row(key, f"p{key % 2}", 3) for key in range(10, 18)))
    checked.validate()


@pytest.mark.parametrize(
    ("name", "table_type", "way"),
    [
        # Records that move are in the test above.
        pytest.param("record index, moving", "cow", "many keys", marks=pytest.mark.wide),
        ("record index of partitions", "mor", "many keys"),
        pytest.param("record index of partitions", "cow", "few keys", marks=pytest.mark.wide),
        ("bucket", "mor", "many keys"),
        pytest.param("bucket, counts by partition", "mor", "many keys", marks=pytest.mark.wide),
        pytest.param("bloom", "cow", "many keys", marks=pytest.mark.wide),
        ("in memory", "cow", "few keys"),
    ],
)
def test_random_writes_keep_index_and_rows_consistent(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, table_type: str, way: str
) -> None:
    go(monkeypatch, way)
    checked = Checked.create(tmp_path / "t", table_type, INDEXES[name], spark.createDataFrame)
    first = checked.upsert(*(row(key, f"p{key % 2}", 1) for key in range(8)))
    assert (first.index, first.index_source) == (INDEXES[name].kind, INDEXES[name].source)
    checked.upsert(*(row(key, f"p{key % 2}", 2) for key in range(6, 10)), row(0, "p1", 2), row(7, "p1", 3))
    checked.delete_anywhere("k0", "k5", "nobody")
    checked.validate()


@pytest.mark.parametrize(
    ("name", "way"),
    [
        # Bloom filters take the same way, over fewer files.
        ("simple", "many keys"),
        pytest.param("global simple", "many keys", marks=pytest.mark.wide),
        pytest.param("bloom", "many keys", marks=pytest.mark.wide),
        ("bloom by footers", "few keys"),
        pytest.param("global bloom", "few keys", marks=pytest.mark.wide),
    ],
)
def test_keys_that_only_a_log_has_after_a_compaction(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    go(monkeypatch, way)
    options = {"hoodie.compact.inline": False}
    run_during_compactions(Checked.create(tmp_path / "t", "mor", FILE_INDEXES[name], spark.createDataFrame, **options))
