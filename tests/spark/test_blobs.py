"""BLOB columns on Spark: structs in DataFrames, both ways of writing, each way of reading, and SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REFERENCE = "STRUCT<external_path: STRING, offset: BIGINT, length: BIGINT, managed: BOOLEAN>"


def frame_of(spark: SparkSession, ids: range, ts: int, *, typed: bool) -> DataFrame:
    frame = spark.range(ids.start, ids.stop).selectExpr(
        "id",
        f"{ts} AS ts",
        "IF(id % 4 = 3, NULL, named_struct('type', 'INLINE', 'data', CAST(CONCAT('at ', id) AS BINARY), "
        f"'reference', CAST(NULL AS {REFERENCE}))) AS pic",
    )
    return frame.withMetadata("pic", {"hudi_type": "BLOB"}) if typed else frame


def expected(ids: range, ts: int) -> dict[int, tuple[Any, ...]]:
    return {i: (ts, None if i % 4 == 3 else ("INLINE", b"at %d" % i, None)) for i in ids}


def state(frame: DataFrame) -> dict[int, tuple[Any, ...]]:
    def value(pic: Any) -> Any:
        return None if pic is None else (pic["type"], bytes(pic["data"]), pic["reference"])

    return {row["id"]: (row["ts"], value(row["pic"])) for row in frame.collect()}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("driver", [True, False])
def test_blobs_are_structs_on_spark(spark: SparkSession, tmp_path: Path, table_type: str, driver: bool) -> None:
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
    assert frame.schema["pic"].metadata == {"hudi_type": "BLOB"}
    assert state(spark.read.format("pyhudi").load(path)) == wanted
    assert hs.read(spark, path, filter="pic is null").count() == 15
    hs.update(spark, path, {"ts": "9"}, where="id = 1")
    wanted[1] = (9, *wanted[1][1:])
    table = hp.Table(path)
    assert table.schema().field("pic").metadata == {b"hudi_type": b"BLOB"}
    if table_type == "MERGE_ON_READ":
        assert table.compact(spark=spark).runs
    assert table.cluster(order_by="ts", spark=spark).instant is not None
    assert state(hs.read(spark, path)) == wanted and table.validate().ok
    other = f"named_struct('type', 'OTHER', 'data', X'00', 'reference', CAST(NULL AS {REFERENCE}))"
    with pytest.raises(InvalidRequest, match=r"column .pic.*OTHER"):
        hs.write(spark.sql(f"SELECT 1L id, 50 ts, {other} pic"), path, options=options)


def test_sql_of_spark_creates_writes_and_reads_blobs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    name = f"hudi.`{tmp_path}/t`"
    hs.sql(spark, f"CREATE TABLE {name} (id INT, pic BLOB) USING hudi TBLPROPERTIES (primaryKey='id')")
    reference = f"named_struct('external_path', '{tmp_path}/a.bin', 'offset', 2L, 'length', 3L, 'managed', false)"
    outside = f"named_struct('type', 'OUT_OF_LINE', 'data', CAST(NULL AS BINARY), 'reference', {reference})"
    inline = f"named_struct('type', 'INLINE', 'data', X'CAFE', 'reference', CAST(NULL AS {REFERENCE}))"
    hs.sql(spark, f"INSERT INTO {name} VALUES (1, {outside}), (2, {inline}), (3, NULL)")
    hs.sql(spark, f"UPDATE {name} SET pic = {inline} WHERE id = 3")
    hs.sql(spark, f"SET pyhudi.blob.roots={tmp_path}")
    try:
        found = hs.sql(spark, f"SELECT id, read_blob(pic) AS c FROM {name} ORDER BY id").collect()
        assert [(row["id"], bytes(row["c"])) for row in found] == [(1, b"234"), (2, b"\xca\xfe"), (3, b"\xca\xfe")]
    finally:
        hs.sql(spark, "RESET pyhudi.blob.roots")
    with pytest.raises(Exception, match="outside of the allowed roots"):
        hs.sql(spark, f"SELECT read_blob(pic) AS c FROM {name}").collect()
