"""`df.write.format("pyhudi")` and `writeStream.format("pyhudi")` through Spark's data source API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Table, TableExists
from pyhudi import spark as hs

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}
OPERATION = "hoodie.datasource.write.operation"


def trips(spark: SparkSession, start: int, end: int, ts: int) -> DataFrame:
    """Rows of all types in two tasks."""
    return spark.range(start, end, 1, 2).selectExpr(
        "cast(id as string) id",
        "cast(id % 2 as string) city",
        f"{ts}L ts",
        "timestamp_micros(id * 1000000) at",
        "map('k', id) tags",
        "array(named_struct('n', cast(id as decimal(9, 2)))) deep",
    )


def save(rows: DataFrame, path: Path, mode: str = "append", **more: Any) -> None:
    options = {**OPTIONS, **{key.replace("__", "."): value for key, value in more.items()}}
    rows.write.format("pyhudi").options(**options).mode(mode).save(str(path))


def found(path: Path) -> dict[str, int]:
    rows = Table(path).scan(["id", "ts"]).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["ts"] for row in rows}


def staged(path: Path) -> list[Path]:
    return [one for one in (path / ".hoodie" / ".staged").rglob("*") if one.is_file()]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", pytest.param("MERGE_ON_READ", marks=pytest.mark.wide)])
def test_operations_and_modes_of_the_format(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    save(trips(spark, 0, 6, 1), path, **{"hoodie.datasource.write.table.type": kind})
    save(trips(spark, 4, 8, 2), path)
    assert found(path) == {str(n): 2 if n >= 4 else 1 for n in range(8)}
    wanted = trips(spark, 7, 8, 2).select("at", "tags", "deep", "id").collect()
    assert hs.read(spark, str(path), ["at", "tags", "deep", "id"], "id = '7'").collect() == wanted
    save(trips(spark, 8, 10, 4), path, "overwrite")
    assert found(path) == {"8": 4, "9": 4}
    with pytest.raises(Exception, match="mode append adds to it"):
        save(trips(spark, 0, 1, 5), path, **{"pyhudi.save.mode": "errorifexists"})
    # What speaks before any task does leaves nothing behind.
    assert staged(path) == [] and len(Table(path).timeline().completed_writes()) == 3


@pytest.mark.wide
def test_further_operations_of_the_format(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    save(trips(spark, 0, 8, 1), path)
    save(trips(spark, 0, 2, 3), path, **{OPERATION: "delete"})
    assert sorted(found(path)) == list("234567")
    save(trips(spark, 2, 3, 4), path, **{OPERATION: "delete_partition", "hoodie.datasource.write.partitions.to.delete": "0"})
    assert sorted(found(path)) == list("357")
    save(trips(spark, 0, 1, 5), path, **{"pyhudi.save.mode": "ignore"})
    assert sorted(found(path)) == list("357")
    for more, said in (
        ({"hoodie.datasource.write.recordkey.field": "ts"}, "recordkey"),
        ({OPERATION: "delete_partition"}, "partitions.to.delete"),
    ):
        with pytest.raises(Exception, match=said):
            save(trips(spark, 0, 1, 5), path, **more)


def test_many_rows_of_a_task_and_tasks_that_fail(spark: SparkSession, tmp_path: Path) -> None:
    path, failed = tmp_path / "t", tmp_path / "failed"
    fails = trips(spark, 0, 30_000, 1).selectExpr("*", "if(id = '29999', raise_error('a bad row'), 1) last")
    with pytest.raises(Exception, match="a bad row"):
        save(fails, failed)
    # The other task may still store its rows, until Spark has ended it: no reader uses them, and a later write deletes them.
    assert not Table.exists(failed)
    save(trips(spark, 0, 30_000, 1), path, **{OPERATION: "bulk_insert"})
    assert len(found(path)) == 30_000 and staged(path) == []
    with pytest.raises(Exception, match="InvalidRequest"):
        save(trips(spark, 0, 30_000, 1).withColumn("id", F.expr("if(id = '7', null, id)")), path)
    assert len(Table(path).timeline().completed_writes()) == 1 and staged(path) == []


def test_more_rows_than_one_process_should_write(spark: SparkSession, tmp_path: Path) -> None:
    """They are refused by a task, or by the commit for all tasks; a new table is not created, and `hs.write` has no limit."""
    path, limit = tmp_path / "t", {"pyhudi.spark.staged.bytes": "800000"}
    for table, rows in (("too many of a task", 30_000), ("t", 16_000)):
        with pytest.raises(Exception, match=r"Unsupported.*pyhudi\.spark\.write"):
            save(trips(spark, 0, rows, 1), tmp_path / table, **limit)
        assert not Table.exists(tmp_path / table)
    assert staged(path) == []
    save(trips(spark, 0, 100, 1), path, **limit)
    with pytest.raises(Exception, match=r"pyhudi\.spark\.write"):
        save(trips(spark, 0, 16_000, 2), path, **limit, **{OPERATION: "delete"})
    assert staged(path) == [] and len(Table(path).timeline().completed_writes()) == 1
    hs.write(trips(spark, 0, 16_000, 2), str(path), options={**OPTIONS, **limit})
    assert len(found(path)) == 16_000


def files(path: Path) -> list[Path]:
    return [one for one in path.rglob("*.parquet") if ".hoodie" not in one.parts]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", pytest.param("MERGE_ON_READ", marks=pytest.mark.wide)])
def test_tasks_write_the_files_of_a_bulk_insert(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """As `hs.write` of the same rows, with as many files; what fails leaves nothing, and others go on."""
    more = {OPERATION: "bulk_insert", "hoodie.datasource.write.table.type": kind, "hoodie.metadata.record.index.enable": "true"}
    path, reference = tmp_path / "t", tmp_path / "beside"
    for low, high in ((0, 6), (6, 10)):
        save(trips(spark, low, high, low), path, **more)
        hs.write(trips(spark, low, high, low), str(reference), options={**OPTIONS, **more})
    for ours in (path, reference):
        # Two tasks, each with rows of two partitions, twice.
        assert len(files(ours)) == 8 and Table(ours).validate().ok
    columns = ["id", "city", "ts", "at", "tags", "deep", "_hoodie_record_key", "_hoodie_partition_path"]
    found, wanted = (sorted(map(str, hs.read(spark, str(one), columns).collect())) for one in (path, reference))
    assert found == wanted and len(found) == 10
    instants = [[(i.action, i.state) for i in Table(one).timeline().instants] for one in (path, reference)]
    assert instants[0] == instants[1]

    fails = trips(spark, 10, 20, 9).selectExpr("*").withColumn("id", F.expr("if(id = '19', raise_error('a bad row'), id)"))
    with pytest.raises(Exception, match="a bad row"):
        save(fails, path, **more)
    with pytest.raises(Exception, match="InvalidRequest"):
        save(trips(spark, 10, 20, 9).withColumn("id", F.expr("if(id = '19', null, id)")), path, **more)
    with pytest.raises(Exception, match="a bad row"):
        save(fails, tmp_path / "new", **more)
    assert not Table.exists(tmp_path / "new") and files(tmp_path / "new") == []
    assert len(files(path)) == 8 and staged(path) == [] and not list((path / ".hoodie" / ".heartbeat").iterdir())
    assert Table(path).timeline().pending_writes() == ()
    save(trips(spark, 6, 9, 9), path)
    assert hs.read(spark, str(path), ["id"], "ts = 9").count() == 3


def test_a_stream_writes_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    path, source, checkpoint = tmp_path / "t", tmp_path / "source", tmp_path / "checkpoint"
    Table.create(source, record_key="id", partition_by="city", ordering="ts").upsert(
        {"id": ["a", "b"], "city": ["x", "y"], "ts": [1, 2]}
    )

    def run() -> None:
        stream = spark.readStream.format("pyhudi").load(str(source)).select("id", "city", "ts")
        writer = stream.writeStream.format("pyhudi").options(**OPTIONS, **{"hoodie.datasource.write.operation": "insert"})
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(path))
        query.awaitTermination()

    run()
    # The query dies after its commit and before the checkpoint records it.
    done = sorted((checkpoint / "commits").glob("[0-9]*"))[-1]
    done.unlink()
    (checkpoint / "commits" / f".{done.name}.crc").unlink()
    run()
    assert found(path) == {"a": 1, "b": 2}
    assert len(Table(path).timeline().completed_writes()) == 1 and staged(path) == []


def test_a_name_of_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads it by its name and changes it by ours; Spark cannot represent a write without a location, which is refused."""
    path, other = tmp_path / "it's", tmp_path / "other"
    rows = spark.createDataFrame([("a", "x", 1)], "id string, city string, ts long")
    try:
        hs.save_as_table(rows, "kept", options=OPTIONS, path=path)
        Table(path).alter.add("more", pa.int64())
        hs.save_as_table(rows.selectExpr("'b' id", "city", "ts", "7L more"), "kept", "append")
        assert spark.sql("SELECT id, more FROM kept ORDER BY id").collect() == [("a", None), ("b", 7)]
        with pytest.raises(TableExists):
            hs.save_as_table(rows, "kept")
        hs.sql(spark, "DELETE FROM kept WHERE more = 7")
        hs.sql(spark, "INSERT INTO kept (id, city, ts, more) VALUES ('c', 'x', 2, 9)")
        assert sorted(row["id"] for row in spark.table("kept").select("id").collect()) == ["a", "c"]

        Table.create(other, record_key="id", schema=Table(path).schema())
        spark.sql(f"CREATE TABLE other USING pyhudi LOCATION '{other}'")
        with pytest.raises(Exception, match="does not pass the catalog table"):
            spark.sql("INSERT INTO other SELECT * FROM kept")
        assert Table(path).scan().count() == 2 and Table(other).scan().count() == 0
    finally:
        for name in ("kept", "other"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    assert Table(path).scan().count() == 2


@pytest.mark.wide
def test_a_stream_to_a_name(spark: SparkSession, tmp_path: Path) -> None:
    path, source = tmp_path / "t", tmp_path / "source"
    Table.create(source, record_key="id", ordering="ts").upsert({"id": ["a", "b"], "ts": [1, 2]})
    Table.create(path, record_key="id", ordering="ts").upsert({"id": ["a", "c"], "ts": [0, 0]})
    try:
        spark.sql(f"CREATE TABLE streamed USING pyhudi LOCATION '{path}'")
        rows = spark.readStream.format("pyhudi").load(str(source)).select("id", "ts")
        writer = rows.writeStream.format("pyhudi").option("path", str(path)).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable("streamed").awaitTermination()
        assert {row["id"]: row["ts"] for row in spark.table("streamed").collect()} == {"a": 1, "b": 2, "c": 0}
    finally:
        spark.sql("DROP TABLE IF EXISTS streamed")


@pytest.mark.wide
def test_names_of_other_tables_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    Table.create(path, record_key="id").upsert({"id": ["a"]})
    try:
        spark.sql(f"CREATE TABLE kept USING pyhudi LOCATION '{path}'")
        # A view of the table is not the table.
        spark.sql("CREATE VIEW seen AS SELECT * FROM kept WHERE id = 'b'")
        with pytest.raises(InvalidRequest, match="no Hudi table"):
            hs.sql(spark, "DELETE FROM seen")
        spark.sql("CREATE TABLE listed (id STRING) USING pyhudi")
        with pytest.raises(Exception, match="save_as_table"):
            spark.table("listed").collect()
        with pytest.raises(Exception, match="there is no"):
            spark.sql(f"CREATE TABLE nothing USING pyhudi LOCATION '{tmp_path / 'nothing'}'")
        with pytest.raises(Exception, match="environment"):
            spark.sql(f"CREATE TABLE secret USING pyhudi OPTIONS (path '{path}', `pyhudi.storage.key` 'x')")
    finally:
        spark.sql("DROP VIEW IF EXISTS seen")
        for name in ("kept", "listed"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    assert Table(path).scan().count() == 1


def test_unsupported_ddl_error_names_spark_sql_function(spark: SparkSession, tmp_path: Path) -> None:
    hs.enable(spark)
    path = tmp_path / "known"
    Table.create(path, record_key="id", schema=pa.schema([("id", pa.int64())])).upsert({"id": [1]})
    try:
        spark.sql(f"CREATE TABLE entry (id BIGINT) USING hudi LOCATION '{tmp_path / 'entry'}'")
        for text in ("SELECT * FROM entry", "INSERT INTO entry VALUES (1)"):
            with pytest.raises(Exception, match=r"hs\.sql"):
                spark.sql(text).collect()
        spark.sql(f"CREATE TABLE known USING hudi LOCATION '{path}'")
        assert [row["id"] for row in spark.table("known").collect()] == [1]
        spark.sql("ALTER TABLE known ADD COLUMNS (more INT)")
        with pytest.raises(Exception, match="changes the entry only"):
            spark.table("known").collect()
    finally:
        for name in ("entry", "known"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
