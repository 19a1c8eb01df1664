"""Public Hudi tables that other projects test with, and the rows that Apache Hudi 1.1.1 or 1.2.0 reads from them.

They are stored next to the checkout (../shared/vectors/foreign) and not in it; the tests are skipped without them.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import HudiError, Unsupported
from pyhudi.format.meta_columns import META_COLUMNS
from tests.support.vectors import ROOT, vector

READ = {
    "gold-table_delete_ord_decimal": "merge on read, version 9: deletes with decimals as ordering values",
    "gold-table_evo_promotion": "merge on read, version 9: widened columns",
    "hudi-checkpoint-v6__parquet-dfs-v1-fixture": "version 6: key generator class of the user",
    "hudi-hudi-v6-table-complex-keygen": "version 6 of 0.14.0: one key field under COMPLEX",
    "hudi-hudi-v9-table-complex-keygen": "version 9 of a 1.1.0 snapshot: HFiles of that snapshot",
    "hudi-resources__trips_logical_types_json_cow_read_v8": "times of older releases; statistics in milliseconds",
    "hudi-resources__trips_logical_types_json_mor_read_v9_parquet_log": "times of older releases under Parquet log blocks",
    "hudi-variant_cow": "VARIANT of Spark 4.0: value before metadata",
    "presto-hudi_mor_part_update": "version 6: a row whose partition column differs from its folder",
    "trinodelta-uniform_hudi": "version 6 of Delta UniForm, whose commits name no files",
}
REFUSED: dict[str, tuple[type[HudiError], str]] = {
    "hudi-hudi-v4-table": (Unsupported, "version 4"),
    "hudirs-v9_lance_nonpartitioned": (Unsupported, "LANCE"),
    "impala-hudi_parquet": (Unsupported, r"version 0 \(no hoodie.table.version\)"),
    "presto-stock_ticks_cown": (Unsupported, "version 3"),
    "starrocks-test_hudi_mor2": (Unsupported, "version 5"),
    "trino-hudi_cow_pt_tbl": (Unsupported, "version 5"),
    "trino-stock_ticks_mor": (Unsupported, "version 3"),
}
"""Tables of versions before 6 and of Lance files are not read."""

NO_INDEXES = {"hoodie.metadata.enable": False}


def unpacked(name: str, path: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(vector(f"foreign/{name}.zip"))) as archive:
        archive.extractall(path)
    folders = [path, *sorted(folder for folder in path.iterdir() if folder.is_dir())]
    return next(folder for folder in folders if (folder / ".hoodie").is_dir())


def plain(value: Any) -> Any:
    """A value of a row as the files of expected rows have it."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(part, tuple) for part in value):
        return {key: plain(part) for key, part in value}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, datetime):
        return "T" + value.replace(tzinfo=None).isoformat()
    if isinstance(value, date):
        return "d" + value.isoformat()
    if isinstance(value, bytes):
        return "b" + value.hex()
    return f"D{value.normalize():f}" if isinstance(value, Decimal) else value


def rounded(value: Any) -> Any:
    """A value of the files, whose numbers have nine digits."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    if isinstance(value, str) and value[:1] == "D" and value[1:].replace(".", "").replace("-", "").isdigit():
        return f"D{Decimal(value[1:]).normalize():f}"
    return pytest.approx(value, rel=1e-8) if isinstance(value, float) else value


def by_key(rows: list[dict[str, Any]], convert: Callable[[Any], Any] = plain) -> dict[Any, dict[str, Any]]:
    found = {(row.get("_hoodie_record_key"), row.get("id")): convert(row) for row in rows}
    assert len(found) == len(rows), "keys are unique"
    return found


def expected(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(vector(f"foreign/{name}.json"))
    return rows


def row_texts(rows: pa.Table) -> list[str]:
    return sorted(json.dumps(plain(row), sort_keys=True) for row in rows.to_pylist())


WAYS: dict[str, Callable[[Table], pa.Table]] = {
    "snapshot": lambda table: table.scan(["*"]).to_arrow(),
    "without indexes": lambda table: Table(table.uri, options=NO_INDEXES).scan(["*"]).to_arrow(),
    "time travel": lambda table: table.scan(["*"], as_of="2099-01-01").to_arrow(),
    "sql": lambda table: hp.sql("SELECT * FROM t", tables={"t": table}),
    "polars": lambda table: hp.scan_polars(table.uri, columns=["*"]).collect().to_arrow(),
    "dataset": lambda table: table.scan(["*"]).to_dataset().to_table(),
}


def test_every_public_table_has_an_expectation() -> None:
    vector("foreign/README.md")
    assert {path.stem for path in (ROOT / "foreign").glob("*.zip")} == {*READ, *REFUSED}


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("name", sorted(READ))
def test_rows_are_those_of_apache_hudi(name: str, way: str, tmp_path: Path) -> None:
    table = Table(unpacked(name, tmp_path))
    assert by_key(WAYS[way](table).to_pylist()) == by_key(expected(name), rounded)


@pytest.mark.parametrize("name", sorted(READ))
def test_filters_find_what_reads_show(name: str, tmp_path: Path) -> None:
    """Every value of every column that filters support, with and without the metadata table."""
    table = Table(unpacked(name, tmp_path))
    rows = table.scan(["*"]).to_arrow()
    for options in ({}, NO_INDEXES):
        opened = Table(table.uri, options=options)
        for field in rows.schema:
            if pa.types.is_nested(field.type) or pa.types.is_floating(field.type):
                continue
            column = rows.column(field.name)
            for value in column.unique().drop_null().to_pylist()[:3]:
                found = opened.scan([field.name], filter=[(field.name, "=", value)]).to_arrow().num_rows
                assert found == sum(other == value for other in column.to_pylist()), (field.name, value)


@pytest.mark.parametrize("name", sorted(READ))
def test_incremental_and_read_optimized_rows_are_of_the_snapshot(name: str, tmp_path: Path) -> None:
    table = Table(unpacked(name, tmp_path))
    rows = expected(name)
    keys = {row["_hoodie_record_key"] for row in rows}
    if rows:
        assert {row["_hoodie_record_key"] for row in table.incremental("earliest", columns=["*"]).to_arrow().to_pylist()} >= keys
    assert table.count() == len(rows)
    optimized = table.read_optimized(["*"]).to_arrow()
    if table.context.config.is_cow:
        assert by_key(optimized.to_pylist()) == by_key(rows, rounded)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_tables_are_refused(name: str, tmp_path: Path) -> None:
    error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        Table(unpacked(name, tmp_path)).scan().to_arrow()


@pytest.mark.parametrize(
    "name",
    [
        "hudi-resources__trips_logical_types_json_cow_read_v8",
        "hudi-resources__trips_logical_types_json_mor_read_v9_parquet_log",
        "hudi-variant_cow",
        "gold-table_evo_promotion",
    ],
)
def test_tables_are_written_on(name: str, tmp_path: Path) -> None:
    """A row is written again, others stay; the times of old files survive merges and rewrites."""
    table = Table(unpacked(name, tmp_path))
    data = table.scan().to_arrow()
    before = row_texts(data)
    table.upsert(data.slice(0, 1))
    assert row_texts(table.scan().to_arrow()) == before
    if not table.context.config.is_cow:
        table.compact()
        assert row_texts(table.scan().to_arrow()) == before
    assert table.validate().ok, str(table.validate())
    assert not {*META_COLUMNS} & {*data.column_names}
