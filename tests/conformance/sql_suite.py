"""Statements with the same meaning embedded, on Spark and in Apache Hudi.

A case creates its tables below `{root}` and lists the rows of its final query, unordered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from tests.support.properties import edit_properties

Run = Callable[[str], pa.Table]


@dataclass(frozen=True, slots=True)
class Case:
    """statements: in order.

    query, rows: the rows afterwards. refused: a statement that no engine executes. differs: Apache Hudi does something else,
    which docs/sql.md describes.
    """

    name: str
    statements: tuple[str, ...]
    query: str
    rows: tuple[Mapping[str, Any], ...]
    refused: str | None = None
    differs: bool = False


CASES = (
    Case(
        "fields of structs are assigned by position, or by name where the columns have the table's names",
        (
            "CREATE TABLE homes (id INT, home STRUCT<street: STRING, door: DOUBLE>, more ARRAY<STRUCT<a: INT, b: STRING>>) "
            "USING hudi LOCATION '{root}/homes' TBLPROPERTIES (primaryKey = 'id')",
            "INSERT INTO homes VALUES (1, struct('Elm', 12.1), array(struct(1, 'x')))",
            "INSERT INTO homes SELECT 2, named_struct('road', 'Oak', 'number', 7), NULL",
            "INSERT INTO homes SELECT 3 AS id, named_struct('door', 8.2, 'street', 'Ash') AS home, "
            "array(named_struct('b', 'y', 'a', 2)) AS more",
            "INSERT INTO homes BY NAME SELECT NULL AS more, named_struct('DOOR', 9, 'street', 'Fir') AS home, 4 AS id",
            "UPDATE homes SET home = struct('Bay', 24.3) WHERE id = 2",
            "MERGE INTO homes AS t USING (SELECT 1 AS id, struct('Yew', 5.7) AS home, array(struct(3, 'z')) AS more) AS s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET home = s.home, more = s.more",
        ),
        "SELECT id, home, more FROM homes",
        (
            {"id": 1, "home": {"street": "Yew", "door": 5.7}, "more": [{"a": 3, "b": "z"}]},
            {"id": 2, "home": {"street": "Bay", "door": 24.3}, "more": None},
            {"id": 3, "home": {"street": "Ash", "door": 8.2}, "more": [{"a": 2, "b": "y"}]},
            {"id": 4, "home": {"street": "Fir", "door": 9.0}, "more": None},
        ),
        refused="INSERT INTO homes BY NAME SELECT 5 AS id, named_struct('street', 'A', 'door', 7, 'x', 1) AS home, NULL AS more",
    ),
    Case(
        "partitions are deleted by patterns and lists",
        (
            "CREATE TABLE dropped (id INT, day STRING) USING hudi PARTITIONED BY (day) LOCATION '{root}/dropped' "
            "TBLPROPERTIES (primaryKey = 'id')",
            "INSERT INTO dropped VALUES (1, '2031-08-01'), (2, '2031-08-02'), (3, '2031-09-01'), (4, '2032-01-01'), "
            "(5, '2033-01-01'), (6, '2034-01-01')",
            "ALTER TABLE dropped DROP PARTITION (day = '2031-08-*')",
            "TRUNCATE TABLE dropped PARTITION (day = '2031*')",
            "CALL drop_partition(table => 'dropped', partition => 'day=2032-01-01,day=2033*,day=none')",
        ),
        "SELECT id FROM dropped",
        ({"id": 6},),
        refused="ALTER TABLE dropped DROP PARTITION (day = '2034-01-01', day = 'none')",
    ),
    Case(
        "a row of a merge's source with a smaller ordering value deletes no record",
        (
            "CREATE TABLE late (id INT, name STRING, ts BIGINT) USING hudi LOCATION '{root}/late' "
            "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', type = 'mor')",
            "INSERT INTO late VALUES (1, 'a', 50), (2, 'b', 50), (3, 'c', 50), (4, 'd', 50)",
            "MERGE INTO late AS t USING (SELECT * FROM VALUES (1, 'x', 49L), (2, 'x', 51L), (3, 'x', 50L) AS v (id, name, ts)) "
            "AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
            "DELETE FROM late WHERE id = 4",
        ),
        "SELECT id, name, ts FROM late",
        ({"id": 1, "name": "a", "ts": 50},),
    ),
    Case(
        "numbers become decimals and text as in Java",
        (
            "CREATE TABLE numbers (id INT, d DECIMAL(10, 2), e DECIMAL(20, 10), s STRING, f FLOAT) USING hudi "
            "LOCATION '{root}/numbers' TBLPROPERTIES (primaryKey = 'id')",
            "INSERT INTO numbers VALUES (1, CAST(0.285 AS DOUBLE), CAST(101.01 AS FLOAT), CAST(101.01 AS FLOAT), 24.3)",
            "INSERT INTO numbers VALUES (2, CAST(1.005 AS DOUBLE), 1, CAST(1E10 AS DOUBLE), 12.1)",
            "INSERT INTO numbers VALUES (3, 1, 2, CAST(-0.0000001 AS DECIMAL(20, 10)), NULL)",
        ),
        "SELECT id, d, e, s, CAST(f AS STRING) AS f FROM numbers",
        (
            {"id": 1, "d": Decimal("0.29"), "e": Decimal("101.0100021362"), "s": "101.01", "f": "24.3"},
            {"id": 2, "d": Decimal("1.01"), "e": Decimal("1.0000000000"), "s": "1.0E10", "f": "12.1"},
            {"id": 3, "d": Decimal("1.00"), "e": Decimal("2.0000000000"), "s": "-0.0000001000", "f": None},
        ),
    ),
    Case(
        "variants and vectors of Hudi 1.2",
        (
            "CREATE TABLE typed (id INT, v VARIANT, emb VECTOR(2), n INT) USING hudi LOCATION '{root}/typed' "
            "TBLPROPERTIES (primaryKey = 'id', type = 'mor')",
            "INSERT INTO typed VALUES (1, parse_json('[1, 2.5]'), ARRAY(CAST(1 AS FLOAT), CAST(2 AS FLOAT)), 0), "
            "(2, NULL, NULL, 0), (3, parse_json('null'), NULL, 0)",
            "UPDATE typed SET v = parse_json('true') WHERE id = 2",
            "UPDATE typed SET n = 7 WHERE try_variant_get(v, '$[0]', 'int') = 1",
            "DELETE FROM typed WHERE to_json(v) = 'null'",
        ),
        "SELECT id, to_json(v) AS j, variant_get(v, '$[1]', 'double') AS d, emb, n FROM typed",
        (
            {"id": 1, "j": "[1,2.5]", "d": 2.5, "emb": [1.0, 2.0], "n": 7},
            {"id": 2, "j": "true", "d": None, "emb": None, "n": 0},
        ),
        refused="INSERT INTO typed VALUES (4, NULL, ARRAY(CAST(1 AS FLOAT)), 0)",
        differs=True,
    ),
    Case(
        "samples, and aliases that name columns",
        (
            "CREATE TABLE sampled (id INT, n INT) USING hudi LOCATION '{root}/sampled' TBLPROPERTIES (primaryKey = 'id')",
            "INSERT INTO sampled VALUES (1, 10), (2, 20)",
        ),
        "SELECT sampled.id, s.c, v.x FROM sampled TABLESAMPLE (BUCKET 1 OUT OF 1) JOIN (SELECT id, n FROM sampled) AS s(k, c) "
        "ON s.k = sampled.id JOIN VALUES (1, 'a'), (2, 'b') AS v(i, x) ON v.i = s.k",
        ({"id": 1, "c": 10, "x": "a"}, {"id": 2, "c": 20, "x": "b"}),
        refused="SELECT * FROM (SELECT id, n FROM sampled) AS s(k)",
    ),
    Case(
        "values become those of their columns, partition columns come last",
        (
            "CREATE TABLE casts (id BIGINT, city STRING, fare DECIMAL(6, 2), days INT) USING hudi PARTITIONED BY (city) "
            "LOCATION '{root}/casts' TBLPROPERTIES (primaryKey = 'id')",
            "INSERT INTO casts VALUES (1, 2.555, 9.7, 'sf'), (CAST(2 AS SMALLINT), 3, NULL, 'ny')",
            "INSERT INTO casts (city, id) VALUES ('la', 3)",
            "INSERT INTO casts PARTITION (city = 'rome') SELECT 4 AS x, 1.5 AS y, 7 AS z",
        ),
        "SELECT id, city, fare, days FROM casts",
        (
            {"id": 1, "city": "sf", "fare": Decimal("2.56"), "days": 9},
            {"id": 2, "city": "ny", "fare": Decimal("3.00"), "days": None},
            {"id": 3, "city": "la", "fare": None, "days": None},
            {"id": 4, "city": "rome", "fare": Decimal("1.50"), "days": 7},
        ),
        refused="INSERT INTO casts VALUES ('5', 1, 1, 'sf')",
    ),
    Case(
        "an insert with an ordering field is an upsert",
        (
            "CREATE TABLE ordered (id BIGINT, name STRING, ts BIGINT) USING hudi LOCATION '{root}/ordered' "
            "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', type = 'mor')",
            "INSERT INTO ordered VALUES (1, 'a', 5), (2, 'b', 5)",
            "INSERT INTO ordered VALUES (1, 'older', 4), (2, 'newer', 6)",
        ),
        "SELECT id, name FROM ordered WHERE ts > 0",
        ({"id": 1, "name": "a"}, {"id": 2, "name": "newer"}),
    ),
    Case(
        "an overwrite replaces the table or one partition, and a truncation empties one",
        (
            "CREATE TABLE days (id BIGINT, day STRING, hour INT) USING hudi PARTITIONED BY (day, hour) "
            "LOCATION '{root}/days' TBLPROPERTIES (primaryKey = 'id')",
            "INSERT INTO days VALUES (9, 'z', 9)",
            "INSERT OVERWRITE days VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
            "INSERT OVERWRITE days PARTITION (day = 'b', hour = 2) VALUES (4)",
            "TRUNCATE TABLE days PARTITION (day = 'c', hour = 3)",
        ),
        "SELECT id, day, hour FROM days",
        ({"id": 1, "day": "a", "hour": 1}, {"id": 4, "day": "b", "hour": 2}),
    ),
    Case(
        "a table is made of a query, with its duplicates",
        (
            "CREATE TABLE made USING hudi PARTITIONED BY (city) LOCATION '{root}/made' TBLPROPERTIES (primaryKey = 'id') AS "
            "SELECT 'sf' AS city, id, id * 2 AS twice FROM VALUES (1), (1), (2) AS given (id)",
        ),
        "SELECT city, id, twice FROM made",
        (
            {"city": "sf", "id": 1, "twice": 2},
            {"city": "sf", "id": 1, "twice": 2},
            {"city": "sf", "id": 2, "twice": 4},
        ),
    ),
    Case(
        "rows are changed by conditions and arithmetic",
        (
            "CREATE TABLE changed (id BIGINT, name STRING, fare DECIMAL(6, 2), ts BIGINT) USING hudi "
            "LOCATION '{root}/changed' TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')",
            "INSERT INTO changed VALUES (1, 'a', 1.5, 1), (2, 'b', 2.5, 1), (3, NULL, 3.5, 1), (4, 'd', NULL, 1)",
            "UPDATE changed SET fare = fare * 1.1 + id, name = upper(concat(name, '!')) WHERE id % 2 = 1 AND fare > 1",
            "DELETE FROM changed WHERE id = 2 OR fare IS NULL",
        ),
        "SELECT id, name, fare FROM changed",
        ({"id": 1, "name": "A!", "fare": Decimal("2.65")}, {"id": 3, "name": None, "fare": Decimal("6.85")}),
    ),
    Case(
        "rows of a source that match are changed and deleted, others inserted",
        (
            "CREATE TABLE met (id BIGINT, name STRING, ts BIGINT) USING hudi LOCATION '{root}/met' "
            "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')",
            "INSERT INTO met VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 1)",
            "MERGE INTO met AS t USING (SELECT * FROM VALUES (1L, 'x', 2L), (2L, NULL, 2L), (3L, 'y', 2L), (5L, 'z', 2L), "
            "(6L, 'w', 2L) AS v (id, name, ts)) AS s ON t.id = s.id "
            "WHEN MATCHED AND s.name IS NULL THEN DELETE "
            "WHEN MATCHED AND t.name = 'a' AND s.name IS NOT NULL THEN UPDATE SET name = concat(t.name, s.name), ts = s.ts "
            "WHEN MATCHED AND s.name IS NOT NULL THEN UPDATE SET * "
            "WHEN NOT MATCHED AND s.id < 6 THEN INSERT *",
        ),
        "SELECT id, name, ts FROM met",
        (
            {"id": 1, "name": "ax", "ts": 2},
            {"id": 3, "name": "y", "ts": 2},
            {"id": 4, "name": "d", "ts": 1},
            {"id": 5, "name": "z", "ts": 2},
        ),
    ),
    Case(
        "the first clause that speaks of a row counts",
        (
            "CREATE TABLE merged (id BIGINT, name STRING, ts BIGINT) USING hudi LOCATION '{root}/merged' "
            "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')",
            "INSERT INTO merged VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 1)",
            "MERGE INTO merged AS t USING (SELECT * FROM VALUES (1L, 'x', 2L), (2L, NULL, 2L), (3L, 'y', 2L), (5L, 'z', 2L), "
            "(6L, 'w', 2L) AS v (id, name, ts)) AS s ON t.id = s.id "
            "WHEN MATCHED AND s.name IS NULL THEN DELETE "
            "WHEN MATCHED AND t.name = 'a' THEN UPDATE SET name = concat(t.name, s.name), ts = s.ts "
            "WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED AND s.id < 6 THEN INSERT *",
        ),
        "SELECT id, name, ts FROM merged",
        (
            {"id": 1, "name": "ax", "ts": 2},
            {"id": 3, "name": "y", "ts": 2},
            {"id": 4, "name": "d", "ts": 1},
            {"id": 5, "name": "z", "ts": 2},
        ),
        differs=True,
    ),
    Case(
        "a table goes on under another name",
        (
            "CREATE TABLE named (id BIGINT, name STRING, ts BIGINT) USING hudi LOCATION '{root}/named' "
            "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')",
            "INSERT INTO named VALUES (1, 'a', 1)",
            "ALTER TABLE named SET TBLPROPERTIES ('owner.of' = 'fares', note = 'x')",
            "ALTER TABLE named UNSET TBLPROPERTIES (note)",
            "ALTER TABLE named RENAME TO renamed",
            "INSERT INTO renamed VALUES (1, 'b', 2), (2, 'c', 1)",
        ),
        "SELECT id, name FROM renamed",
        ({"id": 1, "name": "b"}, {"id": 2, "name": "c"}),
        refused="INSERT INTO named VALUES (3, 'd', 1)",
    ),
)

COMPARED = (
    "hoodie.table.type",
    "hoodie.table.recordkey.fields",
    "hoodie.table.partition.fields",
    "hoodie.table.precombine.field",
    "hoodie.table.keygenerator.type",
    "hoodie.table.name",
    "hoodie.table.version",
    "hoodie.record.merge.mode",
    "hoodie.record.merge.strategy.id",
    "hoodie.compaction.payload.class",
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
)
"""Properties that a table has by its statement, whoever made it."""


def check(case: Case, run: Run, root: str, refusal: type[Exception]) -> None:
    """Carry a case out and compare its rows."""
    for statement in case.statements:
        run(statement.replace("{root}", root))
    if case.refused is not None:
        with pytest.raises(refusal):
            run(case.refused)
    found = run(case.query).to_pylist()
    assert sorted(map(repr, found)) == sorted(repr(dict(row)) for row in case.rows)


@dataclass(frozen=True, slots=True)
class Step:
    """A statement of a session, and what it returns: rows in the order of their text, None for any; or part of an error."""

    text: str
    rows: tuple[Mapping[str, Any], ...] | None = None
    error: str | None = None


STEPS = (
    Step(
        "CREATE TABLE s (id BIGINT, name STRING DEFAULT 'none', fare DOUBLE, ts BIGINT, city STRING) USING hudi "
        "PARTITIONED BY (city) COMMENT 'rides' LOCATION '{root}/s' TBLPROPERTIES (PRIMARYKEY = 'id', precombineField = 'ts', "
        "'hoodie.clean.commits.retained' = '3', owner = 'me')"
    ),
    Step(
        "CREATE TABLE x (id BIGINT) USING hudi LOCATION '{root}/x' TBLPROPERTIES (hoodie.clean.comits.retained = 3)",
        error="did you mean",
    ),
    Step("ALTER TABLE s ADD COLUMNS (tip DOUBLE)"),
    Step("COMMENT ON COLUMN s.fare IS 'in euros'"),
    Step(
        "SHOW TBLPROPERTIES s ('pyhudi.table.options.hoodie.clean.commits.retained')",
        ({"key": "pyhudi.table.options.hoodie.clean.commits.retained", "value": "3"},),
    ),
    Step("SET hoodie.metadata.record.index.enable = true", ({"key": "hoodie.metadata.record.index.enable", "value": "true"},)),
    Step("SET hoodie.metadata.record.indx.enable = true", error="did you mean hoodie.metadata.record.index.enable"),
    Step("SET hoodie.metadata.record.index.enable = maybe", error="neither true nor false"),
    Step("INSERT INTO s (id, fare, ts, city) VALUES (1, 1.5, 1, 'x'), (2, 2.5, 1, 'y'), (3, 3.5, 1, 'y')"),
    Step("RESET hoodie.metadata.record.index.enable"),
    Step("SELECT id, name, tip FROM s WHERE id = 1", ({"id": 1, "name": "none", "tip": None},)),
    Step("SELECT count(*) FROM s", ({"count(1)": 3},)),
    Step("SELECT nme FROM s", error="name"),
    Step("UPDATE s SET ts = '1697516137', name = 'a' WHERE id = 1"),
    Step("UPDATE s SET ts = 'soon' WHERE id = 1", error="cannot hold"),
    Step("UPDATE s SET name = DEFAULT, ts = ts + 1 WHERE id = 1"),
    Step("SELECT name, ts FROM s WHERE id = 1", ({"name": "none", "ts": 1697516138},)),
    Step(
        "MERGE INTO s t USING (SELECT 2L AS id, 'b' AS name UNION ALL SELECT 4L, 'd') AS u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET id = u.id, name = u.name "
        "WHEN NOT MATCHED THEN INSERT (id, ts, city) VALUES (u.id, 1, 'z')"
    ),
    Step("SELECT id, name FROM s WHERE id IN (2, 4)", ({"id": 2, "name": "b"}, {"id": 4, "name": "none"})),
    Step("CREATE INDEX idx_name ON s (name)"),
    Step("CREATE INDEX idx_name ON s (name)", error="exists already"),
    Step("CREATE INDEX IF NOT EXISTS idx_name ON s (name)"),
    Step("CREATE INDEX IF NOT EXISTS record_index ON s (id)"),
    Step("CREATE INDEX record_index ON s (name)", error="record key fields"),
    Step("CREATE INDEX day ON s USING column_stats (ts) OPTIONS (expr = 'from_unixtime', format = 'yyyy-MM-dd')"),
    Step("CREATE INDEX IF NOT EXISTS low ON s USING bloom_filters (name) OPTIONS (expr = 'lower')"),
    Step("SELECT * FROM s WHERE id = 9", ()),
    Step("DROP INDEX low ON s"),
    Step("DROP INDEX low ON s", error="no such index"),
    Step("DROP INDEX IF EXISTS low ON s"),
    Step("INSERT OVERWRITE s PARTITION (city = 'y') (id, ts) VALUES (5, 1)"),
    Step("SELECT id, city FROM s", ({"id": 1, "city": "x"}, {"id": 4, "city": "z"}, {"id": 5, "city": "y"})),
    Step("SET hoodie.datasource.overwrite.mode = DYNAMIC"),
    Step("INSERT OVERWRITE s (id, ts, city) VALUES (6, 1, 'y')"),
    Step("RESET hoodie.datasource.overwrite.mode"),
    Step("SELECT id, city FROM s", ({"id": 1, "city": "x"}, {"id": 4, "city": "z"}, {"id": 6, "city": "y"})),
    Step("SET hoodie.datasource.write.commitmeta.key.prefix = job_"),
    Step("SET job_name = nightly", ({"key": "job_name", "value": "nightly"},)),
    Step("UPDATE s SET fare = 4 WHERE id = 4"),
    Step("RESET job_name"),
    Step("RESET hoodie.datasource.write.commitmeta.key.prefix"),
    Step("CREATE TABLE k (id INT, v INT) USING hudi LOCATION '{root}/k' TBLPROPERTIES (primaryKey = 'id')"),
    Step("INSERT INTO k VALUES (1, 1)"),
    Step("UPDATE k SET v = 2"),
    Step("UPDATE k SET v = 3"),
    Step("SET hoodie.clean.commits.retained = 1"),
    Step("CALL run_clean(table => 'k')"),
    Step("RESET hoodie.clean.commits.retained"),
    Step("SELECT count(*) AS n FROM hudi_query_timeline('k') WHERE Action = 'clean'", ({"n": 1},)),
    Step("CREATE TABLE m (id INT, v STRING) USING hudi LOCATION '{root}/m' TBLPROPERTIES (primaryKey = 'id', type = 'mor')"),
    Step("INSERT INTO m VALUES (1, 'old')"),
    Step("UPDATE m SET v = 'new'"),
    Step("CREATE TABLE ro USING hudi LOCATION '{root}/m' TBLPROPERTIES ('hoodie.query.as.ro.table' = 'true')"),
    Step("SELECT v FROM ro", ({"v": "old"},)),
    Step("ALTER TABLE ro RENAME TO base"),
    Step("SELECT v FROM base", ({"v": "old"},)),
    Step("SELECT v FROM m", ({"v": "new"},)),
    Step(
        "CREATE TABLE hudi.`{root}/n` (id INT) USING hudi TBLPROPERTIES ('hoodie.query.as.ro.table' = 'true')",
        error="only a name of the session",
    ),
    Step(
        "CREATE TABLE m2 USING hudi LOCATION '{root}/m' TBLPROPERTIES (primaryKey = 'id', type = 'mor', "
        "hoodie.clean.commits.retained = '1', owner = 'me')"
    ),
    Step("SHOW TBLPROPERTIES m2 ('owner')", ({"key": "owner", "value": "me"},)),
    Step(
        "SHOW TBLPROPERTIES m ('pyhudi.table.options.hoodie.clean.commits.retained')",
        ({"key": "pyhudi.table.options.hoodie.clean.commits.retained", "value": "1"},),
    ),
    Step("CREATE TABLE m3 USING hudi LOCATION '{root}/m' TBLPROPERTIES (primaryKey = 'v')", error="contradicts the table"),
    Step("SELECT v FROM m3", error="m3"),
    Step("CREATE VIEW v (number, place) AS SELECT id, city FROM s WHERE id > 1"),
    Step("CREATE VIEW v AS SELECT 1", error="the name exists"),
    Step("SELECT max(number) AS m FROM v AS w WHERE w.place = 'y'", ({"m": 6},)),
    Step("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT count(*) AS n FROM s"),
    Step("SELECT n FROM v", ({"n": 3},)),
    Step("INSERT INTO v VALUES (1)", error="is a view"),
    Step("MERGE INTO s USING (SELECT n, 1L AS id FROM v) AS u ON s.id = u.id WHEN MATCHED THEN UPDATE SET fare = u.n"),
    Step("SELECT fare FROM s WHERE id = 1", ({"fare": 3.0},)),
    Step("DROP VIEW v"),
    Step("DROP VIEW v", error="no such view"),
    Step("COMMENT ON TABLE s IS 'all rides'"),
    Step("SHOW COLUMNS IN s"),
    Step("EXPLAIN SELECT id FROM s"),
    Step("ALTER TABLE s SET TBLPROPERTIES (hoodie.clean.commits.retained = 5)"),
    Step("ALTER TABLE s ALTER COLUMN name DROP DEFAULT"),
    Step("ALTER TABLE s ALTER COLUMN fare SET DEFAULT 'much'", error="cannot hold"),
    Step("CREATE DATABASE d"),
    Step("CREATE DATABASE IF NOT EXISTS d"),
    Step("USE d"),
    Step("SELECT id FROM s", error="s"),
    Step("SELECT count(*) AS n FROM default.s", ({"n": 3},)),
    Step("CREATE TABLE s (id BIGINT) USING hudi LOCATION '{root}/ds'"),
    Step("SELECT count(*) AS n FROM s", ({"n": 0},)),
    Step("USE default"),
    Step("SELECT count(*) AS n FROM d.s", ({"n": 0},)),
    Step("DROP TABLE d.s PURGE"),
    Step("DROP DATABASE d"),
    Step("SELECT State AS s FROM hudi_query_timeline('s') WHERE Action = 'nothing'", ()),
)
"""Statements of one session, in order."""


def check_steps(run: Run, root: str) -> None:
    """Execute the statements of STEPS, and compare what they return."""
    for step in STEPS:
        text = step.text.replace("{root}", root)
        if step.error is not None:
            with pytest.raises((hp.InvalidRequest, hp.Unsupported, hp.TableExists), match=step.error):
                run(text)
            continue
        found = run(text)
        if step.rows is not None:
            assert sorted(map(repr, found.to_pylist())) == sorted(repr(dict(row)) for row in step.rows), text
    commits = hp.Table(f"{root}/s").inspect.commits()
    assert [dict(entries).get("job_name") for entries in commits["metadata"].to_pylist()].count("nightly") == 1
    shown = run("SHOW CREATE TABLE s").column("createtab_stmt")[0].as_py()
    for part in ("fare DOUBLE COMMENT 'in euros'", "PARTITIONED BY (city)", "COMMENT 'all rides'", "'owner' = 'me'", "'5'"):
        assert part in shown, shown
    run(shown.replace("CREATE TABLE s", "CREATE TABLE again").replace(f"{root}/s'", f"{root}/again'"))
    assert run("SHOW CREATE TABLE again").column(0)[0].as_py().partition("(")[2] == shown.partition("(")[2].replace(
        f"{root}/s'", f"{root}/again'"
    )
    indexes = run("SHOW INDEXES FROM s").to_pylist()
    assert {"index_name": "secondary_index_idx_name", "index_type": "secondary_index", "col_name": "name"} in indexes
    assert {"index_name": "expr_index_day", "index_type": "column_stats", "col_name": "ts"} in indexes
    check_like(run, root)
    run("DROP TABLE s PURGE")
    assert not hp.Table.exists(f"{root}/s")


def check_like(run: Run, root: str) -> None:
    """Create tables like others, and compare them with their sources."""
    run(f"CREATE TABLE copy LIKE s LOCATION '{root}/copy'")
    run(f"CREATE TABLE IF NOT EXISTS copy LIKE typed_source LOCATION '{root}/other'")
    assert run("SELECT * FROM copy").num_rows == 0
    described = [run(f"SHOW CREATE TABLE {name}").column(0)[0].as_py().partition("(")[2] for name in ("s", "copy")]
    assert described[1] == described[0].replace(f"{root}/s'", f"{root}/copy'")
    run("INSERT INTO copy (id, ts, city) SELECT id, ts, city FROM s WHERE id = 6")
    assert run("SELECT id, name, city FROM copy").to_pylist() == [{"id": 6, "name": None, "city": "y"}]
    with pytest.raises(hp.TableExists, match="exists already"):
        run("CREATE TABLE copy LIKE s")
    with pytest.raises(hp.HudiError, match="nowhere"):
        run(f"CREATE TABLE lost LIKE nowhere LOCATION '{root}/lost'")
    for refused in ("PARTITIONED BY (city)", "COMMENT 'x'", "AS SELECT 1 AS id"):
        with pytest.raises(hp.InvalidRequest, match="expected"):
            run(f"CREATE TABLE refused LIKE s {refused}")
    run(
        f"CREATE TABLE types (id INT, emb VECTOR(2), b BLOB, v VARIANT, n INT) USING hudi LOCATION '{root}/types' "
        "TBLPROPERTIES (primaryKey = 'id', type = 'mor', owner = 'me', recordMergeMode = 'COMMIT_TIME_ORDERING')"
    )
    run(
        f"CREATE TABLE types2 LIKE types USING hudi TBLPROPERTIES (type = 'cow', owner = 'you', more = '1') "
        f"LOCATION '{root}/types2'"
    )
    source, copy = (hp.Table(f"{root}/{name}") for name in ("types", "types2"))
    assert copy.schema().equals(source.schema(), check_metadata=True) and copy.config.merge == source.config.merge
    assert copy.config.is_cow and (copy.config.property("owner"), copy.config.property("more")) == ("you", "1")
    run("INSERT INTO types2 VALUES (1, ARRAY(CAST(1 AS FLOAT), CAST(2 AS FLOAT)), NULL, parse_json('[1]'), 0)")
    assert run("SELECT id, emb, to_json(v) AS j FROM types2").to_pylist() == [{"id": 1, "emb": [1.0, 2.0], "j": "[1]"}]


def check_stored_defaults(run: Run, root: str) -> None:
    """Defaults have the values of their literals in INSERT, UPDATE and MERGE, and SQL that a table stores is never executed."""
    path = f"{root}/defaults"
    run(
        f"CREATE TABLE defaults (id INT, s STRING, d DATE, at TIMESTAMP_NTZ, n TINYINT) USING hudi LOCATION '{path}' "
        "TBLPROPERTIES (primaryKey = 'id', 'hoodie.write.table.version' = '9')"
    )
    values = {"s": r"'it''s \n'", "d": "DATE '2024-03-10'", "at": "'2024-03-10 02:30:00.000001'", "n": "7"}
    edit_properties(path, {f"pyhudi.table.defaults.{name}": text for name, text in values.items()})
    run("INSERT INTO defaults (id) VALUES (1)")
    run("INSERT INTO defaults VALUES (2, NULL, NULL, NULL, NULL)")
    run("UPDATE defaults SET s = DEFAULT, d = DEFAULT, at = DEFAULT, n = DEFAULT WHERE id = 2")
    run("MERGE INTO defaults t USING (SELECT 3 AS id) u ON t.id = u.id WHEN NOT MATCHED THEN INSERT (id) VALUES (u.id)")
    rows = {tuple(row.values())[1:] for row in run("SELECT id, s, d, at, n FROM defaults").to_pylist()}
    assert rows == {(r"it's \n", date(2024, 3, 10), datetime(2024, 3, 10, 2, 30, 0, 1), 7)}
    for hostile in (
        "java_method('java.lang.System', 'exit', '1')",
        "(SELECT max(id) FROM defaults)",
        "id",
        "'x' || 'y'",
        "'x'); DROP TABLE defaults",
    ):
        edit_properties(path, {"pyhudi.table.defaults.s": hostile})
        for statement in (
            "INSERT INTO defaults (id) VALUES (9)",
            "UPDATE defaults SET s = DEFAULT",
            "MERGE INTO defaults t USING (SELECT 9 AS id) u ON t.id = u.id WHEN NOT MATCHED THEN INSERT (id) VALUES (u.id)",
            "SHOW CREATE TABLE defaults",
        ):
            with pytest.raises(hp.CorruptData, match=r"property pyhudi\.table\.defaults\.s is no default of column 's'"):
                run(statement)
    run("ALTER TABLE defaults ALTER COLUMN s DROP DEFAULT")
    assert run("SELECT * FROM defaults").num_rows == 3


def check_metadata_rows(run: Run, root: str) -> None:
    """Compare the records of hudi_metadata by type."""
    run(
        f"CREATE TABLE m (id INT, name STRING, ts BIGINT, city STRING) USING hudi PARTITIONED BY (city) LOCATION '{root}/m' "
        "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')"
    )
    run("INSERT INTO m VALUES (1, 'a', 1, 'x'), (2, 'b', 1, 'y')")
    run("CREATE INDEX record_index ON m (id)")
    run("CREATE INDEX n ON m (name)")
    found = run("SELECT type, count(*) AS c FROM hudi_metadata('m') GROUP BY type ORDER BY type").to_pylist()
    assert [(row["type"], row["c"]) for row in found] == [(1, 1), (2, 2), (3, 14), (5, 2), (6, 14), (7, 2)]
    run("CREATE INDEX upper ON m USING column_stats(name) OPTIONS (expr = 'upper')")
    of_index = (
        "SELECT type, count(*) AS c FROM hudi_metadata('m') WHERE partition = 'expr_index_upper' GROUP BY type ORDER BY type"
    )
    assert [(row["type"], row["c"]) for row in run(of_index).to_pylist()] == [(3, 2), (6, 2)]
