"""VECTOR columns on Spark: arrays in DataFrames, both ways of writing, each way of reading, and SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, ids: range, ts: int, *, typed: bool) -> DataFrame:
    frame = spark.range(ids.start, ids.stop).selectExpr(
        "id",
        f"{ts} AS ts",
        "IF(id % 4 = 3, NULL, array(CAST(id AS FLOAT), CAST(-0.5 AS FLOAT))) AS emb",
        "array(CAST(id AS TINYINT)) AS small",
    )
    if typed:
        frame = frame.withMetadata("emb", {"hudi_type": "VECTOR(2)"}).withMetadata("small", {"hudi_type": "VECTOR(1, INT8)"})
    return frame


def expected(ids: range, ts: int) -> dict[int, tuple[Any, ...]]:
    return {i: (ts, None if i % 4 == 3 else [float(i), -0.5], [i]) for i in ids}


def state(frame: DataFrame) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["ts"], row["emb"], row["small"]) for row in frame.collect()}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("driver", [True, False])
def test_vectors_are_arrays_on_spark(spark: SparkSession, tmp_path: Path, table_type: str, driver: bool) -> None:
    path = str(tmp_path / "t")
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": table_type,
        **({} if driver else {"pyhudi.spark.driver.batch.bytes": "0"}),
    }
    hs.write(frame_of(spark, range(40), 1, typed=True), path, options=options)
    hs.write(frame_of(spark, range(20, 60), 2, typed=False), path, options=options)
    wanted = expected(range(20), 1) | expected(range(20, 60), 2)
    frame = hs.read(spark, path)
    assert state(frame) == wanted
    assert frame.schema["emb"].metadata == {"hudi_type": "VECTOR(2)"}
    assert state(spark.read.format("pyhudi").load(path)) == wanted
    assert hs.read(spark, path, filter="emb is null").count() == 15
    hs.update(spark, path, {"ts": "9"}, where="id = 1")
    wanted[1] = (9, *wanted[1][1:])
    table = hp.Table(path)
    assert {r["id"]: (r["ts"], r["emb"], r["small"]) for r in table.scan().to_arrow().to_pylist()} == wanted
    if table_type == "MERGE_ON_READ":
        assert table.compact(spark=spark).runs
    assert table.cluster(order_by="ts", spark=spark).instant is not None
    assert state(hs.read(spark, path)) == wanted
    with pytest.raises(InvalidRequest, match=r"column .emb.: row .* elements"):
        hs.write(spark.sql("SELECT 1L id, 5 ts, array(1F) emb, array(1Y) small"), path, options=options)


def test_sql_of_spark_creates_and_writes_vectors(spark: SparkSession, tmp_path: Path) -> None:
    name = f"hudi.`{tmp_path}/t`"
    hs.sql(spark, f"CREATE TABLE {name} (id INT, emb VECTOR(2), n INT) USING hudi TBLPROPERTIES (primaryKey='id')")
    hs.sql(spark, f"INSERT INTO {name} VALUES (1, ARRAY(1.0F, 2.0F), 1), (2, NULL, 2)")
    hs.sql(spark, f"UPDATE {name} SET emb = ARRAY(9.0F, 8.0F) WHERE id = 2")
    found = hs.sql(spark, f"SELECT id, emb FROM {name} ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(1, [1.0, 2.0]), (2, [9.0, 8.0])]


def test_vector_search_function_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    name = f"hudi.`{tmp_path}/t`"
    hs.sql(spark, f"CREATE TABLE {name} (id INT, emb VECTOR(2), n STRING) USING hudi TBLPROPERTIES (primaryKey='id')")
    hs.sql(spark, f"INSERT INTO {name} VALUES (1, ARRAY(3.0F, 4.0F), 'a'), (2, ARRAY(1.0F, 0.0F), 'b'), (3, NULL, 'c')")
    text = f"SELECT id, n, _hudi_distance AS d FROM hudi_vector_search('{tmp_path}/t', 'emb', ARRAY(1.0, 2.0), 2, 'l2')"
    found = hs.sql(spark, f"{text} WHERE id > 0 ORDER BY d").collect()
    assert [(row["id"], row["n"], round(row["d"], 9)) for row in found] == [(2, "b", 2.0), (1, "a", 2.828427125)]
