"""VARIANT columns: their files, other libraries, and SQL. test_hudi_types.py has writes, services and queries."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.hudi_types import VARIANT_TYPE
from tests.support.vectors import ROOT

EXTENSION = {"ARROW:extension:name": "arrow.parquet.variant", "ARROW:extension:metadata": ""}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("ts", pa.int64()),
        pa.field("v", VARIANT_TYPE, metadata={"hudi_type": "VARIANT"}),
        pa.field("other", VARIANT_TYPE, metadata=EXTENSION),
    ]
)
Rows = dict[int, tuple[int, str | None, str | None]]


def frame(rows: Rows) -> pa.Table:
    texts = [hp.variant_from_json([row[column] for row in rows.values()]) for column in (1, 2)]
    return pa.table([list(rows), [row[0] for row in rows.values()], *texts], schema=SCHEMA)


def row(id_: int, ts: int, *, null: bool = False) -> tuple[int, str | None, str | None]:
    return ts, None if null else f'{{"a":{{"b":{id_}}},"ts":{ts}}}', ("null", "[1,2]", '"text"')[id_ % 3]


def state(table: Table, **query: Any) -> Rows:
    found = table.scan(**query).to_arrow()
    columns = [found["id"].to_pylist(), found["ts"].to_pylist()]
    columns += [hp.variant_to_json(found[name]).to_pylist() for name in ("v", "other")]
    return {id_: tuple(rest) for id_, *rest in sorted(zip(*columns, strict=True), key=lambda values: values[0])}


def create(path: Path, table_type: str = "cow", **options: str) -> Table:
    return Table.create(path, record_key="id", ordering="ts", table_type=table_type, schema=SCHEMA, options=options)


def test_schema_and_files_are_those_of_hudi(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(frame({1: row(1, 1)}))
    schema = json.loads(dict(table.config.properties)["hoodie.table.create.schema"])
    fields = {field["name"]: field["type"][1] for field in schema["fields"]}
    assert fields["v"] == {
        "type": "record",
        "name": "variant",
        "namespace": "",
        "fields": [
            {"name": "metadata", "type": "bytes", "doc": "Variant metadata component"},
            {"name": "value", "type": "bytes", "doc": "Variant value component"},
        ],
        "logicalType": "variant",
    }
    assert fields["other"] == "variant"
    (path,) = (tmp_path / "t").glob("*.parquet")
    assert pq.read_schema(path).field("v").type == VARIANT_TYPE
    assert pq.ParquetFile(path).schema.column(7).path == "v.metadata"


def test_other_libraries_know_the_type(tmp_path: Path) -> None:
    """DuckDB knows the extension of the result, and its variants are written, with their parts in another order."""
    table = create(tmp_path / "t")
    table.upsert(frame({1: row(1, 1), 2: row(2, 1)}))
    found = table.scan().to_arrow()
    with duckdb.connect() as connection:
        connection.register("found", found)
        assert connection.sql("SELECT v.a.b::INT FROM found ORDER BY id").fetchall() == [(1,), (2,)]
        made = connection.sql("SELECT 3::BIGINT AS id, 1::BIGINT AS ts, '[1]'::JSON::VARIANT AS v, NULL::VARIANT AS other")
        table.upsert(made.to_arrow_table())
    table.upsert(found)
    assert list(state(table)) == [1, 2, 3] and state(table)[3][1] == "[1]"
    for read in (hp.scan_polars(table.uri).filter(pl.col("id") == 1).collect(), table.scan(filter="id = 1").to_polars()):
        assert read["v"].dtype == pl.Struct({"metadata": pl.Binary, "value": pl.Binary})
    reordered = pa.array(
        [{"value": b"\x0c\x07", "metadata": b"\x01\x00\x00"}],
        pa.struct([("value", pa.large_binary()), ("metadata", pa.binary())]),
    )
    table.upsert(pa.table({"id": [3], "ts": [5], "v": reordered, "other": pa.nulls(1)}))
    assert state(table)[3] == (5, "7", None)


@pytest.mark.parametrize(
    ("value", "type_", "message"),
    [
        ({"metadata": b"\x01\x00\x00", "value": None}, None, r"column 'v.value' may not be null: row 0"),
        ({"metadata": b"\x01\x00\x00"}, None, "column 'v.value' is missing"),
        ({"metadata": b"", "value": b"", "more": 1}, None, "a column of type VARIANT takes struct"),
        ('{"a": 1}', pa.string(), "a column of type VARIANT takes struct"),
    ],
)
def test_invalid_variant_value_is_rejected(tmp_path: Path, value: Any, type_: Any, message: str) -> None:
    table = create(tmp_path / "t")
    table.upsert(frame({1: row(1, 1)}))
    before = state(table)
    for mode in ("merge", "evolve"):
        with pytest.raises(InvalidRequest, match=message):
            rows = {"id": [1], "ts": [3], "v": pa.array([value], type_), "other": pa.nulls(1)}
            table.upsert(pa.table(rows), options={"pyhudi.schema.mode": mode})
    assert state(table) == before


def test_sql_creates_writes_and_queries_variants(tmp_path: Path) -> None:
    name = f"hudi.`{tmp_path}/t`"
    hp.sql(f"CREATE TABLE {name} (id INT, v VARIANT) USING hudi TBLPROPERTIES (primaryKey='id', type='mor')")
    values = ['{"a": {"b": 1}, "n": "x"}', '{"a": {"b": "7"}}', None, "[1]"]
    texts = ", ".join(f"({i}, {'NULL' if t is None else f'parse_json({t!r})'})" for i, t in enumerate(values, 1))
    hp.sql(f"INSERT INTO {name} VALUES {texts}")
    hp.sql(f"UPDATE {name} SET v = parse_json('{{\"a\":{{\"b\":10}}}}') WHERE try_variant_get(v, '$.a.b', 'int') = 7")
    found = hp.sql(
        "SELECT id, to_json(v) AS j, variant_get(v, '$.a.b', 'int') AS b, variant_get(v, '$.n', 'string') AS n "
        f"FROM {name} ORDER BY id"
    )
    assert found.to_pylist() == [
        {"id": 1, "j": '{"a":{"b":1},"n":"x"}', "b": 1, "n": "x"},
        {"id": 2, "j": '{"a":{"b":10}}', "b": 10, "n": None},
        {"id": 3, "j": None, "b": None, "n": None},
        {"id": 4, "j": "[1]", "b": None, "n": None},
    ]
    assert hp.sql(f"SELECT id FROM {name} WHERE variant_get(v, '$.a.b', 'bigint') > 1").to_pylist() == [{"id": 2}]
    rows = hp.Table(f"{tmp_path}/t").scan().to_arrow()
    assert hp.sql(
        "SELECT count(*) AS n FROM rows WHERE variant_get(v, '$.a.b', 'int') > 0", tables={"rows": rows}
    ).to_pylist() == [{"n": 2}]
    hp.sql(f"DELETE FROM {name} WHERE variant_get(v, '$[0]', 'int') = 1")
    hp.sql(f"INSERT INTO {name} SELECT id + 10, v FROM {name} WHERE id = 1")
    assert hp.sql(f"SELECT id, to_json(named_struct('x', id)) AS s FROM {name} ORDER BY id").to_pylist()[-1] == {
        "id": 11,
        "s": '{"x":11}',
    }
    assert {r["col_name"]: r["data_type"] for r in hp.sql(f"DESCRIBE {name}").to_pylist()}["v"] == "variant"
    assert "v VARIANT" in hp.sql(f"SHOW CREATE TABLE {name}").to_pylist()[0]["createtab_stmt"]
    for expression, error, message in (
        ("variant_get(v, '$.n', 'int')", InvalidRequest, 'row 0: variant_get: "x" is no int32'),
        ("variant_get(v, 'a', 'int')", InvalidRequest, "path"),
        ("variant_get(v, concat('$', '.a'), 'int')", InvalidRequest, "as text"),
        ("variant_get(v, '$.a', 'map<string,int>')", Unsupported, "variant_get to the type"),
        ("parse_json('{')", InvalidRequest, "not JSON"),
    ):
        with pytest.raises(error, match=message):
            hp.sql(f"SELECT {expression} FROM {name} WHERE id = 1")
    with pytest.raises(Unsupported, match="VARIANT"):
        hp.sql(f"CREATE TABLE hudi.`{tmp_path}/u` (id INT, v ARRAY<VARIANT>) USING hudi")


def test_arguments_of_the_functions_are_checked() -> None:
    values = hp.variant_from_json(["1", None])
    assert hp.variant_get(values, "$", "string").to_pylist() == ["1", None]
    assert hp.variant_from_json(pa.chunked_array([["1"], ["2"]])).num_chunks == 2
    calls: list[Any] = [
        lambda: hp.variant_from_json([1]),
        lambda: hp.variant_from_json(pa.array([1])),
        lambda: hp.variant_to_json(pa.array(["x"])),
        lambda: hp.variant_to_json(7),
        lambda: hp.variant_get(values, "a", "int"),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest):
            call()


def test_files_with_shredded_columns_are_read(tmp_path: Path) -> None:
    """A base file that another writer has shredded, in place of one of the table's."""
    table = create(tmp_path / "t", "mor", **{"hoodie.metadata.enable": "false"})
    rows = {i: row(i, 1, null=i == 3) for i in range(6)}
    table.upsert(frame(rows))
    (path,) = (tmp_path / "t").glob("*.parquet")
    stored = pq.read_table(path)
    footer = {
        key.decode(): value.decode()
        for key, value in (pq.read_metadata(path).metadata or {}).items()
        if b"hoodie" in key or b"avro" in key
    }
    with duckdb.connect() as connection:
        connection.register("stored", hp_extension(stored))
        entries = ", ".join(f"'{key}': '{value.replace(chr(39), chr(39) * 2)}'" for key, value in footer.items())
        connection.sql(f"COPY stored TO '{path}' (FORMAT parquet, KV_METADATA {{{entries}}})")
    assert pq.read_schema(path).field("v").type.get_field_index("typed_value") >= 0
    table = Table(table.uri, options={"hoodie.metadata.enable": "false"})
    assert state(table) == rows
    assert list(state(table, filter="variant_get(v, '$.a.b', 'int') = 4")) == [4]
    assert hp.sql(f"SELECT count(*) AS n FROM hudi.`{table.uri}` WHERE try_variant_get(v, '$.a.b', 'int') > 3").to_pylist() == [
        {"n": 2}
    ]
    table.upsert(frame({4: row(4, 5)}))
    rows[4] = row(4, 5)
    assert table.compact().runs and state(table) == rows and table.validate().ok


