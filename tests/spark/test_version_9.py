"""Tables of version 9 on Spark have the rows of the embedded engine and of Apache Hudi 1.1.1."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest
from tests.support.golden_tables import golden_cases, open_golden
from tests.support.old_timestamps import COLUMNS, TIMES, found, old_table, stored_times
from tests.support.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_TRAIT = {
    "every kind of delete": "mor_v9",
    "Parquet logs": "mor_v9_parquet",
    "tuples": "mor_v9_tuple_types",
    "gaps filled both ways": "mor_v9_PartialUpdate",
    "a text for what is not there": "mor_v9_PostgresDebezium",
    "a delete marker": "mor_v9_delete_marker",
    "indexes": "mor_v9_indexes",
    "enums and milliseconds": "mor_v9_avro_types",
}


@pytest.mark.parametrize("what", BY_TRAIT)
def test_rows_on_spark_are_those_of_apache_hudi(spark: SparkSession, tmp_path: Path, what: str) -> None:
    assert BY_TRAIT[what] in golden_cases(with_traits={"v9"})
    golden = open_golden(BY_TRAIT[what], tmp_path)
    assert_same_rows(hs.read(spark, str(golden.path)).toArrow(), golden.expected("snapshot"))


def test_enums_and_milliseconds_are_written_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Base files alone, which Spark's own scan reads, have the types of the table's schema."""
    path = str(open_golden("mor_v9_avro_types", tmp_path).path)
    rows = hs.read(spark, path, columns=["id", "ts", "colour", "sure", "seen", "clock"])
    before = rows.toArrow()

    def write(given: pa.Table, operation: str) -> None:
        # Spark converts every timestamp of Arrow to an instant.
        frame = spark.createDataFrame(given)
        frame = frame.withColumn("clock", frame["clock"].cast("timestamp_ntz"))
        hs.write(frame, path, options={"hoodie.datasource.write.operation": operation})

    write(before, "insert_overwrite_table")
    optimized = {"hoodie.datasource.query.type": "read_optimized"}
    assert_same_rows(hs.read(spark, path, columns=before.column_names, options=optimized).toArrow(), before)
    assert_same_rows(Table(path).scan().to_arrow(), before)
    with pytest.raises(InvalidRequest, match="is 'PINK', which is not a symbol"):
        write(before.slice(0, 1).set_column(2, "colour", pa.array(["PINK"])), "upsert")


def test_times_of_older_releases_are_read_in_the_declared_unit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own scan would show them a thousand times too small, or fail."""
    path = str(old_table(tmp_path, monkeypatch, is_upgraded=True))
    assert found(hs.read(spark, path, columns=COLUMNS).toArrow()) == stored_times()
    later = hs.read(spark, path, columns=COLUMNS, filter=[("seen", ">", TIMES["b"])])
    assert found(later.toArrow()) == stored_times("cd")
