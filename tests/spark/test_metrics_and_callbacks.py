"""Metrics and commit callbacks of writes on Spark: the same as embedded, from the driver."""

from __future__ import annotations

import csv
import json
from contextlib import nullcontext
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


def _write_source(spark: SparkSession, path: str, options: dict[str, str]) -> None:
    hs.enable(spark)
    spark.createDataFrame([(2,)], "id bigint").write.format("pyhudi").mode("append").options(**options).save(path)


_ENTRY_POINTS = {
    "write": lambda spark, path, options: hs.write(spark.createDataFrame([(2,)], "id bigint"), path, options=options),
    "update": lambda spark, path, options: hs.update(spark, path, {"n": 5}, "id = 1", options=options),
    "delete": lambda spark, path, options: hs.delete(spark, path, "id = 1", options=options),
    "sql": lambda spark, path, options: hs.sql(spark, f"INSERT INTO hudi.`{path}` VALUES (2, 2)", options=options),
    "data source": _write_source,
}


@pytest.mark.parametrize("name", _ENTRY_POINTS)
def test_stored_options_of_the_caller_need_trust(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path, file = str(tmp_path / "t"), tmp_path / "metrics.csv"
    table = hp.Table.create(path, record_key="id")
    table.insert({"id": [1], "n": [1]})
    stored = {"hoodie.metrics.on": "true", "pyhudi.metrics.reporters": "CSV", "pyhudi.metrics.csv.path": str(file)}
    table.set_properties({f"pyhudi.table.options.{key}": value for key, value in stored.items()})
    quiet = {"pyhudi.schema.mode": "merge", "hoodie.write.set.null.for.missing.columns": "true"}
    # The data source is planned in a process of its own.
    warned = nullcontext() if name == "data source" else pytest.warns(UserWarning, match=r"not used: hoodie\.metrics\.on")
    with warned:
        _ENTRY_POINTS[name](spark, path, quiet)
    assert not file.exists()
    _ENTRY_POINTS[name](spark, path, {**quiet, "pyhudi.stored.options": "trusted"})
    assert file.exists()
