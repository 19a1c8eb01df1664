"""On Spark, too, a null in a column that may not be null is refused; rows of this process are written as those of a DataFrame."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyhudi import Table
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string(), False), pa.field("n", pa.int64())])


def test_nulls_in_required_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", schema=SCHEMA)
    hs.write(pd.DataFrame({"id": [1, 2], "name": ["a", "b"], "n": [1, 2]}), table.uri)
    hs.write(spark.range(3, 400).selectExpr("id", "cast(id as string) name", "id n"), table.uri)
    assert table.schema().equals(SCHEMA)
    missing = spark.sql("SELECT 1000L id, cast(null as string) name, 1L n")
    many = missing.unionByName(spark.range(3, 400).selectExpr("id", "cast(id as string) name", "id n"))
    for rows in (missing, many):
        with pytest.raises(InvalidRequest, match=r"column 'name' may not be null.*pyhudi\.schema\.mode=widen"):
            hs.write(rows, table.uri)
    assert table.scan().count() == 399
    result = hs.write(missing, table.uri, schema_mode="widen")
    assert "name may be null" in result.schema_changes
    assert not table.schema().field("id").nullable
    source = pa.table({"id": [1], "name": ["z"], "n": [9]})
    hs.merge(spark, table.uri, source, on="id").when_matched_update_all().execute()
    assert table.lookup([1]).to_arrow().to_pylist() == [{"id": 1, "name": "z", "n": 9}]
    with pytest.raises(InvalidRequest, match="cannot be read as Arrow"):
        hs.write(5, table.uri)
