"""Spark writes and reads tables whose files lack the partition columns as the embedded engine does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from pyhudi import Table
from pyhudi import spark as hs
from tests.support.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region,level",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.drop.partition.columns": True,
    "hoodie.datasource.write.partitionpath.urlencode": True,
}
REGIONS = ("north/east", "a=b c", None)


def test_write_and_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")

    def write(operation: str, numbers: Iterable[int], ts: int) -> Any:
        made = [(f"k{n}", n % 2, REGIONS[n % 3], ts, n / 2) for n in numbers]
        frame = spark.createDataFrame(made, "id string, level int, region string, ts long, fare double")
        return hs.write(frame, path, options={**OPTIONS, "hoodie.datasource.write.operation": operation})

    write("bulk_insert", range(8), 1)
    assert write("upsert", [0, 1, 9], 2).rows_updated == 2
    write("delete", [2], 3)
    write("insert_overwrite", [4], 4)
    frame = hs.read(spark, path).select("id", "ts", "fare", "region", "level")
    expected = [
        ("k0", 2, 0.0, "north/east", "0"),
        ("k1", 2, 0.5, "a=b c", "1"),
        ("k3", 1, 1.5, "north/east", "1"),
        ("k4", 4, 2.0, "a=b c", "0"),
        ("k5", 1, 2.5, None, "1"),
        ("k6", 1, 3.0, "north/east", "0"),
        ("k7", 1, 3.5, "a=b c", "1"),
        ("k9", 2, 4.5, "north/east", "1"),
    ]
    assert sorted(map(tuple, frame.collect())) == expected
    assert sorted(row.id for row in frame.where("level = '1' AND region IS NULL").collect()) == ["k5"]
    assert sorted(row.id for row in hs.read(spark, path, ["id"], filter="region = 'a=b c'").collect()) == ["k1", "k4", "k7"]
    assert_same_rows(Table(path).scan(["*"]).to_arrow(), hs.read(spark, path).toArrow())
    stored = {
        name for file in (tmp_path / "t").rglob("*.parquet") if ".hoodie" not in str(file) for name in pq.read_schema(file).names
    }
    assert not stored & {"region", "level"}

    Table(path).cluster(spark=spark)
    assert sorted(map(tuple, hs.read(spark, path).select("id", "ts", "fare", "region", "level").collect())) == expected
    assert Table(path).validate().ok
