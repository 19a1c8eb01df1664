"""Columns of the types of Apache Hudi 1.2: Hudi and PyHudi read, write and service the same tables in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi

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


@pytest.mark.parametrize(
    ("kind", "version"),
    [("cow", 9), ("mor", 9), pytest.param("cow", 8, marks=pytest.mark.wide), pytest.param("mor", 8, marks=pytest.mark.full)],
)
def test_vectors_in_turn(newest_hudi: ApacheHudi, tmp_path: Path, kind: str, version: int) -> None:
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
