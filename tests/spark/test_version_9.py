"""Tables of version 9 on Spark: the rows that the embedded engine gives, which are those of the real Hudi 1.1.1."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyhudi import spark as hs
from tests.golden_tables import golden_cases, open_golden
from tests.rows import assert_same_rows

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
}


@pytest.mark.parametrize("what", BY_TRAIT)
def test_rows_on_spark_are_those_of_the_real_hudi(spark: SparkSession, tmp_path: Path, what: str) -> None:
    assert BY_TRAIT[what] in golden_cases(with_traits={"v9"})
    golden = open_golden(BY_TRAIT[what], tmp_path)
    assert_same_rows(hs.read(spark, str(golden.path)).toArrow(), golden.expected("snapshot"))
