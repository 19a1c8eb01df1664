"""Unusual column types on Spark keep the values of the embedded engine through base files and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pyhudi import Table
from pyhudi import spark as hs
from tests.support.arrow_types import column_types, columns_of, values_of
from tests.support.needs import WIDE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = {"hoodie.index.bloom.num_entries": 100}


@settings(
    max_examples=8 if WIDE else 1,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.sampled_from(["mor", "cow"]),
    st.lists(column_types(), min_size=12, max_size=12).flatmap(lambda found: columns_of(found, 4)),
)
def test_spark_reads_and_writes_every_arrow_type(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, layout: str, columns: dict[str, pa.Array]
) -> None:
    path = tmp_path_factory.mktemp("odd") / "t"
    table = Table.create(path, record_key="id", ordering="ts", table_type=layout, options=_QUIET)
    table.insert(pa.table({"id": pa.array(range(4), pa.int64()), "ts": [1] * 4, **columns}))
    schema = table.schema()
    given_ = values_of(table.scan().to_arrow(), schema)
    read = hs.read(spark, path, schema.names)
    assert values_of(read.toArrow(), schema) == given_
    hs.write(read.where("id < 2").drop("ts").selectExpr("*", "2L ts"), path, options=_QUIET)
    after = {key: {**row, "ts": "2" if key < 2 else "1"} for key, row in given_.items()}
    assert values_of(table.scan().to_arrow(), schema) == after
    assert values_of(hs.read(spark, path, schema.names).toArrow(), schema) == after
    assert table.validate().ok and table.schema() == schema
