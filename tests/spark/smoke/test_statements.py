"""Smoke tests of SQL on a session without any jar of Hudi."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import spark as hs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session, without the names that a test gives."""
    yield spark
    for row in hs.sql(spark, "SHOW TABLES").collect():
        hs.sql(spark, f"DROP TABLE {row['tableName']}")


def test_spark_queries_read_pyhudi_tables(session: SparkSession, tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", ordering="ts")
    first = table.upsert(pa.table({"id": [1, 2], "ts": [1, 1], "name": ["a", "b"]}))
    table.upsert(pa.table({"id": [1], "ts": [2], "name": ["{braces}"]}))
    hs.register(session, "Trips", table.uri)
    session.createDataFrame([(1, 5), (2, 6)], "id int, fare int").createOrReplaceTempView("fares")
    query = f"""
        WITH fares AS (SELECT * FROM fares)
        SELECT trips.name, old.name AS before, f.fare, named_struct('x', '{{}}').x AS x FROM trips
        JOIN hudi.`{table.uri}` TIMESTAMP AS OF '{first.instant}' old ON old.id = trips.id
        JOIN fares f ON f.id = trips.id
        JOIN hudi_query('{table.uri}', 'read_optimized') o ON o.id = trips.id
        WHERE trips.name LIKE '{{%'
    """
    try:
        assert [tuple(row) for row in hs.sql(session, query).collect()] == [("{braces}", "a", 5, "{}")]
    finally:
        session.catalog.dropTempView("fares")
    found = hs.sql(session, "CALL show_commits(table => 'trips', limit => 1)").collect()
    assert len(found) == 1
    with pytest.raises(hp.InvalidRequest, match="fares"):
        hs.sql(session, "INSERT INTO fares VALUES (1)")


def test_query_does_not_open_pruned_files(session: SparkSession, tmp_path: Path) -> None:
    options = {"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True}
    table = hp.Table.create(tmp_path / "t", record_key="id", partition_by="city", options=options)
    table.upsert(pa.table({"id": [1, 2, 3], "city": ["a", "b", "c"], "fare": [10, 20, 30]}))
    hs.register(session, "trips", table.uri)
    session.createDataFrame([(2, "b")], "id bigint, city string").createOrReplaceTempView("wanted")
    for part in "ac":
        for file in (tmp_path / "t" / part).glob("*.parquet"):
            file.unlink()

    def ids(text: str) -> list[int]:
        return [row["id"] for row in hs.sql(session, text).collect()]

    try:
        assert ids("SELECT id FROM trips WHERE fare BETWEEN 15 AND 25 AND upper(city) = 'B'") == [2]
        assert ids("SELECT t.id FROM wanted w JOIN trips t USING (id) WHERE t.city = 'b' AND w.id > 0") == [2]
        with pytest.raises(hp.TableState, match="is missing"):
            hs.sql(session, 'SELECT id FROM trips WHERE city = "b"').collect()
    finally:
        session.catalog.dropTempView("wanted")


def test_a_path_of_the_sessions_catalog(session: SparkSession, tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", ordering="ts")
    table.upsert(pa.table({"id": [1], "ts": [1]}))
    session.sql(f"CREATE TABLE known (id BIGINT) USING parquet LOCATION '{tmp_path / 't'}'")
    try:
        assert [row["id"] for row in hs.sql(session, "SELECT id FROM known WHERE ts = 1").collect()] == [1]
        with pytest.raises(hp.Unsupported, match=r"drop it there with spark\.sql"):
            hs.sql(session, "DROP TABLE known")
    finally:
        session.sql("DROP TABLE known")
