"""Smoke test of the streaming sink: each batch is one commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.operations.write.micro_batches import SINK_CHECKPOINT_KEY
from pyhudi.table.snapshot import read_commit
from tests.support.spark_streams import ONCE, OPTIONS, ids_of, put_file, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_batch_is_one_commit_and_a_restart_continues(spark: SparkSession, tmp_path: Path) -> None:
    folder, path = tmp_path / "in", tmp_path / "t"
    for number in range(3):
        put_file(folder, number, range(number * 10, number * 10 + 10))
    query = hs.write_stream(source(spark, folder), path, OPTIONS, checkpoint=tmp_path / "c", trigger=ONCE)
    query.awaitTermination()
    assert ids_of(path) == list(range(30))
    put_file(folder, 3, range(30, 40))
    hs.write_stream(source(spark, folder), path, OPTIONS, checkpoint=tmp_path / "c", trigger=ONCE).awaitTermination()
    assert ids_of(path) == list(range(40))
    table = hp.Table(path)
    numbers = [
        read_commit(table.context.timeline, i).extra_metadata[SINK_CHECKPOINT_KEY] for i in table.timeline().completed_writes()
    ]
    # The query's id in its checkpoint names the stream, so these are four batches of one.
    assert len(set(text.split('"')[1] for text in numbers)) == 1
    assert [text.split('"')[3] for text in numbers] == ["0", "1", "2", "3"]
