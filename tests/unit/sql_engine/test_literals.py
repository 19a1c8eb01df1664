"""Literals, quoted names and comments of statements; tests/spark/test_literals.py compares them with Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'O''Brien'", "O'Brien"),
        ("''''", "'"),
        ('"say ""x"""', 'say "x"'),
        ("\"a''b\"", "a''b"),
        (r"'a\'b\n\\\%\q'", "a'b\n\\\\%q"),
        (r"'\u0041\U0001F600\uD83D\uDE00\101'", "A😀😀A"),
        (r"r'a\n' R'''' 'b''c'", r"a\nb'c"),
        ("'a'\n 'b'", "ab"),
        ("/* it's /* ' */ */ 'a' -- it's", "a"),
        ("'/* -- */'", "/* -- */"),
    ],
)
def test_text_literals(literal: str, value: str) -> None:
    assert hp.sql(f"SELECT {literal}\n AS c").to_pydict() == {"c": [value]}


@pytest.mark.parametrize(
    ("literal", "said"),
    [
        ("'a", "line 1, column 8: the quote ' is not closed"),
        ("1, `a", "line 1, column 11: the quote ` is not closed"),
        ("1 /* /* */", r"line 1, column 10: the comment /\* is not closed"),
        (r"'\uD83D'", "half of a surrogate pair"),
        (r"'\UFFFFFFFF'", "no character of Unicode"),
        ("n'a'", "no literal of Spark's"),
        ("0x1F", "no literal of Spark's"),
        ("1e400", "beyond the largest double"),
        ("1e3L", "is no whole number"),
        ("1" * 39, "more than 38 digits"),
        ("DATE 'infinity'", "Write DATE '2024-05-06'"),
        ("DATE '2024/01/02'", "Write DATE '2024-05-06'"),
        ("TIMESTAMP '2024-01-02 24:00:00'", "Write DATE '2024-05-06'"),
        ("INTERVAL 1.5 DAY", "only seconds have a fraction"),
        ("INTERVAL '1 day 2'", "only seconds have a fraction"),
        (r"'ab' LIKE 'a\\b'", "Write two backslashes"),
    ],
)
def test_what_spark_refuses_has_no_value(literal: str, said: str) -> None:
    with pytest.raises((hp.InvalidRequest, hp.Unsupported), match=said):
        hp.sql(f"SELECT {literal}")


def test_like_takes_a_backslash_for_an_escape() -> None:
    found = hp.sql(r"SELECT 'a%b' LIKE 'a\%b' AS a, 'axb' LIKE 'a\%b' AS b, 'axb' NOT LIKE 'a\_b' AS c, 'A_' ILIKE 'a\_' AS d")
    assert found.to_pylist() == [{"a": True, "b": False, "c": True, "d": True}]


def test_doubled_quotes_in_every_statement(tmp_path: Path) -> None:
    path = tmp_path / "t"
    hp.sql(
        f"CREATE TABLE hudi.`{path}` (id BIGINT, name STRING COMMENT 'the row''s name', city STRING) "
        "USING hudi PARTITIONED BY (city) TBLPROPERTIES (primaryKey = 'id', 'hoodie.table.name' = 'it')"
    )
    table = f"hudi.`{path}`"
    hp.sql(f"INSERT INTO {table} VALUES (1, 'O''Brien', 'a'), (2, 'OBrien', 'a'), (3, \"say \"\"x\"\"\", 'b''c'), (4, 'd', 'bc')")
    assert hp.sql(f"SELECT id FROM {table} WHERE name = 'O''Brien'").to_pydict() == {"id": [1]}
    assert hp.Table(path).scan(["id"], filter="name = 'O''Brien'").to_arrow().to_pydict() == {"id": [1]}
    hp.sql(f"UPDATE {table} SET name = 'it''s' WHERE name IN ('O''Brien')")
    hp.sql(
        f"MERGE INTO {table} t USING (SELECT 'it''s' AS n, 5 AS id) s ON t.name = s.n AND t.name <> 'x''y' "
        "WHEN MATCHED THEN UPDATE SET name = 'that''s' WHEN NOT MATCHED THEN INSERT (id, name, city) VALUES (s.id, 'no''', 'z')"
    )
    hp.sql(f"DELETE FROM {table} WHERE name = 'O''Brien' OR name = 'that''''s'")
    found = hp.sql(f"SELECT id, name FROM {table} ORDER BY id").to_pylist()
    assert [(row["id"], row["name"]) for row in found] == [(1, "that's"), (2, "OBrien"), (3, 'say "x"'), (4, "d")]
    hp.sql(f"ALTER TABLE {table} DROP PARTITION (city = 'b''c')")
    assert hp.Table(path).scan(["id"]).to_arrow().sort_by("id").to_pydict() == {"id": [1, 2, 4]}
    hp.sql(f"INSERT OVERWRITE {table} PARTITION (city = 'b''c') SELECT 9, 'x'")
    assert hp.sql(f"SHOW PARTITIONS {table} PARTITION (city = 'b''c')").num_rows == 1
    assert hp.sql("SELECT * FROM hudi_query('" + str(path).replace("'", "''") + "') WHERE city = 'b''c'").num_rows == 1


def test_doubled_quotes_in_arguments_of_procedures(tmp_path: Path) -> None:
    path = tmp_path / "it's"
    hp.Table.create(path, record_key="id", name="t").upsert(pa.table({"id": [1]}))
    assert hp.sql(f"CALL show_commits(path => '{tmp_path}/it''s')").num_rows == 1
