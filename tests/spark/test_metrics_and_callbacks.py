"""Metrics and commit callbacks of writes on Spark: the same as embedded, from the driver."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi as hp
from pyhudi import spark as hs
from tests.support.http_receiver import http_receiver


@pytest.mark.parametrize("driver_bytes", [0, 32 << 20])
def test_a_write_on_spark_is_reported_once(spark: SparkSession, tmp_path: Path, driver_bytes: int) -> None:
    table = hp.Table.create(str(tmp_path / "t"), record_key="id", ordering="ts")
    frame = spark.createDataFrame(pa.table({"id": [1, 2, 3], "ts": [1, 1, 1]}).to_pandas())
    path = tmp_path / "metrics.csv"
    with http_receiver() as receiver:
        options = {
            "hoodie.write.commit.callback.on": True,
            "hoodie.write.commit.callback.http.url": receiver.url,
            "hoodie.metrics.on": True,
            "pyhudi.metrics.reporters": "CSV",
            "pyhudi.metrics.csv.path": str(path),
            "pyhudi.spark.driver.batch.bytes": driver_bytes,
        }
        result = hs.write(frame, table.uri, options=options)
    assert list(result.callbacks.values()) == ["delivered"]
    (request,) = receiver.requests
    body = json.loads(request.body)
    assert body["commitTime"] == result.instant and sum(stat["numInserts"] for stat in body["hoodieWriteStat"]) == 3
    with path.open() as file:
        values = [(line["name"], line["value"]) for line in csv.DictReader(file)]
    assert values.count(("t.commit.totalRecordsWritten", "3")) == 1