def hp_extension(rows: pa.Table) -> pa.Table:
    fields = [field.with_metadata(EXTENSION) if field.name in ("v", "other") else field for field in rows.schema]
    return pa.Table.from_arrays(rows.columns, schema=pa.schema(fields))


def test_table_of_hudi_with_variants(tmp_path: Path) -> None:
    source = ROOT / "v12" / "variant-mor.zip"
    if not source.exists():
        pytest.skip(f"no test vector {source}")
    zipfile.ZipFile(source).extractall(tmp_path)
    rows = json.loads(source.with_suffix(".json").read_text())["rows"]
    expected = [{**r, "v": r["v"] and {part: bytes.fromhex(text) for part, text in r["v"].items()}} for r in rows]
    table = Table(tmp_path / "variant-mor")
    found = table.scan().to_arrow().sort_by("id")
    assert found.to_pylist() == expected
    assert hp.variant_to_json(found["v"]).to_pylist() == [None, "null"]
    before = table.schema()
    table.upsert(found.set_column(1, "v", hp.variant_from_json(['{"x":1}', "2"])).set_column(2, "ts", pa.array([5, 5])))
    assert table.compact().runs and table.cluster(order_by="id").instant is not None and table.validate().ok
    assert hp.variant_to_json(table.scan().to_arrow().sort_by("id")["v"]).to_pylist() == ['{"x":1}', "2"]
    assert table.schema().equals(before, check_metadata=True)
