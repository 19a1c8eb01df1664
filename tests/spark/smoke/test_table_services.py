"""Smoke tests of table services as Spark tasks: the same table as the embedded engine gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.tasks.clustering_tasks import run_cluster
from tests.support.rows import assert_same_rows
from tests.support.spark_services import rows, table_with_commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_clustering(spark: SparkSession, tmp_path: Path, table_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with_commits(tmp_path / "t", table_type)
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
    table = table_with_commits(tmp_path / "t", "mor")
    before = table.scan(["id", "ts", "x"]).to_arrow()
    assert table.log_compact(spark=spark).runs[0].file_groups == 3
    assert_same_rows(table.scan(["id", "ts", "x"]).to_arrow(), before)
    table.upsert(rows(5, 12))
    before = table.scan(["id", "ts", "x"]).to_arrow()
    assert table.compact(spark=spark).runs[0].file_groups == 3
    assert_same_rows(table.read_optimized(["id", "ts", "x"]).to_arrow(), before)
    assert table.validate().ok
