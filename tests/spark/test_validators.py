"""Pre-commit validators on Spark: the suite of both engines, writes on the cluster, and the stream sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi as hp
from pyhudi import spark as hs
from tests.conformance.validator_suite import ValidatorSuite, Write, equality, new_table, registered, rows, single_value


class TestSpark(ValidatorSuite):
    @pytest.fixture(params=["driver", pytest.param("cluster", marks=pytest.mark.wide)])
    def write(self, request: pytest.FixtureRequest, spark: SparkSession) -> Write:
        sizes = {} if request.param == "driver" else {"pyhudi.spark.driver.batch.bytes": 0}

        def on_spark(table: hp.Table, data: pa.Table, /, **options: Any) -> object:
            frame = spark.createDataFrame(data.to_pandas())
            return hs.write(frame, table.uri, options={**options, **sizes})

        return on_spark


def test_a_function_reads_the_states_on_the_cluster(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))

    def validate(before: Any, after: Any) -> Any:
        return after.to_spark(spark).where("value > 5").select("id")

    frame = spark.createDataFrame(rows((1, "a", 9.0), (2, "a", 9.0), ts=2).to_pandas())
    with pytest.raises(hp.ValidationFailed) as failure:
        hs.write(frame, table.uri, options=registered(validate))
    assert sorted(row["id"] for row in failure.value.rows) == [1, 2]


def test_no_view_remains(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    frame = spark.createDataFrame(rows((6, "a", 9.0)).to_pandas())
    with pytest.raises(hp.ValidationFailed):
        hs.write(frame, table.uri, options=equality("select count(*) from <TABLE_NAME>"))
    assert not [found.name for found in spark.catalog.listTables() if found.name.startswith("pyhudi_")]


def test_a_clustering_on_the_cluster_is_validated(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    table.bulk_insert(rows((6, "a", 1.0)))
    with pytest.raises(hp.ValidationFailed):
        table.cluster(spark=spark, options=single_value("select count(*) from <TABLE_NAME>#-1"))
    table.cluster(spark=spark, options=equality("select sum(id) from <TABLE_NAME>"))
    assert table.count() == 6


def test_a_rejected_micro_batch_stops_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    source = tmp_path / "source"
    spark.createDataFrame(rows((6, "a", 9.0)).to_pandas()).write.parquet(str(source))
    stream = spark.readStream.schema("id long, part string, ts long, value double").parquet(str(source))
    options = {**single_value("select count(*) from <TABLE_NAME>#3"), "hoodie.datasource.write.streaming.retry.count": 0}
    query = hs.write_stream(stream, table.uri, options, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True})
    with pytest.raises(Exception, match="SqlQuerySingleResultPreCommitValidator rejects"):
        query.awaitTermination()
    assert table.count() == 5
