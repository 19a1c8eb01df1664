"""Columns of the types of Apache Hudi 1.2: Hudi and PyHudi read, write and service the same tables in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.hudi_pair_of_version import KINDS_AND_VERSIONS

Rows = dict[int, tuple[Any, ...]]

OPTIONS: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.embed.timeline.server": False,
}
VECTORS = "id INT, emb VECTOR(3), wide VECTOR(2, DOUBLE), small VECTOR(2, INT8), ts BIGINT"


def vectors(rows: Rows, columns: pa.Schema) -> pa.Table:
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(zip(*rows.values(), strict=True), columns, strict=True)], columns
    )


def check(hudi: ApacheHudi, table: Table, rows: Rows) -> None:
    ours = table.scan().to_arrow()
    theirs = hudi.read(table.path if hasattr(table, "path") else table.uri.removeprefix("file:"))
    for found in (ours, theirs):
        assert {row["id"]: tuple(row[name] for name in ours.column_names) for row in found.to_pylist()} == rows
    report = table.validate()
    assert report.ok, str(report)


@pytest.mark.parametrize(("kind", "version"), KINDS_AND_VERSIONS)
def test_hudi_and_pyhudi_alternate_on_vectors(newest_hudi: ApacheHudi, tmp_path: Path, kind: str, version: int) -> None:
    path = tmp_path / "t"
    name = f"vectors_{kind}_{version}"
    properties = f"type='{kind}', primaryKey='id', orderingFields='ts', 'hoodie.write.table.version'='{version}'"
    newest_hudi.sql(f"CREATE TABLE {name} ({VECTORS}) USING hudi TBLPROPERTIES ({properties}) LOCATION '{path}'")
    for key, setting in {**OPTIONS, "hoodie.write.table.version": version, "hoodie.write.auto.upgrade": False}.items():
        newest_hudi.sql(f"SET {key}={str(setting).lower()}")

    def value(row: tuple[Any, ...]) -> str:
        id_, emb, wide, small, ts = row
        parts = [(emb, "FLOAT"), (wide, "DOUBLE"), (small, "TINYINT")]
        texts = ["NULL" if v is None else f"ARRAY({', '.join(f'CAST({e} AS {t})' for e in v)})" for v, t in parts]
        return f"({id_}, {', '.join(texts)}, CAST({ts} AS BIGINT))"

    rows: Rows = {i: (i, [i + 0.5, -1.0, 3.0], [i / 8, -2.5], [-128, i], 1) for i in range(4)} | {4: (4, None, None, None, 1)}
    newest_hudi.sql(f"INSERT INTO {name} VALUES {', '.join(map(value, rows.values()))}")
    table = Table(path)
    check(newest_hudi, table, rows)
    ours: Rows = {
        1: (1, [9.0, 8.0, 7.0], None, [1, 2], 2),
        4: (4, [4.0] * 3, [4.0] * 2, [4, 4], 2),
        5: (5, [5.0] * 3, [0.0, 5.0], None, 2),
    }
    table.upsert(vectors(ours, table.schema()), options=OPTIONS)
    rows |= ours
    check(newest_hudi, table, rows)
    newest_hudi.sql(f"UPDATE {name} SET emb = ARRAY(CAST(1 AS FLOAT), CAST(2 AS FLOAT), CAST(3 AS FLOAT)), ts = 3 WHERE id = 5")
    rows[5] = (5, [1.0, 2.0, 3.0], *rows[5][2:4], 3)
    newest_hudi.sql(f"DELETE FROM {name} WHERE id = 0")
    del rows[0]
    check(newest_hudi, table, rows)
    table.update({"ts": 4}, where="id = 2", options=OPTIONS)
    rows[2] = (*rows[2][:4], 4)
    if kind == "mor":
        assert table.compact().runs
    assert table.cluster(order_by="ts").instant is not None
    check(newest_hudi, table, rows)
    newest_hudi.sql(f"INSERT INTO {name} VALUES {value((6, [6.0] * 3, [6.0] * 2, None, 5))}")
    rows[6] = (6, [6.0] * 3, [6.0] * 2, None, 5)
    check(newest_hudi, table, rows)


def test_hudi_continues_a_table_of_vectors_that_pyhudi_made(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    columns = pa.schema(
        [("id", pa.int32()), ("ts", pa.int64()), pa.field("emb", pa.list_(pa.float32()), metadata={"hudi_type": "VECTOR(2)"})]
    )
    table = Table.create(
        tmp_path / "t",
        record_key="id",
        ordering="ts",
        table_type="mor",
        schema=columns,
        options={"hoodie.write.table.version": "9"},
    )
    rows: Rows = {i: (i, 1, [float(i), -0.5]) for i in range(3)}
    table.upsert(vectors(rows, columns), options=OPTIONS)
    table.upsert(vectors({1: (1, 2, None)}, columns), options=OPTIONS)
    rows[1] = (1, 2, None)
    check(newest_hudi, table, rows)
    newest_hudi.sql(f"CREATE TABLE made_by_pyhudi USING hudi LOCATION '{tmp_path / 't'}'")
    newest_hudi.sql("UPDATE made_by_pyhudi SET emb = ARRAY(CAST(7 AS FLOAT), CAST(8 AS FLOAT)), ts = 3 WHERE id = 2")
    rows[2] = (2, 3, [7.0, 8.0])
    check(newest_hudi, table, rows)
    newest_hudi.sql("CALL run_compaction(op => 'scheduleandexecute', table => 'made_by_pyhudi')")
    check(newest_hudi, table, rows)


BLOBS = "id INT, pic BLOB, ts BIGINT"
NO_REFERENCE = "CAST(NULL AS STRUCT<external_path: STRING, offset: BIGINT, length: BIGINT, managed: BOOLEAN>)"


def blob_literal(blob: dict[str, Any] | None) -> str:
    if blob is None:
        return "NULL"
    data = "CAST(NULL AS BINARY)" if blob["data"] is None else f"X'{blob['data'].hex()}'"
    reference = NO_REFERENCE
    if blob["reference"] is not None:
        parts = {**blob["reference"], "external_path": f"'{blob['reference']['external_path']}'"}
        for name in ("offset", "length"):
            parts[name] = f"CAST({'NULL' if parts[name] is None else parts[name]} AS BIGINT)"
        named = ", ".join(f"'{key}', {str(part).lower() if key == 'managed' else part}" for key, part in parts.items())
        reference = f"named_struct({named})"
    return f"named_struct('type', '{blob['type']}', 'data', {data}, 'reference', {reference})"


@pytest.mark.parametrize(
    ("kind", "maker", "version"),
    [
        ("cow", "hudi", 9),
        ("mor", "pyhudi", 9),
        pytest.param("mor", "hudi", 9, marks=pytest.mark.wide),
        pytest.param("cow", "pyhudi", 8, marks=pytest.mark.wide),
    ],
)
def test_hudi_and_pyhudi_alternate_on_blobs(newest_hudi: ApacheHudi, tmp_path: Path, kind: str, maker: str, version: int) -> None:
    """Both physical forms, and the bytes of outside files; each compacts and clusters what the other wrote."""
    (tmp_path / "outside.bin").write_bytes(b"0123456789")
    path, name = tmp_path / "t", f"blobs_{kind}_{maker}_{version}"

    def outside(offset: int | None, length: int | None) -> dict[str, Any]:
        reference = {"external_path": f"{tmp_path}/outside.bin", "offset": offset, "length": length, "managed": False}
        return {"type": "OUT_OF_LINE", "data": None, "reference": reference}

    def inline(data: bytes | None) -> dict[str, Any]:
        return {"type": "INLINE", "data": data, "reference": None}

    settings = {**OPTIONS, "hoodie.write.table.version": version, "hoodie.write.auto.upgrade": False}
    if maker == "hudi":
        properties = f"type='{kind}', primaryKey='id', orderingFields='ts', 'hoodie.write.table.version'='{version}'"
        newest_hudi.sql(f"CREATE TABLE {name} ({BLOBS}) USING hudi TBLPROPERTIES ({properties}) LOCATION '{path}'")
    else:
        hp.sql(
            f"CREATE TABLE hudi.`{path}` ({BLOBS}) USING hudi TBLPROPERTIES (type='{kind}', primaryKey='id', "
            f"preCombineField='ts', 'hoodie.write.table.version'='{version}')"
        )
        Table(path).upsert(vectors({99: (99, None, 1)}, Table(path).schema()), options=OPTIONS)
        newest_hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{path}'")
    for key, setting in settings.items():
        newest_hudi.sql(f"SET {key}={str(setting).lower()}")
    theirs = {0: inline(b"zero"), 1: inline(b""), 2: outside(None, None), 3: outside(2, 3), 4: None, 5: inline(None)}
    rows: Rows = {i: (i, blob, 1) for i, blob in theirs.items()}
    values = [f"({i}, {blob_literal(blob)}, CAST({ts} AS BIGINT))" for i, blob, ts in rows.values()]
    newest_hudi.sql(f"INSERT INTO {name} VALUES {', '.join(values)}")
    table = Table(path)
    if maker == "pyhudi":
        table.delete([99], options=OPTIONS)
    check(newest_hudi, table, rows)
    ours: Rows = {1: (1, outside(8, 2), 2), 4: (4, inline(b"four"), 2), 2: (2, None, 2), 6: (6, inline(b"six"), 2)}
    table.upsert(vectors(ours, table.schema()), options=OPTIONS)
    rows |= ours
    check(newest_hudi, table, rows)
    newest_hudi.sql(f"UPDATE {name} SET pic = {blob_literal(outside(1, 1))}, ts = 3 WHERE id = 6")
    newest_hudi.sql(f"DELETE FROM {name} WHERE id = 0")
    rows[6] = (6, outside(1, 1), 3)
    del rows[0]
    check(newest_hudi, table, rows)
    if kind == "mor":
        newest_hudi.compact(path, "scheduleAndExecute", metadata=True)
        check(newest_hudi, table, rows)
        table.upsert(vectors({3: (3, inline(b"three"), 4)}, table.schema()), options=OPTIONS)
        rows[3] = (3, inline(b"three"), 4)
        assert table.compact().runs
    newest_hudi.call("run_clustering", path=str(path), op="scheduleAndExecute")
    check(newest_hudi, table, rows)
    assert table.cluster(order_by="ts").instant is not None
    newest_hudi.sql(f"UPDATE {name} SET ts = 9 WHERE id = 4")
    rows[4] = (*rows[4][:2], 9)
    check(newest_hudi, table, rows)
    content = {1: b"89", 2: None, 3: rows[3][1]["data"] or b"234", 4: b"four", 5: None, 6: b"1"}
    found = newest_hudi.sql(f"SELECT id, read_blob(pic) AS content FROM {name} WHERE id <> 5").to_pylist()
    assert {row["id"]: row["content"] for row in found} == {i: c for i, c in content.items() if i != 5}
    scanned = table.scan(["id", "pic"]).to_arrow()
    read = table.read_blobs(scanned["pic"], options={"pyhudi.blob.roots": str(tmp_path)})
    assert dict(zip(scanned["id"].to_pylist(), read.to_pylist(), strict=True)) == content


WRITE_VARIANTS = """
from pyspark.sql import types as T

