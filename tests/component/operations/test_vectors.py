"""VECTOR columns: their files, what becomes a vector, and SQL. test_hudi_types.py has writes, services and queries."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest
from tests.support.vectors import ROOT

HUDI_TYPE = "hudi_type"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("ts", pa.int64()),
        pa.field("emb", pa.list_(pa.float32(), 4), metadata={HUDI_TYPE: "VECTOR(4)"}),
        pa.field("wide", pa.list_(pa.float64()), metadata={HUDI_TYPE: "VECTOR(2, DOUBLE)"}),
        pa.field("small", pa.list_(pa.field("element", pa.int8(), nullable=False), 3)),
        pa.field("other", pa.list_(pa.float32(), 4), metadata={HUDI_TYPE: "VECTOR(4)"}),
    ]
)


def row(id_: int, ts: int, *, null: bool = False) -> dict[str, Any]:
    if null:
        return {"id": id_, "ts": ts, "emb": None, "wide": None, "small": None, "other": None}
    return {
        "id": id_,
        "ts": ts,
        "emb": [float(id_), -0.0, 1e30, 0.5 * ts],
        "wide": [id_ + 0.1, -1e300],
        "small": [-128, 127, id_ % 100],
        "other": [1.0, 2.0, 3.0, float(ts)],
    }


def expected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with values as the columns round them."""
    return [{**r, **{k: r[k] and [float(np.float32(v)) for v in r[k]] for k in ("emb", "other")}} for r in rows]


def state(table: Table, **query: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**query).to_arrow().to_pylist(), key=lambda found: found["id"])


def create(path: Path, table_type: str, **options: str) -> Table:
    return Table.create(path, record_key="id", ordering="ts", table_type=table_type, schema=SCHEMA, options=options)


def test_files_hold_vectors_as_hudi_writes_them(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "cow")
    table.upsert([row(1, 1)])
    (path,) = (tmp_path / "t").glob("*.parquet")
    metadata = pq.read_metadata(path)
    stated = (metadata.metadata or {})[b"hoodie.vector.columns"].decode()
    assert stated == "emb:VECTOR(4),wide:VECTOR(2, DOUBLE),small:VECTOR(3, INT8),other:VECTOR(4)"
    types = {metadata.schema.column(i).name: metadata.schema.column(i) for i in range(metadata.num_columns)}
    assert (types["emb"].physical_type, types["emb"].length) == ("FIXED_LEN_BYTE_ARRAY", 16)
    assert types["small"].length == 3 and types["emb"].logical_type.type == "NONE"
    assert pq.read_table(path)["emb"][0].as_py() == np.array(row(1, 1)["emb"], np.float32).tobytes()
    fields = {
        field["name"]: field["type"][1]
        for field in json.loads(dict(table.config.properties)["hoodie.table.create.schema"])["fields"]
    }
    assert fields["emb"] == {
        "type": "fixed",
        "name": "vector_float_4",
        "namespace": "",
        "size": 16,
        "logicalType": "vector",
        "dimension": 4,
        "elementType": "FLOAT",
        "storageBacking": "FIXED_BYTES",
    }
    assert fields["other"] == "vector_float_4"


