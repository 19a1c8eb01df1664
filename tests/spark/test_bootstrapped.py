"""Spark reads tables whose rows lie in files outside of them, beside file groups that were written whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyhudi import spark as hs
from tests.golden_tables import open_golden
from tests.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_bootstrapped_table(spark: SparkSession, tmp_path: Path) -> None:
    golden = open_golden("cow_bootstrapped", tmp_path)
    frame = hs.read(spark, str(golden.path))
    assert_same_rows(frame.toArrow(), golden.expected())
    chosen = frame.where("city = 'chicago' AND fare > 12").select("id")
    assert sorted(row.id for row in chosen.collect()) == ["t005", "t008"]
    assert frame.count() == 10
