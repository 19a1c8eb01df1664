"""NaN and both zeros in filters mean what Spark's `where` means."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import pyhudi as hp
from pyhudi import spark as hs
from tests.support.float_filters import CASES, VALUES, expected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILTERS = (
    "x = 'NaN'",
    "x between -0.0 and 'NaN'",
    [("x", ">", 7.5)],
    [("x", ">=", 0.0)],
    [("x", "=", 0.0)],
    [("x", "<=", -0.0)],
    [("x", "<>", 7.5)],
    [("x", "in", (-0.0, 7.5))],
    [("x", "not in", (-0.0, 7.5))],
)
CHOSEN = [case for case in CASES if case[0] in FILTERS]


def ids(frames: list[DataFrame]) -> list[list[str]]:
    """The ids of each frame, in one query of Spark's."""
    from pyspark.sql import functions as F

    numbered = [frame.select(F.lit(number).alias("number"), "id") for number, frame in enumerate(frames)]
    found: list[list[str]] = [[] for _ in frames]
    for row in reduce(lambda one, other: one.unionAll(other), numbered).collect():
        found[row["number"]].append(row["id"])
    return [sorted(each) for each in found]


def test_expected_cases_equal_spark(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(place, value) for place, value in enumerate(VALUES)], "place int, x double")
    found = frame.select("place", *[F.expr(f"coalesce({case[1]}, false)").alias(f"c{n}") for n, case in enumerate(CASES)])
    answers = sorted(found.collect())
    for number, case in enumerate(CASES):
        assert [row["place"] for row in answers if row[f"c{number}"]] == expected(case), case[1]


def test_filters_and_where_find_the_rows_in_files(spark: SparkSession, tmp_path: Path) -> None:
    # A file for each two values: there are files that one zero alone is in, and such as hold NaN and nothing else.
    places = range(len(VALUES))
    rows = pa.table(
        {
            "id": [f"k{n}" for n in places],
            "p": [f"p{(n + 1) // 2}" for n in places],
            "ts": places,
            "x": pa.array(VALUES, pa.float64()),
            "f": pa.array(VALUES, pa.float32()),
        }
    )
    table = hp.Table.create(tmp_path / "t", name="t", record_key="id", partition_by="p", ordering="ts", table_type="mor")
    table.bulk_insert(rows)
    # One group has a log and is merged by tasks; the others are left to Spark's own scan.
    table.upsert(rows.slice(0, 1), options={"hoodie.compact.inline": False})
    assert len(CHOSEN) >= len(FILTERS)
    named = [[f"k{place}" for place in expected(case)] for case in CHOSEN]
    conditions = [case[1] for case in CHOSEN]
    on_floats = [text.replace("x ", "f ") for text in conditions[::2]]
    assert ids([hs.read(spark, table.uri, filter=case[0]) for case in CHOSEN]) == named
    found = ids([spark.read.format("pyhudi").load(table.uri).where(text) for text in (*conditions, *on_floats, "x is null")])
    assert found == [*named, *named[::2], [f"k{VALUES.index(None)}"]]
    table.delete(where="x > 7.5", spark=spark)
    left = [f"k{n}" for n, value in enumerate(VALUES) if value is None or value <= 7.5]
    assert ids([hs.read(spark, table.uri)]) == [left]