def test_any_layout_of_numbers_becomes_a_vector(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "mor")
    values = np.arange(8, dtype=np.float64).reshape(2, 4)
    base = {"id": [1, 2], "ts": [1, 1], "wide": [[1, 2], None], "small": [None, [1, 2, 3]], "other": [None, None]}
    wanted = values.astype(np.float32).tolist()
    views = pa.array(values.tolist(), pa.list_view(pa.float32()))
    inputs: list[Any] = [
        {**base, "emb": values},
        {**base, "emb": values.astype(np.float32)},
        {**base, "emb": values.tolist()},
        pl.DataFrame({**base, "emb": values.tolist()}),
        pl.DataFrame({**base, "emb": values}, schema_overrides={"emb": pl.Array(pl.Float32, 4)}),
        pa.table({**base, "emb": views}),
        pa.table({**base, "emb": pa.array(values.tolist(), pa.large_list(pa.float16()))}),
        pa.table({**base, "emb": pa.array(values.astype(np.int64).tolist())}),
    ]
    for number, rows in enumerate(inputs):
        table.upsert(rows)
        found = table.scan(["id", "emb", "small"]).to_arrow().sort_by("id")
        assert found["emb"].to_pylist() == wanted, number
        assert found["small"].to_pylist() == [None, [1, 2, 3]]
    assert found.schema.field("emb").type == pa.list_(pa.field("element", pa.float32(), nullable=False), 4)
    frame = hp.scan_polars(table.uri).select("emb").collect()
    assert frame.schema == {"emb": pl.Array(pl.Float32, 4)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"emb": [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0]]}, r"column 'emb': row 1 \(counted from 0\) has 2 elements.*VECTOR\(4\)"),
        ({"emb": np.ones((2, 5))}, r"column 'emb': row 0 \(counted from 0\) has 5 elements"),
        ({"emb": [None, [1.0, 2.0, None, 4.0]]}, r"column 'emb': row 1 \(counted from 0\) has a null element"),
        ({"emb": [[0.0] * 4, [1e300, 0.0, 0.0, 0.0]]}, r"column 'emb': row 1 \(counted from 0\) has the element 1e\+300"),
        ({"emb": [[2**24 + 1, 0, 0, 0]] * 2}, "column 'emb' cannot become VECTOR"),
        ({"small": [[1, 2, 300], None]}, r"column 'small' cannot become VECTOR\(3, INT8\)"),
        ({"small": [[1, 2, 0.5], None]}, r"column 'small' cannot become VECTOR\(3, INT8\)"),
        ({"emb": ["a", "b"]}, r"takes lists of 4 numbers"),
        ({"emb": [["a"] * 4] * 2}, r"takes lists of 4 numbers"),
    ],
)
def test_invalid_vector_value_is_rejected(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    table = create(tmp_path / "t", "cow")
    table.upsert([row(1, 1), row(2, 1)])
    before = state(table)
    base = {"id": [1, 2], "ts": [3, 3], "emb": [None, None], "wide": [None, None], "small": [None, None], "other": [None, None]}
    with pytest.raises(InvalidRequest, match=message):
        table.upsert({**base, **changes})
    assert state(table) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("VECTOR(0)", "dimension of a vector must be between 1"),
        ("VECTOR(4, FLOAT16)", "unknown element type of a vector: FLOAT16"),
        ("VECTOR(4, FLOAT, LIST)", "unknown storage of a vector: LIST"),
        ("FOO", "unknown Hudi type 'FOO'"),
    ],
)
def test_types_that_hudi_does_not_have_are_refused(tmp_path: Path, name: str, message: str) -> None:
    field = pa.field("emb", pa.list_(pa.float32()), metadata={HUDI_TYPE: name})
    with pytest.raises(InvalidRequest, match=message):
        Table.create(tmp_path / "t", record_key="id", schema=pa.schema([pa.field("id", pa.int64()), field]))


@pytest.mark.parametrize("nested", ["struct", "list", "map"])
def test_nested_vectors_are_refused(tmp_path: Path, nested: str) -> None:
    vector = pa.list_(pa.field("element", pa.float32(), nullable=False), 4)
    type_ = {"struct": pa.struct([("v", vector)]), "list": pa.list_(vector), "map": pa.map_(pa.string(), vector)}[nested]
    with pytest.raises(InvalidRequest, match="a vector must be a column of its own"):
        Table.create(tmp_path / "t", record_key="id", schema=pa.schema([("id", pa.int64()), ("c", type_)]))


