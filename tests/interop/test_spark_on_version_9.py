"""Tables of version 9 on Spark beside the real Hudi 1.1.1: streams, SQL, changes of rows under payload classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from tests.interop.oracle import RealHudi
from tests.interop.test_daily_work_of_version_9 import Day, rows
from tests.interop.test_writing_version_9 import WAYS, Turns
from tests.spark.conftest import spark as spark
from tests.support.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ONCE = {"availableNow": True}
_THEIR_STREAM = """
query = (
    spark.readStream.format("hudi").option("hoodie.datasource.streaming.startOffset", "earliest").load(path)
    .writeStream.format("memory").queryName("their_stream").option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
result = sorted([row.id, row.ts, row.v] for row in spark.sql("SELECT id, ts, v FROM their_stream").collect())
"""


@pytest.mark.wide
def test_streams(newer_hudi: RealHudi, spark: SparkSession, tmp_path: Path) -> None:
    """What each batch of our sink committed the real one reads as a stream, and ours streams what it wrote."""
    day = Day(newer_hudi, tmp_path / "t", "mor")
    day.create()
    folder = tmp_path / "in"
    folder.mkdir()

    def put(number: int, data: pa.Table) -> None:
        pq.write_table(data, folder / f"{number}.parquet")
        frame = spark.readStream.schema("id string, city string, ts long, v string, qty int").option("maxFilesPerTrigger", 1)
        options = {**day.options, "hoodie.datasource.write.operation": "upsert"}
        sink = hs.write_stream(frame.parquet(str(folder)), day.path, options, checkpoint=tmp_path / "c", trigger=ONCE)
        sink.awaitTermination()

    put(0, rows(("a", 1, "a1", 1), ("c", 1, "c1", 1)))
    taken: list[dict[str, Any]] = []

    def stream() -> list[tuple[str, int]]:
        taken.clear()

        def take(frame: DataFrame, number: int) -> None:
            taken.extend(frame.toArrow().to_pylist())

        query = (
            spark.readStream.format("pyhudi")
            .load(str(day.path))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)
        return sorted((row["id"], row["ts"]) for row in taken)

    hs.enable(spark, alias=None)
    assert stream() == [("a", 1), ("c", 1)]
    day.theirs(rows(("c", 3, "c3", 3), ("e", 3, "e3", 3)))
    put(1, rows(("e", 4, "e4", 4), ("a", 4, "a4", 4)))
    assert stream() == [("a", 4), ("c", 3), ("e", 4)]
    found = newer_hudi.run(_THEIR_STREAM, path=str(day.path), checkpoint=str(tmp_path / "theirs"))
    assert found == [["a", 4, "a4"], ["c", 3, "c3"], ["e", 4, "e4"]]
    assert day.same() == {"a": "a4", "c": "c3", "e": "e4"}
    day.checked()


def test_statements_of_three(newer_hudi: RealHudi, spark: SparkSession, tmp_path: Path) -> None:
    """SQL of both engines and of the real Hudi on one table, that ours made."""
    path, name = tmp_path / "t", "statements_of_three"
    catalog = hp.Catalog()

    def embedded(text: str) -> pa.Table:
        return hp.sql(text.format(t=name), catalog=catalog)

    def cluster(text: str) -> pa.Table:
        return hs.sql(spark, text.format(t=f"hudi.`{path}`")).toArrow()

    def real(text: str) -> pa.Table:
        return newer_hudi.sql(text.format(t=name))

    def agree() -> list[dict[str, Any]]:
        wanted = embedded("SELECT id, name, ts, city FROM {t}")
        newer_hudi.sql(f"REFRESH TABLE {name}")
        for found in (real("SELECT id, name, ts, city FROM {t}"), cluster("SELECT id, name, ts, city FROM {t}")):
            assert_same_rows(found, wanted, key=["id"])
        return sorted(wanted.to_pylist(), key=lambda row: row["id"])

    embedded(
        f"CREATE TABLE {{t}} (id BIGINT, name STRING, ts BIGINT, city STRING) USING hudi PARTITIONED BY (city) LOCATION '{path}' "
        "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', type = 'mor', `hoodie.write.table.version` = '9')"
    )
    embedded("INSERT INTO {t} VALUES (1, 'a', 1, 'x'), (2, 'b', 1, 'x'), (3, 'c', 1, 'y'), (4, 'd', 1, 'y')")
    assert int(hp.Table(path).config.version) == 9
    newer_hudi.register(path, name)
    agree()
    merge = (
        "MERGE INTO {t} AS t USING (SELECT * FROM VALUES (1L, 'm', 5L, 'x'), (3L, NULL, 5L, 'y'), (6L, 'n', 5L, 'x') "
        "AS v (id, name, ts, city)) AS s ON t.id = s.id WHEN MATCHED AND s.name IS NULL THEN DELETE "
        "WHEN MATCHED AND s.name IS NOT NULL THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    turns = [
        (real, "UPDATE {t} SET name = 'real', ts = 2 WHERE id = 2"),
        (cluster, "UPDATE {t} SET name = concat(name, '!'), ts = ts + 1 WHERE id < 3"),
        (real, "DELETE FROM {t} WHERE id = 4"),
        (cluster, merge),
        (real, "INSERT INTO {t} VALUES (3, 'back', 1, 'y')"),
        (embedded, merge.replace("5L", "6L")),
    ]
    for run, text in turns:
        run(text)
        if run is not real:
            agree()
    assert agree() == [
        {"id": 1, "name": "m", "ts": 6, "city": "x"},
        {"id": 2, "name": "real!", "ts": 3, "city": "x"},
        {"id": 6, "name": "n", "ts": 6, "city": "x"},
    ]
    report = hp.Table(path).validate()
    assert report.ok, str(report)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("way", "marker", "left"), [("AWSDms", "D", "acdfg"), ("MySql", "d", "acdfg"), ("PartialUpdate", "d", "abcdefg")]
)
def test_changes_of_rows_of_payload_tables(
    newer_hudi: RealHudi, spark: SparkSession, tmp_path: Path, way: str, marker: str, left: str
) -> None:
    """Updates, deletes and merges on Spark: the real one reads the same rows, and goes on.  left: the keys that stay."""
    turns = Turns(newer_hudi, tmp_path / "t", WAYS[way], "mor")
    turns.theirs(*((key, 11, "c", f"{key}11", 1) for key in "abcdef"))
    turns.theirs(("a", 12, "u", "a12", None), ("b", 12, marker, "gone", 0))
    path, options = str(turns.path), turns.options

    def held() -> dict[str, Any]:
        turns.read_by_both()
        return {row["id"]: (row["v"], row["qty"]) for row in turns.table.scan(["id", "v", "qty"]).to_arrow().to_pylist()}

    hs.update(spark, path, {"v": "concat(v, '!')", "qty": "qty + 1"}, "id IN ('a', 'c')", options=options)
    assert held()["c"] == ("c11!", 2)
    hs.delete(spark, path, "id = 'd'", options=options)
    assert "d" not in held()
    news = [("c", 13, "u", "merged", 3), ("e", 13, marker, "marked", 7), ("d", 14, "u", "back", 4), ("g", 13, "c", "new", 5)]
    merge = hs.merge(spark, path, spark.createDataFrame(turns.rows(*news)), ["id", "p"], options=options)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    turns.theirs(("f", 19, "u", "f19", 9))
    turns.table.compact()
    found = held()
    assert "".join(sorted(found)) == left
    assert (found["a"][0], found["c"], found["d"], found["f"]) == ("a12!", ("merged", 3), ("back", 4), ("f19", 9))
    turns.checked()
