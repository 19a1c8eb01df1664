"""Smoke tests of `spark.readStream.format("pyhudi")`: batches, limits, restarts from a checkpoint after a failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi import spark as hs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CDC = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc"}
# PySpark 4.1 knows no limits of a batch, and takes what is available as one.
pytest.importorskip("pyspark.sql.streaming.datasource")

START = "hoodie.datasource.streaming.startOffset"
BEGIN = "hoodie.datasource.read.begin.instanttime"

Batches = dict[int, list[dict[str, object]]]


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    hs.enable(spark, alias=None)
    return spark


def rows(keys: str, ts: int) -> pa.Table:
    return pa.table({"id": list(keys), "ts": pa.array([ts] * len(keys), pa.int32())})


def make(path: Path, kind: str) -> Table:
    quiet = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}
    given = {"hoodie.table.cdc.enabled": True, **quiet}
    return Table.create(path, name="t", record_key="id", ordering="ts", table_type=kind, options=given)


def run(
    spark: SparkSession,
    table: Table,
    checkpoint: Path,
    options: dict[str, str],
    after: Callable[[int], None] = lambda number: None,
    taken: Batches | None = None,
) -> Batches:
    """The rows of each batch of a query that reads what is there.  after: called when a batch was taken, before its commit."""
    found: Batches = {} if taken is None else taken

    def take(frame: DataFrame, number: int) -> None:
        found[number] = frame.toArrow().to_pylist()
        after(number)

    query = (
        spark.readStream.format("pyhudi")
        .options(**options)
        .load(str(table.uri))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(1200)
    finally:
        query.stop()
    return found


def ids(batch: list[dict[str, object]]) -> str:
    return "".join(sorted(str(row["id"]) for row in batch))


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_stream_continues_after_a_failure(source: SparkSession, tmp_path: Path, kind: str) -> None:
    """The batch in which it failed comes again with the same rows; what was committed does not."""
    table = make(tmp_path / "t", kind)
    for ts, keys in enumerate(["ab", "bc", "a"]):
        table.upsert(rows(keys, ts))
    options = {"pyhudi.stream.max.instants": "1"}

    def fail(number: int) -> None:
        if number == 1:
            table.upsert(rows("d", 7))
            raise RuntimeError("the job dies here")

    seen: Batches = {}
    with pytest.raises(Exception, match="the job dies here"):
        run(source, table, tmp_path / "checkpoint", options, fail, seen)
    assert {number: ids(batch) for number, batch in seen.items()} == {0: "ab", 1: "bc"}
    again = run(source, table, tmp_path / "checkpoint", options)
    assert {number: ids(batch) for number, batch in again.items()} == {1: "bc", 2: "a", 3: "d"}
    assert run(source, table, tmp_path / "checkpoint", options) == {}
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    newest = table.timeline().completed_writes()[-1].completion_time
    assert json.loads(offsets[-1].read_text().splitlines()[-1]) == {"completion_time": newest}


@pytest.mark.full
def test_change_data_with_concurrent_commits(source: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow")
    table.upsert(rows("ab", 1))
    table.upsert(rows("b", 2))

    def write(number: int) -> None:
        if number == 0:
            table.delete(rows("a", 0))

    options = {**CDC, "pyhudi.stream.max.files": "1"}
    first = run(source, table, tmp_path / "checkpoint", options, write)
    # A run that takes what is available takes what was there when it began.
    assert [[row["op"] for row in first[number]] for number in sorted(first)] == [["i", "i"], ["u"]]
    then = run(source, table, tmp_path / "checkpoint", options)
    assert [row["op"] for batch in then.values() for row in batch] == ["d"]
    told = [row for batch in (*first.values(), *then.values()) for row in batch]
    assert sorted(map(str, told)) == sorted(map(str, table.changes().to_arrow().to_pylist()))


@pytest.mark.full
def test_columns_filters_and_the_latest_start(source: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow")
    table.upsert(rows("ab", 1))
    table.upsert(rows("b", 2))
    whole = run(source, table, tmp_path / "whole", {"pyhudi.columns": "id", "pyhudi.filter": "ts > 1"})
    assert [row for batch in whole.values() for row in batch] == [{"id": "b"}]
    latest = run(source, table, tmp_path / "latest", {START: "latest"})
    assert [row for batch in latest.values() for row in batch] == []
    table.upsert(rows("z", 3))
    assert [ids(batch) for batch in run(source, table, tmp_path / "latest", {}).values()] == ["z"]


@pytest.mark.full
def test_invalid_stream_options_are_rejected(source: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow")
    table.upsert(rows("a", 1))
    for options, text in (({START: "soon"}, "earliest, latest"), ({**CDC, BEGIN: "0"}, "batch queries")):
        with pytest.raises(Exception, match=text):
            run(source, table, tmp_path / text, options)
