"""Embedded SQL statements that the shared suite does not cover."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import stated_hudi_type
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.sql_engine import duckdb_engine

Sql = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def catalog(tmp_path: Path) -> hp.Catalog:
    return hp.Catalog(warehouse=tmp_path / "warehouse")


@pytest.fixture
def sql(catalog: hp.Catalog) -> Sql:
    return lambda text: hp.sql(text, catalog=catalog).to_pylist()


@pytest.fixture
def trips(sql: Sql, tmp_path: Path) -> hp.Table:
    """Two rows in two partitions, under the name trips."""
    sql("""
        CREATE TABLE trips (id BIGINT, city STRING, fare DOUBLE COMMENT 'in euros', ts BIGINT) USING hudi
        PARTITIONED BY (city) TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')
    """)
    sql("INSERT INTO trips VALUES (1, 10.0, 1, 'sf'), (2, 20.0, 1, 'ny')")
    return hp.Table(tmp_path / "warehouse" / "trips")


def test_a_query_over_tables_rows_and_paths(sql: Sql, catalog: hp.Catalog, trips: hp.Table) -> None:
    catalog.register("Names", pa.table({"city": ["sf", "ny"], "long": ["San Francisco", "New York"]}))
    query = f"""
        WITH t AS (SELECT city, sum(fare) AS total FROM hudi.`{trips.uri}` GROUP BY city)
        SELECT n.long, t.total / 4 AS part, a.id FROM t JOIN names n USING (city)
        JOIN trips a ON a.city = n.city JOIN trips ON trips.id = a.id ORDER BY 1 DESC
    """
    assert sql(query) == [{"long": "San Francisco", "part": 2.5, "id": 1}, {"long": "New York", "part": 5.0, "id": 2}]


def test_a_star_gives_the_meta_columns_too_and_an_insert_leaves_them_out(sql: Sql, trips: hp.Table) -> None:
    assert list(sql("SELECT * FROM trips")[0]) == trips.schema(meta_columns=True).names
    assert list(sql("SELECT t FROM trips t WHERE id = 1")[0]["t"])[5:] == ["id", "fare", "ts", "city"]
    sql("CREATE TABLE copy USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT * FROM trips")
    sql("INSERT INTO copy SELECT * FROM trips")
    assert sql("SELECT id, count(*) AS n FROM copy GROUP BY id ORDER BY id") == [{"id": 1, "n": 2}, {"id": 2, "n": 2}]


def test_only_the_columns_that_a_query_names_are_read(sql: Sql, trips: hp.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    scan = hp.Table.scan

    def watched(table: hp.Table, columns: Any, *more: Any, **options: Any) -> hp.Scan:
        asked.append(columns)
        return scan(table, columns, *more, **options)

    monkeypatch.setattr(hp.Table, "scan", watched)
    assert sql("SELECT upper(City) AS c FROM trips WHERE fare > 15") == [{"c": "NY"}]
    assert sql("SELECT count(*) AS n FROM trips") == [{"n": 2}]
    assert sql("SELECT count(1) AS n FROM (SELECT * FROM trips)") == [{"n": 2}]
    assert asked == [["fare", "city"], ["city"], ["*"]]


def test_time_travel_and_what_changed(sql: Sql, trips: hp.Table) -> None:
    first = trips.timeline().completed_writes()[-1]
    sql("INSERT INTO trips VALUES (1, 99.0, 2, 'sf')")
    assert sql(f"SELECT fare FROM trips TIMESTAMP AS OF '{first.request_time}' WHERE id = 1") == [{"fare": 10.0}]
    assert sql(f"SELECT fare FROM trips VERSION AS OF {first.request_time} WHERE id = 1") == [{"fare": 10.0}]
    last = trips.timeline().completed_writes()[-1]
    changed = f"SELECT id, fare FROM hudi_table_changes('trips', 'latest_state', '{last.completion_time}')"
    assert sql(changed) == [{"id": 1, "fare": 99.0}]
    assert len(sql(f"SELECT Action FROM hudi_query_timeline('{trips.uri.removeprefix('file:')}')")) == 2
    view = "SELECT Partition_Path AS p, Base_Instant_Time = '{}' AS old FROM hudi_filesystem_view('trips'{}) ORDER BY 1, 2"
    every = [{"p": "city=ny", "old": True}, {"p": "city=sf", "old": False}, {"p": "city=sf", "old": True}]
    for arguments, rows in (("", every), (", '*'", every), (", 'city=s*'", every[1:]), (", '/city=ny/'", every[:1])):
        assert sql(view.format(first.request_time, arguments)) == rows
    with pytest.raises(hp.InvalidRequest, match="takes 3 to 4 arguments"):
        sql("SELECT * FROM hudi_table_changes('trips')")
    with pytest.raises(hp.InvalidRequest, match="'snapshot' or 'read_optimized'"):
        sql("SELECT * FROM hudi_query('trips', 'real_time')")


def test_values_equal_those_of_spark_where_duckdb_differs(sql: Sql) -> None:
    casts = "CAST(1.9 AS INT) AS a, CAST(-1.5D AS BIGINT) AS b, CAST('12' AS INT) AS c, TRY_CAST('x' AS INT) AS d"
    assert sql(f"SELECT {casts}, 7 / 2 AS e") == [{"a": 1, "b": -1, "c": 12, "d": None, "e": 3.5}]
    with pytest.raises(hp.InvalidRequest, match="no whole number: 1x"):
        sql("SELECT CAST('1x' AS INT)")
    with pytest.raises(hp.Unsupported, match="function hash"):
        sql("SELECT hash(1)")
    with pytest.raises(hp.Unsupported, match=r"does not support the function: .*soundalike"):
        sql("SELECT soundalike(1)")


def test_no_query_reaches_files_or_variables_of_other_functions(sql: Sql, tmp_path: Path) -> None:
    other = pa.table({"a": [1]})
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert other.num_rows
    for source in ("other", f"`{tmp_path}/a.csv`", f"read_csv('{tmp_path}/a.csv')"):
        with pytest.raises(hp.HudiError):
            sql(f"SELECT * FROM {source}")


def test_names(sql: Sql, catalog: hp.Catalog, trips: hp.Table, tmp_path: Path) -> None:
    trips_row = {"namespace": "default", "tableName": "trips", "isTemporary": False}
    assert sql("SHOW TABLES") == [trips_row]
    with pytest.raises(hp.TableExists, match="table Trips exists already"):
        sql("CREATE TABLE Trips (id INT) USING hudi")
    assert sql("CREATE TABLE IF NOT EXISTS Trips (other INT) USING hudi") == []
    sql(f"CREATE TABLE again USING hudi LOCATION '{trips.uri}'")
    assert sql("SELECT count(*) AS n FROM AGAIN") == [{"n": 2}]
    assert sql("SHOW TABLES LIKE 'TR*|x'") == sql("SHOW TABLES 'trips'") == [trips_row]
    assert len(sql("SHOW TABLES IN default LIKE '*'")) == 2 and sql("SHOW TABLES LIKE 'trip'") == []
    assert sql("DROP TABLE again") == [] and sql("DROP TABLE IF EXISTS again") == []
    with pytest.raises(hp.InvalidRequest, match=r"table again is not in the catalog \(it has trips\)"):
        sql("SELECT * FROM again")
    assert hp.Table.exists(trips.uri)
    with pytest.raises(hp.InvalidRequest, match="names no columns"):
        sql(f"CREATE TABLE none USING hudi LOCATION '{tmp_path}/none'")
    catalog.register("rows", pa.table({"a": [1]}))
    with pytest.raises(hp.InvalidRequest, match="rows is registered as rows in memory"):
        sql("INSERT INTO rows VALUES (1)")
    with pytest.raises(hp.InvalidRequest, match="has no location"):
        hp.sql("CREATE TABLE t (a INT) USING hudi", catalog=hp.Catalog())


def test_set_options_that_define_tables(sql: Sql, catalog: hp.Catalog, trips: hp.Table, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"SET hoodie\.datasource\.write\.hive_style_partitioning has no effect in SQL"):
        sql("SET hoodie.datasource.write.hive_style_partitioning = false")
    sql("SET hoodie.write.table.version = 9")
    sql("INSERT INTO trips VALUES (7, 1.0, 1, 'sf')")
    sql("CREATE TABLE nine (id INT, day STRING) USING hudi PARTITIONED BY (day) TBLPROPERTIES (primaryKey = 'id')")
    sql("CREATE TABLE eight (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id', 'hoodie.write.table.version' = '8')")
    sql("CREATE TABLE copied USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT 1 AS id")
    versions = [str(hp.Table(tmp_path / "warehouse" / name).config.version) for name in ("nine", "eight", "copied")]
    assert versions == ["9", "8", "9"]
    sql("INSERT INTO nine VALUES (1, 'mon')")
    assert sql("SHOW PARTITIONS nine") == [{"partition": "day=mon"}]
    with pytest.raises(hp.InvalidRequest, match="contradicts the table"):
        hp.sql("INSERT INTO trips VALUES (8, 1.0, 1, 'sf')", catalog=catalog, options={"hoodie.write.table.version": 9})


def test_set_operations_of_inserts(sql: Sql) -> None:
    sql("CREATE TABLE t (id INT, v INT) USING hudi TBLPROPERTIES (primaryKey = 'id', preCombineField = 'v')")
    assert sql("INSERT INTO t VALUES (1, 1)")[0]["operation"] == "upsert"
    with pytest.raises(hp.InvalidRequest, match=r"insert\.mode=lax is none of upsert, strict, non-strict"):
        sql("SET hoodie.sql.insert.mode = lax")
    sql("SET hoodie.sql.bulk.insert.enable = true")
    assert sql("INSERT INTO t VALUES (1, 2)")[0]["operation"] == "upsert"
    sql("SET hoodie.sql.insert.mode = non-strict")
    assert sql("INSERT INTO t VALUES (3, 3)")[0]["operation"] == "bulk_insert"
    sql("RESET hoodie.sql.bulk.insert.enable")
    assert sql("INSERT INTO t VALUES (1, 3)")[0]["rows_inserted"] == 1
    sql("RESET")
    sql("SET hoodie.datasource.write.operation = insert_overwrite_table")
    assert sql("INSERT OVERWRITE t VALUES (9, 9)")[0]["operation"] == "insert_overwrite_table"
    assert sql("SELECT id FROM t") == [{"id": 9}]


def test_properties_that_hudi_ignores(sql: Sql, tmp_path: Path) -> None:
    with pytest.warns(UserWarning) as caught:
        sql(
            "CREATE TABLE t (id INT, v INT) USING hudi TBLPROPERTIES (primaryKey = 'id', preCombineKey = 'v', tableType = 'mor', "
            "'hoodie.table.name' = 'other', 'hoodie.clustering.keygen.class' = 'a.b.C')"
        )
    assert [str(warning.message).partition(": property ")[2] for warning in caught] == [
        "preCombineKey has no effect, as in Hudi. Write preCombineField",
        "tableType has no effect, as in Hudi. Write type",
        "hoodie.clustering.keygen.class is unknown, and has no effect",
    ]
    config = hp.Table(tmp_path / "warehouse" / "t").config
    assert (config.name, config.is_cow, config.property("preCombineKey")) == ("t", True, "v")
    for wrong in ("primaryKeys = 'id'", "'hoodie.clean.commits.retaned' = '1'"):
        with pytest.raises(hp.InvalidRequest, match="mean"):
            sql(f"CREATE TABLE other (id INT) USING hudi TBLPROPERTIES ({wrong})")


def test_drop_of_a_managed_table_deletes_its_files(sql: Sql, catalog: hp.Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "warehouse" / "made"
    sql("CREATE TABLE made (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    sql(f"CREATE TABLE made_too USING hudi LOCATION '{folder}'")
    assert ("Type", "MANAGED") in [(row["col_name"], row["data_type"]) for row in sql("DESCRIBE EXTENDED made")]
    sql("DROP TABLE made_too")
    assert hp.Table.exists(folder)
    sql("ALTER TABLE made RENAME TO renamed")
    with pytest.raises(hp.TableExists):
        sql("CREATE TABLE made (id INT) USING hudi")
    sql(f"CREATE TABLE made_too USING hudi LOCATION '{folder}'")
    sql("DROP TABLE renamed")
    assert not folder.exists() and "made_too" not in catalog
    sql("CREATE TABLE made (id INT, text STRING) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    assert sql("SELECT text FROM made") == []
    shutil.rmtree(folder)
    sql("DROP TABLE made")
    catalog.register("made", folder)
    hp.Table.create(folder, record_key="id").insert({"id": [1]})
    sql("DROP TABLE made")
    assert hp.Table.exists(folder)


def test_the_catalog_of_the_process(tmp_path: Path) -> None:
    name = "of_the_process"
    try:
        hp.sql(f"CREATE TABLE {name} (id BIGINT) USING hudi LOCATION '{tmp_path}/t'")
        assert hp.sql(f"INSERT INTO {name} VALUES (1)").to_pylist()[0]["rows_inserted"] == 1
        hp.register(name, pa.table({"a": [7]}))
        assert hp.sql(f"SELECT a FROM {name}").to_pylist() == [{"a": 7}]
    finally:
        hp.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        ("TBLPROPERTIES (primaryKey = 'nope')", hp.InvalidRequest, "'nope' is not a column"),
        ("PARTITIONED BY (nope)", hp.InvalidRequest, "PARTITIONED BY nope"),
        ("TBLPROPERTIES ('hoodie.clean.polisy' = 'KEEP_LATEST_COMMITS')", hp.InvalidRequest, "mean hoodie.clean.policy"),
        ("TBLPROPERTIES ('hoodie.datasource.write.operation' = 'insert')", hp.InvalidRequest, "options="),
        ("TBLPROPERTIES (path = '/x')", hp.InvalidRequest, "LOCATION"),
        ("LOCATION 'memory://made' AS SELECT 1", hp.InvalidRequest, "remove the column list"),
    ],
)
def test_tables_that_are_not_made(sql: Sql, statement: str, kind: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=message):
        sql(f"CREATE TABLE t (id BIGINT, v STRING) USING hudi {statement}")
    assert not (tmp_path / "warehouse").exists() and sql("SHOW TABLES") == []


def test_a_query_that_fails_leaves_no_table(sql: Sql, tmp_path: Path) -> None:
    with pytest.raises(hp.InvalidRequest, match="no whole number"):
        sql("CREATE TABLE t USING hudi AS SELECT CAST(v AS INT) AS id FROM VALUES ('1'), ('x') AS g (v)")
    assert not hp.Table.exists(tmp_path / "warehouse" / "t") and sql("SHOW TABLES") == []


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO trips VALUES (1, 1.0, 1)", r"takes 4 columns \(id, fare, ts, city\), but the query has 3"),
        ("INSERT INTO trips (id, ID) VALUES (1, 2)", "assigns column id twice"),
        ("INSERT INTO trips (id, nope) VALUES (1, 2)", "has no column nope"),
        ("INSERT INTO trips PARTITION (fare = 1) VALUES (1, 1, 'sf')", "fare, which is not a partition column"),
        ("SHOW PARTITIONS trips PARTITION (fare = 1)", "not partitioned by fare"),
        ("ALTER TABLE trips DROP COLUMN nope", "has no column nope"),
        ("CALL show_commits('trips', 1, 2, 3)", "takes at most"),
        ("CALL show_commits('trips', table => 'trips')", "argument table twice"),
        ("CALL show_commitz('trips')", "did you mean show_commits"),
        ("SELECT nope FROM trips", "column nope does not exist"),
    ],
)
def test_statements_that_do_not_fit_the_table(sql: Sql, trips: hp.Table, statement: str, message: str) -> None:
    before = len(trips.timeline().instants)
    with pytest.raises(hp.InvalidRequest, match=message):
        sql(statement)
    assert len(trips.timeline().instants) == before


def test_rows_by_name(sql: Sql, trips: hp.Table) -> None:
    sql("INSERT INTO trips BY NAME SELECT 'la' AS city, 5 AS TS, 3 AS id")
    assert sql("SELECT id, city, fare, ts FROM trips WHERE id = 3") == [{"id": 3, "city": "la", "fare": None, "ts": 5}]


def test_an_overwrite_of_a_partition_by_no_rows_empties_it(sql: Sql, trips: hp.Table) -> None:
    sql("INSERT OVERWRITE trips PARTITION (city = 'sf') SELECT id, fare, ts FROM trips WHERE id > 5")
    assert sql("SELECT id FROM trips") == [{"id": 2}]
    assert sql("SHOW PARTITIONS trips") == [{"partition": "city=ny"}]


def test_partitions_by_some_of_their_columns(sql: Sql) -> None:
    sql("CREATE TABLE whole (id INT) USING hudi")
    assert sql("SHOW PARTITIONS whole") == []
    sql("CREATE TABLE d (id INT, a STRING, b DATE) USING hudi PARTITIONED BY (a, b)")
    sql("INSERT INTO d VALUES (1, 'x', DATE '2024-01-02'), (2, 'x', DATE '2024-01-03'), (3, 'xy', DATE '2024-01-02')")
    assert len(sql("SHOW PARTITIONS d PARTITION (a = 'x')")) == 2
    sql("ALTER TABLE d DROP PARTITION (a = 'x', b = '2024-01-02')")
    assert sorted(row["id"] for row in sql("SELECT id FROM d")) == [2, 3]
    for partition in ("b = '2024-01-02'", "a = 'x/y'"):
        with pytest.raises(hp.Unsupported):
            sql(f"TRUNCATE TABLE d PARTITION ({partition})")
    sql("TRUNCATE TABLE d PARTITION (a = 'x')")
    assert sql("SELECT id FROM d") == [{"id": 3}]
    sql("TRUNCATE TABLE d")
    assert sql("SELECT id FROM d") == []


def test_columns_are_changed(sql: Sql, trips: hp.Table) -> None:
    sql("ALTER TABLE trips ADD COLUMNS (tip INT COMMENT 'for the driver' AFTER fare, note STRING)")
    sql("ALTER TABLE trips ALTER COLUMN tip TYPE BIGINT")
    sql("ALTER TABLE trips RENAME COLUMN Fare TO price")
    sql("ALTER TABLE trips ALTER COLUMN price COMMENT 'net'")
    sql("ALTER TABLE trips ADD COLUMNS (place STRUCT<x: INT>, tags ARRAY<INT>)")
    sql("ALTER TABLE trips ADD COLUMN place.y STRING FIRST")
    sql("ALTER TABLE trips ALTER COLUMN place.x FIRST")
    sql("ALTER TABLE trips ALTER COLUMN tags.element TYPE BIGINT")
    sql("ALTER TABLE trips ALTER COLUMN price DROP NOT NULL")
    struct = pa.struct({"x": pa.int32(), "y": pa.string()})
    assert [trips.schema().field(name).type for name in ("place", "tags")] == [struct, pa.list_(pa.field("element", pa.int64()))]
    sql("ALTER TABLE trips DROP COLUMNS note, place.y, tags")
    sql("ALTER TABLE trips DROP COLUMN place")
    found = sql("DESCRIBE TABLE trips")[5:]
    assert [(row["col_name"], row["data_type"], row["comment"]) for row in found] == [
        ("id", "bigint", None),
        ("price", "double", "net"),
        ("tip", "bigint", "for the driver"),
        ("ts", "bigint", None),
        ("city", "string", None),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("city", "string", None),
    ]
    assert sql("SELECT id, price, tip FROM trips WHERE id = 1") == [{"id": 1, "price": 10.0, "tip": None}]
    instants = len(trips.timeline().instants)
    with pytest.raises(hp.Unsupported, match="FIRST"):
        sql("ALTER TABLE trips ADD COLUMNS (a INT, b INT FIRST)")
    assert len(trips.timeline().instants) == instants


def test_drop_not_null_of_a_nullable_column_does_nothing(sql: Sql, trips: hp.Table) -> None:
    sql("ALTER TABLE trips ADD COLUMNS (s STRUCT<a: INT>, li ARRAY<STRUCT<a: INT>>, m MAP<STRING, INT>)")
    instants = len(trips.timeline().instants)
    for column in ("fare", "s", "s.a", "li.element.a", "m.value"):
        sql(f"ALTER TABLE trips ALTER COLUMN {column} DROP NOT NULL")
    assert len(trips.timeline().instants) == instants
    with pytest.raises(hp.InvalidRequest, match=r"no column 's\.b'"):
        sql("ALTER TABLE trips ALTER COLUMN s.b DROP NOT NULL")
    sql("CREATE TABLE parts (id INT, s STRUCT<a: INT NOT NULL>) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    sql("INSERT INTO parts SELECT 1, named_struct('a', 2)")
    for _ in range(2):
        sql("ALTER TABLE parts ALTER COLUMN s.a DROP NOT NULL")
    sql("INSERT INTO parts SELECT 2, named_struct('a', CAST(NULL AS INT))")
    assert sql("SELECT id, s.a AS a FROM parts ORDER BY id") == [{"id": 1, "a": 2}, {"id": 2, "a": None}]


def test_properties_and_procedures(sql: Sql, trips: hp.Table) -> None:
    assert sql("SHOW TBLPROPERTIES trips ('hoodie.table.name')") == [{"key": "hoodie.table.name", "value": "trips"}]
    assert {"key": "hoodie.table.recordkey.fields", "value": "id"} in sql("SHOW TBLPROPERTIES trips")
    assert sql("CALL show_commits('trips', 5)") == sql(f"CALL show_commits(path => '{trips.uri}')")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(hp.InvalidRequest, match=r'SQL needs duckdb, .* pip install "pyhudi\[sql\]"'):
        hp.sql("SELECT 1")


def test_options_are_those_of_writes(catalog: hp.Catalog, trips: hp.Table) -> None:
    strict = {"pyhudi.schema.mode": "strict"}
    assert hp.sql("INSERT INTO trips VALUES (3, 1, 1, 'sf')", catalog=catalog, options=strict).num_rows == 1
    for statement, options in (("SELECT 1", strict), ("INSERT INTO trips VALUES (3, 1, 1, 'sf')", {"as.of.instant": "2024"})):
        with pytest.raises(hp.InvalidRequest, match=r"options= apply to writes|no effect on"):
            hp.sql(statement, catalog=catalog, options=options)


def test_updates_and_deletes_with_queries_within(sql: Sql, catalog: hp.Catalog, trips: hp.Table) -> None:
    catalog.register("gone", pa.table({"id": [2]}))
    assert sql("UPDATE trips AS t SET t.Fare = (SELECT max(fare) FROM trips) + t.fare, ts = 7 WHERE t.id = 1") == [
        {"operation": "upsert", "instant": trips.timeline().instants[-1].request_time}
        | {"rows_in": 1, "rows_combined": 0, "rows_inserted": 0, "rows_updated": 1, "rows_unchanged": 0, "rows_deleted": 0}
    ]
    assert sql("SELECT id, fare, ts FROM trips WHERE id = 1") == [{"id": 1, "fare": 30.0, "ts": 7}]
    assert sql("DELETE FROM trips WHERE id IN (SELECT id FROM gone)")[0]["rows_deleted"] == 1
    assert sql("SELECT id FROM trips") == [{"id": 1}]
    assert sql("DELETE FROM trips")[0]["rows_deleted"] == 1


def test_columns_that_stay_keep_their_values(sql: Sql, tmp_path: Path) -> None:
    struct = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    columns = pa.schema({"id": pa.int64(), "m": pa.map_(pa.string(), pa.int64()), "s": struct, "t": pa.timestamp("us", "UTC")})
    columns = (
        columns.append(pa.field("d", pa.decimal128(20, 5))).append(pa.field("b", pa.binary())).append(pa.field("n", pa.int32()))
    )
    row = {
        "id": 1,
        "m": [("k", 1), ("l", None)],
        "s": {"a": None, "b": ["x", None]},
        "t": 5,
        "d": Decimal("1.00001"),
        "b": b"\x00\xff",
    }
    table = hp.Table.create(tmp_path / "t", record_key="id", schema=columns)
    table.upsert(pa.Table.from_pylist([{**row, "n": 1}, {"id": 2}], columns))
    before = table.scan(filter="id = 1").to_arrow()
    sql(f"UPDATE hudi.`{table.uri}` SET n = 7 WHERE id = 1")
    after = table.scan(filter="id = 1").to_arrow()
    assert after.column("n").to_pylist() == [7]
    assert after.drop_columns("n").equals(before.drop_columns("n"))


def test_every_clause_of_a_merge(sql: Sql, catalog: hp.Catalog, trips: hp.Table) -> None:
    sql("INSERT INTO trips VALUES (3, 30.0, 1, 'sf'), (4, 40.0, 1, 'sf')")
    catalog.register("new", pa.table({"ID": [1, 9], "fare": [5, 9], "city": ["sf", "la"]}))
    done = sql("""
        MERGE INTO trips t USING new s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET fare = t.fare + s.fare
        WHEN NOT MATCHED BY TARGET THEN INSERT (id, city, ts) VALUES (s.id, s.city, s.fare + 1)
        WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN UPDATE SET fare = t.fare * 2
        WHEN NOT MATCHED BY SOURCE AND t.city = 'sf' THEN DELETE
    """)
    assert [done[0][name] for name in ("rows_inserted", "rows_updated", "rows_deleted")] == [1, 2, 1]
    assert sql("SELECT id, fare, ts, city FROM trips ORDER BY id") == [
        {"id": 1, "fare": 15.0, "ts": 1, "city": "sf"},
        {"id": 2, "fare": 20.0, "ts": 1, "city": "ny"},
        {"id": 3, "fare": 60.0, "ts": 1, "city": "sf"},
        {"id": 9, "fare": None, "ts": 10, "city": "la"},
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE trips SET nope = 5", "cannot assign 'nope'"),
        ("UPDATE trips SET fare = 1, FARE = 2", "FARE is assigned twice"),
        ("DELETE FROM trips WHERE nope = 1", "nope"),
        (
            "MERGE INTO trips t USING (SELECT 2 AS tip) s ON t.id = s.tip WHEN MATCHED THEN UPDATE SET *",
            "has none of the columns",
        ),
        (
            "MERGE INTO trips t USING (VALUES (1, 'new')) s(id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET fare = 2",
            "alias 's' names 1 columns, but its rows have 2",
        ),
        (
            "MERGE INTO trips t USING (SELECT * FROM two) AS s(id, fare, city) ON t.id = s.id WHEN MATCHED THEN DELETE",
            "alias 's' names 3 columns, but its rows have 4",
        ),
        (
            "MERGE INTO trips t USING (VALUES (1, 'new')) s(id, city, fare) ON t.id = s.id WHEN MATCHED THEN UPDATE SET fare = 2",
            "alias 's' names 3 columns, but its rows have 2",
        ),
        ("MERGE INTO trips t USING two s ON t.id IN (SELECT id FROM two) WHEN MATCHED THEN DELETE", "query within a condition"),
    ],
)
def test_changes_that_are_refused(sql: Sql, catalog: hp.Catalog, trips: hp.Table, statement: str, message: str) -> None:
    catalog.register("two", pa.table({"id": [1, 1], "fare": [1.0, 2.0], "city": ["sf", "other"], "ts": [5, 6]}))
    before = sql("SELECT * FROM trips")
    with pytest.raises(hp.InvalidRequest, match=message):
        sql(statement)
    assert sql("SELECT * FROM trips") == before


def test_properties_are_set_and_a_table_is_renamed(sql: Sql, catalog: hp.Catalog, trips: hp.Table) -> None:
    sql("ALTER TABLE trips SET SERDEPROPERTIES ('owner' = 'fares')")
    assert sql("SHOW TBLPROPERTIES trips ('owner')") == [{"key": "owner", "value": "fares"}]
    with pytest.raises(hp.InvalidRequest, match="property nothing does not exist"):
        sql("ALTER TABLE trips UNSET TBLPROPERTIES ('owner', 'nothing')")
    sql("ALTER TABLE trips UNSET TBLPROPERTIES IF EXISTS ('owner', 'nothing')")
    assert "owner" not in dict(hp.Table(trips.uri).config.properties)
    with pytest.raises(hp.InvalidRequest, match="cannot be set"):
        sql("ALTER TABLE trips SET TBLPROPERTIES (primaryKey = 'city')")
    catalog.register("taken", pa.table({"id": [1]}))
    with pytest.raises(hp.TableExists):
        sql("ALTER TABLE trips RENAME TO taken")
    with pytest.raises(hp.InvalidRequest, match="a path cannot be renamed"):
        sql(f"ALTER TABLE hudi.`{trips.uri}` RENAME TO rides")
    before = sql("SELECT * FROM trips")
    sql("ALTER TABLE trips RENAME TO rides")
    assert sql("SELECT * FROM rides") == before
    assert "trips" not in catalog and hp.Table(trips.uri).name == "rides"


def test_update_conflicts_with_a_concurrent_writer(sql: Sql, trips: hp.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyhudi.sql_engine import dml

    run = dml._UpdateRows.join
    overtaken: list[hp.WriteResult] = []

    def overtaking(*args: Any) -> Any:
        if not overtaken:
            overtaken.append(trips.upsert({"id": [1], "city": ["sf"], "fare": [100.0], "ts": [2]}))
        return run(*args)

    monkeypatch.setattr(dml._UpdateRows, "join", overtaking)
    sql("UPDATE trips SET fare = fare + 1 WHERE id = 1")
    assert overtaken and sql("SELECT fare FROM trips WHERE id = 1") == [{"fare": 101.0}]


# Tables, scans and frames by name


def test_tables_scans_and_frames_are_read_by_name(catalog: hp.Catalog, trips: hp.Table) -> None:
    catalog.register("trips", trips)
    catalog.register("first", trips.scan(as_of=trips.timeline().last_visible))
    catalog.register("batch", pa.RecordBatch.from_pydict({"city": ["sf"], "long": ["San Francisco"]}))
    rows = pl.DataFrame({"city": ["sf"], "short": ["SF"]})
    frame = pd.DataFrame({"city": ["sf"], "zone": [7]})
    query = """
        SELECT t.id, f.fare, b.long, r.short, p.zone FROM trips t JOIN first f USING (id)
        JOIN batch b ON b.city = t.city JOIN rows r ON r.city = t.city JOIN Frame p ON p.city = t.city
    """
    found = hp.sql(query, catalog=catalog, tables={"Rows": rows, "frame": frame}).to_pylist()
    assert found == [{"id": 1, "fare": 10.0, "long": "San Francisco", "short": "SF", "zone": 7}]


def test_variables_of_the_caller_are_read_by_name(trips: hp.Table) -> None:
    scan, lazy = trips.scan(["id", "fare"]), pl.LazyFrame({"id": [2], "more": ["x"]})
    query = "SELECT t.id, more FROM trips t JOIN scan s USING (id) JOIN lazy l USING (id)"
    assert hp.sql(query, catalog=hp.Catalog()).to_pylist() == [{"id": 2, "more": "x"}]
    assert [hp.sql(query, catalog=hp.Catalog()).num_rows for _ in range(2)] == [1, 1]
    assert scan.schema.names == [*lazy.collect_schema().names()[:1], "fare"]
    with pytest.raises(hp.InvalidRequest, match=r"variable query is of type str\)"):
        hp.sql("SELECT * FROM query", catalog=hp.Catalog())
    with pytest.raises(hp.InvalidRequest, match=r"\(no such variable\): register it, pass tables=, or write its path"):
        hp.sql("SELECT * FROM nowhere", catalog=hp.Catalog())
    for other in ("pa", "Decimal"):
        with pytest.raises(hp.InvalidRequest, match=f"variable {other} is of type"):
            hp.sql(f"SELECT * FROM {other}", catalog=hp.Catalog())


def test_explicit_names_win_over_the_catalog_and_the_catalog_over_variables(catalog: hp.Catalog) -> None:
    catalog.register("b", pa.table({"source": ["catalog"]}))
    catalog.register("a", pa.table({"source": ["catalog"]}))
    a = b = c = pa.table({"source": ["variable"]})
    assert a is b is c
    tables = {"A": pa.table({"source": ["tables"]})}
    query = "SELECT a.source AS a, b.source AS b, c.source AS c FROM a, b, c"
    assert hp.sql(query, tables=tables, catalog=catalog).to_pylist() == [{"a": "tables", "b": "catalog", "c": "variable"}]
    with pytest.raises(hp.InvalidRequest, match=r"not in the catalog \(it has a, b\) or in tables= \(with A\)"):
        hp.sql("SELECT * FROM d", tables=tables, catalog=catalog)


@pytest.mark.parametrize("rows", [iter([{"a": 1}]), pa.table({"a": [1]}).to_reader()])
def test_streams_cannot_be_registered(catalog: hp.Catalog, rows: object) -> None:
    with pytest.raises(hp.InvalidRequest, match="a stream cannot be registered as r: it can be read only once"):
        catalog.register("r", rows)
    with pytest.raises(hp.InvalidRequest, match="variable rows is of type"):
        hp.sql("SELECT * FROM rows", catalog=hp.Catalog())


@pytest.mark.parametrize("rows", [7, None, sys, pa.Table])
def test_register_rejects_values_that_are_no_table(catalog: hp.Catalog, rows: object) -> None:
    with pytest.raises(hp.InvalidRequest, match="cannot be registered as r: pass a Table, its path, a Scan"):
        catalog.register("r", rows)


def _codecs(table: hp.Table, city: str) -> set[str]:
    files = Path(table.uri.removeprefix("file:")).glob(f"city={city}/*.parquet")
    return {pq.ParquetFile(file).metadata.row_group(0).column(0).compression for file in files}


def test_statements_change_tables_by_variable_with_the_options_of_both(trips: hp.Table) -> None:
    slow = hp.Table(trips.uri, options={"hoodie.parquet.compression.codec": "snappy"})
    hp.sql(
        "INSERT INTO slow VALUES (3, 30.0, 1, 'la')", catalog=hp.Catalog(), options={"hoodie.parquet.compression.codec": "gzip"}
    )
    assert _codecs(slow, "la") == {"GZIP"}
    hp.sql("UPDATE slow SET fare = fare + 1 WHERE id = 3", catalog=hp.Catalog())
    assert _codecs(slow, "la") == {"GZIP", "SNAPPY"}
    updates = pa.table({"id": [2], "city": ["ny"]})
    hp.sql("MERGE INTO trips t USING updates u ON t.id = u.id AND t.city = u.city WHEN MATCHED THEN DELETE", catalog=hp.Catalog())
    assert updates.num_rows == 1
    assert sorted(slow.scan(["id", "fare"]).to_arrow().to_pylist(), key=str) == [{"id": 1, "fare": 10.0}, {"id": 3, "fare": 31.0}]
    with trips.exclusive() as locked:
        hp.sql("DELETE FROM locked WHERE id = 3", catalog=hp.Catalog())
    assert locked.scan().count() == 1
    assert len(hp.sql("CALL show_commits(table => 'slow', limit => 2)", catalog=hp.Catalog())) == 2
    for statement in ("DROP TABLE trips", "ALTER TABLE trips RENAME TO rides", "INSERT INTO updates VALUES (1, 'sf')"):
        with pytest.raises(hp.HudiError, match=r"not in the catalog|not in PyHudi's catalog|requires a table"):
            hp.sql(statement, catalog=hp.Catalog())
    assert hp.sql("DROP TABLE IF EXISTS trips", catalog=hp.Catalog()).num_rows == 0


def test_a_query_reads_of_a_scan_what_it_needs(trips: hp.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    narrowed: list[tuple[object, int]] = []
    original = SnapshotQuery.narrowed

    def watched(query: SnapshotQuery, columns: Any, condition: Any) -> SnapshotQuery:
        result = original(query, columns, condition)
        narrowed.append((columns, len(result.tasks)))
        return result

    monkeypatch.setattr(SnapshotQuery, "narrowed", watched)
    scan, limited = trips.scan(), trips.scan(limit=1)
    assert hp.sql("SELECT id FROM scan WHERE city = 'ny'", catalog=hp.Catalog()).to_pylist() == [{"id": 2}]
    assert narrowed == [(["id", "city"], 1)]
    assert (
        sum([hp.sql(f"SELECT id FROM limited WHERE city = '{city}'", catalog=hp.Catalog()).num_rows for city in ("ny", "sf")])
        == 1
    )
    assert scan.limit is None and limited.limit == 1
    with pytest.raises(hp.InvalidRequest, match="have no history"):
        hp.sql("SELECT * FROM scan TIMESTAMP AS OF '2024-05-06'", catalog=hp.Catalog())


def test_a_view_in_a_condition(sql: Sql, trips: hp.Table) -> None:
    sql("CREATE VIEW ours AS SELECT id FROM trips WHERE city = 'sf'")
    sql("UPDATE trips SET fare = 100 WHERE id IN (SELECT id FROM ours) OR id = -1")
    assert {row["city"] for row in sql("SELECT city FROM trips WHERE fare = 100")} == {"sf"}


def test_create_as_keeps_types_of_hudi(tmp_path: Path) -> None:
    """Vectors, blobs and variants keep their types under other names too; computed lists do not become vectors."""
    source, target = (f"hudi.`{tmp_path / name}`" for name in ("a", "b"))
    hp.sql(
        f"CREATE TABLE {source} (id STRING, emb VECTOR(2), small VECTOR(3, INT8), b BLOB, v VARIANT) USING hudi "
        "TBLPROPERTIES (primaryKey = 'id')"
    )
    schema = hp.Table(tmp_path / "a").schema()
    blob = {"type": "INLINE", "data": b"x", "reference": None}
    rows: list[dict[str, Any]] = [
        {"id": "1", "emb": [1.5, -0.0], "small": [1, 2, 3], "b": blob, "v": {"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}},
        {"id": "2", "emb": None, "small": None, "b": None, "v": None},
    ]
    hp.Table(tmp_path / "a").upsert(pa.Table.from_pylist(rows, schema))
    hp.sql(
        f"CREATE TABLE {target} USING hudi TBLPROPERTIES (primaryKey = 'id') AS "
        f"SELECT id, emb AS e, small, b, v, list_transform(emb, x -> x + 1) AS list FROM {source}"
    )
    table = hp.Table(tmp_path / "b")
    assert [stated_hudi_type(field) for field in table.schema()] == [
        None,
        "VECTOR(2)",
        "VECTOR(3, INT8)",
        "BLOB",
        "VARIANT",
        None,
    ]
    found = sorted(table.scan(["id", "e", "small", "b", "v"]).to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [{"e" if name == "emb" else name: value for name, value in row.items()} for row in rows]


def test_options_of_create_index_are_those_of_the_build(tmp_path: Path) -> None:
    name = f"hudi.`{tmp_path / 't'}`"
    hp.sql(f"CREATE TABLE {name} USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT 'k' AS id, 'a' AS c, 1 AS n")
    groups = "'hoodie.metadata.global.record.level.index.min.filegroup.count'"
    hp.sql(f"CREATE INDEX record_index ON {name} (id) OPTIONS ({groups} = '3')")
    hp.sql(f"CREATE INDEX by_c ON {name} (c) OPTIONS ({groups} = '2')")
    metadata = tmp_path / "t" / ".hoodie" / "metadata"
    for partition, count in (("record_index", 3), ("secondary_index_by_c", 2)):
        groups_found = {found[1] for file in (metadata / partition).iterdir() if (found := re.search(r"-(\d{4})-0_", file.name))}
        assert len(groups_found) == count, sorted(groups_found)
    for wrong in ("'hoodie.no.such.option' = '1'", "foo = 'bar'"):
        with pytest.raises(hp.InvalidRequest, match=r"no\.such|foo"):
            hp.sql(f"CREATE INDEX by_n ON {name} (n) OPTIONS ({wrong})")
    assert hp.Table(tmp_path / "t").validate().ok


def test_the_source_of_a_merge_may_name_its_columns(sql: Sql, trips: hp.Table) -> None:
    source = "(VALUES (2, 'ny', 9.5), (7, 'sf', 0.5) -- id, city, fare\n) AS s(id, `city`, fare)"
    sql(f"MERGE INTO trips t USING {source} ON t.id = s.id AND t.city = s.city WHEN MATCHED THEN UPDATE SET fare = s.fare")
    assert sql("SELECT id, fare FROM trips WHERE city = 'ny'") == [{"id": 2, "fare": 9.5}]


def test_time_travel_has_the_columns_of_its_time(sql: Sql, trips: hp.Table) -> None:
    then = trips.timeline().completed_writes()[-1].request_time
    sql("ALTER TABLE trips RENAME COLUMN fare TO price")
    sql("ALTER TABLE trips ALTER COLUMN price TYPE STRING")
    past = f"trips TIMESTAMP AS OF '{then}'"
    assert sql(f"SELECT id, fare FROM {past} WHERE fare > 15") == [{"id": 2, "fare": 20.0}]
    assert sql(f"SELECT p.fare, t.price FROM {past} AS p JOIN trips AS t USING (id) WHERE id = 2") == [
        {"fare": 20.0, "price": "20.0"}
    ]
    with pytest.raises(hp.InvalidRequest, match="column price does not exist"):
        sql(f"SELECT price FROM {past}")


@pytest.mark.parametrize("sample", ["50 PERCENT", "BUCKET 1 OUT OF 2", "500 ROWS"])
def test_a_sample_chooses_single_rows(sample: str) -> None:
    numbers = pa.table({"id": list(range(1000))})
    counts = hp.sql(f"SELECT count(t.id) AS n FROM t TABLESAMPLE ({sample})", tables={"t": numbers})["n"].to_pylist()
    assert 300 < counts[0] < 700
    with pytest.raises(hp.InvalidRequest, match="BUCKET 1 OUT OF 0 is not between 0 and 100 percent"):
        hp.sql("SELECT * FROM t TABLESAMPLE (BUCKET 1 OUT OF 0)", tables={"t": numbers})


@pytest.mark.parametrize(
    ("relation", "names", "columns"),
    [
        ("(VALUES (1, 'a'), (2, 'b')) s(x)", 1, 2),
        ("VALUES (1, 'a'), (2, 'b') AS s(x)", 1, 2),
        ("(SELECT 1 AS a, 2 AS b UNION ALL SELECT 3, 4) AS s(x, y, z)", 3, 2),
        ("trips AS s(x)", 1, 9),
    ],
)
def test_alias_must_name_all_columns(sql: Sql, trips: hp.Table, relation: str, names: int, columns: int) -> None:
    with pytest.raises(hp.InvalidRequest, match=f"alias 's' names {names} columns, but its rows have {columns}$"):
        sql(f"SELECT * FROM {relation}")
    with pytest.raises(hp.InvalidRequest, match="alias 'c' names 1 columns, but its rows have 2"):
        sql("WITH c(x) AS (SELECT id, ts FROM trips) SELECT * FROM c")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM (SELECT posexplode(array(7))) z(a, b)", [{"a": 0, "b": 7}]),
        ("WITH c(a, b) AS (SELECT posexplode(array(7, 8))) SELECT b FROM c", [{"b": 7}, {"b": 8}]),
        ("SELECT * FROM (SELECT explode(array(7)) UNION ALL SELECT 8) z(a)", [{"a": 7}, {"a": 8}]),
        ("SELECT a, d FROM (t JOIN u ON t.id = u.id) AS j(a, b, c, d)", [{"a": 1, "d": "w"}]),
        ("SELECT a, d FROM ((SELECT * FROM t) x JOIN u ON x.id = u.id) AS j(a, b, c, d)", [{"a": 1, "d": "w"}]),
    ],
)
def test_alias_names_columns_of_generators_and_joins(query: str, rows: list[dict[str, Any]]) -> None:
    tables = {"t": pa.table({"id": [1, 2], "v": ["a", "b"]}), "u": pa.table({"id": [1], "v": ["w"]})}
    assert hp.sql(query, tables=tables).to_pylist() == rows


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("WITH c(a) AS (SELECT * FROM t) SELECT * FROM c", 2),
        ("WITH d AS (SELECT *, 1 AS x FROM t), s(a, b) AS (SELECT * FROM d) SELECT * FROM s", 3),
        ("SELECT * FROM (SELECT * FROM t, u) AS s(a, b, c)", 4),
        ("SELECT * FROM (SELECT x.*, u.v FROM t AS x JOIN u ON x.id = u.id) AS s(a, b)", 3),
        ("SELECT * FROM (SELECT * FROM (SELECT id FROM t) UNION ALL SELECT 1) AS s(a, b)", 1),
    ],
)
def test_alias_must_name_all_columns_of_a_star(query: str, columns: int) -> None:
    tables = {"t": pa.table({"id": [1, 2], "v": ["a", "b"]}), "u": pa.table({"id": [1], "v": ["w"]})}
    with pytest.raises(hp.InvalidRequest, match=f"names [0-9] columns, but its rows have {columns}$"):
        hp.sql(query, tables=tables)


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("WITH c(a, b) AS (SELECT * FROM t) SELECT * FROM c", [1, "a"]),
        ("WITH t AS (SELECT * FROM u), c(a, b) AS (SELECT *, 3 AS n FROM (SELECT id FROM t)) SELECT * FROM c", [1, 3]),
        ("SELECT * FROM (SELECT * FROM t JOIN u USING (id)) AS s(a, b, c)", [1, "a", "w"]),
        ("SELECT * FROM (SELECT * FROM t LEFT SEMI JOIN u ON t.id = u.id) AS s(a, b)", [1, "a"]),
        ("SELECT * FROM (SELECT * EXCEPT (v) FROM t WHERE id = 1) AS s(a)", [1]),
        ("SELECT * FROM (SELECT * FROM t LATERAL VIEW explode(array(5)) z AS e) AS s(a, b, c) WHERE a = 1", [1, "a", 5]),
        (
            "WITH RECURSIVE r(n, m) AS (SELECT id, 1 FROM u UNION ALL SELECT n, m + 1 FROM r WHERE m < 1) SELECT * FROM r",
            [1, 1],
        ),
    ],
)
def test_alias_names_the_columns_of_a_star(query: str, row: list[Any]) -> None:
    tables = {"t": pa.table({"id": [1], "v": ["a"]}), "u": pa.table({"id": [1], "v": ["w"]})}
    assert [list(found.values()) for found in hp.sql(query, tables=tables).to_pylist()] == [row]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT explode(map('a', 1))",
        "SELECT id, explode(m) FROM t",
        "SELECT posexplode(m) FROM t",
        "SELECT id, k, v FROM t LATERAL VIEW explode(m) z AS k, v",
    ],
)
def test_explode_of_a_map_names_the_function_to_use(query: str) -> None:
    maps = pa.table({"id": [1], "m": pa.array([[("a", 7)]], pa.map_(pa.string(), pa.int64()))})
    with pytest.raises(hp.Unsupported, match=r"write explode\(map_entries\(m\)\)"):
        hp.sql(query, tables={"t": maps})
    entries = "SELECT id, e.key, e.value FROM t LATERAL VIEW explode(map_entries(m)) z AS e"
    assert hp.sql(entries, tables={"t": maps}).to_pylist() == [{"id": 1, "key": "a", "value": 7}]


@pytest.mark.parametrize("projection", ["inline(array(struct(1, 2)))", "stack(1, 1, 2)", "json_tuple('{}', 'a', 'b')"])
def test_number_of_columns_of_a_generator_is_unknown(projection: str) -> None:
    """An engine that lacks the generator says so, not that the alias is wrong."""
    with pytest.raises(hp.Unsupported):
        hp.sql(f"SELECT * FROM (SELECT {projection}) z(a, b)")


def test_columns_of_a_table_that_an_alias_renames(sql: Sql, trips: hp.Table) -> None:
    assert sql("SELECT s.i FROM trips AS s(a, b, c, d, e, f, g, h, i) ORDER BY 1") == [{"i": "ny"}, {"i": "sf"}]
    assert sql("SELECT s.f FROM trips AS s(a, b, c, d, e, f, g, h, i) WHERE s.i = 'sf'") == [{"f": 1}]


def test_a_deleted_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id")
    table.insert([{"id": 1, "n": 1}])
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    # Databases that earlier statements opened need it no more.
    monkeypatch.setattr(duckdb_engine, "_DATABASES", duckdb_engine._SharedDatabases())
    for statement in (
        lambda: hp.sql(f"SELECT * FROM hudi.`{table.uri}`"),
        lambda: hp.sql(f"UPDATE hudi.`{table.uri}` SET n = n + 1"),
        lambda: table.update({"n": "n + 1"}),
    ):
        with pytest.raises(InvalidRequest, match="needs the working directory of this process, which was deleted"):
            statement()
    monkeypatch.chdir(tmp_path)
    assert hp.sql(f"SELECT n FROM hudi.`{table.uri}`").to_pylist() == [{"n": 1}]
