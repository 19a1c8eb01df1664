"""Statements with the same meaning embedded, on Spark and in Apache Hudi.

A case creates its tables below `{root}` and lists the rows of its final query, unordered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

Run = Callable[[str], pa.Table]


@dataclass(frozen=True, slots=True)
class Case:
    """statements: in order.  query, rows: what is there afterwards.  refused: a statement that no engine carries out.

    differs: Apache Hudi does something else, which docs/sql.md tells.
    """

    name: str
    statements: tuple[str, ...]
    query: str
    rows: tuple[Mapping[str, Any], ...]
    refused: str | None = None
    differs: bool = False


CASES = (
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
