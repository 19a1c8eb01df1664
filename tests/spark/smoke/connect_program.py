"""What test_connect.py runs in a process of its own: PyHudi in a session of Spark Connect.

    connect_program.py FOLDER TYPE OPTIONS PART

TYPE: of the table.  OPTIONS: more options of its writes, as JSON.  PART: `short` for writes, a read and a statement,
or `whole`.

A process has either a classic session or a Connect session, and the tests share a classic one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyhudi import spark as hs


def by_statements(spark: SparkSession, path: str) -> list[object]:
    """SQL of ours, and the table by a name of the session's catalog, written by its format."""
    hs.sql(spark, f"UPDATE hudi.`{path}` SET fare = -1D WHERE id = '3' AND city = '1'")
    rows = hs.read(spark, path, ["id", "city", "fare", "ts"], "id = '3'").selectExpr("id", "city", "fare", "ts + 1 AS ts")
    rows.write.format("pyhudi").mode("append").save(path)
    spark.sql(f"CREATE TABLE trips USING pyhudi LOCATION '{path}'")
    hs.sql(spark, "DELETE FROM trips WHERE id = '4' OR cast(id as int) > 59")
    counted = hs.sql(spark, "SELECT count(*) FROM trips TIMESTAMP AS OF '2100-01-01'").collect()
    named = spark.sql("SELECT fare, ts FROM trips WHERE id IN ('3', '4')").collect()
    return [counted[0][0], [list(row) for row in named]]


def main(folder: Path, kind: str, more: dict[str, str], part: str) -> None:
    """Print one line of JSON: what was written to and read from a table of this type."""
    spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    path = str(folder / "trips")
    options = {
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.index.bloom.num_entries": "100",
        **more,
    }
    columns = "cast(id as string) id", "cast(id % 2 as string) city", "id * 1.5D fare"
    first = hs.write(spark.range(0, 40, 1, 2).selectExpr(*columns, "1L ts"), path, mode="append", options=options)
    second = hs.write(spark.range(30, 60, 1, 2).selectExpr(*columns, "2L ts"), path, mode="append", options=options)
    found: dict[str, object] = {
        "session": type(spark).__module__,
        "inserted": [first.rows_inserted, second.rows_inserted],
        "updated": second.rows_updated,
    }
    if part == "short":
        hs.sql(spark, f"DELETE FROM hudi.`{path}` WHERE id IN ('58', '59')")
    else:
        source = spark.range(55, 65, 1, 2).selectExpr(*columns, "3L ts")
        merge = hs.merge(spark, path, source, "t.id = s.id AND t.city = s.city", target_alias="t", source_alias="s")
        merge = merge.when_matched_update({"fare": "t.fare + s.fare", "ts": F.col("s.ts")}).when_not_matched_insert_all()
        merged = merge.when_not_matched_by_source_delete("t.id = '0'").execute()
        found["merged"] = [merged.rows_inserted, merged.rows_updated, merged.rows_deleted]
        hs.update(spark, path, {"city": "'2'", "fare": "abs(fare - 100)"}, F.col("id") == "1")
        found["moved"] = [list(row) for row in hs.read(spark, path, ["city", "fare"], "id = '1'").collect()]
    hs.enable(spark)
    read = spark.read.format("pyhudi").load(path)
    found["ts"] = {str(row["ts"]): row["count"] for row in read.groupBy("ts").count().collect()}
    if part == "whole":
        found["sql"] = by_statements(spark, path)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])
