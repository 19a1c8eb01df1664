"""Column types in Hive and in Spark's catalog schema. tests/interop/test_catalogs.py compares them with Hudi's."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pyhudi.errors import Unsupported
from pyhudi.operations.catalog_sync.catalog_types import hive_type, spark_schema


@pytest.mark.parametrize(
    ("kind", "name", "spark"),
    [
        (pa.bool_(), "boolean", "boolean"),
        (pa.int32(), "int", "integer"),
        (pa.int64(), "bigint", "long"),
        (pa.float32(), "float", "float"),
        (pa.float64(), "double", "double"),
        (pa.string(), "string", "string"),
        (pa.binary(), "binary", "binary"),
        (pa.binary(16), "binary", "binary"),
        (pa.decimal128(9, 3), "decimal(9,3)", "decimal(9,3)"),
        (pa.date32(), "date", "date"),
        (pa.timestamp("us", "UTC"), "bigint", "timestamp"),
        (pa.timestamp("us"), "bigint", "timestamp_ntz"),
        (pa.time32("ms"), "int", "integer"),
        (pa.time64("us"), "bigint", "long"),
    ],
)
def test_plain_types(kind: pa.DataType, name: str, spark: str) -> None:
    assert hive_type(kind, timestamps=False) == name
    (field,) = json.loads(spark_schema([pa.field("c", kind, nullable=False)]))["fields"]
    assert field == {"name": "c", "type": spark, "nullable": False, "metadata": {}}


def test_nested_types() -> None:
    inner = pa.struct({"A-b": pa.int32(), "t": pa.timestamp("us", "UTC")})
    kind = pa.map_(pa.string(), pa.list_(inner))
    assert hive_type(kind, timestamps=True) == "map<string,array<struct<a_b:int,t:timestamp>>>"
    assert spark_schema([pa.field("c", kind)]) == (
        '{"type":"struct","fields":[{"name":"c","type":{"type":"map", "keyType":"string","valueType":{"type":"array", '
        '"elementType":{"type":"struct","fields":[{"name":"A-b","type":"integer","nullable":true,"metadata":{}},'
        '{"name":"t","type":"timestamp","nullable":true,"metadata":{}}]},"containsNull":true},"valueContainsNull":true},'
        '"nullable":true,"metadata":{}}]}'
    )


def test_a_type_that_hive_has_not() -> None:
    with pytest.raises(Unsupported, match="has no equivalent in Hive"):
        hive_type(pa.duration("us"), timestamps=True)
