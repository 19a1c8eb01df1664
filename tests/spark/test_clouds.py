"""Tables in HDFS and S3 on Spark: tasks open the storage with the options of the call."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest
from tests.conformance.cloud_servers import Hdfs, running_hdfs
from tests.conformance.cloud_tables import batch, rows_of
from tests.conformance.moto_server import make_bucket, s3_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITE = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def in_s3(aws_endpoint: str) -> dict[str, str]:
    make_bucket(aws_endpoint, "tables")
    return s3_options(aws_endpoint)


def test_a_table_in_s3(spark: SparkSession, in_s3: dict[str, str]) -> None:
    """Written, changed by SQL and read through tasks; the session has no file system for S3, and the reader gets a warning."""
    path, options = f"s3a://tables/{uuid.uuid4().hex}", {**WRITE, "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    hs.write(spark.createDataFrame(batch(range(8), 1)), path, options=options, storage_options=in_s3)
    hs.write(spark.createDataFrame(batch(range(8), 2)), path, mode="append", options=options, storage_options=in_s3)
    # Every file group has a log file, so that tasks read them all.
    expected = dict.fromkeys(range(8), 2)
    assert rows_of(hs.read(spark, path, storage_options=in_s3).toArrow()) == expected
    hs.sql(spark, f"UPDATE `{path}` SET ts = 3 WHERE id < 4", storage_options=in_s3)
    expected |= dict.fromkeys(range(4), 3)
    assert rows_of(hs.sql(spark, f"SELECT id, ts FROM `{path}`", storage_options=in_s3).toArrow()) == expected
    assert rows_of(hp.sql(f"SELECT id, ts FROM `{path}`", storage_options=in_s3)) == expected
    table = hp.Table(path, in_s3)
    table.compact(spark=spark)
    assert rows_of(table.scan().to_arrow()) == expected
    # Base files alone are for Spark's own scan, and this session has no file system for S3; the data source needs none.
    with pytest.raises(InvalidRequest, match=r"no file system for s3a://.*format\(.pyhudi.\)"):
        hs.read(spark, path, storage_options=in_s3)
    hs.enable(spark)
    reader = spark.read.format("pyhudi").options(**{f"pyhudi.storage.{name}": value for name, value in in_s3.items()})
    assert rows_of(reader.load(path).select("id", "ts").toArrow()) == expected


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_table_in_hdfs(spark: SparkSession, hdfs: Hdfs, kind: str) -> None:
    path, options = f"{hdfs.uri}/{uuid.uuid4().hex}/a table", {**WRITE, "hoodie.datasource.write.table.type": kind}
    reach = hdfs.options
    hs.write(spark.createDataFrame(batch(range(8), 1)), path, options=options, storage_options=reach)
    hs.write(spark.createDataFrame(batch(range(4), 2)), path, mode="append", options=options, storage_options=reach)
    expected = dict.fromkeys(range(8), 1) | dict.fromkeys(range(4), 2)
    # Spark's own scan reads base files by the same URI, through Hadoop's client.
    assert rows_of(hs.read(spark, path, storage_options=reach).toArrow()) == expected
    hs.sql(spark, f"DELETE FROM `{path}` WHERE id = 7", storage_options=reach)
    del expected[7]
    table = hp.Table(path, reach)
    if kind == "MERGE_ON_READ":
        table.compact(spark=spark)
    table.cluster(spark=spark)
    assert rows_of(hs.read(spark, path, storage_options=reach).toArrow()) == expected
    assert rows_of(hp.sql(f"SELECT id, ts FROM `{path}`", storage_options=reach)) == expected
    assert table.validate().ok
