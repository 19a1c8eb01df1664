"""A catalog is told of what Spark writes: `hs.write`, a stream, and rows that go away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest
from tests.spark.glue import glue_options, registered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITE = {
    "hoodie.table.name": "Trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}


def test_a_write_and_a_stream_register_the_table(spark: SparkSession, aws_endpoint: str, tmp_path: Path) -> None:
    told = {**WRITE, **glue_options(aws_endpoint, "written"), "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    path, source = str(tmp_path / "trips"), str(tmp_path / "source")
    rows = spark.range(4).selectExpr("id", "1L ts", "concat('c', id % 2) city")
    result = hs.write(rows, path, options=told)
    assert "written.trips_ro created, partitions 2 added" in result.services["sync"]
    each = ["c0", "c1"]
    assert registered(aws_endpoint, "written") == {"trips": each, "trips_ro": each, "trips_rt": each}

    spark.range(4, 8).selectExpr("id", "1L ts", "'c9' city").write.parquet(source)
    stream = spark.readStream.schema("id long, ts long, city string").parquet(source)
    query = hs.write_stream(stream, path, told, checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True})
    query.awaitTermination()
    assert set(map(tuple, registered(aws_endpoint, "written").values())) == {("c0", "c1", "c9")}

    drop = {"hoodie.datasource.write.operation": "delete_partition", "hoodie.datasource.write.partitions.to.delete": "c0"}
    hs.write(rows.limit(0), path, mode="append", options={**told, **drop})
    assert set(map(tuple, registered(aws_endpoint, "written").values())) == {("c1", "c9")}


def test_a_catalog_that_cannot_be_named_is_refused_before_a_write(spark: SparkSession, tmp_path: Path) -> None:
    wrong = {"hoodie.datasource.hive_sync.enable": "true", "hoodie.datasource.hive_sync.metastore.uris": "http://nobody"}
    with pytest.raises(InvalidRequest, match="thrift://"):
        hs.write(spark.range(1).selectExpr("id", "1L ts", "'a' city"), str(tmp_path / "t"), options={**WRITE, **wrong})
    assert not (tmp_path / "t").exists()
