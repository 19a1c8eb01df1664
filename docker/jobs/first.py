"""A first job on the cluster: a table made, changed and read, its tasks on the workers."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from pyhudi import spark as hs

TABLE = os.environ.get("TABLE", "/warehouse/trips")

spark = SparkSession.builder.appName("first").getOrCreate()
rows = spark.range(100_000).selectExpr("concat('t', id) as id", "concat('city-', id % 4) as city", "id / 10 as fare", "1L as ts")
options = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "upsert",
}
hs.write(rows, TABLE, mode="append", options=options)
newer = rows.where("fare < 100").selectExpr("id", "city", "fare * 2 as fare", "2L as ts")
print(hs.write(newer, TABLE, mode="append", options=options))
hs.read(spark, TABLE).groupBy("city").sum("fare").orderBy("city").show()
spark.stop()
