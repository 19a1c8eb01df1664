"""NaN and both zeros in filters mean what Spark's `where` means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from tests.support.float_filters import CASES, VALUES, Case, expected
from tests.support.float_rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILTERS = ("x = 'NaN'", [("x", ">", 7.5)], [("x", ">=", 0.0)], [("x", "=", 0.0)], [("x", "<>", 7.5)], [("x", "in", (-0.0, 7.5))])
CHOSEN = [case for case in CASES if case[0] in FILTERS]


def named(case: Case) -> list[str]:
    return [f"k{place}" for place in expected(case)]


def ids(frame: DataFrame) -> list[str]:
    return sorted(row["id"] for row in frame.select("id").collect())


def test_the_cases_say_what_spark_says(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(place, value) for place, value in enumerate(VALUES)], "place int, x double")
    found = frame.select("place", *[F.expr(f"coalesce({case[1]}, false)").alias(f"c{n}") for n, case in enumerate(CASES)])
    answers = sorted(found.collect())
    for number, case in enumerate(CASES):
        assert [row["place"] for row in answers if row[f"c{number}"]] == expected(case), case[1]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_filters_and_where_find_the_rows_in_files(spark: SparkSession, tmp_path: Path, table_type: str) -> None:
    table = hp.Table.create(tmp_path / "t", name="t", record_key="id", partition_by="p", ordering="ts", table_type=table_type)
    table.upsert(rows())
    if table_type == "mor":
        table.upsert(rows(), options={"hoodie.compact.inline": False})
    assert len(CHOSEN) >= len(FILTERS)
    for case in CHOSEN:
        assert ids(hs.read(spark, str(table.uri), filter=case[0])) == named(case), case[0]
        assert ids(hs.read(spark, str(table.uri)).where(case[1])) == named(case), case[1]
    table.delete(where="x > 7.5", spark=spark)
    assert ids(hs.read(spark, str(table.uri))) == [f"k{n}" for n, value in enumerate(VALUES) if value is None or value <= 7.5]
