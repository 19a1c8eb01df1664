"""Tables that generate record keys, on Spark: rows are changed by the key and partition that they are stored under."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.format.meta_columns import RECORD_KEY

pytest.importorskip("pyspark")
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("table_type", "driver_bytes"), [("cow", "0"), ("mor", str(16 << 20))])
def test_rows_of_a_read_update_the_rows_that_they_name(
    spark: SparkSession, tmp_path: Path, table_type: str, driver_bytes: str
) -> None:
    path, options = str(tmp_path), {"pyhudi.spark.driver.batch.bytes": driver_bytes}
    table = hp.Table.create(path, partition_by="city", table_type=table_type)
    table.insert({"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"], "city": ["x", "x", "y", "y"]})

    def rows() -> list[tuple[int, str]]:
        return sorted((row["id"], row["v"]) for row in hp.Table(path).scan().to_arrow().to_pylist())

    def keys() -> dict[int, str]:
        return {row["id"]: row[RECORD_KEY] for row in hp.Table(path).scan(["*"]).to_arrow().to_pylist()}

    before = keys()
    # The default operation of rows with meta columns is an upsert, as in Hudi.
    read = hs.read(spark, path).where("id > 2")
    hs.write(read.withColumn("v", F.upper("v")), path, options=options)
    assert rows() == [(1, "a"), (2, "b"), (3, "C"), (4, "D")]
    with pytest.raises(hp.InvalidRequest, match="keeps its partition"):
        hs.write(hs.read(spark, path).withColumn("city", F.lit("z")), path, options=options)
    with pytest.raises(hp.InvalidRequest, match="is null"):
        hs.write(hs.read(spark, path).withColumn(RECORD_KEY, F.lit(None).cast("string")), path, options=options)
    hs.update(spark, path, {"v": "concat(v, id)"}, "id = 1", options=options)
    hs.delete(spark, path, "id = 2", options=options)
    source = spark.createDataFrame([(3, "m", "y"), (9, "n", "x"), (9, "o", "x")], "id long, v string, city string")
    merge = hs.merge(spark, path, source, "target.id = source.id", options=options)
    merge.when_matched_update({"v": "source.v"}).when_not_matched_insert_all().execute()
    assert rows() == [(1, "a1"), (3, "m"), (4, "D"), (9, "n"), (9, "o")]
    after = keys()
    assert {number: after[number] for number in (1, 3, 4)} == {number: before[number] for number in (1, 3, 4)}
    with pytest.raises(hp.InvalidRequest, match="does not have"):
        hs.write(read.withColumn(RECORD_KEY, F.lit("20200101000000000_0_0")), path, options=options)
    assert hp.Table(path).validate().ok
