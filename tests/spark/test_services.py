"""Table services as Spark tasks: one task a file group or clustering group, the same table as the embedded engine gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.execute.cluster import run_cluster
from tests.support.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline": "false",
    "hoodie.log.compaction.blocks.threshold": "2",
}


def rows(batch: int, count: int = 30) -> pa.Table:
    return pa.table(
        {
            "id": [str(i) for i in range(count)],
            "part": [f"p{i % 3}" for i in range(count)],
            "ts": pa.array([batch] * count, pa.int64()),
            "x": pa.array([(i * 7 + batch) % 13 for i in range(count)], pa.int64()),
        }
    )


def grown(path: Path, table_type: str) -> hp.Table:
    table = hp.Table.create(path, record_key="id", partition_by="part", ordering="ts", table_type=table_type, options=OPTIONS)
    for batch in range(3):
        table.upsert(rows(batch))
    return table


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_clustering(spark: SparkSession, tmp_path: Path, table_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(tmp_path / "t", table_type)
    before = table.scan(["*"]).to_arrow()
    counts: list[int] = []
    whole = SparkEngine.map

    def counted(self, function, tasks):  # type: ignore[no-untyped-def]
        todo = list(tasks)
        if function is run_cluster:
            counts.append(len(todo))
        return whole(self, function, todo)

    monkeypatch.setattr(SparkEngine, "map", counted)
    result = table.cluster(order_by="x", spark=spark)
    assert (result.groups, result.rows) == (3, 30) and counts == [3]
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))
    found = table.scan(["x"], filter="part = 'p1'").to_arrow()["x"].to_pylist()
    assert found == sorted(found)
    assert table.validate().ok


def test_compactions(spark: SparkSession, tmp_path: Path) -> None:
    table = grown(tmp_path / "t", "mor")
    before = table.scan(["id", "ts", "x"]).to_arrow()
    assert table.log_compact(spark=spark).runs[0].file_groups == 3
    assert_same_rows(table.scan(["id", "ts", "x"]).to_arrow(), before)
    table.upsert(rows(5, 12))
    before = table.scan(["id", "ts", "x"]).to_arrow()
    assert table.compact(spark=spark).runs[0].file_groups == 3
    assert_same_rows(table.read_optimized(["id", "ts", "x"]).to_arrow(), before)
    assert table.validate().ok


def test_a_pass_of_services(spark: SparkSession, tmp_path: Path) -> None:
    table = grown(tmp_path / "t", "mor")
    before = table.scan(["id", "ts"]).to_arrow()
    planned = table.schedule_clustering(order_by="x").instant
    outcomes = table.run_services(["compact", "cluster"], spark=spark, options={"hoodie.clustering.async.max.commits": "9"})
    assert planned is not None and outcomes["cluster"].startswith(f"run: {planned}, 3 file groups")
    assert not table.timeline().pending()
    assert_same_rows(table.scan(["id", "ts"]).to_arrow(), before)


def test_indexes_are_built_on_the_cluster(spark: SparkSession, tmp_path: Path) -> None:
    table = grown(tmp_path / "t", "mor")
    table.compact()
    table.index.create("record_index", spark=spark)
    table.index.run(table.index.schedule("secondary_index", "part", spark=spark), spark=spark)
    table.index.create("column_stats", "part", function="upper", spark=spark)
    assert table.index.rebuild("record_index", spark=spark) == ("record_index",)
    assert {info.state for info in table.index.list()} == {"ready"}
    assert table.validate().ok


@pytest.mark.parametrize("as_jobs", [False, pytest.param(True, marks=pytest.mark.wide)])
def test_what_is_less_work_than_a_job_runs_in_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_jobs: bool
) -> None:
    """Files that a write cleans, and file groups of the metadata table that it merges."""
    if as_jobs:
        monkeypatch.setattr("pyhudi.engines.spark.engine._WORK_LESS_THAN_A_JOB", -1)
    ran: list[str] = []
    whole = SparkEngine.map

    def noted(self, function, tasks):  # type: ignore[no-untyped-def]
        ran.append(getattr(function, "func", function).__name__)
        return whole(self, function, tasks)

    monkeypatch.setattr(SparkEngine, "map", noted)
    options = {"hoodie.cleaner.commits.retained": "1", "hoodie.metadata.compact.max.delta.commits": "2"}
    table = grown(tmp_path / "t", "cow")
    files = table.inspect.files(on_storage=True).num_rows
    for batch in range(3, 6):
        hs.write(spark.createDataFrame(rows(batch)), str(tmp_path / "t"), options=options)
    table = hp.Table(tmp_path / "t")
    assert {"_delete_on_worker", "run_metadata_merge"}.intersection(ran) == ({"run_metadata_merge"} if as_jobs else set())
    assert table.inspect.files(on_storage=True).num_rows < files
    assert not table.validate(keys=True).found
    assert_same_rows(table.scan(["id", "part", "ts", "x"]).to_arrow(), rows(5))