def test_vector_column_is_added_and_keeps_its_type(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", table_type="mor")
    plain = pa.field("plain", pa.list_(pa.float32()))
    emb = pa.field("emb", pa.list_(pa.float32(), 2), metadata={HUDI_TYPE: "VECTOR(2)"})

    def upsert(plain: pa.Field, emb: pa.Field, values: Any) -> None:
        fields = [pa.field("id", pa.int64()), plain, emb]
        table.upsert(pa.table([pa.array([2]), pa.array([None], plain.type), pa.array([values], emb.type)], pa.schema(fields)))

    table.upsert(pa.table({"id": [1], "plain": pa.array([[1.0]], plain.type)}))
    upsert(plain, emb, [1, 2])
    assert state(table, columns=["id", "emb"]) == [{"id": 1, "emb": None}, {"id": 2, "emb": [1.0, 2.0]}]
    assert table.schema().field("emb").metadata == {b"hudi_type": b"VECTOR(2)"}
    for other in ("VECTOR(3)", "VECTOR(2, DOUBLE)"):
        with pytest.raises(InvalidRequest, match=r"a column of type VECTOR\(2\) .* keeps its type"):
            upsert(plain, emb.with_metadata({HUDI_TYPE: other}), None)
    with pytest.raises(InvalidRequest, match="plain"):
        upsert(emb.with_name("plain"), emb, None)


def test_fixed_size_lists_of_a_table_without_vectors_stay_lists(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id")
    table.upsert(pa.table({"id": [1], "l": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))}))
    assert pa.types.is_list(table.schema().field("l").type)


def test_sql_creates_writes_and_reads_vectors(tmp_path: Path) -> None:
    name = f"hudi.`{tmp_path}/t`"
    hp.sql(
        f"CREATE TABLE {name} (id INT, emb VECTOR(3), small VECTOR(2, INT8), n INT) USING hudi TBLPROPERTIES (primaryKey='id')"
    )
    hp.sql(f"INSERT INTO {name} VALUES (1, ARRAY(1.0, 2.0, 3.0), ARRAY(1, 2), 1), (2, NULL, NULL, 2)")
    hp.sql(f"INSERT INTO {name} SELECT id + 10, emb, small, n FROM {name}")
    hp.sql(f"UPDATE {name} SET emb = ARRAY(9.0, 8.0, 7.5) WHERE id = 2")
    hp.sql(f"MERGE INTO {name} t USING (SELECT 12 AS id, 99 AS n) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n")
    found = hp.sql(f"SELECT id, emb, n FROM {name} ORDER BY id").to_pylist()
    assert [tuple(r.values()) for r in found] == [
        (1, [1.0, 2.0, 3.0], 1),
        (2, [9.0, 8.0, 7.5], 2),
        (11, [1.0, 2.0, 3.0], 1),
        (12, None, 99),
    ]
    described = hp.sql(f"DESCRIBE {name}").to_pylist()
    assert {r["col_name"]: r["data_type"] for r in described}["small"] == "vector(2, int8)"
    with pytest.raises(InvalidRequest, match="has 2 elements"):
        hp.sql(f"UPDATE {name} SET emb = ARRAY(9.0, 8.0) WHERE id = 2")
    for bad in ("VECTOR(0)", "VECTOR(3, FLOAT16)", "ARRAY<VECTOR(3)>", "STRUCT<v: VECTOR(3)>"):
        with pytest.raises(InvalidRequest, match="vector"):
            hp.sql(f"CREATE TABLE hudi.`{tmp_path}/u` (id INT, emb {bad}) USING hudi")


def test_table_of_hudi_with_vectors(tmp_path: Path) -> None:
    """Both writers of Hudi, updates, a merge and a clustering; then writes on top of them."""
    source = ROOT / "v12" / "vector-cow.zip"
    if not source.exists():
        pytest.skip(f"no test vector {source}")
    zipfile.ZipFile(source).extractall(tmp_path)
    rows = json.loads(source.with_suffix(".json").read_text())["rows"]
    table = Table(tmp_path / "vector-cow")
    assert state(table) == rows
    first = table.scan(filter="id = 1").to_arrow()
    position = first.schema.get_field_index("emb")
    table.upsert(first.set_column(position, "emb", pa.array([[1, 2, 3, 4]])))
    assert state(table) == [{**rows[0], "emb": [1.0, 2.0, 3.0, 4.0]}, *rows[1:]]
    assert table.validate().ok
