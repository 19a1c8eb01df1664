"""Statements that scripts contain besides queries and writes: partitions, names, descriptions (docs/sql.md)."""

from __future__ import annotations

from tests.scenarios.scenario import Query, Refused, Scenario, Sql, TableSpec

_DAYS = TableSpec("id INT, text STRING, day STRING", partition_by="day")
_HOURS = TableSpec(
    "id INT, day STRING, hour STRING",
    partition_by="day, hour",
    rows="(1, 'mon', '1'), (2, 'mon', '2'), (3, 'tue', '1')",
)
_PLAIN = TableSpec("id INT, text STRING", rows="(1, 'a')")

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "add partitions to a table without rows",
        _DAYS,
        (
            Sql("ALTER TABLE {table} ADD IF NOT EXISTS PARTITION (day = 'mon')"),
            Sql("ALTER TABLE {table} ADD IF NOT EXISTS PARTITION (day = 'mon') PARTITION (day = 'tue')"),
            Query("SHOW PARTITIONS {table}", (("day=mon",), ("day=tue",))),
            Query("ALTER TABLE {table} ADD PARTITION (day = 'tue')", Refused(word="exists already")),
            Query("ALTER TABLE {table} ADD PARTITION (text = 'x')", Refused(word="not partitioned by text")),
            Query("ALTER TABLE {table} ADD PARTITION (day = 'x') LOCATION '/x'", Refused("Unsupported", "LOCATION")),
            Sql("INSERT INTO {table} VALUES (1, 'a', 'wed'), (2, 'b', 'tue')"),
            Query("SHOW PARTITIONS {table} PARTITION (day = 'tue')", (("day=tue",),)),
        ),
        ({"id": 1, "text": "a", "day": "wed"}, {"id": 2, "text": "b", "day": "tue"}),
    ),
    Scenario(
        "add partitions needs all partition columns",
        _HOURS,
        (
            Query("ALTER TABLE {table} ADD PARTITION (day = 'wed')", Refused(word="name all partition columns")),
            Sql("ALTER TABLE {table} ADD IF NOT EXISTS PARTITION (hour = '1', day = 'mon')"),
        ),
    ),
    Scenario(
        "partitions of a table without partitions",
        _PLAIN,
        (
            Query("SHOW PARTITIONS {table}", ()),
            Query("ALTER TABLE {table} ADD PARTITION (text = 'x')", Refused(word="not partitioned")),
            Query("MSCK REPAIR TABLE {table}", Refused(word="has no partitions")),
        ),
    ),
    Scenario(
        "show partitions by any of their columns",
        _HOURS,
        (
            Query("SHOW PARTITIONS {table} PARTITION (hour = '1')", (("day=mon/hour=1",), ("day=tue/hour=1",))),
            Query("SHOW PARTITIONS {table} PARTITION (day = 'mon')", (("day=mon/hour=1",), ("day=mon/hour=2",))),
            Query("SHOW PARTITIONS {table} PARTITION (hour = '2', day = 'mon')", (("day=mon/hour=2",),)),
            Query("SHOW PARTITIONS {table} PARTITION (day = 'sun')", ()),
            Sql("ALTER TABLE {table} DROP PARTITION (day = 'mon', hour = '1')"),
            Query("SHOW PARTITIONS {table}", (("day=mon/hour=2",), ("day=tue/hour=1",))),
        ),
    ),
    Scenario(
        "refresh and repair change nothing",
        _HOURS,
        (
            Sql("REFRESH TABLE {table}"),
            Sql("MSCK REPAIR TABLE {table}"),
            Sql("MSCK REPAIR TABLE {table} SYNC PARTITIONS"),
            Sql("ALTER TABLE {table} RECOVER PARTITIONS"),
            Query("SHOW PARTITIONS {table}", (("day=mon/hour=1",), ("day=mon/hour=2",), ("day=tue/hour=1",))),
            Query("REFRESH TABLE {table}_unknown", Refused()),
        ),
    ),
    Scenario(
        "names with the catalog and the database",
        _PLAIN,
        (
            Query("SELECT id, text FROM spark_catalog.default.{table}", ((1, "a"),)),
            Sql("INSERT INTO spark_catalog.default.{table} VALUES (2, 'b')"),
            Sql("UPDATE default.{table} SET text = 'c' WHERE id = 2"),
            Sql("DELETE FROM spark_catalog.default.{table} WHERE id = 1"),
        ),
        ({"id": 2, "text": "c"},),
    ),
    Scenario(
        "show tables with the database",
        _PLAIN,
        (Query("SHOW TABLES LIKE '{table}'", (("default", "{table}", False),)),),
    ),
    Scenario(
        "a managed table is deleted with its name",
        _PLAIN,
        (
            Sql("DROP TABLE IF EXISTS managed_by_name"),
            Sql("CREATE TABLE managed_by_name (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id')"),
            Sql("INSERT INTO managed_by_name VALUES (1)"),
            Sql("DROP TABLE managed_by_name"),
            Sql("CREATE TABLE managed_by_name (id INT, text STRING) USING hudi TBLPROPERTIES (primaryKey = 'id')"),
            Query("SELECT id, text FROM managed_by_name", ()),
            Sql("DROP TABLE managed_by_name"),
        ),
        skip={"sql": "the catalog has no warehouse: tests/component/sql_engine/test_duckdb_session.py has the same steps"},
    ),
    Scenario(
        "an external table stays when its name is dropped, and goes with PURGE",
        _PLAIN,
        (
            Sql("CREATE TABLE external_one USING hudi LOCATION '{folder}/t'"),
            Sql("DROP TABLE external_one"),
            Sql("CREATE TABLE external_two (id INT) USING hudi LOCATION '{folder}/two' TBLPROPERTIES (primaryKey = 'id')"),
            Sql("INSERT INTO external_two VALUES (1)"),
            Sql("DROP TABLE external_two PURGE"),
            Sql("CREATE TABLE external_two (n INT) USING hudi LOCATION '{folder}/two' TBLPROPERTIES (primaryKey = 'n')"),
            Query("SELECT n FROM external_two", ()),
            Sql("DROP TABLE external_two PURGE"),
        ),
        ({"id": 1, "text": "a"},),
    ),
    Scenario(
        "a global temporary view",
        _PLAIN,
        (
            Sql("CREATE OR REPLACE GLOBAL TEMPORARY VIEW seen_globally AS SELECT id FROM {table}"),
            Query("SELECT id FROM global_temp.seen_globally", ((1,),)),
            Sql("DROP VIEW global_temp.seen_globally"),
        ),
    ),
    Scenario(
        "describe a column",
        _PLAIN,
        (Query("DESCRIBE {table} id", (("col_name", "id"), ("data_type", "int"), ("comment", "NULL"))),),
    ),
    Scenario(
        "CHAR and VARCHAR are stored as text of any length",
        TableSpec("id INT, a CHAR(3), b VARCHAR(4)", rows="(1, 'a', 'bbbbbbb')"),
        (Query("SELECT a, b FROM {table}", (("a", "bbbbbbb"),)),),
        ({"id": 1, "a": "a", "b": "bbbbbbb"},),
    ),
    Scenario(
        "values with names, and the text of a timestamp",
        TableSpec("id INT, text STRING, amount INT"),
        (
            Sql("INSERT INTO {table} (amount, id, text) VALUES (12 AS amount, 4 AS id, 'nail' AS text)"),
            Query(
                "SELECT CAST(TIMESTAMP '2031-05-07 00:00:00' AS STRING), concat('at ', TIMESTAMP '2031-05-07 01:02:03.5')",
                (("2031-05-07 00:00:00", "at 2031-05-07 01:02:03.5"),),
            ),
        ),
        ({"id": 4, "text": "nail", "amount": 12},),
    ),
    Scenario(
        "a partition of a timestamp by its text",
        TableSpec("id INT, at TIMESTAMP, text STRING", partition_by="at"),
        (
            Sql("INSERT INTO {table} PARTITION (at = '2031-05-20 00:00:00') SELECT 1, 'boot'"),
            Query("SELECT id, CAST(at AS STRING) FROM {table}", ((1, "2031-05-20 00:00:00"),)),
        ),
    ),
    Scenario(
        "a field of a list of structs is a list",
        TableSpec("id INT, tips ARRAY<STRUCT<amount: INT, unit: STRING>>, place STRUCT<visits: ARRAY<STRUCT<day: INT>>>"),
        (
            Sql(
                "INSERT INTO {table} SELECT 1, array(named_struct('amount', 3, 'unit', 'eur'), named_struct('amount', 4, "
                "'unit', 'usd')), named_struct('visits', array(named_struct('day', 5)))"
            ),
            Query("SELECT id, tips.amount AS a FROM {table}", ((1, [3, 4]),)),
            Query("SELECT t.tips.unit, place.visits.day FROM {table} AS t WHERE tips.amount[0] = 3", ((["eur", "usd"], [5]),)),
        ),
    ),
    Scenario(
        "set an operation: INSERT OVERWRITE replaces the partitions of its rows",
        TableSpec("id INT, amount INT, day STRING", partition_by="day", rows="(1, 10, 'mon'), (2, 20, 'tue')"),
        (
            Sql("SET hoodie.datasource.write.operation = insert_overwrite"),
            Sql("INSERT OVERWRITE {table} VALUES (3, 30, 'tue')"),
        ),
        ({"id": 1, "amount": 10, "day": "mon"}, {"id": 3, "amount": 30, "day": "tue"}),
    ),
    Scenario(
        "set an operation: INSERT INTO overwrites",
        TableSpec("id INT, amount INT, day STRING", partition_by="day", rows="(1, 10, 'mon'), (2, 20, 'tue')"),
        (
            Sql("SET hoodie.datasource.write.operation = insert_overwrite"),
            Sql("INSERT INTO {table} VALUES (3, 30, 'tue')"),
            Query("SELECT id FROM {table}", ((1,), (3,))),
            Sql("SET hoodie.datasource.write.operation = insert_overwrite_table"),
            Sql("INSERT OVERWRITE {table} PARTITION (day = 'sun') VALUES (6, 60)"),
        ),
        ({"id": 6, "amount": 60, "day": "sun"},),
    ),
    Scenario(
        "set the mode of inserts: non-strict inserts known keys, others upsert",
        TableSpec("id INT, v INT", ordering="v", rows="(1, 1)"),
        (
            Sql("SET hoodie.sql.insert.mode = strict"),
            Sql("INSERT INTO {table} VALUES (1, 2)"),
            Query("SELECT v FROM {table}", ((2,),)),
            Sql("SET hoodie.sql.bulk.insert.enable = true"),
            Sql("SET hoodie.sql.insert.mode = non-strict"),
            Sql("INSERT INTO {table} VALUES (1, 3)"),
            Query("SELECT v FROM {table}", ((2,), (3,))),
        ),
    ),
    Scenario(
        "property preCombine is the ordering field",
        TableSpec("id INT, v INT", properties={"preCombine": "v"}, rows="(1, 5)"),
        (Sql("INSERT INTO {table} VALUES (1, 3)"),),
        ({"id": 1, "v": 5},),
    ),
    Scenario(
        "set options that define tables: an existing table decides",
        TableSpec("id INT, day STRING", partition_by="day"),
        (
            Sql("SET hoodie.datasource.write.hive_style_partitioning = false"),
            Sql("SET hoodie.datasource.write.precombine.field = day"),
            Sql("INSERT INTO {table} VALUES (1, 'mon')"),
            Query("SHOW PARTITIONS {table}", (("day=mon",),)),
        ),
        ({"id": 1, "day": "mon"},),
    ),
    Scenario(
        "compaction statements",
        TableSpec("id INT, text STRING, v INT", ordering="v", properties={"type": "mor"}, rows="(1, 'a', 1)"),
        (
            Sql("UPDATE {table} SET text = 'b', v = 2 WHERE id = 1"),
            Sql("SET hoodie.compact.inline.max.delta.commits = 1"),
            Sql("SCHEDULE COMPACTION ON {table}"),
            Sql("RUN COMPACTION ON {table}"),
            Sql("SHOW COMPACTION ON {table} LIMIT 1"),
            Sql("SHOW COMPACTION ON '{folder}/t'"),
        ),
        ({"id": 1, "text": "b", "v": 2},),
    ),
    Scenario(
        "alter a column to the type that it has",
        TableSpec("id INT, amount DECIMAL(4, 2)", rows="(1, 1.5)"),
        (
            Sql("SET hoodie.schema.on.read.enable = true"),
            Sql("ALTER TABLE {table} ALTER COLUMN amount TYPE DECIMAL(4, 2)"),
            Query("SELECT id FROM {table}", ((1,),)),
        ),
    ),
    *(
        Scenario(
            f"alter an integer key, ordering and partition field to BIGINT: {table_type}",
            TableSpec(
                "id INT, v INT, text STRING, p INT",
                ordering="v",
                partition_by="p",
                properties={"type": table_type},
                rows="(1, 1, 'a', 7), (2, 1, 'b', 7)",
            ),
            (
                Sql("SET hoodie.schema.on.read.enable = true"),
                Sql("ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT"),
                Sql("ALTER TABLE {table} ALTER COLUMN v TYPE BIGINT"),
                Sql("ALTER TABLE {table} ALTER COLUMN p TYPE BIGINT"),
                Sql("INSERT INTO {table} VALUES (1, 5000000000, 'c', 7), (5000000000, 1, 'd', 8), (2, 0, 'e', 7)"),
            ),
            (
                {"id": 1, "v": 5000000000, "text": "c", "p": 7},
                {"id": 2, "v": 1, "text": "b", "p": 7},
                {"id": 5000000000, "v": 1, "text": "d", "p": 8},
            ),
        )
        for table_type in ("cow", "mor")
    ),
    Scenario(
        "indexes in the forms of Hudi",
        TableSpec("id INT, text STRING, ts BIGINT", rows="(1, 'a', 1)"),
        (
            Sql("CREATE INDEX by_day ON {table} USING column_stats(ts) OPTIONS(expr='from_unixtime', format='yyyy-MM-dd')"),
            Sql("CREATE INDEX low ON {table} USING bloom_filters(text) OPTIONS(expr='lower')"),
            Sql("CREATE INDEX short ON {table} USING column_stats(text) OPTIONS(expr='trim', trimString='a')"),
            Query(
                "SHOW INDEXES FROM {table}",
                (
                    ("column_stats", "column_stats", ""),
                    ("expr_index_by_day", "column_stats", "ts"),
                    ("expr_index_low", "bloom_filters", "text"),
                    ("expr_index_short", "column_stats", "text"),
                ),
            ),
            Sql("REFRESH INDEX low ON {table}"),
            Sql("DROP INDEX low ON {table}"),
            Sql("DROP INDEX IF EXISTS low ON {table}"),
        ),
        ({"id": 1, "text": "a", "ts": 1},),
        skip={"spark sql": "its first rows are written without a metadata table"},
    ),
    Scenario(
        "a record index has a reserved name",
        _PLAIN,
        (
            Query("CREATE INDEX by_key ON {table} (id)", Refused(word="whose name is record_index")),
            Query("DROP INDEX no_such_index ON {table}", Refused(word="no such index")),
        ),
    ),
    Scenario(
        "compaction of a copy-on-write table is refused",
        _PLAIN,
        (
            Sql("SET hoodie.compact.inline = true"),
            Query("INSERT INTO {table} VALUES (2, 'b')", Refused(word="nothing to compact")),
            Query("SELECT id FROM {table}", ((1,),)),
        ),
        skip={"spark sql": "the driver turns table services off"},
    ),
)
