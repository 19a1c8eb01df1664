"""Smoke tests of updates, deletes and merges on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from pyhudi import Table
from pyhudi import spark as hs
from pyhudi.api.table import Merge
from tests.conformance.changes_suite import OPTIONS, SOURCE, held, new_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return new_table(uri=str(tmp_path / "t"))


def merged(spark: SparkSession, table: Table, source: DataFrame, on: Any, **settings: Any) -> Merge:
    return hs.merge(spark, table.uri, source, on, target_alias="t", source_alias="s", options=settings.pop("options", OPTIONS))


def test_values_and_conditions_are_those_of_spark(spark: SparkSession, table: Table) -> None:
    hs.update(spark, table.uri, {"fare": "coalesce(fare, 0) * 2 + ts"}, "length(id) = 1 AND ts <> fare", options=OPTIONS)
    assert held(table, "fare") == {"a": 1.0, "b": 2.0, "c": None}
    hs.update(spark, table.uri, {"FARE": "r.ts / 2"}, "r.ts > coalesce(r.fare, 2.5)", alias="r", options=OPTIONS)
    assert held(table, "fare") == {"a": 1.0, "b": 2.0, "c": 1.5}
    hs.update(spark, table.uri, {"ts": F.col("ts") + 1, "fare": None}, F.col("id").isin("a", "b"), options=OPTIONS)
    assert held(table, "ts", "fare") == {"a": (2, None), "b": (3, None), "c": (3, 1.5)}
    hs.update(spark, table.uri, {"fare": "unix_seconds(current_timestamp())"}, "fare IS NULL", options=OPTIONS)
    assert held(table, "fare")["a"] > 1.7e9
    hs.delete(spark, table.uri, "fare > ts + 1", options=OPTIONS)
    assert set(held(table, "ts")) == {"c"}
    assert len(table.timeline().completed_writes()) == 6


def test_a_merge_by_a_condition_with_every_clause(spark: SparkSession, table: Table) -> None:
    source = spark.createDataFrame(SOURCE.append_column("word", pa.array(["go", None, "new"])))
    merge = merged(spark, table, source, "t.id = s.id").when_matched_update({"fare": "s.fare + t.ts"}, "s.ts > t.ts * 4")
    merge = merge.when_matched_delete("s.word IS NULL")
    merge = merge.when_not_matched_insert({"id": "s.id", "city": "concat(s.city, 1)", "ts": 1}, F.col("s.word") == "new")
    merge = merge.when_not_matched_by_source_update({"fare": "t.ts"}, "t.fare IS NULL").when_not_matched_by_source_delete()
    result = merge.execute()
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 2, 1)
    assert held(table, "city", "ts", "fare") == {"a": ("x", 1, 11.0), "c": ("x", 3, 3.0), "z": ("w1", 1, None)}
    merged(spark, table, source.limit(0), "id").when_not_matched_by_source_delete("t.id <> 'a'").execute()
    assert set(held(table, "ts")) == {"a"}
