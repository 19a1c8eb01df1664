"""Tables of version 9 written in turn by PyHudi on Spark, PyHudi embedded and Apache Hudi 1.1.1.

All three read the same rows, with metadata table and record index, and each services what the others wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from tests.interop.oracle import ApacheHudi
from tests.support.hudi_alternation import BY_RECORD_INDEX, CLUSTER, COMPACT, KEPT, UNAVAILABLE, WAYS, AlternatingWrites
from tests.support.hudi_shared_table import SharedTable, keyed_rows
from tests.support.rows import assert_same_rows
from tests.support.spark_session import spark as spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Given = tuple[str, int, str, str | None, int | None]


class ThreeWriters(AlternatingWrites):
    """A third writer in addition to `ours` and `theirs`."""

    session: SparkSession

    def on_spark(self, *given: Given, operation: str = "upsert") -> None:
        frame = self.session.createDataFrame(self.rows(*given))
        hs.write(frame, str(self.path), options={**self.options, "hoodie.datasource.write.operation": operation})

    def read_by_both(self) -> None:
        super().read_by_both()
        assert_same_rows(hs.read(self.session, str(self.path)).toArrow(), self.table.scan(["*"]).to_arrow())


@pytest.fixture
def alternation(newer_hudi: ApacheHudi, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> ThreeWriters:
    """By the parameter: the way in which records are merged, and the type of the table."""
    way, kind = request.param
    alternation = ThreeWriters(newer_hudi, tmp_path / "t", WAYS[way], kind)
    alternation.session = spark
    return alternation


@pytest.mark.parametrize(
    "alternation",
    [
        pytest.param(("two_fields", "mor"), id="two_fields", marks=pytest.mark.wide),
        pytest.param(("Postgres", "mor"), id="Postgres"),
    ],
    indirect=True,
)
def test_spark_and_hudi_alternate_on_merge_on_read(alternation: ThreeWriters) -> None:
    alternation.on_spark(("a", 11, "c", "a11", 1), ("b", 11, "c", "b11", 2), ("c", 11, "c", "c11", 3), ("d", 11, "c", "d11", 4))
    alternation.theirs(("a", 12, "u", UNAVAILABLE, None), ("b", 9, "u", "late", 9), ("e", 11, "c", "e11", 5))
    alternation.on_spark(
        ("c", 20, "u", None, 7), ("d", 9, "u", UNAVAILABLE, None), ("a", 13, "d", "gone", 0), ("e", 2, "d", "late", 0)
    )
    alternation.ours(("d", 12, "u", None, None), ("f", 11, "c", "f11", 6))
    alternation.read_by_both()
    alternation.theirs(("a", 12, "u", "after", 1), ("d", 30, "u", "d30", None), **COMPACT, **KEPT)
    alternation.on_spark(("b", 0, "", None, None), operation="delete")
    alternation.theirs(("b", 12, "u", "back", 1), ("c", 21, "d", "gone", 0), **BY_RECORD_INDEX)
    alternation.read_by_both()
    alternation.table.compact(spark=alternation.session)
    alternation.on_spark(("c", 15, "u", "early", 2), ("d", 31, "u", None, 9), ("f", 12, "u", UNAVAILABLE, None))
    alternation.read_by_both()
    alternation.checked()


@pytest.mark.parametrize("alternation", [pytest.param(("two_fields", "cow"), id="two_fields")], indirect=True)
def test_spark_and_hudi_alternate_on_copy_on_write(alternation: ThreeWriters) -> None:
    alternation.theirs(("a", 11, "c", "a11", 1), ("b", 11, "c", "b11", 2), ("c", 11, "c", "c11", 3), ("d", 11, "c", "d11", 4))
    alternation.on_spark(("a", 12, "u", "a12", None), ("b", 9, "u", "late", 9), ("e", 1, "c", "e1", 0))
    alternation.read_by_both()
    alternation.theirs(("c", 1, "u", "late", 1), ("d", 25, "u", None, 4), **CLUSTER)
    alternation.on_spark(("f", 11, "c", "f11", 6), operation="insert")
    alternation.read_by_both()
    alternation.table.cluster(spark=alternation.session)
    alternation.table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1}, spark=alternation.session)
    alternation.read_by_both()
    alternation.theirs(("e", 12, "u", "e12", None), **KEPT)
    alternation.table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    alternation.read_by_both()
    alternation.on_spark(("g", 11, "c", "g11", 5), operation="insert_overwrite")
    alternation.on_spark(("a", 0, "", None, None), operation="delete")
    alternation.read_by_both()
    alternation.checked()


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
def test_streams(newer_hudi: ApacheHudi, spark: SparkSession, tmp_path: Path) -> None:
    """What each batch of our sink committed Apache Hudi reads as a stream, and ours streams what it wrote."""
    shared = SharedTable(newer_hudi, tmp_path / "t", "mor")
    shared.create()
    folder = tmp_path / "in"
    folder.mkdir()

    def put(number: int, data: pa.Table) -> None:
        pq.write_table(data, folder / f"{number}.parquet")
        frame = spark.readStream.schema("id string, city string, ts long, v string, qty int").option("maxFilesPerTrigger", 1)
        options = {**shared.options, "hoodie.datasource.write.operation": "upsert"}
        sink = hs.write_stream(frame.parquet(str(folder)), shared.path, options, checkpoint=tmp_path / "c", trigger=ONCE)
        sink.awaitTermination()

    put(0, keyed_rows(("a", 1, "a1", 1), ("c", 1, "c1", 1)))
    taken: list[dict[str, Any]] = []

    def stream() -> list[tuple[str, int]]:
        taken.clear()

        def take(frame: DataFrame, number: int) -> None:
            taken.extend(frame.toArrow().to_pylist())

        query = (
            spark.readStream.format("pyhudi")
            .load(str(shared.path))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)
        return sorted((row["id"], row["ts"]) for row in taken)

    hs.enable(spark, alias=None)
    assert stream() == [("a", 1), ("c", 1)]
    shared.theirs(keyed_rows(("c", 3, "c3", 3), ("e", 3, "e3", 3)))
    put(1, keyed_rows(("e", 4, "e4", 4), ("a", 4, "a4", 4)))
    assert stream() == [("a", 4), ("c", 3), ("e", 4)]
    found = newer_hudi.run(_THEIR_STREAM, path=str(shared.path), checkpoint=str(tmp_path / "theirs"))
    assert found == [["a", 4, "a4"], ["c", 3, "c3"], ["e", 4, "e4"]]
    assert shared.same() == {"a": "a4", "c": "c3", "e": "e4"}
    shared.checked()


def test_statements_of_three(newer_hudi: ApacheHudi, spark: SparkSession, tmp_path: Path) -> None:
    """SQL of both engines and of Apache Hudi on one table, that ours made."""
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
    alternation = [
        (real, "UPDATE {t} SET name = 'real', ts = 2 WHERE id = 2"),
        (cluster, "UPDATE {t} SET name = concat(name, '!'), ts = ts + 1 WHERE id < 3"),
        (real, "DELETE FROM {t} WHERE id = 4"),
        (cluster, merge),
        (real, "INSERT INTO {t} VALUES (3, 'back', 1, 'y')"),
        (embedded, merge.replace("5L", "6L")),
    ]
    for run, text in alternation:
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
    newer_hudi: ApacheHudi, spark: SparkSession, tmp_path: Path, way: str, marker: str, left: str
) -> None:
    """Updates, deletes and merges on Spark: Apache Hudi reads the same rows, and goes on.  left: the keys that stay."""
    alternation = AlternatingWrites(newer_hudi, tmp_path / "t", WAYS[way], "mor")
    alternation.theirs(*((key, 11, "c", f"{key}11", 1) for key in "abcdef"))
    alternation.theirs(("a", 12, "u", "a12", None), ("b", 12, marker, "gone", 0))
    path, options = str(alternation.path), alternation.options

    def held() -> dict[str, Any]:
        alternation.read_by_both()
        return {row["id"]: (row["v"], row["qty"]) for row in alternation.table.scan(["id", "v", "qty"]).to_arrow().to_pylist()}

    hs.update(spark, path, {"v": "concat(v, '!')", "qty": "qty + 1"}, "id IN ('a', 'c')", options=options)
    assert held()["c"] == ("c11!", 2)
    hs.delete(spark, path, "id = 'd'", options=options)
    assert "d" not in held()
    news = [("c", 13, "u", "merged", 3), ("e", 13, marker, "marked", 7), ("d", 14, "u", "back", 4), ("g", 13, "c", "new", 5)]
    merge = hs.merge(spark, path, spark.createDataFrame(alternation.rows(*news)), ["id", "p"], options=options)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    alternation.theirs(("f", 19, "u", "f19", 9))
    alternation.table.compact()
    found = held()
    assert "".join(sorted(found)) == left
    assert (found["a"][0], found["c"], found["d"], found["f"]) == ("a12!", ("merged", 3), ("back", 4), ("f19", 9))
    alternation.checked()
