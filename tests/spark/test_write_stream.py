"""The streaming sink writes every row once, after any crash between the commit and Spark's checkpoint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Action
from pyhudi.table.snapshot import read_commit
from tests.support.spark_streams import ONCE, OPTIONS, ids_of, put_file, source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_failure_between_commit_and_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    folder, path = tmp_path / "in", tmp_path / "t"
    for number in range(2):
        put_file(folder, number, range(number * 10, number * 10 + 10))
    sink = hs.StreamSink(path, OPTIONS)

    def dies(batch: DataFrame, number: int) -> None:
        sink(batch, number)
        if number == 1:
            raise OSError("the driver is gone")

    failing = source(spark, folder).writeStream.option("checkpointLocation", str(tmp_path / "c")).trigger(**ONCE)
    with pytest.raises(Exception, match="the driver is gone"):
        failing.foreachBatch(dies).start().awaitTermination()
    sink.close()
    assert ids_of(path) == list(range(20))
    hs.write_stream(source(spark, folder), path, OPTIONS, checkpoint=tmp_path / "c", trigger=ONCE).awaitTermination()
    assert ids_of(path) == list(range(20))


KILLED = """
    import os, sys
    from pyspark.sql import SparkSession
    from pyhudi import spark as hs
    folder, path, checkpoint = sys.argv[1:4]
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 1).getOrCreate()
    sink = hs.StreamSink(path, {options})
    def dies(batch, number):
        sink(batch, number)
        if number == 1:
            os.kill(os.getpid(), 9)
    stream = spark.readStream.schema("id string, ts long").option("maxFilesPerTrigger", 1).parquet(folder)
    stream.writeStream.option("checkpointLocation", checkpoint).foreachBatch(dies).start().awaitTermination()
