"""Procedures on Spark: results as DataFrames, catalog tables, services as tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Table, set_reporter
from pyhudi import spark as hs
from pyhudi.tasks import progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROWS = pa.table({"id": ["a", "b"], "ts": [1, 1]})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(
        str(tmp_path / "t"), record_key="id", ordering="ts", table_type="mor", options={"hoodie.compact.inline": False}
    )
    made.upsert(ROWS)
    made.upsert(ROWS)
    return made


def test_a_procedure_gives_a_frame(spark: SparkSession, table: Table) -> None:
    found = hs.call(spark, "show_commits", path=table.uri, limit=1)
    assert found.columns[:3] == ["commit_time", "state_transition_time", "action"]
    assert [row["total_update_records_written"] for row in found.collect()] == [2]
    assert hs.call(spark, "show_savepoints", path=table.uri).collect() == []


def test_a_table_of_the_catalog(spark: SparkSession, table: Table) -> None:
    spark.sql(f"CREATE TABLE called (id STRING) USING parquet LOCATION '{table.uri}'")
    try:
        assert hs.call(spark, "show_commits", table="called").count() == 2
    finally:
        spark.sql("DROP TABLE called")
    wrong: tuple[dict[str, Any], ...] = ({"table": "nobody"}, {}, {"table": "called", "path": table.uri})
    for arguments in wrong:
        with pytest.raises(InvalidRequest):
            hs.call(spark, "show_commits", **arguments)


def test_copies_help_and_a_second_table(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    first = table.timeline().completed_writes()[0].request_time
    table.upsert(pa.table({"id": ["c"], "ts": [2]}))
    assert hs.call(spark, "copy_to_temp_view", path=table.uri, view_name="copied", replace=True).collect()[0]["status"] == 0
    assert {row["id"] for row in spark.table("copied").collect()} == {"a", "b", "c"}
    hs.call(spark, "copy_to_table", path=table.uri, new_table="older", as_of_instant=first, columns="id")
    try:
        older = spark.table("older")
        assert older.columns == ["id"] and {row["id"] for row in older.collect()} == {"a", "b"}
    finally:
        spark.sql("DROP TABLE older")
        spark.catalog.dropTempView("copied")
    other = Table.create(str(tmp_path / "other"), record_key="id")
    [row] = hs.call(spark, "commits_compare", path=table.uri, other_path=other.uri).collect()
    assert row["compare_detail"].startswith("Source t is ahead by 3 commits.")
    assert "show_commits: " in hs.call(spark, "help").collect()[0]["result"]


def test_a_service_runs_on_the_session_and_its_stages_are_shown(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int]] = []

    class Recorder:
        def begin(self, name: str) -> Callable[[int, int], None]:
            return lambda done, total: seen.append((name, done, total))

    monkeypatch.setattr("pyhudi.engines.spark.job_progress.POLL_S", 0.01)
    set_reporter(Recorder())
    try:
        found = hs.call(
            spark, "run_compaction", path=table.uri, op="scheduleAndExecute", options="hoodie.compact.inline.max.delta.commits=1"
        )
    finally:
        progress._is_chosen = False
    assert [(row["operation_size"], row["state"]) for row in found.collect()] == [(1, "COMPLETED")]
    assert any(total > 0 for _, _, total in seen) and seen[-1][1:] == (-1, 0)
