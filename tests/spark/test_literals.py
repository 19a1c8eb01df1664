"""Literals in `hp.sql`, `hs.sql` and filters mean what Spark's parser means, or are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.records.filters.filter_ast import ColumnRef
from pyhudi.records.filters.filter_parser import parse_value
from tests.support.literal_cases import (
    EXACT_IN_FILTERS,
    INTERVALS,
    NAMES,
    NUMBERS,
    OTHER_IN_FILTERS,
    OTHERS,
    REFUSED_EMBEDDED,
    TEXTS,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = (*TEXTS, *NUMBERS, *OTHERS, *(f"TIMESTAMP_NTZ '2024-01-02 03:04:05' + {one}" for one in INTERVALS))


def plain(value: Any) -> Any:
    """A value without its time zone."""
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


@pytest.fixture(scope="module")
def values_in_spark(spark: SparkSession) -> dict[str, Any]:
    """The value of each literal that Spark takes.  Each is analysed alone; one query evaluates them all."""
    from pyspark.errors import PySparkException

    taken = []
    for case in CASES:
        try:
            spark.sql(f"SELECT {case} AS c")
        except PySparkException:
            continue
        taken.append(case)
    query = "SELECT " + ", ".join(f"{case} AS c{number}" for number, case in enumerate(taken))
    row = spark.sql(query).toArrow()
    assert row.num_columns == len(taken)
    return {case: plain(column.to_pylist()[0]) for case, column in zip(taken, row.columns, strict=True)}


def test_embedded_literals_have_sparks_values_or_are_refused(values_in_spark: dict[str, Any]) -> None:
    assert set(TEXTS) <= values_in_spark.keys()
    wrong, refused = [], []
    for case in CASES:
        try:
            found = plain(hp.sql(f"SELECT {case} AS c").column(0).to_pylist()[0])
        except (hp.InvalidRequest, hp.Unsupported):
            refused.append(case)
            continue
        expected = values_in_spark.get(case, "refused by Spark")
        if found != expected or (isinstance(found, bool) != isinstance(expected, bool)):
            wrong.append((case, found, expected))
    assert wrong == []
    accepted_by_spark = [case for case in refused if case in values_in_spark]
    assert accepted_by_spark == [f"TIMESTAMP_NTZ '2024-01-02 03:04:05' + {one}" for one in REFUSED_EMBEDDED]


def test_filters_read_literals_as_spark_does_or_refuse_them(values_in_spark: dict[str, Any]) -> None:
    differs = []
    for case in (*TEXTS, *NUMBERS, *OTHERS):
        try:
            found = parse_value(case)
        except (hp.InvalidRequest, hp.Unsupported):
            continue
        if isinstance(found, ColumnRef):
            # Text in double quotes names a column, and so do words.
            assert case.startswith('"') or case.isidentifier(), case
            continue
        if case not in values_in_spark:
            assert case in EXACT_IN_FILTERS
        elif plain(found) != values_in_spark[case]:
            differs.append(case)
    assert sorted(differs) == sorted(OTHER_IN_FILTERS)


def test_statements_on_spark_and_embedded_write_the_same_literals(
    spark: SparkSession, values_in_spark: dict[str, Any], tmp_path: Path
) -> None:
    rows = ", ".join(f"({number}, {text})" for number, text in enumerate(TEXTS))
    expected = [values_in_spark[text] for text in TEXTS]
    for way in ("embedded", "spark"):
        table = hp.Table.create(tmp_path / way, record_key="id", schema=pa.schema([("id", pa.int64()), ("name", pa.string())]))

        def run(text: str, way: str = way) -> pa.Table:
            if way == "embedded":
                return hp.sql(text)
            found = hs.sql(spark, text)
            return found.toArrow() if found.columns else pa.table({})

        run(f"INSERT INTO hudi.`{table.uri}` VALUES {rows}, (1000, 'OBrien')")
        found = run(f"SELECT id, name FROM hudi.`{table.uri}` WHERE id < 1000 ORDER BY id")
        assert found.column("name").to_pylist() == expected
        run(f"UPDATE hudi.`{table.uri}` SET name = 'it''s \\n' WHERE name = 'O''Brien'")
        run(f"DELETE FROM hudi.`{table.uri}` WHERE name = r'a' 'b' OR name = 'a''''b'")
        left = {row["id"]: row["name"] for row in table.scan().to_arrow().to_pylist()}
        assert left[0] == "it's \n" and left[1000] == "OBrien"
        assert len(left) == len(TEXTS) + 1 - expected.count("ab") - expected.count("a''b")


def test_names_in_backquotes(spark: SparkSession) -> None:
    for name in NAMES:
        expected = spark.sql(f"SELECT 1 AS {name}").columns
        assert hp.sql(f"SELECT 1 AS {name}").column_names == expected
        assert hs.sql(spark, f"SELECT 1 AS {name}").columns == expected


def test_an_interval_of_seconds_keeps_its_fraction() -> None:
    found = hp.sql("SELECT TIMESTAMP_NTZ '2024-01-02 00:00:00' + INTERVAL '1.5' SECOND AS t").column(0).to_pylist()
    assert found == [datetime(2024, 1, 2) + timedelta(seconds=1.5)]
