"""Each row of Spark's table in docs/data-types.md is written and read back, with the type that Hudi 1.0 lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyhudi import Table
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest
from tests.support.types_page import rows_of

KEYED = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.index.bloom.num_entries": 100}


def test_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of("Spark")
    columns = ", ".join(f"CAST(NULL AS {given}) AS c{number}" for number, (given, _) in enumerate(rows))
    frame = spark.sql(f"SELECT 'a' AS id, {columns}")
    hs.write(frame, str(tmp_path / "t"), options=KEYED)
    types = dict(hs.read(spark, str(tmp_path / "t")).dtypes)
    assert [(given, types[f"c{number}"]) for number, (given, _) in enumerate(rows)] == [tuple(row) for row in rows]


def test_timestamps_without_a_zone(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    frame = spark.sql("SELECT 'a' AS id, 1 AS n, TIMESTAMP_NTZ'2026-07-01 12:00:00' AS at")
    with pytest.raises(InvalidRequest, match="are ambiguous"):
        hs.write(frame, uri, options=KEYED)
    assert not Table.exists(uri)
    hs.write(frame, uri, options={**KEYED, "pyhudi.timestamps.without.zone": "local"})
    # Such a column accepts such times from now on; other changes depend on the argument.
    hs.write(frame.selectExpr("id", "n", "at + INTERVAL 1 HOUR AS at"), uri, schema_mode="strict")
    found = hs.read(spark, uri, ["at"])
    assert found.dtypes == [("at", "timestamp_ntz")]
    assert [str(row["at"]) for row in found.collect()] == ["2026-07-01 13:00:00"]
    with pytest.raises(InvalidRequest, match="schema mode strict"):
        hs.write(frame.selectExpr("*", "1 AS extra"), uri, schema_mode="strict")
    utc = str(tmp_path / "utc")
    hs.write(frame, utc, options={**KEYED, "pyhudi.timestamps.without.zone": "utc"})
    assert hs.read(spark, utc, ["at"]).dtypes == [("at", "timestamp")]
