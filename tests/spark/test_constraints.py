"""CHECK constraints on Spark: DataFrames, row changes, and the distributed bulk insert."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyhudi import Table
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest
from tests.support.spark_key_lookup import go

VIOLATED = r"constraint 'positive' \(fare > 0\) is violated by row"


@pytest.mark.parametrize("way", ["driver", "many keys"])
def test_writes_of_spark_are_checked(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    go(monkeypatch, way)
    path, size = str(tmp_path / "t"), 30
    good = spark.range(size).selectExpr("id", "1L ts", "cast(id + 1 AS double) fare")
    hs.write(
        good, path, options={"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.precombine.field": "ts"}
    )
    Table(path).alter.add_constraint("positive", "fare > 0")
    bad = good.selectExpr("id", "2L ts", f"if(id = {size - 1}, -1.0D, fare) fare")
    for operation in ("upsert", "insert", "bulk_insert"):
        with pytest.raises(InvalidRequest, match=VIOLATED):
            hs.write(bad, path, options={"hoodie.datasource.write.operation": operation})
    with pytest.raises(InvalidRequest, match=VIOLATED):
        hs.update(spark, path, {"fare": "-fare"}, where="id = 1")
    with pytest.raises(InvalidRequest, match=VIOLATED):
        hs.merge(spark, path, bad, on="id").when_matched_update_all().execute()
    with pytest.raises(Exception, match=VIOLATED):
        bad.write.format("pyhudi").mode("append").save(path)
    assert Table(path).count("fare <= 0") == 0
    assert hs.write(good.selectExpr("id", "3L ts", "fare + 1 fare"), path).rows_updated == size
