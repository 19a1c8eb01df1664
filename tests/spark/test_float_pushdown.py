"""Pushed filters on NaN and both zeros return the rows of a plain Parquet copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import pyhudi as hp
from pyhudi import spark as hs
from tests.support.float_filters import VALUES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
FILTERS = (
    "x = double('-0.0')",
    "x <= double('-0.0')",
    "x = double('nan')",
    "x > double('inf')",
    "x <> double('0.0')",
    "x in (double('nan'), double('0.0'))",
    "x not in (double('-0.0'), double('7.5'))",
    "x between -0.0D and 'NaN'",
    "x is null",
)


def found(read: Callable[[], DataFrame], filters: Sequence[str]) -> dict[str, list[str]]:
    """The ids that each filter finds, in one query of Spark's."""
    from pyspark.sql import functions as F

    # In turn on a double and on a float.
    named = {text: text.replace("x ", f"{'df'[number % 2]} ") for number, text in enumerate(filters)}
    asked = [read().where(text).select(F.lit(name).alias("filter"), "id") for name, text in named.items()]
    answers: dict[str, list[str]] = {name: [] for name in named}
    for row in reduce(lambda one, other: one.unionAll(other), asked).collect():
        answers[row["filter"]].append(row["id"])
    return {name: sorted(ids) for name, ids in answers.items()}


def test_what_is_pushed_down_finds_what_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    # A file for each two values: there are files that one zero alone is in, and such as hold NaN and nothing else.
    places = range(len(VALUES))
    rows = pa.table(
        {
            "id": [f"k{n}" for n in places],
            "p": [f"p{(n + 1) // 2}" for n in places],
            "ts": places,
            "d": pa.array(VALUES, pa.float64()),
            "f": pa.array(VALUES, pa.float32()),
        }
    )
    table = hp.Table.create(tmp_path / "t", name="t", record_key="id", partition_by="p", ordering="ts", table_type="mor")
    table.bulk_insert(rows)
    # One group has a log and is merged by tasks; the others are left to Spark's own scan.
    table.upsert(rows.slice(0, 1), options={"hoodie.compact.inline": False})
    pq.write_table(rows, tmp_path / "plain.parquet", use_dictionary=False, write_statistics=False)
    expected = found(lambda: spark.read.parquet(str(tmp_path / "plain.parquet")), FILTERS)
    assert found(lambda: hs.read(spark, str(tmp_path / "t")), FILTERS) == expected
    spark.conf.set(PUSHDOWN, "true")
    try:
        pushed = found(lambda: spark.read.format("pyhudi").load(str(tmp_path / "t")), FILTERS)
    finally:
        spark.conf.unset(PUSHDOWN)
    assert pushed == expected
