"""Table services on Spark: one task per file group or clustering group, the same table as embedded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.engines.spark.engine import SparkEngine
from tests.support.rows import assert_same_rows
from tests.support.spark_services import rows, table_with_commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_pass_of_services(spark: SparkSession, tmp_path: Path) -> None:
    table = table_with_commits(tmp_path / "t", "mor")
    before = table.scan(["id", "ts"]).to_arrow()
    planned = table.schedule_clustering(order_by="x").instant
    outcomes = table.run_services(["compact", "cluster"], spark=spark, options={"hoodie.clustering.async.max.commits": "9"})
    assert planned is not None and outcomes["cluster"].startswith(f"run: {planned}, 3 file groups")
    assert not table.timeline().pending()
    assert_same_rows(table.scan(["id", "ts"]).to_arrow(), before)


def test_row_groups_are_copied_on_the_cluster(spark: SparkSession, tmp_path: Path) -> None:
    table = table_with_commits(tmp_path / "t", "cow")
    before = table.scan(["*"]).to_arrow()
    result = table.cluster(spark=spark, options={"pyhudi.clustering.copy": "always"})
    assert result.file_groups_copied == result.file_groups_written > 0
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))
    assert table.validate().ok


def test_indexes_are_built_on_the_cluster(spark: SparkSession, tmp_path: Path) -> None:
    table = table_with_commits(tmp_path / "t", "mor")
    table.compact()
    table.index.create("record_index", spark=spark)
    table.index.run(table.index.schedule("secondary_index", "part", spark=spark), spark=spark)
    table.index.create("column_stats", "part", function="upper", spark=spark)
    assert table.index.rebuild("record_index", spark=spark) == ("record_index",)
    assert {info.state for info in table.index.list()} == {"ready"}
    assert table.validate().ok


@pytest.mark.parametrize("as_jobs", [False, pytest.param(True, marks=pytest.mark.wide)])
def test_small_services_run_on_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_jobs: bool
) -> None:
    """Files that a write cleans, and file groups of the metadata table that it merges."""
    if as_jobs:
        monkeypatch.setattr("pyhudi.engines.spark.engine._DRIVER_WORK_BYTES", -1)
    ran: list[str] = []
    whole = SparkEngine.map

    def noted(self, function, tasks):  # type: ignore[no-untyped-def]
        ran.append(getattr(function, "func", function).__name__)
        return whole(self, function, tasks)

    monkeypatch.setattr(SparkEngine, "map", noted)
    options = {"hoodie.cleaner.commits.retained": "1", "hoodie.metadata.compact.max.delta.commits": "2"}
    table = table_with_commits(tmp_path / "t", "cow")
    files = table.inspect.files(on_storage=True).num_rows
    for batch in range(3, 6):
        hs.write(spark.createDataFrame(rows(batch)), str(tmp_path / "t"), options=options)
    table = hp.Table(tmp_path / "t")
    assert {"_delete_on_worker", "run_metadata_merge"}.intersection(ran) == ({"run_metadata_merge"} if as_jobs else set())
    assert table.inspect.files(on_storage=True).num_rows < files
    assert not table.validate(keys=True).findings
    assert_same_rows(table.scan(["id", "part", "ts", "x"]).to_arrow(), rows(5))
