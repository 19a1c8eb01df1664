"""BLOB columns: their schema, values in outside files, and SQL. test_hudi_types.py has writes, services and queries."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.hudi_types import BLOB_TYPE
from tests.support.vectors import ROOT

HUDI_TYPE = {"hudi_type": "BLOB"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("ts", pa.int64()),
        pa.field("pic", BLOB_TYPE, metadata=HUDI_TYPE),
        pa.field("other", BLOB_TYPE, metadata=HUDI_TYPE),
    ]
)


def inline(data: bytes | None) -> dict[str, Any]:
    return {"type": "INLINE", "data": data, "reference": None}


def outside(path: Any, offset: int | None = None, length: int | None = None) -> dict[str, Any]:
    reference = {"external_path": str(path), "offset": offset, "length": length, "managed": False}
    return {"type": "OUT_OF_LINE", "data": None, "reference": reference}


def row(id_: int, ts: int, *, null: bool = False) -> dict[str, Any]:
    other = (inline(b""), inline(None), outside("/data/x", 3, 4), outside("/data/y"))[id_ % 4]
    return {"id": id_, "ts": ts, "pic": None if null else inline(b"%d at %d" % (id_, ts)), "other": other}


def state(table: Table, **query: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**query).to_arrow().to_pylist(), key=lambda found: found["id"])


def create(path: Path, table_type: str = "cow", **options: str) -> Table:
    return Table.create(path, record_key="id", ordering="ts", table_type=table_type, schema=SCHEMA, options=options)


def test_schema_is_that_of_hudi(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert([row(1, 1)])
    schema = json.loads(dict(table.config.properties)["hoodie.table.create.schema"])
    fields = {field["name"]: field["type"][1] for field in schema["fields"]}
    assert fields["pic"] == {
        "type": "record",
        "name": "blob",
        "namespace": "",
        "fields": [
            {"name": "type", "type": {"type": "enum", "name": "blob_storage_type", "symbols": ["INLINE", "OUT_OF_LINE"]}},
            {"name": "data", "type": ["null", "bytes"], "default": None},
            {
                "name": "reference",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "reference",
                        "fields": [
                            {"name": "external_path", "type": "string"},
                            {"name": "offset", "type": ["null", "long"]},
                            {"name": "length", "type": ["null", "long"]},
                            {"name": "managed", "type": "boolean"},
                        ],
                    },
                ],
                "default": None,
            },
        ],
        "logicalType": "blob",
    }
    assert fields["other"] == "blob"
    (path,) = (tmp_path / "t").glob("*.parquet")
    assert pq.read_table(path)["pic"].to_pylist() == [row(1, 1)["pic"]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "OTHER", "data": b""}, r"column 'pic': row 1 \(counted from 0\) has the type 'OTHER'"),
        ({"type": None, "data": b""}, r"column 'pic.type' may not be null: row 1"),
        ({"data": b""}, "column 'pic.type' may not be null: row 1"),
        ({"type": "INLINE", "data": "text"}, "a column of type BLOB takes struct"),
        ({"type": "INLINE", "more": 1}, "a column of type BLOB takes struct"),
        ({"type": "OUT_OF_LINE", "reference": {"external_path": "x"}}, "column 'pic.reference.managed' is missing"),
        (b"bytes", "a column of type BLOB takes struct"),
    ],
)
def test_invalid_blob_value_is_rejected(tmp_path: Path, value: Any, message: str) -> None:
    table = create(tmp_path / "t")
    table.upsert([row(1, 1)])
    before = state(table)
    good = row(1, 3) if isinstance(value, dict) else row(1, 3, null=True)
    if isinstance(value, dict) and not isinstance(value.get("data"), str):
        good["pic"] = {"type": "INLINE", "data": b""}
    elif isinstance(value, dict):
        good["pic"] = None
    for mode in ("merge", "widen"):
        with pytest.raises(InvalidRequest, match=message):
            table.upsert([good, {**row(2, 3), "pic": value}], options={"pyhudi.schema.mode": mode})
    assert state(table) == before


def test_entries_of_lists_and_maps_are_no_blobs(tmp_path: Path) -> None:
    entry = pa.field("entry", BLOB_TYPE, metadata=HUDI_TYPE)
    for type_ in (pa.list_(entry), pa.map_(pa.field("key", pa.string(), nullable=False), entry)):
        with pytest.raises(InvalidRequest, match="a BLOB must not be an entry of a list or map"):
            Table.create(tmp_path / "t", record_key="id", schema=pa.schema([("id", pa.int64()), ("c", type_)]))


def test_structs_become_blobs_and_keep_the_type(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "mor")
    table.upsert([{"id": 1, "ts": 1, "pic": {"type": "INLINE", "data": b"a"}, "other": None}])
    large = pa.struct([("data", pa.large_binary()), ("type", pa.dictionary(pa.int32(), pa.string()))])
    pic = pa.array([{"type": "INLINE", "data": b"b"}], large)
    other = pa.array([{"type": "OUT_OF_LINE", "reference": {"external_path": "/x", "offset": 1, "length": 2, "managed": True}}])
    table.upsert(pa.table({"id": [2], "ts": [1], "pic": pic, "other": other}), options={"pyhudi.schema.mode": "evolve"})
    assert table.scan(["pic"], filter="id = 2").to_arrow().to_pylist() == [{"pic": inline(b"b")}]
    assert table.schema().field("pic").metadata == {b"hudi_type": b"BLOB"}
    assert table.schema().field("other").type == BLOB_TYPE


def test_blob_column_is_added_by_a_write(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", table_type="mor")
    table.upsert({"id": [1]})
    rows = pa.Table.from_arrays([pa.array([2]), pa.array([inline(b"x")], BLOB_TYPE)], schema=SCHEMA.remove(1).remove(2))
    table.upsert(rows)
    assert state(table) == [{"id": 1, "pic": None}, {"id": 2, "pic": inline(b"x")}]
    assert table.schema().field("pic").metadata == {b"hudi_type": b"BLOB"}
    with pytest.raises(InvalidRequest, match=r"BLOB .* keeps its type"):
        emb = pa.field("pic", pa.list_(pa.float32(), 1), metadata={"hudi_type": "VECTOR(1)"})
        table.upsert(pa.Table.from_arrays([pa.array([3]), pa.array([[1.0]], emb.type)], schema=pa.schema([rows.schema[0], emb])))


def test_keys_are_no_blobs_nor_vectors(tmp_path: Path) -> None:
    emb = pa.field("emb", pa.list_(pa.float32(), 2), metadata={"hudi_type": "VECTOR(2)"})
    for text in ("k BLOB", "k VECTOR(2)"):
        for clause in ("TBLPROPERTIES (primaryKey='k')", "PARTITIONED BY (k)", "TBLPROPERTIES (preCombineField='k')"):
            with pytest.raises(InvalidRequest, match="field 'k' is of type"):
                hp.sql(f"CREATE TABLE hudi.`{tmp_path}/u` (id INT, {text}) USING hudi {clause}")
    table = Table.create(tmp_path / "v", record_key="emb")
    with pytest.raises(InvalidRequest, match="record key field 'emb' is of type VECTOR"):
        table.upsert(pa.Table.from_arrays([pa.array([[1.0, 2.0]], emb.type)], schema=pa.schema([emb])))


def test_tables_with_schema_on_read_get_no_blobs(tmp_path: Path) -> None:
    ids = Table.create(tmp_path / "ids", record_key="id", options={"hoodie.write.table.version": "8"})
    ids.upsert({"id": [1]})
    ids.alter.add("n", pa.int64())
    rows = pa.Table.from_arrays(
        [pa.array([2]), pa.array([1]), pa.array([None], BLOB_TYPE)], schema=SCHEMA.remove(3).set(1, pa.field("n", pa.int64()))
    )
    with pytest.raises(Unsupported, match="column 'pic' of type BLOB"):
        ids.upsert(rows, options={"hoodie.schema.on.read.enable": "true"})


def test_read_blobs_reads_ranges_below_the_roots(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    content = bytes(range(256)) * 1000
    (folder / "a.bin").write_bytes(content)
    (folder / "b.bin").write_bytes(b"")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    table = create(tmp_path / "t", "mor")
    values = [
        inline(b"abc"),
        outside(folder / "a.bin", 10, 5),
        None,
        outside(f"file:{folder}/a.bin", 200_000, 3),
        inline(None),
        outside(folder / "a.bin", 8, 5),
        outside(folder / "a.bin", 255_990, 10),
        outside(f"file://{folder}/b.bin"),
        outside(folder / "a.bin"),
        inline(b""),
    ]
    expected = [b"abc", content[10:15], None, content[200_000:200_003], None, content[8:13], content[255_990:], b"", content, b""]
    table.upsert([{"id": i, "ts": 1, "pic": value, "other": None} for i, value in enumerate(values)])
    rows = table.scan(["id", "pic"]).to_arrow().sort_by("id")
    roots = {"pyhudi.blob.roots": f"{tmp_path}/nowhere, {folder}"}
    assert table.read_blobs(rows["pic"], options=roots).to_pylist() == expected
    assert table.read_blobs(rows["pic"].combine_chunks().slice(1, 3), options=roots).to_pylist() == expected[1:4]
    assert table.read_blobs(values, options=roots).to_pylist() == expected
    for offset, length in ((1, None), (0, 2), (2, 2), (1000, 5)):
        wanted = [None if v is None else v[offset : None if length is None else offset + length] for v in expected]
        assert table.read_blobs(rows["pic"], offset=offset, length=length, options=roots).to_pylist() == wanted
    assert table.read_blobs([inline(b"x"), None]).to_pylist() == [b"x", None]
    assert table.read_blobs([]).to_pylist() == []
    for value, error, message in (
        (outside(tmp_path / "secret"), Unsupported, "row 1: .*secret, which is outside of the allowed roots.*pyhudi.blob.roots"),
        (outside(f"{folder}/../secret"), Unsupported, "outside of the allowed roots"),
        (outside(f"{folder}/link"), Unsupported, "outside of the allowed roots"),
        (outside(f"{folder}-other/x"), Unsupported, "outside of the allowed roots"),
        (outside("s3://bucket/x"), Unsupported, "outside of the allowed roots"),
        (outside("a.bin"), InvalidRequest, "row 1: .*relative"),
        (outside(f"file:{folder}/../secret"), InvalidRequest, "'..' part"),
        (outside(folder / "none"), TableState, "row 1: .*does not exist"),
        (outside(folder / "a.bin", 0, 256_001), TableState, "row 1: .*256001 bytes at 0 of .* has 256000 bytes"),
        (outside(folder / "a.bin", 256_001, 0), TableState, "row 1"),
        (outside(folder / "a.bin", 5), InvalidRequest, "row 1: .*both offset and length"),
        (outside(folder / "a.bin", None, 5), InvalidRequest, "row 1: .*both offset and length"),
        (outside(folder / "a.bin", -1, 1), TableState, "row 1"),
        (outside(folder / "a.bin", 1, -1), TableState, "row 1"),
        ({**outside(folder), "reference": None}, InvalidRequest, "row 1: the BLOB is OUT_OF_LINE and has no reference"),
        ({**inline(b""), "type": "OTHER"}, InvalidRequest, "row 1: the BLOB has the type OTHER"),
    ):
        with pytest.raises(error, match=message):
            table.read_blobs([inline(b""), value], options=roots)
    with pytest.raises(Unsupported, match="allowed roots: none"):
        table.read_blobs([outside(folder / "a.bin")])
    with pytest.raises(InvalidRequest, match="takes struct"):
        table.read_blobs(rows["id"])
    with pytest.raises(InvalidRequest, match="0 or more"):
        table.read_blobs([None], offset=-1)


def test_sql_creates_writes_and_reads_blobs(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    name = f"hudi.`{tmp_path}/t`"
    hp.sql(f"CREATE TABLE {name} (id INT, pic BLOB, nest STRUCT<b: BLOB, n: INT>) USING hudi TBLPROPERTIES (primaryKey='id')")
    reference = f"named_struct('external_path', '{tmp_path}/a.bin', 'offset', 2L, 'length', 3L, 'managed', false)"
    values = [
        "(1, named_struct('type', 'INLINE', 'data', X'CAFE', 'reference', NULL), NULL)",
        f"(2, named_struct('type', 'OUT_OF_LINE', 'data', NULL, 'reference', {reference}), NULL)",
        "(3, NULL, named_struct('b', named_struct('type', 'INLINE', 'data', X'AB', 'reference', NULL), 'n', 1))",
    ]
    for value in values:
        hp.sql(f"INSERT INTO {name} VALUES {value}")
    described = {r["col_name"]: r["data_type"] for r in hp.sql(f"DESCRIBE {name}").to_pylist()}
    assert (described["pic"], described["nest"]) == ("blob", "struct<b:blob,n:int>")
    assert "pic BLOB" in hp.sql(f"SHOW CREATE TABLE {name}").to_pylist()[0]["createtab_stmt"]
    with pytest.raises(Unsupported, match="outside of the allowed roots"):
        hp.sql(f"SELECT read_blob(pic) FROM {name}")
    hp.sql(f"SET pyhudi.blob.roots={tmp_path}")
    try:
        found = hp.sql(f"SELECT id, read_blob(pic) AS c FROM {name} ORDER BY id").to_pylist()
        assert found == [{"id": 1, "c": b"\xca\xfe"}, {"id": 2, "c": b"234"}, {"id": 3, "c": None}]
        assert hp.sql(f"SELECT read_blob(nest.b) AS c FROM {name} WHERE id = 3").to_pylist() == [{"c": b"\xab"}]
        hp.sql(f"UPDATE {name} SET pic = named_struct('type', 'INLINE', 'data', read_blob(pic), 'reference', NULL) WHERE id = 2")
        assert hp.sql(f"SELECT pic FROM {name} WHERE id = 2").to_pylist() == [{"pic": inline(b"234")}]
    finally:
        hp.sql("RESET pyhudi.blob.roots")
    for bad in ("ARRAY<BLOB>", "MAP<STRING, BLOB>"):
        with pytest.raises(Unsupported, match="BLOB"):
            hp.sql(f"CREATE TABLE hudi.`{tmp_path}/u` (id INT, pic {bad}) USING hudi")
    with pytest.raises(Unsupported, match="BLOB"):
        hp.sql(f"ALTER TABLE {name} ADD COLUMNS (p BLOB)")


def test_table_of_hudi_with_blobs(tmp_path: Path) -> None:
    """Both physical forms of Hudi's writers, logs, and writes on top of them."""
    source = ROOT / "v12" / "blob-mor.zip"
    if not source.exists():
        pytest.skip(f"no test vector {source}")
    zipfile.ZipFile(source).extractall(tmp_path)
    rows = json.loads(source.with_suffix(".json").read_text())["rows"]
    for found in rows:
        if found["pic"] and found["pic"]["data"] is not None:
            found["pic"]["data"] = bytes.fromhex(found["pic"]["data"])
    table = Table(tmp_path / "blob-mor")
    assert state(table) == rows
    before = table.schema()
    changed = table.scan(filter="id = 1").to_arrow()
    table.upsert(changed.set_column(1, "pic", pa.array([inline(b"new")])).set_column(2, "ts", pa.array([9])))
    rows[0] = {**rows[0], "pic": inline(b"new"), "ts": 9}
    assert state(table) == rows
    assert table.compact().runs and table.cluster(order_by="id").instant is not None
    assert state(table) == rows and table.validate().ok
    assert table.schema().equals(before, check_metadata=True)
