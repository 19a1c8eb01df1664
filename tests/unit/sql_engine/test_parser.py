"""Parsed statements as values, and errors of invalid ones."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Unsupported
from pyhudi.operations.changes.statement import ClauseAction, ClauseRows, DeleteStatement
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.parser import parse

T = S.TableName(("t",))


def merge(text: str) -> S.MergeInto:
    found = parse(text)
    assert isinstance(found, S.MergeInto)
    return found


def select(text: str) -> S.SelectQuery:
    found = parse(text)
    assert isinstance(found, S.Select)
    return found.query


def names(query: S.SelectQuery) -> list[str]:
    return [str(one.name) for one in query.references]


def test_a_new_table() -> None:
    assert parse("""
        create table if not exists db.Trips (
            id BIGINT NOT NULL COMMENT 'who\\'s', -- a remark
            `a b` DECIMAL(10, 2), m MAP<STRING, ARRAY<STRUCT<x: INT COMMENT 'q', y TIMESTAMP>>>
        ) USING hudi TBLPROPERTIES ('primaryKey' = 'id', hoodie.table.cdc.enabled = true)
        PARTITIONED BY (city STRING) LOCATION '/data/trips';
    """) == S.CreateTable(
        S.TableName(("db", "Trips")),
        (
            S.ColumnDefinition("id", pa.int64(), nullable=False, comment="who's"),
            S.ColumnDefinition("a b", pa.decimal128(10, 2)),
            S.ColumnDefinition(
                "m",
                pa.map_(
                    pa.string(),
                    pa.list_(
                        pa.field("element", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.timestamp("us", "UTC"))]))
                    ),
                ),
            ),
            S.ColumnDefinition("city", pa.string()),
        ),
        ("city",),
        (("primaryKey", "id"), ("hoodie.table.cdc.enabled", "true")),
        "/data/trips",
        None,
        if_not_exists=True,
        query=None,
    )


def test_a_table_of_a_query() -> None:
    text = "CREATE TABLE t USING hudi PARTITIONED BY (day) AS SELECT 1 AS id, 'a' AS day FROM s"
    found = parse(text)
    assert isinstance(found, S.CreateTable) and found.query is not None
    assert (found.columns, found.partitioned_by, names(found.query)) == ((), ("day",), ["s"])
    assert text[found.query.body.offset :] == found.query.body.text


def test_inserts() -> None:
    rows = "VALUES (1, 'a')"
    assert parse(f"INSERT INTO t {rows}") == S.Insert(T, S.SelectQuery(S.Fragment(rows, 14), ()))
    named = parse("INSERT INTO t (a, `b c`) SELECT 1, 2")
    assert isinstance(named, S.Insert) and named.columns == ("a", "b c")
    query = parse("INSERT INTO t (SELECT 1, 2)")
    assert isinstance(query, S.Insert) and query.columns is None
    over = parse("insert overwrite table t partition (day = '1', hour = 2, part) select 1")
    assert isinstance(over, S.Insert) and over.overwrite
    given = (S.PartitionValue("day", "1"), S.PartitionValue("hour", 2), S.PartitionValue("part", has_value=False))
    assert over.partition == given
    by_name = parse("INSERT INTO t BY NAME SELECT 1 AS a")
    assert isinstance(by_name, S.Insert) and by_name.by_name


def test_updates_and_deletes_keep_the_text_of_expressions() -> None:
    text = "UPDATE t AS x SET x.a = CASE WHEN b = 1 THEN 'it''s, b' ELSE f(1, 2) END, c=DEFAULT WHERE x.a  IN (1, 2) -- end"
    update = parse(text)
    assert isinstance(update, S.Update) and update.change.where is not None
    assert update.change.alias == "x"
    assert list(update.change.values) == ["a", "c"]
    assert update.change.values["a"].body.text == "CASE WHEN b = 1 THEN 'it''s, b' ELSE f(1, 2) END"
    assert update.change.values["c"] is None
    assert update.change.where.body.text == "x.a  IN (1, 2)"
    assert parse("DELETE FROM t") == S.Delete(T, DeleteStatement(None, "t"))
    delete = parse("DELETE FROM hudi.`/a/b` WHERE id IN (SELECT id FROM gone)")
    assert isinstance(delete, S.Delete) and delete.change.alias is None
    assert (delete.table.path, names(delete.change.where)) == ("/a/b", ["gone"])


def test_every_clause_of_a_merge() -> None:
    found = merge("""
        MERGE INTO db.trips USING (SELECT * FROM new) AS s ON trips.id = s.id
        WHEN MATCHED AND s.gone THEN DELETE
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED BY TARGET AND s.id > 0 THEN INSERT *
        WHEN NOT MATCHED THEN INSERT (id, trips.fare) VALUES (s.id, s.fare + 1)
        WHEN NOT MATCHED BY SOURCE AND CASE WHEN trips.a THEN true END THEN UPDATE SET trips.fare = 0
        WHEN NOT MATCHED BY SOURCE THEN DELETE
    """)
    change, rows, action = found.change, ClauseRows, ClauseAction
    assert (change.target_alias, change.source_alias, names(change.source)) == ("trips", "s", ["new"])
    assert change.on.body.text == "trips.id = s.id"
    assert [(one.rows, one.action, one.where is not None) for one in change.clauses] == [
        (rows.MATCHED, action.DELETE, True),
        (rows.MATCHED, action.UPDATE, False),
        (rows.OF_SOURCE, action.INSERT, True),
        (rows.OF_SOURCE, action.INSERT, False),
        (rows.OF_TARGET, action.UPDATE, True),
        (rows.OF_TARGET, action.DELETE, False),
    ]
    assert [None if one.values is None else list(one.values) for one in change.clauses] == [
        None,
        None,
        None,
        ["id", "fare"],
        ["fare"],
        None,
    ]


@pytest.mark.parametrize(
    ("using", "text", "alias"),
    [
        ("new", "SELECT * FROM new", "new"),
        ("db.new n", "SELECT * FROM db.new", "n"),
        ("hudi.`/a/b` TIMESTAMP AS OF '2024-01-01' AS n", "SELECT * FROM hudi.`/a/b` TIMESTAMP AS OF '2024-01-01'", "n"),
        ("hudi_query('t', 'snapshot') n", "SELECT * FROM hudi_query('t', 'snapshot')", "n"),
    ],
)
def test_the_source_of_a_merge_is_a_query(using: str, text: str, alias: str) -> None:
    found = merge(f"MERGE INTO t USING {using} ON t.id = n.id WHEN MATCHED THEN DELETE")
    source = found.change.source
    assert (source.body.text, found.change.source_alias, len(source.references)) == (text, alias, 1)


def test_changes_of_columns() -> None:
    assert parse("ALTER TABLE t ADD COLUMNS (a INT AFTER b, c.d STRING COMMENT 'x')") == S.AddColumns(
        T, (S.ColumnDefinition("a", pa.int32(), position=("b",)), S.ColumnDefinition("c.d", pa.string(), comment="x"))
    )
    assert parse("ALTER TABLE t SET TBLPROPERTIES ('a.b' = 'x', c = 1)") == S.SetProperties(T, (("a.b", "x"), ("c", "1")))
    unset = S.SetProperties(T, (("a.b", None), ("c", None)), if_exists=False)
    assert parse("ALTER TABLE t UNSET TBLPROPERTIES ('a.b', c)") == unset
    assert parse("ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS (c)") == S.SetProperties(T, (("c", None),), if_exists=True)
    assert parse("ALTER TABLE t RENAME TO d.u") == S.RenameTable(T, S.TableName(("d", "u")))
    assert parse("ALTER TABLE t ADD COLUMN a INT FIRST") == S.AddColumns(
        T, (S.ColumnDefinition("a", pa.int32(), position=(None,)),)
    )
    assert parse("ALTER TABLE t DROP COLUMNS (a, b.c)") == S.DropColumns(T, ("a", "b.c"))
    assert parse("ALTER TABLE t RENAME COLUMN a.b TO c") == S.RenameColumn(T, "a.b", "c")
    assert parse("ALTER TABLE t ALTER COLUMN a TYPE BIGINT") == S.AlterColumn(T, "a", pa.int64())
    assert parse("ALTER TABLE t CHANGE COLUMN a a BIGINT COMMENT 'x' AFTER b") == S.AlterColumn(T, "a", pa.int64(), "x", ("b",))
    assert parse("ALTER TABLE t CHANGE COLUMN drop drop BIGINT") == S.AlterColumn(T, "drop", pa.int64())
    assert parse("ALTER TABLE t DROP IF EXISTS PARTITION (a = '1')") == S.DropPartition(T, (S.PartitionValue("a", "1"),), True)


def test_other_statements() -> None:
    assert parse("CALL system.show_commits(table => 't', limit => 10L, metadata => false)") == S.CallProcedure(
        "show_commits", (("table", "t"), ("limit", 10), ("metadata", False))
    )
    assert parse("CALL p('t', -1.5)") == S.CallProcedure("p", (), ("t", -1.5))
    assert parse("CALL p()") == S.CallProcedure("p", ())
    assert parse("SHOW PARTITIONS t PARTITION (a = 1)") == S.ShowPartitions(T, (S.PartitionValue("a", 1),))
    assert parse("show tblproperties t ('k')") == S.ShowProperties(T, "k")
    assert parse("DESC FORMATTED t") == S.Describe(T, extended=True)
    assert parse("DROP TABLE IF EXISTS t;") == S.DropTable(T, if_exists=True)
    assert parse("TRUNCATE TABLE t") == S.Truncate(T, ())


def test_tables_of_a_query_are_found_with_positions() -> None:
    query = select("""
        WITH trips AS (SELECT * FROM trips), b AS (SELECT * FROM trips)
        SELECT x.y, 'FROM hidden' FROM trips JOIN `/data/a b` VERSION AS OF 20240102030405006 ON true, db.q AS r
        WHERE EXISTS (WITH c AS (SELECT 1) SELECT * FROM c JOIN d TABLESAMPLE (1 PERCENT)) -- FROM remark
        UNION ALL SELECT * FROM hudi_table_changes('db.q', 'cdc', 'earliest') AS f JOIN other('x')
    """)
    body = query.body.text
    assert [(body[one.start : one.end], one.as_of, one.alias) for one in query.references] == [
        ("trips", None, "trips"),
        ("`/data/a b` VERSION AS OF 20240102030405006", "20240102030405006", None),
        ("db.q", None, None),
        ("d", None, "d"),
        ("hudi_table_changes('db.q', 'cdc', 'earliest')", None, None),
    ]
    assert query.references[-1].arguments == ("db.q", "cdc", "earliest")
    assert body[query.references[3].end : query.references[3].alias_at] == " TABLESAMPLE (1 PERCENT)"


def test_recursive_cte_references_itself() -> None:
    assert names(select("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT * FROM r")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "statement is empty"),
        ("SELEC 1", r"line 1, column 1: expected a statement .*, found SELEC$"),
        ("SELECT a FROM t WHERE", "line 1"),
        ("SELECT a +\n  FROM t", r"line 2, column 3: expected an expression here \(at 'FROM'\)"),
        ("SELECT 1 2", r"line 1, column 10: .*\(at '2'\)"),
        ("DELETE FROM t\nWHERE a = 1 b", "line 2, column 13"),
        ("UPDATE t SET a", "column 15: expected ==, found the end of the statement"),
        ("UPDATE t SET a = 'x", "column 18: the quote ' is not closed"),
        ("INSERT t VALUES (1)", "column 8: expected INTO, found t"),
        ("INSERT INTO t", "expected a query"),
        ("INSERT INTO t 1 + 1", "expected a query, found '1 . 1'"),
        ("MERGE INTO t USING s ON t.id = s.id", "expected WHEN"),
        ("MERGE INTO t USING s ON true WHEN MATCHED THEN INSERT *", "expected UPDATE or DELETE, found INSERT"),
        ("MERGE INTO t USING s ON true WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)", "names 2 columns and gives 1 values"),
        ("CREATE TABLE t (a itn) USING hudi", "column 19: expected a type, found itn"),
        ("CREATE TABLE t (a INT)", "expected USING hudi"),
        ("CREATE TABLE t (a DECIMAL(3, 4)) USING hudi", "expected a precision"),
        ("CREATE TABLE t (a INT) USING hudi TBLPROPERTIES ('k' = '1', 'k' = '2')", "property k occurs twice"),
        ("ALTER TABLE t FROB", "expected ADD, DROP, RENAME, ALTER or CHANGE, found FROB"),
        ("ALTER TABLE t ALTER COLUMN a DROP", "expected NOT NULL or DEFAULT, found the end of the statement"),
        ("ALTER TABLE t ALTER COLUMN a DROP NULL", "expected NOT NULL or DEFAULT, found NULL"),
        ("TRUNCATE TABLE t x", "expected the end of the statement, found x"),
        ("SELECT 1; SELECT 2", "expected the end of the statement"),
        ("CALL p(a => b)", "expected a literal, found b"),
        ("SELECT * FROM hudi_query(t)", "expected a literal as argument of hudi_query"),
    ],
)
def test_syntax_errors_name_their_position(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        parse(text)
    assert not isinstance(caught.value, Unsupported)


@pytest.mark.parametrize(
    ("text", "procedure", "arguments"),
    [
        ("CALL help", "help", ()),
        ("CALL system.help;", "help", ()),
        ("SCHEDULE COMPACTION ON a.t", "run_compaction", (("op", "schedule"), ("table", "a.t"))),
        ("RUN COMPACTION ON hudi.`/t` AT 2031", "run_compaction", (("op", "run"), ("table", "/t"), ("timestamp", 2031))),
        ("SHOW COMPACTION ON '/data/t' LIMIT 3", "show_compaction", (("table", "/data/t"), ("limit", 3))),
    ],
)
def test_statements_that_are_calls(text: str, procedure: str, arguments: tuple[tuple[str, S.Value], ...]) -> None:
    assert parse(text) == S.CallProcedure(procedure, arguments)


@pytest.mark.parametrize("text", ["DESCRIBE history", "DESC history;", "DESCRIBE TABLE history", "DESCRIBE EXTENDED history"])
def test_a_table_can_have_the_name_history(text: str) -> None:
    assert parse(text) == S.Describe(S.TableName(("history",)), "EXTENDED" in text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SET TIME ZONE 'UTC'", "the statement SET TIME"),
        ("EXPLAIN DELETE FROM t", "EXPLAIN of a statement"),
        ("CREATE OR REPLACE TABLE t (a INT) USING hudi", "CREATE OR REPLACE"),
        ("CREATE FUNCTION f AS 'x'", "CREATE FUNCTION"),
        ("CREATE TABLE t (a INT) USING delta", "USING delta"),
        ("CREATE TABLE t (a INT) USING hudi PARTITIONED BY (bucket(4, a))", "transform"),
        ("CREATE TABLE t (a INT) USING hudi CLUSTERED BY (a) INTO 4 BUCKETS", "CLUSTERED"),
        ("ALTER TABLE t SET SERDE 'a'", "ALTER TABLE ... SET"),
        ("ALTER TABLE t PARTITION (a = 1) RENAME TO PARTITION (a = 2)", "ALTER TABLE ... PARTITION"),
        ("ALTER TABLE t ALTER COLUMN a SET NOT NULL", "NOT NULL"),
        ("DROP FUNCTION f", "DROP FUNCTION"),
        ("OPTIMIZE t ZORDER BY (a)", "OPTIMIZE; use CALL run_clustering$"),
        ("VACUUM t RETAIN 168 HOURS", "VACUUM; use CALL run_clean$"),
        ("REFRESH FUNCTION f", "REFRESH FUNCTION"),
        ("DESCRIBE HISTORY t", "DESCRIBE HISTORY; use CALL show_commits$"),
        ("DESC HISTORY `/data/t`;", "DESCRIBE HISTORY; use CALL show_commits$"),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "the statement ANALYZE$"),
        ("SHOW FUNCTIONS", "SHOW FUNCTIONS"),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "WITH in front of INSERT"),
        ("SELECT * FROM t TIMESTAMP AS OF current_timestamp()", "AS OF"),
    ],
)
def test_unsupported_statements_are_named(text: str, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        parse(text)
