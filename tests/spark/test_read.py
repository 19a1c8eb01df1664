"""Reading on Spark: paths with pattern characters, missing tables and damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyhudi import spark as hs
from pyhudi.errors import TableNotFound
from tests.support.spark_trips import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_path_that_looks_like_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a", "[x]{y}*?", 1)], "id string, city string, ts long")
    hs.write(frame, str(tmp_path / "t"), options=OPTIONS)
    assert [row["city"] for row in hs.read(spark, str(tmp_path / "t")).collect()] == ["[x]{y}*?"]


def test_no_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        hs.read(spark, str(tmp_path / "nothing"))


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_damage_is_an_error(spark: SparkSession, tmp_path: Path, table_type: str) -> None:
    path = str(tmp_path / "t")
    options = {**OPTIONS, "hoodie.datasource.write.table.type": table_type, "hoodie.parquet.compression.codec": "uncompressed"}
    frame = spark.range(9).selectExpr("concat('id', id) AS id", "'sf' AS city", "id AS ts", "cast(id AS double) AS fare")
    hs.write(frame, path, options=options)
    hs.write(frame.selectExpr("id", "city", "ts + 100 AS ts", "-1D AS fare"), path, options=options)
    files = (tmp_path / "t" / "sf").glob(".*.log.*" if table_type == "MERGE_ON_READ" else "*.parquet")
    newest = max(files, key=lambda file: file.stat().st_mtime_ns)
    assert hs.read(spark, path).count() == 9
    whole = newest.read_bytes()
    at = whole.rindex(b"id7", 0, len(whole) // 2) if table_type == "COPY_ON_WRITE" else len(whole) // 2
    newest.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(Exception, match=r"(?s)CorruptData|CRC|checksum|encountered error while reading"):
        hs.read(spark, path).toArrow()
