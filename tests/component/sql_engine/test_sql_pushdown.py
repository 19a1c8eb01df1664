"""Conditions of statements prune files and no matching row."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.sql_engine.duckdb_engine import read_spark
from pyhudi.sql_engine.sql_pushdown import equality_columns, is_exact_in_duckdb, table_predicate
from tests.support.opened_files import recorded

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("fare", pa.float64()),
        ("small", pa.float32()),
        ("cost", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("good", pa.bool_()),
        ("deep", pa.struct([("x", pa.int64())])),
    ]
)


@pytest.mark.parametrize(
    ("query", "known"),
    [
        ("SELECT * FROM t AS t WHERE id = 1 AND upper(city) = 'A'", "id = 1"),
        ("SELECT * FROM t AS x WHERE x.ID >= -3 AND 'sf' <> x.City", "id >= -3 AND city <> 'sf'"),
        ("SELECT * FROM t AS t WHERE id BETWEEN 1 AND 3", "id >= 1 AND id <= 3"),
        ("SELECT * FROM t AS t WHERE city IN ('a', 'b') AND id < 1", "city IN ('a', 'b') AND id < 1"),
        ("SELECT * FROM t AS t WHERE id = 1 OR NOT city = 'a'", "id = 1 OR NOT city = 'a'"),
        ("SELECT * FROM t AS t WHERE id = 1 OR upper(city) = 'A'", None),
        ("SELECT * FROM t AS t WHERE NOT (id = 1 AND city = 'a')", None),
        ("SELECT * FROM t AS t WHERE id IN (1, NULL) AND city IN (SELECT city FROM u) AND good IS NULL", "good IS NULL"),
        (
            "SELECT * FROM t AS t WHERE day >= DATE '2024-01-02' AND fare > 1.5 AND good = true",
            "day >= '2024-01-02' AND fare > 1.5 AND good = true",
        ),
        ("SELECT * FROM t AS t WHERE at < TIMESTAMP '2024-01-02 03:04:05'", "at < '2024-01-02 03:04:05'"),
        ("SELECT * FROM t AS t WHERE day > '2024-01-02' AND id = '1' AND small > 1.5 AND fare > 1e3 AND cost > 1e3", None),
        ("SELECT * FROM t AS t WHERE id + 1 = 2 AND id <=> 1 AND good AND deep.x = 1 AND id > city", None),
        ("SELECT * FROM t AS t JOIN u ON t.id = u.id WHERE t.id = 1 AND city = 'a'", "id = 1"),
        ("SELECT * FROM u JOIN t AS t ON t.id = u.id WHERE t.id = 1", "id = 1"),
        ("SELECT * FROM t AS t LEFT JOIN u ON t.id = u.id WHERE t.id = 1", "id = 1"),
        ("SELECT * FROM u LEFT JOIN t AS t ON t.id = u.id WHERE t.id IS NULL", None),
        ("SELECT * FROM t AS t RIGHT JOIN u ON t.id = u.id WHERE t.id = 1", None),
        ("SELECT * FROM u FULL JOIN v ON u.i = v.i JOIN t AS t ON t.id = u.id WHERE t.id = 1", None),
        ("SELECT * FROM u ANTI JOIN t AS t ON t.id = u.id WHERE u.id = 1", None),
        ("SELECT * FROM t AS t TABLESAMPLE (10 PERCENT) WHERE id = 1", None),
        ("SELECT * FROM t AS x(a, city) WHERE city = 'a'", None),
        ("SELECT * FROM (SELECT * FROM t AS t) WHERE id = 1", None),
        ("SELECT * FROM (SELECT * FROM t AS t WHERE id = 1) WHERE city = 'a'", "id = 1"),
        ("WITH c AS (SELECT id FROM t AS t WHERE id > 5) SELECT * FROM c, u WHERE u.id = 1", "id > 5"),
        ("SELECT id FROM u WHERE id = 2 UNION ALL SELECT id FROM t AS t WHERE id = 1", "id = 1"),
        ("SELECT (SELECT max(id) FROM t AS t WHERE t.id < u.id AND city = 'a') FROM u WHERE u.id = 1", "city = 'a'"),
        ("SELECT * FROM t AS t JOIN u ON t.id = u.id AND t.city = 'a' WHERE t.id = 1", "id = 1 AND city = 'a'"),
        ("SELECT * FROM u JOIN t AS t ON t.id = u.id AND t.city = 'a' JOIN v ON v.i = u.i AND t.id < 3", "id < 3 AND city = 'a'"),
        ("SELECT * FROM t AS t JOIN u ON t.id = 1 OR u.id = 1", None),
        ("SELECT * FROM u LEFT JOIN t AS t ON t.id = u.id AND t.city = 'a' WHERE t.id IS NULL", "city = 'a'"),
        ("SELECT * FROM u LEFT JOIN t AS t ON t.id = u.id JOIN v ON t.city IS NULL", None),
        ("SELECT * FROM t AS t LEFT JOIN u ON t.city = 'a' AND t.id = u.id WHERE t.id = 1", "id = 1"),
        ("SELECT * FROM t AS t FULL JOIN u ON t.city = 'a'", None),
        ("SELECT * FROM u FULL JOIN t AS t ON t.city = 'a'", None),
        ("SELECT * FROM t AS t ANTI JOIN u ON t.city = 'a' AND t.id = u.id", None),
        ("SELECT * FROM u ANTI JOIN t AS t ON t.city = 'a' AND t.id = u.id", "city = 'a'"),
        ("SELECT * FROM u RIGHT JOIN t AS t ON t.city = 'a' AND t.id = u.id", None),
        ("SELECT * FROM t AS t", None),
    ],
)  # fmt: skip
def test_predicate_that_a_query_pushes_down(query: str, known: str | None) -> None:
    found = table_predicate(read_spark(query), "t", COLUMNS, is_exact_in_duckdb)
    assert (found and bind(found, COLUMNS)) == (None if known is None else bind(parse_filter(known), COLUMNS))


def test_columns_that_a_condition_equates() -> None:
    tree = read_spark("(T.id = s.key AND s.City = t.city) AND t.x < s.x AND t.y <=> s.y AND t.z = t.w", expression=True)
    assert equality_columns(tree, "t", "s") == {"id": "key", "city": "city"}
    assert equality_columns(read_spark("t.id = s.id OR t.x = s.x", expression=True), "t", "s") == {}


@pytest.fixture
def trips(tmp_path: Path) -> hp.Table:
    """Four partitions of one file each, which the record key and `fare` distinguish too; nulls and NaN in some."""
    options = {"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True}
    table = hp.Table.create(
        tmp_path / "trips", name="trips", record_key="id", partition_by="city", ordering="id", options=options
    )
    numbers = range(16)
    at = [datetime(2024, 1, 1 + number // 4, tzinfo=UTC) for number in numbers]
    columns = {
        "id": list(numbers),
        "city": [f"c{number // 4}" for number in numbers],
        "fare": [math.nan if number == 5 else None if number == 9 else number / 2 for number in numbers],
        "small": [math.nan if number == 6 else number / 10 for number in numbers],
        "cost": [None if number == 2 else Decimal(number) / 4 for number in numbers],
        "day": [moment.date() for moment in at],
        "at": at,
        "wall": [moment.replace(tzinfo=None) for moment in at],
        "good": [None if number == 3 else number % 2 == 0 for number in numbers],
        "deep": [None if number == 4 else {"x": number} for number in numbers],
    }
    table.upsert(
        pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in COLUMNS], schema=COLUMNS), options=ZONE
    )
    return table


ZONE = {"pyhudi.timestamps.without.zone": "local"}
CONDITIONS = (
    "id = 6", "id <> 6", "id > 13.5", "id IN (3, 4, NULL)", "NOT id IN (3, 4)", "id NOT BETWEEN 2 AND 12", "-id > -2",
    "city = 'c1'", "city > 'c1' AND fare > 4", "NOT (city = 'c1' OR city = 'c2')", "fare > 2", "fare <= 2.25", "NOT fare < 4",
    "fare IS NULL", "fare IS NOT NULL AND fare <> 1", "fare = 'NaN'", "fare > 100", "fare >= 1e0", "small > 0.6", "small = 0.1",
    "cost > 1.25", "cost = 1.250", "cost > 2 OR cost IS NULL", "cost < 1e0", "day >= DATE '2024-01-03'", "day < '2024-01-02'",
    "day = TIMESTAMP '2024-01-02 00:00:00'", "at > TIMESTAMP '2024-01-02 00:00:00'", "at = '2024-01-03'",
    "at >= DATE '2024-01-04'",
    "wall <= TIMESTAMP '2024-01-02 00:00:00'", "wall = TIMESTAMP_NTZ '2024-01-03 00:00:00'", "good", "NOT good", "good = false",
    "good IS NULL", "deep IS NULL", "deep.x > 13", "id = '7'", "id > 99999999999999999999", "upper(city) = 'C1' AND id < 7",
)  # fmt: skip


def test_no_row_is_lost(trips: hp.Table) -> None:
    """DuckDB evaluates the conditions for each row; the condition for the table includes the rows for which they are true."""
    catalog = hp.Catalog()
    catalog.register("plain", trips.scan().to_arrow())
    every = ", ".join(f"({condition}) AS c{number}" for number, condition in enumerate(CONDITIONS))
    truth = hp.sql(f"SELECT id, {every} FROM plain", catalog=catalog).to_pylist()
    asked = 0
    for number, condition in enumerate(CONDITIONS):
        tree = read_spark(f"SELECT id FROM trips WHERE {condition}")
        known = table_predicate(tree, "trips", trips.schema(), is_exact_in_duckdb)
        asked += known is not None
        held = set(trips.scan(["id"], known).to_arrow().column("id").to_pylist())
        assert {row["id"] for row in truth if row[f"c{number}"]} <= held, condition
    assert asked > 20, "few conditions were understood"


def test_files_without_rows_for_a_statement_are_not_read(trips: hp.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = hp.Catalog()
    catalog.register("trips", trips.uri)
    opened = recorded(monkeypatch)

    def partitions(statement: str) -> list[str]:
        opened.clear()
        hp.sql(statement, catalog=catalog)
        return sorted({path.split("/")[0] for path in opened})

    source = "(SELECT CAST(7 AS BIGINT) AS id, 'c1' AS city, 9.5D AS fare UNION ALL SELECT 30, 'c2', 1.0D) AS s"
    assert partitions("SELECT max(fare) FROM trips WHERE id BETWEEN 5 AND 6") == ["c1"]
    assert partitions("SELECT count(*) FROM trips a JOIN trips b ON a.id = b.id WHERE a.city = 'c0' AND b.id = 13") == [
        "c0",
        "c3",
    ]
    assert partitions("SELECT * FROM trips a LEFT JOIN trips b ON a.id = b.id AND b.id = 13 WHERE a.city = 'c3'") == ["c3"]
    assert partitions("SELECT * FROM trips a JOIN trips b ON a.id = b.id AND a.city = 'c0' AND b.id = 13") == ["c0", "c3"]
    assert partitions("UPDATE trips SET fare = 1 WHERE city = 'c2' AND fare > 4") == ["c2"]
    assert partitions("DELETE FROM trips WHERE id = 15") == ["c3"]
    assert partitions(f"MERGE INTO trips t USING {source} ON t.id = s.id WHEN MATCHED THEN UPDATE SET fare = s.fare") == ["c1"]
    insert = "WHEN NOT MATCHED THEN INSERT (id, city, fare) VALUES (s.id, s.city, s.fare)"
    assert partitions(f"MERGE INTO trips t USING {source} ON t.id = s.id AND t.city = s.city {insert}") == ["c1"]
    by_target = "WHEN NOT MATCHED BY SOURCE AND t.fare < 0 THEN DELETE"
    assert partitions(f"MERGE INTO trips t USING {source} ON t.id = s.id {by_target}") == ["c0", "c1", "c2", "c3"]
    assert {row["id"]: row["fare"] for row in trips.scan(["id", "fare"], "id IN (7, 8, 15, 30)").to_arrow().to_pylist()} == {
        7: 9.5, 8: 4.0, 30: 1.0,
    }  # fmt: skip


def test_merge_insert_conflicts_with_a_key_in_a_pruned_file(trips: hp.Table) -> None:
    catalog = hp.Catalog()
    catalog.register("trips", trips.uri)
    merge = "MERGE INTO trips t USING (SELECT CAST(13 AS BIGINT) AS id, 'c3' AS city) AS s ON t.id = s.id AND t.city = 'c0' "
    with pytest.raises(hp.InvalidRequest, match="record 13 would be added"):
        hp.sql(merge + "WHEN NOT MATCHED THEN INSERT (id, city) VALUES (s.id, s.city)", catalog=catalog)
