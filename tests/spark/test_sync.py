"""Catalog sync after Spark writes: `hs.write`, a stream, and deleted rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest
from pyhudi.storage.catalogs.hive_catalog import HiveCatalog
from tests.conformance.servers import running_metastore
from tests.support.spark_glue import glue_options, registered

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


@pytest.mark.wide
def test_hive_metastore_is_updated_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The same as Glue, in the mode that is Hudi's default; by `df.write.format` too, whose commit is made in another process."""
    pytest.importorskip("thriftpy2")
    (tmp_path / "metastore").mkdir()
    with running_metastore(tmp_path / "metastore") as server:
        uri = f"thrift://{server.address}"
        told = {
            **WRITE,
            "hoodie.datasource.hive_sync.enable": "true",
            "hoodie.datasource.hive_sync.mode": "hms",
            "hoodie.datasource.hive_sync.metastore.uris": uri,
            "hoodie.datasource.hive_sync.database": "written",
            "hoodie.datasource.write.operation": "bulk_insert",
        }
        catalog = HiveCatalog([uri], "uris")

        def partitions() -> list[str]:
            table = catalog.table("written", "trips")
            assert table is not None
            assert table.location.endswith("/trips"), table.location
            return sorted(each.values[0] for each in catalog.partitions(table))

        path = str(tmp_path / "trips")
        rows = spark.range(4).selectExpr("id", "1L ts", "concat('c', id % 2) city")
        result = hs.write(rows, path, options=told)
        assert "written.trips created, partitions 2 added" in result.services["sync"]
        assert partitions() == ["c0", "c1"]
        more = rows.selectExpr("id + 4 id", "ts", "'c2' city")
        more.write.format("pyhudi").options(**told).mode("append").save(path)
        assert partitions() == ["c0", "c1", "c2"]
        found = hs.sql(spark, f"SELECT count(*) n FROM hudi.`{path}`").collect()
        assert found[0]["n"] == 8


def test_a_catalog_that_cannot_be_named_is_refused_before_a_write(spark: SparkSession, tmp_path: Path) -> None:
    wrong = {"hoodie.datasource.hive_sync.enable": "true", "hoodie.datasource.hive_sync.metastore.uris": "http://nobody"}
    with pytest.raises(InvalidRequest, match="thrift://"):
        hs.write(spark.range(1).selectExpr("id", "1L ts", "'a' city"), str(tmp_path / "t"), options={**WRITE, **wrong})
    assert not (tmp_path / "t").exists()
