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
