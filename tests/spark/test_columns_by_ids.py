"""Schema on read on Spark: rows and filters as in Apache Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi import spark as hs
from tests.support.golden_tables import open_golden
from tests.support.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["cow_schema_on_read", "mor_schema_on_read"])
def test_rows_on_spark_are_those_of_apache_hudi(spark: SparkSession, tmp_path: Path, name: str) -> None:
    golden = open_golden(name, tmp_path)
    expected = golden.expected("snapshot")
    assert_same_rows(hs.read(spark, str(golden.path)).toArrow(), expected)
    # Columns that never moved are read by Spark's own scan, the others by tasks.
    assert_same_rows(hs.read(spark, str(golden.path)).select("id", "city").toArrow(), expected.select(["id", "city"]))
    found = hs.read(spark, str(golden.path)).where("driver = 'rider-3'").toArrow()
    assert_same_rows(found, expected.filter(pc.equal(expected["driver"], "rider-3")))


def test_writes_on_spark_keep_the_ids(spark: SparkSession, tmp_path: Path) -> None:
    path = str(open_golden("cow_schema_on_read", tmp_path).path)
    before = hs.read(spark, path).select("id", "ts", "driver", "city", "fare").toArrow()
    inserted = Table(path).timeline().completed_writes()[0].request_time
    columns = "id string, ts bigint, driver string, city string, fare double"
    rows = spark.createDataFrame([("t001", 9, "new", "berlin", 1.5)], columns)
    hs.write(rows, path)
    expected = pa.concat_tables([before.filter(pc.not_equal(before["id"], "t001")), rows.toArrow()])
    assert_same_rows(hs.read(spark, path).select("id", "ts", "driver", "city", "fare").toArrow(), expected, key=["id"])
    # Another kind of value makes another column of it.
    other = spark.createDataFrame([("a", 1, True, "oslo")], "id string, ts bigint, driver boolean, city string")
    hs.write(other, path, mode="overwrite", options={"pyhudi.schema.mode": "evolve"})
    assert Table(path).scan(["driver"]).to_arrow().to_pylist() == [{"driver": True}]
    assert "rider-3" in Table(path).scan(as_of=inserted).to_arrow()["rider"].to_pylist()
