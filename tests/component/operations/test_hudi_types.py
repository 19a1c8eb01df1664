"""Columns of Hudi's own types (BLOB, VECTOR, VARIANT) in one table: every kind of write, service and query, and their limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.hudi_types import BLOB_TYPE, VARIANT_TYPE

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("ts", pa.int64()),
        pa.field("pic", BLOB_TYPE, metadata={"hudi_type": "BLOB"}),
        pa.field("emb", pa.list_(pa.float32(), 4), metadata={"hudi_type": "VECTOR(4)"}),
        pa.field("wide", pa.list_(pa.float64()), metadata={"hudi_type": "VECTOR(2, DOUBLE)"}),
        pa.field("small", pa.list_(pa.field("element", pa.int8(), nullable=False), 3)),
        pa.field("v", VARIANT_TYPE, metadata={"hudi_type": "VARIANT"}),
    ]
)
TYPED = {"pic": "BLOB", "emb": "VECTOR", "v": "VARIANT"}
Row = dict[str, Any]


def row(id_: int, ts: int, *, null: bool = False) -> Row:
    if null:
        return {**dict.fromkeys(SCHEMA.names), "id": id_, "ts": ts}
    reference = {"external_path": "/data/x", "offset": 3, "length": id_, "managed": False}
    outside = {"type": "OUT_OF_LINE", "data": None, "reference": reference}
    return {
        "id": id_,
        "ts": ts,
        "pic": outside if id_ == 2 else {"type": "INLINE", "data": b"%d at %d" % (id_, ts), "reference": None},
        "emb": [float(id_), -0.0, 2.0**100, 0.5 * ts],
        "wide": [id_ + 0.1, -1e300],
        "small": [-128, 127, id_ % 100],
        "v": f'{{"a":{{"b":{id_}}},"ts":{ts}}}',
    }


def frame(rows: list[Row]) -> pa.Table:
    columns: dict[str, Any] = {name: [found[name] for found in rows] for name in SCHEMA.names}
    columns["v"] = hp.variant_from_json(columns["v"])
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def state(table: Table, **query: Any) -> list[Row]:
    found = table.scan(**query).to_arrow().sort_by("id")
    texts = hp.variant_to_json(found["v"]).to_pylist()
    return [{**values, "v": text} for values, text in zip(found.to_pylist(), texts, strict=True)]


def ids(table: Table, condition: str) -> list[int]:
    return sorted(table.scan(["id"], filter=condition).to_arrow()["id"].to_pylist())


def create(path: Path, table_type: str = "cow", **options: str) -> Table:
    return Table.create(path, record_key="id", ordering="ts", table_type=table_type, schema=SCHEMA, options=options)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("table_type", "blocks", "version"),
    [("cow", "avro", "8"), ("cow", "avro", "9"), ("mor", "avro", "9"), ("mor", "parquet", "8"), ("mor", "hfile", "9")],
)
def test_values_survive_writes_services_and_queries(tmp_path: Path, table_type: str, blocks: str, version: str) -> None:
    table = create(tmp_path / "t", table_type, **{"hoodie.write.table.version": version, "hoodie.table.cdc.enabled": "true"})
    options = {"hoodie.logfile.data.block.format": blocks}
    before = [row(i, 1, null=i == 3) for i in range(6)]
    later = [row(i, 2, null=i == 1) for i in (1, 4, 7)]
    first = table.upsert(frame(before), options=options)
    created = table.schema()
    table.upsert(frame(later), options=options)
    table.delete([5])
    rows = {found["id"]: found for found in [*before[:5], *later]}
    assert state(table) == [rows[i] for i in sorted(rows)]
    assert [ids(table, f"{name} is null") for name in TYPED] == [[1, 3]] * 3
    assert ids(table, "pic.type = 'OUT_OF_LINE'") == [2]
    assert ids(table, "variant_get(v, '$.a.b', 'int') >= 4") == [4, 7]
    assert ids(table, "try_variant_get(v, '$.ts', 'bigint') = 2 and id < 7") == [4]
    assert state(table, filter="id = 4") == [rows[4]]
    assert state(table, as_of=first.instant) == before
    changed = table.changes(first.completion_time, typed=True).to_arrow().to_pylist()
    images = {change["after"]["id"]: change["after"] for change in changed if change["after"]}
    assert [images[1][name] for name in TYPED] == [None] * 3
    assert [images[4][name] for name in ("pic", "emb")] == [rows[4][name] for name in ("pic", "emb")]
    assert hp.variant_to_json([images[4]["v"]]).to_pylist() == [rows[4]["v"]]
    texts = str(table.changes(first.completion_time).to_arrow().column("after").to_pylist())
    assert '"type": "INLINE", "data": "4 at 2"' in texts and "[4.0, -0.0, " in texts
    newer = table.incremental(first.completion_time).to_arrow().to_pylist()
    assert {found["id"]: found["pic"] for found in newer if found["ts"] == 2} == {i: rows[i]["pic"] for i in (1, 4, 7)}
    table.update({"ts": 9}, where="id = 2")
    rows[2] = {**rows[2], "ts": 9}
    if table_type == "mor":
        assert table.compact().runs
    assert table.cluster(order_by="ts").instant is not None
    assert state(table) == [rows[i] for i in sorted(rows)]
    assert table.validate().ok
    assert table.schema().equals(created, check_metadata=True)
    types = {name: (created.field(name).metadata or {}).get(b"hudi_type") for name in SCHEMA.names[2:]}
    assert types == {
        "pic": b"BLOB",
        "emb": b"VECTOR(4)",
        "wide": b"VECTOR(2, DOUBLE)",
        "small": b"VECTOR(3, INT8)",
        "v": b"VARIANT",
    }
    assert hp.scan_polars(table.uri).filter(pl.col("id") == 4).select("pic").collect().to_dicts() == [{"pic": rows[4]["pic"]}]
    fields = json.loads((tmp_path / "t/.hoodie/.index_defs/index.json").read_text())["indexDefinitions"]["column_stats"]
    assert "ts" in fields["sourceFields"] and not set(SCHEMA.names[2:]) & set(fields["sourceFields"])


@pytest.mark.parametrize("name", TYPED)
def test_tables_that_cannot_have_the_type(tmp_path: Path, name: str) -> None:
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("ts"), SCHEMA.field(name)])
    data = frame([row(1, 1), row(2, 1, null=True)]).select(schema.names)

    def made(folder: str, **options: str) -> Table:
        return Table.create(tmp_path / folder, record_key="id", ordering="ts", schema=schema, options=options)

    for role in ("record_key", "partition_by", "ordering"):
        with pytest.raises(InvalidRequest, match=f"field '{name}' is of type {TYPED[name]}"):
            Table.create(tmp_path / "t", schema=schema, **cast(Any, {"record_key": "id", role: name}))
    with pytest.raises(Unsupported, match=f"column '{name}' is of type {TYPED[name]}.*, which ORC base files"):
        made("orc", **{"hoodie.table.base.file.format": "ORC"}).upsert(data)
    table = made("t", **{"hoodie.write.table.version": "8"})
    table.upsert(data)
    before = table.scan().to_arrow()
    with pytest.raises(Unsupported, match=f"column '{name}' of type {TYPED[name]}"):
        table.alter.add("n", pa.int64())
    with pytest.raises(Unsupported, match=f"column '{name}' has the type {TYPED[name]}"):
        table.downgrade(6)
    table.upgrade(9)
    assert Table(table.uri).scan().to_arrow().equals(before)
    Table(table.uri).downgrade(8)
    reopened = Table(table.uri)
    assert reopened.scan().to_arrow().equals(before) and int(reopened.config.version) == 8
