"""Doubled quotes in statements and in arguments of procedures."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import pyhudi as hp


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