"""


# What is on disk by then is what the failure above leaves.
@pytest.mark.wide
def test_a_driver_that_is_killed_between_commit_and_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    folder, path = tmp_path / "in", tmp_path / "t"
    for number in range(2):
        put_file(folder, number, range(number * 10, number * 10 + 10))
    script = textwrap.dedent(KILLED).replace("{options}", repr(OPTIONS))
    where = [str(folder), str(path), str(tmp_path / "c")]
    done = subprocess.run([sys.executable, "-c", script, *where], env=dict(os.environ), capture_output=True, timeout=1200)
    assert done.returncode == -9, done.stderr.decode()[-2000:]
    assert ids_of(path) == list(range(20))
    hs.write_stream(source(spark, folder), path, OPTIONS, checkpoint=tmp_path / "c", trigger=ONCE).awaitTermination()
    assert ids_of(path) == list(range(20))


def test_compactions_and_clusterings_run_during_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    folder, path = tmp_path / "in", tmp_path / "t"
    options = {
        **OPTIONS,
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.compact.inline.max.delta.commits": "2",
        "hoodie.clustering.async.enabled": "true",
        "hoodie.clustering.async.max.commits": "3",
        "hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy",
    }
    for number in range(5):
        put_file(folder, number, range(10))
    hs.write_stream(source(spark, folder), path, options, checkpoint=tmp_path / "c", trigger=ONCE).awaitTermination()
    table = hp.Table(path)
    deadline = time.monotonic() + 1200
    while table.timeline().pending() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not table.timeline().pending()
    kinds = {read_commit(table.context.timeline, i).operation_type for i in table.timeline().completed_writes()}
    assert "UPSERT" in kinds and "COMPACT" in kinds
    assert ids_of(path) == list(range(10))
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {4}


def test_complete_mode_replaces_the_table(spark: SparkSession, tmp_path: Path) -> None:
    folder, path = tmp_path / "in", tmp_path / "t"
    for number in range(2):
        put_file(folder, number, range(10))
    counts = source(spark, folder).groupBy("id").count()
    options = {key: value for key, value in OPTIONS.items() if "precombine" not in key and "operation" not in key}
    hs.write_stream(counts, path, options, checkpoint=tmp_path / "c", output_mode="complete", trigger=ONCE).awaitTermination()
    assert hp.Table(path).scan(["count"]).to_arrow()["count"].to_pylist() == [2] * 10


def test_a_batch_is_tried_again_and_dropped_only_on_demand(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    frame = spark.createDataFrame([("a", 1)], "id string, ts long")
    named = {**OPTIONS, "hoodie.datasource.write.streaming.checkpoint.identifier": "me"}
    hs.StreamSink(path, named)(frame, 0)
    hs.StreamSink(path, named)(frame, 0)
    assert hp.Table(path).scan().count() == 1
    bad = frame.selectExpr("struct(id) as id", "ts")
    with pytest.raises(InvalidRequest):
        hs.StreamSink(path, named)(bad, 1)
    hs.write(frame, str(path), options=OPTIONS)
    time_ = hp.Table(path).timeline().latest_time()
    store = hp.Table(path).context.timeline
    store.request(str(int(time_) + 1), Action.RESTORE, b"")
    dropping: dict[str, Any] = {**named, "hoodie.datasource.write.streaming.ignore.failed.batch": True}
    hs.StreamSink(path, dropping)(frame, 1)
    with pytest.raises(hp.errors.TableState, match="restore"):
        hs.StreamSink(path, named)(frame, 1)


def run_sinks(spark: SparkSession, folder: Path, checkpoint: Path, *sinks: tuple[hs.StreamSink, str]) -> None:
    """Run a query whose batches several sinks write, each the rows of a condition."""

    def apply(batch: DataFrame, number: int) -> None:
        for sink, condition in sinks:
            sink(batch.where(condition), number)

    stream = source(spark, folder).writeStream.option("checkpointLocation", str(checkpoint)).trigger(**ONCE)
    stream.foreachBatch(apply).start().awaitTermination()
    for sink, _ in sinks:
        sink.close()


def test_sinks_of_one_query(spark: SparkSession, tmp_path: Path) -> None:
    folder, path = tmp_path / "in", tmp_path / "t"
    upsert = {**OPTIONS, "hoodie.datasource.write.operation": "upsert"}
    delete = {**OPTIONS, "hoodie.datasource.write.operation": "delete"}
    put_file(folder, 0, range(6))
    put_file(folder, 1, range(4, 8))
    sinks = (hs.StreamSink(path, upsert), "id < 6"), (hs.StreamSink(path, delete), "ts = 1 and id in (4, 5)")
    run_sinks(spark, folder, tmp_path / "c", *sinks)
    assert ids_of(path) == [0, 1, 2, 3]

    put_file(folder, 2, range(10, 14))
    twice = (hs.StreamSink(path, upsert), "id < 12"), (hs.StreamSink(path, upsert), "id >= 12")
    with pytest.raises(Exception, match="two sinks of one query write to"):
        run_sinks(spark, folder, tmp_path / "c", *twice)
    name = "hoodie.datasource.write.streaming.checkpoint.identifier"
    named = (hs.StreamSink(path, {**upsert, name: "low"}), "id < 12"), (hs.StreamSink(path, {**upsert, name: "high"}), "id >= 12")
    run_sinks(spark, folder, tmp_path / "c", *named)
    assert ids_of(path) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_checkpoint_from_an_older_copy_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder, path, checkpoint = tmp_path / "in", tmp_path / "t", tmp_path / "c"

    def run() -> None:
        hs.write_stream(source(spark, folder), path, OPTIONS, checkpoint=checkpoint, trigger=ONCE).awaitTermination()

    put_file(folder, 0, range(2))
    run()
    shutil.copytree(checkpoint, tmp_path / "copy")
    put_file(folder, 1, range(2, 4))
    run()
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", checkpoint)
    (folder / "0001.parquet").unlink()
    # Another file becomes batch 1 of the copy; its rows would be skipped.
    put_file(folder, 2, range(4, 6))
    with pytest.raises(Exception, match="the checkpoint is older than the table"):
        run()
    assert ids_of(path) == [0, 1, 2, 3]


def test_invalid_stream_sink_options_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="output mode"):
        hs.StreamSink(tmp_path, OPTIONS, output_mode="sometimes")
    with pytest.raises(InvalidRequest, match="complete replaces"):
        hs.StreamSink(tmp_path, OPTIONS, output_mode="complete")
    with pytest.raises(InvalidRequest, match="delete partitions"):
        hs.StreamSink(tmp_path, {**OPTIONS, "hoodie.datasource.write.operation": "delete_partition"})
