"""Change data on Spark: written by tasks, read by `hs.read` and `format("pyhudi")`, equal to the embedded engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi import spark as hs
from tests.support.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "hoodie.datasource.write.recordkey.field"
READ = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.query.incremental.format": "cdc",
    "hoodie.datasource.read.begin.instanttime": "000",
}


def rows(keys: str, ts: int) -> pa.Table:
    return pa.table({"id": list(keys), "ts": pa.array([ts] * len(keys), pa.int32()), "note": [f"{key} {ts}" for key in keys]})


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    hs.enable(spark, alias=None)
    return spark


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("cow", "OP_KEY_ONLY"), pytest.param("cow", "DATA_BEFORE_AFTER", marks=pytest.mark.wide), ("mor", "DATA_BEFORE")],
)
def test_written_and_read(source: SparkSession, tmp_path: Path, kind: str, mode: str) -> None:
    spark, path = source, str(tmp_path / "t")
    shape = {
        "hoodie.table.name": "t",
        KEY: "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[kind],
        "hoodie.table.cdc.enabled": "true",
        "hoodie.table.cdc.supplemental.logging.mode": mode,
    }

    def write(table: pa.Table, operation: str = "upsert") -> None:
        hs.write(spark.createDataFrame(table), path, options={**shape, "hoodie.datasource.write.operation": operation})

    write(rows("abcd", 1), "insert")
    write(rows("abe", 2))
    write(rows("cd", 1), "delete")
    table = Table(path)
    table.upsert(rows("a", 3))
    found = hs.read(spark, path, options=READ).toArrow()
    ops = sorted(found["op"].to_pylist())
    assert ops == ["d", "d", "i", "i", "i", "i", "i", "u", "u", "u"]
    assert_same_rows(found, table.changes().to_arrow())
    assert_same_rows(table.changes(typed=True).to_spark(spark).toArrow(), table.changes(typed=True).to_arrow())

    loaded = spark.read.format("pyhudi").options(**READ).load(path)
    assert loaded.columns == ["op", "ts_ms", "before", "after"]
    assert_same_rows(loaded.toArrow(), found)
    assert loaded.where("op = 'd'").select("before").count() == 2
    assert hs.read(spark, path, ["op"], "op = 'u'", options=READ).toArrow().to_pydict() == {"op": ["u"] * 3}
    last = str(table.timeline().completed_writes()[-1].request_time)
    none = {**READ, "hoodie.datasource.read.begin.instanttime": last}
    assert hs.read(spark, path, options=none).count() == 0
    assert spark.read.format("pyhudi").options(**none).load(path).count() == 0
