"""VARIANT columns on Spark: its VariantType in DataFrames, both ways of writing, each way of reading, and SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.format.hudi_types import VARIANT_TYPE
from pyhudi.records.variants.variant_json import variants_to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, ids: range, ts: int) -> DataFrame:
    text = f"""concat('{{"a":{{"b":', id, '}},"ts":{ts}}}')"""
    return spark.range(ids.start, ids.stop).selectExpr("id", f"{ts} AS ts", f"IF(id % 4 = 3, NULL, parse_json({text})) AS v")


def expected(ids: range, ts: int) -> dict[int, tuple[Any, ...]]:
    return {i: (ts, None if i % 4 == 3 else f'{{"a":{{"b":{i}}},"ts":{ts}}}') for i in ids}


def state(frame: DataFrame) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["ts"], row["j"]) for row in frame.selectExpr("id", "ts", "to_json(v) AS j").collect()}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("driver", [True, False])
def test_variants_of_spark(spark: SparkSession, tmp_path: Path, table_type: str, driver: bool) -> None:
    path = str(tmp_path / "t")
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": table_type,
        **({} if driver else {"pyhudi.spark.driver.batch.bytes": "0"}),
    }
    hs.write(frame_of(spark, range(40), 1), path, options=options)
    hs.write(frame_of(spark, range(20, 60), 2), path, options=options)
    wanted = expected(range(20), 1) | expected(range(20, 60), 2)
    frame = hs.read(spark, path)
    assert frame.schema["v"].dataType.simpleString() == "variant"
    assert state(frame) == wanted
    assert state(spark.read.format("pyhudi").load(path)) == wanted
    assert hs.read(spark, path, filter="v is null").count() == 15
    assert hs.read(spark, path, filter="variant_get(v, '$.a.b', 'int') >= 50").count() == 7
    hs.update(spark, path, {"ts": "9"}, where="id = 1")
    wanted[1] = (9, wanted[1][1])
    table = hp.Table(path)
    assert table.schema().field("v").metadata == {b"hudi_type": b"VARIANT"}
    found = table.scan().to_arrow()
    texts = hp.variant_to_json(found["v"]).to_pylist()
    assert dict(zip(found["id"].to_pylist(), zip(found["ts"].to_pylist(), texts, strict=True), strict=True)) == wanted
    if table_type == "MERGE_ON_READ":
        assert table.compact(spark=spark).runs
    assert table.cluster(order_by="ts", spark=spark).instant is not None
    assert state(hs.read(spark, path)) == wanted
    assert table.validate().ok
    struct = spark.sql("SELECT 70L AS id, 1 AS ts, named_struct('value', X'0C07', 'metadata', X'010000') AS v")
    hs.write(struct.withMetadata("v", {"hudi_type": "VARIANT"}), path, options=options)
    assert state(hs.read(spark, path, filter="id = 70")) == {70: (1, "7")}


def test_sql_of_spark_creates_and_writes_variants(spark: SparkSession, tmp_path: Path) -> None:
    name = f"hudi.`{tmp_path}/t`"
    hs.sql(spark, f"CREATE TABLE {name} (id INT, v VARIANT, n INT) USING hudi TBLPROPERTIES (primaryKey='id')")
    hs.sql(spark, f"""INSERT INTO {name} VALUES (1, parse_json('{{"a":[1,2.5]}}'), 1), (2, NULL, 2)""")
    hs.sql(spark, f"UPDATE {name} SET v = parse_json('7') WHERE id = 2")
    hs.sql(spark, f"UPDATE {name} SET n = 5 WHERE variant_get(v, '$.a[0]', 'int') = 1")
    found = hs.sql(spark, f"SELECT id, to_json(v) AS j, try_variant_get(v, '$.a[1]', 'double') AS d, n FROM {name} ORDER BY id")
    assert [tuple(row) for row in found.collect()] == [(1, '{"a":[1,2.5]}', 2.5, 5), (2, "7", None, 2)]


def test_json_is_that_of_spark(spark: SparkSession) -> None:
    """Spark's encoding of each type, and its JSON."""
    texts = ["1", "1.50", "1e2", "-0.001", "123456789012345678901234567890", '{"b":[true,null],"a":"x"}', "[]", "1e-7"]
    made = [f"parse_json('{text}')" for text in texts]
    made += [
        "to_variant_object(named_struct('d', DATE'2024-01-02', 't', TIMESTAMP'2024-01-02 03:04:05.6', 'b', X'DEAD', 'f', 1.5F))",
        "to_variant_object(array(TIMESTAMP_NTZ'2024-01-02 03:04:05'))",
    ]
    for text in made:
        row = spark.sql(f"SELECT v, to_json(v) AS j FROM (SELECT {text} AS v)").collect()[0]
        variants = pa.array([{"metadata": bytes(row["v"].metadata), "value": bytes(row["v"].value)}], VARIANT_TYPE)
        assert variants_to_json(variants).to_pylist() == [row["j"]], text
