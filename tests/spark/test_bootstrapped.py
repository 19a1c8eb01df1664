"""Spark reads bootstrapped tables, METADATA_ONLY and FULL_RECORD file groups together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi import Table, bootstrap
from pyhudi import spark as hs
from tests.support.golden_tables import open_golden
from tests.support.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_bootstrapped_table(spark: SparkSession, tmp_path: Path) -> None:
    golden = open_golden("cow_bootstrapped", tmp_path)
    frame = hs.read(spark, str(golden.path))
    assert_same_rows(frame.toArrow(), golden.expected())
    chosen = frame.where("city = 'chicago' AND fare > 12").select("id")
    assert sorted(row.id for row in chosen.collect()) == ["t005", "t008"]
    assert frame.count() == 10


def test_a_table_is_made_and_written_on_the_cluster(spark: SparkSession, tmp_path: Path) -> None:
    """The files are looked at and read by workers, which also write whole file groups."""
    folders = {1: ["a", "b"], 2: ["c"]}
    for day, keys in folders.items():
        (tmp_path / "source" / f"day={day}").mkdir(parents=True)
        rows = pa.table({"id": keys, "ts": pa.array([1] * len(keys), pa.int64()), "fare": [float(day)] * len(keys)})
        pq.write_table(rows, tmp_path / "source" / f"day={day}" / "part-0.parquet")
    path = str(tmp_path / "t")
    selector = "hoodie.bootstrap.mode.selector"
    options = {selector: "BootstrapRegexModeSelector", f"{selector}.regex": "day=1"}
    made = bootstrap(tmp_path / "source", path, record_key="id", partition_by="day", ordering="ts", options=options, spark=spark)
    assert (made.files_metadata_only, made.files_full_record, made.rows) == (1, 1, 3)
    more = spark.createDataFrame([("b", 2, 9.0, 1), ("d", 2, 9.0, 2)], "id string, ts long, fare double, day int")
    assert hs.write(more, path).rows_updated == 1
    assert {(row.id, row.fare, row.day) for row in hs.read(spark, path).collect()} == {
        ("a", 1.0, 1),
        ("b", 9.0, 1),
        ("c", 2.0, 2),
        ("d", 9.0, 2),
    }
    assert Table(path).validate(keys=True).ok


def test_orc_files_of_spark_with_days_of_long_ago(spark: SparkSession, tmp_path: Path) -> None:
    """Spark counts days before 1582-10-15 by the Julian calendar in ORC, and reads them back as they were."""
    source = str(tmp_path / "source")
    days = "'0001-01-01', '1000-02-28', '1582-10-04', '1582-10-15', '1899-12-31', '2024-02-29'"
    held = spark.sql(
        "SELECT concat('k', pos) AS id, cast(day AS date) AS day, pos % 2 AS part, "
        "if(pos % 3 = 0, null, array(cast(day AS date))) AS days, "
        f"timestamp_micros(-1800000000000007 * pos) AS at FROM (SELECT posexplode(array({days})) AS (pos, day))"
    )
    held.write.partitionBy("part").orc(source)
    options = {"hoodie.table.base.file.format": "ORC"}
    bootstrap(source, tmp_path / "t", record_key="id", partition_by="part", options=options)
    table = Table(tmp_path / "t")
    expected = held.toArrow()
    assert_same_rows(table.scan().to_arrow().select(expected.column_names), expected, key=["id"])
    table.upsert(table.scan(filter="id in ('k0', 'k1')").to_arrow())
    assert_same_rows(hs.read(spark, table.uri).select(*expected.column_names).toArrow(), expected, key=["id"])