parts = T.StructType([T.StructField(name, T.BinaryType(), False) for name in ("metadata", "value")])
schema = T.StructType(
    [
        T.StructField("id", T.IntegerType()),
        T.StructField("v", parts, True, {"hudi_type": "VARIANT"}),
        T.StructField("ts", T.LongType()),
    ]
)
made = [(i, v and tuple(bytearray.fromhex(part) for part in v), ts) for i, v, ts in rows]
spark.createDataFrame(made, schema).write.format("hudi").options(**options).mode("append").save(path)
"""


@pytest.mark.parametrize("kind", [pytest.param("COPY_ON_WRITE", marks=pytest.mark.wide), "MERGE_ON_READ"])
def test_hudi_and_pyhudi_alternate_on_variants(
    newest_hudi: ApacheHudi, newer_hudi: ApacheHudi, tmp_path: Path, kind: str
) -> None:
    """Release 1.2.0 writes variants on Spark 3.5 and cannot read them there; release 1.1.1 reads them as structs."""
    path = tmp_path / "t"
    options: dict[str, Any] = {
        **OPTIONS,
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": kind,
    }
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}

    def theirs(rows: Rows, operation: str = "upsert") -> None:
        made = [(i, v and [v[part].hex() for part in ("metadata", "value")], ts) for i, v, ts in rows.values()]
        more = {**texts, "hoodie.datasource.write.operation": operation}
        newest_hudi.run(WRITE_VARIANTS, path=str(path), rows=made, options=more)

    def made(documents: dict[int, str | None], ts: int) -> Rows:
        values = hp.variant_from_json(list(documents.values())).to_pylist()
        return {i: (i, value, ts) for i, value in zip(documents, values, strict=True)}

    def check_rows() -> None:
        found = newer_hudi.read(path, columns=["id", "v", "ts"])
        for read in (Table(path).scan(["id", "v", "ts"]).to_arrow(), found):
            assert {row["id"]: tuple(row.values()) for row in read.to_pylist()} == rows
        report = Table(path).validate()
        assert report.ok, str(report)

    rows = made({0: '{"a":[1,2.5]}', 1: "null", 2: None, 3: '"x"'}, 1)
    theirs(rows, "insert")
    with pytest.raises(HudiFailure, match=r"VARIANT type is only supported in Spark 4.0\+"):
        newest_hudi.read(path)
    check_rows()
    table = Table(path)
    ours = made({1: '{"b":{"c":true}}', 2: "[]", 4: None}, 2)
    table.upsert(vectors(ours, table.schema()), options=OPTIONS)
    rows |= ours
    check_rows()
    later = made({4: "7", 5: "1e10"}, 3)
    theirs(later)
    rows |= later
    theirs({0: (*rows[0][:2], 9)}, "delete")
    del rows[0]
    check_rows()
    if kind == "MERGE_ON_READ":
        assert table.compact().runs
    assert table.cluster(order_by="ts").instant is not None
    theirs(made({3: "3"}, 4))
    rows |= made({3: "3"}, 4)
    check_rows()
    assert table.scan(filter="variant_get(v, '$.b.c', 'boolean')= true").count() == 1
    assert table.schema().field("v").metadata == {b"hudi_type": b"VARIANT"}
