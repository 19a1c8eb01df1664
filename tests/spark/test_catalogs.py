"""Names of catalogs in `hs.sql`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.engines.spark.data_source import HudiSource


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_statements(spark: SparkSession, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYHUDI_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYHUDI_CATALOG__LAKE__WAREHOUSE", str(tmp_path / "warehouse"))

    def sql(text: str) -> list[Any]:
        return [tuple(row) for row in hs.sql(spark, text).collect()]

    sql("CREATE DATABASE lake.sales")
    sql("CREATE DATABASE IF NOT EXISTS lake.sales")
    properties = f"TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', type = '{kind}')"
    sql(f"CREATE TABLE lake.sales.trips (id BIGINT, ts BIGINT, v STRING) USING hudi {properties}")
    sql("INSERT INTO lake.sales.trips VALUES (1, 1, 'a'), (2, 1, 'b')")
    sql("UPDATE lake.sales.trips SET v = 'c', ts = 2 WHERE id = 1")
    sql("MERGE INTO lake.sales.trips t USING (SELECT 3 AS id, 1 AS ts, 'd' AS v) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    expected = [(1, "c"), (2, "b"), (3, "d")]
    assert sql("SELECT id, v FROM lake.sales.trips ORDER BY id") == expected
    rows = hp.open("lake.sales.trips").scan(["id", "v"]).to_arrow().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in rows] == expected
    sql("CREATE TABLE lake.sales.copy USING hudi AS SELECT id, v FROM lake.sales.trips t WHERE t.id > 1")
    assert sql("SELECT count(*) FROM lake.sales.copy JOIN lake.sales.trips USING (id)") == [(2,)]
    assert sql("SHOW TABLES IN lake.sales") == [("lake.sales", "copy", False), ("lake.sales", "trips", False)]
    assert sql("SHOW DATABASES IN lake") == [("sales",)]
    assert [row[0] for row in sql("DESCRIBE lake.sales.copy")][-2:] == ["id", "v"]
    sql("ALTER TABLE lake.sales.copy RENAME TO lake.sales.part")
    sql("DROP TABLE lake.sales.part PURGE")
    assert not hp.Table.exists(tmp_path / "warehouse" / "sales" / "copy")
    for text, error in (
        ("SELECT * FROM lake.sales.nothing", hp.TableNotFound),
        ("CREATE TABLE lake.nowhere.t (id BIGINT) USING hudi", hp.InvalidRequest),
        ("CREATE TABLE lake.sales.trips (id BIGINT) USING hudi", hp.TableExists),
        ("DROP DATABASE lake.sales", hp.InvalidRequest),
        ("USE lake.sales", hp.Unsupported),
    ):
        with pytest.raises(error):
            sql(text)
    sql("DROP DATABASE lake.sales CASCADE")
    assert hp.Catalog("lake").list_namespaces() == []
    assert hp.Table.exists(tmp_path / "warehouse" / "sales" / "trips")


def test_every_function_resolves_names(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYHUDI_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYHUDI_CATALOG__LAKE__WAREHOUSE", str(tmp_path / "warehouse"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    lake, name = hp.Catalog("lake"), "lake.sales.trips"
    lake.create_namespace("sales")
    trips = lake.create_table("sales.trips", record_key="id")
    frame = spark.createDataFrame([(1, 1.0), (2, 2.0)], "id long, fare double")
    hs.write(frame, name)
    hs.update(spark, name, {"fare": "5"}, "id = 1")
    hs.delete(spark, name, "id = 2")
    hs.merge(spark, name, spark.createDataFrame([(3, 3.0)], frame.schema), on="id").when_not_matched_insert_all().execute()
    rows = [(1, 5.0), (3, 3.0)]
    assert [tuple(row) for row in hs.read(spark, name, ["id", "fare"]).orderBy("id").collect()] == rows
    # Spark runs the source in a process that lacks the variables of this test.
    assert HudiSource({"path": name}).schema().names[-2:] == ["id", "fare"]
    assert hs.call(spark, "show_commits", path=name).count() == hs.call(spark, "show_commits", table=name).count() == 4
    with pytest.raises(hp.InvalidRequest, match="configured catalog and not of Spark"):
        hs.save_as_table(frame, name)
    with pytest.raises(hp.TableNotFound, match=r"no table sales\.rides"):
        hs.write(frame, "lake.sales.rides")
    with pytest.raises(hp.TableNotFound, match=r"no table sales\.rides"):
        HudiSource({"path": "lake.sales.rides"}).writer(frame.schema, overwrite=False)
    assert trips.count() == 2 and not list((tmp_path / "here").iterdir())
