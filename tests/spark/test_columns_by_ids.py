"""Tables whose columns go by ids on Spark: the rows that the real Hudi gives, and what filters leave of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from pyhudi import spark as hs
from tests.golden_tables import open_golden
from tests.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["cow_schema_on_read", "mor_schema_on_read"])
def test_rows_on_spark_are_those_of_the_real_hudi(spark: SparkSession, tmp_path: Path, name: str) -> None:
    golden = open_golden(name, tmp_path)
    expected = golden.expected("snapshot")
    assert_same_rows(hs.read(spark, str(golden.path)).toArrow(), expected)
    # Columns that never moved are read by Spark's own scan, the others by tasks.
    assert_same_rows(hs.read(spark, str(golden.path)).select("id", "city").toArrow(), expected.select(["id", "city"]))
    found = hs.read(spark, str(golden.path)).where("driver = 'rider-3'").toArrow()
    assert_same_rows(found, expected.filter(pc.equal(expected["driver"], "rider-3")))
