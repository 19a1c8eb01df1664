"""Columns of type BLOB, VECTOR and VARIANT on Spark: DataFrames, both ways of writing, each way of reading, and SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import VARIANT_TYPE
from pyhudi.records.variants.variant_json import variants_to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REFERENCE = "STRUCT<external_path: STRING, offset: BIGINT, length: BIGINT, managed: BOOLEAN>"
BLOB = f"named_struct('type', '%s', 'data', %s, 'reference', CAST(NULL AS {REFERENCE}))"
TYPES = {"pic": "BLOB", "emb": "VECTOR(2)", "small": "VECTOR(1, INT8)"}


def frame_of(spark: SparkSession, ids: range, ts: int, *, typed: bool) -> DataFrame:
    blob = BLOB % ("INLINE", "CAST(CONCAT('at ', id) AS BINARY)")
    text = f"""concat('{{"a":{{"b":', id, '}},"ts":{ts}}}')"""
    frame = spark.range(ids.start, ids.stop).selectExpr(
        "id",
        f"{ts} AS ts",
        f"IF(id % 4 = 3, NULL, {blob}) AS pic",
        "IF(id % 4 = 3, NULL, array(CAST(id AS FLOAT), CAST(-0.5 AS FLOAT))) AS emb",
        "array(CAST(id AS TINYINT)) AS small",
        f"IF(id % 4 = 3, NULL, parse_json({text})) AS v",
    )
    for name, type_ in TYPES.items() if typed else ():
        frame = frame.withMetadata(name, {"hudi_type": type_})
    return frame


def expected(ids: range, ts: int) -> dict[int, tuple[Any, ...]]:
    def values(i: int) -> tuple[Any, ...]:
        return (None,) * 3 if i % 4 == 3 else (("INLINE", b"at %d" % i, None), [float(i), -0.5], f'{{"a":{{"b":{i}}},"ts":{ts}}}')

    return {i: (ts, *values(i), [i]) for i in ids}


def state(frame: DataFrame) -> dict[int, tuple[Any, ...]]:
    def blob(pic: Any) -> Any:
        return None if pic is None else (pic["type"], bytes(pic["data"]), pic["reference"])

    rows = frame.selectExpr("id", "ts", "pic", "emb", "to_json(v) AS j", "small").collect()
    return {row["id"]: (row["ts"], blob(row["pic"]), row["emb"], row["j"], row["small"]) for row in rows}


# Each kind of table with each way of writing, in the full tier one way for each kind.
@pytest.mark.parametrize(
    ("table_type", "driver"),
    [
        ("COPY_ON_WRITE", True),
        ("MERGE_ON_READ", False),
        pytest.param("COPY_ON_WRITE", False, marks=pytest.mark.wide),
        pytest.param("MERGE_ON_READ", True, marks=pytest.mark.wide),
    ],
)
def test_values_survive_writes_services_and_reads(spark: SparkSession, tmp_path: Path, table_type: str, driver: bool) -> None:
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
    assert {name: frame.schema[name].metadata for name in TYPES} == {name: {"hudi_type": type_} for name, type_ in TYPES.items()}
    assert frame.schema["v"].dataType.simpleString() == "variant"
    assert state(spark.read.format("pyhudi").load(path)) == wanted
    for name in ("pic", "emb", "v"):
        assert hs.read(spark, path, filter=f"{name} is null").count() == 15
    assert hs.read(spark, path, filter="variant_get(v, '$.a.b', 'int') >= 50").count() == 7
    hs.update(spark, path, {"ts": "9"}, where="id = 1")
    wanted[1] = (9, *wanted[1][1:])
    table = hp.Table(path)
    assert [(table.schema().field(name).metadata or {})[b"hudi_type"] for name in ("pic", "v")] == [b"BLOB", b"VARIANT"]
    if table_type == "MERGE_ON_READ":
        assert table.compact(spark=spark).runs
    assert table.cluster(order_by="ts", spark=spark).instant is not None
    assert state(hs.read(spark, path)) == wanted
    found = table.scan().to_arrow()
    columns = (found["id"], found["ts"], found["emb"], hp.variant_to_json(found["v"]), found["small"])
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    assert {id_: tuple(rest) for id_, *rest in rows} == {i: (row[0], *row[2:]) for i, row in wanted.items()}
    assert table.validate().ok
    template = "SELECT {id} AS id, 50 AS ts, {pic} AS pic, array({emb}) AS emb, array(1Y) AS small, {v} AS v"
    values = {
        "id": "70L",
        "pic": BLOB % ("INLINE", "X'00'"),
        "emb": "1F, 2F",
        "v": "named_struct('value', X'0C07', 'metadata', X'010000')",
    }
    struct = spark.sql(template.format(**values)).withMetadata("v", {"hudi_type": "VARIANT"})
    hs.write(struct, path, options=options)
    assert state(hs.read(spark, path, filter="id = 70"))[70][3] == "7"
    values["v"] = "parse_json('1')"
    for name, value, message in (
        ("emb", "1F", r"column .emb.: row .* elements"),
        ("pic", BLOB % ("OTHER", "X'00'"), r"column .pic.*OTHER"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            hs.write(spark.sql(template.format(**{**values, name: value})), path, options=options)


def test_sql_of_spark_creates_writes_and_reads(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    name = f"hudi.`{tmp_path}/t`"
    columns = "id INT, pic BLOB, emb VECTOR(2), v VARIANT, n INT"
    hs.sql(spark, f"CREATE TABLE {name} ({columns}) USING hudi TBLPROPERTIES (primaryKey='id')")
    reference = f"named_struct('external_path', '{tmp_path}/a.bin', 'offset', 2L, 'length', 3L, 'managed', false)"
    outside = f"named_struct('type', 'OUT_OF_LINE', 'data', CAST(NULL AS BINARY), 'reference', {reference})"
    inline = BLOB % ("INLINE", "X'CAFE'")
    first = f"""(1, {outside}, ARRAY(3.0F, 4.0F), parse_json('{{"a":[1,2.5]}}'), 1)"""
    hs.sql(spark, f"INSERT INTO {name} VALUES {first}, (2, {inline}, NULL, NULL, 2), (3, NULL, NULL, NULL, 3)")
    hs.sql(spark, f"UPDATE {name} SET pic = {inline}, emb = ARRAY(1.0F, 0.0F), v = parse_json('7') WHERE id = 2")
    hs.sql(spark, f"UPDATE {name} SET n = 5 WHERE variant_get(v, '$.a[0]', 'int') = 1")
    found = hs.sql(spark, f"SELECT id, emb, to_json(v), try_variant_get(v, '$.a[1]', 'double'), n FROM {name} ORDER BY id")
    assert [tuple(row) for row in found.collect()] == [
        (1, [3.0, 4.0], '{"a":[1,2.5]}', 2.5, 5),
        (2, [1.0, 0.0], "7", None, 2),
        (3, None, None, None, 3),
    ]
    hs.sql(spark, f"SET pyhudi.blob.roots={tmp_path}")
    try:
        blobs = hs.sql(spark, f"SELECT read_blob(pic) AS c FROM {name} WHERE id < 3 ORDER BY id").collect()
        assert [bytes(row["c"]) for row in blobs] == [b"234", b"\xca\xfe"]
    finally:
        hs.sql(spark, "RESET pyhudi.blob.roots")
    with pytest.raises(Exception, match="outside of the allowed roots"):
        hs.sql(spark, f"SELECT read_blob(pic) AS c FROM {name}").collect()
    text = f"SELECT id, n, _hudi_distance AS d FROM hudi_vector_search('{tmp_path}/t', 'emb', ARRAY(1.0, 2.0), 2, 'l2')"
    nearest = hs.sql(spark, f"{text} WHERE id > 0 ORDER BY d").collect()
    assert [(row["id"], row["n"], round(row["d"], 9)) for row in nearest] == [(2, 2, 2.0), (1, 5, 2.828427125)]


def test_json_is_that_of_spark(spark: SparkSession) -> None:
    """Spark's encoding of each type, and its JSON."""
    texts = ["1", "1.50", "1e2", "-0.001", "123456789012345678901234567890", '{"b":[true,null],"a":"x"}', "[]", "1e-7"]
    made = [f"parse_json('{text}')" for text in texts]
    made += [
        "to_variant_object(named_struct('d', DATE'2024-01-02', 't', TIMESTAMP'2024-01-02 03:04:05.6', 'b', X'DEAD', 'f', 1.5F))",
        "to_variant_object(array(TIMESTAMP_NTZ'2024-01-02 03:04:05'))",
    ]
    rows = spark.sql(" UNION ALL ".join(f"SELECT v, to_json(v) AS j FROM (SELECT {text} AS v)" for text in made)).collect()
    parts = [{"metadata": bytes(row["v"].metadata), "value": bytes(row["v"].value)} for row in rows]
    assert len(rows) == len(made)
    assert variants_to_json(pa.array(parts, VARIANT_TYPE)).to_pylist() == [row["j"] for row in rows]
